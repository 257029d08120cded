"""The database as clients meet it: its containers, users, services and sessions, and what a test may do to it."""

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.servers.oracle import session_protocol
from dev.servers.oracle.engine import lobs
from dev.servers.oracle.engine.catalog import User
from dev.servers.oracle.engine.engine import FLUSH_SECONDS, Engine
from dev.servers.oracle.engine.flashback import Flashback
from dev.servers.oracle.engine.privileges import CAPTURE_GRANTS, OWNER_GRANTS
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.redo import benchmark_rows, redo
from dev.servers.oracle.session import Session

SEED = "PDB$SEED"


@dataclass(frozen=True)
class Settings:
    """The settings of a new database; a database that exists keeps its users and tables."""

    cdb: bool = True
    threads: int = 1
    standby: bool = False
    owner: str = "APP"
    owner_password: str = "app"
    user: str = "C##DBZUSER"
    user_password: str = "dbz"
    admin_password: str = "manager"
    supplemental: tuple[str, ...] = ("MIN",)
    archiving: bool = True
    lazy_flush: bool = True
    """Redo is on disk, and LogMiner sees it, only after a commit in its thread, a switch, or three seconds."""
    switch_every: int = 0
    tls: tuple[str, ...] = ()
    """PEM files for a listener with TLS: certificate, its key, and the authority of clients if these need one."""
    local: bool = False
    """The capture user is a local one of the first pluggable database."""
    autonomous: bool = False
    """Pluggable databases show no views of the control file, nor their own logging in V$DATABASE, and have one session of LogMiner each."""
    pdbs: tuple[str, ...] = field(default=("ORCLPDB1",))


class Database:
    """A database and its sessions."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.cdb = settings.cdb
        self.name = "ORCLCDB" if settings.cdb else "ORCL"
        self.root = "CDB$ROOT" if settings.cdb else self.name
        self.containers = [self.root, SEED, *settings.pdbs] if settings.cdb else [self.name]
        self.dbid = 2_839_467_192
        self.engine = Engine(folder, settings.threads)
        self.engine.redo.switch_every = settings.switch_every
        self.flashback = Flashback(self.engine)
        self.destinations = 1
        self.flush_timer = True
        self.real_time_apply = False
        """The standby applies redo before it is archived there."""
        self.closed_on_standby: set[int] = set()
        """Threads that V$THREAD of the standby shows as closed at their beginning, though they are open on the primary."""
        self.partial_xids = False
        self.binary_xml = False
        self.dictionary_files: dict[str, int] = {}
        """Dictionaries in files of the server, by path, and the SCN whose structures they know."""
        self.unsupported: set[str] = set()
        self.dropped_partitions: set[str] = set()
        """Tables whose rows so far are in a partition that does not exist any more."""
        self.bench: benchmark_rows.Plan | None = None
        self._sessions: dict[int, Session] = {}
        self._last_session = 0
        if self.engine.redo.fresh:
            self._create()
        self.engine.redo.resetlogs = self.engine.catalog.facts.resetlogs_scn
        self._flusher = threading.Thread(target=self._flush_forever, daemon=True)
        self._flusher.start()

    def _create(self) -> None:
        settings, engine = self.settings, self.engine
        facts = engine.catalog.facts
        facts.supplemental = set(settings.supplemental)
        facts.archiving = settings.archiving
        facts.resetlogs_scn, facts.resetlogs_time = engine.redo.scn, engine.now_text()
        with engine.writing():
            engine.catalog.save(facts)
            for log in engine.redo.logs:
                log.resetlogs = facts.resetlogs_scn
                engine.redo.save(log)
            for user in (
                User("SYS", settings.admin_password, {"DBA"}, common=True),
                User("SYSTEM", settings.admin_password, {"DBA"}, common=True),
                User(settings.owner.upper(), settings.owner_password, set(OWNER_GRANTS)),
                User(
                    settings.user.upper(),
                    settings.user_password,
                    set(CAPTURE_GRANTS),
                    common=self.cdb and not settings.local,
                ),
            ):
                engine.catalog.save(user)
            engine.redo.note_time(engine.redo.scn, engine.now(), force=True)
            engine.redo.save_clock()

    def _flush_forever(self) -> None:
        pause = threading.Event()
        while not pause.wait(FLUSH_SECONDS if self.settings.lazy_flush else 0.05):
            with self.engine.writing():
                if self.flush_timer:
                    self.engine.redo.flush()
                self.engine.redo.note_time(self.engine.redo.scn, self.engine.now())

    # clients

    @property
    def home(self) -> str:
        """The container of the owner's schema."""
        return self.settings.pdbs[0] if self.cdb else self.name

    def container_of_service(self, name: str) -> str | None:
        expected = name.upper()
        if self.cdb and expected == self.name:
            return self.root
        return expected if expected in self.containers and expected != SEED else None

    def container_id(self, name: str) -> int:
        return self.containers.index(name) + 1 if self.cdb else 0

    def is_schema(self, name: str) -> bool:
        return name in self.engine.catalog.users

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    def left(self, session: session_protocol.Session) -> None:
        self._sessions.pop(session.number, None)

    def open(self, user: str, service: str, thread: int, check: Callable[[], None], *, standby: bool) -> Session:
        """A new session of a user whose password is right: ORA-01045 without the right to connect."""
        account = self.engine.catalog.users[user]
        container = self.container_of_service(service) or self.home
        if self.cdb and not account.common and container == self.root:
            raise OraError(1017)
        with self.engine.lock:
            self._last_session += 1
            session = Session(self, account, container, thread, self._last_session, check, standby=standby)
        if not session.privileges.has("CREATE SESSION"):
            raise OraError(1045, user)
        self._sessions[session.number] = session
        return session

    def standby_scn(self) -> int:
        """Return the SCN that a standby has reached: the end of the last log archived in every thread, or the present."""
        if self.real_time_apply:
            return self.engine.redo.scn
        ends = []
        for thread in range(1, self.engine.redo.threads + 1):
            done = [log.next or 0 for log in self.engine.redo.logs if log.thread == thread and log.archived_at]
            ends.append(max(done, default=redo.FIRST_SCN))
        return min(ends)

    # what a test may do to it

    def switch_log(self, thread: int = 1) -> int:
        """Switch the log of a thread; returns the sequence of the new one."""
        with self.engine.writing():
            return self.engine.redo.switch(thread).sequence

    def close_thread(self, thread: int) -> int:
        """Shut an instance of a cluster down, as an administrator would; returns the SCN at which its redo ends."""
        with self.engine.writing():
            self.engine.redo.flush(thread)
            self.engine.redo.closed[thread] = scn = self.engine.redo.tick()
            return scn

    def open_thread(self, thread: int) -> None:
        """Start that instance again: it continues in a new log."""
        with self.engine.writing():
            self.engine.redo.closed.pop(thread)
            self.engine.redo.switch(thread)

    def hold_archiving(self) -> None:
        """From now, logs that are switched away from wait for being archived."""
        self.engine.redo.archiving_held = True

    def release_archiving(self) -> None:
        """Archive what has waited, and the next ones at once."""
        with self.engine.writing():
            self.engine.redo.archiving_held = False
            self.engine.redo.archive_all()

    def purge(self, before: int | None = None) -> list[list[int]]:
        """Delete archived logs that end before an SCN, or all; returns thread and sequence of each."""
        with self.engine.writing():
            return [[log.thread, log.sequence] for log in self.engine.redo.purge(before)]

    def scn(self) -> int:
        """The newest SCN."""
        return self.engine.read_scn()

    def jump_scn(self, distance: int) -> int:
        """Move the clock forward, as databases do that are linked with others."""
        with self.engine.writing():
            self.engine.redo.scn += distance
            self.engine.redo.note_time(self.engine.redo.scn, self.engine.now(), force=True)
            self.engine.redo.save_clock()
            return self.engine.redo.scn

    def flush(self) -> None:
        """Put all redo on disk."""
        with self.engine.lock:
            self.engine.redo.flush()

    def inject(self, rows: list[dict[str, Any]]) -> list[int]:
        """Rows of V$LOGMNR_CONTENTS as they are, into the current logs; returns their SCNs.

        Columns that are not given get what such rows have. Bytes come as ``{"hex": "..."}``.
        """
        scns = []
        with self.engine.writing():
            for given in rows:
                row: dict[str, Any] = {
                    name: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
                    for name, value in given.items()
                }
                raw = row.get("XID") or bytes(8)
                xid = redo.Xid(*(int.from_bytes(part, "little") for part in (raw[:2], raw[2:4], raw[4:8])))
                scn = row.get("SCN") or self.engine.redo.tick()
                thread = int(row.get("THREAD#") or 1)
                self.engine.redo.write(thread, xid, redo.INJECTED, self.engine.now_text(), "", scn=scn, body=row)
                scns.append(scn)
            self.engine.redo.flush()
            self.engine.redo.save_clock()
        return scns

    def internal_ddl(self, sql: str, owner: str, table: str) -> None:
        """A DDL row that the database has written for itself."""
        self.inject(
            [
                {
                    "OPERATION_CODE": 5,
                    "SQL_REDO": sql,
                    "INFO": "INTERNAL DDL (PlSql=0 RecDep=1)",
                    "SEG_OWNER": owner,
                    "TABLE_NAME": table,
                }
            ]
        )

    def build_dictionary(self) -> None:
        """DBMS_LOGMNR_D.BUILD into the redo logs: the dictionary lies in one log, which is then closed."""
        with self.engine.writing():
            for thread in range(1, self.engine.redo.threads + 1):
                log = self.engine.redo.current(thread)
                log.dictionary_begin = log.dictionary_end = True
                self.engine.redo.save(log)
                self.engine.redo.switch(thread)

    def reset_logs(self) -> int:
        """A new incarnation, as after OPEN RESETLOGS: the logs before it belong to the old one."""
        with self.engine.writing():
            for thread in range(1, self.engine.redo.threads + 1):
                self.engine.redo.switch(thread)
            facts = self.engine.catalog.facts
            facts.resetlogs_scn, facts.resetlogs_time = self.engine.redo.tick(), self.engine.now_text()
            self.engine.redo.resetlogs = facts.resetlogs_scn
            self.engine.catalog.save(facts)
            for thread in range(1, self.engine.redo.threads + 1):
                log = self.engine.redo.current(thread)
                log.resetlogs = log.first = facts.resetlogs_scn
                self.engine.redo.save(log)
            return facts.resetlogs_scn

    def expire_undo(self, scn: int | None = None) -> None:
        """Forget old row versions: a flashback to before this SCN, or before now, fails with ORA-01555."""
        self.flashback.expire(self.scn() if scn is None else scn)

    def configure(self, **options: Any) -> None:
        """Change: flush_timer, real_time_apply, closed_on_standby, held_writers, private_strands, commits_wait, partial_xids, binary_xml, lob_shape, unsupported and dropped_partitions (table names),
        destinations, switch_every, archiving, clock_seconds.
        """
        for name, value in options.items():
            if name in ("flush_timer", "real_time_apply", "partial_xids", "binary_xml", "destinations"):
                setattr(self, name, value)
            elif name == "held_writers":
                self.engine.redo.held_writers = set(value)
            elif name == "private_strands":
                self.engine.redo.private_strands = value
            elif name == "commits_wait":
                self.engine.commits_wait = value
            elif name in ("unsupported", "dropped_partitions", "closed_on_standby"):
                setattr(self, name, set(value))
            elif name == "lob_shape" and value in lobs.SHAPES:
                self.engine.lob_shape = value
            elif name == "switch_every":
                self.engine.redo.switch_every = value
            elif name == "clock_seconds":
                self.engine.clock_offset = datetime.timedelta(seconds=value)
            elif name == "archiving":
                with self.engine.writing():
                    self.engine.catalog.facts.archiving = value
                    self.engine.catalog.save(self.engine.catalog.facts)
            else:
                raise ValueError(f"no option {name}")

    def serve_rows(
        self,
        count: int,
        table: str = "BENCH",
        transaction_rows: int = benchmark_rows.TRANSACTION_ROWS,
        at_once: int = 1,
        open_rows: int = 0,
        later: int = 0,
        pace: int = 0,
    ) -> dict[str, Any]:
        """From now V$LOGMNR_CONTENTS gives prepared rows; returns the range of their SCNs. ``count`` 0 ends it.

        The table is made with the definition that the rows fit. The database's SCN moves behind them; with ``later`` it does not yet.
        """
        if not count:
            self.bench = None
            return {}
        owner = self.engine.catalog.users[self.settings.owner.upper()]
        key = (self.home, owner.name, table)
        if key not in self.engine.catalog.tables:
            session = Session(self, owner, self.home, 1, 0)
            session.run(benchmark_rows.DDL.format(table=table), [[]])
            session.run(f"ALTER TABLE {table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS", [[]])
            session.close()
        made = self.engine.catalog.tables[key]
        first = self.scn()
        plan = benchmark_rows.Plan(
            self.folder, count, first, owner.name, table, made.id, made.version, self.home if self.cdb else None,
            transaction_rows, at_once, open_rows, pace,
        )  # fmt: skip
        if not later:
            self.jump_scn(benchmark_rows.last_scn(plan) - first + 10)
        self.bench = plan
        return {"first": first, "last": benchmark_rows.last_scn(plan), "rows": count + open_rows}

    def table_at(self, name: str, scn: int | None = None) -> list[list[Any]]:
        """The committed rows of the owner's table at an SCN, for comparing: kept values in the order of the columns."""
        table = self.engine.catalog.tables[self.home, self.settings.owner.upper(), name]
        columns = ", ".join(f"c{column.id}" for column in table.live)
        at = self.engine.redo.scn if scn is None else scn
        with self.engine.lock:
            rows = self.engine.db.execute(
                f"SELECT {columns} FROM {table.storage} WHERE _bs <= ? AND (_es IS NULL OR _es > ?) ORDER BY _r",
                (at, at),
            ).fetchall()
        return [[{"hex": value.hex()} if isinstance(value, bytes) else value for value in row] for row in rows]
