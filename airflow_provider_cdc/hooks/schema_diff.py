"""What a schema change has changed, as lines that people read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.manifest import SchemaChangeRecord
    from airflow_provider_cdc.core.model.schema import Column, TableChange, TableId, TableSchema


def differences(records: Iterable[SchemaChangeRecord]) -> Iterator[tuple[SchemaChangeRecord, dict[str, list[str]]]]:
    """Each change, and table → what it has changed there, each line beginning with ``+``, ``-`` or ``~``.

    :param records: all of a connector, oldest first
    """
    known: dict[TableId, TableSchema] = {}
    for record in records:
        found: dict[str, list[str]] = {}
        named = {change.previous_id or change.id for change in record.changes}
        before = {id_: known[id_] for id_ in named & known.keys()}
        for change in record.changes:
            if change.previous_id is not None:
                known.pop(change.previous_id, None)
        for change in record.changes:
            found[str(change.id)] = difference(before.get(change.previous_id or change.id), change)
            if change.table is None:
                known.pop(change.id, None)
            else:
                known[change.id] = change.table
        yield record, found


def difference(before: TableSchema | None, change: TableChange) -> list[str]:
    """What a change has changed of one table."""
    after = change.table
    if after is None:
        return ["- the table is gone"]
    lines = [] if change.previous_id is None else [f"~ the table was called {change.previous_id}"]
    if before is None:
        return [*lines, *(f"+ {column.name} {type_text(column)}" for column in after.columns), *_key((), after.key)]
    earlier = {column.name: column for column in before.columns}
    for column in after.columns:
        was = change.renamed.get(column.name, column.name)
        lines += _column(earlier.pop(was, None), column)
    lines += [f"- {name}" for name in earlier]
    return [*lines, *_key(before.key, after.key)]


def _column(before: Column | None, after: Column) -> list[str]:
    if before is None:
        return [f"+ {after.name} {type_text(after)}"]
    lines = [] if before.name == after.name else [f"~ {before.name} is called {after.name}"]
    if (was := type_text(before)) != (now := type_text(after)):
        lines.append(f"~ {after.name} {was} → {now}")
    return lines


def _key(before: tuple[str, ...], after: tuple[str, ...]) -> list[str]:
    if before == after:
        return []
    return [f"~ key ({', '.join(before)}) → ({', '.join(after)})" if before else f"+ key ({', '.join(after)})"]


def type_text(column: Column) -> str:
    """A column's type as the database has it."""
    declared = column.declared
    name = declared.type_expression or declared.type_name or column.type
    sizes = [str(n) for n in (declared.length, declared.scale) if n is not None]
    size = f"({', '.join(sizes)})" if sizes and "(" not in name else ""
    return f"{name}{size}{'' if column.nullable else ' not null'}"


__all__ = ["difference", "differences", "type_text"]
