"""Waits until the state of a signal is final."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import StateError
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.services.text.pause_gap_signal_texts import progress_text, why_idle
from airflow_provider_cdc.triggers.state_table_trigger import PollResult, StateTrigger

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore


class SignalCompletedTrigger(StateTrigger):
    """Fires when the state of a signal is final; until then, logs the progress of its snapshot.

    Fires ``{"number", "id", "type", "state", "message", "progress"}``, whatever the state.

    :param connector: name of the connector
    :param number: the signal's number
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two questions
    """

    def __init__(self, connector: str, number: int, **common: Any) -> None:
        super().__init__(connector, **common)
        self.number = number

    def build_arguments(self) -> dict[str, Any]:
        return {"number": self.number}

    def poll_state(self, record: ConnectorRecord | None, store: StateStore) -> PollResult:
        signals = store.signals_of(self.connector, 1, number=self.number)
        if not signals:
            raise StateError(
                f"Connector {self.connector} has no signal {self.number}.",
                safe="Nothing was changed.",
                remedy=f"list the signals: `{format_cdc_command('signals', self.connector)}`",
            )
        (signal,) = signals
        state, progress = signal.state, signal.progress
        name = f"Signal {self.number} ({signal.type}) of {self.connector}"
        if state is SignalState.RECEIVED:
            why = why_idle(record, self.connector)
            return PollResult(f"{name} waits for a run{f': {why}' if why else ''}.", f"received {why}")
        stage = f"{state.value} {progress.get('table')} {progress.get('left')} {signal.message}"
        if not state.is_final:
            text = "; ".join(filter(None, (progress_text(progress), signal.message)))
            return PollResult(f"{text or 'started'} ({name[0].lower()}{name[1:]})", stage)
        text = f"{name} is {state.value}" + (f": {signal.message}" if signal.message else ".")
        document = signal.to_document()
        event = {name: document[name] for name in ("number", "id", "type", "message", "progress")}
        return PollResult(text, stage, {**event, "state": state.value})
