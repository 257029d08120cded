"""The database: engine, log, catalogue and capture agent together, and what tests may tell them."""

from __future__ import annotations

import datetime
import decimal
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dev.servers.db2.capture import benchmark_rows, registrations
from dev.servers.db2.capture.agent import Agent
from dev.servers.db2.catalog import catalog
from dev.servers.db2.catalog.privileges import Privileges
from dev.servers.db2.engine.derby import Derby
from dev.servers.db2.engine.driver import Connection, connection_string, retry_transaction, run_atomically
from dev.servers.db2.errors import Db2Error, undefined_object_error
from dev.servers.db2.log import history
from dev.servers.db2.log.log import INSERT, Log, Table
from dev.servers.db2.log.positions import literal, quote_name
from dev.servers.db2.settings import Settings
from dev.servers.db2.statements.client_statements import Plan
from dev.servers.db2.statements.declarations import declarations
from dev.servers.db2.statements.dialect import MaskedStatement
from dev.servers.db2.wire.shim import Connection as ShimConnection
from dev.servers.db2.wire.shim import Shim

LOG = logging.getLogger("db2.database")
T = TypeVar("T")
SERVICES = {
    "status": ("asncap is running", "asncap is not running"),
    "start": ("asncap is already running", "start --> asncap capture_schema=ASNCDC capture_server=TESTDB & "),
    "stop": ("stop --> asnccmd capture_schema=ASNCDC capture_server=TESTDB stop", "asncap is not running"),
    "reinit": ("reinit --> asnccmd capture_schema=ASNCDC capture_server=TESTDB reinit", "asncap is not running"),
}
PATIENCE_S = 120.0
"""How long others may have locks on what follows a structure that is committed: Db2 needs no locks for that."""


class Database:
    """A database, with its engine, log, catalogue, capture agent and listener."""

    def __init__(self, folder: Path, settings: Settings, port: int) -> None:
        self.settings = settings
        self._passwords: dict[str, str] = {}
        self._schemas: set[str] = set()
        self._sessions: dict[str, ShimConnection] = {}
        self._follow_up = threading.RLock()
        self._secret = secrets.token_hex(16)
        self._engine = Derby(folder, heap_mb=settings.heap_mb)
        self._engine.start()
        self._private = Shim(self, 0, ("127.0.0.1", self._engine.port), self._secret)
        self._private.start()
        self._log = Log(self._connect("LOG"), settings.lsn_bytes, seconds=settings.log_seconds)
        self._log.recover()
        self._log.enable(registrations.SIGNALS, INSERT)  # the agent does not read its own updates there
        self._catalog = catalog.Catalog(self._connect("CATALOG"), self._log)
        self._types = self._catalog.distinct_types()
        self._privileges = Privileges(self._connect("RIGHTS"), settings.groups)
        self._work = self._connect("ASNCDC")
        self._busy = threading.RLock()
        self._agent = Agent(self._connect("ASNCAP"), self._log, settings)
        if settings.agent:
            self._agent.begin()
        self._agent.start()
        self._public = Shim(self, port, ("127.0.0.1", self._engine.port), self._secret)
        self._public.start()
        self._ready = True

    def _connect(self, user: str) -> Connection:
        return Connection(connection_string("127.0.0.1", self._private.port, user, self._secret))

    def stop(self) -> None:
        """Shut the engine down in an orderly way."""
        with self._agent.lock:
            self._engine.stop()

    # what connections ask

    @property
    def lock_timeout(self) -> float | None:
        """LOCKTIMEOUT."""
        return self.settings.lock_timeout

    @property
    def lsn_bytes(self) -> int:
        """The length of LSNs."""
        return self.settings.lsn_bytes

    def password(self, user: str) -> str | None:
        """The password of a user: the name in lower case, unless it was set to another one."""
        return self._passwords.get(user, user.lower())

    def ensure_schema(self, user: str) -> None:
        """Make a schema if it is not there."""
        if user in self._schemas:
            return
        with self._busy:
            if not self._work.rows("SELECT 1 FROM SYS.SYSSCHEMAS WHERE SCHEMANAME = ?", (user,)):
                self._work.execute(f"CREATE SCHEMA {quote_name(user)}")
            self._work.commit()
            self._schemas.add(user)

    def register(self, name: str, session: ShimConnection) -> None:
        """A connection begins."""
        self._sessions[name] = session

    def unregister(self, name: str) -> None:
        """A connection has ended: the engine rolls back what it had open."""
        self._sessions.pop(name, None)

    def structure_changed(self, plans: list[Plan], *, committed: bool) -> None:
        """Statements that change structure were committed, or rolled back."""
        retry_transaction(lambda: self._follow(plans, committed=committed), patience_s=PATIENCE_S)
        self._log.written = True

    def _follow(self, plans: list[Plan], *, committed: bool) -> None:
        """Each step is a transaction, and may be done twice."""
        with self._follow_up:
            for plan in plans:
                if not committed:
                    for table in plan.touched:
                        self._log.follow(table)
                    continue
                for table, text in plan.declared.items():
                    if columns := declarations(text, self._types, table[0]):
                        self._catalog.declare(table, columns)
                if len(plan.touched) == 2 and self._is_there(plan.touched[1]) and not self._is_there(plan.touched[0]):
                    self._log.renamed(*plan.touched)
                    self._catalog.renamed(*plan.touched)
                if plan.renamed_column:
                    self._catalog.column_renamed(plan.touched[0], *plan.renamed_column)
                for table in plan.touched:
                    if self._is_there(table):
                        self._log.follow(table)
                    elif self._log.active(table):
                        self._log.forget(table)
                for table, changes in plan.captured.items():
                    (self._log.enable if changes else self._log.disable)(table)
                for table in plan.touched:
                    self._catalog.refresh(table)
                if not plan.touched:
                    self._catalog.refresh_all()

    def _is_there(self, table: Table) -> bool:
        with self._log.lock:
            return bool(self._log.columns(table))

    def committed(self) -> None:
        """Something was committed: the agent need not wait."""
        self._agent.wake.set()

    def before_query(self) -> None:
        """Someone asks the catalogue. What was committed since the start was followed before the commit returned."""
        self._catalog.complete()

    def authorize(self, user: str, schema: str, sql: MaskedStatement) -> None:
        """Refuse what a user may not."""
        self._agent.wake_up()
        if self.settings.authorize:
            self._privileges.check(user, schema, sql)

    def grant(self, grantor: str, sql: MaskedStatement) -> None:
        """A GRANT or REVOKE."""
        self._privileges.change(grantor, sql)

    # what ASN and Db2 offer to clients

    def services(self, command: str) -> str:
        """``ASNCDC.ASNCDCSERVICES``. Unlike the real one, ``start`` starts the agent."""
        if command not in SERVICES:
            raise Db2Error(-443, "38553", "ASNCDCSERVICES", command)
        answer = SERVICES[command][0 if self._agent.running else 1]
        if command != "status":
            {"start": self._agent.begin, "stop": self._agent.end, "reinit": self._agent.reinit}[command]()
        return answer

    def add_table(self, schema: str, table: str, *, creator: str | None = None, **options: Any) -> None:
        """``ASNCDC.ADDTABLE``; options are those of :func:`dev.servers.db2.capture.registrations.add`.

        :param creator: who calls it, and so may do everything with the change table
        """
        given = {
            "upd_to_del_ins": self.settings.upd_to_del_ins,
            "before_prefix": self.settings.before_prefix,
            "lob_columns": self.settings.lob_columns,
            **options,
        }
        with self._busy, self._agent.lock, self._log.lock:
            self._transaction(lambda: registrations.add(self._work, self._log, (schema, table), **given))
        self._log.written = True
        self._catalog.refresh((schema, table))
        change_table = given.get("change_table") or f"CDC_{schema}_{table}"
        self._catalog.refresh((registrations.SCHEMA, change_table))
        if creator is not None:
            self._privileges.created(creator, registrations.SCHEMA, change_table)

    def remove_table(self, schema: str, table: str) -> None:
        """``ASNCDC.REMOVETABLE``."""
        with self._busy, self._agent.lock, self._log.lock:
            found = self._transaction(lambda: registrations.remove(self._work, self._log, (schema, table)))
        self._log.written = True
        for change_table in found:
            self._catalog.refresh(change_table)
        self._catalog.refresh((schema, table))

    def _transaction(self, work: Callable[[], T]) -> T:
        """Run the work of an ASN procedure in a transaction, while the agent is between two cycles.

        In a cycle, the agent locks change tables first and registrations last, the other way round. After a deadlock with another
        session, the work is done again.
        """

        def run_transaction() -> T:
            with run_atomically(self._work):
                return work()

        return retry_transaction(run_transaction)

    def data_capture(self, schema: str, table: str, *, changes: bool) -> None:
        """``ALTER TABLE … DATA CAPTURE CHANGES`` or ``NONE``."""
        if not self._is_there((schema, table)):
            raise undefined_object_error(f"{schema}.{table}")
        (self._log.enable if changes else self._log.disable)((schema, table))
        self._catalog.refresh((schema, table))

    def suspend(self, schema: str, table: str) -> None:
        """A table or a column of it is about to be renamed."""
        self._log.suspend((schema, table))

    def is_captured(self, schema: str, table: str) -> bool:
        """Check whether the table has DATA CAPTURE CHANGES."""
        return self._log.active((schema, table)) is not None

    def distinct_types(self) -> dict[Table, str]:
        """Distinct types, and what each is made of."""
        return self._types

    def create_type(self, schema: str, name: str, words: str) -> None:
        """``CREATE TYPE``, at once."""
        self._catalog.create_type(schema, name, words)
        self._types = self._catalog.distinct_types()

    def drop_type(self, schema: str, name: str) -> None:
        """``DROP TYPE``, at once."""
        self._catalog.drop_type(schema, name)
        self._types = self._catalog.distinct_types()

    def comment(self, schema: str, table: str, comments: dict[str, str]) -> None:
        """``COMMENT ON``, at once."""
        self._catalog.comment((schema, table), comments)

    def run_stats(self, schema: str, table: str) -> None:
        """``RUNSTATS``."""
        self._catalog.run_stats((schema, table))

    # what tests tell

    def agent(self, command: str) -> bool:
        """``stop`` and ``start`` the agent, ``pause`` it (it seems to run) and let it ``resume``; returns whether it runs."""
        if command == "pause":
            self._agent.paused = True
            with self._agent.lock:  # a cycle that has begun is over
                pass
        elif command == "resume":
            self._agent.paused = False
            self._agent.wake.set()
        elif command in ("start", "stop"):
            self.services(command)
        elif command != "status":
            raise ValueError(f"the agent does not know {command}")
        return self._agent.running and not self._agent.paused

    def step(self) -> int:
        """Let the agent do one cycle now, also when it is paused."""
        return self._agent.step()

    def reinit(self) -> None:
        """Let the agent read registrations and parameters again."""
        self._agent.reinit()

    def published(self) -> str:
        """The LSN up to which all is in the change tables, as hexadecimal digits."""
        return self._agent.published().hex()

    def catch_up(self, timeout: float = 30.0) -> str:
        """Wait until all that is committed now is published; returns that LSN."""
        end = retry_transaction(self._log.read_view).end
        deadline = time.monotonic() + timeout
        while self._agent.published_number < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the agent has not published what was committed {timeout} s ago")
            self._agent.wake.set()
            time.sleep(0.005)
        return self.published()

    def configure(self, **options: Any) -> None:
        """Change the pace of the agent (``commit_interval``, ``idle_interval`` or ``sleep_interval``, ``delay`` in seconds), ``lock_timeout``, ``authorize``,
        ``passwords`` (user → password)."""
        for name, value in options.items():
            if name in ("commit_interval", "idle_interval", "sleep_interval", "delay"):
                setattr(self._agent.pace, "idle_interval" if name == "sleep_interval" else name, float(value))
            elif name in ("lock_timeout", "authorize"):
                setattr(self.settings, name, value)
            elif name == "passwords":
                self._passwords |= {user.upper(): password for user, password in value.items()}
            else:
                raise ValueError(f"no option {name}")

    def prune(self, before: str | None = None, tables: list[list[str]] | None = None) -> int:
        """Delete rows of change tables up to and with an LSN (default: all that is published), of these or of all tables; returns how many."""
        with self._busy, self._agent.lock:
            limit = literal(bytes.fromhex(before or self.published()))
            return self._transaction(lambda: self._prune(limit, tables))

    def prune_old(self) -> None:
        """Prune changes older than RETENTION_LIMIT, as the agent does every PRUNE_INTERVAL."""
        with self._busy, self._agent.lock:
            self._transaction(lambda: (registrations.prune_old(self._work), self._work.commit()))

    def _prune(self, limit: str, tables: list[list[str]] | None) -> int:
        rows = self._work.rows(
            "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'N'"
        )
        count = 0
        for owner, name, cd_owner, cd_table in rows:
            if tables is not None and [owner, name] not in tables:
                continue
            count += max(
                0,
                self._work.execute(f"DELETE FROM {quote_name(cd_owner, cd_table)} WHERE IBMSNAP_COMMITSEQ <= {limit}"),
            )
            self._work.execute(
                f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = {limit} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ? AND CD_OLD_SYNCHPOINT < {limit}",
                (owner, name),
            )
        if tables is None:
            self._work.execute(f"DELETE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ <= {limit}")
        self._work.commit()
        return count

    def table_at(self, schema: str, table: str, lsns: list[str | None]) -> list[list[list[Any]]]:
        """The committed rows of a table at some LSNs, which ascend, out of the log."""
        given = [bytes.fromhex(lsn) if lsn else None for lsn in lsns]
        with self._busy:
            found = self._transaction(lambda: history.table_at(self._work, self._log, (schema, table), given))
        return [[[_encode_value(value) for value in row] for row in rows] for rows in found]

    def serve_changes(
        self, count: int, table: str = "BENCH", schema: str = "BENCH", transaction_rows: int = 1000
    ) -> dict[str, Any]:
        """Fill a change table with plausible rows."""
        with self._busy, self._agent.lock:
            made = benchmark_rows.serve_changes(self._work, self._log, count, (schema, table), transaction_rows)
            self._agent.reinit()
            self._agent.step()
        self._catalog.refresh_all(changed_only=True)
        return made

    def sessions(self) -> list[str]:
        """Return the labels of the connected sessions."""
        return sorted(self._sessions)


def _encode_value(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return {type(value).__name__: value.isoformat()}
    return value
