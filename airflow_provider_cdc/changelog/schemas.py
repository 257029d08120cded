"""Connect schemas of keys and envelopes, for the JSON form with ``schemas.enable``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.changelog.names import Names
from airflow_provider_cdc.changelog.values import column_schema
from airflow_provider_cdc.core.schema import Column, TableSchema

Node = dict[str, Any]

_PLAIN = Names()
_LITERALS = {"bool": "boolean", "float": "float", "double": "double", "binary": "bytes"}


@lru_cache(maxsize=512)
def key_schema(topic: str, schema: TableSchema, names: Names = _PLAIN) -> Node | None:
    """Schema of a record's key; ``None`` for a table without one."""
    if not schema.key:
        return None
    fields = [_field(schema.column(name), names, optional=False) for name in schema.key]
    return {"type": "struct", "fields": fields, "optional": False, "name": names.schema(f"{topic}.Key")}


@lru_cache(maxsize=512)
def _row_schema(topic: str, schema: TableSchema, field: str, names: Names) -> Node:
    fields = [_field(c, names) for c in schema.columns]
    name = names.schema(f"{topic}.Value")
    return {"type": "struct", "fields": fields, "optional": True, "name": name, "field": field}


def _field(column: Column, names: Names, *, optional: bool | None = None) -> Node:
    return column_schema(column, optional=optional) | {"field": names.field(column.name)}


def envelope_schema(topic: str, schema: TableSchema, owner: str, source: pa.StructType, names: Names = _PLAIN) -> Node:
    """Schema of a change event's value.

    :param owner: name of the schema of the ``source`` block
    :param source: its type
    """
    times = [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    fields = [
        _row_schema(topic, schema, "before", names),
        _row_schema(topic, schema, "after", names),
        _source_schema(owner, source),
        _TRANSACTION,
        {"type": "string", "optional": False, "field": "op"},
        *times,
    ]
    return {
        "type": "struct", "fields": fields, "optional": False, "name": names.schema(f"{topic}.Envelope"), "version": 2,
    }  # fmt: skip


NOTIFICATION_KEY: Node = {
    "type": "struct",
    "fields": [{"type": "string", "optional": False, "field": "id"}],
    "optional": False,
    "name": "io.debezium.connector.common.NotificationKey",
    "version": 1,
}
_STRING: Node = {"type": "string", "optional": False}
NOTIFICATION_VALUE: Node = {
    "type": "struct",
    "fields": [
        _STRING | {"field": "id"},
        _STRING | {"field": "type"},
        _STRING | {"field": "aggregate_type"},
        {"type": "map", "keys": _STRING, "values": _STRING, "optional": True, "field": "additional_data"},
        {"type": "int64", "optional": False, "field": "timestamp"},
    ],
    "optional": False,
    "name": "io.debezium.connector.common.Notification",
    "version": 1,
}
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
def _source_schema(owner: str, source: pa.StructType) -> Node:
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
    return {"type": "struct", "fields": fields, "optional": False, "name": owner, "version": 1, "field": "source"}
