"""Finishers: each makes the Arrow array of one column from the kernel's buffers, in the column's type in the change log.

Most work on whole arrays; a few rare types are converted value by value in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.config.property_enums import BinaryHandling
from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, arrow_type
from airflow_provider_cdc.sources.mysql.columns import charset_codec
from airflow_provider_cdc.sources.mysql.columns.column_buffers import Bytes, DecodedColumn, Finisher
from airflow_provider_cdc.sources.mysql.kernels import LARGEST_GROWTH
from airflow_provider_cdc.sources.relational.binary_mode_format import binary_text

_BEGINS_HALVES = 0xED
_LARGEST = 2**31 - 1
"""Greatest number of bytes of an Arrow array of texts."""

# -- validity ---------------------------------------------------------------------------------------------------------------------


def _bitmap(valid: Bytes) -> tuple[pa.Buffer | None, int]:
    """Return the validity bitmap and the number of nulls."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls


def _owned(values: npt.NDArray[Any], dtype: type[np.generic] | None = None) -> pa.Buffer:
    """Copy values to Arrow's memory, converted to ``dtype`` if one is given."""
    target = np.dtype(dtype) if dtype is not None else values.dtype
    buffer = pa.allocate_buffer(values.size * target.itemsize)
    if values.size:
        np.copyto(np.frombuffer(buffer, target).reshape(values.shape), values, casting="unsafe")
    return buffer


def _fixed(
    type_: pa.DataType, values: npt.NDArray[Any], valid: Bytes, dtype: type[np.generic] | None = None
) -> pa.Array:
    bitmap, nulls = _bitmap(valid)
    return pa.Array.from_buffers(type_, len(valid), [bitmap, _owned(values, dtype)], nulls)


def build_null_finisher(type_: pa.DataType) -> Finisher:
    """All nulls, for columns whose values are not needed."""
    return lambda v: pa.nulls(v.n, type_)


# -- numbers ----------------------------------------------------------------------------------------------------------------------


def build_integer_finisher(column: Column) -> Finisher:
    """Integers of up to 64 bits; booleans if the column has that type."""
    if column.type == "bool":
        return finish_booleans
    widths: dict[str, type[np.generic]] = {"int16": np.int16, "int32": np.int32}
    type_, dtype = arrow_type(column.type), widths.get(column.type, np.int64)

    def finisher(v: DecodedColumn) -> pa.Array:
        return _fixed(type_, v.fixed, v.valid, dtype)

    return finisher


def unsigned_bigint(column: Column, where: str) -> Finisher:
    """``BIGINT UNSIGNED``: exact as a decimal; as a ``long`` only up to 2^63 - 1."""
    type_ = arrow_type(column.type)

    def finisher(v: DecodedColumn) -> pa.Array:
        if pa.types.is_decimal(type_):
            return _fixed(type_, np.stack([v.fixed, np.zeros_like(v.fixed)], axis=1), v.valid)
        if (bad := (v.fixed < 0) & (v.valid == 1)).any():
            value = int(v.fixed[bad][0]) + (1 << 64)
            raise UnreadableValue(
                f"The value {value} does not fit 63 bits.",
                where=where,
                safe="Nothing is lost: the batch was not written.",
                remedy="set bigint.unsigned.handling.mode=precise and snapshot the table again",
            )
        return _fixed(type_, v.fixed, v.valid)

    return finisher


def finish_floats(v: DecodedColumn) -> pa.Array:
    return _fixed(pa.float32(), v.fixed.astype(np.int32).view(np.float32), v.valid)


def finish_doubles(v: DecodedColumn) -> pa.Array:
    return _fixed(pa.float64(), v.fixed, v.valid)


def finish_booleans(v: DecodedColumn) -> pa.Array:
    bitmap, nulls = _bitmap(v.valid)
    values = pa.py_buffer(np.packbits(v.fixed != 0, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), v.n, [bitmap, values], nulls)


def build_bit_finisher(column: Column) -> Finisher:
    """``BIT(n)`` as little-endian bytes, ``io.debezium.data.Bits``."""
    width = (int(column.parameters["length"]) + 7) // 8

    def finisher(v: DecodedColumn) -> pa.Array:
        packed = np.ascontiguousarray(v.fixed).view(np.uint8).reshape(v.n, 8)[:, :width]
        return _fixed(pa.binary(width), np.ascontiguousarray(packed), v.valid).cast(pa.binary())

    return finisher


def build_decimal_finisher(column: Column, precision: int, scale: int, *, wide: bool) -> Finisher:
    """``DECIMAL`` of up to 38 digits, as ``decimal.handling.mode`` says."""
    exact = pa.decimal128(precision, scale)
    target = arrow_type(column.type)

    def finisher(v: DecodedColumn) -> pa.Array:
        pairs = v.wide if wide else np.stack([v.fixed, v.fixed >> 63], axis=1)
        numbers = _fixed(exact, pairs, v.valid)
        if pa.types.is_decimal(target):
            return numbers
        texts = [None if d is None else f"{d:f}" for d in numbers.to_pylist()]
        return pa.array(texts, pa.string()) if pa.types.is_string(target) else _as_doubles(texts)

    return finisher


def long_decimals(column: Column, precision: int, scale: int, decode: Callable[[bytes, int, int], str]) -> Finisher:
    """``DECIMAL`` of more than 38 digits: text, or a double."""
    target = arrow_type(column.type)

    def finisher(v: DecodedColumn) -> pa.Array:
        texts = [None if b is None else decode(b, precision, scale) for b in v.to_byte_strings()]
        return pa.array(texts, pa.string()) if pa.types.is_string(target) else _as_doubles(texts)

    return finisher


def _as_doubles(texts: list[str | None]) -> pa.Array:
    return pa.array([None if t is None else float(t) for t in texts], pa.float64())


# -- dates ------------------------------------------------------------------------------------------------------------------------


def build_temporal_finisher(column: Column, *, key: str | None = None) -> Finisher:
    """Dates in days since the epoch, times in µs.

    A date that the calendar does not have becomes null, or the epoch in a NOT NULL column (Debezium MySQL connector, "Temporal types").

    :param key: table and column, of a column of the key: there several rows would become one
    :raises UnreadableValue: (the finisher) a key has such a date
    """
    type_ = arrow_type(column.type)
    narrow = pa.types.is_date32(type_)
    alone = column.declared.type_name == "TIMESTAMP" and not column.nullable  # which has no other value at the epoch

    def finisher(v: DecodedColumn) -> pa.Array:
        fixed, valid = v.fixed, v.valid
        impossible = valid == 2
        if impossible.any():
            if key is not None and not alone:
                raise UnreadableValue(
                    "The key of a row contains an invalid date, such as 0000-00-00: its replacement, 1970-01-01 "
                    "or NULL, would merge several source rows into one.",
                    where=key,
                    safe="Nothing is lost: the batch was not written.",
                    remedy="correct the row at the source, or name other columns as the key with message.key.columns",
                )
            fixed = np.where(impossible, 0, fixed)
            valid = np.where(impossible, 0 if column.nullable else 1, valid).astype(np.uint8)
        return _fixed(type_, fixed, valid, np.int32 if narrow else np.int64)

    return finisher


# -- texts and bytes --------------------------------------------------------------------------------------------------------------


def build_bytes_finisher(type_: pa.DataType) -> Finisher:
    """Bytes without conversion: UTF-8 text, binary strings."""

    def finisher(v: DecodedColumn) -> pa.Array:
        bitmap, nulls = _bitmap(v.valid)
        buffers = [bitmap, _owned(v.offsets), _owned(v.data[: v.filled])]
        return pa.Array.from_buffers(type_, v.n, buffers, nulls)

    return finisher


def build_converting_finisher(type_: pa.DataType, convert: Callable[[bytes], object], where: str) -> Finisher:
    """Return a finisher that converts value by value, in plain Python.

    :param where: table and column, for the error
    :raises UnreadableValue: (the finisher) a value cannot be converted
    """

    def finisher(v: DecodedColumn) -> pa.Array:
        try:
            return pa.array([None if b is None else convert(b) for b in v.to_byte_strings()], type_)
        except (ValueError, LookupError, pa.ArrowInvalid) as e:
            raise build_unreadable_error(str(e), where) from e

    return finisher


def build_unreadable_error(why: str, where: str) -> UnreadableValue:
    """Return the error of a value that the change log cannot have.

    :param where: table and column
    """
    return UnreadableValue(
        f"A value cannot be read: {why}",
        where=where,
        safe="Nothing is lost: the batch was not written.",
        remedy="correct the value at the source, or exclude the column with column.exclude.list",
    )


def build_text_finisher(charset: str, where: str) -> Finisher:
    """Text in any character set.

    :param where: table and column, for the error
    :raises UnreadableValue: (the finisher) a value has half a character, which no form of Unicode may have
    """
    if charset in charset_codec.UTF8:
        return _utf8(where)
    table = charset_codec.code_points(charset)
    return _transcoded(charset, where) if table is None else _by_table(table, where)


def _utf8(where: str) -> Finisher:
    """Return a finisher of text that is UTF-8 already.

    The server has checked that, but MariaDB accepts halves of characters (U+D800 to U+DFFF, which begin with ED), too;
    no later reader could read them.
    """
    plain = build_bytes_finisher(pa.string())

    def finisher(v: DecodedColumn) -> pa.Array:
        array = plain(v)
        if not (v.data[: v.filled] == _BEGINS_HALVES).any():
            return array
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as e:
            raise build_unreadable_error("it contains half a character, and is therefore not valid UTF-8", where) from e
        return array

    return finisher


def _by_table(table: charset_codec.CodePoints, where: str) -> Finisher:
    """Text in a set that a table describes."""
    plain = build_bytes_finisher(pa.string())

    def finisher(v: DecodedColumn) -> pa.Array:
        data = v.data[: v.filled]
        if table.ascii and (not v.filled or data.max() < 0x80):
            return plain(v)
        if LARGEST_GROWTH * v.filled > _LARGEST:
            raise build_unreadable_error("as UTF-8 it may exceed 2 GB", where)
        out, offsets = charset_codec.decode_all(table, data, v.offsets)
        bitmap, nulls = _bitmap(v.valid)
        return pa.Array.from_buffers(
            pa.string(), v.n, [bitmap, pa.py_buffer(offsets), _owned(out[: int(offsets[-1])])], nulls
        )

    return finisher


def _transcoded(charset: str, where: str) -> Finisher:
    """Text in another form of Unicode; each distinct value is decoded once."""

    def finisher(v: DecodedColumn) -> pa.Array:
        raw = build_bytes_finisher(pa.binary())(v).dictionary_encode()
        decode = build_converting_finisher(pa.string(), lambda b: charset_codec.decode_text(charset, b), where)
        texts = decode(_values_of(raw.dictionary))
        return texts.take(raw.indices)

    return finisher


def _values_of(array: pa.BinaryArray) -> DecodedColumn:
    """Convert a binary array without nulls to :class:`DecodedColumn`."""
    texts = array.to_pylist()
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int32)
    data, none = np.frombuffer(b"".join(texts), np.uint8), np.empty(0, np.int64)
    return DecodedColumn(len(texts), np.ones(len(texts), np.uint8), none, none, offsets, data, len(data))


def build_padding_finisher(width: int, then: Finisher) -> Finisher:
    """``BINARY(n)``: adds the zero bytes at the end, which the log omits."""

    def finisher(v: DecodedColumn) -> pa.Array:
        lengths = np.diff(v.offsets)
        if (lengths[v.valid == 1] == width).all():
            return then(v)
        data = np.zeros((v.n, width), np.uint8)
        logged = np.arange(width)[None, :] < lengths[:, None]
        data[logged] = v.data[: v.filled]
        valid_rows = np.flatnonzero(v.valid)
        offsets = np.concatenate([[0], np.cumsum(np.where(v.valid == 1, width, 0))]).astype(np.int32)
        flat = np.ascontiguousarray(data[valid_rows]).reshape(-1)
        return then(DecodedColumn(v.n, v.valid, v.fixed, v.wide, offsets, flat, len(flat)))

    return finisher


def build_binary_finisher(mode: BinaryHandling) -> Finisher:
    """Binary strings in the form that ``binary.handling.mode`` asks for."""
    text = binary_text(mode)
    return build_bytes_finisher(pa.binary()) if text is None else build_converting_finisher(pa.string(), text, "")


def build_enum_finisher(values: tuple[str, ...], where: str) -> Finisher:
    """``ENUM``: the member with this number; 0 is the empty string that MySQL stores for an invalid value."""
    labels = pa.array(["", *values], pa.string())

    def finisher(v: DecodedColumn) -> pa.Array:
        if len(v.fixed) and int(v.fixed.max()) > len(values):
            raise UnreadableValue(
                f"Member number {int(v.fixed.max())} of an ENUM with {len(values)} members.",
                where=where,
                safe="Nothing is lost: the batch was not written.",
                remedy="the known definition of the table is wrong: set snapshot.mode=recovery for one run",
            )
        return labels.take(_fixed(pa.int64(), v.fixed, v.valid))

    return finisher


def member_texts(v: DecodedColumn) -> pa.Array:
    """Build the array of members as a query gives them.

    Of a table that was converted to UTF-8, servers keep the bytes of members, and so some are no UTF-8: they become what the log's
    members are.
    """
    array = build_bytes_finisher(pa.string())(v)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(
            [None if b is None else b.decode("utf-8", "backslashreplace") for b in v.to_byte_strings()], pa.string()
        )
    return array


def member_sets(values: tuple[str, ...]) -> Finisher:
    """``SET``: the members whose bits are set, in the order of the declaration, separated by commas."""

    def finisher(v: DecodedColumn) -> pa.Array:
        masks, inverse = np.unique(v.fixed, return_inverse=True)
        texts = [",".join(m for i, m in enumerate(values) if int(mask) >> i & 1) for mask in masks]
        return pa.array(texts, pa.string()).take(_fixed(pa.int64(), inverse.astype(np.int64), v.valid))

    return finisher


def finish_vectors(v: DecodedColumn) -> pa.Array:
    """``VECTOR``: a list of 32-bit floats."""
    bitmap, nulls = _bitmap(v.valid)
    floats32 = pa.Array.from_buffers(pa.float32(), v.filled // 4, [None, _owned(v.data[: v.filled])])
    offsets = _owned(v.offsets // 4)
    return pa.ListArray.from_buffers(pa.list_(pa.float32()), v.n, [bitmap, offsets], nulls, children=[floats32])


def finish_geometries(v: DecodedColumn) -> pa.Array:
    """Spatial values: four bytes of SRID, then WKB."""
    values = v.to_byte_strings()
    wkb = pa.array([b"" if b is None else b[4:] for b in values], pa.binary())
    srid = pa.array([None if b is None else int.from_bytes(b[:4], "little") or None for b in values], pa.int32())
    return pa.StructArray.from_arrays([wkb, srid], fields=list(arrow_type(GEOMETRY)), mask=pa.array(v.valid == 0))


def build_uncompressing_finisher(uncompress: Callable[[bytes], bytes], then: Finisher, where: str) -> Finisher:
    """Decompresses values of MariaDB's ``COMPRESSED`` columns, then applies another finisher."""
    plain = build_converting_finisher(pa.binary(), uncompress, where)

    def finisher(v: DecodedColumn) -> pa.Array:
        _, offsets, data = plain(v).buffers()
        count = int(np.frombuffer(offsets, np.int32)[v.n])
        bytes_ = np.frombuffer(data, np.uint8)[:count] if data is not None else np.empty(0, np.uint8)
        return then(
            DecodedColumn(v.n, v.valid, v.fixed, v.wide, np.frombuffer(offsets, np.int32)[: v.n + 1], bytes_, count)
        )

    return finisher
