"""The LogMiner session: a connection that mines one window of SCNs after the other.

After a log switch a new session is started; otherwise the session is restarted with a new range (Debezium Oracle connector, "Mining
sessions"). LogMiner takes the names of tables and columns from a dictionary (``log.mining.strategy``):

``online_catalog``
    The current data dictionary. A row that is older than the current definition of its table has numbers instead of names.
``redo_log_catalog``
    A dictionary in the redo logs, written after each log switch; LogMiner tracks the DDL after it.
``hybrid``
    As ``online_catalog``. Rows with numbers instead of names keep their ``object`` and ``object_version``; the stream looks up their
    columns in the schema history.

``log.mining.path.dictionary`` names a dictionary file on the server, which is used instead.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import oracledb
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    code_of,
    connect,
    container_id,
    current_scn,
    fetch_rows,
    fetch_scalar,
    translate_driver_errors,
    utc_offset,
)
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import MISSING_SCN
from airflow_provider_cdc.sources.oracle.mining import logminer_calls
from airflow_provider_cdc.sources.oracle.mining.log_switch_errors import (
    LogsMoved,
    LogSwitchGuard,
    WindowProgress,
    identify_row,
)
from airflow_provider_cdc.sources.oracle.mining.logminer_query import (
    WIRE,
    MinedRowFilter,
    contents_query,
    decode_contents,
)
from airflow_provider_cdc.sources.oracle.mining.mining_session_logs import AddedSessionLogs, session_logs
from airflow_provider_cdc.sources.oracle.mining.redo_dictionary import RedoDictionaries
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import PAUSES, RedoLogFile
from airflow_provider_cdc.sources.oracle.privileges import fetch_view_rows
from airflow_provider_cdc.sources.oracle.stream_counters import SessionCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import MiningRestart

log = logging.getLogger(__name__)

NO_XIDS: Final[Mapping[bytes, int]] = MappingProxyType({})
FETCH_ROWS: Final = 10_000
_SWITCHES = "SELECT COUNT(*) FROM V$LOG_HISTORY WHERE FIRST_TIME > SYSDATE - 1"
_MEMORY: Final = {
    "session uga memory": "UserGlobalAreaMemory", "session uga memory max": "UserGlobalAreaMaxMemory",
    "session pga memory": "ProcessGlobalAreaMemory", "session pga memory max": "ProcessGlobalAreaMaxMemory",
}  # fmt: skip
_STATISTICS = f"""
SELECT n.NAME, s.VALUE FROM V$MYSTAT s JOIN V$STATNAME n ON n.STATISTIC# = s.STATISTIC#
WHERE n.NAME IN ({", ".join(f"'{name}'" for name in _MEMORY)})"""
_TIME = "SELECT SCN_TO_TIMESTAMP(:scn) FROM DUAL"


class MiningSession:
    """Mines one window after the other, over a separate connection.

    :param filters: the connector's filters, to exclude unsupported rows of tables that are not captured
    :param open_connection: opens a connection; by default to the database, or to ``log.mining.readonly.hostname``

    ::

        with MiningSession(config, filters) as session:
            end = windows.next(start, session.minable_scn()).end
            session.open_window(start, end)
            for batch in session.read_rows(start, end): ...

    :ivar files: the log files of the session, as far as the database shows them
    :ivar begin_seconds: seconds until the last window had its first rows
    """

    def __init__(
        self,
        config: OracleConfig,
        filters: Filters,
        counters: SessionCounters | None = None,
        *,
        open_connection: Callable[[], Connection] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._row_filter = MinedRowFilter(config, filters)
        self._open_connection = open_connection or (
            lambda: connect(config, host=config.log_mining_readonly_hostname or None)
        )
        self._sleep = sleep
        self._clock = clock
        self._sql = ""
        self._connection: Connection | None = None
        self._logs: AddedSessionLogs | None = None
        self._mined_before = self._open = False
        self._read: tuple[RedoLogFile, ...] = ()
        self._redo_dictionaries = RedoDictionaries(config, sleep=sleep)
        self._opened_at = 0.0
        self._utc_offset = 0
        self._seen_missing: set[int] = set()
        self.files: tuple[RedoLogFile, ...] = ()
        self.begin_seconds = 0.0
        self.counters = counters or SessionCounters()

    def __enter__(self) -> MiningSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- questions to the database

    @property
    def connection(self) -> Connection:
        """The connection, to the container that is mined; opened at first use."""
        if self._connection is None:
            self._connection = self._open_connection()
            with translate_driver_errors(self._config):
                self._sql = contents_query(self._config, container_id(self._connection, self._config))
        return self._connection

    @property
    def log_collector(self) -> AddedSessionLogs:
        """Finds log files, over the session's connection."""
        if self._logs is None:
            self._logs = session_logs(self.connection, self._config, sleep=self._sleep)
        return self._logs

    def minable_scn(self) -> int:
        """Return the last SCN that can be mined now.

        This is the current SCN, or the last archived one if only archived logs are mined.

        Up to the current SCN the log buffer has to be flushed first: :class:`.log_buffer_flush.LogWriterFlush`.
        """
        logs = self.log_collector
        with translate_driver_errors(self._config):
            return logs.archived_scn() if logs.archived_only() else current_scn(self.connection)

    def scn_time(self, scn: int) -> datetime | None:
        """Return the time of an SCN; ``None`` if the database does not know it any more."""
        try:
            with translate_driver_errors(self._config, f"SCN {scn}"):
                time_of_scn = fetch_scalar(self.connection, _TIME, scn=scn)
        except CdcError as e:
            if isinstance(e.__cause__, oracledb.Error) and code_of(e.__cause__) in (8180, 8181, 1405, 6502):
                return None
            raise
        return time_of_scn if isinstance(time_of_scn, datetime) else None

    def log_ends(self, start: int) -> list[int]:
        """Return the last SCNs of the completed logs after ``start``, ascending."""
        return self.log_collector.log_ends(start)

    def record_memory(self) -> None:
        """Record the memory of the session in the server, if the user may see it."""
        try:
            with translate_driver_errors(self._config):
                statistics = fetch_rows(self.connection, _STATISTICS)
            self.counters.memory = {_MEMORY[name]: int(value) for name, value in statistics}
        except PrerequisiteError as e:
            log.debug("The session's memory cannot be read: %s", e.message)
            self.counters.memory = {}

    # -- mining

    def open_window(self, low: int, end: int) -> None:
        """Start LogMiner for the SCNs ``low`` to ``end``, both included.

        :param end: an SCN whose redo is on disk: from :meth:`minable_scn`, flushed
        :raises PositionLost: logs of the window do not exist any more
        :raises SourceUnavailable: logs are still being archived, or the connection is lost
        """
        if low <= end:
            self._retry(low, end)

    def read_rows(
        self, low: int, end: int, read: int | None = None, late: Mapping[bytes, int] = NO_XIDS
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of the window, in LogMiner's order, as batches with the schema :data:`.logminer_query.BATCH`.

        If a log is switched meanwhile, the remaining rows are read from its archived copy: none comes twice, none is lost.

        :param read: rows up to this SCN were read before, and are passed over
        :param late: XID → start SCN of transactions whose rows are not passed over
        :raises MiningRestart: the rows before the switch come in another order now
        :raises SourceUnavailable: the connection is lost, or logs are switched again and again
        :raises PositionLost: logs of the window do not exist any more
        """
        progress = WindowProgress(low)
        attempts = 0
        while progress.low <= end:
            before = progress.rows
            try:
                for batch in self._fetch(progress, end):
                    remaining = batch if read is None else self._row_filter.without_earlier(batch, read, late)
                    if remaining.num_rows:
                        yield remaining
                return
            except LogsMoved as e:
                attempts = 0 if progress.rows != before else attempts + 1
                if attempts >= len(PAUSES):
                    raise self._mining_failed(e, progress.low, end) from e
                self._note_retry(e, PAUSES[attempts])
                self._forget()
                self._retry(progress.low, end)

    def cancel_call(self) -> None:
        """End the call to the database that another thread may wait for; LogMiner may take minutes for one."""
        if self._connection is not None:
            with contextlib.suppress(oracledb.Error):  # the connection is gone, and so is the call
                self._connection.cancel()

    def close(self) -> None:
        """End the session and the connection."""
        connection, self._connection = self._connection, None
        self.files, self._logs, self._mined_before, self._open = (), None, False, False
        if connection is not None:
            try:
                connection.close()
            except oracledb.Error as e:
                log.debug("The mining connection was already closed: %s", e)

    # -- the LogMiner session

    def _retry(self, low: int, end: int) -> None:
        for pause in (*PAUSES, None):
            try:
                self._begin(low, end)
                return
            except LogsMoved as e:
                self._forget()
                if pause is None:
                    raise self._mining_failed(e, low, end) from e
                self._note_retry(e, pause)

    def _note_retry(self, e: LogsMoved, pause: float) -> None:
        self.counters.retries += 1
        log.info("The redo logs changed during mining (%s); collecting them again in %.2f s.", e, pause)
        self._sleep(pause)

    def _mining_failed(self, e: LogsMoved, low: int, end: int) -> CdcError:
        if failed := self.log_collector.explain_failure(e, low, end):
            return failed
        where = f"SCN {low} to {end}"
        if isinstance(e.__cause__, oracledb.Error):
            try:
                with translate_driver_errors(self._config, where):
                    raise e.__cause__
            except CdcError as error:
                return error
        return SourceUnavailable(
            f"The redo logs repeatedly could not be mined: {e}",
            where=where,
            safe="Changes that were not committed to the change log are captured again by the next run.",
            remedy="add redo logs or make them larger (ALTER DATABASE ADD LOGFILE), so that they are overwritten "
            "later; a retry resumes where this run stopped",
        )

    def _begin(self, low: int, end: int) -> None:
        began = self._clock()
        if self._expired():
            self._forget()
        needed = self._needed(low, end)
        new = not self._open or bool(set(needed) - set(self.files))
        if new:
            self._new_session(needed)
        surplus = tuple(set(self.files) - set(needed))
        self._read = self.log_collector.start_mining(needed, surplus, low, end)
        self.files = needed or self._read  # LogMiner may be the first to know them
        if new:
            self._note_session()
        with translate_driver_errors(self._config):
            self._utc_offset = utc_offset(self.connection)  # a session may outlive a change to summer time
        self.begin_seconds = self._clock() - began
        self.counters.record_window_start(self.begin_seconds)

    def _needed(self, low: int, end: int) -> tuple[RedoLogFile, ...]:
        config = self._config
        if config.log_mining_path_dictionary or config.log_mining_strategy is not MiningStrategy.REDO_LOG_CATALOG:
            return self.log_collector.find_needed_logs(low, end)
        return self._redo_dictionaries.collect_logs(self.connection, self.log_collector, low, end)

    def _new_session(self, files: tuple[RedoLogFile, ...]) -> None:
        self._forget()
        if self._config.log_mining_restart_connection and self._mined_before:
            self.close()
        self.log_collector.add_files(files)
        self.files, self._mined_before, self._open = files, True, True
        self._opened_at = self._clock()

    def _note_session(self) -> None:
        with translate_driver_errors(self._config):
            ((switches,),) = fetch_view_rows(self.connection, _SWITCHES) or ((0,),)
        self.counters.record_session_start([(file.name, file.log_status) for file in self._read], int(switches))
        log.info("New LogMiner session: %s", "; ".join(map(str, self._read)))

    def _expired(self) -> bool:
        most = self._config.log_mining_session_max_ms / 1000
        return self._open and most > 0 and self._clock() - self._opened_at >= most

    def _forget(self) -> None:
        """End LogMiner's session, if there is one."""
        self.files, self._open = (), False
        if self._logs is not None:
            self._logs.discard_cached_logs()
        if self._connection is not None:
            logminer_calls.end_logminer(self._connection, self._config)

    # -- rows

    def _fetch(self, progress: WindowProgress, end: int) -> Iterator[pa.RecordBatch]:
        began = self._clock()
        skip, waiting, counters = progress.rows, True, self.counters
        counters.count_query()
        online = {(file.thread, file.sequence) for file in self._read if not file.archived}
        with contextlib.closing(self._batches(progress.low, end)) as batches:
            while True:
                asked_at = self._clock()
                with LogSwitchGuard(self._config, f"SCN {progress.low} to {end}"):
                    batch = next(batches, None)
                counters.record_fetch_time(self._clock() - asked_at)
                # if an online log was overwritten meanwhile, rows may be missing without an error: check before using them
                if online and (gone := online - self.log_collector.read_online_logs()):
                    raise LogsMoved(f"{len(gone)} online logs were overwritten")
                if batch is None:
                    break
                if waiting:
                    self.begin_seconds += self._clock() - began
                    waiting = False
                if skip:
                    batch, skip = self._without_delivered(batch, skip, progress)
                if batch.num_rows:
                    checked = self._checked(batch)
                    progress.record_read_batch(batch)
                    counters.rows += batch.num_rows
                    yield checked
        if skip:
            raise self._order_changed(progress)

    def _batches(self, low: int, high: int) -> Generator[pa.RecordBatch, None, None]:
        size = self._config.query_fetch_size or FETCH_ROWS
        binds = {"low": low, "high": high}
        for fetched in self.connection.fetch_df_batches(self._sql, binds, size=size, requested_schema=WIRE):
            yield decode_contents(pa.table(fetched), self._utc_offset)

    def _without_delivered(
        self, batch: pa.RecordBatch, skip: int, progress: WindowProgress
    ) -> tuple[pa.RecordBatch, int]:
        """Return the batch without the rows that were already delivered before the logs were collected again."""
        here = min(skip, batch.num_rows)
        if here and skip == here and identify_row(batch, here - 1) != progress.last:
            raise self._order_changed(progress)
        return batch.slice(here), skip - here

    @staticmethod
    def _order_changed(progress: WindowProgress) -> MiningRestart:
        return MiningRestart(
            f"after a log switch the first {progress.rows} rows from SCN {progress.low} are in a different order"
        )

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass the filters.

        :raises LogsMoved: a row reports missing redo for the first time: the logs have to be collected again
        """
        missing = pc.equal(batch.column("code"), MISSING_SCN)
        if pc.any(missing).as_py():
            new = set(batch.column("scn").filter(missing).to_pylist()) - self._seen_missing
            self._seen_missing |= new
            if new:
                raise LogsMoved(f"LogMiner misses redo at SCN {min(new)}")
            # the logs were collected again, and by their sequence numbers none is missing in any thread
            self.counters.missing_scns += pc.sum(missing).as_py()
            log.warning(
                "LogMiner reports missing redo at SCN %s, but its logs are complete: %s",
                ", ".join(map(str, batch.column("scn").filter(missing).to_pylist())),
                "; ".join(map(str, self._read)),
            )
            batch = batch.filter(pc.invert(missing))
        return self._row_filter.filter_batch(batch)
