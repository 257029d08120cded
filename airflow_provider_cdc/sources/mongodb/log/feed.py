"""The batches of a change stream, over elections, lost connections and invalidated cursors.

After each error that says no more than that the cursor or the member is gone, the stream is opened again behind the last event, at what is the
primary then.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pymongo.errors as driver

from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Client, Deployment
from airflow_provider_cdc.sources.mongodb.errors import FATAL, code_of, resumable, translate
from airflow_provider_cdc.sources.mongodb.log.cursor import Answer, Member, RawCursor
from airflow_provider_cdc.sources.mongodb.log.pipeline import beginning, stages, target
from airflow_provider_cdc.sources.mongodb.metrics import StreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition, is_mark, time_of
from airflow_provider_cdc.sources.mongodb.products import UNKNOWN, no_mongodb

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mongodb.documents.values import Documents

log = logging.getLogger(__name__)

SHORTEST_MS: Final = 1


@dataclass(slots=True)
class Batch:
    """What one reply has.

    :param documents: ``None``: nothing new
    :param after: events up to this position have been there before
    :param position: behind everything that the stream has looked at
    """

    documents: Documents | None
    after: MongoPosition
    position: MongoPosition


class Feed:
    """Reads one change stream.

    :param position: where it begins; events up to it may come again (:attr:`Batch.after`)
    """

    def __init__(
        self,
        config: MongoDbConfig,
        client: Client,
        deployment: Deployment,
        position: MongoPosition,
        metrics: StreamMetrics,
    ) -> None:
        self._config, self._client, self._deployment, self._metrics = config, client, deployment, metrics
        self._start = self.position = position
        self._member: Member | None = None
        self._cursor: RawCursor | None = None
        self._first: Answer | None = None
        self._shown = False
        """Whether this member has shown the event that the stream was opened behind, or a later one."""
        self._ended: MongoPosition | None = None
        """Behind the event with which the server has closed the stream."""
        self._attempts, self._again_at = 0, 0.0
        self._primary: tuple[str, int | None] | None = None

    @property
    def sharded(self) -> bool:
        """Whether a router puts the streams of several shards together: it may wait for some of them."""
        return self._deployment.sharded

    def next(self, wait_ms: int) -> Batch | None:
        """The next batch; ``None``: there is no primary now, or the cursor was lost, and it will be tried again.

        :param wait_ms: how long the server waits for an event
        :raises CdcError: the stream cannot go on
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

    def invalidated(self, position: MongoPosition) -> None:
        """The stream's last event says that there will be no more: it is opened again behind it."""
        self._drop()
        self._start = self.position = position

    def close(self) -> None:
        """Close the cursor and the connections of the stream; may be called twice."""
        self._drop()
        if self._member is not None:
            self._member.close()
            self._member = None

    def _reply(self, wait_ms: int) -> Answer:
        if self._cursor is None:
            self._open()
        if self._first is not None:
            reply, self._first = self._first, None
            return reply
        assert self._cursor is not None
        reply = self._cursor.more(wait_ms=wait_ms)
        self._attempts = 0  # a stream that can be opened, and not read, is lost each time
        return reply

    def _open(self) -> None:
        if self._member is None:
            self._member = Member(self._config, self._client)
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
            log.info("The change stream has no longer the event at %s: it begins at its moment.", self.position)
            self._cursor = self._opened(by_time=True)
        self._first = self._cursor.first

    def _opened(self, *, by_time: bool, bare: bool = False) -> RawCursor:
        assert self._member is not None
        database, what = target(self._config)
        pipeline = stages(self._config, self._deployment, beginning(self._begins, by_time=by_time))
        command = {
            "aggregate": what, "pipeline": pipeline[:1] if bare else pipeline, "cursor": {"batchSize": 1} if bare else {},
            "readConcern": {"level": "majority"},
        }  # fmt: skip
        return RawCursor(self._member, database, command, seen=self.position.order)

    @property
    def _begins(self) -> MongoPosition:
        """The position, or the event of its moment that closed the stream: one that began at the moment would be closed by that event again, and again."""
        ended = self._ended
        if ended is None or ended.token is None or self.position.token is not None or ended.time != self.position.time:
            return self.position
        return ended

    def _batch(self, reply: Answer) -> Batch:
        if reply.token is None:
            raise no_mongodb(UNKNOWN, self._config.address)
        documents, after = reply.documents, self.position
        if documents is not None:
            self._metrics.fetched(len(documents), int(documents.ends[-1] - documents.starts[0]))
        self._move(reply.token, quiet=documents is None and reply.bare)
        if self._cursor is not None and not self._cursor.open:
            self._ended = MongoPosition.behind(reply.token)
            self._drop()
        return Batch(documents, after, self.position)

    def _move(self, token: dict[str, object], *, quiet: bool) -> None:
        reached = MongoPosition.behind(token)
        data = str(token["_data"])
        # a member that has just become primary may not know yet that a majority has that event: what comes with it has not been looked at
        self._shown = self._shown or not quiet or data != self._begins.token
        if (
            quiet
            and self._shown
            and not self._deployment.sharded
            and not (is_mark(data) and time_of(data) <= self._start.time)
        ):
            # the server has come to the end of its oplog: there is no more of that moment. A router may still wait for other shards
            reached = MongoPosition(time_of(data))
        if reached.reached(self.position):
            self.position = reached

    def _lost(self, e: driver.PyMongoError) -> None:
        where = str(self.position)
        self._attempts += 1
        delays = self._attempts - 1  # the first try is at once: most often there is a primary already
        if not resumable(e) or delays > self._config.connect_max_attempts:
            raise translate(e, self._config, where) from None
        wait_ms = 0
        if delays:
            wait_ms = min(
                self._config.connect_backoff_initial_delay_ms * 2 ** (delays - 1),
                self._config.connect_backoff_max_delay_ms,
            )
        log.warning(
            "The change stream at %s was lost; it is opened again%s: %s", where, f" in {wait_ms / 1000:g} s" if wait_ms else "",
            translate(e, self._config).what,
        )  # fmt: skip
        self._metrics.disconnects += 1
        self._again_at = time.monotonic() + wait_ms / 1000
        self.close()

    def _drop(self) -> None:
        cursor, self._cursor, self._first = self._cursor, None, None
        if cursor is not None:
            cursor.close()
