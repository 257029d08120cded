"""The tables' structures as the log goes on: replayed from state at the start, moved on by each schema change.

A row is decoded with the schema in force at its position. The history is part of what a batch commits, so that it never runs
ahead of the offset or behind it (Debezium MySQL connector, "Schema history topic").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.schema import NOT_CAPTURED, Column, TableChange, TableId, TableSchema


class SchemaHistory:
    """Structures by table id; numbers the versions."""

    def __init__(self) -> None:
        self._tables: dict[TableId, TableSchema] = {}
        self._versions: dict[TableId, int] = {}
        self._from_the_first: set[TableId] = set()

    @classmethod
    def replay(cls, records: Iterable[SchemaChangeRecord]) -> SchemaHistory:
        """Build the history from recorded changes, oldest first."""
        history = cls()
        history.reset(records)
        return history

    def reset(self, records: Iterable[SchemaChangeRecord]) -> None:
        """Forget everything and build the history again."""
        self._tables.clear()
        self._versions.clear()
        self._from_the_first.clear()
        for record in records:
            self.leave(record.changes)
            for change in record.changes:
                self._put(change)
                created = change.type == "CREATE" and record.ddl
                if record.snapshot or created or change.previous_id in self._from_the_first:
                    self._from_the_first.add(change.id)

    def get(self, table: TableId) -> TableSchema | None:
        return self._tables.get(table)

    def seen(self, table: TableId) -> bool:
        """Whether the table ever had a structure here, dropped ones included."""
        return table in self._versions

    def from_the_first(self, table: TableId) -> bool:
        """Whether it is recorded that the table was read, or created by a statement of the log. Otherwise its structure was looked up
        in the midst of it, when a change of a table came that was not captured before."""
        return table in self._from_the_first

    @property
    def empty(self) -> bool:
        """Whether no structure was ever recorded."""
        return not self._versions

    @property
    def ever(self) -> list[TableId]:
        """All tables that ever had a structure here, in the order in which they came."""
        return list(self._versions)

    @property
    def tables(self) -> list[TableId]:
        return sorted(self._tables, key=str)

    def leave(self, changes: Iterable[TableChange]) -> None:
        """Take the tables that one statement renames from under their old names, all at once: names may be swapped."""
        for change in changes:
            if change.previous_id is not None and change.previous_id != change.id:
                self._tables.pop(change.previous_id, None)

    def apply(self, change: TableChange) -> TableChange | None:
        """Move on by one change. Returns it with its version, or ``None`` when nothing about the table changed."""
        if change.table is not None:
            known = self._tables.get(change.id)
            if known is not None and known.same_structure(change.table) and change.type == "ALTER" and change.exact:
                return None
            table = change.table.model_copy(update={"version": self._versions.get(change.id, 0) + 1})
            change = change.model_copy(update={"table": table})
        self._put(change)
        return change

    def _put(self, change: TableChange) -> None:
        if change.table is None:
            self._tables.pop(change.id, None)
        else:
            self._tables[change.id] = change.table
            self._versions[change.id] = change.table.version


class CapturedTables:
    """What the log reader may decode now; see :class:`~airflow_provider_cdc.core.source.Tables`.

    :param signals: the signal table, which is read whatever the filters say
    :param again: names of tables that are going to be read whole
    """

    def __init__(
        self,
        filters: Filters,
        history: SchemaHistory,
        signals: TableId | None = None,
        again: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._filters, self._history, self._signals, self._again = filters, history, signals, again
        self._held_back: frozenset[str] = frozenset()

    def hold_back(self, names: Collection[str]) -> None:
        """Leave out the events of these tables: their rows at this place of the log are already part of a snapshot, or will be."""
        self._held_back = frozenset(names)

    def get(self, table: TableId) -> TableSchema | None:
        return self._history.get(table)

    def captured(self, table: TableId) -> bool:
        wanted = self._filters.table(table) or table == self._signals
        return wanted and str(table) not in self._held_back

    def read_again(self, table: TableId) -> bool:
        return str(table) in self._again()

    def known(self) -> list[TableId]:
        return self._history.tables


def rewrite_reason(old: TableSchema | None, change: TableChange) -> str | None:
    """Why rows that are there after a change may hold values that nobody was told of; ``None`` when they do not.

    Widening a number, lengthening a text and adding a column with a known value leave nothing open: a target can do the same.
    A table that is created with rows which the log does not show has them from the first.
    """
    if change.table is None:
        return None
    if not change.exact and (change.type == "CREATE" or old is not None):
        return "rows may hold values that the log does not show"
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
            return f"column {column.name} went from {previous.type} to {column.type}"
    return None


_INTEGERS = ("int8", "int16", "int32", "int64")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")


def _keeps_values(old: Column, new: Column) -> bool:
    """Whether a column's values are the same after a change of type, and a target table can widen its own type likewise."""
    if old.type == new.type:
        return True
    if old.type in _INTEGERS and new.type in _INTEGERS:
        return _INTEGERS.index(old.type) < _INTEGERS.index(new.type)
    if (a := _DECIMAL.fullmatch(old.type)) and (b := _DECIMAL.fullmatch(new.type)):
        scale = int(b[2]) - int(a[2])
        return scale >= 0 and int(b[1]) - int(a[1]) >= scale
    return (old.type, new.type) == ("float", "double")
