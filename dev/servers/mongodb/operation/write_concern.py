"""Until when a write command waits: for as many members as its write concern asks for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dev.servers.mongodb.storage.versioned_collections import Time
from dev.servers.mongodb.values.documents import Document

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context
    from dev.servers.mongodb.replica_set.members import Replication


async def wait_for_write_concern(replication: Replication, context: Context, reply: Document) -> Document:
    """Wait for as many members as the command's write concern asks for."""
    node = replication.node
    given = context.body.get("writeConcern", {})
    expected = given.get("w", replication.default_write_concern)
    if (
        node.majority is None
        or (context.transaction is not None and context.transaction.state == "open")
        or expected in (0, 1)
    ):
        return reply
    limit = int(given.get("wtimeout", 0)) / 1000
    end = time.monotonic() + limit if limit else None
    place, term = node.oplog.last, node.term
    replication._count()
    while not reached_by(replication, expected, place):
        if end is not None and time.monotonic() >= end:
            info = {
                "wtimeout": True,
                "writeConcern": {"w": expected, "wtimeout": int(limit * 1000), "provenance": "clientSupplied"},
            }
            error = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out", "errInfo": info}  # fmt: skip
            return _with_concern(reply, error)
        if not node.primary or node.term != term:
            provenance = "clientSupplied" if "w" in given else "implicitDefault"
            info = {"writeConcern": {"w": expected, "wtimeout": int(limit * 1000), "provenance": provenance}}
            interrupted = {
                "code": 11602,
                "codeName": "InterruptedDueToReplStateChange",
                "errmsg": "operation was interrupted",
            }
            return _with_concern(reply, {**interrupted, "errInfo": info})
        await node.oplog.wait(0.2 if end is None else min(0.2, end - time.monotonic()))
    return reply


def reached_by(replication: Replication, expected: Any, place: Time) -> bool:
    """Check whether as many members as wanted have a place."""
    if expected == "majority":
        return replication.node.seen >= place
    return 1 + sum(reached >= place for reached in replication.reached.values()) >= int(expected)


def _with_concern(reply: Document, error: Document) -> Document:
    out = {name: value for name, value in reply.items() if name != "ok"}
    return {**out, "writeConcernError": error, "ok": 1.0}
