"""Rows that a query has given, as ``READ`` rows of a snapshot or a chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema


def read_block(
    table: TableSchema,
    rows: pa.StructArray,
    *,
    ts_us: int,
    source: Mapping[str, str | np.integer[Any]],
    first: int = 0,
    unavailable: npt.NDArray[np.bool_] | None = None,
) -> RowBlock:
    """Rows that were read at one moment, from one place.

    :param rows: struct of exactly the table's columns
    :param ts_us: when they were read, microseconds since the epoch, by the database's clock
    :param source: field of the ``source`` block → its value, the same for all rows; numbers in the width of the field
    :param first: ``order`` of the first row
    :param unavailable: see :class:`~airflow_provider_cdc.core.model.log_items.RowBlock`
    """
    n = len(rows)
    return RowBlock(
        table=table,
        op=np.full(n, READ, np.int8),
        before=None,
        after=rows,
        order=np.arange(first, first + n),
        transaction=None,
        ts_us=np.full(n, ts_us, np.int64),
        source={name: _repeated(value, n) for name, value in source.items()},
        unavailable_after=unavailable,
    )


def _repeated(value: str | np.integer[Any], n: int) -> pa.Array:
    """Repeat a value n times; a text is there once, and n numbers that point to it."""
    if isinstance(value, str):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([value]))
    return pa.array(np.full(n, value, value.dtype))
