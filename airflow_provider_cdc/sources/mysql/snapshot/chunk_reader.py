"""The reader of chunks of tables for incremental snapshots.

See :mod:`airflow_provider_cdc.core.spi.chunk_reader`.

Each chunk is read in a separate transaction, which first takes the table's metadata lock. From then on the table definition cannot
change, so it is compared once with the schema that the rows are decoded with.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import CdcError, QueryRejected, SourceUnavailable
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import (
    SEVERAL,
    MySqlServer,
    connect,
    execute_statements,
    query_scalar,
    raise_cdc_errors,
    raise_query_refused,
)
from airflow_provider_cdc.sources.mysql.gtid_sets import missing_gtids
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog, quote_table, quoted_name
from airflow_provider_cdc.sources.mysql.snapshot.chunk_keys import (
    KeyColumn,
    KeyExtractor,
    KeyOrderChanged,
    format_after_key,
    format_among_keys,
    format_from_key,
    format_upto_key,
)
from airflow_provider_cdc.sources.mysql.snapshot.event_to_chunk_key import event_key
from airflow_provider_cdc.sources.mysql.snapshot.read_row_blocks import read_block, source_of
from airflow_provider_cdc.sources.mysql.snapshot.result_set_reader import BLOCK_ROWS, ResultReader
from airflow_provider_cdc.sources.mysql.snapshot.signal_table import SignalTable
from airflow_provider_cdc.sources.mysql.snapshot.sql_fragment_checks import checked_fragment
from airflow_provider_cdc.sources.mysql.snapshot.statement_stopper import StatementStopper
from airflow_provider_cdc.sources.mysql.snapshot.watermarks import ChunkWatermarks, WatermarkStatements, watermarks_for
from airflow_provider_cdc.sources.relational.event_key_decoder import keys_of_rows

_GONE: Final = {1051, 1146, 1412, 1684}
"""Errors for a table that does not exist, or whose definition was changed since the transaction began."""
_MODES_OFF: Final = {"NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL", "PAD_CHAR_TO_FULL_LENGTH"}
_MODES_ON: Final = {"ALLOW_INVALID_DATES", "STRICT_ALL_TABLES"}
_REMEDY: Final = "correct the condition, or the surrogate key, and send the signal again"
_FINGERPRINT: Final = """
SELECT c.column_name, c.column_type, c.is_nullable, c.character_set_name, c.collation_name
FROM information_schema.columns c
WHERE c.table_schema = {} AND c.table_name = {}
ORDER BY c.ordinal_position"""
_ENGINE: Final = "SELECT engine FROM information_schema.tables WHERE table_schema = {} AND table_name = {}"

Rows = tuple[tuple[Any, ...], ...]
Fingerprint = Rows


def open_chunk_reader(config: MySqlConfig, server: MySqlServer, signals: TableId | None) -> ChunkReader:
    """Open a chunk reader on a separate connection.

    :param signals: the signal table, if watermarks are written to it; ``None`` = watermarks are read from the log's position
    :raises PrerequisiteError: the server cannot give watermarks of this kind
    """
    connection = connect(config, **SEVERAL)
    try:
        with raise_cdc_errors(config):
            _settle(connection)
            watermarks = watermarks_for(connection, server, written=signals is not None)
            table = SignalTable(connection, config, signals) if signals is not None else None
        return MySqlChunkReader(connection, config, server, watermarks, table)
    except BaseException:
        connection._force_close()
        raise


def _settle(connection: Connection) -> None:
    """Set the ``sql_mode`` of the session: any date that a table may hold can be compared, and rows written are never altered."""
    modes = {m for m in str(query_scalar(connection, "SELECT @@SESSION.sql_mode")).split(",") if m}
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = %s", (",".join(sorted(modes - _MODES_OFF | _MODES_ON)),))


@dataclass(slots=True)
class _KnownTable:
    """A table as it was when its schema was read from the catalog.

    :param fingerprint: names, types and collations of its columns, compared before each chunk is read
    :param transactional: of the engine InnoDB
    :param ordered: columns of an order → how to read the table in this order
    """

    schema: TableSchema
    fingerprint: Fingerprint
    transactional: bool
    ordered: dict[tuple[str, ...], _OrderedRead] = field(default_factory=dict)


@dataclass(slots=True)
class _OrderedRead:
    """The way to read a table in one order.

    :param selected: the select list: the table's columns, then the key expressions of the extractor
    :ivar fits: number of rows to ask for, since more took too many bytes; ``None`` = the size of the chunk
    """

    columns: list[KeyColumn]
    extractor: KeyExtractor
    reader: ResultReader
    selected: str
    fits: int | None = None

    def adapt_row_limit(self, rows: int, size: int, max_bytes: int, limit: int, *, more: bool) -> None:
        """Adapt :attr:`fits` to the size of the rows that were read, so that the server sends no rows that are discarded.

        :param size: bytes of the ``rows`` rows
        :param more: the query had more rows, which were discarded
        """
        if more:
            self.fits = max(rows * max_bytes // max(size, 1), 1)
        elif self.fits is not None and size < max_bytes // 2:
            self.fits = None if 2 * self.fits >= limit else 2 * self.fits


class MySqlChunkReader(ChunkReader):
    """Reads chunks of tables over one connection.

    :param signals: the signal table, for written watermarks
    """

    def __init__(
        self,
        connection: Connection,
        config: MySqlConfig,
        server: MySqlServer,
        watermarks: WatermarkStatements,
        signals: SignalTable | None,
    ) -> None:
        self._connection, self._config, self._watermarks, self._signals = connection, config, watermarks, signals
        self._catalog = MySqlCatalog(connection, config, mariadb=server.mariadb)
        self._stopper = StatementStopper(config, connection)
        self._tables: dict[TableId, _KnownTable] = {}
        self._checked: set[str] = set()
        self._closed = False

    # -- structure ----------------------------------------------------------------------------------------------------

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        with self._working(str(table)):
            table_read = self._look_at(table)
        return table_read.schema if table_read is not None else None

    def _look_at(self, table: TableId) -> _KnownTable | None:
        self._tables.pop(table, None)
        questions = [self._of(_FINGERPRINT, table), self._of(_ENGINE, table)]
        try:
            with self._locked(table, questions) as (*_, fingerprint, engine):
                schema = self._catalog.read_table(table)
                self._connection.commit()
        except StructureChanged:
            return None
        if schema is None:
            return None
        table_read = _KnownTable(schema, fingerprint, engine[0][0] == "InnoDB")
        self._tables[table] = table_read
        return table_read

    @contextlib.contextmanager
    def _locked(self, table: TableId, questions: list[str]) -> Iterator[list[Rows]]:
        """Begin a transaction that holds the table's metadata lock; the caller commits it.

        Yields the results of the watermark statements before it and of ``questions``, see
        :class:`~airflow_provider_cdc.sources.mysql.snapshot.watermarks.WatermarkStatements`.

        :raises StructureChanged: the table does not exist, or was changed since the transaction began
        """
        lock = f"SELECT 1 FROM {quote_table(table)} LIMIT 0"
        try:
            try:
                results = execute_statements(
                    self._connection, [*self._watermarks.before, self._watermarks.begin, lock, *questions]
                )
            except pymysql.err.Error as e:
                if e.args and e.args[0] in _GONE:
                    raise StructureChanged(str(e)) from e
                raise
            yield results
        except BaseException:
            if self._connection.open:
                with contextlib.suppress(Exception):  # the first error matters more
                    self._connection.rollback()
            raise

    def _of(self, question: str, table: TableId) -> str:
        return question.format(*(self._connection.escape(part) for part in (table.namespace, table.name)))

    def _find_table(self, rows: KeyRange) -> _KnownTable:
        """Return the table, if its definition matches the schema that the rows are to be decoded with.

        :raises StructureChanged: it does not
        """
        table = self._tables.get(rows.table.id) or self._look_at(rows.table.id)
        if table is None or table.schema.columns != rows.table.columns:
            raise StructureChanged(f"{rows.table.id} now has a different definition")
        return table

    def _confirm(self, table: _KnownTable, fingerprint: Fingerprint) -> None:
        if fingerprint != table.fingerprint:
            self._tables.pop(table.schema.id, None)
            raise StructureChanged(f"{table.schema.id} was changed")

    # -- rows ---------------------------------------------------------------------------------------------------------

    def read_last_key(self, rows: KeyRange) -> Key | None:
        with self._working(str(rows.table.id)):
            checked = self._find_table(rows)
            how = self._ordered(checked, rows.order)
            with self._locked(rows.table.id, [self._of(_FINGERPRINT, rows.table.id)]) as results:
                self._confirm(checked, results[-1])
                images, _ = self._fetch(how, rows, " DESC", 1)
                self._connection.commit()
        return how.extractor.extract_last_key(images)

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        table = rows.table.id
        with self._working(str(table)):
            checked = self._find_table(rows)
            how = self._ordered(checked, rows.order)
            with self._locked(table, [*self._watermarks.inside, self._of(_FINGERPRINT, table)]) as results:
                self._confirm(checked, results[-1])
                began = time.monotonic()
                images, complete = self._several(how, rows, limit, limit * queries, max_bytes)
                reading_s = time.monotonic() - began
                after = execute_statements(self._connection, ["COMMIT", *self._watermarks.after])
            marks = self._watermarks.compute_watermarks(results, after[1:], transactional=checked.transactional)
        blocks = self._blocks(rows.table, images, marks)
        last = how.extractor.extract_last_key(images)
        source = source_of(marks.position)
        return ChunkRows(blocks, last, marks.low, marks.high, complete, reading_s, marks.ts_us, source)

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        with self._working(str(table.id)):
            how = self._ordered(self._find_table(KeyRange(table, tuple(columns))), tuple(columns))
        pairs = [(key, table.get_column(key.name)) for key in how.columns]
        return keys_of_rows(table.id, pairs, keys, lambda pair, value: event_key(*pair, value, self._config))

    def _several(
        self, how: _OrderedRead, rows: KeyRange, limit: int, left: int, max_bytes: int
    ) -> tuple[list[pa.StructArray], bool]:
        """Read the first rows of a range by several queries; also returns whether the range is exhausted.

        :param limit: rows per query
        :param left: rows in all
        """
        images: list[pa.StructArray] = []
        complete, size = False, 0
        while left > 0 and not complete and size < max_bytes and not (images and how.fits):
            row_limit = min(limit, left, how.fits or limit)
            read_images, more = self._fetch(how, rows, "", row_limit, max_bytes - size)
            came, took = sum(map(len, read_images)), sum(image.nbytes for image in read_images)
            how.adapt_row_limit(came, took, max_bytes, limit, more=more)
            complete = came < row_limit and not more
            rows = replace(rows, after=how.extractor.extract_last_key(read_images))
            images, size, left = [*images, *read_images], size + took, left - came
        if len(images) > 1 and size < 2 * CHUNK_BYTES and sum(map(len, images)) <= BLOCK_ROWS:
            images = [pa.concat_arrays(images)]
        return images, complete

    def _ordered(self, table: _KnownTable, order: tuple[str, ...]) -> _OrderedRead:
        if (how := table.ordered.get(order)) is not None:
            return how
        texts = {
            str(name): (str(charset or ""), str(collation or "")) for name, *_, charset, collation in table.fingerprint
        }
        columns = []
        for name in order:
            column = (
                KeyColumn.from_schema(table.schema, name, *texts[name]) if name in table.schema.column_names else None
            )
            if column is None:
                why = "has a type without an order" if name in table.schema.column_names else "does not exist"
                raise QueryRejected(
                    f"Rows of {table.schema.id} cannot be ordered by {name}: the column {why}.",
                    where=str(table.schema.id),
                    safe="Nothing was read.",
                    remedy="name another column as surrogate-key",
                )
            columns.append(column)
        extractor = KeyExtractor(table.schema, columns)
        selected = ", ".join([*(quoted_name(c.name) for c in table.schema.columns), *extractor.extras])
        reader = ResultReader(table.schema, self._config, extras=len(extractor.extras))
        how = table.ordered[order] = _OrderedRead(columns, extractor, reader, selected)
        return how

    def _statement(self, rows: KeyRange, how: _OrderedRead, direction: str, limit: int) -> str:
        """Build the SELECT of a chunk.

        Its condition is a union of index ranges, so a chunk costs the same anywhere in the table.
        """
        parts = []
        try:
            if rows.after is not None:
                parts.append(f"({format_after_key(how.columns, rows.after)})")
            if rows.upto is not None:
                parts.append(f"({format_upto_key(how.columns, rows.upto)})")
            if rows.first is not None:
                parts.append(f"({format_from_key(how.columns, rows.first)})")
            if rows.end is not None:
                parts.append(f"({format_upto_key(how.columns[: len(rows.end)], rows.end)})")
            if rows.keys is not None:
                parts.append(f"({format_among_keys(how.columns, rows.keys)})")
        except (KeyOrderChanged, ValueError) as e:  # zip: the key has another number of columns
            raise QueryRejected(
                f"The order of the rows of {rows.table.id} changed during the read ({e}): the remaining rows "
                "are unknown.",
                where=f"{rows.table.id}, order by {', '.join(rows.order)}, after {rows.after}",
                safe="Rows that were read are captured, and the stream continues.",
                remedy="send the signal again, so that the table is read from its first row",
            ) from None
        if rows.condition:
            if rows.condition not in self._checked:
                checked_fragment(
                    self._connection, self._config, rows.condition, within=f"SELECT 1 FROM {quote_table(rows.table.id)} WHERE {{}}",
                    where=f"{rows.table.id}: {rows.condition}", remedy=_REMEDY,
                )  # fmt: skip
                self._checked.add(rows.condition)
            parts.append(f"({rows.condition.rstrip().rstrip(';')}\n)")
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        order = ", ".join(f"{quoted_name(name)}{direction}" for name in rows.order)
        return f"SELECT {how.selected} FROM {quote_table(rows.table.id)}{where} ORDER BY {order} LIMIT {limit}"

    def _fetch(
        self, how: _OrderedRead, rows: KeyRange, direction: str, limit: int, max_bytes: int = CHUNK_BYTES
    ) -> tuple[list[pa.StructArray], bool]:
        """Fetch the first rows of a range, up to ``limit`` rows or ``max_bytes`` bytes.

        Returns too whether the query had more.
        """
        sql = self._statement(rows, how, direction, limit)
        where = f"{rows.table.id}: {rows.condition}" if rows.condition else str(rows.table.id)
        with raise_query_refused(self._config, where, _REMEDY):
            images, more = how.reader.read_first_rows(self._connection, sql, max_bytes, lambda: self._stopper.stop(sql))
            if more:
                self._stopper.wait_for_kill()
        return images, more

    def _blocks(self, schema: TableSchema, images: list[pa.StructArray], marks: ChunkWatermarks) -> list[RowBlock]:
        blocks, first, width = [], 0, len(schema.columns)
        for image in images:
            n = len(image)
            fields = [image.type.field(i) for i in range(width)]
            after = pa.StructArray.from_arrays([image.field(i) for i in range(width)], fields=fields)
            blocks.append(read_block(schema, after, marks.position, marks.ts_us, first))
            first += n
        return blocks

    # -- the signal table ---------------------------------------------------------------------------------------------

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        assert self._signals is not None, "opened for read-only watermarks"
        with self._working(str(self._signals.id)):
            self._signals.insert_row(id_, type_, data)
            self._watermarks.check_server(self._connection)

    def delete_signal_row(self, id_: str) -> None:
        assert self._signals is not None, "opened for read-only watermarks"
        with self._working(str(self._signals.id)):
            self._signals.delete_row(id_)

    def describe_missing_log(self, low: Position, floor: Position) -> str:
        assert isinstance(low, MySqlPosition)
        assert isinstance(floor, MySqlPosition)
        return missing_gtids(low.gtids, floor.gtids) or super().describe_missing_log(low, floor)

    def end_of_log(self) -> MySqlPosition:
        with self._working("the end of the log"):
            return self._watermarks.parse_log_end(execute_statements(self._connection, self._watermarks.log_end))

    # -- the connection -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _working(self, where: str) -> Iterator[None]:
        """Translate errors of the driver. After :meth:`close` every error becomes :class:`SourceUnavailable`."""
        try:
            with raise_cdc_errors(self._config, where):
                yield
        except (AttributeError, ValueError, TypeError, struct.error, CdcError):
            if self._closed:
                raise SourceUnavailable("The chunk reader was closed.", where=where) from None
            raise

    def close(self) -> None:
        self._closed = True
        sock = self._connection._sock
        if sock is not None:
            # shutdown wakes up a thread that waits in recv; close alone does not
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._connection._force_close()
