"""DDL statements as plain values. Nothing here knows SQL text: :mod:`.statement_parser` makes these values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import Action
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef
from airflow_provider_cdc.sources.relational.ddl_statements import (
    IgnoredStatement,
    QualifiedName,
    UnknownStatement,
    names_of_alter,
)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE``.

    :param primary_key: column names, from the definition of a column too
    :param unique_keys: those whose parts are whole columns; keys that columns bring along included
    :param unique_key_names: name of each as written, ``None`` where the server chooses
    :param charset: ``None`` when not said: the database's; columns keep their own, see :func:`.charset_rules.resolve_charset`
    :param select: rows and further columns come from a query
    :param versioned: with MariaDB's system versioning
    :param sequence: it is a sequence of MariaDB
    """

    table: QualifiedName
    columns: tuple[ColumnDef, ...] = ()
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    charset: str | None = None
    collation: str | None = None
    like: QualifiedName | None = None
    select: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    temporary: bool = False
    unique_key_names: tuple[str | None, ...] = ()
    versioned: bool = False
    comment: str | None = None
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ALTER TABLE``, its actions in the order of the text.

    Servers apply them as a whole. The table's character set comes first. Columns are looked up by the names they had
    before, and stay where they are; then new and moved ones are placed one by one, where ``AFTER`` means the names
    afterwards. ``IF NOT EXISTS`` looks at the table before. ``CONVERT TO`` and the new keys come last. A part of an old
    key goes to the first column that had its name or, if new, has it: after ``DROP a, ADD a INT`` that is the new one,
    and where it is longer than the old one the key may have become one over a prefix.

    :param ignore: ``ALTER IGNORE``: a new unique key removes rows, a narrower type changes values, both without row
        events
    """

    table: QualifiedName
    actions: tuple[Action, ...] = ()
    if_exists: bool = False
    ignore: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE a, b``."""

    tables: tuple[QualifiedName, ...]
    temporary: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    """``RENAME TABLE a TO b, c TO d``: one after the other, so names may rotate."""

    pairs: tuple[tuple[QualifiedName, QualifiedName], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """``TRUNCATE [TABLE] table``."""

    table: QualifiedName


@dataclass(frozen=True, slots=True)
class RepairTable:
    """``REPAIR TABLE a, b``, which may remove rows of tables without transactions."""

    tables: tuple[QualifiedName, ...]


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """``CREATE DATABASE``; ``OR REPLACE`` reads as a :class:`DropDatabase` and this."""

    name: str
    charset: str | None = None
    collation: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """``ALTER DATABASE``; ``name`` ``None`` is the session's.

    ``charset`` ``None`` is unchanged or the server's default.
    """

    name: str | None
    charset: str | None = None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """``DROP DATABASE``."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """``CREATE [UNIQUE] INDEX``; ``columns`` and ``usable`` as in :class:`AddKey`."""

    table: QualifiedName
    unique: bool
    columns: tuple[str, ...] = ()
    usable: bool = True
    name: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex:
    """``DROP INDEX name ON table``; of the primary key it reads as ``ALTER TABLE … DROP PRIMARY KEY``."""

    table: QualifiedName
    name: str


TransactionKind: TypeAlias = Literal[
    "begin", "commit", "rollback", "savepoint", "rollback to", "release",
    "xa start", "xa end", "xa prepare", "xa commit", "xa rollback",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TransactionControl:
    """A statement of transaction control; ``name`` is the savepoint's, or the text of the XA id."""

    kind: TransactionKind
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DmlStatement:
    """Rows changed by a statement instead of row events (``binlog_format`` STATEMENT or MIXED)."""

    kind: str
    text: str


Statement: TypeAlias = (
    CreateTable
    | AlterTable
    | DropTable
    | RenameTable
    | TruncateTable
    | RepairTable
    | CreateDatabase
    | AlterDatabase
    | DropDatabase
    | CreateIndex
    | DropIndex
    | TransactionControl
    | DmlStatement
    | IgnoredStatement
    | UnknownStatement
)


def tables_of(statement: Statement) -> tuple[QualifiedName, ...]:
    """Return the tables whose structure or rows the statement concerns, each once; of a rename both names.

    Statement-format changes (:class:`DmlStatement`) and whole databases give none: their tables are not looked for.

    >>> tables_of(RenameTable(((QualifiedName(None, "a"), QualifiedName(None, "b")),)))
    (Name(namespace=None, name='a'), Name(namespace=None, name='b'))
    """
    match statement:
        case CreateTable() | TruncateTable() | CreateIndex() | DropIndex():
            return (statement.table,)
        case DropTable() | RepairTable() | UnknownStatement():
            names = list(statement.tables)
        case RenameTable():
            names = [name for pair in statement.pairs for name in pair]
        case AlterTable():
            names = names_of_alter(statement.table, statement.actions)
        case _:
            return ()
    return tuple(dict.fromkeys(names))
