"""What a router does with each command, and how it merges the change streams of its shards."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from bson import Int64, ObjectId, Timestamp

from dev.servers.mongodb import crud, order, projections, queries, stages, streams
from dev.servers.mongodb.context import Context
from dev.servers.mongodb.cursors import Cursor
from dev.servers.mongodb.documents import Document
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.router import TRANSACTION, Router, Shard, first_chunks, key_values

Handler = Callable[[Router, Context, Document], Awaitable[Document]]
ALL = 100_000_000


async def _insert(router: Router, context: Context, body: Document) -> Document:
    sharded = await router.chunks(f"{context.db}.{body['insert']}")
    documents = [document if "_id" in document else {"_id": ObjectId(), **document} for document in body["documents"]]
    if sharded is None:
        return await router.send(await router.primary_of(context.db), context.db, {**body, "documents": documents})
    count, errors = 0, []
    places = [(router.chunk_of(*sharded, document)["shard"], index) for index, document in enumerate(documents)]
    for name, run in itertools.groupby(places, key=lambda place: place[0]):
        indexes = [index for _, index in run]
        reply = await router.send(
            router.shards[name], context.db, {**body, "documents": [documents[index] for index in indexes]}
        )
        count += reply["n"]
        errors += [{**error, "index": indexes[error["index"]]} for error in reply.get("writeErrors", [])]
        if errors and body.get("ordered", True):
            break
    return {"n": count, **({"writeErrors": errors} if errors else {}), "ok": 1.0}


async def _targets(router: Router, context: Context, name: str, query: Document) -> list[Shard]:
    """The shards that a filter concerns: one when it names the whole shard key."""
    sharded = await router.chunks(f"{context.db}.{name}")
    if sharded is None:
        return [await router.primary_of(context.db)]
    key, chunks = sharded
    if all(field in query and not queries.is_operators(query[field]) for field in key):
        return [router.shards[router.chunk_of(key, chunks, query)["shard"]]]
    return await router.owners(context.db, name)


async def _write(router: Router, context: Context, body: Document) -> Document:
    """``update`` and ``delete``: statement by statement, each at the shards it concerns, until one that wants one document has it."""
    part = "updates" if context.name == "update" else "deletes"
    out: Document = {"n": 0, "nModified": 0} if part == "updates" else {"n": 0}
    errors: list[Document] = []
    upserted: list[Document] = []
    for index, statement in enumerate(body[part]):
        many = bool(statement.get("multi")) if part == "updates" else not statement["limit"]
        for shard in await _targets(router, context, body[context.name], statement["q"]):
            reply = await router.send(shard, context.db, {**body, part: [statement]})
            for name in ("n", "nModified"):
                if name in out:
                    out[name] += reply.get(name, 0)
            errors += [{**error, "index": index} for error in reply.get("writeErrors", [])]
            upserted += [{**item, "index": index} for item in reply.get("upserted", [])]
            if reply["n"] and not many:
                break
        if errors and body.get("ordered", True):
            break
    more: Document = {"writeErrors": errors} if errors else {}
    return {**out, **more, **({"upserted": upserted} if upserted else {}), "ok": 1.0}


async def _find_and_modify(router: Router, context: Context, body: Document) -> Document:
    reply: Document = {}
    for shard in await _targets(router, context, body[context.name], body.get("query", {})):
        reply = await router.send(shard, context.db, body)
        if reply["lastErrorObject"]["n"]:
            break
    return reply


async def _gathered(router: Router, context: Context, name: str, query: Document, more: Document) -> Iterator[Document]:
    """All documents that a filter lets through, from all shards that hold the collection."""
    shards = await _targets(router, context, name, query)
    ask = {"find": name, "filter": query, "batchSize": ALL, **more}
    return itertools.chain.from_iterable(
        await asyncio.gather(*(_drained(router, shard, context.db, ask) for shard in shards))
    )


async def _drained(router: Router, shard: Shard, db: str, body: Document) -> list[Document]:
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


async def _concern(router: Router, context: Context, body: Document) -> Document:
    concern = body.get("readConcern", {})
    if concern.get("level") == "snapshot":
        concern = {"level": "snapshot", "atClusterTime": concern.get("atClusterTime", router.time)}
        context.at = concern["atClusterTime"]
        await router.every(list(router.shards.values()), "admin", {"appendOplogNote": 1, "data": {"msg": "snapshot"}})
    return {"readConcern": concern} if concern else {}


async def _find(router: Router, context: Context, body: Document) -> Document:
    name = body["find"]
    bounds = {field: body[field] for field in ("min", "max", "hint") if field in body}
    documents = await _gathered(
        router, context, name, body.get("filter", {}), {**bounds, **await _concern(router, context, body)}
    )
    sort = body.get("sort") or ({"_id": 1} if bounds.get("min") or bounds.get("max") else None)
    found: Any = stages.sorted_by(documents, sort) if sort else documents
    start = int(body.get("skip", 0))
    limit = abs(int(body.get("limit", 0)))
    found = itertools.islice(found, start, start + limit if limit else None)
    if body.get("projection"):
        found = map(projections.compiled(body["projection"]), found)
    return context.opened(
        found,
        f"{context.db}.{name}",
        int(body.get("batchSize", crud.FIRST_BATCH)),
        single=bool(body.get("singleBatch")),
    )


async def _count(router: Router, context: Context, body: Document) -> Document:
    return {
        "n": sum(1 for _ in await _gathered(router, context, body["count"], body.get("query") or {}, {})),
        "ok": 1.0,
    }


async def _aggregate(router: Router, context: Context, body: Document) -> Document:
    pipeline, target = body["pipeline"], body["aggregate"]
    first = next(iter(pipeline[0])) if pipeline else ""
    if first == "$changeStream":
        return await _open_stream(router, context, body)
    if not isinstance(target, str):
        raise MongoError(73, f"{{aggregate: 1}} is not valid for '{first}'; a collection is required.")
    if first == "$collStats":
        owners = await router.owners(context.db, target)
        parts = await asyncio.gather(
            *(
                _drained(router, shard, context.db, {"aggregate": target, "pipeline": pipeline[:1], "cursor": {}})
                for shard in owners
            )
        )
        stats = [
            {"ns": item["ns"], "shard": shard.name, **item}
            for shard, part in zip(owners, parts, strict=True)
            for item in part
        ]
        return context.opened(stages.compiled(pipeline[1:])(stats), f"{context.db}.{target}", ALL)
    query = pipeline[0]["$match"] if first == "$match" else {}
    documents = await _gathered(router, context, target, query, await _concern(router, context, body))
    size = int(body["cursor"].get("batchSize", crud.FIRST_BATCH))
    return context.opened(stages.compiled(pipeline, body.get("let", {}))(documents), f"{context.db}.{target}", size)


# structure


async def _at_primary(router: Router, context: Context, body: Document) -> Document:
    return await router.send(await router.primary_of(context.db), context.db, body)


async def _at_owners(router: Router, context: Context, body: Document) -> Document:
    """At the database's shard, and without an event of their own at the others."""
    primary, *others = await router.owners(context.db, body[context.name])
    reply = await router.send(primary, context.db, body)
    for shard in others:
        await router.send(shard, context.db, {"_standInQuietly": 1, "command": body})
    return reply


async def _drop(router: Router, context: Context, body: Document) -> Document:
    namespace = f"{context.db}.{body['drop']}"
    await _at_owners(router, context, body)
    await router.send(
        router.first, "config", {"delete": "collections", "deletes": [{"q": {"_id": namespace}, "limit": 1}]}
    )
    await router.send(router.first, "config", {"delete": "chunks", "deletes": [{"q": {"ns": namespace}, "limit": 0}]})
    return {"ok": 1.0}


async def _drop_database(router: Router, context: Context, body: Document) -> Document:
    primary = await router.primary_of(context.db)
    await router.send(primary, context.db, body)
    for shard in router.shards.values():
        if shard is not primary:
            await router.send(shard, context.db, {"_standInQuietly": 1, "command": body})
    query = {"$regex": f"^{context.db}[.]"}
    await router.send(router.first, "config", {"delete": "collections", "deletes": [{"q": {"_id": query}, "limit": 0}]})
    await router.send(router.first, "config", {"delete": "chunks", "deletes": [{"q": {"ns": query}, "limit": 0}]})
    await router.send(
        router.first, "config", {"delete": "databases", "deletes": [{"q": {"_id": context.db}, "limit": 1}]}
    )
    return {"ok": 1.0}


async def _list_databases(router: Router, context: Context, body: Document) -> Document:
    found: dict[str, Document] = {}
    for reply in await router.every(list(router.shards.values()), "admin", body):
        for item in reply["databases"]:
            if item["name"] != "local":
                found[item["name"]] = item
    return {"databases": [found[name] for name in sorted(found)], "ok": 1.0}


async def _enable_sharding(router: Router, context: Context, body: Document) -> Document:
    name = body.get("primaryShard")
    if name is not None and not await router.config("databases", {"_id": body["enableSharding"]}):
        if name not in router.shards:
            raise MongoError(70, f"Shard {name} not found")
        await router.set_config("databases", {"_id": body["enableSharding"], "primary": name})
    await router.primary_of(body["enableSharding"])
    return {"ok": 1.0}


async def _shard_collection(router: Router, context: Context, body: Document) -> Document:
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
    documents = await _drained(router, primary, db, {"find": name, "batchSize": ALL})
    await router.set_config("collections", {"_id": namespace, "key": key, "uuid": listed["info"]["uuid"]})
    await _settle(router, namespace, documents, primary)
    return {"collectionsharded": namespace, "ok": 1.0}


async def _settle(router: Router, namespace: str, documents: list[Document], donor: Shard) -> None:
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


async def _split(router: Router, context: Context, body: Document) -> Document:
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


async def _move_chunk(router: Router, context: Context, body: Document) -> Document:
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
        document for document in await _drained(router, donor, db, {"find": name, "batchSize": ALL})
        if order.key(list(chunk["min"].values())) <= order.key(key_values(key, document)) < order.key(list(chunk["max"].values()))
    ]  # fmt: skip
    await router.set_config("chunks", {**chunk, "shard": body["to"]})
    await _settle(router, body["moveChunk"], documents, donor)
    return {"millis": int((time.monotonic() - begun) * 1000), "ok": 1.0}


async def _list_shards(router: Router, context: Context, body: Document) -> Document:
    out = [
        {"_id": name, "host": f"{name}/{','.join(shard.addresses)}", "state": 1}
        for name, shard in router.shards.items()
    ]
    return {"shards": out, "ok": 1.0}


# change streams


class Merged:
    """The streams of all shards as one: an event goes out when no shard can have an earlier one."""

    def __init__(self, router: Router, db: str, body: Document) -> None:
        self.router, self.db, self.body = router, db, body
        self.shards = [shard.another() for shard in router.shards.values()]
        self.ids: list[int] = []
        self.marks: list[Document] = []
        self.waiting: list[list[Document]] = []
        self.over = False
        self.high: Document = {}

    async def open(self) -> None:
        """Open the stream of each shard, at the same place."""
        spec = self.body["pipeline"][0]["$changeStream"]
        if not any(name in spec for name in ("resumeAfter", "startAfter", "startAtOperationTime")):
            await self._advance()
            spec = {**spec, "startAtOperationTime": Timestamp(self.router.time.time, self.router.time.inc + 1)}
        pipeline = [{"$changeStream": spec}, *self.body["pipeline"][1:]]
        ask = {**self.body, "pipeline": pipeline, "cursor": {"batchSize": 0}, "_standInShard": True}
        for shard in self.shards:
            cursor = (await self.router.send(shard, self.db, ask))["cursor"]
            self.ids.append(cursor["id"])
            self.marks.append(cursor["postBatchResumeToken"])
            self.waiting.append([])
        self.high = min(self.marks, key=lambda mark: mark["_data"])

    async def _advance(self) -> None:
        """Have shards on which nothing happens say so: their time goes on."""
        await self.router.every(
            list(self.router.shards.values()),
            "admin",
            {"appendOplogNote": 1, "data": {"msg": "noop for a change stream"}},
        )

    async def batch(self, count: int | None) -> list[Document]:
        """The next events."""
        await asyncio.gather(*(self._fill(number) for number in range(len(self.shards)) if not self.waiting[number]))
        out: list[Document] = []
        while not self.over and (count is None or len(out) < count):
            safe = (
                min(mark["_data"] for mark, waiting in zip(self.marks, self.waiting, strict=True) if not waiting)
                if not all(self.waiting)
                else None
            )
            number = min(
                (number for number, waiting in enumerate(self.waiting) if waiting),
                key=lambda number: self.waiting[number][0]["_id"]["_data"],
                default=None,
            )
            if number is None or (safe is not None and self.waiting[number][0]["_id"]["_data"] > safe):
                break
            event = self.waiting[number].pop(0)
            out.append(event)
            self.high = event["_id"]
            self.over = event.get("operationType") == "invalidate"
            if not self.waiting[number] and self.ids[number]:
                await self._fill(number)
        least = min(self.marks, key=lambda mark: mark["_data"])
        if not any(self.waiting) and least["_data"] > self.high["_data"]:
            self.high = least
        return out

    async def _fill(self, number: int) -> None:
        if not self.ids[number]:
            return
        name = self.body["aggregate"] if isinstance(self.body["aggregate"], str) else "$cmd.aggregate"
        ask = {"getMore": Int64(self.ids[number]), "collection": name, "maxTimeMS": 1}
        cursor = (await self.router.send(self.shards[number], self.db, ask))["cursor"]
        self.waiting[number] += cursor["nextBatch"]
        self.marks[number], self.ids[number] = cursor["postBatchResumeToken"], cursor["id"]

    async def close(self) -> None:
        """Close the streams of the shards."""
        name = self.body["aggregate"] if isinstance(self.body["aggregate"], str) else "$cmd.aggregate"
        for shard, number in zip(self.shards, self.ids, strict=True):
            if number:
                await self.router.send(shard, self.db, {"killCursors": name, "cursors": [Int64(number)]})


async def _open_stream(router: Router, context: Context, body: Document) -> Document:
    collection = body["aggregate"] if isinstance(body["aggregate"], str) else None
    streams.checked(body["pipeline"][0]["$changeStream"], context.db, collection)
    merged = Merged(router, context.db, body)
    await merged.open()
    size = body["cursor"].get("batchSize")
    batch = await merged.batch(int(size) if size is not None else crud.FIRST_BATCH) if size != 0 else []
    namespace = f"{context.db}.{collection or '$cmd.aggregate'}"
    cursor = Cursor(namespace, iter([]))
    cursor.user = merged
    number = 0 if merged.over else router.cursors.add(cursor)
    return {
        "cursor": {"firstBatch": batch, "postBatchResumeToken": merged.high, "id": Int64(number), "ns": namespace},
        "ok": 1.0,
    }


async def _get_more(router: Router, context: Context, body: Document) -> Document:
    number = int(body["getMore"])
    cursor = router.cursors.get(number)
    merged = cursor.user
    if not isinstance(merged, Merged):
        from dev.servers.mongodb import aggregation

        return await aggregation.get_more(context, body)
    end = time.monotonic() + (int(body["maxTimeMS"]) / 1000 if "maxTimeMS" in body else 1.0)
    try:
        while True:
            batch = await merged.batch(int(body["batchSize"]) if body.get("batchSize") else None)
            if batch or merged.over or time.monotonic() >= end:
                break
            await merged._advance()
            await asyncio.sleep(0.05)
    except MongoError:
        router.cursors.close(number)
        raise
    if merged.over:
        router.cursors.close(number)
        await merged.close()
    out = {
        "nextBatch": batch,
        "postBatchResumeToken": merged.high,
        "id": Int64(0 if merged.over else number),
        "ns": cursor.namespace,
    }
    return {"cursor": out, "ok": 1.0}


async def _kill_cursors(router: Router, context: Context, body: Document) -> Document:
    from dev.servers.mongodb import aggregation

    for number in body["cursors"]:
        try:
            merged = router.cursors.get(int(number)).user
        except MongoError:
            continue
        if isinstance(merged, Merged):
            await merged.close()
    return aggregation.kill_cursors(context, body)


async def _end_transaction(router: Router, context: Context, body: Document) -> Document:
    """Commit or abort at each shard that the transaction has come to; each has a time of its own for it."""
    transaction = TRANSACTION.get()
    if transaction is None:
        raise MongoError(
            251, "Given transaction number does not match any in-progress transactions.", ("TransientTransactionError",)
        )
    for name in list(transaction.shards):
        await router.send(router.shards[name], "admin", {context.name: 1})
    return {"ok": 1.0}


HANDLERS: dict[str, Handler] = {
    "commitTransaction": _end_transaction,
    "abortTransaction": _end_transaction,
    "insert": _insert,
    "update": _write,
    "delete": _write,
    "findAndModify": _find_and_modify,
    "find": _find,
    "count": _count,
    "aggregate": _aggregate,
    "getMore": _get_more,
    "killCursors": _kill_cursors,
    "create": _at_primary,
    "listCollections": _at_primary,
    "listIndexes": _at_primary,
    "splitVector": _at_primary,
    "collMod": _at_owners,
    "createIndexes": _at_owners,
    "dropIndexes": _at_owners,
    "drop": _drop,
    "dropDatabase": _drop_database,
    "listDatabases": _list_databases,
    "enableSharding": _enable_sharding,
    "shardCollection": _shard_collection,
    "split": _split,
    "moveChunk": _move_chunk,
    "listShards": _list_shards,
}
