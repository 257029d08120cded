"""Values one by one, in either form, as the change log has them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.postgresql.columns import binary_texts, nested_texts
from airflow_provider_cdc.sources.postgresql.columns import temporal_texts as moments
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.schema.column_types import OID_TYPES, column_form, value_form
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import PostgresType, TypeCatalog
from airflow_provider_cdc.sources.relational.binary_mode_format import binary_text

FIRST_DAY: Final = moments.parse_date("0001-01-01")
LAST_DAY: Final = moments.parse_date("9999-12-31")
FIRST_US: Final = FIRST_DAY * moments.DAY_US
LAST_US: Final = (LAST_DAY + 1) * moments.DAY_US - 1
_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_OCTAL: Final = re.compile(rb"\\(\\|[0-7]{3})")
_NUMBERS: Final = frozenset({"int2", "int4", "int8", "oid", "float4", "float8", "numeric"})
_WKB_SRID: Final = 0x20000000
_INFINITE: Final = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Functions that read a value, from its binary form or from its text. They raise ValueError for what is none.

    Dates and moments are whole numbers of days and microseconds since 1970.
    """

    from_binary: Callable[[bytes], Any]
    from_text: Callable[[str], Any]


def build_form(column: Column, base: PostgresType, types: TypeCatalog, config: PostgresConfig) -> ValueForm:
    """Return the functions for the values of a column.

    :param base: its type, below domains
    """
    form = column_form(base, types)
    if form == "array":
        return ValueForm(lambda data: _array_json(data, base, types), lambda text: _array_text_json(text, base, types))
    if (
        form == "bytea"
        or (form == "unknown" and not base.is_builtin)
        or (column.type == "binary" and form == "unknown")
    ):
        spell: Callable[[bytes], Any] = binary_text(config.binary_handling_mode) or bytes
        return ValueForm(spell, lambda text: spell(_bytes(text) if form == "bytea" else text.encode()))
    if form in ("bit", "varbit"):
        bits = _bit if column.type == "bool" else _little_endian
        return ValueForm(lambda data: bits(binary_texts.bits_text(data)), bits)
    if form == "money":
        return _money(column, config.money_fraction_digits)
    special = _special_forms(column).get(form)
    if special is not None:
        return special
    # without a send function, a type is not among those with a reader, and its values come as texts
    read = binary_texts.build_text_reader(base.oid, types) if base.has_binary_form else _refuse
    convert = _number_reader(column) if form == "numeric" else _CONVERSIONS.get(form, str)
    return ValueForm(lambda data: convert(read(data)), convert)


def _special_forms(column: Column) -> dict[str, ValueForm]:
    span = moments.interval_us if column.type == "int64" else moments.iso_interval
    return {
        "interval": ValueForm(
            lambda data: span(moments.unpack_interval(data)), lambda text: span(moments.parse_interval(text))
        ),
        "timetz": ValueForm(
            lambda data: _utc_clock(*struct.unpack("!qi", data)),
            lambda text: moments.utc_clock(*moments.parse_clock(text)),
        ),
        "point": ValueForm(lambda data: _point(*struct.unpack("!dd", data)), _point_of_text),
        "geometry": ValueForm(_geometry, lambda text: _geometry(bytes.fromhex(text))),
        "geography": ValueForm(_geometry, lambda text: _geometry(bytes.fromhex(text))),
        "vector": ValueForm(lambda data: binary_texts.read_vector(data, "f"), json.loads),
        "halfvec": ValueForm(lambda data: binary_texts.read_vector(data, "e"), json.loads),
        "hstore": ValueForm(binary_texts.hstore_json, _hstore_text_json),
    }


def _refuse(data: bytes) -> str:
    raise ValueError("the type has no binary form")


def _date(text: str) -> int:
    days = moments.parse_date(text)
    if "infinity" in text:
        return LAST_DAY if days > 0 else FIRST_DAY
    if not FIRST_DAY <= days <= LAST_DAY:
        raise ValueError(f"the date {text} is not within the years 1 to 9999")
    return days


def _moment(text: str) -> int:
    us = moments.parse_moment(text)
    if "infinity" in text:
        return LAST_US if us > 0 else FIRST_US
    if not FIRST_US <= us <= LAST_US:
        raise ValueError(f"the time {text} is not within the years 1 to 9999")
    return us


def _bool(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError(f"{text!r} is no boolean")
    return text == "t"


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "bool": _bool, "int2": int, "int4": int, "int8": int, "float4": float, "float8": float, "date": _date, "timestamp": _moment,
    "timestamptz": _moment, "time": lambda text: moments.parse_clock(text)[0],
    **dict.fromkeys(OID_TYPES, int),
}  # fmt: skip


def _number_reader(column: Column) -> Callable[[str], Any]:
    if column.type == "double":
        return float
    if column.type.startswith("decimal"):
        return lambda text: Decimal(_finite(text))
    return str if column.semantic is None else _finite


def _finite(text: str) -> str:
    if text in _INFINITE:
        raise ValueError(f"the numeric value {text} is no number")
    return text


def _money(column: Column, digits: int) -> ValueForm:
    def convert(units: int) -> Any:
        number = Decimal(units).scaleb(-digits)
        return float(number) if column.type == "double" else (f"{number:f}" if column.type == "string" else number)

    def parse(text: str) -> Any:
        units = int("".join(sign for sign in text if sign.isdigit()))
        return convert(-units if "-" in text or "(" in text else units)

    return ValueForm(lambda data: convert(*struct.unpack("!q", data)), parse)


def _bit(bits: str) -> bool:
    if bits not in ("0", "1"):
        raise ValueError(f"{bits!r} is no single bit")
    return bits == "1"


def _little_endian(bits: str) -> bytes:
    return int(bits or "0", 2).to_bytes((len(bits) + 7) // 8, "little")


def _utc_clock(us: int, west_s: int) -> str:
    return moments.utc_clock(us, -west_s)


def _bytes(text: str) -> bytes:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return _OCTAL.sub(lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8)]), text.encode())


def _point(x: float, y: float) -> dict[str, Any]:
    return {"wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


def _point_of_text(text: str) -> dict[str, Any]:
    x, y = text.removeprefix("(").removesuffix(")").split(",")
    return _point(float(x), float(y))


def _geometry(ewkb: bytes) -> dict[str, Any]:
    """Split EWKB into WKB and the number of its reference system, which only the outermost geometry has."""
    order = "<" if ewkb[0] else ">"
    (kind,) = struct.unpack_from(f"{order}I", ewkb, 1)
    if not kind & _WKB_SRID:
        return {"wkb": ewkb, "srid": None}
    (srid,) = struct.unpack_from(f"{order}i", ewkb, 5)
    return {"wkb": ewkb[:1] + struct.pack(f"{order}I", kind & ~_WKB_SRID) + ewkb[9:], "srid": srid}


def _hstore_text_json(text: str) -> str:
    pairs: dict[str, str | None] = {}
    p = 0
    while p < len(text):
        match = _HSTORE.match(text, p)
        if match is None:
            raise ValueError(f"{text[p : p + 100]!r} is no hstore")
        key, value = (None if part is None else _ESCAPED.sub(r"\1", part) for part in match.groups())
        pairs[key or ""] = value
        p = match.end()
    return json.dumps(pairs, ensure_ascii=False)


def _array_json(data: bytes, base: PostgresType, types: TypeCatalog) -> str:
    elements, lowers, _ = binary_texts.read_array(data, base, types)
    if any(lower != 1 for lower in lowers):
        return json.dumps(binary_texts.build_text_reader(base.oid, types)(data), ensure_ascii=False)
    return _nested_json(elements, base, types)


def _array_text_json(text: str, base: PostgresType, types: TypeCatalog) -> str:
    element, _ = types.find_base(base.element_oid)
    elements, plain = nested_texts.split_array(text, element.delimiter if element else ",")
    return _nested_json(elements, base, types) if plain else json.dumps(text, ensure_ascii=False)


def _nested_json(elements: nested_texts.Nested, base: PostgresType, types: TypeCatalog) -> str:
    element, _ = types.find_base(base.element_oid)
    form = "" if element is None else value_form(element)

    def spell(text: str) -> str:
        if form in _NUMBERS and text not in _INFINITE:
            return text
        if form == "bool":
            return "true" if text == "t" else "false"
        return text if form in ("json", "jsonb") else json.dumps(text, ensure_ascii=False)

    def join(parts: nested_texts.Nested) -> str:
        return f"[{', '.join('null' if p is None else join(p) if isinstance(p, list) else spell(p) for p in parts)}]"

    return join(elements)
