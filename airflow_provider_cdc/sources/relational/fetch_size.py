"""The number of rows that snapshots and chunks fetch at a time."""

from __future__ import annotations

from typing import Final

from airflow_provider_cdc.core.model.log_items import RowBlock

LOB_ROWS: Final = 200
"""Rows per fetch of a table with LOBs, which are fetched whole."""
MAX_BYTES: Final = 64 << 20
"""About how many bytes the rows of one fetch of a snapshot take, at most."""
CHUNK_PARTS: Final = 4
"""Number of fetches for a full chunk of wide rows."""
_FIRST_ROWS: Final = 256
_FIRST_LOB_ROWS: Final = 2
_GROWTH: Final = 8
_NO_LIMIT: Final = 1 << 62


class FetchSize:
    """Number of rows to fetch at a time. It adapts to the width of the rows, since all rows of a fetch are in memory together.

    :param most: greatest number of rows per fetch
    :param lobs: the table has LOBs
    :ivar rows: number of rows of the next fetch
    """

    def __init__(self, most: int, *, lobs: bool) -> None:
        self._most = min(most, LOB_ROWS) if lobs else most
        self.rows = min(self._most, _FIRST_LOB_ROWS if lobs else _FIRST_ROWS)
        self._grows = True

    @property
    def worth_asking(self) -> int:
        """Limit of rows for a query with a fixed fetch size: small while the width of the rows is not known."""
        return self.rows if self._grows and self.rows < self._most else _NO_LIMIT

    def adapt_size(self, block: RowBlock, max_bytes: int) -> None:
        """Adapt to rows that were fetched.

        :param max_bytes: of the rows of one fetch
        """
        size = block.after.nbytes if block.after is not None else 0
        fit = max(max_bytes * len(block) // max(size, 1), 1)
        self._grows = fit > self.rows
        self.rows = min(fit, _GROWTH * self.rows, self._most)
