"""Makes log items of the documents of a change stream, in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

import numpy as np

from airflow_provider_cdc.core.errors import CdcError, SourceLogDamaged
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import INSERT, OTHER, ChangeEvents, read_events
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DocumentError
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.field_rules import parts_of
from airflow_provider_cdc.sources.mongodb.log import ddl_events
from airflow_provider_cdc.sources.mongodb.log.document_shard_moves import Ints
from airflow_provider_cdc.sources.mongodb.log.log_block_builder import BlockBuilder, position_at, up_to
from airflow_provider_cdc.sources.mongodb.log.reconnecting_cursor import ChangeStreamFeed
from airflow_provider_cdc.sources.mongodb.log.split_events import SplitEventCollector
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition


class MongoEventReader:
    """Reads the events of one stream, batch by batch.

    :param until: position that no event is given behind; ``None``: there is none
    """

    def __init__(
        self,
        config: MongoDbConfig,
        tables: CapturedTableSchemas,
        until: MongoPosition | None,
        metrics: MongoStreamMetrics,
    ) -> None:
        self._until, self._tables, self._metrics = until, tables, metrics
        self._blocks = BlockBuilder(tables, FieldRewriter(config))
        self._parts = SplitEventCollector()
        named = config.signal_data_collection
        self._signals = None if named is None else parts_of(named)

    @property
    def has_unfinished_changes(self) -> bool:
        """Check whether the stream has come to within a transaction, or an event of several parts: no offset may be there."""
        return self._blocks.has_open_transaction or self._parts.has_missing_parts

    def is_past_transaction(self, position: MongoPosition) -> bool:
        """Check whether a position is behind the moment of the open transaction: no more rows of it come."""
        return self._blocks.is_past_transaction(position)

    def read_items(
        self, documents: BsonDocuments, after: MongoPosition, feed: ChangeStreamFeed
    ) -> Generator[LogItem, None, bool]:
        """Yield the items of a batch, and return whether the stream ends, or begins again, within it.

        :param after: events up to this position have been there before
        """
        with self._damage():
            events = self._whole(read_events(documents))
        if events is None:
            return False
        at, end = up_to(events, after.sort_key), len(events)
        if self._until is not None:
            end = up_to(events, self._until.sort_key)
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
        yield from self.close_transaction()
        self._metrics.advance_position(self._until)
        yield Heartbeat(self._until)
        return True

    def _parted(self, events: ChangeEvents, at: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of events that end behind each insert into the signalling collection: a signal is taken before the events that follow it."""
        if self._signals is not None and at < end:
            indices, names = events.event_namespaces
            numbers = [number for number, name in enumerate(names) if name == self._signals]
            signals = np.isin(indices[at:end], numbers) & (events.operation[at:end] == INSERT)
            for behind in (np.flatnonzero(signals) + at + 1).tolist():
                yield at, behind
                at = behind
        if at < end:
            yield at, end

    def close_transaction(self) -> Iterator[LogItem]:
        """Yield the end of the open transaction, if there is one."""
        for block in self._blocks.close_transaction():
            self._count(block)
            yield block

    def _rows(self, events: ChangeEvents, at: Ints) -> Iterator[LogItem]:
        assert self._metrics.position is not None
        with self._damage():
            blocks = list(self._blocks.build_blocks(events, at, self._metrics.position))
        for block in blocks:
            self._count(block)
            yield block
        if not self._blocks.has_open_transaction:
            self._metrics.advance_position(position_at(events, int(at[-1])))

    def _other(self, events: ChangeEvents, i: int, feed: ChangeStreamFeed) -> Generator[LogItem, None, bool]:
        """Yield the items of another event, and return whether the stream begins again behind this event."""
        position = position_at(events, i)
        event = ddl_events.decode_event(events.documents.read_bytes(i))
        if event.get("operationType") not in ddl_events.WITHOUT_DOCUMENTS:
            yield from self.close_transaction()
        yield from ddl_events.build_items(event, self._tables, position)
        if not self._blocks.has_open_transaction:
            self._metrics.advance_position(position)
            yield Heartbeat(position)
        if event["operationType"] != ddl_events.INVALIDATE:
            return False
        feed.handle_invalidation(position)
        return True

    def _whole(self, events: ChangeEvents) -> ChangeEvents | None:
        """Events of which none is a part of one; ``None``: there is none yet."""
        numbers, counts = events.fragment_numbers
        if not counts.any() and not self._parts.has_missing_parts:
            return events
        whole_events: list[bytes] = []
        for i in range(len(events)):
            raw = events.documents.read_bytes(i)
            if not counts[i]:
                self._parts.check_complete()
                whole_events.append(raw)
            elif (event := self._parts.add_fragment(raw, int(numbers[i]), int(counts[i]))) is not None:
                self._metrics.joined += 1
                whole_events.append(event)
        return read_events(BsonDocuments.of_list(whole_events)) if whole_events else None

    def _count(self, block: LogBlock) -> None:
        if not block.open:
            assert isinstance(block.position, MongoPosition)
            self._metrics.advance_position(block.position)
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
                f"The change stream contains an event that cannot be read: {e}",
                where=f"after {self._metrics.position}",
                safe="Everything before it is captured; the offset is untouched.",
                remedy="to continue without the collection, exclude it with collection.exclude.list, and snapshot "
                "it again later",
            ) from e
