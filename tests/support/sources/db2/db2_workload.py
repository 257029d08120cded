"""A random writer for Db2: several sessions at once, the same seed makes the same statements.

It does what applications do and what breaks readers of change tables: interleaved transactions, some of which are large or stay open for long,
savepoints and rollbacks to them, statements that fail and transactions that continue, key changes and swaps, rows that are deleted and inserted again in
one transaction (which look as updates do), large objects, structures that change, and a capture agent that stops, waits and falls behind.

Sessions never wait for each other: each has its own keys. They wait for snapshots, which lock their tables; a session that waits too long rolls back, and all others
end their transactions then.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dev.servers.db2 import Db2
from tests.support.patience import LONGEST_S
from tests.support.sources.db2.db2_rows import CREATE, FIXED, KEYS, PREFIX, column_names
from tests.support.sources.db2.db2_writers import Sessions

ADDED = {
    "INTEGER": "7", "BIGINT": "-8", "DECIMAL(10,2)": "1.25", "VARCHAR(40)": "'x y'", "DATE": "'2024-02-29'", "DOUBLE": "0.5",
    "VARCHAR(20) FOR BIT DATA": None,
}  # fmt: skip
LONGER = {"VARCHAR(40)": "VARCHAR(400)"}


@dataclass(frozen=True)
class TableTruth:
    """A table's committed rows at an LSN, out of the server itself.

    :param columns: what each is called, in order
    """

    table: str
    lsn: bytes
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass
class TableEra:
    """The time in which a table has one structure, and all its changes are logged."""

    columns: tuple[str, ...]
    since: bytes
    until: bytes | None = None


class Db2Writer(Sessions):
    """Writes into a separate schema.

    :param ddl: how often a structure changes
    :param agent: how often the capture agent is disturbed
    :ivar names: table → name of a column → all names that it has had
    :ivar gaps: tables and LSNs after which changes may have been lost until they are read again
    """

    def __init__(
        self, server: Db2, seed: int, schema: str, *, sessions: int = 4, ddl: float = 0.02, agent: float = 0.03
    ) -> None:
        super().__init__(server, seed, schema, sessions)
        self.ddl, self.agent = ddl, agent
        self.names: dict[str, dict[str, set[str]]] = {}
        self.gaps: list[tuple[str, bytes]] = []
        self._eras: dict[str, list[TableEra]] = {}
        self._commits: list[bytes] = []
        self._count_names = 0

    def prepare(self) -> None:
        """Create the tables, and put them into capture mode."""
        for table, columns in CREATE.items():
            body = ", ".join(f'"{n}" {t}{" NOT NULL" if n in KEYS[table] else ""}' for n, t in columns.items())
            key = f", PRIMARY KEY ({column_names(KEYS[table])})" if KEYS[table] else ""
            self.server.sql(f"CREATE TABLE {self.name(table)} ({body}{key})")
            one_row = {"upd_to_del_ins": False, "before_prefix": PREFIX} if table == "OLD" else {}
            self.server.add_table(self.schema, table, reinit=False, **one_row)
            self.grant(table)
            self.columns[table] = dict(columns)
            self.names[table] = {n: {n} for n in columns}
        self.server.reinit()
        lsn = self.server.catch_up()
        self._eras = {table: [TableEra(tuple(columns), lsn)] for table, columns in self.columns.items()}

    def remove(self) -> None:
        """Take the tables out of capture mode, and drop them."""
        for table in self.columns:
            self.server.remove_table(self.schema, table, reinit=False)
            self.server.sql(f"DROP TABLE {self.name(table)}")
        self.server.reinit()

    def change_table(self, table: str) -> str:
        return f'ASNCDC."CDC_{self.schema}_{table}"'

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

    # -- structure ----------------------------------------------------------------------------------------------------

    def change_schema(self, table: str = "") -> None:
        """Change a table and its change table in structure while captures run; transactions that changed it end first."""
        table = table or self.random.choice(sorted(KEYS))
        kind = self.random.choice((self._add, self._add, self._drop, self._rename, self._lengthen, self._other))
        with self.anew(table):
            kind(table)
        self.count(f"ddl {kind.__name__.strip('_')}")

    @contextmanager
    def anew(self, table: str) -> Iterator[None]:
        """An era of a table ends, and another one begins: no one writes to it meanwhile, and the agent reads registrations again."""
        self.finish(table)
        for session in self.sessions:
            # the engine of the test server locks its catalogue when it names the key that is there already
            if session.open and session.failed:
                self.end(session)
        self.calm()
        self._eras[table][-1].until = self.server.catch_up()
        yield
        self.server.reinit()
        self._eras[table].append(TableEra(tuple(self.columns[table]), self.server.catch_up()))

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
        """Return the prefixes of columns in a change table; after a new registration it may have no images from before."""
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
        """The online procedure of Debezium's document: the registration is inactive while both tables are altered. The agent begins again with it then."""
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
            self.names[table][new] = self.names[table].pop(old) | {new}

    def _lengthen(self, table: str) -> None:
        if free := self._free(table, LONGER):
            name = self.random.choice(free)
            type_ = self.columns[table][name] = LONGER[self.columns[table][name]]
            self.ddl_of(table, f'ALTER COLUMN "{{p}}{name}" SET DATA TYPE {type_}', logged=False)

    def _other(self, table: str) -> None:
        """Create an index, which changes no column."""
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
        self.count(f"agent {kind.__name__.strip('_')}")

    def _stop(self) -> None:
        self.server.agent("stop")

    def _pause(self) -> None:
        self.server.agent("pause")

    def _delay(self) -> None:
        self.server.configure(delay=self.random.choice((0.1, 0.4)))

    def _slow(self) -> None:
        self.server.configure(commit_interval=self.random.choice((0.1, 0.3)))

    def _step(self) -> None:
        """It publishes what there is at a moment of its choice."""
        if self.server.agent():
            self.server.step()

    def kill_server(self) -> None:
        """Kill the server with all transactions that are open, and start it again."""
        self.server.kill()
        self.server.start()
        for session in self.sessions:
            if session.open:
                session.keys, session.left = session.saved, 0
            session.connection.close()
            session.connection = self.connect(session.number)
        self.count("server killed")

    # -- what is true -------------------------------------------------------------------------------------------------

    def note_commits(self) -> None:
        """Remember the LSNs of the commits since the last time: the agent forgets them."""
        last = f"WHERE IBMSNAP_COMMITSEQ > X'{self._commits[-1].hex()}'" if self._commits else ""
        named = [
            "ASNCDC.IBMSNAP_UOW",
            *(self.change_table(t) for t in self.columns if self.is_registered(t)),
        ]  # IBMSNAP_UOW may be empty
        queries = (f"SELECT DISTINCT IBMSNAP_COMMITSEQ FROM {name} {last}" for name in named)
        self._commits += sorted({bytes(lsn) for sql in queries for (lsn,) in self.server.rows(sql)})

    def truths(self, times: int) -> list[TableTruth]:
        """Return the rows of all tables at some random commits of the past, and their rows now."""
        self.calm()
        self.server.catch_up()
        self.note_commits()
        first = min(era.since for eras in self._eras.values() for era in eras)
        commits = [lsn for lsn in self._commits if lsn >= first]
        chosen = {*self.random.sample(commits, min(times, len(commits))), self.server.published()}
        found = []
        for table, eras in self._eras.items():
            of = {lsn: era for lsn in sorted(chosen) if (era := _find_era(eras, lsn)) is not None}
            for lsn, rows in zip(of, self.server.table_at_each(self.schema, table, list(of)), strict=True):
                found.append(TableTruth(table, lsn, of[lsn].columns, rows))
        return found

    def lose(self, table: str) -> None:
        """Note that changes of a table may be missing from the log from now on."""
        until = self._eras[table][-1].until
        assert until is not None
        self.gaps.append((table, until))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table now, in the order of their values."""
        names = list(self.columns[table])
        found = self.server.rows(f"SELECT {column_names(names)} FROM {self.name(table)}")
        return sorted((dict(zip(names, row, strict=True)) for row in found), key=repr)


def _find_era(eras: list[TableEra], lsn: bytes) -> TableEra | None:
    """The era in which an LSN is; ``None`` = between two, where the rows are not known."""
    found = eras[bisect_right(eras, lsn, key=lambda e: e.since) - 1]
    return found if found.since <= lsn and (found.until is None or lsn <= found.until) else None
