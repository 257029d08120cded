"""``explain``: which index a command would use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.storage.node import VERSION
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

EXPLAINED: dict[str, Callable[[Document], Document]] = {
    "find": lambda body: body.get("filter", {}),
    "count": lambda body: body.get("query", {}),
    "distinct": lambda body: body.get("query", {}),
    "findAndModify": lambda body: body.get("query", {}),
    "aggregate": lambda body: next(iter(body["pipeline"]), {}).get("$match", {}),
    "update": lambda body: body["updates"][0]["q"],
    "delete": lambda body: body["deletes"][0]["q"],
}
"""The commands that can be explained, and where each has its filter."""


@command("explain", "verbosity")
def explain(context: Context, body: Document) -> Document:
    """The plan of a command: by the index of ``_id`` or through the collection. It does not say how the command would run."""
    inner = body["explain"]
    name = next(iter(inner))
    if name not in EXPLAINED:
        raise MongoError(59, f"Explain failed due to unknown command: {name}")
    if body.get("verbosity", "allPlansExecution") not in ("queryPlanner", "executionStats", "allPlansExecution"):
        raise MongoError(
            2, f"Enumeration value '{body['verbosity']}' for field 'explain.verbosity' is not a valid value."
        )
    query = EXPLAINED[name](inner)
    by_id = "_id" in query or "_id" in inner.get("sort", {})
    plan: Document = (
        {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "keyPattern": {"_id": 1}, "indexName": "_id_"}}
        if by_id
        else {"stage": "COLLSCAN", "direction": "forward"}
    )
    return {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": f"{context.db}.{inner[name]}",
            "parsedQuery": query,
            "winningPlan": plan,
            "rejectedPlans": [],
        },
        "command": {**inner, "$db": context.db},
        "serverInfo": {"host": context.server.address, "port": context.server.port, "version": VERSION},
        "ok": 1.0,
    }
