"""Connect schemas of keys and envelopes, for the JSON form with ``schemas.enable``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.changelog.values import column_schema
from airflow_provider_cdc.core.schema import TableSchema

Node = dict[str, Any]

_LITERALS = {"bool": "boolean", "float": "float", "double": "double", "binary": "bytes"}


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


def envelope_schema(topic: str, schema: TableSchema, connector: str, source: pa.StructType) -> Node:
    """Schema of a change event's value.

    :param connector: the documented ``source.connector`` value
    :param source: type of the ``source`` block in the change log
    """
    times = [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    fields = [
        _row_schema(topic, schema, "before"),
        _row_schema(topic, schema, "after"),
        _source_schema(connector, source),
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
def _source_schema(connector: str, source: pa.StructType) -> Node:
    fields: list[Node] = []
    for own in source:
        if own.name == "snapshot":
            allowed = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
            fields.append(
                {
                    "type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
                    "parameters": {"allowed": allowed}, "default": "false", "field": own.name,
                }
            )  # fmt: skip
        else:
            type_ = str(own.type)
            kind = type_ if pa.types.is_integer(own.type) else _LITERALS.get(type_, "string")
            fields.append({"type": kind, "optional": own.nullable, "field": own.name})
    owner = f"io.debezium.connector.{connector}.Source"
    return {"type": "struct", "fields": fields, "optional": False, "name": owner, "version": 1, "field": "source"}
