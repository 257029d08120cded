"""The schema history: every recorded change, and a base with the result of the older ones, so that a run reads the base and the changes since.

The base is a row for each table that ever was. It names the last change that is in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.schema_history import CompactedSchema, StoredSchemas
from airflow_provider_cdc.core.model.table_schema import TableId, as_document
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.models import SchemaBaseRow, SchemaHistoryRow
from airflow_provider_cdc.state.state_database import StateDatabase


class SchemaHistories:
    """Reads the schema histories of connectors, and keeps their bases."""

    def __init__(self, database: StateDatabase, leases: Leases) -> None:
        self._database, self._leases = database, leases

    def read_changes(self, connector: str) -> Iterator[SchemaChangeRecord]:
        """All recorded schema changes, oldest first."""
        return (SchemaChangeRecord.model_validate(row.record) for row in self._changes(connector, 0))

    def list_recent_changes(self, connector: str, after: datetime, most: int) -> list[SchemaChangeRecord]:
        """List the schema changes that were recorded after a moment, the newest ones of these, oldest first.

        Schemas that a snapshot has found are among them.
        """
        r = SchemaHistoryRow
        statement = sa.select(r.record).where(r.connector == connector, r.created_at >= after)
        for attempt in self._database.iterate_attempts("list schema changes"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement.order_by(r.id.desc()).limit(most)).all()
        return [SchemaChangeRecord.model_validate(row.record) for row in reversed(rows)]

    def list_newest_changes(
        self, connector: str, most: int, *, before: int | None = None, naming: Collection[str] = ()
    ) -> list[tuple[int, SchemaChangeRecord]]:
        """List the newest schema changes, each with its number, newest first; by one query.

        :param before: only changes with lower numbers
        :param naming: only changes of tables with one of these names, in whatever database or schema, and those of several tables at once
        """
        r = SchemaHistoryRow
        statement = sa.select(r.id, r.record).where(r.connector == connector)
        if before is not None:
            statement = statement.where(r.id < before)
        if naming:
            first, second = r.record["changes"][0], r.record["changes"][1]
            names = [first[which]["name"].as_string() for which in ("id", "previous_id")]
            several = second["id"]["name"].as_string().is_not(None)
            statement = statement.where(sa.or_(several, *(name.in_(sorted(naming)) for name in names)))
        for attempt in self._database.iterate_attempts("list schema changes"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement.order_by(r.id.desc()).limit(most)).all()
        return [(row.id, SchemaChangeRecord.model_validate(row.record)) for row in rows]

    def of_table(self, connector: str, table: TableId) -> list[tuple[int, SchemaChangeRecord]]:
        """List the recorded schema changes that concern a name of a table, each with its batch, oldest first."""
        r = SchemaHistoryRow
        statement = sa.select(r.batch, r.record).where(r.connector == connector).order_by(r.id)
        if re.fullmatch(r"[A-Za-z0-9_$#]+", table.name):  # others are written in more than one way
            statement = statement.where(sa.cast(r.record, sa.Text).contains(f'"{table.name}"', autoescape=True))
        for attempt in self._database.iterate_attempts("load the schema history of a table"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement).all()
        records = ((row.batch, SchemaChangeRecord.model_validate(row.record)) for row in rows)
        return [
            entry for entry in records if any(table in (change.id, change.previous_id) for change in entry[1].changes)
        ]

    def load_schemas(self, connector: str) -> StoredSchemas:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.load_schemas`."""
        b = SchemaBaseRow
        statement = sa.select(b.upto, b.state).where(b.connector == connector).order_by(b.place)
        for attempt in self._database.iterate_attempts("load the schema history"):
            with attempt, self._database.engine.connect() as c:
                base = c.execute(statement).all()
        upto = base[0].upto if base else 0
        rows = self._changes(connector, upto)
        return StoredSchemas(
            base=[CompactedSchema.model_validate(row.state) for row in base],
            changes=[SchemaChangeRecord.model_validate(row.record) for row in rows],
            upto=rows[-1].id if rows else upto,
        )

    def compact(self, lease: Lease, base: Sequence[CompactedSchema], upto: int) -> None:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.compact_schemas`."""
        rows = [
            {"connector": lease.connector, "place": n, "upto": upto, "state": as_document(table)}
            for n, table in enumerate(base)
        ]
        for attempt in self._database.iterate_attempts("compact the schema history"):
            with attempt, self._database.open_transaction() as c:
                self._leases.lock_lease(c, lease)
                c.execute(sa.delete(SchemaBaseRow).where(SchemaBaseRow.connector == lease.connector))
                if rows:
                    c.execute(sa.insert(SchemaBaseRow), rows)

    def _changes(self, connector: str, after: int) -> Sequence[sa.Row[Any]]:
        """Read the changes after one."""
        r = SchemaHistoryRow
        statement = sa.select(r.id, r.record).where(r.connector == connector, r.id > after).order_by(r.id)
        for attempt in self._database.iterate_attempts("load the schema history"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement).all()
        return rows
