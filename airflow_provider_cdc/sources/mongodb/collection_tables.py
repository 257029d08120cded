"""Collections as core's tables: the text of the key, the text of the document, and beside them the changes of an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import Column, DocumentSchema, EventColumn, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import VARIED
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import TEMPORARY
from airflow_provider_cdc.sources.mongodb.connect import Client

_JSON: Final = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
_TRUNCATED: Final = "io.debezium.connector.mongodb.changestream.truncatedarray"

UPDATE_DESCRIPTION: Final = EventColumn(
    name="updateDescription",
    type="struct<removedFields: list<item: string>, updatedFields: string, truncatedArrays: list<item: struct<field: string, size: int32>>>",
    described={
        "type": "struct",
        "fields": [
            {"type": "array", "items": {"type": "string", "optional": False}, "optional": True, "field": "removedFields"},
            _JSON | {"field": "updatedFields"},
            {
                "type": "array",
                "items": {
                    "type": "struct",
                    "fields": [
                        {"type": "string", "optional": False, "field": "field"},
                        {"type": "int32", "optional": False, "field": "size"},
                    ],
                    "optional": False, "name": _TRUNCATED, "version": 1,
                },
                "optional": True, "field": "truncatedArrays",
            },
        ],
        "optional": True, "name": "io.debezium.connector.mongodb.changestream.updatedescription", "version": 1,
    },
)  # fmt: skip
DISAMBIGUATED_PATHS: Final = EventColumn(name="disambiguatedPaths", type="string")
"""The meaning of an update's paths, as extended JSON; null where the server has not sent it. It is for targets: records do not have it."""
DOCUMENTS: Final = DocumentSchema(
    body="document",
    key_fields={"_id": "id"},
    table_field="collection",
    source_schema="io.debezium.connector.mongo.Source",
    columns=(UPDATE_DESCRIPTION, DISAMBIGUATED_PATHS),
    fields=("before", "after", UPDATE_DESCRIPTION.name, "source", "op", "ts_ms", "transaction"),
    updates="mongodb",
)
VARIANTS: Final = DOCUMENTS.model_copy(update={"preferred_form": "variant"})
SOURCE_FIELDS: Final = (
    pa.field("ord", pa.int32(), nullable=False),
    pa.field("lsid", pa.string(), metadata=VARIED),
    pa.field("txnNumber", pa.int64()),
    pa.field("wallTime", pa.int64()),
)
"""The source's own fields of the ``source`` block (spec MG-119 to 122, MG-126)."""
_INTERNAL: Final = frozenset({"admin", "config", "local"})


def schema_of(config: MongoDbConfig, table: TableId) -> TableSchema:
    """Build the schema of a collection.

    :raises ConfigError: the configuration wants its documents in two forms
    """
    return collection_schema(table, variant=config.as_variant(table))


@lru_cache(maxsize=4096)
def collection_schema(table: TableId, *, variant: bool = False) -> TableSchema:
    """Build the schema of a collection, which is that of all.

    :param variant: tables that can are to have its documents as variants
    """
    return TableSchema(
        id=table,
        key=("_id",),
        documents=VARIANTS if variant else DOCUMENTS,
        columns=(
            Column(name="_id", type="string", nullable=False),
            Column(name="document", type="string", semantic="io.debezium.data.Json"),
        ),
    )


def list_visible_collections(client: Client) -> Iterator[tuple[TableId, dict[str, Any]]]:
    """List the collections that the account may see, each with the options that it was made with.

    There are no views and no time series among them, which have no events.
    """
    for database in client.list_database_names():
        if database in _INTERNAL:
            continue
        for info in client[database].list_collections(authorizedCollections=True, nameOnly=True):
            name = info["name"]
            if info["type"] == "collection" and not name.startswith("system.") and not TEMPORARY.fullmatch(name):
                yield TableId(namespace=database, name=name), dict(info)


def is_capped(client: Client, table: TableId) -> bool:
    """Return whether a collection is of a fixed size."""
    infos = client[table.namespace].list_collections(filter={"name": table.name})
    return any(info.get("options", {}).get("capped") for info in infos)


def validator_of(client: Client, table: TableId) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a collection's validator; ``None``: it has none."""
    options = options_of(client, table.namespace).get(table.name, {})
    schema = options.get("validator", {}).get("$jsonSchema")
    return schema if isinstance(schema, Mapping) else None


def options_of(client: Client, database: str) -> dict[str, dict[str, Any]]:
    """Read the options of the collections of a database, by their names."""
    return {info["name"]: dict(info.get("options", {})) for info in client[database].list_collections()}
