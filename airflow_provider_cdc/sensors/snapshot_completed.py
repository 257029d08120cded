"""Waits until a snapshot is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.sensors.state_sensor import StateSensor
from airflow_provider_cdc.services.tasks.connector_fields import StateFields
from airflow_provider_cdc.services.text.pause_gap_signal_texts import failure_text
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger

if TYPE_CHECKING:
    from airflow_provider_cdc.triggers.state_table_trigger import StateTrigger


class SnapshotCompletedSensor(StateSensor):
    """Waits until a signal has ended, such as a requested snapshot; without a signal, waits for the initial snapshot.

    Succeeds when the signal is done. If it is refused or fails, the task fails with its message, and Airflow does not retry the
    task: a new signal must be sent. Progress (tables, rows, rows per second) is in the task's log.

        >>> send = AdHocSnapshotOperator(task_id="send", connector="shop", tables=["inventory.orders"])
        >>> SnapshotCompletedSensor(task_id="wait", connector="shop", number=send.output)

    Returns the trigger's event: of a signal its ``state`` and ``progress``, of the initial snapshot ``seq`` and ``batch``.

    :param number: the signal's number, or the result of :class:`~airflow_provider_cdc.operators.signal.SendSignalOperator`, which holds
        it (templated); ``None`` for the initial snapshot
    """

    template_fields: Sequence[str] = (*StateFields.STATE_FIELDS, "number")

    def __init__(self, *, number: int | str | Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.number = number

    def build_trigger(self) -> StateTrigger:
        common: dict[str, Any] = {"state_conn_id": self.state_conn_id, "poll_interval": self.poll_interval}
        if self.number in (None, ""):
            return InitialSnapshotTrigger(self.connector, **common)
        raw_number = self.number.get("number") if isinstance(self.number, Mapping) else self.number
        try:
            number = int(str(raw_number))
        except ValueError:
            raise AirflowFailException(f"{raw_number!r} is not the number of a signal.") from None
        return SignalCompletedTrigger(self.connector, number, **common)

    def build_result(self, event: dict[str, Any]) -> dict[str, Any]:
        if "state" in event and (wrong := failure_text(self.connector, event)) is not None:
            raise AirflowFailException(wrong)
        return event
