"""What people have asked for on pages, and what has become of it: from the record of actions, and of those that a run does, from Airflow.

>>> [(one.action, one.by, one.fate) for one in asked_for(store, "shop", runs)]
[('verify', 'ann', 'running'), ('pause', 'bob', 'done')]
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from airflow_provider_cdc.core.model.action import AskedFor, Fate
from airflow_provider_cdc.core.model.notifications import ACTION, Notification, Type

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.records import NotificationRecord
    from airflow_provider_cdc.state.store import StateStore

Run = tuple[str, str]
"""Ids of a DAG and of its run."""


class Fates(Protocol):
    """What Airflow knows of runs."""

    def fates(self, runs: Collection[Run]) -> Mapping[Run, tuple[Fate, datetime | None]]:
        """What has become of runs, and when they ended; without those that Airflow has no record of."""


def asked_for(store: StateStore, connector: str, runs: Fates, limit: int = 50) -> list[AskedFor]:
    """Newest first."""
    records = store.notifications(connector, limit=4 * limit, about=ACTION)
    asked = [one for one in records if one.notification.type == Type.ASKED_FOR][::-1][:limit]
    # the same run or, where there is none, the same id
    ends = {_key(one): one for one in records if one.notification.type != Type.ASKED_FOR}
    known = runs.fates({run for one in asked if (run := _run(one)) is not None})
    return [_asked(one, ends.get(_key(one)), known) for one in asked]


def _asked(
    one: NotificationRecord, end: NotificationRecord | None, known: Mapping[Run, tuple[Fate, datetime | None]]
) -> AskedFor:
    data, run = one.notification.additional_data, _run(one)
    told = None if end is None else end.notification
    fate, ended_at = _fate_of(told) if run is None or run not in known else known[run]
    if run is not None and told is None and run not in known:
        fate = "not known"
    return AskedFor(
        number=one.number, at=_moment(one.notification), action=data.get("action", ""), by=data.get("by", ""), reason=data.get("reason", ""),
        what=json.loads(data.get("what", "{}")), dag=data.get("dag"), run=data.get("run"), fate=fate, ended_at=ended_at,
        outcome="" if told is None else told.additional_data.get("outcome") or told.additional_data.get("error", ""),
    )  # fmt: skip


def _fate_of(told: Notification | None) -> tuple[Fate, datetime | None]:
    if told is None:
        return "done", None
    return "failed" if told.type == Type.FAILED else "done", _moment(told)


def _moment(notification: Notification) -> datetime:
    return datetime.fromtimestamp(notification.ts_ms / 1000, UTC)


def _run(one: NotificationRecord) -> Run | None:
    data = one.notification.additional_data
    return (data["dag"], data["run"]) if "dag" in data and "run" in data else None


def _key(one: NotificationRecord) -> Run | str:
    return _run(one) or one.notification.id


__all__ = ["Fates", "Run", "asked_for"]
