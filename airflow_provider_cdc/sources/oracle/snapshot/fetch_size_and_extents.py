"""Shared parts of snapshots and chunks: READ row blocks, fetch sizes, extents of a table, errors of refused statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.connect import Connection, fetch_rows, fetch_scalar
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.relational import snapshot_row_blocks as shared

LOB_ROWS: Final = 200
"""Rows per fetch of a table with LOBs, which are fetched whole."""
MAX_BYTES: Final = 64 << 20
"""Larger fetches are split."""

_NOW = "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM DUAL"
_EXTENTS = """
SELECT o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID, e.BLOCKS
FROM DBA_EXTENTS e
JOIN DBA_OBJECTS o
  ON o.OWNER = e.OWNER AND o.OBJECT_NAME = e.SEGMENT_NAME AND NVL(o.SUBOBJECT_NAME, ' ') = NVL(e.PARTITION_NAME, ' ')
WHERE e.OWNER = :owner AND e.SEGMENT_NAME = :name AND o.OBJECT_TYPE LIKE 'TABLE%' AND o.DATA_OBJECT_ID IS NOT NULL
ORDER BY o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID"""


_FIRST_ROWS: Final = 256
_FIRST_LOB_ROWS: Final = 2
_GROWTH: Final = 8
_PARTS: Final = 4
"""Number of fetches for a full chunk of wide rows."""
_NO_LIMIT: Final = 1 << 62


class FetchSize:
    """Number of rows to fetch at a time. It adapts to the width of the rows, since all rows of a fetch are in memory together.

    :param most: greatest number of rows per fetch
    :param lobs: the table has LOBs, which are fetched whole
    :ivar rows: number of rows of the next fetch
    """

    def __init__(self, most: int, *, lobs: bool) -> None:
        self._most = most
        self.rows = min(most, _FIRST_LOB_ROWS if lobs else _FIRST_ROWS)
        self._grows = True

    @property
    def worth_asking(self) -> int:
        """Limit of rows for the next query: small while the width of the rows is not known, since the fetch size of a query is fixed."""
        return self.rows if self._grows and self.rows < self._most else _NO_LIMIT

    def adapt_size(self, block: RowBlock, max_bytes: int) -> int:
        """Adapt to rows that were fetched; returns their size in memory, bytes."""
        size = block.after.nbytes if block.after is not None else 0
        fit = max(max_bytes // _PARTS * len(block) // max(size, 1), 1)
        self._grows = fit > self.rows
        self.rows = min(fit, _GROWTH * self.rows, self._most)
        return size


def read_extents(connection: Connection, table: TableId) -> list[tuple[int, int, int, int]]:
    """Return the extents of a table, in the order of ROWIDs.

    Each has its data object, file, first block and number of blocks.
    """
    found = fetch_rows(connection, _EXTENTS, owner=table.namespace, name=table.name)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in found]


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
    """Return the ``source`` block of what was read at an SCN."""
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
