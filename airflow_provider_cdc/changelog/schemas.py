"""Connect schemas of keys and envelopes, for the JSON form with ``schemas.enable``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from airflow_provider_cdc.changelog.values import column_schema
from airflow_provider_cdc.core.schema import TableSchema

Node = dict[str, Any]

_SOURCE_TYPES: dict[str, tuple[str, bool]] = {
    "version": ("string", False), "connector": ("string", False), "name": ("string", False), "ts_ms": ("int64", False),
    "db": ("string", False), "sequence": ("string", True), "ts_us": ("int64", True), "ts_ns": ("int64", True),
    "table": ("string", True), "server_id": ("int64", False), "gtid": ("string", True), "file": ("string", False),
    "pos": ("int64", False), "row": ("int32", False), "thread": ("int64", True), "query": ("string", True),
}  # fmt: skip


def schema_name(topic: str, suffix: str) -> str:
    """``shop.inventory.orders`` → ``shop.inventory.orders.Key``; characters that Avro does not know become ``_``."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in topic.split(".")]
    return ".".join([*(f"_{p}" if p[:1].isdigit() else p for p in parts), suffix])


@lru_cache(maxsize=512)
def key_schema(topic: str, schema: TableSchema) -> Node | None:
    """Schema of a record's key; ``None`` for a table without one."""
    if not schema.key:
        return None
    fields = [column_schema(schema.column(name), optional=False) for name in schema.key]
    return {"type": "struct", "fields": fields, "optional": False, "name": schema_name(topic, "Key")}


@lru_cache(maxsize=512)
def _row_schema(topic: str, schema: TableSchema, field: str) -> Node:
    fields = [column_schema(c) for c in schema.columns]
    return {"type": "struct", "fields": fields, "optional": True, "name": schema_name(topic, "Value"), "field": field}


def envelope_schema(topic: str, schema: TableSchema, source: Node) -> Node:
    """Schema of a change event's value."""
    times = [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    fields = [
        _row_schema(topic, schema, "before"),
        _row_schema(topic, schema, "after"),
        _source_schema(str(source["connector"]), tuple(source)),
        _TRANSACTION,
        {"type": "string", "optional": False, "field": "op"},
        *times,
    ]
    return {
        "type": "struct", "fields": fields, "optional": False, "name": schema_name(topic, "Envelope"), "version": 2,
    }  # fmt: skip


_TRANSACTION: Node = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}


@lru_cache(maxsize=64)
def _source_schema(connector: str, names: tuple[str, ...]) -> Node:
    fields: list[Node] = []
    for name in names:
        if name == "snapshot":
            allowed = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
            fields.append(
                {
                    "type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
                    "parameters": {"allowed": allowed}, "default": "false", "field": name,
                }
            )  # fmt: skip
        else:
            kind, optional = _SOURCE_TYPES.get(name, ("string", True))
            fields.append({"type": kind, "optional": optional, "field": name})
    owner = f"io.debezium.connector.{connector}.Source"
    return {"type": "struct", "fields": fields, "optional": False, "name": owner, "version": 1, "field": "source"}
