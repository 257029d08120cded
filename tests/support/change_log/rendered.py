"""The captured events of a connector, as Debezium's records."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from tests.support.connectors import Connector

Record = dict[str, Any]


def records(connector: Connector, *, after: int = 0, schemas: bool = False) -> list[Record]:
    """All records of the batches after ``after``; with ``schemas`` key and value have ``schema`` and ``payload``."""
    renderer = DebeziumRenderer(connector.changelog, connector.name, schemas=schemas)
    return [r.to_document(schemas=schemas) for r in renderer.render_records(after=after)]


def capture_records(connector: Connector, *, schemas: bool = False) -> list[Record]:
    """Capture once, and give the records of that run."""
    before = connector.changelog.list_batches(connector.name)
    connector.capture()
    return records(connector, after=before[-1] if before else 0, schemas=schemas)


def of_table(found: list[Record], table: str) -> list[Record]:
    """The records of one table, by the end of its topic."""
    return [r for r in found if r["topic"].endswith(f".{table}")]


def row_fields(record: Record) -> dict[str, Record]:
    """Column → its node in the schema of a record's value."""
    images = {f["field"]: f for f in record["value"]["schema"]["fields"]}
    return {f["field"]: f for f in images["after"]["fields"]}
