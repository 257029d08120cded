"""Members that join a replica set, leave it, or become others: ``replSetReconfig``."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.replica_set import electorate, set_status
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context
    from dev.servers.mongodb.replica_set.members import Replication

INCOMPATIBLE, INVALID = 103, 93
MOST_SECONDS = 10.0


@command("replSetReconfig", "force", admin_only=True)
async def reconfigure(context: Context, body: Document) -> Document:
    """Have the set consist of other members; the others hear of it from the primary."""
    replication, given = context.server.replication, body["replSetReconfig"]
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    if not context.server.node.primary:
        raise MongoError(10107, "Safe reconfig is only allowed on a writable PRIMARY.")
    present, force = set_status.config(replication), bool(body.get("force"))
    addresses, traits = _members(given)
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
    if len({*electorate.voters(addresses, traits)} ^ {*replication.voters}) > 1 and not force:
        raise MongoError(INCOMPATIBLE, "Non force replica set reconfig can only add or remove at most 1 voting member.")
    if replication.server.address not in addresses:
        raise MongoError(
            74,
            f"No host described in new configuration with {{version: {version}}} for replica set {present['_id']} maps to this node",
        )
    _check_change(replication, addresses, traits, force=force)
    replication.configure(addresses, traits, max(version, present["version"] + 1))
    await _known_to_most(replication)
    return {"ok": 1.0}


async def _known_to_most(replication: Replication) -> None:
    """Wait until a majority has the configuration, without which an election could bring the old one back."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        voters = replication.voters
        have = sum(
            address == replication.server.address or replication.configured.get(address, 0) >= replication.version
            for address in voters
        )
        if have * 2 > len(voters):
            return
        await asyncio.sleep(0.05)
    raise MongoError(50, "the configuration has not come to a majority of the members in time")


def _check_change(replication: Replication, addresses: list[str], traits: electorate.Traits, *, force: bool) -> None:
    """Raise when a member would become an arbiter or cease to be one, or the implicit write concern another."""
    for address in {*addresses} & {*replication.addresses}:
        if electorate.has_trait(traits, address, "arbiterOnly") != electorate.has_trait(
            replication.traits, address, "arbiterOnly"
        ):
            raise MongoError(
                INCOMPATIBLE,
                f"New and old configurations differ in the setting of the arbiterOnly field for member {address}; to make this change, remove then re-add the member",
            )
    before = electorate.implicit_write_concern(replication.addresses, replication.traits)
    if replication.node.parameters["default_write_concern"] is None and not force and before != electorate.implicit_write_concern(addresses, traits):  # fmt: skip
        raise MongoError(
            INCOMPATIBLE,
            "Reconfig attempted to install a config that would change the implicit default write concern. Use the setDefaultRWConcern command to set a "
            "cluster-wide write concern and try the reconfig again.",
        )


def _members(given: Any) -> tuple[list[str], electorate.Traits]:
    if not isinstance(given, dict) or not isinstance(given.get("members"), list) or not given["members"]:
        raise MongoError(INVALID, "Replica set configuration must contain at least one member")
    addresses = [str(member["host"]) for member in given["members"]]
    if len({*addresses}) < len(addresses):
        raise MongoError(INVALID, "Found two member configurations with same host field")
    traits = {str(member["host"]): found for member in given["members"] if (found := electorate.of_member(member))}
    if not any(electorate.has_trait(traits, one, "priority") and not electorate.has_trait(traits, one, "arbiterOnly") for one in addresses):  # fmt: skip
        raise MongoError(
            INVALID, "Replica set configuration must contain at least one non-arbiter member with priority > 0"
        )
    return addresses, traits
