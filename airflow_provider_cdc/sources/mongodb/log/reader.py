"""Makes log items of the documents of a change stream, in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

import numpy as np

from airflow_provider_cdc.core.errors import CdcError, SourceLogDamaged
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem
from airflow_provider_cdc.core.spi.source import Tables
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.documents.change_events import INSERT, OTHER, ChangeEvents, read_events
from airflow_provider_cdc.sources.mongodb.documents.errors import DocumentError
from airflow_provider_cdc.sources.mongodb.documents.values import Documents
from airflow_provider_cdc.sources.mongodb.field_projection import Shaping
from airflow_provider_cdc.sources.mongodb.field_rules import parts_of
from airflow_provider_cdc.sources.mongodb.log import ddl_events
from airflow_provider_cdc.sources.mongodb.log.blocks import BlockBuilder, position_at, up_to
from airflow_provider_cdc.sources.mongodb.log.feed import Feed
from airflow_provider_cdc.sources.mongodb.log.shard_moves import Ints
from airflow_provider_cdc.sources.mongodb.log.split_events import Parts
from airflow_provider_cdc.sources.mongodb.metrics import StreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition


class EventReader:
    """Reads the events of one stream, batch by batch.

    :param until: position that no event is given behind; ``None``: there is none
    """

    def __init__(
        self,
        config: MongoDbConfig,
        tables: Tables,
        until: MongoPosition | None,
        metrics: StreamMetrics,
    ) -> None:
        self._until, self._tables, self._metrics = until, tables, metrics
        self._blocks = BlockBuilder(tables, Shaping(config))
        self._parts = Parts()
        named = config.signal_data_collection
        self._signals = None if named is None else parts_of(named)

    @property
    def within(self) -> bool:
        """Whether the stream has come to within a transaction, or an event of several parts: no offset may be there."""
        return self._blocks.open or self._parts.open

    def passed(self, position: MongoPosition) -> bool:
        """Whether a position is behind the moment of the open transaction: no more rows of it come."""
        return self._blocks.passed(position)

    def items(self, documents: Documents, after: MongoPosition, feed: Feed) -> Generator[LogItem, None, bool]:
        """The items of a batch. Gives whether the stream ends, or begins anew, within it.

        :param after: events up to this position have been there before
        """
        with self._damage():
            events = self._whole(read_events(documents))
        if events is None:
            return False
        at, end = up_to(events, after.order), len(events)
        if self._until is not None:
            end = up_to(events, self._until.order)
        others = np.flatnonzero(events.operation[at:end] == OTHER) + at
        for other in [*others.tolist(), end]:
            for first, last in self._parted(events, at, other):
                yield from self._rows(events, np.arange(first, last, dtype=np.int64))
            if other < end and (yield from self._other(events, other, feed)):
                return True
            at = other + 1
        if end == len(events):
            return False
        assert self._until is not None
        yield from self.closed()
        self._metrics.move(self._until)
        yield Heartbeat(self._until)
        return True

    def _parted(self, events: ChangeEvents, at: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of events that end behind each insert into the signalling collection: a signal is taken before what follows it."""
        if self._signals is not None and at < end:
            indices, names = events.namespaces
            numbers = [number for number, name in enumerate(names) if name == self._signals]
            signals = np.isin(indices[at:end], numbers) & (events.operation[at:end] == INSERT)
            for behind in (np.flatnonzero(signals) + at + 1).tolist():
                yield at, behind
                at = behind
        if at < end:
            yield at, end

    def closed(self) -> Iterator[LogItem]:
        """The end of the open transaction, if there is one."""
        for block in self._blocks.close():
            self._count(block)
            yield block

    def _rows(self, events: ChangeEvents, at: Ints) -> Iterator[LogItem]:
        assert self._metrics.position is not None
        with self._damage():
            blocks = list(self._blocks.blocks(events, at, self._metrics.position))
        for block in blocks:
            self._count(block)
            yield block
        if not self._blocks.open:
            self._metrics.move(position_at(events, int(at[-1])))

    def _other(self, events: ChangeEvents, i: int, feed: Feed) -> Generator[LogItem, None, bool]:
        """Gives whether the stream begins anew behind this event."""
        position = position_at(events, i)
        event = ddl_events.decoded(events.documents.raw(i))
        if event.get("operationType") not in ddl_events.WITHOUT_DOCUMENTS:
            yield from self.closed()
        yield from ddl_events.items(event, self._tables, position)
        if not self._blocks.open:
            self._metrics.move(position)
            yield Heartbeat(position)
        if event["operationType"] != ddl_events.INVALIDATE:
            return False
        feed.invalidated(position)
        return True

    def _whole(self, events: ChangeEvents) -> ChangeEvents | None:
        """Events of which none is a part of one; ``None``: there is none yet."""
        numbers, counts = events.splits
        if not counts.any() and not self._parts.open:
            return events
        found: list[bytes] = []
        for i in range(len(events)):
            raw = events.documents.raw(i)
            if not counts[i]:
                self._parts.complete()
                found.append(raw)
            elif (event := self._parts.take(raw, int(numbers[i]), int(counts[i]))) is not None:
                self._metrics.joined += 1
                found.append(event)
        return read_events(Documents.of_list(found)) if found else None

    def _count(self, block: LogBlock) -> None:
        if not block.open:
            assert isinstance(block.position, MongoPosition)
            self._metrics.move(block.position)
            self._metrics.transactions += len(block.transactions)
            self._metrics.last_transaction = block.transactions.id[-1].as_py() or ""

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except CdcError:
            raise
        except DocumentError as e:
            raise SourceLogDamaged(
                f"The change stream holds something that cannot be read: {e}",
                where=f"after {self._metrics.position}",
                safe="Everything before it is captured; the offset is untouched.",
                remedy="leave the collection out with collection.exclude.list to go on without it, and read it again later",
            ) from e
