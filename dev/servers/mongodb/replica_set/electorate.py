"""The traits of members of a set: an arbiter, one that is never elected, hidden, or without a vote.

By MongoDB's manual ("Replica Set Members", "Implicit Default Write Concern"); the recordings have sets of members that are all alike. Priorities other than 0 and 1,
delayed members and those without indexes are refused.
"""

from __future__ import annotations

from typing import Any

from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

INVALID = 93
USUAL: Document = {"arbiterOnly": False, "hidden": False, "priority": 1, "votes": 1, "tags": {}}
"""What a member is unless its configuration says otherwise."""
ONLY = {"secondaryDelaySecs": 0, "buildIndexes": True}
"""What members are here, and nothing else."""
Traits = dict[str, Document]
"""What is not usual of the members, by their addresses."""


def has_trait(traits: Traits, address: str, name: str) -> Any:
    """Return a trait of a member."""
    return traits.get(address, {}).get(name, USUAL[name])


def voters(addresses: list[str], traits: Traits) -> list[str]:
    """The members that vote."""
    return [address for address in addresses if has_trait(traits, address, "votes")]


def with_data(addresses: list[str], traits: Traits) -> list[str]:
    """The members that vote and have a copy of the data."""
    return [address for address in voters(addresses, traits) if not has_trait(traits, address, "arbiterOnly")]


def write_majority(addresses: list[str], traits: Traits) -> int:
    """Return the number of members with data that must have a write so that a majority has it."""
    return min(len(voters(addresses, traits)) // 2 + 1, len(with_data(addresses, traits)))


def implicit_write_concern(addresses: list[str], traits: Traits) -> Any:
    """The write concern where no one says one: with arbiters, a majority might be every member that has data."""
    data, majority = len(with_data(addresses, traits)), len(voters(addresses, traits)) // 2 + 1
    arbiters = any(has_trait(traits, address, "arbiterOnly") for address in addresses)
    return 1 if arbiters and data <= majority else "majority"


def electable(traits: Traits, address: str) -> bool:
    """Check whether a member may become primary."""
    return bool(has_trait(traits, address, "priority")) and not has_trait(traits, address, "arbiterOnly")


def of_member(member: Document) -> Document:
    """Return the unusual traits of a member in a configuration.

    Raises :class:`MongoError` for traits that contradict each other, or that the stand-in lacks.
    """
    for name, value in ONLY.items():
        if not order.equal(member.get(name, value), value):
            raise MongoError(INVALID, f"the stand-in has no members with {name}: {member[name]}")
    found = {name: member.get(name, value) for name, value in USUAL.items()}
    arbiter = bool(found["arbiterOnly"])
    priority, votes = order.number(found["priority"]), order.number(found["votes"])
    if priority not in (0, 1) or votes not in (0, 1):
        raise MongoError(INVALID, f"the stand-in has no members with priority {priority} and {votes} votes")
    if arbiter and not votes:
        raise MongoError(INVALID, "Arbiter must vote (cannot have 0 votes)")
    if priority and found["hidden"] and not arbiter:
        raise MongoError(INVALID, "priority must be 0 when hidden=true")
    if priority and not votes:
        raise MongoError(INVALID, "priority must be 0 when non-voting (votes:0)")
    found |= {"priority": 0 if arbiter else int(priority), "votes": int(votes), "hidden": bool(found["hidden"]), "arbiterOnly": arbiter}  # fmt: skip
    return {name: value for name, value in found.items() if value != USUAL[name]}
