"""Values of columns: from the bytes that a server sends, for many rows, to arrays of the change log.

Numbers, moments, decimals, texts, bytes and UUIDs in binary form, which is the usual case, are decoded by kernels. All else is read value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, arrow_type
from airflow_provider_cdc.sources.postgresql.columns import temporal_texts as moments
from airflow_provider_cdc.sources.postgresql.columns.value_forms import (
    FIRST_DAY,
    FIRST_US,
    LAST_DAY,
    LAST_US,
    ValueForm,
    build_form,
)
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.kernels import value_decoding as kernels
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import BINARY_VALUE
from airflow_provider_cdc.sources.postgresql.schema.column_types import OID_TYPES, column_form
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import PostgresType, TypeCatalog

_MAX_BYTES: Final = 2**31 - 1
"""Bytes in one array of texts or bytes."""
_UUID_SIGNS: Final = 36
_VERSION: Final = 1
_PLAIN_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "name", "citext", "json", "xml", "enum", "refcursor"})
_VERSIONED_TEXTS: Final = frozenset({"jsonb", "jsonpath", "ltree", "lquery", "ltxtquery"})


@dataclass(slots=True)
class ColumnValues:
    """Values of one column, one per row, as ``TupleData`` of pgoutput and ``COPY … BINARY`` have them.

    :param data: bytes of many rows
    :param kinds: how each value is sent, see :mod:`~airflow_provider_cdc.sources.postgresql.kernels.message_layout`; all but binary and text ones
        have no value
    :param starts: offset of each value
    :param lengths: its bytes
    """

    data: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]


class ValueDecoder(Protocol):
    """A decoder of the values of one column."""

    def decode(self, values: ColumnValues) -> pa.Array:
        """Return an array of exactly the column's type.

        :raises UnreadableValue: a value has no place in the change log, or is not as its type sends it
        """


def needs_text(type_oid: int, types: TypeCatalog) -> bool:
    """Check whether the server cannot send values in binary form: a query has to ask for them as texts."""
    return types.needs_text(type_oid)


def make_decoder(
    column: Column, type_oid: int, modifier: int, types: TypeCatalog, config: PostgresConfig
) -> ValueDecoder:
    """Return the decoder of a column's values.

    :param modifier: of the type in the log or the query, which may be another than that of the column
    :raises UnreadableValue: the type is not among those of the catalog
    """
    base, _ = types.find_base(type_oid, modifier)
    if column.type == NOT_CAPTURED:
        return _NoValues(column)
    if base is None:
        raise UnreadableValue(
            f"The type with OID {type_oid} is not in the catalog, so that values of the column cannot be read.",
            where=column.name,
            safe="No row of the batch was written; the offset is untouched.",
            remedy="run again, which reads the types again; if the type was dropped, read the table again with an incremental snapshot",
        )
    form = column_form(base, types)
    return _ColumnDecoder(column, base, build_form(column, base, types, config), _find_fast(column, form))


@dataclass(frozen=True, slots=True)
class _NoValues:
    """Values of a column that is not captured."""

    column: Column

    def decode(self, values: ColumnValues) -> pa.Array:
        return pa.nulls(len(values.kinds), arrow_type(self.column.type))


@dataclass(slots=True)
class _Rows:
    """Values, which rows have one, and how many of these are texts."""

    values: ColumnValues
    valid: npt.NDArray[np.bool_]
    texts: int

    @property
    def count(self) -> int:
        return len(self.valid)

    def bitmap(self) -> tuple[pa.Buffer | None, int]:
        """Return the bitmap of an array, and the number of its NULLs."""
        nulls = self.count - int(np.count_nonzero(self.valid))
        return (pa.py_buffer(np.packbits(self.valid, bitorder="little")) if nulls else None), nulls


_Fast = Callable[[_Rows], "pa.Array | None"]
"""Decodes rows in one form; ``None`` if it cannot read one of them."""


@dataclass(frozen=True, slots=True)
class _ColumnDecoder:
    """Decoder of a column: by a kernel if there is one and it can, else value by value, which finds out what is wrong."""

    column: Column
    base: PostgresType
    form: ValueForm
    fast: tuple[_Fast, bool] | None

    def decode(self, values: ColumnValues) -> pa.Array:
        valid = np.empty(len(values.kinds), np.bool_)
        texts = kernels.find_values(values.kinds, valid)
        rows = _Rows(values, valid, texts)
        if self.fast is not None and (not texts or self.fast[1]):
            array = self.fast[0](rows)
            if array is not None:
                return array
        return self._decode_singly(rows)

    def _decode_singly(self, rows: _Rows) -> pa.Array:
        values, out = rows.values, [None] * rows.count
        for row in np.flatnonzero(rows.valid):
            start = int(values.starts[row])
            data = values.data[start : start + int(values.lengths[row])].tobytes()
            is_binary = values.kinds[row] == BINARY_VALUE
            try:
                out[row] = self.form.from_binary(data) if is_binary else self.form.from_text(data.decode())
            except (ValueError, ArithmeticError, LookupError, struct.error) as e:
                self._fail(str(e), data)
        type_ = arrow_type(self.column.type)
        try:
            if pa.types.is_temporal(type_):
                width = pa.int32() if pa.types.is_date(type_) else pa.int64()
                return pa.array(out, width).view(type_)
            return pa.array(out, type_)
        except (pa.ArrowInvalid, ValueError, OverflowError) as e:
            self._fail(str(e), b"")

    def _fail(self, reason: str, data: bytes) -> NoReturn:
        shown = f" ({data[:40].hex()}{'…' if len(data) > 40 else ''})" if data else ""
        hint = "set decimal.handling.mode to string or double" if self.base.name == "numeric" else "correct the value"
        raise UnreadableValue(
            f"A value of the type {self.base.name} cannot be represented in the change log: {reason}{shown}",
            where=self.column.name,
            safe="No row of the batch was written; the offset is untouched.",
            remedy=f"{hint}, or exclude the column with column.exclude.list, then read the table again with an incremental snapshot",
        )


def _find_fast(column: Column, form: str) -> tuple[_Fast, bool] | None:
    """Return the decoder by a kernel, and whether it takes texts too; ``None`` if there is none."""
    type_ = arrow_type(column.type)
    if form in _PLAIN_TEXTS:
        return (lambda rows: _copy_texts(rows, type_, 0)), True
    if form in _VERSIONED_TEXTS:
        return (lambda rows: _copy_texts(rows, type_, _VERSION)), False
    if column.type == "binary" and form in ("bytea", "unknown"):
        return (lambda rows: _copy_texts(rows, type_, 0)), False
    if form == "uuid":
        return _write_uuids, False
    if form == "numeric" and column.type.startswith("decimal"):
        return (lambda rows: _decode_numerics(rows, type_)), False
    if form in _WIDTHS:
        width, dtype = _WIDTHS[form]
        return (lambda rows: _decode_fixed(rows, type_, width, dtype)), False
    if form in ("date", "timestamp", "timestamptz"):
        return (lambda rows: _decode_moments(rows, type_)), False
    return ((lambda rows: _decode_bools(rows)), False) if form == "bool" else None


_WIDTHS: Final[dict[str, tuple[int, type[np.generic]]]] = {
    "int2": (2, np.int16), "int4": (4, np.int32), "int8": (8, np.int64), "time": (8, np.int64), "float4": (4, np.float32),
    "float8": (8, np.float64), **dict.fromkeys(OID_TYPES, (4, np.int64)),
}  # fmt: skip
_UNSIGNED: Final[dict[int, type[np.unsignedinteger[Any]]]] = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def _integers(rows: _Rows, width: int) -> npt.NDArray[np.int64] | None:
    v, out = rows.values, np.empty(rows.count, np.int64)
    return out if kernels.decode_integers(v.data, rows.valid, v.starts, v.lengths, width, out) < 0 else None


def _fixed(rows: _Rows, type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    bitmap, nulls = rows.bitmap()
    return pa.Array.from_buffers(type_, rows.count, [bitmap, pa.py_buffer(values)], nulls)


def _decode_fixed(rows: _Rows, type_: pa.DataType, width: int, dtype: type[np.generic]) -> pa.Array | None:
    values = _integers(rows, width)
    if values is None:
        return None
    if np.dtype(dtype).itemsize == width:
        return _fixed(rows, type_, values.astype(_UNSIGNED[width], copy=False).view(dtype))
    return _fixed(rows, type_, values.astype(dtype, copy=False))


def _decode_bools(rows: _Rows) -> pa.Array | None:
    values = _integers(rows, 1)
    if values is None:
        return None
    return _fixed(rows, pa.bool_(), np.packbits(values.astype(np.bool_), bitorder="little"))


def _decode_moments(rows: _Rows, type_: pa.DataType) -> pa.Array | None:
    is_date = pa.types.is_date(type_)
    values = _integers(rows, 4 if is_date else 8)
    if values is None:
        return None
    if is_date:
        values = values.astype(np.uint32).view(np.int32).astype(np.int64)
        bits, shift, first, last = 31, moments.EPOCH_DAYS, FIRST_DAY, LAST_DAY
    else:
        bits, shift, first, last = 63, moments.EPOCH_US, FIRST_US, LAST_US
    if kernels.convert_moments(values, rows.valid, -(2**bits), 2**bits - 1, shift, first, last) >= 0:
        return None
    return _fixed(rows, type_, values.astype(np.int32) if is_date else values)


def _decode_numerics(rows: _Rows, type_: pa.DataType) -> pa.Array | None:
    v, out = rows.values, np.empty((rows.count, 2), np.int64)
    if kernels.decode_numerics(v.data, rows.valid, v.starts, v.lengths, type_.scale, out) >= 0:
        return None
    array = _fixed(rows, type_, out)
    return array if _is_valid(array) else None


def _variable(rows: _Rows, type_: pa.DataType, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.Array:
    bitmap, nulls = rows.bitmap()
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, rows.count, buffers, nulls)


def _copy_texts(rows: _Rows, type_: pa.DataType, skipped: int) -> pa.Array | None:
    v, offsets = rows.values, np.empty(rows.count + 1, np.int64)
    if kernels.sum_lengths(rows.valid, v.lengths, skipped, offsets) >= 0 or offsets[-1] > _MAX_BYTES:
        return None
    if skipped and not np.all(v.data[v.starts[rows.valid]] == 1):
        return None
    data = np.empty(int(offsets[-1]), np.uint8)
    kernels.copy_bytes(v.data, v.starts, skipped, offsets, data)
    array = _variable(rows, type_, offsets, data)
    return array if pa.types.is_binary(type_) or _is_valid(array) else None


def _write_uuids(rows: _Rows) -> pa.Array | None:
    v, offsets = rows.values, np.empty(rows.count + 1, np.int64)
    data = np.empty(rows.count * _UUID_SIGNS, np.uint8)
    if kernels.write_uuids(v.data, rows.valid, v.starts, v.lengths, offsets, data) >= 0:
        return None
    return _variable(rows, pa.string(), offsets, data[: int(offsets[-1])])


def _is_valid(array: pa.Array) -> bool:
    """Check whether texts are UTF-8, and decimals have no more digits than their type."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
