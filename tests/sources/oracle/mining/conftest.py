"""The server that the tests of mining share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.servers.oracle import Oracle


@pytest.fixture
def server() -> Iterator[Oracle]:
    """A server of the test's own, with a table."""
    with Oracle() as server:
        server.sql(
            "CREATE TABLE ty (id NUMBER, v VARCHAR2(20))", "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        )
        yield server
