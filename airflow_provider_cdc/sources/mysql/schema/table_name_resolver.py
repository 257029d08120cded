"""Tables by name, as the server compares names (``lower_case_table_names``).

With 0 names stay as they are written. With 1 the server has them in lower case everywhere but in the texts of statements. With 2 (macOS) the
catalog has them as they were given first, table maps have them in lower case, and statements as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql.connect import MySqlServer

_KEPT = frozenset("ȠϘϴҊӀӅӉӍԀԂԄԆԈԊԌԎℲↃ") | {chr(c) for c in (*range(0x10A0, 0x10CE), *range(0x13A0, 0x13F6))}
"""Letters that have got a small one since Unicode 3.0, by which servers fold names."""
_LATE = (
    (0x23A, 0x250), (0x370, 0x374), (0x376, 0x378), (0x37F, 0x380), (0x3CF, 0x3D0), (0x3F7, 0x400), (0x4F6, 0x4F8), (0x4FA, 0x500), (0x510, 0x530),
    (0x1C80, 0x1CC0), (0x1E9E, 0x1E9F), (0x1EFA, 0x1F00), (0x2C00, 0x2E00), (0xA640, 0xAC00),
)  # fmt: skip
"""Blocks of such letters."""


@dataclass(frozen=True, slots=True)
class TableNameResolver:
    """Finds tables by the names that the log has for them.

    :param lower_case: ``lower_case_table_names``
    :param tables: the structures in force
    """

    lower_case: int
    tables: CapturedTableSchemas

    @classmethod
    def from_server(cls, server: MySqlServer, tables: CapturedTableSchemas) -> TableNameResolver:
        return cls(lower_case_of(server), tables)

    def resolve_table(self, database: str, name: str) -> TableId:
        """Return the table that a statement or a table map means."""
        if self.lower_case == 0:
            return TableId(namespace=database, name=name)
        lower = TableId(namespace=lower_name(database), name=lower_name(name))
        if self.lower_case == 1:
            return lower
        as_written = TableId(namespace=database, name=name)
        return next((table for table in self.tables.list_known_tables() if _lowered(table) == lower), as_written)

    def in_database(self, name: str) -> list[TableId]:
        """Return the tables with a structure in a database."""
        if self.lower_case == 0:
            return [table for table in self.tables.list_known_tables() if table.namespace == name]
        return [table for table in self.tables.list_known_tables() if lower_name(table.namespace) == lower_name(name)]


def lower_case_of(server: MySqlServer) -> int:
    """Return the way a server compares names of tables."""
    return int(server.variables.get("lower_case_table_names") or 0)


def lower_name(name: str) -> str:
    """Convert a name to lower case as servers do: letter by letter, and newer letters stay as they are.

    >>> lower_name("ORDERS"), lower_name("ΟΔΟΣ"), lower_name("İX"), lower_name("ẞ")
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
    return TableId(namespace=lower_name(table.namespace), name=lower_name(table.name))
