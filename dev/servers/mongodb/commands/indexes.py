"""The commands about indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson.binary import Binary

from dev.servers.mongodb.commands import crud, ddl
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.storage.versioned_collections import Collection, new_uuid
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, are_identical, copy
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


INDEX_OPTIONS = ("unique", "key", "name", "hidden", "sparse", "partialFilterExpression", "expireAfterSeconds", "collation", "background", "weights", "default_language", "wildcardProjection", "2dsphereIndexVersion", "textIndexVersion", "prepareUnique", "clustered", "bits", "min", "max", "language_override")  # fmt: skip


def _specification(given: Document) -> Document:
    for option in given:
        if option not in INDEX_OPTIONS and option != "v" and option != "ns":
            raise MongoError(
                197, f"The field '{option}' is not valid for an index specification. Specification: {given}"
            )
    for part in ("key", "name"):
        if part not in given:
            raise MongoError(9, f"The '{part}' field is a required property of an index specification")
    out: Document = {"v": 2}
    if given.get("unique"):
        out["unique"] = True
    out |= {"key": given["key"], "name": given["name"]}
    out |= {option: value for option, value in given.items() if option not in ("v", "ns", "unique", "key", "name")}
    return out


@command("createIndexes", "indexes", "commitQuorum", "ignoreUnknownIndexOptions")
def create_indexes(context: Context, body: Document) -> Document:
    """Make indexes. On a collection with documents they are built, which the oplog has as a beginning and an end."""
    context.must_write()
    found = context.collection(body["createIndexes"])
    made = found is None or found in (context.transaction.new_collections if context.transaction else [])
    collection = found or ddl.make_collection(context, context.db, body["createIndexes"], {})
    if collection.kind != "collection":
        raise MongoError(166, f"Namespace {collection.namespace} is a view, not a collection")
    before = len(collection.indexes)
    new = [spec for spec in map(_specification, body["indexes"]) if not _same_index(collection, spec)]
    writer = context.writer()
    empty = next(writer.view.documents(collection), None) is None
    if new and (empty or writer.transaction is not None):
        for spec in new:
            writer.command(context.db, {"createIndexes": collection.name, **spec}, collection.uuid)
            if writer.transaction is not None:
                collection.indexes.append(copy(spec))
    elif new:
        for spec in new:
            _check_unique_index(collection, spec)
        build = Binary(new_uuid(), 4)
        writer.command(
            context.db, {"startIndexBuild": collection.name, "indexBuildUUID": build, "indexes": new}, collection.uuid
        )
        writer.command(
            context.db, {"commitIndexBuild": collection.name, "indexBuildUUID": build, "indexes": new}, collection.uuid
        )
    reply: Document = {
        "numIndexesBefore": before,
        "numIndexesAfter": len(collection.indexes),
        "createdCollectionAutomatically": made,
    }
    if not new:
        return {
            **{name: value for name, value in reply.items() if name != "createdCollectionAutomatically"},
            "createdCollectionAutomatically": made,
            "note": "all indexes already exist",
            "ok": 1.0,
        }
    return {**reply, "commitQuorum": "votingMembers", "ok": 1.0}


def _check_unique_index(collection: Collection, spec: Document) -> None:
    if not spec.get("unique"):
        return
    seen = set()
    for document in collection.documents():
        if not crud._in_index(spec, document):
            continue
        values = [crud._first_value(document, name) for name in spec["key"]]
        place = tuple(order.key(value) for value in values)
        if place in seen:
            raise crud._duplicate(collection, spec["key"], dict(zip(spec["key"], values, strict=True)), spec["name"])
        seen.add(place)


def _same_index(collection: Collection, spec: Document) -> bool:
    for index in collection.indexes:
        if are_identical(index["key"], spec["key"]) and index["name"] == spec["name"]:
            return True
        if index["name"] == spec["name"]:
            raise MongoError(86, f"An existing index has the same name as the requested index: {spec['name']}")
        if are_identical(index["key"], spec["key"]):
            raise MongoError(85, f"Index already exists with a different name: {index['name']}")
    return False


@command("dropIndexes", "index")
def drop_indexes(context: Context, body: Document) -> Document:
    """Drop indexes by name, by key, or all of them."""
    context.must_write()
    collection = context.collection(body["dropIndexes"])
    if collection is None:
        raise MongoError(26, f"ns not found {context.db}.{body['dropIndexes']}")
    before, expected = len(collection.indexes), body["index"]
    if expected == "*":
        chosen = [index for index in collection.indexes if index["name"] != "_id_"]
    else:
        chosen = (
            [
                index
                for index in collection.indexes
                if index["name"] in expected or (isinstance(expected, dict) and are_identical(index["key"], expected))
            ]
            if not isinstance(expected, str)
            else [index for index in collection.indexes if index["name"] == expected]
        )
        if not chosen:
            raise MongoError(27, f"index not found with name [{expected}]")
        if any(index["name"] == "_id_" for index in chosen):
            raise MongoError(72, "cannot drop _id index")
    for index in chosen:
        old = dict(index)
        context.writer().command(
            context.db, {"dropIndexes": collection.name, "index": index["name"]}, collection.uuid, o2=old
        )
    reply: Document = {"nIndexesWas": before}
    if expected == "*":
        reply["msg"] = "non-_id indexes dropped for collection"
    return {**reply, "ok": 1.0}
