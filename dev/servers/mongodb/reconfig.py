"""Members that join a replica set and leave it: ``replSetReconfig``. All members here have one vote and the same priority."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from dev.servers.mongodb import order, set_status
from dev.servers.mongodb.documents import Document
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.peers import Peer
from dev.servers.mongodb.registry import command

if TYPE_CHECKING:
    from dev.servers.mongodb.context import Context
    from dev.servers.mongodb.members import Replication

INCOMPATIBLE, INVALID = 103, 93
MOST_SECONDS = 10.0
ONLY = {"arbiterOnly": False, "hidden": False, "priority": 1, "votes": 1, "secondaryDelaySecs": 0, "buildIndexes": True}
"""What members are here, and nothing else."""


@command("replSetReconfig", "force", admin_only=True)
async def reconfigure(context: Context, body: Document) -> Document:
    """Have the set consist of other members; the others hear of it from the primary."""
    replication, given = context.server.replication, body["replSetReconfig"]
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    if not context.server.node.primary:
        raise MongoError(10107, "Safe reconfig is only allowed on a writable PRIMARY.")
    present, force = set_status.config(replication), bool(body.get("force"))
    addresses = _members(given)
    if given.get("_id") != present["_id"]:
        raise MongoError(
            INCOMPATIBLE,
            f"New and old configurations differ in replica set name; old was {present['_id']}, and new is {given.get('_id')}",
        )
    version = int(order.number(given.get("version", 0)))
    if version <= present["version"] and not force:
        raise MongoError(
            INCOMPATIBLE,
            f"New replica set configuration version must be greater than old, but {version} is not greater than {present['version']}",
        )
    if len({*addresses} ^ {*replication.addresses}) > 1 and not force:
        raise MongoError(INCOMPATIBLE, "Non force replica set reconfig can only add or remove at most 1 voting member.")
    if replication.server.address not in addresses:
        raise MongoError(
            74,
            f"No host described in new configuration with {{version: {version}}} for replica set {present['_id']} maps to this node",
        )
    configure(replication, addresses, max(version, present["version"] + 1))
    await _known_to_most(replication)
    return {"ok": 1.0}


async def _known_to_most(replication: Replication) -> None:
    """Wait until a majority has the configuration, without which an election could bring the old one back."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        have = sum(replication.configured.get(address, 0) >= replication.version for address in replication._peers)
        if (1 + have) * 2 > len(replication.addresses):
            return
        await asyncio.sleep(0.05)
    raise MongoError(50, "the configuration has not come to a majority of the members in time")


def _members(given: Any) -> list[str]:
    if not isinstance(given, dict) or not isinstance(given.get("members"), list) or not given["members"]:
        raise MongoError(INVALID, "Replica set configuration must contain at least one member")
    for member in given["members"]:
        for name, value in ONLY.items():
            if not order.equal(member.get(name, value), value):
                raise MongoError(INVALID, f"the stand-in has no members with {name}: {member[name]}")
    addresses = [str(member["host"]) for member in given["members"]]
    if len({*addresses}) < len(addresses):
        raise MongoError(INVALID, "Found two member configurations with same host field")
    return addresses


def configure(replication: Replication, addresses: list[str], version: int) -> None:
    """Know these members from now on."""
    node, alone = replication.node, not replication._peers
    replication.addresses, replication.version = list(addresses), version
    others = [address for address in addresses if address != replication.server.address]
    for address in [*replication._peers]:
        if address not in others:
            for known in (replication._peers, replication._votes, replication.seen, replication.reached):
                known.pop(address, None)
    for address in others:
        if address not in replication._peers:
            replication._peers[address] = Peer(address, node.settings.key, node.settings.tls)
            replication._votes[address] = Peer(address, node.settings.key, node.settings.tls)
            replication.seen[address] = replication.heard
            replication._start(replication._beat(address))
    if alone and others:
        node.majority = node.oplog.last
        replication._start(replication._elections())
        replication._start(replication._follow())
    replication.changed()
