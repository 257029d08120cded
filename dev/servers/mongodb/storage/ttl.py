"""Documents that expire by an index with ``expireAfterSeconds``: they are deleted in the background, with the events of other deletes.

By MongoDB's manual ("TTL Indexes"): the primary looks every ``ttlMonitorSleepSecs`` seconds (60), which ``setParameter`` changes. No recording has it.
Clustered collections and time series do not expire here.
"""

from __future__ import annotations

import asyncio

from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.query import queries
from dev.servers.mongodb.storage.node import Node, now_ms
from dev.servers.mongodb.storage.transactions import DELETE_GROUP, Sessions, WriteBlocked, Writer
from dev.servers.mongodb.storage.versioned_collections import Collection, key_of
from dev.servers.mongodb.values.documents import Document

PARAMETERS = frozenset({"ttlMonitorSleepSecs", "ttlMonitorEnabled"})
CHECK_SECONDS = 0.2
INTERNAL = frozenset({"admin", "config", "local"})


async def watch(node: Node, sessions: Sessions) -> None:
    """Delete what has expired, again and again."""
    slept = 0.0
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        slept += CHECK_SECONDS
        if slept < float(node.parameters["ttlMonitorSleepSecs"]):
            continue
        slept = 0.0
        if node.primary and node.parameters["ttlMonitorEnabled"]:
            expire(node, sessions)


def expire(node: Node, sessions: Sessions) -> None:
    """Delete what has expired by now."""
    for db, collections in list(node.catalog.databases.items()):
        for collection in list(collections.values()) if db not in INTERNAL else ():
            for index in collection.indexes:
                if "expireAfterSeconds" in index and len(index["key"]) == 1 and "_id" not in index["key"]:
                    _delete(Writer(node, sessions), collection, _find_expired(collection, index))


def _find_expired(collection: Collection, index: Document) -> list[Document]:
    """The documents whose date, or the first of several, is long enough ago."""
    before = now_ms() - int(float(index["expireAfterSeconds"]) * 1000)
    path = next(iter(index["key"])).split(".")
    test = queries.compile_filter(index.get("partialFilterExpression", {}))
    out = []
    for document in collection.documents():
        found = [
            item for value in queries.values(document, path) for item in (value if isinstance(value, list) else [value])
        ]
        if any(isinstance(item, DatetimeMS) and int(item) <= before for item in found) and test(document):
            out.append(document)
    return out


def _delete(writer: Writer, collection: Collection, documents: list[Document]) -> None:
    free = [document for document in documents if _is_free(writer, collection, document)]
    for start in range(0, len(free), DELETE_GROUP):
        group = free[start : start + DELETE_GROUP]
        if len(group) == 1:
            writer.delete(collection, group[0])
        else:
            writer.delete_group(collection, group)


def _is_free(writer: Writer, collection: Collection, document: Document) -> bool:
    """Check whether no open transaction has written the document; else it is looked at the next time."""
    try:
        writer.check(collection, key_of(document))
    except WriteBlocked:
        return False
    return True
