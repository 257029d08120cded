"""Fixtures: a Db2 test server of a module's own, and a captured table on it.

A module imports those that it needs; their names for tests are ``server`` and ``table``.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from dev.servers.db2 import Db2

TYPES: dict[str, list[Any]] = {
    "SMALLINT": [-32768, 32767, None],
    "INTEGER": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DECIMAL(31, 5)": [Decimal("12345678901234567890123456.12345"), Decimal("-0.00001")],
    "REAL": [0.5, -2.25],
    "DOUBLE": [0.1, -1e300],
    "CHAR(5)": ["ab   ", "abcde"],
    "VARCHAR(60)": ["x", "žluť 🎉", "it's", "", None],
    "DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "TIME": [datetime.time(23, 59, 58)],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)],
    "CHAR(4) FOR BIT DATA": [b"\0\xff\x10\x20"],
    "VARCHAR(16) FOR BIT DATA": [b"\0\xff", bytes(range(16))],
    "CLOB(1M)": ["short", "ž" * 20000, None],
    "CLOB": ["short"],
    "BLOB(2G)": [b"x" * 100],
    "BLOB(1M)": [b"\0\xff" * 40000, b"x"],
}
"""Types of columns that the engine has, and values of each."""
_numbers = itertools.count()


@pytest.fixture(scope="module", name="server")
def own_server() -> Iterator[Db2]:
    """Runs for one module."""
    with Db2() as server:
        yield server


@pytest.fixture(name="table")
def its_table(server: Db2) -> str:
    """The name of a new table of the schema APP with the columns ID and V, which is captured."""
    name = f"T{next(_numbers)}"
    server.sql(f"CREATE TABLE APP.{name} (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))")
    server.add_table("APP", name)
    return name


def change_rows(server: Db2, table: str) -> list[tuple[Any, ...]]:
    """The change table of a table of the schema APP, with all that is committed, in the order of the log."""
    server.catch_up()
    return server.rows(f'SELECT * FROM ASNCDC."CDC_APP_{table}" ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ')


def changes(server: Db2, table: str) -> list[tuple[Any, ...]]:
    """The same, without LSNs: operation and columns."""
    return [row[2:] for row in change_rows(server, table)]
