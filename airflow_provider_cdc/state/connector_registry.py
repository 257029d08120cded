"""Lists connectors, with everything that the state tables hold of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.notifications import ACTION, ROW
from airflow_provider_cdc.core.spi.state_records import (
    ConnectorRecord,
    ConnectorRegistration,
    RunFailure,
    TargetProgress,
)
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, Lease
from airflow_provider_cdc.state.desired_state import control_of
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.models import (
    Base,
    ConnectorRow,
    ControlRow,
    LeaseRow,
    NotificationRow,
    OffsetRow,
    SignalRow,
)
from airflow_provider_cdc.state.offset_table_states import present_offsets
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.target_notes import load_targets

_NAMED = 500
"""Connectors up to which a query names them; of more, all rows are read."""


class Connectors:
    """Registers, lists and forgets connectors."""

    def __init__(self, database: StateDatabase, leases: Leases) -> None:
        self._database, self._leases = database, leases

    def register(self, registration: ConnectorRegistration) -> None:
        """Record a connector's definition. It is written only if it has changed."""
        key = ConnectorRow.connector == registration.connector
        for attempt in self._database.iterate_attempts("record the definition"):
            with attempt:
                if self.load_registration(registration.connector) == registration:
                    return
                values = registration.to_document() | {"updated_at": datetime.now(UTC)}
                with self._database.open_transaction() as c:
                    if c.execute(sa.update(ConnectorRow).where(key).values(**values)).rowcount:
                        return
                    try:
                        with c.begin_nested():
                            c.execute(sa.insert(ConnectorRow).values(**values))
                    except IntegrityError:  # another run inserted the row in the same moment
                        c.execute(sa.update(ConnectorRow).where(key).values(**values))

    def load_registration(self, connector: str) -> ConnectorRegistration | None:
        """Return the last registration."""
        columns = [c for c in ConnectorRow.__table__.columns if c.name != "updated_at"]
        with self._database.engine.connect() as c:
            row = c.execute(sa.select(*columns).where(ConnectorRow.connector == connector)).one_or_none()
        return None if row is None else ConnectorRegistration(**row._mapping)

    def list_records(self, connector: str | None = None, *, metrics: bool = True) -> list[ConnectorRecord]:
        """Every connector, by name, or one of them.

        :param metrics: with those of the last run
        """
        statement = _statement(ConnectorRow, OffsetRow, metrics=metrics)
        if connector is not None:
            statement = statement.where(statement.selected_columns.connector == connector)
        return _read(self._database, statement)

    def load_records(self, names: Collection[str]) -> dict[str, ConnectorRecord]:
        """Load some connectors, with whatever the state tables hold of them."""
        statement = _statement(ConnectorRow, OffsetRow, ControlRow)
        statement = statement.where(statement.selected_columns.connector.in_(names))
        for attempt in self._database.iterate_attempts("load the records of connectors"):
            with attempt:
                records = _read(self._database, statement)
        return {record.connector: record for record in records}

    def delete_connector(self, lease: Lease) -> None:
        """Delete everything that is kept of a connector, in one transaction.

        The epoch of its lease stays, so that a run that was frozen for all this time can write nothing for a new
        connector of the same name. The records of what people did stay, too: actions, and views of rows.

        :raises LeaseLost: another run took over
        """
        for attempt in self._database.iterate_attempts("delete the connector"):
            with attempt, self._database.open_transaction() as c:
                self._leases.lock_lease(c, lease)
                for table in Base.metadata.sorted_tables:
                    if table.name == LeaseRow.__tablename__:
                        continue
                    statement = sa.delete(table).where(table.c.connector == lease.connector)
                    if table.name == NotificationRow.__tablename__:
                        statement = statement.where(table.c.aggregate_type.not_in((ACTION, ROW)))
                    c.execute(statement)


def _statement(*tables: Any, metrics: bool = True) -> sa.Select[Any]:
    """Build the statement for everything of the connectors that are in any of these tables."""
    names = sa.union(*(sa.select(table.connector) for table in tables)).subquery()
    newest = sa.select(sa.func.max(SignalRow.id)).where(SignalRow.connector == names.c.connector).scalar_subquery()
    return (
        sa.select(
            names.c.connector, ConnectorRow.source, ConnectorRow.changelog, ConnectorRow.changelog_options,
            ConnectorRow.properties, ConnectorRow.connections, ConnectorRow.updated_at.label("registered_at"),
            OffsetRow.offset, OffsetRow.version, OffsetRow.updated_at, LeaseRow.owner, LeaseRow.expires_ms, LeaseRow.acquired_at,
            ControlRow.desired_state, ControlRow.restarts, ControlRow.requested_by, ControlRow.reason, ControlRow.changed_at,
            ControlRow.run_ended_at, ControlRow.last_error, ControlRow.last_error_at,
            ControlRow.metrics if metrics else sa.null().label("metrics"), ControlRow.failure,
            newest.label("last_signal"),
        )
        .outerjoin(ConnectorRow, ConnectorRow.connector == names.c.connector)
        .outerjoin(OffsetRow, OffsetRow.connector == names.c.connector)
        .outerjoin(LeaseRow, LeaseRow.connector == names.c.connector)
        .outerjoin(ControlRow, ControlRow.connector == names.c.connector)
        .order_by(names.c.connector)
    )  # fmt: skip


def _read(database: StateDatabase, statement: sa.Select[Any]) -> list[ConnectorRecord]:
    with database.engine.connect() as c:
        now = c.scalar(database.now_ms)
        rows = c.execute(statement).all()
        documents = {row.connector: (row.version, row.offset) for row in rows if row.offset is not None}
        offsets = present_offsets(c, documents)
        targets = load_targets(c, [row.connector for row in rows] if len(rows) < _NAMED else None)
    return [_record(row, offsets.get(row.connector), targets.get(row.connector, ()), now) for row in rows]


def _record(row: sa.Row[Any], offset: Offset | None, targets: Sequence[TargetProgress], now_ms: int) -> ConnectorRecord:
    left_ms = (row.expires_ms or 0) - now_ms
    alive = left_ms > 0
    dead = row.owner is not None and not alive  # a run that has ended has returned its lease
    return ConnectorRecord(
        connector=row.connector,
        registration=None
        if row.changelog is None
        else ConnectorRegistration(
            row.connector, row.source, row.changelog, row.changelog_options, row.properties, row.connections
        ),
        offset=offset,
        version=row.version,
        moved_at=row.updated_at,
        owner=row.owner if alive else None,
        owner_since=row.acquired_at if alive else None,
        lease_s=max(left_ms, 0) / 1000,
        dead_owner=row.owner if dead else None,
        died_at=datetime.now(UTC) + timedelta(milliseconds=left_ms) if dead else None,
        control=ConnectorControl() if row.desired_state is None else control_of(row),
        run_ended_at=row.run_ended_at,
        last_error=row.last_error,
        last_error_at=row.last_error_at,
        metrics=row.metrics or {},
        registered_at=row.registered_at,
        last_signal=row.last_signal or 0,
        failure=None if row.failure is None else RunFailure.from_document(row.failure),
        targets=tuple(targets),
    )
