"""``removeShard``: a shard is emptied by the balancer and then forgotten.

By MongoDB's manual ("Remove Shards from a Sharded Cluster"); no recording has it. The balancer here moves chunks one after another, to the shards that stay in
turn, and nothing else: databases are moved by ``movePrimary``, as on a real cluster. The first shard keeps the configuration and cannot be removed.
"""

from __future__ import annotations

import asyncio

from bson import Int64

from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.sharding import chunks
from dev.servers.mongodb.sharding.router import Router
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError


async def remove_shard(router: Router, context: Context, body: Document) -> Document:
    """Begin to empty a shard, or say how far it is, or forget it when it is empty."""
    name = body["removeShard"]
    if context.db != "admin":
        raise MongoError(13, "removeShard may only be run against the admin database.")
    if name not in router.shards:
        raise MongoError(70, f"Shard {name} does not exist")
    dbs = [one["_id"] for one in await router.config("databases", {"primary": name})]
    note: Document = {"note": "you need to drop or movePrimary these databases", "dbsToMove": dbs}
    if name not in router.draining:
        _check(router, name)
        router.draining[name] = asyncio.create_task(_move_chunks(router, name))
        return {"msg": "draining started successfully", "state": "started", "shard": name, **note, "ok": 1.0}
    task = router.draining[name]
    if task.done():
        task.result()  # an error of it is this command's
    left = len(await router.config("chunks", {"shard": name}))
    if left or dbs or not task.done():
        remaining = {"chunks": Int64(left), "dbs": Int64(len(dbs)), "jumboChunks": Int64(0)}
        return {"msg": "draining ongoing", "state": "ongoing", "remaining": remaining, **note, "ok": 1.0}
    del router.shards[name], router.draining[name]
    return {"msg": "removeshard completed successfully", "state": "completed", "shard": name, "ok": 1.0}


async def balance(router: Router, context: Context, body: Document) -> Document:
    """``balancerStart``, ``balancerStop`` and ``balancerStatus``: the balancer only empties shards here."""
    if context.name == "balancerStatus":
        mode = "full" if router.balancing else "off"
        return {"mode": mode, "inBalancerRound": False, "numBalancerRounds": Int64(0), "term": Int64(1), "ok": 1.0}
    router.balancing = context.name == "balancerStart"
    return {"ok": 1.0}


def _check(router: Router, name: str) -> None:
    if len(router.staying) < 2:
        raise MongoError(20, "Operation not allowed because it would remove the last shard")
    if router.shards[name] is router.first:
        raise MongoError(20, f"the stand-in keeps the cluster's configuration on {name}, which cannot be removed")


async def _move_chunks(router: Router, name: str) -> None:
    """Move the chunks of a shard to those that stay."""
    moved = 0
    while left := await router.config("chunks", {"shard": name}):
        while not router.balancing:
            await asyncio.sleep(0.05)
        staying = router.staying
        async with router.moving():
            await chunks.move(router, left[0]["ns"], left[0], staying[moved % len(staying)])
        moved += 1
