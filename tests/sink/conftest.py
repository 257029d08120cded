"""Target databases for the tests of the sink: real ones, each with a database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sink.config import SinkConfig
from airflow_provider_cdc.sink.database import open_engine

KINDS = ("sqlite", "postgresql", "mariadb", "mysql")
_FIXTURES = {"postgresql": "postgres", "mariadb": "mariadb", "mysql": "mysql97"}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty target database, of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.db"
        return
    server = request.getfixturevalue(_FIXTURES[request.param])
    if request.param == "postgresql":
        with server.database("sink") as name:
            yield server.url(name)
        return
    with server.database("sink") as database:
        yield server.url(f"{database.name}?charset=utf8mb4")


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(SinkConfig.parse({"connection.url": url}))
    yield engine
    engine.dispose()
