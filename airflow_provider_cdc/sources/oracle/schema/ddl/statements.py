"""DDL statements as plain values. Nothing here knows SQL text: :mod:`.statement_reader` makes these values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider_cdc.sources.oracle.schema.ddl.alter_table_model import Action
from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import ColumnDefinition, KeyDefinition
from airflow_provider_cdc.sources.relational.ddl_statements import (
    IgnoredStatement,
    QualifiedName,
    UnknownStatement,
    names_of_alter,
)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE``.

    :param keys: those that columns bring along included
    :param select: rows, and names or types of columns, come from a query
    :param temporary: its rows are never in the log
    :param organization: ``HEAP``, ``INDEX`` or ``EXTERNAL``
    :param object_type: the type of an object table, ``XMLTYPE`` included
    """

    table: QualifiedName
    columns: tuple[ColumnDefinition, ...] = ()
    keys: tuple[KeyDefinition, ...] = ()
    select: bool = False
    temporary: bool = False
    organization: str = "HEAP"
    object_type: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ALTER TABLE``, its clauses in the order of the text, in which they take effect."""

    table: QualifiedName
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE``.

    :param bin_name: name in the recycle bin, as the log adds it
    """

    table: QualifiedName
    purge: bool = False
    bin_name: str | None = None


@dataclass(frozen=True, slots=True)
class FlashbackTable:
    """``FLASHBACK TABLE``.

    :param before_drop: a dropped table is back, with its rows; otherwise its rows are those of an earlier moment
    :param renamed: ``RENAME TO``, the name that it has now
    """

    tables: tuple[QualifiedName, ...]
    before_drop: bool = False
    renamed: QualifiedName | None = None


@dataclass(frozen=True, slots=True)
class RenameObject:
    """``RENAME old TO new``: of a table, view, sequence or synonym of the session's user."""

    old: QualifiedName
    new: QualifiedName


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """``TRUNCATE TABLE``.

    :param cascade: tables that refer to this one are empty afterwards too
    """

    table: QualifiedName
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class TruncateCluster:
    """``TRUNCATE CLUSTER``: every table in it is empty afterwards."""

    cluster: QualifiedName


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """``CREATE [UNIQUE | BITMAP] INDEX`` on a table; ``columns`` is empty when a part is an expression."""

    name: QualifiedName
    table: QualifiedName
    unique: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropIndex:
    """``DROP INDEX``, which does not say on which table it was."""

    name: QualifiedName


@dataclass(frozen=True, slots=True)
class AlterIndex:
    """``ALTER INDEX``.

    :param renamed: the index's new name
    """

    name: QualifiedName
    renamed: str | None = None


@dataclass(frozen=True, slots=True)
class CommentOn:
    """``COMMENT ON TABLE`` or ``COLUMN``. It changes no structure.

    :param column: ``None`` = the comment is that of the table
    :param text: ``None`` = there is none any more
    """

    table: QualifiedName
    column: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class DropUser:
    """``DROP USER … CASCADE``: all tables of the schema are gone."""

    name: str


Statement: TypeAlias = (
    CreateTable
    | AlterTable
    | DropTable
    | FlashbackTable
    | RenameObject
    | TruncateTable
    | TruncateCluster
    | CreateIndex
    | DropIndex
    | AlterIndex
    | DropUser
    | CommentOn
    | IgnoredStatement
    | UnknownStatement
)


def tables_of(statement: Statement) -> tuple[QualifiedName, ...]:
    """Return the tables whose structure, keys or rows the statement concerns, each once; of a rename both names.

    Whole schemas, clusters and indexes that do not name their table give none.

    >>> tables_of(RenameObject(QualifiedName(None, "A"), QualifiedName(None, "B")))
    (Name(namespace=None, name='A'), Name(namespace=None, name='B'))
    """
    match statement:
        case CreateTable() | TruncateTable() | CreateIndex() | DropTable():
            names = [statement.table]
        case FlashbackTable():
            names = [*statement.tables, *([statement.renamed] if statement.renamed else [])]
        case UnknownStatement():
            names = list(statement.tables)
        case RenameObject():
            names = [statement.old, statement.new]
        case AlterTable():
            names = names_of_alter(statement.table, statement.actions)
        case _:
            names = []
    return tuple(dict.fromkeys(names))
