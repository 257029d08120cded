"""Small tables on the memory source, and what a run made of them."""

from __future__ import annotations

from collections import Counter

from airflow_provider_cdc.core.capture.connector_capture import CaptureResult
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector

KEYED = {"id": "int64!", "n": "int32", "note": "string"}


def insert(db: MemoryDatabase, table: str, *ids: int) -> None:
    """Insert rows, as a transaction."""
    with db.transaction() as t:
        for i in ids:
            t.insert(table, {"id": i, "n": i})


def equal(connector: Connector, db: MemoryDatabase, *tables: str) -> None:
    """The change log replays to these tables, or to all."""
    for table in tables or tuple(map(str, db.read_consistent_view()[1])):
        assert connector.rows(table) == sorted(db.copy_rows(table), key=repr), table


def operations(connector: Connector, result: CaptureResult) -> dict[str, Counter[str]]:
    """Table → operations of the batches of one run, truncates included."""
    found: dict[str, Counter[str]] = {}
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files if manifest.batch in result.batches else ():
            found.setdefault(file.topic.rpartition(".")[2], Counter()).update(file.counts)
    return found
