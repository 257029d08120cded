"""Stores whether connectors are to run, and how their last runs ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState
from airflow_provider_cdc.state.models import ControlRow
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text

_NEW: dict[str, Any] = {"desired_state": DesiredState.RUNNING.value, "restarts": 0, "requested_by": "", "reason": ""}


class Controls:
    """Stores whether a connector is to run, be paused or be stopped, and how its last run ended."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def load_control(self, connector: str) -> ConnectorControl:
        for attempt in self._database.iterate_attempts("load the desired state"):
            with attempt, self._database.engine.connect() as c:
                row = c.execute(sa.select(ControlRow.__table__).where(ControlRow.connector == connector)).one_or_none()
        return ConnectorControl() if row is None else control_of(row)

    def set_control(self, connector: str, desired_state: DesiredState, by: str, reason: str = "") -> ConnectorControl:
        """Record the desired state of a connector; a run that is alive sees it within a second or two.

        :param by: who asks
        """
        for attempt in self._database.iterate_attempts("set the desired state"):
            with attempt, self._database.open_transaction() as c:
                before = lock_control_row(c, connector)
                changed_at = before.changed_at if before.desired_state == desired_state.value else datetime.now(UTC)
                _update(c, connector, by, reason, desired_state=desired_state.value, changed_at=changed_at)
        return self.load_control(connector)

    def request_restart(self, connector: str, by: str, reason: str = "") -> ConnectorControl:
        """Ask the run that is alive to end, so that another one begins. The desired state of the connector stays."""
        for attempt in self._database.iterate_attempts("request a restart"):
            with attempt, self._database.open_transaction() as c:
                before = lock_control_row(c, connector)
                _update(c, connector, by, reason, restarts=before.restarts + 1)
        return self.load_control(connector)

    def record_run_end(self, connector: str, error: str | None, metrics: dict[str, Any] | None = None) -> None:
        now = datetime.now(UTC)
        values: dict[str, Any] = {"run_ended_at": now}
        if metrics is not None:
            values["metrics"] = metrics
        if error is not None:
            values |= {"last_error": to_storable_text(error, 1_000_000), "last_error_at": now}
        for attempt in self._database.iterate_attempts("record the end of the run"):
            with attempt, self._database.open_transaction() as c:
                lock_control_row(c, connector)
                c.execute(sa.update(ControlRow).where(ControlRow.connector == connector).values(**values))


def lock_control_row(c: sa.Connection, connector: str) -> sa.Row[Any]:
    """Lock and return the connector's row, until the transaction ends; created if there is none."""
    statement = sa.select(ControlRow.__table__).where(ControlRow.connector == connector).with_for_update()
    row = c.execute(statement).one_or_none()
    if row is None:
        try:
            with c.begin_nested():
                c.execute(sa.insert(ControlRow).values(connector=connector, **_NEW))
        except IntegrityError:  # another process inserted the row in the same moment
            pass
        row = c.execute(statement).one()
    return row


def _update(c: sa.Connection, connector: str, by: str, reason: str, **values: Any) -> None:
    request = {"requested_by": to_storable_text(by, 250), "reason": to_storable_text(reason, 10_000)}
    c.execute(sa.update(ControlRow).where(ControlRow.connector == connector).values(**request, **values))


def control_of(row: sa.Row[Any]) -> ConnectorControl:
    """:param row: with the columns of :class:`ControlRow`"""
    return ConnectorControl(DesiredState(row.desired_state), row.restarts, row.requested_by, row.reason, row.changed_at)
