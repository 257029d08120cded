"""A random writer for Oracle: several sessions at once, the same seed makes the same statements.

It does what applications do and what breaks readers of redo: interleaved transactions, some of which stay open for long, savepoints and
rollbacks to them, statements that fail in the middle and transactions that continue, key changes, long values, DDL in between,
log switches, and instances of a cluster that write in turn.

Sessions never wait for each other: each has its own keys.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import oracledb

from dev.servers.oracle import Oracle
from tests.support.patience import LONGEST_S

VALUES = {"N": "NUMBER(9)", "D": "NUMBER(10,2)", "S": "VARCHAR2(40 CHAR)", "AT": "TIMESTAMP(6)"}
CREATE = {
    "ONE": {"ID": "NUMBER(9)", **VALUES},
    "TWO": {"A": "VARCHAR2(10)", "B": "NUMBER(9)", **VALUES},
    "BAG": {"WHO": "NUMBER(2)", **VALUES},
    "DOC": {"ID": "NUMBER(9)", "N": "NUMBER(9)", "C": "CLOB", "B": "BLOB", "T": "VARCHAR2(32767)"},
}
KEYS = {"ONE": ("ID",), "TWO": ("B", "A"), "BAG": (), "DOC": ("ID",)}
FIXED = {"ID", "A", "B", "WHO", "C", "T"}
"""Columns that DDL leaves alone."""
ADDED = {
    "NUMBER(9)": "7", "NUMBER(18)": "-8", "NUMBER(10,2)": "1.25", "VARCHAR2(40 CHAR)": "'x y'",
    "DATE": "DATE '2024-02-29'", "BINARY_DOUBLE": None, "RAW(20)": None,
}  # fmt: skip
WIDER = {"NUMBER(9)": "NUMBER(18)", "VARCHAR2(40 CHAR)": "VARCHAR2(400 CHAR)", "NUMBER(10,2)": "NUMBER(14,4)"}
_NO = object()


@dataclass
class TableTruth:
    """A table's committed rows at an SCN, out of the engine itself."""

    table: str
    scn: int
    columns: dict[str, str]
    rows: list[tuple[Any, ...]]


@dataclass(eq=False)
class Session:
    """A session; its keys are those with its number.

    :ivar keys: table → keys of the session that are there, as the session sees them
    :ivar left: steps until its transaction ends
    """

    number: int
    connection: Any
    keys: dict[str, set[Any]] = field(default_factory=lambda: {t: set() for t in KEYS})
    saved: dict[str, set[Any]] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    left: int = 0
    long: bool = False

    @property
    def open(self) -> bool:
        return self.left > 0

    def remember(self) -> dict[str, set[Any]]:
        return {t: set(k) for t, k in self.keys.items()}


class OracleWriter:
    """Writes into the owner's schema.

    :param sessions: how many; they are spread over the instances
    :param plain: only DDL after which rows from before can be read without the dictionary of then: no unused columns, no defaults of
        columns that may be NULL, and the table with long values stays as it is
    :ivar truths: what tables held, at random SCNs of the past
    :ivar done: what was done how often
    """

    def __init__(self, server: Oracle, seed: int, *, sessions: int = 5, ddl: float = 0.03, plain: bool = False) -> None:
        self.random, self.server, self.ddl, self.plain = random.Random(seed), server, ddl, plain
        self.columns: dict[str, dict[str, str]] = {}
        self.truths: list[TableTruth] = []
        self.done: dict[str, int] = {}
        self._since: dict[str, int] = {}
        self._names = self._switched = 0
        self._held = False
        self._stack = ExitStack()
        threads = len(server.nodes)
        self.sessions = [Session(i, self._connect(i % threads + 1)) for i in range(sessions)]

    def close(self) -> None:
        self._stack.close()

    def _connect(self, thread: int) -> Any:
        return self._stack.enter_context(closing(self.server.connect(thread=thread)))

    def prepare(self) -> None:
        """Create the tables: a number as key, a composite key, no key at all, and long values."""
        for table, columns in CREATE.items():
            body = ", ".join(f"{n} {t}" for n, t in columns.items())
            key = f", PRIMARY KEY ({', '.join(KEYS[table])})" if KEYS[table] else ""
            self.server.sql(
                f"CREATE TABLE {table} ({body}{key})", f"ALTER TABLE {table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
            )
            self.columns[table] = dict(columns)
            self._since[table] = self.server.scn()

    # -- sessions -----------------------------------------------------------------------------------------------------

    def write(self, steps: int) -> None:
        """So many steps of sessions by chance, with DDL and log switches in between."""
        for _ in range(steps):
            chance = self.random.random()
            if chance < self.ddl:
                self.change_schema()
            elif chance < self.ddl + 0.02:
                self.switch_log()
            self.step(self.random.choice(self.sessions))

    def step(self, session: Session) -> None:
        if not session.open:
            self._begin(session)
        self._change(session, self.random.choice(session.tables))
        if self.random.random() < 0.08:
            self._savepoint(session)
        session.left -= 1
        if not session.open:
            self.end(session)

    def _begin(self, session: Session) -> None:
        r = self.random
        session.long = session.number == 0 or (session.number == 1 and r.random() < 0.2)
        session.left = r.randint(60, 160) if session.long else r.choice((1, 1, 2, 3, 8, 20))
        session.tables = r.sample(sorted(KEYS), 1 if session.long else r.choice((1, 1, 2)))
        session.saved = session.remember()

    def end(self, session: Session) -> None:
        """Commit, or roll back."""
        session.left = 0
        if self.random.random() < 0.12:
            session.connection.rollback()
            session.keys = session.saved
            self._count("rollback of a long one" if session.long else "rollback")
        else:
            session.connection.commit()
            self._count("long commit" if session.long else "commit")

    def finish(self) -> None:
        """End all transactions."""
        for session in self.sessions:
            if session.open:
                self.end(session)
        self.release_archiving()

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def _run(self, session: Session, sql: str, binds: list[Any]) -> None:
        with session.connection.cursor() as cursor:
            cursor.setinputsizes(*map(_size, binds))
            cursor.execute(sql, binds)

    # -- changes ------------------------------------------------------------------------------------------------------

    def _change(self, session: Session, table: str) -> None:
        kinds = [self._insert, self._insert, self._update, self._update, self._delete]
        if KEYS[table]:
            kinds += [self._move, self._swap, self._cross, self._again, self._insert_many, self._fail, self._fail_late]
        kind = self.random.choice(kinds)
        kind(session, table)
        self._count(kind.__name__.strip("_"))

    def _savepoint(self, session: Session) -> None:
        saved, table = session.remember(), self.random.choice(session.tables)
        with session.connection.cursor() as cursor:
            cursor.execute("SAVEPOINT here")
            for _ in range(self.random.randint(1, 4)):
                self._change(session, table)
            if self.random.random() < 0.7:
                cursor.execute("ROLLBACK TO SAVEPOINT here")
                session.keys = saved
                self._count("rollback to savepoint")

    def _insert(self, session: Session, table: str, key: Any = _NO) -> None:
        key = self._new_key(session, table) if key is _NO else key
        row = self._row(session, table, key)
        marks = ", ".join(f":{i}" for i in range(1, len(row) + 1))
        self._run(session, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        session.keys[table].add(key)

    def _insert_many(self, session: Session, table: str) -> None:
        for _ in range(self.random.randint(2, 12)):
            self._insert(session, table)

    def _update(self, session: Session, table: str) -> None:
        own = [c for c in self.columns[table] if c not in (*KEYS[table], "WHO")]
        some = self.random.sample(own, self.random.randint(1, min(3, len(own))))
        values = [self._value(self.columns[table][c]) for c in some]
        sets = ", ".join(f"{c} = :{i}" for i, c in enumerate(some, 1))
        condition, binds = self._some(session, table, len(some))
        if condition:
            self._run(session, f"UPDATE {table} SET {sets} WHERE {condition}", values + binds)

    def _delete(self, session: Session, table: str) -> None:
        condition, binds = self._some(session, table, 0, gone=True)
        if condition:
            self._run(session, f"DELETE FROM {table} WHERE {condition}", binds)

    def _some(self, session: Session, table: str, before: int, *, gone: bool = False) -> tuple[str, list[Any]]:
        """A row or a few that belong to the session, as a condition."""
        if table == "BAG":
            expected = self.random.randint(0, 5)
            return f"who = :{before + 1} AND MOD(NVL(n, 0), 6) = :{before + 2}", [session.number, expected]
        if not session.keys[table]:
            return "", []
        key = self._old_key(session, table)
        if gone:
            session.keys[table].discard(key)
        return self._where(table, key, before + 1)

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
            away = (-1 - session.number, "away") if table == "TWO" else -1 - session.number
            for old, new in ((a, away), (b, a), (away, b)):
                self._rekey(session, table, old, new)

    def _cross(self, session: Session, table: str) -> None:
        """Some rows exchange their keys by one statement, after which the database makes sure that keys are unique."""
        # of long values, whose pieces name rows by keys, that is refused
        if table not in ("TWO", "DOC") and len(session.keys[table]) > 1:
            some = self.random.sample(
                sorted(session.keys[table]), min(len(session.keys[table]), self.random.randint(2, 4))
            )
            cases = " ".join(f"WHEN {a} THEN {b}" for a, b in zip(some, [*some[1:], some[0]], strict=True))
            listed = ", ".join(map(str, some))
            self._run(session, f"UPDATE {table} SET id = CASE id {cases} END WHERE id IN ({listed})", [])

    def _again(self, session: Session, table: str) -> None:
        """Delete a key and insert it again."""
        if session.keys[table]:
            key = self._old_key(session, table)
            condition, binds = self._where(table, key, 1)
            self._run(session, f"DELETE FROM {table} WHERE {condition}", binds)
            self._insert(session, table, key)

    def _fail(self, session: Session, table: str) -> None:
        """Insert a key that is there: the transaction continues without the row."""
        if session.keys[table]:
            with _unique_violation():
                self._insert(session, table, self._old_key(session, table))

    def _fail_late(self, session: Session, table: str) -> None:
        """A statement over two rows that fails at the second: what it did to the first is taken back."""
        if table != "TWO" and len(session.keys[table]) > 1:
            a, b = self.random.sample(sorted(session.keys[table]), 2)
            free = self._new_key(session, table)
            with _unique_violation():
                self._run(session, f"UPDATE {table} SET id = :1 WHERE id IN (:2, :3)", [free, a, b])

    def _rekey(self, session: Session, table: str, old: Any, new: Any) -> None:
        parts = dict(zip(KEYS[table], new if table == "TWO" else (new,), strict=True))
        sets = ", ".join(f"{c} = :{i}" for i, c in enumerate(parts, 1))
        condition, binds = self._where(table, old, len(parts) + 1)
        self._run(session, f"UPDATE {table} SET {sets} WHERE {condition}", [*parts.values(), *binds])

    def _where(self, table: str, key: Any, first: int) -> tuple[str, list[Any]]:
        parts = key if table == "TWO" else (key,)
        return " AND ".join(f"{c} = :{first + i}" for i, c in enumerate(KEYS[table])), list(parts)

    # -- keys and values ----------------------------------------------------------------------------------------------

    def _old_key(self, session: Session, table: str) -> Any:
        return self.random.choice(sorted(session.keys[table]))

    def _new_key(self, session: Session, table: str) -> Any:
        # however much is written on a slow machine, there is a key left
        most = max(4000, 2 * len(session.keys[table]) * len(self.sessions))
        while True:
            n = self.random.randrange(session.number, most, len(self.sessions))
            key = (n, f"k{n % 7}") if table == "TWO" else None if table == "BAG" else n
            if key is None or key not in session.keys[table]:
                return key

    def _row(self, session: Session, table: str, key: Any) -> dict[str, Any]:
        given = dict(zip(KEYS[table], key if table == "TWO" else (key,), strict=False)) | {"WHO": session.number}
        return {c: given[c] if c in (*KEYS[table], "WHO") else self._value(t) for c, t in self.columns[table].items()}

    def _value(self, type_: str) -> Any:
        """A value of a type, NULL now and then."""
        r = self.random
        if r.random() < 0.12 and not type_.endswith("NOT NULL"):
            return None
        match type_.split("(")[0].split()[0]:
            case "NUMBER" if "," in type_:
                return round(r.uniform(-(10**6), 10**6), 2)
            case "NUMBER":
                return r.choice((0, -1, 999_999_999, r.randint(-(10**6), 10**6)))
            case "BINARY_DOUBLE":
                return r.uniform(-1e6, 1e6)
            case "DATE" | "TIMESTAMP":
                at = dt.datetime(1950, 1, 1) + dt.timedelta(
                    seconds=r.randrange(3 * 10**9), microseconds=r.randrange(10**6)
                )
                return at.replace(microsecond=0) if type_.startswith("DATE") else at
            case "RAW":
                return r.randbytes(r.randint(1, 20))
            case "BLOB":
                return r.randbytes(r.choice((1, 500, 5000)))
            case "CLOB":
                return self._text(r.choice((3, 60, 1000, 6000)))
        return self._text(r.choice((9, 9, 3000, 10_000)) if "32767" in type_ else 9)

    def _text(self, longest: int) -> str:
        part = "".join(self.random.choice("abc é€'';\"\\ =") for _ in range(self.random.randint(1, min(longest, 60))))
        return (part * (longest // len(part) + 1))[:longest] if longest > 9 else part

    # -- structure ----------------------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """A statement, as soon as some table has no long transaction, after which the table has to be read again."""
        done = self.done.get("ddl compute", 0)
        while self.done.get("ddl compute", 0) == done:
            self.change_schema()

    def change_schema(self) -> None:
        """DDL on a table; transactions that have changed it end first, but for long ones, which keep it as it is."""
        table = self.random.choice([t for t in sorted(KEYS) if not (self.plain and t == "DOC")])
        users = [s for s in self.sessions if s.open and table in s.tables]
        if any(s.long for s in users):
            return
        for session in users:
            self.end(session)
        self.look(table)
        kind = self.random.choice(
            (self._add, self._add, self._drop, self._rename, self._widen, self._other, self._empty, self._compute)
        )
        kind(table)
        self._count(f"ddl {kind.__name__.strip('_')}")
        self._since[table] = self.server.scn()

    def _ddl(self, *statements: str) -> None:
        """Again and again while the snapshot of a capture has its lock, as administrators do: DDL does not wait."""
        for statement in statements:
            end = time.monotonic() + LONGEST_S
            while True:
                try:
                    self.server.sql(statement)
                    break
                except oracledb.DatabaseError as e:
                    if e.args[0].code != 54 or time.monotonic() > end:
                        raise
                time.sleep(0.02)

    def _add(self, table: str) -> None:
        self._names += 1
        name, type_ = f"X{self._names}", self.random.choice(sorted(ADDED))
        default = ADDED[type_] if self.random.random() < 0.5 else None
        must = " NOT NULL" if default and (self.plain or self.random.random() < 0.3) else ""
        self._ddl(f"ALTER TABLE {table} ADD ({name} {type_}{f' DEFAULT {default}' if default else ''}{must})")
        self.columns[table][name] = type_ + must

    def _free(self, table: str, types: Any = None) -> list[str]:
        return [c for c, t in self.columns[table].items() if c not in FIXED | {"N"} and (types is None or t in types)]

    def _drop(self, table: str) -> None:
        if free := self._free(table):
            name = self.random.choice(free)
            how = "DROP COLUMN" if self.plain else self.random.choice(("DROP COLUMN", "SET UNUSED COLUMN"))
            self._ddl(f"ALTER TABLE {table} {how} {name}")
            del self.columns[table][name]

    def _rename(self, table: str) -> None:
        if free := self._free(table):
            self._names += 1
            old, new = self.random.choice(free), f"X{self._names}"
            self._ddl(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
            self.columns[table] = {new if c == old else c: t for c, t in self.columns[table].items()}

    def _widen(self, table: str) -> None:
        if free := self._free(table, WIDER):
            name = self.random.choice(free)
            self.columns[table][name] = WIDER[self.columns[table][name]]
            self._ddl(f"ALTER TABLE {table} MODIFY ({name} {self.columns[table][name]})")

    def _compute(self, table: str) -> None:
        """A column whose values the database computes, so that the table has to be read again."""
        self._names += 1
        name, must = f"X{self._names}", " NOT NULL" if self.plain else ""
        self._ddl(f"ALTER TABLE {table} ADD ({name} NUMBER(9) DEFAULT TO_NUMBER(TO_CHAR(SYSDATE, 'YYYY')){must})")
        self.columns[table][name] = "NUMBER(9)" + must

    def _other(self, table: str) -> None:
        """Create an index and set a comment, which change no column."""
        self._names += 1
        self._ddl(f"CREATE INDEX i{self._names} ON {table} (n)", f"COMMENT ON TABLE {table} IS 'say ''{self._names}'''")

    def _empty(self, table: str) -> None:
        if self.random.random() < 0.5:
            self._ddl(f"TRUNCATE TABLE {table}")
            for session in self.sessions:
                session.keys[table] = set()
                session.saved[table] = set()

    # -- logs ---------------------------------------------------------------------------------------------------------

    def switch_log(self) -> None:
        """Switch the log of an instance; now and then archiving is held for a while, as long as groups are left."""
        if self._held and self._switched >= 1:
            self.release_archiving()
        elif not self._held and self.random.random() < 0.3:
            self.server.hold_archiving()
            self._held, self._switched = True, 0
            self._count("archiving held")
        self.server.switch_log(self.random.randint(1, len(self.server.nodes)))
        self._switched += 1
        self._count("switch")

    def release_archiving(self) -> None:
        """Archive what has waited."""
        if self._held:
            self.server.release_archiving()
            self._held = False

    def purge(self, before: int) -> None:
        """Delete archived logs that end before an SCN, and before the last dictionary from where it can be read."""
        dictionaries = self.server.admin(
            f"SELECT MAX(first_change#) FROM v$archived_log WHERE dictionary_begin = 'YES' AND first_change# <= {before}",
            dsn=self.server.root_dsn,
        )
        if gone := self.server.purge(dictionaries[0][0] or before):
            self.done["purged logs"] = self.done.get("purged logs", 0) + len(gone)

    # -- what is true -------------------------------------------------------------------------------------------------

    def look(self, *tables: str, times: int = 6) -> None:
        """Remember what tables held at random SCNs since their structure changed last."""
        now = self.server.scn()
        for table in tables or KEYS:
            for _ in range(times):
                scn = self.random.randint(min(self._since[table], now), now)
                rows = self.server.table_at(table, scn)
                self.truths.append(TableTruth(table, scn, dict(self.columns[table]), rows))


def _size(value: Any) -> Any:
    """Return the type that a value is bound as; ``None`` for the driver's own."""
    if isinstance(value, dt.datetime):
        return oracledb.DB_TYPE_TIMESTAMP if value.microsecond else oracledb.DB_TYPE_DATE
    if isinstance(value, str) and len(value) > 4000:
        return oracledb.DB_TYPE_LONG
    if isinstance(value, bytes) and len(value) > 2000:
        return oracledb.DB_TYPE_LONG_RAW
    if isinstance(value, float):
        return oracledb.DB_TYPE_NUMBER
    return None


class _unique_violation:
    """The body must fail with ORA-00001."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        assert isinstance(error, oracledb.IntegrityError), error or "no unique violation"
        assert error.args[0].code == 1, error
        return True
