"""Comparison of a structure in the schema history with the catalog: of all that rows without column names need."""

from __future__ import annotations

from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.sources.mysql.schema.column_types import INTEGERS, SPATIAL, TEXTS, MySqlColumnType

_TEMPORAL = {"time", "datetime", "timestamp"}


def find_difference(known: TableSchema | None, present: TableSchema | None) -> str | None:
    """Return the first difference in names, types, members or key; ``None`` if there is none.

    Defaults, comments, display widths and collations do not count: rows are decoded without them.

    :param known: the structure in the schema history; ``None``: there is no such table
    :param present: the structure in the catalog
    """
    if known is None or present is None:
        return None if known is present else f"the table {'exists' if known is None else 'does not exist'}"
    if known.column_names != present.column_names:
        return f"its columns are {', '.join(present.column_names)}, and known are {', '.join(known.column_names)}"
    for ours, theirs in zip(known.columns, present.columns, strict=True):
        if _shape(ours) != _shape(theirs):
            return f"column {ours.name} is {_spell(theirs)}, and known as {_spell(ours)}"
    if known.key != present.key:
        return f"its key is ({', '.join(present.key)}), and known is ({', '.join(known.key)})"
    return None


def _shape(column: Column) -> tuple[object, ...]:
    t = MySqlColumnType.from_column(column)
    base = "geometry" if t.base in SPATIAL else "longtext" if t.base == "json" else t.base
    rest: object = None
    if base in INTEGERS or base in ("float", "double"):
        rest = t.unsigned
    elif base == "decimal":
        rest = t.precision_and_scale, t.unsigned
    elif base in _TEMPORAL:
        rest = t.fraction_digits
    elif base in ("enum", "set"):
        rest = t.values
    elif base in ("bit", "char", "binary"):
        rest = 1 if t.length is None else t.length
    elif base in ("varchar", "varbinary", "vector"):
        rest = t.length
    charset = "utf8mb3" if t.charset == "utf8" else t.charset
    return base, rest, charset if t.base in TEXTS else None, column.nullable


def _spell(column: Column) -> str:
    t = MySqlColumnType.from_column(column)
    members = f"({', '.join(t.values)})" if t.values else f"({t.length})" if t.length is not None else ""
    parts = [t.base + members, "unsigned" if t.unsigned else "", t.charset or "", "" if column.nullable else "not null"]
    return " ".join(filter(None, parts))
