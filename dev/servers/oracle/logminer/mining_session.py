"""DBMS_LOGMNR: one mining session per client session, and the rows of V$LOGMNR_CONTENTS."""

import marshal
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.logminer import contents
from dev.servers.oracle.redo import benchmark_rows, logminer_columns, redo
from dev.servers.oracle.redo.redo import LogFile
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.queries import Compiled
from dev.servers.oracle.wire.statements import Outcome

CONSTANTS = {
    "NEW": 1, "REMOVEFILE": 2, "ADDFILE": 3, "COMMITTED_DATA_ONLY": 2, "SKIP_CORRUPTION": 4, "DDL_DICT_TRACKING": 8,
    "DICT_FROM_ONLINE_CATALOG": 16, "DICT_FROM_REDO_LOGS": 32, "NO_SQL_DELIMITER": 64, "PRINT_PRETTY_SQL": 512,
    "CONTINUOUS_MINE": 1024, "NO_ROWID_IN_STMT": 2048, "STRING_LITERALS_IN_STMT": 4096, "STORE_IN_REDO_LOGS": 2,
    "STORE_IN_FLAT_FILE": 1,
}  # fmt: skip
CONTAINER = logminer_columns.NAMES.index("SRC_CON_NAME")


class Miner:
    """The mining session of one client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = 0
        self._table: str | None = None
        self.connection: sqlite3.Connection | None = None
        self.files: dict[str, LogFile] = {}
        self.parameters: dict[str, Any] | None = None

    @property
    def _inside(self) -> bool:
        """Say if the session is in a pluggable database."""
        database = self._session.database
        return database.cdb and self._session.container != database.root

    def need_root(self) -> None:
        if self._inside:
            raise OraError(65040)

    # procedures

    def add_logfile(self, name: str, option: int = 3) -> None:
        """ADD_LOGFILE: ORA-01284 for no such file, ORA-01289 for one that is there already."""
        self.need_root()
        redo_log = self._session.engine.redo
        if option == CONSTANTS["NEW"]:
            self.files.clear()
        if name in self.files:
            raise OraError(1289, name)
        with self._session.engine.lock:
            archived = next((log for log in redo_log.logs if log.archive == name), None)
            online = next(
                (log for log in reversed(redo_log.logs) if log.member == name and redo_log.is_online(log)), None
            )
        if archived is not None and archived.archived_at and not archived.deleted:
            self.files[name] = archived
        elif online is not None:
            self.files[name] = online
        else:
            raise OraError(1284, name)

    def remove_logfile(self, name: str) -> None:
        if name not in self.files:
            raise OraError(1290, name)
        del self.files[name]

    def start(self, start: int = 0, end: int = 0, options: int = 0, file: str | None = None) -> None:
        """START_LOGMNR: checks that nothing is missing, then makes the rows. In a pluggable database it finds the logs of the range."""
        session = self._session
        session.privileges.need("LOGMINING", "SELECT ANY TRANSACTION")
        if options & CONSTANTS["CONTINUOUS_MINE"]:
            raise OraError(44609)
        if end and start > end:
            raise OraError(1281)
        if self._inside:
            if not start or not end or file is not None:
                raise OraError(1292)
            self._need_turn()
        elif not self.files:
            raise OraError(1292)
        with session.engine.lock:
            last = end or redo.NEVER
            if self._inside:
                self.files = self._found(start, last)
            self._check_files()
            self._check_coverage(start or min(log.first for log in self.files.values()), last)
            dictionary = self._dictionary(options) if file is None else self._dictionary_file(file)
            self.parameters = {"start": start, "end": end, "options": options}
            if session.database.bench is not None:
                return
            if self.connection is None:
                self.connection = session.borrow_connection()
            rows = session.engine.redo.read(self.connection, list(self.files.values()), start, min(last, 2**63 - 1))
        names = frozenset(name for name, bit in CONSTANTS.items() if options & bit and bit >= 64)
        renderer = contents.Renderer(session, names, dictionary, start)
        made = _committed_rows(renderer, rows) if options & CONSTANTS["COMMITTED_DATA_ONLY"] else renderer.rows(rows)
        self._fill(row for row in made if not self._inside or row[CONTAINER] == session.container)

    def end(self) -> None:
        if self.parameters is None:
            raise OraError(1307)
        self.parameters = None
        self.files.clear()
        self._drop()

    # inside of a pluggable database

    def _need_turn(self) -> None:
        """An autonomous database has one session of LogMiner in each container. The number of its error is not documented."""
        others = (one for one in self._session.database.sessions() if one is not self._session)
        busy = any(one.miner.parameters is not None and one.container == self._session.container for one in others)
        if busy and self._session.database.settings.autonomous:
            raise OraError(1353)

    def _found(self, start: int, end: int) -> dict[str, LogFile]:
        """The logs of a range by their files: the archived copy, or the online one where there is none."""
        found = {}
        for log in self._session.engine.redo.logs:
            if log.first > end or (log.next or redo.NEVER) <= start:
                continue
            if log.archived_at and not log.deleted:
                found[log.archive] = log
            elif self._session.engine.redo.is_online(log):
                found[log.member] = log
            else:
                raise OraError(1291)
        return found

    # checks

    def _check_files(self) -> None:
        redo_log = self._session.engine.redo
        for name, log in self.files.items():
            if name == log.archive and log.deleted:
                raise OraError(1284, name)
            if name == log.member and not redo_log.is_online(log):
                now = next(
                    other for other in reversed(redo_log.logs) if other.member == name and redo_log.is_online(other)
                )
                raise OraError(310, now.sequence, log.sequence)

    def _check_coverage(self, start: int, end: int) -> None:
        """ORA-01291 when a log that has redo of the range is not in the list."""
        added = {(log.thread, log.sequence) for log in self.files.values()}
        threads_seen = set()
        for log in self._session.engine.redo.logs:
            threads_seen.add(log.thread)
            in_range = log.first <= end and (log.next or redo.NEVER) > start
            if in_range and (log.thread, log.sequence) not in added and not self._beyond_added(log, end):
                raise OraError(1291)
        oldest = min(log.first for log in self._session.engine.redo.logs)
        if start < oldest - 1:
            raise OraError(1291)

    def _beyond_added(self, log: LogFile, end: int) -> bool:
        """With no end, mining stops where the list ends; what follows is not missing."""
        newest = max((one.sequence for one in self.files.values() if one.thread == log.thread), default=0)
        return end == redo.NEVER and newest > 0 and log.sequence > newest

    def _dictionary_file(self, path: str) -> int:
        if path not in self._session.database.dictionary_files:
            raise OraError(1284, path)
        return self._session.database.dictionary_files[path]

    def _dictionary(self, options: int) -> int | None:
        """None for the online catalog; -1 to know every version; else the SCN whose dictionary is used."""
        if not options & CONSTANTS["DICT_FROM_REDO_LOGS"]:
            return None
        begins = [log for log in self.files.values() if log.dictionary_begin]
        if not begins or not any(log.dictionary_end for log in self.files.values()):
            raise OraError(1371)
        return -1 if options & CONSTANTS["DDL_DICT_TRACKING"] else max(log.next or log.first for log in begins)

    # contents

    def _fill(self, rows: Iterable[tuple[Any, ...]]) -> None:
        assert self.connection is not None
        self._drop()
        self._generation += 1
        table = f"logmnr_contents_{self._generation}"
        names = ", ".join(f"`{name}`" for name, _ in logminer_columns.COLUMNS)
        self.connection.execute(f"CREATE TEMP TABLE {table} ({names})")
        self.connection.execute("BEGIN")
        marks = ", ".join("?" * len(logminer_columns.COLUMNS))
        self.connection.executemany(f"INSERT INTO temp.{table} VALUES ({marks})", rows)
        self.connection.execute("COMMIT")
        self._table = table

    def _drop(self) -> None:
        if self._table and self.connection:
            try:
                self.connection.execute(f"DROP TABLE temp.{self._table}")
            except sqlite3.OperationalError:  # a cursor of the client still reads it: it goes with the session
                pass
        self._table = None

    def contents(self) -> str:
        """The table behind V$LOGMNR_CONTENTS."""
        if self.parameters is None or self._table is None:
            raise OraError(1306)
        return f"temp.{self._table}"

    def is_read_by(self, compiled: Compiled) -> bool:
        return "temp.logmnr_contents_" in compiled.sql

    def serves(self, sql: str) -> Outcome | None:
        """In the mode for benchmarks: the prepared rows instead of a query's."""
        prepared = self._session.database.bench
        if prepared is None or "V$LOGMNR_CONTENTS" not in sql.upper():
            return None
        if self.parameters is None:
            raise OraError(1306)
        return benchmark_rows.outcome(
            prepared, sql, self.parameters["start"], self.parameters["end"], self._session.check
        )


def _committed_rows(renderer: "contents.Renderer", rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """COMMITTED_DATA_ONLY: whole transactions in the order of their commits, without what they took back."""
    open_ones: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        serial, op = row[7], row[8]
        if op == redo.COMMIT:
            changes = [one for one in open_ones.pop(serial, []) if not one[9] and not one[14]]
            yield from renderer.rows([*changes, row], commit=(row[1], row[4]))
        elif op == redo.ROLLBACK:
            open_ones.pop(serial, None)
        elif op == redo.INJECTED and serial == 0:
            yield from renderer.rows([row])
        else:
            open_ones.setdefault(serial, []).append(row)


def body_of(row: tuple[Any, ...]) -> Any:
    """The content of a record."""
    return None if row[15] is None else marshal.loads(row[15])
