"""Compares the tables of a database with the source while capture and apply go on, without Spark.

Each table is compared in one transaction that sees one state of it and of the marker, with the rows of a reference (``airflow_provider_cdc.verify.reference``) and what
was captured between its position and the marker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.temporary_log import scratch_folder
from airflow_provider_cdc.changelog.reading.partial_updates import partial
from airflow_provider_cdc.changelog.reading.pending_batches import Pending, collect, joined
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError, TransientError
from airflow_provider_cdc.core.remedy_commands import cdc
from airflow_provider_cdc.core.reporting.work_progress import Ticker, WorkProgress
from airflow_provider_cdc.targets.database.apply.start_batches import refuse_another
from airflow_provider_cdc.targets.database.config import InsertMode, PrimaryKeyMode, SinkConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.dialects.dialect import Dialect
from airflow_provider_cdc.targets.database.engine import place_of, unavailable
from airflow_provider_cdc.targets.database.events.late_moves import late_moves
from airflow_provider_cdc.targets.database.events.partial_updates import Completion, body_of, completes
from airflow_provider_cdc.targets.database.events.table_operations import steps
from airflow_provider_cdc.targets.database.progress.markers import MarkerTable
from airflow_provider_cdc.targets.database.schema.target_table import SinkTable, table_of
from airflow_provider_cdc.targets.database.schema.topic_filter import chosen
from airflow_provider_cdc.targets.database.verify.differing_keys import DifferingKeys
from airflow_provider_cdc.targets.database.verify.expected_rows import ExpectedRows
from airflow_provider_cdc.targets.database.verify.table_comparison import CannotHold, TableComparison
from airflow_provider_cdc.verify.captured_since import ONLY_CHANGES, NeverComparable, NotComparable, Since
from airflow_provider_cdc.verify.verification_plan import ReferencePoint, VerifyPlan
from airflow_provider_cdc.verify.verification_report import Compared, Verified

log = logging.getLogger(__name__)

TARGET: Final = "database"
_LOOK_S: Final = 1.0
"""Seconds between two looks at a marker that is behind."""
_NAMED: Final = 5
"""How many tables the command of an error names."""


def why_not(config: SinkConfig, topic: str) -> str:
    """Why the table of a topic can never be compared with the source; empty if it can.

    >>> why_not(SinkConfig.parse({}), "shop.orders")
    'insert.mode=insert: its rows are events, and the source has no such rows to compare them with'
    """
    if not chosen(topic, config):
        return "topics or topics.regex leaves it out, so that there is no table of it"
    if config.insert_mode is InsertMode.INSERT:
        return "insert.mode=insert: its rows are events, and the source has no such rows to compare them with"
    if config.insert_mode is InsertMode.UPDATE:
        return "insert.mode=update: rows that somebody else has inserted are changed, and no others"
    if config.primary_key_mode is not PrimaryKeyMode.RECORD_KEY:
        return f"primary.key.mode={config.primary_key_mode}: its rows are not found by the source's key"
    if not config.delete_enabled:
        return "delete.enabled=false: it keeps rows that the source has deleted"
    if not config.truncate_enabled:
        return "truncate.enabled=false: it keeps rows that the source has truncated"
    return ""


class VerifyDatabase:
    """Compares the tables of one database.

        >>> VerifyDatabase(engine, config, plan, verification.scratch, changelog).run().equal
        True

    :param engine: of the target database
    :param scratch: change log of the references
    :param changelog: of the connector
    :param values: whether examples show values; they may be personal data
    :param keys: folder for the keys of the rows that differ, as Parquet, one for each topic; empty: they are not written
    :raises TargetUnavailable: the database cannot be reached
    :raises ConfigError: tables cannot be compared there
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: SinkConfig,
        plan: VerifyPlan,
        scratch: ChangeLog,
        changelog: ChangeLog,
        *,
        values: bool = False,
        keys: str = "",
    ) -> None:
        self._engine, self._config, self._plan = engine, config, plan
        self._scratch, self._changelog, self._values, self._keys = scratch, changelog, values, keys.rstrip("/")
        self._place = place_of(engine, config)
        try:
            with engine.connect() as connection:  # only then is it known what it is
                self._dialect: Dialect = dialect_of(engine, config.zone)
                why = self._dialect.not_comparable(connection, cdc("rebuild", plan.connector, *self._topics()[:_NAMED]))
        except sa.exc.DBAPIError as e:  # of Oracle and Db2, a wrong password is no OperationalError
            raise unavailable(engine, e) from e
        if why is not None:
            what, remedy = why
            raise ConfigError(
                f"Tables cannot be compared here: {what}.",
                where=self._place,
                safe="Nothing was compared or changed.",
                remedy=remedy,
            )
        self._markers = MarkerTable(config.marker_table, plan.connector, config.name)
        self._deadline = time.monotonic() + plan.wait_s
        self._way, self._at_work = (0, 0), ""

    def run(self) -> Verified:
        """
        :raises ConfigError: the folder of keys is not empty
        :raises TransientError: somebody has deleted a part of a reference
        :raises ChangeLogDamaged: a file of a change log is not what its manifest says
        :raises TargetError: the tables are of another change log
        :raises TargetUnavailable: the database cannot be reached
        """
        began, plan = time.monotonic(), self._plan
        self._refuse_keys()
        results = [
            Compared(topic, self._place, not_compared=text, never=True) for topic, text in plan.not_compared.items()
        ]
        board = self._changelog.board(plan.connector)
        work = WorkProgress("Verify", "tables", where=f"{TARGET} at {self._place}", board=board, logger=log)
        tables = sum(len(point.topics) for point in plan.references)
        with Ticker(work, self._told), scratch_folder() as folder:
            for point in plan.references:
                since = Since(self._changelog, plan.connector, point.first, straddles=point.straddles)
                for pending in self._reference(point):
                    self._way, self._at_work = (len(results), tables), pending.topic
                    results.append(self._table(point, pending, since, f"{folder}/{len(results)}"))
        results.sort(key=lambda result: result.topic)
        position = plan.references[-1].position if plan.references else {}
        return Verified(plan.connector, position, results, round(time.monotonic() - began, 3), plan.named)

    def _refuse_keys(self) -> None:
        if not self._keys:
            return
        files, path = self._scratch.storage.elsewhere(self._keys)
        if files.exists(path) and files.ls(path, detail=False):
            raise ConfigError(
                f"There is something in {self._keys} already.",
                safe="Nothing was compared or changed.",
                remedy="give --keys a folder that is empty, or not there",
            )

    def _topics(self) -> list[str]:
        """The tables that are to be compared."""
        return sorted({topic for point in self._plan.references for topic in point.topics})

    def _told(self) -> dict[str, Any]:
        """How far it is, as :meth:`WorkProgress.tell` has it."""
        done, total = self._way
        return {"done": done, "total": total, "now": f"at work: {self._at_work}" if self._at_work else ""}

    def _reference(self, point: ReferencePoint) -> Iterator[Pending]:
        """The rows of the source, by topic."""
        contents = [manifest.contents for manifest in self._scratch.manifests(point.name)]
        if len(contents) != point.batches:
            raise TransientError(
                f"The scratch change log has {len(contents)} of the {point.batches} batches that were written to it.",
                where=f"{self._scratch.storage.url}, {point.name}",
                safe="No table was changed.",
                remedy="run the comparison again, and let nobody delete its scratch change log meanwhile",
            )
        found = collect(self._scratch, contents)
        yield from (found[topic] for topic in sorted(point.topics) if topic in found)

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, point: ReferencePoint, pending: Pending, since: Since, path: str) -> Compared:
        began, result = time.monotonic(), Compared(pending.topic, self._place, point.position)
        try:
            table = self._wanted(pending)
            with ExpectedRows(f"{path}.rows", table) as expected:
                expected.add(steps(self._scratch, point.name, pending, table, self._config))
                self._compare(result, point, pending, since, table, expected, path)
        except NotComparable as e:
            self._not_compared(result, e)
        except sa.exc.DBAPIError as e:
            if self._dialect.transient(e):
                raise unavailable(self._engine, e) from e
            result.not_compared = f"it could not be read: {str(e.orig).strip().splitlines()[0][:300]}"
        result.seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s.", result.called, "equal" if result.equal else "NOT equal")
        return result

    def _not_compared(self, result: Compared, why: NotComparable) -> None:
        result.not_compared, result.never = str(why), isinstance(why, NeverComparable)
        result.problem, result.missing, result.surplus, result.different = "", 0, 0, 0
        result.differing, result.examples = {}, []

    def _wanted(self, pending: Pending) -> SinkTable:
        """
        :raises NeverComparable: there is no such table, or its rows are not those of the source
        """
        try:
            table = table_of(pending.topic, pending.schema, self._config, self._dialect)
        except CdcError as e:
            raise NeverComparable(e.what) from e
        key = {field.column.name for field in table.key}
        if left_out := [name for name in pending.schema.key if name not in key]:
            raise NeverComparable(
                f"primary.key.fields leaves out {', '.join(left_out)}: one of its rows stands for several of the source"
            )
        return table

    def _compare(
        self,
        result: Compared,
        point: ReferencePoint,
        reference: Pending,
        since: Since,
        table: SinkTable,
        expected: ExpectedRows,
        path: str,
    ) -> None:
        connection, result.batch = self._pinned(result.topic, point, since)
        with connection:
            result.location = str(table.name)
            there = self._dialect.inspect_table(connection, table)
            lacking = [field.name for field in table.fields if there and field.name not in there.columns]
            if there is None or lacking:
                self._bring_up(expected, reference, since, table, max(result.batch, since.reached))
                result.source = len(expected)
                if lacking:
                    result.problem = f"it has no column {', '.join(lacking)}"
                else:  # it is made with its first event
                    result.problem = "there is no such table" if len(expected) else ""
            else:
                wanted = {field.name for field in table.fields}
                result.only_in_table = [name for name in there.columns if name not in wanted]
                folder = f"{self._keys}/{result.topic}" if self._keys else ""
                keys = DifferingKeys(self._scratch.storage, folder, table, self._config.zone)
                comparison = TableComparison(
                    self._dialect, connection, table, there, result, keys, self._values, f"{path}.seen"
                )
                try:
                    with comparison.staged():
                        result.batch = self._pinned_again(connection, result.topic, since)
                        self._bring_up(expected, reference, since, table, max(result.batch, since.reached))
                        comparison.compare(expected)
                except CannotHold as e:
                    result.problem = str(e)
                finally:
                    result.keys = folder if keys.close() else ""
            connection.rollback()
        if result.problem or result.rows_differ:
            self._refuse_unsettled(result, since, reference)

    def _bring_up(self, expected: ExpectedRows, reference: Pending, since: Since, table: SinkTable, last: int) -> None:
        """Put upon the reference's rows what was captured up to a batch.

        :raises NotComparable: the columns were being changed meanwhile
        """
        parts = since.parts(reference.topic, last)
        if not parts:
            return
        pending = joined(parts, last, parts[-1].position)
        if pending.changes or pending.taken:
            raise NotComparable("its columns were being changed while the source was read: verify it again")
        if pending.files:
            if self._wanted(pending) != table:
                raise NotComparable("its columns are not those that the source had when it was read: verify it again")
            documents, completion = completes(pending, table, self._config), None
            if documents is not None:
                if parts[0].last == since.first and since.straddles and partial(parts[0]) is not None:
                    raise NotComparable(ONLY_CHANGES)
                body = body_of(table, documents).name
                completion = Completion(pending, table, documents, lambda keys: expected.values(body, keys))
            given = (self._changelog, self._plan.connector, pending, table, self._config)
            completed = completion or late_moves(*given, expected.values)
            try:
                expected.add(steps(*given, completed=completed))
            except TargetError as e:
                raise NotComparable(e.what) from e

    def _refuse_unsettled(self, result: Compared, since: Since, reference: Pending) -> None:
        """
        :raises NotComparable: the table may differ, as the connector has not finished to read it
        """
        last = max(result.batch or 0, since.reached)
        if why := since.unsettled(str(reference.schema.id), last):
            raise NotComparable(
                f"{why}, so that rows may be behind those of the source: verify it again when that is over"
            )

    def _pinned(self, topic: str, point: ReferencePoint, since: Since) -> tuple[sa.Connection, int]:
        """A connection in a transaction that sees the table at its last batch, as soon as this has everything up to the reference's position; and the batch.

        :raises NotComparable: it does not come there in time
        """
        while True:
            connection = self._engine.connect()
            try:
                if self._dialect.STEADY is not None:
                    connection = connection.execution_options(isolation_level=self._dialect.STEADY)
                batch = self._batch(connection, topic)
                if batch is not None and (batch >= since.reached or not since.lacks(topic, batch)):
                    return connection, batch
            except BaseException:
                connection.close()
                raise
            connection.close()
            if time.monotonic() >= self._deadline:
                stands = f"it stands at batch {batch}" if batch is not None else "nothing was applied yet"
                raise NotComparable(
                    f"the apply has not brought it to batch {since.reached} within {self._plan.wait_s:.0f} s, which has the position at which "
                    f"the source was read ({point.at}); {stands}: run the apply, then verify it again"
                )
            time.sleep(_LOOK_S)

    def _pinned_again(self, connection: sa.Connection, topic: str, since: Since) -> int:
        """The same in the next transaction of a connection.

        :raises NotComparable: the table was set back meanwhile
        """
        batch = self._batch(connection, topic)
        if batch is None or (batch < since.reached and since.lacks(topic, batch)):
            raise NotComparable("it is being built again from the change log: verify it again when that is over")
        return batch

    def _batch(self, connection: sa.Connection, topic: str) -> int | None:
        """The last batch of a table; ``None`` if there is no marker.

        :raises TargetError: the tables are of another change log
        """
        if not self._markers.there(connection):
            return None
        markers = self._markers.read(connection)
        forgetting = self._markers.forgetting(self._engine)
        refuse_another(self._changelog, self._plan.connector, markers, self._place, forgetting)
        return markers.behind.get(topic, markers.batch)
