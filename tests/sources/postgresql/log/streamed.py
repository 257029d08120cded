"""Reads a slot of a PostgreSQL test server as core does: applies schema changes, keeps the position, and holds the stream to what it promises."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airflow_provider_cdc.core.model.log_items import (
    OPERATIONS,
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    RowBlock,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect, server_of
from airflow_provider_cdc.sources.postgresql.log.log_metrics import LogMetrics
from airflow_provider_cdc.sources.postgresql.log.slot_stream import BLOCK_BYTES, SlotStream
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, parse_lsn
from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog
from dev.servers import Postgres

Row = dict[str, Any]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Event:
    """A change, as core would make an event of it."""

    op: str
    table: str
    before: Row | None = None
    after: Row | None = None
    transaction: str | None = None
    lsn: int = 0
    lacking: tuple[str, ...] = ()
    lacking_before: tuple[str, ...] = ()

    @property
    def short(self) -> tuple[str, str, Row | None, Row | None]:
        return self.op, self.table, self.before, self.after


class Known(CapturedTableSchemas):
    """The tables of a database, as core knows them."""

    def __init__(self) -> None:
        self.history = SchemaHistory()
        self.left_out: set[str] = set()
        self.again: set[str] = set()

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.history.find_schema(table)

    def is_captured(self, table: TableId) -> bool:
        return table.name not in self.left_out

    def read_again(self, table: TableId) -> bool:
        return table.name in self.again

    def list_known_tables(self) -> list[TableId]:
        return self.history.current_tables


@dataclass
class Database:
    """A database of a test server, with a slot and a publication."""

    server: Postgres
    name: str
    config: PostgresConfig
    known: Known = field(default_factory=Known)
    metrics: LogMetrics = field(default_factory=LogMetrics)
    start: PostgresPosition = field(default_factory=lambda: PostgresPosition(0))
    changes: list[SchemaChange] = field(default_factory=list)
    items: list[LogItem] = field(default_factory=list)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a separate transaction. Returns the rows of the last one."""
        with self.server.connect(dbname=self.name) as connection:
            connection.autocommit = True
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def run_together(self, *statements: str) -> None:
        """Run statements in one transaction."""
        self.sql("; ".join(("BEGIN", *statements, "COMMIT")))

    @property
    def end(self) -> PostgresPosition:
        return PostgresPosition(parse_lsn(self.sql("SELECT pg_current_wal_flush_lsn()")[0][0]))

    def open_stream(self, until: PostgresPosition | None, *, block_bytes: int = BLOCK_BYTES) -> SlotStream:
        with connect(self.config) as connection:
            server = server_of(connection)
        return SlotStream(
            self.config, server, self.start, until, self.known, patience=lambda: 0.05, metrics=self.metrics, block_bytes=block_bytes
        )  # fmt: skip

    def capture(
        self,
        *,
        block_bytes: int = BLOCK_BYTES,
        after_item: Callable[[SlotStream, LogItem], None] = lambda stream, item: None,
        confirm: bool = True,
    ) -> list[Event]:
        """Read all that was committed up to now."""
        stream = self.open_stream(self.end, block_bytes=block_bytes)
        began, events, sure = time.monotonic(), list[Event](), 0
        self.items = []
        try:
            for item in stream.read_items():
                assert time.monotonic() - began < 120
                self.items.append(item)
                match item:
                    case LogBlock():
                        events += events_of(item)
                        if not item.open:
                            sure = len(events)
                    case Rollback():
                        del events[sure:]
                    case Truncate():
                        events += [Event("t", t.name, transaction=item.transaction_id) for t in item.tables]
                        if item.transaction_id is not None:
                            sure = len(events)
                    case SchemaChange():
                        assert not item.open
                        self.changes.append(item)
                        self.known.history.remove_renamed(item.changes)
                        for change in item.changes:
                            self.known.history.apply_change(change)
                    case Heartbeat():
                        assert item.position.has_reached(self.start)  # type: ignore[attr-defined]
                after_item(stream, item)
            assert sure == len(events), "the stream ended within a transaction"
            self.start = stream.last_position
            if confirm:
                stream.confirm_position(self.start)
        finally:
            stream.close()
        return events

    def take_changes(self) -> list[TableChange]:
        """Return the changes of structure since the last call."""
        changes = [change for item in self.changes for change in item.changes]
        self.changes.clear()
        return changes


def open_database(server: Postgres, *setup: str, publication: str = "FOR ALL TABLES", **options: object) -> Database:
    """Create a database with tables, and a slot at its end."""
    name = f"log_{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name}")
    config = PostgresConfig.parse(
        {
            "database.hostname": server.host, "database.port": server.port, "database.user": server.user, "database.password": server.password,
            "database.dbname": name, "slot.name": name, "publication.name": "Cdc", "topic.prefix": "t", "slot.max.retries": 3,
            "slot.retry.delay.ms": 100, **options,
        }
    )  # fmt: skip
    database = Database(server, name, config)
    database.sql(*setup, f'CREATE PUBLICATION "Cdc" {publication}')
    ((lsn,),) = database.sql(f"SELECT lsn FROM pg_create_logical_replication_slot('{name}', 'pgoutput')")
    with connect(config) as connection:
        structures = PostgresCatalog(connection, config).read_structures()
    for table, structure in structures.items():
        database.known.history.apply_change(TableChange(type="CREATE", id=table, table=structure.schema))
    database.start = PostgresPosition(parse_lsn(lsn))
    return database


def drop_database(database: Database) -> None:
    """Drop the database and its slot."""
    database.sql(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    )


def events_of(block: LogBlock) -> list[Event]:
    """Return the events of a block, in log order."""
    found: dict[int, Event] = {}
    for rows in block.rows:
        assert (np.diff(rows.order) > 0).all()
        found |= zip(rows.order.tolist(), _events(rows, block), strict=True)
    assert sorted(found) == list(range(len(found)))
    return [found[n] for n in sorted(found)]


def _events(rows: RowBlock, block: LogBlock) -> Iterator[Event]:
    names = rows.table.column_names
    images = [[None] * len(rows) if image is None else image.to_pylist() for image in (rows.before, rows.after)]
    masks = [rows.unavailable_before, rows.unavailable_after]
    assert rows.transaction is not None
    for n in range(len(rows)):
        lacking = [() if m is None else tuple(c for c, out in zip(names, m[:, n], strict=True) if out) for m in masks]
        lsn = rows.source["lsn"][n].as_py()
        assert rows.source["sequence"][n].as_py().endswith(f',"{lsn}"]')
        id_ = block.transactions.id[int(rows.transaction[n])].as_py()
        assert id_.startswith(f"{rows.source['txId'][n].as_py()}:")
        assert abs(rows.ts_us[n] / 1e6 - time.time()) < 600
        yield Event(
            OPERATIONS[rows.op[n]], rows.table.id.name, images[0][n], images[1][n], id_, lsn, lacking[1], lacking[0]
        )
