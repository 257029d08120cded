"""Carries out the signals that begin, stop, pause and resume snapshots."""

from __future__ import annotations

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.resnapshot_scheduler import ResnapshotScheduler
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator, check_form
from airflow_provider_cdc.core.model.connector_offset import ScanRange, TableScan
from airflow_provider_cdc.core.model.connector_signal import Signal, SignalState
from airflow_provider_cdc.core.model.notifications import NotificationType
from airflow_provider_cdc.core.model.run_metrics import ChunkMetrics
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.signals.requested_key_ranges import InvalidKeyRange, check_number, ranges_of
from airflow_provider_cdc.core.signals.signal_request_parser import (
    ExecuteSnapshotRequest,
    SignalRejected,
    StopSnapshotRequest,
)
from airflow_provider_cdc.core.signals.table_patterns import (
    check_work,
    conditions_by_table,
    format_missing_tables,
    match_tables,
    ranges_by_table,
)
from airflow_provider_cdc.core.snapshot.snapshot_policy import find_unshared_view
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import incremental_ended, incremental_started


class SnapshotActions:
    """Carries out the signals about snapshots.

    :param metrics: of incremental snapshots
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        history: SchemaHistory,
        tables: CapturedTables,
        incremental: IncrementalCoordinator,
        rereads: ResnapshotScheduler,
        metrics: ChunkMetrics,
    ) -> None:
        self._source, self._config, self._filters = inputs.source, inputs.config, inputs.filters
        self._has_readers = inputs.open_readers is not None
        self._state, self._batcher = output.state, output.batcher
        self._history, self._tables = history, tables
        self._incremental, self._rereads, self._metrics = incremental, rereads, metrics

    def execute_snapshot(self, signal: Signal, request: ExecuteSnapshotRequest) -> str | None:
        """``execute-snapshot``: have tables read, whole or in chunks.

        :return: the result, as text; ``None`` when it is only begun
        :raises SignalRejected: it cannot be done
        """
        if not request.collections:
            return "the signal names no table: nothing to do"
        captured = self._captured()
        check_work([*request.collections, *request.conditions, *{entry.table for entry in request.ranges}], captured)
        tables, missing = match_tables(request.collections, captured)
        if not tables:
            raise SignalRejected(format_missing_tables(missing, captured))
        conditions = conditions_by_table(request.conditions, tables)
        for table in tables:
            self._incremental.tables[str(table)] = table
        if request.blocking:
            if missing:
                raise SignalRejected(format_missing_tables(missing, captured))
            if request.on_spark:
                self._check_spark()
            self._read_whole(signal, tables, conditions, on_spark=request.on_spark)
        else:
            self._read_in_chunks(
                signal, request, tables, conditions, format_missing_tables(missing, captured) if missing else ""
            )
        return None

    def stop_snapshot(self, signal: Signal, request: StopSnapshotRequest) -> str:
        """``stop-snapshot``: tables are not read in chunks any more."""
        state = self._state.incremental_state
        if not state.scans:
            return "no incremental snapshot is running"
        ids = [self._incremental.resolve_table(scan.table) for scan in state.scans]
        gone = set(ids) if request.collections is None else self._named(request.collections, ids)
        self._incremental.cancel_reads()
        remaining = [scan for scan, table in zip(state.scans, ids, strict=True) if table not in gone]
        dropped = [scan for scan, table in zip(state.scans, ids, strict=True) if table in gone]
        state = state.retain_scans(remaining)
        for number in {scan.request for scan in dropped}:
            first = next(scan for scan in dropped if scan.request == number)
            names = ", ".join(scan.table for scan in dropped if scan.request == number)
            state = state.request_failed(number, f"{names} stopped by signal {signal.id or signal.number}")
            incremental_ended(self._batcher, first, NotificationType.ABORTED, data_collections=names)
            if not any(scan.request == number for scan in remaining):
                message, state = state.request_ended(number)
                self._batcher.end_signal(number, SignalState.FAILED, message)
        self._state.incremental_state = state
        if not remaining:  # nothing is left that could be paused
            self._metrics.resume()
        return "stopped " + ", ".join(scan.table for scan in dropped)

    def pause_snapshot(self) -> str:
        """``pause-snapshot``."""
        state = self._state.incremental_state
        if not state.scans:
            return "no incremental snapshot is running"
        if not state.paused:
            self._incremental.cancel_reads()
            self._state.incremental_state = state.pause()
            self._metrics.pause()
            incremental_ended(self._batcher, state.scans[0], NotificationType.PAUSED)
        return f"paused at {state.scans[0].table}"

    def resume_snapshot(self) -> str:
        """``resume-snapshot``."""
        state = self._state.incremental_state
        if not state.scans or not state.paused:
            return "no incremental snapshot is paused"
        self._state.incremental_state = state.resume()
        self._metrics.resume()
        incremental_ended(self._batcher, state.scans[0], NotificationType.RESUMED)
        return f"resumed with {state.scans[0].table}"

    def _check_spark(self) -> None:
        """Check that Spark can read tables for this run.

        :raises SignalRejected: it cannot
        """
        if (finding := find_unshared_view(self._source)) is not None:
            raise SignalRejected(finding.problem)
        if not self._has_readers:
            raise SignalRejected(
                'the capture has no settings for a Spark job: set snapshot_job={"conn_id": "spark_default"} of CaptureOperator or of '
                "the group of cdc_dag"
            )

    def _read_whole(self, signal: Signal, tables: list[TableId], selects: dict[str, str], *, on_spark: bool) -> None:
        names = [str(table) for table in tables]
        waiting = {name: number for name, number in self._state.snapshot_state.request_numbers.items() if name in names}
        if waiting:
            shown = ", ".join(f"{name} (signal {number})" for name, number in waiting.items())
            raise SignalRejected(f"a blocking snapshot of these tables is already pending: {shown}")
        self._rereads.schedule_whole_tables(tables, request=signal.number, selects=selects, on_spark=on_spark)

    def _read_in_chunks(
        self,
        signal: Signal,
        request: ExecuteSnapshotRequest,
        tables: list[TableId],
        conditions: dict[str, str],
        trouble: str,
    ) -> None:
        try:
            check_form(self._config)
        except CdcError as e:
            raise SignalRejected(f"{e.message} {e.remedy or ''}".strip()) from e
        names = [str(table) for table in tables]
        if stopped := [name for name in names if name in self._state.offset.stopped]:
            raise SignalRejected(
                f"{', '.join(stopped)}: stopped, because a value or a row cannot be read; to resume a stopped table, take a snapshot "
                'of "type": "blocking"'
            )
        keys, ranges = self._ranges(request, tables, conditions)
        scans = [
            TableScan(
                table=name, request=signal.number, signal=signal.id, tables=len(names), condition=conditions.get(name),
                surrogate=request.surrogate, replace=request.replace, chunk_rows=request.chunk_rows,
                key=keys.get(name, []), ranges=ranges.get(name, []),
            )
            for name in names
        ]  # fmt: skip
        state = self._state.incremental_state.add_scans(scans)
        self._state.incremental_state = state.request_failed(signal.number, trouble) if trouble else state
        incremental_started(self._batcher, signal, names)

    def _ranges(
        self, request: ExecuteSnapshotRequest, tables: list[TableId], conditions: dict[str, str]
    ) -> tuple[dict[str, list[str]], dict[str, list[ScanRange]]]:
        """Table → columns of its key, and ranges; only tables of which not all rows are read."""
        absent = sum(len(entry.absent) for entry in request.ranges)
        if absent and "d" in self._config.skipped_operations:
            raise SignalRejected('"absent" requires delete events, which skipped.operations leaves out')
        keys: dict[str, list[str]] = {}
        ranges: dict[str, list[ScanRange]] = {}
        try:
            check_number(len(request.ranges), absent, self._state.incremental_state.scans)
            for table, entries in ranges_by_table(request.ranges, tables).items():
                name = str(table)
                if name in conditions:
                    raise InvalidKeyRange(f'"key-ranges" and "additional-conditions" cannot both select rows of {name}')
                schema = self._history.find_schema(table) or self._source.discover_tables({table}.__contains__)[table]
                keys[name] = [*self._filters.select_key_columns(schema)]
                ranges[name] = ranges_of(schema, keys[name], entries)
        except InvalidKeyRange as e:
            raise SignalRejected(str(e)) from None
        return keys, ranges

    def _captured(self) -> list[TableId]:
        tables = {*self._history.current_tables, *self._source.discover_tables(self._tables.is_selected)}
        return sorted(filter(self._tables.is_selected, tables), key=str)

    @staticmethod
    def _named(patterns: tuple[str, ...], tables: list[TableId]) -> set[TableId]:
        check_work(patterns, tables)
        matched, missing = match_tables(patterns, tables)
        if not matched:
            raise SignalRejected(
                f"no running incremental snapshot has a table named {', '.join(missing)}; its tables are {', '.join(map(str, tables))}"
            )
        return set(matched)
