"""The engine: row versions in SQLite, transactions over several sessions, row and table locks, commit and rollback.

Every change makes a new version of its row. A version carries the SCNs between which it is the row's truth, or the
number of the transaction that is still making or ending it; a read at an SCN is a condition on those. So flashback is
the same as any other read, and what a killed server leaves unfinished is found and undone when it starts again.
"""

import contextlib
import datetime
import marshal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dev.servers.oracle.engine.catalog import Catalog, Key, Table
from dev.servers.oracle.engine.transactions import COMPATIBLE, NO_TRANSACTION, LockBlocked, Transaction, UndoStep
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.redo import redo as log
from dev.servers.oracle.redo.redo import Redo, Xid

LOCK_POLL_SECONDS = 0.02
FLUSH_SECONDS = 3.0


class Engine:
    """The database behind all sessions."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.path = folder / "oracle.db"
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.db = self.connect()
        self.db.execute("PRAGMA journal_mode = WAL")
        with self.writing():
            self.catalog = Catalog(self.db)
            self.redo = Redo(self.db, threads)
        self.transactions: dict[int, Transaction] = {}
        self.row_locks: dict[tuple[int, int], Transaction] = {}
        self._next_rows: dict[int, int] = {}
        self.lazy_flush = True
        self.commits_wait = True
        """``COMMIT_WAIT``: a commit is on disk when it returns."""
        self.lob_shape = "19c"
        self.clock_offset = datetime.timedelta()
        if not self.redo.fresh:
            self._recover()

    def connect(self) -> sqlite3.Connection:
        """A new connection to the storage."""
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=256)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA case_sensitive_like = ON")
        return connection

    def now(self) -> datetime.datetime:
        """The server's clock, UTC."""
        return datetime.datetime.now(datetime.UTC) + self.clock_offset

    def now_text(self) -> str:
        return f"{self.now():%Y-%m-%d %H:%M:%S}"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock, and make what is written inside durable together."""
        with self.lock:
            if self.db.in_transaction:
                yield
                return
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                self.db.execute("COMMIT")

    def snapshot_scn(self) -> int:
        """The SCN that a read of now uses."""
        with self.lock:
            return self.redo.scn

    def read_scn(self) -> int:
        """CURRENT_SCN: each look moves it, as in Oracle."""
        with self.writing():
            scn = self.redo.tick()
            self.redo.note_time(scn, self.now())
            self.redo.save_clock()
            return scn

    # transactions

    def begin(self, thread: int, user: str, container: int, client: str | None = None) -> Transaction:
        with self.lock:
            xid = self.redo.new_xid(thread, container)
            transaction = Transaction(xid, thread, user, self.redo.scn, self.now_text(), client)
            self.transactions[transaction.id] = transaction
            return transaction

    def commit(self, transaction: Transaction) -> None:
        """Make the changes of a transaction the truth, at a new SCN."""
        with self.writing():
            if any(key.deferred for table in transaction.tables.values() for key in table.keys):
                self._check_deferred(transaction)
            if transaction.has_start_record or transaction.tables:
                scn = self.redo.tick()
                for table in transaction.tables.values():
                    self.db.execute(
                        f"UPDATE {table.storage} SET _bs = ?, _bx = NULL WHERE _bx = ?", (scn, transaction.id)
                    )
                    self.db.execute(
                        f"UPDATE {table.storage} SET _es = ?, _ex = NULL WHERE _ex = ?", (scn, transaction.id)
                    )
                if transaction.has_start_record:
                    self._record(transaction, log.COMMIT, scn=scn)
                self._end(transaction, scn)
            self._forget(transaction)

    def rollback(self, transaction: Transaction) -> None:
        """Take back everything."""
        with self.writing():
            self.rollback_to(transaction, 0)
            if transaction.has_start_record:
                self._record(transaction, log.ROLLBACK)
                self._end(transaction, self.redo.scn)
            self._forget(transaction)

    def _end(self, transaction: Transaction, scn: int) -> None:
        self.redo.note_time(scn, self.now())
        self.redo.save_clock()
        if self.commits_wait:
            self.redo.flush(transaction.thread)
        if self.redo.wants_switch(transaction.thread):
            self.redo.switch(transaction.thread)

    def _forget(self, transaction: Transaction) -> None:
        self.transactions.pop(transaction.id, None)
        self._release(transaction, transaction.undo)
        transaction.table_locks.clear()
        self.changed.notify_all()

    def _release(self, transaction: Transaction, steps: list[UndoStep]) -> None:
        for step in steps:
            if step.kind != "I" and self.row_locks.get((step.table.id, step.row)) is transaction:
                del self.row_locks[step.table.id, step.row]

    def rollback_to(self, transaction: Transaction, mark: int) -> None:
        """Take back the steps after a mark, newest first; each leaves an undo record in the redo."""
        with self.writing():
            taken = transaction.undo[mark:]
            del transaction.undo[mark:]
            transaction.sealed = min(transaction.sealed, mark)
            for step in reversed(taken):
                for index in reversed(range(step.count if step.kind != "L" else 0)):
                    self._take_back(transaction, step, index)
            self._release(transaction, taken)
            for step in transaction.undo if taken else []:
                if step.kind != "I":
                    self.row_locks[step.table.id, step.row] = transaction
            self.changed.notify_all()

    def _take_back(self, transaction: Transaction, step: UndoStep, index: int) -> None:
        storage = step.table.storage
        if step.kind != "D":
            self.db.execute(f"DELETE FROM {storage} WHERE _v = ?", (step.new + index,))
        if step.kind != "I":
            self.db.execute(f"UPDATE {storage} SET _ex = NULL WHERE _v = ?", (step.old,))
        if step.table.private:
            return
        record = step.record + index
        before, after = marshal.loads(self.db.execute("SELECT body FROM redo WHERE id = ?", (record,)).fetchone()[0])
        inverse = {"I": log.DELETE, "D": log.INSERT, "U": log.UPDATE}[step.kind]
        body = [after, {column: before[column] for column in after}] if step.kind == "U" else [after, before]
        self._record(transaction, inverse, undo=True, table=step.table, row=step.row + index, body=body)
        self.redo.mark_undone(record)

    def compact(self, transaction: Transaction) -> None:
        """After a statement: join the inserts of several statements into one entry."""
        undo = transaction.undo
        while len(undo) - 1 > transaction.sealed and undo[-1].continues(undo[-2]):
            undo[-2].count += undo.pop().count

    def _record(
        self, transaction: Transaction, op: int, *, scn: int | None = None, undo: bool = False,
        table: Table | None = None, row: int | None = None, body: Any = None,
    ) -> int:  # fmt: skip
        if table is not None and table.private:
            return 0
        if not transaction.has_start_record:
            transaction.has_start_record = True
            transaction.started_scn = self.redo.tick()
            self.redo.write(
                transaction.thread,
                transaction.xid,
                log.START,
                self.now_text(),
                transaction.user,
                scn=transaction.started_scn,
                client=transaction.client,
            )
        identity = (table.id, table.version) if table else (0, 0)
        return self.redo.write(
            transaction.thread, transaction.xid, op, self.now_text(), transaction.user,
            scn=scn, undo=undo, table=identity, row=row, body=body, client=transaction.client,
        )  # fmt: skip

    def record(self, transaction: Transaction, op: int, **facts: Any) -> int:
        """A record of another kind in this transaction's name: DDL, parts of a LOB."""
        return self._record(transaction, op, **facts)

    # rows

    def insert(self, transaction: Transaction, table: Table, values: dict[int, Any]) -> int:
        """A new row; returns its number. ORA-00001 leaves the traces a real failure leaves."""
        row = self._next_rows.get(table.id)
        if row is None:
            row = (self.db.execute(f"SELECT MAX(_r) FROM {table.storage}").fetchone()[0] or 0) + 1
        self._next_rows[table.id] = row + 1
        version = self._put(transaction, table, row, values)
        record = self._record(transaction, log.INSERT, table=table, row=row, body=[{}, values])
        self._did(transaction, UndoStep("I", table, row, 0, version, record))
        transaction.unchecked.append((table, row, None))
        return row

    def update(self, transaction: Transaction, table: Table, row: int, new: dict[int, Any], changed: list[int]) -> None:
        """A new version of a row; ``new`` has all its columns."""
        version, before = self.newest(table, row)
        self.db.execute(f"UPDATE {table.storage} SET _ex = ? WHERE _v = ?", (transaction.id, version))
        fresh = self._put(transaction, table, row, new)
        logged = self._logged(table, before, changed)
        after = {column: new[column] for column in changed}
        record = self._record(transaction, log.UPDATE, table=table, row=row, body=[logged, after])
        self._did(transaction, UndoStep("U", table, row, version, fresh, record))
        transaction.unchecked.append((table, row, set(changed)))

    def delete(self, transaction: Transaction, table: Table, row: int) -> None:
        version, before = self.newest(table, row)
        self.db.execute(f"UPDATE {table.storage} SET _ex = ? WHERE _v = ?", (transaction.id, version))
        record = self._record(transaction, log.DELETE, table=table, row=row, body=[before, {}])
        self._did(transaction, UndoStep("D", table, row, version, 0, record))

    def _did(self, transaction: Transaction, step: UndoStep) -> None:
        undo = transaction.undo
        if step.kind == "I" and len(undo) > transaction.statement and step.continues(undo[-1]):
            undo[-1].count += 1
        else:
            undo.append(step)
        transaction.tables[step.table.id] = step.table
        if step.kind != "I":
            self.row_locks[step.table.id, step.row] = transaction

    def _put(self, transaction: Transaction, table: Table, row: int, values: dict[int, Any]) -> int:
        columns = "".join(f", c{column}" for column in values)
        marks = ", ?" * len(values)
        cursor = self.db.execute(
            f"INSERT INTO {table.storage} (_r, _bx{columns}) VALUES (?, ?{marks})",
            (row, transaction.id, *values.values()),
        )
        return int(cursor.lastrowid or 0)

    def newest(self, table: Table, row: int) -> tuple[int, dict[int, Any]]:
        """The version of a row that a change starts from: its number and its values."""
        columns = [column.id for column in table.live]
        names = "".join(f", c{column}" for column in columns)
        found = self.db.execute(
            f"SELECT _v{names} FROM {table.storage} WHERE _r = ? AND _es IS NULL AND _ex IS NULL", (row,)
        ).fetchone()
        return found[0], dict(zip(columns, found[1:], strict=True))

    def _logged(self, table: Table, before: dict[int, Any], changed: list[int]) -> dict[int, Any]:
        """The old values that supplemental logging puts into the redo of an update."""
        facts = self.catalog.facts
        database = facts.supplemental | facts.supplemental_inside.get(table.container, set())
        if "ALL" in database or table.logs("ALL COLUMN LOGGING"):
            return before
        names = {name for _, _, columns in table.log_groups for name in columns}
        if table.primary_key and ("PK" in database or table.logs("PRIMARY KEY LOGGING")):
            names |= set(table.primary_key.columns)
        expected = {column.id for column in table.live if column.name in names} | set(changed)
        return {column: value for column, value in before.items() if column in expected}

    # keys and locks

    def check_keys(self, transaction: Transaction) -> None:
        """At the end of a statement: rows may have had the same key until here."""
        rows, transaction.unchecked = transaction.unchecked, []
        for table, row, changed in rows:
            for key, columns in self._keys(table):
                if not key.deferred and (changed is None or changed & set(columns)):
                    self._check_key(transaction, table, row, key, columns)

    def _check_deferred(self, transaction: Transaction) -> None:
        """At the commit, which fails as a whole."""
        rows = {(step.table.id, step.row + i): step.table for step in transaction.undo for i in range(step.count)}
        for (_, row), table in rows.items():
            for key, columns in self._keys(table):
                if key.deferred:
                    self._check_key(transaction, table, row, key, columns)

    def _check_key(self, transaction: Transaction, table: Table, row: int, key: Key, columns: list[int]) -> None:
        names = "".join(f", c{column}" for column in columns)
        found = self.db.execute(
            f"SELECT _v{names} FROM {table.storage} WHERE _r = ? AND _es IS NULL AND _ex IS NULL", (row,)
        ).fetchone()
        if found is None:  # the same statement, or a later one, has deleted it
            return
        for _, ending in self._rivals(table, columns, row, dict(zip(columns, found[1:], strict=True))):
            if ending != transaction.id:
                raise OraError(1, f"{table.owner}.{key.name}")

    def _keys(self, table: Table) -> list[tuple[Key, list[int]]]:
        unique = [key for key in table.keys if key.kind != "X" and key.enabled]
        return [(key, [table.column(name).id for name in key.columns]) for key in unique]

    def _rivals(
        self, table: Table, columns: list[int], row: int, values: dict[int, Any]
    ) -> list[tuple[int | None, int | None]]:
        """Find the transactions that are making and ending the other rows with this key."""
        key = [values[column] for column in columns]
        if all(value is None for value in key):
            return []
        where = " AND ".join(f"c{column} IS ?" for column in columns)
        query = f"SELECT _bx, _ex FROM {table.storage} WHERE {where} AND _es IS NULL AND _r <> ?"
        return self.db.execute(query, (*key, row)).fetchall()

    def wait_for_keys(
        self, transaction: Transaction, table: Table, values: dict[int, Any], row: int = NO_TRANSACTION
    ) -> None:
        """Raises :class:`LockBlocked` when another transaction is making or ending a row with one of these keys."""
        for _, columns in self._keys(table):
            for maker, ender in self._rivals(table, columns, row, values):
                for holder in (maker, ender):
                    if holder not in (None, transaction.id) and holder in self.transactions:
                        raise LockBlocked(self.transactions[holder])

    def check_row(self, transaction: Transaction, table: Table, row: int, scn: int | None = None) -> None:
        """Raises :class:`LockBlocked` when another transaction has the row.

        :param scn: what this one sees: another one that has changed the row since then is ORA-08177
        """
        holder = self.row_locks.get((table.id, row))
        if holder is not None and holder is not transaction:
            raise LockBlocked(holder)
        if scn is not None:
            newest = f"SELECT _bs FROM {table.storage} WHERE _r = ? AND _es IS NULL ORDER BY _v DESC LIMIT 1"
            found = self.db.execute(newest, (row,)).fetchone()
            if found is None or (found[0] or 0) > scn:
                raise OraError(8177)

    def lock_row(self, transaction: Transaction, table: Table, row: int) -> None:
        """Take a row without changing it."""
        if (table.id, row) not in self.row_locks:
            self.row_locks[table.id, row] = transaction
            transaction.undo.append(UndoStep("L", table, row))

    def lock_table(self, transaction: Transaction, table: Table, mode: int) -> None:
        """Take a table lock; raises :class:`LockBlocked` when another one forbids it."""
        for other in self.transactions.values():
            held = other.table_locks.get(table.id)
            if other is not transaction and held is not None and mode not in COMPATIBLE[held]:
                raise LockBlocked(other)
        mine = transaction.table_locks.get(table.id, 0)
        transaction.table_locks[table.id] = max(mine, mode)

    def wait(self, transaction: Transaction, holder: Transaction, check: Callable[[], None]) -> None:
        """Wait a little for another transaction, then the statement tries again; ``check`` raises to give up.

        Raises:
            OraError: ORA-00060 when the other one waits for this one.
        """
        seen: Transaction | None = holder
        while seen is not None:
            if seen is transaction:
                raise OraError(60)
            seen = seen.waits_for
        transaction.waits_for = holder
        with self.lock:
            if holder.id in self.transactions:
                self.changed.wait(LOCK_POLL_SECONDS)
        check()

    # start

    def _recover(self) -> None:
        """Undo what a killed server left unfinished, with the records that such a recovery writes."""
        with self.writing():
            self.db.execute("DELETE FROM redo WHERE place IS NULL")  # private strands were in memory
            for table in self.catalog.tables.values():
                self.db.execute(f"DELETE FROM {table.storage} WHERE _bx IS NOT NULL")
                self.db.execute(f"UPDATE {table.storage} SET _ex = NULL WHERE _ex IS NOT NULL")
            open_ones = self.db.execute(
                "SELECT segment, slot, number, container, serial, thread, user FROM redo WHERE op IN (6, 7, 36)"
                " GROUP BY serial HAVING COUNT(*) = 1"
            ).fetchall()
            for segment, slot, number, container, serial, thread, user in open_ones:
                xid = Xid(segment, slot, number, container, serial)
                transaction = Transaction(xid, thread, user, 0, "", has_start_record=True)
                changes = self.db.execute(
                    "SELECT id, op, object, row FROM redo WHERE serial = ? AND op IN (1, 2, 3) AND undo = 0 AND undone = 0"
                    " ORDER BY id DESC",
                    (serial,),
                ).fetchall()
                for record, op, object_id, row in changes:
                    changed = self.catalog.by_id(object_id)
                    inverse = {1: 2, 2: 1, 3: 3}[op]
                    self._record(transaction, inverse, undo=True, table=changed, row=row, body=[{}, {}])
                    self.redo.mark_undone(record)
                self._record(transaction, log.ROLLBACK)
            self.redo.flush()
            self.redo.save_clock()
