"""A stand-in of one member for the tests of this folder, or a real deployment where ``MONGODB_URI`` names one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from tests.support.sources.mongodb import mongodb_connectors


@pytest.fixture(scope="session")
def uri() -> Iterator[str]:
    """Connection string of the deployment."""
    with mongodb_connectors.deployment() as started:
        yield started


@pytest.fixture(scope="session")
def client(uri: str) -> Iterator[Any]:
    with pymongo.MongoClient(uri) as connected:
        yield connected


@pytest.fixture
def database(client: Any) -> Iterator[Any]:
    """A new database."""
    name = f"shop_{time.time_ns() // 1000 % 10**10}"
    yield client[name]
    client.drop_database(name)
