"""Kinds of records: an event with an envelope, a flat row, the end of a key, or a record that is no event of a table.

With a schema its name and fields say it, otherwise the fields of the value (Debezium connector documents, "Change events"; Debezium JDBC sink
connector, "Consuming complex Debezium change events").
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.sources.debezium.schema_columns import LOGICAL


class RecordKind(enum.Enum):
    """Kinds of a record's value."""

    ENVELOPE = "an event"
    FLAT = "a flat row"
    HEARTBEAT = "a heartbeat"
    TRANSACTION = "a transaction boundary"
    SCHEMA_CHANGE = "a schema change"
    NOTIFICATION = "a notification"
    MESSAGE = "a logical decoding message"
    UNKNOWN = "of an unknown format"


EVENTS: Final = (RecordKind.ENVELOPE, RecordKind.FLAT)
_NAMED: Final = {
    "io.debezium.connector.common.Heartbeat": RecordKind.HEARTBEAT,
    "io.debezium.connector.common.TransactionMetadataValue": RecordKind.TRANSACTION,
    "io.debezium.connector.common.Notification": RecordKind.NOTIFICATION,
}
"""Schemas of values that are no events of a table."""
_FIELDS: Final[Mapping[frozenset[str], RecordKind]] = {
    frozenset({"status", "id", "event_count", "data_collections"}): RecordKind.TRANSACTION,
    frozenset({"aggregate_type", "type", "additional_data"}): RecordKind.NOTIFICATION,
    frozenset({"ddl", "tableChanges", "source"}): RecordKind.SCHEMA_CHANGE,
    frozenset({"ddl", "databaseName", "source"}): RecordKind.SCHEMA_CHANGE,
    frozenset({"op", "source", "message"}): RecordKind.MESSAGE,
}
"""Fields that only values of this kind have all of."""


def of_schema(schema: Mapping[str, Any]) -> RecordKind:
    """Return the kind of a value by its schema."""
    name, fields = str(schema.get("name", "")), schema.get("fields")
    if (kind := _NAMED.get(name)) is not None:
        return kind
    if name.endswith(".SchemaChangeValue"):
        return RecordKind.SCHEMA_CHANGE
    if schema.get("type") != "struct" or not isinstance(fields, list):
        return RecordKind.UNKNOWN
    named = {str(field.get("field")): field for field in fields}
    if "op" in named and ("after" in named or "before" in named):
        image = named.get("after") or named["before"]
        return RecordKind.ENVELOPE if image.get("type") == "struct" else RecordKind.UNKNOWN
    if name == "io.debezium.connector.postgresql.MessageValue" or {"op", "source", "message"} <= named.keys():
        return RecordKind.MESSAGE
    nested = [f for f in fields if f.get("type") == "struct" and f.get("name") not in LOGICAL]
    return RecordKind.UNKNOWN if nested else RecordKind.FLAT


def of_value(topic: str, value: Any) -> RecordKind:
    """Return the kind of a value without a schema."""
    if not isinstance(value, dict) or not value:
        return RecordKind.UNKNOWN
    names = value.keys()
    if "op" in names and ("after" in names or "before" in names):
        images = (value.get("before"), value.get("after"))
        return RecordKind.ENVELOPE if all(i is None or isinstance(i, dict) for i in images) else RecordKind.UNKNOWN
    if topic.startswith("__debezium-heartbeat") or (names == {"ts_ms"} and "heartbeat" in topic):
        return RecordKind.HEARTBEAT
    for fields, shape in _FIELDS.items():
        if fields <= names:
            return shape
    nested = [v for v in value.values() if isinstance(v, dict) and not _is_logical(v)]
    return RecordKind.UNKNOWN if nested else RecordKind.FLAT


def _is_logical(value: Mapping[str, Any]) -> bool:
    """Check for a geometry, or a decimal with its own scale."""
    return value.keys() in ({"wkb", "srid"}, {"x", "y", "wkb", "srid"}, {"scale", "value"})
