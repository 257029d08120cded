"""Carries out each type of signal (Debezium connector documents, "Sending signals to a connector")."""

from __future__ import annotations

import difflib
import logging
from dataclasses import replace
from typing import Any

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.signal_handling.snapshot_actions import SnapshotActions
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetPlanner
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.signals import channel_permissions
from airflow_provider_cdc.core.signals.custom_actions import SignalContext, custom_actions
from airflow_provider_cdc.core.signals.signal_request_parser import (
    TYPES,
    ExecuteSnapshotRequest,
    LogMessageRequest,
    OtherRequest,
    PauseSnapshotRequest,
    ResumeSnapshotRequest,
    SchemaChangesRequest,
    SignalRejected,
    StopSnapshotRequest,
    parse_request,
)
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput

log = logging.getLogger(__name__)


class SignalActions:
    """Carries out the signals of one run.

    :param tables: those that are captured at the position that the run has come to
    :param snapshots: carries out the signals about snapshots
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        history: SchemaHistory,
        tables: CapturedTables,
        incremental: IncrementalCoordinator,
        snapshots: SnapshotActions,
    ) -> None:
        self._connector, self._source = inputs.name, inputs.source
        self._config, self._filters, self._store = inputs.config, inputs.filters, inputs.store
        self._state, self._writer = output.state, output.writer
        self._history, self._tables, self._incremental, self._snapshots = history, tables, incremental, snapshots

    def carry_out(self, signal: Signal) -> str | None:
        """Carry out a signal.

        :return: its result, as text; ``None`` when it is only begun
        :raises SignalRejected: it cannot be done, or its sender may not ask for it
        """
        request = parse_request(signal)
        channel_permissions.check_permission(self._config, signal, request, self._source.POSITION_SIGNAL)
        match request:
            case ExecuteSnapshotRequest():
                return self._snapshots.execute_snapshot(signal, request)
            case StopSnapshotRequest():
                return self._snapshots.stop_snapshot(signal, request)
            case PauseSnapshotRequest():
                return self._snapshots.pause_snapshot()
            case ResumeSnapshotRequest():
                return self._snapshots.resume_snapshot()
            case LogMessageRequest():
                text = request.message.replace("{}", self._state.position_text)
                log.info("%s", text)
                return text
            case SchemaChangesRequest():
                return self._schema_changes(request)
            case OtherRequest():
                return self._other(request)

    def _schema_changes(self, request: SchemaChangesRequest) -> str:
        """Replace known table schemas."""
        try:
            changes = [self._source.table_of(change, request.database, request.schema) for change in request.changes]
        except CdcError as e:
            raise SignalRejected(f"{e.message} {e.remedy or ''}".strip()) from e
        for change in changes:  # all of them are taken over, or none
            if not self._tables.is_captured(change.id):
                raise SignalRejected(f"{change.id} is not captured")
            if change.table is not None:
                try:
                    self._writer.envelope.claim_topic(change.id)
                except ConfigError as e:
                    raise SignalRejected(e.message) from e
        done = []
        self._history.remove_renamed(changes)
        for change in changes:
            if change.table is not None:
                change = change.model_copy(update={"table": self._filters.record_conversions(change.table)})
            versioned = self._history.apply_change(change)
            if versioned is None:
                continue
            self._writer.schema_change(
                [versioned], [versioned.table] if versioned.table is not None else [], ddl="", database=request.database,
                position=self._state.offset.position or {}, ts_us=0, source={},
            )  # fmt: skip
            done.append(str(change.id))
        return f"adopted the structure of {', '.join(done)}" if done else "the structures were already known"

    def _other(self, request: OtherRequest) -> str:
        """Carry out a type of the source's own, or of the user's."""
        if request.type == self._source.POSITION_SIGNAL:
            return self._set_position(request.data)
        actions = custom_actions()
        action = actions.get(request.type)
        if action is None:
            valid = sorted({*TYPES, *actions, *filter(None, [self._source.POSITION_SIGNAL])})
            near = difflib.get_close_matches(request.type, valid, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SignalRejected(f"{request.type!r} is not a signal type{hint} Valid values are: {', '.join(valid)}")
        context = SignalContext(self._connector, self._state.position_text, log.info)
        return action(context, request.data) or "done"

    def _set_position(self, data: dict[str, Any]) -> str:
        """Move the offset, with the guard that ``airflow cdc offset set`` has."""
        try:
            position = self._source.position_of(data)
            self._source.verify_position(position)
        except CdcError as e:
            raise SignalRejected(" ".join(filter(None, [e.message, e.where, e.remedy]))) from e
        store, name = self._store, self._connector
        stored = replace(store.load_offset(name), offset=self._state.offset)
        plan = OffsetPlanner(name, stored, self._source, (), store.schema_history(name)).plan_move(position)
        if plan.problems:
            raise SignalRejected(" ".join(plan.problems))
        before = self._state.position_text
        for sentence in plan.consequences:
            log.warning("%s", sentence)
        self._incremental.cancel_reads()
        self._state.move_position(position)
        return f"continues from {position} instead of {before} ({plan.effect.value})"
