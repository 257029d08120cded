"""Documents whose shard key changes: a router brings them to the shard of their new key, as the recording ``sharded_structure`` has it.

The shard says that it would no longer be the document's (error 283, with the document before and after). Where it still is, it gets the command to continue; else the
document is deleted there and inserted at the other shard, in the client's transaction, or in one of the router's own for a retryable write.
"""

from __future__ import annotations

from typing import Any

from dev.servers.mongodb.commands.crud import WOULD_MOVE
from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.query import projections
from dev.servers.mongodb.sharding.router import TRANSACTION, Router, Shard, ShardedTransaction
from dev.servers.mongodb.storage.versioned_collections import new_uuid
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError


def images(reply: Document) -> Document | None:
    """The document before and after, where a write failed because its key changes."""
    errors = reply.get("writeErrors", [])
    return errors[0]["errInfo"] if errors and errors[0]["code"] == WOULD_MOVE else None


async def update_key(router: Router, context: Context, shard: Shard, body: Document, document: Document) -> Document:
    """Do the one update of a command that changes a document's key."""
    if body["updates"][0].get("multi"):
        error = MongoError(72, "Multi-update operations are not allowed when updating the shard key field.")
    else:
        try:
            return await _move_document(router, context, shard, body["update"], document) or await router.send(
                shard, context.db, {**body, "_standInKey": True}
            )
        except MongoError as raised:
            error = raised
    return {"n": 0, "nModified": 0, "writeErrors": [{"index": 0, "code": error.code, "errmsg": error.message}]}


async def find_and_modify(router: Router, context: Context, shard: Shard, body: Document) -> Document:
    """The reply of a ``findAndModify`` at a shard, also where the document leaves it."""
    try:
        return await router.send(shard, context.db, body)
    except MongoError as error:
        if error.code != WOULD_MOVE:
            raise
        found: Document = error.more["errInfo"]
    if await _move_document(router, context, shard, body[context.name], found) is None:
        return await router.send(shard, context.db, {**body, "_standInKey": True})
    shape: Any = projections.compile_projection(body["fields"]) if body.get("fields") else lambda document: document
    value = shape(found["after"] if body.get("new") else found["before"])
    return {"lastErrorObject": {"n": 1, "updatedExisting": True}, "value": value, "ok": 1.0}


async def _move_document(router: Router, context: Context, shard: Shard, name: str, found: Document) -> Document | None:
    """Bring a document to the shard of its new key; None when that is where it is."""
    if "txnNumber" not in context.body:
        raise MongoError(
            20, "Must run update to shard key field in a multi-statement transaction or with retryWrites: true."
        )
    sharded = await router.chunks(f"{context.db}.{name}")
    assert sharded is not None
    target = router.shards[router.chunk_of(*sharded, found["after"])["shard"]]
    if target.name == shard.name:
        return None
    if TRANSACTION.get() is not None:
        await _bring(router, context.db, name, shard, target, found)
    else:
        await _in_a_transaction(router, context.db, name, shard, target, found)
    return {"n": 1, "nModified": 1, "ok": 1.0}


async def _bring(router: Router, db: str, name: str, shard: Shard, target: Shard, found: Document) -> None:
    query = {"_id": found["before"]["_id"]}
    for at, body in (
        (shard, {"delete": name, "deletes": [{"q": query, "limit": 1}]}),
        (target, {"insert": name, "documents": [found["after"]]}),
    ):
        reply = await router.send(at, db, body)
        if errors := reply.get("writeErrors"):
            raise MongoError(errors[0]["code"], errors[0]["errmsg"])


async def _in_a_transaction(router: Router, db: str, name: str, shard: Shard, target: Shard, found: Document) -> None:
    own = TRANSACTION.set(ShardedTransaction({"id": new_uuid()}, 1))
    try:
        try:
            await _bring(router, db, name, shard, target, found)
        except MongoError:
            for at in (shard, target):
                await _end_transaction(router, at, "abortTransaction")
            raise
        await router.end([shard, target], "commitTransaction")
    finally:
        TRANSACTION.reset(own)


async def _end_transaction(router: Router, shard: Shard, how: str) -> None:
    transaction = TRANSACTION.get()
    assert transaction
    if shard.name in transaction.shards:
        try:
            await router.send(shard, "admin", {how: 1})
        except MongoError as error:
            if how == "commitTransaction" or error.code != 251:  # a failed write has ended it already
                raise
