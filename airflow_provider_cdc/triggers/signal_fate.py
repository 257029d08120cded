"""Waits for what becomes of a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import StateError
from airflow_provider_cdc.core.signal import Fate
from airflow_provider_cdc.hooks.wording import progress_text, standstill
from airflow_provider_cdc.triggers.state import Found, StateTrigger

if TYPE_CHECKING:
    from airflow_provider_cdc.state.store import StateStore


class SignalFateTrigger(StateTrigger):
    """Fires when the fate of a signal is final, and tells the log how its snapshot comes on.

    Fires ``{"number", "id", "type", "fate", "message", "progress"}``, whatever the fate.

    :param connector: name of the connector
    :param number: the signal's number
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two questions
    """

    def __init__(self, connector: str, number: int, **common: Any) -> None:
        super().__init__(connector, **common)
        self.number = number

    def arguments(self) -> dict[str, Any]:
        return {"number": self.number}

    def ask(self, store: StateStore) -> Found:
        found = store.signals_of(self.connector, 1, number=self.number)
        if not found:
            raise StateError(
                f"Connector {self.connector} has no signal {self.number}.",
                remedy=f"look at what was sent: airflow cdc signals {self.connector}",
            )
        (signal,) = found
        fate, progress = signal.fate, signal.progress
        name = f"Signal {self.number} ({signal.type}) of {self.connector}"
        if fate is Fate.RECEIVED:
            why = standstill(store.connector(self.connector), self.connector)
            return Found(f"{name} waits to be taken{f': {why}' if why else ''}.", f"received {why}")
        stage = f"{fate.value} {progress.get('table')} {progress.get('left')} {signal.message}"
        if not fate.final:
            told = "; ".join(filter(None, (progress_text(progress), signal.message)))
            return Found(f"{told or 'begun'} ({name[0].lower()}{name[1:]})", stage)
        text = f"{name} is {fate.value}" + (f": {signal.message}" if signal.message else ".")
        document = signal.document()
        event = {name: document[name] for name in ("number", "id", "type", "message", "progress")}
        return Found(text, stage, {**event, "fate": fate.value})
