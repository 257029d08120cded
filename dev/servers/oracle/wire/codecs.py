"""Values on the wire: NUMBER, dates, intervals, floats, row ids; and the description of columns."""

import datetime
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dev.servers.oracle.values import moments, rowids
from dev.servers.oracle.values.datatypes import DataType
from dev.servers.oracle.values.moments import Moment
from dev.servers.oracle.wire.packets import Reader, encode_counted, encode_sized, ub

VARCHAR, NUMBER, LONG, ROWID, DATE, RAW, LONG_RAW = 1, 2, 8, 11, 12, 23, 24
CHAR, BINARY_FLOAT, BINARY_DOUBLE, CLOB, BLOB = 96, 100, 101, 112, 113
TIMESTAMP, TIMESTAMP_TZ, INTERVAL_YM, INTERVAL_DS, TIMESTAMP_LTZ = 180, 181, 182, 183, 231
IMPLICIT, NATIONAL = 1, 2
UTF8, UTF16 = 873, 2000
DURATION_MIDDLE = 0x80000000
DURATION_OFFSET = 60
ZONE_HOUR, ZONE_MINUTE = 20, 60

NUMBERS = {
    "CHAR": CHAR, "VARCHAR2": VARCHAR, "NCHAR": CHAR, "NVARCHAR2": VARCHAR, "NUMBER": NUMBER, "FLOAT": NUMBER,
    "BINARY_FLOAT": BINARY_FLOAT, "BINARY_DOUBLE": BINARY_DOUBLE, "DATE": DATE, "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_TZ": TIMESTAMP_TZ, "TIMESTAMP_LTZ": TIMESTAMP_LTZ, "INTERVAL_DS": INTERVAL_DS, "INTERVAL_YM": INTERVAL_YM,
    "RAW": RAW, "ROWID": ROWID, "CLOB": CLOB, "NCLOB": CLOB, "BLOB": BLOB, "XMLTYPE": LONG,
}  # fmt: skip
SIZES = {
    NUMBER: 22, DATE: 7, TIMESTAMP: 11, TIMESTAMP_LTZ: 11, TIMESTAMP_TZ: 13, INTERVAL_YM: 5, INTERVAL_DS: 11,
    BINARY_FLOAT: 4, BINARY_DOUBLE: 8, ROWID: 18, CLOB: 4000, BLOB: 4000, LONG: 0x7FFFFFFF,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a result."""

    name: str
    type: DataType
    nullable: bool = True

    @property
    def wire(self) -> int:
        return NUMBERS[self.type.kind]

    @property
    def form(self) -> int:
        if self.type.kind in ("NCHAR", "NVARCHAR2", "NCLOB"):
            return NATIONAL
        return IMPLICIT if self.wire in (VARCHAR, CHAR, CLOB, LONG) else 0


def describe(columns: list[Column]) -> bytes:
    """The message that describes the columns of a result."""
    body = b"\x10\0" + ub(100) + ub(len(columns)) + b"\x01"
    for position, column in enumerate(columns, 1):
        precision, scale = _precision(column.type)
        characters = column.type.length or 0
        size = SIZES.get(column.wire, characters * (4 if column.type.characters else 1))
        charset = {IMPLICIT: UTF8, NATIONAL: UTF16}.get(column.form, 0)
        body += bytes((column.wire, 0, precision & 0xFF, scale & 0xFF)) + ub(size) + ub(0) * 4
        body += ub(charset) + bytes((column.form,)) + ub(characters if column.form else 0)
        body += (
            bytes((column.nullable, min(len(column.name), 255)))
            + encode_counted(column.name)
            + ub(0)
            + ub(0)
            + ub(position)
            + ub(0)
        )
    return body + ub(0) * 6


def _precision(kind: DataType) -> tuple[int, int]:
    if kind.kind == "NUMBER":
        return kind.precision or 0, -127 if kind.precision is None and kind.scale is None else kind.scale or 0
    if kind.kind == "FLOAT":
        return kind.precision or 126, -127
    return kind.precision or 0, kind.scale or 0


# NUMBER


def encode_number(value: int | float | str | Decimal) -> bytes:
    """Oracle's own form: an exponent of 100, then digits of 100."""
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact:
        return b"\x80"
    sign, digits, exponent = exact.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + int(exponent)
    if point % 2:
        text, point = "0" + text, point + 1
    if len(text) % 2:
        text += "0"
    pairs = [int(text[at : at + 2]) for at in range(0, len(text), 2)]
    while pairs[-1] == 0:
        pairs.pop()
    head = point // 2 + 192
    if not sign:
        return bytes((head, *(pair + 1 for pair in pairs)))
    return bytes((255 - head, *(101 - pair for pair in pairs))) + (b"\x66" if len(pairs) < 20 else b"")


def decode_number(data: bytes) -> int | Decimal:
    """The number in Oracle's form."""
    if len(data) == 1:
        return 0
    positive = data[0] & 0x80
    if positive:
        exponent, pairs = data[0] - 193, [byte - 1 for byte in data[1:]]
    else:
        exponent, pairs = 62 - data[0], [101 - byte for byte in (data[1:-1] if data[-1] == 102 else data[1:])]
    digits = "".join(f"{pair:02d}" for pair in pairs)
    places = 2 * (exponent - len(pairs) + 1)
    if places >= 0:
        return int(f"{'' if positive else '-'}{digits}{'0' * places}")
    return Decimal(f"{'' if positive else '-'}{digits}E{places}")


# dates


def encode_moment(stored: str, kind: str) -> bytes:
    """A kept date or timestamp; those with a zone travel in UTC with the zone behind them."""
    year, month, day = int(stored[:4]), int(stored[5:7]), int(stored[8:10])
    head = bytes(
        (
            year // 100 + 100,
            year % 100 + 100,
            month,
            day,
            int(stored[11:13]) + 1,
            int(stored[14:16]) + 1,
            int(stored[17:19]) + 1,
        )
    )
    if kind == "DATE":
        return head
    nanos = int(stored[20:29] or 0)
    if kind == "TIMESTAMP_TZ":
        zone = moments.read(stored).zone or 0
        sign = -1 if zone < 0 else 1
        tail = bytes((sign * (abs(zone) // 60) + ZONE_HOUR, sign * (abs(zone) % 60) + ZONE_MINUTE))
        return head + struct.pack(">I", nanos) + tail
    return head + (struct.pack(">I", nanos) if nanos else b"")


def decode_moment(data: bytes, wire: int) -> str:
    """Read the date or timestamp that a client binds."""
    time = datetime.datetime(
        (data[0] - 100) * 100 + data[1] - 100, data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1
    )
    nanos = struct.unpack(">I", data[7:11])[0] if len(data) > 7 else 0
    kind = {DATE: "DATE", TIMESTAMP: "TIMESTAMP", TIMESTAMP_TZ: "TIMESTAMP_TZ"}.get(wire, "TIMESTAMP_LTZ")
    if kind == "TIMESTAMP_TZ":
        zone = (data[11] - ZONE_HOUR) * 60 + data[12] - ZONE_MINUTE if len(data) > 12 else 0
        return moments.store_moment(Moment(time + datetime.timedelta(minutes=zone), nanos, zone), kind)
    return moments.store_moment(Moment(time, nanos), kind)


# intervals, floats


def encode_day_second(stored: str) -> bytes:
    days, hours, minutes, seconds, nanos = moments.interval_parts(stored)
    middle = bytes((hours + DURATION_OFFSET, minutes + DURATION_OFFSET, seconds + DURATION_OFFSET))
    return struct.pack(">I", days + DURATION_MIDDLE) + middle + struct.pack(">I", nanos + DURATION_MIDDLE)


def encode_year_month(stored: str) -> bytes:
    years, months = moments.interval_parts(stored)
    return struct.pack(">I", years + DURATION_MIDDLE) + bytes((months + DURATION_OFFSET,))


def decode_interval(data: bytes, wire: int) -> str:
    first = struct.unpack(">I", data[:4])[0] - DURATION_MIDDLE
    if wire == INTERVAL_YM:
        months = data[4] - DURATION_OFFSET
        return moments.year_month(f"{'-' if first < 0 or months < 0 else '+'}{abs(first)}-{abs(months)}")
    hours, minutes, seconds = (byte - DURATION_OFFSET for byte in data[4:7])
    nanos = struct.unpack(">I", data[7:11])[0] - DURATION_MIDDLE
    total = (((first * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**9 + nanos
    return moments.of_nanos(total)


def encode_float(value: float | str, form: str) -> bytes:
    data = bytearray(struct.pack(form, float(value)))
    if data[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in data)
    data[0] |= 0x80
    return bytes(data)


def decode_float(data: bytes, form: str) -> float:
    raw = bytes((data[0] & 0x7F, *data[1:])) if data[0] & 0x80 else bytes(byte ^ 0xFF for byte in data)
    return float(struct.unpack(form, raw)[0])


# rows and binds


def encoder(column: Column) -> Callable[[Any], bytes]:
    """The function that puts a value of this column, never a LOB locator, on the wire."""
    kind = column.type.kind
    if kind in ("NUMBER", "FLOAT"):
        return lambda value: encode_sized(encode_number(value))
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_TZ", "TIMESTAMP_LTZ"):
        return lambda value: encode_sized(encode_moment(value, kind))
    if kind in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        form = ">f" if kind == "BINARY_FLOAT" else ">d"
        return lambda value: encode_sized(encode_float(value, form))
    if kind == "ROWID":
        return _row_id
    special: dict[str, Callable[[Any], bytes]] = {
        "RAW": encode_sized,
        "INTERVAL_DS": lambda value: encode_sized(encode_day_second(value)),
        "INTERVAL_YM": lambda value: encode_sized(encode_year_month(value)),
        "XMLTYPE": lambda value: encode_sized(value.encode()) + ub(0) + ub(0),
    }
    if kind in special:
        return special[kind]
    if column.form == NATIONAL:
        return lambda value: encode_sized(str(value).encode("utf-16-be"))
    return lambda value: encode_sized(str(value).encode())


def _row_id(value: bytes | str) -> bytes:
    object_id, file, block, slot = rowids.parts(value)
    return b"\x0d" + ub(object_id) + ub(file) + b"\0" + ub(block) + ub(slot)


def null(column: Column) -> bytes:
    """NULL in this column."""
    return b"\0" + ub(0) + ub(0) if column.wire == LONG else b"\0"


@dataclass(frozen=True)
class Bind:
    """The form in which the client sends a bind variable."""

    wire: int
    size: int
    form: int


def read_bind(reader: Reader, bind: Bind, locator: Callable[[bytes], str | bytes]) -> Any:
    """Read a bound value, and return it in the form the engine takes."""
    wire = bind.wire
    if wire in (CLOB, BLOB):
        return locator(reader.sized() or b"") if reader.ub() else None
    data = reader.sized()
    if data is None:
        return None
    if wire in (VARCHAR, CHAR, LONG):
        return data.decode("utf-16-be" if bind.form == NATIONAL else "utf-8")
    if wire in (NUMBER, 3):
        return decode_number(data)
    if wire in (DATE, TIMESTAMP, TIMESTAMP_TZ, TIMESTAMP_LTZ):
        return decode_moment(data, wire)
    if wire in (INTERVAL_DS, INTERVAL_YM):
        return decode_interval(data, wire)
    if wire in (BINARY_FLOAT, BINARY_DOUBLE):
        return decode_float(data, ">f" if wire == BINARY_FLOAT else ">d")
    return bytes(data)
