"""The shared suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.servers.postgres import Postgres
from tests.sources.postgresql_adapter import PostgresAdapter
from tests.sources.suite import Adapter, SourceSuite, start_connector
from tests.sources.suite.incremental import IncrementalSuite


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of PostgreSQL 17."""
    options = {"wal_level": "logical", "max_replication_slots": 100, "max_wal_senders": 100}
    with Postgres(options, edition="17") as server:
        yield server


class TestPostgreSql(SourceSuite, IncrementalSuite):
    """Tables whose log has all columns of the row before a change."""

    @pytest.fixture
    def db(self, server: Postgres) -> Iterator[PostgresAdapter]:
        with ExitStack() as stack:
            yield PostgresAdapter(server, stack)

    def test_positions_grow_with_every_transaction(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """A position can be read from only if a slot holds the log there."""
        start_connector(filled_adapter, tmp_path)
        super().test_positions_grow_with_every_transaction(filled_adapter, tmp_path)
