"""A table's structure after an ALTER TABLE: the clauses take effect in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_cdc.core.model.table_schema import TableChange, TableSchema
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL
from airflow_provider_cdc.sources.oracle.schema.ddl_column_builder import DdlColumnBuilder
from airflow_provider_cdc.sources.oracle.schema.ddl_row_effects import existing_rows, keeps_values
from airflow_provider_cdc.sources.relational.alter_table_change import AlteredColumn, build_alter_change


@dataclass(slots=True)
class AlterTableResult:
    """The result of an ALTER TABLE for a table.

    :param unknown: why the row key may be one that follows neither from the statement nor from the old structure
    :param missing: columns named by the statement that the old structure has not: it cannot be trusted
    """

    change: TableChange
    unknown: str | None
    missing: tuple[str, ...]


@dataclass(slots=True)
class TableAlteration:
    """An ALTER TABLE statement, applied to one table.

    :param definitions: makes columns of their definitions
    """

    known: TableSchema
    statement: ddl.AlterTable
    definitions: DdlColumnBuilder
    columns: list[AlteredColumn] = field(default_factory=list)
    key: tuple[str, ...] = ()
    exact: bool = True
    added: dict[str, str | None] = field(default_factory=dict)
    unknown: str | None = None
    missing: list[str] = field(default_factory=list)

    def apply(self) -> AlterTableResult:
        self.columns = [AlteredColumn(c, c) for c in self.known.columns]
        self.key = self.known.key
        for action in self.statement.actions:
            self._action(action)
        return AlterTableResult(self._change(), self.unknown, tuple(self.missing))

    def _action(self, action: ddl.Action) -> None:
        match action:
            case ddl.AddColumn():
                self._add(action.column)
            case ddl.ModifyColumn():
                self._modify(action.column)
            case ddl.DropColumn():
                self._drop(action.name)
            case ddl.RenameColumn():
                self._rename(action.old, action.new)
            case ddl.AddKey():
                self._add_key(action.key)
            case ddl.KeysChanged():
                self.key = () if action.primary else self.key
                self.unknown = action.clause
            case ddl.ChangePartitionData():
                self.exact = False
            case _:
                pass

    def _find(self, name: str) -> AlteredColumn | None:
        column = next((p for p in self.columns if p.column.name == name), None)
        if column is None:
            self.missing.append(name)
        return column

    def _add(self, definition: ddl.ColumnDefinition) -> None:
        if any(p.column.name == definition.name for p in self.columns):
            # the structure is ahead of the statement: the earlier column is not known any more
            self.missing.append(definition.name)
            return
        column = self.definitions.build_column(definition)
        fill = existing_rows(column, definition)
        if fill is not None:
            self.added[column.name] = fill.value
        self.columns.append(AlteredColumn(column, None))

    def _modify(self, definition: ddl.ColumnDefinition) -> None:
        item = self._find(definition.name)
        if item is None:
            return
        old = item.column
        item.column = self.definitions.build_column(definition, old)
        self.exact &= keeps_values(old, item.column, definition)
        if definition.visible is not None:  # shown or hidden, its number is the last one, or none
            self.columns.remove(item)
            self.columns.append(item)
        if item.column.nullable != old.nullable and (old.name in self.key or not self.key):
            self.unknown = f"whether {old.name} may be null has changed"
        if old.name in self.key and item.column.type == NULL:
            self.unknown = f"{old.name} can no longer be captured"

    def _drop(self, name: str) -> None:
        item = self._find(name)
        if item is None:
            return
        self.columns.remove(item)
        self.added.pop(name, None)
        if name in self.key:
            self.key = ()
            self.unknown = f"{name} was part of the key"

    def _rename(self, old: str, new: str) -> None:
        item = self._find(old)
        if item is None:
            return
        item.column = item.column.model_copy(update={"name": new})
        self.key = tuple(new if name == old else name for name in self.key)
        if old in self.added:
            self.added[new] = self.added.pop(old)

    def _add_key(self, key: ddl.KeyDefinition) -> None:
        items = [p for name in key.columns if (p := self._find(name)) is not None]
        usable = len(items) == len(key.columns) and all(p.column.type != NULL for p in items)
        if key.kind == "primary" and key.enabled and usable:
            for item in items:
                item.column = item.column.model_copy(update={"nullable": False})
            self.key, self.unknown = key.columns, None
            return
        self.unknown = f"a new {key.kind} key"
        if key.enabled and usable and not self.key and not any(p.column.nullable for p in items):
            self.key = key.columns

    def _change(self) -> TableChange:
        return build_alter_change(
            self.known, self.columns, added=self.added, exact=self.exact, update={"key": self.key}
        )
