"""Reads one row as of an SCN, by a flashback query with its ROWID or its key."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import oracledb
import pyarrow as pa
from oracledb import Connection

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import key_to_json
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of
from airflow_provider_cdc.sources.oracle.snapshot.chunk_key_binds import bind_key_values, key_columns
from airflow_provider_cdc.sources.oracle.snapshot.event_key_conversion import event_key
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.relational.event_key_decoder import IrreversibleKey
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

_GONE: Final = {942, 904, 1410, 1466, 1555, 8180, 8181}
"""Error codes: the table, the row or the undo of that moment does not exist any more, or the table was changed."""


def row_at(
    connection: Connection, config: OracleConfig, schema: TableSchema, row_id: str, scn: int
) -> pa.StructArray | None:
    """Read the row, as a struct array with one element.

    The row is ``None`` if it cannot be read any more (see :data:`_GONE`).

    :param connection: in the container of the tables
    """
    columns = QueryColumns(schema, config)
    rows = _rows(connection, columns, scn, "t.ROWID = :row_id", {"row_id": row_id})
    return rows if rows is not None and len(rows) else None


def row_of_key(
    connection: Connection, config: OracleConfig, schema: TableSchema, key: Sequence[Any], scn: int
) -> pa.StructArray | None:
    """Return the row with a key, see :meth:`..schema.stream_lookups.StreamLookups`.

    :param connection: in the container of the tables
    """
    columns = QueryColumns(schema, config)
    try:
        named = key_columns(schema, schema.key, columns, "t")
        of_log = zip(schema.key, key_to_json(key), strict=True)
        values = [event_key(schema.get_column(name), value, config) for name, value in of_log]
    except (IrreversibleKey, QueryRejected):
        return None
    with connection.cursor() as cursor:
        variables = bind_key_values("k", named, values, cursor)
        condition = " AND ".join(
            f"{c.sql} = {c.bind_expression(name)}" for c, name in zip(named, variables, strict=True)
        )
        rows = _rows(connection, columns, scn, condition, variables)
    return rows if rows is not None and len(rows) <= 1 else None


def _rows(
    connection: Connection, columns: QueryColumns, scn: int, condition: str, values: dict[str, Any]
) -> pa.StructArray | None:
    """Return the rows of a condition; ``None`` if the moment cannot be read any more."""
    table = columns.schema.id
    sql = f"SELECT {', '.join(columns.expressions)} FROM {quote_table(table)} AS OF SCN {int(scn)} t WHERE {condition}"
    try:
        frames = [pa.table(frame) for frame in connection.fetch_df_batches(sql, values, size=2)]
    except oracledb.DatabaseError as e:
        if code_of(e) not in _GONE:
            raise
        log.info("A row of %s cannot be read as of SCN %d: %s", table, scn, e)
        return None
    parts = [columns.read_rows(frame) for frame in frames if frame.num_rows]
    return pa.concat_arrays(parts) if parts else pa.array([], columns.type)
