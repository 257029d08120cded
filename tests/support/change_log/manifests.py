"""Manifests for tests that do not care what is in them."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema

SCHEMA = TableSchema(id=TableId(namespace="shop", name="t"), columns=(Column(name="a", type="int64"),), key=("a",))


def manifest(batch: int = 1, *, first: int = 1, events: int = 2, changes: int = 1, **more: Any) -> Manifest:
    """A batch of ``events`` events in one file, after ``changes`` schema changes."""
    last = first + events + changes - 1
    file = DataFile(
        topic="p.shop.t", schema_version=1, path=f"data/{batch:012d}/f.parquet", rows=events, bytes=100, crc32=7,
        first_seq=first + changes, last_seq=last, counts={"c": events},
    )  # fmt: skip
    change = TableChange(type="ALTER", id=SCHEMA.id, table=SCHEMA)
    records = [
        SchemaChangeRecord(
            seq=first + i,
            ddl=f"DDL {first + i}",
            database="shop",
            position={"entry": batch},
            ts_us=5,
            captured_us=5,
            changes=[change],
        )
        for i in range(changes)
    ]
    fields: dict[str, Any] = {
        "connector": "c", "source": "memory", "batch": batch, "epoch": 1, "writer": "w", "created_at": "now",
        "first_seq": first, "last_seq": last, "offset_before": None,
        "offset_after": Offset(position={"entry": batch}, seq=last, batch=batch), "files": [file] if events else [],
        "schemas": {"p.shop.t": {"1": SCHEMA}}, "schema_changes": records,
    }  # fmt: skip
    return Manifest(**(fields | more))
