"""Starts the stand-in: a member, or a replica set of several."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev import paths
from dev.servers.base import START_SECONDS, Server
from dev.servers.process import ServerError

SET_NAME = "rs0"
OF_ROUTER = frozenset({"version", "product", "atlas", "commits", "load_balanced", "gather_ms"})
"""Options that a router has as its shards have them."""


class MongoDb(Server):
    """A member as a separate process; alone it is a replica set of one.

    Options: ``replica_set`` (None is a standalone server), ``oplog_bytes``, ``noop_seconds``, ``auth``, ``tls`` (``certificate``, ``key``, ``ca``,
    ``require_client``), ``election_seconds``, ``replay`` (``file``, ``copies``, ``held``: change streams deliver these, see :mod:`dev.servers.mongodb.replay`),
    and the manners of some deployments: ``version``, ``product``, ``atlas``, ``gather_ms``, ``commit_lag_ms``, ``follow_lag_ms``, ``whole_bytes``, ``commits``, ``load_balanced``
    (:class:`dev.servers.mongodb.storage.node.Settings`).
    """

    kind = "mongodb"
    user = ""
    password = ""

    def url(self, **options: Any) -> str:
        """The connection string."""
        given = {"replicaSet": self.options.get("replica_set", SET_NAME), **options}
        return f"mongodb://{self.host}:{self.port}/?" + "&".join(
            f"{name}={value}" for name, value in given.items() if value is not None
        )

    def connect(self, **options: Any) -> Any:
        """A ``pymongo.MongoClient``."""
        import pymongo

        return pymongo.MongoClient(self.url(), **options)

    def direct(self, **options: Any) -> Any:
        """A client of this member alone."""
        import pymongo

        return pymongo.MongoClient(self.host, self.port, directConnection=True, **options)

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        order = {"replica_set": SET_NAME, **self.options, "folder": str(self.data), "port": self.port}
        return [sys.executable, "-m", "dev.servers.mongodb", json.dumps(order)], {"PYTHONPATH": str(paths.ROOT)}

    def _answers(self) -> bool:
        import pymongo
        from pymongo.errors import PyMongoError

        if self.options.get("tls"):
            return self.log.exists() and "ready on" in self.log.read_text()
        with pymongo.MongoClient(self.host, self.port, directConnection=True, serverSelectionTimeoutMS=300) as client:
            try:
                client.admin.command("ping")
            except PyMongoError:
                return False
        return True


class ReplicaSet:
    """Several members of one replica set, each a separate process.

    >>> with ReplicaSet() as members:
    ...     members.connect().shop.orders.insert_one({"_id": 1})
    ...     members.primary().kill()

    :param count: members with data
    :param arbiters: members more that only vote
    """

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        count: int = 3,
        arbiters: int = 0,
        folder: Path | str | None = None,
    ) -> None:
        self._given = given = {"key": secrets.token_hex(16), **(options or {})}
        self.members = [
            MongoDb(given, folder=Path(folder) / str(number) if folder else None) for number in range(count + arbiters)
        ]
        self._traits: dict[str, dict[str, Any]] = {address: {"arbiterOnly": True} for address in self.addresses[count:]}
        for member in self.members:
            member.options |= {"members": self.addresses, "traits": self._traits}

    @property
    def running(self) -> bool:
        """True if any member runs."""
        return any(member.running for member in self.members)

    @property
    def processes(self) -> list[MongoDb]:
        """All servers."""
        return self.members

    def start(self) -> Self:
        """Start all members and wait for a primary."""
        for member in self.members:
            member.start()
        self.primary()
        return self

    def close(self) -> None:
        """End all members and delete their data."""
        for member in self.members:
            member.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self) -> str:
        """The connection string."""
        name = self.members[0].options.get("replica_set", SET_NAME)
        return f"mongodb://{','.join(self.addresses)}/?replicaSet={name}"

    @property
    def addresses(self) -> list[str]:
        """The addresses of all members."""
        return [f"{member.host}:{member.port}" for member in self.members]

    def connect(self, **options: Any) -> Any:
        """A ``pymongo.MongoClient`` of the set."""
        import pymongo

        return pymongo.MongoClient(self.url(), **options)

    def primary(self) -> MongoDb:
        """The member that is primary; waits for an election."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            for member in self.members:
                if member.running and _has_state(member, "isWritablePrimary"):
                    return member
            time.sleep(0.05)
        raise ServerError(f"no member became primary within {START_SECONDS:.0f} s")

    def add_member(self, **traits: Any) -> MongoDb:
        """Start another member and have the set know it.

        :param traits: what it is beside a usual member, such as ``arbiterOnly=True`` or ``priority=0, hidden=True``
        """
        more = MongoDb({**self._given})
        address = f"{more.host}:{more.port}"
        if traits:
            self._traits = {**self._traits, address: traits}
        more.options |= {"members": [*self.addresses, address], "traits": self._traits}
        more.start()
        self.members.append(more)
        self._reconfigure()
        return more

    def remove_member(self, member: MongoDb) -> None:
        """Have the set forget a member, which must not be primary, and end it."""
        self.members.remove(member)
        self._reconfigure()
        member.close()

    def _reconfigure(self) -> None:
        with self.connect() as client:
            config = client.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["members"] = [
                {"_id": number, "host": host, **self._traits.get(host, {})}
                for number, host in enumerate(self.addresses)
            ]
            client.admin.command({"replSetReconfig": config})
        for member in self.members:
            member.options |= {"members": self.addresses, "traits": self._traits}

    def secondaries(self) -> list[MongoDb]:
        """The members that follow."""
        return [member for member in self.members if member.running and _has_state(member, "secondary")]

    @contextmanager
    def without_member(self, member: MongoDb) -> Iterator[None]:
        """A member is killed for a while."""
        member.kill()
        try:
            yield
        finally:
            member.start()


class ShardedCluster:
    """Shards, and a router over them, all processes of their own.

    >>> with ShardedCluster() as cluster:
    ...     cluster.connect().admin.command({"shardCollection": "shop.orders", "key": {"_id": "hashed"}})

    :param count: shards
    :param members: of each shard; of several, a shard is in :attr:`sets`, else in :attr:`shards`
    :param port: of the router
    """

    def __init__(
        self, options: dict[str, Any] | None = None, *, count: int = 2, members: int = 1, port: int | None = None
    ) -> None:
        key = secrets.token_hex(16)
        self.shards: dict[str, MongoDb] = {}
        self.sets: dict[str, ReplicaSet] = {}
        for name in (f"s{number}" for number in range(1, count + 1)):
            given = {**(options or {}), "key": key, "replica_set": name}
            if members == 1:
                self.shards[name] = MongoDb(given)
            else:
                self.sets[name] = ReplicaSet(given, count=members)
        own = {name: value for name, value in (options or {}).items() if name in OF_ROUTER}
        self.router = MongoDb({**own, "key": key, "replica_set": None}, port=port)
        self._given = {**(options or {}), "key": key}
        self._removed: list[MongoDb] = []

    @property
    def running(self) -> bool:
        """True if the router runs."""
        return self.router.running

    @property
    def processes(self) -> list[MongoDb]:
        """All servers, the router first."""
        members = [member for one in self.sets.values() for member in one.members]
        return [self.router, *self.shards.values(), *members]

    def add_shard(self, name: str) -> MongoDb:
        """Start another shard and have the router know it."""
        self.shards[name] = shard = MongoDb({**self._given, "replica_set": name}).start()
        with self.connect() as client:
            client.admin.command("addShard", f"{name}/{shard.host}:{shard.port}")
        return shard

    def remove_shard(self, name: str) -> None:
        """Have the router empty a shard and forget it; its process continues. Its databases must have been moved or dropped."""
        end = time.monotonic() + START_SECONDS
        with self.connect() as client:
            while (reply := client.admin.command("removeShard", name))["state"] != "completed":
                if time.monotonic() > end:
                    raise ServerError(f"shard {name} is not empty within {START_SECONDS:.0f} s: {reply}")
                time.sleep(0.05)
        self._removed.append(self.shards.pop(name))
        self.router.options["shards"].pop(name, None)

    def url(self) -> str:
        """The connection string."""
        return self.router.url()

    def start(self) -> Self:
        """Start all of them."""
        return self.__enter__()

    def __enter__(self) -> Self:
        try:
            for shard in (*self.shards.values(), *self.sets.values()):
                shard.start()
            self.router.options["shards"] = {
                **{name: [f"{shard.host}:{shard.port}"] for name, shard in self.shards.items()},
                **{name: members.addresses for name, members in self.sets.items()},
            }
            self.router.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and delete their data."""
        for server in (self.router, *self.shards.values(), *self.sets.values(), *self._removed):
            server.close()

    def connect(self, **options: Any) -> Any:
        """A ``pymongo.MongoClient`` of the router."""
        return self.router.connect(**options)


def _has_state(member: MongoDb, what: str) -> bool:
    from pymongo.errors import PyMongoError

    with member.direct(serverSelectionTimeoutMS=500) as client:
        try:
            return bool(client.admin.command("hello").get(what))
        except PyMongoError:
            return False
