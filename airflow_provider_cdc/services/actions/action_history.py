"""The history of actions that users have requested on pages, with their outcomes.

It comes from the record of actions, and of those that a run does, from Airflow.

>>> [(action.action, action.by, action.fate) for action in load_requested_actions(store, "shop", runs)]
[('verify', 'ann', 'running'), ('pause', 'bob', 'done')]
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import ACTION, Notification, NotificationType
from airflow_provider_cdc.services.actions.action_models import Fate, RequestedAction

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import NotificationRecord, SignalRecord
    from airflow_provider_cdc.state.state_store import StateStore

Run = tuple[str, str]
"""Ids of a DAG and of its run."""
_BY_SIGNAL = ("snapshot", "stop-snapshot")
"""Actions that a signal does, which has the id of their record."""
_FATES: Mapping[SignalState, Fate] = {
    SignalState.RECEIVED: "queued", SignalState.RUNNING: "running", SignalState.DONE: "done", SignalState.REFUSED: "failed",
    SignalState.FAILED: "failed",
}  # fmt: skip


class RunOutcomes(Protocol):
    """Airflow's knowledge of runs."""

    def find_outcomes(self, runs: Collection[Run]) -> Mapping[Run, tuple[Fate, datetime | None]]:
        """Return the outcomes of runs, and when they ended; without runs that Airflow has no record of."""


def load_requested_actions(
    store: StateStore, connector: str, runs: RunOutcomes, limit: int = 50
) -> list[RequestedAction]:
    """Newest first."""
    # runs that no user has requested on a page, such as those of every night, record their ends, too
    requests = store.list_notifications(connector, limit=limit, about=ACTION, type_=NotificationType.REQUESTED)[::-1]
    records = store.list_notifications(connector, limit=4 * limit, about=ACTION)
    # the same run or, where there is none, the same id
    ends = {_key(record): record for record in records if record.notification.type != NotificationType.REQUESTED}
    outcomes = runs.find_outcomes({run for request in requests if (run := _run(request)) is not None})
    signals = store.signals_of(connector, 4 * limit) if any(_by_signal(request) for request in requests) else []
    sent = {signal.id: signal for signal in signals}
    return [
        _requested_action(request, ends.get(_key(request)), outcomes, sent.get(request.notification.id))
        for request in requests
    ]


def _requested_action(
    request: NotificationRecord,
    end: NotificationRecord | None,
    outcomes: Mapping[Run, tuple[Fate, datetime | None]],
    signal: SignalRecord | None,
) -> RequestedAction:
    data, run = request.notification.additional_data, _run(request)
    end_notification = None if end is None else end.notification
    fate, ended_at = _fate_of(end_notification) if run is None or run not in outcomes else outcomes[run]
    if run is not None and end_notification is None and run not in outcomes:
        fate = "not known"
    outcome = (
        ""
        if end_notification is None
        else end_notification.additional_data.get("outcome") or end_notification.additional_data.get("error", "")
    )
    if _by_signal(request) and end_notification is None:  # it was sent: that is not the end of it
        fate, ended_at = ("not known", None) if signal is None else (_FATES[signal.state], signal.ended_at)
        outcome = "" if signal is None else signal.message
    return RequestedAction(
        number=request.number, at=_moment(request.notification), action=data.get("action", ""), by=data.get("by", ""), reason=data.get("reason", ""),
        parameters=_parse_parameters(data.get("parameters", "{}")), dag=data.get("dag"), run=data.get("run"), fate=fate, ended_at=ended_at,
        outcome=outcome,
    )  # fmt: skip


def _by_signal(record: NotificationRecord) -> bool:
    return record.notification.additional_data.get("action") in _BY_SIGNAL


def _parse_parameters(text: str) -> dict[str, Any]:
    """Return the parameters of an action; if a record cannot hold them, the beginning."""
    try:
        parameters = json.loads(text)
    except ValueError:
        parameters = None
    return parameters if isinstance(parameters, dict) else {"the beginning": text}


def _fate_of(notification: Notification | None) -> tuple[Fate, datetime | None]:
    if notification is None:
        return "done", None
    return "failed" if notification.type == NotificationType.FAILED else "done", _moment(notification)


def _moment(notification: Notification) -> datetime:
    return datetime.fromtimestamp(notification.ts_ms / 1000, UTC)


def _run(record: NotificationRecord) -> Run | None:
    data = record.notification.additional_data
    return (data["dag"], data["run"]) if "dag" in data and "run" in data else None


def _key(record: NotificationRecord) -> Run | str:
    return _run(record) or record.notification.id


__all__ = ["Run", "RunOutcomes", "load_requested_actions"]
