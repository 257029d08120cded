"""Finds the earlier names of a table, by the recorded schema changes, and the earlier names of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_provider_cdc.changelog.row_history.row_key import Names, compose_names, find_column_name
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId

Recorded = tuple[int, SchemaChangeRecord]
"""A schema change with its batch."""
History = Callable[[TableId], Sequence[Recorded]]
"""All recorded schema changes that concern a name of a table, oldest first."""


@dataclass(frozen=True, slots=True)
class TableNamePeriod:
    """The time in which a table had one name.

    :param after: it begins after this ``seq``; -1 = with the log
    :param before: it ends before this one; ``None`` = it has not ended
    :param changes: of the table, newest first; that which gave it its name among them
    :param names: version → columns, as they were called at the end → their names in it
    :param oldest: the same, in all versions before these
    :param came_from: the name before
    :param names_then: columns as they were called at the end → their names under that
    :param other: another table had the name before, and is called so now
    """

    table: TableId
    after: int
    before: int | None
    changes: tuple[tuple[int, SchemaChangeRecord, TableChange], ...] = ()
    names: dict[int, Names] = field(default_factory=dict)
    oldest: Names = field(default_factory=dict)
    came_from: TableId | None = None
    names_then: Names = field(default_factory=dict)
    other: TableId | None = None

    def names_in(self, version: int) -> Names:
        """Return the names that columns had in a version."""
        return self.names.get(version, {} if self.names and version > max(self.names) else self.oldest)

    def has_seq(self, seq: int) -> bool:
        """Check whether a ``seq`` is in the reign."""
        return seq > self.after and (self.before is None or seq < self.before)


def reign_of(history: History, table: TableId, before: int | None) -> TableNamePeriod:
    """Return the newest time of a name, or that which ended before a ``seq``."""
    names: dict[int, Names] = {}
    changes: list[tuple[int, SchemaChangeRecord, TableChange]] = []
    now: Names = {}
    newer_found = before is not None
    for batch, record in reversed(history(table)):
        if before is not None and record.seq >= before:
            continue
        own = next((table_change for table_change in record.changes if table_change.id == table), None)
        away = next(
            (
                table_change
                for table_change in record.changes
                if table_change.previous_id == table and table_change.id != table
            ),
            None,
        )
        if own is None:
            if away is None:
                continue
            if newer_found:  # the table that had the name then is another one
                return TableNamePeriod(table, record.seq, before, tuple(changes), names, now, other=away.id)
            changes.append((batch, record, away))
            newer_found = True
            continue
        changes.append((batch, record, own))
        newer_found = True
        if own.table is not None:
            names[own.table.version] = now
        now = compose_names(now, _backwards(own))
        if own.previous_id is not None and own.previous_id != table:
            return TableNamePeriod(
                table, record.seq, before, tuple(changes), names, now, came_from=own.previous_id, names_then=now
            )
    return TableNamePeriod(table, -1, before, tuple(changes), names, now)


def _backwards(change: TableChange) -> Names:
    """Columns after a change → their names before."""
    return {**dict.fromkeys(change.added, None), **change.renamed}


__all__ = ["History", "Recorded", "TableNamePeriod", "find_column_name", "reign_of"]
