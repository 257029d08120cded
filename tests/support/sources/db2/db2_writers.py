"""Sessions that change rows at random, for the random writer for Db2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dev.servers.db2 import Db2
from tests.support.sources.db2.db2_rows import KEYS, column_names, key_of, parts, value, where_clause

_NO = object()


@dataclass(eq=False)
class Session:
    """A session; its keys are those with its number.

    :ivar keys: table → keys of the session that are there, as the session sees them
    :ivar left: steps until its transaction ends
    :ivar failed: a statement of its transaction has failed
    """

    number: int
    connection: Any
    keys: dict[str, set[Any]] = field(default_factory=lambda: {t: set() for t in KEYS})
    saved: dict[str, set[Any]] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    left: int = 0
    long: bool = False
    failed: bool = False

    @property
    def open(self) -> bool:
        return self.left > 0

    def remember(self) -> dict[str, set[Any]]:
        return {t: set(k) for t, k in self.keys.items()}


class Sessions:
    """Several sessions that write into a separate schema, each in its own transactions.

    :ivar columns: table → name → type
    :ivar done: what was done how often
    """

    def __init__(self, server: Db2, seed: int, schema: str, count: int) -> None:
        self.random, self.server, self.schema = Random(seed), server, schema
        self.columns: dict[str, dict[str, str]] = {}
        self.done: dict[str, int] = {}
        self.sessions = [Session(i, self.connect(i)) for i in range(count)]

    def close(self) -> None:
        for session in self.sessions:
            session.connection.close()

    def connect(self, number: int) -> Any:
        connection = self.server.connect(f"W{number}")
        connection.execute("SET CURRENT LOCK TIMEOUT 1")
        connection.commit()
        return connection

    def name(self, table: str) -> str:
        return f'{self.schema}."{table}"'

    def calm(self) -> None:
        """The agent runs, and keeps up."""
        self.server.configure(delay=0, commit_interval=0.02)
        self.server.agent("start")
        self.server.agent("resume")

    # -- sessions -----------------------------------------------------------------------------------------------------

    def step(self, session: Session) -> None:
        try:
            if not session.open:
                self._begin(session)
            self._change(session, self.random.choice(session.tables))
            if self.random.random() < 0.08:
                self._savepoint(session)
        except Exception as e:
            if "SQL0911N" not in str(e):
                raise
            self._gives_way(session)
            return
        session.left -= 1
        if not session.open:
            self.end(session)

    def _gives_way(self, session: Session) -> None:
        """A snapshot has locked a table, or waits for that; and it may wait for the agent."""
        self._undo(session)
        self.count("lock timeout")
        self.finish()
        self.calm()

    def _begin(self, session: Session) -> None:
        r = self.random
        session.long = session.number == 0 and r.random() < 0.5
        session.left = r.randint(40, 90) if session.long else r.choice((1, 1, 2, 3, 8, 20))
        taken = {t for s in self.sessions if s.open for t in s.tables} & {"BAG"}  # nothing says whose its rows are
        free = [t for t in KEYS if t not in taken and not (session.long and t == "DOC")]
        session.tables = r.sample(free, r.choice((1, 1, 2, 3)))
        session.saved, session.failed = session.remember(), False

    def end(self, session: Session) -> None:
        """Commit, or roll back."""
        session.left = 0
        if self.random.random() < 0.12:
            self._undo(session)
            self.count("rollback of a long one" if session.long else "rollback")
        else:
            session.connection.commit()
            self.count("long commit" if session.long else "commit")

    def _undo(self, session: Session) -> None:
        session.left = 0
        session.connection.rollback()
        session.keys = session.saved

    def finish(self, *tables: str) -> None:
        """End all transactions, or those that may have changed some tables."""
        for session in self.sessions:
            if session.open and (not tables or set(tables) & set(session.tables)):
                self.end(session)

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # -- changes ------------------------------------------------------------------------------------------------------

    def _change(self, session: Session, table: str) -> None:
        kinds = [self._insert, self._insert, self._update, self._update, self._delete]
        if KEYS[table]:
            kinds += [self._move, self._swap, self._cross, self._again, self._insert_many, self._fail, self._fail_late]
        kind = self.random.choice(kinds)
        kind(session, table)
        self.count(kind.__name__.strip("_"))

    def _savepoint(self, session: Session) -> None:
        saved, table = session.remember(), self.random.choice(session.tables)
        session.connection.execute("SAVEPOINT HERE ON ROLLBACK RETAIN CURSORS")
        for _ in range(self.random.randint(1, 4)):
            self._change(session, table)
        if self.random.random() < 0.7:
            session.connection.execute("ROLLBACK TO SAVEPOINT HERE")
            session.keys = saved
            self.count("rollback to savepoint")
        session.connection.execute("RELEASE SAVEPOINT HERE")

    def _insert(self, session: Session, table: str, key: Any = _NO) -> None:
        key = self._new_key(session, table) if key is _NO else key
        self._insert_rows(session, table, [key])

    def _insert_many(self, session: Session, table: str) -> None:
        """Several rows; now and then more than a block has."""
        many = self.random.randint(40, 90) if self.random.random() < 0.1 else self.random.randint(2, 12)
        keys = list(dict.fromkeys(self._new_key(session, table) for _ in range(many)))
        self._insert_rows(session, table, keys)

    def _insert_rows(self, session: Session, table: str, keys: list[Any]) -> None:
        rows = [self._row(session, table, key) for key in keys]
        values = ", ".join(f"({', '.join(row.values())})" for row in rows)
        session.connection.execute(f"INSERT INTO {self.name(table)} ({column_names(rows[0])}) VALUES {values}")
        session.keys[table] |= {*keys} - {None}

    def _update(self, session: Session, table: str) -> None:
        own = [c for c in self.columns[table] if c not in (*KEYS[table], "WHO")]
        some = self.random.sample(own, self.random.randint(1, min(3, len(own))))
        sets = ", ".join(f'"{c}" = {value(self.random, self.columns[table][c])}' for c in some)
        if condition := self._some(session, table):
            session.connection.execute(f"UPDATE {self.name(table)} SET {sets} WHERE {condition}")

    def _delete(self, session: Session, table: str) -> None:
        if condition := self._some(session, table, gone=True):
            session.connection.execute(f"DELETE FROM {self.name(table)} WHERE {condition}")

    def _some(self, session: Session, table: str, *, gone: bool = False) -> str:
        """A row or a few that belong to the session, as a condition; empty if there are none."""
        if table == "BAG":
            return f'"WHO" = {session.number} AND MOD(COALESCE("N", 0), 6) = {self.random.randint(0, 5)}'
        keys = sorted(session.keys[table])
        if not keys:
            return ""
        some = self.random.sample(keys, min(len(keys), self.random.choice((1, 1, 1, 2, 6))))
        if gone:
            session.keys[table] -= {*some}
        return " OR ".join(f"({where_clause(table, key)})" for key in some)

    def _move(self, session: Session, table: str) -> None:
        """Change a key."""
        if session.keys[table]:
            old, new = self._old_key(session, table), self._new_key(session, table)
            self._rekey(session, table, old, new)
            session.keys[table] = session.keys[table] - {old} | {new}

    def _swap(self, session: Session, table: str) -> None:
        """Two rows exchange their keys."""
        if len(session.keys[table]) > 1:
            a, b = self.random.sample(sorted(session.keys[table]), 2)
            away = key_of(table, 5000 + session.number)
            for old, new in ((a, away), (b, a), (away, b)):
                self._rekey(session, table, old, new)

    def _cross(self, session: Session, table: str) -> None:
        """Some rows exchange their keys by one statement, after which the database makes sure that keys are unique."""
        if table in ("ONE", "OLD") and len(session.keys[table]) > 1:
            some = self.random.sample(
                sorted(session.keys[table]), min(len(session.keys[table]), self.random.randint(2, 4))
            )
            cases = " ".join(f"WHEN {a} THEN {b}" for a, b in zip(some, [*some[1:], some[0]], strict=True))
            listed = ", ".join(map(str, some))
            session.connection.execute(
                f'UPDATE {self.name(table)} SET "ID" = CASE "ID" {cases} END WHERE "ID" IN ({listed})'
            )

    def _again(self, session: Session, table: str) -> None:
        """Delete a key and insert it again."""
        if session.keys[table]:
            key = self._old_key(session, table)
            session.connection.execute(f"DELETE FROM {self.name(table)} WHERE {where_clause(table, key)}")
            self._insert(session, table, key)

    def _fail(self, session: Session, table: str) -> None:
        """Insert a key that is there: the transaction continues without the row."""
        if session.keys[table]:
            with _expect_violation(session):
                self._insert(session, table, self._old_key(session, table))

    def _fail_late(self, session: Session, table: str) -> None:
        """A statement over several rows that fails at the last one: what it did to the others is taken back."""
        if session.keys[table]:
            free, there = self._new_key(session, table), self._old_key(session, table)
            keys = session.remember()
            with _expect_violation(session):
                self._insert_rows(session, table, [free, there])
            session.keys = keys

    def _rekey(self, session: Session, table: str, old: Any, new: Any) -> None:
        sets = ", ".join(f'"{c}" = {v}' for c, v in parts(table, new).items())
        session.connection.execute(f"UPDATE {self.name(table)} SET {sets} WHERE {where_clause(table, old)}")

    # -- keys and values ----------------------------------------------------------------------------------------------

    def _old_key(self, session: Session, table: str) -> Any:
        return self.random.choice(sorted(session.keys[table]))

    def _new_key(self, session: Session, table: str) -> Any:
        # however much is written on a slow machine, there is a key left
        most = max(4000, 2 * len(session.keys[table]) * len(self.sessions))
        while True:
            key = key_of(table, self.random.randrange(session.number, most, len(self.sessions)))
            if key is None or key not in session.keys[table]:
                return key

    def _row(self, session: Session, table: str, key: Any) -> dict[str, str]:
        """Literals by column."""
        given = parts(table, key) | {"WHO": str(session.number)}
        return {c: given[c] if c in given else value(self.random, t) for c, t in self.columns[table].items()}


@contextmanager
def _expect_violation(session: Session) -> Iterator[None]:
    """The body must fail because a key is there already."""
    session.failed = True
    try:
        yield
    except Exception as e:
        if "SQL0803N" not in str(e):
            raise
        return
    raise AssertionError("no key was there twice")
