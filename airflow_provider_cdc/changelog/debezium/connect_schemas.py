"""Connect schemas of keys and envelopes, for the JSON form with ``schemas.enable``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.changelog.debezium.avro_names import AvroNames
from airflow_provider_cdc.changelog.debezium.debezium_values import column_schema
from airflow_provider_cdc.core.model.table_schema import Column, DocumentSchema, TableSchema, arrow_type

Node = dict[str, Any]

_PLAIN = AvroNames()
_LITERALS = {"bool": "boolean", "float": "float", "double": "double", "binary": "bytes"}


@lru_cache(maxsize=512)
def key_schema(topic: str, schema: TableSchema, names: AvroNames = _PLAIN) -> Node | None:
    """Build the schema of a record's key; ``None`` for a table without one."""
    if not schema.key:
        return None
    fields = [_field(schema.get_column(name), names, optional=False) for name in schema.key]
    if schema.documents is not None:
        renamed = schema.documents.key_fields
        fields = [node | {"field": renamed.get(name, name)} for name, node in zip(schema.key, fields, strict=True)]
    return {"type": "struct", "fields": fields, "optional": False, "name": names.adjust_schema_name(f"{topic}.Key")}


@lru_cache(maxsize=512)
def _row_schema(topic: str, schema: TableSchema, field: str, names: AvroNames) -> Node:
    if schema.documents is not None:
        return column_schema(schema.get_column(schema.documents.body), optional=True) | {"field": field}
    fields = [_field(c, names) for c in schema.columns]
    name = names.adjust_schema_name(f"{topic}.Value")
    return {"type": "struct", "fields": fields, "optional": True, "name": name, "field": field}


def _field(column: Column, names: AvroNames, *, optional: bool | None = None) -> Node:
    return column_schema(column, optional=optional) | {"field": names.adjust_field_name(column.name)}


def envelope_schema(
    topic: str, schema: TableSchema, owner: str, source: pa.StructType, names: AvroNames = _PLAIN
) -> Node:
    """Build the schema of a change event's value.

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
    node = {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": names.adjust_schema_name(f"{topic}.Envelope"),
    }
    if schema.documents is not None:  # Debezium gives this one no version
        return node | {"fields": _of_documents(schema.documents, fields)}
    return node | {"version": 2}


def _of_documents(documents: DocumentSchema, usual: list[Node]) -> list[Node]:
    """Select the fields of a value from those that values have and from the events' own."""
    nodes = {node["field"]: node for node in usual}
    nodes["op"] = nodes["op"] | {"optional": True}
    nodes |= {column.name: {**column.described, "field": column.name} for column in documents.columns}
    return [nodes[name] for name in documents.fields]


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
TRANSACTION_KEY: Node = {
    "type": "struct",
    "fields": [_STRING | {"field": "id"}],
    "optional": False,
    "name": "io.debezium.connector.common.TransactionMetadataKey",
    "version": 1,
}
_COUNTS: Node = {
    "type": "struct",
    "fields": [_STRING | {"field": "data_collection"}, {"type": "int64", "optional": False, "field": "event_count"}],
    "optional": True,
    "name": "event.collection",
    "version": 1,
}
TRANSACTION_VALUE: Node = {
    "type": "struct",
    "fields": [
        _STRING | {"field": "status"},
        _STRING | {"field": "id"},
        {"type": "int64", "optional": True, "field": "event_count"},
        {"type": "array", "items": _COUNTS, "optional": True, "field": "data_collections"},
        {"type": "int64", "optional": False, "field": "ts_ms"},
    ],
    "optional": False,
    "name": "io.debezium.connector.common.TransactionMetadataValue",
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


_TEXT: Node = {"type": "string", "optional": True}
_COMMON = {
    "version": "string!", "connector": "string!", "name": "string!", "ts_ms": "int64!", "snapshot": "string", "db": "string!",
    "sequence": "string", "ts_us": "int64", "ts_ns": "int64", "schema": "string", "table": "string",
}  # fmt: skip
"""Fields of the ``source`` block of every schema change → Arrow type, ``!`` where required."""


def schema_change_key(connector: str) -> Node:
    """Build the schema of the key of a schema change record."""
    name = f"io.debezium.connector.{connector}.SchemaChangeKey"
    return {
        "type": "struct",
        "fields": [_STRING | {"field": "databaseName"}],
        "optional": False,
        "name": name,
        "version": 1,
    }


def schema_change_value(connector: str, owner: str, source: Mapping[str, Any], types: Mapping[str, str]) -> Node:
    """Build the schema of a schema change record's value.

    :param owner: name of the schema of the ``source`` block
    :param source: that block
    :param types: of the source's own fields, see :class:`~airflow_provider_cdc.core.model.batch_manifest.Manifest`
    """
    declared = {**types, **_COMMON}
    guessed = {name: "int64" if isinstance(value, int) else "string" for name, value in source.items()}
    described = tuple((name, declared.get(name, guessed[name])) for name in source)
    return _schema_change_value(f"io.debezium.connector.{connector}.SchemaChangeValue", owner, described)


@lru_cache(maxsize=64)
def _schema_change_value(name: str, owner: str, source: tuple[tuple[str, str], ...]) -> Node:
    block = pa.struct(pa.field(n, arrow_type(t.removesuffix("!")), nullable=not t.endswith("!")) for n, t in source)
    texts = {"databaseName": _TEXT, "schemaName": _TEXT, "ddl": _TEXT}
    fields = [
        _source_schema(owner, block),
        {"type": "int64", "optional": False, "field": "ts_ms"},
        *({**node, "field": field} for field, node in texts.items()),
        {"type": "array", "items": _CHANGE, "optional": False, "field": "tableChanges"},
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}


def _texts(field: str) -> Node:
    return {"type": "array", "items": _STRING, "optional": True, "field": field}


_COLUMN: Node = {
    "type": "struct",
    "fields": [
        _STRING | {"field": "name"},
        {"type": "int32", "optional": False, "field": "jdbcType"},
        {"type": "int32", "optional": True, "field": "nativeType"},
        _STRING | {"field": "typeName"},
        _TEXT | {"field": "typeExpression"},
        _TEXT | {"field": "charsetName"},
        {"type": "int32", "optional": True, "field": "length"},
        {"type": "int32", "optional": True, "field": "scale"},
        {"type": "int32", "optional": False, "field": "position"},
        {"type": "boolean", "optional": True, "field": "optional"},
        {"type": "boolean", "optional": True, "field": "autoIncremented"},
        {"type": "boolean", "optional": True, "field": "generated"},
        _TEXT | {"field": "comment"},
        _TEXT | {"field": "defaultValueExpression"},
        _texts("enumValues"),
    ],
    "optional": False,
    "name": "io.debezium.connector.schema.Column",
    "version": 1,
}
_TABLE: Node = {
    "type": "struct",
    "fields": [
        _TEXT | {"field": "defaultCharsetName"},
        _texts("primaryKeyColumnNames"),
        {"type": "array", "items": _COLUMN, "optional": False, "field": "columns"},
        _TEXT | {"field": "comment"},
        _texts("attributes"),
    ],
    "optional": True,
    "name": "io.debezium.connector.schema.Table",
    "version": 1,
    "field": "table",
}
_CHANGE: Node = {
    "type": "struct",
    "fields": [_STRING | {"field": "type"}, _STRING | {"field": "id"}, _TABLE],
    "optional": False,
    "name": "io.debezium.connector.schema.Change",
    "version": 1,
}
