"""One attempt of a capture run, under a lease: snapshot what is pending, stream, take signals, write chunks, commit batches."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from airflow_provider_cdc.core.batch import Batcher
from airflow_provider_cdc.core.changes import SchemaChanges
from airflow_provider_cdc.core.config import ConnectorConfig
from airflow_provider_cdc.core.desk import Desk
from airflow_provider_cdc.core.envelope import Envelope, EventBatch, field_types
from airflow_provider_cdc.core.errors import AccessDenied, CdcError, NotGranted, QueryRefused
from airflow_provider_cdc.core.events import (
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.heartbeat import Heartbeats
from airflow_provider_cdc.core.incremental import Incremental, writes_watermarks
from airflow_provider_cdc.core.metrics import RunMetrics, Value
from airflow_provider_cdc.core.notifications import INITIAL, NotificationChannel, Type
from airflow_provider_cdc.core.planning import Plan, Planner, pended
from airflow_provider_cdc.core.position import Offset, Position
from airflow_provider_cdc.core.scans import Scans
from airflow_provider_cdc.core.schema import TableId, TableSchema
from airflow_provider_cdc.core.schema_history import CapturedTables, SchemaHistory
from airflow_provider_cdc.core.seams import ChangeLog, Lease, SignalChannel, StateStore
from airflow_provider_cdc.core.snapshot import Snapshotter, Stopped
from airflow_provider_cdc.core.snapshotters import reads_rows, snapshot_policy, snapshot_query
from airflow_provider_cdc.core.source import Source
from airflow_provider_cdc.core.telling import incremental_progress, tell
from airflow_provider_cdc.core.topics import Topics, as_earlier_releases

log = logging.getLogger(__name__)

_CHUNKS_MS = 10_000
"""How often what incremental snapshots have read is made durable, where ``batch.max.ms`` is longer."""


@dataclass(slots=True)
class Stop:
    """When a run ends by itself.

    :param restarts: how many requests to begin anew there were when it began; one more ends it
    """

    deadline: float | None = None
    requested: bool = False
    restarts: int = 0

    @property
    def due(self) -> bool:
        return self.requested or (self.deadline is not None and time.monotonic() >= self.deadline)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of.

    :param name: of the connector
    :param channels: where signals come from besides the state tables and the signal table
    :param told: where notifications go besides the state tables
    """

    name: str
    source: Source
    config: ConnectorConfig
    filters: Filters
    store: StateStore
    changelog: ChangeLog
    stop: Stop
    channels: Sequence[SignalChannel] = ()
    told: Sequence[NotificationChannel] = ()


class Run:
    """See the module."""

    def __init__(self, parts: Parts, lease: Lease) -> None:
        self.parts, self.source, self.config, self.filters = parts, parts.source, parts.config, parts.filters
        self.policy = snapshot_policy(self.config)
        self.reads_rows, self._planned = reads_rows(self.policy), Plan(Offset())
        self.metrics = RunMetrics()
        self.batcher = Batcher(
            parts.name, self.source.connector, self.config.public(), parts.store, parts.changelog, lease,
            f"{lease.epoch}-{uuid.uuid4().hex[:12]}", parts.told,
            field_types(self.source.source_fields),
        )  # fmt: skip
        self.offset: Offset = self.batcher.offset
        if self.offset.incremental.paused:
            self.metrics.chunks.pause()
        self.history = SchemaHistory.replay(self.metrics.history.recover(list(parts.store.schema_history(parts.name))))
        named = self.config.signal_data_collection
        self.signals: TableId | None = None if named is None else self.source.signal_table(named)
        self.tables = CapturedTables(
            self.filters, self.history, self.signals, lambda: self.offset.snapshot.streamed
        )  # fmt: skip
        self.envelope = Envelope(self.config, self.filters, self.source.connector, self.source.source_fields)
        self.envelope.hidden = self.signals
        self.envelope.topics = self._topics()
        self.incremental = Incremental(
            self.source, self.config, self.filters, self.history, self.envelope,
            {str(t): t for t in self.history.tables}, self.signals if writes_watermarks(self.config) else None,
        )  # fmt: skip
        self.scans = Scans(self)
        self.desk = Desk(self)
        self.heartbeats = Heartbeats(self.config, self.source, self._advance)
        self._changes = SchemaChanges(self)
        self._open = False  # a transaction has begun that the batch must not be closed in
        self._committed_at = time.monotonic()
        self._moved = False

    def _topics(self) -> Topics:
        """A connector that began when topics had names of another kind keeps them: under new ones, tables and consumers would see
        other tables begin in the middle."""
        known = [table for table in self.history.ever if table != self.signals]
        self.batcher.sanitized = self.batcher.sanitized or not as_earlier_releases(self.config, known)
        topics = Topics(self.config, as_they_are=not self.batcher.sanitized)
        topics.remember(known)
        return topics

    def execute(self, run_for_s: float | None) -> None:
        """Go on until there is nothing left, or for so long."""
        stop = self.parts.stop
        stop.deadline = None if run_for_s is None else time.monotonic() + run_for_s
        try:
            self._plan()
            while True:
                self._snapshot()
                if stop.requested or not self.policy.should_stream():
                    return
                if not self.offset.snapshot.pending:
                    self.heartbeats.beat_if_due()
                    self.desk.look()
                    if not self.offset.snapshot.pending:
                        self._stream(bounded=run_for_s is None)
                if not self.offset.snapshot.pending or stop.due:
                    return
        except BaseException:
            try:
                self.batcher.abandon()
            except CdcError as e:  # the error that led here matters more
                log.warning("Files of the unfinished batch are left behind; the next commit deletes them. %s", e)
            raise
        finally:
            self.incremental.close()

    def measured(self) -> dict[str, dict[str, Value]]:
        """The run's metrics."""
        self.metrics.streaming.filtered = self.envelope.filtered
        captured = [t for t in self.history.tables if self.filters.table(t) and t != self.signals]
        return self.metrics.document(captured, self.source.metrics())

    # -- whole tables -------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        parts = self.parts
        first = self.offset.position is None
        planner = Planner(
            parts.name, self.source, self.config, self.filters, self.history, parts.store, self.policy, self.signals,
            self.envelope.topics,
        )  # fmt: skip
        plan = planner.plan(self.offset)
        self.offset, self._planned = plan.offset, plan
        if first and not self.offset.snapshot.pending:
            tell(self.batcher, INITIAL, Type.SKIPPED)
        if plan.structures:
            names = {str(t) for t in plan.structures}
            position = self.position(self.offset.position)
            self.offset = self._snapshotter().run(self.offset, data=False, at=position, only=names)

    def pend(self, tables: list[TableId], *, request: int | None = None, selects: dict[str, str] | None = None) -> None:
        """Have captured tables read whole, as soon as the present item of the log is taken and committed. What the log has of them
        up to where they are read is captured before."""
        self.incremental.cancel()
        names = [str(t) for t in tables]
        self.offset = pended(self.offset, tables, self.history, request=request, selects=selects, streamed=names)

    def _snapshot(self) -> None:
        config = self.config
        if not self.offset.snapshot.pending:
            return
        self.incremental.cancel()  # what a chunk holds may be older than what is read now
        if config.snapshot_delay_ms:
            log.info("Waiting %.1f s before the snapshot (snapshot.delay.ms).", config.snapshot_delay_ms / 1000)
            time.sleep(config.snapshot_delay_ms / 1000)
        plan = self._planned
        self._planned = Plan(self.offset, rows=self.reads_rows)  # for snapshots that come later in the run
        try:
            if (
                self.offset.snapshot.streamed
            ):  # a view that is opened then is held for what is committed meanwhile, no longer
                self._catch_up(self.source.current_position())
            self.offset = self._snapshotter().run(
                self.offset, data=plan.rows, added=plan.added, catch_up=self._catch_up
            )
        except Stopped:
            self.batcher.abandon()
            self.offset = self.batcher.offset
            left = len(self.offset.snapshot.pending) or "all"
            log.warning("Ended within the snapshot: %s tables are left, with which the next run begins.", left)
        except (QueryRefused, AccessDenied, NotGranted) as e:
            self._refused(e)

    def _refused(self, e: CdcError) -> None:
        """The database does not accept a statement of a request, or the account lacks a right for it: the request has failed, and
        capture goes on. What capture itself may not do ends the run where it streams.

        :raises CdcError: it was no request's
        """
        state = self.batcher.offset.snapshot
        if not state.requests:
            raise e
        self._open = False
        self.envelope.rollback()
        self.batcher.abandon()
        self.history.reset(self.parts.store.schema_history(self.parts.name))
        log.exception("A blocking snapshot has failed; streaming goes on from where it had stopped.")
        self.desk.failed(set(state.requests.values()), str(e))
        left = state.without(state.requests.keys() - {*state.due})
        left = left.model_copy(update={"requests": {}, "selects": {}, "due": []})
        self.offset = self.batcher.offset.model_copy(update={"snapshot": left})
        self.commit()

    def _snapshotter(self) -> Snapshotter:
        return Snapshotter(
            self.source, self.filters, self.history, self.envelope, self.batcher,
            readers=self.config.snapshot_max_threads, group_rows=self.config.batch_max_rows,
            order=self.config.snapshot_tables_order_by_row_count, metrics=self.metrics,
            stopped=self.desk.halted, progress=self.desk.progress, policy=self.policy, query=snapshot_query(self.config),
        )  # fmt: skip

    # -- the log ------------------------------------------------------------------------------------------------------

    def _stream(self, *, bounded: bool) -> None:
        """Stream to the end of the log as it is now, and of incremental snapshots, in phases: a table read at a later position
        joins when the log has come there.

        :param bounded: otherwise there is no end
        """
        stop = self.parts.stop
        target = self._target() if bounded else None
        while True:
            start = self.position(self.offset.position)
            ahead = self._ahead(start)
            self.tables.waiting = frozenset(name for name, _ in ahead) | self.offset.snapshot.waiting
            reads_chunks, self._moved = self.scans.go_on, False
            if target is not None and start.reached(target) and not ahead and not reads_chunks:
                break
            self._phase(start, ahead[0][1] if ahead else None if reads_chunks else target, bounded and reads_chunks)
            if self.offset.snapshot.pending or stop.due:
                break
            if (reads_chunks or self._moved) and bounded:
                target = self._target()
            elif not ahead and not self._moved:
                break
        if self._open:  # the log has ended inside a transaction, which is read again
            self._void()
        self.commit()

    def _target(self) -> Position:
        """The end of the log. A table that was read after it pulls it to where it was read."""
        target = self.source.current_position()
        for place in self.offset.snapshot.tables.values():
            position = self.position(place)
            if not target.reached(position):
                target = position
        return target

    def _ahead(self, start: Position) -> list[tuple[str, Position]]:
        """Tables that were read at a position after ``start``, nearest first; forgets those that were passed."""
        places = {name: self.position(place) for name, place in self.offset.snapshot.tables.items()}
        ahead = [(name, place) for name, place in places.items() if not start.reached(place)]
        kept = {name: self.offset.snapshot.tables[name] for name, _ in ahead}
        state = self.offset.snapshot.model_copy(update={"tables": kept})
        self.offset = self.offset.model_copy(update={"snapshot": state})
        return sorted(ahead, key=cmp_to_key(_by_position))

    def _phase(self, start: Position, end: Position | None, until_read: bool) -> None:
        """
        :param until_read: come to an end when the incremental snapshots have
        """
        shown, stop = time.monotonic(), self.parts.stop
        self.scans.feed()
        self.incremental.arrive(start)
        for item in self.source.stream(start, self.tables, until=end, patience=self._patience):
            self._take(item)
            if not self._open:
                if self.offset.snapshot.pending:
                    return
                self.scans.write()
                self.commit_if_due()
                self.heartbeats.beat_if_due()
                self.desk.look_if_due()
                if stop.due or self._moved or self.offset.snapshot.pending or (until_read and not self.scans.go_on):
                    return
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                log.info("Streaming: %s events in this run, now at %s.", f"{self._events():,}", self.where())

    def _catch_up(self, end: Position) -> Offset:
        """Stream up to a place at which tables are read again: what the log has of them before comes before, in the log's order.

        :return: the offset there; it is committed
        :raises Stopped: the run was asked to end; what was streamed is committed
        """
        while True:
            start = self.position(self.offset.position)
            ahead = self._ahead(start)
            self.tables.waiting = frozenset(name for name, _ in ahead) | self.offset.snapshot.waiting
            self._catch_up_once(start, ahead[0][1] if ahead else end)
            if not ahead:
                break
        if self._open:
            self._void()
        self.commit()
        return self.offset

    def _catch_up_once(self, start: Position, end: Position) -> None:
        shown = time.monotonic()
        for item in self.source.stream(start, self.tables, until=end, patience=self._patience):
            self._take(item)
            if self._open:
                continue
            self.commit_if_due()
            self.heartbeats.beat_if_due()
            if self.desk.halted():
                self.commit()
                raise Stopped
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                names = ", ".join(self.offset.snapshot.streamed)
                log.info("Before %s are read again: now at %s, going to %s.", names, self.where(), end)

    def _patience(self) -> float:
        """How long a quiet log is waited for: not long, while a chunk waits to be told that it has come far enough."""
        usual = self.config.poll_interval_ms / 1000
        return min(usual, 0.005) if self.incremental.waiting else usual

    def _take(self, item: LogItem) -> None:
        match item:
            case LogBlock():
                self._rows(item)
            case Rollback():
                self._void()
            case SchemaChange():
                self._changes.take(item)
            case Truncate():
                for table in item.tables:
                    self.truncate(table, item)
                self._move(item.position)
                self.incremental.arrive(item.position)
            case Heartbeat():
                self._move(item.position)
                if not self._open:
                    self.incremental.arrive(item.position)

    def _void(self) -> None:
        """Take back the open transaction. What is left of it, if anything, begins anew."""
        self.batcher.rollback()
        self.envelope.rollback()
        self.incremental.void()
        self.desk.void()
        self._open = False

    def _rows(self, block: LogBlock) -> None:
        if block.open and not self._open:
            self.batcher.mark()
            self._open = True
        if self.signals is not None:
            self.desk.rows(block, self.signals)
        batches, seq = self.envelope.encode(block, self.batcher.seq)
        for batch in batches:
            self.batcher.add(batch)
        for left in block.left_out:
            self.batcher.leave_out(left, self.offset.position or {}, block.position)
        self.metrics.streaming.events(batches)
        self.batcher.seq = seq
        if not block.open:
            self._open = False
            self._move(block.position)
        self.incremental.events(block)

    def truncate(self, table: TableId, item: Truncate | SchemaChange) -> None:
        """A table was emptied."""
        self.incremental.emptied(table)
        schema = self.history.get(table)
        hidden = not self.tables.captured(table) or table == self.signals
        if schema is None or hidden or "t" in self.config.skipped_operations:
            return
        transaction = item.transaction_id if isinstance(item, Truncate) else None
        self.metrics.streaming.events([self.add_truncate(schema, item.ts_us, item.source, transaction)])

    def add_truncate(
        self, schema: TableSchema, ts_us: int, source: Mapping[str, object], transaction: str | None = None
    ) -> EventBatch:
        """Write the event that empties a table."""
        batch = self.envelope.truncate(schema, self.batcher.seq + 1, ts_us, dict(source), transaction)
        self.batcher.seq = batch.last_seq
        self.batcher.add(batch)
        return batch

    def after_change(self, item: SchemaChange) -> None:
        """A schema change is taken."""
        if item.open:
            self.batcher.mark()
            self._open = True
        else:
            self._move(item.position)
            self.incremental.arrive(item.position)

    def reposition(self, position: Position) -> None:
        """Go on from another place in the log; with the next commit, when everything before is committed."""
        self.incremental.cancel()
        state = self.offset.snapshot.model_copy(update={"tables": {}})
        self.offset = self.offset.model_copy(update={"position": position.to_json(), "snapshot": state})
        self._moved = True

    # -- commits ------------------------------------------------------------------------------------------------------

    def commit_if_due(self) -> None:
        """Close the batch by rows, bytes or time. By time the offset moves even if there was nothing to capture."""
        config = self.config
        age_ms = (time.monotonic() - self._committed_at) * 1000
        full = self.batcher.rows >= config.batch_max_rows or self.batcher.bytes >= config.batch_max_bytes
        longest = min(config.batch_max_ms, _CHUNKS_MS) if self.scans.go_on else config.batch_max_ms
        if full or age_ms >= longest:
            self.commit()

    def commit_if_closed(self) -> None:
        """Make everything so far durable, unless it ends within a transaction."""
        if not self._open:
            self.commit()

    def commit(self) -> None:
        """Make everything so far durable."""
        if not self._open:
            self.desk.keep()
        before = self.batcher.offset.incremental
        if self.scans.state.scans and self.scans.state != before:
            incremental_progress(self.batcher, self.scans.state)
        self.batcher.commit(self.offset)
        self.offset = self.batcher.offset
        self._committed_at = time.monotonic()

    def _advance(self) -> None:
        """Make the offset durable if that needs no batch."""
        if self.batcher.empty:
            self.commit()

    def _move(self, position: Position) -> None:
        self.offset = self.offset.model_copy(update={"position": position.to_json()})

    def position(self, document: dict[str, Any] | None) -> Position:
        """A position of an offset."""
        assert document is not None
        return self.source.parse_position(document)

    def _events(self) -> int:
        return sum(m.events for m in self.batcher.committed) + self.batcher.rows

    def where(self) -> str:
        """Where the run stands in the log, as people write it."""
        return "the beginning" if self.offset.position is None else str(self.position(self.offset.position))


def _by_position(a: tuple[str, Position], b: tuple[str, Position]) -> int:
    return -1 if b[1].reached(a[1]) else 1


__all__ = ["Parts", "Run", "Stop"]
