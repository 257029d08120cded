"""What a router does to spread a collection over its shards."""

from __future__ import annotations

import itertools
import time

from bson import ObjectId

from dev.servers.mongodb import order
from dev.servers.mongodb.context import Context
from dev.servers.mongodb.documents import Document
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.router import Router, Shard, first_chunks, key_values

ALL = 100_000_000


async def drained(router: Router, shard: Shard, db: str, body: Document) -> list[Document]:
    """All documents of a cursor at a shard."""
    cursor = (await router.send(shard, db, body))["cursor"]
    out = list(cursor["firstBatch"])
    while cursor["id"]:
        cursor = (
            await router.send(
                shard, db, {"getMore": cursor["id"], "collection": cursor["ns"].partition(".")[2], "batchSize": ALL}
            )
        )["cursor"]
        out += cursor["nextBatch"]
    return out


async def enable_sharding(router: Router, context: Context, body: Document) -> Document:
    """Note the shard of a database."""
    name = body.get("primaryShard")
    if name is not None and not await router.config("databases", {"_id": body["enableSharding"]}):
        if name not in router.shards:
            raise MongoError(70, f"Shard {name} not found")
        await router.set_config("databases", {"_id": body["enableSharding"], "primary": name})
    await router.primary_of(body["enableSharding"])
    return {"ok": 1.0}


async def shard_collection(router: Router, context: Context, body: Document) -> Document:
    """Have a collection on all shards, in chunks of its key."""
    namespace, key = body["shardCollection"], body["key"]
    db, _, name = namespace.partition(".")
    if await router.chunks(namespace) is not None:
        return {"collectionsharded": namespace, "ok": 1.0}
    primary = await router.primary_of(db)
    await router.send(primary, db, {"create": name})
    if list(key) != ["_id"]:
        await router.send(
            primary,
            db,
            {
                "createIndexes": name,
                "indexes": [{"key": key, "name": "_".join(f"{field}_{way}" for field, way in key.items())}],
            },
        )
    listed = (await router.send(primary, db, {"listCollections": 1, "filter": {"name": name}}))["cursor"]["firstBatch"][
        0
    ]
    clone = {"_standInClone": name, "uuid": listed["info"]["uuid"], "options": listed["options"], "key": key}
    for shard in router.shards.values():
        await router.send(shard, db, {**clone, "announce": shard is primary, "unique": bool(body.get("unique"))})
    for chunk in first_chunks(namespace, key, primary.name, list(router.shards)):
        await router.set_config("chunks", chunk)
    documents = await drained(router, primary, db, {"find": name, "batchSize": ALL})
    await router.set_config("collections", {"_id": namespace, "key": key, "uuid": listed["info"]["uuid"]})
    await settle(router, namespace, documents, primary)
    return {"collectionsharded": namespace, "ok": 1.0}


async def settle(router: Router, namespace: str, documents: list[Document], donor: Shard) -> None:
    """Bring documents of a shard to the shards that their chunks are at."""
    db, _, name = namespace.partition(".")
    sharded = await router.chunks(namespace)
    assert sharded is not None
    for shard, run in itertools.groupby(
        sorted(documents, key=lambda document: router.chunk_of(*sharded, document)["shard"]),
        key=lambda document: router.chunk_of(*sharded, document)["shard"],
    ):
        moved = list(run)
        if shard != donor.name:
            await router.send(router.shards[shard], db, {"_standInMove": name, "insert": moved})
            await router.send(donor, db, {"_standInMove": name, "delete": [document["_id"] for document in moved]})


async def split(router: Router, context: Context, body: Document) -> Document:
    """Make two chunks of one."""
    sharded = await router.chunks(body["split"])
    if sharded is None:
        raise MongoError(118, f"{body['split']} is not sharded")
    _, chunks = sharded
    place = order.key(list(body["middle"].values()))
    chunk = next(
        item for item in chunks if order.key(list(item["min"].values())) < place < order.key(list(item["max"].values()))
    )
    await router.set_config("chunks", {**chunk, "max": body["middle"]})
    await router.set_config("chunks", {**chunk, "_id": ObjectId(), "min": body["middle"]})
    return {"ok": 1.0}


async def move_chunk(router: Router, context: Context, body: Document) -> Document:
    """Bring the documents of a chunk to another shard."""
    begun = time.monotonic()
    sharded = await router.chunks(body["moveChunk"])
    if sharded is None:
        raise MongoError(118, f"{body['moveChunk']} is not sharded")
    if body["to"] not in router.shards:
        raise MongoError(70, f"Shard {body['to']} not found")
    key, chunks = sharded
    chunk = router.chunk_of(key, chunks, body["find"])
    donor = router.shards[chunk["shard"]]
    db, _, name = body["moveChunk"].partition(".")
    documents = [
        document for document in await drained(router, donor, db, {"find": name, "batchSize": ALL})
        if order.key(list(chunk["min"].values())) <= order.key(key_values(key, document)) < order.key(list(chunk["max"].values()))
    ]  # fmt: skip
    target = router.shards[body["to"]]
    if not await drained(
        router, target, db, {"listCollections": 1, "filter": {"name": name}}
    ):  # a shard that was added since
        primary = await router.primary_of(db)
        (listed,) = await drained(router, primary, db, {"listCollections": 1, "filter": {"name": name}})
        clone = {"_standInClone": name, "uuid": listed["info"]["uuid"], "options": listed["options"], "key": key}
        await router.send(target, db, {**clone, "announce": False, "unique": False})
    await router.set_config("chunks", {**chunk, "shard": body["to"]})
    await settle(router, body["moveChunk"], documents, donor)
    return {"millis": int((time.monotonic() - begun) * 1000), "ok": 1.0}
