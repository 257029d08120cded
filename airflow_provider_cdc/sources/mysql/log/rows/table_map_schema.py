"""A table's schema from the row metadata in the log, for when neither DDL nor the catalog gives the one in force.

With ``binlog_row_metadata=FULL`` the log has the columns' names, types, signs, character sets and members, and the primary key. It has
neither defaults nor display widths: these are taken from other known schemas of the table with the same columns. Nor does it
distinguish MariaDB's types that are stored as another type (UUID as BINARY): if no known schema says which it is, that is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.columns.charset_codec import greatest_size
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.log.rows.row_layout import (
    UNNAMED,
    LayoutMismatch,
    RowImageLayout,
    build_layout,
    collations_of,
    members_of,
    places_of_columns,
    string_length,
)
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import TableMap
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import captured_column
from airflow_provider_cdc.sources.mysql.schema.column_types import BLOBS, SPATIAL, TEXTS, MySqlColumnType

_INTEGERS = {
    w.T_TINY: "tinyint",
    w.T_SHORT: "smallint",
    w.T_INT24: "mediumint",
    w.T_LONG: "int",
    w.T_LONGLONG: "bigint",
}
_SIMPLE = {
    w.T_FLOAT: "float", w.T_DOUBLE: "double", w.T_DATE: "date", w.T_NEWDATE: "date", w.T_YEAR: "year", w.T_JSON: "json",
    w.T_VECTOR: "vector", w.T_GEOMETRY: "geometry", w.T_DATETIME: "datetime", w.T_TIMESTAMP: "timestamp", w.T_TIME: "time",
}  # fmt: skip
_OLD_TEMPORALS = {w.T_DATETIME, w.T_TIMESTAMP, w.T_TIME}
_FRACTIONAL = {w.T_DATETIME2: "datetime", w.T_TIMESTAMP2: "timestamp", w.T_TIME2: "time"}
_LOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def schema_of_table_map(
    m: TableMap, table: TableId, candidates: Iterable[TableSchema], config: MySqlConfig, charsets: Mapping[int, str]
) -> TableSchema:
    """Return the schema that a table map describes.

    :param candidates: schemas of this table at other positions, the likeliest first
    :param charsets: collation number → character set
    :raises LayoutMismatch: the type of a column is ambiguous or missing
    """
    if m.names is None or (m.unsigned is None and any(t in _INTEGERS for t in m.types)):
        raise LayoutMismatch(UNNAMED)
    others: list[TableSchema] = list(candidates)
    variants: list[tuple[int, tuple[Column, ...]]] = []
    for variant in _signs(m):
        described = [_column(variant, i, table, others, config, charsets) for i in places_of_columns(m.names)]
        variants.append((sum(alike for _, alike in described), tuple(column for column, _ in described)))
    if len(variants) == 2 and variants[0][0] == variants[1][0] and variants[0][1] != variants[1][1]:
        raise LayoutMismatch("the log does not show which columns are unsigned, because the table has a YEAR column")
    columns = max(variants, key=lambda f: f[0])[1]
    charset = others[0].charset if others else None
    return TableSchema(id=table, columns=columns, key=_key(m, columns, others), charset=charset)


def counting_layout(m: TableMap, table: TableId, config: MySqlConfig) -> RowImageLayout:
    """Build a layout to count rows whose values cannot be decoded: every value becomes a null.

    :raises LayoutMismatch: a column's length in bytes is not known
    """
    named = replace(
        m, names=m.names or [f"column{i}" for i in range(len(m.types))], unsigned=m.unsigned or [False] * len(m.types)
    )
    assert named.names is not None
    places = places_of_columns(named.names)
    binary = dict.fromkeys({0, *collations_of(m).values()}, "binary")
    columns = [
        captured_column(table, name, _types(named, i, binary)[0], config, nullable=m.nullable[i])
        for i, name in enumerate(named.names)
        if i in places
    ]
    return build_layout(named, TableSchema(id=table, columns=tuple(columns)), config, {}, counted=True)


def _signs(m: TableMap) -> Iterator[TableMap]:
    """Yield the table map in both readings of its signs.

    Newer versions of MySQL 8.0 log a sign for YEAR columns, older ones do not.
    """
    yield m
    if m.unsigned_with_years is not None and m.unsigned_with_years != m.unsigned:
        yield replace(m, unsigned=m.unsigned_with_years)


def _column(
    m: TableMap, i: int, table: TableId, schemas: list[TableSchema], config: MySqlConfig, charsets: Mapping[int, str]
) -> tuple[Column, bool]:
    """Column ``i``, and whether a known schema has it."""
    assert m.names is not None
    name, types = m.names[i], _types(m, i, charsets)
    same = (c for schema in schemas for c in schema.columns if c.name == name)
    like = next((c for c in same if any(_alike(MySqlColumnType.from_column(c), t) for t in types)), None)
    if like is not None:
        return like.model_copy(update={"nullable": m.nullable[i]}), True
    if len(types) > 1:
        raise LayoutMismatch(f"the log does not show whether column {name} is {' or '.join(map(_spelled, types))}")
    return captured_column(table, name, types[0], config, nullable=m.nullable[i]), False


def _spelled(type_: MySqlColumnType) -> str:
    return type_.base if type_.length is None else f"{type_.base}({type_.length})"


def _types(m: TableMap, i: int, charsets: Mapping[int, str]) -> list[MySqlColumnType]:
    """Return the types that column ``i`` may be declared with."""
    wire, meta = m.types[i], m.meta[i]
    if wire in _INTEGERS:
        return [MySqlColumnType(_INTEGERS[wire], unsigned=bool(m.unsigned and m.unsigned[i]))]
    if wire in _FRACTIONAL:
        return [MySqlColumnType(_FRACTIONAL[wire], meta or None)]
    if wire in _SIMPLE:
        digits = range(7) if m.mariadb and wire in _OLD_TEMPORALS else (0,)  # which the log does not have
        return [MySqlColumnType(_SIMPLE[wire], n or None) for n in digits]
    if wire == w.T_NEWDECIMAL:
        return [MySqlColumnType("decimal", meta >> 8, meta & 0xFF)]
    if wire == w.T_BIT:
        return [MySqlColumnType("bit", (meta >> 8) * 8 + (meta & 0xFF))]
    charset = charsets.get(collations_of(m).get(i, 0))
    assert m.names is not None
    if charset is None:
        raise LayoutMismatch(f"the log does not contain the character set of column {m.names[i]}")
    if wire in (w.T_ENUM, w.T_SET):
        return [
            MySqlColumnType("enum" if wire == w.T_ENUM else "set", charset=charset, values=members_of(m, i, charset))
        ]
    return _strings(m, i, charset)


def _strings(m: TableMap, i: int, charset: str) -> list[MySqlColumnType]:
    wire, meta, binary = m.types[i], m.meta[i], charset == "binary"
    if wire in (w.T_BLOB, w.T_BLOB_COMPRESSED):
        return (
            [MySqlColumnType(_LOBS[meta] + "blob")]
            if binary
            else [MySqlColumnType(_LOBS[meta] + "text", charset=charset)]
        )
    assert m.names is not None
    if wire not in (w.T_STRING, w.T_VARCHAR, w.T_VAR_STRING, w.T_VARCHAR_COMPRESSED):
        raise LayoutMismatch(f"column {m.names[i]} has the type {wire} in the log, which is not supported")
    length, fixed = string_length(wire, meta), wire == w.T_STRING
    if not binary:
        width = greatest_size(charset)
        return [MySqlColumnType("char" if fixed else "varchar", length // width if width else None, charset=charset)]
    types = [MySqlColumnType("binary" if fixed else "varbinary", length)]
    if m.mariadb and fixed and length == 16:
        types += [MySqlColumnType("uuid"), MySqlColumnType("inet6")]
    elif m.mariadb and fixed and length == 4:
        types += [MySqlColumnType("inet4")]
    elif m.mariadb and not fixed and length % 4 == 0:
        types += [MySqlColumnType("vector", length // 4)]
    return types


def _alike(declared: MySqlColumnType, logged: MySqlColumnType) -> bool:
    """Check whether a declared type agrees with the log, which does not have all its properties."""
    if declared.base in SPATIAL and logged.base in SPATIAL:
        return True
    if declared.base == "json" and logged.base == "longtext":  # as MariaDB stores it
        return True
    if declared.base != logged.base:
        return False
    match logged.base:
        case "decimal":
            return declared.precision_and_scale == logged.precision_and_scale
        case "datetime" | "timestamp" | "time":
            return declared.fraction_digits == logged.fraction_digits
        case "bit":
            return (declared.length or 1) == logged.length
        case "enum" | "set":
            return declared.values == logged.values
        case "binary" | "varbinary":
            return (declared.length or 1) == logged.length
    if logged.base in TEXTS:
        same = _name(declared.charset) in (None, _name(logged.charset))
        return same and (logged.length is None or declared.length in (None, logged.length))
    return logged.base in BLOBS or declared.unsigned == logged.unsigned


def _name(charset: str | None) -> str | None:
    return "utf8mb3" if charset == "utf8" else charset


def _key(m: TableMap, columns: tuple[Column, ...], schemas: list[TableSchema]) -> tuple[str, ...]:
    """Return the primary key of the log; without one, the key of a known schema whose columns still fit.

    Unique keys are not logged.
    """
    assert m.names is not None
    if m.primary_key is not None:
        return tuple(m.names[i] for i in m.primary_key)
    able = {c.name for c in columns if not c.nullable}
    return next((schema.key for schema in schemas if schema.key and set(schema.key) <= able), ())
