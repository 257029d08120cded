"""Reading and writing, within a transaction and without one; sessions with their retryable writes and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bson import Int64, Timestamp
from bson.binary import Binary

from dev.servers.mongodb.storage.node import Node
from dev.servers.mongodb.storage.versioned_collections import Collection, Key, Time, id_first, key_of
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, encode
from dev.servers.mongodb.values.errors import MongoError

TRANSIENT = ("TransientTransactionError",)
ENTRY_BYTES = 16 * 1024 * 1024
GROUP_BYTES = 256 * 1024
GROUP_DOCUMENTS = 500
DELETE_GROUP = 10
"""How many documents a delete of many puts into one entry."""


@dataclass
class Transaction:
    """An open transaction: what it has written, seen by itself only until it commits."""

    lsid: Document
    number: int
    at: Time
    operations: list[Document] = field(default_factory=list)
    overlay: dict[bytes, dict[Key, Document | None]] = field(default_factory=dict)
    new_collections: list[Collection] = field(default_factory=list)
    state: str = "open"
    new_indexes: list[tuple[Collection, Document]] = field(default_factory=list)


@dataclass
class Session:
    """A logical session, with its transaction or retryable write."""

    lsid: Document
    number: int = -1
    transaction: Transaction | None = None
    statements: dict[int, Document] = field(default_factory=dict)
    """What the statements of the retryable write of this number answered."""
    began_transaction: bool = False


class Sessions:
    """The sessions of a member, and which documents open transactions have written."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self.writing: dict[tuple[bytes, Key], Transaction] = {}

    def get(self, lsid: Document) -> Session:
        """The session of an id."""
        return self._sessions.setdefault(bytes(lsid["id"]), Session(lsid))

    def end(self, lsid: Document) -> Session | None:
        """Forget a session."""
        return self._sessions.pop(bytes(lsid["id"]), None)

    def release(self, transaction: Transaction) -> None:
        """Let go of the documents that a transaction has written."""
        for place in [place for place, owner in self.writing.items() if owner is transaction]:
            del self.writing[place]


class WriteBlocked(Exception):
    """An open transaction has written the document; the writer waits for its end."""


class View:
    """The data that a reader sees: now, at a cluster time, or within a transaction."""

    def __init__(self, transaction: Transaction | None = None, at: Time | None = None) -> None:
        self._transaction = transaction
        self._at = transaction.at if transaction else at

    def _own(self, collection: Collection) -> dict[Key, Document | None]:
        return self._transaction.overlay.get(bytes(collection.uuid), {}) if self._transaction else {}

    def get(self, collection: Collection, key: Key) -> Document | None:
        """The document of a key."""
        own = self._own(collection)
        return own[key] if key in own else collection.get(key, self._at)

    def documents(self, collection: Collection) -> Iterator[Document]:
        """All documents in the order in which they were written."""
        own = self._own(collection)
        if not own:
            yield from collection.documents(self._at)
            return
        seen = set()
        for document in collection.documents(self._at):
            key = key_of(document)
            seen.add(key)
            now = own.get(key, document)
            if now is not None:
                yield now
        for key, document in list(own.items()):
            if key not in seen and document is not None:
                yield document

    def by_id(self, collection: Collection, first: Key | None = None) -> Iterator[Document]:
        """All documents in the order of ``_id``."""
        if not self._own(collection):
            yield from collection.by_id(self._at, first=first)
            return
        found = sorted(self.documents(collection), key=key_of)
        yield from (document for document in found if first is None or key_of(document) >= first)


class Writer:
    """Writes operations: each as a separate entry, or into a transaction."""

    def __init__(
        self,
        node: Node,
        sessions: Sessions,
        transaction: Transaction | None = None,
        retry: Document | None = None,
        *,
        unchecked: bool = False,
    ) -> None:
        self._node, self._sessions, self.transaction, self._retry = node, sessions, transaction, retry
        self.unchecked = unchecked
        """True if documents are written that the collection's validator would refuse."""
        self.view = View(transaction)

    def check(self, collection: Collection, key: Key) -> None:
        """Raise when another transaction has written the document, or it is newer than this transaction."""
        owner = self._sessions.writing.get((bytes(collection.uuid), key))
        if owner is not None and owner is not self.transaction:
            if self.transaction is None:
                raise WriteBlocked
            raise MongoError(
                112, "Caused by :: Write conflict during plan execution and yielding is disabled.", TRANSIENT
            )
        if self.transaction is not None:
            record = collection.records.get(key)
            if record is not None and record.versions[-1][0] > self.transaction.at:
                raise MongoError(112, "Write conflict during plan execution and yielding is disabled.", TRANSIENT)

    def _write(self, collection: Collection, key: Key, document: Document | None, operation: Document) -> None:
        if self.transaction is None:
            after = document if operation["op"] == "u" else None
            self._node.write(operation, session=self._retry, after=after)
            return
        self.transaction.operations.append(operation)
        self.transaction.overlay.setdefault(bytes(collection.uuid), {})[key] = document
        self._sessions.writing[bytes(collection.uuid), key] = self.transaction

    def insert(self, collection: Collection, document: Document) -> None:
        """Insert one document."""
        key = key_of(document)
        self.check(collection, key)
        self._write(collection, key, document, self._insertion(collection, document))

    def _insertion(self, collection: Collection, document: Document) -> Document:
        shard = {name: document.get(name) for name in collection.shard_key or {} if name != "_id"}
        return {
            "op": "i",
            "ns": collection.namespace,
            "ui": collection.uuid,
            "o": document,
            "o2": {**shard, "_id": document["_id"]},
        }

    def insert_group(self, collection: Collection, documents: list[Document]) -> None:
        """Insert documents as one entry, as the server does for those of one command."""
        operations = []
        for document in documents:
            self.check(collection, key_of(document))
            operations.append(self._insertion(collection, document))
        self._node.write({"op": "c", "ns": "admin.$cmd", "o": {"applyOps": operations}, "multiOpType": 1})

    def update(self, collection: Collection, before: Document, after: Document, diff: Document | None) -> None:
        """Change one document: by a difference, or as a whole."""
        key = key_of(before)
        self.check(collection, key)
        o: Document = after if diff is None else {"$v": 2, "diff": diff}
        shard = {name: before.get(name) for name in collection.shard_key or {} if name != "_id"}
        self._write(
            collection,
            key,
            id_first(after),
            {
                "op": "u",
                "ns": collection.namespace,
                "ui": collection.uuid,
                "o": o,
                "o2": {**shard, "_id": before["_id"]},
            },
        )

    def delete(self, collection: Collection, before: Document) -> None:
        """Delete one document."""
        key = key_of(before)
        self.check(collection, key)
        self._write(collection, key, None, self._deletion(collection, before))

    def _deletion(self, collection: Collection, before: Document) -> Document:
        shard = {name: before.get(name) for name in collection.shard_key or {} if name != "_id"}
        return {"op": "d", "ns": collection.namespace, "ui": collection.uuid, "o": {**shard, "_id": before["_id"]}}

    def delete_group(self, collection: Collection, documents: list[Document]) -> None:
        """Delete documents as one entry, as the server does when it deletes many."""
        operations = []
        for document in documents:
            self.check(collection, key_of(document))
            operations.append(self._deletion(collection, document))
        self._node.write({"op": "c", "ns": "admin.$cmd", "o": {"applyOps": operations}})

    def command(self, db: str, o: Document, uuid: Binary | None, **more: Any) -> Timestamp | None:
        """Log a change of structure."""
        operation: Document = {
            "op": "c",
            "ns": f"{db}.$cmd",
            **({"ui": uuid} if uuid is not None else {}),
            "o": o,
            **more,
        }
        if self.transaction is None:
            return self._node.write(operation)
        self.transaction.operations.append(operation)
        return None

    @property
    def uncommitted(self) -> list[Collection]:
        """The collections that the transaction has made."""
        return self.transaction.new_collections if self.transaction else []


def commit(node: Node, sessions: Sessions, transaction: Transaction, at: Timestamp | None = None) -> None:
    """Write a transaction to the oplog, in as many entries as it takes, and apply it.

    :param at: time that its shards have agreed on; one that is over here, or a transaction of several entries, gets another one
    """
    transaction.state = "committed"
    sessions.release(transaction)
    for collection in transaction.new_collections:
        node.catalog.remove(collection)
    if not transaction.operations:
        return
    groups: list[list[Document]] = [[]]
    size = 0
    for operation in transaction.operations:
        length = len(encode(operation))
        if groups[-1] and size + length > ENTRY_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(operation)
        size += length
    session = {"lsid": transaction.lsid, "txnNumber": Int64(transaction.number)}
    before: Document = {"ts": Timestamp(0, 0), "t": Int64(-1)}
    count = 0
    for index, group in enumerate(groups):
        last = index == len(groups) - 1
        count += len(group)
        o: Document = {"applyOps": group}
        if not last:
            o["partialTxn"] = True
        elif len(groups) > 1:
            o["count"] = Int64(count)
        agreed = at if at is not None and len(groups) == 1 and (at.time, at.inc) > node.oplog.last else None
        if agreed is not None:
            node.clock = max(node.clock, (agreed.time, agreed.inc))
        entry = {"op": "c", "ns": "admin.$cmd", "o": o, "prevOpTime": before}
        stamp = node.write(entry, at=agreed, session=session)
        before = {"ts": stamp, "t": Int64(node.term)}


def abort(node: Node, sessions: Sessions, transaction: Transaction) -> None:
    """Throw away what a transaction has written."""
    transaction.state = "aborted"
    sessions.release(transaction)
    for collection in transaction.new_collections:
        node.catalog.remove(collection)


__all__ = ["Session", "Sessions", "Transaction", "View", "WriteBlocked", "Writer", "abort", "commit", "order"]
