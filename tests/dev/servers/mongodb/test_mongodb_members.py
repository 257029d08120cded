"""Members of the stand-in's sets that are not like the others: arbiters, members that are never elected, hidden ones. By MongoDB's manual."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import WriteConcern
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from dev.servers.mongodb import MongoDb, ReplicaSet
from dev.servers.mongodb.replica_set.electorate import (
    implicit_write_concern,
    of_member,
    voters,
    with_data,
    write_majority,
)
from dev.servers.mongodb.values.errors import MongoError
from tests.support.patience import wait_until

ARBITER = {"arbiterOnly": True}


@pytest.mark.parametrize(
    ("members", "votes", "data", "majority", "implicit"),
    [
        ("P", 1, 1, 1, "majority"), ("PS", 2, 2, 2, "majority"), ("PSS", 3, 3, 2, "majority"), ("PSA", 3, 2, 2, 1), ("PA", 2, 1, 1, 1), ("PSSA", 4, 3, 3, 1),
        ("PSSSA", 5, 4, 3, "majority"), ("PSn", 2, 2, 2, "majority"), ("PSSn", 3, 3, 2, "majority"),
    ],
)  # fmt: skip
def test_majorities_are_those_of_the_manual(members: str, votes: int, data: int, majority: int, implicit: Any) -> None:
    """``n`` has no vote, and does not count."""
    traits = {name: {"A": {"arbiterOnly": True}, "n": {"votes": 0, "priority": 0}}[name[0]] for name in _names(members) if name[0] in "An"}  # fmt: skip
    addresses = _names(members)
    assert (len(voters(addresses, traits)), len(with_data(addresses, traits))) == (votes, data)
    assert write_majority(addresses, traits) == majority
    assert implicit_write_concern(addresses, traits) == implicit


def _names(members: str) -> list[str]:
    return [f"{kind}{number}" for number, kind in enumerate(members)]


@pytest.mark.parametrize(
    "member",
    [
        {"hidden": True}, {"votes": 0}, {"priority": 2}, {"votes": 2, "priority": 0}, {"arbiterOnly": True, "votes": 0}, {"secondaryDelaySecs": 5, "priority": 0},
        {"buildIndexes": False, "priority": 0},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_member_cannot_be_is_refused(member: dict[str, Any]) -> None:
    with pytest.raises(MongoError) as refused:
        of_member({"_id": 0, "host": "a:1", **member})
    assert refused.value.code == 93


@pytest.mark.slow
def test_an_arbiter_votes_and_has_nothing() -> None:
    """Beside an arbiter, one of two members with data may be killed; after that, nothing more has a majority."""
    with ReplicaSet(count=2, arbiters=1) as members, members.connect() as client:
        *data, arbiter = members.members
        address = f"{arbiter.host}:{arbiter.port}"
        with arbiter.direct() as alone:
            hello = alone.admin.command("hello")
            assert (hello["arbiterOnly"], hello["secondary"], hello["isWritablePrimary"]) == (True, False, False)
            assert hello["arbiters"] == [address]
            assert hello["hosts"] == [f"{member.host}:{member.port}" for member in data]
            assert alone.admin.command("replSetGetStatus")["myState"] == 7
            with pytest.raises(NotPrimaryError) as failed:
                alone.shop.orders.find_one()
            assert failed.value.details["code"] == 13436
        wait_until(lambda: client.arbiters, "the client has found the arbiter")
        wait_until(lambda: _arbiters(client) == [address], "the primary has heard of the arbiter")
        status = client.admin.command("replSetGetStatus")
        assert (status["votingMembersCount"], status["writableVotingMembersCount"], status["writeMajorityCount"]) == (3, 2, 2)  # fmt: skip
        config = client.admin.command("replSetGetConfig")["config"]["members"][2]
        assert (config["arbiterOnly"], config["priority"], config["votes"]) == (True, 0, 1)
        assert client.admin.command("getDefaultRWConcern")["defaultWriteConcern"]["w"] == 1
        client.shop.get_collection("orders", write_concern=WriteConcern("majority")).insert_one({"_id": 1})
        with client.shop.watch() as stream:
            first = members.primary()
            wait_until(lambda: _has_document(members, {"_id": 1}), "both have the document")
            first.kill()
            other = members.primary()
            assert other not in (first, arbiter)
            assert other in data
            client.shop.orders.insert_one({"_id": 2})
            assert stream.try_next() is None, "it is on one member, and two have data"
            first.start()
            assert next(stream)["documentKey"] == {"_id": 2}


def _arbiters(client: Any) -> list[str]:
    """The arbiters that the primary reaches; they have no place in the oplog."""
    members = client.admin.command("replSetGetStatus")["members"]
    return [member["name"] for member in members if member["stateStr"] == "ARBITER" and "optime" not in member]


def _has_document(members: ReplicaSet, document: dict[str, Any]) -> bool:
    """Check whether all members with data have a document."""
    for member in members.members[:2]:
        with member.direct(readPreference="secondaryPreferred") as alone:
            if alone.shop.orders.find_one(document) is None:
                return False
    return True


@pytest.mark.slow
def test_members_of_every_kind_join_a_set() -> None:
    with ReplicaSet(count=1) as members, members.connect() as client:
        hidden = members.add_member(priority=0, hidden=True, tags={"use": "reports"})
        passive = members.add_member(priority=0, votes=0)
        with pytest.raises(OperationFailure) as failed:
            members.add_member(**ARBITER)
        assert failed.value.code == 103, "the implicit write concern would be another"
        members.members.pop().close()
        client.admin.command({"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": "majority"}})
        arbiter = members.add_member(**ARBITER)
        hello = client.admin.command("hello")
        assert (len(hello["hosts"]), hello["passives"], hello["arbiters"]) == (1, [_address(passive)], [_address(arbiter)])  # fmt: skip
        assert _address(hidden) not in str({name: hello[name] for name in ("hosts", "passives", "arbiters")})
        client.shop.orders.insert_one({"_id": 1})
        with hidden.direct(readPreference="secondary") as alone:
            own = alone.admin.command("hello")
            assert (own["hidden"], own["passive"], own["tags"]) == (True, True, {"use": "reports"})
            wait_until(lambda: alone.shop.orders.find_one() == {"_id": 1}, "the hidden member has the document")
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["members"][1]["arbiterOnly"] = True
        config["members"][1]["hidden"] = False
        with pytest.raises(OperationFailure) as failed:
            client.admin.command({"replSetReconfig": config})
        assert failed.value.code == 103
        with pytest.raises(PyMongoError):  # no one else may be elected
            client.admin.command({"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 0.2})


def _address(member: MongoDb) -> str:
    return f"{member.host}:{member.port}"
