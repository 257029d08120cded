"""Dictionaries in the redo logs, for ``log.mining.strategy=redo_log_catalog``: which one to begin with, and when to write another.

LogMiner reads the dictionary that it finds in its logs, and follows the DDL after it. So the logs of a session begin with the last
dictionary that was written before its range, and a new one is written after each log switch, which keeps that run of logs short
(Debezium Oracle connector, "Mining strategies").
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
from airflow_provider_cdc.sources.oracle.connect import Connection, scalar, translated
from airflow_provider_cdc.sources.oracle.mining.redo_logs import PAUSES, LogCollector, LogFile, LogListing

log = logging.getLogger(__name__)

_BUILD: Final = "BEGIN SYS.DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;"
_OPEN_MODE: Final = "SELECT OPEN_MODE FROM V$DATABASE"


@dataclass(frozen=True, slots=True)
class _Span:
    """The logs that a dictionary lies in."""

    first: LogFile
    last: LogFile


class RedoDictionaries:
    """Finds the dictionaries in the redo of one stream, and has new ones written."""

    def __init__(self, config: OracleConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._config = config
        self._sleep = sleep
        self._built: set[tuple[int, int]] = set()
        self.count = 0

    def logs(self, connection: Connection, collector: LogCollector, low: int, end: int) -> tuple[LogFile, ...]:
        """The logs of a range, and those back to the dictionary that LogMiner reads it with.

        :raises PrerequisiteError: there is none, and none can be written because the database is read only
        :raises SourceUnavailable: the logs with a new one are not archived after some waiting
        """
        listing = collector.listing()
        if self._wants_another(listing):
            if scalar(connection, _OPEN_MODE) == "READ WRITE":
                self._build(connection)
                listing = collector.listing()
            elif not _spans(listing):
                raise PrerequisiteError(
                    "There is no dictionary in the redo logs, and the database is open for reading only.",
                    safe="The offset is untouched.",
                    remedy="on the primary: EXECUTE DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); or set "
                    "log.mining.strategy=online_catalog",
                )
        for pause in (*PAUSES, None):
            spans = _spans(listing)
            before = [span for span in spans if span.first.first_scn <= low]
            if spans:
                chosen = max(before, key=_place) if before else min(spans, key=_place)
                dictionary_end = chosen.last.next_scn or end
                return collector.collect(min(low, chosen.first.first_scn), max(end, dictionary_end - 1))
            if pause is not None:
                log.info("The redo log with the new dictionary is not archived yet; looking again in %.2f s.", pause)
                self._sleep(pause)
                listing = collector.listing()
        raise SourceUnavailable(
            "A dictionary was written into the redo logs, but the logs with it are not archived.",
            where=f"SCN {low}",
            safe="Nothing is lost; the offset is untouched.",
            remedy="look whether the archiver is stuck: SELECT DEST_NAME, STATUS, ERROR FROM V$ARCHIVE_DEST_STATUS",
        )

    def _wants_another(self, listing: LogListing) -> bool:
        """Whether a log was switched since the last dictionary. Writing a dictionary switches logs by itself."""
        newest = {one.thread: one.sequence for one in listing.files}
        written = {(span.last.thread, span.last.sequence) for span in _spans(listing)} | self._built
        return all(newest.get(thread, 0) - sequence > 1 for thread, sequence in written)

    def _build(self, connection: Connection) -> None:
        log.info("A dictionary is written into the redo logs.")
        with translated(self._config, "DBMS_LOGMNR_D.BUILD"), connection.cursor() as cursor:
            cursor.execute(_BUILD)
        self.count += 1
        thread = self._thread(connection)
        current = scalar(connection, "SELECT MAX(SEQUENCE#) FROM V$LOG WHERE THREAD# = :thread", thread=thread)
        self._built = {(thread, int(current or 1) - 1)}

    def _thread(self, connection: Connection) -> int:
        try:
            return int(scalar(connection, "SELECT THREAD# FROM V$INSTANCE") or 1)
        except oracledb.DatabaseError as e:
            log.warning("V$INSTANCE cannot be read (%s): thread 1 is taken for that of the connection.", e)
            return 1


def _place(span: _Span) -> int:
    return span.first.first_scn


def _spans(listing: LogListing) -> list[_Span]:
    """Complete dictionaries: from a log with a beginning to the first one with an end, in the same thread."""
    found: list[_Span] = []
    first: LogFile | None = None
    for one in listing.files:
        if first is not None and one.thread != first.thread:
            first = None
        if one.dictionary_begin:
            first = one
        if one.dictionary_end and first is not None:
            found.append(_Span(first, one))
            first = None
    return found
