"""The commands that read documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bson import MaxKey, MinKey

from dev.servers.mongodb.commands import views
from dev.servers.mongodb.operation import versions
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.query import projections, queries, stages
from dev.servers.mongodb.storage.transactions import View
from dev.servers.mongodb.storage.versioned_collections import Collection, key_of
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

FIRST_BATCH = 101


def matching(
    view: View, collection: Collection, query: Document, sort: Document | None = None, bounds: Document | None = None
) -> Iterator[Document]:
    """The documents that a filter lets through."""
    test = queries.compile_filter(query)
    expected = query.get("_id")
    if "_id" in query and not queries.is_operators(expected) and type_name(expected) != "regex" and not bounds:
        found = view.get(collection, order.key(expected))
        documents: Iterator[Document] = iter([found] if found is not None else [])
    elif bounds is not None or (sort and next(iter(sort)) == "_id"):
        first = order.key(bounds["min"]) if bounds and "min" in bounds else None
        documents = view.by_id(collection, first)
        if bounds and "max" in bounds:
            last = order.key(bounds["max"])
            documents = (document for document in documents if key_of(document) < last)
        if bounds and "min" in bounds:
            documents = (document for document in documents if type_name(document["_id"]) != "maxKey")
    else:
        documents = view.documents(collection)
    documents = (document for document in documents if test(document))
    if not sort or "$natural" in sort:
        return iter(list(documents)[::-1]) if sort and order.number(sort["$natural"]) < 0 else documents
    if list(sort) == ["_id"] and order.number(sort["_id"]) > 0:
        return documents
    return iter(stages.sorted_by(documents, sort))


FIND = (
    "filter", "projection", "sort", "limit", "skip", "batchSize", "singleBatch", "hint", "min", "max", "comment", "maxTimeMS", "readConcern", "tailable",
    "awaitData", "noCursorTimeout", "allowDiskUse", "collation", "returnKey", "showRecordId", "let", "allowPartialResults", "oplogReplay",
)  # fmt: skip


@command("find", *FIND)
async def find(context: Context, body: Document) -> Document:
    """Find documents."""
    view = await context.reading(body)
    name = body["find"]
    documents = _documents(context, view, name, body)
    if body.get("skip"):
        documents = (document for index, document in enumerate(documents) if index >= int(body["skip"]))
    limit = int(body.get("limit", 0))
    if limit:
        documents = (document for index, document in zip(range(abs(limit)), documents, strict=False))
    if body.get("projection"):
        documents = map(projections.compile_projection(body["projection"]), documents)
    single = bool(body.get("singleBatch")) or limit < 0
    size = int(body.get("batchSize", FIRST_BATCH))
    return context.opened(documents, f"{context.db}.{name}", size, single=single, tail=_tail(context, name, body))


def _documents(context: Context, view: View, name: str, body: Document) -> Iterator[Document]:
    collection = context.collection(name)
    versions_check(context, collection)
    query = body.get("filter", {})
    if context.db == "local" and name == "oplog.rs":
        entries = context.server.node.oplog.entries
        test = queries.compile_filter(query)
        down = order.number(body.get("sort", {}).get("$natural", 1)) < 0
        return (entry for entry in (reversed(entries) if down else iter(list(entries))) if test(entry))
    if collection is None:
        queries.compile_filter(query)
        return iter(context.system_documents(name, query))
    bounds: Document = {}
    for bound in ("min", "max"):
        if bound in body:
            if "hint" not in body:
                raise MongoError(51173, "When using min()/max() a hint of which index to use must be provided")
            bounds[bound] = body[bound]["_id"]
    if bounds and order.key(bounds.get("min", MinKey())) >= order.key(bounds.get("max", MaxKey())):
        raise MongoError(51175, "The value provided for min() does not come before the value provided for max().")
    if collection.kind == "view":
        return views.of_view(
            context, view, collection, [{"$match": query}, *([{"$sort": body["sort"]}] if body.get("sort") else [])]
        )
    return matching(view, collection, query, body.get("sort"), bounds or None)


def versions_check(context: Context, collection: Collection | None) -> None:
    """Raise where the command reads a collection at one moment, and its version cannot."""
    if context.at is not None or context.transaction is not None:
        versions.check_snapshot(context.server.node.settings, collection)


def _tail(context: Context, name: str, body: Document) -> Any:
    if not body.get("tailable"):
        return None
    if context.db == "local" and name == "oplog.rs":
        return queries.compile_filter(body.get("filter", {}))
    raise MongoError(2, "error processing query: tailable cursor requested on non capped collection")


@command("count", "query", "limit", "skip", "hint", "readConcern", "collation", "comment", "maxTimeMS", "fields")
async def count(context: Context, body: Document) -> Document:
    """Count documents."""
    view = await context.reading(body)
    found = sum(1 for _ in _documents(context, view, body["count"], {"filter": body.get("query") or {}}))
    found = max(found - int(body.get("skip", 0)), 0)
    return {"n": min(found, int(body["limit"])) if body.get("limit") else found, "ok": 1.0}


@command("distinct", "key", "query", "readConcern", "collation", "comment", "maxTimeMS", "hint")
async def distinct(context: Context, body: Document) -> Document:
    """The different values of a field."""
    view = await context.reading(body)
    documents = _documents(context, view, body["distinct"], {"filter": body.get("query") or {}})
    return different(documents, body["key"])


def different(documents: Iterable[Document], key: str) -> Document:
    """The different values of a field, as a reply."""
    out: dict[Any, Any] = {}
    for document in documents:
        for value in queries.values(document, key.split(".")):
            for item in value if isinstance(value, list) else [value]:
                if item is not MISSING:
                    out.setdefault(order.key(item), item)
    return {"values": [out[place] for place in sorted(out)], "ok": 1.0}
