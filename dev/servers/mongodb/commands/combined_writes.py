"""``findAndModify`` and ``bulkWrite``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson import Int64

from dev.servers.mongodb.commands.reads import matching
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.query import projections
from dev.servers.mongodb.storage.versioned_collections import key_of
from dev.servers.mongodb.updates import updates
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

from dev.servers.mongodb.commands.crud import (
    _insert_one,
    _write_error,
    change_document,
    complete_document,
    delete_matching,
    existing,
    update_one,
    upserted_document,
    writable,
)


@command(
    "findAndModify",
    "query",
    "update",
    "remove",
    "new",
    "fields",
    "sort",
    "upsert",
    "arrayFilters",
    "let",
    "collation",
    "hint",
    "bypassDocumentValidation",
    write=True,
)
def find_and_modify(context: Context, body: Document) -> Document:
    """Change one document and give it back; one that is tried again is not done again."""
    if bool(body.get("remove")) is ("update" in body):
        both = "Cannot specify both an update and remove=true"
        raise MongoError(9, both if "update" in body else "Either an update or remove=true must be specified")
    if body.get("remove") and (body.get("new") or body.get("upsert")):
        what = "new=true" if body.get("new") else "upsert=true"
        raise MongoError(9, f"Cannot specify both {what} and remove=true")
    session = context.session if context.retry is not None else None
    if session is not None and 0 in session.statements:
        done = {name: value for name, value in session.statements[0].items() if name != "ok"}
        return {**done, "retriedStmtId": 0, "ok": 1.0}
    reply = _found_and_modified(context, body)
    if session is not None:
        session.statements[0] = dict(reply)
    return reply


def _found_and_modified(context: Context, body: Document) -> Document:
    collection = (
        writable(context, body["findAndModify"]) if body.get("upsert") else existing(context, body["findAndModify"])
    )
    writer, query = context.writer(), body.get("query", {})
    before = None if collection is None else next(matching(writer.view, collection, query, sort=body.get("sort")), None)
    shape = projections.compile_projection(body["fields"]) if body.get("fields") else (lambda document: document)
    if body.get("remove"):
        if before is not None:
            writer.delete(collection, before)
        return {
            "lastErrorObject": {"n": int(before is not None)},
            "value": shape(before) if before else None,
            "ok": 1.0,
        }
    work = updates.parse_update(body["update"], body.get("arrayFilters"), context.server.node.tick, body.get("let"))
    if before is not None:
        change_document(context, writer, collection, before, work, query)
        after = writer.view.get(collection, key_of(before))
        value = after if body.get("new") else before
        return {
            "lastErrorObject": {"n": 1, "updatedExisting": True},
            "value": shape(value) if value else None,
            "ok": 1.0,
        }
    if not body.get("upsert"):
        return {"lastErrorObject": {"n": 0, "updatedExisting": False}, "value": None, "ok": 1.0}
    made = upserted_document(context, work, query)
    _insert_one(writer, collection, made)
    return {
        "lastErrorObject": {"n": 1, "updatedExisting": False, "upserted": made["_id"]},
        "value": shape(made) if body.get("new") else None,
        "ok": 1.0,
    }


@command("bulkWrite", "ops", "nsInfo", "ordered", "errorsOnly", "cursor", "let", "bypassDocumentValidation", write=True)
def bulk_write(context: Context, body: Document) -> Document:
    """Several writes on several collections."""
    if context.db != "admin":
        raise MongoError(13, "bulkWrite may only be run against the admin database.")
    results: list[Document] = []
    totals = {"nErrors": 0, "nInserted": 0, "nMatched": 0, "nModified": 0, "nUpserted": 0, "nDeleted": 0}
    for index, operation in enumerate(body["ops"]):
        kind = next(iter(operation))
        db, _, name = body["nsInfo"][operation[kind]]["ns"].partition(".")
        context.db = db
        try:
            results.append({"ok": 1.0, "idx": index, **_bulk_one(context, kind, name, operation, totals)})
        except MongoError as error:
            context.fail_transaction(error)
            totals["nErrors"] += 1
            results.append({"ok": 0.0, "idx": index, **_write_error(error), "n": 0})
            if body.get("ordered", True):
                break
    context.db = "admin"
    if body.get("errorsOnly"):
        results = [result for result in results if not result["ok"]]
    cursor = {"id": Int64(0), "firstBatch": results, "ns": "admin.$cmd.bulkWrite"}
    return {"cursor": cursor, **totals, **context.election(), "ok": 1.0}


def _bulk_one(context: Context, kind: str, name: str, operation: Document, totals: dict[str, int]) -> Document:
    if kind != "insert" and not operation.get("upsert") and existing(context, name) is None:
        return {"n": 0, "nModified": 0} if kind == "update" else {"n": 0}
    collection = writable(context, name)
    if kind == "insert":
        _insert_one(context.writer(), collection, complete_document(context, operation["document"]))
        totals["nInserted"] += 1
        return {"n": 1}
    if kind == "update":
        statement = {"q": operation["filter"], "u": operation["updateMods"]}
        statement |= {
            option: operation[option] for option in ("multi", "upsert", "arrayFilters") if option in operation
        }
        matched, modified, made = update_one(context, collection, statement)
        totals["nMatched"] += matched
        totals["nModified"] += modified
        totals["nUpserted"] += int(made is not None)
        return {
            "n": matched + int(made is not None),
            "nModified": modified,
            **({"upserted": {"_id": made["_id"]}} if made else {}),
        }
    count = delete_matching(
        context, collection, {"q": operation["filter"], "limit": 0 if operation.get("multi") else 1}
    )
    totals["nDeleted"] += count
    return {"n": count}
