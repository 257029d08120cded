"""Common parts of snapshots and chunks: blocks of READ rows, sizes of fetches, errors of refused statements."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.sources.db2.position import lsn_text
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.relational import snapshot_row_blocks as shared

LOB_ROWS: Final = 200
"""Rows per fetch of a table with LOBs, which are fetched whole."""
MAX_BYTES: Final = 64 << 20
"""About how many bytes the rows of one fetch take, at most."""
_FIRST_ROWS: Final = 256
_FIRST_LOB_ROWS: Final = 2
_GROWTH: Final = 8


class Db2FetchSize:
    """Number of rows to fetch at a time. It adapts to the width of the rows, since all rows of a fetch are in memory together.

    :param most: greatest number of rows per fetch
    :param lobs: the table has LOBs
    :param max_bytes: of the rows of one fetch
    :ivar rows: number of rows of the next fetch
    """

    def __init__(self, most: int, *, lobs: bool, max_bytes: int = MAX_BYTES) -> None:
        self._most, self._bytes = min(most, LOB_ROWS) if lobs else most, max_bytes
        self.rows = min(self._most, _FIRST_LOB_ROWS if lobs else _FIRST_ROWS)

    def adapt_size(self, block: RowBlock) -> int:
        """Adapt to rows that were fetched; returns their size in memory, bytes."""
        size = block.after.nbytes if block.after is not None else 0
        fit = max(self._bytes * len(block) // max(size, 1), 1)
        self.rows = min(fit, _GROWTH * self.rows, self._most)
        return size


def read_block(columns: SelectList, rows: list[tuple[Any, ...]], lsn: bytes, ts_us: int, first: int = 0) -> RowBlock:
    """Build a block of ``READ`` rows from the result of a query.

    :param rows: fetched rows with the columns ``columns.expressions``; more may follow
    :param lsn: LSN for the ``source`` block
    :param ts_us: time of the rows, µs since the epoch
    :param first: ``order`` of the first row
    """
    return shared.read_block(
        columns.schema,
        columns.struct_from_rows(rows),
        ts_us=ts_us,
        source=source_of(lsn),
        first=first,
        unavailable=columns.build_unavailable_mask(len(rows)),
    )


def source_of(lsn: bytes) -> dict[str, str | np.integer[Any]]:
    """Build the ``source`` block of what was read at an LSN; there is no change, and so no ``change_lsn``."""
    return {"commit_lsn": lsn_text(lsn)}
