"""Captures with readers of other processes, and the events that they have written."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.capture.connector_capture import CaptureResult
from tests.support.connectors import Connector
from tests.support.processes.snapshot_reader import ForkedReaders

_PLACE = frozenset({"ts_ms", "ts_us", "ts_ns", "snapshot", "pos", "file", "gtid", "scn", "ord"})


def capture_with(connector: Connector, readers: ForkedReaders) -> CaptureResult:
    """Capture once."""
    opened = open_capture(
        connector.definition(), connector.state_url, secrets=connector.secrets, lease_ttl_s=5, reader_job=readers
    )
    with opened as capture:
        return capture.run()


def read_events(connector: Connector) -> list[dict[str, Any]]:
    """Return all events of a connector, in their order."""
    files = [file for manifest in connector.changelog.read_manifests("test") for file in manifest.files]
    tables = [pq.read_table(connector.changelog.open_file("test", file)) for file in files]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["seq"])


def without_place(event: dict[str, Any]) -> Any:
    """Leave out what differs between two snapshots: numbers, times, the position, and which row of a table is its first one."""
    source = {k: v for k, v in event["source"].items() if k not in _PLACE}
    return (
        event["op"],
        event.get("key"),
        event["before"],
        event["after"],
        source,
        event["schema_version"],
        event["transaction"],
    )
