"""Fixtures: an Oracle test server of a module's own, and who is logged on there.

A module imports those that it needs; their names for tests are ``server``, ``owner`` and ``capture``.
"""

from collections.abc import Iterator
from contextlib import closing

import oracledb
import pytest

from dev.servers.oracle import Oracle
from tests.support.sources.oracle.oracle_server import NLS, drop_all


@pytest.fixture(scope="module", name="server")
def own_server() -> Iterator[Oracle]:
    """Runs for one module."""
    with Oracle() as server:
        server.admin("ALTER DATABASE ADD SUPPLEMENTAL LOG DATA")
        yield server


@pytest.fixture(name="owner")
def its_owner(server: Oracle) -> Iterator[oracledb.Connection]:
    """The owner of the tables, which are gone after the test."""
    with closing(server.connect()) as connection:
        yield connection
        try:
            connection.rollback()
        finally:
            drop_all(server)  # also when the connection was lost: the next test begins with nothing


@pytest.fixture(name="capture")
def its_capture(server: Oracle) -> Iterator[oracledb.Connection]:
    """The capture user in the root container, with the formats that capture sets."""
    with closing(server.capture()) as connection:
        connection.cursor().execute(NLS)
        yield connection
