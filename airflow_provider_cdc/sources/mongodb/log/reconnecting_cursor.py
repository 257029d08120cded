"""The batches of a change stream, over elections, lost connections and invalidated cursors.

After each error that says no more than that the cursor or the member is gone, the stream is opened again behind the last event, at the
present primary.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pymongo.errors as driver

from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Client, Deployment
from airflow_provider_cdc.sources.mongodb.errors import FATAL, code_of, is_resumable, translate_error
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import CursorReply, DeploymentMember, RawCursor
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import (
    build_stages,
    build_start_option,
    resolve_aggregate_scope,
)
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition, is_mark, time_of
from airflow_provider_cdc.sources.mongodb.product_checks import UNKNOWN, no_mongodb

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments

log = logging.getLogger(__name__)

SHORTEST_MS: Final = 1


@dataclass(slots=True)
class StreamReply:
    """The content of one reply.

    :param documents: ``None``: nothing new
    :param after: events up to this position have been there before
    :param position: behind everything that the stream has looked at
    """

    documents: BsonDocuments | None
    after: MongoPosition
    position: MongoPosition


class ChangeStreamFeed:
    """Reads one change stream.

    :param position: where it begins; events up to it may come again (:attr:`StreamReply.after`)
    """

    def __init__(
        self,
        config: MongoDbConfig,
        client: Client,
        deployment: Deployment,
        position: MongoPosition,
        metrics: MongoStreamMetrics,
    ) -> None:
        self._config, self._client, self._deployment, self._metrics = config, client, deployment, metrics
        self._start = self.position = position
        self._member: DeploymentMember | None = None
        self._cursor: RawCursor | None = None
        self._first: CursorReply | None = None
        self._shown = False
        """Whether this member has shown the event that the stream was opened behind, or a later one."""
        self._ended: MongoPosition | None = None
        """Behind the event with which the server has closed the stream."""
        self._attempts, self._again_at = 0, 0.0
        self._primary: tuple[str, int | None] | None = None

    @property
    def is_sharded(self) -> bool:
        """Check whether a router puts the streams of several shards together: it may wait for some of them."""
        return self._deployment.is_sharded

    def fetch_reply(self, wait_ms: int) -> StreamReply | None:
        """Read the next batch; ``None``: there is no primary now, or the cursor was lost, and it will be tried again.

        :param wait_ms: how long the server waits for an event
        :raises CdcError: the stream cannot continue
        """
        if time.monotonic() < self._again_at:
            time.sleep(min(wait_ms / 1000, max(self._again_at - time.monotonic(), 0)))
            return None
        try:
            reply = self._reply(max(wait_ms, SHORTEST_MS))
        except driver.PyMongoError as e:
            self._lost(e)
            return None
        return self._batch(reply)

    def handle_invalidation(self, position: MongoPosition) -> None:
        """Open the stream again behind its last event, which says that there will be no more."""
        self._drop()
        self._start = self.position = position

    def close(self) -> None:
        """Close the cursor and the connections of the stream; may be called twice."""
        self._drop()
        if self._member is not None:
            self._member.close()
            self._member = None

    def _reply(self, wait_ms: int) -> CursorReply:
        if self._cursor is None:
            self._open()
        if self._first is not None:
            reply, self._first = self._first, None
            return reply
        assert self._cursor is not None
        reply = self._cursor.fetch_reply(wait_ms=wait_ms)
        self._attempts = 0  # a stream that can be opened, and not read, is lost each time
        return reply

    def _open(self) -> None:
        if self._member is None:
            self._member = DeploymentMember(self._config, self._client)
            if self._primary not in (None, self._member.primary):
                self._metrics.elections += 1
            self._primary, self._shown = self._member.primary, False
        self._start = self.position
        try:
            self._cursor = self._opened(by_time=False)
        except driver.PyMongoError as e:
            if code_of(e) != FATAL or self.position.token is None:
                raise
            # the stream does not have the event that the token is of: the deployment has it, or this fails, too
            with self._opened(by_time=False, bare=True):
                pass
            log.info(
                "The change stream no longer contains the event at %s: it starts at the cluster time of the event.",
                self.position,
            )
            self._cursor = self._opened(by_time=True)
        self._first = self._cursor.first

    def _opened(self, *, by_time: bool, bare: bool = False) -> RawCursor:
        assert self._member is not None
        database, scope = resolve_aggregate_scope(self._config)
        pipeline = build_stages(self._config, self._deployment, build_start_option(self._begins, by_time=by_time))
        command = {
            "aggregate": scope, "pipeline": pipeline[:1] if bare else pipeline, "cursor": {"batchSize": 1} if bare else {},
            "readConcern": {"level": "majority"},
        }  # fmt: skip
        return RawCursor(self._member, database, command, seen=self.position.sort_key)

    @property
    def _begins(self) -> MongoPosition:
        """The position, or the event of its moment that closed the stream: one that began at the moment would be closed by that event again, and again."""
        ended = self._ended
        if ended is None or ended.token is None or self.position.token is not None or ended.time != self.position.time:
            return self.position
        return ended

    def _batch(self, reply: CursorReply) -> StreamReply:
        if reply.token is None:
            raise no_mongodb(UNKNOWN, self._config.display_address)
        documents, after = reply.documents, self.position
        if documents is not None:
            self._metrics.count_reply(len(documents), int(documents.ends[-1] - documents.starts[0]))
        self._move(reply.token, quiet=documents is None and reply.bare)
        if self._cursor is not None and not self._cursor.is_open:
            self._ended = MongoPosition.from_resume_token(reply.token)
            self._drop()
        return StreamReply(documents, after, self.position)

    def _move(self, token: dict[str, object], *, quiet: bool) -> None:
        reached = MongoPosition.from_resume_token(token)
        data = str(token["_data"])
        # a member that has just become primary may not know yet that a majority has that event: the events that come with it have not been looked at
        self._shown = self._shown or not quiet or data != self._begins.token
        if (
            quiet
            and self._shown
            and not self._deployment.is_sharded
            and not (is_mark(data) and time_of(data) <= self._start.time)
        ):
            # the server has come to the end of its oplog: there is no more of that moment. A router may still wait for other shards
            reached = MongoPosition(time_of(data))
        if reached.has_reached(self.position):
            self.position = reached

    def _lost(self, e: driver.PyMongoError) -> None:
        where = str(self.position)
        self._attempts += 1
        delays = self._attempts - 1  # the first try is at once: most often there is a primary already
        if not is_resumable(e) or delays > self._config.connect_max_attempts:
            raise translate_error(e, self._config, where) from None
        wait_ms = 0
        if delays:
            wait_ms = min(
                self._config.connect_backoff_initial_delay_ms * 2 ** (delays - 1),
                self._config.connect_backoff_max_delay_ms,
            )
        log.warning(
            "The connection of the change stream at %s was lost; the stream is opened again%s: %s", where, f" in {wait_ms / 1000:g} s" if wait_ms else "",
            translate_error(e, self._config).message,
        )  # fmt: skip
        self._metrics.disconnects += 1
        self._again_at = time.monotonic() + wait_ms / 1000
        self.close()

    def _drop(self) -> None:
        cursor, self._cursor, self._first = self._cursor, None, None
        if cursor is not None:
            cursor.close()
