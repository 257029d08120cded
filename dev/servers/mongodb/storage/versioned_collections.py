"""Collections of documents with their versions: what is there now, and what was there at a cluster time.

A collection keeps the versions of the last five minutes, as reads at a cluster time and transactions need them.
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bson import Timestamp
from bson.binary import Binary

from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, copy

Key = tuple[Any, ...]
Time = tuple[int, int]
HISTORY_SECONDS = 300
SWEEP_EVERY = 10_000
ID_INDEX: Document = {"v": 2, "key": {"_id": 1}, "name": "_id_"}


def time_of(stamp: Timestamp) -> Time:
    """A timestamp as a pair that compares fast."""
    return stamp.time, stamp.inc


def new_uuid() -> Binary:
    """A UUID as the server gives it to a collection."""
    return Binary(uuid.uuid4().bytes, 4)


@dataclass
class Record:
    """The versions of one document, oldest first; None is its deletion."""

    versions: list[tuple[Time, Document | None]]

    @property
    def now(self) -> Document | None:
        """The newest version."""
        return self.versions[-1][1]

    def at(self, time: Time) -> Document | None:
        """The version that was there at a time."""
        for when, document in reversed(self.versions):
            if when <= time:
                return document
        return None


@dataclass
class Collection:
    """A collection: its options, its indexes and its documents in the order in which they were written."""

    db: str
    name: str
    uuid: Binary
    options: Document = field(default_factory=dict)
    indexes: list[Document] = field(default_factory=list)
    kind: str = "collection"
    created_at: Time = (0, 0)
    shard_key: Document | None = None
    records: dict[Key, Record] = field(default_factory=dict)
    _ordered: list[Key] | None = None
    _puts: int = 0

    @property
    def namespace(self) -> str:
        """The name with its database."""
        return f"{self.db}.{self.name}"

    @property
    def images(self) -> bool:
        """True if pre- and post-images are recorded."""
        return bool(self.options.get("changeStreamPreAndPostImages", {}).get("enabled"))

    @property
    def capped(self) -> bool:
        """True if old documents make room for new ones."""
        return bool(self.options.get("capped"))

    def get(self, key: Key, at: Time | None = None) -> Document | None:
        """The document of a key, now or at a time."""
        record = self.records.get(key)
        if record is None:
            return None
        return record.now if at is None else record.at(at)

    def put(self, key: Key, document: Document | None, when: Time) -> None:
        """A new version of a document; None deletes it."""
        self._puts += 1
        if self._puts % SWEEP_EVERY == 0:
            self._sweep(when[0] - HISTORY_SECONDS)
        record = self.records.get(key)
        if record is None or (record.now is None and document is not None):
            versions = self.records.pop(key).versions if record else []
            self.records[key] = Record([*versions, (when, document)])
            if self._ordered is not None and record is None:
                bisect.insort(self._ordered, key)
            return
        if record.versions[0][0][0] < when[0] - HISTORY_SECONDS:
            self._forget(record, when[0] - HISTORY_SECONDS)
        record.versions.append((when, document))

    def _sweep(self, before: int) -> None:
        """Forget documents that were deleted before the oldest time that can still be read."""
        for key in [
            key for key, record in self.records.items() if record.now is None and record.versions[-1][0][0] < before
        ]:
            del self.records[key]
            self._ordered = None

    @staticmethod
    def _forget(record: Record, before: int) -> None:
        while len(record.versions) > 1 and record.versions[1][0][0] < before:
            del record.versions[0]

    def documents(self, at: Time | None = None) -> Iterator[Document]:
        """All documents in the order in which they were written."""
        for record in list(self.records.values()):
            document = record.now if at is None else record.at(at)
            if document is not None:
                yield document

    def by_id(self, at: Time | None = None, *, first: Key | None = None) -> Iterator[Document]:
        """All documents in the order of ``_id``, from a key on."""
        if self._ordered is None:
            self._ordered = sorted(self.records)
        keys = self._ordered
        for key in keys[bisect.bisect_left(keys, first) if first is not None else 0 :]:
            document = self.get(key, at)
            if document is not None:
                yield document

    def count(self) -> int:
        """Count the documents."""
        return sum(1 for record in self.records.values() if record.now is not None)

    def all_indexes(self) -> list[Document]:
        """The indexes, that of ``_id`` first."""
        return self.indexes


def id_first(document: Document) -> Document:
    """A document as it is stored: with its ``_id`` in front."""
    if "_id" not in document or next(iter(document)) == "_id":
        return document
    return {"_id": document["_id"], **document}


def key_of(document: Document) -> Key:
    """The key of a document's ``_id``."""
    return order.key(document["_id"])


@dataclass
class Catalog:
    """The databases and their collections."""

    databases: dict[str, dict[str, Collection]] = field(default_factory=dict)
    _by_uuid: dict[bytes, Collection] = field(default_factory=dict)

    def find(self, namespace: str) -> Collection | None:
        """The collection or view of a namespace."""
        db, _, name = namespace.partition(".")
        return self.databases.get(db, {}).get(name)

    def by_uuid(self, uuid: Binary) -> Collection | None:
        """The collection of a UUID."""
        return self._by_uuid.get(bytes(uuid))

    def add(self, collection: Collection) -> None:
        """Put a collection in its place."""
        self.databases.setdefault(collection.db, {})[collection.name] = collection
        self._by_uuid[bytes(collection.uuid)] = collection

    def remove(self, collection: Collection) -> None:
        """Take a collection out; a database without collections is gone."""
        collections = self.databases.get(collection.db, {})
        collections.pop(collection.name, None)
        self._by_uuid.pop(bytes(collection.uuid), None)
        if not collections:
            self.databases.pop(collection.db, None)

    def remove_database(self, name: str) -> None:
        """Take out a database with all its collections."""
        for collection in list(self.databases.get(name, {}).values()):
            self.remove(collection)


__all__ = [
    "HISTORY_SECONDS",
    "ID_INDEX",
    "Catalog",
    "Collection",
    "Key",
    "Record",
    "Time",
    "copy",
    "id_first",
    "key_of",
    "new_uuid",
    "time_of",
]
