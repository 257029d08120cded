"""Table maps without column names: ``binlog_row_metadata=MINIMAL``, the default of MySQL.

Such a map has types with their parameters, signs, character sets of texts, and whether columns may be null. Names, members, and the key
are those of the schema history. :func:`name_columns` compares all facts that both have; :mod:`.structure_proof` looks for changes that
leave none of them different, as two columns of one type that changed places without a statement in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.columns.charset_codec import greatest_size
from airflow_provider_cdc.sources.mysql.log.rows.row_layout import LayoutMismatch, collations_of, string_length
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import TableMap
from airflow_provider_cdc.sources.mysql.schema.column_types import SPATIAL, TEXTS, MySqlColumnType

_NUMBERS = {w.T_TINY, w.T_SHORT, w.T_INT24, w.T_LONG, w.T_LONGLONG, w.T_FLOAT, w.T_DOUBLE, w.T_NEWDECIMAL}
_WITH_CHARSET = w.TEXTUAL - {w.T_VECTOR}
_LOBS = {"tiny": 1, "medium": 3, "long": 4}
_STRINGS = {"char", "varchar", "binary", "varbinary"}
_FIXED = {"uuid": 16, "inet6": 16, "inet4": 4}


def has_minimal_metadata(m: TableMap) -> bool:
    """Check whether a map has the signs and character sets that MINIMAL logs. MariaDB's ``NO_LOG`` has none of them."""
    signed = m.unsigned is not None or not any(t in _NUMBERS for t in m.types)
    texts = bool(m.collations.default or m.collations.numbers)
    return signed and (texts or not any(t in _WITH_CHARSET for t in m.types))


def name_columns(m: TableMap, schema: TableSchema, charsets: Mapping[int, str]) -> TableMap:
    """Return the map with the names of a known schema.

    :param charsets: collation number → character set
    :raises LayoutMismatch: the map and the schema contradict each other
    """
    if len(m.types) != len(schema.columns):
        raise LayoutMismatch(f"the log contains {len(m.types)} columns, but {len(schema.columns)} are known")
    collations = collations_of(m)
    for i, column in enumerate(schema.columns):
        _verify_size(m, i, column, MySqlColumnType.from_column(column), charsets.get(collations.get(i, 0)))
    return replace(m, names=list(schema.column_names))


def _verify_size(m: TableMap, i: int, column: Column, declared: MySqlColumnType, charset: str | None) -> None:
    """Check sizes and character set of a column, which maps with names need not have as declared."""
    if (
        charset is not None
        and declared.charset is not None
        and declared.base in TEXTS
        and _utf8(declared.charset) != _utf8(charset)
    ):
        raise LayoutMismatch(
            f"column {column.name} is known in the character set {declared.charset}, but the log has {charset}"
        )
    logged, known = _sizes(m, i, declared, charset)
    if known is not None and logged != known:
        raise LayoutMismatch(f"column {column.name} has the size {logged} in the log, but {known} is known")


def _sizes(m: TableMap, i: int, declared: MySqlColumnType, charset: str | None) -> tuple[int, int | None]:
    """Return the size of a column in the log, and the one that its declaration leads to; ``None`` if none does."""
    wire, meta, base = m.types[i], m.meta[i], declared.base
    if base in _STRINGS and wire in (w.T_STRING, w.T_VARCHAR, w.T_VARCHAR_COMPRESSED):
        width = greatest_size(charset or declared.charset or "binary") if base in TEXTS else 1
        length = 1 if declared.length is None else declared.length
        # one byte more has room for the way of compression
        return string_length(wire, meta), None if width is None else length * width + (wire == w.T_VARCHAR_COMPRESSED)
    if base in _FIXED:
        return string_length(wire, meta), _FIXED[base]
    if base == "vector" and wire == w.T_VARCHAR:
        return meta, None if declared.length is None else 4 * declared.length
    if base.endswith(("text", "blob")):
        return meta, next((size for name, size in _LOBS.items() if base.startswith(name)), 2)
    if base in SPATIAL or base == "json":
        return meta, 4
    if base == "bit":
        return (meta >> 8) * 8 + (meta & 0xFF), declared.length or 1
    if base == "enum":
        return meta & 0xFF, 1 if len(declared.values) < 256 else 2
    if base == "set":
        size = (len(declared.values) + 7) // 8
        return meta & 0xFF, size if size < 5 else 8
    return 0, None


def _utf8(charset: str) -> str:
    return "utf8mb3" if charset == "utf8" else charset
