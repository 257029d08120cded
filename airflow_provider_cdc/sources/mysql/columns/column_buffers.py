"""The column buffers that kernels decode into, and how they become an Arrow struct.

A column is in one of three stores: ``fixed`` (one 64-bit number per row), ``wide`` (a 128-bit number) or ``variable`` (bytes with
offsets).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.mysql.kernels import STORE_FIXED, STORE_VARIABLE, STORE_WIDE

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class ScratchMemory:
    """Memory that kernels decode into, reused for each block; finishers copy the values that become an Arrow array.

    Reusing the same pages keeps memory flat, and is faster than allocating new ones.
    """

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[np.generic]] = {}

    def allocate_array(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
        """Return an uninitialized array; ``name`` identifies the memory."""
        size = int(np.prod(shape))
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._memory[name] = np.empty(size, dtype)
        return memory[:size].reshape(shape)


class ColumnBuffers:
    """The buffers of the columns of one row image (before or after), for up to ``rows`` rows.

    :param stores: the store of each column
    :param variable_bytes: room for each variable column, bytes; untouched memory costs nothing
    :param scratch: the memory to use, under ``name``; it overwrites the values that were decoded there before
    """

    def __init__(
        self, stores: list[int], rows: int, variable_bytes: int, scratch: ScratchMemory, name: str = ""
    ) -> None:
        self.slots: list[int] = []
        counts = [0, 0, 0]
        for store in stores:
            self.slots.append(counts[store])
            counts[store] += 1
        self.stores = stores
        # numba wants arrays even where a table has no column of the kind
        fixed, wide, variable = (max(n, 1) for n in counts)
        self.fixed = scratch.allocate_array(f"{name}fixed", (fixed, rows), np.int64)
        self.wide = scratch.allocate_array(f"{name}wide", (wide, rows if counts[STORE_WIDE] else 1, 2), np.int64)
        self.offsets = scratch.allocate_array(f"{name}offsets", (variable, rows + 1), np.int32)
        self.offsets[:, 0] = 0
        self.data = scratch.allocate_array(f"{name}data", (variable, variable_bytes), np.uint8)
        self.filled = np.zeros(variable, np.int64)
        self.valid = scratch.allocate_array(f"{name}valid", (max(len(stores), 1), rows), np.uint8)

    @property
    def kernel_arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays in the order of the kernels' parameters."""
        return self.fixed, self.valid, self.wide, self.offsets, self.data, self.filled


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """The buffers of one column with ``n`` decoded rows.

    :param valid: 0 null, 1 a value, 2 a date that the calendar does not have (``0000-00-00``)
    :param fixed: ``int64[n]``
    :param wide: ``int64[n, 2]``: low and high half of a 128-bit number
    :param offsets: ``int32[n + 1]``, into ``data``
    :param filled: number of bytes used in ``data``
    """

    n: int
    valid: Bytes
    fixed: Int64s
    wide: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    data: Bytes
    filled: int

    def to_byte_strings(self) -> list[bytes | None]:
        """Return the values as Python bytes, for types that are converted one by one."""
        data, offsets = self.data[: self.filled].tobytes(), self.offsets.tolist()
        present = self.valid.tolist()
        return [data[offsets[i] : offsets[i + 1]] if present[i] else None for i in range(self.n)]


Finisher = Callable[[DecodedColumn], pa.Array]


def build_struct_array(
    buffers: ColumnBuffers,
    finishers: list[Finisher],
    n: int,
    present: Bytes | None,
    type_: pa.StructType,
    absent: Collection[int] = (),
) -> pa.StructArray:
    """Build the struct array of ``n`` decoded rows.

    :param finishers: one per column that rows have
    :param present: per row, whether it has this image; ``None`` = all have it
    :param absent: places of the columns that rows do not have
    """
    children = []
    for c, finisher in enumerate(finishers):
        slot, store = buffers.slots[c], buffers.stores[c]
        f, w, v = (slot if store == s else 0 for s in (STORE_FIXED, STORE_WIDE, STORE_VARIABLE))
        children.append(
            finisher(
                DecodedColumn(
                    n, buffers.valid[c, :n], buffers.fixed[f, :n], buffers.wide[w, :n], buffers.offsets[v, : n + 1],
                    buffers.data[v], int(buffers.filled[v]),
                )
            )
        )  # fmt: skip
    for c in sorted(absent):
        children.insert(c, pa.nulls(n, type_[c].type))
    missing = n - int(np.count_nonzero(present)) if present is not None else 0
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little")) if present is not None and missing else None
    return pa.StructArray.from_buffers(type_, n, [bitmap], missing, children=children)
