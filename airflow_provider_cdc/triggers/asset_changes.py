"""Fires events of assets when tables change, for DAGs that start when a table changes.

One poll of the state tables serves all watched tables of a connector. Each table has its own cursor in the asset's state store: the
number of the last batch that an event was fired for. It moves on only when the event is in Airflow's database. So no event is missed when
a triggerer dies; an event may come twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.airflow_compat import (
    AdvanceItem,
    CursorStore,
    SharedStreamProducer,
    find_cursor_store,
)
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.triggers.polling_loop import poll_repeatedly
from airflow_provider_cdc.triggers.shared_state import shared_state

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_cdc.core.spi.state_records import BatchRecord, ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

log = logging.getLogger(__name__)

CURSOR = "cdc_batch"
"""Name of the cursor in the asset's state store."""
_LONGEST_S = 120.0
"""Airflow gives up on events that are not stored after ``[triggerer] shared_stream_ack_timeout``, 300 seconds."""
_BEHIND = 1000
"""A cursor is stored at least every so many batches, also if no event was fired."""


@dataclass(frozen=True, slots=True)
class BatchPoll:
    """The result of one poll of the state tables.

    :param number: of the poll
    :param after: the last batch before
    :param upto: the last batch now
    :param offset: number and moment of the connector's offset, if it has one
    :param batches: the batches in between, oldest first
    """

    number: int
    after: int
    upto: int
    offset: tuple[int | None, datetime | None] | None
    batches: Sequence[BatchRecord] = ()


class CdcChangeTrigger(BaseEventTrigger):
    """Fires when new batches of a connector hold events of watched tables, for an ``AssetWatcher``.

    Use :func:`airflow_provider_cdc.dag.watched_table_asset`, which names the asset and the topic. The event's payload is ``{"connector", "topics",
    "events", "batches", "last_seq", "position"}``: events by topic, and first and last batch.

    :param connector: name of the connector
    :param topics: topics of the watched tables; none means all tables of the connector
    :param asset: name of the asset whose state store keeps the cursor; ``None`` where one asset alone has this trigger
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two polls, at most 120: events of one poll count as stored with the next
    :raises ConfigError: it is longer
    """

    def __init__(
        self,
        connector: str,
        topics: Sequence[str] = (),
        *,
        asset: str | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        poll_interval: float = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not 0 < poll_interval <= _LONGEST_S:
            raise ConfigError(f"poll_interval is {poll_interval:g}; valid values are up to {_LONGEST_S:g} seconds.")
        self.connector, self.topics, self.asset = connector, sorted(topics), asset
        self.state_conn_id, self.poll_interval = state_conn_id, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("connector", "topics", "asset", "state_conn_id", "poll_interval")
        return path, {name: getattr(self, name) for name in names}

    def shared_stream_key(self) -> Hashable | None:
        """All watched tables of a connector share one poll."""
        return _key(self.serialize()[1])

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return _Poller(kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        cursor = _AssetCursor(self)
        _cursors.setdefault(self.shared_stream_key(), set()).add(cursor)
        try:
            async for poll in shared_stream:
                if cursor.batch is None:
                    await cursor.load_batch(poll.after)
                assert cursor.batch is not None
                batches = poll.batches
                if cursor.batch > poll.upto:  # the connector was deleted, and has begun again
                    cursor.batch = 0
                if cursor.batch < poll.after:  # committed while no trigger listened
                    batches = [*await self._missed(cursor.batch, poll.after), *batches]
                payload = self._payload([b for b in batches if b.batch > cursor.batch])
                cursor.record_poll(poll, bool(payload))
                if payload:
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
        finally:
            _cursors[self.shared_stream_key()].discard(cursor)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll alone, where there is no shared stream: in Airflow 3.1 and 3.2, or for a deferred task."""
        producer = _Poller(self.serialize()[1])
        last: BatchPoll | None = None

        async def stream() -> AsyncGenerator[BatchPoll, None]:
            nonlocal last
            async with aclosing(producer.open_stream()) as looks:  # type: ignore[type-var]
                async for poll, _ in looks:
                    if last is not None:
                        await producer.confirm_poll(last.number)
                    last = poll
                    yield poll

        async with aclosing(stream()) as poll, aclosing(self.filter_shared_stream(poll)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def _missed(self, after: int, upto: int) -> list[BatchRecord]:
        async with shared_state(self.state_conn_id) as state:
            return await state.query_connector(
                self.connector, lambda _, store: _batches(store, self.connector, after, upto)
            )

    def _payload(self, batches: Sequence[BatchRecord]) -> dict[str, Any] | None:
        events_by_topic: dict[str, int] = {}
        changed = []
        for batch in batches:
            events = {t: n for t, n in batch.topics.items() if n and (not self.topics or t in self.topics)}
            if events:
                changed.append(batch)
            for topic, n in events.items():
                events_by_topic[topic] = events_by_topic.get(topic, 0) + n
        if not changed:
            return None
        return {
            "connector": self.connector,
            "topics": events_by_topic,
            "events": sum(events_by_topic.values()),
            "batches": [changed[0].batch, changed[-1].batch],
            "last_seq": changed[-1].last_seq,
            "position": changed[-1].position,
        }


@dataclass(eq=False)
class _AssetCursor:
    """The last batch that an event of one asset was fired for."""

    trigger: CdcChangeTrigger
    batch: int | None = None
    stored: int = -1
    """The batch in the asset's state store."""
    open: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Poll → its last batch, and whether an event was fired for it."""

    async def load_batch(self, now: int) -> None:
        """Begin at the batch in the asset's state store; the first time, begin at ``now``."""
        stored_batch = None if (store := self._store()) is None else await store.aget(CURSOR)
        if stored_batch is None:
            self.batch = now
            await self._keep(now)
        else:
            self.batch = self.stored = int(stored_batch)

    def record_poll(self, poll: BatchPoll, something: bool) -> None:
        self.batch = poll.upto
        self.open[poll.number] = (self.batch, something)

    async def confirm_poll(self, poll: int) -> None:
        """Confirm that the events of this poll, and of those before it, are in Airflow's database.

        A cursor that did not see this poll may have failed at one before it, and is not concerned.
        """
        if poll not in self.open:
            return
        done = [self.open.pop(number) for number in sorted(self.open) if number <= poll]
        if done and (any(something for _, something in done) or abs(done[-1][0] - self.stored) >= _BEHIND):
            await self._keep(done[-1][0])

    async def _keep(self, batch: int) -> None:
        if (store := self._store()) is not None:
            await store.aset(CURSOR, batch)
        self.stored = batch

    def _store(self) -> CursorStore | None:
        trigger = self.trigger
        return find_cursor_store(trigger, trigger.asset, trigger.asset or f"{trigger.connector} {trigger.topics}")


_cursors: dict[Hashable, set[_AssetCursor]] = {}
"""Shared stream → the cursors of its listeners; all in the one event loop of a triggerer."""


def _key(kwargs: dict[str, Any]) -> Hashable:
    return ("cdc-changes", kwargs["connector"], kwargs["state_conn_id"], kwargs["poll_interval"])


class _Poller(SharedStreamProducer):
    """The one poll of the state tables for a connector."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        self._key = _key(kwargs)
        self._connector, self._conn_id = kwargs["connector"], kwargs["state_conn_id"]
        self._interval = kwargs["poll_interval"]

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        last: BatchPoll | None = None

        def ask(record: ConnectorRecord | None, store: StateStore) -> BatchPoll:
            number, offset = time.monotonic_ns(), None if record is None else (record.version, record.moved_at)
            if last is not None and offset is not None and last.offset == offset:  # no batch comes without a new offset
                return BatchPoll(number, last.upto, last.upto, offset)
            newest = store.list_batches(self._connector, limit=1)
            upto = newest[0].batch if newest else 0
            after = upto if last is None or last.upto > upto else last.upto
            return BatchPoll(number, after, upto, offset, _batches(store, self._connector, after, upto))

        async with shared_state(self._conn_id) as state:
            polls = poll_repeatedly(
                lambda: state.query_connector(self._connector, ask),
                self._interval,
                whom=f"The state of {self._connector}",
                log=log,
            )
            async with aclosing(polls) as polls:  # type: ignore[type-var]
                async for poll in polls:
                    # empty polls are passed on too: a trigger may have begun to listen since the last one
                    yield poll, poll.number
                    last = poll

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for item in batch:
            # A failure is not kept for all listeners: those that live on are confirmed with the next look, and those that
            # do not begin again at their own cursor.
            if not item.outcome.failed:
                await self.confirm_poll(item.broker_payload)

    async def confirm_poll(self, poll: int) -> None:
        for cursor in list(_cursors.get(self._key, ())):
            await cursor.confirm_poll(poll)


def _batches(store: StateStore, connector: str, after: int, upto: int) -> list[BatchRecord]:
    """Batches after one up to another one, oldest first."""
    limit = upto - after
    while limit > 0:
        newest = store.list_batches(connector, limit=limit)
        if len(newest) < limit or newest[-1].batch <= after + 1:
            return [b for b in reversed(newest) if after < b.batch <= upto]
        limit += newest[-1].batch - after  # more were committed meanwhile
    return []
