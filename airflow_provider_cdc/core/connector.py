"""One capture run of one connector: adopt, snapshot what is pending, stream, commit batches.

:class:`Capture` is given a source, the state store and the change log; it knows nothing of Airflow. Everything that decides
what becomes durable and when is here and in ``core/batch.py``.

    >>> with source:
    ...     result = Capture("shop", source, config, filters, store, changelog).run()
    >>> result.events
    1204
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.core.batch import Batcher
from airflow_provider_cdc.core.config import ConnectorConfig, RewriteMode, SnapshotMode
from airflow_provider_cdc.core.envelope import Envelope
from airflow_provider_cdc.core.errors import CdcError, CommitConflict, PositionLost, PrerequisiteError, SchemaConflict
from airflow_provider_cdc.core.events import Heartbeat, LogBlock, LogItem, Rollback, SchemaChange, Truncate
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.heartbeat import Heartbeats
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.metrics import RunMetrics, Value
from airflow_provider_cdc.core.position import Offset, Position, SnapshotState
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.schema_history import CapturedTables, SchemaHistory, rewrite_reason
from airflow_provider_cdc.core.seams import ChangeLog, Lease, StateStore
from airflow_provider_cdc.core.snapshot import Snapshotter, Stopped
from airflow_provider_cdc.core.source import Source

log = logging.getLogger(__name__)

_CONFLICTS = 3
"""How often a run begins again because another one committed in between, before it gives up."""
_DATA_MODES = {SnapshotMode.ALWAYS, SnapshotMode.INITIAL, SnapshotMode.INITIAL_ONLY, SnapshotMode.WHEN_NEEDED}
_TABLE_LISTS = ("database.include.list", "database.exclude.list", "table.include.list", "table.exclude.list")


@dataclass(slots=True)
class CaptureResult:
    """What a run made durable.

    :param position: where the connector stands now, as the source writes it
    :param events: change events committed by this run
    :param topics: topic → events
    :param batches: numbers of the batches committed
    :param metrics: context → name → value; see :mod:`airflow_provider_cdc.core.metrics`
    """

    connector: str
    position: str
    seq: int
    events: int
    topics: dict[str, int]
    batches: list[int]
    seconds: float
    metrics: dict[str, dict[str, Value]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stop:
    """When a run ends by itself."""

    until: Position | None = None
    deadline: float | None = None
    requested: bool = False

    @property
    def due(self) -> bool:
        return self.requested or (self.deadline is not None and time.monotonic() >= self.deadline)


class Capture:
    """Captures the changes of one connector.

    :param name: the connector's name, unique in state and change log
    :param lease_wait_s: how long to wait while another run of this connector is alive
    """

    def __init__(
        self,
        name: str,
        source: Source,
        config: ConnectorConfig,
        filters: Filters,
        store: StateStore,
        changelog: ChangeLog,
        *,
        owner: str | None = None,
        lease_wait_s: float = 60.0,
    ) -> None:
        self.name, self._source, self._config, self._filters = name, source, config, filters
        self._store, self._changelog = store, changelog
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._lease_wait_s = lease_wait_s
        self._stop = _Stop()

    def stop(self) -> None:
        """End the run at the next transaction boundary, in a snapshot after the last complete tables; callable from a signal handler or another thread."""
        self._stop.requested = True

    def run(self, *, run_for_s: float | None = None) -> CaptureResult:
        """Capture up to the end of the log as it is now, or with ``run_for_s`` for that long.

        :raises PrerequisiteError: the database is not set up for capture
        :raises PositionLost: the log does not reach back to the offset
        :raises LeaseHeld: another run of this connector is alive
        :raises LeaseLost: another run took over while this one was slow
        """
        began = time.monotonic()
        self._check()
        with _flat_memory(), self._store.lease(self.name, self._owner, wait_s=self._lease_wait_s) as lease:
            for attempt in range(_CONFLICTS):
                try:
                    run = _Run(self, lease)
                    run.execute(run_for_s)
                    return run.result(time.monotonic() - began)
                except CommitConflict:
                    if attempt == _CONFLICTS - 1:
                        raise
                    log.warning("Another run committed first; reading the offset again.")
                    self._store.confirm(lease)
        raise AssertionError("unreachable")

    def _check(self) -> None:
        findings = self._source.check()
        for finding in findings:
            if not finding.fatal:
                log.warning("%s Advice: %s", finding.what, finding.fix)
        if fatal := [f for f in findings if f.fatal]:
            lines = "\n".join(f"  - {f.what}\n    {f.fix}" for f in fatal)
            raise PrerequisiteError(
                f"The database is not ready for capture:\n{lines}",
                where=f"connector {self.name}",
                safe="Nothing was read; the offset is untouched.",
                remedy="run the statements above on the source, then run the capture again",
            )


@dataclass(slots=True)
class _Run:
    """One attempt of :meth:`Capture.run`, under a lease."""

    capture: Capture
    lease: Lease
    batcher: Batcher = field(init=False)
    history: SchemaHistory = field(init=False)
    tables: CapturedTables = field(init=False)
    envelope: Envelope = field(init=False)
    offset: Offset = field(init=False)
    heartbeats: Heartbeats = field(init=False)
    open: bool = False  # a transaction has begun that the batch must not be closed in
    committed_at: float = field(default_factory=time.monotonic)
    metrics: RunMetrics = field(default_factory=RunMetrics)

    def __post_init__(self) -> None:
        c = self.capture
        self.batcher = Batcher(
            c.name,
            c._source.connector,
            c._config.public(),
            c._store,
            c._changelog,
            self.lease,
            f"{self.lease.epoch}-{uuid.uuid4().hex[:12]}",
        )
        self.history = SchemaHistory.replay(self.metrics.history.recover(list(c._store.schema_history(c.name))))
        self.tables = CapturedTables(c._filters, self.history)
        self.envelope = Envelope(c._config, c._filters, c._source.connector, c._source.source_fields)
        self.offset = self.batcher.offset
        self.heartbeats = Heartbeats(c._config, c._source, self._advance)

    def execute(self, run_for_s: float | None) -> None:
        stop, source = self.capture._stop, self.capture._source
        stop.deadline = None if run_for_s is None else time.monotonic() + run_for_s
        try:
            self._plan()
            while True:
                self._snapshot()
                if stop.requested or self.capture._config.snapshot_mode is SnapshotMode.INITIAL_ONLY:
                    return
                if not self.offset.snapshot.pending:
                    self.heartbeats.beat_if_due()
                    target = None if run_for_s is not None else source.current_position()
                    self._stream(self._at_least_all_snapshots(target))
                if not self.offset.snapshot.pending or stop.due:
                    return
        except BaseException:
            try:
                self.batcher.abandon()
            except CdcError as e:  # the error that led here matters more
                log.warning("Files of the unfinished batch are left behind; the next commit deletes them. %s", e)
            raise

    def result(self, seconds: float) -> CaptureResult:
        topics: Counter[str] = Counter()
        for manifest in self.batcher.committed:
            for file in manifest.files:
                topics[file.topic] += file.rows
        position = self.batcher.offset.position
        return CaptureResult(
            connector=self.capture.name,
            position=str(self._position(position)) if position is not None else "",
            seq=self.batcher.offset.seq,
            events=topics.total(),
            topics=dict(topics),
            batches=[m.batch for m in self.batcher.committed],
            seconds=seconds,
            metrics=self._metrics(),
        )

    def _metrics(self) -> dict[str, dict[str, Value]]:
        self.metrics.streaming.filtered = self.envelope.filtered
        captured = [t for t in self.history.tables if self.capture._filters.table(t)]
        return self.metrics.document(captured, self.capture._source.metrics())

    # -- what has to be read whole ------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Decide which tables are pending, from the mode, the offset and the filters."""
        mode, source = self.capture._config.snapshot_mode, self.capture._source
        wanted = self._filter_text()
        if mode is SnapshotMode.NEVER and self.offset.position is None:
            self.offset = self.offset.model_copy(
                update={"position": source.oldest_position().to_json(), "tables_filter": wanted}
            )
        elif self.offset.position is None or mode is SnapshotMode.ALWAYS or self._position_lost(mode):
            self._pend_all(wanted)
        elif mode is SnapshotMode.RECOVERY:
            self._recover(wanted)
        elif self.offset.tables_filter != wanted:
            before = self._filters_before()
            added = [t for t in self._captured() if not before.table(t)]
            if added:
                log.info("Captured tables were added: %s.", ", ".join(map(str, added)))
            self.offset = self._pended([] if mode is SnapshotMode.NEVER else added, tables_filter=wanted)

    def _pend_all(self, wanted: str) -> None:
        """Everything is to be read, at a new position."""
        tables = self._captured()
        if not tables:
            raise PrerequisiteError(
                "No table of the database is captured: the include and exclude lists leave none.",
                where=f"connector {self.capture.name}: {wanted}",
                safe="Nothing was read; the offset is untouched.",
                remedy="correct table.include.list; names are <database>.<table>, as regular expressions that match whole names",
            )
        pending = {str(t): self.history.seen(t) for t in tables}
        self.offset = self.offset.model_copy(
            update={
                "position": None,
                "snapshot": SnapshotState(pending=pending),
                "tables_filter": wanted,
            }
        )

    def _recover(self, wanted: str) -> None:
        """Take the present structures for those in force at the offset, as ``snapshot.mode=recovery`` says."""
        position, unread = self._position(self.offset.position), self.offset.snapshot.pending
        tables = [t for t in self._captured() if str(t) not in unread]
        offset = self._pended(tables, tables_filter=wanted)
        self.offset = self._snapshotter().run(offset, data=False, at=position, only={str(t) for t in tables})

    def _pended(self, tables: list[TableId], **update: object) -> Offset:
        """The offset with more tables pending."""
        pending = self.offset.snapshot.pending | {str(t): self.history.seen(t) for t in tables}
        state = self.offset.snapshot.model_copy(update={"pending": pending})
        return self.offset.model_copy(update={"snapshot": state} | update)

    def _captured(self) -> list[TableId]:
        return sorted((t for t in self.capture._source.discover() if self.capture._filters.table(t)), key=str)

    def _position_lost(self, mode: SnapshotMode) -> bool:
        """With ``when_needed``, whether the log no longer reaches back; otherwise that is an error."""
        try:
            self.capture._source.verify_position(self._position(self.offset.position))
        except PositionLost:
            if mode is not SnapshotMode.WHEN_NEEDED:
                raise
            log.exception("The position is lost; snapshot.mode=when_needed reads all tables again.")
            return True
        return False

    def _filter_text(self) -> str:
        public = self.capture._config.public()
        lists = {name: public[name] for name in _TABLE_LISTS if public.get(name)}
        return json.dumps(lists) if lists else ""

    def _filters_before(self) -> Filters:
        """The filters as they were when the offset was written."""
        config, lists = self.capture._config, json.loads(self.offset.tables_filter or "{}")
        fields = {name: str(field.alias) for name, field in type(config).model_fields.items()}
        before = {name: tuple(lists.get(alias, ())) for name, alias in fields.items() if alias in _TABLE_LISTS}
        return Filters(config.model_copy(update=before))

    def _snapshot(self) -> None:
        config = self.capture._config
        if not self.offset.snapshot.pending:
            return
        if config.snapshot_delay_ms:
            log.info("Waiting %.1f s before the snapshot (snapshot.delay.ms).", config.snapshot_delay_ms / 1000)
            time.sleep(config.snapshot_delay_ms / 1000)
        # with "recovery", what is pending are tables that a snapshot was interrupted before
        data = config.snapshot_mode in _DATA_MODES or config.snapshot_mode is SnapshotMode.RECOVERY
        try:
            self.offset = self._snapshotter().run(self.offset, data=data)
        except Stopped:
            self.batcher.abandon()
            self.offset = self.batcher.offset
            left = len(self.offset.snapshot.pending) or "all"
            log.warning("Ended within the snapshot: %s tables are left, with which the next run begins.", left)

    def _snapshotter(self) -> Snapshotter:
        c = self.capture
        return Snapshotter(
            c._source, c._filters, self.history, self.envelope, self.batcher,
            readers=c._config.snapshot_max_threads, group_rows=c._config.batch_max_rows,
            order=c._config.snapshot_tables_order_by_row_count, metrics=self.metrics,
            stopped=lambda: c._stop.requested,
        )  # fmt: skip

    # -- the log ------------------------------------------------------------------------------------------------------

    def _stream(self, target: Position | None) -> None:
        """Stream to ``target``, in phases: a table read at a later position joins when the log has come there."""
        while True:
            start = self._position(self.offset.position)
            ahead = self._ahead(start)
            self.tables.waiting = frozenset(name for name, _ in ahead) | frozenset(self.offset.snapshot.pending)
            phase_end = ahead[0][1] if ahead else target
            if target is not None and start.reached(target) and not ahead:
                break
            self._phase(start, phase_end)
            if self.offset.snapshot.pending or self.capture._stop.due or not ahead:
                break
        if self.open:  # the log has ended inside a transaction, which is read again
            self._void()
        self._commit()

    def _ahead(self, start: Position) -> list[tuple[str, Position]]:
        """Tables that were read at a position after ``start``, nearest first; forgets those that were passed."""
        places = {name: self._position(place) for name, place in self.offset.snapshot.tables.items()}
        ahead = [(name, place) for name, place in places.items() if not start.reached(place)]
        kept = {name: self.offset.snapshot.tables[name] for name, _ in ahead}
        self.offset = self.offset.model_copy(
            update={"snapshot": self.offset.snapshot.model_copy(update={"tables": kept})}
        )
        return sorted(ahead, key=cmp_to_key(_by_position))

    def _at_least_all_snapshots(self, target: Position | None) -> Position | None:
        """A table that was read after ``target`` pulls the target to where it was read."""
        for place in self.offset.snapshot.tables.values():
            position = self._position(place)
            if target is not None and not target.reached(position):
                target = position
        return target

    def _phase(self, start: Position, end: Position | None) -> None:
        shown = time.monotonic()
        for item in self.capture._source.stream(start, self.tables, until=end):
            self._take(item)
            if self.offset.snapshot.pending:
                return
            if not self.open:
                self._commit_if_due()
                self.heartbeats.beat_if_due()
                if self.capture._stop.due:
                    return
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                log.info("Streaming: %s events in this run, now at %s.", f"{self._events():,}", self._where())

    def _take(self, item: LogItem) -> None:
        match item:
            case LogBlock():
                self._rows(item)
            case Rollback():
                self._void()
            case SchemaChange():
                self._schema_change(item)
            case Truncate():
                for table in item.tables:
                    self._truncate(table, item)
                self._move(item.position)
            case Heartbeat():
                self._move(item.position)

    def _void(self) -> None:
        """Take back the open transaction. What is left of it, if anything, begins anew."""
        self.batcher.rollback()
        self.envelope.rollback()
        self.open = False

    def _rows(self, block: LogBlock) -> None:
        if block.open and not self.open:
            self.batcher.mark()
            self.open = True
        batches, seq = self.envelope.encode(block, self.batcher.seq)
        for batch in batches:
            self.batcher.add(batch)
        self.metrics.streaming.events(batches)
        self.batcher.seq = seq
        if not block.open:
            self.open = False
            self._move(block.position)

    def _truncate(self, table: TableId, item: Truncate | SchemaChange) -> None:
        schema = self.history.get(table)
        if schema is None or not self.tables.captured(table) or "t" in self.capture._config.skipped_operations:
            return
        transaction = item.transaction_id if isinstance(item, Truncate) else None
        batch = self.envelope.truncate(schema, self.batcher.seq + 1, item.ts_us, item.source, transaction)
        self.batcher.seq = batch.last_seq
        self.batcher.add(batch)
        self.metrics.streaming.events([batch])

    def _schema_change(self, item: SchemaChange) -> None:
        """Record the change; read tables again where the log does not tell what became of their rows."""
        applied: list[TableChange] = []
        selected: dict[str, TableSchema] = {}
        emptied: list[TableId] = []
        reread: list[TableId] = []
        before = {c.id: self.history.get(c.previous_id or c.id) for c in item.changes}
        self.history.leave(item.changes)
        for change in item.changes:
            if not self.tables.captured(change.id) and not (
                change.previous_id and self.tables.captured(change.previous_id)
            ):
                continue
            seen = self.history.seen(change.id)
            versioned = self.history.apply(change)
            if versioned is None:
                continue
            applied.append(versioned)
            if versioned.table is None or not self.tables.captured(change.id):
                continue
            selected[self.envelope.topic(change.id)] = self.envelope.selected(versioned.table)
            if change.previous_id is not None and change.previous_id != change.id:
                reread.append(change.id)
                continue
            if change.type == "CREATE" and seen:
                emptied.append(change.id)
            if self._must_reread(before[change.id], versioned, item):
                reread.append(change.id)
        if applied:
            record = SchemaChangeRecord(
                seq=self.batcher.seq + 1, ddl=item.ddl, database=item.database, position=item.position.to_json(),
                ts_us=item.ts_us, source=item.source, changes=applied, captured_us=time.time_ns() // 1000,
            )  # fmt: skip
            self.batcher.add_change(record, selected)
            self.metrics.history.apply(record)
        wanted = self._readable(reread)
        for table in emptied:
            if table not in wanted:  # reading it again begins with that
                self._truncate(table, item)
        if item.open:
            self.batcher.mark()
            self.open = True
        else:
            self._move(item.position)
        if reread:
            self._read_again(reread, wanted, item)

    def _readable(self, tables: list[TableId]) -> list[TableId]:
        """Those of some tables whose rows a snapshot would read."""
        if self.capture._config.snapshot_mode not in _DATA_MODES:
            return []
        return [t for t in tables if self.capture._filters.snapshot(t)]

    def _read_again(self, tables: list[TableId], wanted: list[TableId], item: SchemaChange) -> None:
        if not wanted:
            names = ", ".join(map(str, tables))
            log.warning("Rows of %s are not known from the log, and are not read again: %s", names, item.ddl)
            return
        log.info("Reading %s again after: %s", ", ".join(map(str, wanted)), item.ddl)
        self.offset = self._pended(wanted)
        self._commit()

    def _must_reread(self, old: TableSchema | None, change: TableChange, item: SchemaChange) -> bool:
        reason = rewrite_reason(old, change)
        mode = self.capture._config.schema_change_rewrite_mode
        if reason is None or mode is RewriteMode.IGNORE:
            return False
        if mode is RewriteMode.FAIL:
            self._commit()
            raise SchemaConflict(
                f"A DDL statement changed rows of {change.id} in a way that the log does not show: {reason}.",
                where=f"{item.position}: {item.ddl}",
                safe="Everything before this statement is captured.",
                remedy="set schema.change.rewrite.mode=snapshot to read the table again, or ignore to go on without",
            )
        return True

    def _commit_if_due(self) -> None:
        """Close the batch by rows, bytes or time. By time the offset moves even if there was nothing to capture."""
        config = self.capture._config
        age_ms = (time.monotonic() - self.committed_at) * 1000
        full = self.batcher.rows >= config.batch_max_rows or self.batcher.bytes >= config.batch_max_bytes
        if full or age_ms >= config.batch_max_ms:
            self._commit()

    def _commit(self) -> None:
        self.batcher.commit(self.offset)
        self.offset = self.batcher.offset
        self.committed_at = time.monotonic()

    def _advance(self) -> None:
        """Make the offset durable if that needs no batch."""
        if self.batcher.empty:
            self._commit()

    def _move(self, position: Position) -> None:
        self.offset = self.offset.model_copy(update={"position": position.to_json()})

    def _position(self, document: dict[str, Any] | None) -> Position:
        assert document is not None
        return self.capture._source.parse_position(document)

    def _events(self) -> int:
        return sum(m.events for m in self.batcher.committed) + self.batcher.rows

    def _where(self) -> str:
        return str(self._position(self.offset.position))


@contextlib.contextmanager
def _flat_memory() -> Iterator[None]:
    """Arrow's own allocators keep what several threads have let go of: a quarter more memory at the peak of a snapshot."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _by_position(a: tuple[str, Position], b: tuple[str, Position]) -> int:
    return -1 if b[1].reached(a[1]) else 1


__all__ = ["Capture", "CaptureResult"]
