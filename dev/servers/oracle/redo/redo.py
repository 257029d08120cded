"""The redo: the SCN clock, the record of every change, log files with switches, archiving and purging."""

import datetime
import heapq
import marshal
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

START, COMMIT, ROLLBACK, DDL = 6, 7, 36, 5
INSERT, DELETE, UPDATE, INTERNAL = 1, 2, 3, 0
LOB_TRIM, LOB_ERASE, LOB_WRITE = 11, 29, 10
INJECTED = -1
GROUPS = 3
FIRST_SCN = 2_000_000
FIRST_XID = 100
STRAND_RECORDS = 24
"""Records that a private strand holds."""
STRANDS = 10
"""Private strands of the database: transactions beyond them write into the log buffer at once."""
AFTER_CRASH = 1000
MEMBER_SIZE = 200 * 1024 * 1024
NEVER = 2**64 - 1
"""NEXT_CHANGE# of a current log: Oracle shows the largest SCN."""


STORAGE = (
    "CREATE TABLE IF NOT EXISTS redo (id INTEGER PRIMARY KEY, scn INTEGER, thread INTEGER, sequence INTEGER, at TEXT,"
    " segment INTEGER, slot INTEGER, serial INTEGER, op INTEGER, undo INTEGER, object INTEGER, version INTEGER,"
    " row INTEGER, user TEXT, undone INTEGER DEFAULT 0, body BLOB, container INTEGER, number INTEGER, client TEXT,"
    " place INTEGER)",
    "CREATE INDEX IF NOT EXISTS redo_scn ON redo (scn)",
    "CREATE INDEX IF NOT EXISTS redo_xid ON redo (serial, segment, slot)",
    "CREATE INDEX IF NOT EXISTS redo_place ON redo (place)",
    "CREATE TABLE IF NOT EXISTS logs (thread INTEGER, sequence INTEGER, body BLOB, PRIMARY KEY (thread, sequence))",
    "CREATE TABLE IF NOT EXISTS times (scn INTEGER PRIMARY KEY, at TEXT)",
    "CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY CHECK (id = 1), scn INTEGER, serial INTEGER)",
)


@dataclass(frozen=True)
class Xid:
    """A transaction id: undo segment, slot and sequence. Each container has its own undo, so it may occur in several of them.

    ``serial`` is the engine's own number of the transaction, which occurs once.
    """

    segment: int
    slot: int
    sequence: int
    container: int = 0
    serial: int = 0

    @property
    def raw(self) -> bytes:
        return (
            self.segment.to_bytes(2, "little") + self.slot.to_bytes(2, "little") + self.sequence.to_bytes(4, "little")
        )


@dataclass
class LogFile:
    """A redo log: an online one as long as its group has not been used again, and an archived one once copied."""

    thread: int
    sequence: int
    first: int
    next: int | None
    first_time: str
    next_time: str | None = None
    archived_at: str | None = None
    deleted: bool = False
    dictionary_begin: bool = False
    dictionary_end: bool = False
    resetlogs: int = 0
    """RESETLOGS_CHANGE# of the incarnation the log belongs to."""

    @property
    def group(self) -> int:
        return (self.thread - 1) * GROUPS + (self.sequence - 1) % GROUPS + 1

    @property
    def member(self) -> str:
        """The online file; its name is used again by a later sequence."""
        return f"/opt/oracle/oradata/ORCLCDB/redo{self.group:02d}.log"

    @property
    def archive(self) -> str:
        return f"/opt/oracle/archive/1_{self.thread}_{self.sequence}.arc"


class Redo:
    """All redo of the database. The caller holds the engine's lock."""

    def __init__(self, connection: sqlite3.Connection, threads: int) -> None:
        self._connection = connection
        self.threads = threads
        self.archiving_held = False
        self.closed: dict[int, int] = {}
        """Threads whose instances are down, and the SCN at which they were closed."""
        self.resetlogs = 0
        self.switch_every = 0
        """Records after which a log is switched by itself; 0 for never."""
        self._since_switch = dict.fromkeys(range(1, threads + 1), 0)
        self.logs: list[LogFile] = []
        for statement in STORAGE:
            connection.execute(statement)
        row = connection.execute("SELECT scn, serial FROM clock").fetchone()
        self.fresh = row is None
        self.scn: int = FIRST_SCN if row is None else row[0] + AFTER_CRASH
        self._serial: int = 100 if row is None else row[1] + 10
        for (body,) in connection.execute("SELECT body FROM logs ORDER BY thread, sequence"):
            self.logs.append(LogFile(*marshal.loads(body)))
        self._last_id: int = connection.execute("SELECT MAX(id) FROM redo").fetchone()[0] or 0
        self._last_place: int = connection.execute("SELECT MAX(place) FROM redo").fetchone()[0] or 0
        self._xids: dict[int, int] = dict(
            connection.execute(
                "SELECT container, MAX(number) + 10 FROM redo WHERE container IS NOT NULL GROUP BY container"
            )
        )
        self.private_strands = True
        """Redo of an open transaction is not in the log before its strand is full, its log is switched, or it ends. It has the SCNs at
        which it was made, so the log is not in the order of SCNs."""
        self._strands: dict[int, list[int]] = {}
        self.flushed = dict.fromkeys(range(1, threads + 1), self._last_place)
        """Per thread the last place that the log writer has put on disk: LogMiner sees no further."""
        self.last_redo = dict.fromkeys(range(1, threads + 1), self.scn)
        """Per thread LAST_REDO_CHANGE#: the SCN of the last redo on disk, to which redo of the same SCN may be added."""
        self.held_writers: set[int] = set()
        """Threads whose log writers are held up, as by a slow disk: their buffers reach the disk by commits and switches alone."""
        self._last_time = 0.0
        for thread in range(1, threads + 1):
            if not any(log.thread == thread for log in self.logs):
                self._open_log(thread, 1, self.scn)

    # the clock

    def tick(self) -> int:
        """The next SCN."""
        self.scn += 1
        return self.scn

    def note_time(self, scn: int, now: datetime.datetime, *, force: bool = False) -> None:
        """Remember when an SCN was reached, at most ten times a second."""
        if force or now.timestamp() - self._last_time > 0.1:
            self._last_time = now.timestamp()
            self._connection.execute(
                "INSERT OR IGNORE INTO times VALUES (?, ?)", (scn, f"{now:%Y-%m-%d %H:%M:%S.%f}000")
            )

    def save_clock(self) -> None:
        self._connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (self.scn, self._serial))

    def new_xid(self, thread: int, container: int) -> Xid:
        """The next transaction id of a container: another one gives the same."""
        self._serial += 1
        number = self._xids[container] = self._xids.get(container, FIRST_XID) + 1
        return Xid(thread * 10 + number % 10, number % 34, number, container, self._serial)

    # records

    def write(
        self, thread: int, xid: Xid, op: int, at: str, user: str, *,
        scn: int | None = None, undo: bool = False, table: tuple[int, int] = (0, 0), row: int | None = None, body: Any = None,
        client: str | None = None,
    ) -> int:  # fmt: skip
        """Write a record, and return its number."""
        self._last_id += 1
        record, log = self._last_id, self.current(thread)
        if op == START and self.private_strands and len(self._strands) < STRANDS:
            self._strands[xid.serial] = []
        strand = self._strands.get(xid.serial) if xid.serial else None
        self._connection.execute(
            "INSERT INTO redo VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)",
            (
                record, scn or self.tick(), thread, log.sequence, at, xid.segment, xid.slot, xid.serial or xid.sequence, op, int(undo),
                table[0], table[1], row, user, None if body is None else marshal.dumps(body), xid.container, xid.sequence, client,
                None if strand is not None else self._place(),
            ),
        )  # fmt: skip
        self._since_switch[thread] += 1
        if strand is not None:
            strand.append(record)
            if op in (COMMIT, ROLLBACK) or len(strand) > STRAND_RECORDS:
                self._empty_strand(xid.serial)
        return record

    def _place(self) -> int:
        """The next place in the logs."""
        self._last_place += 1
        return self._last_place

    def _empty_strand(self, serial: int) -> None:
        """Put the records of a private strand into the log; what the transaction writes later goes there at once."""
        for record in self._strands.pop(serial):
            self._connection.execute("UPDATE redo SET place = ? WHERE id = ?", (self._place(), record))

    def place_of(self, connection: sqlite3.Connection, record: int) -> int:
        """Return the place of a record in the log; 0 while it is not in the log."""
        found = connection.execute("SELECT place FROM redo WHERE id = ?", (record,)).fetchone()
        return int(found[0] or 0) if found else 0

    def mark_undone(self, record: int) -> None:
        self._connection.execute("UPDATE redo SET undone = 1 WHERE id = ?", (record,))

    def flush(self, thread: int | None = None) -> None:
        """Write the log buffer, as the log writer does at a commit in its thread, and every three seconds in all threads."""
        for one in self.flushed.keys() - self.held_writers if thread is None else [thread]:
            self.flushed[one], self.last_redo[one] = self._last_place, self.scn

    # log files

    def current(self, thread: int) -> LogFile:
        return next(log for log in reversed(self.logs) if log.thread == thread)

    def _open_log(self, thread: int, sequence: int, scn: int) -> LogFile:
        log = LogFile(thread, sequence, scn, None, _format_now(), resetlogs=self.resetlogs)
        self.logs.append(log)
        self.logs.sort(key=lambda one: (one.thread, one.sequence))
        self.save(log)
        return log

    def save(self, log: LogFile) -> None:
        body = marshal.dumps(
            [
                log.thread, log.sequence, log.first, log.next, log.first_time, log.next_time, log.archived_at, log.deleted,
                log.dictionary_begin, log.dictionary_end, log.resetlogs,
            ]
        )  # fmt: skip
        self._connection.execute("INSERT OR REPLACE INTO logs VALUES (?, ?, ?)", (log.thread, log.sequence, body))

    def wants_switch(self, thread: int) -> bool:
        return bool(self.switch_every) and self._since_switch[thread] >= self.switch_every

    def switch(self, thread: int) -> LogFile:
        """Close the current log of a thread, archive it unless that is held, and open the next."""
        for serial in list(self._strands):
            self._empty_strand(serial)
        old = self.current(thread)
        scn = self.tick()
        old.next, old.next_time = scn, _format_now()
        self._since_switch[thread] = 0
        self.flush(thread)
        new = self._open_log(thread, old.sequence + 1, scn)
        if not self.archiving_held:
            old.archived_at = _format_now()
        self.save(old)
        self.save_clock()
        return new

    def archive_all(self) -> None:
        """Copy every closed log that is not archived yet."""
        for log in self.logs:
            if log.next is not None and log.archived_at is None:
                log.archived_at = _format_now()
                self.save(log)

    def is_online(self, log: LogFile) -> bool:
        """Check whether the group of this log has not been used again."""
        return log.sequence > self.current(log.thread).sequence - GROUPS

    def purge(self, before: int | None = None) -> list[LogFile]:
        """Delete archived logs that end at or before an SCN, or all that are archived; online files remain."""
        gone = [
            log
            for log in self.logs
            if log.archived_at and not log.deleted and (before is None or (log.next or NEVER) <= before)
        ]
        for log in gone:
            log.deleted = True
            self.save(log)
        return gone

    def read(
        self, connection: sqlite3.Connection, logs: Iterable[LogFile], start: int, end: int
    ) -> Iterable[tuple[Any, ...]]:
        """Records of these logs between two SCNs, those on disk only: of a thread in the order of the log, threads merged by SCN."""
        expected = {(log.thread, log.sequence) for log in logs}
        flushed = dict(self.flushed)

        def of_thread(thread: int) -> Iterator[tuple[Any, ...]]:
            rows = connection.execute(
                "SELECT * FROM redo WHERE scn BETWEEN ? AND ? AND thread = ? AND place <= ? ORDER BY place",
                (start, end, thread, flushed[thread]),
            )
            return (row for row in rows if (row[2], row[3]) in expected)

        return heapq.merge(*map(of_thread, flushed), key=lambda row: row[1])


def _format_now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S}"
