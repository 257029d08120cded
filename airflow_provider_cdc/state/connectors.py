"""What connectors there are, for people and for tools that know no more than a name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.seams import Lease, Wanted
from airflow_provider_cdc.state.database import Database
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.models import Base, ConnectorRow, ControlRow, LeaseRow, OffsetRow


class Connectors:
    """Registers, lists and forgets connectors."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database, self._leases = database, leases

    def register(self, record: dict[str, Any]) -> None:
        """Remember what a connector is, see ``runtime.record``. Writes only what has changed."""
        key = ConnectorRow.connector == record["connector"]
        for attempt in self._database.attempts():
            with attempt:
                if self.connector(record["connector"]) == record:
                    return
                values = record | {"updated_at": datetime.now(UTC)}
                with self._database.write() as c:
                    if c.execute(sa.update(ConnectorRow).where(key).values(**values)).rowcount:
                        return
                    try:
                        with c.begin_nested():
                            c.execute(sa.insert(ConnectorRow).values(**values))
                    except IntegrityError:  # another run inserted the row in the same moment
                        c.execute(sa.update(ConnectorRow).where(key).values(**values))

    def connector(self, name: str) -> dict[str, Any] | None:
        """What :meth:`register` was told last."""
        columns = [c for c in ConnectorRow.__table__.columns if c.name != "updated_at"]
        with self._database.engine.connect() as c:
            row = c.execute(sa.select(*columns).where(ConnectorRow.connector == name)).one_or_none()
        return None if row is None else dict(row._mapping)

    def connectors(self, connector: str | None = None) -> list[dict[str, Any]]:
        """Every connector, or one: what it is, its offset, who captures it now (``owner`` since ``taken_at``, for ``lease_s`` more),
        what is wanted of it and how its last run ended. Columns are those of the tables; ``died`` is a run whose lease ended
        because it was not renewed, at ``died_at``.
        """
        names = sa.union(sa.select(ConnectorRow.connector), sa.select(OffsetRow.connector)).subquery()
        statement = (
            sa.select(
                names.c.connector, ConnectorRow.source, ConnectorRow.changelog, ConnectorRow.changelog_options,
                ConnectorRow.properties, ConnectorRow.connections, OffsetRow.offset, OffsetRow.seq, OffsetRow.batch,
                OffsetRow.updated_at, OffsetRow.version, LeaseRow.owner, LeaseRow.expires_ms, LeaseRow.taken_at,
                ControlRow.wanted, ControlRow.restarts, ControlRow.asked_by, ControlRow.reason, ControlRow.since,
                ControlRow.run_ended_at, ControlRow.last_error, ControlRow.last_error_at, ControlRow.metrics,
            )
            .outerjoin(ConnectorRow, ConnectorRow.connector == names.c.connector)
            .outerjoin(OffsetRow, OffsetRow.connector == names.c.connector)
            .outerjoin(LeaseRow, LeaseRow.connector == names.c.connector)
            .outerjoin(ControlRow, ControlRow.connector == names.c.connector)
            .order_by(names.c.connector)
        )  # fmt: skip
        if connector is not None:
            statement = statement.where(names.c.connector == connector)
        with self._database.engine.connect() as c:
            now = c.scalar(self._database.now_ms)
            rows = [dict(row._mapping) for row in c.execute(statement)]
        for row in rows:
            left = (row.pop("expires_ms") or 0) - now
            row["lease_s"] = max(left, 0) / 1000
            row["died"], row["died_at"] = None, None
            if left <= 0 and row["owner"] is not None:  # a run that ends by itself gives its lease back
                row["died"], row["died_at"] = row["owner"], datetime.now(UTC) + timedelta(milliseconds=left)
            if left <= 0:
                row |= {"owner": None, "taken_at": None}
            row["wanted"] = row["wanted"] or Wanted.RUNNING.value
        return rows

    def forget(self, lease: Lease) -> None:
        """Delete everything that is kept of a connector, in one transaction.

        Only the epoch of its lease stays, so that a run that was frozen for all this time can write nothing for a new
        connector of the same name.

        :raises LeaseLost: another run took over
        """
        for attempt in self._database.attempts():
            with attempt, self._database.write() as c:
                self._leases.require(c, lease)
                for table in Base.metadata.sorted_tables:
                    if table.name != LeaseRow.__tablename__:
                        c.execute(sa.delete(table).where(table.c.connector == lease.connector))
