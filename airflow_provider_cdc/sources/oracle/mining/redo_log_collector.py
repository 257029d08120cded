"""Finds the redo logs that contain a range of SCNs, in every redo thread, without a gap.

Logs are switched, archived, copied and deleted while the views are read. So the result is checked: each thread's sequence numbers have no
gap, the first log begins at or before the start of the range, the last one ends after its end. A gap becomes an error only after several
attempts.

Precondition: the database had reached the end of the range *before* the logs are looked up. Then a log that is current at that moment
contains all redo of its thread up to the end, whether or not it is switched later.

Only ``V$`` views are read: they show all threads of a cluster, because they come out of the control file, and ``GV$`` views would need
every instance (Debezium Oracle connector, "Mining sessions", "How the connector maintains offsets").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.errors import CdcError, ConfigError, PositionLost, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, fetch_rows, fetch_scalar, translate_driver_errors
from airflow_provider_cdc.sources.oracle.privileges import fetch_view_rows

log = logging.getLogger(__name__)

PAUSES: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts while the logs of a range are not complete."""

_FACTS = "SELECT RESETLOGS_CHANGE#, DATABASE_ROLE FROM V$DATABASE"
_RECOVERED = "SELECT DATABASE_ROLE, CURRENT_SCN FROM V$DATABASE"
_STANDBY_LOGS = "SELECT THREAD#, MIN(FIRST_CHANGE#) FROM V$STANDBY_LOG WHERE STATUS = 'ACTIVE' GROUP BY THREAD#"
_THREADS = "SELECT THREAD#, STATUS, ENABLED, ENABLE_CHANGE#, DISABLE_CHANGE#, CHECKPOINT_CHANGE# FROM V$THREAD"
_ONLINE = """
SELECT MIN(f.MEMBER), l.THREAD#, l.SEQUENCE#, l.FIRST_CHANGE#, l.NEXT_CHANGE#, l.STATUS, l.ARCHIVED
FROM V$LOG l JOIN V$LOGFILE f ON f.GROUP# = l.GROUP#
WHERE l.STATUS IN ('CURRENT', 'ACTIVE', 'INACTIVE') AND f.STATUS IS NULL
GROUP BY l.THREAD#, l.SEQUENCE#, l.FIRST_CHANGE#, l.NEXT_CHANGE#, l.STATUS, l.ARCHIVED"""
_ARCHIVED = """
SELECT NAME, THREAD#, SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#, DEST_ID, DICTIONARY_BEGIN, DICTIONARY_END
FROM V$ARCHIVED_LOG
WHERE ARCHIVED = 'YES' AND STATUS = 'A' AND NAME IS NOT NULL AND STANDBY_DEST = 'NO'
  AND RESETLOGS_CHANGE# = :resetlogs AND NEXT_CHANGE# > :low"""
_RECENT = " AND FIRST_TIME >= SYSDATE - :hours / 24"
_SWITCHED = """
SELECT MIN(l.FIRST_CHANGE#) FROM V$LOG l JOIN V$THREAD t ON t.THREAD# = l.THREAD# WHERE l.STATUS = 'CURRENT' AND t.STATUS = 'OPEN'"""
_DESTINATIONS = "SELECT DEST_NAME, DEST_ID, STATUS, TYPE FROM V$ARCHIVE_DEST_STATUS ORDER BY DEST_ID"
_KNOWN = """
SELECT SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE# FROM V$LOG_HISTORY
WHERE THREAD# = :thread AND RESETLOGS_CHANGE# = :resetlogs AND NEXT_CHANGE# > :low AND FIRST_CHANGE# < :high
ORDER BY SEQUENCE#"""
_COPIES = """
SELECT SEQUENCE#, STATUS FROM V$ARCHIVED_LOG
WHERE THREAD# = :thread AND RESETLOGS_CHANGE# = :resetlogs AND STANDBY_DEST = 'NO' AND SEQUENCE# >= :first_seq"""


@dataclass(frozen=True, slots=True)
class RedoLogFile:
    """A redo log: its online file, or an archived copy.

    :param name: path of the online member or of the archived copy
    :param thread: redo thread
    :param sequence: log sequence number
    :param first_scn: ``FIRST_CHANGE#``
    :param next_scn: ``NEXT_CHANGE#``: first SCN of the next log; ``None`` for the current log
    :param dictionary_begin: a LogMiner dictionary begins in it
    :param dictionary_end: a LogMiner dictionary ends in it
    """

    name: str
    thread: int
    sequence: int
    first_scn: int
    next_scn: int | None
    archived: bool
    dictionary_begin: bool = False
    dictionary_end: bool = False

    @property
    def is_current(self) -> bool:
        return self.next_scn is None

    @property
    def log_status(self) -> str:
        """``ARCHIVED``, or as in ``V$LOG``: ``CURRENT`` or ``INACTIVE``."""
        if self.archived:
            return "ARCHIVED"
        return "CURRENT" if self.is_current else "INACTIVE"

    def reaches_scn(self, scn: int) -> bool:
        """Check whether the redo of this SCN is in this log or in an earlier one."""
        return self.next_scn is None or self.next_scn > scn

    def __str__(self) -> str:
        return f"{self.name} (thread {self.thread}, sequence {self.sequence}, SCN {self.first_scn} to {self.next_scn or 'now'})"


@dataclass(frozen=True, slots=True)
class RedoThread:
    """A redo thread: the log of one instance.

    :param enabled_scn: first SCN for which it can have redo
    :param last_scn: last SCN for which it has redo; ``None`` while its instance runs
    """

    number: int
    enabled_scn: int
    last_scn: int | None


@dataclass(frozen=True, slots=True)
class RedoGap:
    """A range of SCNs for which a thread has no log.

    :param low: first SCN without a log
    :param high: first SCN after the gap that is in a log; ``None`` if there is no later log
    :param sequences: first and last sequence number of the missing logs, if the control file still has them
    :param deleted: the control file says that the logs were deleted
    :param coming: no copy was archived yet, so the archiver may still write one
    """

    thread: int
    low: int
    high: int | None
    sequences: tuple[int, int] | None = None
    deleted: bool = False
    coming: bool = False


@dataclass(frozen=True, slots=True)
class RedoLogListing:
    """The redo logs and threads in the ``V$`` views at one moment.

    :param resetlogs: SCN at which the current incarnation of the database began
    :param files: one log per thread and sequence number, in this order
    :param archived_only: online logs are not used
    """

    resetlogs: int
    threads: tuple[RedoThread, ...]
    files: tuple[RedoLogFile, ...]
    archived_only: bool

    def list_thread_files(self, thread: int) -> list[RedoLogFile]:
        return [file for file in self.files if file.thread == thread]

    def find_gap(self, start: int, end: int) -> RedoGap | None:
        """Return the first gap of the range, in the first thread that has one."""
        gaps = (_gap(thread, self.list_thread_files(thread.number), start, end) for thread in self.threads)
        return next((gap for gap in gaps if gap is not None), None)

    def find_covering_files(self, start: int, end: int) -> tuple[RedoLogFile, ...]:
        return tuple(file for file in self.files if file.reaches_scn(start) and file.first_scn <= end)


def _gap(thread: RedoThread, files: list[RedoLogFile], start: int, end: int) -> RedoGap | None:
    low, last = max(start, thread.enabled_scn), thread.last_scn
    if last is not None and files:  # a standby may show a thread as closed whose logs still come
        last = max(last, (files[-1].next_scn or 0) - 1)
    high = end if last is None else min(end, last)
    if low > high or (last is not None and last <= start):
        return None
    at = low
    for file in files:
        if not file.reaches_scn(at):
            continue
        if file.first_scn > at and not (file.sequence == 1 and at == low):
            return RedoGap(thread.number, at, file.first_scn)
        if file.next_scn is None or file.next_scn > high:
            return None
        at = file.next_scn
    return RedoGap(thread.number, at, None)


@dataclass(frozen=True, slots=True)
class _CachedArchivedLogs:
    """The archived logs that end after SCN ``low``, and the state of the online logs when they were asked for."""

    state: tuple[int, tuple[Any, ...]]
    low: int
    files: dict[tuple[int, int], RedoLogFile]


class RedoLogCollector:
    """Finds the logs of a range of SCNs.

    :param connection: to the mined database, in the root of a container database; not closed here
    :param sleep: waits the given number of seconds

    ::

        files = RedoLogCollector(connection, config).collect(start, end)
    """

    def __init__(
        self, connection: Connection, config: OracleConfig, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._connection = connection
        self._config = config
        self._sleep = sleep
        self._destinations: dict[int, int] | None = None
        self._cached_logs: _CachedArchivedLogs | None = None
        self._named = _names(config.log_mining_archive_destination_name)

    # -- existing logs

    def collect(self, start: int, end: int) -> tuple[RedoLogFile, ...]:
        """Return the logs of every thread that contain the SCNs ``start`` to ``end``, both included.

        The logs are ordered by thread and sequence number.

        :param end: an SCN whose redo is on disk before this call
        :raises PositionLost: logs of the range were deleted, or belong to a former incarnation of the database
        :raises SourceUnavailable: logs of the range were not archived, or not visible, after some waiting
        :raises ConfigError: ``log.mining.archive.destination.name`` names an unknown destination
        """
        for pause in (*PAUSES, None):
            listing = self.list_logs(start)
            if start < listing.resetlogs:
                raise self._former_incarnation(start, listing.resetlogs)
            if listing.find_gap(start, end) is not None:
                self.discard_cached_logs()
                listing = self.list_logs(start)
            gap = listing.find_gap(start, end)
            if gap is None:
                return listing.find_covering_files(start, end)
            gap = self._explained(gap, listing)
            if pause is None or (gap.deleted and pause > PAUSES[0]):
                raise self._error(gap, listing, start)
            log.info(
                "Thread %d: redo from SCN %d is not in a log yet; checking again in %.2f s.",
                gap.thread, gap.low, pause,
            )  # fmt: skip
            self._sleep(pause)
        raise AssertionError("unreachable")

    def list_logs(self, low: int = 0) -> RedoLogListing:
        """All logs that end after SCN ``low``, and all threads."""
        with translate_driver_errors(self._config, f"redo logs from SCN {low}"):
            resetlogs, role = fetch_rows(self._connection, _FACTS)[0]
            archived_only = self._archived_only(role)
            # online logs first: a log that is archived and overwritten between the queries is then in both results
            online = [] if archived_only else fetch_rows(self._connection, _ONLINE)
            archived = self._archived_since(online, int(resetlogs), low)
            threads = self._threads()
        by_sequence = {
            (file.thread, file.sequence): file for file in (_online(row) for row in online) if file.reaches_scn(low)
        }
        by_sequence |= archived
        files = tuple(sorted(by_sequence.values(), key=lambda file: (file.thread, file.sequence)))
        return RedoLogListing(int(resetlogs), threads, files, archived_only)

    def _threads(self) -> tuple[RedoThread, ...]:
        threads = (_thread(row) for row in fetch_rows(self._connection, _THREADS))
        return tuple(thread for thread in threads if thread is not None)

    def log_ends(self, start: int) -> list[int]:
        """Return the last SCNs of the completed logs after ``start``, ascending."""
        files = self.list_logs(start).files
        return sorted({file.next_scn - 1 for file in files if file.next_scn is not None and file.next_scn - 1 > start})

    def discard_cached_logs(self) -> None:
        """Ask for the archived logs again, as logs may have been deleted or restored."""
        self._cached_logs = None

    def _archived_since(
        self, online: list[tuple[Any, ...]], resetlogs: int, low: int
    ) -> dict[tuple[int, int], RedoLogFile]:
        """Return the archived logs that end after SCN ``low``.

        ``V$ARCHIVED_LOG`` is read from the control file, and may have ten thousands of rows. A log is added to it when one is switched and
        archived, which ``V$LOG`` shows; so it is asked again only then.
        """
        state = resetlogs, tuple(sorted((row[1], row[2], row[5], row[6]) for row in online))
        cached = self._cached_logs
        by_age = self._config.log_mining_archive_log_hours > 0
        if cached is None or not online or by_age or cached.state != state or low < cached.low:
            cached = self._cached_logs = _CachedArchivedLogs(state, low, self._archived(resetlogs, low))
        return {key: file for key, file in cached.files.items() if file.reaches_scn(low)}

    def archived_only(self) -> bool:
        """Check whether only archived logs are mined: if configured, and always on a physical standby."""
        with translate_driver_errors(self._config):
            return self._archived_only(fetch_rows(self._connection, _FACTS)[0][1])

    def _archived_only(self, role: str) -> bool:
        return self._config.log_mining_archive_log_only_mode or role == "PHYSICAL STANDBY"

    def oldest_scn(self) -> int:
        """Return the oldest SCN from which the logs of all threads are complete up to now."""
        listing = self.list_logs()
        oldest = listing.resetlogs
        for thread in sorted(listing.threads, key=lambda t: t.last_scn is not None):
            first = _chain_start(listing.list_thread_files(thread.number))
            if thread.last_scn is None:
                oldest = max(oldest, thread.enabled_scn if first is None else first)
            elif thread.last_scn > oldest:
                complete = first is not None and listing.list_thread_files(thread.number)[-1].reaches_scn(
                    thread.last_scn
                )
                oldest = max(oldest, first if first is not None and complete else thread.last_scn)
        return oldest

    def archived_scn(self) -> int:
        """Return the newest SCN up to which every thread is archived; 0 while a thread has no archived log.

        A standby may show a thread as closed that is open on the primary, and whose logs come later than those of others. So on a standby
        such a thread counts as archived up to the SCN that recovery has reached, for which it needs the redo of all threads, but not beyond
        the redo that is in standby redo logs.
        """
        listing = self.list_logs()
        with translate_driver_errors(self._config):
            role, recovered = fetch_rows(self._connection, _RECOVERED)[0]
            standby_logs = fetch_view_rows(self._connection, _STANDBY_LOGS) if role == "PHYSICAL STANDBY" else []
        received = None if standby_logs is None else {int(thread): int(scn) for thread, scn in standby_logs}
        ends = []
        for thread in listing.threads:
            done = [
                file.next_scn - 1
                for file in listing.list_thread_files(thread.number)
                if file.archived and file.next_scn
            ]
            end = max(done, default=0)
            if thread.last_scn is None or end < thread.last_scn:
                ends.append(end)
            elif role == "PHYSICAL STANDBY":
                complete = 0 if received is None else min(int(recovered), received.get(thread.number, 2**64) - 1)
                ends.append(max(end, complete))
        newest = max((file.next_scn or 0 for file in listing.files), default=0) - 1
        return max(0, min(ends, default=newest))

    def read_online_logs(self) -> set[tuple[int, int]]:
        """Thread and sequence number of the current online logs."""
        with translate_driver_errors(self._config, "online redo logs"):
            rows = fetch_rows(self._connection, "SELECT THREAD#, SEQUENCE# FROM V$LOG")
        return {(int(thread), int(sequence)) for thread, sequence in rows}

    def switched_scn(self) -> int:
        """SCN since which no log was switched in some open thread: all redo from before it is in a log."""
        with translate_driver_errors(self._config, "online redo logs"):
            return int(fetch_scalar(self._connection, _SWITCHED) or 0)

    def _archived(self, resetlogs: int, low: int) -> dict[tuple[int, int], RedoLogFile]:
        hours = self._config.log_mining_archive_log_hours
        binds: dict[str, Any] = {"resetlogs": resetlogs, "low": low} | ({"hours": hours} if hours else {})
        order = self._order()
        best: dict[tuple[int, int], tuple[int, RedoLogFile]] = {}
        for name, thread, sequence, first, following, destination, begins, ends in fetch_rows(
            self._connection, _ARCHIVED + (_RECENT if hours else ""), **binds
        ):
            rank = order.get(int(destination), None if self._named and int(destination) else len(order))
            key = int(thread), int(sequence)
            if rank is not None and (key not in best or rank < best[key][0]):
                file = RedoLogFile(
                    str(name), *key, int(first), int(following), True, begins == "YES", ends == "YES"
                )  # fmt: skip
                best[key] = rank, file
        return {key: file for key, (_, file) in best.items()}

    def _order(self) -> dict[int, int]:
        """``DEST_ID`` of an archive destination → its rank: copies of the lowest rank are used. Other copies, as restored ones, come last."""
        if self._destinations is None:
            destinations = fetch_rows(self._connection, _DESTINATIONS)
            valid = [int(number) for _, number, status, kind in destinations if status == "VALID" and kind == "LOCAL"]
            if self._named:
                ids = {str(name).upper(): int(number) for name, number, _, _ in destinations}
                if unknown := [name for name in self._named if name not in ids]:
                    raise ConfigError(
                        f"log.mining.archive.destination.name: the database has no archive destination {unknown[0]}.",
                        where=f"destinations in use: {', '.join(str(n) for n, _, status, _ in destinations if status == 'VALID')}",
                        remedy="correct the property, or remove it: then the first valid local destination is used",
                    )
                valid = [ids[name] for name in self._named]
            self._destinations = {number: rank for rank, number in enumerate(valid)}
        return self._destinations

    # -- missing logs

    def _explained(self, gap: RedoGap, listing: RedoLogListing) -> RedoGap:
        """Return the gap with facts from the control file.

        These are the sequence numbers of the missing logs and whether they were deleted.
        """
        high = gap.high if gap.high is not None else 2**62
        with translate_driver_errors(self._config, f"log history of thread {gap.thread}"):
            binds = {"thread": gap.thread, "resetlogs": listing.resetlogs}
            history = fetch_rows(self._connection, _KNOWN, low=gap.low, high=high, **binds)
            if not history:
                return gap
            first, last = int(history[0][0]), int(history[-1][0])
            copies = fetch_rows(self._connection, _COPIES, first_seq=first, **binds)
        deleted = any(status != "A" and first <= sequence <= last for sequence, status in copies)
        return RedoGap(gap.thread, gap.low, gap.high, (first, last), deleted, coming=not copies)

    def _error(self, gap: RedoGap, listing: RedoLogListing, start: int) -> CdcError:
        names = "" if gap.sequences is None else f" (sequence {gap.sequences[0]} to {gap.sequences[1]})"
        until = f"before SCN {gap.high}" if gap.high is not None else "up to now"
        # the log after a thread's newest one cannot have been deleted: it is not archived yet
        if gap.coming or (not gap.deleted and gap.high is None):
            return SourceUnavailable(
                f"The redo log of thread {gap.thread}{names} from SCN {gap.low} cannot be read yet: it is "
                "still being archived.",
                where=f"SCN {gap.low}, thread {gap.thread}",
                safe="Nothing is lost; the offset is untouched.",
                remedy="check whether the archiver is stuck (SELECT DEST_NAME, STATUS, ERROR FROM V$ARCHIVE_DEST_STATUS; "
                "SELECT * FROM V$RECOVERY_AREA_USAGE); a retry resumes where this run stopped",
            )
        hours = self._config.log_mining_archive_log_hours
        return PositionLost(
            (f"Redo logs of thread {gap.thread}{names} with the redo from SCN {gap.low}, {until}, no longer exist")
            + (f", or are older than log.mining.archive.log.hours={hours}." if hours else "."),
            where=f"SCN {start}; the oldest SCN that can still be mined is {self.oldest_scn()}",
            safe="Everything before the saved position is captured. The tables still contain the result of later "
            "changes.",
            remedy=f"restore the logs and run again: RMAN> {_restore(gap)}; or set snapshot.mode=when_needed to snapshot "
            "all tables again; keep archived logs longer than the longest pause between captures",
        )

    def _former_incarnation(self, start: int, resetlogs: int) -> PositionLost:
        return PositionLost(
            f"The database was opened with RESETLOGS at SCN {resetlogs}, after the position: the redo from that "
            "SCN belongs to another incarnation.",
            where=f"SCN {start}; the current incarnation begins at SCN {resetlogs}",
            safe="Everything before the saved position is captured, including changes that the database itself may have lost.",
            remedy="set snapshot.mode=when_needed to snapshot all tables again and continue from there",
        )


def _names(text: str | None) -> list[str]:
    return [part.strip().upper() for part in (text or "").split(",") if part.strip()]


def _online(row: tuple[Any, ...]) -> RedoLogFile:
    name, thread, sequence, first, following, status, _ = row
    return RedoLogFile(
        str(name), int(thread), int(sequence), int(first), None if status == "CURRENT" else int(following), False
    )


def _thread(row: tuple[Any, ...]) -> RedoThread | None:
    """``None`` for a thread that was never used."""
    number, status, enabled, begun, disabled, checkpoint = row
    if enabled == "DISABLED" and not disabled:
        return None
    last = None if status == "OPEN" else max(int(disabled or 0), int(checkpoint or 0))
    return RedoThread(int(number), int(begun or 0), last)


def _chain_start(files: Iterable[RedoLogFile]) -> int | None:
    """First SCN of the logs without a gap that end with the newest log; ``None`` without a log."""
    first: RedoLogFile | None = None
    for file in reversed(list(files)):
        if first is not None and file.sequence != first.sequence - 1:
            break
        first = file
    return None if first is None else first.first_scn


def _restore(gap: RedoGap) -> str:
    if gap.sequences is not None:
        return (
            f"RESTORE ARCHIVELOG FROM SEQUENCE {gap.sequences[0]} UNTIL SEQUENCE {gap.sequences[1]} THREAD {gap.thread}"
        )
    until = f" UNTIL SCN {gap.high}" if gap.high is not None else ""
    return f"RESTORE ARCHIVELOG FROM SCN {gap.low}{until} THREAD {gap.thread}"
