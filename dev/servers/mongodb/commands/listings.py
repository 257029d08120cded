"""The commands that list collections and indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson import Int64

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.values.documents import Document, copy
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def _cursor(context: Context, namespace: str, batch: list[Document], *, id_first: bool) -> Document:
    parts: Document = {"id": Int64(0), "ns": namespace, "firstBatch": batch}
    return {"cursor": parts, "ok": 1.0}


@command("listCollections", "filter", "nameOnly", "authorizedCollections", "cursor")
def list_collections(context: Context, body: Document) -> Document:
    """The collections and views of a database."""
    from dev.servers.mongodb.query import queries

    test = queries.compile_filter(body.get("filter", {}))
    out = []
    for collection in context.server.node.catalog.databases.get(context.db, {}).values():
        entry: Document = {"name": collection.name, "type": collection.kind}
        if not body.get("nameOnly"):
            info: Document = {"readOnly": collection.kind == "view"}
            entry["options"] = copy(collection.options)
            if collection.kind == "collection":
                info["uuid"] = collection.uuid
            entry["info"] = info
            if collection.kind == "collection" and collection.indexes and collection.indexes[0]["name"] == "_id_":
                entry["idIndex"] = copy(collection.indexes[0])
        if test(entry) and context.server.may_see(context, collection):
            out.append(entry)
    return _cursor(context, f"{context.db}.$cmd.listCollections", out, id_first=True)


@command("listIndexes", "cursor")
def list_indexes(context: Context, body: Document) -> Document:
    """The indexes of a collection."""
    collection = context.collection(body["listIndexes"])
    if collection is None:
        raise MongoError(26, f"ns does not exist: {context.db}.{body['listIndexes']}")
    indexes = [copy(index) for index in collection.indexes]
    if "clusteredIndex" in collection.options:
        indexes.insert(0, {**collection.options["clusteredIndex"], "clustered": True})
    return _cursor(context, collection.namespace, indexes, id_first=True)
