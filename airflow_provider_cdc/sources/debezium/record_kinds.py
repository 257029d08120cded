"""What a record is: an event with an envelope, a flat row, the end of a key, or a record of another kind, which is no event of a table.

With a schema its name and fields say it, otherwise the fields of the value (Debezium connector documents, "Change events"; Debezium JDBC sink
connector, "Consuming complex Debezium change events").
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.sources.debezium.schema_columns import LOGICAL


class Shape(enum.Enum):
    """Of a value."""

    ENVELOPE = "an event"
    FLAT = "a flat row"
    HEARTBEAT = "a heartbeat"
    TRANSACTION = "a boundary of a transaction"
    SCHEMA_CHANGE = "a schema change"
    NOTIFICATION = "a notification"
    MESSAGE = "a logical decoding message"
    UNKNOWN = "of a form that is not known"


EVENTS: Final = (Shape.ENVELOPE, Shape.FLAT)
_NAMED: Final = {
    "io.debezium.connector.common.Heartbeat": Shape.HEARTBEAT,
    "io.debezium.connector.common.TransactionMetadataValue": Shape.TRANSACTION,
    "io.debezium.connector.common.Notification": Shape.NOTIFICATION,
}
"""Schemas of values that are no events of a table."""
_FIELDS: Final[Mapping[frozenset[str], Shape]] = {
    frozenset({"status", "id", "event_count", "data_collections"}): Shape.TRANSACTION,
    frozenset({"aggregate_type", "type", "additional_data"}): Shape.NOTIFICATION,
    frozenset({"ddl", "tableChanges", "source"}): Shape.SCHEMA_CHANGE,
    frozenset({"ddl", "databaseName", "source"}): Shape.SCHEMA_CHANGE,
    frozenset({"op", "source", "message"}): Shape.MESSAGE,
}
"""Fields that only values of this kind have all of."""


def of_schema(schema: Mapping[str, Any]) -> Shape:
    """What a value is by its schema."""
    name, fields = str(schema.get("name", "")), schema.get("fields")
    if (found := _NAMED.get(name)) is not None:
        return found
    if name.endswith(".SchemaChangeValue"):
        return Shape.SCHEMA_CHANGE
    if schema.get("type") != "struct" or not isinstance(fields, list):
        return Shape.UNKNOWN
    named = {str(field.get("field")): field for field in fields}
    if "op" in named and ("after" in named or "before" in named):
        image = named.get("after") or named["before"]
        return Shape.ENVELOPE if image.get("type") == "struct" else Shape.UNKNOWN
    if name == "io.debezium.connector.postgresql.MessageValue" or {"op", "source", "message"} <= named.keys():
        return Shape.MESSAGE
    nested = [f for f in fields if f.get("type") == "struct" and f.get("name") not in LOGICAL]
    return Shape.UNKNOWN if nested else Shape.FLAT


def of_value(topic: str, value: Any) -> Shape:
    """What a value without a schema is."""
    if not isinstance(value, dict) or not value:
        return Shape.UNKNOWN
    names = value.keys()
    if "op" in names and ("after" in names or "before" in names):
        images = (value.get("before"), value.get("after"))
        return Shape.ENVELOPE if all(i is None or isinstance(i, dict) for i in images) else Shape.UNKNOWN
    if topic.startswith("__debezium-heartbeat") or (names == {"ts_ms"} and "heartbeat" in topic):
        return Shape.HEARTBEAT
    for fields, shape in _FIELDS.items():
        if fields <= names:
            return shape
    nested = [v for v in value.values() if isinstance(v, dict) and not _is_logical(v)]
    return Shape.UNKNOWN if nested else Shape.FLAT


def _is_logical(value: Mapping[str, Any]) -> bool:
    """A geometry, or a decimal with its own scale."""
    return value.keys() in ({"wkb", "srid"}, {"x", "y", "wkb", "srid"}, {"scale", "value"})
