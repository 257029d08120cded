"""The reference implementation of the source interface."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError, PositionLost, SchemaConflict, UnreadableValue, values_of
from airflow_provider_cdc.core.model.log_items import (
    READ,
    BlockTransactions,
    Heartbeat,
    LeftOutRows,
    LogBlock,
    LogItem,
    Rollback,
    RowBlock,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema, row_struct
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.source import (
    CapturedTableSchemas,
    Finding,
    SnapshotChunk,
    SnapshotSession,
    Source,
    any_table,
)
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader, parse_condition
from airflow_provider_cdc.sources.memory.config import MemoryConfig
from airflow_provider_cdc.sources.memory.database import DATABASES, LoggedRowChange, MemoryDatabase, MemoryLogEntry, Row
from airflow_provider_cdc.sources.memory.position import MemoryPosition

_UNKNOWN = "an unknown structure, and the table now has a different one"


class MemorySource(Source):
    """Captures from a :class:`MemoryDatabase` of the same process."""

    Config: ClassVar[type[ConnectorConfig]] = MemoryConfig
    POSITION_SIGNAL: ClassVar[str | None] = "set-memory-position"
    connector = "memory"

    def __init__(self, config: MemoryConfig) -> None:
        if config.memory_database not in DATABASES:
            names = ", ".join(sorted(DATABASES)) or "none"
            raise ConfigError(
                f"The memory database {config.memory_database!r} does not exist. Valid values are: {names}."
            )
        self._config, self._db = config, DATABASES[config.memory_database]

    def check_prerequisites(self) -> list[Finding]:
        return []

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        return {table: schema for table, schema in self._db.read_consistent_view()[1].items() if needed(table)}

    def current_position(self) -> MemoryPosition:
        return MemoryPosition(self._db.read_consistent_view()[0])

    def oldest_position(self) -> MemoryPosition:
        return MemoryPosition(self._db.oldest)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, MemoryPosition)
        if not self._db.oldest <= position.entry <= len(self._db.log):
            raise PositionLost(
                f"The log of {self._db.name} holds entries {self._db.oldest} to {len(self._db.log)} only.",
                where=str(position),
                safe="Everything up to the position is captured; the offset is untouched.",
                remedy="set snapshot.mode=when_needed to snapshot all tables again",
            )

    def parse_position(self, document: dict[str, Any]) -> MemoryPosition:
        position = MemoryPosition(**document)
        if type(position.entry) is not int:
            raise TypeError(f"{position.entry!r} is not a number of entries")
        return position

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        """Open a snapshot. A select is a condition, as there is no SQL."""
        return _MemorySnapshot(self._db, tables, self._config.memory_block_rows, selects)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        return MemoryChunkReader(self._db, signals)

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        assert isinstance(start, MemoryPosition)
        self.verify_position(start)
        at = start.entry
        while until is None or not MemoryPosition(at).has_reached(until):  # type: ignore[arg-type]
            if at == len(self._db.log):
                time.sleep(self._config.poll_interval_ms / 1000 if patience is None else patience())
                yield Heartbeat(MemoryPosition(at))
                continue
            entry = self._db.log[at]
            yield from self._items(entry, at, tables)
            at += 1

    def execute_statement(self, statement: str) -> None:
        self._db.execute(statement)

    @property
    def source_fields(self) -> list[pa.Field]:
        return [pa.field("entry", pa.int64(), nullable=False), pa.field("row", pa.int32(), nullable=False)]

    def close(self) -> None:
        """Nothing is open."""

    # -- log entries to items -----------------------------------------------------------------------------------------

    def _items(self, entry: MemoryLogEntry, at: int, tables: CapturedTableSchemas) -> Iterator[LogItem]:
        after = MemoryPosition(at + 1)
        if entry.changes:
            origin: dict[str, object] = {"entry": at, "row": 0}
            yield SchemaChange(entry.ddl, entry.changes[0].id.database_name, entry.changes, after, entry.ts_us, origin)
        elif entry.truncated is not None:
            yield Truncate([entry.truncated], after, entry.ts_us, source={"entry": at, "row": 0})
        else:
            yield from self._unknown(entry, at, tables)
            if entry.rollback_of:
                yield from self._rows(entry, at, tables, 0, entry.rollback_of, closed=False)
                yield Rollback()
            yield from self._rows(entry, at, tables, entry.rollback_of, len(entry.rows), closed=True)

    @staticmethod
    def _left_out(rows: list[tuple[int, LoggedRowChange]], tables: CapturedTableSchemas) -> dict[TableId, LeftOutRows]:
        """Rows whose schema is not known, not even to the catalog (:meth:`_unknown`)."""
        counts: Counter[TableId] = Counter()
        for _, change in rows:
            recorded = tables.find_schema(change.table.id)
            if recorded is None or not _alike(recorded, change.table):
                counts[change.table.id] += 1
        return {table: LeftOutRows(table, n, _UNKNOWN) for table, n in counts.items()}

    def _unknown(self, entry: MemoryLogEntry, at: int, tables: CapturedTableSchemas) -> Iterator[SchemaChange]:
        """Tables whose schema the consumer lacks, or that does not fit the rows: the catalog may have it."""
        logged = {c.table.id: c.table for c in entry.rows if tables.is_captured(c.table.id)}
        for table, schema in logged.items():
            recorded = tables.find_schema(table)
            if recorded is not None and _alike(recorded, schema):
                continue
            present = self.discover_tables({table}.__contains__).get(table)
            if present is None or not _alike(present, schema):
                if tables.read_again(table):
                    continue
                raise SchemaConflict(
                    f"Rows of {table} were written under {_UNKNOWN}.",
                    where=f"entry {at}",
                    safe="Everything before this transaction is captured; no row was decoded with a guessed structure.",
                    remedy="snapshot the table again with snapshot.mode=always for one run",
                )
            change = TableChange(type="CREATE" if recorded is None else "ALTER", id=table, table=present, exact=False)
            yield SchemaChange(
                "", table.database_name, [change], MemoryPosition(at), entry.ts_us, {"entry": at, "row": 0}
            )

    def _rows(
        self, entry: MemoryLogEntry, at: int, tables: CapturedTableSchemas, lo: int, hi: int, *, closed: bool
    ) -> Iterator[LogBlock]:
        """Rows ``lo`` to ``hi`` of a transaction, in blocks; the last one ends the transaction if ``closed``."""
        step = self._config.memory_block_rows
        for start in range(lo, max(hi, lo + 1), step):
            end = min(start + step, hi)
            last = closed and end == hi
            rows = [(i, c) for i, c in enumerate(entry.rows[start:end], start) if tables.is_captured(c.table.id)]
            left_out = self._left_out(rows, tables)
            rows = [(i, c) for i, c in rows if c.table.id not in left_out]
            yield LogBlock(
                rows=[self._block(group, rows, entry, at, tables) for group in _group(rows)],
                left_out=list(left_out.values()),
                transactions=BlockTransactions(pa.array([f"tx-{at}"]), np.array([entry.ts_us])),
                position=MemoryPosition(at + 1 if last else at),
                open=not last,
            )

    def _block(
        self,
        table: TableId,
        rows: list[tuple[int, LoggedRowChange]],
        entry: MemoryLogEntry,
        at: int,
        tables: CapturedTableSchemas,
    ) -> RowBlock:
        mine = [(order, i, c) for order, (i, c) in enumerate(rows) if c.table.id == table]
        n, schema = len(mine), tables.find_schema(table)
        assert schema is not None
        return RowBlock(
            table=schema,
            op=np.array([c.op for _, _, c in mine], np.int8),
            before=_images([c.before for _, _, c in mine], schema),
            after=_images([c.after for _, _, c in mine], schema),
            order=np.array([order for order, _, _ in mine], np.int64),
            transaction=np.zeros(n, np.int32),
            ts_us=np.full(n, entry.ts_us, np.int64),
            source={"entry": pa.array([at] * n, pa.int64()), "row": pa.array([i for _, i, _ in mine], pa.int32())},
            unavailable_before=_lacking([c.before for _, _, c in mine], schema),
            unavailable_after=_lacking([c.after for _, _, c in mine], schema),
        )


class _MemorySnapshot(SnapshotSession):
    def __init__(
        self, database: MemoryDatabase, tables: Sequence[TableId], block_rows: int, selects: Mapping[TableId, str]
    ) -> None:
        entry, schemas, self._rows = database.read_consistent_view()
        self._selects = selects
        self.position = MemoryPosition(entry)
        self.schemas = {t: schemas[t] for t in tables if t in schemas}
        self.ddl = {}
        self.ts_us = database.clock()
        self.source = {"entry": entry, "row": 0}
        self._entry, self._block_rows = entry, block_rows

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        """Rows by index, three times the size of a block, so that readers have something to share."""
        if (select := self._selects.get(table)) is not None:
            fits = parse_condition(select, self.schemas[table])
            self._rows[table] = [row for row in self._rows[table] if fits(row)]
        n, step = len(self._rows[table]), 3 * self._block_rows
        return [SnapshotChunk(table, f"{lo}:{min(lo + step, n)}", min(step, n - lo)) for lo in range(0, n, step)]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        lo, hi = map(int, (chunk.condition or "0:0").split(":"))
        schema = self.schemas[chunk.table]
        for start in range(lo, hi, self._block_rows):
            rows = self._rows[chunk.table][start : min(start + self._block_rows, hi)]
            n = len(rows)
            yield RowBlock(
                table=schema,
                op=np.full(n, READ, np.int8),
                before=None,
                after=_images(rows, schema),
                order=np.arange(n),
                transaction=None,
                ts_us=np.full(n, self.ts_us, np.int64),
                source={
                    "entry": pa.array([self._entry] * n, pa.int64()),
                    "row": pa.array(range(start, start + n), pa.int32()),
                },
            )

    def close(self) -> None:
        """Nothing is held."""


def _alike(a: TableSchema, b: TableSchema) -> bool:
    return [(c.name, c.type) for c in a.columns] == [(c.name, c.type) for c in b.columns]


def _group(rows: list[tuple[int, LoggedRowChange]]) -> list[TableId]:
    return list(dict.fromkeys(change.table.id for _, change in rows))


def _images(rows: Sequence[Row | None], schema: TableSchema) -> pa.StructArray | None:
    if all(row is None for row in rows):
        return None
    try:
        return pa.array(rows, row_struct(schema))
    except UnicodeEncodeError as e:
        with values_of(schema.id):
            raise UnreadableValue(
                f"A value of {schema.id} cannot be captured: a text has half a character, which no form of Unicode may have.",
                where=str(schema.id),
                safe="Nothing is lost: the batch was not written.",
                remedy="correct the value at the source",
            ) from e


def _lacking(rows: Sequence[Row | None], schema: TableSchema) -> npt.NDArray[np.bool_] | None:
    """``[column, row]``: values that the log does not have."""
    mask = np.array([[row is not None and name not in row for row in rows] for name in schema.column_names], np.bool_)
    return mask if mask.any() else None
