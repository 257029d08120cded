"""A random writer for Db2: several sessions at once, the same seed makes the same statements.

It does what applications do and what breaks readers of change tables: interleaved transactions, some of which are large or stay open for long,
savepoints and rollbacks to them, statements that fail and transactions that go on after, key changes and swaps, rows that are deleted and inserted again in
one transaction (which look as updates do), large objects, structures that change, and a capture agent that stops, waits and falls behind.

Sessions never wait for each other: each has its own keys. They wait for snapshots, which lock their tables; whoever waits too long rolls back, and all others
end their transactions then.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dev.servers.db2 import Db2
from tests.support.patience import LONGEST_S

VALUES = {"N": "INTEGER", "D": "DECIMAL(10,2)", "S": "VARCHAR(40)", "AT": "TIMESTAMP"}
CREATE = {
    "ONE": {"ID": "INTEGER", **VALUES},
    "Two": {"A": "VARCHAR(10)", "B": "BIGINT", **VALUES},
    "BITS": {"C": "CHAR(4) FOR BIT DATA", "V": "VARCHAR(12) FOR BIT DATA", "N": "INTEGER", "S": "VARCHAR(40)"},
    "BAG": {"WHO": "SMALLINT", **VALUES},
    "DOC": {"ID": "INTEGER", "N": "INTEGER", "T": "CLOB(1M)", "R": "BLOB(1M)"},
    "OLD": {"ID": "INTEGER", **VALUES},
}
KEYS = {"ONE": ("ID",), "Two": ("B", "A"), "BITS": ("V", "C"), "BAG": (), "DOC": ("ID",), "OLD": ("ID",)}
LOBS = {"T", "R"}
FIXED = {"ID", "A", "B", "C", "V", "WHO", "N", *LOBS}
"""Columns that stay."""
PREFIX = "O_"
"""Of the columns with images from before, which ``OLD`` has: its updates are one row each."""
ADDED = {
    "INTEGER": "7", "BIGINT": "-8", "DECIMAL(10,2)": "1.25", "VARCHAR(40)": "'x y'", "DATE": "'2024-02-29'", "DOUBLE": "0.5",
    "VARCHAR(20) FOR BIT DATA": None,
}  # fmt: skip
LONGER = {"VARCHAR(40)": "VARCHAR(400)"}
_NO = object()


@dataclass(frozen=True)
class Truth:
    """A table's committed rows at an LSN, out of the server itself.

    :param columns: what each is called, in order
    """

    table: str
    lsn: bytes
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass
class Era:
    """The time in which a table has one structure, and all its changes are logged."""

    columns: tuple[str, ...]
    since: bytes
    until: bytes | None = None


@dataclass(eq=False)
class Session:
    """One of the sessions; its keys are those with its number.

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


class Db2Writer:
    """Writes into a schema of its own.

    :param ddl: how often a structure changes
    :param agent: how often the capture agent is disturbed
    :ivar columns: table → name → type
    :ivar names: table → name of a column → all names that it has had
    :ivar gaps: tables and LSNs after which changes may have been lost until they are read again
    :ivar done: what was done how often
    """

    def __init__(
        self, server: Db2, seed: int, schema: str, *, sessions: int = 4, ddl: float = 0.02, agent: float = 0.03
    ) -> None:
        self.random, self.server, self.schema, self.ddl, self.agent = random.Random(seed), server, schema, ddl, agent
        self.columns: dict[str, dict[str, str]] = {}
        self.names: dict[str, dict[str, set[str]]] = {}
        self.done: dict[str, int] = {}
        self.gaps: list[tuple[str, bytes]] = []
        self._eras: dict[str, list[Era]] = {}
        self._commits: list[bytes] = []
        self._count_names = 0
        self.sessions = [Session(i, self._connect(i)) for i in range(sessions)]

    def close(self) -> None:
        for session in self.sessions:
            session.connection.close()

    def _connect(self, number: int) -> Any:
        connection = self.server.connect(f"W{number}")
        connection.execute("SET CURRENT LOCK TIMEOUT 1")
        connection.commit()
        return connection

    def prepare(self) -> None:
        """Create the tables, and put them into capture mode."""
        for table, columns in CREATE.items():
            body = ", ".join(f'"{n}" {t}{" NOT NULL" if n in KEYS[table] else ""}' for n, t in columns.items())
            key = f", PRIMARY KEY ({_names(KEYS[table])})" if KEYS[table] else ""
            self.server.sql(f"CREATE TABLE {self.name(table)} ({body}{key})")
            one_row = {"upd_to_del_ins": False, "before_prefix": PREFIX} if table == "OLD" else {}
            self.server.add_table(self.schema, table, reinit=False, **one_row)
            self.grant(table)
            self.columns[table] = dict(columns)
            self.names[table] = {n: {n} for n in columns}
        self.server.reinit()
        lsn = self.server.catch_up()
        self._eras = {table: [Era(tuple(columns), lsn)] for table, columns in self.columns.items()}

    def remove(self) -> None:
        """Take the tables out of capture mode, and drop them."""
        for table in self.columns:
            self.server.remove_table(self.schema, table, reinit=False)
            self.server.sql(f"DROP TABLE {self.name(table)}")
        self.server.reinit()

    def name(self, table: str) -> str:
        return f'{self.schema}."{table}"'

    def change_table(self, table: str) -> str:
        return f'ASNCDC."CDC_{self.schema}_{table}"'

    # -- sessions -----------------------------------------------------------------------------------------------------

    def write(self, steps: int) -> None:
        """So many steps of sessions by chance, with other structures and trouble for the agent in between."""
        for _ in range(steps):
            chance = self.random.random()
            if chance < self.ddl:
                self.change_schema()
            elif chance < self.ddl + self.agent:
                self.disturb()
            self.step(self.random.choice(self.sessions))

    def write_to(self, table: str) -> None:
        """A transaction that changes one table only."""
        session = self.random.choice(self.sessions)
        if session.open:
            self.end(session)
        self._begin(session)
        session.tables, session.left = [table], 4
        while session.open:
            self.step(session)

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
        self._count("lock timeout")
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
            self._count("rollback of a long one" if session.long else "rollback")
        else:
            session.connection.commit()
            self._count("long commit" if session.long else "commit")

    def _undo(self, session: Session) -> None:
        session.left = 0
        session.connection.rollback()
        session.keys = session.saved

    def finish(self, *tables: str) -> None:
        """End all transactions, or those that may have changed some tables."""
        for session in self.sessions:
            if session.open and (not tables or set(tables) & set(session.tables)):
                self.end(session)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # -- changes ------------------------------------------------------------------------------------------------------

    def _change(self, session: Session, table: str) -> None:
        kinds = [self._insert, self._insert, self._update, self._update, self._delete]
        if KEYS[table]:
            kinds += [self._move, self._swap, self._again, self._insert_many, self._fail, self._fail_late]
        kind = self.random.choice(kinds)
        kind(session, table)
        self._count(kind.__name__.strip("_"))

    def _savepoint(self, session: Session) -> None:
        saved, table = session.remember(), self.random.choice(session.tables)
        session.connection.execute("SAVEPOINT HERE ON ROLLBACK RETAIN CURSORS")
        for _ in range(self.random.randint(1, 4)):
            self._change(session, table)
        if self.random.random() < 0.7:
            session.connection.execute("ROLLBACK TO SAVEPOINT HERE")
            session.keys = saved
            self._count("rollback to savepoint")
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
        session.connection.execute(f"INSERT INTO {self.name(table)} ({_names(rows[0])}) VALUES {values}")
        session.keys[table] |= {*keys} - {None}

    def _update(self, session: Session, table: str) -> None:
        own = [c for c in self.columns[table] if c not in (*KEYS[table], "WHO")]
        some = self.random.sample(own, self.random.randint(1, min(3, len(own))))
        sets = ", ".join(f'"{c}" = {self._value(self.columns[table][c])}' for c in some)
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
        return " OR ".join(f"({_where(table, key)})" for key in some)

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
            away = _key(table, 5000 + session.number)
            for old, new in ((a, away), (b, a), (away, b)):
                self._rekey(session, table, old, new)

    def _again(self, session: Session, table: str) -> None:
        """Delete a key and insert it again."""
        if session.keys[table]:
            key = self._old_key(session, table)
            session.connection.execute(f"DELETE FROM {self.name(table)} WHERE {_where(table, key)}")
            self._insert(session, table, key)

    def _fail(self, session: Session, table: str) -> None:
        """Insert a key that is there: the transaction goes on without the row."""
        if session.keys[table]:
            with _violated(session):
                self._insert(session, table, self._old_key(session, table))

    def _fail_late(self, session: Session, table: str) -> None:
        """A statement over several rows that fails at the last one: what it did to the others is taken back."""
        if session.keys[table]:
            free, there = self._new_key(session, table), self._old_key(session, table)
            keys = session.remember()
            with _violated(session):
                self._insert_rows(session, table, [free, there])
            session.keys = keys

    def _rekey(self, session: Session, table: str, old: Any, new: Any) -> None:
        sets = ", ".join(f'"{c}" = {v}' for c, v in _parts(table, new).items())
        session.connection.execute(f"UPDATE {self.name(table)} SET {sets} WHERE {_where(table, old)}")

    # -- keys and values ----------------------------------------------------------------------------------------------

    def _old_key(self, session: Session, table: str) -> Any:
        return self.random.choice(sorted(session.keys[table]))

    def _new_key(self, session: Session, table: str) -> Any:
        while True:
            key = _key(table, self.random.randrange(session.number, 4000, len(self.sessions)))
            if key is None or key not in session.keys[table]:
                return key

    def _row(self, session: Session, table: str, key: Any) -> dict[str, str]:
        """Literals by column."""
        given = _parts(table, key) | {"WHO": str(session.number)}
        return {c: given[c] if c in given else self._value(t) for c, t in self.columns[table].items()}

    def _value(self, type_: str) -> str:
        """A literal of a type, NULL now and then."""
        r = self.random
        if r.random() < 0.12:
            return "NULL"
        match type_.split("(")[0]:
            case "DECIMAL":
                return f"{r.randint(-(10**8), 10**8) / 100:.2f}"
            case "INTEGER" | "BIGINT":
                return str(r.choice((0, -1, 2_147_483_647, r.randint(-(10**6), 10**6))))
            case "DOUBLE":
                return repr(r.uniform(-1e6, 1e6)) + "E0"
            case "DATE" | "TIMESTAMP" as kind:
                at = dt.datetime(1950, 1, 1) + dt.timedelta(
                    seconds=r.randrange(3 * 10**9), microseconds=r.randrange(10**6)
                )
                return f"{kind}('{at:%Y-%m-%d}')" if kind == "DATE" else f"{kind}('{at:%Y-%m-%d %H:%M:%S.%f}')"
            case "BLOB":
                return f"CAST(X'{r.randbytes(r.choice((1, 50, 900))).hex()}' AS BLOB(1M))"
            case "CLOB":
                return _literal(self._text(r.choice((3, 60, 2500))))
        if "BIT DATA" in type_:
            return f"X'{r.randbytes(r.randint(1, 20)).hex()}'"
        return _literal(self._text(r.choice((5, 9, 200)) if "400" in type_ else 9))

    def _text(self, longest: int) -> str:
        part = "".join(self.random.choice("abc é€'\"\\ =?") for _ in range(self.random.randint(1, min(longest, 60))))
        return (part * (longest // len(part) + 1))[:longest] if longest > 9 else part

    # -- structure ----------------------------------------------------------------------------------------------------

    def change_schema(self, table: str = "") -> None:
        """Another structure of a table and its change table, while captures go on; transactions that have changed it end first."""
        table = table or self.random.choice(sorted(KEYS))
        kind = self.random.choice((self._add, self._add, self._drop, self._rename, self._lengthen, self._other))
        with self.anew(table):
            kind(table)
        self._count(f"ddl {kind.__name__.strip('_')}")

    @contextmanager
    def anew(self, table: str) -> Iterator[None]:
        """An era of a table ends, and another one begins: nobody writes to it meanwhile, and the agent reads registrations again."""
        self.finish(table)
        for session in (
            self.sessions
        ):  # the engine of the test server locks its catalogue when it names the key that is there already
            if session.open and session.failed:
                self.end(session)
        self.calm()
        self._eras[table][-1].until = self.server.catch_up()
        yield
        self.server.reinit()
        self._eras[table].append(Era(tuple(self.columns[table]), self.server.catch_up()))

    def ddl_of(self, table: str, change: str, *, logged: bool = True, change_table: bool = True) -> None:
        """Run an ALTER TABLE on a table, and on its change table.

        :param change: ``{p}`` stands for the prefix of a column's name
        :param logged: otherwise the table does not log changes for replication meanwhile
        """
        if not logged:
            self._ddl(f"ALTER TABLE {self.name(table)} DATA CAPTURE NONE")
        self._ddl(f"ALTER TABLE {self.name(table)} {change.format(p='')}")
        if not logged:
            self._ddl(f"ALTER TABLE {self.name(table)} DATA CAPTURE CHANGES")
        if change_table:
            for prefix in self._prefixes(table):
                self._ddl(f"ALTER TABLE {self.change_table(table)} {change.format(p=prefix)}")

    def _prefixes(self, table: str) -> list[str]:
        """Of the columns in a change table; one that was registered anew has no images from before."""
        where = f"WHERE SOURCE_OWNER = '{self.schema}' AND SOURCE_TABLE = '{table}'"
        (row,) = self.server.rows(f"SELECT BEFORE_IMG_PREFIX FROM ASNCDC.IBMSNAP_REGISTER {where}")
        return ["", row[0]] if row[0] else [""]

    def _ddl(self, statement: str) -> None:
        """Again and again while the snapshot of a capture has its lock, as administrators do."""
        end = time.monotonic() + LONGEST_S
        while True:
            try:
                self.server.sql(statement)
                return
            except Exception as e:
                if "SQL0911N" not in str(e) or time.monotonic() > end:
                    raise
            time.sleep(0.02)

    def new_name(self) -> str:
        self._count_names += 1
        return f"X{self._count_names}"

    def _add(self, table: str, *, change_table: bool = True) -> None:
        name, type_ = self.new_name(), self.random.choice(sorted(ADDED))
        default = ADDED[type_] if self.random.random() < 0.5 else None
        words = f" DEFAULT {default}" if default else ""
        # the engine of the test server writes defaults as updates
        self.ddl_of(table, f'ADD COLUMN "{{p}}{name}" {type_}{words}', logged=not default, change_table=change_table)
        self.columns[table][name] = type_
        self.names[table][name] = {name}

    def add_to_table(self, table: str) -> None:
        """Give a table a column that its change table does not have."""
        self._add(table, change_table=False)

    def add_marked(self, table: str) -> None:
        """The online procedure of Debezium's document: the registration is inactive while both tables are altered. The agent begins anew with it then."""
        self._set_state(table, "I")
        self._add(table)
        self._set_state(table, "A")

    def _set_state(self, table: str, state: str) -> None:
        where = f"WHERE SOURCE_OWNER = '{self.schema}' AND SOURCE_TABLE = '{table}'"
        self.server.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}' {where}")
        self.server.reinit()

    def is_registered(self, table: str) -> bool:
        where = f"WHERE SOURCE_OWNER = '{self.schema}' AND SOURCE_TABLE = '{table}'"
        return bool(self.server.rows(f"SELECT 1 FROM ASNCDC.IBMSNAP_REGISTER {where}"))

    def grant(self, table: str) -> None:
        """Let the capture user read a table and its change table."""
        both = self.name(table), self.change_table(table)
        self.server.sql(*(f"GRANT SELECT ON TABLE {t} TO USER {self.server.user}" for t in both))

    def _free(self, table: str, types: Any = None) -> list[str]:
        return [c for c, t in self.columns[table].items() if c not in FIXED and (types is None or t in types)]

    def _drop(self, table: str) -> None:
        if free := self._free(table):
            name = self.random.choice(free)
            self.ddl_of(table, f'DROP COLUMN "{{p}}{name}"', logged=False)
            del self.columns[table][name], self.names[table][name]

    def _rename(self, table: str) -> None:
        if free := self._free(table):
            old, new = self.random.choice(free), self.new_name()
            self.ddl_of(table, f'RENAME COLUMN "{{p}}{old}" TO "{{p}}{new}"', logged=False)
            self.columns[table] = {new if c == old else c: t for c, t in self.columns[table].items()}
            names = self.names[table].pop(old) | {new}
            self.names[table][new] = names

    def _lengthen(self, table: str) -> None:
        if free := self._free(table, LONGER):
            name = self.random.choice(free)
            type_ = self.columns[table][name] = LONGER[self.columns[table][name]]
            self.ddl_of(table, f'ALTER COLUMN "{{p}}{name}" SET DATA TYPE {type_}', logged=False)

    def _other(self, table: str) -> None:
        """What changes no column."""
        name = self.new_name()
        self._ddl(f'CREATE INDEX {self.schema}.I{name} ON {self.name(table)} ("N")')

    # -- the agent ----------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        """Something becomes of the capture agent."""
        kinds: tuple[Callable[[], object], ...] = (
            self._stop,
            self._pause,
            self._delay,
            self._slow,
            self._step,
            self.calm,
            self.calm,
        )
        kind = self.random.choice(kinds)
        kind()
        self._count(f"agent {kind.__name__.strip('_')}")

    def _stop(self) -> None:
        self.server.agent("stop")

    def _pause(self) -> None:
        self.server.agent("pause")

    def _delay(self) -> None:
        self.server.configure(delay=self.random.choice((0.1, 0.4)))

    def _slow(self) -> None:
        self.server.configure(commit_interval=self.random.choice((0.1, 0.3)))

    def _step(self) -> None:
        """It publishes what there is at a moment of its own choice."""
        if self.server.agent():
            self.server.step()

    def calm(self) -> None:
        """The agent runs, and keeps up."""
        self.server.configure(delay=0, commit_interval=0.02)
        self.server.agent("start")
        self.server.agent("resume")

    def kill_server(self) -> None:
        """Kill the server with all transactions that are open, and start it again."""
        self.server.kill()
        self.server.start()
        for session in self.sessions:
            if session.open:
                session.keys, session.left = session.saved, 0
            session.connection.close()
            session.connection = self._connect(session.number)
        self._count("server killed")

    # -- what is true -------------------------------------------------------------------------------------------------

    def note_commits(self) -> None:
        """Remember the LSNs of the commits since the last time: the agent forgets them."""
        last = f"IBMSNAP_COMMITSEQ > X'{self._commits[-1].hex()}'" if self._commits else "1 = 1"
        rows = self.server.rows(
            f"SELECT IBMSNAP_COMMITSEQ FROM ASNCDC.IBMSNAP_UOW WHERE {last} ORDER BY IBMSNAP_COMMITSEQ"
        )
        self._commits += [bytes(lsn) for (lsn,) in rows]

    def truths(self, times: int) -> list[Truth]:
        """What all tables held at some random commits of the past, and what they hold now."""
        self.calm()
        self.server.catch_up()
        self.note_commits()
        first = min(era.since for eras in self._eras.values() for era in eras)
        commits = [lsn for lsn in self._commits if lsn >= first]
        chosen = {*self.random.sample(commits, min(times, len(commits))), self.server.published()}
        found = []
        for table, eras in self._eras.items():
            of = {lsn: era for lsn in sorted(chosen) if (era := _at(eras, lsn)) is not None}
            for lsn, rows in zip(of, self.server.table_at_each(self.schema, table, list(of)), strict=True):
                found.append(Truth(table, lsn, of[lsn].columns, rows))
        return found

    def lose(self, table: str) -> None:
        """What is done to a table from now on may be logged by nobody."""
        until = self._eras[table][-1].until
        assert until is not None
        self.gaps.append((table, until))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table now, in the order of their values."""
        names = list(self.columns[table])
        found = self.server.rows(f"SELECT {_names(names)} FROM {self.name(table)}")
        return sorted((dict(zip(names, row, strict=True)) for row in found), key=repr)


def _at(eras: list[Era], lsn: bytes) -> Era | None:
    """The era in which an LSN is; ``None`` = between two, where the rows are not known."""
    found = eras[bisect_right(eras, lsn, key=lambda e: e.since) - 1]
    return found if found.since <= lsn and (found.until is None or lsn <= found.until) else None


def _key(table: str, n: int) -> Any:
    """A key out of a number."""
    match table:
        case "Two":
            return n, f"k {n % 7}"
        case "BITS":
            return (b"\0\xff%x" % n).hex(), f"{n % 5:08x}"
    return None if table == "BAG" else n


def _parts(table: str, key: Any) -> dict[str, str]:
    """Column of a key → literal."""
    if table == "Two":
        return {"B": str(key[0]), "A": _literal(key[1])}
    if table == "BITS":
        return {"V": f"X'{key[0]}'", "C": f"X'{key[1]}'"}
    return {} if table == "BAG" else {"ID": str(key)}


def _where(table: str, key: Any) -> str:
    return " AND ".join(f'"{c}" = {v}' for c, v in _parts(table, key).items())


def _names(names: Any) -> str:
    return ", ".join(f'"{n}"' for n in names)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _violated(session: Session) -> Iterator[None]:
    """The body must fail because a key is there already."""
    session.failed = True
    try:
        yield
    except Exception as e:
        if "SQL0803N" not in str(e):
            raise
        return
    raise AssertionError("no key was there twice")
