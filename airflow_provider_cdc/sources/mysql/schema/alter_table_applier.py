"""A table's structure after an ALTER TABLE.

Servers apply the actions as a whole: the character set first; then columns, looked up by the names they had before; then new and
moved ones into their places, one by one; conversion and keys last (``ddl.AlterTable``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableSchema
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.column_types import TEXTS, MySqlColumnType
from airflow_provider_cdc.sources.mysql.schema.ddl_row_effects import (
    existing_rows,
    expressions_see_no_change,
    keeps_members_converted,
    keeps_values,
)
from airflow_provider_cdc.sources.relational.alter_table_change import AlteredColumn, build_alter_change


@dataclass(slots=True)
class TableAlterationResult:
    """The result of an ALTER TABLE for a table.

    :param keys_unknown: the row key may be one that neither the statement nor the old structure shows
    """

    change: TableChange
    keys_unknown: bool


@dataclass(slots=True)
class AlterTableApplier:
    """An ALTER TABLE on one table.

    :param make: builds a column from its definition, given the table's character set and whether it may not be null
    :param comments: comments are part of structures
    :param strict: the session refused to bend values that do not fit
    :param numbers_zeros: the session gives the next number to a zero in a column that becomes AUTO_INCREMENT
    :param present: the table as the catalog has it now, and the expressions of its generated columns; ``None`` if it does not exist
    """

    known: TableSchema
    statement: ddl.AlterTable
    make: Callable[[ddl.ColumnDef, str | None, bool], Column]
    database_charset: Callable[[], str | None]
    strict: bool
    numbers_zeros: bool
    comments: bool
    present: Callable[[], tuple[TableSchema, Mapping[str, str]] | None]
    charset: str | None = field(init=False)
    columns: list[AlteredColumn] = field(default_factory=list)
    exact: bool = True
    added: dict[str, str | None] = field(default_factory=dict)

    def apply(self) -> TableAlterationResult:
        actions = self.statement.actions
        self.charset = self.known.charset
        for action in actions:
            if isinstance(action, ddl.TableCharset | ddl.ConvertCharset):
                self.charset = charset_of(action.charset, action.collation) or self.database_charset()
        self._existing(actions)
        self._new_and_moved(actions)
        self._defaults(actions)
        for action in actions:
            if isinstance(action, ddl.AddPeriod):
                self._not_null(action.columns)
        if any(isinstance(a, ddl.ConvertCharset) for a in actions):
            self._convert()
        self.exact = self.exact and self._keeps_generated()
        self.exact &= not any(isinstance(a, ddl.PartitionDataChange) for a in actions)
        key, unknown = self._key(actions)
        return TableAlterationResult(self._change(key), unknown)

    def _existing(self, actions: tuple[ddl.Action, ...]) -> None:
        """Columns that were there: dropped, changed, renamed or as they were, each in its place."""
        dropped = {a.name.lower() for a in actions if isinstance(a, ddl.DropColumn)}
        changed = {a.old.lower(): a for a in actions if isinstance(a, ddl.ChangeColumn)}
        renamed = {a.old.lower(): a.new for a in actions if isinstance(a, ddl.RenameColumn)}
        for old in self.known.columns:
            name = old.name.lower()
            if name in dropped:
                continue
            column = old
            if name in changed:
                column = self.make(changed[name].column, self.charset, old.name in self.known.key)
                self.exact &= keeps_values(old, column, strict=self._refused, numbers_zeros=self.numbers_zeros)
            elif name in renamed:
                column = old.model_copy(update={"name": renamed[name]})
            self.columns.append(AlteredColumn(column, old))

    def _new_and_moved(self, actions: tuple[ddl.Action, ...]) -> None:
        taken = {c.name.lower() for c in self.known.columns}
        for action in actions:
            if isinstance(action, ddl.AddColumn):
                if action.if_not_exists and action.column.name.lower() in taken:
                    continue
                taken.add(action.column.name.lower())
                new = self.make(action.column, self.charset, False)
                self._insert(AlteredColumn(new, None), action)
            elif isinstance(action, ddl.ChangeColumn) and (action.first or action.after is not None):
                moved = next((p for p in self.columns if p.before and _origin(p) == action.old.lower()), None)
                if moved is not None:
                    self.columns.remove(moved)
                    self._insert(moved, action)

    def _insert(self, item: AlteredColumn, action: ddl.AddColumn | ddl.ChangeColumn) -> None:
        at = 0 if action.first else len(self.columns)
        if action.after is not None:
            names = [p.column.name.lower() for p in self.columns]
            at = names.index(action.after.lower()) + 1 if action.after.lower() in names else at
        self.columns.insert(at, item)

    def _defaults(self, actions: tuple[ddl.Action, ...]) -> None:
        for action in actions:
            if isinstance(action, ddl.SetDefault):
                for item in self.columns:
                    if _origin(item) == action.column.lower():
                        default = action.default or ddl.MySqlColumnDefault(None)
                        update = {"default": default.value, "default_is_expression": default.is_expression}
                        declared = item.column.declared.model_copy(update=update)
                        item.column = item.column.model_copy(update={"declared": declared})

    def _convert(self) -> None:
        """``CONVERT TO CHARACTER SET``: texts keep their characters where the new set has them all, and TEXT types grow."""
        for item in self.columns:
            type_ = MySqlColumnType.from_column(item.column)
            if type_.base in TEXTS:
                now = ddl.convert_charset(
                    ddl.ColumnDef("", type_.base, type_.length, charset=type_.charset), self.charset or ""
                )
                name = now.type.upper() if now.type in TEXTS else item.column.declared.type_name
                update = {"charset": self.charset, "type_name": name, "type_expression": name}
                item.column = item.column.model_copy(
                    update={"declared": item.column.declared.model_copy(update=update)}
                )
                self.exact &= keeps_values(item.before or item.column, item.column, strict=self._refused)
            elif type_.base in ("enum", "set"):
                self.exact &= keeps_members_converted(type_, self.charset)
                declared = item.column.declared.model_copy(update={"charset": self.charset})
                item.column = item.column.model_copy(update={"declared": declared})

    def _keeps_generated(self) -> bool:
        """Check whether generated columns have the values that they had.

        They have if no column that one is made of shows its expression something else.

        Which those are only the catalog says, if the table is still as the statement has left it.
        """
        stay = [p for p in self.columns if p.before is not None]
        if not any(p.column.declared.generated for p in stay):
            return True
        changed = {
            name.lower()
            for p in stay
            if p.before is not None and p.column is not p.before and not expressions_see_no_change(p.before, p.column)
            for name in (p.column.name, p.before.name)
            if self._defined(p)
        }
        present = self.present() if changed else None
        if present is None:
            return not changed
        schema, expressions = present
        if [(c.name, c.type) for c in schema.columns] != [(p.column.name, p.column.type) for p in self.columns]:
            return False
        return not any(changed & _words(text) for text in expressions.values())

    def _defined(self, item: AlteredColumn) -> bool:
        """Check whether the statement defines the column, instead of changing its name or default alone."""
        before = item.before
        assert before is not None
        return MySqlColumnType.from_column(before) != MySqlColumnType.from_column(item.column) or any(
            isinstance(a, ddl.ConvertCharset)
            or (isinstance(a, ddl.ChangeColumn) and a.old.lower() == before.name.lower())
            for a in self.statement.actions
        )

    @property
    def _refused(self) -> bool:
        """Check whether a value that does not fit would have failed."""
        return self.strict and not self.statement.ignore

    def _key(self, actions: tuple[ddl.Action, ...]) -> tuple[tuple[str, ...], bool]:
        """Return the row key, and whether it is uncertain."""
        for action in actions:
            primary: tuple[str, ...] = ()
            if isinstance(action, ddl.AddKey) and action.kind == "primary":
                primary = action.columns
            elif isinstance(action, ddl.AddColumn | ddl.ChangeColumn) and action.column.primary:
                primary = (action.column.name,)
            if primary:
                return self._not_null(primary), False
        touched = any(isinstance(a, ddl.DropKey | ddl.AddKey) or self._unique(a) for a in actions) or self._rebuilt()
        by_origin = {_origin(p): p.column.name for p in reversed(self.columns)}
        key = tuple(by_origin[k.lower()] for k in self.known.key if k.lower() in by_origin)
        if any(isinstance(a, ddl.DropKey) and a.kind == "primary" for a in actions):
            return (), True
        return key, touched or len(key) < len(self.known.key)

    def _rebuilt(self) -> bool:
        """Check whether a part of the key has another type now, or a name that another column had.

        Then the key may have become one over a prefix, or one over another column (see ``ddl.AlterTable``).
        """
        for item in self.columns:
            if item.before is not None and item.before.name in self.known.key:
                if MySqlColumnType.from_column(item.before).base != MySqlColumnType.from_column(item.column).base:
                    return True
            elif item.column.name.lower() in {k.lower() for k in self.known.key}:
                return True
        return False

    @staticmethod
    def _unique(action: ddl.Action) -> bool:
        return isinstance(action, ddl.AddColumn | ddl.ChangeColumn) and action.column.unique

    def _not_null(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Columns of a primary key or a period, as they are spelled; none of them may be null."""
        spelled = []
        for name in names:
            for item in self.columns:
                if item.column.name.lower() == name.lower():
                    item.column = item.column.model_copy(update={"nullable": False})
                    spelled.append(item.column.name)
        return tuple(spelled)

    def _change(self, key: tuple[str, ...]) -> TableChange:
        for item in self.columns:
            if item.before is None:
                fill = existing_rows(item.column)
                if fill is None:
                    self.exact = False
                else:
                    self.added[item.column.name] = fill.value
        update: dict[str, object] = {"key": key, "charset": self.charset}
        for action in self.statement.actions if self.comments else ():
            if isinstance(action, ddl.TableComment):
                update["comment"] = action.text or None
        # a new unique key of ALTER IGNORE removes rows that the log does not name
        exact = self.exact and not (
            self.statement.ignore and any(isinstance(a, ddl.AddKey) for a in self.statement.actions)
        )
        return build_alter_change(self.known, self.columns, added=self.added, exact=exact, update=update)


def _words(expression: str) -> set[str]:
    """Names and other words of an expression, in lower case."""
    return {(quoted or word).lower() for quoted, word in re.findall(r"`((?:[^`]|``)+)`|([\w$]+)", expression)}


def _origin(item: AlteredColumn) -> str:
    """Return the name that a column had before the statement; of a new one, the name that it has."""
    return (item.before or item.column).name.lower()


def charset_of(charset: str | None, collation: str | None) -> str | None:
    """Return the character set that is named, or that a collation's name begins with."""
    if charset is not None:
        return charset.lower()
    return collation.partition("_")[0].lower() if collation and "_" in collation else None
