"""Values as the texts that databases read, made on arrays."""

from __future__ import annotations

import binascii
import datetime as dt
import functools
import itertools
import re
import zoneinfo
from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ARROW_UNTIL = 2037
"""From then on, arrays know no daylight saving time."""
_MICROS = re.compile(r"(\.\d{6})\d+")


def format_hexadecimal(values: pa.Array) -> pa.Array:
    """Bytes as hexadecimal digits.

    >>> format_hexadecimal(pa.array([b"\\x00\\xff", None, b""])).to_pylist()
    ['00ff', None, '']
    """
    plain = pa.concat_arrays([values.cast(pa.binary())])  # without an offset
    if plain.null_count == len(plain):
        return pa.nulls(len(plain), pa.string())
    _, offsets, data = plain.buffers()
    starts = np.frombuffer(offsets, np.int32)[plain.offset : plain.offset + len(plain) + 1]
    first = int(starts[0])
    digits = binascii.hexlify(memoryview(data)[first : int(starts[-1])]) if data is not None else b""
    texts = pa.Array.from_buffers(
        pa.large_string(), len(plain), [None, pa.py_buffer((starts.astype(np.int64) - first) * 2), pa.py_buffer(digits)]
    )
    return pc.if_else(plain.is_valid(), texts, pa.scalar(None, pa.large_string())).cast(pa.string())


def format_bits(values: pa.Array, length: int) -> pa.Array:
    """Bits, which the change log has as bytes with the lowest first, as zeros and ones.

    >>> format_bits(pa.array([b"\\x05", None]), 4).to_pylist()
    ['0101', None]
    """
    texts = [None if v is None else f"{int.from_bytes(v, 'little'):0{length}b}" for v in values.to_pylist()]
    return pa.array(texts, pa.string())


_SRID = 0x20000000
"""Flag in the type of a geometry: it has a reference system."""


def encode_geometries(values: pa.Array) -> pa.Array:
    """Geometries as bytes that PostGIS and others read (EWKB): with the reference system, if it is known.

    >>> point = bytes.fromhex("0101000000" + "00" * 16)
    >>> encode_geometries(pa.array([{"wkb": point, "srid": 4326}]))[0].as_py()[:9].hex()
    '0101000020e6100000'
    """

    def encode_geometry(wkb: bytes | None, srid: int | None) -> bytes | None:
        if wkb is None or not srid:
            return wkb
        order: Literal["little", "big"] = "little" if wkb[0] else "big"
        type_ = int.from_bytes(wkb[1:5], order) | _SRID
        return wkb[:1] + type_.to_bytes(4, order) + srid.to_bytes(4, order) + wkb[5:]

    pairs = zip(*(pc.struct_field(values, name).to_pylist() for name in ("wkb", "srid")), strict=True)
    return pa.array([encode_geometry(wkb, srid) for wkb, srid in pairs], pa.binary())


def format_clock_times(micros: pa.Array, scale: int = 6) -> pa.Array:
    """Microseconds as hours, minutes and seconds; negative ones and those of more than a day, too.

    >>> format_clock_times(pa.array([1_500_000, -3_600_000_000, None, 838 * 3_600_000_000]), 3).to_pylist()
    ['00:00:01.500', '-01:00:00.000', None, '838:00:00.000']
    """
    size = pc.abs(micros)
    seconds = pc.divide(size, 1_000_000)
    hours, minutes = pc.divide(seconds, 3600), pc.divide(seconds, 60)
    parts = [
        _digits(hours, 2),
        _digits(pc.subtract(minutes, pc.multiply(hours, 60)), 2),
        _digits(pc.subtract(seconds, pc.multiply(minutes, 60)), 2),
    ]
    text = pc.binary_join_element_wise(*parts, ":")
    if scale:
        fraction = _digits(pc.subtract(size, pc.multiply(seconds, 1_000_000)), 6)
        text = pc.binary_join_element_wise(text, pc.utf8_slice_codeunits(fraction, 0, scale), ".")
    return pc.if_else(pc.less(micros, 0), pc.binary_join_element_wise("-", text, ""), text)


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def format_timestamps(values: pa.Array, *, zone: str | None = None, digits: int = 6) -> pa.Array:
    """Format times as ``2024-02-29 12:00:00.000001``.

    :param zone: of moments, the zone in which they are written; times without one are written as they are
    :param digits: of seconds; further ones are cut off

    >>> format_timestamps(pa.array([0], pa.timestamp("us", tz="UTC")), zone="Europe/Berlin", digits=0).to_pylist()
    ['1970-01-01 01:00:00']
    """
    if zone is not None and values.type.tz is not None:
        zoneinfo.ZoneInfo(zone)
        values = pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, tz=zone)))
    elif values.type.tz is not None:
        values = pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, tz="UTC")))
    text = values.cast(pa.string())
    there = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
    return text if digits >= there else pc.utf8_slice_codeunits(text, 0, stop=_cut(text, there - digits, digits == 0))


def format_zoned_timestamps(values: pa.Array, zone: str) -> pa.Array:
    """Format moments, also those that are texts of ISO 8601 with an offset, as the time in a zone.

    >>> format_zoned_timestamps(pa.array(["2024-02-29T12:00:00.5+02:00", None]), "UTC").to_pylist()
    ['2024-02-29 10:00:00.500000', None]
    """
    if not pa.types.is_string(values.type):
        last = pc.max(values).as_py()
        if zone == "UTC" or last is None or last.year < _ARROW_UNTIL:
            return format_timestamps(values, zone=zone)
        values = pa.array([None if v is None else v.isoformat() for v in values.to_pylist()], pa.string())
    there = zoneinfo.ZoneInfo(zone)

    def to_zone(text: str) -> str:
        moment = dt.datetime.fromisoformat(_MICROS.sub(r"\1", text))
        return moment.astimezone(there).replace(tzinfo=None).isoformat(" ", "microseconds")

    return pa.array([None if text is None else to_zone(text) for text in values.to_pylist()], pa.string())


@functools.cache
def repeats_hours(zone: str) -> bool:
    """Check whether two moments since 1970 have the same text in a zone, as where summer time ends.

    >>> repeats_hours("UTC"), repeats_hours("Europe/Berlin"), repeats_hours("Asia/Tokyo")
    (False, True, False)
    """
    there, begin = zoneinfo.ZoneInfo(zone), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    days = range((dt.datetime(_ARROW_UNTIL, 1, 1, tzinfo=dt.UTC) - begin).days)
    offsets = [(begin + dt.timedelta(days=day)).astimezone(there).utcoffset() or dt.timedelta() for day in days]
    return any(later < earlier for earlier, later in itertools.pairwise(offsets))


def _cut(texts: pa.Array, less: int, whole: bool) -> int:
    """Find the end of texts that are all equally long: years have four digits."""
    longest = pc.max(pc.utf8_length(texts)).as_py() or 0
    return longest - less - (1 if whole else 0)


def format_numbers(values: pa.Array) -> pa.Array:
    """Numbers of any kind, and truth values."""
    return values.cast(pa.string())


def format_decimals(values: pa.Array) -> pa.Array:
    """Decimals as digits and a point: arrays write small ones, and those of hundreds, with an exponent, which databases read as another type. Texts stay.

    >>> format_decimals(pa.array(["-0.00000001", "12.5", None]).cast(pa.decimal128(12, 8))).to_pylist()
    ['-0.00000001', '12.50000000', None]
    """
    if not pa.types.is_decimal(values.type):
        return values
    scale = values.type.scale
    if scale <= 0:
        return values.cast(pa.decimal256(76, 0)).cast(pa.string())
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), values.buffers(), offset=values.offset)
    text = unscaled.cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    whole, rest = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    joined = pc.binary_join_element_wise(whole, rest, ".")
    return pc.if_else(pc.starts_with(text, "-"), surround_texts(joined, "-"), joined)


def format_lists(values: pa.Array, begin: str, end: str) -> pa.Array:
    """Format lists of numbers with commas between them."""
    texts = [None if v is None else begin + ",".join(map(repr, v)) + end for v in values.to_pylist()]
    return pa.array(texts, pa.string())


def surround_texts(values: pa.Array, before: str, after: str = "") -> pa.Array:
    """Texts with something before and after."""
    return pc.binary_join_element_wise(before, values, after, "")


def concatenate_texts(values: pa.StringArray) -> bytes:
    """All texts as one, in UTF-8.

    >>> concatenate_texts(pa.array(["x", "a", None, "ä"]).slice(1))
    b'a\\xc3\\xa4'
    """
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return b""
    starts = np.frombuffer(offsets, np.int32)
    return memoryview(data)[starts[values.offset] : starts[values.offset + len(values)]].tobytes()


def format_first_value(values: pa.ChunkedArray) -> str:
    """Format the first value for people. Arrays format times: Python has not all of them.

    >>> format_first_value(pa.chunked_array([pa.array([1], pa.timestamp("ns"))]))
    '1970-01-01 00:00:00.000000001'
    """
    first = values.slice(0, 1)
    return str((first.cast(pa.string()) if pa.types.is_temporal(values.type) else first)[0].as_py())


def to_single_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Combine values into a single array."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


Texts = Callable[[pa.Array], pa.Array]
