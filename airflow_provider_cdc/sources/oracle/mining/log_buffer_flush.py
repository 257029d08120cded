"""Makes the database flush its log buffer, so that LogMiner sees all redo up to an SCN.

LogMiner reads files. Redo may stay in the log buffer of each instance until something commits there, or for three seconds. If a window
were mined before, this redo would be lost, because the next window begins after it. A commit in each instance flushes the buffer (Debezium
Oracle connector, ``log.mining.flush.table.name``, ``rac.nodes``).

An instance that cannot be reached writes by itself: then the SCN of its last redo on disk (``LAST_REDO_CHANGE#``) bounds the mined range, as a
log writer may be held up for longer than three seconds (Debezium, DBZ-8055 and DBZ-8503).

It does not flush the private redo strands of open transactions: only their end, a full strand or a log switch does. So the transactions that
are open are part of the answer.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import ConfigError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    DatabaseStatus,
    code_of,
    connect,
    current_scn,
    fetch_rows,
    fetch_scalar,
    translate_driver_errors,
)

log = logging.getLogger(__name__)

WRITTEN_AFTER: Final = 6.0
"""Seconds after which redo is in its file without a flush, at the earliest: the log writer writes at least every three seconds."""
LONGEST_WAIT: Final = 300.0
"""Seconds without redo of an instance that cannot be reached, after which the wait is an error."""
RETRY_AFTER: Final = 15.0
"""Seconds before a node that was down is tried again."""
_ATTEMPTS: Final = 20
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,127}")
_EXISTS: Final = 955
_OPEN_THREADS: Final = "SELECT THREAD#, LAST_REDO_CHANGE# FROM V$THREAD WHERE STATUS = 'OPEN'"
_THREAD: Final = "SELECT THREAD# FROM V$INSTANCE"


@dataclass(frozen=True, slots=True)
class FlushedRedo:
    """The SCN up to which the logs are complete.

    :param scn: all redo up to it is in the logs, but for that of ``open_transactions``
    :param open_transactions: XID → start SCN of transactions that may have redo in private strands, which is in no log yet
    """

    scn: int
    open_transactions: dict[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class _FlushNode:
    """An instance whose log buffer is flushed."""

    host: str | None
    connection: Connection | None = None
    thread: int = 0
    tried_at: float | None = None

    def __str__(self) -> str:
        return self.host or "the database"


class LogWriterFlush:
    """Flushes the log buffers of all instances of the captured database.

    It does nothing when only archived logs are mined, and on a read-only database without ``log.mining.readonly.hostname``. With that
    property LogMiner runs on the standby, and the flush table is written on the primary.

    :param database: the mined database
    :param open_transactions: asks for the transactions that are open now, XID → start SCN
    :raises ConfigError: ``log.mining.flush.table.name`` is not a name

    ::

        written = flush.flush(windows.next(start, session.minable_scn()).end)
    """

    def __init__(
        self,
        config: OracleConfig,
        database: DatabaseStatus,
        open_transactions: Callable[[], dict[bytes, int]],
        *,
        open_connection: Callable[[str | None], Connection] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._open_transactions = open_transactions
        self._open_connection = open_connection or (lambda host: connect(config, host=host))
        self._sleep = sleep
        self._clock = clock
        name = config.log_mining_flush_table_name
        if not _IDENTIFIER.fullmatch(name):
            raise ConfigError(
                f"log.mining.flush.table.name: {name!r} is not the name of a table.",
                remedy="use letters, digits and _, starting with a letter",
            )
        self._table = name.upper()
        elsewhere = bool(config.log_mining_readonly_hostname)
        self.needed = not config.log_mining_archive_log_only_mode and (elsewhere or database.is_writable)
        self._nodes = [_FlushNode(host) for host in config.rac_nodes or (None,)] if self.needed else []
        self._requested: deque[tuple[float, FlushedRedo]] = deque()
        self._written = FlushedRedo(0)
        self._reported: set[frozenset[int]] = set()

    def __enter__(self) -> LogWriterFlush:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self, scn: int) -> FlushedRedo:
        """Have all redo up to ``scn`` written to the log files.

        :param scn: an SCN that the database has reached
        :return: how far all instances have written their redo: to ``scn``, or less while an instance cannot be reached
        :raises SourceUnavailable: no instance can be reached, or one that cannot has written no redo for :data:`LONGEST_WAIT`
        :raises PrerequisiteError: the flush table cannot be created or written, or open transactions cannot be seen
        """
        if not self.needed:
            return FlushedRedo(scn)
        now = self._clock()
        # before the buffers are written: the redo of a transaction that has ended is in them, that of the others may not be
        open_transactions = self._open_transactions()
        written = {node.thread for node in self._nodes if self._write(node, scn)}
        if not written:
            raise SourceUnavailable(
                "No instance of the database can be reached to flush its log buffer.",
                where=", ".join(map(str, self._nodes)),
                safe="Nothing is lost; the offset is untouched.",
                remedy="check that the hosts of rac.nodes, or database.hostname, are up; a retry resumes where this run stopped",
            )
        unreached = {thread: last for thread, last in self._last_redo().items() if thread not in written}
        self._requested.append((now, FlushedRedo(scn, open_transactions)))
        self._report(frozenset(unreached))
        while self._requested and _on_disk(*self._requested[0], now, unreached):
            self._written = self._requested.popleft()[1]
        if self._requested and now - self._requested[0][0] > LONGEST_WAIT:
            raise self._no_redo(self._requested[0][1].scn, unreached)
        return self._written

    def close(self) -> None:
        """Close the connections."""
        for node in self._nodes:
            self._drop(node)

    # nodes

    def _write(self, node: _FlushNode, scn: int) -> bool:
        """Flush one instance; returns whether all its redo up to ``scn`` is in its log file."""
        now = self._clock()
        if node.connection is None and node.tried_at is not None and now - node.tried_at < RETRY_AFTER:
            return False
        try:
            with translate_driver_errors(self._config, f"flush table on {node}"):
                self._connect(node)
                return self._commit(node, scn)
        except SourceUnavailable as e:
            node.tried_at = now
            self._drop(node)
            if len(self._nodes) == 1:
                raise
            log.warning("%s cannot flush its log buffer now; the flush is retried later: %s", node, e.message)
            return False

    def _connect(self, node: _FlushNode) -> None:
        if node.connection is not None:
            return
        node.connection = self._open_connection(node.host)
        node.thread = int(fetch_scalar(node.connection, _THREAD) or 1)
        node.tried_at = None
        self._make_table(node.connection)
        log.info("The log buffer of thread %d is flushed through %s.", node.thread, node)

    def _commit(self, node: _FlushNode, scn: int) -> bool:
        """Commit at an SCN after ``scn``: all redo that the instance writes later is after ``scn``, too."""
        connection = node.connection
        assert connection is not None
        for _ in range(_ATTEMPTS):
            reached = current_scn(connection)
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE {self._table} SET LAST_SCN = :scn", scn=scn)
                if not cursor.rowcount:
                    cursor.execute(f"INSERT INTO {self._table} (LAST_SCN) VALUES (:scn)", scn=scn)
                cursor.execute("COMMIT WRITE IMMEDIATE WAIT")  # COMMIT_LOGGING and COMMIT_WAIT may say otherwise
            if reached >= scn:
                return True
            self._sleep(0.05)  # instances of a cluster synchronise their SCNs with each message between them
        log.warning("%s has not reached SCN %d.", node, scn)
        return False

    def _make_table(self, connection: Connection) -> None:
        rows = fetch_rows(connection, "SELECT COUNT(*) FROM USER_TABLES WHERE TABLE_NAME = :name", name=self._table)
        if rows[0][0]:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE {self._table} (LAST_SCN NUMBER(19, 0))")
        except oracledb.DatabaseError as e:
            if code_of(e) != _EXISTS:  # another connector has made it at the same time
                raise
        else:
            log.info("Created the flush table %s: a commit on it makes the database flush its log buffer.", self._table)

    def _last_redo(self) -> dict[int, int]:
        """Open thread → SCN of its last redo on disk, to which the log writer may still add redo of the same SCN."""
        connection = next(node.connection for node in self._nodes if node.connection is not None)
        with translate_driver_errors(self._config, "V$THREAD"):
            return {int(thread): int(last or 0) for thread, last in fetch_rows(connection, _OPEN_THREADS)}

    def _report(self, threads: frozenset[int]) -> None:
        if threads and threads not in self._reported:
            self._reported.add(threads)
            log.warning(
                "The instances of redo threads %s cannot be reached to flush their log buffers: redo is mined "
                  "later, after these instances have written theirs, which takes %.0f s or more. rac.nodes should "
                  "name each instance of the cluster.",
                _listed(threads), WRITTEN_AFTER,
            )  # fmt: skip

    def _no_redo(self, scn: int, unreached: dict[int, int]) -> SourceUnavailable:
        threads = {thread: last for thread, last in unreached.items() if last <= scn}
        return SourceUnavailable(
            f"The instances of redo threads {_listed(threads)} cannot be reached to flush their log buffers, and have written no redo for "
            f"{LONGEST_WAIT:.0f} s.",
            where=f"SCN {scn}; last redo on disk: "
            + ", ".join(f"thread {thread} SCN {last}" for thread, last in sorted(threads.items())),
            safe="Nothing is lost; the offset is untouched.",
            remedy="name each instance of the cluster in rac.nodes; check whether these instances hang (V$THREAD, "
            "V$INSTANCE). A retry resumes where this run stopped",
        )

    def _drop(self, node: _FlushNode) -> None:
        connection, node.connection = node.connection, None
        if connection is not None:
            try:
                connection.close()
            except oracledb.Error as e:
                log.debug("The connection to %s was already closed: %s", node, e)


def _on_disk(asked_at: float, request: FlushedRedo, now: float, unreached: dict[int, int]) -> bool:
    """Check that the instances that were not reached have written all redo of a request."""
    if not unreached:
        return True
    return asked_at <= now - WRITTEN_AFTER and request.scn < min(unreached.values())


def _listed(threads: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(threads)))
