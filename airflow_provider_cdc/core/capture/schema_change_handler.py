"""Applies the DDL statements in the log: new table schemas, emptied tables, tables to read again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from airflow_provider_cdc.core.capture.capture_remedies import how_to_read
from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.resnapshot_scheduler import ResnapshotScheduler
from airflow_provider_cdc.core.capture.unlogged_rewrite_check import rewrite_reason
from airflow_provider_cdc.core.config.property_enums import RewriteMode
from airflow_provider_cdc.core.errors import ConfigError, SchemaConflict
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.log_items import SchemaChange, Truncate
from airflow_provider_cdc.core.model.run_metrics import EventMetrics
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput

log = logging.getLogger(__name__)


class SchemaChangeHandler:
    """Takes the schema changes of one run.

    :param tables: those that are captured at the position that the run has come to
    :param reads_rows: whether a snapshot reads rows
    :param metrics: where truncates are counted
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        history: SchemaHistory,
        tables: CapturedTables,
        reads_rows: bool,
        incremental: IncrementalCoordinator,
        rereads: ResnapshotScheduler,
        metrics: EventMetrics,
    ) -> None:
        self._connector, self._config, self._filters = inputs.name, inputs.config, inputs.filters
        self._state, self._writer, self._committer = output.state, output.writer, output.committer
        self._history, self._tables, self._reads_rows = history, tables, reads_rows
        self._incremental, self._rereads, self._metrics = incremental, rereads, metrics

    def apply_change(self, item: SchemaChange) -> None:
        """Record the change; have tables read again if the log does not have the changes of their rows."""
        history, tables = self._history, self._tables
        applied: list[TableChange] = []
        captured: list[TableSchema] = []
        emptied: list[TableId] = []
        reread: list[TableId] = []
        self._claim(item)
        before = {c.id: history.find_schema(c.previous_id or c.id) for c in item.changes}
        history.remove_renamed(item.changes)
        for change in item.changes:
            if not self._concerns(change):
                continue
            seen_before = history.has_seen_table(change.id)
            versioned = history.apply_change(self._as_in_events(change))
            if versioned is None:
                continue
            applied.append(versioned)
            if versioned.table is None or not tables.has_events(change.id):
                continue
            captured.append(versioned.table)
            if change.previous_id is not None and change.previous_id != change.id:
                reread.append(change.id)
                continue
            if change.type == "CREATE" and seen_before:
                emptied.append(change.id)
            if self._must_reread(before[change.id], versioned, item):
                reread.append(change.id)
        reread += [table for table in item.structure_unknown if tables.is_captured(table)]
        if applied or item.structure_unknown:
            self._record(item, applied, captured)
            self._incremental.record_schema_changes(applied)
            self._carry(applied)
        readable = self._readable(reread)
        begun = {change.id for change in applied if change.exact}
        for table in emptied:
            if table in begun or table not in readable:  # a table that is read again is emptied then
                self._truncate(table, item, None)
        if item.open:
            self._writer.set_savepoint()
        else:
            self._state.advance_position(item.position)
            self._incremental.advance_position(item.position)
        if reread:
            self._read_again(reread, readable, item)

    def apply_truncate(self, item: Truncate) -> None:
        """Tables were emptied by a statement."""
        for table in item.tables:
            self._truncate(table, item, item.transaction_id)
        self._state.advance_position(item.position)
        self._incremental.advance_position(item.position)

    def _truncate(self, table: TableId, item: Truncate | SchemaChange, transaction: str | None) -> None:
        self._incremental.record_truncate(table)
        schema = self._history.find_schema(table)
        if schema is None or not self._tables.has_events(table) or "t" in self._config.skipped_operations:
            return
        self._writer.write_truncate(schema, item.ts_us, item.source, transaction, metrics=self._metrics)

    def _claim(self, item: SchemaChange) -> None:
        """Claim the topics of new tables.

        :raises ConfigError: a new table would have the topic of another one
        """
        for change in item.changes:
            if change.table is None or not self._tables.is_captured(change.id):
                continue
            try:
                self._writer.envelope.claim_topic(change.id)
            except ConfigError as e:
                if not item.open:
                    self._committer.commit()
                raise ConfigError(e.message, where=f"{item.position}: {item.ddl}", safe=e.safe, remedy=e.remedy) from e

    def _as_in_events(self, change: TableChange) -> TableChange:
        """Return the change with the values of new columns as events have them.

        Rules that hide or cut texts do so here as well, and users' converters. A value that is not known then has the table read again.
        """
        if change.table is None or not self._tables.is_captured(change.id):
            return change
        change = self._convert_added(change, change.table)
        if change.table is None or not any(change.added.values()):
            return change
        names = change.table.column_names
        maskings = {names[i]: masking for i, masking in self._filters.build_maskings(change.table).items()}
        added = {
            name: maskings[name](pa.array([value], pa.string()))[0].as_py() if value and name in maskings else value
            for name, value in change.added.items()
        }
        return change.model_copy(update={"added": added})

    def _convert_added(self, change: TableChange, table: TableSchema) -> TableChange:
        converted = self._filters.find_converted_columns(table)
        added, exact = dict(change.added), change.exact
        for name in added.keys() & converted.keys():
            if (value := added[name]) is not None:
                added[name] = converted[name].convert_text(value)
                exact = exact and added[name] is not None
        recorded = self._filters.record_conversions(table)
        return change.model_copy(update={"table": recorded, "added": added, "exact": exact})

    def _concerns(self, change: TableChange) -> bool:
        captured = self._tables.is_captured
        return captured(change.id) or (change.previous_id is not None and captured(change.previous_id))

    def _record(self, item: SchemaChange, applied: Sequence[TableChange], captured: Sequence[TableSchema]) -> None:
        self._writer.schema_change(
            applied, captured, ddl=item.ddl, database=item.database, position=item.position.to_json(), ts_us=item.ts_us,
            source=item.source,
        )  # fmt: skip

    def _carry(self, changes: list[TableChange]) -> None:
        """Rename a table that waits to be read: it waits under its new name."""
        renamed = [c for c in changes if c.previous_id not in (None, c.id) and self._tables.is_captured(c.id)]
        names = {str(c.previous_id): str(c.id) for c in renamed}
        if names.keys() & self._state.snapshot_state.pending.keys():
            self._state.snapshot_state = self._state.snapshot_state.rename_tables(names)

    def _readable(self, tables: list[TableId]) -> list[TableId]:
        """Return the tables among these whose rows a snapshot would read."""
        return [t for t in tables if self._filters.is_snapshot_table(t)] if self._reads_rows else []

    def _read_again(self, tables: list[TableId], readable: list[TableId], item: SchemaChange) -> None:
        restarted = self._rereads.in_chunks({str(t) for t in tables if t not in readable}, item.ddl)
        if left := [str(t) for t in tables if t not in readable and str(t) not in restarted]:
            log.warning(
                "The log does not contain the new rows of %s, and the tables are not snapshotted again: %s",
                ", ".join(left),
                item.ddl,
            )
        if not readable:
            return
        log.info("Snapshotting %s again, because of: %s", ", ".join(map(str, readable)), item.ddl)
        self._rereads.schedule_whole_tables(readable)
        self._committer.commit_if_closed()

    def _must_reread(self, old: TableSchema | None, change: TableChange, item: SchemaChange) -> bool:
        reason = rewrite_reason(old, change) or self._shown_otherwise(old, change)
        mode = self._config.rewrite_mode()
        if reason is None:
            return False
        if mode is RewriteMode.IGNORE:
            assert change.table is not None
            how = how_to_read(self._connector, [change.table], self._filters)
            log.warning(
                "Rows of %s may be missing or outdated in the targets: schema.change.rewrite.mode=ignore continues after a statement that "
                "changed rows without row events in the log (%s): %s. To snapshot them again: %s",
                change.id, reason, item.ddl, how,
            )  # fmt: skip
            return False
        if mode is RewriteMode.FAIL:
            self._committer.commit()
            raise SchemaConflict(
                f"A DDL statement changed rows of {change.id} without row events in the log: {reason}.",
                where=f"{item.position}: {item.ddl}",
                safe="Everything before this statement is captured.",
                remedy="set schema.change.rewrite.mode=snapshot to snapshot the table again, or schema.change.rewrite.mode=ignore to continue without a snapshot",
            )
        return True

    def _shown_otherwise(self, old: TableSchema | None, change: TableChange) -> str | None:
        """Why targets have other values than events of a column whose new name another rule hides, or none does; ``None`` if they have not."""
        if old is None or change.table is None:
            return None
        before = {c.name: c for c in old.columns}
        for name, previous in change.renamed.items():
            now = self._filters.compute_visible_length(change.table, change.table.get_column(name))
            if previous in before and now > -1 and now != self._filters.compute_visible_length(old, before[previous]):
                return f"another length of column {name} is captured than under its earlier name {previous}"
        return self._converted_otherwise(old, change, change.table)

    def _converted_otherwise(self, old: TableSchema, change: TableChange, table: TableSchema) -> str | None:
        """Why targets have other values than events of a column that a user's converter accepts now, or accepted before."""
        for name in table.column_names:
            if name not in change.added and old.converted.get(change.renamed.get(name, name)) != table.converted.get(
                name
            ):
                return f"column {name} is converted in another way than before"
        return None
