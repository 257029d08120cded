"""The Db2 server that the tests of the source share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from dev.servers.db2 import Db2
from tests.support.sources.db2 import db2_real


@pytest.fixture(scope="session")
def db2(request: pytest.FixtureRequest) -> Iterator[Db2]:
    """The server that all tests share: a real one where ``DB2_DSN`` is set (see ``db2_real``).

    Tests that change its settings, stop it or look into its log start one of their own, which is always our test server.
    """
    if db2_real.is_real_server_given():
        with db2_real.open_real_server() as real:
            yield cast(Db2, real)
        return
    yield request.getfixturevalue("db2")  # that of tests/conftest.py
