"""Shared parts of snapshots and chunks: READ row blocks, the time, extents of a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.connect import Connection, fetch_rows, fetch_scalar
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.relational import snapshot_row_blocks as shared
from airflow_provider_cdc.sources.relational.fetch_size import MAX_BYTES

_NOW = "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM DUAL"
_EXTENTS = """
SELECT o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID, e.BLOCKS
FROM DBA_EXTENTS e
JOIN DBA_OBJECTS o
  ON o.OWNER = e.OWNER AND o.OBJECT_NAME = e.SEGMENT_NAME AND NVL(o.SUBOBJECT_NAME, ' ') = NVL(e.PARTITION_NAME, ' ')
WHERE e.OWNER = :owner AND e.SEGMENT_NAME = :name AND o.OBJECT_TYPE LIKE 'TABLE%' AND o.DATA_OBJECT_ID IS NOT NULL
ORDER BY o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID"""


def read_extents(connection: Connection, table: TableId) -> list[tuple[int, int, int, int]]:
    """Return the extents of a table, in the order of ROWIDs.

    Each has its data object, file, first block and number of blocks.
    """
    rows = fetch_rows(connection, _EXTENTS, owner=table.namespace, name=table.name)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in rows]


def read_block(columns: QueryColumns, part: pa.Table, scn: int, ts_us: int, first: int = 0) -> RowBlock:
    """Build a block of ``READ`` rows from the result of a query.

    :param part: fetched rows with the columns ``columns.expressions``; more may follow
    :param scn: SCN for the ``source`` block
    :param ts_us: time of the rows, µs since the epoch
    :param first: ``order`` of the first row
    """
    return shared.read_block(
        columns.schema,
        columns.read_rows(part),
        ts_us=ts_us,
        source=source_of(scn),
        first=first,
        unavailable=columns.find_unavailable_values(len(part)),
    )


def source_of(scn: int) -> dict[str, str | np.integer[Any]]:
    """Return the ``source`` block of rows that were read at an SCN."""
    return {"scn": str(scn), "ssn": np.int64(0)}


def now_us(connection: Connection) -> int:
    """Return the database's current time, µs since the epoch."""
    moment = dt.datetime.fromisoformat(str(fetch_scalar(connection, _NOW)).strip()).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def split_fetched_rows(batch: pa.Table) -> Iterator[pa.Table]:
    """Split fetched rows into parts of at most :data:`MAX_BYTES`."""
    n = len(batch)
    if n > 1 and batch.nbytes > MAX_BYTES:
        yield from split_fetched_rows(batch.slice(0, n // 2))
        yield from split_fetched_rows(batch.slice(n // 2))
    elif n:
        yield batch
