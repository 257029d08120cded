"""The effect of a schema change, as lines that people read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
    from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema

    Numbered = tuple[int, SchemaChangeRecord]


_AT_ONCE = 200
"""Changes that are read at once where it is not known how many there are to be read."""


class SchemaChangeStore(Protocol):
    """The store that schema changes are recorded in."""

    def newest_schema_changes(
        self, connector: str, most: int, *, before: int | None = None, naming: Collection[str] = ()
    ) -> list[Numbered]:
        """See :meth:`airflow_provider_cdc.state.state_store.StateStore.newest_schema_changes`."""


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """A schema change.

    :param number: of its record
    :param tables: table → its changes, each a line that begins with ``+``, ``-`` or ``~``
    """

    number: int
    record: SchemaChangeRecord
    tables: dict[str, list[str]]


def newest_differences(
    store: SchemaChangeStore, connector: str, most: int, *, before: int | None = None, table: str = ""
) -> list[SchemaDifference]:
    """Return the newest schema changes with their differences, newest first.

    It reads only as many older changes as the earlier schemas of the tables need, and only those that may concern them.

    :param before: only changes with lower numbers
    :param table: only changes of this table
    """
    rows = _rows(store, connector, most, before, table)
    were = _before(store, connector, rows, table)
    return [
        SchemaDifference(number, record, _changed(record, were[number]))
        for number, record in rows
        if not table or any(_called(change.id, table) for change in record.changes)
    ]


def _rows(store: SchemaChangeStore, connector: str, most: int, before: int | None, table: str) -> list[Numbered]:
    """Read the changes to be shown; of a table all that name it, those that have taken its name away too."""
    if not table:
        return store.newest_schema_changes(connector, most, before=before)
    shown: list[Numbered] = []
    at = before
    while True:
        rows = store.newest_schema_changes(connector, _AT_ONCE, before=at, naming=_names(table))
        for at, record in rows:
            if any(_called(id_, table) for id_ in _left(record)):
                shown.append((at, record))
                most -= any(_called(change.id, table) for change in record.changes)
                if most == 0:
                    return shown
        if len(rows) < _AT_ONCE:
            return shown


def _before(
    store: SchemaChangeStore, connector: str, rows: Sequence[Numbered], table: str
) -> dict[int, dict[TableId, TableSchema | None]]:
    """Return number of a change → the schemas before it of the tables that it continues from.

    :param rows: newest first: without a gap, or all that name the table
    """
    schemas_before: dict[int, dict[TableId, TableSchema | None]] = {number: {} for number, _ in rows}
    sought: dict[TableId, list[int]] = {}
    for number, record in rows:
        for id_, after in _left(record).items():
            if not table or _called(id_, table):
                for waiting in sought.pop(id_, []):
                    schemas_before[waiting][id_] = after
        for id_ in _tables_with_earlier_schemas(record):
            sought.setdefault(id_, []).append(number)
    # of one table's changes, those between them may be about the other tables in them
    at = rows[-1][0] if rows and not table else max((max(numbers) for numbers in sought.values()), default=0)
    while sought:
        older = store.newest_schema_changes(connector, _AT_ONCE, before=at, naming={id_.name for id_ in sought})
        for at, record in older:
            for id_, after in _left(record).items():
                numbers = sought.pop(id_, [])
                for waiting in numbers:
                    if waiting > at:
                        schemas_before[waiting][id_] = after
                if still := [n for n in numbers if n <= at]:
                    sought[id_] = still
        if len(older) < _AT_ONCE:
            break
    return schemas_before


def _left(record: SchemaChangeRecord) -> dict[TableId, TableSchema | None]:
    """Return the schemas of tables after a change that names them, by each of their names."""
    gone = dict.fromkeys(change.previous_id for change in record.changes if change.previous_id is not None)
    return {**gone, **{change.id: change.table for change in record.changes}}


def _tables_with_earlier_schemas(record: SchemaChangeRecord) -> set[TableId]:
    """Tables that had a schema before a change, as far as it matters."""
    return {
        change.previous_id or change.id
        for change in record.changes
        if change.table is not None and (change.previous_id is not None or change.table.version > 1)
    }


def _called(id_: TableId, table: str) -> bool:
    return table in (str(id_), id_.full_name)


def _names(table: str) -> list[str]:
    """Return the possible names of a table in its database, whose name may have dots, too."""
    parts = table.split(".")
    return [".".join(parts[n:]) for n in range(1, len(parts))] or [table]


def _changed(record: SchemaChangeRecord, before: Mapping[TableId, TableSchema | None]) -> dict[str, list[str]]:
    return {
        str(change.id): format_difference(before.get(change.previous_id or change.id), change)
        for change in record.changes
    }


def format_difference(before: TableSchema | None, change: TableChange) -> list[str]:
    """Return the differences that a change has made to one table."""
    after = change.table
    if after is None:
        return ["- the table was dropped"]
    lines = [] if change.previous_id is None else [f"~ the table was renamed from {change.previous_id}"]
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
    lines = [] if before.name == after.name else [f"~ {before.name} was renamed to {after.name}"]
    if (was := type_text(before)) != (now := type_text(after)):
        lines.append(f"~ {after.name} {was} → {now}")
    return lines


def _key(before: tuple[str, ...], after: tuple[str, ...]) -> list[str]:
    if before == after:
        return []
    return [f"~ key ({', '.join(before)}) → ({', '.join(after)})" if before else f"+ key ({', '.join(after)})"]


def type_text(column: Column) -> str:
    """Return a column's type as the database has it."""
    declared = column.declared
    name = declared.type_expression or declared.type_name or column.type
    sizes = [str(n) for n in (declared.length, declared.scale) if n is not None]
    size = f"({', '.join(sizes)})" if sizes and "(" not in name else ""
    return f"{name}{size}{'' if column.nullable else ' not null'}"


__all__ = ["SchemaDifference", "format_difference", "newest_differences", "type_text"]
