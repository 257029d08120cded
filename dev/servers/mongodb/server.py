"""The server: connections, and how a command is found, checked, run and answered."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import os
import ssl
from collections.abc import Iterable
from typing import Any

from bson import Int64, ObjectId, Timestamp
from bson.binary import Binary

from dev.servers.mongodb.access import auth, users
from dev.servers.mongodb.administration import (
    admin,
    authentication,
    authorization,
    member_commands,
    reconfig,
    session_commands,
    user_commands,
)
from dev.servers.mongodb.commands import (
    aggregation,
    combined_writes,
    crud,
    ddl,
    indexes,
    listings,
    plans,
    reads,
    shard_commands,
)
from dev.servers.mongodb.operation import write_concern
from dev.servers.mongodb.operation.context import Connection as ClientConnection
from dev.servers.mongodb.operation.context import Context
from dev.servers.mongodb.operation.cursors import Cursors
from dev.servers.mongodb.operation.registry import Command, find_command
from dev.servers.mongodb.query import joins, queries
from dev.servers.mongodb.replica_set import members, set_status
from dev.servers.mongodb.storage import transactions, ttl
from dev.servers.mongodb.storage.node import Node, Settings
from dev.servers.mongodb.storage.transactions import Sessions, WriteBlocked
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values import errors
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.wire import messages

LOG = logging.getLogger("mongodb.server")
NO_USER = hashlib.sha256(b"").digest()
TRANSACTION_LABEL_CODES = frozenset({24, 112, 189, 246, 251, 10107, 11602, 13435, 13436})
STATE_CHANGES = frozenset({189, 10107, 11602, 13435, 13436})
"""Errors that tell of a change of the member's state, and so carry the topology's version."""
COMMAND_MODULES = (
    admin,
    aggregation,
    authentication,
    combined_writes,
    crud,
    ddl,
    indexes,
    joins,
    listings,
    member_commands,
    plans,
    reads,
    reconfig,
    session_commands,
    shard_commands,
    user_commands,
)
"""Importing them registers their commands and stages."""


class Connection:
    """The connection of a client."""

    def __init__(self, server: Server, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.number, self.reader, self.writer = server, number, reader, writer
        self.user: users.User | None = None
        self.trusted = False
        """True if it is another member of the set."""
        self.speech: auth.Conversation | None = None
        self.service = ObjectId()
        """The router that a load balancer has brought it to: here each has one alone."""

    async def serve(self) -> None:
        """Answer until the client goes."""
        try:
            while True:
                header = await self.reader.readexactly(16)
                length = messages.HEADER.unpack(header)[0]
                if not 16 <= length <= messages.LARGEST_MESSAGE + 16384:
                    return
                data = await self.reader.readexactly(length - 16)
                message = messages.parse_message(header, data)
                reply = await self.server.answer(self, message.body)
                if reply is None:
                    return
                if not message.quiet:
                    self.writer.write(messages.reply(message, reply))
                    await self.writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, asyncio.CancelledError):
            return  # the client has gone, or the server ends
        except MongoError as error:
            LOG.warning("connection %s closed: %s", self.number, error.message)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self.server.connections.discard(self)
        self.writer.close()

    def certificate_subject(self) -> str | None:
        """The subject of the client's certificate, as X.509 users are named."""
        peer = self.writer.get_extra_info("ssl_object")
        return auth.subject(peer.getpeercert()) if peer is not None and peer.getpeercert() else None


class Server:
    """A member with its clients."""

    def __init__(self, settings: Settings) -> None:
        self.node = Node(settings)
        self.port = settings.port
        self.address = f"127.0.0.1:{settings.port}"
        self.pid = os.getpid()
        self.sessions = Sessions()
        self.cursors = Cursors()
        self.connections: set[Connection] = set()
        self.connected = 0
        self.router = False
        self.replication = members.Replication(self)
        self.users = users.Users(self.node)

    async def start(self) -> None:
        """Recover what was there, begin to listen, and let the replica set begin."""
        self.node.recover()
        self.replication.begin()
        context = auth.tls_context(self.node.settings.tls) if self.node.settings.tls else None
        self._listener = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, ssl=context, limit=2**20, backlog=200
        )
        self.replication.run()
        self._expiry = asyncio.create_task(ttl.watch(self.node, self.sessions))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        connection = Connection(self, self.connected, reader, writer)
        self.connections.add(connection)
        await connection.serve()

    # one command

    async def answer(self, connection: Connection | None, body: Document) -> Document | bytes | None:
        """The reply to a command; None when the connection shall be closed instead."""
        context = Context(self, connection, body)
        try:
            if self._failing(context):
                return None
            reply = await self._run(context)
        except MongoError as error:
            reply = self._failed(context, errors.of_atlas(error, context) if self.node.settings.atlas else error)
        except (KeyError, TypeError, AttributeError, ValueError, AssertionError, IndexError) as error:
            LOG.exception("command %s failed", context.name)
            reply = MongoError(8, f"the stand-in failed at {context.name}: {type(error).__name__}: {error}").reply()
        return {**reply, **self._gossip()}

    async def _run(self, context: Context) -> Document:
        body = context.body
        expected = find_command(context.name, body)
        if expected.admin_only and context.db != "admin":
            raise MongoError(13, f"{expected.name} may only be run against the admin database.")
        authorization.check(context, expected)
        self._check_state(context, expected)
        if "$clusterTime" in body:
            shard_commands.heard(context, body["$clusterTime"]["clusterTime"])
        context.enter()
        if context.transaction is not None and expected.name not in IN_TRANSACTION:
            raise MongoError(263, f"Cannot run '{expected.name}' in a multi-document transaction.")
        before, wrote = self.node.oplog.last, False
        while True:
            try:
                reply = expected.run(context, body)
                wrote = self.node.oplog.last != before
                if inspect.isawaitable(reply):
                    reply = await reply  # others write meanwhile
                    wrote = wrote or context.wrote
                break
            except WriteBlocked:
                await self.node.oplog.wait(0.1)
        if wrote:
            reply = await write_concern.wait_for_write_concern(self.replication, context, reply)
        return dict(reply)

    def _check_state(self, context: Context, wanted: Command) -> None:
        if wanted.open_to_all or self.node.settings.replica_set is None or self.node.primary:
            return
        if wanted.write:
            raise MongoError(10107, "not primary")
        if wanted.name == "killCursors" or (wanted.admin_only and wanted.name not in members.READS):
            return  # of cursors and of the set itself, which a member without data reports
        self.replication.check_readable(context.name, context.body)

    def rolled_back(self) -> None:
        """Close all cursors and connections, as a member that rolls back does."""
        self.cursors.close_all(lambda cursor: True)
        for connection in list(self.connections):
            if not connection.trusted:
                connection.close()

    def check_reader(self) -> None:
        """Raise when this member can no longer serve a reader."""
        self.replication.check_state()

    def _failed(self, context: Context, error: MongoError) -> Document:
        labels = set(error.labels)
        body = context.body
        if context.name == "aggregate" and _opens_stream(body) and error.code in errors.RESUMABLE:
            labels.add("ResumableChangeStreamError")
        if error.code in (280, 286):
            labels.add("NonResumableChangeStreamError")
        in_transaction = body.get("autocommit") is False
        if in_transaction and error.code in TRANSACTION_LABEL_CODES and context.name != "commitTransaction":
            labels.add("TransientTransactionError")
        if (
            in_transaction
            and context.transaction is not None
            and context.transaction.state == "open"
            and context.name not in ("commitTransaction",)
            and error.name != "WouldChangeOwningShard"
        ):
            transactions.abort(self.node, self.sessions, context.transaction)
        if "txnNumber" in body and not in_transaction and error.code in errors.RESUMABLE:
            labels.add("RetryableWriteError")
        reply = MongoError(error.code, error.message, tuple(sorted(labels)), **error.more).reply()
        if error.code in STATE_CHANGES:
            reply["topologyVersion"] = admin.topology_version(context)
        return reply

    def _failing(self, context: Context) -> bool:
        """Check whether a fail point closes the connection; raises when it fails the command."""
        point = self.node.fail_points.get("failCommand")
        if point is None or context.name not in point["data"].get("failCommands", []):
            return False
        if point["skip"] > 0:
            point["skip"] -= 1
            return False
        if point["left"] is not None:
            if point["left"] <= 0:
                return False
            point["left"] -= 1
        point["hits"] += 1
        data = point["data"]
        if data.get("closeConnection"):
            return True
        code = int(data.get("errorCode", 0))
        if code == 13388:
            raise MongoError(40671, "Missing required extra info for error code StaleConfig")
        if code:
            raise MongoError(code, "Failing command via 'failCommand' failpoint", tuple(data.get("errorLabels", ())))
        return False

    def _gossip(self) -> Document:
        if self.node.settings.replica_set is None:
            return {}
        signature = {"hash": Binary(b"\0" * 20, 0), "keyId": Int64(0)}
        return {
            "$clusterTime": {"clusterTime": Timestamp(*self.node.clock), "signature": signature},
            "operationTime": Timestamp(*self.node.oplog.last),
        }

    # what commands ask for

    def user_digest(self, connection: ClientConnection | None) -> Binary:
        """The digest of a connection's user, which is a part of the ids of its sessions."""
        user = connection.user if connection else None
        return Binary(hashlib.sha256(user.id.encode()).digest() if user else NO_USER, 0)

    async def await_topology(self, body: Document) -> None:
        """A ``hello`` that waits for news of the set."""
        version = body.get("topologyVersion")
        if not version or "maxAwaitTimeMS" not in body or version["processId"] != self.node.process:
            return
        await self.replication.news(int(version["counter"]), int(body["maxAwaitTimeMS"]) / 1000)

    def hello_auth(self, context: Context, body: Document) -> Document:
        """Return the part of ``hello`` about authentication."""
        return authentication.hello(context, body)

    def may_see(self, context: Context, collection: Collection) -> bool:
        """Check whether a list of collections shows this one to the user."""
        return authorization.may_see(context, collection)

    def may_list(self, context: Context, db: str) -> bool:
        """Check whether a list of databases shows this one to the user."""
        return authorization.may_list(context, db)

    def system_documents(self, db: str, name: str, query: Document) -> Iterable[Document]:
        """The documents of the collections that a server keeps itself."""
        test = queries.compile_filter(query)
        documents: list[Document] = []
        if (db, name) == ("local", "system.replset"):
            documents = [set_status.config(self.replication)]
        elif (db, name) == ("admin", "system.users"):
            documents = self.users.documents()
        return [document for document in documents if test(document)]


def _opens_stream(body: Document) -> bool:
    pipeline: Any = body.get("pipeline")
    return (
        isinstance(pipeline, list)
        and bool(pipeline)
        and isinstance(pipeline[0], dict)
        and "$changeStream" in pipeline[0]
    )


IN_TRANSACTION = frozenset(
    {"insert", "update", "delete", "find", "aggregate", "getMore", "findAndModify", "distinct", "create", "createIndexes", "commitTransaction",
     "abortTransaction", "bulkWrite", "killCursors", "count", "hello"}
)  # fmt: skip
