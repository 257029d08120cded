"""The commands that change the structure: collections, indexes, views and databases."""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING, Any

from bson import Int64

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.storage import validators
from dev.servers.mongodb.storage.transactions import Writer
from dev.servers.mongodb.storage.versioned_collections import ID_INDEX, Collection, new_uuid
from dev.servers.mongodb.values.documents import Document, are_identical, copy
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

CREATE = (
    "capped", "size", "max", "validator", "validationLevel", "validationAction", "viewOn", "pipeline", "collation", "clusteredIndex", "timeseries",
    "changeStreamPreAndPostImages", "expireAfterSeconds", "storageEngine", "indexOptionDefaults", "idIndex", "autoIndexId", "encryptedFields", "temp",
)  # fmt: skip
COLLATION: Document = {
    "caseLevel": False, "caseFirst": "off", "strength": 3, "numericOrdering": False, "alternate": "non-ignorable", "maxVariable": "punct",
    "normalization": False, "backwards": False, "version": "57.1",
}  # fmt: skip


def make_collection(context: Context, db: str, name: str, options: Document) -> Collection:
    """Make a collection or a view, and give it back."""
    _check_name(db, name)
    node, writer = context.server.node, context.writer()
    options = dict(options)
    if "collation" in options:
        given = options["collation"]
        options["collation"] = {
            "locale": given["locale"],
            **{option: given.get(option, default) for option, default in COLLATION.items()},
        }
    if "viewOn" in options:
        _views(writer, db)
        writer.command(db, {"create": name, **options, "pipeline": options.get("pipeline", [])}, None, nsType="view")
        return _find_collection(node, db, name)
    if "timeseries" in options:
        return _make_timeseries(context, writer, db, name, options)
    uuid = new_uuid()
    o: Document = {"create": name, **options}
    if "clusteredIndex" in options:
        given = options["clusteredIndex"]
        o["clusteredIndex"] = {
            "v": 2,
            "key": given["key"],
            "name": given.get("name", "_id_"),
            "unique": given["unique"],
        }
    else:
        o["idIndex"] = {**ID_INDEX, **({"collation": options["collation"]} if "collation" in options else {})}
    if writer.transaction is not None:
        collection = Collection(db, name, uuid, copy(options), [copy(ID_INDEX)])
        node.catalog.add(collection)
        writer.transaction.new_collections.append(collection)
        writer.command(db, o, uuid)
        return collection
    writer.command(db, o, uuid)
    return _find_collection(node, db, name)


def _find_collection(node: Any, db: str, name: str) -> Collection:
    found = node.catalog.find(f"{db}.{name}")
    assert found is not None
    return found


def _views(writer: Writer, db: str) -> None:
    """The collection in which the server keeps the views of a database."""
    node = writer._node
    if node.catalog.find(f"{db}.system.views") is None:
        writer.command(db, {"create": "system.views", "idIndex": dict(ID_INDEX)}, new_uuid())


def _make_timeseries(context: Context, writer: Writer, db: str, name: str, options: Document) -> Collection:
    series = options["timeseries"]
    writer.command(db, {"create": f"system.buckets.{name}", "clusteredIndex": True, "timeseries": series}, new_uuid())
    _views(writer, db)
    unpack = {field: series[field] for field in ("timeField", "metaField") if field in series}
    unpack["bucketMaxSpanSeconds"] = series.get("bucketMaxSpanSeconds", 3600)
    view = {"create": name, "viewOn": f"system.buckets.{name}", "pipeline": [{"$_internalUnpackBucket": unpack}]}
    writer.command(db, view, None, nsType="timeseries")
    made = _find_collection(context.server.node, db, name)
    made.kind = "timeseries"
    buckets = _find_collection(context.server.node, db, f"system.buckets.{name}")
    buckets.kind = "collection"
    return buckets


def _check_name(db: str, name: str) -> None:
    if not name or name.startswith(".") or "$" in name or "\0" in name:
        raise MongoError(73, f"Invalid collection name: {name}")
    if not db or any(letter in db for letter in '/\\. "$'):
        raise MongoError(73, f"Invalid database name: '{db}'")


@command("create", *CREATE)
def create(context: Context, body: Document) -> Document:
    """Make a collection, a view or a time series."""
    context.must_write()
    name = body["create"]
    validators.check_validator("create", context.db, name, body)
    options = {option: body[option] for option in body if option in CREATE and option not in ("idIndex", "autoIndexId")}
    if options.get("validator") == {}:
        del options["validator"]
    found = context.collection(name)
    if found is not None:
        if are_identical(found.options, options):
            return {"ok": 1.0}
        raise MongoError(48, f"namespace {found.namespace} already exists, but with different options: {found.options}")
    if options.get("changeStreamPreAndPostImages") == {"enabled": False}:
        del options["changeStreamPreAndPostImages"]
    if options.get("capped") and "size" not in options:
        raise MongoError(72, "the 'size' field is required when 'capped' is true")
    if "validator" in options:
        options.setdefault("validationLevel", "strict")
        options.setdefault("validationAction", "error")
    make_collection(context, context.db, name, options)
    return {"ok": 1.0}


@command("drop")
def drop(context: Context, body: Document) -> Document:
    """Drop a collection or a view."""
    context.must_write()
    found = context.collection(body["drop"])
    if found is None:
        return {"ok": 1.0}
    reply: Document = {"nIndexesWas": len(found.indexes)} if found.kind == "collection" else {}
    if found.kind == "timeseries":
        reply = {"nIndexesWas": 1}
    namespace = found.namespace
    drop_collection(context, found)
    if found.kind == "timeseries":
        drop_collection(context, _find_collection(context.server.node, found.db, f"system.buckets.{found.name}"))
    return {**reply, "ns": namespace, "ok": 1.0}


def drop_collection(context: Context, collection: Collection) -> None:
    """Log that a collection or a view is dropped, and close its cursors."""
    context.writer().command(
        collection.db, {"drop": collection.name}, collection.uuid if collection.kind == "collection" else None
    )
    if collection.kind == "collection":
        context.server.cursors.close_all(
            lambda cursor: cursor.namespace == collection.namespace and cursor.stream is None
        )


@command("dropDatabase")
def drop_database(context: Context, body: Document) -> Document:
    """Drop a database with all its collections."""
    context.must_write()
    if context.db in ("admin", "config", "local"):
        raise MongoError(20, f"Dropping the '{context.db}' database is prohibited.")
    found = context.server.node.catalog.databases.get(context.db)
    if found is None:
        return {"ok": 1.0}
    for collection in list(found.values()):
        if collection.kind == "collection":
            drop_collection(context, collection)
    context.writer().command(context.db, {"dropDatabase": 1}, None)
    return {"ok": 1.0}


@command("renameCollection", "to", "dropTarget", "stayTemp")
def rename_collection(context: Context, body: Document) -> Document:
    """Rename a collection, within its database or to another."""
    context.must_write()
    if context.db != "admin":
        raise MongoError(13, "renameCollection may only be run against the admin database.")
    node = context.server.node
    source, target = node.catalog.find(body["renameCollection"]), node.catalog.find(body["to"])
    if source is None:
        raise MongoError(26, f"Source collection {body['renameCollection']} does not exist")
    if source is target:
        raise MongoError(20, "Can't rename a collection to itself")
    if source.kind == "view":
        raise MongoError(166, f"cannot rename view: {source.namespace}")
    if target is not None and not body.get("dropTarget"):
        raise MongoError(48, "target namespace exists")
    db, _, name = body["to"].partition(".")
    _check_name(db, name)
    if db == source.db:
        rename(context, source, body["to"], target)
    else:
        _rename_across(context, source, db, name, target)
    return {"ok": 1.0}


def rename(context: Context, source: Collection, to: str, target: Collection | None) -> None:
    """Log a rename within a database."""
    o: Document = {"renameCollection": source.namespace, "to": to, "stayTemp": False}
    if target is not None:
        o["dropTarget"] = target.uuid
    context.server.cursors.close_all(
        lambda cursor: cursor.namespace in (source.namespace, to) and cursor.stream is None
    )
    context.writer().command(source.db, o, source.uuid)


def temporary(suffix: str) -> str:
    """A name for a collection that is there for a moment."""
    return f"tmp{''.join(random.choices(string.ascii_letters + string.digits, k=5))}.{suffix}"


def _rename_across(context: Context, source: Collection, db: str, name: str, target: Collection | None) -> None:
    made = make_collection(context, db, temporary("renameCollection"), copy(source.options))
    writer = context.writer()
    for index in source.indexes:
        if index["name"] != "_id_":
            writer.command(db, {"createIndexes": made.name, **index}, made.uuid)
    documents = list(source.documents())
    if len(documents) > 1:
        writer.insert_group(made, documents)
    elif documents:
        writer.insert(made, documents[0])
    rename(context, made, f"{db}.{name}", target)
    drop_collection(context, source)


@command("convertToCapped", "size", "dropTarget")
def convert_to_capped(context: Context, body: Document) -> Document:
    """Make a capped collection of one that is not: through a temporary collection."""
    context.must_write()
    source = context.collection(body["convertToCapped"])
    if source is None:
        raise MongoError(26, f"source collection {context.db}.{body['convertToCapped']} does not exist")
    made = make_collection(
        context,
        context.db,
        temporary(f"convertToCapped.{source.name}"),
        {"capped": True, "size": body["size"], "temp": True},
    )
    writer = context.writer()
    migrated = [
        {
            "op": "i",
            "ns": made.namespace,
            "ui": made.uuid,
            "o": document,
            "o2": {"_id": document["_id"]},
            "fromMigrate": True,
        }
        for document in source.documents()
    ]
    for operation in migrated:
        writer._node.write(operation)
    rename(context, made, source.namespace, source)
    return {"ok": 1.0}


COLL_MOD = (
    "index",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "changeStreamPreAndPostImages",
    "expireAfterSeconds",
    "cappedSize",
    "cappedMax",
)


@command("collMod", *COLL_MOD)
def coll_mod(context: Context, body: Document) -> Document:
    """Change the options of a collection, of an index, or of a view."""
    context.must_write()
    collection = context.collection(body["collMod"])
    if collection is None:
        raise MongoError(26, f"ns does not exist: {context.db}.{body['collMod']}")
    validators.check_validator("collMod", context.db, collection.name, body)
    o: Document = {"collMod": collection.name}
    reply: Document = {}
    old: Document = {"collectionOptions": {"uuid": collection.uuid, **copy(collection.options)}}
    for option in COLL_MOD:
        if option not in body:
            continue
        if option == "index":
            o["index"], reply, old["indexOptions"] = _changed_index(collection, body["index"])
        else:
            o[option] = body[option]
    if len(o) == 1:
        return {"ok": 1.0}
    if collection.kind == "view":
        context.writer().command(context.db, o, None)
    else:
        context.writer().command(context.db, o, collection.uuid, o2=old)
    return {**reply, "ok": 1.0}


def _changed_index(collection: Collection, given: Document) -> tuple[Document, Document, Document]:
    for index in collection.indexes:
        if index["name"] == given.get("name") or (
            "keyPattern" in given and are_identical(index["key"], given["keyPattern"])
        ):
            break
    else:
        raise MongoError(
            27, f"cannot find index {given.get('name', given.get('keyPattern'))} for ns {collection.namespace}"
        )
    changed: Document = {"name": index["name"]}
    reply: Document = {}
    before: Document = {}
    if "expireAfterSeconds" in given:
        value = Int64(given["expireAfterSeconds"])
        if "expireAfterSeconds" in index:
            reply["expireAfterSeconds_old"] = Int64(index["expireAfterSeconds"])
            before["expireAfterSeconds"] = Int64(index["expireAfterSeconds"])
        reply["expireAfterSeconds_new"] = value
        changed["expireAfterSeconds"] = value
    if "hidden" in given:
        before["hidden"] = bool(index.get("hidden", False))
        reply |= {"hidden_old": before["hidden"], "hidden_new": bool(given["hidden"])}
        changed["hidden"] = bool(given["hidden"])
    return changed, reply, before
