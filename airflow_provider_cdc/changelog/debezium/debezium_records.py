"""How the events of one table become keys and values of Debezium's JSON form: rows with columns, or documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_cdc.changelog.debezium.avro_names import Names
from airflow_provider_cdc.changelog.debezium.debezium_values import PLACEHOLDER, Convert, converter, placeholder
from airflow_provider_cdc.core.model.schema import Documents, TableSchema

Row = dict[str, Any]


class RecordValues(Protocol):
    """Makes records of the events of one topic and schema version."""

    schema: TableSchema
    source: pa.StructType
    names: Names

    def key(self, key: Row | None) -> Row | None:
        """The key of a record."""

    def value(self, event: Row) -> Row:
        """The value of a record."""


@dataclass(slots=True)
class _TableRows:
    """Rows of a table with columns: objects with a field for each."""

    schema: TableSchema
    source: pa.StructType
    columns: dict[str, Convert]
    placeholders: Row
    names: Names
    fields: dict[str, str]

    @classmethod
    def of(cls, schema: TableSchema, source: pa.StructType, config: Row) -> _TableRows:
        names = Names.of(config)
        text = config.get("unavailable.value.placeholder", PLACEHOLDER)
        binary = config.get("binary.handling.mode", "bytes")
        placeholders = {c.name: placeholder(c, text, binary) for c in schema.columns}
        fields = names.distinct(schema.names, schema.id)
        return cls(schema, source, {c.name: converter(c) for c in schema.columns}, placeholders, names, fields)

    def key(self, key: Row | None) -> Row | None:
        return self.row(key)

    def row(self, image: Row | None, unavailable: list[str] | None = None) -> Row | None:
        """A row image, or a key.

        :param unavailable: columns whose value the log does not have
        """
        if image is None:
            return None
        row = {self.fields[name]: None if v is None else self.columns[name](v) for name, v in image.items()}
        return row | {self.fields[name]: self.placeholders[name] for name in unavailable} if unavailable else row

    def value(self, event: Row) -> Row:
        lacking, op = event["unavailable"], event["op"]
        before = self.row(event["before"], lacking if op == "d" else event["unavailable_before"])
        images = {"before": before, "after": self.row(event["after"], lacking)}
        return images | {name: event[name] for name in ("source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")}


@dataclass(slots=True)
class _DocumentRows:
    """Documents: each is its text, and one that the log does not have is null."""

    schema: TableSchema
    documents: Documents
    source: pa.StructType
    names: Names

    def key(self, key: Row | None) -> Row | None:
        fields = self.documents.key_fields
        return None if key is None else {fields.get(name, name): value for name, value in key.items()}

    def value(self, event: Row) -> Row:
        images = {name: event[name] or {} for name in ("before", "after")}
        texts = {name: image.get(self.documents.body) for name, image in images.items()}
        return {name: texts[name] if name in texts else event[name] for name in self.documents.fields}


def record_values(schema: TableSchema, source: pa.StructType, config: Row) -> RecordValues:
    """
    :param source: type of the ``source`` block
    :param config: of the manifest
    """
    if schema.documents is None:
        return _TableRows.of(schema, source, config)
    return _DocumentRows(schema, schema.documents, source, Names.of(config))
