"""A member in its replica set: who is primary, what a majority has, and how a member follows another.

The protocol between members is this stand-in's own (commands that begin with ``_standIn``); what clients see of elections, step-downs and rollbacks
is the server's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from bson import Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.documents import Document
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.node import now_ms
from dev.servers.mongodb.peers import MEMBER, Peer
from dev.servers.mongodb.registry import command
from dev.servers.mongodb.storage import Time, time_of

if TYPE_CHECKING:
    from dev.servers.mongodb.context import Context
    from dev.servers.mongodb.server import Server

LOG = logging.getLogger("mongodb.members")
BEAT_SECONDS = 0.3
PULL_SECONDS = 1.0
PULL_ENTRIES = 500
LOOK_BACK = 5000


class Replication:
    """The part of a member that deals with the others."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._node = server.node
        settings = server.node.settings
        self.addresses = settings.members or [server.address]
        self._peers = {
            address: Peer(address, settings.key, settings.tls)
            for address in self.addresses
            if address != server.address
        }
        self._votes = {address: Peer(address, settings.key, settings.tls) for address in self._peers}
        self._id = ObjectId()
        self._tasks: list[asyncio.Task[None]] = []
        self.leader: str | None = None
        self.heard = time.monotonic()
        self._seen: dict[str, float] = {}
        self._reached: dict[str, Time] = {}
        self._voted = 0
        self._frozen = 0.0
        self.stale = False
        self.rollbacks = 1

    # life

    def begin(self) -> None:
        """Start as what this member is: alone it is primary at once, among others it follows until it is elected."""
        node = self._node
        if node.settings.replica_set is None:
            return
        if self._peers:
            node.primary, node.majority = False, (0, 0)
            return
        self.leader = self._server.address
        if node.oplog.entries:
            node.term += 1
            node.noop({"msg": "new primary"})
        else:
            node.noop({"msg": "initiating set"})

    def run(self) -> None:
        """Begin what goes on in the background."""
        if self._node.settings.replica_set is None:
            return
        self._start(self._noops())
        if self._peers:
            self._start(self._elections())
            self._start(self._follow())
            for address in self._peers:
                self._start(self._beat(address))

    def _start(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _noops(self) -> None:
        node = self._node
        while True:
            await asyncio.sleep(min(node.settings.noop_seconds / 10, 1.0))
            if node.primary and time.time() - node.oplog.last[0] >= node.settings.noop_seconds:
                node.noop({"msg": "periodic noop"})

    # elections

    def _timeout(self) -> float:
        first = self._server.address == self.addresses[0] and not self._node.oplog.entries
        return 0.2 if first else self._node.settings.election_seconds * random.uniform(1.0, 1.4)

    async def _elections(self) -> None:
        timeout = self._timeout()
        while True:
            await asyncio.sleep(0.1)
            now = time.monotonic()
            if self._node.primary:
                reached = 1 + sum(now - seen < self._node.settings.election_seconds for seen in self._seen.values())
                if reached * 2 <= len(self.addresses) and now - self.heard > self._node.settings.election_seconds:
                    self.step_down("no majority is reached")
                continue
            if now - self.heard > timeout and now > self._frozen:
                await self.stand()
                timeout = self._timeout()

    async def stand(self) -> None:
        """Ask the others to be elected."""
        node = self._node
        node.term = max(node.term, self._voted) + (1 if node.oplog.entries or self._voted else 0)
        self._voted = node.term
        self.heard = time.monotonic()
        ask = {
            "_standInVote": 1,
            "term": node.term,
            "who": self._server.address,
            "last": Timestamp(*node.oplog.last),
            "lastTerm": self._last_term(),
            "$db": "admin",
        }
        answers = await asyncio.gather(*(peer.call(ask, 1.0) for peer in self._votes.values()), return_exceptions=True)
        votes = 1 + sum(isinstance(answer, dict) and bool(answer.get("granted")) for answer in answers)
        if votes * 2 > len(self.addresses) and self._voted == ask["term"] and not node.primary:
            self._lead()

    def _last_term(self) -> int:
        return int(self._node.oplog.entries[-1].get("t", 1)) if self._node.oplog.entries else 0

    def _lead(self) -> None:
        node = self._node
        LOG.info("primary in term %s", node.term)
        node.primary, self.leader = True, self._server.address
        self.heard = time.monotonic()
        self._seen = dict.fromkeys(self._peers, self.heard)
        self._reached = {}
        node.noop({"msg": "initiating set" if not node.oplog.entries else "new primary"})
        self.changed()

    def step_down(self, why: str) -> None:
        """Be a follower from now on."""
        node = self._node
        if not node.primary:
            return
        LOG.info("no longer primary: %s", why)
        node.primary, self.leader = False, None
        self.heard = time.monotonic()
        self.changed()

    def changed(self) -> None:
        """Tell those who wait that the set has changed."""
        self._node.topology += 1
        self._node.oplog.wake()

    def vote(self, body: Document) -> Document:
        """Whether this member votes for another."""
        node, term = self._node, int(body["term"])
        mine = (self._last_term(), node.oplog.last)
        theirs = (int(body["lastTerm"]), time_of(body["last"]))
        granted = term > self._voted and term >= node.term and theirs >= mine
        if granted:
            self._voted = term
            self.heard = time.monotonic()
            if node.primary:
                self.step_down(f"{body['who']} stands in term {term}")
            node.term = max(node.term, term)
        return {"granted": granted, "term": node.term, "ok": 1.0}

    # the primary's side

    async def _beat(self, address: str) -> None:
        peer = self._votes[address]
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if not self._node.primary:
                continue
            body = {
                "_standInBeat": 1,
                "term": self._node.term,
                "who": self._server.address,
                "majority": Timestamp(*self._node.seen),
                "$db": "admin",
            }
            try:
                answer = await peer.call(body, 1.0)
            except ConnectionError:
                continue
            self._seen[address] = time.monotonic()
            if int(answer.get("term", 0)) > self._node.term:
                self._node.term = int(answer["term"])
                self.step_down("another term has begun")

    def beaten(self, body: Document) -> Document:
        """Hear from the primary."""
        node, term = self._node, int(body["term"])
        if term >= node.term and body["who"] != self._server.address:
            if node.primary:
                self.step_down(f"{body['who']} is primary")
            node.term = term
            self.heard = time.monotonic()
            if self.leader != body["who"]:
                self.leader = body["who"]
                self.changed()
            self._follow_majority(body["majority"])
        return {"term": node.term, "ok": 1.0}

    async def pulled(self, body: Document) -> Document:
        """Give a follower the entries after those it has."""
        node = self._node
        after = time_of(body["after"])
        if not node.primary:
            raise MongoError(10107, "not primary")
        entry = node.oplog.find(body["after"])
        if after != (0, 0):
            if after < node.oplog.lost:
                return {"stale": True, "ok": 1.0}
            if after != node.oplog.lost and (entry is None or int(entry["t"]) != int(body["afterTerm"])):
                return {"common": Timestamp(*self._common(body["have"])), "ok": 1.0}
        self._reached[body["who"]] = after
        self._seen[body["who"]] = time.monotonic()
        self._count()
        if node.oplog.last <= after:
            await node.oplog.wait(float(body["seconds"]))
        entries = self._entries_after(after)
        return {"entries": entries, "majority": Timestamp(*node.seen), "term": node.term, "ok": 1.0}

    def _entries_after(self, after: Time) -> list[Document]:
        oplog = self._node.oplog
        if after < oplog.lost:
            return [entry for entry in oplog.read() if time_of(entry["ts"]) > after][:PULL_ENTRIES]
        place = oplog.index_after(after)
        return oplog.entries[place : place + PULL_ENTRIES]

    def _common(self, have: list[Document]) -> Time:
        for item in have:
            entry = self._node.oplog.find(item["ts"])
            if entry is not None and int(entry["t"]) == int(item["t"]):
                return time_of(item["ts"])
        return 0, 0

    def _count(self) -> None:
        """Work out what a majority has."""
        node = self._node
        places = sorted(
            [node.oplog.last, *(self._reached.get(address, (0, 0)) for address in self._peers)], reverse=True
        )
        agreed = places[len(self.addresses) // 2]
        entry = node.oplog.find(Timestamp(*agreed)) if agreed != (0, 0) else None
        if entry is not None and int(entry["t"]) == node.term and agreed > (node.majority or (0, 0)):
            node.majority = agreed
            node.oplog.wake()

    # the follower's side

    async def _follow(self) -> None:
        while True:
            if self._node.primary or self.leader is None or self.leader == self._server.address:
                await asyncio.sleep(0.05)
                continue
            try:
                await self._pull(self._peers[self.leader])
            except ConnectionError:
                await asyncio.sleep(0.1)

    async def _pull(self, peer: Peer) -> None:
        node = self._node
        recent = [{"ts": entry["ts"], "t": entry["t"]} for entry in node.oplog.entries[: -LOOK_BACK - 1 : -1]]
        body = {
            "_standInPull": 1, "who": self._server.address, "after": Timestamp(*node.oplog.last), "afterTerm": Int64(self._last_term()), "have": recent[:1],
            "seconds": PULL_SECONDS, "$db": "admin",
        }  # fmt: skip
        answer = await peer.call(body, PULL_SECONDS + 4)
        if "common" in answer:
            answer = await peer.call({**body, "have": recent}, PULL_SECONDS + 4)
        if "common" in answer:
            LOG.info("rolling back to %s", answer["common"])
            self.rollbacks += 1
            self._server.rolled_back()
            node.roll_back(time_of(answer["common"]))
            return
        self.stale = bool(answer.get("stale"))
        if "entries" not in answer or node.primary:
            await asyncio.sleep(0.1)
            return
        for entry in answer["entries"]:
            if time_of(entry["ts"]) > node.oplog.last:
                node.replay(entry)
        self._follow_majority(answer["majority"])

    def _follow_majority(self, stamp: Timestamp) -> None:
        if not self._node.primary and time_of(stamp) > (self._node.majority or (0, 0)):
            self._node.majority = time_of(stamp)
            self._node.oplog.wake()

    # what clients see

    def hello(self, primary: str) -> Document:
        """The part of ``hello`` that is about the set."""
        out: Document = {
            "hosts": list(self.addresses),
            "setName": self._node.settings.replica_set,
            "setVersion": 1,
            primary: self._node.primary,
            "secondary": not self._node.primary and self._readable(),
        }
        if self.leader:
            out["primary"] = self.leader
        return {**out, "me": self._server.address}

    def _readable(self) -> bool:
        return bool(self._node.oplog.entries) and not self.stale

    def check_state(self) -> None:
        """Raise when this member serves no readers at all."""
        if not self._node.primary and self._node.settings.replica_set and not self._readable():
            raise MongoError(13436, "node is not in primary or recovering state")

    def check_readable(self, context: Context) -> None:
        """Raise unless the client reads from secondaries."""
        self.check_state()
        mode = context.body.get("$readPreference", {}).get("mode", "primary")
        reading = context.name in (
            "find",
            "aggregate",
            "count",
            "distinct",
            "listCollections",
            "listIndexes",
            "listDatabases",
            "collStats",
            "dbStats",
        )
        if reading and mode == "primary":
            raise MongoError(13435, "not primary and secondaryOk=false")

    async def concern(self, context: Context, reply: Document) -> Document:
        """Wait for as many members as the command's write concern asks for."""
        node = self._node
        given = context.body.get("writeConcern", {})
        wanted = given.get("w", "majority")
        if (
            node.majority is None
            or (context.transaction is not None and context.transaction.state == "open")
            or wanted in (0, 1)
        ):
            return reply
        limit = int(given.get("wtimeout", 0)) / 1000
        end = time.monotonic() + limit if limit else None
        place, term = node.oplog.last, node.term
        while not self._reached_by(wanted, place):
            if end is not None and time.monotonic() >= end:
                info = {
                    "wtimeout": True,
                    "writeConcern": {"w": wanted, "wtimeout": int(limit * 1000), "provenance": "clientSupplied"},
                }
                error = {
                    "code": 64,
                    "codeName": "WriteConcernFailed",
                    "errmsg": "waiting for replication timed out",
                    "errInfo": info,
                }
                return _with_concern(reply, error)
            if not node.primary or node.term != term:
                provenance = "clientSupplied" if "w" in given else "implicitDefault"
                info = {"writeConcern": {"w": wanted, "wtimeout": int(limit * 1000), "provenance": provenance}}
                interrupted = {
                    "code": 11602,
                    "codeName": "InterruptedDueToReplStateChange",
                    "errmsg": "operation was interrupted",
                }
                return _with_concern(reply, {**interrupted, "errInfo": info})
            await node.oplog.wait(0.2 if end is None else min(0.2, end - time.monotonic()))
        return reply

    def _reached_by(self, wanted: Any, place: Time) -> bool:
        if wanted == "majority":
            return self._node.seen >= place
        return 1 + sum(reached >= place for reached in self._reached.values()) >= int(wanted)

    async def news(self, counter: int, seconds: float) -> None:
        """Wait until the set changes."""
        end = time.monotonic() + seconds
        while self._node.topology <= counter and time.monotonic() < end:
            await self._node.oplog.wait(min(end - time.monotonic(), 1.0))

    def config(self) -> Document:
        """The configuration of the set."""
        members = [
            {"_id": number, "host": address, "arbiterOnly": False, "buildIndexes": True, "hidden": False, "priority": 1.0, "tags": {}, "secondaryDelaySecs": Int64(0), "votes": 1}
            for number, address in enumerate(self.addresses)
        ]  # fmt: skip
        settings = {
            "chainingAllowed": True, "heartbeatIntervalMillis": 2000, "heartbeatTimeoutSecs": 10, "electionTimeoutMillis": 10000, "catchUpTimeoutMillis": -1,
            "catchUpTakeoverDelayMillis": 30000, "getLastErrorModes": {}, "getLastErrorDefaults": {"w": 1, "wtimeout": 0}, "replicaSetId": self._id,
        }  # fmt: skip
        return {
            "_id": self._node.settings.replica_set, "version": 1, "term": self._node.term, "members": members, "protocolVersion": Int64(1),
            "writeConcernMajorityJournalDefault": True, "settings": settings,
        }  # fmt: skip

    def status(self) -> Document:
        """The state of the set as this member sees it."""
        node, now = self._node, time.monotonic()
        seen = {"ts": Timestamp(*node.seen), "t": Int64(node.term)}
        members = [self._member(number, address, now) for number, address in enumerate(self.addresses)]
        majority = len(self.addresses) // 2 + 1
        return {
            "set": node.settings.replica_set, "date": DatetimeMS(now_ms()), "myState": 1 if node.primary else 2 if self._readable() else 3, "term": Int64(node.term),
            "syncSourceHost": "" if node.primary or self.leader is None else self.leader, "syncSourceId": -1 if node.primary or self.leader is None else self.addresses.index(self.leader),
            "heartbeatIntervalMillis": Int64(2000), "majorityVoteCount": majority, "writeMajorityCount": majority, "votingMembersCount": len(self.addresses),
            "writableVotingMembersCount": len(self.addresses),
            "optimes": {"lastCommittedOpTime": seen, "readConcernMajorityOpTime": seen, "appliedOpTime": node.last_optime(), "durableOpTime": node.last_optime(), "writtenOpTime": node.last_optime()},
            "members": members, "ok": 1.0,
        }  # fmt: skip

    def _member(self, number: int, address: str, now: float) -> Document:
        mine = address == self._server.address
        alive = mine or address == self.leader or not self._node.primary or now - self._seen.get(address, 0) < 3
        state = (1 if self._node.primary else 2) if mine else 1 if address == self.leader else 2
        reached = self._node.oplog.last if mine else self._reached.get(address, (0, 0))
        out: Document = {
            "_id": number,
            "name": address,
            "health": 1.0 if alive else 0.0,
            "state": state if alive else 8,
            "stateStr": {1: "PRIMARY", 2: "SECONDARY"}[state] if alive else "(not reachable/healthy)",
            "uptime": (now_ms() - self._node.started) // 1000,
            "optime": {"ts": Timestamp(*reached), "t": Int64(self._node.term)},
            "optimeDate": DatetimeMS(reached[0] * 1000),
        }
        return {**out, "self": True} if mine else out


def _with_concern(reply: Document, error: Document) -> Document:
    out = {name: value for name, value in reply.items() if name != "ok"}
    return {**out, "writeConcernError": error, "ok": 1.0}


@command("replSetGetStatus", "initialSync", admin_only=True)
def get_status(context: Context, body: Document) -> Document:
    """The state of the set."""
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    return context.server.replication.status()


@command("replSetGetConfig", "commitmentStatus", admin_only=True)
def get_config(context: Context, body: Document) -> Document:
    """The configuration of the set."""
    if context.server.node.settings.replica_set is None:
        raise MongoError(76, "not running with --replSet")
    return {"config": context.server.replication.config(), "ok": 1.0}


@command("replSetStepDown", "secondaryCatchUpPeriodSecs", "force", admin_only=True)
async def step_down(context: Context, body: Document) -> Document:
    """Have another member take over."""
    replication, node = context.server.replication, context.server.node
    if not node.primary:
        raise MongoError(10107, "not primary so can't step down")
    wait = time.monotonic() + float(body.get("secondaryCatchUpPeriodSecs", 10))
    last = node.oplog.last
    while not any(reached >= last for reached in replication._reached.values()):
        if time.monotonic() > wait:
            if body.get("force"):
                break
            raise MongoError(262, "No electable secondaries caught up")
        await node.oplog.wait(0.1)
    best = max(replication._reached, key=lambda address: replication._reached[address], default=None)
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
