"""The loop that reads a change stream: take a batch, have items made of it, wait.

A run that finds nothing loads no kernels: what reads events is imported with the first ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.model.log_items import Heartbeat, LogItem
from airflow_provider_cdc.core.spi.source import Tables
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import connect, deployment_of, translated
from airflow_provider_cdc.sources.mongodb.log.feed import Batch, Feed
from airflow_provider_cdc.sources.mongodb.metrics import StreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mongodb.log.reader import EventReader

BOUNDED_WAIT_MS: Final = 20
"""How long the server waits for an event while somebody waits for the end of the log."""


class ChangeStream:
    """Reads the change stream, from ``start`` on. Iterate :meth:`items` once.

    :param until: position to end at; ``None`` = go on until the caller stops
    :param patience: seconds after which the caller wants an item, at least a heartbeat; asked before each wait
    """

    def __init__(
        self,
        config: MongoDbConfig,
        start: MongoPosition,
        until: MongoPosition | None,
        tables: Tables,
        metrics: StreamMetrics,
        patience: Callable[[], float] | None = None,
    ) -> None:
        self._config, self._until, self._metrics, self._tables = config, until, metrics, tables
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._reader: EventReader | None = None
        metrics.position = start

    def items(self) -> Iterator[LogItem]:
        """The log items in their order, see :meth:`airflow_provider_cdc.core.spi.source.Source.stream`.

        :raises PositionLost: the oplog does not have what comes behind the position
        :raises SourceUnavailable: there was no primary for longer than ``connect.max.attempts`` allow
        """
        if self._ended:
            return
        with contextlib.closing(connect(self._config)) as client:
            with translated(self._config, str(self._position)):
                deployment = deployment_of(client)
            feed = Feed(self._config, client, deployment, self._position, self._metrics)
            with contextlib.closing(feed):
                while not self._ended:
                    batch = feed.next(self._wait_ms)
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
        return self._until is not None and self._position.reached(self._until)

    @property
    def _wait_ms(self) -> int:
        patience_ms = int(self._patience() * 1000)
        if self._until is not None:
            return min(patience_ms, BOUNDED_WAIT_MS)
        if self._config.cursor_max_await_time_ms:
            return min(patience_ms, self._config.cursor_max_await_time_ms)
        return patience_ms

    def _items(self, batch: Batch, feed: Feed) -> Iterator[LogItem]:
        if batch.documents is not None:
            if self._reader is None:
                from airflow_provider_cdc.sources.mongodb.log.reader import EventReader

                self._reader = EventReader(self._config, self._tables, self._until, self._metrics)
            if (yield from self._reader.items(batch.documents, batch.after, feed)):
                return
        elif self._reader is not None and (not feed.sharded or self._reader.passed(batch.position)):
            yield from self._reader.closed()  # a router may have nothing because it waits for the shard that has the rest
        if self._reader is None or not self._reader.within:
            self._metrics.move(batch.position.whole)
            yield Heartbeat(self._position)
