"""``aggregate`` and ``getMore``: pipelines on collections and views, what the server says of itself by a stage, and change streams."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bson import Int64
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.change_streams import streams
from dev.servers.mongodb.change_streams.events import INTERNAL, Scope
from dev.servers.mongodb.change_streams.streams import ChangeStream
from dev.servers.mongodb.commands import outputs, reads, views
from dev.servers.mongodb.operation import products, versions
from dev.servers.mongodb.operation.cursors import Cursor
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.query import stages
from dev.servers.mongodb.storage.transactions import View
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

AWAIT_SECONDS = 1.0


@command(
    "aggregate", "pipeline", "cursor", "explain", "allowDiskUse", "collation", "hint", "let", "bypassDocumentValidation", "exchange", "fromMongos", "needsMerge",
    "isMapReduceCommand",
)  # fmt: skip
async def aggregate(context: Context, body: Document) -> Document:
    """Run a pipeline, or open a change stream."""
    pipeline = body.get("pipeline")
    if not isinstance(pipeline, list):
        raise MongoError(14, "'pipeline' option must be specified as an array")
    if "cursor" not in body and not body.get("explain"):
        raise MongoError(9, "The 'cursor' option is required, except for aggregate with the explain argument")
    if body.get("explain"):
        return {"stages": [], "ok": 1.0}
    for stage in pipeline:
        if not isinstance(stage, dict) or len(stage) != 1:
            raise MongoError(40323, "A pipeline stage specification object must contain exactly one field.")
    names = [next(iter(stage)) for stage in pipeline]
    if names and names[0] == "$changeStream":
        return await _open_stream(context, body, pipeline)
    if "$changeStream" in names:
        raise MongoError(40602, "$changeStream is only valid as the first stage in a pipeline")
    if "$changeStreamSplitLargeEvent" in names:
        raise MongoError(20, "$changeStreamSplitLargeEvent can only be used in a $changeStream pipeline")
    pipeline, output = outputs.split(pipeline, in_transaction=context.transaction is not None)
    view = await context.reading(body)
    target = body["aggregate"]
    documents = _run(context, view, target, pipeline, body.get("let", {}))
    name = target if isinstance(target, str) else "$cmd.aggregate"
    if output is not None:
        db = context.db
        outputs.write(context, output, list(documents))
        context.db, documents = db, iter([])
    return context.opened(documents, f"{context.db}.{name}", int(body["cursor"].get("batchSize", reads.FIRST_BATCH)))


def _run(
    context: Context, view: View, target: Any, pipeline: list[Document], constants: Document
) -> Iterator[Document]:
    first = next(iter(pipeline[0])) if pipeline else ""
    read = partial(views.documents, context, view)
    if first in SOURCES:
        return stages.compile_pipeline(pipeline[1:], constants, read)(
            SOURCES[first](context, target, pipeline[0][first])
        )
    if not isinstance(target, str):
        raise MongoError(73, f"{{aggregate: 1}} is not valid for '{first}'; a collection is required.")
    collection = context.collection(target)
    if collection is not None and collection.kind == "view":
        return views.of_view(context, view, collection, pipeline)
    documents: Iterator[Document]
    if context.db == "local" and target == "oplog.rs":
        documents = iter(list(context.server.node.oplog.entries))
    elif collection is None:
        documents = context.system_documents(target, {})
    else:
        reads.versions_check(context, collection)
        query = pipeline[0]["$match"] if first == "$match" and isinstance(pipeline[0]["$match"], dict) else {}
        documents = reads.matching(view, collection, query)
    return stages.compile_pipeline(pipeline, constants, read)(documents)


def _coll_stats(context: Context, target: Any, options: Document) -> Iterator[Document]:
    collection = context.collection(target)
    if collection is None:
        raise MongoError(26, f"Collection [{context.db}.{target}] not found.")
    from dev.servers.mongodb.storage import reports

    out: Document = {
        "ns": collection.namespace,
        "host": context.server.address,
        "localTime": DatetimeMS(time.time_ns() // 1_000_000),
    }
    if "storageStats" in options:
        out["storageStats"] = reports.storage(collection)
    if "count" in options:
        out["count"] = Int64(collection.count())
    return iter([out])


def _documents(context: Context, target: Any, given: Any) -> Iterator[Document]:
    if not isinstance(given, list):
        raise MongoError(5858203, "an array is expected")
    return iter(given)


SOURCES = {"$collStats": _coll_stats, "$documents": _documents}


# change streams


async def _open_stream(context: Context, body: Document, pipeline: list[Document]) -> Document:
    node = context.server.node
    target = body["aggregate"]
    collection = target if isinstance(target, str) else None
    if node.settings.replica_set is None:
        raise MongoError(40573, "The $changeStream stage is only supported on replica sets")
    streams.check_options(pipeline[0]["$changeStream"], context.db, collection)
    spec = pipeline[0]["$changeStream"]
    products.check_stream(node.settings.product, spec)
    versions.check_stream(node.settings, pipeline)
    _check_namespace(context, collection, spec)
    concern = body.get("readConcern", {})
    if concern.get("level", "majority") != "majority":
        raise MongoError(
            72,
            "Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: "
            + str(concern["level"]),
        )
    if context.transaction is not None:
        raise MongoError(
            263, "Operation not permitted in transaction :: caused by :: Aggregation stage: '$changeStream'"
        )
    await context._after(concern.get("afterClusterTime"))
    scope = Scope(None if spec.get("allChangesForCluster") else context.db, collection)
    of_router = bool(body.get("_standInShard")) and context.connection is not None and context.connection.trusted
    stream = ChangeStream(node, scope, pipeline, of_router=of_router)
    size = body["cursor"].get("batchSize")
    batch = stream.batch(int(size) if size is not None else reads.FIRST_BATCH)
    namespace = f"{context.db}.{collection or '$cmd.aggregate'}"
    number = 0 if stream.over else context.server.cursors.add(Cursor(namespace, iter([]), stream=stream))
    cursor: Document = {"firstBatch": batch, "postBatchResumeToken": stream.high, "id": Int64(number), "ns": namespace}
    return products.cursor(node.settings.product, {"cursor": cursor, "ok": 1.0})


def _check_namespace(context: Context, collection: str | None, spec: Document) -> None:
    if context.db in INTERNAL and not (context.db == "admin" and spec.get("allChangesForCluster")):
        raise MongoError(73, f"$changeStream may not be opened on the internal {context.db} database")
    if collection is not None and collection.startswith("system."):
        raise MongoError(73, f"$changeStream may not be opened on the internal {context.db}.{collection} collection")
    if collection is not None:
        found = context.collection(collection)
        if found is not None and found.kind != "collection":
            raise MongoError(
                166,
                f"Namespace {found.namespace} is a {found.kind} collection"
                if found.kind == "timeseries"
                else f"Namespace {found.namespace} is a view, not a collection",
            )


@command("getMore", "collection", "batchSize", "lastKnownCommittedOpTime", "term")
async def get_more(context: Context, body: Document) -> Document:
    """The next batch of a cursor."""
    number = int(body["getMore"])
    server = context.server
    cursor = server.cursors.get(number)
    if cursor.namespace != f"{context.db}.{body['collection']}":
        raise MongoError(
            13,
            f"Requested getMore on namespace '{context.db}.{body['collection']}', but cursor belongs to a different namespace {cursor.namespace}",
        )
    size = int(body["batchSize"]) if body.get("batchSize") else None
    seconds = int(body["maxTimeMS"]) / 1000 if "maxTimeMS" in body else AWAIT_SECONDS
    if cursor.stream is not None:
        return await _more_of_stream(context, number, cursor, size, seconds)
    if cursor.tail is not None:
        return await _more_of_tail(context, number, cursor, size, seconds)
    batch, more = cursor.batch(size)
    if more and not cursor.held:
        following = next(cursor.documents, None)
        if following is not None:
            cursor.held.append(following)
        more = bool(cursor.held)
    if not more:
        server.cursors.close(number)
    out: Document = {"nextBatch": batch, "id": Int64(number if more else 0), "ns": cursor.namespace}
    if cursor.at is not None:
        out["atClusterTime"] = cursor.at
    return {"cursor": out, "ok": 1.0}


async def _more_of_stream(context: Context, number: int, cursor: Cursor, size: int | None, seconds: float) -> Document:
    stream, server = cursor.stream, context.server
    assert stream
    end = time.monotonic() + seconds
    while True:
        try:
            batch = stream.batch(size)
        except MongoError:
            server.cursors.close(number)
            raise
        if batch and not stream.over and server.node.settings.gather_ms:
            await asyncio.sleep(server.node.settings.gather_ms / 1000)
            batch += stream.batch(None if size is None else max(size - len(batch), 0))
        if batch or stream.over or time.monotonic() >= end:
            break
        await server.node.oplog.wait(end - time.monotonic())
        server.cursors.get(number)  # it may have been killed meanwhile
        server.check_reader()
    if stream.over:
        server.cursors.close(number)
    out = {
        "nextBatch": batch,
        "postBatchResumeToken": stream.high,
        "id": Int64(0 if stream.over else number),
        "ns": cursor.namespace,
    }
    return products.cursor(server.node.settings.product, {"cursor": out, "ok": 1.0})


async def _more_of_tail(context: Context, number: int, cursor: Cursor, size: int | None, seconds: float) -> Document:
    oplog = context.server.node.oplog
    end = time.monotonic() + seconds
    assert cursor.tail
    while True:
        if cursor.tail_place < oplog.lost:
            context.server.cursors.close(number)
            raise MongoError(136, "CollectionScan died due to position in capped collection being deleted.")
        place = oplog.index_after(cursor.tail_place)
        batch = [
            entry for entry in itertools.islice(oplog.entries, place, place + (size or 5000)) if cursor.tail(entry)
        ]
        if place < len(oplog.times):
            cursor.tail_place = oplog.times[min(place + (size or 5000), len(oplog.times)) - 1]
        if batch or time.monotonic() >= end:
            break
        await oplog.wait(end - time.monotonic())
        context.server.cursors.get(number)
    return {"cursor": {"nextBatch": batch, "id": Int64(number), "ns": cursor.namespace}, "ok": 1.0}


@command("killCursors", "cursors")
def kill_cursors(context: Context, body: Document) -> Document:
    """Close cursors."""
    killed, missing = [], []
    for number in body["cursors"]:
        (killed if context.server.cursors.close(int(number)) else missing).append(number)
    context.server.node.oplog.wake()
    return {"cursorsKilled": killed, "cursorsNotFound": missing, "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0}
