"""The table schemas in force as the log goes on: replayed from the state store at the start, updated by each schema change.

A row is decoded with the schema in force at its position. The history is part of what a batch commits, so that it never runs
ahead of the offset or behind it (Debezium MySQL connector, "Schema history topic").
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_cdc.core.model.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.schema import TableChange, TableId, TableSchema


class SchemaHistory:
    """Table schemas by table id; numbers their versions."""

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
        """Whether the table ever had a schema here, dropped tables included."""
        return table in self._versions

    def from_the_first(self, table: TableId) -> bool:
        """Whether it is recorded that the table was read, or created by a statement of the log. Otherwise its schema was looked up
        later, when the log had a change of a table that was not captured before."""
        return table in self._from_the_first

    @property
    def empty(self) -> bool:
        """Whether no schema was ever recorded."""
        return not self._versions

    @property
    def ever(self) -> list[TableId]:
        """All tables that ever had a schema here, in the order of their first one."""
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
        """Apply one change. Returns it with its version, or ``None`` when nothing about the table changed."""
        if change.table is not None:
            known = self._tables.get(change.id)
            if known is not None and known.same_structure(change.table) and change.type == "ALTER" and change.exact:
                return None
            table = change.table.model_copy(update={"version": self._versions.get(change.id, 0) + 1})
            change = change.model_copy(update={"table": table, "dropped": _dropped(known, change)})
        self._put(change)
        return change

    def _put(self, change: TableChange) -> None:
        if change.table is None:
            self._tables.pop(change.id, None)
        else:
            self._tables[change.id] = change.table
            self._versions[change.id] = change.table.version


def _dropped(before: TableSchema | None, change: TableChange) -> tuple[str, ...]:
    if before is None or change.table is None:
        return ()
    stays = {change.renamed.get(name, name) for name in change.table.names}
    return tuple(name for name in before.names if name not in stays)
