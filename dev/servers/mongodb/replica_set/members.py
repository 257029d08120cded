"""A member in its replica set: who is primary, what a majority has, and how a member follows another.

The protocol between members is this stand-in's own (commands that begin with ``_standIn``); what clients see of elections, step-downs and rollbacks
is the server's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any, Protocol

from bson import Int64, ObjectId, Timestamp

from dev.servers.mongodb.replica_set import electorate
from dev.servers.mongodb.storage.node import Node
from dev.servers.mongodb.storage.versioned_collections import Time, time_of
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.wire.peers import Peer

LOG = logging.getLogger("mongodb.members")
BEAT_SECONDS = 0.3
PULL_SECONDS = 1.0
PULL_ENTRIES = 500
COMPARED_ENTRIES = 5000
READS = frozenset({"find", "aggregate", "count", "distinct", "listCollections", "listIndexes", "listDatabases", "collStats", "dbStats"})  # fmt: skip


class Host(Protocol):
    """The part of the server that its role as a member of the set uses."""

    node: Node
    address: str

    def rolled_back(self) -> None:
        """Close all cursors and connections."""


class Replication:
    """The part of a member that deals with the others."""

    def __init__(self, server: Host) -> None:
        self.server = server
        self.node = server.node
        settings = server.node.settings
        self.addresses = settings.members or [server.address]
        self.traits = {address: electorate.of_member(given) for address, given in settings.traits.items()}
        self.version, self.configured = 1, dict[str, int]()
        self._peers = {
            address: Peer(address, settings.key, settings.tls)
            for address in self.addresses
            if address != server.address
        }
        self._votes = {address: Peer(address, settings.key, settings.tls) for address in self._peers}
        self.id = ObjectId()
        self._tasks: list[asyncio.Task[None]] = []
        self.leader: str | None = None
        self.heard = time.monotonic()
        self.seen: dict[str, float] = {}
        self.reached: dict[str, Time] = {}
        self._voted = 0
        self._frozen = 0.0
        self.stale = False
        self.recovering = False
        """True if it is in maintenance mode."""
        self.rollbacks = 1

    # life

    def begin(self) -> None:
        """Start as what this member is: alone it is primary at once, among others it follows until it is elected."""
        node = self.node
        if node.settings.replica_set is None:
            return
        if self._peers:
            node.primary, node.majority = False, (0, 0)
            return
        if node.settings.commit_lag_ms:
            node.majority = (0, 0)
        self.leader = self.server.address
        if node.oplog.entries:
            node.term += 1
            node.noop({"msg": "new primary"})
        else:
            node.noop({"msg": "initiating set"})

    def run(self) -> None:
        """Begin the background work."""
        if self.node.settings.replica_set is None:
            return
        self._start(self._noops())
        if self.node.settings.commit_lag_ms and not self._peers:
            self._start(self._commits_late())
        if self._peers:
            self._start(self._elections())
            self._start(self._follow())
            for address in self._peers:
                self._start(self._beat(address))

    def configure(self, addresses: list[str], traits: electorate.Traits, version: int) -> None:
        """Know these members from now on."""
        self.traits = traits
        node, alone = self.node, not self._peers
        self.addresses, self.version = list(addresses), version
        others = [address for address in addresses if address != self.server.address]
        for address in [*self._peers]:
            if address not in others:
                for known in (self._peers, self._votes, self.seen, self.reached):
                    known.pop(address, None)
        for address in others:
            if address not in self._peers:
                self._peers[address] = Peer(address, node.settings.key, node.settings.tls)
                self._votes[address] = Peer(address, node.settings.key, node.settings.tls)
                self.seen[address] = self.heard
                self._start(self._beat(address))
        if alone and others:
            node.majority = node.oplog.last
            self._start(self._elections())
            self._start(self._follow())
        self.changed()

    def _start(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _noops(self) -> None:
        node = self.node
        while True:
            await asyncio.sleep(min(node.settings.noop_seconds / 10, 1.0))
            if node.primary and time.time() - node.oplog.last[0] >= node.settings.noop_seconds:
                node.noop({"msg": "periodic noop"})

    async def _commits_late(self) -> None:
        """Know some time later that a majority has what was written."""
        node = self.node
        while True:
            place = node.oplog.last
            await asyncio.sleep(node.settings.commit_lag_ms / 1000)
            if place > (node.majority or (0, 0)):
                node.majority = place
                node.oplog.wake()

    # elections

    def _timeout(self) -> float:
        first = self.server.address == self.addresses[0] and not self.node.oplog.entries
        return 0.2 if first else self.node.settings.election_seconds * random.uniform(1.0, 1.4)

    async def _elections(self) -> None:
        timeout = self._timeout()
        while True:
            await asyncio.sleep(0.1)
            now = time.monotonic()
            if self.node.primary:
                recent = now - self.node.settings.election_seconds
                reached = sum(
                    address == self.server.address or self.seen.get(address, 0.0) > recent for address in self.voters
                )
                if reached * 2 <= len(self.voters) and now - self.heard > self.node.settings.election_seconds:
                    self.step_down("no majority is reached")
                continue
            if (
                now - self.heard > timeout
                and now > self._frozen
                and electorate.electable(self.traits, self.server.address)
            ):
                await self.stand()
                timeout = self._timeout()

    async def stand(self) -> None:
        """Ask the others to be elected."""
        node = self.node
        node.term = max(node.term, self._voted) + (1 if node.oplog.entries or self._voted else 0)
        self._voted = node.term
        self.heard = time.monotonic()
        ask = {
            "_standInVote": 1, "term": node.term, "who": self.server.address, "last": Timestamp(*node.oplog.last), "lastTerm": self._last_term(),
            "version": self.version, "$db": "admin",
        }  # fmt: skip
        answers = await asyncio.gather(*(peer.call(ask, 1.0) for peer in self._votes.values()), return_exceptions=True)
        granted = [
            address
            for address, answer in zip([*self._votes], answers, strict=True)
            if isinstance(answer, dict) and answer.get("granted")
        ]
        votes = sum(address in self.voters for address in (self.server.address, *granted))
        if votes * 2 > len(self.voters) and self._voted == ask["term"] and not node.primary:
            self._lead()

    def _last_term(self) -> int:
        return int(self.node.oplog.entries[-1].get("t", 1)) if self.node.oplog.entries else 0

    def _lead(self) -> None:
        node = self.node
        LOG.info("primary in term %s", node.term)
        node.primary, self.leader = True, self.server.address
        self.heard = time.monotonic()
        self.seen = dict.fromkeys(self._peers, self.heard)
        self.reached = {}
        node.noop({"msg": "initiating set" if not node.oplog.entries else "new primary"})
        self.changed()

    def step_down(self, why: str) -> None:
        """Be a follower from now on."""
        node = self.node
        if not node.primary:
            return
        LOG.info("no longer primary: %s", why)
        node.primary, self.leader = False, None
        self.heard = time.monotonic()
        self.changed()

    def changed(self) -> None:
        """Tell those who wait that the set has changed."""
        self.node.topology += 1
        self.node.oplog.wake()

    def vote(self, body: Document) -> Document:
        """Check whether this member votes for another."""
        node, term = self.node, int(body["term"])
        mine = (self._last_term(), node.oplog.last)
        theirs = (int(body["lastTerm"]), time_of(body["last"]))
        newest = int(body["version"]) >= self.version
        granted = newest and term > self._voted and term >= node.term and theirs >= mine
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
        while self._votes.get(address) is peer:
            await asyncio.sleep(BEAT_SECONDS)
            if not self.node.primary:
                continue
            body = {
                "_standInBeat": 1, "term": self.node.term, "who": self.server.address, "majority": Timestamp(*self.node.seen), "version": self.version,
                "members": self.addresses, "traits": self.traits, "$db": "admin",
            }  # fmt: skip
            try:
                answer = await peer.call(body, 1.0)
            except ConnectionError:
                continue
            self.seen[address] = time.monotonic()
            self.configured[address] = int(answer.get("version", 0))
            self._count()  # beside arbiters no one may follow
            if int(answer.get("term", 0)) > self.node.term:
                self.node.term = int(answer["term"])
                self.step_down("another term has begun")

    def beaten(self, body: Document) -> Document:
        """Hear from the primary."""
        node, term = self.node, int(body["term"])
        if term >= node.term and body["who"] != self.server.address:
            if node.primary:
                self.step_down(f"{body['who']} is primary")
            node.term = term
            self.heard = time.monotonic()
            if int(body["version"]) > self.version:
                self.configure(body["members"], body["traits"], int(body["version"]))
            if self.leader != body["who"]:
                self.leader = body["who"]
                self.changed()
            self._follow_majority(body["majority"])
        return {"term": node.term, "version": self.version, "ok": 1.0}

    async def pulled(self, body: Document) -> Document:
        """Give a follower the entries after those it has."""
        node = self.node
        after = time_of(body["after"])
        if not node.primary:
            raise MongoError(10107, "not primary")
        entry = node.oplog.find(body["after"])
        if after != (0, 0):
            if after < node.oplog.lost:
                return {"stale": True, "ok": 1.0}
            if after != node.oplog.lost and (entry is None or int(entry["t"]) != int(body["afterTerm"])):
                return {"common": Timestamp(*self._common(body["have"])), "ok": 1.0}
        self.reached[body["who"]] = after
        self.seen[body["who"]] = time.monotonic()
        self._count()
        if node.oplog.last <= after:
            await node.oplog.wait(float(body["seconds"]))
        entries = self._entries_after(after)
        return {"entries": entries, "majority": Timestamp(*node.seen), "term": node.term, "ok": 1.0}

    def _entries_after(self, after: Time) -> list[Document]:
        oplog = self.node.oplog
        if after < oplog.lost:
            return [entry for entry in oplog.read() if time_of(entry["ts"]) > after][:PULL_ENTRIES]
        place = oplog.index_after(after)
        return oplog.entries[place : place + PULL_ENTRIES]

    def _common(self, have: list[Document]) -> Time:
        for item in have:
            entry = self.node.oplog.find(item["ts"])
            if entry is not None and int(entry["t"]) == int(item["t"]):
                return time_of(item["ts"])
        return 0, 0

    def _count(self) -> None:
        """Work out what a majority has."""
        node = self.node
        if not node.primary:
            return
        reached = {**self.reached, self.server.address: node.oplog.last}
        data = electorate.with_data(self.addresses, self.traits)
        places = sorted((reached.get(address, (0, 0)) for address in data), reverse=True)
        agreed = places[electorate.write_majority(self.addresses, self.traits) - 1]
        entry = node.oplog.find(Timestamp(*agreed)) if agreed != (0, 0) else None
        if entry is not None and int(entry["t"]) == node.term and agreed > (node.majority or (0, 0)):
            node.majority = agreed
            node.oplog.wake()

    # the follower's side

    async def _follow(self) -> None:
        while True:
            arbiter = electorate.has_trait(self.traits, self.server.address, "arbiterOnly")
            if self.node.primary or self.leader is None or self.leader == self.server.address or arbiter:
                await asyncio.sleep(0.05)
                continue
            try:
                await self._pull(self._peers[self.leader])
            except KeyError:  # it is no member any more
                self.leader = None
            except ConnectionError:
                await asyncio.sleep(0.1)

    async def _pull(self, peer: Peer) -> None:
        node = self.node
        recent = [{"ts": entry["ts"], "t": entry["t"]} for entry in node.oplog.entries[: -COMPARED_ENTRIES - 1 : -1]]
        body = {
            "_standInPull": 1, "who": self.server.address, "after": Timestamp(*node.oplog.last), "afterTerm": Int64(self._last_term()), "have": recent[:1],
            "seconds": PULL_SECONDS, "$db": "admin",
        }  # fmt: skip
        answer = await peer.call(body, PULL_SECONDS + 4)
        if "common" in answer:
            answer = await peer.call({**body, "have": recent}, PULL_SECONDS + 4)
        if "common" in answer:
            LOG.info("rolling back to %s", answer["common"])
            self.rollbacks += 1
            self.server.rolled_back()
            node.roll_back(time_of(answer["common"]))
            return
        self.stale = bool(answer.get("stale"))
        if "entries" not in answer or node.primary:
            await asyncio.sleep(0.1)
            return
        if answer["entries"] and node.settings.follow_lag_ms:
            await asyncio.sleep(node.settings.follow_lag_ms / 1000)
        for entry in answer["entries"]:
            if time_of(entry["ts"]) > node.oplog.last:
                node.replay(entry)
        self._follow_majority(answer["majority"])

    def _follow_majority(self, stamp: Timestamp) -> None:
        if not self.node.primary and time_of(stamp) > (self.node.majority or (0, 0)):
            self.node.majority = time_of(stamp)
            self.node.oplog.wake()

    # what clients see

    @property
    def voters(self) -> list[str]:
        """The members that vote."""
        return electorate.voters(self.addresses, self.traits)

    @property
    def default_write_concern(self) -> Any:
        """The write concern of a write that names none."""
        given = self.node.parameters["default_write_concern"]
        return given["w"] if given else electorate.implicit_write_concern(self.addresses, self.traits)

    def readable(self) -> bool:
        """Check whether this member has something that can be read."""
        return bool(self.node.oplog.entries) and not self.stale and not self.recovering

    def check_state(self) -> None:
        """Raise when this member serves no readers at all."""
        if self.recovering:
            raise MongoError(13436, "node is recovering")
        if not self.node.primary and self.node.settings.replica_set and not self.readable():
            raise MongoError(13436, "node is not in primary or recovering state")

    def check_readable(self, name: str, body: Document) -> None:
        """Raise unless the client reads from secondaries; the command is given by its name and body."""
        mode = body.get("$readPreference", {}).get("mode", "primary")
        reading = name in READS
        if reading and mode == "primary":
            raise MongoError(13435, "not primary and secondaryOk=false")
        self.check_state()

    async def news(self, counter: int, seconds: float) -> None:
        """Wait until the set changes."""
        end = time.monotonic() + seconds
        while self.node.topology <= counter and time.monotonic() < end:
            await self.node.oplog.wait(min(end - time.monotonic(), 1.0))
