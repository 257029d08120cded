"""The logs of a LogMiner session: added one by one, or found by LogMiner inside a pluggable database.

In the root, and in a database without containers, a session gets its logs by ``ADD_LOGFILE``. A pluggable database refuses that (ORA-65040):
there ``START_LOGMNR`` finds the logs of its range by itself, and gives the redo of this container alone (Oracle Database Utilities 19c,
"Understanding How to Run LogMiner Sessions"). ``V$LOGMNR_LOGS`` lists them afterwards. A window counts as opened only if they have no
gap, by their sequence numbers and SCNs, so that no redo is left out silently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import CdcError, NotGranted, PositionLost, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    code_of,
    current_scn,
    fetch_rows,
    fetch_scalar,
    pluggable_database,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.error_translation import LOG_NOT_READY, translate_error
from airflow_provider_cdc.sources.oracle.mining import logminer_calls
from airflow_provider_cdc.sources.oracle.mining.log_switch_errors import LogsMoved
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import (
    PAUSES,
    RedoGap,
    RedoLogCollector,
    RedoLogFile,
    RedoLogListing,
)
from airflow_provider_cdc.sources.oracle.privileges import fetch_view_rows

_PROBE_PAUSES: Final = PAUSES[:4]
_REFUSED_INSIDE: Final = 65040
_NOT_FOUND: Final = LOG_NOT_READY | {1292}
_ONLINE = "SELECT THREAD#, SEQUENCE#, GROUPS FROM V$THREAD"
_RESETLOGS = "SELECT RESETLOGS_CHANGE# FROM V$DATABASE"


class AddedSessionLogs(RedoLogCollector):
    """Logs that are looked up in the ``V$`` views and added to the session."""

    def find_needed_logs(self, low: int, end: int) -> tuple[RedoLogFile, ...]:
        """Return the logs of a window, as far as they have to be known before it is opened."""
        return self.collect(low, end)

    def add_files(self, files: Sequence[RedoLogFile]) -> None:
        """Add the logs of a new session.

        :raises LogsMoved: a log file is not at its path any more
        """
        logminer_calls.add_logs(self._connection, self._config, files)

    def start_mining(
        self, needed: Sequence[RedoLogFile], surplus: Sequence[RedoLogFile], low: int, end: int
    ) -> tuple[RedoLogFile, ...]:
        """Start LogMiner for a window; returns the logs that it reads.

        :param surplus: logs of the session that no later window needs
        :raises LogsMoved: logs were switched, archived or removed: collect them again
        """
        logminer_calls.start_logminer(self._connection, self._config, needed, surplus, low, end)
        return tuple(needed)

    def explain_failure(self, e: LogsMoved, low: int, end: int) -> CdcError | None:
        """Return the error of a window that could not be opened, if it is not that of the database."""
        return None


class DiscoveredSessionLogs(AddedSessionLogs):
    """Logs that LogMiner finds, in a pluggable database that shows the ``V$`` views: these explain missing logs before it is asked."""

    def __init__(
        self, connection: Connection, config: OracleConfig, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(connection, config, sleep=sleep)
        self._named = []  # LogMiner chooses the copies
        self._destinations = {}

    def add_files(self, files: Sequence[RedoLogFile]) -> None:
        pass

    def start_mining(
        self, needed: Sequence[RedoLogFile], surplus: Sequence[RedoLogFile], low: int, end: int
    ) -> tuple[RedoLogFile, ...]:
        try:
            files = logminer_calls.find_logs(self._connection, self._config, low, end)
        except CdcError as e:
            if isinstance(e.__cause__, oracledb.Error) and code_of(e.__cause__) == _REFUSED_INSIDE:
                raise PrerequisiteError(
                    f"This Oracle release does not support LogMiner inside a pluggable database: {e.__cause__}",
                    where=f"SCN {low} to {end}",
                    safe="Nothing was read; the offset is untouched.",
                    remedy="set database.dbname to the name of the root container, database.pdb.name to the name of the "
                    "pluggable database, and database.user to a common user",
                ) from e
            raise
        with translate_driver_errors(self._config, "V$THREAD"):
            gap = RedoLogListing(0, self._threads(), files, False).find_gap(low, end)
        if gap is not None:
            raise LogsMoved(f"LogMiner has not found the redo of thread {gap.thread} from SCN {gap.low}")
        return files

    def read_online_logs(self) -> set[tuple[int, int]]:
        """Thread and sequence number of the logs that are not overwritten.

        A thread uses its groups one after the other, so its last ones are online, as many as it has groups. An autonomous database shows
        ``V$THREAD``, but not ``V$LOG``.
        """
        with translate_driver_errors(self._config, "V$THREAD"):
            threads = fetch_rows(self._connection, _ONLINE)
        return {
            (int(thread), sequence)
            for thread, last, groups in threads
            for sequence in range(int(last) - int(groups) + 1, int(last) + 1)
        }

    def explain_failure(self, e: LogsMoved, low: int, end: int) -> CdcError:
        """Return the error of logs that LogMiner does not find.

        Logs that LogMiner alone does not find are no lost position: it may find them later.
        """
        where = f"SCN {low} to {end}"
        if (cause := e.__cause__) is not None and code_of(cause) not in _NOT_FOUND:
            return translate_error(cause, self._config, where)
        if self._lost(low):
            return PositionLost(
                f"LogMiner finds no redo from SCN {low}: {e}",
                where=where,
                safe="Everything before the saved position is captured. The tables still contain the result of "
                "later changes.",
                remedy="set snapshot.mode=when_needed to snapshot all tables again and continue from there; capture more "
                "often than redo logs are deleted, or keep them longer",
            )
        return SourceUnavailable(
            f"LogMiner does not find all redo of a range: {e}",
            where=where,
            safe="Nothing is lost; the offset is untouched.",
            remedy="a retry resumes where this run stopped, once the logs are archived. If it fails repeatedly: if "
            "LogMiner finds only archived logs, GRANT SELECT ON V_$ARCHIVED_LOG and set "
            "log.mining.archive.log.only.mode=true; if a log in between is lost, set snapshot.mode=when_needed to "
            "snapshot all tables again",
        )

    def _lost(self, low: int) -> bool:
        return False

    def _explained(self, gap: RedoGap, listing: RedoLogListing) -> RedoGap:
        try:
            return super()._explained(gap, listing)
        except NotGranted:  # V$LOG_HISTORY only helps to say more
            return gap


class UnlistedSessionLogs(DiscoveredSessionLogs):
    """Logs that LogMiner finds, in a pluggable database that does not show the views of the control file, as Autonomous Database.

    Only LogMiner knows whether there is redo for a range, so it is started to find out. Without ``V$LOG``, a log that is overwritten while
    it is read is recognised by the sequence numbers of ``V$THREAD`` (:meth:`read_online_logs`): the rows fetched meanwhile are not used, and the rest
    of the window is mined again.
    """

    _switched = 0
    _session_files: tuple[RedoLogFile, ...] = ()

    def find_needed_logs(self, low: int, end: int) -> tuple[RedoLogFile, ...]:
        """Return the logs of the last window. A log switch changes them, and so begins a new session."""
        return self._session_files

    def discard_cached_logs(self) -> None:
        super().discard_cached_logs()
        self._session_files = ()

    def start_mining(
        self, needed: Sequence[RedoLogFile], surplus: Sequence[RedoLogFile], low: int, end: int
    ) -> tuple[RedoLogFile, ...]:
        files = self._session_files = super().start_mining(needed, surplus, low, end)
        if current := [file.first_scn for file in files if file.is_current]:
            # threads whose current log is not among them have it from after the window's end
            self._switched = min(current)
        return files

    def collect(self, start: int, end: int) -> tuple[RedoLogFile, ...]:
        resetlogs = self._resetlogs()
        if start < resetlogs:
            raise self._former_incarnation(start, resetlogs)
        for pause in (*_PROBE_PAUSES, None):
            try:
                return self._probe(start, end)
            except LogsMoved as e:
                if pause is None:  # no view says that a log is deleted, and not on its way
                    raise self.explain_failure(e, start, end) from e
                self._sleep(pause)
        raise AssertionError("unreachable")

    def _lost(self, low: int) -> bool:
        """Check that LogMiner finds redo of now, but not of an SCN. Logs are deleted oldest first."""
        with translate_driver_errors(self._config):
            now = current_scn(self._connection)
        return self._finds(now, now) and not self._finds(low, low)

    def oldest_scn(self) -> int:
        missing = self._resetlogs() - 1
        with translate_driver_errors(self._config):
            end = oldest = current_scn(self._connection)
        while oldest - missing > 1:
            middle = (oldest + missing) // 2
            if self._finds(middle, end):
                oldest = middle
            else:
                missing = middle
        return oldest

    def log_ends(self, start: int) -> list[int]:
        return []

    def switched_scn(self) -> int:
        """Return the SCN of the last window. Later switches only increase it."""
        return self._switched

    def _resetlogs(self) -> int:
        with translate_driver_errors(self._config):
            return int(fetch_scalar(self._connection, _RESETLOGS))

    def _finds(self, low: int, end: int) -> bool:
        try:
            self._probe(low, end)
        except (LogsMoved, PositionLost):  # PositionLost: the SCN is from before the database
            return False
        return True

    def _probe(self, low: int, end: int) -> tuple[RedoLogFile, ...]:
        try:
            return self.start_mining((), (), low, end)
        finally:
            logminer_calls.end_logminer(self._connection, self._config)


def session_logs(
    connection: Connection, config: OracleConfig, *, sleep: Callable[[float], None] = time.sleep
) -> AddedSessionLogs:
    """Return the logs of the container that a connection leads to."""
    with translate_driver_errors(config):
        if pluggable_database(connection) is None:
            return AddedSessionLogs(connection, config, sleep=sleep)
        views = ["V$ARCHIVED_LOG", *([] if config.log_mining_archive_log_only_mode else ["V$LOG", "V$LOGFILE"])]
        can_see_logs = all(
            fetch_view_rows(connection, f"SELECT 1 FROM {view} WHERE 1 = 0") is not None for view in views
        )
    return (DiscoveredSessionLogs if can_see_logs else UnlistedSessionLogs)(connection, config, sleep=sleep)
