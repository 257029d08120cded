"""The byte layout of a table's rows in the log: from a table map and the table's schema to the row kernel's input."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns import array_builders as col
from airflow_provider_cdc.sources.mysql.columns import charset_codec as texts
from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.columns.binlog_value_texts import (
    inet4_text,
    inet6_text,
    long_decimal_text,
    uncompress_column,
    uuid_text,
)
from airflow_provider_cdc.sources.mysql.columns.column_buffers import ColumnBuffers, Finisher, ScratchMemory
from airflow_provider_cdc.sources.mysql.columns.json_binary import json_text
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import TableMap
from airflow_provider_cdc.sources.mysql.schema.column_types import BLOBS, INTEGERS, SPATIAL, TEXTS, MySqlColumnType

_INTEGER_WIDTHS = {w.T_TINY: 1, w.T_SHORT: 2, w.T_INT24: 3, w.T_LONG: 4, w.T_LONGLONG: 8}
_STORE = {k.VAR: k.STORE_VARIABLE, k.DECIMAL_RAW: k.STORE_VARIABLE, k.DECIMAL_WIDE: k.STORE_WIDE}
_EXPECTED = {
    "float": {w.T_FLOAT},
    "double": {w.T_DOUBLE},
    "decimal": {w.T_NEWDECIMAL},
    "date": {w.T_DATE, w.T_NEWDATE},
    "time": {w.T_TIME, w.T_TIME2},
    "datetime": {w.T_DATETIME, w.T_DATETIME2},
    "timestamp": {w.T_TIMESTAMP, w.T_TIMESTAMP2},
    "year": {w.T_YEAR},
    "bit": {w.T_BIT},
    "enum": {w.T_ENUM},
    "set": {w.T_SET},
    "json": {w.T_JSON},
    "vector": {w.T_VECTOR, w.T_VARCHAR},
    "uuid": {w.T_STRING},
    "inet6": {w.T_STRING},
    "inet4": {w.T_STRING},
    "char": {w.T_STRING},
    "binary": {w.T_STRING},
    "varchar": {w.T_VARCHAR, w.T_VARCHAR_COMPRESSED},
    "varbinary": {w.T_VARCHAR, w.T_VARCHAR_COMPRESSED},
}
UNNAMED = "the log does not contain column names (binlog_row_metadata was not FULL when the rows were written)"
_LOBS = {w.T_BLOB, w.T_BLOB_COMPRESSED}


_HIDDEN = re.compile(r"!hidden!.*|[0-9a-f]{31,32}")
"""Names of the columns that servers keep for parts of indexes that are expressions. MySQL 8.0.13 to 8.0.15 have them in table maps, and not in rows."""


class LayoutMismatch(Exception):
    """A table map and a table schema do not match; the text says where."""


@dataclass(slots=True)
class RowImageLayout:
    """The way in which the row kernel reads the rows of one table under one table map.

    :param columns: ``int64[columns, 5]``: kind, two parameters and buffer number per column, see ``kernels/row_event_decoder.py``
    :param stores: kind of buffer per column (``STORE_FIXED``, ``STORE_VARIABLE``, ``STORE_WIDE``)
    :param finishers: per column, makes the Arrow array of its buffers
    :param minimum: least number of bytes of a row image
    :param logged: ``uint8`` per column of the table map: whether rows have it
    :param absent: places of the columns that rows do not have: their values are nulls, and ``columns``, ``stores`` and ``finishers`` are without them
    :param partial: the layout of rows without the generated columns that are not captured; ``None`` if there are none. MariaDB 11.8 leaves them out of
        updates and deletes
    """

    schema: TableSchema
    columns: npt.NDArray[np.int64]
    stores: list[int]
    finishers: list[Finisher]
    type: pa.StructType
    minimum: int
    logged: npt.NDArray[np.uint8]
    absent: frozenset[int] = frozenset()
    partial: RowImageLayout | None = None

    def allocate_buffers(self, rows: int, variable_bytes: int, scratch: ScratchMemory, name: str) -> ColumnBuffers:
        """Buffers for ``rows`` row images of this table.

        :param variable_bytes: room for the columns of variable length
        :param name: ``before`` or ``after``, names the memory in ``scratch``
        """
        return ColumnBuffers(self.stores, rows, variable_bytes, scratch, name)

    @property
    def variable_column_count(self) -> int:
        """Number of columns of variable length."""
        return self.stores.count(k.STORE_VARIABLE)


def build_layout(
    table_map: TableMap, schema: TableSchema, config: MySqlConfig, charsets: Mapping[int, str], *, counted: bool = False
) -> RowImageLayout:
    """Make the layout of a table map and the schema in force.

    :param charsets: collation number → character set, as the server has them
    :param counted: the rows are only counted: every value becomes a null
    :raises LayoutMismatch: they contradict each other: the rows were written under another schema
    """
    if table_map.names is None:
        raise LayoutMismatch(UNNAMED)
    places = places_of_columns(table_map.names, schema.column_names)
    if [table_map.names[i] for i in places] != list(schema.column_names):
        raise LayoutMismatch(
            f"the log contains the columns {', '.join(table_map.names)}, but the known columns are "
            f"{', '.join(schema.column_names)}"
        )
    logged, nullable = [table_map.nullable[i] for i in places], [c.nullable for c in schema.columns]
    if logged != nullable:
        differ = [n for n, a, z in zip(schema.column_names, logged, nullable, strict=True) if a != z]
        raise LayoutMismatch(f"the log and the known schema disagree on whether {', '.join(differ)} may be null")
    rows, stores, finishers, minimum = [], [], [], (len(schema.columns) + 7) // 8
    needed, key = _columns(schema, config) if not counted else (frozenset(), ())
    slots = [0, 0, 0]
    collations = collations_of(table_map)
    for i, column in zip(places, schema.columns, strict=True):
        where = f"{schema.id}.{column.name}"
        _verify(table_map, i, column, MySqlColumnType.from_column(column))
        _verify_bytes(column, MySqlColumnType.from_column(column), charsets.get(collations.get(i, 0)))
        charset = "binary"
        if i in collations and column.name in needed:
            charset = _charset(collations.get(i, 0), MySqlColumnType.from_column(column), where, charsets)
        kind, x, y, finisher, size = _column(table_map, i, column, where, config, charset, column.name in key)
        if column.name not in needed:
            finisher = col.build_null_finisher(arrow_type(column.type))
        store = _STORE.get(kind, k.STORE_FIXED)
        rows.append((kind, x, y, slots[store], size))
        slots[store] += 1
        stores.append(store)
        finishers.append(finisher)
        minimum += 0 if table_map.nullable[i] else size
    present = np.isin(np.arange(len(table_map.names)), places).astype(np.uint8)
    layout = RowImageLayout(
        schema, np.array(rows, np.int64).reshape(-1, 5), stores, finishers, row_struct(schema), minimum, present
    )
    generated = [n for n, column in enumerate(schema.columns) if column.declared.generated]
    if absent := frozenset(n for n in generated if schema.columns[n].name not in needed):
        layout.partial = _without(layout, absent, places)
    return layout


def _without(layout: RowImageLayout, absent: frozenset[int], places: Sequence[int]) -> RowImageLayout:
    """Return the layout of rows without some columns.

    :param absent: places of these columns in the schema
    :param places: the place of each column of the schema in the table map
    """
    stay = [n for n in range(len(layout.stores)) if n not in absent]
    columns, counts, logged = layout.columns[stay], [0, 0, 0], layout.logged.copy()
    stores = [layout.stores[n] for n in stay]
    for row, store in zip(columns, stores, strict=True):
        row[3], counts[store] = counts[store], counts[store] + 1
    logged[[places[n] for n in absent]] = 0
    finishers = [layout.finishers[n] for n in stay]
    return replace(layout, columns=columns, stores=stores, finishers=finishers, minimum=0, logged=logged, absent=absent)


def places_of_columns(logged: Sequence[str], table_columns: Collection[str] = ()) -> list[int]:
    """Return the places in a table map of the columns that rows have.

    :param logged: the names that the map has
    :param table_columns: the columns of the table; one that is among them is not hidden, whatever it is called
    """
    return [i for i, name in enumerate(logged) if name in table_columns or not _HIDDEN.fullmatch(name)]


def _columns(schema: TableSchema, config: MySqlConfig) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the columns whose values are needed, and of those of the key."""
    filters = Filters(config)
    return filters.list_needed_columns(schema), filters.select_key_columns(schema)


_Read = tuple[int, int, int, Finisher, int]  # kind, a, b, finisher, least number of bytes


def collations_of(m: TableMap) -> dict[int, int]:
    """Column index → collation number, for columns that have one."""
    texts = [i for i, t in enumerate(m.types) if t in w.TEXTUAL or (m.mariadb and t == w.T_GEOMETRY)]
    members = [i for i, t in enumerate(m.types) if t in (w.T_ENUM, w.T_SET)]
    collations = {i: m.collations.get_collation(n) for n, i in enumerate(texts)}
    return collations | {i: m.member_collations.get_collation(n) for n, i in enumerate(members)}


def _column(m: TableMap, i: int, column: Column, where: str, config: MySqlConfig, charset: str, key: bool) -> _Read:
    """Return the way to read column ``i``."""
    wire, meta, declared = m.types[i], m.meta[i], MySqlColumnType.from_column(column)
    if wire in _INTEGER_WIDTHS:
        width, unsigned = _INTEGER_WIDTHS[wire], bool(m.unsigned and m.unsigned[i])
        wide = unsigned and width == 8
        return (
            k.INT,
            width,
            int(unsigned),
            col.unsigned_bigint(column, where) if wide else col.build_integer_finisher(column),
            width,
        )
    if wire == w.T_NEWDECIMAL:
        return _decimal(meta >> 8, meta & 0xFF, column)
    if wire in (w.T_VARCHAR, w.T_VAR_STRING, w.T_STRING, w.T_BLOB, w.T_JSON, w.T_GEOMETRY, w.T_VECTOR, *_COMPRESSED):
        width = _length_width(wire, meta)
        return k.VAR, width, 0, _variable(wire, declared, where, config, charset), width
    if wire in (w.T_ENUM, w.T_SET):
        values = _members(m, i, declared, charset)
        finisher = col.build_enum_finisher(values, where) if wire == w.T_ENUM else col.member_sets(values)
        return k.INT, meta & 0xFF, 1, finisher, meta & 0xFF
    if wire == w.T_BIT:
        width = (meta >> 8) + (1 if meta & 0xFF else 0)
        return (
            k.BIG_ENDIAN,
            width,
            0,
            col.finish_booleans if column.type == "bool" else col.build_bit_finisher(column),
            width,
        )
    if m.mariadb and wire in _MARIADB_TEMPORALS and declared.fraction_digits:
        return _mariadb_temporal(wire, column, declared.fraction_digits, where if key else None)
    fraction = (meta + 1) // 2
    temporal = col.build_temporal_finisher(column, key=where if key else None)
    simple: dict[int, _Read] = {
        w.T_FLOAT: (k.FLOAT, 0, 0, col.finish_floats, 4),
        w.T_DOUBLE: (k.DOUBLE, 0, 0, col.finish_doubles, 8),
        w.T_DATE: (k.DATE, 0, 0, temporal, 3),
        w.T_NEWDATE: (k.DATE, 0, 0, temporal, 3),
        w.T_DATETIME2: (k.DATETIME, fraction, 0, temporal, 5 + fraction),
        w.T_TIMESTAMP2: (k.TIMESTAMP, fraction, 0, temporal, 4 + fraction),
        w.T_TIME2: (k.TIME, fraction, 0, temporal, 3 + fraction),
        w.T_DATETIME: (k.OLD_DATETIME, 0, 0, temporal, 8),
        w.T_TIMESTAMP: (k.OLD_TIMESTAMP, 0, 0, temporal, 4),
        w.T_TIME: (k.OLD_TIME, 0, 0, temporal, 3),
        w.T_YEAR: (k.YEAR, 0, 0, col.build_integer_finisher(column), 1),
    }
    if wire in simple:
        return simple[wire]
    raise LayoutMismatch(f"column {column.name} has the type {wire} in the log, which is not supported")


_MARIADB_TEMPORALS = {
    w.T_DATETIME: (k.MARIADB_DATETIME, (6, 6, 7, 7, 7, 8)),
    w.T_TIMESTAMP: (k.MARIADB_TIMESTAMP, (5, 5, 6, 6, 7, 7)),
    w.T_TIME: (k.MARIADB_TIME, (4, 4, 5, 5, 5, 6)),
}
"""Kind, and width in bytes for one to six digits of a fraction, in MariaDB's own form. The log does not have the number of digits."""


def _mariadb_temporal(wire: int, column: Column, digits: int, key: str | None) -> _Read:
    kind, widths = _MARIADB_TEMPORALS[wire]
    width = widths[digits - 1]
    return kind, width, 10 ** (6 - digits), col.build_temporal_finisher(column, key=key), width


_COMPRESSED = (w.T_BLOB_COMPRESSED, w.T_VARCHAR_COMPRESSED)


def _verify(m: TableMap, i: int, column: Column, declared: MySqlColumnType) -> None:
    """Check that the column's type in the log is one that the server writes its declared type with.

    :raises LayoutMismatch: it is not
    """
    wire = m.types[i]
    if declared.base in INTEGERS:
        fits = _INTEGER_WIDTHS.get(wire) == INTEGERS[declared.base]
        if fits and m.unsigned is not None and m.unsigned[i] != declared.unsigned:
            raise LayoutMismatch(f"column {column.name} is {'' if m.unsigned[i] else 'not '}unsigned in the log")
    elif declared.base in SPATIAL:
        fits = wire == w.T_GEOMETRY
    elif declared.base.endswith(("text", "blob")):
        fits = wire in _LOBS
    else:
        fits = wire in _EXPECTED.get(declared.base, set())
    if fits and declared.base == "decimal":
        fits = (m.meta[i] >> 8, m.meta[i] & 0xFF) == declared.precision_and_scale
    if fits and wire in (w.T_TIME2, w.T_DATETIME2, w.T_TIMESTAMP2):
        fits = m.meta[i] == declared.fraction_digits
    if not fits:
        raise LayoutMismatch(
            f"column {column.name} is declared {declared.base}, but has the type {wire} (parameters "
            f"{m.meta[i]}) in the log"
        )


def _verify_bytes(column: Column, declared: MySqlColumnType, charset: str | None) -> None:
    """Check that a binary column is not declared as text, nor a text column as binary.

    :raises LayoutMismatch: it is
    """
    if charset is not None and (
        (declared.base in TEXTS and charset == "binary") or (declared.base in BLOBS and charset != "binary")
    ):
        raise LayoutMismatch(
            f"column {column.name} is declared {declared.base}, but has the character set {charset} in the log"
        )


def _decimal(precision: int, scale: int, column: Column) -> _Read:
    size = sum((n // 9) * 4 + (0, 1, 1, 2, 2, 3, 3, 4, 4)[n % 9] for n in (precision - scale, scale))
    if precision <= 18:
        return k.DECIMAL, precision, scale, col.build_decimal_finisher(column, precision, scale, wide=False), size
    if precision <= 38:
        return k.DECIMAL_WIDE, precision, scale, col.build_decimal_finisher(column, precision, scale, wide=True), size
    return k.DECIMAL_RAW, precision, scale, col.long_decimals(column, precision, scale, long_decimal_text), size


def _length_width(wire: int, meta: int) -> int:
    """Width in bytes of the length before a value of variable length."""
    if wire in (w.T_BLOB, w.T_JSON, w.T_GEOMETRY, w.T_VECTOR, w.T_BLOB_COMPRESSED):
        return meta
    return 2 if string_length(wire, meta) > 255 else 1


def string_length(wire: int, meta: int) -> int:
    """Greatest number of bytes of a value of a CHAR, VARCHAR, BINARY or VARBINARY column."""
    if wire != w.T_STRING:
        return meta
    high, low = meta >> 8, meta & 0xFF
    # the two highest bits of lengths above 255 hide in the type byte, inverted
    return low | (((high & 0x30) ^ 0x30) << 4) if high & 0x30 != 0x30 else low


def _charset(collation: int, declared: MySqlColumnType, where: str, charsets: Mapping[int, str]) -> str:
    """Character set of a column's text.

    :raises UnreadableValue: it is not known
    """
    charset = charsets.get(collation, declared.charset or "binary")
    if not texts.is_known(charset):
        raise UnreadableValue(
            f"Texts in the character set {charset} cannot be decoded.",
            where=where,
            safe="Nothing is lost: the batch was not written.",
            remedy="convert the column to utf8mb4, or exclude it with column.exclude.list",
        )
    return charset


def _members(m: TableMap, i: int, declared: MySqlColumnType, charset: str) -> tuple[str, ...]:
    """Members of an ENUM or SET: those of the log if it has them, since the rows were written with them."""
    return members_of(m, i, charset) if i in m.values else declared.values


def members_of(m: TableMap, i: int, charset: str) -> tuple[str, ...]:
    """Return the members that the log has of an ENUM or SET.

    Those in ``CHARACTER SET binary`` are read as UTF-8, as the catalog shows them.
    """
    return tuple(texts.decode_text(charset, value, "backslashreplace") for value in m.values.get(i, ()))


def _variable(wire: int, declared: MySqlColumnType, where: str, config: MySqlConfig, charset: str) -> Finisher:
    base = declared.base
    if base in SPATIAL:
        return col.finish_geometries
    if base == "json":
        return col.build_converting_finisher(pa.string(), json_text, where)
    if base == "vector":
        return col.finish_vectors
    if base in ("uuid", "inet6", "inet4"):
        width, text = {"uuid": (16, uuid_text), "inet6": (16, inet6_text), "inet4": (4, inet4_text)}[base]
        return col.build_padding_finisher(width, col.build_converting_finisher(pa.string(), text, where))
    if base == "binary":
        width = 1 if declared.length is None else declared.length  # BINARY(0) is a type, too
        return col.build_padding_finisher(width, col.build_binary_finisher(config.binary_handling_mode))
    if base in BLOBS:
        finisher = col.build_binary_finisher(config.binary_handling_mode)
    elif base in TEXTS:
        finisher = col.build_text_finisher(charset, where)
    else:
        raise LayoutMismatch(f"{where} is declared {base}, which is not a type of variable length")
    return col.build_uncompressing_finisher(uncompress_column, finisher, where) if wire in _COMPRESSED else finisher
