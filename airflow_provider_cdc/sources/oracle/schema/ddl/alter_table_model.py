"""The clauses of ``ALTER TABLE`` as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import ColumnDefinition, KeyDefinition
from airflow_provider_cdc.sources.relational import ddl_statements
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange, RenameTo


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ADD column`` or one of ``ADD (…)``; keys of the definition follow as :class:`AddKey`."""

    column: ColumnDefinition


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """``MODIFY column`` or one of ``MODIFY (…)``: properties that the definition leaves out stay."""

    column: ColumnDefinition


@dataclass(frozen=True, slots=True)
class DropColumn:
    """``DROP COLUMN a``, ``DROP (a, b)`` and ``SET UNUSED``, after which a column is as good as dropped."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``RENAME COLUMN old TO new``."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class AddKey:
    """``ADD [CONSTRAINT name] PRIMARY KEY | UNIQUE``, or a key that came along with a column."""

    key: KeyDefinition


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """A key, or a constraint that may be one, was dropped, enabled, disabled or changed.

    :param primary: it is certain that this was the primary key, and that it is gone
    """

    clause: str
    primary: bool = False


@dataclass(frozen=True, slots=True)
class ChangePartitionData(ddl_statements.PartitionDataChange):
    """Partitions are truncated, dropped or exchanged, or rows left out in a move.

    :param cascade: tables that are partitioned by reference to this one lose or gain rows too
    """

    cascade: bool = False


LESS_LOGGED = "drop supplemental logging"
"""``NoColumnChange.clause`` of a statement after which rows of the log may have fewer values."""

Action: TypeAlias = (
    AddColumn
    | ModifyColumn
    | DropColumn
    | RenameColumn
    | RenameTo
    | AddKey
    | KeysChanged
    | ChangePartitionData
    | NoColumnChange
)
