"""Commands of routers to a member of a sharded cluster.

They make collections under a given UUID, move documents, and make changes without an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson import Timestamp

from dev.servers.mongodb.commands import outputs
from dev.servers.mongodb.operation.registry import command, find_command
from dev.servers.mongodb.storage.versioned_collections import ID_INDEX, key_of
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def _require_trusted_peer(context: Context) -> None:
    if context.connection is None or not context.connection.trusted:
        raise MongoError(13, "only members may use this command")


@command("appendOplogNote", "data", "maxClusterTime", admin_only=True)
def append_note(context: Context, body: Document) -> Document:
    """Write an entry that changes nothing, so that the cluster's time continues here."""
    context.must_write()
    context.server.node.noop(body["data"])
    return {"ok": 1.0}


@command("_standInClock", lax=True, open_to_all=True)
def clock(context: Context, body: Document) -> Document:
    """Say the cluster's time here."""
    _require_trusted_peer(context)
    return {"clock": Timestamp(*max(context.server.node.clock, context.server.node.oplog.last)), "ok": 1.0}


@command("_standInClone", lax=True, open_to_all=True)
def clone(context: Context, body: Document) -> Document:
    """Have a collection of a UUID, and know its shard key. One of the same name and another UUID is left from a drop that did not come to this shard."""
    _require_trusted_peer(context)
    context.must_write()
    node = context.server.node
    name, namespace = body["_standInClone"], f"{context.db}.{body['_standInClone']}"
    place = {"op": "c", "ns": f"{context.db}.$cmd", "ui": body["uuid"]}
    found = node.catalog.find(namespace)
    if found is not None and found.uuid != body["uuid"]:
        node.write({**place, "ui": found.uuid, "o": {"drop": name}, "fromMigrate": True})
        found = None
    if found is None:
        node.write({**place, "o": {"create": name, **body["options"], "idIndex": dict(ID_INDEX)}, "fromMigrate": True})
    more: Document = {} if body["announce"] else {"fromMigrate": True}
    o = {
        "shardCollection": name,
        "shardKey": body["key"],
        "unique": body["unique"],
        "presplitHashedZones": False,
        "capped": False,
    }
    node.write({**place, "o": o, **more})
    return {"ok": 1.0}


@command("_standInAnnounce", lax=True, open_to_all=True)
def announce(context: Context, body: Document) -> Document:
    """Note a change of a collection's shard key."""
    _require_trusted_peer(context)
    context.must_write()
    entry = {
        "op": "c",
        "ns": f"{context.db}.$cmd",
        "ui": body["uuid"],
        "o": {body["_standInAnnounce"]: body["coll"], **body["described"]},
    }
    context.server.node.write({**entry, "fromMigrate": True} if body.get("quiet") else entry)
    return {"ok": 1.0}


@command("_standInMove", lax=True, open_to_all=True)
def move(context: Context, body: Document) -> Document:
    """Take documents in, or let them go, without an event."""
    _require_trusted_peer(context)
    context.must_write()
    node = context.server.node
    collection = context.collection(body["_standInMove"])
    if collection is None:
        raise MongoError(26, f"no collection {context.db}.{body['_standInMove']}")
    place = {"ns": collection.namespace, "ui": collection.uuid}
    for document in body.get("insert", []):
        if collection.get(key_of(document)) is None:
            node.write({"op": "i", **place, "o": document, "o2": {"_id": document["_id"]}, "fromMigrate": True})
    for number in body.get("delete", []):
        if collection.get(key_of({"_id": number})) is not None:
            node.write({"op": "d", **place, "o": {"_id": number}, "fromMigrate": True})
    return {"ok": 1.0}


@command("_standInQuietly", lax=True, open_to_all=True)
def change_without_event(context: Context, body: Document) -> Document:
    """A change of structure without an event: another shard has it."""
    _require_trusted_peer(context)
    context.must_write()
    inner = {**body["command"], "$db": context.db}
    expected = find_command(next(iter(inner)), inner)
    context.server.node.quiet = True
    try:
        context.name = next(iter(inner))
        expected.run(context, inner)
    except MongoError as error:
        if error.code not in (26, 27):
            raise
    finally:
        context.server.node.quiet = False
    return {"ok": 1.0}


@command("_standInOutput", lax=True, open_to_all=True)
def output(context: Context, body: Document) -> Document:
    """Write what a router's pipeline has made."""
    _require_trusted_peer(context)
    outputs.write(context, body["stage"], body["documents"])
    return {"ok": 1.0}


def heard(context: Context, stamp: Timestamp) -> None:
    """Let the cluster's time be no earlier here than a client has seen it."""
    node = context.server.node
    if (stamp.time, stamp.inc) > node.clock and stamp.time < node.clock[0] + 31_536_000:
        node.clock = (stamp.time, stamp.inc)
