"""The chunk reader: reads chunks of tables for incremental snapshots, over a connection to the pluggable database.

Rows are read by plain queries without flashback, so undo is only needed for the seconds that a chunk takes (Debezium Oracle
connector, "Incremental snapshots"). A query in Oracle sees exactly what was committed up to an SCN, and this SCN is never lower than the
current SCN that was asked for before. So the watermarks hold:

* read-only: ``low`` is the SCN before the rows are read, ``high`` the one afterwards. A chunk may need several queries; each sees an SCN
  between them.
* written: the row in the signal table is committed before the rows are read, and everything committed before it is visible.

The table's columns in the catalog are compared before and after each chunk.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import (
    CdcError,
    PrerequisiteError,
    QueryRejected,
    SourceUnavailable,
    TransientError,
    UnreadableValue,
)
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    connect,
    current_scn,
    database_of,
    fetch_rows,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.error_translation import translate_error
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.sql_quoting import quote_table, quoted_name
from airflow_provider_cdc.sources.oracle.signal_checks import DDL, explain_uncaptured_signals
from airflow_provider_cdc.sources.oracle.snapshot.chunk_key_binds import KeyColumn, is_rowid
from airflow_provider_cdc.sources.oracle.snapshot.event_key_conversion import event_key
from airflow_provider_cdc.sources.oracle.snapshot.fetch_size_and_extents import FetchSize, now_us, read_block, source_of
from airflow_provider_cdc.sources.oracle.snapshot.range_query import RangeQuery
from airflow_provider_cdc.sources.oracle.snapshot.rowid_keys import RowidKeys, strip_fingerprint
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused, keys_of_rows, no_watermark

log = logging.getLogger(__name__)

ORDER: Final = "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY"
"""Makes the session sort and compare as indexes do, whatever the server or a logon trigger has set."""
_STRUCTURE = """
SELECT t.COLUMN_NAME, t.DATA_TYPE, t.DATA_LENGTH, t.CHAR_LENGTH, t.DATA_PRECISION, t.DATA_SCALE, t.NULLABLE, t.COLUMN_ID,
       t.HIDDEN_COLUMN, t.VIRTUAL_COLUMN
FROM ALL_TAB_COLS t
WHERE t.OWNER = :o AND t.TABLE_NAME = :n
ORDER BY t.INTERNAL_COLUMN_ID"""
_ATTEMPTS: Final = 5
_SIGNAL_COLUMNS: Final = 3
_Structure = tuple[tuple[Any, ...], ...]


class OracleChunkReader(ChunkReader):
    """Reads chunks, and writes watermarks (:class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`).

    :param signals: the signal table, if watermarks are written to it; ``None`` = read-only watermarks
    :raises PrerequisiteError: the signal table does not exist, or cannot be written to
    """

    def __init__(self, config: OracleConfig, signals: TableId | None) -> None:
        self._config, self._signals = config, signals
        self._connection = connect(config, container=True)
        self._closed = False
        self._busy = 0
        self._known: dict[TableId, tuple[TableSchema, _Structure]] = {}
        self._rowid_keys: dict[TableId, RowidKeys] = {}
        self._fetch_sizes: dict[tuple[TableId, int], FetchSize] = {}
        self._conditions: set[tuple[TableId, str]] = set()
        try:
            with translate_driver_errors(config, "opening a chunk reader"), self._connection.cursor() as cursor:
                cursor.execute(ORDER)
                self._database = database_of(self._connection)
                self._marks = self._marking(signals) if signals is not None else ()
        except BaseException:
            self.close()
            raise

    # -- structures ---------------------------------------------------------------------------------------------------

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        with self._asking(str(table)):
            for _ in range(_ATTEMPTS):
                before = self._structure(table)
                schema = OracleCatalog(self._connection, self._config).read_table(table)
                if before == self._structure(table):
                    break
        if schema is None:
            self._known.pop(table, None)
        else:
            self._known[table] = schema, before
        return schema

    def _structure(self, table: TableId) -> _Structure:
        """Return the table's current columns in the catalog, for comparison."""
        return tuple(fetch_rows(self._connection, _STRUCTURE, o=table.namespace, n=table.name))

    def _expect(self, schema: TableSchema) -> None:
        """Check that a schema is the one last read from the catalog.

        :raises StructureChanged: the table has another definition
        """
        known = self._known.get(schema.id)
        if known is None or not known[0].same_structure(schema):
            self._compare(schema)

    def _unchanged(self, schema: TableSchema) -> None:
        """Check that the table's definition has not changed since it was last read from the catalog.

        :raises StructureChanged: it has
        """
        with self._asking(str(schema.id)):
            same = self._structure(schema.id) == self._known[schema.id][1]
        if not same:  # the difference may only be in hidden columns, as of a function-based index
            self._compare(schema)

    def _compare(self, schema: TableSchema) -> None:
        present = self.read_table_schema(schema.id)
        if present is None or not present.same_structure(schema):
            raise StructureChanged(
                f"{schema.id} {'no longer exists' if present is None else 'now has a different definition'}"
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_last_key(self, rows: KeyRange) -> Key | None:
        self._expect(rows.table)
        query = RangeQuery(rows, self._config, self._connection)
        with self._reading(rows):
            found = query.read_last_key()
        self._unchanged(rows.table)
        if found is None:
            return None
        return self._marked(rows, [c.to_json(value) for c, value in zip(query.key, found, strict=True)])

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        self._expect(rows.table)
        one = is_rowid(rows.table, rows.order[0])  # one query only: whether ROWIDs are still valid is checked before it
        left = limit if one else limit * queries
        blocks: list[RowBlock] = []
        last: Key | None = None
        size, complete = 0, False
        with self._reading(rows):
            low, ts_us = current_scn(self._connection), now_us(self._connection)
            began = time.monotonic()
            while left > 0 and not complete and size < max_bytes and not (one and blocks):
                rest = rows if last is None else replace(rows, after=last)
                query = RangeQuery(rest, self._config, self._connection)
                fetch_size = self._fetch_sizes.setdefault(
                    (rows.table.id, rows.table.version), FetchSize(query.most_rows, lobs=bool(query.columns.lobs))
                )
                asked, came = left if one else min(limit, left, fetch_size.worth_asking), 0
                for part in self._first(query, asked, fetch_size.rows):
                    block = read_block(query.columns, part, low, ts_us, sum(map(len, blocks)))
                    blocks.append(block)
                    last, came, size = (
                        query.key_of(part),
                        came + len(part),
                        size + fetch_size.adapt_size(block, max_bytes),
                    )
                    if size >= max_bytes:
                        break
                complete, left = came < asked and size < max_bytes, left - came
            reading_s = time.monotonic() - began
            high = current_scn(self._connection)
        self._unchanged(rows.table)
        if last is not None:
            last = self._marked(rows, last)
        if self._signals is not None:
            return ChunkRows(blocks, last, None, None, complete, reading_s, ts_us, source_of(low))
        bounds = self._position(low), self._position(high)
        return ChunkRows(blocks, last, *bounds, complete, reading_s, ts_us, source_of(low))

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        given = [table.get_column(name) for name in columns]
        return keys_of_rows(table.id, given, keys, lambda column, value: event_key(column, value, self._config))

    def _first(self, query: RangeQuery, limit: int, fetched: int) -> Iterator[pa.Table]:
        """Yield the first rows of a range.

        :param fetched: rows per fetch, which are in memory together
        """
        for condition, ordered in self._ranges(query):
            for part in query.read_first_rows(condition, ordered, limit, fetched):
                yield part
                limit -= len(part)
            if limit <= 0:
                break

    def _ranges(self, query: RangeQuery) -> Iterator[tuple[str, tuple[KeyColumn, ...]]]:
        """Conditions of consecutive parts of the range, each with the columns that it is ordered by."""
        first = query.key[0]
        for condition, ordered in query.list_range_conditions():
            if not (first.rowid and ordered[0] is first):
                yield condition, ordered
                continue
            after = strip_fingerprint(query.rows.after[0]) if query.rows.after else None
            for low, high in self._rowid_keys_of(query.rows.table.id).list_part_bounds(after):
                bounds = [f"{first.sql} >= CHARTOROWID('{low}')"] if low else [condition]
                bounds += [f"{first.sql} < CHARTOROWID('{high}')"] if high else []
                yield " AND ".join(filter(None, bounds)), ordered

    def _position(self, scn: int) -> OraclePosition:
        return OraclePosition(scn, scn, resetlogs=self._database.resetlogs, dbid=self._database.dbid)

    # -- row ids as keys ----------------------------------------------------------------------------------------------

    def _rowid_keys_of(self, table: TableId) -> RowidKeys:
        if table not in self._rowid_keys:
            self._rowid_keys[table] = RowidKeys(self._connection, self._config, table)
        return self._rowid_keys[table]

    def _marked(self, rows: KeyRange, key: Key) -> Key:
        """Return the key; a ROWID gets a fingerprint that shows later whether it is still valid."""
        if not is_rowid(rows.table, rows.order[0]):
            return key
        origin = rows.after or rows.upto
        with self._asking(str(rows.table.id)):
            return [self._rowid_keys_of(rows.table.id).build_key(key[0], origin[0] if origin else None), *key[1:]]

    # -- watermarks ---------------------------------------------------------------------------------------------------

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        names = ", ".join(self._marks)
        self._change(f"INSERT INTO {{}} ({names}) VALUES (:1, :2, :3)", [id_, type_, data])

    def delete_signal_row(self, id_: str) -> None:
        self._change(f"DELETE FROM {{}} WHERE {self._marks[0]} = :1", [id_])

    def end_of_log(self) -> OraclePosition:
        with self._asking("the end of the log"):
            return self._position(current_scn(self._connection))

    def _change(self, statement: str, values: list[str | None]) -> None:
        assert self._signals is not None, "opened for read-only watermarks"
        try:
            with self._asking(str(self._signals)), self._connection.cursor() as cursor:
                try:
                    cursor.execute(statement.format(quote_table(self._signals)), values)
                    self._connection.commit()
                except oracledb.Error:
                    with contextlib.suppress(oracledb.Error):
                        self._connection.rollback()
                    raise
        except TransientError:
            raise
        except CdcError as e:
            remedy = (
                f"GRANT SELECT, INSERT, DELETE ON {quote_table(self._signals)} TO {self._config.database_user}, give the table "
                "the columns id VARCHAR2(42), type VARCHAR2(32) and data VARCHAR2(2048), or set read.only=true"
            )
            raise no_watermark(e, self._signals, remedy) from e

    def _marking(self, signals: TableId) -> tuple[str, ...]:
        """Return the columns that watermarks are written to: the first three, whatever their names.

        :raises PrerequisiteError: watermarks cannot be written, or would not be captured
        """
        if not self._database.is_writable:
            raise PrerequisiteError(
                "Watermarks cannot be written: the database is open read-only.",
                where=str(signals),
                safe="Nothing was read; capture continues.",
                remedy="set read.only=true, or database.hostname to the primary",
            )
        if reason := explain_uncaptured_signals(signals, self._config):
            raise PrerequisiteError(
                f"Watermarks would not appear in the log: {reason}.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy="fix this, or set read.only=true",
            )
        schema = OracleCatalog(self._connection, self._config).read_table(signals)
        if schema is None or len(schema.columns) < _SIGNAL_COLUMNS:
            raise PrerequisiteError(
                f"The signal table {signals} does not exist, the account may not see it, or it has fewer "
                f"than {_SIGNAL_COLUMNS} columns.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy=f"{DDL.format(quote_table(signals))}; GRANT SELECT, INSERT, DELETE ON {quote_table(signals)} "
                f"TO {self._config.database_user}; or set read.only=true",
            )
        return tuple(quoted_name(name) for name in schema.column_names[:_SIGNAL_COLUMNS])

    # -- errors, and the end ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        """Translate the driver's errors; after :meth:`close` every error becomes :class:`SourceUnavailable`."""
        self._busy += 1
        try:
            with translate_driver_errors(self._config, where):
                yield
        except CdcError as e:
            if self._closed:
                raise SourceUnavailable("The chunk reader was closed.", where=where, safe="Nothing is lost.") from e
            raise
        finally:
            self._busy -= 1

    @contextlib.contextmanager
    def _reading(self, rows: KeyRange) -> Iterator[None]:
        """Translate the errors of a query: a lost connection, a changed table, or a wrong condition of the user."""
        table = rows.table.id
        try:
            with self._asking(str(table)):
                self._check_condition(rows)
                if is_rowid(rows.table, rows.order[0]):
                    for key in filter(None, (rows.after, rows.upto)):
                        self._rowid_keys_of(table).check_key(key[0])
                yield
        except (TransientError, QueryRejected):
            raise
        except CdcError as e:
            self._unchanged(rows.table)
            if isinstance(e, UnreadableValue) and rows.condition is None:
                raise
            raise build_query_refused(
                f"The database rejects the read of {table}", e.what, rows.condition or str(table)
            ) from e

    def _check_condition(self, rows: KeyRange) -> None:
        """Parse the condition without parentheses around it, so that it cannot close one that it did not open.

        :raises QueryRejected: the database refuses it
        """
        asked = (rows.table.id, rows.condition or "")
        if rows.condition is None or asked in self._conditions:
            return
        with self._connection.cursor() as cursor:
            try:
                cursor.parse(f"SELECT 1 FROM {quote_table(rows.table.id)} WHERE {rows.condition}\n")
            except oracledb.Error as e:
                meaning = translate_error(e, self._config)
                if isinstance(meaning, TransientError):
                    raise
                self._unchanged(rows.table)
                raise build_query_refused(
                    f"The database rejects the condition for {rows.table.id}", meaning.what, rows.condition
                ) from e
        self._conditions.add(asked)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(oracledb.Error):  # gone already
            if self._busy:
                self._connection.cancel()
            self._connection.close()
