"""Stores whether connectors are to run, and how their last runs ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.spi.state_records import RunFailure, marks_of
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState
from airflow_provider_cdc.state.models import ControlRow, OffsetRow, SignalRow
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

    def record_run_end(
        self,
        connector: str,
        error: str | None,
        metrics: dict[str, Any] | None = None,
        failure: RunFailure | None = None,
    ) -> None:
        now = datetime.now(UTC)
        values: dict[str, Any] = {"run_ended_at": now}
        if metrics is not None:
            values["metrics"] = metrics
        if error is not None:
            values |= {"last_error": to_storable_text(error, 1_000_000), "last_error_at": now}
        for attempt in self._database.iterate_attempts("record the end of the run"):
            with attempt, self._database.open_transaction() as c:
                before = lock_control_row(c, connector)
                values["failure"] = None if failure is None else complete_failure(c, before, failure, before.failure)
                c.execute(sa.update(ControlRow).where(ControlRow.connector == connector).values(**values))

    def record_wait(self, connector: str, until: datetime) -> None:
        """Record that a sensor waits for a repair, for pages and commands; without effect if the last run has not failed."""
        for attempt in self._database.iterate_attempts("record the wait of a sensor"):
            with attempt, self._database.open_transaction() as c:
                if (failure := lock_control_row(c, connector).failure) is not None:
                    waits = {**failure, "waits_until": until.isoformat()}
                    c.execute(sa.update(ControlRow).where(ControlRow.connector == connector).values(failure=waits))


def complete_failure(
    c: sa.Connection, control: sa.Row[Any], failure: RunFailure, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add the marks of the connector's state to a failure, and count it.

    :param control: the connector's row, locked
    :param before: the failure before it, if there is one
    """
    offset = sa.select(OffsetRow.version).where(OffsetRow.connector == control.connector)
    signal = sa.select(sa.func.max(SignalRow.id)).where(SignalRow.connector == control.connector)
    marks = marks_of(c.scalar(offset), c.scalar(signal), control.restarts, control.changed_at)
    failures = 1 if before is None else int(before["failures"]) + 1
    return replace(failure, marks=marks, failures=failures).to_document()


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
