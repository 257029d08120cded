"""Which table a name means, as the server compares names (``lower_case_table_names``).

With 0 names are what they are. With 1 the server has them in lower case everywhere but in the texts of statements. With 2 (macOS) the
catalog has them as they were given first, table maps have them in lower case, and statements as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.core.spi.source import Tables
from airflow_provider_cdc.sources.mysql.connect import Server

_KEPT = frozenset("ȠϘϴҊӀӅӉӍԀԂԄԆԈԊԌԎℲↃ") | {chr(c) for c in (*range(0x10A0, 0x10CE), *range(0x13A0, 0x13F6))}
"""Letters that have got a small one since Unicode 3.0, by which servers fold names."""
_LATE = (
    (0x23A, 0x250), (0x370, 0x374), (0x376, 0x378), (0x37F, 0x380), (0x3CF, 0x3D0), (0x3F7, 0x400), (0x4F6, 0x4F8), (0x4FA, 0x500), (0x510, 0x530),
    (0x1C80, 0x1CC0), (0x1E9E, 0x1E9F), (0x1EFA, 0x1F00), (0x2C00, 0x2E00), (0xA640, 0xAC00),
)  # fmt: skip
"""Blocks of such letters."""


@dataclass(frozen=True, slots=True)
class TableNames:
    """Finds tables by the names that the log has for them.

    :param lower_case: ``lower_case_table_names``
    :param tables: the structures in force
    """

    lower_case: int
    tables: Tables

    @classmethod
    def of(cls, server: Server, tables: Tables) -> TableNames:
        return cls(lower_case_of(server), tables)

    def table(self, database: str, name: str) -> TableId:
        """The table that a statement or a table map means."""
        if self.lower_case == 0:
            return TableId(namespace=database, name=name)
        lower = TableId(namespace=lowered(database), name=lowered(name))
        if self.lower_case == 1:
            return lower
        given = TableId(namespace=database, name=name)
        return next((table for table in self.tables.known() if _lowered(table) == lower), given)

    def in_database(self, name: str) -> list[TableId]:
        """The tables with a structure in a database."""
        if self.lower_case == 0:
            return [table for table in self.tables.known() if table.namespace == name]
        return [table for table in self.tables.known() if lowered(table.namespace) == lowered(name)]


def lower_case_of(server: Server) -> int:
    """How a server compares names of tables."""
    return int(server.variables.get("lower_case_table_names") or 0)


def lowered(name: str) -> str:
    """A name in lower case, as servers make it: letter by letter, and newer letters stay as they are.

    >>> lowered("ORDERS"), lowered("ΟΔΟΣ"), lowered("İX"), lowered("ẞ")
    ('orders', 'οδοσ', 'ix', 'ẞ')
    """
    return name.lower() if name.isascii() else "".join(map(_lower, name))


def _lower(letter: str) -> str:
    code, small = ord(letter), letter.lower()
    if letter == "İ":
        return "i"
    if len(small) > 1 or letter in _KEPT or code > 0xFFFF or any(first <= code < end for first, end in _LATE):
        return letter
    return small


def _lowered(table: TableId) -> TableId:
    return TableId(namespace=lowered(table.namespace), name=lowered(table.name))
