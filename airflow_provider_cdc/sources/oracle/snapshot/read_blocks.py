"""Shared by snapshots and chunks: blocks of rows, fetch sizes, extents of a table, refused statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.errors import QueryRefused
from airflow_provider_cdc.core.model.events import RowBlock
from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.sources.oracle.connect import Connection, rows, scalar
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.relational import read_block as shared

LOB_ROWS: Final = 200
"""Rows that are fetched at a time where they have LOBs, each of which comes whole."""
MAX_BYTES: Final = 64 << 20
"""A batch of results that is larger is handed over in parts."""

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
"""Fetches that a full chunk of wide rows takes."""
_NO_LIMIT: Final = 1 << 62


class FetchSize:
    """How many rows of a table to fetch at a time. All rows of a fetch are held in memory together, however wide they are.

    :param most: rows of a fetch at most
    :param lobs: the table has LOBs, which come whole
    :ivar rows: of the next fetch
    """

    def __init__(self, most: int, *, lobs: bool) -> None:
        self._most = most
        self.rows = min(most, _FIRST_LOB_ROWS if lobs else _FIRST_ROWS)
        self._grows = True

    @property
    def worth_asking(self) -> int:
        """Rows of the next query: few, while more may be fetched at a time as soon as it is known how wide they are."""
        return self.rows if self._grows and self.rows < self._most else _NO_LIMIT

    def took(self, block: RowBlock, max_bytes: int) -> int:
        """Learn from rows that came. Gives how much memory they take."""
        size = block.after.nbytes if block.after is not None else 0
        fit = max(max_bytes // _PARTS * len(block) // max(size, 1), 1)
        self._grows = fit > self.rows
        self.rows = min(fit, _GROWTH * self.rows, self._most)
        return size


def extents(connection: Connection, table: TableId) -> list[tuple[int, int, int, int]]:
    """Object, file, first block and number of blocks of each part of a table, in the order of row ids."""
    found = rows(connection, _EXTENTS, owner=table.namespace, name=table.name)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in found]


def refused(what: str, why: str, statement: str) -> QueryRefused:
    """The error for a statement or a condition of a user that the database does not accept.

    :param why: the database's words
    """
    return QueryRefused(
        f"{what}: {why}",
        where=statement,
        safe="None of its rows is captured; capture goes on.",
        remedy="try the statement in a SQL client as the capture user, and send the signal again with the corrected one",
    )


def read_block(columns: QueryColumns, part: pa.Table, scn: int, ts_us: int, first: int = 0) -> RowBlock:
    """Rows of a query on a table as ``READ`` rows.

    :param part: columns are those of ``columns.expressions``, more may follow
    :param scn: for the source block
    :param first: ``order`` of the first row
    """
    return shared.read_block(
        columns.schema,
        columns.read(part),
        ts_us=ts_us,
        source={"scn": str(scn), "ssn": np.int64(0)},
        first=first,
        unavailable=columns.unavailable(len(part)),
    )


def now_us(connection: Connection) -> int:
    """The database's time, microseconds since the epoch."""
    moment = dt.datetime.fromisoformat(str(scalar(connection, _NOW)).strip()).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def parts(batch: pa.Table) -> Iterator[pa.Table]:
    """A batch in parts of bounded size."""
    n = len(batch)
    if n > 1 and batch.nbytes > MAX_BYTES:
        yield from parts(batch.slice(0, n // 2))
        yield from parts(batch.slice(n // 2))
    elif n:
        yield batch
