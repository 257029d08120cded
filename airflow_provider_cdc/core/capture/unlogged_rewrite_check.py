"""Decides whether a schema change may have rewritten rows in a way that the log does not show."""

from __future__ import annotations

import re

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableChange, TableSchema


def rewrite_reason(old: TableSchema | None, change: TableChange) -> str | None:
    """Why a schema change may have rewritten rows without row events; ``None`` if it has not.

    Widening a number, lengthening a text and adding a column with a known value are no reason: a target can do the same.
    Creating a table with rows that the log does not have is one.
    """
    if change.table is None:
        return None
    if not change.exact and (change.type == "CREATE" or old is not None):
        return "rows may have values that the log does not contain"
    if old is None:
        return None
    before = {c.name: c for c in old.columns}
    for column in change.table.columns:
        if column.name in change.added:
            continue
        if column.type == NOT_CAPTURED:
            continue
        previous = before.get(change.renamed.get(column.name, column.name))
        if previous is None:
            return f"the value of the new column {column.name} in existing rows is not known"
        if not _keeps_values(previous, column):
            return f"column {column.name} was changed from {previous.type} to {column.type}"
    return None


_INTEGERS = ("int8", "int16", "int32", "int64")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")


def _keeps_values(old: Column, new: Column) -> bool:
    """Return whether values survive a change of type, and a target table can widen its own type in the same way."""
    if old.type == new.type:
        return True
    if old.type in _INTEGERS and new.type in _INTEGERS:
        return _INTEGERS.index(old.type) < _INTEGERS.index(new.type)
    if (a := _DECIMAL.fullmatch(old.type)) and (b := _DECIMAL.fullmatch(new.type)):
        scale = int(b[2]) - int(a[2])
        return scale >= 0 and int(b[1]) - int(a[1]) >= scale
    return (old.type, new.type) == ("float", "double")
