"""The loop that reads the redo log: choose a window, have the database flush its log buffer, mine the window, process its rows, wait."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem, Rollback
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.read_ahead import read_ahead
from airflow_provider_cdc.core.spi.carry_over import CarryOver, CarryOverLost
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import DatabaseStatus
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FOREVER
from airflow_provider_cdc.sources.oracle.metrics import LogMinerMetrics, StreamGauges
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.mining.scn_windows import WindowPlanner
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.ddl_applier import DdlApplier
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import MiningRestart
from airflow_provider_cdc.sources.oracle.transactions.carry_over.carried_transactions import CarriedTransactions
from airflow_provider_cdc.sources.oracle.transactions.continued_rows import ContinuationJoiner
from airflow_provider_cdc.sources.oracle.transactions.row_processor import RowProcessor

log = logging.getLogger(__name__)

PIECE_ROWS = 32_768
"""Least number of rows that are processed at once: small fetches would make small blocks."""
SHORTEST = 0.05
"""Least seconds between two windows while a caller waits for the log. If a window takes longer, the pause is as long as the window, so
that LogMiner runs half of the time at most."""


class LogMinerStream:
    """Reads the log once, from ``start`` on. Iterate :meth:`read_items` once.

    :param until: position to end at; ``None`` = continue until the caller stops
    :param lookups: answers questions that the log leaves open, from the database
    :param metrics: the source's metrics, which the stream updates
    :param patience: seconds after which the caller wants an item, at least a heartbeat; asked before each wait
    :param carried: open transactions that an earlier stream has carried over; and where this one puts them
    :raises PositionLost: the position is of another database, or of one that was set back
    """

    def __init__(
        self,
        config: OracleConfig,
        database: DatabaseStatus,
        start: OraclePosition,
        until: OraclePosition | None,
        tables: CapturedTableSchemas,
        lookups: StreamLookups,
        metrics: LogMinerMetrics,
        patience: Callable[[], float] | None = None,
        carried: CarryOver | None = None,
    ) -> None:
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._config, self._until, self._metrics = config, until, metrics
        self._tables, self._lookups = tables, lookups
        # do not read beyond ``until``: tables whose snapshot is of that position are added to the stream there
        self._last = max(until.read_scn, *(c.scn for c in until.commits.values()), 0) if until else FOREVER
        self._session = MiningSession(config, Filters(config), metrics.session)
        self._flush = LogWriterFlush(config, database, lookups.open_transactions)
        self._carried = CarriedTransactions(config, carried, metrics.carried)
        self._current, self._took = 0, 0.0
        self._measured: dict[str, Value] = {}
        self._inside = False
        self._mined_again: OraclePosition | None = None
        self._at(verify_incarnation(start, database))

    def _at(self, position: OraclePosition) -> None:
        """Begin to mine where the oldest open transaction began."""
        config, tables, lookups, metrics = self._config, self._tables, self._lookups, self._metrics
        ddl = DdlApplier(config, tables, lookups)
        self._processor = RowProcessor(config, position, tables, lookups, ddl, metrics.rows, self._until)
        self._windows = WindowPlanner(config, metrics.windows)
        self._read, self._first = position.scn, True

    def read_items(self) -> Iterator[LogItem]:
        """Yield the log items in commit order, see :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`.

        :raises PositionLost: redo logs that are needed do not exist any more
        :raises SourceUnavailable: the connection is lost, or logs are not archived yet
        :raises SourceLogDamaged: redo is missing, or commits are out of order
        :raises StorageUnavailable: the storage of carried state does not answer
        """
        try:
            self._metrics.record_stream_start(self._processor.position)
            mined = self._carried.restore_transactions(self._processor)
            if mined is not None:
                self._read, self._first = mined, False
            while True:
                try:
                    yield from self._step()
                    done = self._until is not None and self._processor.position.has_reached(self._until)
                    carried = self._carried.save_transactions(self._processor, self._read, last=done)
                except CarryOverLost as e:
                    self._carried.record_loss(e, self._processor.position)
                    yield from self._again()
                    continue
                except MiningRestart as e:
                    self._note_mined_again(e)
                    yield from self._again()
                    continue
                yield carried or Heartbeat(self._processor.position)
                if done:
                    return
                yield from self._pause()
        finally:
            gauges = self._gauges()
            self._metrics.record_stream_end(gauges)
            self._measured = self._metrics.to_document(gauges)
            self._processor.close()
            self._session.close()
            self._flush.close()

    def read_metrics(self) -> dict[str, Value]:
        """Return the current metrics; after the end of the stream, those at its end."""
        return self._measured or self._metrics.to_document(self._gauges())

    def _step(self) -> Iterator[LogItem]:
        session, windows = self._session, self._windows
        current = session.minable_scn()
        window = windows.choose_window(self._read, current, time_of=session.scn_time, log_ends=session.log_ends)
        written = self._flush.flush(min(window.end, self._last))
        read, end, first = self._read, written.scn, self._first
        if end <= read and not (first and end == read):
            return
        transactions = self._processor.transactions
        switched = session.log_collector.switched_scn() if transactions.has_hidden_transactions else 0
        late = transactions.begin_window(read, written.open_transactions, switched)
        low = min([read if first else read + 1, *late.values(), transactions.unfinished_scn or FOREVER])
        began, rows = time.monotonic(), 0
        session.open_window(low, end)
        with (
            contextlib.closing(session.read_rows(low, end, None if first else read, late)) as batches,
            read_ahead(in_scn_order(batches), session.cancel_call) as parts,
        ):
            for part in parts:
                rows += part.num_rows
                for item in self._processor.process(part):
                    self._inside = isinstance(item, LogBlock) and item.open
                    yield item
                yield Heartbeat(self._processor.position)
        self._retention()  # before the position moves beyond the transactions that are given up
        self._processor.advance_position(end)
        self._read, self._current, self._first = end, current, False
        seconds = self._took = time.monotonic() - began
        windows.adapt_window_size(rows, seconds, session.begin_seconds)
        if self._metrics.is_report_due:
            session.record_memory()
        self._metrics.record_window(self._gauges(), rows, seconds)

    def _note_mined_again(self, why: MiningRestart) -> None:
        """Record that the log is mined again from the position on.

        :raises SourceUnavailable: that happened at the same position before
        """
        position = self._processor.position
        if position == self._mined_again:
            raise SourceUnavailable(
                f"The log was mined twice from one position, and its rows are not in order: {why}.",
                where=str(position),
                safe="Nothing is lost; the offset is untouched.",
                remedy="a retry resumes after the last batch",
            ) from why
        self._mined_again = position
        log.info("The log is mined again from SCN %d: %s.", position.scn, why)

    def _again(self) -> Iterator[LogItem]:
        """Mine again from where all is captured that was delivered so far."""
        position, schemas = self._processor.position, self._processor.schema_versions.export_state()
        self._processor.close()
        self._session.close()  # a cancel of the last call may come late, and end the next call of this connection
        if self._inside:
            self._inside = False
            yield Rollback()
        self._at(position)
        self._processor.schema_versions.restore_state({**schemas, "objects": [], "assumed": []})
        yield self._carried.drop_carried(position)

    def _retention(self) -> None:
        """Give up transactions that have been open for too long."""
        limit = self._config.log_mining_transaction_retention_ms
        if limit:
            self._processor.give_up_before(int(time.time() * 1e6) - limit * 1000)

    def _gauges(self) -> StreamGauges:
        transactions, oldest = self._processor.transactions, self._processor.transactions.oldest_transaction
        return StreamGauges(
            position=self._processor.position,
            current=self._current,
            read=self._read,
            active=len(transactions),
            oldest=(oldest.id, oldest.first_scn, oldest.first_ts_us) if oldest is not None else None,
            buffered=transactions.change_count,
            buffered_bytes=transactions.nbytes,
            window=self._windows.size,
            pause=self._windows.pause_seconds,
        )

    def _pause(self) -> Iterator[LogItem]:
        """Wait for new redo, with heartbeats meanwhile."""
        if not self._windows.caught_up:
            return
        began = time.monotonic()
        while True:
            patience, pause = self._patience(), self._windows.pause_seconds
            if (
                patience < self._config.poll_interval_ms / 1000
            ):  # a caller waits for the log, as windows of incremental snapshots do
                least = self._config.log_mining_sleep_time_min_ms / 1000
                pause = min(pause, max(self._took, least, SHORTEST))
            if (left := began + pause - time.monotonic()) <= 0:
                return
            time.sleep(min(left, max(patience, 0.001)))
            yield Heartbeat(self._processor.position)


def verify_incarnation(position: OraclePosition, database: DatabaseStatus) -> OraclePosition:
    """Return the position, with the database's identity filled in.

    :raises PositionLost: it is of another database, or of one that was set back since
    """
    if position.dbid not in (0, database.dbid):
        raise PositionLost(
            f"The position belongs to the database with DBID {position.dbid}, but this is {database.name} "
            f"with DBID {database.dbid}.",
            where=str(position),
            safe="Everything before the position is captured.",
            remedy="connect to the former database; if this database has replaced it, set "
            "snapshot.mode=when_needed to snapshot all tables again",
        )
    if position.resetlogs and database.resetlogs > position.resetlogs and position.read_scn >= database.resetlogs:
        raise PositionLost(
            f"The database was opened with RESETLOGS at SCN {database.resetlogs}, which is before the position: "
            "captured changes after that SCN no longer exist in the database.",
            where=str(position),
            safe="The target tables contain the rows from before the database was restored.",
            remedy="set snapshot.mode=when_needed to snapshot all tables again",
        )
    return replace(position, resetlogs=database.resetlogs, dbid=database.dbid)


def in_scn_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of a window with whole statements, in the order of their SCNs.

    The rows come in tables of :data:`PIECE_ROWS` rows or more.

    LogMiner gives the rows of a redo thread in the order of the log, where each write has the redo of several strands one after the other.
    So rows are sorted with those that come next, another :data:`PIECE_ROWS`. Rows of one SCN stay as they are.

    :raises SourceLogDamaged: the continuation of a statement is missing
    """
    continuations = ContinuationJoiner()
    waiting: list[pa.Table] = []
    count = 0
    for batch in batches:
        waiting.append(continuations.join_rows(pa.Table.from_batches([batch])))
        count += waiting[-1].num_rows
        if count >= 2 * PIECE_ROWS:
            rows = _by_scn(pa.concat_tables(waiting))
            yield rows.slice(0, count - PIECE_ROWS)
            waiting, count = [rows.slice(count - PIECE_ROWS)], PIECE_ROWS
    continuations.check_complete()
    if count:
        yield _by_scn(pa.concat_tables(waiting))


def _by_scn(rows: pa.Table) -> pa.Table:
    scns = rows.column("scn").to_numpy()
    return rows if (np.diff(scns) >= 0).all() else rows.take(pa.array(np.argsort(scns, kind="stable")))
