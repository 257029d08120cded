"""A router over shards: one address for a small sharded cluster.

Ranges of the shard key (chunks) are kept on the first shard in ``config``, as a cluster keeps them: ``config.shards``, ``config.databases``,
``config.collections``, ``config.chunks``. Reads gather from all shards that hold a collection, and sort, cut and compute here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from bson import Int64, MaxKey, MinKey, ObjectId, Timestamp

from dev.servers.mongodb.expressions import operators
from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.operation.registry import find_command
from dev.servers.mongodb.server import Server
from dev.servers.mongodb.storage.node import Settings
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, encode
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.values.missing import MISSING
from dev.servers.mongodb.wire.peers import Peer

FIND_PRIMARY_SECONDS = 30.0
HERE = frozenset({"hello", "ismaster", "isMaster", "ping", "buildInfo", "buildinfo", "serverStatus", "startSession", "endSessions", "refreshSessions", "killSessions", "connectionStatus", "configureFailPoint", "getParameter", "whatsmyuri"})  # fmt: skip
USING = frozenset(
    {"insert", "update", "delete", "findAndModify", "find", "count", "aggregate", "distinct", "bulkWrite"}
)
"""The commands for which a document has to be where its chunk is."""
STALE = frozenset({10107, 13435, 13436, 189, 11602})


@dataclass
class ShardedTransaction:
    """A transaction, and the shards that it has come to."""

    lsid: Document
    number: int
    shards: list[str] = field(default_factory=list)


TRANSACTION: ContextVar[ShardedTransaction | None] = ContextVar("transaction", default=None)
"""The transaction of the command that is being run."""


class Shard:
    """A shard: the members of its replica set, of which the primary gets the commands."""

    def __init__(self, name: str, addresses: list[str], key: str) -> None:
        self.name, self.addresses = name, addresses
        self._key = key
        self._peers: list[Peer] = [Peer(address, key, {}) for address in addresses]
        self._at = 0

    async def call(self, body: Document, seconds: float = 60.0) -> Document:
        """The reply of the primary; an error of it is raised. Waits for an election."""
        end = time.monotonic() + FIND_PRIMARY_SECONDS
        while True:
            try:
                reply = await self._peers[self._at].call(body, seconds)
            except ConnectionError as error:
                if time.monotonic() > end:
                    raise MongoError(
                        133, f"Could not find host matching read preference for set {self.name}: {error}"
                    ) from None
            else:
                if reply.get("ok"):
                    return reply
                if reply["code"] not in STALE or time.monotonic() > end:
                    more = {
                        name: value for name, value in reply.items() if name in ("keyPattern", "keyValue", "errInfo")
                    }
                    raise MongoError(reply["code"], reply["errmsg"], tuple(reply.get("errorLabels", ())), **more)
            self._at = (self._at + 1) % len(self._peers)
            await asyncio.sleep(0.1)

    def another(self) -> Shard:
        """The same shard by its own connections, for a reader that waits."""
        return Shard(self.name, self.addresses, self._key)


class Router(Server):
    """A process without data that sends each command to the shards it concerns."""

    def __init__(self, settings: Settings, shards: dict[str, list[str]], handlers: Mapping[str, Handler]) -> None:
        """:param handlers: what it does with each command, by name"""
        super().__init__(settings)
        self._handlers = handlers
        self.router = True
        self.shards = {name: self.shard(name, addresses) for name, addresses in shards.items()}
        self.time = Timestamp(int(time.time()), 0)
        self._transactions: dict[bytes, ShardedTransaction] = {}
        self.draining: dict[str, asyncio.Task[None]] = {}
        """The shards that are to be removed, with the balancer's work on each."""
        self.balancing = True
        self._using, self._moving = 0, asyncio.Lock()

    def shard(self, name: str, addresses: list[str]) -> Shard:
        """A shard of a name, by the addresses of its members."""
        return Shard(name, addresses, self.node.settings.key)

    @property
    def first(self) -> Shard:
        """The shard that keeps the configuration."""
        return next(iter(self.shards.values()))

    @property
    def staying(self) -> list[str]:
        """The shards that are not to be removed."""
        return [name for name in self.shards if name not in self.draining]

    @asynccontextmanager
    async def using(self) -> AsyncIterator[None]:
        """While documents are read or written; waits for documents that are being moved."""
        async with self._moving:
            self._using += 1
        try:
            yield
        finally:
            self._using -= 1

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """While documents are moved from shard to shard; waits for who reads and writes."""
        async with self._moving:
            while self._using:
                await asyncio.sleep(0.01)
            yield

    # talking to shards

    async def send(self, shard: Shard, db: str, body: Document, seconds: float = 60.0) -> Document:
        """Run a command at a shard; the cluster's time goes along and comes back."""
        reply = await shard.call(
            {**body, **self._transaction(shard, db), "$db": db, "$clusterTime": {"clusterTime": self.time}}, seconds
        )
        self.hear(reply)
        return {
            name: value
            for name, value in reply.items()
            if name not in ("$clusterTime", "operationTime", "electionId", "opTime")
        }

    @staticmethod
    def _transaction(shard: Shard, db: str) -> Document:
        """Return a command's transaction fields for a shard; the configuration is read outside the transaction."""
        transaction = TRANSACTION.get()
        if transaction is None or db == "config":
            return {}
        out: Document = {"lsid": transaction.lsid, "txnNumber": Int64(transaction.number), "autocommit": False}
        if shard.name not in transaction.shards:
            transaction.shards.append(shard.name)
            out["startTransaction"] = True
        return out

    def _enter(self, body: Document) -> None:
        """Find the transaction of a command."""
        TRANSACTION.set(None)
        if body.get("autocommit") is not False:
            return
        key, number = bytes(body["lsid"]["id"]), int(body["txnNumber"])
        if body.get("startTransaction"):
            self._transactions[key] = ShardedTransaction(body["lsid"], number)
        known = self._transactions.get(key)
        if known is None or known.number != number:
            raise MongoError(
                251,
                f"Given transaction number {number} does not match any in-progress transactions.",
                ("TransientTransactionError",),
            )
        TRANSACTION.set(known)

    async def end(self, shards: list[Shard], how: str) -> None:
        """Commit or abort the transaction at its shards.

        Recorded are commits of two shards with one cluster time and with two, in either order.
        """
        together = {"together": True, "apart": False}.get(self.node.settings.commits, random.random() < 0.5)
        if self.node.settings.commits == "":
            shards = random.sample(shards, len(shards))
        at: Document = {}
        if together and how == "commitTransaction" and len(shards) > 1:
            replies = await self.every(shards, "config", {"_standInClock": 1})  # outside of the transaction
            latest = max(reply["clock"] for reply in replies)
            at = {"_standInAt": Timestamp(latest.time, latest.inc + 1)}
        for shard in shards:
            await self.send(shard, "admin", {how: 1, **at})

    def hear(self, reply: Document) -> None:
        """Take the cluster's time from a reply."""
        seen = reply.get("$clusterTime", {}).get("clusterTime")
        if seen is not None and seen > self.time:
            self.time = seen

    async def every(self, shards: list[Shard], db: str, body: Document) -> list[Document]:
        """Run a command at several shards."""
        return list(await asyncio.gather(*(self.send(shard, db, body) for shard in shards)))

    async def config(self, name: str, query: Document) -> list[Document]:
        """Documents of the configuration."""
        reply = await self.send(self.first, "config", {"find": name, "filter": query, "batchSize": 100_000})
        return list(reply["cursor"]["firstBatch"])

    async def set_config(self, name: str, document: Document) -> None:
        """Write a document of the configuration."""
        update = {"q": {"_id": document["_id"]}, "u": document, "upsert": True}
        await self.send(self.first, "config", {"update": name, "updates": [update]})

    async def primary_of(self, db: str) -> Shard:
        """The shard that has the collections of a database that are not sharded."""
        if db in ("config", "admin", "local"):
            return self.first
        known = await self.config("databases", {"_id": db})
        if not known:
            number = len(await self.config("databases", {}))
            known = [{"_id": db, "primary": self.staying[number % len(self.staying)]}]
            await self.set_config("databases", known[0])
        return self.shards[known[0]["primary"]]

    async def chunks(self, namespace: str) -> tuple[Document, list[Document]] | None:
        """The shard key and the chunks of a collection; None when it is not sharded."""
        known = await self.config("collections", {"_id": namespace})
        if not known:
            return None
        parts = await self.config("chunks", {"ns": namespace})
        return known[0]["key"], sorted(parts, key=lambda chunk: order.key(list(chunk["min"].values())))

    async def owners(self, db: str, name: str) -> list[Shard]:
        """The shards that hold a collection: its database's, and those with chunks of it."""
        sharded = await self.chunks(f"{db}.{name}")
        primary = await self.primary_of(db)
        if sharded is None:
            return [primary]
        names = {chunk["shard"] for chunk in sharded[1]} | {primary.name}
        return [primary, *(shard for name, shard in self.shards.items() if name in names and shard is not primary)]

    @staticmethod
    def chunk_of(key: Document, chunks: list[Document], document: Document) -> Document:
        """The chunk that a document belongs to."""
        place = order.key(key_values(key, document))
        for chunk in chunks:
            if order.key(list(chunk["min"].values())) <= place < order.key(list(chunk["max"].values())):
                return chunk
        return chunks[-1]

    # commands

    async def _run(self, context: Context) -> Document:
        body, name = context.body, context.name
        seen = body.get("$clusterTime", {}).get("clusterTime")
        if seen is not None and seen > self.time:
            self.time = seen
        if context.db == "local":
            raise MongoError(20, "Can't use 'local' database through mongos")
        self._enter(body)
        handler = self._handlers.get(name)
        if handler is not None:
            async with self.using() if name in USING and not _opens_change_stream(body) else nullcontext():
                return await handler(
                    self, context, {field: value for field, value in body.items() if not own_field(field)}
                )
        if name in HERE:
            return await super()._run(context)
        find_command(name, body)
        raise MongoError(59, f"the stand-in's router does not know '{name}'")

    def _gossip(self) -> Document:
        gossip = super()._gossip()
        signature = {"hash": b"\0" * 20, "keyId": Int64(0)}
        return {
            **gossip,
            "$clusterTime": {"clusterTime": self.time, "signature": signature},
            "operationTime": self.time,
        }


Handler = Callable[[Router, Context, Document], Awaitable[Document]]
"""What a router does with one command: its reply."""


def _opens_change_stream(body: Document) -> bool:
    """Check whether a command opens a change stream."""
    pipeline = body.get("pipeline")
    return isinstance(pipeline, list) and bool(pipeline) and "$changeStream" in pipeline[0]


def own_field(name: str) -> bool:
    """Check whether a field of a command is of the client's session with the router, and not for a shard."""
    return name.startswith("$") or name in ("lsid", "txnNumber", "autocommit", "startTransaction")


def key_values(key: Document, document: Document) -> list[Any]:
    """The shard key's values of a document; a hashed field by its hash."""
    out = []
    for path, kind in key.items():
        value = operators.walk_path(document, path.split("."))
        value = None if value is MISSING else value
        out.append(hash_value(value) if kind == "hashed" else value)
    return out


def hash_value(value: Any) -> Int64:
    """The hash of a value: a 64-bit number of its bytes. Not the server's hash of the same name."""
    import hashlib

    if order.is_number(value) and not order.is_nan(value):
        number = order.number(value)
        value = Int64(int(number)) if number == int(number) and abs(number) < 2**63 else float(number)
    digest = hashlib.md5(encode({"": value})).digest()
    return Int64(int.from_bytes(digest[:8], "little", signed=True))


def first_chunks(namespace: str, key: Document, primary: str, shards: list[str]) -> list[Document]:
    """The chunks that a collection begins with: one at its database's shard, or by a hash the same number for each shard."""
    low: Document = {field: MinKey() for field in key}
    high: Document = {field: MaxKey() for field in key}
    if list(key.values()) != ["hashed"]:
        return [{"_id": ObjectId(), "ns": namespace, "min": low, "max": high, "shard": primary}]
    field = next(iter(key))
    cuts = [Int64(-(2**63) + 2**64 * number // len(shards)) for number in range(1, len(shards))]
    bounds = [low, *({field: cut} for cut in cuts), high]
    return [
        {"_id": ObjectId(), "ns": namespace, "min": bounds[i], "max": bounds[i + 1], "shard": shard}
        for i, shard in enumerate(shards)
    ]
