"""Converts the events of one table to keys and values of Debezium's JSON form: rows with columns, or documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_cdc.changelog.debezium.avro_names import AvroNames
from airflow_provider_cdc.changelog.debezium.debezium_values import (
    PLACEHOLDER,
    Convert,
    build_converter,
    find_placeholder,
)
from airflow_provider_cdc.core.model.table_schema import DocumentSchema, TableSchema

Row = dict[str, Any]


class RecordValues(Protocol):
    """Makes records of the events of one topic and schema version."""

    schema: TableSchema
    source: pa.StructType
    names: AvroNames

    def build_key(self, key: Row | None) -> Row | None:
        """Build the key of a record."""

    def build_value(self, event: Row) -> Row:
        """Build the value of a record."""


@dataclass(slots=True)
class _TableRows:
    """Rows of a table with columns: objects with a field for each."""

    schema: TableSchema
    source: pa.StructType
    columns: dict[str, Convert]
    placeholders: Row
    names: AvroNames
    fields: dict[str, str]

    @classmethod
    def from_schema(cls, schema: TableSchema, source: pa.StructType, config: Row) -> _TableRows:
        names = AvroNames.from_config(config)
        text = config.get("unavailable.value.placeholder", PLACEHOLDER)
        binary = config.get("binary.handling.mode", "bytes")
        placeholders = {c.name: find_placeholder(c, text, binary) for c in schema.columns}
        fields = names.map_distinct_fields(schema.column_names, schema.id)
        return cls(schema, source, {c.name: build_converter(c) for c in schema.columns}, placeholders, names, fields)

    def build_key(self, key: Row | None) -> Row | None:
        return self.build_row(key)

    def build_row(self, image: Row | None, unavailable: list[str] | None = None) -> Row | None:
        """Build a row image, or a key.

        :param unavailable: columns whose value the log does not have
        """
        if image is None:
            return None
        row = {self.fields[name]: None if v is None else self.columns[name](v) for name, v in image.items()}
        return row | {self.fields[name]: self.placeholders[name] for name in unavailable} if unavailable else row

    def build_value(self, event: Row) -> Row:
        lacking, op = event["unavailable"], event["op"]
        before = self.build_row(event["before"], lacking if op == "d" else event["unavailable_before"])
        images = {"before": before, "after": self.build_row(event["after"], lacking)}
        return images | {name: event[name] for name in ("source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")}


@dataclass(slots=True)
class _DocumentRows:
    """Documents: each is its text, and one that the log does not have is null."""

    schema: TableSchema
    documents: DocumentSchema
    source: pa.StructType
    names: AvroNames

    def build_key(self, key: Row | None) -> Row | None:
        fields = self.documents.key_fields
        return None if key is None else {fields.get(name, name): value for name, value in key.items()}

    def build_value(self, event: Row) -> Row:
        images = {name: event[name] or {} for name in ("before", "after")}
        texts = {name: image.get(self.documents.body) for name, image in images.items()}
        return {name: texts[name] if name in texts else event[name] for name in self.documents.fields}


def record_values(schema: TableSchema, source: pa.StructType, config: Row) -> RecordValues:
    """Build the converter of one table's events to keys and values.

    :param source: type of the ``source`` block
    :param config: of the manifest
    """
    if schema.documents is None:
        return _TableRows.from_schema(schema, source, config)
    return _DocumentRows(schema, schema.documents, source, AvroNames.from_config(config))
