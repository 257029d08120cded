"""Notifications in the state tables, committed together with the facts that they report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.state_records import NotificationRecord
from airflow_provider_cdc.state.models import NotificationRow
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text


def record_notifications(
    c: sa.Connection, connector: str, notifications: Sequence[Notification], batch: int | None
) -> None:
    """Write notifications within an open transaction.

    :param batch: the batch that they were committed with
    """
    rows = [
        {
            "connector": connector,
            "notification_id": to_storable_text(n.id, 500),
            "aggregate_type": to_storable_text(n.aggregate_type, 250),
            "type": to_storable_text(n.type, 250),
            "additional_data": {
                to_storable_text(k, 1000): to_storable_text(v, 100_000) for k, v in n.additional_data.items()
            },
            "batch": batch,
            "created_at": datetime.fromtimestamp(n.ts_ms / 1000, UTC),
        }
        for n in notifications
    ]
    for row in rows:  # one by one: numbers follow the order
        c.execute(sa.insert(NotificationRow).values(**row))


class Notifications:
    """Reads notifications."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def add(self, connector: str, notification: Notification) -> None:
        """Write a notification in a separate transaction."""
        for attempt in self._database.iterate_attempts("store a notification"):
            with attempt, self._database.open_transaction() as c:
                record_notifications(c, connector, [notification], None)

    def list_newest(
        self,
        connector: str,
        *,
        after: int | None = None,
        limit: int = 50,
        about: str | None = None,
        type_: str | None = None,
    ) -> list[NotificationRecord]:
        """Notifications of a connector, oldest first.

        :param after: those with a number above this one; by default the newest ones
        :param about: only those of this ``aggregate_type``
        :param type_: only those of this type
        """
        r = NotificationRow
        statement = sa.select(
            r.id, r.notification_id, r.aggregate_type, r.type, r.additional_data, r.batch, r.created_at
        ).where(r.connector == connector)  # fmt: skip
        if about is not None:
            statement = statement.where(r.aggregate_type == about)
        if type_ is not None:
            statement = statement.where(r.type == type_)
        if after is not None:
            statement = statement.where(r.id > after).order_by(r.id)
        else:
            statement = statement.order_by(r.id.desc())
        for attempt in self._database.iterate_attempts("list notifications"):
            with attempt, self._database.engine.connect() as c:
                rows = [_record(*row) for row in c.execute(statement.limit(limit))]
        return rows if after is not None else rows[::-1]


def _record(
    number: int,
    id_: str,
    aggregate_type: str,
    type_: str,
    data: dict[str, str],
    batch: int | None,
    created_at: datetime,
) -> NotificationRecord:
    ts_ms = round(created_at.timestamp() * 1000)
    notification = Notification(id=id_, aggregate_type=aggregate_type, type=type_, additional_data=data, ts_ms=ts_ms)
    return NotificationRecord(number, notification, batch)
