"""PostgreSQL of the oldest and the newest version that is captured from, and configurations of connectors on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from dev.servers.postgres import Postgres

_numbers = itertools.count(1)


class Database:
    """A database of a server, for one test.

    :ivar config: of a connector whose slot and publication no other one has
    """

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        self.config = self.configure()

    def configure(self, **properties: Any) -> PostgresConfig:
        """Build a configuration; properties with underscores for dots."""
        own = f"connector_{next(_numbers)}"
        given = {
            "topic.prefix": "test", "database.hostname": self.server.host, "database.port": self.server.port,
            "database.user": "cdc", "database.password": "cdc", "database.dbname": self.name, "database.sslmode": "disable",
            "slot.name": own, "publication.name": own,
        }  # fmt: skip
        return PostgresConfig.parse(given | {k.replace("_", "."): v for k, v in properties.items()})

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements, database=self.name)

    def create_slot(self, config: PostgresConfig) -> None:
        self.sql(f"SELECT pg_create_logical_replication_slot('{config.slot_name}', 'pgoutput')")


@pytest.fixture(scope="module", params=["14", "18"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    options = {"wal_level": "logical", "max_replication_slots": 50, "max_wal_senders": 50}
    with Postgres(options, edition=request.param) as server:
        yield server


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    with server.database("shop") as name:
        yield Database(server, name)
        server.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{name}'")
