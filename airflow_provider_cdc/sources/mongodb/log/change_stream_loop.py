"""The loop that reads a change stream: take a batch, have items made of it, wait.

A run that finds nothing loads no kernels: the reader of events is imported with the first ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.model.log_items import Heartbeat, LogItem
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import deployment_of, open_client, translate_driver_errors
from airflow_provider_cdc.sources.mongodb.log.reconnecting_cursor import ChangeStreamFeed, StreamReply
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mongodb.log.stream_event_reader import MongoEventReader

BOUNDED_WAIT_MS: Final = 20
"""Time that the server waits for an event while a caller waits for the end of the log."""


class ChangeStream:
    """Reads the change stream, from ``start`` on. Iterate :meth:`read_items` once.

    :param until: position to end at; ``None`` = continue until the caller stops
    :param patience: seconds after which the caller wants an item, at least a heartbeat; asked before each wait
    """

    def __init__(
        self,
        config: MongoDbConfig,
        start: MongoPosition,
        until: MongoPosition | None,
        tables: CapturedTableSchemas,
        metrics: MongoStreamMetrics,
        patience: Callable[[], float] | None = None,
    ) -> None:
        self._config, self._until, self._metrics, self._tables = config, until, metrics, tables
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._reader: MongoEventReader | None = None
        metrics.position = start

    def read_items(self) -> Iterator[LogItem]:
        """Yield the log items in their order, see :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`.

        :raises PositionLost: the oplog does not have the events behind the position
        :raises SourceUnavailable: there was no primary for longer than ``connect.max.attempts`` allow
        """
        if self._ended:
            return
        with contextlib.closing(open_client(self._config)) as client:
            with translate_driver_errors(self._config, str(self._position)):
                deployment = deployment_of(client)
            feed = ChangeStreamFeed(self._config, client, deployment, self._position, self._metrics)
            with contextlib.closing(feed):
                while not self._ended:
                    batch = feed.fetch_reply(self._wait_ms)
                    if batch is not None:
                        yield from self._items(batch, feed)
                    else:
                        yield Heartbeat(self._position)

    @property
    def _position(self) -> MongoPosition:
        assert self._metrics.position is not None
        return self._metrics.position

    @property
    def _ended(self) -> bool:
        return self._until is not None and self._position.has_reached(self._until)

    @property
    def _wait_ms(self) -> int:
        patience_ms = int(self._patience() * 1000)
        if self._until is not None:
            return min(patience_ms, BOUNDED_WAIT_MS)
        if self._config.cursor_max_await_time_ms:
            return min(patience_ms, self._config.cursor_max_await_time_ms)
        return patience_ms

    def _items(self, batch: StreamReply, feed: ChangeStreamFeed) -> Iterator[LogItem]:
        if batch.documents is not None:
            if self._reader is None:
                from airflow_provider_cdc.sources.mongodb.log.stream_event_reader import MongoEventReader

                self._reader = MongoEventReader(self._config, self._tables, self._until, self._metrics)
            if (yield from self._reader.read_items(batch.documents, batch.after, feed)):
                return
        elif self._reader is not None and (not feed.is_sharded or self._reader.is_past_transaction(batch.position)):
            yield from self._reader.close_transaction()  # a router may have nothing because it waits for the shard that has the rest
        if self._reader is None or not self._reader.has_unfinished_changes:
            self._metrics.advance_position(batch.position.whole_event_position)
            yield Heartbeat(self._position)
