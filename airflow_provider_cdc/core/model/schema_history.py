"""The table schemas in force as the log advances: replayed from the state store at the start, updated by each schema change.

A row is decoded with the schema in force at its position. The history is part of what a batch commits, so that it never runs
ahead of the offset or behind it (Debezium MySQL connector, "Schema history topic").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict

from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema


class CompactedSchema(BaseModel):
    """History of one table's schema.

    :param version: of its last schema
    :param table: its schema; ``None`` if there is no such table any more
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: TableId
    version: int
    table: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """A history as it is stored: the result of the older changes, and the changes since.

    :param base: in the order of the tables' first schemas; empty as long as no base was made
    :param changes: oldest first
    :param upto: number of the last change; 0 if there is none
    """

    base: Sequence[CompactedSchema] = ()
    changes: Sequence[SchemaChangeRecord] = ()
    upto: int = 0


class SchemaHistory:
    """Table schemas by table id; numbers their versions."""

    def __init__(self) -> None:
        self._tables: dict[TableId, TableSchema] = {}
        self._versions: dict[TableId, int] = {}

    @classmethod
    def from_stored(cls, stored: StoredSchemas) -> Self:
        """Build the history that is stored."""
        history = cls()
        history.load_stored(stored)
        return history

    def load_stored(self, stored: StoredSchemas) -> None:
        """Forget everything, and take the history that is stored."""
        self.replay_records(())
        for stored_table in stored.base:
            self._versions[stored_table.id] = stored_table.version
            if stored_table.table is not None:
                self._tables[stored_table.id] = stored_table.table
        self._replay(stored.changes)

    def build_base(self) -> list[CompactedSchema]:
        """List the facts that :meth:`load_stored` needs of every table instead of all changes so far."""
        return [
            CompactedSchema(id=id_, version=version, table=self._tables.get(id_))
            for id_, version in self._versions.items()
        ]

    @classmethod
    def from_records(cls, records: Iterable[SchemaChangeRecord]) -> SchemaHistory:
        """Build the history from recorded changes, oldest first."""
        history = cls()
        history.replay_records(records)
        return history

    def replay_records(self, records: Iterable[SchemaChangeRecord]) -> None:
        """Forget everything and build the history again."""
        self._tables.clear()
        self._versions.clear()
        self._replay(records)

    def _replay(self, records: Iterable[SchemaChangeRecord]) -> None:
        for record in records:
            self.remove_renamed(record.changes)
            for change in record.changes:
                self._put(change)

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self._tables.get(table)

    def has_seen_table(self, table: TableId) -> bool:
        """Check whether the table ever had a schema here, dropped tables included."""
        return table in self._versions

    @property
    def is_empty(self) -> bool:
        """True if no schema was ever recorded."""
        return not self._versions

    @property
    def ever_known_tables(self) -> list[TableId]:
        """All tables that ever had a schema here, in the order of their first one."""
        return list(self._versions)

    @property
    def current_tables(self) -> list[TableId]:
        return sorted(self._tables, key=str)

    def remove_renamed(self, changes: Iterable[TableChange]) -> None:
        """Take the tables that one statement renames from under their old names, all at once: names may be swapped."""
        for change in changes:
            if change.previous_id is not None and change.previous_id != change.id:
                self._tables.pop(change.previous_id, None)

    def apply_change(self, change: TableChange) -> TableChange | None:
        """Apply one change. Returns it with its version, or ``None`` when nothing about the table changed."""
        if change.table is not None:
            before = self._tables.get(change.id)
            same = before is not None and before.same_description(change.table) and change.type == "ALTER"
            same = same and before is not None and before.provisional == change.table.provisional
            same = same and before is not None and before.converted == change.table.converted
            if same and change.exact and not _moves_values(before, change):
                return None
            table = change.table.model_copy(update={"version": self._versions.get(change.id, 0) + 1})
            change = change.model_copy(update={"table": table, "dropped": _dropped(before, change)})
        self._put(change)
        return change

    def _put(self, change: TableChange) -> None:
        if change.table is None:
            self._tables.pop(change.id, None)
        else:
            self._tables[change.id] = change.table
            self._versions[change.id] = change.table.version


def _moves_values(before: TableSchema | None, change: TableChange) -> bool:
    """Return whether existing rows have other values under the same names: a column was made again, or columns swapped their names.

    A structure that is newer than the log has columns already that a statement adds, or renames to.
    """
    former = {*change.renamed.values()}
    return before is not None and bool(change.dropped or (former and former <= {*before.column_names}))


def _dropped(before: TableSchema | None, change: TableChange) -> tuple[str, ...]:
    if before is None or change.table is None:
        return ()
    stays = {change.renamed.get(name, name) for name in change.table.column_names} - {*change.dropped}
    return tuple(name for name in before.column_names if name not in stays)
