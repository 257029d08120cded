"""The context of a running command: its client, session and transaction, and the data that it may read and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Protocol

from bson import Int64, ObjectId, Timestamp
from bson.binary import Binary

from dev.servers.mongodb.access.auth import Conversation
from dev.servers.mongodb.access.users import User, Users
from dev.servers.mongodb.operation.cursors import Cursor, Cursors
from dev.servers.mongodb.replica_set.members import Replication
from dev.servers.mongodb.storage import transactions
from dev.servers.mongodb.storage.node import Node
from dev.servers.mongodb.storage.transactions import Session, Sessions, Transaction, View, Writer
from dev.servers.mongodb.storage.versioned_collections import Collection, Time
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

FIRST_ELECTION = "7fffffff00000000"


class Connection(Protocol):
    """The part of the client's connection that a command sees."""

    number: int
    user: User | None
    trusted: bool
    """True if it is another member of the set."""
    speech: Conversation | None
    service: ObjectId

    def certificate_subject(self) -> str | None:
        """The subject of the client's certificate, as X.509 users are named."""


class Server(Protocol):
    """The part of the server that a command sees."""

    node: Node
    port: int
    address: str
    pid: int
    sessions: Sessions
    cursors: Cursors
    connected: int
    router: bool
    replication: Replication
    users: Users

    @property
    def connections(self) -> Sized:
        """The connections that are open."""

    def check_reader(self) -> None:
        """Raise when this member can no longer serve a reader."""

    def user_digest(self, connection: Connection | None) -> Binary:
        """The digest of a connection's user, which is a part of the ids of its sessions."""

    async def await_topology(self, body: Document) -> None:
        """A ``hello`` that waits for news of the set."""

    def hello_auth(self, context: Context, body: Document) -> Document:
        """Return the part of ``hello`` about authentication."""

    def may_see(self, context: Context, collection: Collection) -> bool:
        """Check whether a list of collections shows this one to the user."""

    def may_list(self, context: Context, db: str) -> bool:
        """Check whether a list of databases shows this one to the user."""

    def system_documents(self, db: str, name: str, query: Document) -> Iterable[Document]:
        """The documents of the collections that a server keeps itself."""


class Context:
    """The context that a command works in."""

    def __init__(self, server: Server, connection: Connection | None, body: Document) -> None:
        self.server, self.connection, self.body = server, connection, body
        self.db: str = body.get("$db", "admin")
        self.name = next(iter(body))
        self.session: Session | None = None
        self.transaction: Transaction | None = None
        self.retry: Document | None = None
        self._statement = 0
        self.wrote = False

    # sessions

    def enter(self) -> None:
        """Find the session, and the transaction or retryable write that the command belongs to."""
        body = self.body
        if "lsid" not in body:
            return
        self.session = self.server.sessions.get(body["lsid"])
        if "txnNumber" not in body:
            return
        number = int(body["txnNumber"])
        if self.server.node.settings.replica_set is None:
            raise MongoError(20, "Transaction numbers are only allowed on a replica set member or mongos")
        if body.get("autocommit") is False:
            self._enter_transaction(number)
        else:
            self._enter_retry(number)

    def _enter_retry(self, number: int) -> None:
        session = self.session
        assert session
        if number < session.number:
            raise MongoError(
                225,
                f"Retryable write with txnNumber {number} is prohibited on session because a newer retryable write with txnNumber "
                f"{session.number} has already started on this session.",
            )
        if number > session.number:
            self._leave_open_transaction(session)
            session.number, session.statements, session.began_transaction = number, {}, False
        elif session.began_transaction:
            raise MongoError(
                50768 if session.transaction else 225,
                "Cannot use a transaction number of a transaction for a retryable write",
            )
        if self.db == "local":
            raise MongoError(20, "Retryable writes are not supported in the local database")
        self.retry = {"lsid": self.full_lsid(), "txnNumber": Int64(number), "stmtId": 0}

    def _leave_open_transaction(self, session: Session) -> None:
        if session.transaction and session.transaction.state == "open":
            transactions.abort(self.server.node, self.server.sessions, session.transaction)

    def _enter_transaction(self, number: int) -> None:
        session = self.session
        assert session
        if self.body.get("startTransaction"):
            if number < session.number:
                raise MongoError(
                    225,
                    f"Cannot start transaction {number} on session because a newer transaction {session.number} has already started.",
                )
            if number == session.number and session.transaction is not None and session.transaction.state != "aborted":
                raise MongoError(117, "a transaction with this number is in progress")
            self._leave_open_transaction(session)
            # a transaction sees what its primary has, whether a majority has it or not
            at = self._snapshot_asked() or self.server.node.oplog.last
            session.number, session.began_transaction = number, True
            session.transaction = Transaction(self.full_lsid(), number, at)
        elif number < session.number:
            raise MongoError(225, f"Transaction {number} is older than {session.number}")
        found = session.transaction
        if found is None or found.number != number or found.state == "aborted":
            raise MongoError(
                251,
                f"Given transaction number {number} does not match any in-progress transactions.",
                transactions.TRANSIENT,
            )
        if found.state == "committed" and self.name not in ("commitTransaction",):
            raise MongoError(256, f"Transaction {number} has been committed.")
        self.transaction = found

    def _snapshot_asked(self) -> Time | None:
        stamp = self.body.get("readConcern", {}).get("atClusterTime")
        return (stamp.time, stamp.inc) if stamp is not None else None

    def full_lsid(self) -> Document:
        """The session's id with the digest of its user."""
        lsid = dict(self.body["lsid"])
        lsid.setdefault("uid", self.server.user_digest(self.connection))
        return lsid

    def fail_transaction(self, error: MongoError) -> None:
        """A failed write ends its transaction, and is the command's error there."""
        if self.transaction is not None and error.name != "WouldChangeOwningShard":
            transactions.abort(self.server.node, self.server.sessions, self.transaction)
            raise error

    def retried(self, statements: range, *, modified: bool = False) -> Document | None:
        """The reply to a retryable write that was done before."""
        if self.retry is None or self.session is None or self.session.number not in (int(self.body["txnNumber"]),):
            return None
        done = self.session.statements.get(0)
        if done is None:
            return None
        out = {name: value for name, value in done.items() if name not in ("ok", "opTime", "electionId")}
        reply: Document = {"n": out.pop("n"), **self.election(), **out, "retriedStmtIds": list(statements), "ok": 1.0}
        return reply

    # writing

    def must_write(self) -> None:
        """Raise unless this member is the primary and the database can be written."""
        if not self.server.node.primary:
            raise MongoError(10107, "not primary")
        if self.db in ("local", "config") and self.name in ("insert", "update", "delete") and self.transaction:
            raise MongoError(263, f"Cannot write to the {self.db} database in a transaction")

    def writer(self) -> Writer:
        """Return the writer for the changes of this command."""
        self.wrote = True
        retry = self.retry
        if retry is not None:
            retry = {**retry, "stmtId": self._statement}
        unchecked = bool(self.body.get("bypassDocumentValidation"))
        return Writer(self.server.node, self.server.sessions, self.transaction, retry, unchecked=unchecked)

    def service(self) -> ObjectId | None:
        """The router behind a load balancer that this connection leads to."""
        return self.connection.service if self.connection is not None else None

    def election(self) -> Document:
        """Return the fields of write replies in a replica set about the election and the last operation."""
        node = self.server.node
        if node.settings.replica_set is None:
            return {}
        optime = (
            {"ts": Timestamp(*self.transaction.at), "t": Int64(node.term)} if self.transaction else node.last_optime()
        )
        return {"electionId": self.election_id(), "opTime": optime}

    def election_id(self) -> ObjectId:
        """The id of the election that made this member primary."""
        return ObjectId(f"{FIRST_ELECTION}{self.server.node.term:08x}")

    def written(self, count: int, errors: list[Document], more: Document, modified: int | None = None) -> Document:
        """The reply of a write command."""
        reply: Document = {"n": count, **self.election()}
        if errors:
            reply["writeErrors"] = errors
        reply |= more
        if modified is not None:
            reply["nModified"] = modified
        reply["ok"] = 1.0
        if self.retry is not None and self.session is not None and not errors:
            self.session.statements[0] = dict(reply)
        return reply

    # reading

    def collection(self, name: Any) -> Collection | None:
        """A collection of the command's database."""
        if not isinstance(name, str) or not name:
            raise MongoError(73, f"Invalid namespace specified '{self.db}.{name}'")
        return self.server.node.catalog.find(f"{self.db}.{name}")

    async def reading(self, body: Document) -> View:
        """Return the view of the data that the command's read concern allows."""
        node = self.server.node
        if self.transaction is not None:
            return View(self.transaction)
        concern = body.get("readConcern", {})
        level = concern.get("level", "local")
        if level not in ("local", "majority", "available", "linearizable", "snapshot"):
            raise MongoError(9, f"Enumeration value '{level}' for field 'readConcern.level' is not a valid value.")
        await self._after(concern.get("afterClusterTime"))
        if level == "snapshot":
            return View(at=await self._snapshot(concern))
        if level == "majority":
            await self._committed(concern.get("afterClusterTime"))
        return View(at=node.seen if level == "majority" and node.majority is not None else None)

    async def _committed(self, stamp: Timestamp | None) -> None:
        """Wait until a majority has what was written up to a time: a reader that asks for it sees nothing else."""
        while stamp is not None and self.server.node.seen < (stamp.time, stamp.inc):
            await self.server.node.oplog.wait(0.5)

    async def _snapshot(self, concern: Document) -> Time:
        node = self.server.node
        stamp = concern.get("atClusterTime")
        at = (stamp.time, stamp.inc) if stamp is not None else node.seen
        if stamp is not None and at > node.clock:
            raise MongoError(
                72,
                f"readConcern atClusterTime value must not be greater than the current clusterTime. Requested clusterTime: {stamp}",
            )
        if at[0] < time.time() - 300 and at < node.seen:
            raise MongoError(239, f"Read timestamp {stamp} is older than the oldest available timestamp.")
        self.at = Timestamp(*at)
        await self._committed(stamp)
        return at

    at: Timestamp | None = None

    async def _after(self, stamp: Timestamp | None) -> None:
        if stamp is None:
            return
        node = self.server.node
        expected = (stamp.time, stamp.inc)
        if expected > node.clock and expected[0] > time.time() + 60:
            raise MongoError(72, "readConcern afterClusterTime value must not be greater than the current clusterTime.")
        while node.oplog.last < expected:
            if node.primary:
                node.clock = max(node.clock, expected)
                node.noop({"msg": "noop for afterClusterTime"})
            else:
                await node.oplog.wait(0.5)

    def opened(
        self, documents: Iterable[Document], namespace: str, size: int, *, single: bool = False, tail: Any = None
    ) -> Document:
        """The reply of a command that opens a cursor."""
        cursor = Cursor(namespace, iter(documents), at=self.at, transaction=self.transaction, service=self.service())
        batch, more = cursor.batch(size)
        if more and not single and size:
            following = next(cursor.documents, None) if not cursor.held else None
            if following is not None:
                cursor.held.append(following)
            more = bool(cursor.held)
        if tail is not None:
            cursor.tail, cursor.tail_place, more = tail, self.server.node.oplog.last, True
        number = self.server.cursors.add(cursor) if more and not single else 0
        out: Document = {"firstBatch": batch, "id": Int64(number), "ns": namespace}
        if self.at is not None:
            out["atClusterTime"] = self.at
        return {"cursor": out, "ok": 1.0}

    def system_documents(self, name: str, query: Document) -> Iterator[Document]:
        """The documents of collections that the server keeps itself."""
        return iter(self.server.system_documents(self.db, name, query))


async def pause() -> None:
    """Let other tasks run."""
    await asyncio.sleep(0.005)
