"""Reads rows of a chunk in the view of a connection; checks that a table is as it was when the view was opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.select_overrides import LIST
from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import raise_cdc_errors, raise_query_refused
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import quote_table, quoted_name
from airflow_provider_cdc.sources.mysql.snapshot.read_row_blocks import read_block
from airflow_provider_cdc.sources.mysql.snapshot.result_column_check import UnexpectedColumn, result_columns
from airflow_provider_cdc.sources.mysql.snapshot.result_set_reader import ResultReader
from airflow_provider_cdc.sources.mysql.snapshot.sql_fragment_checks import checked_fragment

IDLE_S: Final = 86_400
"""``wait_timeout`` of readers: one may wait long for its next chunk, and a closed connection has lost the shared view."""
PATIENCE_S: Final = 5
"""``lock_wait_timeout`` of readers: DDL that waits for one reader would hold up the others, and so itself, for ever."""
LOCK_TIMEOUT: Final = frozenset({1205, 1969, 3024})
GONE: Final = frozenset({1051, 1146})
_CHANGED: Final = GONE | {1412, 1684} | LOCK_TIMEOUT
"""Errors of a reader for a table that was dropped or altered since its view was opened, or that a statement waits to alter."""
SELECT: Final = "SELECT HIGH_PRIORITY"
"""Reads before the writers that wait for the lock on a table without transactions: on MariaDB, plain reads would wait behind them, and so
for themselves."""


def read_view_rows(
    connection: Connection,
    config: MySqlConfig,
    schema: TableSchema,
    chunk: SnapshotChunk,
    position: MySqlPosition,
    ts_us: int,
    *,
    select: str | None,
    configured: bool,
) -> Iterator[RowBlock]:
    """Read the rows of a chunk.

    :param position: and ``ts_us``: of the view
    :param select: statement whose rows are read instead of all
    :param configured: it is one of the configuration, and not of a signal
    :raises QueryRejected: the statement cannot be used
    """
    columns = ", ".join(quoted_name(c.name) for c in schema.columns)
    if select is not None:
        yield from _read_selected(connection, config, schema, columns, select, position, ts_us, configured=configured)
        return
    sql = f"{SELECT} {columns} FROM {quote_table(chunk.table)}" + (
        f" WHERE {chunk.condition}" if chunk.condition else ""
    )
    with raise_cdc_errors(config, f"{chunk.table} {chunk.condition or ''}"):
        for images in ResultReader(schema, config).read(connection, sql):
            yield read_block(schema, images, position, ts_us)


def find_table_change(connection: Connection, table: TableId) -> tuple[str | None, bool]:
    """Return why a view does not show a table any more, ``None`` if it does, and whether a statement only waits to alter the table."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"{SELECT} 1 FROM {quote_table(table)} LIMIT 1")
            cursor.fetchall()
    except pymysql.err.MySQLError as e:
        if e.args[0] not in _CHANGED:
            raise
        return str(e.args[1]), e.args[0] in LOCK_TIMEOUT
    return None, False


def _read_selected(
    connection: Connection,
    config: MySqlConfig,
    schema: TableSchema,
    columns: str,
    select: str,
    position: MySqlPosition,
    ts_us: int,
    *,
    configured: bool,
) -> Iterator[RowBlock]:
    """Yield the rows that an override SELECT gives, decoded with the table's schema."""
    which = f"{LIST}.{schema.id}" if configured else "the SELECT"
    again = "run the capture again" if configured else "send the signal again"
    remedy = f"correct {which}, which must return the table's own columns unchanged; then {again}"
    with raise_query_refused(config, f"{schema.id}: {select}", remedy):
        statement = checked_fragment(
            connection, config, select, within="{}", where=f"{schema.id}: {select}", remedy=remedy
        )
        like = result_columns(connection, f"SELECT {columns} FROM {quote_table(schema.id)}")
        sql = f"{SELECT} {columns} FROM ({statement}\n) AS `selected`"
        try:
            for images in ResultReader(schema, config).read(connection, sql, like):
                yield read_block(schema, images, position, ts_us)
        except UnexpectedColumn as e:
            connection._force_close()
            raise QueryRejected(
                f"The SELECT returns a column that differs from the table: {e}.",
                where=f"{schema.id}: {select}",
                safe="No row of the SELECT was captured.",
                remedy=remedy,
            ) from None
