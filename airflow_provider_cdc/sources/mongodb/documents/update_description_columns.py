"""Arrays of an update's description as Arrow lists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.bson_elements import list_all
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE, UNEXPECTED

_Offsets = npt.NDArray[np.int64]


def removed_fields(values: BsonValues) -> pa.ListArray:
    """``removedFields``: the paths of each; null where there is no such array.

    :raises DamagedDocument: it is no array of texts
    """
    inside, offsets = _elements(values)
    with _rows_of(offsets):
        _expect(inside, k.STRING)
        return _list(values, offsets, inside.to_strings().cast(pa.string()))


def truncated_arrays(values: BsonValues) -> pa.ListArray:
    """``truncatedArrays``: ``field`` and ``size`` of each; null where there is no such array.

    :raises DamagedDocument: it is no array of such documents
    """
    inside, offsets = _elements(values)
    with _rows_of(offsets):
        _expect(inside, k.DOCUMENT)
        field, size = inside.read_fields(b"field", b"newSize")
        _expect(field, k.STRING)
        _expect(size, k.INT32)
        parts = [field.to_strings().cast(pa.string()), pa.array(size.to_int64s()[0].astype(np.int32))]
    return _list(values, offsets, pa.StructArray.from_arrays(parts, ["field", "size"]))


def _elements(values: BsonValues) -> tuple[BsonValues, _Offsets]:
    """List the elements of the arrays among the values, one after the other, and where those of each row begin."""
    kinds = np.where(values.kinds == k.ARRAY, values.kinds, 0).astype(np.uint8)
    room = int(np.where(kinds, values.ends - values.starts, 0).sum()) // 2
    elements, offsets = np.empty((room, 4), np.int64), np.empty(len(values) + 1, np.int64)
    row, problem, at = list_all(values.buf, kinds, values.starts, values.ends, elements, offsets)
    if problem != FINE:
        raise DamagedDocument(row, int(at - values.starts[row]), problem)
    elements = elements[: offsets[-1]]
    return BsonValues(
        values.buf, elements[:, 0].astype(np.uint8), elements[:, 2].copy(), elements[:, 3].copy()
    ), offsets


@contextmanager
def _rows_of(offsets: _Offsets) -> Iterator[None]:
    """Say of a damaged element which row it is an element of."""
    try:
        yield
    except DamagedDocument as e:
        row = int(np.searchsorted(offsets, e.row, side="right")) - 1
        raise DamagedDocument(row, 0, e.problem) from None


def _expect(values: BsonValues, kind: int) -> None:
    if len(other := np.flatnonzero(values.kinds != kind)):
        raise DamagedDocument(int(other[0]), 0, UNEXPECTED)


def _list(values: BsonValues, offsets: _Offsets, inside: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), inside, mask=pa.array(values.kinds != k.ARRAY))
