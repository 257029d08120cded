"""The commands that read and write documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bson import ObjectId, Timestamp

from dev.servers.mongodb.commands import ddl
from dev.servers.mongodb.commands.reads import matching
from dev.servers.mongodb.expressions import operators
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.query import projections, queries
from dev.servers.mongodb.storage import validators
from dev.servers.mongodb.storage.transactions import DELETE_GROUP, GROUP_BYTES, GROUP_DOCUMENTS, Writer
from dev.servers.mongodb.storage.versioned_collections import Collection, key_of
from dev.servers.mongodb.updates import updates
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, encode
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.values.missing import MISSING

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

LARGEST_DOCUMENT = 16 * 1024 * 1024
WOULD_MOVE = 283
"""The document might belong to another shard; a router knows (:mod:`dev.servers.mongodb.sharding.key_changes`)."""


def writable(context: Context, name: str) -> Collection:
    """The collection to write to, made when it is not there."""
    return existing(context, name) or ddl.make_collection(context, context.db, name, {})


def existing(context: Context, name: str) -> Collection | None:
    """The collection to write to, if it is there."""
    context.must_write()
    found = context.collection(name)
    if found is None:
        return None
    if found.kind == "view":
        raise MongoError(166, f"Namespace {found.namespace} is a view, not a collection")
    if found.kind == "timeseries":
        buckets = context.server.node.catalog.find(f"{found.db}.system.buckets.{found.name}")
        assert buckets
        return buckets
    return found


# writing


@command("insert", "documents", "ordered", "bypassDocumentValidation", write=True)
def insert(context: Context, body: Document) -> Document:
    """Insert documents; those of one command go into the oplog together when none fails."""
    documents = body.get("documents")
    if not isinstance(documents, list) or not documents:
        raise MongoError(
            9 if documents is None else 16, "Write batch sizes must be between 1 and 100000. Got 0 operations."
        )
    done = context.retried(range(len(documents)))
    if done is not None:
        return done
    collection = writable(context, body["insert"])
    writer = context.writer()
    errors: list[Document] = []
    count = 0
    grouped = writer.transaction is None and not collection.capped and not collection.name.startswith("system.")
    ready = [complete_document(context, document) for document in documents]
    if grouped and len(documents) > 1 and _all_new(writer, collection, ready):
        _insert_groups(writer, collection, ready)
        return context.written(len(ready), errors, {})
    for index, document in enumerate(ready):
        try:
            _insert_one(writer, collection, document)
            count += 1
            _make_room(writer, collection)
        except MongoError as error:
            context.fail_transaction(error)
            errors.append({"index": index, **_write_error(error)})
            if body.get("ordered", True):
                break
    return context.written(count, errors, {})


def insert_all(writer: Writer, collection: Collection, documents: list[Document]) -> None:
    """Insert prepared documents, as many into one entry as the server puts there. Raises for one that cannot be inserted."""
    if len(documents) > 1 and _all_new(writer, collection, documents):
        _insert_groups(writer, collection, documents)
        return
    for document in documents:
        _insert_one(writer, collection, document)


def insert_one(context: Context, collection: Collection, document: Document) -> None:
    """Insert a document."""
    _insert_one(context.writer(), collection, complete_document(context, document))


def _insert_groups(writer: Writer, collection: Collection, documents: list[Document]) -> None:
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(encode(document))
        if len(group) >= GROUP_DOCUMENTS or size > GROUP_BYTES:
            _insert_group(writer, collection, group)
            group, size = [], 0
    _insert_group(writer, collection, group)


def _insert_group(writer: Writer, collection: Collection, group: list[Document]) -> None:
    if len(group) == 1:
        writer.insert(collection, group[0])
    elif group:
        writer.insert_group(collection, group)


def _all_new(writer: Writer, collection: Collection, documents: list[Document]) -> bool:
    seen: set[Any] = set()
    for document in documents:
        try:
            _check(writer, collection, document)
        except MongoError:
            return False
        for index in ({"key": {"_id": 1}}, *(index for index in collection.indexes if index.get("unique"))):
            if not _in_index(index, document):
                continue
            key = (tuple(index["key"]), *(order.key(_first_value(document, path)) for path in index["key"]))
            if key in seen:
                return False
            seen.add(key)
    return True


def _write_error(error: MongoError) -> Document:
    return {"code": error.code, "errmsg": error.message, **error.more}


def complete_document(context: Context, document: Document) -> Document:
    """A document with its ``_id``, in front, and with the server's time where a timestamp is empty."""
    out = (
        document
        if next(iter(document), "") == "_id"
        else {"_id": document["_id"] if "_id" in document else ObjectId(), **document}
    )
    for name, value in out.items():
        if isinstance(value, Timestamp) and not value.time and not value.inc and name != "_id":
            out = {**out, name: context.server.node.tick()}
    return out


def _check(writer: Writer, collection: Collection, document: Document) -> None:
    updates.check_id(document["_id"])
    if len(encode(document)) > LARGEST_DOCUMENT:
        raise MongoError(
            2, f"object to insert too large. size in bytes: {len(encode(document))}, max size: {LARGEST_DOCUMENT}"
        )
    key = key_of(document)
    if writer.view.get(collection, key) is not None or (
        writer.transaction and collection.get(key) is not None and writer.view.get(collection, key) is not None
    ):
        raise _duplicate(collection, {"_id": 1}, {"_id": document["_id"]}, "_id_")
    _check_unique(writer, collection, document, None)
    if not writer.unchecked:
        validators.validate(collection, document)


def _check_unique(writer: Writer, collection: Collection, document: Document, before: Document | None) -> None:
    for index in collection.indexes:
        if not index.get("unique"):
            continue
        if not _in_index(index, document):
            continue
        values = [_first_value(document, name) for name in index["key"]]
        for other in writer.view.documents(collection):
            if not _in_index(index, other):
                continue
            if before is not None and order.equal(other["_id"], before["_id"]):
                continue
            if all(
                order.equal(value, _first_value(other, name)) for value, name in zip(values, index["key"], strict=True)
            ):
                raise _duplicate(collection, index["key"], dict(zip(index["key"], values, strict=True)), index["name"])


def _in_index(index: Document, document: Document) -> bool:
    """Check whether an index that is sparse or partial has the document."""
    if index.get("sparse"):
        return any(operators.walk_path(document, path.split(".")) is not MISSING for path in index["key"])
    return queries.compile_filter(index.get("partialFilterExpression", {}))(document)


def _first_value(document: Document, path: str) -> Any:
    value = operators.walk_path(document, path.split("."))
    return None if value is MISSING else value


def _duplicate(collection: Collection, pattern: Document, value: Document, name: str) -> MongoError:
    return MongoError(
        11000,
        f"E11000 duplicate key error collection: {collection.namespace} index: {name} dup key: {format_value(value)}",
        keyPattern=pattern,
        keyValue=value,
    )


def format_value(value: Any) -> str:
    """A value as the server's messages write it."""
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{name}: {format_value(item)}" for name, item in value.items()) + " }" if value else "{}"
        )
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else str(value)


def _insert_one(writer: Writer, collection: Collection, document: Document) -> None:
    _check(writer, collection, document)
    writer.insert(collection, document)


def _make_room(writer: Writer, collection: Collection) -> None:
    if not collection.capped or writer.transaction is not None:
        return
    limit, size = collection.options.get("max"), int(collection.options.get("size", 0))
    documents = list(collection.documents())
    total = sum(len(encode(document)) for document in documents)
    while documents and ((limit and len(documents) > limit) or total > size):
        oldest = documents.pop(0)
        total -= len(encode(oldest))
        writer.delete(collection, oldest)


@command("update", "updates", "ordered", "bypassDocumentValidation", "let", write=True)
def update(context: Context, body: Document) -> Document:
    """Change documents."""
    done = context.retried(range(len(body["updates"])), modified=True)
    if done is not None:
        return done
    matched = modified = 0
    upserted: list[Document] = []
    errors: list[Document] = []
    for index, statement in enumerate(body["updates"]):
        try:
            collection = (
                writable(context, body["update"]) if statement.get("upsert") else existing(context, body["update"])
            )
            result = update_one(context, collection, statement, body.get("let"))
            matched += result[0]
            modified += result[1]
            if result[2] is not None:
                upserted.append({"index": index, "_id": result[2]["_id"]})
        except MongoError as error:
            context.fail_transaction(error)
            errors.append({"index": index, **_write_error(error)})
            if body.get("ordered", True):
                break
    more: Document = {"upserted": upserted} if upserted else {}
    return context.written(matched + len(upserted), errors, more, modified)


def update_one(
    context: Context, collection: Collection | None, statement: Document, constants: Document | None = None
) -> tuple[int, int, Document | None]:
    """Run a statement; return the numbers of documents that matched and changed, and the document inserted instead."""
    known = {
        "q",
        "u",
        "c",
        "multi",
        "upsert",
        "collation",
        "arrayFilters",
        "hint",
        "sort",
        "upsertSupplied",
        "sampleId",
    }
    if unknown := set(statement) - known:
        raise MongoError(40415, f"BSON field 'update.updates.{min(unknown)}' is an unknown field.")
    query, multi = statement["q"], bool(statement.get("multi"))
    work = updates.parse_update(
        statement["u"],
        statement.get("arrayFilters"),
        context.server.node.tick,
        {**(constants or {}), **statement.get("c", {})},
        context.server.node.settings.whole_bytes,
    )
    if multi and isinstance(work, updates.Replacement):
        raise MongoError(9, "multi update is not supported for replacement-style update")
    if collection is None:
        return 0, 0, None
    writer = context.writer()
    found = matching(writer.view, collection, query, sort=statement.get("sort"))
    matched = modified = 0
    for before in list(found) if multi else _first_document(found):
        matched += 1
        modified += change_document(context, writer, collection, before, work, query)
    if matched or not statement.get("upsert"):
        return matched, modified, None
    supplied = statement["c"]["new"] if statement.get("upsertSupplied") else None
    made = complete_document(context, supplied) if supplied is not None else upserted_document(context, work, query)
    _insert_one(writer, collection, made)
    return 0, 0, made


def _first_document(found: Iterator[Document]) -> list[Document]:
    first = next(found, None)
    return [] if first is None else [first]


def change_document(
    context: Context, writer: Writer, collection: Collection, before: Document, work: Any, query: Document
) -> int:
    """Apply an update to a document; returns whether it changed it."""
    writer.check(collection, key_of(before))
    result = work.applied(before, query=query)
    if not result.changed:
        return 0
    if len(encode(result.document)) > LARGEST_DOCUMENT:
        raise MongoError(17419, f"Resulting document after update is larger than {LARGEST_DOCUMENT}")
    if not context.body.get("_standInKey") and any(
        not order.equal(_first_value(before, name), _first_value(result.document, name))
        for name in collection.shard_key or {}
    ):
        images = {"before": before, "after": result.document}
        raise MongoError(WOULD_MOVE, "Document shard key value updates may move the document", errInfo=images)
    _check_unique(writer, collection, result.document, before)
    if not writer.unchecked:
        validators.validate(collection, result.document, before)
    after = result.document
    if isinstance(work, updates.Replacement):
        after = complete_document(context, after)
    writer.update(collection, before, after, result.diff)
    return 1


def upserted_document(context: Context, work: Any, query: Document) -> Document:
    """Make the document that an update inserts without a match: the query's equalities, changed by the update."""
    base: Document = {}
    for name, value in updates.flatten_conditions(query):
        if name.startswith("$"):
            continue
        if queries.is_operators(value):
            if "$eq" not in value:
                continue
            value = value["$eq"]
        base = projections.with_value(base, name.split("."), value)
    if isinstance(work, updates.Replacement):
        base = {"_id": base["_id"]} if "_id" in base else {}
    result = work.applied(base, inserting=True, query={})
    return complete_document(context, result.document)


@command("delete", "deletes", "ordered", "let", write=True)
def delete(context: Context, body: Document) -> Document:
    """Delete documents."""
    done = context.retried(range(len(body["deletes"])))
    if done is not None:
        return done
    context.must_write()
    count = 0
    errors: list[Document] = []
    for index, statement in enumerate(body["deletes"]):
        try:
            if "limit" not in statement:
                raise MongoError(40414, "BSON field 'delete.deletes.limit' is missing but a required field")
            target = existing(context, body["delete"])
            if target is not None:
                count += delete_matching(context, target, statement)
        except MongoError as error:
            context.fail_transaction(error)
            errors.append({"index": index, **_write_error(error)})
            if body.get("ordered", True):
                break
    return context.written(count, errors, {})


def delete_matching(context: Context, collection: Collection, statement: Document) -> int:
    """Delete what a statement matches."""
    writer = context.writer()
    found = list(matching(writer.view, collection, statement["q"]))
    if statement["limit"]:
        found = found[:1]
    if len(found) > 1 and writer.transaction is None and context.retry is None and not collection.capped:
        for start in range(0, len(found), DELETE_GROUP):
            writer.delete_group(collection, found[start : start + DELETE_GROUP])
        return len(found)
    for document in found:
        writer.delete(collection, document)
    return len(found)
