"""A connector that has captured something, and who steers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.lifecycle.steering import open_steering
from tests.support.connectors import Connector, memory_connector
from tests.support.workloads.small_tables import insert


@pytest.fixture
def connector(db: MemoryDatabase, tmp_path: Path) -> Iterator[Connector]:
    """A connector that has captured four rows, and then two more in a batch each: entry 6, seq 8, batch 3."""
    connector = memory_connector(db, tmp_path)
    connector.capture()
    for i in (3, 4):
        insert(db, "shop.a", i)
        connector.capture()
    yield connector
    connector.store.close()


@pytest.fixture
def lifecycle(connector: Connector) -> Iterator[ConnectorLifecycle]:
    with open_steering(connector) as lifecycle:
        yield lifecycle
