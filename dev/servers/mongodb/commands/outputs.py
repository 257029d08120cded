"""``$out`` and ``$merge``: pipelines that write what they make.

By MongoDB's manual and the server's source; no recording has them. ``$out`` fills a collection ``tmp.agg_out.…`` beside its target and renames it over the
target, so that a stream on the database sees the temporary collection made, filled and renamed, and one on the target sees the rename and is
invalidated. ``$merge`` inserts and updates document by document, like a client. ``$out`` to a time series is refused.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from bson import ObjectId

from dev.servers.mongodb.commands import crud, ddl
from dev.servers.mongodb.expressions import expressions, operators
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document, Undefined, copy
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

NAMES = frozenset({"$out", "$merge"})
INTERNAL = frozenset({"admin", "config", "local"})
SPECIAL_CODES = {"$out": (17385, 31321), "$merge": (31319, 31320)}
MERGE = frozenset({"into", "on", "let", "whenMatched", "whenNotMatched"})
MODES = {
    "replace": ("insert", "fail", "discard"),
    "merge": ("insert", "fail", "discard"),
    "pipeline": ("insert", "fail", "discard"),
    "keepExisting": ("insert",),
    "fail": ("insert",),
}
"""``whenMatched`` with the ``whenNotMatched`` that go with it."""


def split(pipeline: list[Document], *, in_transaction: bool = False) -> tuple[list[Document], Document | None]:
    """A pipeline without the stage that writes, and that stage. Raises when it stands elsewhere than at the end."""
    for stage in pipeline[:-1]:
        if (name := next(iter(stage))) in NAMES:
            raise MongoError(40601, f"{name} can only be the final stage in the pipeline")
    if not pipeline or (name := next(iter(pipeline[-1]))) not in NAMES:
        return pipeline, None
    if in_transaction:
        raise MongoError(263, f"{name} cannot be used in a transaction")
    return pipeline[:-1], pipeline[-1]


def target_of(stage: Document, db: str) -> tuple[str, str]:
    """The database and the collection that a stage writes to."""
    name, spec = next(iter(stage.items()))
    if name == "$merge" and isinstance(spec, dict):
        if unknown := set(spec) - MERGE:
            raise MongoError(40415, f"BSON field '$merge.{min(unknown)}' is an unknown field.")
        if "into" not in spec:
            raise MongoError(40414, "BSON field '$merge.into' is missing but a required field")
        spec = spec["into"]
    if isinstance(spec, str):
        spec = {"db": db, "coll": spec}
    if not isinstance(spec, dict) or not isinstance(spec.get("coll"), str):
        code = 16990 if name == "$out" else 14
        raise MongoError(code, f"{name} only supports a string or object argument, but found {type_name(spec)}")
    if "timeseries" in spec:
        raise MongoError(9, "the stand-in has no $out to a time series")
    db, collection = spec.get("db", db), spec["coll"]
    system, internal = SPECIAL_CODES[name]
    if collection.startswith("system."):
        raise MongoError(system, f"Can't {name} to special collection: {collection}")
    if db in INTERNAL:
        raise MongoError(internal, f"Can't {name} to internal database: {db}")
    return db, collection


def actions(stage: Document) -> tuple[str, ...]:
    """List the actions on the target that a user needs privileges for."""
    spec = next(iter(stage.values()))
    if "$out" in stage:
        return "insert", "remove"
    given = spec if isinstance(spec, dict) else {}
    inserts = ("insert",) if given.get("whenNotMatched", "insert") == "insert" else ()
    return inserts if given.get("whenMatched") == "fail" else (*inserts, "update")


def write(context: Context, stage: Document, documents: list[Document]) -> None:
    """Write documents as a stage says; the command's database is that of the target afterwards."""
    context.must_write()
    context.db, name = target_of(stage, context.db)
    if "$out" in stage:
        _write_output(context, name, documents)
    else:
        _merge(context, name, stage["$merge"], documents)


def _write_output(context: Context, name: str, documents: list[Document]) -> None:
    db, catalog = context.db, context.server.node.catalog
    old = catalog.find(f"{db}.{name}")
    if old is not None and old.kind != "collection":
        raise MongoError(166, f"Namespace {old.namespace} is a {old.kind}, not a collection")
    if old is not None and old.capped:
        raise MongoError(17152, f"namespace '{old.namespace}' is capped so it can't be used for $out")
    if old is not None and old.shard_key:
        raise MongoError(28769, f"namespace '{old.namespace}' is sharded so it can't be used for $out")
    made = ddl.make_collection(
        context, db, f"tmp.agg_out.{uuid.uuid4()}", {"temp": True, **(copy(old.options) if old else {})}
    )
    writer = context.writer()
    for index in old.indexes if old else []:
        if index["name"] != "_id_":
            writer.command(db, {"createIndexes": made.name, **copy(index)}, made.uuid)
    try:
        crud.insert_all(writer, made, [crud.complete_document(context, document) for document in documents])
    except MongoError:
        ddl.drop_collection(context, made)
        raise
    ddl.rename(context, made, f"{db}.{name}", old)


# $merge


def _merge(context: Context, name: str, spec: Any, documents: list[Document]) -> None:
    given = {} if isinstance(spec, str) else spec
    matched, unmatched = given.get("whenMatched", "merge"), given.get("whenNotMatched", "insert")
    mode = "pipeline" if isinstance(matched, list) else matched
    if mode not in MODES or unmatched not in ("insert", "fail", "discard"):
        wrong = "whenMatched" if mode not in MODES else "whenNotMatched"
        raise MongoError(2, f"Enumeration value '{given[wrong]}' for field '$merge.{wrong}' is not a valid value.")
    if unmatched not in MODES[mode]:
        raise MongoError(
            51181,
            f"Combination of $merge modes 'whenMatched: {mode}' and 'whenNotMatched: {unmatched}' is not supported",
        )
    if "let" in given and mode != "pipeline":
        raise MongoError(51199, f"Cannot use 'let' variables with 'whenMatched: {mode}' mode")
    let = {"new": "$$ROOT", **given.get("let", {})}
    if let["new"] != "$$ROOT":
        raise MongoError(51273, "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'")
    on = given.get("on")
    fields = _identifying_fields(crud.existing(context, name), [on] if isinstance(on, str) else on)
    variables = {field: expressions.compile_expression(value) for field, value in let.items()}
    for document in documents:
        whole = {"_id": ObjectId(), **document} if "_id" in fields and "_id" not in document else document
        query = _query(whole, fields)
        if mode == "fail":
            crud.insert_one(context, crud.writable(context, name), whole)
            continue
        statement: Document = {"q": query, "u": _update(mode, matched, whole), "upsert": unmatched == "insert"}
        if mode == "pipeline":
            statement["c"] = {field: value(whole, {"ROOT": whole}) for field, value in variables.items()}
            statement["upsertSupplied"] = True
        collection = (crud.writable if statement["upsert"] else crud.existing)(context, name)
        found, _, made = crud.update_one(context, collection, statement)
        if not found and made is None and unmatched == "fail":
            raise MongoError(
                13113,
                "$merge could not find a matching document in the target collection for at least one document in the source collection",
            )


def _identifying_fields(collection: Collection | None, given: list[str] | None) -> list[str]:
    """The fields that identify documents; an index must hold that they are unique."""
    key = list((collection.shard_key if collection else None) or {})
    fields = given or [*key, *(["_id"] if "_id" not in key else [])]
    if len({*fields}) < len(fields):
        raise MongoError(31465, f"Found a duplicate field '{fields[0]}'")
    indexes = collection.indexes if collection else []
    unique = [{*index["key"]} for index in indexes if index.get("unique") and "partialFilterExpression" not in index]
    if given and {*given} not in [{"_id"}, {"_id", *key}, *unique]:
        raise MongoError(51183, "Cannot find index to verify that join fields will be unique")
    return fields


def _query(document: Document, fields: list[str]) -> Document:
    query = {}
    for field in fields:
        value = operators.walk_path(document, field.split("."))
        if value is MISSING or value is None or isinstance(value, list | Undefined):
            raise MongoError(51132, "$merge write error: 'on' field cannot be missing, null, undefined or an array")
        query[field] = {"$eq": value}
    return query


def _update(mode: str, matched: Any, document: Document) -> Any:
    """The update that brings one document of the pipeline into the target."""
    if mode == "pipeline":
        return matched
    return {"replace": document, "merge": {"$set": document}, "keepExisting": {"$setOnInsert": document}}[mode]
