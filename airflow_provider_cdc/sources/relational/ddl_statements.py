"""Statements of DDL, as far as they are the same in every relational database. A source's reader makes these values of texts.

Statements and clauses that only resemble each other are the source's own: a ``TRUNCATE`` may cascade in one database and not in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """A name of a table, or of another object, as the catalog spells it.

    :param namespace: database (MySQL, MariaDB) or schema (Oracle, Db2); ``None`` when the statement's default is meant

    >>> str(QualifiedName("shop", "orders"))
    'shop.orders'
    """

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


# -- statements -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IgnoredStatement:
    """Concerns no table's structure or rows; ``kind`` names the statement (``create view``)."""

    kind: str


@dataclass(frozen=True, slots=True)
class UnknownStatement:
    """Not understood for sure: the catalog has to be read.

    :param tables: the tables concerned as far as they were recognised; empty: any table may be
    """

    text: str
    tables: tuple[QualifiedName, ...] = ()
    reason: str = ""


# -- clauses of ALTER TABLE -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenameTo:
    """The table has another name."""

    table: QualifiedName


@dataclass(frozen=True, slots=True)
class PartitionDataChange:
    """Rows come or go without being logged, for example because partitions are truncated, dropped or exchanged.

    :param tables: other tables that lose or gain the rows
    """

    clause: str
    tables: tuple[QualifiedName, ...] = ()


@dataclass(frozen=True, slots=True)
class NoColumnChange:
    """Something that changes neither columns, nor keys, nor rows."""

    clause: str


def names_of_alter(table: QualifiedName, actions: Iterable[object]) -> list[QualifiedName]:
    """List the tables that an ``ALTER TABLE`` concerns.

    These are the one it names first, its new name, and those whose rows come or go with it.
    """
    names = [table]
    for action in actions:
        if isinstance(action, RenameTo):
            names.append(action.table)
        elif isinstance(action, PartitionDataChange):
            names.extend(action.tables)
    return names
