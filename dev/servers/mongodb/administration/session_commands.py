"""The commands about logical sessions and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.storage import transactions
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


@command("startSession", open_to_all=True)
def start_session(context: Context, body: Document) -> Document:
    """A new logical session."""
    from dev.servers.mongodb.storage.versioned_collections import new_uuid

    return {"id": {"id": new_uuid()}, "timeoutMinutes": 30, "ok": 1.0}


@command("endSessions", open_to_all=True)
def end_sessions(context: Context, body: Document) -> Document:
    """End logical sessions; their open transactions are aborted."""
    for lsid in body["endSessions"]:
        session = context.server.sessions.end(lsid)
        if session and session.transaction and session.transaction.state == "open":
            transactions.abort(context.server.node, context.server.sessions, session.transaction)
    context.server.node.oplog.wake()
    return {"ok": 1.0}


@command("refreshSessions", open_to_all=True)
def refresh_sessions(context: Context, body: Document) -> Document:
    """Sessions do not end by time here."""
    return {"ok": 1.0}


@command("killSessions", open_to_all=True)
def kill_sessions(context: Context, body: Document) -> Document:
    """End logical sessions with all they have under way."""
    return end_sessions(context, {"endSessions": body["killSessions"]})


@command("commitTransaction", "recoveryToken", admin_only=True)
def commit_transaction(context: Context, body: Document) -> Document:
    """Commit the transaction of the session."""
    transaction = _transaction(context)
    if transaction.state == "open":
        context.must_write()
        transactions.commit(context.server.node, context.server.sessions, transaction, context.body.get("_standInAt"))
        context.server.node.oplog.wake()
    return {"ok": 1.0}


@command("abortTransaction", "recoveryToken", admin_only=True)
def abort_transaction(context: Context, body: Document) -> Document:
    """Abort the transaction of the session."""
    transaction = _transaction(context)
    if transaction.state == "committed":
        raise MongoError(256, f"Transaction {transaction.number} has been committed.")
    transactions.abort(context.server.node, context.server.sessions, transaction)
    context.server.node.oplog.wake()
    return {"ok": 1.0}


def _transaction(context: Context) -> transactions.Transaction:
    if context.transaction is None:
        raise MongoError(125, f"{context.name} must be run within a transaction")
    return context.transaction
