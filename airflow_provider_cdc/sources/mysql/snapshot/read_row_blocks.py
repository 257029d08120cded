"""Blocks of rows that snapshots and chunks read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.relational import snapshot_row_blocks as shared


def read_block(
    table: TableSchema, images: pa.StructArray, position: MySqlPosition, ts_us: int, first: int = 0
) -> RowBlock:
    """Rows that were read at a position, which no server's event has made.

    :param first: ``order`` of the first row
    """
    return shared.read_block(table, images, ts_us=ts_us, source=source_of(position), first=first)


def source_of(position: MySqlPosition) -> dict[str, str | np.integer[Any]]:
    """Return the ``source`` block of rows that were read at a position."""
    return {
        "server_id": np.int64(0),
        "file": position.file,
        "pos": np.int64(position.pos),
        "row": np.int32(0),
    }
