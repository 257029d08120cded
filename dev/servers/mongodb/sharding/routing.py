"""The routing of each command to shards, and the merge of their change streams."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

from bson import Int64, ObjectId

from dev.servers.mongodb.change_streams import streams
from dev.servers.mongodb.commands import aggregation, outputs, reads
from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.operation.cursors import Cursor
from dev.servers.mongodb.query import joins, projections, queries, stages
from dev.servers.mongodb.sharding import chunks, draining, key_changes, resharding
from dev.servers.mongodb.sharding.merged_streams import MergedStream
from dev.servers.mongodb.sharding.router import TRANSACTION, Handler, Router, Shard
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError


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
            if found := key_changes.images(reply):
                reply = await key_changes.update_key(router, context, shard, {**body, part: [statement]}, found)
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
        reply = await key_changes.find_and_modify(router, context, shard, body)
        if reply["lastErrorObject"]["n"]:
            break
    return reply


async def _gather_documents(
    router: Router, context: Context, name: str, query: Document, more: Document
) -> Iterator[Document]:
    """All documents that a filter lets through, from all shards that hold the collection."""
    # what a moment of the past shows may have been moved since
    past = more.get("readConcern", {}).get("level") == "snapshot"
    shards = list(router.shards.values()) if past else await _targets(router, context, name, query)
    ask = {"find": name, "filter": query, "batchSize": chunks.ALL, **more}
    return itertools.chain.from_iterable(
        await asyncio.gather(*(chunks.read_all_documents(router, shard, context.db, ask) for shard in shards))
    )


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
    documents = await _gather_documents(
        router, context, name, body.get("filter", {}), {**bounds, **await _concern(router, context, body)}
    )
    sort = body.get("sort") or ({"_id": 1} if bounds.get("min") or bounds.get("max") else None)
    found: Any = stages.sorted_by(documents, sort) if sort else documents
    start = int(body.get("skip", 0))
    limit = abs(int(body.get("limit", 0)))
    found = itertools.islice(found, start, start + limit if limit else None)
    if body.get("projection"):
        found = map(projections.compile_projection(body["projection"]), found)
    return context.opened(
        found,
        f"{context.db}.{name}",
        int(body.get("batchSize", reads.FIRST_BATCH)),
        single=bool(body.get("singleBatch")),
    )


async def _count(router: Router, context: Context, body: Document) -> Document:
    return {
        "n": sum(1 for _ in await _gather_documents(router, context, body["count"], body.get("query") or {}, {})),
        "ok": 1.0,
    }


async def _aggregate(router: Router, context: Context, body: Document) -> Document:
    pipeline, target = body["pipeline"], body["aggregate"]
    first = next(iter(pipeline[0])) if pipeline else ""
    if first == "$changeStream":
        return await _open_stream(router, context, body)
    pipeline, output = outputs.split(pipeline, in_transaction=TRANSACTION.get() is not None)
    if not isinstance(target, str):
        raise MongoError(73, f"{{aggregate: 1}} is not valid for '{first}'; a collection is required.")
    if first == "$collStats":
        owners = await router.owners(context.db, target)
        parts = await asyncio.gather(
            *(
                chunks.read_all_documents(
                    router, shard, context.db, {"aggregate": target, "pipeline": pipeline[:1], "cursor": {}}
                )
                for shard in owners
            )
        )
        stats = [
            {"ns": item["ns"], "shard": shard.name, **item}
            for shard, part in zip(owners, parts, strict=True)
            for item in part
        ]
        return context.opened(stages.compile_pipeline(pipeline[1:])(stats), f"{context.db}.{target}", chunks.ALL)
    query = pipeline[0]["$match"] if first == "$match" else {}
    concern = await _concern(router, context, body)
    documents = await _gather_documents(router, context, target, query, concern)
    others = {
        name: list(await _gather_documents(router, context, name, {}, concern))
        for name in {*joins.list_read_collections(pipeline)}
    }
    made = stages.compile_pipeline(pipeline, body.get("let", {}), lambda name: iter(others[name]))(documents)
    if output is not None:
        await _output(router, context, output, list(made), body)
        made = iter(())
    return context.opened(made, f"{context.db}.{target}", int(body["cursor"].get("batchSize", reads.FIRST_BATCH)))


async def _output(router: Router, context: Context, stage: Document, made: list[Document], body: Document) -> None:
    """Have the shards that documents belong to write them as ``$out`` or ``$merge`` says."""
    db, name = outputs.target_of(stage, context.db)
    sharded = await router.chunks(f"{db}.{name}")
    if sharded is not None and "$out" in stage:
        raise MongoError(28769, f"namespace '{db}.{name}' is sharded so it can't be used for $out")
    documents = [document if "_id" in document else {"_id": ObjectId(), **document} for document in made]
    parts: dict[str, list[Document]] = {} if sharded is not None else {(await router.primary_of(db)).name: documents}
    for document in documents if sharded is not None else ():
        parts.setdefault(router.chunk_of(*sharded, document)["shard"], []).append(document)
    ask = {"_standInOutput": 1, "stage": stage, "bypassDocumentValidation": bool(body.get("bypassDocumentValidation"))}
    for shard, part in parts.items():
        await router.send(router.shards[shard], context.db, {**ask, "documents": part})


async def _distinct(router: Router, context: Context, body: Document) -> Document:
    return reads.different(
        await _gather_documents(router, context, body["distinct"], body.get("query") or {}, {}), body["key"]
    )


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


async def _rename(router: Router, context: Context, body: Document) -> Document:
    """Rename a collection that is not sharded, at the shard of its database."""
    for namespace in (body["renameCollection"], body["to"]):
        if await router.chunks(namespace) is not None:
            raise MongoError(20, f"the stand-in does not rename sharded collections: {namespace}")
    shards = [await router.primary_of(body[part].partition(".")[0]) for part in ("renameCollection", "to")]
    if shards[0] is not shards[1]:
        raise MongoError(20, "Source and destination collections must be on the same database's shard.")
    return await router.send(shards[0], "admin", body)


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


async def _list_shards(router: Router, context: Context, body: Document) -> Document:
    out = [
        {
            "_id": name,
            "host": f"{name}/{','.join(shard.addresses)}",
            "state": 1,
            **({"draining": True} if name in router.draining else {}),
        }
        for name, shard in router.shards.items()
    ]
    return {"shards": out, "ok": 1.0}


# change streams


async def _open_stream(router: Router, context: Context, body: Document) -> Document:
    collection = body["aggregate"] if isinstance(body["aggregate"], str) else None
    streams.check_options(body["pipeline"][0]["$changeStream"], context.db, collection)
    merged = MergedStream(router, context.db, body)
    await merged.open()
    size = body["cursor"].get("batchSize")
    batch = await merged.batch(int(size) if size is not None else reads.FIRST_BATCH) if size != 0 else []
    namespace = f"{context.db}.{collection or '$cmd.aggregate'}"
    cursor = Cursor(namespace, iter([]))
    cursor.user, cursor.service = merged, context.service()
    number = 0 if merged.over else router.cursors.add(cursor)
    return {
        "cursor": {"firstBatch": batch, "postBatchResumeToken": merged.high, "id": Int64(number), "ns": namespace},
        "ok": 1.0,
    }


async def _get_more(router: Router, context: Context, body: Document) -> Document:
    number = int(body["getMore"])
    cursor = router.cursors.get(number)
    if router.node.settings.load_balanced and cursor.service not in (None, context.service()):
        raise MongoError(43, f"cursor id {number} not found")
    merged = cursor.user
    if not isinstance(merged, MergedStream):
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
    for number in body["cursors"]:
        try:
            merged = router.cursors.get(int(number)).user
        except MongoError:
            continue
        if isinstance(merged, MergedStream):
            await merged.close()
    return aggregation.kill_cursors(context, body)


async def _end_transaction(router: Router, context: Context, body: Document) -> Document:
    """Commit or abort at each shard that the transaction has come to, in any order: at one time, or each at its own."""
    transaction = TRANSACTION.get()
    if transaction is None:
        raise MongoError(
            251, "Given transaction number does not match any in-progress transactions.", ("TransientTransactionError",)
        )
    await router.end([router.shards[name] for name in transaction.shards], context.name)
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
    "distinct": _distinct,
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
    "renameCollection": _rename,
    "drop": _drop,
    "dropDatabase": _drop_database,
    "listDatabases": _list_databases,
    "enableSharding": chunks.enable_sharding,
    "shardCollection": chunks.shard_collection,
    "split": chunks.split,
    "moveChunk": chunks.move_chunk,
    "moveRange": chunks.move_range,
    "listShards": _list_shards,
    "reshardCollection": resharding.reshard_collection,
    "refineCollectionShardKey": resharding.refine_key,
    "movePrimary": resharding.move_primary,
    "addShard": resharding.add_shard,
    "removeShard": draining.remove_shard,
    "balancerStart": draining.balance,
    "balancerStop": draining.balance,
    "balancerStatus": draining.balance,
}
