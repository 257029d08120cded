"""Applies the batches of a connector to the tables of a database, in groups. Each group is one transaction, with the marker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_report_writer import ApplyReportWriter
from airflow_provider_cdc.core.errors import CdcError, TargetError
from airflow_provider_cdc.core.model.batch_manifest import BatchContents
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressReporter, ProgressTicker
from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
from airflow_provider_cdc.targets.database.apply.errors_table import ErrorsTable
from airflow_provider_cdc.targets.database.apply.foreign_key_order import (
    DeferredDeletes,
    DeletesRejected,
    Topics,
    find_table_references,
    sort_parents_first,
)
from airflow_provider_cdc.targets.database.apply.lagging_tables import LaggingTableWriter, widen_if_readable
from airflow_provider_cdc.targets.database.apply.start_batches import StartBatches, refuse_another
from airflow_provider_cdc.targets.database.apply.table_evolution import refuse_engine
from airflow_provider_cdc.targets.database.apply.table_pauses import TablePauses
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, ErrorTolerance, InsertMode
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.progress.marker_table import (
    ALL,
    DatabaseMarkers,
    MarkersChanged,
    MarkerTable,
)
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from airflow_provider_cdc.targets.database.schema.topic_filter import is_topic_selected, newly_selected, topic_selection
from airflow_provider_cdc.targets.database.target_engine import build_unavailable_error, place_of

log = logging.getLogger(__name__)

TARGET = "database"
"""Kind of target in reports."""
GROUP_BYTES, GROUP_BATCHES = 256 << 20, 500
"""A transaction has the batches of about so many bytes of change log, or so many of them."""
POLL_S = 0.5
"""How often who follows the change log looks for a new batch."""
_ENSURED = 5
"""How often tables of our own are looked for, if other runs make them at the same time."""


class DatabaseApply(LaggingTableWriter):
    """Brings the tables of one database up to date with a change log.

        >>> DatabaseApply(open_engine(config), config, ChangeLog("/data/changelog"), "shop").apply().batch
        42

    :param engine: of the target database
    :param noted: further contents of reports, for later access to the database; nothing secret
    :ivar done: since it was taken last, also if that has failed in the end
    :raises TargetUnavailable: the database cannot be reached
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: DatabaseTargetConfig,
        changelog: ChangeLog,
        connector: str,
        *,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        self._noted = dict(noted or {})
        self.done = DatabaseApplyResult(place_of(engine, config))
        try:
            with engine.connect() as connection:  # the engine knows its database only after that
                dialect = dialect_of(engine, config.effective_time_zone)
                dialect.detect_features(connection)
        except sa.exc.DBAPIError as e:  # of Oracle and Db2, a wrong password is no OperationalError
            raise build_unavailable_error(engine, e) from e
        self._markers = MarkerTable(config.marker_table, connector, config.name)
        super().__init__(
            engine, dialect, config, changelog, connector, ErrorsTable(config.errors_table, self._markers.owner)
        )
        self._reports = ApplyReports(changelog.storage, connector)
        self._report_writer = ApplyReportWriter(self._reports)
        self._way = 0, 0
        self._ordered = True
        self._pauses = TablePauses()

    def apply(self) -> DatabaseApplyResult:
        """Apply everything that the change log has.

        :raises TargetError: tables could not take a change; the others are up to date
        :raises TargetUnavailable: the database cannot be reached
        """
        self._pauses.clear()
        done = self._round()
        if done.failed:
            raise self._failed(done)
        return done

    def _round(self) -> DatabaseApplyResult:
        """Apply everything that the change log has, but to tables that have failed and are not due yet."""
        began, done = time.monotonic(), DatabaseApplyResult(self.done.place)
        self._pauses.start_round()
        try:
            self._applied(done, began)
        finally:
            self.done.merge_result(done)
        self._pauses.finish_round(done.failed)
        return done

    def _applied(self, done: DatabaseApplyResult, began: float) -> None:
        report = self._reports.register_target(TARGET, done.place)
        table_states = report["table_states"]
        self._written = {topic for topic, stand in table_states.items() if stand["location"]}
        self._ensure_tables()
        report = self._with_newly_selected(report)
        board = self._changelog.open_progress_board(self._connector)
        work = ProgressReporter("Apply", "batches", where=f"{TARGET} at {done.place}", board=board, logger=log)
        with ProgressTicker(work, self._build_progress):
            self._all(done)
        now: DatabaseMarkers = self._retried(self._markers.read)
        done.batch, done.behind = now.batch, now.behind
        done.seconds = round(time.monotonic() - began, 3)
        self._report(report, done)

    def _with_newly_selected(self, report: ApplyReport) -> ApplyReport:
        """Have tables of topics that were left out, and are taken now, begin where they ended.

        :return: the report, which records the topics that are taken
        """
        now = topic_selection(self._config)
        before = report.get("selection", now)
        if now == report.get("selection"):
            return report
        markers = self._retried(self._markers.read)
        self._refuse_another(markers)
        table_states = report["table_states"]
        resumed_topics = (
            newly_selected(self._changelog, self._connector, before, now, table_states, markers.batch)
            if before != now
            else {}
        )

        def once(connection: sa.Connection) -> None:
            held = self._markers.lock_and_read(connection)
            for topic, batch in resumed_topics.items():
                if topic not in held.behind:
                    log.info("The table of %s was left out until now; it resumes after batch %d.", topic, batch)
                    self._markers.store_lagging_table(connection, topic, batch, "the table was left out until now")
            self._markers.write(connection, held.batch)

        if resumed_topics:
            self._retried(once)
        report = {**report, "selection": now, "lagging": {**report["lagging"], **resumed_topics}}
        self._report_writer.write(report)
        return report

    def pop_result(self) -> DatabaseApplyResult:
        """Return the result since the last call, and begin a new one."""
        taken, self.done = self.done, DatabaseApplyResult(self.done.place)
        return taken

    def _report(self, before: ApplyReport, done: DatabaseApplyResult) -> None:
        """Report the batches of the tables: the change log keeps the batches that they need."""
        table_states = dict(before["table_states"])
        for topic, table in done.tables.items():
            table_states[topic] = {"location": table["location"], "batch": table["last_batch"], "stamp": ""}
        for topic, batch in done.behind.items():
            unknown: TableState = {"location": "", "stamp": "", "batch": batch}
            table_states[topic] = {**table_states.get(topic, unknown), "batch": batch}
        report: ApplyReport = {
            "connector": self._connector, "target": TARGET, "location": done.place, "last_batch": done.batch, "tables": [*done.tables.values()],
            "failed": done.failed, "lagging": done.behind, "table_states": table_states, "seconds": done.seconds, "rules": "",
            "selection": topic_selection(self._config),
        }  # fmt: skip
        self._report_writer.write(cast("ApplyReport", {**report, **self._noted}))

    def apply_continuously(self, over: Callable[[float], bool]) -> DatabaseApplyResult:
        """Apply batches as they come. Several may do that at the same time: each batch is applied once.

            >>> ended = threading.Event()
            >>> sink.apply_continuously(ended.wait)

        A table that fails is tried again after pauses that grow, and the others continue.

        :param over: waits for so many seconds, or until it is true that this is to end; whether it is
        :raises CdcError: as :meth:`apply`; that tables could not take a change when it ends
        """
        done = self._round()
        while not over(POLL_S):
            if self._pauses.has_due_table() or self._changelog.has_batch(self._connector, done.batch + 1):
                done.merge_result(self._round())
        if self._pauses:  # a last try, whose errors are those of the run
            done.merge_result(self.apply())
        return done

    def read_markers(self) -> DatabaseMarkers:
        """Read the last batches of the tables."""
        markers: DatabaseMarkers = self._retried(self._markers.read)
        return markers

    def set_back(self, topic: str, schema: TableSchema, batch: int, why: str) -> None:
        """Empty the table of a topic, and have it begin after a batch: it is behind the others then, and :meth:`apply` brings it up to them.

        :param why: text of the marker meanwhile
        :raises TargetError: the change log ends before a batch that the tables have
        """
        pending = PendingBatches(topic, first=batch, last=batch, position={}, schemas={schema.version: schema})

        def once(connection: sa.Connection) -> None:
            self._refuse_another(now := self._markers.lock_and_read(connection))
            self._dialect.limit_waiting(connection)
            table = self._target_table(pending)
            if self._dialect.inspect_table(connection, table) is not None:
                self._empty(connection, table, briefly=True)
            self._markers.store_lagging_table(connection, topic, batch, why)
            self._markers.write(connection, now.batch)

        self._ensure_tables()
        self._claim([pending])
        self._retried(once)

    def refuse_unfit(self, topic: str, schema: TableSchema) -> None:
        """Refuse a table that would not take the rows of its topic again, before it is emptied.

        :raises TargetError: it takes keys as equal that are not, or has no transactions
        :raises ConfigError: the configuration does not fit it
        """
        table = self._target_table(PendingBatches(topic, schemas={schema.version: schema}))
        with self._engine.connect() as connection:
            there = self._dialect.inspect_table(connection, table)
            if there is None:
                return
            refuse_engine(self._dialect, there.engine, table.name, topic)
            if {*there.key} == {
                field.name for field in table.key_columns
            }:  # of another one, columns get types of the key
                self._dialect.refuse_merging(connection, table, format_cdc_command("rebuild", self._connector, topic))

    def _refuse_another(self, markers: DatabaseMarkers) -> None:
        """Reject a change log that is not the one of the tables.

        :raises TargetError: the change log ends before a batch that the tables have, or is another one
        """
        forgetting = self._markers.build_delete_statement(self._engine)
        self._markers.changelog = refuse_another(self._changelog, self._connector, markers, self.done.place, forgetting)

    def _all(self, done: DatabaseApplyResult) -> None:
        first: int | None = None
        while True:
            markers = self._retried(self._markers.read)
            first = markers.batch if first is None else first
            self._refuse_another(markers)
            try:
                beginnings = StartBatches(self._changelog, self._connector, self._config, self._groups, done.place)
                markers = self._begin(markers, beginnings, done)
                if markers.behind:
                    self._catch_up(markers, beginnings, done)
                    markers = self._retried(self._markers.read)
                later = {topic for topic, batch in markers.behind.items() if batch > markers.batch}
                for group in self._groups(markers.batch):
                    self._retry |= group.topics & markers.behind.keys()
                    self._way = (
                        markers.batch - first,
                        self._changelog.find_last_batch(self._connector, after=markers.batch) - first,
                    )
                    markers = self._group(group, markers, done)
                if later:
                    behind = {topic: batch for topic, batch in markers.behind.items() if topic in later}
                    self._catch_up(DatabaseMarkers(markers.batch, behind), beginnings, done)
                self._with_later(beginnings, done)
                break
            except MarkersChanged:
                log.info("Another run applies the batches of %s, too: reading the markers again.", self._connector)

    def _with_later(self, beginnings: StartBatches, done: DatabaseApplyResult) -> None:
        """Try the tables again that lack documents, or have failed before batches with more of them: the missing documents may be there."""
        if again := self._lost | self._retry:
            now = self._retried(self._markers.read)
            behind = {topic: batch for topic, batch in now.behind.items() if topic in again and batch < now.batch}
            for topic in behind:
                done.failed.pop(topic, None)
            self._catch_up(DatabaseMarkers(now.batch, behind), beginnings, done)
            self._lost.clear()
            self._retry.clear()

    def _build_progress(self) -> dict[str, Any]:
        """Return the progress, in the form that :meth:`ProgressReporter.report_progress` has."""
        done, total = self._way
        return {"done": done, "total": total, "now": f"at work: {self._at_work}" if self._at_work else ""}

    def _ensure_tables(self) -> None:
        """Make the tables of our own."""
        tables: list[Callable[[sa.Connection], None]] = [
            self._markers.create_if_missing,
            self._claims.create_if_missing,
            *([self._errors.create_if_missing] if self._config.errors_tolerance is ErrorTolerance.ALL else []),
        ]
        for ensure in tables:
            for attempt in range(_ENSURED):
                try:
                    self._retried(ensure)
                    break
                except sa.exc.DBAPIError:  # another run may have been faster; databases have different errors for that
                    if attempt + 1 == _ENSURED:
                        raise
                    # another run was faster: to make the table, or then the row in it
        self._refuse_engine()

    def _refuse_engine(self) -> None:
        """Reject a marker table whose engine has no transactions.

        :raises TargetError: the markers would stay when a transaction is undone
        """
        name = TargetTableName(self._config.marker_table)
        with self._engine.connect() as connection:
            engine = self._dialect.engine_without_transactions(sa.inspect(connection), name)
        refuse_engine(self._dialect, engine, name, ALL)

    # -- groups -------------------------------------------------------------------------------------------------------

    def _groups(self, after: int, until: int | None = None, *, together: bool = False) -> Iterator[BatchesByTopic]:
        group, size = list[BatchContents](), 0
        for manifest in self._changelog.read_manifests(self._connector, after=after, until=until):
            group.append(manifest.batch_contents)
            size += group[-1].total_bytes
            if not together and self._full(size, len(group)):
                yield BatchesByTopic(self._changelog, group)
                group, size = [], 0
        if group:
            yield BatchesByTopic(self._changelog, group)

    def _full(self, size: int, batches: int) -> bool:
        """Check whether a group is large enough.

        :param size: bytes of its files
        """
        return size >= GROUP_BYTES or batches >= GROUP_BATCHES

    def _group(self, group: BatchesByTopic, markers: DatabaseMarkers, done: DatabaseApplyResult) -> DatabaseMarkers:
        """Apply some batches to all tables that are not behind, in one transaction.

        :raises Overtaken: another run was faster
        """

        def once(connection: sa.Connection) -> dict[str, str]:
            now = self._markers.lock_and_read(connection)
            if not markers.as_far_as(now):  # tables that are not behind were prepared, and staged
                raise MarkersChanged
            failed = dict[str, str]()
            if self._dialect.DDL_IN_TRANSACTION:
                self._check_structures(connection, [pending for _, pending in self._pending(group, now.behind)])
            for topic, pending in (pendings := self._in_order(connection, self._pending(group, now.behind))):
                if error := refused.get(topic) or self._table(connection, topic, pending):
                    failed[topic] = error
                    self._markers.store_lagging_table(
                        connection, topic, markers.batch, error, markers.logs.get(ALL, ("", ""))[1]
                    )
            self._end_deletes(connection, [pending for topic, pending in pendings if topic not in failed])
            self._markers.write(connection, group.last, group.writers[group.last])
            return failed

        began = time.monotonic()
        self._claim([pending for _, pending in self._pending(group, markers.behind)])
        refused = self._prepare([p for _, p in self._pending(group, markers.behind)], self._alone(markers.as_far_as))
        try:
            failed = self._looked_at(once)
        except DeletesRejected as e:
            log.info("%s", e)
            self._ordered = False
            failed = self._looked_at(once)
        finally:
            self._held, self._ordered = None, True
        done.failed |= failed
        for _, pending in self._pending(group, {**markers.behind, **failed}):
            done.record_table(pending, self._name(pending), began, self._newest.pop(pending.topic, 0))
        logs = {ALL: (group.changelog, group.writers[group.last])}
        return DatabaseMarkers(group.last, {**markers.behind, **dict.fromkeys(failed, markers.batch)}, logs)

    def _pending(self, group: BatchesByTopic, behind: dict[str, int]) -> list[tuple[str, PendingBatches]]:
        merged = [(topic, group.merge_parts(topic)) for topic in sorted(group.topics) if topic not in behind]
        return [(t, widen_if_readable(p)) for t, p in merged if p is not None and is_topic_selected(t, self._config)]

    def _in_order(self, connection: sa.Connection, topics: Topics) -> Topics:
        """Tables in the order in which they are written; if foreign keys say which one, deletes wait for :meth:`_end_deletes`."""
        refers = (
            find_table_references(self._dialect, connection, topics, self._target_table, at_once=self._at_once)
            if self._ordered
            else {}
        )
        waits = refers and self._config.insert_mode is InsertMode.UPSERT
        self._held = DeferredDeletes(self._dialect) if waits else None
        return sort_parents_first(topics, refers)

    def _end_deletes(self, connection: sa.Connection, tables: Sequence[PendingBatches]) -> None:
        """Delete the rows that have waited, after all tables are written.

        :raises Refused: the database takes them in no order
        """
        for pending in reversed(tables if self._held is not None else ()):
            try:
                self._held.delete_deferred_rows(connection, self._target_table(pending))  # type: ignore[union-attr]
            except sa.exc.DBAPIError as e:
                if self._dialect.is_transient(e):
                    raise
                raise DeletesRejected(
                    f"The rows of {pending.topic} cannot be deleted last; each table is written separately: {e.orig}"
                ) from e
            except CdcError:
                continue  # its turn has reported it

    def _failed(self, done: DatabaseApplyResult) -> TargetError:
        lines = [f"{topic}: {why}" for topic, why in sorted(done.failed.items())]
        return TargetError(
            f"{len(lines)} tables of {self._connector} could not be applied:\n" + "\n".join(lines),
            safe=f"All other tables are at batch {done.batch}.",
            remedy="fix the cause that each table reports, then run the apply again",
        )
