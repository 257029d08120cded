"""The texts that the server prints, from the binary forms that it sends: for types whose values have no array of their own."""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from airflow_provider_cdc.sources.postgresql.columns import nested_texts, search_texts
from airflow_provider_cdc.sources.postgresql.columns import temporal_texts as moments
from airflow_provider_cdc.sources.postgresql.columns.number_texts import double_text, float_text, numeric_text
from airflow_provider_cdc.sources.postgresql.schema.column_types import OID_TYPES, value_form
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import PostgresType, TypeCatalog

TextReader = Callable[[bytes], str]
_EMPTY, _LOWER_INCLUDED, _UPPER_INCLUDED, _NO_LOWER, _NO_UPPER = 1, 2, 4, 8, 16
_INET4, _INET_BITS = 2, (32, 128)
_NULL_LENGTH = -1


def build_text_reader(type_oid: int, types: TypeCatalog) -> TextReader:
    """Return the function that reads a value's text from its binary form.

    It raises ValueError, ``struct.error`` or IndexError for other bytes.

    :raises ValueError: the form of a type is not known
    """
    base, _ = types.find_base(type_oid)
    if base is None:
        raise ValueError(f"the type with OID {type_oid} is not known")
    form = value_form(base)
    match form:
        case "array":
            return lambda data: _array(data, base, types)
        case "composite":
            return lambda data: _composite(data, types)
        case "range":
            return lambda data: _range(data, base, types)
        case "multirange":
            return lambda data: _multirange(data, base, types)
    if form in _READERS:
        return _READERS[form]
    raise ValueError(f"the binary form of the type {base.name} is not known")


def read_array(data: bytes, base: PostgresType, types: TypeCatalog) -> tuple[nested_texts.Nested, list[int], list[int]]:
    """Read an array. Returns the texts of its elements, where its subscripts begin, and how many each dimension has."""
    dimensions, _, _ = struct.unpack_from("!iii", data)
    lengths, lowers, p = [], [], 12
    for _ in range(dimensions):
        length, lower = struct.unpack_from("!ii", data, p)
        lengths.append(length)
        lowers.append(lower)
        p += 8
    if not dimensions:
        return [], [], []
    read = build_text_reader(base.element_oid, types)
    elements: nested_texts.Nested = [
        None if part is None else read(part) for part in _parts(data, p, int(np.prod(lengths)))
    ]
    for length in lengths[:0:-1]:
        elements = [elements[i : i + length] for i in range(0, len(elements), length)]
    return elements, lowers, lengths


def hstore_json(data: bytes) -> str:
    """Return the JSON text of an ``hstore``."""
    return json.dumps(dict(_hstore_pairs(data)), ensure_ascii=False)


def _hstore_pairs(data: bytes) -> list[tuple[str, str | None]]:
    parts = [None if part is None else part.decode() for part in _parts(data, 4, 2 * struct.unpack_from("!i", data)[0])]
    return [(key or "", value) for key, value in zip(parts[::2], parts[1::2], strict=True)]


def _hstore(data: bytes) -> str:
    return ", ".join(f"{_in_quotes(k)}=>{'NULL' if v is None else _in_quotes(v)}" for k, v in _hstore_pairs(data))


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_vector(data: bytes, code: str) -> list[float]:
    """Read the numbers of a vector.

    :param code: of a number: ``f`` for 32 bits, ``e`` for 16
    """
    (count,) = struct.unpack_from("!H", data)
    numbers = struct.unpack_from(f"!{count}{code}", data, 4)
    if len(data) != 4 + count * struct.calcsize(code):
        raise ValueError(f"a vector of {len(data)} bytes with {count} numbers")
    return list(numbers)


def bits_text(data: bytes) -> str:
    """Return the zeros and ones of a ``bit`` or ``varbit``."""
    (count,) = struct.unpack_from("!i", data)
    bits = "".join(f"{byte:08b}" for byte in data[4:])
    if len(bits) < count:
        raise ValueError(f"{count} bits in {len(data) - 4} bytes")
    return bits[:count]


def _parts(data: bytes, p: int, count: int) -> Iterator[bytes | None]:
    """Split values with lengths before them, which must end where the data ends."""
    for _ in range(count):
        (length,) = struct.unpack_from("!i", data, p)
        p += 4
        if length == _NULL_LENGTH:
            yield None
            continue
        if length < 0 or length > len(data) - p:
            raise ValueError("a part is longer than its value")
        yield data[p : p + length]
        p += length
    if p != len(data):
        raise ValueError(f"{len(data) - p} bytes more than the value has")


def _array(data: bytes, base: PostgresType, types: TypeCatalog) -> str:
    elements, lowers, lengths = read_array(data, base, types)
    element, _ = types.find_base(base.element_oid)
    return nested_texts.join_array(elements, lowers, lengths, element.delimiter if element else base.delimiter)


def _composite(data: bytes, types: TypeCatalog) -> str:
    (count,) = struct.unpack_from("!i", data)
    p, texts = 4, []
    for _ in range(count):
        oid, length = struct.unpack_from("!Ii", data, p)
        p += 8
        if length == _NULL_LENGTH:
            texts.append("")
            continue
        texts.append(nested_texts.quote_field(build_text_reader(oid, types)(data[p : p + length])))
        p += length
    if p != len(data):
        raise ValueError(f"{len(data) - p} bytes more than the fields of a composite have")
    return f"({','.join(texts)})"


def _range(data: bytes, base: PostgresType, types: TypeCatalog) -> str:
    flags = data[0]
    if flags & _EMPTY:
        return "empty"
    read = build_text_reader(base.element_oid, types)
    bounds = iter(_parts(data, 1, 2 - bool(flags & _NO_LOWER) - bool(flags & _NO_UPPER)))
    shown = [
        "" if flags & missing else nested_texts.quote_bound(read(next(bounds) or b""))
        for missing in (_NO_LOWER, _NO_UPPER)
    ]
    return f"{'[' if flags & _LOWER_INCLUDED else '('}{shown[0]},{shown[1]}{']' if flags & _UPPER_INCLUDED else ')'}"


def _multirange(data: bytes, base: PostgresType, types: TypeCatalog) -> str:
    ranges, _ = types.find_base(base.element_oid)
    if ranges is None:
        raise ValueError(f"the ranges of {base.name} are not known")
    (count,) = struct.unpack_from("!i", data)
    return "{" + ",".join(_range(part or b"", ranges, types) for part in _parts(data, 4, count)) + "}"


def _decode(data: bytes) -> str:
    return data.decode()


def _versioned(data: bytes) -> str:
    """Read a text behind the version of its form."""
    if data[:1] != b"\x01":
        raise ValueError(f"version {data[:1]!r} of a binary form is not known")
    return data[1:].decode()


def _unpack(code: str, text: Callable[..., str] = str) -> TextReader:
    return lambda data: text(*struct.unpack(code, data))


def _char(data: bytes) -> str:
    (byte,) = struct.unpack("B", data)
    if byte >= 0x80:
        return f"\\{byte:03o}"
    return chr(byte) if byte else ""


def _inet(data: bytes) -> str:
    family, bits, is_cidr, size = struct.unpack_from("4B", data)
    if len(data) != 4 + size:
        raise ValueError(f"an address of {len(data)} bytes")
    address = ipaddress.ip_address(data[4:])
    most = _INET_BITS[family != _INET4]
    text = str(address)
    if isinstance(address, ipaddress.IPv6Address) and address.packed[:10] == bytes(10):
        text = _old_ipv6(address.packed) or text
    return text if bits == most and not is_cidr else f"{text}/{bits}"


def _old_ipv6(packed: bytes) -> str | None:
    """Return the text of an address that contains one of IPv4; ``None`` for others."""
    last = ".".join(map(str, packed[12:]))
    if packed[10:12] == b"\xff\xff":
        return f"::ffff:{last}"
    if packed[10:12] == bytes(2) and packed[12:14] != bytes(2):
        return f"::{last}"
    return None


def _point(data: bytes, p: int = 0) -> str:
    x, y = struct.unpack_from("!dd", data, p)
    return f"({double_text(x)},{double_text(y)})"


def _points(data: bytes, begin: int) -> str:
    if (len(data) - begin) % 16:
        raise ValueError(f"points in {len(data) - begin} bytes")
    return ",".join(_point(data, p) for p in range(begin, len(data), 16))


def _path(data: bytes) -> str:
    return f"({_points(data, 5)})" if data[0] else f"[{_points(data, 5)}]"


def _snapshot(data: bytes) -> str:
    (count,) = struct.unpack_from("!i", data)
    least, most, *running = struct.unpack(f"!{count + 2}q", data[4:])
    return f"{least}:{most}:{','.join(map(str, running))}"


def _sparse_vector(data: bytes) -> str:
    dimensions, count, _ = struct.unpack_from("!iii", data)
    indices = struct.unpack_from(f"!{count}i", data, 12)
    values = struct.unpack_from(f"!{count}f", data, 12 + 4 * count)
    pairs = ",".join(f"{i + 1}:{float_text(v)}" for i, v in zip(indices, values, strict=True))
    return f"{{{pairs}}}/{dimensions}"


def _vector(code: str) -> TextReader:
    return lambda data: "[" + ",".join(float_text(v) for v in read_vector(data, code)) + "]"


def _uuid(data: bytes) -> str:
    if len(data) != 16:
        raise ValueError(f"a UUID of {len(data)} bytes")
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_READERS: Final[dict[str, TextReader]] = {
    "bool": _unpack("!?", lambda v: "t" if v else "f"),
    "int2": _unpack("!h"),
    "int4": _unpack("!i"),
    "int8": _unpack("!q"),
    "xid8": _unpack("!Q"),
    "float4": _unpack("!f", float_text),
    "float8": _unpack("!d", double_text),
    "numeric": numeric_text,
    "money": _unpack("!q"),
    "char": _char,
    "bytea": lambda data: "\\x" + data.hex(),
    "uuid": _uuid,
    "jsonb": _versioned,
    "jsonpath": _versioned,
    "ltree": _versioned,
    "lquery": _versioned,
    "ltxtquery": _versioned,
    "date": _unpack("!i", moments.format_date),
    "timestamp": _unpack("!q", moments.format_moment),
    "timestamptz": _unpack("!q", lambda us: moments.format_moment(us, "+00")),
    "time": _unpack("!q", moments.format_clock),
    "timetz": _unpack("!qi", lambda us, west_s: moments.format_zoned_clock(us, -west_s)),
    "interval": lambda data: moments.format_interval(moments.unpack_interval(data)),
    "bit": bits_text,
    "varbit": bits_text,
    "inet": _inet,
    "cidr": _inet,
    "macaddr": lambda data: data.hex(":"),
    "macaddr8": lambda data: data.hex(":"),
    "pg_lsn": _unpack("!II", lambda high, low: f"{high:X}/{low:X}"),
    "txid_snapshot": _snapshot,
    "pg_snapshot": _snapshot,
    "tid": _unpack("!IH", lambda block, item: f"({block},{item})"),
    "point": _point,
    "line": _unpack("!ddd", lambda a, b, c: f"{{{double_text(a)},{double_text(b)},{double_text(c)}}}"),
    "lseg": lambda data: f"[{_points(data, 0)}]",
    "box": lambda data: _points(data, 0),
    "path": _path,
    "polygon": lambda data: f"({_points(data, 4)})",
    "circle": lambda data: f"<{_point(data)},{double_text(struct.unpack_from('!d', data, 16)[0])}>",
    "tsvector": search_texts.vector_text,
    "tsquery": search_texts.query_text,
    "sparsevec": _sparse_vector,
    "vector": _vector("f"),
    "halfvec": _vector("e"),
    "hstore": _hstore,
    "geometry": lambda data: data.hex().upper(),
    "geography": lambda data: data.hex().upper(),
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "name", "xml", "json", "citext", "enum", "refcursor", "unknown"), _decode
    ),
    **{name: _unpack("!I") for name in OID_TYPES},
}
