"""The work of a router that changes a collection's shard key, moves a database to another shard, or adds a shard."""

from __future__ import annotations

from typing import Any

from bson import Int64, MinKey, ObjectId

from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.sharding.chunks import ALL, read_all_documents
from dev.servers.mongodb.sharding.router import Router, Shard, first_chunks, key_values
from dev.servers.mongodb.storage.versioned_collections import new_uuid
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

MOST_CHUNKS = 8


async def _load_collection(router: Router, namespace: str) -> tuple[Document, list[Document], Document]:
    """Shard key, chunks, and what the configuration says of a sharded collection."""
    sharded = await router.chunks(namespace)
    if sharded is None:
        raise MongoError(118, f"Namespace {namespace} is not sharded")
    (noted,) = await router.config("collections", {"_id": namespace})
    return *sharded, noted


async def _list_collections(router: Router, shard: Shard, db: str, query: Document) -> list[Document]:
    return await read_all_documents(
        router, shard, db, {"listCollections": 1, "filter": {"type": "collection", **query}}
    )


async def _indexes(router: Router, shard: Shard, db: str, name: str) -> list[Document]:
    found = await read_all_documents(router, shard, db, {"listIndexes": name})
    return [
        {option: value for option, value in index.items() if option != "v"}
        for index in found
        if index["name"] != "_id_"
    ]


async def _change_without_event(router: Router, shard: Shard, db: str, command: Document) -> None:
    await router.send(shard, db, {"_standInQuietly": 1, "command": command})


def _cut_chunks(
    namespace: str, key: Document, documents: list[Document], expected: int, primary: str, shards: list[str]
) -> list[Document]:
    """The chunks of a new key: where it is of ranges, cut where the documents are, and dealt out to the shards in turn."""
    chunks = first_chunks(namespace, key, primary, shards)
    if len(chunks) > 1 or expected < 2 or len(documents) < expected:
        return chunks
    places = sorted((key_values(key, document) for document in documents), key=order.key)
    cuts = [dict(zip(key, places[len(places) * n // expected], strict=True)) for n in range(1, expected)]
    bounds = [chunks[0]["min"], *cuts, chunks[0]["max"]]
    return [
        {"_id": ObjectId(), "ns": namespace, "min": bounds[n], "max": bounds[n + 1], "shard": shards[n % len(shards)]}
        for n in range(expected)
        if order.key(list(bounds[n].values())) < order.key(list(bounds[n + 1].values()))
    ]


async def reshard_collection(router: Router, context: Context, body: Document) -> Document:
    """Spread a collection by another key, under another UUID; its documents have no events."""
    namespace, key = body["reshardCollection"], body["key"]
    old, _, noted = await _load_collection(router, namespace)
    db, _, name = namespace.partition(".")
    if list(old.items()) == list(key.items()) and not body.get("forceRedistribution"):
        return {"ok": 1.0}
    primary, uuid = await router.primary_of(db), new_uuid()
    owners = await router.owners(db, name)
    documents = [
        d for shard in owners for d in await read_all_documents(router, shard, db, {"find": name, "batchSize": ALL})
    ]
    (listed,), indexes = (
        await _list_collections(router, primary, db, {"name": name}),
        await _indexes(router, primary, db, name),
    )
    expected = int(body.get("numInitialChunks", len(router.shards)))
    described = {
        "reshardUUID": uuid, "shardKey": key, "oldShardKey": old, "unique": bool(body.get("unique", False)), "numInitialChunks": Int64(expected),
    }  # fmt: skip
    announce = {"_standInAnnounce": "reshardCollection", "coll": name, "uuid": noted["uuid"], "described": described}
    await router.send(primary, db, announce)
    chunks = _cut_chunks(namespace, key, documents, min(expected, MOST_CHUNKS), primary.name, router.staying)
    clone = {
        "_standInClone": name,
        "uuid": uuid,
        "options": listed["options"],
        "key": key,
        "unique": False,
        "announce": False,
    }
    for shard in router.shards.values():
        await _change_without_event(router, shard, db, {"drop": name})
        await router.send(shard, db, clone)
        if indexes:
            await _change_without_event(router, shard, db, {"createIndexes": name, "indexes": indexes})
        here = [d for d in documents if router.chunk_of(key, chunks, d)["shard"] == shard.name]
        if here:
            await router.send(shard, db, {"_standInMove": name, "insert": here})
    await router.send(router.first, "config", {"delete": "chunks", "deletes": [{"q": {"ns": namespace}, "limit": 0}]})
    for chunk in chunks:
        await router.set_config("chunks", chunk)
    await router.set_config("collections", {"_id": namespace, "key": key, "uuid": uuid})
    return {"ok": 1.0}


async def refine_key(router: Router, context: Context, body: Document) -> Document:
    """Give a collection's shard key more fields at its end."""
    namespace, key = body["refineCollectionShardKey"], body["key"]
    old, chunks, noted = await _load_collection(router, namespace)
    db, _, name = namespace.partition(".")
    if list(key.items())[: len(old)] != list(old.items()):
        raise MongoError(72, f"refineCollectionShardKey shard key {key} must extend the current shard key {old}")
    if key == old:
        return {"ok": 1.0}
    primary = await router.primary_of(db)
    indexes = await _indexes(router, primary, db, name)
    if not any(list(index["key"].items())[: len(key)] == list(key.items()) for index in indexes):
        raise MongoError(
            72, "Please create an index that starts with the proposed shard key before refining the collection's shard key. "
        )  # fmt: skip
    for shard in await router.owners(db, name):
        announce = {
            "_standInAnnounce": "refineCollectionShardKey", "coll": name, "uuid": noted["uuid"],
            "described": {"shardKey": key, "oldShardKey": old}, "quiet": shard is not primary,
        }  # fmt: skip
        await router.send(shard, db, announce)
    more = [field for field in key if field not in old]
    for chunk in chunks:
        low = {**chunk["min"], **dict.fromkeys(more, MinKey())}
        high = {
            **chunk["max"],
            **dict.fromkeys(more, MinKey() if chunk is not chunks[-1] else next(iter(chunk["max"].values()))),
        }
        await router.set_config("chunks", {**chunk, "min": low, "max": high})
    await router.set_config("collections", {**noted, "key": key})
    return {"ok": 1.0}


async def move_primary(router: Router, context: Context, body: Document) -> Document:
    """Bring the collections of a database that are not sharded to another shard, where they are made again."""
    db, to = body["movePrimary"], body.get("to")
    if to not in router.shards:
        raise MongoError(70, f"Shard {to} not found")
    donor, target = await router.primary_of(db), router.shards[to]
    if donor is target:
        return {"ok": 1.0}
    async with router.moving():
        await _bring(router, db, donor, target)
    return {"ok": 1.0}


async def _bring(router: Router, db: str, donor: Shard, target: Shard) -> None:
    """Have the collections of a database that are not sharded at another shard; no one may write meanwhile."""
    sharded = {one["_id"] for one in await router.config("collections", {})}
    moved = [one for one in await _list_collections(router, donor, db, {}) if f"{db}.{one['name']}" not in sharded]
    for one in moved:
        name = one["name"]
        documents = await read_all_documents(router, donor, db, {"find": name, "batchSize": ALL})
        await router.send(target, db, {"create": name, **one["options"]})
        if indexes := await _indexes(router, donor, db, name):
            await _change_without_event(router, target, db, {"createIndexes": name, "indexes": indexes})
        if documents:
            await router.send(target, db, {"_standInMove": name, "insert": documents})
    await router.set_config("databases", {"_id": db, "primary": target.name})
    for one in moved:
        await _change_without_event(router, donor, db, {"drop": one["name"]})


async def add_shard(router: Router, context: Context, body: Document) -> Document:
    """Let a replica set take part: ``name/host:port,…``."""
    name, _, hosts = str(body["addShard"]).partition("/")
    if not hosts:
        raise MongoError(9, f"{name} is not a replica set's connection string")
    name = body.get("name", name)
    if name in router.shards:
        return {"shardAdded": name, "ok": 1.0}
    added = router.shard(name, hosts.split(","))
    reply: dict[str, Any] = await router.send(added, "admin", {"listDatabases": 1})
    there = {one["name"] for one in reply["databases"]} - {"admin", "config", "local"}
    if taken := there & {one["_id"] for one in await router.config("databases", {})}:
        raise MongoError(
            96, f"can't add shard '{hosts}' because a local database '{sorted(taken)[0]}' exists in another shard"
        )
    router.shards[name] = added
    return {"shardAdded": name, "ok": 1.0}
