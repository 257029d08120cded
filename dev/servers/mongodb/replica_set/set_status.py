"""A member's reports about its set: ``replSetGetStatus``, ``replSetGetConfig`` and ``hello``."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bson import Int64, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.replica_set import electorate
from dev.servers.mongodb.storage.node import now_ms
from dev.servers.mongodb.values.documents import Document

if TYPE_CHECKING:
    from dev.servers.mongodb.replica_set.members import Replication


def config(replication: Replication) -> Document:
    """The configuration of the set."""
    members = [_describe_member(replication, number, address) for number, address in enumerate(replication.addresses)]
    settings = {
        "chainingAllowed": True, "heartbeatIntervalMillis": 2000, "heartbeatTimeoutSecs": 10, "electionTimeoutMillis": 10000, "catchUpTimeoutMillis": -1,
        "catchUpTakeoverDelayMillis": 30000, "getLastErrorModes": {}, "getLastErrorDefaults": {"w": 1, "wtimeout": 0}, "replicaSetId": replication.id,
    }  # fmt: skip
    return {
        "_id": replication.node.settings.replica_set, "version": replication.version, "term": replication.node.term, "members": members, "protocolVersion": Int64(1),
        "writeConcernMajorityJournalDefault": True, "settings": settings,
    }  # fmt: skip


def _describe_member(replication: Replication, number: int, address: str) -> Document:
    is_ = partial(electorate.has_trait, replication.traits, address)
    return {
        "_id": number, "host": address, "arbiterOnly": is_("arbiterOnly"), "buildIndexes": True, "hidden": is_("hidden"), "priority": float(is_("priority")),
        "tags": is_("tags"), "secondaryDelaySecs": Int64(0), "votes": is_("votes"),
    }  # fmt: skip


def status(replication: Replication) -> Document:
    """The state of the set as this member sees it."""
    node, now = replication.node, time.monotonic()
    seen = {"ts": Timestamp(*node.seen), "t": Int64(node.term)}
    members = [_member(replication, number, address, now) for number, address in enumerate(replication.addresses)]
    addresses, traits = replication.addresses, replication.traits
    voting, mine = len(replication.voters), electorate.has_trait(traits, replication.server.address, "arbiterOnly")
    own = 7 if mine else 1 if node.primary else 2 if replication.readable() else 3
    return {
        "set": node.settings.replica_set, "date": DatetimeMS(now_ms()), "myState": own, "term": Int64(node.term),
        "syncSourceHost": "" if node.primary or replication.leader is None else replication.leader, "syncSourceId": -1 if node.primary or replication.leader is None else replication.addresses.index(replication.leader),
        "heartbeatIntervalMillis": Int64(2000), "majorityVoteCount": voting // 2 + 1, "writeMajorityCount": electorate.write_majority(addresses, traits), "votingMembersCount": voting,
        "writableVotingMembersCount": len(electorate.with_data(addresses, traits)),
        "optimes": {"lastCommittedOpTime": seen, "readConcernMajorityOpTime": seen, "appliedOpTime": node.last_optime(), "durableOpTime": node.last_optime(), "writtenOpTime": node.last_optime()},
        "members": members, "ok": 1.0,
    }  # fmt: skip


def _member(replication: Replication, number: int, address: str, now: float) -> Document:
    mine = address == replication.server.address
    alive = (
        mine
        or address == replication.leader
        or not replication.node.primary
        or now - replication.seen.get(address, 0) < 3
    )
    arbiter = electorate.has_trait(replication.traits, address, "arbiterOnly")
    state = (
        7 if arbiter else (1 if replication.node.primary else 2) if mine else 1 if address == replication.leader else 2
    )
    reached = replication.node.oplog.last if mine else replication.reached.get(address, (0, 0))
    out: Document = {
        "_id": number,
        "name": address,
        "health": 1.0 if alive else 0.0,
        "state": state if alive else 8,
        "stateStr": {1: "PRIMARY", 2: "SECONDARY", 7: "ARBITER"}[state] if alive else "(not reachable/healthy)",
        "uptime": (now_ms() - replication.node.started) // 1000,
    }
    if not arbiter:
        out |= {
            "optime": {"ts": Timestamp(*reached), "t": Int64(replication.node.term)},
            "optimeDate": DatetimeMS(reached[0] * 1000),
        }
    return {**out, "self": True} if mine else out


def hello(replication: Replication, primary: str) -> Document:
    """The part of ``hello`` that is about the set."""
    node, traits, mine = replication.node, replication.traits, replication.server.address
    shown = [address for address in replication.addresses if not electorate.has_trait(traits, address, "hidden")]
    arbiters = [address for address in shown if electorate.has_trait(traits, address, "arbiterOnly")]
    data = [address for address in shown if address not in arbiters]
    passives = [address for address in data if not electorate.has_trait(traits, address, "priority")]
    out: Document = {"hosts": [address for address in data if address not in passives]}
    out |= {name: found for name, found in (("passives", passives), ("arbiters", arbiters)) if found}
    out |= {
        "setName": node.settings.replica_set, "setVersion": replication.version, primary: node.primary,
        "secondary": not node.primary and replication.readable(),
    }  # fmt: skip
    if replication.leader:
        out["primary"] = replication.leader
    out |= {name: True for name in ("arbiterOnly", "hidden") if electorate.has_trait(traits, mine, name)}
    if not electorate.has_trait(traits, mine, "priority") and not electorate.has_trait(traits, mine, "arbiterOnly"):
        out["passive"] = True
    if tags := electorate.has_trait(traits, mine, "tags"):
        out["tags"] = tags
    return {**out, "me": mine}
