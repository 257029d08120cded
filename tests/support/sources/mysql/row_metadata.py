"""Servers that log less or more of the columns of rows, and the events that are captured of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from tests.support.connectors import Connector


@contextlib.contextmanager
def row_metadata(server: Any, level: str) -> Iterator[None]:
    """Have the server log so much of the columns."""
    server.sql(f"SET GLOBAL binlog_row_metadata = '{level}'")
    try:
        yield
    finally:
        server.sql("SET GLOBAL binlog_row_metadata = 'FULL'")


def list_events(connector: Connector) -> dict[str, list[tuple[Any, ...]]]:
    """Return table → operations, rows and keys of its events, in their order."""
    rows: list[dict[str, Any]] = []
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files:
            for row in pq.read_table(connector.changelog.storage.join_path("test", file.path)).to_pylist():
                rows.append(row | {"topic": re.sub(r"^.*\.", "", file.topic)})
    rows.sort(key=lambda row: row["seq"])
    events: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        events.setdefault(row["topic"], []).append((row["op"], row.get("before"), row.get("after"), row.get("key")))
    return events
