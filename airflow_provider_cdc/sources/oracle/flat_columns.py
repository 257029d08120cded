"""Columns of tables as one array."""

from __future__ import annotations

import pyarrow as pa


def flatten_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array.

    A column of one chunk is not copied: ``combine_chunks`` of a column copies that, too.

    >>> flatten_column(pa.chunked_array([["a"], ["b"]])).to_pylist()
    ['a', 'b']
    """
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
