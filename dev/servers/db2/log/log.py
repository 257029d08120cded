"""A stand-in for Db2's log: the rows that each transaction has changed, and the order of the commits.

A table with DATA CAPTURE CHANGES has row triggers, which write both images of each changed row to a table of changes, with a number that grows
and with the engine's own number of the transaction. What is rolled back leaves nothing there. :meth:`Log.read_view` finds the transactions that have
ended and gives each a place in the order of commits:

* It takes a number first (the mark), then asks the engine which transactions are open, then reads the tables of changes.
* A transaction is taken when it is not open and all its changes have numbers below the mark. They are then complete.
* They are ordered by their last change. A transaction that waited for another one, or read what it wrote, has changed something after that one's last
  change: it comes behind it, in the same look or in a later one.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from dev.servers.db2.engine.driver import Connection, Row
from dev.servers.db2.log import positions
from dev.servers.db2.log.positions import quote_name, text

LOG = logging.getLogger("db2.log")
Table = tuple[str, str]
XID = "(SELECT MIN(XID) FROM SYSCS_DIAG.TRANSACTION_TABLE WHERE USERNAME = CURRENT_USER AND TYPE = 'UserTransaction' AND SQL_TEXT IS NOT NULL)"
"""The transaction of the running statement: each connection has its own user."""
OPEN = "SELECT XID FROM SYSCS_DIAG.TRANSACTION_TABLE WHERE STATUS <> 'IDLE' AND USERNAME LIKE '%#%'"
LOB_TYPES = ("CLOB", "BLOB")
AT_ONCE = 200
INSERT, DELETE, UPDATE = "I", "D", "U"
EVENTS = INSERT + DELETE + UPDATE


@dataclass
class Changes:
    """A table of changes: what has happened to a table while it had these columns."""

    id: int
    table: Table
    columns: list[str]
    origins: list[str]
    """What each column was called when the table's changes were first logged."""
    lobs: list[int]
    """Numbers of columns with large objects, from 1."""
    first: int
    active: bool = True
    suspended: bool = False
    """It has no triggers for now."""
    until: int | None = None
    """All changes that are there have smaller numbers, once it is not active any more."""

    @property
    def name(self) -> str:
        """Its name in SQL."""
        return f"DB2LOG.T{self.id}"


@dataclass
class LogView:
    """The log as it was at a moment."""

    at: datetime.datetime
    """The database's clock before the look: what was committed earlier is in it."""
    end: int
    """The number that is reached."""
    new_transactions: int = 0
    """How many transactions are new."""
    tables: list[Changes] = field(default_factory=list)


class Log:
    """The tables of changes of one database."""

    def __init__(self, connection: Connection, length: int, *, seconds: bool = False) -> None:
        self._connection, self.length, self._seconds = connection, length, seconds
        self.lock = threading.RLock()
        self.changes: list[Changes] = []
        self.written = False
        """True if the log has new records besides transactions, as of structures or registrations."""
        self._low = 0
        self._last_mark = 0
        self._first_seen: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._load()

    # which tables

    def _load(self) -> None:
        rows = self._connection.rows(
            "SELECT ID, TABSCHEMA, TABNAME, COLUMNS, LOBS, SINCE, ACTIVE FROM DB2LOG.CHANGES ORDER BY ID"
        )
        for number, schema, table, columns, lobs, since, active in rows:
            names, origins = json.loads(columns)
            self.changes.append(
                Changes(number, (schema, table), names, origins, json.loads(lobs), since, active == "Y")
            )
        self._connection.commit()

    def changes_of(self, table: Table) -> list[Changes]:
        """All tables of changes of a table, the oldest first."""
        return [changes for changes in self.changes if changes.table == table]

    def active(self, table: Table) -> Changes | None:
        """The one that changes go to now."""
        return next((changes for changes in self.changes if changes.table == table and changes.active), None)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Hold the lock, and undo all of the work if it fails in the middle, for example at a locked table."""
        with self.lock:
            before = [(changes, changes.active) for changes in self.changes]
            try:
                yield
            except BaseException:
                self._connection.rollback()
                self.changes = [changes for changes, _ in before]
                for changes, active in before:
                    changes.active = active
                raise

    def enable(self, table: Table, events: str = EVENTS) -> None:
        """Log the changes of a table from now on, and keep a copy of the rows that it has.

        :param events: letters of the events that are logged
        """
        with self._whole():
            if self.active(table) is None:
                self._look(first=False)
                self._begin(table, [], events)
                self._began()

    def disable(self, table: Table) -> None:
        """Log its changes no longer."""
        with self._whole():
            if (changes := self.active(table)) is not None:
                self._end(changes)
                self._connection.commit()

    def forget(self, table: Table) -> None:
        """The table is gone, and its triggers with it."""
        with self._whole():
            for changes in self.changes_of(table):
                changes.active = False
            self._connection.execute(
                "UPDATE DB2LOG.CHANGES SET ACTIVE = 'N' WHERE TABSCHEMA = ? AND TABNAME = ?", table
            )
            self._connection.commit()

    def renamed(self, old: Table, new: Table) -> None:
        """A table has another name; its triggers are still there."""
        with self._whole():
            self._connection.execute(
                "UPDATE DB2LOG.CHANGES SET TABSCHEMA = ?, TABNAME = ? WHERE TABSCHEMA = ? AND TABNAME = ?", (*new, *old)
            )
            self._connection.commit()
            for changes in self.changes_of(old):
                changes.table = new

    def follow(self, table: Table) -> None:
        """The columns of a table may have changed: log them as they are now."""
        with self._whole():
            old = self.active(table)
            if old is None:
                return
            columns = [name for name, _ in self.columns(table)]
            if columns and (columns != old.columns or old.suspended):
                self._look(first=False)
                self._end(old)
                self._begin(table, _origins(old, columns))
                self._began()

    def suspend(self, table: Table) -> None:
        """Before a table or a column is renamed: its triggers go, until :meth:`follow`. What others change in between is not logged."""
        with self._whole():
            if (changes := self.active(table)) is not None:
                self._drop_triggers(changes)
                self._connection.commit()
                changes.suspended = True

    def columns(self, table: Table) -> list[tuple[str, str]]:
        """Name and type of each column, as the engine has them."""
        with self.lock:
            return [(row[3], row[5]) for row in columns_of(self._connection, table)]

    def _begin(self, table: Table, origins: list[str], events: str = EVENTS) -> None:
        columns = self.columns(table)
        names = [name for name, _ in columns]
        lobs = [number for number, (_, kind) in enumerate(columns, 1) if kind in LOB_TYPES]
        execute, source = self._connection.execute, quote_name(*table)
        number = int(self._connection.scalar("SELECT N FROM DB2LOG.NEXT_ID"))
        execute("UPDATE DB2LOG.NEXT_ID SET N = N + 1")
        images = [f"{side}.{quote_name(name)} AS {side}{order}" for side in "BA" for order, name in enumerate(names, 1)]
        marks = [f"CAST(NULL AS CHAR(1)) AS L{order}" for order in lobs]
        head = "CAST(0 AS BIGINT) AS LSN, CAST('' AS VARCHAR(30)) AS XID, CAST('' AS CHAR(1)) AS OP, CAST('' AS VARCHAR(128)) AS AUTHID"
        joins = f"SYSIBM.SYSDUMMY1 D LEFT JOIN {source} B ON 1 = 0 LEFT JOIN {source} A ON 1 = 0"
        execute(
            f"CREATE TABLE DB2LOG.T{number} AS SELECT {', '.join([head, *images, *marks])} FROM {joins} WITH NO DATA"
        )
        execute(f"CREATE UNIQUE INDEX DB2LOG.TL{number} ON DB2LOG.T{number} (LSN)")
        execute(f"CREATE INDEX DB2LOG.TX{number} ON DB2LOG.T{number} (XID)")
        execute(f"LOCK TABLE {source} IN SHARE MODE")
        execute(f"CREATE TABLE DB2LOG.S{number} AS SELECT * FROM {source} WITH NO DATA")
        execute(f"INSERT INTO DB2LOG.S{number} SELECT * FROM {source}")
        for trigger in _triggers(number, source, names, events):
            execute(trigger)
        since = self._last_mark  # until it is known
        changes = Changes(number, table, names, origins or names, lobs, since)
        execute(
            f"INSERT INTO DB2LOG.CHANGES (ID, TABSCHEMA, TABNAME, COLUMNS, SINCE, ACTIVE, LOBS) VALUES ({number}, {text(table[0])}, {text(table[1])}, "
            f"{text(json.dumps([changes.columns, changes.origins]))}, {since}, 'Y', {text(json.dumps(lobs))})"
        )
        self.changes.append(changes)

    def _began(self) -> None:
        """Read the log once, so that the newest table of changes begins after all that was committed before it."""
        self._connection.commit()
        self._look(first=False)
        newest = self.changes[-1]
        newest.first = self._last_mark
        self._connection.execute("UPDATE DB2LOG.CHANGES SET SINCE = ? WHERE ID = ?", (newest.first, newest.id))
        self._connection.commit()

    def _end(self, changes: Changes) -> None:
        self._drop_triggers(changes)
        self._connection.execute("UPDATE DB2LOG.CHANGES SET ACTIVE = 'N' WHERE ID = ?", (changes.id,))
        changes.active = False

    def _drop_triggers(self, changes: Changes) -> None:
        found = {row[0] for row in self._connection.rows("SELECT TRIGGERNAME FROM SYS.SYSTRIGGERS")}
        for event in (INSERT, DELETE, UPDATE):
            if f"{event}{changes.id}" in found:
                self._connection.execute(f"DROP TRIGGER DB2LOG.{event}{changes.id}")

    # which transactions

    def recover(self) -> None:
        """After a start: no one is connected yet, so that all changes which are there are committed."""
        with self.lock:
            self._connection.commit()
            self._look(first=True)

    def read_view(self) -> LogView:
        """Give the transactions that have ended their places."""
        with self.lock:
            try:
                return self._look(first=False)
            except BaseException:
                self._connection.rollback()
                raise

    def _look(self, *, first: bool) -> LogView:
        at, mark = self._connection.rows("VALUES (CURRENT_TIMESTAMP, NEXT VALUE FOR DB2LOG.LSN)")[0]
        open_ = set() if first else {row[0] for row in self._connection.rows(OPEN)}
        for xid in open_:
            self._first_seen.setdefault(xid, self._last_mark)
        for xid in set(self._first_seen) - open_:
            del self._first_seen[xid]
        found = self._found()
        for changes in self.changes:
            changes.until = None if changes.active else changes.until or mark
        ended = {xid: entry for xid, entry in found.items() if xid not in open_ and (first or entry[1] < mark)}
        if first:
            known = {row[0] for row in self._connection.rows("SELECT XID FROM DB2LOG.UNITS")}
            self._taken = {xid: entry[1] for xid, entry in ended.items() if xid in known}
        new = sorted((last, xid, user) for xid, (_, last, user) in ended.items() if xid not in self._taken)
        end = self._take(new, mark, at)
        waiting = [begin for xid, (begin, _, _) in found.items() if xid not in ended]
        self._low = min([mark, *waiting, *(number + 1 for number in self._first_seen.values())]) - 1
        self._taken = {xid: last for xid, last in self._taken.items() if last > self._low}
        self._last_mark = mark
        self._connection.commit()
        return LogView(at, end, len(new), list(self.changes))

    def _found(self) -> dict[str, tuple[int, int, str]]:
        """First and last change, and user, of each transaction with changes above the low mark."""
        found: dict[str, tuple[int, int, str]] = {}
        selects = [
            f"SELECT XID, MIN(LSN), MAX(LSN), MIN(AUTHID) FROM {changes.name} WHERE LSN > ? GROUP BY XID"
            for changes in self.changes
            if changes.active or changes.until is None or changes.until > self._low
        ]
        for start in range(0, len(selects), AT_ONCE):
            some = selects[start : start + AT_ONCE]  # the same words each time: the engine compiles them once
            for xid, begin, last, user in self._connection.rows(
                " UNION ALL ".join(some) + " WITH UR", [self._low] * len(some)
            ):
                if xid in found:
                    before = found[xid]
                    begin, last = min(begin, before[0]), max(last, before[1])
                found[xid] = (begin, last, user)
        return found

    def _take(self, new: list[tuple[int, str, str]], mark: int, at: datetime.datetime) -> int:
        end = positions.unit(mark, 0)
        values = []
        at = at.replace(microsecond=0) if self._seconds else at
        for order, (last, xid, user) in enumerate(new, 1):
            end = positions.unit(mark, order)
            lsn = positions.literal(positions.lsn(end, self.length))
            values.append(f"({text(xid)}, {end}, {lsn}, TIMESTAMP({text(str(at))}), {text(user.rpartition('#')[0])})")
            self._taken[xid] = last
        for start in range(0, len(values), AT_ONCE):
            self._connection.execute("INSERT INTO DB2LOG.UNITS VALUES " + ", ".join(values[start : start + AT_ONCE]))
        return end


def columns_of(connection: Connection, table: Table) -> list[Row]:
    """Find the columns of a table in their order, as ``SQLCOLUMNS`` describes them.

    Its arguments are patterns, in which a character beyond ASCII is ``_`` for each of its units of UTF-16: the driver takes a literal of a ``CALL`` for
    double bytes where all its characters have two bytes, and the engine waits for ever for the rest.
    """
    schema, name = (
        text(re.sub(r"[^\x00-\x7f]", lambda found: "_" * (1 + (found[0] > "\uffff")), part)) for part in table
    )
    rows = connection.rows(f"CALL SYSIBM.SQLCOLUMNS(NULL, {schema}, {name}, NULL, NULL)")
    return sorted((row for row in rows if (row[1], row[2]) == table), key=lambda row: row[16])


def _triggers(number: int, source: str, names: list[str], logged: str) -> list[str]:
    after, before = (
        [f"A{order}" for order in range(1, len(names) + 1)],
        [f"B{order}" for order in range(1, len(names) + 1)],
    )
    new, old = [f"N.{quote_name(name)}" for name in names], [f"O.{quote_name(name)}" for name in names]
    events = [
        (INSERT, "INSERT", "NEW AS N", after, new),
        (DELETE, "DELETE", "OLD AS O", before, old),
        (UPDATE, "UPDATE", "OLD AS O NEW AS N", before + after, old + new),
    ]
    return [
        f"CREATE TRIGGER DB2LOG.{event}{number} AFTER {word} ON {source} REFERENCING {rows} FOR EACH ROW "
        f"INSERT INTO DB2LOG.T{number} (LSN, XID, OP, AUTHID, {', '.join(columns)}) "
        f"VALUES (NEXT VALUE FOR DB2LOG.LSN, {XID}, '{event}', CURRENT_USER, {', '.join(values)})"
        for event, word, rows, columns, values in events
        if event in logged
    ]


def _origins(old: Changes, columns: list[str]) -> list[str]:
    """Return the original name of each column; if exactly one name differs, the column at its place was renamed."""
    known = dict(zip(old.columns, old.origins, strict=True))
    gone, new = [name for name in old.columns if name not in columns], [name for name in columns if name not in known]
    if (
        len(old.columns) == len(columns)
        and len(gone) == len(new) == 1
        and old.columns.index(gone[0]) == columns.index(new[0])
    ):
        known[new[0]] = known[gone[0]]
    return [known.get(name, name) for name in columns]
