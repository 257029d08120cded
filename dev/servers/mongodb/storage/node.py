"""A member: its collections, its oplog, and the effect of an oplog entry on the collections.

Every change is an entry first and then applied, by the same code on the member that made it, on one that follows it, and after a restart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bson import Int64, ObjectId, Timestamp
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.storage import diffs
from dev.servers.mongodb.storage.oplog import Oplog
from dev.servers.mongodb.storage.versioned_collections import (
    ID_INDEX,
    Catalog,
    Collection,
    Time,
    id_first,
    key_of,
    new_uuid,
    time_of,
)
from dev.servers.mongodb.values.documents import Document, copy
from dev.servers.mongodb.values.errors import MongoError

VERSION = "8.0.10"
DEFAULT_OPLOG_BYTES = 990 * 1024 * 1024


@dataclass
class Settings:
    """The settings that a member is started with."""

    folder: Path | None = None
    port: int = 27017
    replica_set: str | None = "rs0"
    oplog_bytes: int = DEFAULT_OPLOG_BYTES
    noop_seconds: float = 10.0
    auth: bool = False
    members: list[str] = field(default_factory=list)
    """The addresses of all members of the set, this one among them; empty for a set of one."""
    traits: dict[str, Document] = field(default_factory=dict)
    """What is not usual of members, by their addresses: arbiters and others, see :mod:`dev.servers.mongodb.replica_set.electorate`."""
    key: str = ""
    """The secret that members know each other by."""
    election_seconds: float = 3.0
    tls: Document = field(default_factory=dict)
    role: str = ""
    """``shardsvr``, ``configsvr`` or nothing."""
    version: str = VERSION
    """The version that it says it has, and whose restrictions it keeps (:mod:`dev.servers.mongodb.operation.versions`)."""
    product: str = ""
    """A product that speaks the same protocol and is no MongoDB (:mod:`dev.servers.mongodb.operation.products`)."""
    atlas: bool = False
    """True if rights are refused as the proxies of Atlas's small clusters do."""
    gather_ms: int = 0
    """How long a change stream that has something to give waits for more of it."""
    commit_lag_ms: int = 0
    """By how much a set of one knows later than it writes that a majority has it."""
    follow_lag_ms: int = 0
    """How much later than the primary a member has what it follows."""
    whole_bytes: int = 0
    """Updates by pipeline say subdocuments of up to this size whole."""
    commits: str = ""
    """Of a router: the shards of a transaction commit ``together``, at one time, or ``apart``; by chance if it is empty."""
    load_balanced: bool = False
    """Of a router: it stands behind a load balancer, and knows the cursors of each connection alone."""


@dataclass
class PreImage:
    """A document as it was before a change."""

    document: Document
    wall: int
    uuid: Binary


def now_ms() -> int:
    """The clock in milliseconds."""
    return time.time_ns() // 1_000_000


class Node:
    """The state of one member."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalog = Catalog()
        path = settings.folder / "oplog.bson" if settings.folder else None
        self.oplog = Oplog(path, settings.oplog_bytes)
        self.images: dict[tuple[Time, int], PreImage] = {}
        self.term = 1
        self.primary = True
        self.quiet = False
        """True if what is written makes no change events: another shard makes them."""
        self.majority: Time | None = None
        """What a majority has; None when that is everything this member has."""
        self.clock: Time = (0, 0)
        self.process = ObjectId()
        self.started = now_ms()
        self.topology = 6
        self.parameters: Document = {
            "image_expiry": "off",
            "default_write_concern": None,
            "ttlMonitorSleepSecs": 60,
            "ttlMonitorEnabled": True,
        }
        self.parameter_times: dict[str, Timestamp] = {}
        self.fail_points: dict[str, Document] = {}
        self.users: dict[str, Document] = {}
        self.roles: dict[str, Document] = {}
        self.members: list[Document] = []
        self.written: dict[tuple[bytes, int], dict[int, Document]] = {}

    def recover(self) -> None:
        """Make the state again from the file of the oplog."""
        for entry in self.oplog.read():
            self.replay(entry, durable=False)

    def replay(self, entry: Document, *, durable: bool = True) -> None:
        """Take an entry as it is: one of an earlier life, or of the member that this one follows."""
        self.clock = max(self.clock, time_of(entry["ts"]))
        self.term = max(self.term, int(entry.get("t", 1)))
        self.oplog.add(entry, durable=durable)
        self.apply(entry)

    def roll_back(self, time: Time) -> None:
        """Take back everything that is later than a time."""
        kept = self.oplog.truncate(time)
        self.catalog = Catalog()
        self.images.clear()
        for entry in kept:
            self.oplog.add(entry, durable=False)
            self.apply(entry)

    # the clock

    def tick(self) -> Timestamp:
        """The next time of the cluster."""
        seconds = int(time.time())
        self.clock = (self.clock[0], self.clock[1] + 1) if self.clock[0] >= seconds else (seconds, 1)
        return Timestamp(*self.clock)

    @property
    def seen(self) -> Time:
        """The newest time that readers may see: all of this member's, or what a majority has."""
        return self.oplog.last if self.majority is None else min(self.majority, self.oplog.last)

    def last_optime(self) -> Document:
        """The place of the newest entry, as replies have it."""
        return {"ts": Timestamp(*self.oplog.last), "t": Int64(self.term)}

    # writing

    def write(
        self,
        operation: Document,
        *,
        at: Timestamp | None = None,
        session: Document | None = None,
        after: Document | None = None,
    ) -> Timestamp:
        """Log an operation and apply it; returns its time.

        ``after`` is the document that an update leaves, where its order of fields is not that of the difference.
        """
        stamp = at or self.tick()
        if self.quiet:
            operation = {**operation, "fromMigrate": True}
        entry: Document = {
            **(session or {}),
            **operation,
            "ts": stamp,
            "t": Int64(self.term),
            "v": Int64(2),
            "wall": DatetimeMS(now_ms()),
        }
        self.oplog.add(entry)
        self.apply(entry)
        if after is not None:
            collection = self.catalog.by_uuid(operation["ui"])
            assert collection
            record = collection.records[key_of(after)]
            record.versions[-1] = (record.versions[-1][0], after)
        return stamp

    def noop(self, message: Document, **more: Any) -> Timestamp:
        """Log an entry that changes nothing."""
        return self.write({"op": "n", "ns": more.pop("ns", ""), "o": message, **more})

    # applying

    def apply(self, entry: Document) -> None:
        """Change the collections as an entry says."""
        when = time_of(entry["ts"])
        wall = int(entry["wall"])
        if entry["op"] == "c" and "applyOps" in entry["o"]:
            if entry["o"].get("partialTxn"):
                return
            for index, operation in enumerate(self.operations(entry)):
                self._one(operation, when, wall, index)
        else:
            self._one(entry, when, wall, 0)

    def operations(self, entry: Document) -> list[Document]:
        """The operations of an entry: those of a transaction in their order, with those of the entries before it."""
        if entry["op"] != "c" or "applyOps" not in entry["o"]:
            return [entry]
        out = list(entry["o"]["applyOps"])
        while "prevOpTime" in entry and entry["prevOpTime"]["ts"].time:
            found = self.oplog.find(entry["prevOpTime"]["ts"])
            if found is None or "applyOps" not in found["o"]:
                break
            out = [*found["o"]["applyOps"], *out]
            entry = found
        return out

    def _one(self, operation: Document, when: Time, wall: int, index: int) -> None:
        kind = operation["op"]
        if kind == "n":
            self.parameters |= {name: value for name, value in operation["o"].items() if name in self.parameters}
            return
        if kind == "c":
            self._command(operation, when)
            return
        collection = self.catalog.by_uuid(operation["ui"])
        if collection is None:
            raise MongoError(26, f"the oplog speaks of a collection that is not here: {operation['ns']}")
        if kind == "i":
            document = operation["o"]
            collection.put(key_of(document), document, when)
            return
        key = key_of(operation["o"] if kind == "d" else operation["o2"])
        before = collection.get(key)
        if before is None:
            raise MongoError(47, f"the oplog changes a document that is not here: {operation['ns']}")
        if collection.images:
            self.images[when, index] = PreImage(before, wall, collection.uuid)
        if kind == "d":
            collection.put(key, None, when)
        elif operation["o"].get("$v") == 2:
            collection.put(key, diffs.apply_diff(before, operation["o"]["diff"]), when)
        else:
            collection.put(key, id_first(operation["o"]), when)

    def _command(self, operation: Document, when: Time) -> None:
        command = operation["o"]
        name = next(iter(command))
        db = operation["ns"].partition(".")[0]
        getattr(self, f"_apply_{name}", self._apply_other)(db, command, operation, when)

    def _apply_other(self, db: str, command: Document, operation: Document, when: Time) -> None:
        """Entries that change nothing here: the end of ``dropDatabase``, the beginning of an index."""

    def _apply_create(self, db: str, command: Document, operation: Document, when: Time) -> None:
        options = {name: value for name, value in command.items() if name not in ("create", "idIndex")}
        kind = "view" if "viewOn" in options else "timeseries" if "timeseries" in options else "collection"
        indexes = (
            [] if kind != "collection" or "clusteredIndex" in options else [copy(command.get("idIndex", ID_INDEX))]
        )
        collection = Collection(
            db, command["create"], operation.get("ui") or new_uuid(), copy(options), indexes, kind, when
        )
        self.catalog.add(collection)

    def _apply_createIndexes(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.by_uuid(operation["ui"])
        assert collection
        collection.indexes.append({name: value for name, value in command.items() if name != "createIndexes"})

    def _apply_commitIndexBuild(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.by_uuid(operation["ui"])
        assert collection
        collection.indexes += [copy(index) for index in command["indexes"]]

    def _apply_dropIndexes(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.by_uuid(operation["ui"])
        assert collection
        collection.indexes = [index for index in collection.indexes if index["name"] != command["index"]]

    def _apply_collMod(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.find(f"{db}.{command['collMod']}")
        assert collection
        for name, value in command.items():
            if name == "collMod":
                continue
            if name == "index":
                for index in collection.indexes:
                    if index["name"] == value["name"]:
                        index |= {
                            option: item for option, item in value.items() if option not in ("name", "keyPattern")
                        }
                        if index.get("hidden") is False:
                            del index["hidden"]
                continue
            if name == "changeStreamPreAndPostImages" and not value.get("enabled"):
                collection.options.pop(name, None)
                continue
            if name == "validator" and not value:
                collection.options.pop(name, None)
                continue
            collection.options[name] = value
            if name == "validator":
                collection.options.setdefault("validationLevel", "strict")
                collection.options.setdefault("validationAction", "error")

    def _apply_shardCollection(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.by_uuid(operation["ui"])
        assert collection
        collection.shard_key = command["shardKey"]

    def _apply_refineCollectionShardKey(self, db: str, command: Document, operation: Document, when: Time) -> None:
        self._apply_shardCollection(db, command, operation, when)

    def _apply_reshardCollection(self, db: str, command: Document, operation: Document, when: Time) -> None:
        """It only says what follows."""

    def _apply_drop(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.find(f"{db}.{command['drop']}")
        if collection is not None:
            self.catalog.remove(collection)

    def _apply_renameCollection(self, db: str, command: Document, operation: Document, when: Time) -> None:
        collection = self.catalog.find(command["renameCollection"])
        assert collection
        target = self.catalog.find(command["to"])
        if target is not None:
            self.catalog.remove(target)
        self.catalog.remove(collection)
        collection.db, _, collection.name = command["to"].partition(".")
        if not command.get("stayTemp"):
            collection.options.pop("temp", None)
        self.catalog.add(collection)

    def _apply_dropDatabase(self, db: str, command: Document, operation: Document, when: Time) -> None:
        self.catalog.remove_database(db)

    # images

    def image(self, when: Time, index: int, uuid: Binary) -> Document | None:
        """The pre-image of a change; None when none was recorded or it has expired."""
        found = self.images.get((when, index))
        if found is None or found.uuid != uuid:
            return None
        expiry = self.parameters["image_expiry"]
        if expiry != "off" and found.wall + int(expiry) * 1000 < now_ms():
            return None
        return found.document
