"""The commands about the replica set, and those between its members."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.replica_set import electorate, set_status
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.wire.peers import MEMBER

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context

from dev.servers.mongodb.replica_set.members import Replication

LOG = logging.getLogger("mongodb.members")


@command("replSetGetStatus", "initialSync", admin_only=True)
def get_status(context: Context, body: Document) -> Document:
    """The state of the set."""
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    return set_status.status(context.server.replication)


@command("replSetGetConfig", "commitmentStatus", admin_only=True)
def get_config(context: Context, body: Document) -> Document:
    """The configuration of the set."""
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    return {"config": set_status.config(context.server.replication), "ok": 1.0}


@command("replSetStepDown", "secondaryCatchUpPeriodSecs", "force", admin_only=True)
async def step_down(context: Context, body: Document) -> Document:
    """Have another member take over."""
    replication, node = context.server.replication, context.server.node
    if not node.primary:
        raise MongoError(10107, "not primary so can't step down")
    wait = time.monotonic() + float(body.get("secondaryCatchUpPeriodSecs", 10))
    last = node.oplog.last
    while not any(replication.reached[one] >= last for one in _electable(replication)):
        if time.monotonic() > wait:
            if body.get("force"):
                break
            raise MongoError(262, "No electable secondaries caught up")
        await node.oplog.wait(0.1)
    best = max(_electable(replication), key=lambda address: replication.reached[address], default=None)
    replication._frozen = time.monotonic() + float(body["replSetStepDown"])
    replication.step_down("asked to")
    if best is not None:
        asyncio.get_running_loop().create_task(_hand_over(replication, best))
    return {"ok": 1.0}


def _electable(replication: Replication) -> list[str]:
    """The members that follow and may become primary."""
    return [one for one in replication.reached if electorate.has_trait(replication.traits, one, "priority")]


async def _hand_over(replication: Replication, address: str) -> None:
    try:
        await replication._votes[address].call({"_standInStand": 1, "$db": "admin"}, 2.0)
    except ConnectionError as error:
        LOG.info("%s", error)


@command("setDefaultRWConcern", "defaultWriteConcern", "defaultReadConcern", admin_only=True)
def set_default_concern(context: Context, body: Document) -> Document:
    """Set the write concern of writes that name none; the read concern of reads can only be the usual one."""
    context.must_write()
    node = context.server.node
    given = body.get("defaultWriteConcern")
    if body.get("defaultReadConcern", {}).get("level", "local") != "local":
        raise MongoError(9, "the stand-in has no other default read concern than local")
    if given is not None and "w" not in given:
        raise MongoError(9, "the stand-in takes a defaultWriteConcern with w only")
    if given is not None:
        node.noop({"msg": "default write concern", "default_write_concern": given})
    return _default_concern(context)


@command("getDefaultRWConcern", "inMemory", admin_only=True)
def get_default_concern(context: Context, body: Document) -> Document:
    """Return the concerns of writes and reads that name none."""
    return _default_concern(context)


def _default_concern(context: Context) -> Document:
    replication = context.server.replication
    given = replication.node.parameters["default_write_concern"]
    return {
        "defaultReadConcern": {"level": "local"},
        "defaultWriteConcern": given or {"w": replication.default_write_concern, "wtimeout": 0},
        "defaultWriteConcernSource": "global" if given else "implicit",
        "defaultReadConcernSource": "implicit",
        "ok": 1.0,
    }


@command("replSetMaintenance", admin_only=True)
def maintenance(context: Context, body: Document) -> Document:
    """Serve no readers for a while, in the state ``RECOVERING``."""
    replication = context.server.replication
    if context.server.node.primary:
        raise MongoError(10107, "primaries can't modify maintenance mode")
    if not body["replSetMaintenance"] and not replication.recovering:
        raise MongoError(96, "already out of maintenance mode")
    replication.recovering = bool(body["replSetMaintenance"])
    replication.changed()
    return {"ok": 1.0}


@command("replSetFreeze", admin_only=True)
def freeze(context: Context, body: Document) -> Document:
    """Do not stand for election for some seconds."""
    context.server.replication._frozen = time.monotonic() + float(body["replSetFreeze"])
    return {"ok": 1.0}


# between members


@command(MEMBER, "key", open_to_all=True)
def member(context: Context, body: Document) -> Document:
    """Say that this connection is another member's."""
    if (
        not context.server.node.settings.key
        or body["key"] != context.server.node.settings.key
        or context.connection is None
    ):
        raise MongoError(13, "not a member")
    context.connection.trusted = True
    return {"ok": 1.0}


def _require_trusted_peer(context: Context) -> Replication:
    if context.connection is None or not context.connection.trusted:
        raise MongoError(13, "only members may use this command")
    return context.server.replication


@command("_standInVote", lax=True, open_to_all=True)
def vote(context: Context, body: Document) -> Document:
    """Another member stands for election."""
    return _require_trusted_peer(context).vote(body)


@command("_standInBeat", lax=True, open_to_all=True)
def beat(context: Context, body: Document) -> Document:
    """The primary is there."""
    return _require_trusted_peer(context).beaten(body)


@command("_standInPull", lax=True, open_to_all=True)
async def pull(context: Context, body: Document) -> Document:
    """Another member follows."""
    return await _require_trusted_peer(context).pulled(body)


@command("_standInStand", lax=True, open_to_all=True)
async def step_down_for_member(context: Context, body: Document) -> Document:
    """The primary steps down in favour of this member."""
    await _require_trusted_peer(context).stand()
    return {"ok": 1.0}
