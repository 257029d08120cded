"""Waits until a target has applied the captured changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.sensor import PokeReturnValue

from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.sensors.state_sensor import StateSensor
from airflow_provider_cdc.services.tasks.connector_fields import StateFields
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_POINT = "cdc_applied_batch"
"""Key of the task's state: the batch that it waits for."""


class AppliedSensor(StateSensor):
    """Waits until the tables of a target hold everything up to a point.

    The point is a batch, a sequence number or a position in the source's log. Without any, it is the end of the change log when the sensor begins to wait.

        >>> AppliedSensor(task_id="applied", connector="shop", seq="{{ ti.xcom_pull('capture')['seq'] }}")

    Returns ``{"batch", "applied", "target"}``: the batch that was waited for and the target's last one.

    :param target: kind of target, as of ``ApplyChangesOperator`` (templated)
    :param location: which target, where there are several of a kind, as of ``ApplyChangesOperator`` (templated); without it, all of
        them must have reached the point
    :param topic: only the table of this topic must have reached the point (templated); without it, every table. Waits if the connector has captured no
        table of it
    :param batch: number of a batch (templated)
    :param seq: a sequence number (templated)
    :param position: a position in the source's log, as a JSON object or its text (templated)
    """

    template_fields: Sequence[str] = (
        *StateFields.STATE_FIELDS, "target", "location", "topic", "batch", "seq", "position",
    )  # fmt: skip

    OPTIONAL_TEXTS = ("target", "location", "topic")

    def __init__(
        self,
        *,
        target: str = "delta",
        location: str | None = None,
        topic: str | None = None,
        batch: int | str | None = None,
        seq: int | str | None = None,
        position: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target, self.location = target, location
        self.topic, self.batch, self.seq, self.position = topic, batch, seq, position
        self.check_parameters()
        self._point: int | None = None
        """The batch that is waited for, once it is known."""

    def poke(self, context: Context) -> bool | PokeReturnValue:
        store, point = context.get("task_state_store"), self._point
        if point is None and store is not None:
            stored_batch = store.get(_POINT)  # each poke of mode "reschedule" is a separate process
            point = None if stored_batch is None else int(str(stored_batch))
        trigger = self.build_trigger()
        if point is not None:
            trigger.batch = point
        answer = self._ask(trigger)
        if trigger.batch != point and store is not None:
            store.set(_POINT, trigger.batch)
        self._point = trigger.batch
        return False if answer.event is None else PokeReturnValue(True, self.build_result(answer.event))

    def build_trigger(self) -> AppliedTrigger:
        points: dict[str, Any] = {
            "batch": _number(self.batch),
            "seq": _number(self.seq),
            "position": _object(self.position),
        }
        if len(names := [name for name, value in points.items() if value is not None]) > 1:
            raise AirflowFailException(f"Give only one of batch, seq and position, not {' and '.join(names)}.")
        return AppliedTrigger(
            self.connector,
            target=self.target,
            location=self.location or None,
            topic=self.topic or None,
            state_conn_id=self.state_conn_id,
            poll_interval=self.poll_interval,
            **points,
        )


def _number(value: int | str | None) -> int | None:
    if value in (None, ""):
        return None
    try:
        return int(str(value))
    except ValueError:
        raise AirflowFailException(f"{value!r} is not a number.") from None


def _object(value: Mapping[str, Any] | str | None) -> dict[str, Any] | None:
    if value in (None, ""):
        return None
    try:
        position = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        position = None
    if not isinstance(position, Mapping):
        raise AirflowFailException(f"{value!r} is not a position: give a JSON object.")
    return dict(position)
