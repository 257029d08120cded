"""Compares the tables of a database with the source while capture and apply continue, without Spark.

Each table is compared in one transaction that sees one state of it and of the marker, with the rows of a reference (``airflow_provider_cdc.verify.reference_capture``) and
the changes between its position and the marker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.scratch_change_log import scratch_folder
from airflow_provider_cdc.changelog.reading.partial_document_updates import find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, collect_topics, merge_pending
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError, TransientError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressReporter, ProgressTicker
from airflow_provider_cdc.targets.database.apply.start_batches import refuse_another
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode, PrimaryKeyMode
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events.event_operation_reader import read_operations
from airflow_provider_cdc.targets.database.events.moved_row_completion import late_moves
from airflow_provider_cdc.targets.database.events.partial_update_completion import (
    DocumentCompletion,
    body_of,
    select_documents_to_complete,
)
from airflow_provider_cdc.targets.database.progress.marker_table import MarkerTable
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable, table_of
from airflow_provider_cdc.targets.database.schema.topic_filter import is_topic_selected
from airflow_provider_cdc.targets.database.target_engine import build_unavailable_error, place_of
from airflow_provider_cdc.targets.database.verify.differing_key_writer import DifferingKeys
from airflow_provider_cdc.targets.database.verify.expected_rows import ExpectedRows
from airflow_provider_cdc.targets.database.verify.table_comparison import RowNotStorable, TableComparison
from airflow_provider_cdc.verify.batches_after_reference import (
    ONLY_CHANGES,
    BatchesAfterReference,
    NeverComparable,
    NotComparable,
)
from airflow_provider_cdc.verify.verification_documents import ReferencePoint, VerificationPlan
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport

log = logging.getLogger(__name__)

TARGET: Final = "database"
_LOOK_S: Final = 1.0
"""Seconds between two reads of a marker that is behind."""
_NAMED: Final = 5
"""How many tables the command of an error names."""


def why_not(config: DatabaseTargetConfig, topic: str) -> str:
    """Why the table of a topic can never be compared with the source; empty if it can.

    >>> why_not(DatabaseTargetConfig.parse({}), "shop.orders")
    'insert.mode=insert: its rows are events, which the source does not contain'
    """
    if not is_topic_selected(topic, config):
        return "topics or topics.regex leaves it out, so it has no table"
    if config.insert_mode is InsertMode.INSERT:
        return "insert.mode=insert: its rows are events, which the source does not contain"
    if config.insert_mode is InsertMode.UPDATE:
        return "insert.mode=update: only rows that another process has inserted are changed"
    if config.primary_key_mode is not PrimaryKeyMode.RECORD_KEY:
        return f"primary.key.mode={config.primary_key_mode}: its rows do not have the key of the source"
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
        config: DatabaseTargetConfig,
        plan: VerificationPlan,
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
            with engine.connect() as connection:  # the engine knows its database only after that
                self._dialect: TargetDialect = dialect_of(engine, config.effective_time_zone)
                why = self._dialect.not_comparable(
                    connection, format_cdc_command("rebuild", plan.connector, *self._topics()[:_NAMED])
                )
        except sa.exc.DBAPIError as e:  # of Oracle and Db2, a wrong password is no OperationalError
            raise build_unavailable_error(engine, e) from e
        if why is not None:
            problem, remedy = why
            raise ConfigError(
                f"Tables cannot be verified here: {problem}.",
                where=self._place,
                safe="Nothing was verified or changed.",
                remedy=remedy,
            )
        self._markers = MarkerTable(config.marker_table, plan.connector, config.name)
        self._deadline = time.monotonic() + plan.wait_s
        self._way, self._at_work = (0, 0), ""

    def run(self) -> VerificationReport:
        """Compare the tables with the source.

        :raises ConfigError: the folder of keys is not empty
        :raises TransientError: a part of a reference was deleted
        :raises ChangeLogDamaged: a file of a change log differs from its manifest
        :raises TargetError: the tables are of another change log
        :raises TargetUnavailable: the database cannot be reached
        """
        began, plan = time.monotonic(), self._plan
        self._refuse_keys()
        results = [
            TableVerification(topic, self._place, not_compared=text, never=True)
            for topic, text in plan.not_compared.items()
        ]
        board = self._changelog.open_progress_board(plan.connector)
        work = ProgressReporter("Verify", "tables", where=f"{TARGET} at {self._place}", board=board, logger=log)
        tables = sum(len(point.topics) for point in plan.references)
        with ProgressTicker(work, self._build_progress), scratch_folder() as folder:
            for point in plan.references:
                since = BatchesAfterReference(self._changelog, plan.connector, point.first, straddles=point.straddles)
                for pending in self._reference(point):
                    self._way, self._at_work = (len(results), tables), pending.topic
                    results.append(self._table(point, pending, since, f"{folder}/{len(results)}"))
        results.sort(key=lambda result: result.topic)
        position = plan.references[-1].position if plan.references else {}
        return VerificationReport(plan.connector, position, results, round(time.monotonic() - began, 3), plan.named)

    def _refuse_keys(self) -> None:
        if not self._keys:
            return
        files, path = self._scratch.storage.resolve_url(self._keys)
        if files.exists(path) and files.ls(path, detail=False):
            raise ConfigError(
                f"The folder {self._keys} is not empty.",
                safe="Nothing was verified or changed.",
                remedy="set --keys to a folder that is empty or does not exist",
            )

    def _topics(self) -> list[str]:
        """List the tables that are to be compared."""
        return sorted({topic for point in self._plan.references for topic in point.topics})

    def _build_progress(self) -> dict[str, Any]:
        """Return the progress, in the form that :meth:`ProgressReporter.report_progress` has."""
        done, total = self._way
        return {"done": done, "total": total, "now": f"at work: {self._at_work}" if self._at_work else ""}

    def _reference(self, point: ReferencePoint) -> Iterator[PendingBatches]:
        """Read the rows of the source, by topic."""
        contents = [manifest.batch_contents for manifest in self._scratch.read_manifests(point.name)]
        if len(contents) != point.batches:
            raise TransientError(
                f"The scratch change log has {len(contents)} of the {point.batches} batches that were written to it.",
                where=f"{self._scratch.storage.url}, {point.name}",
                safe="No table was changed.",
                remedy="run the verification again, and do not delete its scratch change log while it runs",
            )
        by_topic = collect_topics(self._scratch, contents)
        yield from (by_topic[topic] for topic in sorted(point.topics) if topic in by_topic)

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(
        self, point: ReferencePoint, pending: PendingBatches, since: BatchesAfterReference, path: str
    ) -> TableVerification:
        began, result = time.monotonic(), TableVerification(pending.topic, self._place, point.position)
        try:
            table = self._target_table(pending)
            with ExpectedRows(f"{path}.rows", table) as expected:
                expected.apply_operations(read_operations(self._scratch, point.name, pending, table, self._config))
                self._compare(result, point, pending, since, table, expected, path)
        except NotComparable as e:
            self._not_compared(result, e)
        except sa.exc.DBAPIError as e:
            if self._dialect.is_transient(e):
                raise build_unavailable_error(self._engine, e) from e
            result.not_compared = f"it could not be read: {str(e.orig).strip().splitlines()[0][:300]}"
        result.seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s.", result.display_name, "equal" if result.is_equal else "NOT equal")
        return result

    def _not_compared(self, result: TableVerification, why: NotComparable) -> None:
        result.not_compared, result.never = str(why), isinstance(why, NeverComparable)
        result.problem, result.missing, result.surplus, result.different = "", 0, 0, 0
        result.differing, result.examples = {}, []

    def _target_table(self, pending: PendingBatches) -> DatabaseTargetTable:
        """Return the target table that is compared.

        :raises NeverComparable: there is no such table, or its rows are not those of the source
        """
        try:
            table = table_of(pending.topic, pending.schema, self._config, self._dialect)
        except CdcError as e:
            raise NeverComparable(e.message) from e
        key = {field.column.name for field in table.key_columns}
        if left_out := [name for name in pending.schema.key if name not in key]:
            raise NeverComparable(
                f"primary.key.fields leaves out {', '.join(left_out)}: one of its rows represents several rows of the source"
            )
        return table

    def _compare(
        self,
        result: TableVerification,
        point: ReferencePoint,
        reference: PendingBatches,
        since: BatchesAfterReference,
        table: DatabaseTargetTable,
        expected: ExpectedRows,
        path: str,
    ) -> None:
        connection, result.batch = self._pinned(result.topic, point, since)
        with connection:
            result.location = str(table.name)
            there = self._dialect.inspect_table(connection, table)
            lacking = [field.name for field in table.fields if there and field.name not in there.columns]
            if there is None or lacking:
                self._bring_up(expected, reference, since, table, max(result.batch, since.required_batch))
                result.source = len(expected)
                if lacking:
                    result.problem = f"it has no column {', '.join(lacking)}"
                else:  # it is made with its first event
                    result.problem = "the table does not exist" if len(expected) else ""
            else:
                field_names = {field.name for field in table.fields}
                result.only_in_table = [name for name in there.columns if name not in field_names]
                folder = f"{self._keys}/{result.topic}" if self._keys else ""
                keys = DifferingKeys(self._scratch.storage, folder, table, self._config.effective_time_zone)
                comparison = TableComparison(
                    self._dialect, connection, table, there, result, keys, self._values, f"{path}.seen"
                )
                try:
                    with comparison.open_session_table():
                        self._dialect.hold_rows(connection, table)
                        result.batch = self._pinned_again(connection, result.topic, since)
                        self._bring_up(expected, reference, since, table, max(result.batch, since.required_batch))
                        comparison.compare(expected)
                except RowNotStorable as e:
                    result.problem = str(e)
                finally:
                    result.keys = folder if keys.close() else ""
            connection.rollback()
        if result.problem or result.rows_differ:
            self._refuse_unsettled(result, since, reference)

    def _bring_up(
        self,
        expected: ExpectedRows,
        reference: PendingBatches,
        since: BatchesAfterReference,
        table: DatabaseTargetTable,
        last: int,
    ) -> None:
        """Apply the changes up to a batch to the reference's rows.

        :raises NotComparable: the columns were being changed meanwhile
        """
        parts = since.list_parts(reference.topic, last)
        if not parts:
            return
        pending = merge_pending(parts, last, parts[-1].position)
        if pending.changes or pending.name_takeover:
            raise NotComparable("its columns were changed while the source was read: verify it again")
        if pending.files:
            if self._target_table(pending) != table:
                raise NotComparable(
                    "its columns differ from the columns that the source had when it was read: verify it again"
                )
            documents, completion = select_documents_to_complete(pending, table, self._config), None
            if documents is not None:
                if parts[0].last == since.first and since.straddles and find_partial_documents(parts[0]) is not None:
                    raise NotComparable(ONLY_CHANGES)
                body = body_of(table, documents).name
                completion = DocumentCompletion(
                    pending, table, documents, lambda keys: expected.read_values(body, keys)
                )
            arguments = (self._changelog, self._plan.connector, pending, table, self._config)
            completed = completion or late_moves(*arguments, expected.read_values)
            try:
                expected.apply_operations(read_operations(*arguments, completed=completed))
            except TargetError as e:
                raise NotComparable(e.message) from e

    def _refuse_unsettled(
        self, result: TableVerification, since: BatchesAfterReference, reference: PendingBatches
    ) -> None:
        """Reject a table whose snapshot is not complete.

        :raises NotComparable: the table may differ, as the connector has not finished to read it
        """
        last = max(result.batch or 0, since.required_batch)
        if why := since.explain_lag(str(reference.schema.id), last):
            raise NotComparable(f"{why}, so its rows may lag behind the source: verify it again after that")

    def _pinned(self, topic: str, point: ReferencePoint, since: BatchesAfterReference) -> tuple[sa.Connection, int]:
        """Open a connection in a transaction that sees the table at its last batch; also return the batch.

        The table is seen as soon as its last batch has everything up to the reference's position.

        :raises NotComparable: it does not come there in time
        """
        while True:
            connection = self._engine.connect()
            try:
                if self._dialect.STEADY is not None:
                    connection = connection.execution_options(isolation_level=self._dialect.STEADY)
                batch = self._batch(connection, topic)
                if batch is not None and (batch >= since.required_batch or not since.has_missing_events(topic, batch)):
                    return connection, batch
            except BaseException:
                connection.close()
                raise
            connection.close()
            if time.monotonic() >= self._deadline:
                stands = f"it is at batch {batch}" if batch is not None else "nothing was applied yet"
                raise NotComparable(
                    f"the apply did not reach batch {since.required_batch} within {self._plan.wait_s:.0f} s, which contains the position of "
                    f"the reference ({point.at}); {stands}: run the apply, then verify it again"
                )
            time.sleep(_LOOK_S)

    def _pinned_again(self, connection: sa.Connection, topic: str, since: BatchesAfterReference) -> int:
        """Return the same in the next transaction of a connection.

        :raises NotComparable: the table was set back meanwhile
        """
        batch = self._batch(connection, topic)
        if batch is None or (batch < since.required_batch and since.has_missing_events(topic, batch)):
            raise NotComparable("it is being rebuilt from the change log: verify it again after the rebuild")
        return batch

    def _batch(self, connection: sa.Connection, topic: str) -> int | None:
        """Return the last batch of a table; ``None`` if there is no marker.

        :raises TargetError: the tables are of another change log
        """
        if not self._markers.is_created(connection):
            return None
        markers = self._markers.read(connection)
        forgetting = self._markers.build_delete_statement(self._engine)
        refuse_another(self._changelog, self._plan.connector, markers, self._place, forgetting)
        return markers.behind.get(topic, markers.batch)
