"""Columns whose types change between the events of some batches."""

from __future__ import annotations

import re
from dataclasses import replace

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, trace_columns

_WHOLE = ("int8", "int16", "int32", "int64")
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")


def with_room(pending: PendingBatches) -> PendingBatches:
    """Return batches whose newest schema has room for the values of all their events.

    A type with less room changes nothing in a table: rows with larger values may have been there before, and are gone.
    """
    types = {column.name: column.type for column in pending.schema.columns}
    for version in sorted({file.schema_version for _, file in pending.files} - {pending.schema_version}):
        then = pending.schemas[version]
        for name, origin in trace_columns(pending, version).items():
            if origin.column is not None and has_more(type_ := then.get_column(origin.column).type, types[name]):
                types[name] = type_
    columns = tuple(column.model_copy(update={"type": types[column.name]}) for column in pending.schema.columns)
    if columns == pending.schema.columns:
        return pending
    return replace(pending, room=pending.schema.model_copy(update={"columns": columns}))


def has_more(wide: str, narrow: str) -> bool:
    """Check whether a type of the change log has all values of another, and more.

    >>> has_more("int64", "int32"), has_more("decimal128(9, 2)", "decimal128(12, 2)")
    (True, False)
    """
    if wide in _WHOLE and narrow in _WHOLE:
        return _WHOLE.index(wide) > _WHOLE.index(narrow)
    a, b = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    if a is not None and b is not None:
        whole = [int(match[1]) - int(match[2]) for match in (a, b)]
        return wide != narrow and whole[0] >= whole[1] and int(a[2]) >= int(b[2])
    return (wide, narrow) in {("double", "float"), ("timestamp[ns]", "timestamp[us]")}
