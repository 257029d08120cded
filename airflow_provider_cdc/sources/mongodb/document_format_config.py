"""In which form tables have documents: properties, and the columns that a JSON Schema declares (MongoDB manual, "$jsonSchema"), in its order.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId

PROPERTY: Final = "document.columns.schema"
VALIDATOR: Final = "validator"
"""Instead of a schema: that of the collection's own validator."""
_WORDS: Final = {
    "int": "long", "long": "long", "double": "double", "string": "string", "bool": "bool", "boolean": "bool", "date": "date",
    "objectId": "objectid", "binData": "bindata", "decimal": "decimal", "array": "json", "object": "json",
    **dict.fromkeys(("regex", "timestamp", "javascript", "symbol", "minKey", "maxKey", "undefined", "dbPointer", "javascriptWithScope"), "json"),
}  # fmt: skip
"""``bsonType`` or ``type`` → the form that its values have in a column. ``number`` and ``null`` say none."""


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """The declarations of a schema.

    :param columns: the path of each field, with the word of a form
    :param closed: no other field gets a column
    """

    columns: tuple[tuple[tuple[str, ...], str], ...] = ()
    closed: bool = False


def parse_declared_columns(schema: Mapping[str, Any], depth: int) -> DeclaredColumns:
    """Parse the columns of a schema.

    :param depth: how many levels of documents are taken apart
    :raises ValueError: it is no schema of documents
    """
    return DeclaredColumns(tuple(_columns(schema, (), depth)), schema.get("additionalProperties") is False)


def _columns(schema: Mapping[str, Any], within: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError("properties is not a document")
    for name, field in properties.items():
        path = (*within, str(name))
        if path == ("_id",):
            continue
        if not isinstance(field, Mapping):
            raise ValueError(f"the schema of {'.'.join(path)} is not a document")
        words = field.get("bsonType", field.get("type", []))
        for word in words if isinstance(words, list) else [words]:
            if not isinstance(word, str):
                raise ValueError(f"{word!r}, the type of {'.'.join(path)}, is not a string")
            if word == "object" and len(path) < depth:
                yield from _columns(field, path, depth)
            elif word in _WORDS:
                yield path, _WORDS[word]
            elif word not in ("number", "null"):
                raise ValueError(f"{word!r}, the type of {'.'.join(path)}, is not a BSON type")


def with_schemas(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties, with the schemas of collections as values of one property.

    >>> with_schemas({"document.columns.schema.shop.orders": "validator"})
    {'document.columns.schema': {'shop.orders': 'validator'}}
    """
    others = {name: value for name, value in properties.items() if not name.startswith(f"{PROPERTY}.")}
    by_collection = {
        name.removeprefix(f"{PROPERTY}."): value for name, value in properties.items() if name not in others
    }
    return others | ({PROPERTY: {**others.get(PROPERTY, {}), **by_collection}} if by_collection else {})


def parse_columns_property(collection: str, text: str, depth: int) -> DeclaredColumns | None:
    """Parse the columns that a property declares; ``None``: those of the validator count.

    :raises ConfigError: it is no schema
    """
    if text.strip() == VALIDATOR:
        return None
    try:
        schema = json.loads(text)
        schema = schema.get("$jsonSchema", schema) if isinstance(schema, dict) else None
        if not isinstance(schema, dict):
            raise ValueError("it is not a document")
        return parse_declared_columns(schema, depth)
    except (ValueError, RecursionError) as e:
        raise ConfigError(
            f"{PROPERTY}.{collection} cannot be used: {e}.",
            remedy='write a JSON Schema, such as {"properties": {"total": {"bsonType": "decimal"}}}, or the word '
            "validator",
        ) from None


@lru_cache(maxsize=4096)
def _names(collection: str, patterns: tuple[str, ...]) -> bool:
    """Check whether one of some patterns means a collection."""
    return any(re.fullmatch(pattern, collection, re.IGNORECASE) for pattern in patterns)


class DocumentFormatConfig(ConnectorConfig):
    """In which form tables have the documents of each collection: a text, a VARIANT, or columns, and how these are made."""

    document_columns_list: Patterns = Field(
        (),
        alias="document.columns.list",
        description="Not in Debezium. Collections whose documents become typed columns, as database.collection; documents of other "
        "collections are captured as text.",
    )
    document_columns_depth: int = Field(
        1,
        alias="document.columns.depth",
        ge=1,
        le=8,
        description="Not in Debezium. With document.columns.list: maximum nesting depth of documents that become columns; deeper "
        "documents are captured as text.",
    )
    document_columns_max: int = Field(
        500,
        alias="document.columns.max",
        ge=0,
        le=5000,
        description="Not in Debezium. With document.columns.list: maximum number of columns of a collection; all further fields "
        "are in the column _rest.",
    )
    document_columns_schema: dict[str, str] = Field(
        {},
        alias="document.columns.schema",
        description="Not in Debezium. The property with this name, a dot and the collection name declares columns: a JSON Schema, or the "
        "word validator for the collection's own validator. Fields that it does not declare become columns when "
        "they first occur.",
    )

    document_variant_list: Patterns = Field(
        (),
        alias="document.variant.list",
        description="Not in Debezium. Collections whose documents are VARIANT in Delta and Iceberg tables instead of text, as "
        "database.collection.",
    )

    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "document.columns.list": PropertyEffect.FORM,
        "document.variant.list": PropertyEffect.FORM,
    }

    def as_columns(self, table: TableId) -> bool:
        """Check whether the documents of a collection become columns; those that are signals do not.

        :raises ConfigError: they are to be variants, too
        """
        return self._in(self.document_columns_list, table) and str(table) != self.signal_data_collection

    def as_variant(self, table: TableId) -> bool:
        """Check whether tables that can are to have the documents of a collection as variants.

        :raises ConfigError: they are to be columns, too
        """
        return self._in(self.document_variant_list, table)

    def _in(self, patterns: tuple[str, ...], table: TableId) -> bool:
        matches = [_names(str(table), names) for names in (self.document_columns_list, self.document_variant_list)]
        if all(matches):
            raise ConfigError(
                f"Documents of {table} cannot be both a VARIANT and columns: the collection is in "
                "document.variant.list and in document.columns.list.",
                safe="No document of the collection was read.",
                remedy="remove the collection from one of the two lists",
            )
        return _names(str(table), patterns)

    def refuse_forms(self, why: str) -> None:
        """Reject forms of documents that the configuration does not allow.

        :raises ValueError: a form is wanted that is made of whole documents
        """
        for name, patterns in (("columns", self.document_columns_list), ("variant", self.document_variant_list)):
            if patterns:
                raise ValueError(f"document.{name}.list: {why}")

    def check_columns(self) -> None:
        """Check the schemas of collections.

        :raises ValueError: a schema is of a collection whose documents are no columns
        :raises ConfigError: it is no schema
        """
        for collection, text in self.document_columns_schema.items():
            if not _names(collection, self.document_columns_list):
                raise ValueError(f"{PROPERTY}.{collection}: document.columns.list does not name this collection")
            parse_columns_property(collection, text, self.document_columns_depth)
