"""The loop that reads the changes that the capture agent has published: check its progress, read a window of change tables, wait.

A look costs one query of one row. Only when a change table has something new are the registrations read, and then only change tables that have
something new. Without an Apply program the agent does not report which these are: then the stream queries the change tables when the log has moved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Final

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem, SchemaChange
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import mark_at
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, clock_us, read_agent_progress
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration, later_starts
from airflow_provider_cdc.sources.db2.change_table_bounds import tables_with_changes
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.log.blocks import log_block
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeBlock, ChangeMerger
from airflow_provider_cdc.sources.db2.log.change_table_reader import FETCH_ROWS, ChangeTableReader
from airflow_provider_cdc.sources.db2.log.commit_windows import CommitWindow, CommitWindowPlanner
from airflow_provider_cdc.sources.db2.log.connector_registrations import ConnectorRegistrations
from airflow_provider_cdc.sources.db2.log.cursor_pool import CursorPool
from airflow_provider_cdc.sources.db2.log.lob_reader import LobReader
from airflow_provider_cdc.sources.db2.log.position_retention_check import PositionAgeCheck
from airflow_provider_cdc.sources.db2.log.query_connection import QueryConnection
from airflow_provider_cdc.sources.db2.log.table_structures import TableStructures
from airflow_provider_cdc.sources.db2.metrics import AsnStreamMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_sort_key, lsn_text
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader

log = logging.getLogger(__name__)

BUFFERED_ROWS: Final = 200_000
"""About how many rows all change tables together may have in memory: with many tables, each fetches fewer at once."""
FEWEST_ROWS: Final = 100
SHORTEST: Final = 0.02
"""Least seconds between two looks while a caller waits for the log."""
STRUCTURE_CHECK_SECONDS: Final = 10.0
"""How often a log that moves on without changes of captured tables is looked through for altered tables."""
SILENT_SECONDS: Final = 120
"""After so long without a sign of the agent, the task's log says so, again and again."""


class AsnStream:
    """Reads the change tables, from ``start`` on. Iterate :meth:`read_items` once.

    :param until: position to end at; ``None`` = continue until the caller stops
    :param metrics: the source's metrics, which the stream updates
    :param patience: seconds after which the caller wants an item, at least a heartbeat; asked before each wait
    """

    def __init__(
        self,
        config: Db2Config,
        start: Db2Position,
        until: Db2Position | None,
        tables: CapturedTableSchemas,
        metrics: AsnStreamMetrics,
        patience: Callable[[], float] | None = None,
    ) -> None:
        self._config, self._position, self._until, self._metrics = config, start, until, metrics
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._questions = QueryConnection(config)
        self._registry = ConnectorRegistrations(tables, config.capture_schema, config.connector_name)
        self._structures = TableStructures(config, tables, self._questions)
        self._windows = CommitWindowPlanner(config.capture_schema)
        self._lobs = LobReader(config, self._questions)
        self._retention = PositionAgeCheck(config, self._questions)
        self._reading: Db2Connection | None = None
        self._last_fingerprint: tuple[int, int, bytes] | None = None
        self._caught_up, self._took, self._told_at = False, 0.0, 0.0
        self._looked_at, self._polled_at, self._awaited = 0.0, 0.0, False

    def read_items(self) -> Iterator[LogItem]:
        """Yield the log items in commit order, see :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`.

        :raises PositionLost: changes that are needed were pruned, or tables were registered again
        :raises PrerequisiteError: a table is not captured by the agent any more
        :raises UnknownLogEvent: a row of a change table has an unknown operation
        :raises SourceUnavailable: the connection is lost
        """
        self._metrics.record_position(self._position)
        try:
            while self._until is None or not self._position.has_reached(self._until):
                yield from self._step()
                yield Heartbeat(self._position)
                if self._until is not None and self._position.has_reached(self._until):
                    return
                yield from self._pause()
        finally:
            self._metrics.record_end()
            self._questions.close()
            if self._reading is not None:
                self._reading.close()

    def collect_metrics(self) -> dict[str, Value]:
        """Return the current metrics; after the end of the stream, those at its end."""
        return self._metrics.build_metrics()

    # -- a look, and a window -------------------------------------------------------------------------------------------

    def _step(self) -> Iterator[LogItem]:
        """Look how far the agent is, and read at most one window."""
        began = time.monotonic()
        now = self._questions.run_query(
            lambda c: read_agent_progress(c, self._config.capture_schema), "progress of the agent"
        )
        self._polled_at = began
        self._metrics.record_poll(now)
        self._watch(now)
        mark = self._mark(now)
        end = self._end(now)
        moved = not self._position.has_captured(end)
        others = now.registrations_fingerprint != self._last_fingerprint  # known change tables may be gone
        reading: list[TableRegistration] = []
        if others or (moved and (self._look_is_due or self._any_new(now, end))):
            reading = yield from self._look(now, end)
            self._last_fingerprint, self._looked_at = now.registrations_fingerprint, time.monotonic()
        if moved:
            self._check_age(self._position, now)
        if reading:
            yield from self._window(now, end, reading)
        elif moved:
            self._position = self._position.advance_commit(end, now.synch_us if end == now.lsn else 0)
        if lsn_sort_key(self._position.commit_lsn) == lsn_sort_key(now.lsn):
            self._position = self._position.advance_commit(b"", now.synch_us, mark).seen_at(now.now_us)
        if self._until is not None and lsn_sort_key(self._position.commit_lsn) == lsn_sort_key(self._until.commit_lsn):
            self._position = self._position.seen_at(self._until.seen_us)
        self._metrics.record_position(self._position)
        self._caught_up = self._position.has_captured(end)
        self._took = time.monotonic() - began

    @property
    def _look_is_due(self) -> bool:
        """True if altered tables are to be looked for, though change tables have nothing new.

        That is at once where a caller waits for this place of the log.
        """
        somebody_waits = self._until is not None or self._awaited
        return somebody_waits or time.monotonic() - self._looked_at > STRUCTURE_CHECK_SECONDS

    def _end(self, now: AgentProgress) -> bytes:
        """Return how far to read: to the published LSN, and not beyond ``until``.

        Tables whose snapshot is of that position join the stream there.

        If ``until`` is the end of the log at some moment, only a mark shows where that end is.
        """
        until = self._until
        if until is None or until.awaits or lsn_sort_key(until.commit_lsn) > lsn_sort_key(now.lsn):
            return now.lsn
        return until.commit_lsn

    def _mark(self, now: AgentProgress) -> int:
        """Return the last published mark, if a caller waits for a mark; 0 = not known."""
        if not now.lsn or not (self._awaited or (self._until is not None and self._until.awaits)):
            return 0
        return self._questions.run_query(lambda c: mark_at(c, self._config, now.lsn), "markers in the log")

    def _any_new(self, now: AgentProgress, end: bytes) -> bool:
        return not self._position.has_captured(now.newest) or bool(self._with_changes(end))

    def _with_changes(self, end: bytes) -> set[TableId]:
        """Find the tables with changes up to an LSN, among those that the agent does not report."""
        start, tables = self._position.commit_lsn, self._registry.list_unreported_tables()
        if not tables:
            return set()
        return self._questions.run_query(lambda c: tables_with_changes(c, tables, start, end), "change tables")

    def _look(self, now: AgentProgress, end: bytes) -> Generator[LogItem, None, list[TableRegistration]]:
        """Read the registrations. Gives the tables that have changes to read, after the changes of structures that they need."""
        config, registry = self._config, self._registry
        registry.registered = self._questions.run_query(
            lambda c: Db2CatalogReader(c, config).list_registrations(), "registrations"
        )
        for change in self._structures.find_dropped_tables(registry.list_unregistered_tables()):
            yield self._schema_change(change, now)
        new = registry.list_new_registrations()
        starts = {registration.table: registration.old or b"" for registration in new}
        for change in self._structures.find_created_tables(new):
            self._acknowledge(change.id, starts[change.id])
            yield self._schema_change(change, now)
        active = registry.check_registrations(self._position)
        self._note_made(active)
        changed = self._with_changes(end)
        reading = [
            registration
            for registration in active
            if registration.table in changed
            or (registration.new is not None and not self._position.has_captured(registration.new))
        ]
        quiet = [
            registration
            for registration in registry.list_unchanged_tables(reading)
            if self._altered_since(registration, now)
        ]
        for change in self._structures.find_altered_tables([*reading, *quiet]):
            yield self._schema_change(change, now)
        return reading

    def _altered_since(self, registration: TableRegistration, now: AgentProgress) -> bool:
        """Check whether a table, or its change table, may have been altered since the position.

        The structure of such a table is looked at, though it has no changes.
        """
        moments = [
            clock_us(at) - now.utc_offset_us
            for at in (registration.altered, registration.source_altered)
            if at is not None
        ]
        return max(moments, default=0) > self._position.published_us

    def _acknowledge(self, table: TableId, start: bytes) -> None:
        """Note in the position that a new table's change table need not hold earlier changes.

        Rows that the table had then are read, if they are wanted.
        """
        if not self._position.has_captured(start):
            acknowledged = {**self._position.acknowledged, str(table): start}
            self._position = replace(self._position, acknowledged=acknowledged)

    def _note_made(self, active: Sequence[TableRegistration]) -> None:
        """Note in the position when each change table was made."""
        created = {str(registration.table): registration.created_us for registration in active}
        if created != self._position.created_us:
            self._position = replace(self._position, created_us=created)

    def _schema_change(self, change: TableChange, now: AgentProgress) -> SchemaChange:
        source: dict[str, object] = {"change_lsn": None, "commit_lsn": lsn_text(self._position.commit_lsn)}
        return SchemaChange("", change.id.database_name, [change], self._position, now.synch_us or now.now_us, source)

    def _window(self, now: AgentProgress, end: bytes, reading: list[TableRegistration]) -> Iterator[LogItem]:
        """Read the next window, at most up to ``end``."""
        start, began = self._position, time.monotonic()
        window = self._questions.run_query(
            lambda c: self._windows.choose_window(c, start.commit_lsn, end, now), f"transactions after {start}"
        )
        rows = yield from self._blocks(window, reading, now)
        self._windows.adapt_window_size(window, rows)
        self._metrics.record_window(time.monotonic() - began)
        self._position = self._position.advance_commit(window.end, 0 if window.whole else int(window.times_us[-1]))

    def _blocks(
        self, window: CommitWindow, reading: Sequence[TableRegistration], now: AgentProgress
    ) -> Generator[LogItem, None, int]:
        """Yield the changes of a window. Gives the number of rows that were read."""
        start = self._position
        where = f"changes after {start}, up to LSN {lsn_text(window.end)}"
        most = min(FETCH_ROWS, max(FEWEST_ROWS, BUFFERED_ROWS // len(reading)))
        with translate_driver_errors(self._config, where):
            if self._reading is None:
                self._reading = connect_database(self._config)
            cursors = CursorPool(self._reading)
            readers = [
                ChangeTableReader(
                    self._structures.resolve_layout(registration),
                    window.start,
                    window.end,
                    cursors,
                    self._lobs.fill_lobs,
                    most,
                    connector=self._config.connector_name,
                )
                for registration in reading
            ]
            try:
                for block in ChangeMerger(readers).iterate_blocks():
                    self._check_pruned(start, reading, now)
                    yield self._log_block(block, window)
            finally:
                cursors.close()
                rows = sum(reader.rows for reader in readers)
                self._count(rows, cursors)
        return rows

    def _check_pruned(self, start: Db2Position, reading: Sequence[TableRegistration], now: AgentProgress) -> None:
        """Make sure that the rows that were fetched are all that there were: the agent may have pruned meanwhile."""
        config = self._config
        self._check_age(start, now)
        starts = self._questions.run_query(
            lambda c: later_starts(c, config.capture_schema, config.catalog_name, start.commit_lsn), "registrations"
        )
        self._registry.check_starts(starts, start, reading)

    def _check_age(self, start: Db2Position, now: AgentProgress) -> None:
        now_us = now.now_us + int((time.monotonic() - self._polled_at) * 1_000_000)
        self._retention.check_position(start, now_us, self._registry.list_readable_registrations())

    def _log_block(self, block: ChangeBlock, window: CommitWindow) -> LogBlock:
        counted = self._metrics.counters
        counted.changes += len(block)
        if not block.open:
            self._position = self._position.advance_commit(block.commits.bytes_at(-1))
            self._metrics.record_position(self._position)
            counted.transactions += len(block.commits)
        item = log_block(block, window, self._position)
        if not block.open:
            counted.last_transaction = item.transactions.id[-1].as_py()
            counted.ts_us = int(item.transactions.ts_us[-1])
        return item

    def _count(self, rows: int, cursors: CursorPool) -> None:
        counted = self._metrics.counters
        counted.rows += rows
        counted.queries += cursors.opened
        counted.lobs_read, counted.lobs_gone = self._lobs.read, self._lobs.gone

    def _watch(self, now: AgentProgress) -> None:
        """Check that the agent has not been set back, and log a warning if it does not move."""
        if now.lsn and lsn_sort_key(now.lsn) < lsn_sort_key(self._position.commit_lsn):
            raise PositionLost(
                f"The capture agent has published changes up to LSN {lsn_text(now.lsn)}, which is before the "
                "position: the database was restored or replaced, or the agent was cold-started.",
                where=str(self._position),
                safe="Everything up to the position is captured; the offset is untouched.",
                remedy="set snapshot.mode=when_needed for one run to snapshot all tables again",
            )
        silent = self._metrics.silent_s
        if (not now.lsn or silent > SILENT_SECONDS) and time.monotonic() - self._told_at > SILENT_SECONDS:
            self._told_at = time.monotonic()
            log.warning(
                "The capture agent %s: VALUES %s.ASNCDCSERVICES('status','asncdc') shows whether it runs. "
                        "Capture continues when the agent publishes again.",
                f"has published nothing for {silent:.0f} s, which is normal while no changes are written" if now.lsn else "has not published anything yet",
                self._config.capture_schema,
            )  # fmt: skip

    def _pause(self) -> Iterator[LogItem]:
        """Wait for new changes, with heartbeats meanwhile."""
        if not self._caught_up:
            self._awaited = self._patience() < self._config.poll_interval_ms / 1000
            return
        began = time.monotonic()
        while True:
            patience, pause = self._patience(), self._config.poll_interval_ms / 1000
            self._awaited = patience < pause
            if self._awaited:  # a caller waits for the log, as windows of incremental snapshots do
                pause = min(pause, max(self._took, SHORTEST))
            if (left := began + pause - time.monotonic()) <= 0:
                return
            time.sleep(min(left, max(patience, 0.001)))
            yield Heartbeat(self._position)
