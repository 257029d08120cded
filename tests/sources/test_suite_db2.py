"""The shared suite on Db2's test server.

What a Db2 has not, or SQL Replication does not capture, is left out here, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import SourceSuite
from tests.sources.suite.incremental import IncrementalSuite


@pytest.fixture(scope="module")
def server() -> Iterator[Db2]:
    """A server whose log is pruned and whose registrations are spoiled: it is no one else's."""
    with Db2() as server:
        yield server


class _Db2:
    @pytest.fixture
    def db(self, server: Db2) -> Iterator[Db2Adapter]:
        with ExitStack() as stack:
            yield Db2Adapter(server, stack)


class TestDb2(_Db2, SourceSuite):
    """Updates as pairs of rows, as ``ASNCDC.ADDTABLE`` registers tables."""


class TestIncremental(_Db2, IncrementalSuite):
    """Chunks beside the stream."""
