"""Reads changes of a Db2 test server as core does: takes over schema changes, keeps the position, and holds the stream to what it promises."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airflow_provider_cdc.core.model.log_items import OPERATIONS, Heartbeat, LogBlock, LogItem, RowBlock, SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import connect_database
from airflow_provider_cdc.sources.db2.log.stream import AsnStream
from airflow_provider_cdc.sources.db2.metrics import AsnStreamMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from dev.servers.db2 import Db2
from tests.support.patience import LONGEST_S
from tests.support.sources.db2.db2_real import authentication

Row = dict[str, Any]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Event:
    """A change, as core would make an event of it."""

    op: str
    table: str
    before: Row | None
    after: Row | None
    commit: str
    change: str
    ts_us: int
    lacking: tuple[str, ...] = ()
    lacking_before: tuple[str, ...] = ()


class Known(CapturedTableSchemas):
    """The tables of one schema, as core knows them."""

    def __init__(self, namespace: str) -> None:
        self.schemas: dict[TableId, TableSchema] = {}
        self.left_out: set[str] = set()
        self._namespace = namespace

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.schemas.get(table)

    def is_captured(self, table: TableId) -> bool:
        return table.namespace == self._namespace and table.name not in self.left_out

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return list(self.schemas)

    def apply(self, item: SchemaChange) -> None:
        for change in item.changes:
            if change.table is None:
                self.schemas.pop(change.id, None)
            else:
                self.schemas[change.id] = change.table


@dataclass
class StreamedSchema:
    """A schema of a server, and a reader of its changes.

    :ivar changes: schema changes so far
    :ivar blocks: blocks of rows so far
    """

    server: Db2
    properties: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.namespace = f"LOG_{next(_numbers)}"
        self.tables = Known(self.namespace)
        self.position = Db2Position(b"")
        self.events: list[Event] = []
        self.changes: list[SchemaChange] = []
        self.blocks: list[LogBlock] = []
        self.heartbeats = 0
        self.metrics = AsnStreamMetrics()
        self._pending: list[Event] | None = None
        self._without_change_table: list[str] = []

    # the schema

    def create(self, *definitions: str, **options: Any) -> None:
        """Make tables and put them into capture mode: ``create("T (ID INT NOT NULL PRIMARY KEY)")``."""
        names = [definition.split()[0] for definition in definitions]
        self.server.sql(*(f"CREATE TABLE {self.namespace}.{definition}" for definition in definitions))
        for name in names:
            self.server.add_table(self.namespace, name, reinit=False, **options)
        self.server.reinit()

    def begin(self) -> StreamedSchema:
        """Know all tables, and begin at what is published now."""
        self.position = Db2Position(self.server.catch_up())
        self.know()
        return self

    def know(self) -> None:
        """Know the tables as they are now."""
        connection = connect_database(self.config)
        try:
            found = Db2CatalogReader(connection, self.config).read_captured_schemas()
        finally:
            connection.close()
        self.tables.schemas = {table: schema for table, schema in found.items() if self.tables.is_captured(table)}

    def sql(self, *statements: str, user: str | None = None) -> None:
        """Run statements in one transaction; ``{s}`` is the schema."""
        self.server.transaction(*(statement.replace("{s}", self.namespace) for statement in statements), user=user)

    def id(self, table: str) -> TableId:
        return TableId(catalog=self.server.database, namespace=self.namespace, name=table)

    def change_table(self, table: str) -> str:
        """Name of a change table in SQL."""
        return f"ASNCDC.CDC_{self.namespace}_{table}"

    def drop_change_table(self, table: str) -> None:
        """Drop a change table; its registration stays until :meth:`close`."""
        self.server.sql(f"DROP TABLE {self.change_table(table)}")
        self._without_change_table.append(table)

    def close(self) -> None:
        """Remove the registrations that have no change table: to prune, the agent of the shared server needs all of them."""
        for table in self._without_change_table:
            self.server.sql(
                f"DELETE FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = '{self.namespace}' AND SOURCE_TABLE = '{table}'"
            )

    @property
    def config(self) -> Db2Config:
        server = self.server
        given = {
            "topic.prefix": "test", "database.hostname": server.host, "database.port": server.port, "database.user": server.owner,
            "database.password": server.owner_password, "database.dbname": server.database, "poll.interval.ms": 20,
            **authentication(server),
        }  # fmt: skip
        return Db2Config.parse(given | self.properties)

    # the stream

    def stream(
        self, until: Db2Position | None = None, patience: Callable[[], float] | None = None
    ) -> Iterator[LogItem]:
        """The items from the position on, each of which is taken over before the next one."""
        self._pending = None
        stream = AsnStream(self.config, self.position, until, self.tables, self.metrics, patience)
        for item in stream.read_items():
            self._take(item)
            yield item

    def read(self, until: Db2Position | None = None) -> list[Event]:
        """Read up to a position, by default what is committed now; the events."""
        before = len(self.events)
        until = until or Db2Position(self.server.catch_up())
        for _ in self.stream(until):
            pass
        assert self.position.has_reached(until)
        return self.events[before:]

    def read_until(self, enough: Callable[[], bool]) -> None:
        """Read until something is so; then stop, wherever that is."""
        items, deadline = self.stream(), time.monotonic() + LONGEST_S
        for _ in items:
            if enough():
                break
            assert time.monotonic() < deadline, f"not so after {len(self.events)} events and {len(self.blocks)} blocks"
        items.close()  # type: ignore[attr-defined]

    def _take(self, item: LogItem) -> None:
        if isinstance(item, LogBlock):
            self.blocks.append(item)
            self._pending = (self._pending or []) + events_of(item)
            if not item.open:
                self.events += self._pending
                self._pending = None
                self._move(item.position)
        elif isinstance(item, SchemaChange):
            self.changes.append(item)
            self.tables.apply(item)
            self._move(item.position)
        elif isinstance(item, Heartbeat):
            self.heartbeats += 1
            if self._pending is None:
                self._move(item.position)

    def _move(self, position: Any) -> None:
        assert isinstance(position, Db2Position)
        assert position.commit_lsn >= self.position.commit_lsn
        assert Db2Position.from_json(position.to_json()) == position
        self.position = position


def events_of(block: LogBlock) -> list[Event]:
    """The changes of a block in their order."""
    found: dict[int, Event] = {}
    ids = block.transactions.id.to_pylist()
    assert len(block.transactions.ts_us) == len(ids)
    for rows in block.rows:
        images = [[None] * len(rows) if image is None else image.to_pylist() for image in (rows.before, rows.after)]
        assert rows.transaction is not None
        assert (np.diff(rows.order) > 0).all()
        for i, order in enumerate(rows.order.tolist()):
            tx = int(rows.transaction[i])
            commit, change = (rows.source[name][i].as_py() for name in ("commit_lsn", "change_lsn"))
            assert commit == ids[tx]
            assert rows.ts_us[i] == block.transactions.ts_us[tx]
            found[order] = Event(
                op=OPERATIONS[rows.op[i]],
                table=rows.table.id.name,
                before=images[0][i],
                after=images[1][i],
                commit=commit,
                change=change,
                ts_us=int(rows.ts_us[i]),
                lacking=_names(rows, rows.unavailable_after, i),
                lacking_before=_names(rows, rows.unavailable_before, i),
            )
    assert sorted(found) == list(range(len(found)))
    return [found[i] for i in sorted(found)]


def _names(rows: RowBlock, mask: Any, i: int) -> tuple[str, ...]:
    return () if mask is None else tuple(np.array(rows.table.column_names)[mask[:, i]].tolist())


def shorten_events(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Operation, table and key column of each change."""
    return [(e.op, e.table, (e.after or e.before or {}).get("ID")) for e in events]


def replay_events(events: Sequence[Event], table: str, key: str = "ID", rows: Iterable[Row] = ()) -> list[Row]:
    """The rows of a table after the changes, in the order of their keys.

    :param rows: that it had before
    """
    found = {row[key]: row for row in rows}
    for e in events:
        if e.table != table:
            continue
        if e.before is not None:
            assert found.pop(e.before[key]) == e.before
        if e.after is not None:
            assert e.after[key] not in found
            found[e.after[key]] = e.after
    return [found[k] for k in sorted(found)]
