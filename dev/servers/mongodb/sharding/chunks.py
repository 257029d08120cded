"""The work of a router that spreads a collection over its shards."""

from __future__ import annotations

import itertools
import time

from bson import ObjectId

from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.sharding.router import Router, Shard, first_chunks, key_values
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

ALL = 100_000_000


async def read_all_documents(router: Router, shard: Shard, db: str, body: Document) -> list[Document]:
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
    for chunk in first_chunks(namespace, key, primary.name, router.staying):
        await router.set_config("chunks", chunk)
    documents = await read_all_documents(router, primary, db, {"find": name, "batchSize": ALL})
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
    async with router.moving():
        await move(router, body["moveChunk"], chunk, body["to"])
    return {"millis": int((time.monotonic() - begun) * 1000), "ok": 1.0}


async def move_range(router: Router, context: Context, body: Document) -> Document:
    """Bring a part of a chunk to another shard; it becomes a separate chunk."""
    namespace, ends = body["moveRange"], [body[end] for end in ("min", "max") if end in body]
    if not ends:
        raise MongoError(72, "could not find a valid value for min or max: need to specify one of min or max")
    if body["toShard"] not in router.shards:
        raise MongoError(70, f"Shard {body['toShard']} not found")
    for end in ends:
        known = await router.chunks(namespace)
        if known is None:
            raise MongoError(118, f"{namespace} is not sharded")
        places = [order.key(list(chunk["min"].values())) for chunk in known[1]]
        top = order.key(list(known[1][-1]["max"].values()))
        if order.key(list(end.values())) not in [*places, top]:
            await split(router, context, {"split": namespace, "middle": end})
    sharded = await router.chunks(namespace)
    assert sharded is not None
    name = "min" if "min" in body else "max"
    place = order.key(list(body[name].values()))
    (chunk,) = (chunk for chunk in sharded[1] if order.key(list(chunk[name].values())) == place)
    async with router.moving():
        await move(router, namespace, chunk, body["toShard"])
    return {"ok": 1.0}


async def move(router: Router, namespace: str, chunk: Document, to: str) -> None:
    """Have the documents of a chunk at another shard; no one may write meanwhile."""
    sharded = await router.chunks(namespace)
    assert sharded is not None
    key, _ = sharded
    donor, target = router.shards[chunk["shard"]], router.shards[to]
    db, _, name = namespace.partition(".")
    documents = [
        document for document in await read_all_documents(router, donor, db, {"find": name, "batchSize": ALL})
        if order.key(list(chunk["min"].values())) <= order.key(key_values(key, document)) < order.key(list(chunk["max"].values()))
    ]  # fmt: skip
    if not await read_all_documents(
        router, target, db, {"listCollections": 1, "filter": {"name": name}}
    ):  # a shard that was added since
        primary = await router.primary_of(db)
        (listed,) = await read_all_documents(router, primary, db, {"listCollections": 1, "filter": {"name": name}})
        clone = {"_standInClone": name, "uuid": listed["info"]["uuid"], "options": listed["options"], "key": key}
        await router.send(target, db, {**clone, "announce": False, "unique": False})
    await router.set_config("chunks", {**chunk, "shard": to})
    await settle(router, namespace, documents, donor)
