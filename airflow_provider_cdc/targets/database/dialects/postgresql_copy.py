"""Rows as PostgreSQL's binary COPY reads them, made on arrays: the server has no texts to parse then, which is half of its work.

A value is its length in four bytes (-1 of NULL), then its bytes as the type's receive function wants them (PostgreSQL, "COPY", "Binary Format"). Which values a
type has here is decided by the type that the column really has; whatever is not known, or might mean something else than its text, is left to texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind

HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON = 16, 17, 20, 21, 23, 25, 114
FLOAT4, FLOAT8, BPCHAR, VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, NUMERIC = (
    700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1700,
)  # fmt: skip
"""Types by their numbers in ``pg_type``, which are the same in every database."""
_BYTES = 4 << 20
_EPOCH_DAYS = 10_957
"""From 1970 to 2000, when PostgreSQL's calendar begins."""
_DAY_US = 86_400_000_000
_DAYS = (-719_162, 2_932_896)
"""The years 1 to 9999: others have texts that are read in other ways."""
_GROUP = 10_000
"""A digit of a numeric."""
_NARROW = 16
"""Digits of a decimal before and after the point that fit into 64 bits, with those that are added to fill groups."""
_NEGATIVE = 0x4000

_Bytes = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CopyColumn:
    """Values of a column.

    :param fixed: values that all have the same length, none of them NULL; as an array of any numbers, in the order of bytes that is sent
    :param values: others
    """

    fixed: _Bytes | None = None
    values: pa.Array | None = None

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes if self.fixed is None else self.fixed.nbytes)  # type: ignore[union-attr]


Encoder = Callable[[pa.Array, ValueKind], CopyColumn | None]


def encode_columns(columns: Sequence[tuple[pa.Array, ValueKind, int]]) -> list[CopyColumn] | None:
    """Values as they are sent; ``None`` if some of them need to be sent as texts.

    :param columns: values, their kind, and the number of the target's type for them
    """
    encoded = list[CopyColumn]()
    for values, kind, type_ in columns:
        encoder = _ENCODERS.get((kind.name if kind.name in _OWN else "", type_))
        cells = None if encoder is None else encoder(values, kind)
        if cells is None:
            return None
        encoded.append(cells)
    return encoded


def build_copy_blocks(cells: Sequence[CopyColumn], rows: int) -> Iterator[bytes]:
    """Yield the whole input of COPY, in some pieces."""
    size = sum(column.nbytes + 4 * rows for column in cells)
    step = max(1, rows * _BYTES // max(size, 1))
    yield HEAD
    for at in range(0, rows, step):
        yield _tuples(cells, at, min(step, rows - at))
    yield TAIL


def _tuples(cells: Sequence[CopyColumn], at: int, rows: int) -> bytes:
    """Rows. Parts of equal length in all rows are written at once: numbers, and the lengths of the parts behind them."""
    parts, fields, arrays = list[pa.Array](), [("", ">i2")], [np.full(rows, len(cells), ">i2")]

    def block() -> None:
        dtype = np.dtype([(str(number), type_) for number, (_, type_) in enumerate(fields)])
        records = np.empty(rows, dtype)
        for number, array in enumerate(arrays):
            records[str(number)] = array
        parts.append(_binary(records))
        fields.clear()
        arrays.clear()

    for column in cells:
        if column.fixed is not None:
            some = column.fixed[at : at + rows]
            fields += [("", ">i4"), ("", some.dtype.str if some.dtype.names is None else some.dtype)]  # type: ignore[list-item]
            arrays += [np.full(rows, some.dtype.itemsize, ">i4"), some]
            continue
        values = column.values.slice(at, rows)  # type: ignore[union-attr]
        fields.append(("", ">i4"))
        arrays.append(pc.fill_null(pc.binary_length(values), -1).to_numpy())
        block()
        parts.append(pc.fill_null(values, b"") if values.null_count else values)
    if fields:
        block()
    whole = pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]
    return sql_literals.concatenate_texts(whole)


def _binary(rows: _Bytes) -> pa.Array:
    """Convert an array of numbers of any kind to bytes."""
    offsets = (np.arange(len(rows) + 1) * rows.dtype.itemsize).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _cells(values: pa.Array, numbers: _Bytes) -> CopyColumn:
    """Numbers that stand for values, of which some may be NULL."""
    if not values.null_count:
        return CopyColumn(fixed=numbers)
    return CopyColumn(
        values=pc.if_else(values.is_valid(), _binary(np.ascontiguousarray(numbers)), pa.scalar(None, pa.binary()))
    )


def _filled(values: pa.Array, as_: pa.DataType) -> _Bytes:
    """Return the values of an array of numbers, of NULL whatever."""
    filled: _Bytes = pc.fill_null(values.cast(as_), 0).to_numpy(zero_copy_only=False)
    return filled


# -- types ------------------------------------------------------------------------------------------------------------


def _whole(bits: int) -> Encoder:
    def encode(values: pa.Array, _: ValueKind) -> CopyColumn | None:
        if not pa.types.is_signed_integer(values.type) or values.type.bit_width > bits:
            return None
        return _cells(values, _filled(values, values.type).astype(f">i{bits // 8}"))

    return encode


def _real(type_: pa.DataType) -> Encoder:
    def encode(values: pa.Array, _: ValueKind) -> CopyColumn | None:
        # a number of another length would be another one than its text says
        return (
            _cells(values, _filled(values, type_).astype(f">f{type_.bit_width // 8}")) if values.type == type_ else None
        )

    return encode


def _truth(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    return _cells(values, _filled(values, pa.uint8()).astype("u1")) if pa.types.is_boolean(values.type) else None


def _text(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    return CopyColumn(values=values.cast(pa.binary())) if pa.types.is_string(values.type) else None


def _bytes(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    return CopyColumn(values=values) if pa.types.is_binary(values.type) else None


def _geometry(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    return CopyColumn(values=sql_literals.encode_geometries(values))


def _date(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    if not pa.types.is_date32(values.type):
        return None
    days = _filled(values, pa.int32())
    return _cells(values, (days - _EPOCH_DAYS).astype(">i4")) if _within(days, *_DAYS) else None


def _moment(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    if not pa.types.is_timestamp(values.type) or values.type.unit not in ("us", "ns"):
        return None
    micros = _filled(values, pa.int64())
    if values.type.unit == "ns":
        micros = micros // 1000  # further digits are cut off
    if not _within(micros, _DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1):
        return None
    return _cells(values, (micros - _EPOCH_DAYS * _DAY_US).astype(">i8"))


def _clock(values: pa.Array, kind: ValueKind) -> CopyColumn | None:
    if values.type != pa.int64():
        return None
    micros = _filled(values, pa.int64())
    unit = 10 ** (6 - min(kind.scale or 0, 6))
    return _cells(values, (micros // unit * unit).astype(">i8")) if _within(micros, 0, _DAY_US - 1) else None


def _within(numbers: _Bytes, least: int, most: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= least and numbers.max() <= most)


def _numeric(values: pa.Array, _: ValueKind) -> CopyColumn | None:
    """Encode groups of four digits, before and after the point; the server drops those that are zero at both ends."""
    type_ = values.type
    if not pa.types.is_decimal128(type_) or not 0 <= type_.scale <= type_.precision:
        return None
    limbs = np.frombuffer(values.buffers()[1], "<u8").reshape(-1, 2)[values.offset : values.offset + len(values)]
    negative = limbs[:, 1].astype(np.int64) < 0
    after, before = -(-type_.scale // 4), -(-(type_.precision - type_.scale) // 4)
    if type_.precision <= _NARROW:
        digits = _narrow(limbs, type_.scale, before, after)
    else:
        digits = _wide(limbs, negative, after * 4 - type_.scale, before + after)
    encoded = np.zeros(len(values), [("head", ">i2", (4,)), ("digits", ">i2", (before + after,))])
    encoded["head"][:, 0], encoded["head"][:, 1], encoded["head"][:, 3] = before + after, before - 1, type_.scale
    encoded["head"][:, 2] = np.where(negative, _NEGATIVE, 0)
    encoded["digits"] = digits
    return _cells(values, encoded)


def _narrow(limbs: _Bytes, scale: int, before: int, after: int) -> _Bytes:
    """Digits of numbers that have less than 64 bits."""
    size = np.abs(limbs[:, 0].astype(np.int64))
    whole, rest = np.divmod(size, 10**scale)
    rest *= 10 ** (after * 4 - scale)
    digits = np.empty((len(limbs), before + after), np.int64)
    for part, begin, end in ((whole, 0, before), (rest, before, before + after)):
        for at in range(end - 1, begin - 1, -1):
            part, digits[:, at] = np.divmod(part, _GROUP)
    return digits


def _wide(limbs: _Bytes, negative: _Bytes, shift: int, groups: int) -> _Bytes:
    """Digits of any numbers, by long division.

    :param shift: by how many digits a number is to be longer
    """
    low = np.where(negative, ~limbs[:, 0] + np.uint64(1), limbs[:, 0])
    high = np.where(negative, ~limbs[:, 1] + (low == 0), limbs[:, 1])
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    carry = np.zeros(len(limbs), np.uint64)
    parts = [low & mask, low >> half, high & mask, high >> half, carry]
    for at, part in enumerate(parts):
        product = part * np.uint64(10**shift) + carry
        parts[at], carry = product & mask, product >> half
    digits = np.empty((len(limbs), groups), np.int64)
    for at in range(groups - 1, -1, -1):
        rest = np.zeros(len(limbs), np.uint64)
        for number in range(len(parts) - 1, -1, -1):
            parts[number], rest = np.divmod((rest << half) | parts[number], np.uint64(_GROUP))
        digits[:, at] = rest
    return digits


_OWN = frozenset({"time", "timestamp", "timestamp_tz", "geometry", "decimal", "number", "duration", "bits", "vector"})
"""Kinds whose values are others than the type of their array says."""
_ENCODERS: Mapping[tuple[str, int], Encoder] = {
    ("", BOOL): _truth, ("", INT2): _whole(16), ("", INT4): _whole(32), ("", INT8): _whole(64), ("", FLOAT4): _real(pa.float32()),
    ("", FLOAT8): _real(pa.float64()), ("", TEXT): _text, ("", VARCHAR): _text, ("", BPCHAR): _text, ("", JSON): _text, ("", BYTEA): _bytes,
    ("", DATE): _date, ("time", TIME): _clock, ("timestamp", TIMESTAMP): _moment, ("timestamp_tz", TIMESTAMPTZ): _moment,
    ("decimal", NUMERIC): _numeric, ("geometry", BYTEA): _geometry,
}  # fmt: skip
"""Kind of values, if it matters, and type of the column → how they are sent."""
