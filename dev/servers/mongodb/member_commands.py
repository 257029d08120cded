"""The commands about the replica set, and those between its members."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from dev.servers.mongodb import set_status
from dev.servers.mongodb.documents import Document
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.peers import MEMBER
from dev.servers.mongodb.registry import command

if TYPE_CHECKING:
    from dev.servers.mongodb.context import Context

from dev.servers.mongodb.members import Replication

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
    while not any(reached >= last for reached in replication.reached.values()):
        if time.monotonic() > wait:
            if body.get("force"):
                break
            raise MongoError(262, "No electable secondaries caught up")
        await node.oplog.wait(0.1)
    best = max(replication.reached, key=lambda address: replication.reached[address], default=None)
    replication._frozen = time.monotonic() + float(body["replSetStepDown"])
    replication.step_down("asked to")
    if best is not None:
        asyncio.get_running_loop().create_task(_hand_over(replication, best))
    return {"ok": 1.0}


async def _hand_over(replication: Replication, address: str) -> None:
    try:
        await replication._votes[address].call({"_standInStand": 1, "$db": "admin"}, 2.0)
    except ConnectionError as error:
        LOG.info("%s", error)


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


def _trusted(context: Context) -> Replication:
    if context.connection is None or not context.connection.trusted:
        raise MongoError(13, "only members may use this command")
    return context.server.replication


@command("_standInVote", lax=True, open_to_all=True)
def vote(context: Context, body: Document) -> Document:
    """Another member stands for election."""
    return _trusted(context).vote(body)


@command("_standInBeat", lax=True, open_to_all=True)
def beat(context: Context, body: Document) -> Document:
    """The primary is there."""
    return _trusted(context).beaten(body)


@command("_standInPull", lax=True, open_to_all=True)
async def pull(context: Context, body: Document) -> Document:
    """Another member follows."""
    return await _trusted(context).pulled(body)


@command("_standInStand", lax=True, open_to_all=True)
async def stand(context: Context, body: Document) -> Document:
    """The primary steps down in favour of this member."""
    await _trusted(context).stand()
    return {"ok": 1.0}
