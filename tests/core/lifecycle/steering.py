"""Steering a connector, and looking at what comes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from airflow_provider_cdc.connector import open_lifecycle
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector


@contextlib.contextmanager
def open_steering(connector: Connector, **properties: Any) -> Iterator[ConnectorLifecycle]:
    with open_lifecycle(connector.definition(**properties), connector.state_url) as lifecycle:
        yield lifecycle


def delete(db: MemoryDatabase, table: str, *ids: int) -> None:
    with db.transaction() as t:
        for i in ids:
            t.delete(table, {"id": i})


def last_rows(connector: Connector, table: str) -> list[dict[str, Any]]:
    """Rows of a table as a target has them that keeps the last event of each key: events may come twice."""
    rows: dict[int, dict[str, Any] | None] = {}
    for manifest in connector.changelog.read_manifests("test"):
        files = [connector.changelog.open_file("test", f) for f in manifest.files if f.topic == f"test.{table}"]
        events = [event for file in files for event in pq.read_table(file).to_pylist()]
        for event in sorted(events, key=lambda e: e["seq"]):
            if event["op"] == "t":
                rows.clear()
            else:
                rows[event["key"]["id"]] = event["after"]
    return sorted((row for row in rows.values() if row is not None), key=repr)


def the_same(connector: Connector, db: MemoryDatabase, *tables: str) -> None:
    for table in tables:
        assert last_rows(connector, table) == sorted(db.copy_rows(table), key=repr), table
