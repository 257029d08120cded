"""Reading the redo log: choose a window, have it written, mine it, wait; again and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.events import Heartbeat, LogItem
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.oracle import ddl
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Database
from airflow_provider_cdc.sources.oracle.flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.lookups import Lookups
from airflow_provider_cdc.sources.oracle.metrics import StreamMetrics
from airflow_provider_cdc.sources.oracle.operations import FOREVER
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema import SchemaReader
from airflow_provider_cdc.sources.oracle.session import MiningSession
from airflow_provider_cdc.sources.oracle.taking import Taker
from airflow_provider_cdc.sources.oracle.window import Windows

log = logging.getLogger(__name__)

TAKEN_ROWS = 32_768
"""Rows that are taken at a time: many small fetches would make many small blocks."""
SHORTEST = 0.05
"""Seconds between two looks at the log when it is waited for; more where a look takes longer, so that half of the time is left to
the database."""


class LogMinerStream:
    """One pass over the log. Use :meth:`items` once.

    :param until: where to end; ``None`` = never
    :param dictionary: reads a table's present structure
    :param lookups: answers about tables that LogMiner does not name
    :param earlier: metrics of the stream before it in the same run
    :param patience: see :meth:`airflow_provider_cdc.core.source.Source.stream`
    """

    def __init__(
        self,
        config: OracleConfig,
        database: Database,
        start: OraclePosition,
        until: OraclePosition | None,
        tables: Tables,
        dictionary: Callable[[TableId], TableSchema | None],
        lookups: Lookups | None = None,
        earlier: StreamMetrics | None = None,
        patience: Callable[[], float] | None = None,
    ) -> None:
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._config, self._until = config, until
        # nothing beyond: a table that was read at ``until`` joins there
        self._last = max(until.read_scn, *(c.scn for c in until.commits.values()), 0) if until else FOREVER
        start = verified(start, database)
        catalog = config.database_pdb_name or config.database_dbname
        self._schemas = SchemaReader(config, tables, dictionary, catalog, lookups)
        self._taker = Taker(config, start, tables, dictionary, self._ddl, catalog, lookups)
        self._session = MiningSession(config, Filters(config))
        self._flush = LogWriterFlush(config, database)
        self._windows = Windows(config)
        self.metrics = StreamMetrics(config, self._taker, self._session, self._windows, self._schemas, earlier)
        self._read = start.scn
        self._first = True
        self._took = 0.0

    def items(self) -> Iterator[LogItem]:
        """See :meth:`airflow_provider_cdc.core.source.Source.stream`."""
        try:
            with self.metrics:
                while True:
                    yield from self._step()
                    yield Heartbeat(self._taker.position)
                    if self._until is not None and self._taker.position.reached(self._until):
                        return
                    yield from self._pause()
        finally:
            self._taker.close()
            self._session.close()
            self._flush.close()

    def _step(self) -> Iterator[LogItem]:
        session, windows = self._session, self._windows
        current = session.minable_scn()
        window = windows.next(self._read, current, time_of=session.scn_time, borders=session.borders)
        end = self._flush.flush(min(window.end, self._last))
        if end <= self._read and not (self._first and end == self._read):
            return
        began, rows = time.monotonic(), 0
        session.open(self._read, end, self._first)
        for part in _gathered(session.rows(self._read, end, self._first)):
            rows += part.num_rows
            yield from self._taker.take(part)
            yield Heartbeat(self._taker.position)
        self._retention()  # before the place is told, which is behind what was given up
        self._taker.end(end)
        self._read, self._first = end, False
        seconds = self._took = time.monotonic() - began
        windows.done(rows, seconds, session.begin_seconds)
        self.metrics.stepped(end, current, rows, seconds)

    def _retention(self) -> None:
        """Give up transactions that have been open for too long."""
        limit = self._config.log_mining_transaction_retention_ms
        if limit:
            self._taker.give_up(int(time.time() * 1e6) - limit * 1000)

    def _pause(self) -> Iterator[LogItem]:
        """Wait for new redo; whoever reads gets to look at the clock meanwhile."""
        if not self._windows.caught_up:
            return
        began = time.monotonic()
        while True:
            patience, pause = self._patience(), self._windows.pause
            if patience < self._config.poll_interval_ms / 1000:  # the log is waited for, as by windows of a snapshot
                least = self._config.log_mining_sleep_time_min_ms / 1000
                pause = min(pause, max(self._took, least, SHORTEST))
            if (left := began + pause - time.monotonic()) <= 0:
                return
            time.sleep(min(left, max(patience, 0.001)))
            yield Heartbeat(self._taker.position)

    def _ddl(self, text: str, owner: str, where: str) -> tuple[list[TableChange], list[TableId]]:
        found = self._schemas.read(ddl.read(text), owner, where)
        return (found.changes, found.truncated) if found is not None else ([], [])


def verified(position: OraclePosition, database: Database) -> OraclePosition:
    """The position, with the identity of the database that it is of.

    :raises PositionLost: it is of another database, or of one that was set back since
    """
    if position.dbid not in (0, database.dbid):
        raise PositionLost(
            f"The position is of the database with DBID {position.dbid}; this is {database.name} with DBID {database.dbid}.",
            where=str(position),
            safe="Everything before the position is captured.",
            remedy="connect to the database of before; if this one has taken its place, set snapshot.mode=when_needed to read all tables again",
        )
    if position.resetlogs and database.resetlogs > position.resetlogs and position.read_scn >= database.resetlogs:
        raise PositionLost(
            f"The database was opened with RESETLOGS at SCN {database.resetlogs}, which is before the position: "
            "what was captured after that SCN does not exist in it any more.",
            where=str(position),
            safe="The tables hold what the database had before it was set back.",
            remedy="set snapshot.mode=when_needed to read all tables again",
        )
    return replace(position, resetlogs=database.resetlogs, dbid=database.dbid)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in larger pieces."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= TAKEN_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting)
