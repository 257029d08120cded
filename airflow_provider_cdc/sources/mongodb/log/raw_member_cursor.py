"""A cursor whose replies are bytes, asked at the member where it was opened."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import bson
import pymongo.errors as driver
from bson.int64 import Int64

from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import ORDERED, RAW, Client, open_member_client

if TYPE_CHECKING:
    # a run that finds nothing does without kernels
    from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments

log = logging.getLogger(__name__)

BATCH_DOCUMENTS: Final = 100_000
"""Documents that a reply may have, at most."""
REPLY_BYTES: Final = 4 << 20
"""A reply shall not be much larger: the size of the last reply sets the number of documents. The server itself ends a reply at 16 MB."""

_SMALL: Final = 4096
"""Bytes of a reply up to which it is looked at as a whole: most often it has no document."""


@dataclass(frozen=True, slots=True)
class CursorReply:
    """A reply of a cursor.

    :param documents: ``None``: it has none
    :param token: the token behind everything that a change stream has looked at
    :param bare: it had none that were there before, either
    """

    documents: BsonDocuments | None
    token: dict[str, Any] | None
    bare: bool = True


class DeploymentMember:
    """A member of a replica set, or a router, for cursors; a context manager.

    It is the primary, unless the connection string has another read preference, and any of several that fit. A cursor that was opened at a primary stays
    there when it steps down. The driver's own client would look for it at the new primary.

    :param client: of the deployment; it finds the member
    :ivar cluster_time: that of the deployment, signed: a secondary may not have heard of a moment that it is asked for
    :ivar primary: of the replica set
    :raises pymongo.errors.PyMongoError: there is no such member now
    """

    def __init__(self, config: MongoDbConfig, client: Client) -> None:
        self.preference = client.read_preference
        with client.start_session(causal_consistency=False) as session:
            client.admin.command("ping", session=session, read_preference=self.preference)  # waits for such a member
            self.cluster_time = session.cluster_time
        servers = client.topology_description.apply_selector(self.preference)
        if not servers:
            raise driver.AutoReconnect("the member that was found is gone")
        self.primary = client.primary
        self.address = random.choice(servers).address
        self.client = open_member_client(config, self.address)

    def close(self) -> None:
        """Close its connections; may be called twice."""
        self.client.close()

    def __enter__(self) -> DeploymentMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RawCursor:
    """A cursor on a member.

    :param command: ``find`` or ``aggregate``
    :param seen: of a change stream, the order (:attr:`.MongoPosition.sort_key`) up to which events have been there before: a small reply that has no others is as one
        without any. A stream that begins at a moment gets the events of that moment once more.
    :raises pymongo.errors.PyMongoError: from all that asks
    """

    def __init__(self, member: DeploymentMember, database: str, command: Mapping[str, Any], *, seen: str = "") -> None:
        self._database, self._last_token, self._preference = member.client[database], seen, member.preference
        self._session = member.client.start_session(causal_consistency=False)
        if member.cluster_time is not None:
            self._session.advance_cluster_time(member.cluster_time)
        self._id, self._collection = 0, ""
        self._documents = BATCH_DOCUMENTS
        try:
            self.first = self._ask(command)
        except BaseException:
            self._session.end_session()
            raise

    @property
    def is_open(self) -> bool:
        """Check whether there may be more."""
        return self._id != 0

    def fetch_reply(self, *, wait_ms: int | None = None, documents: int | None = None) -> CursorReply:
        """Read the next batch.

        :param wait_ms: how long the server waits for a document, of cursors that wait
        """
        command: dict[str, Any] = {
            "getMore": self._id,
            "collection": self._collection,
            "batchSize": documents or self._documents,
        }
        if wait_ms is not None:
            command["maxTimeMS"] = wait_ms
        return self._ask(command)

    def close(self) -> None:
        """Have the server forget the cursor; may be called twice."""
        if self._id:
            with contextlib.suppress(driver.PyMongoError):  # it forgets it by itself in time
                self._database.command("killCursors", self._collection, cursors=[self._id], session=self._session)
            self._id = 0
        self._session.end_session()

    def _ask(self, command: Mapping[str, Any]) -> CursorReply:
        answered = self._database.command(
            dict(command), codec_options=RAW, session=self._session, read_preference=self._preference
        )
        raw = bytes(answered.raw)
        if len(raw) < _SMALL:
            cursor = bson.decode(raw, codec_options=ORDERED)["cursor"]
            documents = cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
            if not documents or (
                self._last_token and all(event["_id"]["_data"] <= self._last_token for event in documents)
            ):
                self._set_cursor(cursor["id"], cursor["ns"])
                return CursorReply(None, cursor.get("postBatchResumeToken"), bare=not documents)
        from airflow_provider_cdc.sources.mongodb.documents.server_reply import read_reply

        reply = read_reply(raw)
        self._set_cursor(reply.cursor_id, reply.namespace)
        if count := len(reply.documents):
            fitting = max(1, min(BATCH_DOCUMENTS, REPLY_BYTES * count // len(raw)))
            self._documents = 1 << (
                fitting.bit_length() - 1
            )  # the same for some time, whatever the documents' sizes are
        token = reply.post_batch_resume_token
        return CursorReply(
            reply.documents if len(reply.documents) else None, None if token is None else bson.decode(token)
        )

    def _set_cursor(self, number: int, name: str) -> None:
        self._id, self._collection = Int64(number), name.partition(".")[2]

    def __enter__(self) -> RawCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
