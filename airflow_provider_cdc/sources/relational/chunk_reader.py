"""The steps of reading a chunk that are the same for databases that answer queries with committed rows, without a view of the past.

The table's structure in the catalog is compared before and after the queries of a chunk, and watermarks are read around them. A source adds its
queries, its positions and its errors: the abstract methods of :class:`RelationalChunkReader`.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import CdcError, QueryRejected, SourceUnavailable, TransientError, UnreadableValue
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused, no_watermark

CatalogRows = tuple[tuple[Any, ...], ...]
_ATTEMPTS: Final = 5
_Query = TypeVar("_Query")
_Position = TypeVar("_Position", bound=Position)


class WatermarkWriter(Protocol):
    """Writes into the signal table. :attr:`remedy` makes the table take watermarks."""

    remedy: str

    def insert_watermark(self, id_: str, type_: str, data: str | None) -> None:
        """Insert a row, and commit it."""

    def delete_watermark(self, id_: str) -> None:
        """Delete a row, and commit that; it need not be there."""


@dataclass(frozen=True, slots=True)
class ReadMoment(Generic[_Position]):
    """The moment before the rows of a chunk are read: its position, its time, and the ``source`` block of the rows.

    :param ts_us: µs since the epoch, by the database's clock
    """

    position: _Position
    ts_us: int
    source: Mapping[str, object]


class RelationalChunkReader(ChunkReader, Generic[_Query, _Position]):
    """Reads chunks by queries on key ranges, and writes watermarks.

    :param signals: the signal table, if watermarks are written to it; ``None`` = read-only watermarks
    :cvar MISSING: predicate for a table that has no structure any more
    """

    MISSING: ClassVar[str] = "no longer exists"

    _marks: WatermarkWriter | None

    def __init__(self, signals: TableId | None) -> None:
        self._signals = signals
        self._closed = False
        self._catalog_schemas: dict[TableId, tuple[TableSchema, CatalogRows]] = {}
        self._conditions: set[tuple[TableId, str]] = set()

    # -- parts of the database ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _translate_errors(self, where: str) -> AbstractContextManager[None]:
        """Translate the driver's errors, around all that is asked of the database."""

    @abc.abstractmethod
    def _fetch_schema(self, table: TableId) -> TableSchema | None:
        """Read the present schema of a table from the catalog."""

    @abc.abstractmethod
    def _fetch_columns(self, table: TableId) -> CatalogRows:
        """Read the columns of a table in the catalog, for comparison: a cheap query."""

    @abc.abstractmethod
    def _build_query(self, rows: KeyRange) -> _Query:
        """Build the queries on a range.

        :raises QueryRejected: rows cannot be ordered so
        """

    @abc.abstractmethod
    def _find_last_key(self, query: _Query) -> Key | None:
        """Read the key of the last row of a range; ``None`` without a row."""

    @abc.abstractmethod
    def _read_blocks(
        self, query: _Query, limit: int, max_bytes: int, moment: ReadMoment[_Position], first: int
    ) -> Iterator[tuple[RowBlock, Key]]:
        """Yield the first rows of a range, each block with its last key.

        :param max_bytes: of the chunk
        :param first: ``order`` of the first row
        """

    def _limit_rows(self, query: _Query, limit: int) -> int:
        """Return how many of ``limit`` rows one query is to give."""
        return limit

    @abc.abstractmethod
    def _parse_condition(self, rows: KeyRange) -> None:
        """Have the database parse the range's condition by itself, so that it cannot close a parenthesis that it did not open."""

    @abc.abstractmethod
    def _read_moment(self) -> ReadMoment[_Position]:
        """Return the present moment; everything that was committed up to its position can be read."""

    @abc.abstractmethod
    def _read_log_end(self) -> _Position:
        """Return the end of the log (:meth:`end_of_log`)."""

    # -- structures ---------------------------------------------------------------------------------------------------

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        self._catalog_schemas.pop(table, None)
        with self._asking(str(table)):
            for _ in range(_ATTEMPTS):
                before = self._fetch_columns(table)
                schema = self._fetch_schema(table)
                if before == self._fetch_columns(table):
                    break
        if schema is not None:
            self._catalog_schemas[table] = schema, before
        return schema

    def _expect(self, schema: TableSchema) -> None:
        """Check that a schema is the one last read from the catalog.

        :raises StructureChanged: the table has another definition
        """
        last_read = self._catalog_schemas.get(schema.id)
        if last_read is None or not last_read[0].same_structure(schema):
            self._compare(schema)

    def _unchanged(self, schema: TableSchema) -> None:
        """Check that the table's definition has not changed since it was last read from the catalog.

        :raises StructureChanged: it has
        """
        last_read = self._catalog_schemas.get(schema.id)
        with self._asking(str(schema.id)):
            same = last_read is not None and last_read[1] == self._fetch_columns(schema.id)
        if not same:  # the difference may be one that capture does not see, as in hidden columns
            self._compare(schema)

    def _compare(self, schema: TableSchema) -> None:
        present = self.read_table_schema(schema.id)
        if present is None or not present.same_structure(schema):
            raise StructureChanged(
                f"{schema.id} {self.MISSING if present is None else 'now has a different definition'}"
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_last_key(self, rows: KeyRange) -> Key | None:
        self._expect(rows.table)
        query = self._build_query(rows)
        with self._reading(rows):
            last = self._find_last_key(query)
        self._unchanged(rows.table)
        return last

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        self._expect(rows.table)
        blocks: list[RowBlock] = []
        last: Key | None = None
        size, complete, left = 0, False, limit * queries
        with self._reading(rows):
            low = self._read_moment()
            began = time.monotonic()
            while left > 0 and not complete and size < max_bytes:
                query = self._build_query(rows if last is None else replace(rows, after=last, first=None))
                row_limit, came = self._limit_rows(query, min(limit, left)), 0
                for block, key in self._read_blocks(query, row_limit, max_bytes, low, sum(map(len, blocks))):
                    blocks.append(block)
                    last = key
                    came, size = came + len(block), size + (block.after.nbytes if block.after is not None else 0)
                    if size >= max_bytes:
                        break
                complete, left = came < row_limit and size < max_bytes, left - came
            reading_s = time.monotonic() - began
            high = None if self._signals is not None else self._read_log_end()
        self._unchanged(rows.table)
        bound = None if high is None else low.position
        return ChunkRows(blocks, last, bound, high, complete, reading_s, low.ts_us, low.source)

    # -- watermarks ---------------------------------------------------------------------------------------------------

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        with self._writing() as marks:
            marks.insert_watermark(id_, type_, data)

    def delete_signal_row(self, id_: str) -> None:
        with self._writing() as marks:
            marks.delete_watermark(id_)

    def end_of_log(self) -> _Position:
        with self._asking("the end of the log"):
            return self._read_log_end()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[WatermarkWriter]:
        assert self._marks is not None, "opened for read-only watermarks"
        assert self._signals is not None
        try:
            with self._asking(str(self._signals)):
                yield self._marks
        except TransientError:
            raise
        except CdcError as e:
            raise no_watermark(e, self._signals, self._marks.remedy) from e

    # -- errors -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        """Translate the driver's errors; after :meth:`close` every error becomes :class:`SourceUnavailable`."""
        try:
            with self._translate_errors(where):
                yield
        except CdcError as e:
            if self._closed:
                raise SourceUnavailable("The chunk reader was closed.", where=where, safe="Nothing is lost.") from e
            raise

    @contextlib.contextmanager
    def _reading(self, rows: KeyRange) -> Iterator[None]:
        """Translate the errors of a query: a lost connection, a changed table, or a wrong condition of the user."""
        table = rows.table.id
        try:
            with self._asking(str(table)):
                self._check_condition(rows)
                yield
        except (TransientError, QueryRejected):
            raise
        except CdcError as e:
            self._unchanged(rows.table)
            if isinstance(e, UnreadableValue) and rows.condition is None:
                raise
            raise build_query_refused(
                f"The database rejects the read of {table}", e.message, rows.condition or str(table)
            ) from e

    def _check_condition(self, rows: KeyRange) -> None:
        """Check that the database accepts the range's condition, once per condition.

        :raises QueryRejected: the database rejects it
        """
        condition = (rows.table.id, rows.condition or "")
        if rows.condition is None or condition in self._conditions:
            return
        try:
            with self._translate_errors(str(rows.table.id)):
                self._parse_condition(rows)
        except TransientError:
            raise
        except CdcError as e:
            self._unchanged(rows.table)
            raise build_query_refused(
                f"The database rejects the condition for {rows.table.id}", e.message, rows.condition
            ) from e
        self._conditions.add(condition)
