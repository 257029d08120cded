"""What a DDL statement in the log does to the captured tables.

The reader in ``ddl`` says what a statement is; here it meets the structures in force. Where it does not suffice, the catalogue
is read, which may already be ahead of the log: the row metadata in the log has the last word (``tables.py``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from airflow_provider_cdc.core.schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import ddl
from airflow_provider_cdc.sources.mysql.catalogue import captured_column, row_key
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.tables import SYSTEM_DATABASES
from airflow_provider_cdc.sources.mysql.types import BLOBS, INTEGERS, TEXTS, ColumnType

log = logging.getLogger(__name__)

_UNICODE = {"utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "ucs2"}
_TEXT_SIZES = {"char": 0, "varchar": 1, "tinytext": 2, "text": 3, "mediumtext": 4, "longtext": 5}
_BLOB_SIZES = {"varbinary": 1, "tinyblob": 2, "blob": 3, "mediumblob": 4, "longblob": 5}


@dataclass(slots=True)
class Found:
    """What a statement means for captured tables."""

    changes: list[TableChange] = field(default_factory=list)
    truncated: list[TableId] = field(default_factory=list)


class SchemaReader:
    """Applies DDL statements to the structures in force.

    :param catalogue: reads a table's present structure, ``None`` when it does not exist
    :param database_charset: default character set of a database
    """

    def __init__(
        self,
        config: MySqlConfig,
        tables: Tables,
        catalogue: Callable[[TableId], TableSchema | None],
        database_charset: Callable[[str], str | None],
    ) -> None:
        self._config, self._tables, self._catalogue, self._charset = config, tables, catalogue, database_charset

    def read(self, statement: ddl.Statement, query: b.Query, where: str) -> Found | None:
        """What the statement changes; ``None`` when it does not concern captured tables."""
        found = Found()
        match statement:
            case ddl.CreateTable():
                self._create(statement, query, found)
            case ddl.AlterTable():
                self._alter(statement, query, found)
            case ddl.DropTable(temporary=False):
                for name in statement.tables:
                    self._drop(self._id(name, query), found)
            case ddl.RenameTable():
                self._rename(statement.pairs, query, found)
            case ddl.TruncateTable():
                table = self._id(statement.table, query)
                if self._captured(table):
                    found.truncated.append(table)
            case ddl.DropDatabase():
                for table in [t for t in self._tables.known() if t.namespace == statement.name]:
                    self._drop(table, found)
            case ddl.CreateIndex(unique=True) | ddl.DropIndex():
                self._keys_changed(self._id(statement.table, query), found)
            case ddl.Unknown():
                self._unknown(statement, query, where, found)
            case _:
                pass
        return found if found.changes or found.truncated else None

    def concerns(self, query: b.Query) -> bool:
        """Whether a statement that changes rows may change rows of captured tables: their names appear in it."""
        words = {w.lower() for w in re.findall(r"[\w$]+|`[^`]+`", query.sql)}
        words |= {w.strip("`") for w in words}
        for table in self._tables.known():
            named = table.namespace.lower() in words or table.namespace == query.database
            if named and table.name.lower() in words and self._tables.captured(table):
                return True
        return False

    # -- which tables -------------------------------------------------------------------------------------------------

    def _id(self, name: ddl.Name, query: b.Query) -> TableId:
        return TableId(namespace=name.database or query.database, name=name.name)

    def _captured(self, table: TableId) -> bool:
        return table.namespace not in SYSTEM_DATABASES and self._tables.captured(table)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _create(self, s: ddl.CreateTable, query: b.Query, found: Found) -> None:
        table = self._id(s.table, query)
        known = self._tables.get(table)
        if s.temporary or not self._captured(table) or (s.if_not_exists and not s.or_replace and known is not None):
            return
        if s.like is not None:
            other = self._id(s.like, query)
            like = self._tables.get(other) or self._catalogue(other)
            schema = like.model_copy(update={"id": table}) if like is not None else self._catalogue(table)
        elif s.select or not s.columns:
            schema = self._catalogue(table)
        else:
            schema = self._created(table, s)
        if schema is not None:
            found.changes.append(TableChange(type="CREATE", id=table, table=schema))

    def _created(self, table: TableId, s: ddl.CreateTable) -> TableSchema:
        charset = _charset_of(s.charset, s.collation) or self._charset(table.namespace)
        columns = tuple(self._column(table, c, charset, not_null=c.name in s.primary_key) for c in s.columns)
        candidates = [(False, names) for names in s.unique_keys]
        if s.primary_key:
            candidates.append((True, s.primary_key))
        by_lower = {c.name.lower(): c.name for c in columns}
        candidates = [(p, tuple(by_lower.get(n.lower(), n) for n in names)) for p, names in candidates]
        return TableSchema(id=table, columns=columns, key=row_key(candidates, columns), charset=charset)

    def _drop(self, table: TableId, found: Found) -> None:
        if self._captured(table) and self._tables.get(table) is not None:
            found.changes.append(TableChange(type="DROP", id=table))

    def _rename(self, pairs: tuple[tuple[ddl.Name, ddl.Name], ...], query: b.Query, found: Found) -> None:
        """One after the other: names may rotate through a third one."""
        moved: dict[TableId, tuple[TableId, TableSchema | None]] = {}
        for old_name, new_name in pairs:
            old, new = self._id(old_name, query), self._id(new_name, query)
            origin, schema = moved.pop(old, (old, self._tables.get(old)))
            moved[new] = origin, schema
        for new, (origin, schema) in moved.items():
            if self._captured(new):
                # of a table that was not captured under its old name, nothing is known but what the catalogue says
                present = schema.model_copy(update={"id": new}) if schema is not None else self._catalogue(new)
                if present is not None:
                    found.changes.append(
                        TableChange(type="ALTER", id=new, previous_id=origin, table=present, exact=False)
                    )
        for origin in {o for o, _ in moved.values()} - set(moved):
            self._drop(origin, found)

    def _keys_changed(self, table: TableId, found: Found) -> None:
        """The row key may be another one now. Which keys there were is not kept: the catalogue is asked."""
        known = self._tables.get(table)
        if known is None or not self._captured(table):
            return
        present = self._catalogue(table)
        if present is not None and present.names == known.names and present.key != known.key:
            schema = known.model_copy(update={"key": present.key})
            found.changes.append(TableChange(type="ALTER", id=table, table=schema))

    def _unknown(self, s: ddl.Unknown, query: b.Query, where: str, found: Found) -> None:
        """A statement that is not understood: the catalogue says what has become of the tables, and they are read again."""
        named = [self._id(n, query) for n in s.tables]
        tables = [t for t in named or self._tables.known() if self._captured(t)]
        for table in tables:
            present, known = self._catalogue(table), self._tables.get(table)
            if present is None:
                self._drop(table, found)
            elif named or known is None or not known.same_structure(present):
                kind: Literal["CREATE", "ALTER"] = "CREATE" if known is None else "ALTER"
                found.changes.append(TableChange(type=kind, id=table, table=present, exact=False))
        if tables:
            names = ", ".join(map(str, tables)) if named else "any captured table"
            log.warning(
                "A statement at %s is not understood (%s); the catalogue was read for %s: %s",
                where,
                s.reason,
                names,
                s.text[:500],
            )

    # -- ALTER TABLE --------------------------------------------------------------------------------------------------

    def _alter(self, s: ddl.AlterTable, query: b.Query, found: Found) -> None:
        table = self._id(s.table, query)
        renamed = next((a.table for a in s.actions if isinstance(a, ddl.RenameTo)), None)
        new = self._id(renamed, query) if renamed is not None else table
        if renamed is not None and new != table:
            self._rename(((s.table, renamed),), query, found)
            return
        for action in s.actions:
            if isinstance(action, ddl.PartitionData):
                # the other table of an exchange has new rows as well
                for other in (self._id(n, query) for n in action.tables):
                    self._inexact(other, found)
        known = self._tables.get(table)
        if known is None or not self._captured(table):
            return
        altered = _Altered(self, table, known, query.strict and not s.ignore)
        for action in s.actions:
            altered.apply(action)
        if altered.keys_changed:
            present = self._catalogue(table)
            if present is not None and present.names == tuple(c.name for c in altered.columns):
                altered.key = present.key
        found.changes.append(altered.change())

    def _inexact(self, table: TableId, found: Found) -> None:
        known = self._tables.get(table)
        if known is not None and self._captured(table):
            found.changes.append(TableChange(type="ALTER", id=table, table=known, exact=False))

    def _column(self, table: TableId, c: ddl.ColumnDef, charset: str | None, *, not_null: bool = False) -> Column:
        c = ddl.resolve(c, charset) if charset is not None else c
        type_ = ColumnType(c.type, c.length, c.scale, c.unsigned, c.charset or charset, c.values)
        nullable = c.nullable is not False and not not_null and not c.primary and not c.auto_increment
        default = c.default or ddl.Default(None)
        return captured_column(
            table, c.name, type_, self._config, nullable=nullable, default=default.value,
            default_is_expression=default.is_expression, auto_incremented=c.auto_increment, generated=c.generated,
        )  # fmt: skip


class _Altered:
    """A table in the middle of an ALTER TABLE."""

    def __init__(self, reader: SchemaReader, table: TableId, known: TableSchema, strict: bool) -> None:
        self._reader, self._table, self._known, self._strict = reader, table, known, strict
        self.columns, self.key, self.charset = list(known.columns), known.key, known.charset
        self.renamed: dict[str, str] = {}
        self.added: dict[str, str | None] = {}
        self.unfilled: set[str] = set()
        self.exact, self.keys_changed = True, False

    def change(self) -> TableChange:
        schema = self._known.model_copy(
            update={"columns": tuple(self.columns), "key": self.key, "charset": self.charset}
        )
        return TableChange(
            type="ALTER", id=self._table, table=schema, renamed=self.renamed, added=self.added, exact=self.exact
        )

    def apply(self, action: ddl.Action) -> None:
        match action:
            case ddl.AddColumn():
                self._add(action)
            case ddl.DropColumn():
                self._remove(action.name)
            case ddl.ChangeColumn():
                self._change(action)
            case ddl.RenameColumn():
                i = self._find(action.old)
                if i is not None:
                    self._rename(i, action.new)
            case ddl.SetDefault():
                self._default(action)
            case ddl.ConvertCharset():
                self._convert(action)
            case ddl.TableCharset():
                self.charset = _charset_of(action.charset, action.collation) or self._reader._charset(
                    self._table.namespace
                )
            case ddl.AddKey(kind="primary"):
                self.key = tuple(self.columns[i].name for n in action.columns if (i := self._find(n)) is not None)
                self.keys_changed = False
                for n in action.columns:
                    self._set(n, nullable=False)
            case ddl.DropKey(kind="primary"):
                self.keys_changed, self.key = True, ()
            case ddl.AddKey() | ddl.DropKey():
                self.keys_changed = True
            case ddl.PartitionData():
                self.exact = False
            case _:
                pass  # nothing that a reader of rows would notice

    def _find(self, name: str) -> int | None:
        return next((i for i, c in enumerate(self.columns) if c.name.lower() == name.lower()), None)

    def _set(self, name: str, **update: object) -> None:
        i = self._find(name)
        if i is not None:
            self.columns[i] = self.columns[i].model_copy(update=update)

    def _add(self, action: ddl.AddColumn) -> None:
        if action.if_not_exists and self._find(action.column.name) is not None:
            return
        column = self._reader._column(self._table, action.column, self.charset)
        self._insert(column, first=action.first, after=action.after, at_least=len(self.columns))
        fill = existing_rows(column)
        if fill is not None:
            self.added[column.name] = fill.value
        if action.column.primary:
            self.key = (column.name,)
        self.keys_changed |= action.column.unique and not self.key

    def _insert(self, column: Column, *, first: bool, after: str | None, at_least: int) -> None:
        place = 0 if first else at_least
        if after is not None and (i := self._find(after)) is not None:
            place = i + 1
        self.columns.insert(place, column)

    def _remove(self, name: str) -> None:
        i = self._find(name)
        if i is None:
            return
        gone = self.columns.pop(i).name
        self.added.pop(gone, None)
        self.renamed.pop(gone, None)
        if gone in self.key:
            self.keys_changed, self.key = True, ()

    def _change(self, action: ddl.ChangeColumn) -> None:
        i = self._find(action.old)
        if i is None:
            return
        old = self.columns[i]
        new = self._reader._column(self._table, action.column, self.charset, not_null=old.name in self.key)
        self.exact &= keeps_values(old, new, strict=self._strict)
        self.columns[i] = new.model_copy(update={"name": old.name})
        if new.name != old.name:
            self._rename(i, new.name)
        if action.first or action.after is not None:
            column = self.columns.pop(i)
            self._insert(column, first=action.first, after=action.after, at_least=i)
        if action.column.primary:
            self.key = (new.name,)

    def _rename(self, i: int, name: str) -> None:
        old = self.columns[i].name
        self.columns[i] = self.columns[i].model_copy(update={"name": name})
        self.key = tuple(name if k == old else k for k in self.key)
        if old in self.added:
            self.added[name] = self.added.pop(old)
        elif (origin := self.renamed.pop(old, old)) != name:
            self.renamed[name] = origin

    def _default(self, action: ddl.SetDefault) -> None:
        i = self._find(action.column)
        if i is not None:
            default = action.default or ddl.Default(None)
            declared = self.columns[i].declared.model_copy(
                update={"default": default.value, "default_is_expression": default.is_expression}
            )
            self.columns[i] = self.columns[i].model_copy(update={"declared": declared})

    def _convert(self, action: ddl.ConvertCharset) -> None:
        charset = _charset_of(action.charset, action.collation) or self._reader._charset(self._table.namespace)
        for i, column in enumerate(self.columns):
            type_ = ColumnType.of(column)
            if type_.base in TEXTS or type_.base in ("enum", "set"):
                if charset not in _UNICODE and charset != type_.charset:
                    self.exact = False
                declared = column.declared.model_copy(update={"charset": charset})
                self.columns[i] = column.model_copy(update={"declared": declared})
        self.charset = charset


def _charset_of(charset: str | None, collation: str | None) -> str | None:
    if charset is not None:
        return charset.lower()
    return collation.partition("_")[0].lower() if collation and "_" in collation else None


def existing_rows(column: Column) -> ddl.Default | None:
    """The value that rows which are already there get in a new column; ``None`` when it cannot be told from the statement.

    >>> existing_rows(Column(name="n", type="int32"))
    Default(value=None, is_expression=False)
    """
    d = column.declared
    if d.generated or d.default_is_expression or d.auto_incremented:
        return None
    if d.default is None and column.nullable:
        return ddl.Default(None)
    type_ = ColumnType.of(column)
    text = d.default if d.default is not None else _implicit_default(type_)
    value = None if text is None else _castable(type_, column, text)
    return None if value is None else ddl.Default(value)


def _implicit_default(t: ColumnType) -> str | None:
    """What a NOT NULL column without a default is filled with."""
    if t.base in INTEGERS or t.base in ("decimal", "float", "double", "year"):
        return "0"
    if t.base in TEXTS or t.base == "set":
        return ""
    return t.values[0] if t.base == "enum" else None


def _castable(t: ColumnType, column: Column, text: str) -> str | None:
    """A default as text that casts to the column's change log type; ``None`` where that is not certain."""
    number = re.fullmatch(r"[+-]?\d+(\.\d+)?", text.strip())
    if column.type == "string":
        return text.rstrip(" ") if t.base == "char" else text if t.base in TEXTS | {"enum", "set"} else None
    if t.base in INTEGERS or t.base == "year":
        return str(int(text)) if number and not number[1] else None
    if t.base == "decimal" and number and column.type.startswith("decimal"):
        return str(Decimal(text).quantize(Decimal(1).scaleb(-t.digits[1]), ROUND_HALF_UP))
    if t.base == "double" and number:
        return text
    if t.base == "date" and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", text):
        return text
    if t.base == "datetime" and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]) \d\d:\d\d:\d\d", text):
        return text
    return None


def keeps_values(old: Column, new: Column, *, strict: bool) -> bool:
    """Whether rows that are already there show the same values after a column's definition has changed.

    :param strict: the session refused to bend values, so what does not fit would have failed
    """
    a, z = ColumnType.of(old), ColumnType.of(new)
    if old.declared.generated or new.declared.generated:
        return old == new
    if old.nullable and not new.nullable and not strict:
        return False
    if a == z:
        return True
    if a.base in INTEGERS and z.base in INTEGERS:
        return strict or (INTEGERS[z.base] >= INTEGERS[a.base] and a.unsigned == z.unsigned)
    if a.base == z.base == "decimal":
        return a.digits[1] <= z.digits[1] and (strict or a.digits[0] - a.digits[1] <= z.digits[0] - z.digits[1])
    if a.base in TEXTS and z.base in TEXTS:
        return _keeps_text(a, z, strict)
    if a.base in BLOBS and z.base in BLOBS:
        larger = a.base in _BLOB_SIZES and _BLOB_SIZES.get(z.base, 0) >= _BLOB_SIZES[a.base]
        return larger and (strict or (a.length or 0) <= (z.length or 1 << 32))
    if a.base == z.base in ("enum", "set"):
        return z.values[: len(a.values)] == a.values
    if a.base == z.base in ("time", "datetime", "timestamp"):
        return a.fraction <= z.fraction
    return (a.base, z.base) == ("float", "double")


def _keeps_text(a: ColumnType, z: ColumnType, strict: bool) -> bool:
    same_charset = a.charset == z.charset or z.charset in _UNICODE
    if a.base == "char" and z.base != "char":
        same_length = True
    else:
        same_length = z.base != "char" and (_TEXT_SIZES[z.base], z.length or 0) >= (_TEXT_SIZES[a.base], a.length or 0)
        same_length = same_length or (a.base == z.base and (z.length or 0) >= (a.length or 0))
    # into CHAR, spaces at the end are lost even in strict mode
    return same_charset and (same_length or (strict and z.base != "char"))


__all__ = ["Found", "SchemaReader", "existing_rows", "keeps_values"]
