"""Plans a run: which tables are read before it streams, and from where the log is read.

The plan follows from the snapshot policy (:mod:`airflow_provider_cdc.core.snapshot.snapshot_policy`), the offset, the include and exclude
lists, and whether the log still holds the position (Debezium MySQL connector, ``snapshot.mode``; ours: ``position.lost.mode``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.core.capture.capture_remedies import how_to_read
from airflow_provider_cdc.core.capture.resnapshot_scheduler import add_pending_tables
from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.property_enums import LostPositionMode, SnapshotMode
from airflow_provider_cdc.core.config.recorded_filter_lists import RecordedFilterLists, format_filter_lists
from airflow_provider_cdc.core.config.table_limit import check_table_limit
from airflow_provider_cdc.core.config.topic_names import TopicNames
from airflow_provider_cdc.core.errors import ConfigError, PositionLost, PrerequisiteError
from airflow_provider_cdc.core.lifecycle.log_gap import repair_signals
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.snapshot.snapshot_policy import SnapshotPolicy, reads_rows
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunPlan:
    """The offset, tables and reads that a run begins with.

    :param structures: tables whose present schema is taken for the one in force at the offset's position
    :param rows: whether the rows of the pending tables are read, or only their schemas; rows that requests ask for are always read
    :param added: names of tables that were not captured, or not read, at the offset's position
    """

    offset: Offset
    structures: list[TableId] = field(default_factory=list)
    rows: bool = False
    added: list[str] = field(default_factory=list)


class RunPlanner:
    """Makes the plan of one run.

    :param policy: the decisions of ``snapshot.mode``
    :param signals: the signal table, whose schema must be known too
    :param topics: the names of topics; no two captured tables may have the same
    """

    def __init__(
        self,
        inputs: RunInputs,
        history: SchemaHistory,
        policy: SnapshotPolicy,
        signals: TableId | None,
        topics: TopicNames,
    ) -> None:
        self._name, self._source, self._config = inputs.name, inputs.source, inputs.config
        self._filters, self._store = inputs.filters, inputs.store
        self._history, self._policy, self._signals, self._topics = history, policy, signals, topics
        self._tables: dict[TableId, TableSchema] | None = None

    def build_plan(self, offset: Offset) -> RunPlan:
        """Build the plan of a run.

        :raises PositionLost: the log does not reach back, and the configuration does not say what to do then
        :raises PrerequisiteError: no table is captured, or more than there may be
        :raises ConfigError: two tables would have the same topic, or columns another type than they were captured with
        """
        check_table_limit(self._config, self._captured)
        for table in self._captured():
            self._topics.claim_topic(table)
        plan = self._new(offset) if offset.position is None else self._resumed(offset, offset.position)
        if plan.offset.position is not None or plan.offset.snapshot.pending:
            plan.offset = self._with_signal_table(plan.offset)
        return plan

    def _new(self, offset: Offset) -> RunPlan:
        """Plan a run of a connector that has no position yet."""
        policy, lists = self._policy, format_filter_lists(self._config)
        rows = policy.should_snapshot_data(False, False)
        if rows or policy.should_snapshot_schema(False, False):
            return RunPlan(self._all_pending(offset, lists), rows=rows)
        if not policy.should_stream():
            log.warning("snapshot.mode neither takes a snapshot nor streams the log: this run does nothing.")
            return RunPlan(offset)
        oldest = self._source.oldest_position().to_json()
        return RunPlan(offset.advance_position(oldest).with_tables_filter(lists))

    def _resumed(self, offset: Offset, position: dict[str, Any]) -> RunPlan:
        """Plan a run of a connector that has a position."""
        policy, lists, left = self._policy, format_filter_lists(self._config), self._left(offset)
        before = RecordedFilterLists(self._config, offset.tables_filter)
        rows = policy.should_snapshot_data(True, bool(left))
        snapshots_again = rows and (not left or policy.should_snapshot_data(True, False))
        if snapshots_again and policy.should_stream_from_snapshot():
            return RunPlan(self._all_pending(offset, lists), rows=True)
        lost = self._lost(self._source.parse_position(position))
        if lost is LostPositionMode.SNAPSHOT:
            return RunPlan(self._all_pending(offset, lists), rows=True)
        self._same_types(before)
        self._same_conversions()
        if not snapshots_again:
            rows = self._rows_of(left, rows) if left else reads_rows(policy)
        if lost is LostPositionMode.INCREMENTAL:
            plan = self._from_the_oldest(offset, lists)
        elif snapshots_again:
            added, tables = self._added(before), self._captured()
            streamed = {str(t) for t in tables} - {*added}
            again = add_pending_tables(offset, tables, self._history, streamed=streamed)
            plan = RunPlan(again.with_tables_filter(lists), added=added)
        elif self._history_is_lost():
            plan = self._present_structures(offset, lists, before)
        elif before.changed:
            plan = self._with_added(offset, lists, before)
        else:
            plan = RunPlan(offset)
        if before.changed and lost is None and not snapshots_again:
            self._warn_of_missing(before, plan)
        plan.rows = rows
        return plan

    def _left(self, offset: Offset) -> list[str]:
        """Tables that an interrupted snapshot has not read yet; without those of requests, and those of which an event was set aside."""
        pending, signals = offset.snapshot.pending, str(self._signals)
        return [
            name for name, table in pending.items() if table.request is None and not table.repair and name != signals
        ]

    def _rows_of(self, left: list[str], rows: bool) -> bool:
        """Return whether the rows of the tables that an interrupted snapshot has left are read.

        A snapshot reads all schemas first: tables that are left still need their rows. Tables that repair a gap are always
        read.

        :param rows: whether the policy says so
        """
        if rows or self._lost_mode() is LostPositionMode.SNAPSHOT:
            return True
        log.warning(
            "The snapshot of %s was pending, but with the current snapshot.mode, the rows of these tables are not read.",
            ", ".join(left),
        )
        return False

    def _history_is_lost(self) -> bool:
        if not self._source.STRUCTURED:
            return False
        if self._config.snapshot_mode is SnapshotMode.RECOVERY:
            return True
        return self._history.is_empty and self._policy.should_snapshot_on_schema_error()

    def _with_added(self, offset: Offset, lists: str, before: RecordedFilterLists) -> RunPlan:
        """Tables that the lists newly select are read like those of a new connector."""
        added = self._added(before)
        if added:
            log.info("Captured tables were added: %s.", ", ".join(added))
        tables = [t for t in self._captured() if str(t) in added]
        if not reads_rows(self._policy) and not self._policy.should_snapshot_schema(False, False):
            tables = []
        offset = add_pending_tables(offset, tables, self._history).with_tables_filter(lists)
        return RunPlan(offset, added=added)

    def _added(self, before: RecordedFilterLists) -> list[str]:
        """Tables that were not captured when the offset was written, or whose rows no snapshot read then."""
        if not before.changed:
            return []
        named = before.config.signal_data_collection
        hidden = None if named is None else self._source.signal_table(named)
        reads, filters = reads_rows(self._policy), self._filters
        return [
            str(t)
            for t in self._captured()
            if not before.filters.is_table_captured(t)
            or t == hidden
            or (reads and filters.is_snapshot_table(t) and not before.filters.is_snapshot_table(t))
        ]

    def _same_types(self, before: RecordedFilterLists) -> None:
        """Check that tables keep the types with which they were captured.

        :raises ConfigError: the log would be decoded with other types than the tables were captured with
        """
        names = before.find_changed_properties(PropertyEffect.FORM)
        present = self._discovered() if names else {}
        retyped = [
            f"{table}.{column}"
            for table in (self._captured() if names else ())
            if (captured := self._history.find_schema(table)) is not None and table in present
            for column in before.find_retyped_columns(captured, present[table])
        ]
        if retyped:
            shown = ", ".join(names)
            raise ConfigError(
                f"{shown} was changed after tables were first captured, and columns would change their type.",
                where=", ".join(retyped),
                safe="Nothing was read; the offset is untouched.",
                remedy=f"set {shown} back to its earlier value; or convert all rows to the new form: snapshot all tables again, with snapshot.mode=always for one run",
            )

    def _same_conversions(self) -> None:
        """Check that users' converters give columns the types with which tables were captured.

        :raises ConfigError: they give others, or the converters are others
        """
        tables = [t for t in self._history.current_tables if self._filters.is_table_captured(t) and t != self._signals]
        recorded = [schema for t in tables if (schema := self._history.find_schema(t)) is not None]
        both = [
            (schema.id, schema.converted, self._filters.record_conversions(schema).converted) for schema in recorded
        ]
        others = [
            f"{table}.{column}"
            for table, then, now in both
            for column in sorted({*then, *now})
            if then.get(column) != now.get(column)
        ]
        if others:
            raise ConfigError(
                "Converters give columns another type than these were captured with.",
                where=", ".join(others),
                safe="Nothing was read; the offset is untouched.",
                remedy="set converters back to its earlier value, and install the earlier version of their package; or convert all rows to the new form: "
                "snapshot all tables again, with snapshot.mode=always for one run",
            )

    def _warn_of_missing(self, before: RecordedFilterLists, plan: RunPlan) -> None:
        """Warn of tables of which the lists select more than before, and which this run does not read."""
        schemas = self._discovered()
        rows = reads_rows(self._policy)
        read = {*plan.offset.snapshot.pending} - {str(t) for t in plan.structures} if rows else set()
        left = {str(t): schemas[t] for t in self._captured() if str(t) not in read}

        def warn(why: str, names: Iterable[str]) -> None:
            if tables := {name: left[name] for name in names if name in left}:
                self._warn(why, tables)

        if not rows:
            warn("the lists include more tables than before, and snapshot.mode reads no rows", plan.added)
        columns = [str(t) for t in before.without_columns(left.values())]
        named = ", ".join(before.find_changed_properties(PropertyEffect.COLUMNS))
        warn(
            f"more columns, or other values, are captured with {named} than before, and earlier rows lack them", columns
        )
        queries = [str(t) for t in before.without_rows(schema.id for schema in left.values())]
        named = ", ".join(before.find_changed_properties(PropertyEffect.QUERIES))
        warn(f"with the earlier {named}, a snapshot read other rows of these tables", queries)
        self._warn_of_forms(before, left)
        if changes := before.wider_changes():
            warn(f"changes that the earlier {', '.join(changes)} left out are in no batch", left)

    def _warn_of_forms(self, before: RecordedFilterLists, left: Mapping[str, TableSchema]) -> None:
        """Warn of tables that keep another form than a property gives rows now: rows of one table have one form."""
        if self._source.STRUCTURED or not (changed := before.find_changed_properties(PropertyEffect.FORM)):
            return
        for name, present in left.items():
            recorded = self._history.find_schema(present.id)
            if (
                recorded is None
                or self._source.resolve_reread_schema(present, recorded).columns[: len(recorded.columns)]
                == recorded.columns
            ):
                continue
            command = format_cdc_command("snapshot", self._name, format_exact_pattern(name), type="blocking")
            log.warning(
                "Rows of %s keep their earlier form, with all values, although %s has changed. To convert the table to the new form: %s",
                name, ", ".join(changed), command,
            )  # fmt: skip

    def _warn(self, why: str, tables: Mapping[str, TableSchema]) -> None:
        """Warn of tables, with the commands that read them."""
        commands = how_to_read(self._name, tables.values(), self._filters)
        shown = ", ".join(tables)
        log.warning(
            "Rows of %s may be missing or outdated in the targets: %s. To snapshot them again: %s", shown, why, commands
        )

    def _all_pending(self, offset: Offset, lists: str) -> Offset:
        """Everything is to be read, at a new position."""
        tables = self._captured()
        if not tables and not self._source.STRUCTURED:  # tables come to be with their first rows
            return (
                offset.clear_position()
                .advance_position(self._source.current_position().to_json())
                .with_tables_filter(lists)
            )
        if not tables:
            raise PrerequisiteError(
                "No table of the database is captured: the include and exclude lists match no table.",
                where=f"connector {self._name}: {lists}",
                safe="Nothing was read; the offset is untouched.",
                remedy=f"correct {self._config.TABLES[0]}; use regular expressions that match whole names of the form <database>.<table>",
            )
        return add_pending_tables(offset.clear_position(), tables, self._history).with_tables_filter(lists)

    def _present_structures(self, offset: Offset, lists: str, before: RecordedFilterLists) -> RunPlan:
        """Take the present table schemas for those in force at the offset, as ``snapshot.mode=recovery`` says."""
        added = self._added(before)
        tables = [t for t in self._captured() if str(t) not in offset.snapshot.pending]
        offset = add_pending_tables(offset, tables, self._history).with_tables_filter(lists)
        return RunPlan(offset, [t for t in tables if str(t) not in added], added=added)

    def _from_the_oldest(self, offset: Offset, lists: str) -> RunPlan:
        """Continue from the oldest position of the log, and read all tables beside the stream.

        The requests are signals like any other, which people can see, pause and stop. Schemas stay as they were at the lost
        position, because the rest of the log may have their changes; only tables without one get their present schema.

        :raises PrerequisiteError: tables have no key, by which they could be read in chunks
        """
        assert offset.position is not None
        tables, paused = self._captured(), offset.incremental.paused
        origin = f"gap:{json.dumps(offset.position, sort_keys=True)}"
        signals = repair_signals(
            "repair-of-a-gap", self._source, self._config, self._history, paused=paused, origin=origin, by="capture"
        )
        numbers = [self._store.send(self._name, sent) for sent in signals]
        oldest = self._source.oldest_position()
        log.warning("Resuming at %s; the signals %s snapshot %d tables again.", oldest, numbers, len(tables))
        if paused:
            log.warning("Incremental snapshots were paused; they resume to repair the tables.")
        offset = offset.move_position(oldest.to_json()).with_tables_filter(lists)
        tables = [t for t in tables if self._history.find_schema(t) is None]
        return RunPlan(add_pending_tables(offset, tables, self._history), tables)

    def _lost(self, position: Position) -> LostPositionMode | None:
        """Decide what to do about a position that the log does not hold any more; ``None`` if it does."""
        try:
            self._source.verify_position(position)
        except PositionLost as e:
            mode = self._lost_mode()
            if mode is LostPositionMode.FAIL:
                raise self._with_interval(e, position) from e
            log.exception("The position is lost; the run applies position.lost.mode=%s.", mode)
            return mode
        return None

    def _lost_mode(self) -> LostPositionMode:
        mode = self._config.position_lost_mode
        if mode is LostPositionMode.FAIL and self._policy.should_snapshot_on_data_error():
            return LostPositionMode.SNAPSHOT
        return mode

    def _with_interval(self, e: PositionLost, position: Position) -> PositionLost:
        """Return the error, with the lost range of the log."""
        try:
            oldest = self._source.oldest_position()
        except Exception as e2:  # the original error matters more
            log.warning("The oldest position of the log could not be read: %s", e2)
            return e
        text = e.message
        if oldest.has_reached(position):  # otherwise there is nothing in between: the log is another one
            text = (
                f"{text.rstrip('.')}. Changes after {position} and before {oldest}, the oldest position of the log, can no "
                "longer be read."
            )
        return PositionLost(
            text,
            where=e.where,
            safe=e.safe,
            remedy=e.remedy,
        )

    def _with_signal_table(self, offset: Offset) -> Offset:
        """Have the schema of the signal table read, which the log's reader needs; nothing else of it is read."""
        table = self._signals
        if table is None or self._history.find_schema(table) is not None or str(table) in offset.snapshot.pending:
            return offset
        if table not in self._discovered():
            log.warning(
                "signal.data.collection: the table %s does not exist; create it to send signals through it.", table
            )
            return offset
        return add_pending_tables(offset, [table], self._history)

    def _captured(self) -> list[TableId]:
        return sorted((t for t in self._discovered() if t != self._signals), key=str)

    def _discovered(self) -> dict[TableId, TableSchema]:
        """Return the tables that the lists select, and the signal table: asked once, as a catalog may be large."""
        if self._tables is None:
            self._tables = self._source.discover_tables(
                lambda t: self._filters.is_table_captured(t) or t == self._signals
            )
        return self._tables
