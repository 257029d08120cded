"""Reads one row as of an SCN, by a flashback query with its ROWID."""

from __future__ import annotations

import logging
from typing import Final

import oracledb
import pyarrow as pa
from oracledb import Connection

from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of
from airflow_provider_cdc.sources.oracle.schema.sql_names import quoted
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns

log = logging.getLogger(__name__)

_GONE: Final = {942, 904, 1410, 1466, 1555, 8180, 8181}
"""Error codes: the table, the row or the undo of that moment does not exist any more, or the table was changed."""


def row_at(
    connection: Connection, config: OracleConfig, schema: TableSchema, row_id: str, scn: int
) -> pa.StructArray | None:
    """The row, as a struct array with one element; ``None`` if it cannot be read any more (see :data:`_GONE`).

    :param connection: in the container of the tables
    """
    columns = QueryColumns(schema, config)
    sql = f"SELECT {', '.join(columns.expressions)} FROM {quoted(schema.id)} AS OF SCN {int(scn)} t WHERE t.ROWID = :row_id"
    try:
        for frame in connection.fetch_df_batches(sql, {"row_id": row_id}, size=1):
            rows = pa.table(frame)
            if rows.num_rows:
                return columns.read(rows)
    except oracledb.DatabaseError as e:
        if code_of(e) not in _GONE:
            raise
        log.info("Row %s of %s cannot be read as of SCN %d: %s", row_id, schema.id, scn, e)
    return None
