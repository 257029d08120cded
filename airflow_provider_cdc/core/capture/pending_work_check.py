"""Asks, before anything heavy is loaded, whether a run would find anything to do.

Most runs of most connectors find nothing. Most of their cost is in parts that they need not load and read: decoder, kernels, Arrow, the schema history.
A sensor calls :func:`find_pending_work` and :func:`gone_on`, too. :class:`RunPrecheck` checks facts that only a run has to know besides: it must be
certain that a whole run would end well and leave the state as it is.

    >>> RunPrecheck(inputs, lease).reason()
    'the log has advanced to binlog.000012:4711'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_provider_cdc.core.capture.signal_handling.signal_receiver import receive_signals
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import SnapshotMode
from airflow_provider_cdc.core.config.recorded_filter_lists import format_filter_lists
from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import RunMetrics, Value
from airflow_provider_cdc.core.snapshot.snapshot_policy import snapshot_policy
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.core.spi.store_interfaces import Lease, StateStore
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder


def to_registered_properties(config: ConnectorConfig) -> dict[str, Any]:
    """Return the properties as a registration has them: without secrets, in the form that JSON gives back."""
    return dict(json.loads(json.dumps(config.to_public_properties())))


def find_pending_work(
    name: str, record: ConnectorRecord | None, properties: Mapping[str, Any], store: StateStore
) -> str | None:
    """Find the work that a run has to do, whatever the log says; ``None`` if there is none.

    :param properties: those in force, see :func:`to_registered_properties`
    """
    offset = None if record is None else record.offset
    if record is None or offset is None or offset.position is None:
        return "nothing is captured yet"
    if pending := len(offset.snapshot.pending):
        return f"{pending} table{'s still need' if pending > 1 else ' still needs'} a snapshot"
    if offset.incremental.scans and not offset.incremental.paused:
        return f"an incremental snapshot continues with {offset.incremental.scans[0].table}"
    if record.last_signal > offset.signal and (signals := store.list_signals(name, offset.signal)):
        return f"signal {signals[0].id or signals[0].number} ({signals[0].type}) is waiting"
    if record.registration is not None and record.registration.properties != properties:
        return "the connector's properties were changed"
    return None


def gone_on(source: Source, offset: Offset, end: Position | None = None) -> str | None:
    """Describe the changes that a run would find in the log beyond the offset, or that it is another log; ``None`` if there are none.

    :param end: of the log, where it is known; otherwise the source is asked
    :raises CdcError: the source cannot be reached
    """
    assert offset.position is not None
    current, position = source.current_position() if end is None else end, source.parse_position(offset.position)
    if not source.may_have_changed(position, current):
        return None
    return f"the log {'ends at' if position.has_reached(current) else 'has advanced to'} {current}"


class RunPrecheck:
    """Asks for one run, under its lease.

    It changes nothing, except that it takes what signal channels have, and adopts a batch that a run has left behind; for
    both, a whole run follows.

    :param before: the record of the connector in the state tables before the run took the lease: it shows whether the last run had died
    """

    def __init__(self, inputs: RunInputs, lease: Lease, before: ConnectorRecord | None) -> None:
        self._inputs, self._lease, self._record = inputs, lease, before
        self._stored = inputs.store.load_offset(inputs.name)
        self.offset = self._stored.offset or Offset()

    def find_run_reason(self) -> str | None:
        """Why a whole run is needed; ``None`` if it would find nothing and change nothing.

        :raises CdcError: as a whole run raises
        """
        return self._definition() or self._state() or self._log() or self._left_behind()

    def build_metrics(self, window: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
        """Return the metrics that a whole run would have measured.

        That is nothing but how many tables and schema changes are known, as the last run has recorded.

        :param window: of :class:`.log_lag_poller.LogLagPoller`
        """
        assert self._record is not None
        last, metrics = self._record.metrics, RunMetrics()
        history = last["schema-history"]
        metrics.history.restore_counts(int(history["ChangesApplied"]), str(history["LastAppliedChange"]))
        return metrics.to_document(
            last["streaming"]["CapturedTables"], {**self._inputs.source.collect_stream_metrics(), **window}
        )

    def _definition(self) -> str | None:
        """Return the reason for a run that the properties alone give."""
        config = self._inputs.config
        if config.snapshot_mode in (SnapshotMode.RECOVERY, SnapshotMode.CUSTOM):
            return f"snapshot.mode is {config.snapshot_mode}"
        policy = snapshot_policy(config)
        if not policy.should_stream() or policy.should_snapshot_data(True, False):
            return "snapshot.mode requires more than the log"
        if config.heartbeat_interval_ms and config.heartbeat_statement():
            return "the statement of a heartbeat is due"
        return None

    def _state(self) -> str | None:
        record, inputs, offset = self._record, self._inputs, self.offset
        if record is None or not record.ended_well:
            return "no run has succeeded since the definition was recorded"
        if offset != record.offset:
            return "another run has committed"
        if reason := find_pending_work(inputs.name, record, to_registered_properties(inputs.config), inputs.store):
            return reason
        if offset.incremental.scans:
            return "an incremental snapshot is paused"
        if offset.snapshot.read_at:
            return "a table was read at a later position"
        if offset.tables_filter != format_filter_lists(inputs.config):
            return "the include and exclude lists were changed"
        applied = record.metrics.get("schema-history", {}).get("ChangesApplied")
        history_recorded = applied is not None if not inputs.source.STRUCTURED else bool(applied)
        if not history_recorded or "CapturedTables" not in record.metrics.get("streaming", {}):
            return "the last run has not recorded the metrics of its schema history"
        return None

    def _log(self) -> str | None:
        """Ask as :class:`~.run_plan.RunPlanner` and :class:`~.log_streaming.Streaming` do."""
        source, position = self._inputs.source, self.offset.position
        assert position is not None
        try:
            source.verify_position(source.parse_position(position))
        except PositionLost:
            return "the log no longer contains the position"
        return gone_on(source, self.offset)

    def _left_behind(self) -> str | None:
        """Find work that may have been left for the run: signals in channels, a batch without its offset."""
        inputs = self._inputs
        receive_signals(inputs.name, inputs.signal_channels, inputs.config, inputs.store)
        if inputs.store.list_signals(inputs.name, self.offset.signal):
            return "a signal has arrived"
        batcher = BatchBuilder(
            inputs.name,
            inputs.source.connector,
            inputs.config.to_public_properties(),
            inputs.store,
            inputs.changelog,
            self._lease,
            "",
        )
        return "a batch was adopted" if batcher.stored != self._stored else None


__all__ = ["RunPrecheck", "find_pending_work", "gone_on", "to_registered_properties"]
