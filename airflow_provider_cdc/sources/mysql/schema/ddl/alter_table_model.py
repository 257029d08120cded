"""The actions of ``ALTER TABLE`` as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef, MySqlColumnDefault
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange, PartitionDataChange, RenameTo


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ADD [COLUMN] definition [FIRST | AFTER column]``; the definition may bring a key along."""

    column: ColumnDef
    first: bool = False
    after: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """``DROP [COLUMN] name``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """``CHANGE old definition`` and ``MODIFY definition`` (``old == column.name``)."""

    old: str
    column: ColumnDef
    first: bool = False
    after: str | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``RENAME COLUMN old TO new``. All renames of a statement happen at once: two columns may swap their names."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """``ALTER COLUMN column SET DEFAULT …``; ``None`` is ``DROP DEFAULT``.

    The column's type is not in the text, so a hexadecimal or bit literal is given as an expression, as it stands:
    :func:`typed_default` reads it for a type.
    """

    column: str
    default: MySqlColumnDefault | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddKey:
    """A new primary or unique key.

    :param columns: its columns; parts that are expressions are left out
    :param usable: no part is an expression or a prefix of a column: equal keys are equal columns
    :param name: as written; ``None`` lets the server choose
    """

    kind: Literal["primary", "unique"]
    columns: tuple[str, ...]
    usable: bool = True
    name: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropKey:
    """``DROP PRIMARY KEY``, ``DROP INDEX name``, and ``DROP CONSTRAINT name``, which may mean a unique key."""

    kind: Literal["primary", "index"]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """``CONVERT TO CHARACTER SET``: rewrites all text columns and makes TEXT types larger: see :func:`.charset_rules.convert_charset`.

    Columns that the same statement adds or changes are converted with the rest. ``charset`` ``None`` is ``DEFAULT``,
    the database's character set.
    """

    charset: str | None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class TableCharset:
    """``[DEFAULT] CHARACTER SET``: for columns that come later, those added in the same statement included.

    ``charset`` ``None`` is ``DEFAULT``, the database's character set.
    """

    charset: str | None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class TableComment:
    """``COMMENT = text``."""

    text: str


@dataclass(frozen=True, slots=True)
class AddPeriod:
    """MariaDB's ``PERIOD FOR name (start, end)``: the two columns cannot be null."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SystemVersioning:
    """MariaDB's ``ADD SYSTEM VERSIONING``: old rows stay in the table, and come to the log as rows of it."""


@dataclass(frozen=True, slots=True)
class PartitionToTable(PartitionDataChange):
    """MariaDB's ``CONVERT PARTITION … TO TABLE``: the table is a new one, with the partition's rows."""


@dataclass(frozen=True, slots=True)
class RenameIndex(NoColumnChange):
    """``RENAME INDEX old TO new``; matters to code that keeps the names of unique keys."""

    old: str = ""
    new: str = ""


Action: TypeAlias = (
    AddColumn
    | DropColumn
    | ChangeColumn
    | RenameColumn
    | SetDefault
    | RenameTo
    | AddKey
    | DropKey
    | ConvertCharset
    | TableCharset
    | PartitionDataChange
    | TableComment
    | AddPeriod
    | SystemVersioning
    | NoColumnChange
)
