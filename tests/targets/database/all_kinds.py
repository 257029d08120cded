"""Columns and values for every line of the table of types: extreme ones, and pairs that differ as little as values can."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind
from dev.type_table import VALUES

TOLD = "__debezium.source.column.type"
UTC = dt.UTC
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
OTHER = POINT[:-1] + b"\x41"
_PLAIN = ("bool", "int8", "int16", "int32", "int64", "float", "double")
_SEMANTIC = {
    "number": ("string", "io.debezium.data.VariableScaleDecimal"), "time": ("int64", "io.debezium.time.MicroTime"),
    "time_tz": ("string", "io.debezium.time.ZonedTime"), "bits": ("binary", "io.debezium.data.Bits"),
    "enum": ("string", "io.debezium.data.Enum"), "set": ("string", "io.debezium.data.EnumSet"), "json": ("string", "io.debezium.data.Json"),
    "xml": ("string", "io.debezium.data.Xml"), "uuid": ("string", "io.debezium.data.Uuid"), "ltree": ("string", "io.debezium.data.Ltree"),
    "year": ("int32", "io.debezium.time.Year"), "duration": ("int64", "io.debezium.time.MicroDuration"),
    "interval": ("string", "io.debezium.time.Interval"),
}  # fmt: skip
_LONGEST_DECIMAL = 38


@dataclass(frozen=True)
class Case:
    """A column, and its values: each is another one than the next, and the last than the first."""

    column: Column
    kind: ValueKind
    key: bool
    values: tuple[Any, ...]


def cases(database: str) -> list[Case]:
    """A case for each line of the table, with the values that a database has room for."""
    made = []
    for number, (_, kind, key) in enumerate(VALUES):
        found = tuple(_fitting_values(kind, database, key=key))
        made.append(Case(_column(f"c{number}", kind, key=key), kind, key, found))
    return made


def _column(name: str, kind: ValueKind, *, key: bool) -> Column:
    """The column that has a kind."""
    parameters, reported_type = {}, kind.source_type
    if reported_type:
        parameters[TOLD] = reported_type
    type_, semantic = _SEMANTIC.get(kind.name, (kind.name, ""))
    declared = ColumnDeclaration(
        type_name=reported_type or {"text": "VARCHAR", "bytes": "VARBINARY"}.get(kind.name, ""), length=kind.length
    )
    match kind.name:
        case "decimal" if (kind.length or 0) <= _LONGEST_DECIMAL:
            type_, declared = f"decimal128({kind.length}, {kind.scale})", ColumnDeclaration()
        case "decimal":
            type_, semantic, declared = "string", "org.apache.kafka.connect.data.Decimal", ColumnDeclaration()
            parameters |= {"scale": str(kind.scale), "connect.decimal.precision": str(kind.length)}
        case "text" | "bytes":
            type_ = {"text": "string", "bytes": "binary"}[kind.name]
        case "date":
            type_ = "date32[day]"
        case "time":
            declared = ColumnDeclaration(type_name="TIME", length=kind.scale)
        case "timestamp" | "timestamp_tz":
            zone = ", tz=UTC" if kind.name == "timestamp_tz" else ""
            type_ = f"timestamp[{'ns' if (kind.scale or 0) > 6 else 'us'}{zone}]"
            declared = ColumnDeclaration(length=kind.scale)
        case "bits":
            parameters["length"] = str(kind.length)
        case "enum" | "set":
            parameters["allowed"] = ",".join(kind.members)
        case "vector":
            type_ = "list<item: float>"
        case "geometry":
            type_ = GEOMETRY
    return Column(
        name=name, type=type_, semantic=semantic or None, parameters=parameters, declared=declared, nullable=not key
    )


def _fitting_values(kind: ValueKind, database: str, *, key: bool) -> list[Any]:
    found = _values(kind, database)
    if kind.name in ("text", "bytes"):
        found = [value for value in found if not kind.length or len(value) <= kind.length]
    if key:  # some databases take keys for equal that differ in spaces at the end, and of bytes in zeros
        found = [value for value in found if len(value) in range(1, 200) and value not in ("a ", " ", b"\0")]
    # an empty text is NULL there
    return [value for value in found if database != "oracle" or value not in ("", b"")]


def _values(kind: ValueKind, database: str) -> list[Any]:
    match kind.name:
        case "bool":
            return [True, False]
        case "int8" | "int16" | "int32" | "int64":
            most = 2 ** (int(kind.name[3:]) - 1)
            return [-most, most - 1, most - 2, 0]
        case "float":
            tenth = np.float32(0.1)
            found = [
                float(tenth),
                float(np.nextafter(tenth, np.float32(1))),
                3.4028234663852886e38,
                float(np.float32(1.1754944e-38)),
                -0.0,
            ]
            return found + _special_floats(database)
        case "double":
            return [
                0.1,
                float(np.nextafter(0.1, 1)),
                1.7976931348623157e308,
                2.2250738585072014e-308,
                -0.0,
                *_special_floats(database),
            ]
        case "decimal" | "number":
            return _decimals(kind, database)
        case "text":
            return [
                "",
                " ",
                "a",
                "a ",
                "A",
                "ä€😀",
                "\\",
                'it\'s `odd` "x" %s :x',
                "${y}\n\t\\N",
                "NULL",
                "x" * 5000,
                "x" * 4999 + "y",
            ]
        case "bytes":
            return [b"", b"\0", b"\0\0", b"\xff\0\\'", b"abc", bytes(range(256)) * 20, bytes(range(256)) * 19]
        case "date":
            return [dt.date(1000, 1, 1), dt.date(9999, 12, 31), dt.date(9999, 12, 30), dt.date(1582, 10, 15)]
        case "time":
            seconds = [0, 86_399_000_000, 86_398_000_000]
            below = [-3_600_000_000] if database in ("mysql", "mariadb", "oracle", "sqlite") else []
            return seconds + below if not kind.scale else [*seconds, *below, 1, 86_399_999_999, 86_399_999_998]
        case "time_tz":
            return ["00:00:00Z", "23:59:59.999999Z", "23:59:59.999998Z", "12:00:00+02:00", "12:00:00+01:00"]
        case "timestamp" | "timestamp_tz":
            return _moment_values(kind, database)
        case _:
            return _OTHERS[kind.name]


_OTHERS: dict[str, list[Any]] = {
    "bits": [b"\x05\x01", b"\xff\x0f", b"\xfe\x0f", b"\0\0"],
    "enum": ["small", "large"],
    "set": ["small", "small,large", "large"],
    "json": ['{"a": 1}', '{"a": 2}', "[]", '"ä€😀"', "null"],
    "xml": ["<a/>", "<b/>", "<a>ä€</a>"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"],
    "ltree": ["Top.Science", "Top.Sciences"],
    "year": [1901, 2155, 2154],
    "duration": [-1, 10**15, 10**15 + 1],
    "interval": ["P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.788S", "P0Y0M0DT0H0M0S"],
    "vector": [[1.5, 2.0], [1.5, float(np.nextafter(np.float32(2), np.float32(3)))], [1.5]],
    "geometry": [{"wkb": POINT, "srid": 3857}, {"wkb": POINT, "srid": None}, {"wkb": OTHER, "srid": None}],
}  # fmt: skip


def _special_floats(database: str) -> list[float]:
    """Floating-point numbers that are none."""
    return [float("nan"), float("inf"), float("-inf")] if database in ("postgresql", "oracle") else []


def _decimals(kind: ValueKind, database: str) -> list[Any]:
    if kind.name == "number":
        found = ["1", "0.000000000000000001", "0.000000000000000002", "-12345678901234.5", "-12345678901234.6"]
        if database == "oracle":
            found += ["12" * 20, "12" * 19 + "13", "1" + "0" * 125, "0." + "0" * 100 + "1"]
        if database == "postgresql":
            found += ["12" * 60, "12" * 59 + "13", "NaN"]
        return found
    if kind.length == 12:
        return [Decimal("9999999999.99"), Decimal("9999999999.98"), Decimal("-0.01"), Decimal("0.00")]
    if kind.length == 60:
        found = ["9" * 21 + ".9999999999", "9" * 21 + ".9999999998", "-0.0000000001"]
        if database in ("oracle", "mssql"):
            found.append("9" * 28 + ".9999999999")
        if database in ("postgresql", "mysql", "mariadb", "sqlite"):
            found += ["9" * 50 + ".9999999999", "9" * 50 + ".9999999998"]
        return found
    return ["9" * 10 + "." + "9" * 70, "9" * 10 + "." + "9" * 69 + "8", "-0." + "0" * 69 + "1"]


def _moment_values(kind: ValueKind, database: str) -> list[Any]:
    zone = UTC if kind.name == "timestamp_tz" else None
    first, last = dt.datetime(1000, 1, 1, tzinfo=zone), dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=zone)
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=zone)
    if not kind.scale:
        return [first, last, last - dt.timedelta(seconds=1)]
    one = dt.timedelta(microseconds=1)
    if kind.scale > 6:
        return [
            noon,
            noon + one,
            *([int(np.datetime64("2024-07-01T12:00:00.000000001", "ns").astype(int))] if database == "oracle" else []),
        ]
    return [
        first,
        last + dt.timedelta(microseconds=999_999),
        last + dt.timedelta(microseconds=999_998),
        noon,
        noon + one,
    ]
