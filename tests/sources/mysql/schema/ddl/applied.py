"""A table that statements are applied to, the way the servers do it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from airflow_provider_cdc.sources.mysql.schema.ddl import (
    Action,
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    ColumnDef,
    ConvertCharset,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropKey,
    RenameColumn,
    RenameIndex,
    SetDefault,
    Statement,
    TableCharset,
    convert_charset,
    resolve_charset,
    typed_default,
)

PRIMARY = "PRIMARY"


@dataclass
class Table:
    """Columns and keys of a table, kept up to date by statements."""

    charset: str
    collation: str | None = None
    columns: list[ColumnDef] = field(default_factory=list)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, statement: Statement) -> None:
        """Change the table as the statement says."""
        match statement:
            case CreateTable():
                self._create(statement)
            case AlterTable():
                self._alter(statement.actions)
            case CreateIndex():
                if statement.unique:
                    self._add_key(AddKey("unique", statement.columns, statement.usable, statement.name))
            case DropIndex():
                self.keys.pop(statement.name, None)
            case _:
                raise AssertionError(f"not understood: {statement}")

    def _create(self, statement: CreateTable) -> None:
        self._set_charset(statement.charset, statement.collation)
        self.columns = [self._resolved(c) for c in statement.columns]
        if statement.primary_key:
            self._add_key(AddKey("primary", statement.primary_key))
        for columns, name in zip(statement.unique_keys, statement.unique_key_names, strict=True):
            self._add_key(AddKey("unique", columns, True, name))

    def _set_charset(self, charset: str | None, collation: str | None) -> None:
        if charset:
            self.charset, self.collation = charset, collation

    def _resolved(self, column: ColumnDef) -> ColumnDef:
        return resolve_charset(column, self.charset, self.collation)

    def _add_key(self, key: AddKey) -> None:
        columns = tuple(self._column(c).name for c in key.columns)
        if key.kind == "primary":
            self.keys[PRIMARY] = columns
            for name in columns:
                self._replace(name, replace(self._column(name), nullable=False))
        elif key.usable:
            self.keys[key.name or f"?{len(self.keys)}"] = columns

    def _column(self, name: str) -> ColumnDef:
        return next(c for c in self.columns if c.name.lower() == name.lower())

    def _has(self, name: str) -> bool:
        return any(c.name.lower() == name.lower() for c in self.columns)

    def _replace(self, name: str, column: ColumnDef) -> None:
        at = self.columns.index(self._column(name))
        self.columns[at] = column

    def _alter(self, actions: tuple[Action, ...]) -> None:
        """All of a statement at once, the way the servers do it.

        The table's character set first: it is that of new columns wherever it stands. Then the existing columns are
        gone through with the names they had before, each staying where it is, and only then new and moved ones are put
        into their places, in order; ``AFTER`` means names as they are afterwards.
        """
        for action in actions:
            if isinstance(action, TableCharset):
                self._set_charset(action.charset, action.collation)
            elif isinstance(action, ConvertCharset):
                assert action.charset
                self._set_charset(action.charset, action.collation)
            elif isinstance(action, DropKey):
                self.keys.pop(PRIMARY if action.kind == "primary" else action.name or "", None)
        self._alter_columns(actions)
        for action in actions:
            if isinstance(action, ConvertCharset):
                self.columns = [convert_charset(c, action.charset or "", action.collation) for c in self.columns]
            elif isinstance(action, RenameIndex) and action.old in self.keys:  # unless it went with its columns
                self.keys[action.new] = self.keys.pop(action.old)
            elif isinstance(action, AddColumn | ChangeColumn):
                if action.column.primary:
                    self._add_key(AddKey("primary", (action.column.name,)))
                if action.column.unique:
                    self._add_key(AddKey("unique", (action.column.name,)))
            elif isinstance(action, AddKey):
                self._add_key(action)

    def _alter_columns(self, actions: tuple[Action, ...]) -> None:
        dropped = {a.name.lower() for a in actions if isinstance(a, DropColumn)}
        changed = {a.old.lower(): a for a in actions if isinstance(a, ChangeColumn)}
        renamed = {a.old.lower(): a.new for a in actions if isinstance(a, RenameColumn)}
        defaults = {a.column.lower(): a for a in actions if isinstance(a, SetDefault)}
        before = {c.name.lower(): c for c in self.columns}
        placed: list[PlacedColumn] = []
        for old, column in before.items():
            if old in dropped:
                continue
            if (change := changed.get(old)) is not None:
                column = self._kept(self._resolved(change.column), column)
            elif old in renamed:
                column = replace(column, name=renamed[old])
            placed.append(PlacedColumn(old, column))
        new: set[str] = set()
        for action in actions:
            if isinstance(action, AddColumn):
                added = self._resolved(action.column)
                if not (action.if_not_exists and added.name.lower() in before.keys() | new):
                    place_column(placed, PlacedColumn(added.name.lower(), added), action)
                new.add(added.name.lower())
                continue
            if isinstance(action, ChangeColumn):
                new.add(action.column.name.lower())
            if isinstance(action, ChangeColumn) and (action.first or action.after) and action.old.lower() in before:
                moved = next(p for p in placed if p.origin == action.old.lower())
                placed.remove(moved)
                place_column(placed, moved, action)
        for item in placed:
            if (alter := defaults.get(item.origin)) is not None:
                default = typed_default(alter.default, item.column) if alter.default else None
                item.column = replace(item.column, default=default)
        self.columns = [p.column for p in placed]
        # A key's part goes to the first column that had its name or, if it is new, has it now.
        found = {
            key: [next((p.column.name for p in placed if p.origin == part.lower()), "") for part in parts]
            for key, parts in self.keys.items()
        }
        self.keys = {key: tuple(filter(None, parts)) for key, parts in found.items() if any(parts)}
        for name in self.keys.get(PRIMARY, ()):
            self._replace(name, replace(self._column(name), nullable=False))

    def _kept(self, column: ColumnDef, old: ColumnDef) -> ColumnDef:
        """A changed column of the primary key stays NOT NULL."""
        key = {name.lower() for name in self.keys.get(PRIMARY, ())}
        return replace(column, nullable=False) if old.name.lower() in key else column


@dataclass
class PlacedColumn:
    """A column of the table after the statement, and the name it had before (new columns: has)."""

    origin: str
    column: ColumnDef


def place_column(columns: list[PlacedColumn], new: PlacedColumn, action: AddColumn | ChangeColumn) -> None:
    """Put a new or moved column where the action wants it."""
    at = len(columns)
    if action.first:
        at = 0
    elif action.after:
        at = 1 + next(i for i, p in enumerate(columns) if p.column.name.lower() == (action.after or "").lower())
    columns.insert(at, new)
