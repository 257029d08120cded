"""Columns that get types with less room at the source, which changes nothing in a table: what was said before keeps its value."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_cdc.changelog.pending import Pending, lineage
from spark_jobs.datatypes import holds, spark_type


def with_room(pending: Pending, after: int = 0) -> Pending:
    """Batches whose newest schema has room for the values of all their events, as a table has to which these came one batch after the other.

    :param after: number of the event behind which the table begins
    """
    newest, types = pending.schema, {c.name: c.type for c in pending.schema.columns}
    older = {file.schema_version for _, file in pending.files if file.last_seq > after} - {pending.version}
    for version in sorted(older):
        then = pending.schemas[version]
        for name, origin in lineage(pending, version).items():
            if origin.column is not None and _has_more(type_ := then.column(origin.column).type, types[name]):
                types[name] = type_
    columns = tuple(c.model_copy(update={"type": types[c.name]}) for c in newest.columns)
    if columns == newest.columns:
        return pending
    return replace(pending, room=newest.model_copy(update={"columns": columns}))


def _has_more(wide: str, narrow: str) -> bool:
    a, b = spark_type(wide), spark_type(narrow)
    return a != b and holds(a, b)
