"""A small shop on the memory source."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.workloads.small_tables import KEYED, insert


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    """Two tables with two rows each."""
    db = MemoryDatabase(request.node.nodeid)
    for table in ("shop.a", "shop.b"):
        db.create_table(table, KEYED, key=("id",))
        insert(db, table, 1, 2)
    return db
