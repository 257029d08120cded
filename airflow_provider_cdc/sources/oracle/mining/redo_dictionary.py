"""LogMiner dictionaries in the redo logs, for ``log.mining.strategy=redo_log_catalog``: which one to use, and when to write another.

LogMiner reads the dictionary that it finds in its logs, and tracks the DDL after it. So the logs of a session begin with the last
dictionary before its range. A new dictionary is written after each log switch, to keep the number of these logs small (Debezium Oracle
connector, "Mining strategies").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, fetch_scalar, translate_driver_errors
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import (
    PAUSES,
    RedoLogCollector,
    RedoLogFile,
    RedoLogListing,
)

log = logging.getLogger(__name__)

_BUILD: Final = "BEGIN SYS.DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;"
_OPEN_MODE: Final = "SELECT OPEN_MODE FROM V$DATABASE"


@dataclass(frozen=True, slots=True)
class _DictionaryLogs:
    """The logs that contain a dictionary."""

    first: RedoLogFile
    last: RedoLogFile


class RedoDictionaries:
    """Finds the dictionaries in the redo logs, and has the database write new ones.

    :ivar count: number of dictionaries written for this stream
    """

    def __init__(self, config: OracleConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._config = config
        self._sleep = sleep
        self._built: set[tuple[int, int]] = set()
        self.count = 0

    def collect_logs(
        self, connection: Connection, collector: RedoLogCollector, low: int, end: int
    ) -> tuple[RedoLogFile, ...]:
        """Return the logs of a range of SCNs, and those back to the dictionary that LogMiner needs for it.

        :param low: first SCN of the range
        :param end: last SCN of the range
        :raises PrerequisiteError: there is no dictionary, and the database is read-only, so that none can be written
        :raises SourceUnavailable: the logs with a new dictionary were not archived after some waiting
        """
        listing = collector.list_logs()
        if self._needs_new(listing):
            if fetch_scalar(connection, _OPEN_MODE) == "READ WRITE":
                self._build(connection)
                listing = collector.list_logs()
            elif not _dictionaries(listing):
                raise PrerequisiteError(
                    "The redo logs contain no dictionary, and the database is open read-only.",
                    safe="The offset is untouched.",
                    remedy="on the primary: EXECUTE DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); or set "
                    "log.mining.strategy=online_catalog",
                )
        for pause in (*PAUSES, None):
            dictionaries = _dictionaries(listing)
            before = [dictionary for dictionary in dictionaries if dictionary.first.first_scn <= low]
            if dictionaries:
                chosen = max(before, key=_first_scn) if before else min(dictionaries, key=_first_scn)
                dictionary_end = chosen.last.next_scn or end
                return collector.collect(min(low, chosen.first.first_scn), max(end, dictionary_end - 1))
            if pause is not None:
                log.info("The redo log with the new dictionary is not archived yet; checking again in %.2f s.", pause)
                self._sleep(pause)
                listing = collector.list_logs()
        raise SourceUnavailable(
            "A dictionary was written to the redo logs, but these logs are not archived.",
            where=f"SCN {low}",
            safe="Nothing is lost; the offset is untouched.",
            remedy="check whether the archiver is stuck: SELECT DEST_NAME, STATUS, ERROR FROM V$ARCHIVE_DEST_STATUS",
        )

    def _needs_new(self, listing: RedoLogListing) -> bool:
        """Check whether a log was switched since the last dictionary.

        Writing a dictionary switches logs, too: that switch does not count.
        """
        newest = {file.thread: file.sequence for file in listing.files}
        written = {
            (dictionary.last.thread, dictionary.last.sequence) for dictionary in _dictionaries(listing)
        } | self._built
        return all(newest.get(thread, 0) - sequence > 1 for thread, sequence in written)

    def _build(self, connection: Connection) -> None:
        log.info("A dictionary is written to the redo logs.")
        with translate_driver_errors(self._config, "DBMS_LOGMNR_D.BUILD"), connection.cursor() as cursor:
            cursor.execute(_BUILD)
        self.count += 1
        thread = self._thread(connection)
        current = fetch_scalar(connection, "SELECT MAX(SEQUENCE#) FROM V$LOG WHERE THREAD# = :thread", thread=thread)
        self._built = {(thread, int(current or 1) - 1)}

    def _thread(self, connection: Connection) -> int:
        try:
            return int(fetch_scalar(connection, "SELECT THREAD# FROM V$INSTANCE") or 1)
        except oracledb.DatabaseError as e:
            log.warning("V$INSTANCE cannot be read (%s): the connection's redo thread is assumed to be 1.", e)
            return 1


def _first_scn(dictionary: _DictionaryLogs) -> int:
    return dictionary.first.first_scn


def _dictionaries(listing: RedoLogListing) -> list[_DictionaryLogs]:
    """Return the complete dictionaries.

    Each is from a log with ``DICTIONARY_BEGIN`` to the first one with ``DICTIONARY_END``, in the same thread.
    """
    dictionaries: list[_DictionaryLogs] = []
    first: RedoLogFile | None = None
    for file in listing.files:
        if first is not None and file.thread != first.thread:
            first = None
        if file.dictionary_begin:
            first = file
        if file.dictionary_end and first is not None:
            dictionaries.append(_DictionaryLogs(first, file))
            first = None
    return dictionaries
