"""Blocks of READ rows that snapshots and chunks read."""

from __future__ import annotations

from typing import Any

import numpy as np

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.sources.db2.position import lsn_text
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.relational import snapshot_row_blocks as shared


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
    """Build the ``source`` block of rows that were read at an LSN; there is no change, and so no ``change_lsn``."""
    return {"commit_lsn": lsn_text(lsn)}
