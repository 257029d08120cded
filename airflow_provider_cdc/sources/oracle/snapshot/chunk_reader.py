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
from collections.abc import Iterator, Sequence
from typing import Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows, KeyRange
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    connect,
    current_scn,
    database_of,
    fetch_rows,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.snapshot.chunk_key_binds import KeyColumn, is_rowid
from airflow_provider_cdc.sources.oracle.snapshot.event_key_conversion import event_key
from airflow_provider_cdc.sources.oracle.snapshot.range_query import RangeQuery
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import now_us, read_block, source_of
from airflow_provider_cdc.sources.oracle.snapshot.rowid_keys import RowidKeys, strip_fingerprint
from airflow_provider_cdc.sources.oracle.snapshot.watermarks import OracleWatermarkWriter
from airflow_provider_cdc.sources.relational.chunk_reader import CatalogRows, ReadMoment, RelationalChunkReader
from airflow_provider_cdc.sources.relational.event_key_decoder import keys_of_rows
from airflow_provider_cdc.sources.relational.fetch_size import CHUNK_PARTS, FetchSize
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

ORDER: Final = "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY"
"""Makes the session sort and compare as indexes do, whatever the server or a logon trigger has set."""

_COLUMNS: Final = """
SELECT t.COLUMN_NAME, t.DATA_TYPE, t.DATA_LENGTH, t.CHAR_LENGTH, t.DATA_PRECISION, t.DATA_SCALE, t.NULLABLE, t.COLUMN_ID,
       t.HIDDEN_COLUMN, t.VIRTUAL_COLUMN
FROM ALL_TAB_COLS t
WHERE t.OWNER = :o AND t.TABLE_NAME = :n
ORDER BY t.INTERNAL_COLUMN_ID"""


class OracleChunkReader(RelationalChunkReader[RangeQuery, OraclePosition]):
    """Reads chunks, and writes watermarks (:class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`).

    :param signals: the signal table, if watermarks are written to it; ``None`` = read-only watermarks
    :raises PrerequisiteError: the signal table does not exist, or cannot be written to
    """

    def __init__(self, config: OracleConfig, signals: TableId | None) -> None:
        super().__init__(signals)
        self._config = config
        self._connection = connect(config, container=True)
        self._busy = 0
        self._rowid_keys: dict[TableId, RowidKeys] = {}
        self._fetch_sizes: dict[tuple[TableId, int], FetchSize] = {}
        try:
            with translate_driver_errors(config, "opening a chunk reader"), self._connection.cursor() as cursor:
                cursor.execute(ORDER)
                self._database = database_of(self._connection)
                self._marks = (
                    OracleWatermarkWriter(self._connection, config, signals, writable=self._database.is_writable)
                    if signals is not None
                    else None
                )
        except BaseException:
            self.close()
            raise

    # -- structures ---------------------------------------------------------------------------------------------------

    def _fetch_schema(self, table: TableId) -> TableSchema | None:
        return OracleCatalog(self._connection, self._config).read_table(table)

    def _fetch_columns(self, table: TableId) -> CatalogRows:
        return tuple(fetch_rows(self._connection, _COLUMNS, o=table.namespace, n=table.name))

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_last_key(self, rows: KeyRange) -> Key | None:
        last = super().read_last_key(rows)
        return None if last is None else self._marked(rows, last)

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        if is_rowid(rows.table, rows.order[0]):
            queries = 1  # whether ROWIDs are still valid is checked before the first query only
        chunk = super().read(rows, limit, queries, max_bytes)
        if chunk.last is not None:
            chunk.last = self._marked(rows, chunk.last)
        return chunk

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        key_columns = [table.get_column(name) for name in columns]
        return keys_of_rows(table.id, key_columns, keys, lambda column, value: event_key(column, value, self._config))

    def _build_query(self, rows: KeyRange) -> RangeQuery:
        return RangeQuery(rows, self._config, self._connection)

    def _find_last_key(self, query: RangeQuery) -> Key | None:
        values = query.read_last_key()
        return None if values is None else [c.to_json(value) for c, value in zip(query.key, values, strict=True)]

    def _limit_rows(self, query: RangeQuery, limit: int) -> int:
        return limit if query.key[0].rowid else min(limit, self._fetch_size(query).worth_asking)

    def _read_blocks(
        self, query: RangeQuery, limit: int, max_bytes: int, moment: ReadMoment[OraclePosition], first: int
    ) -> Iterator[tuple[RowBlock, Key]]:
        sizes = self._fetch_size(query)
        for part in self._first(query, limit, sizes.rows):
            block = read_block(query.columns, part, moment.position.scn, moment.ts_us, first)
            sizes.adapt_size(block, max_bytes // CHUNK_PARTS)
            first += len(block)
            yield block, query.key_of(part)

    def _fetch_size(self, query: RangeQuery) -> FetchSize:
        table = query.rows.table
        return self._fetch_sizes.setdefault(
            (table.id, table.version), FetchSize(query.most_rows, lobs=bool(query.columns.lobs))
        )

    def _parse_condition(self, rows: KeyRange) -> None:
        with self._connection.cursor() as cursor:
            cursor.parse(f"SELECT 1 FROM {quote_table(rows.table.id)} WHERE {rows.condition}\n")

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

    # -- row ids as keys ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self, rows: KeyRange) -> Iterator[None]:
        with super()._reading(rows):
            if is_rowid(rows.table, rows.order[0]):
                for key in filter(None, (rows.after, rows.upto)):
                    self._rowid_keys_of(rows.table.id).check_key(key[0])
            yield

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

    # -- positions, and the end ---------------------------------------------------------------------------------------

    def _read_moment(self) -> ReadMoment[OraclePosition]:
        low = current_scn(self._connection)
        return ReadMoment(self._position(low), now_us(self._connection), source_of(low))

    def _read_log_end(self) -> OraclePosition:
        return self._position(current_scn(self._connection))

    def _position(self, scn: int) -> OraclePosition:
        return OraclePosition(scn, scn, resetlogs=self._database.resetlogs, dbid=self._database.dbid)

    @contextlib.contextmanager
    def _translate_errors(self, where: str) -> Iterator[None]:
        self._busy += 1
        try:
            with translate_driver_errors(self._config, where):
                yield
        finally:
            self._busy -= 1

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(oracledb.Error):  # gone already
            if self._busy:
                self._connection.cancel()
            self._connection.close()
