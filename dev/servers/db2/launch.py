"""Starts the server as a separate process, and talks to it.

A test uses it so::

    with Db2() as server:                                        # or the fixtures ``db2`` and ``db2_factory`` of tests/conftest.py
        server.sql("CREATE TABLE APP.T (ID INT NOT NULL PRIMARY KEY, V VARCHAR(20))")
        server.add_table("APP", "T")                             # ADDTABLE, and the agent reads its registrations again
        server.sql("INSERT INTO APP.T VALUES (1, 'a')")          # committed at the end
        lsn = server.catch_up()                                  # the agent has published what was committed until now
        server.rows("SELECT * FROM ASNCDC.CDC_APP_T")            # IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ, IBMSNAP_OPERATION, ID, V
        server.table_at("APP", "T", lsn)                         # [(1, 'a')], out of the log
        with server.connect() as one, server.connect("ANOTHER") as other:
            one.execute("UPDATE APP.T SET V = ? WHERE ID = ?", ("b", 1))
            one.commit()

``server.user`` and ``server.password`` belong to the capture user, ``server.dsn()`` is a connection string for the driver. The owner of the
database is ``DB2INST1``; each other name can log on, too: its password is the name in lower case. A name without a schema is one of the user's own schema.

``server.agent("stop" | "start" | "pause" | "resume")``, ``step()``, ``reinit()``, ``configure(commit_interval=…, idle_interval=…, delay=…)``, ``prune()``,
``published()`` and ``serve_changes(…)`` are for the agent. ``stop()``, ``kill()`` and ``start()`` are those of every server: what was committed is still there.
"""

from __future__ import annotations

import datetime
import decimal
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev import paths
from dev.bootstrap import jars
from dev.servers import template
from dev.servers.base import Server
from dev.servers.db2.engine import derby
from dev.servers.db2.engine.driver import Connection, Row, connection_string

DECODERS = {
    "hex": bytes.fromhex,
    "decimal": decimal.Decimal,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
}


class Db2ServerError(RuntimeError):
    """A control call failed."""


class Db2(Server):
    """A Db2 test server, with its capture agent. ``options`` are those of :class:`dev.servers.db2.settings.Settings`."""

    kind = "db2"
    database = "TESTDB"
    owner = "DB2INST1"
    owner_password = "db2inst1"
    user = "CDC"
    password = "cdc"

    # SQL

    def dsn(self, user: str | None = None, password: str | None = None, **more: Any) -> str:
        """Format the string that the driver connects with; as the owner unless another user is named."""
        name = user or self.owner
        return connection_string(self.host, self.port, name, password or name.lower(), **more)

    def connect(
        self, user: str | None = None, *, autocommit: bool = False, password: str | None = None, **more: Any
    ) -> Connection:
        """A new connection, of the owner unless another user is named."""
        return Connection(self.dsn(user, password, **more), autocommit=autocommit)

    def sql(self, *statements: str, user: str | None = None) -> list[Row]:
        """Run statements, each in a separate transaction; the rows of the last one."""
        found: list[Row] = []
        with self.connect(user) as connection:
            for statement in statements:
                found = connection.rows(statement)
                connection.commit()
        return found

    def rows(self, sql: str, parameters: tuple[Any, ...] = (), user: str | None = None) -> list[Row]:
        """The rows of a query."""
        with self.connect(user) as connection:
            found = connection.rows(sql, parameters)
            connection.rollback()
            return found

    def transaction(self, *statements: str, user: str | None = None) -> None:
        """Run statements in one transaction."""
        with self.connect(user) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    # control

    @property
    def _control(self) -> Path:
        return self.socket_folder / "control.sock"

    def control(self, call: str, **arguments: Any) -> Any:
        """Call a method of :class:`dev.servers.db2.database.Database` in the server."""
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(self._control))
            with channel.makefile("rw") as file:
                file.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
                file.flush()
                answer = json.loads(file.readline())
        if "error" in answer:
            raise Db2ServerError(answer["error"])
        return answer["result"]

    def add_table(self, schema: str, table: str, *, reinit: bool = True, **options: Any) -> None:
        """``ASNCDC.ADDTABLE``, and let the agent read its registrations again.

        Options: ``upd_to_del_ins``, ``before_prefix``, ``columns``, ``change_table``, ``state``.
        """
        self.control("add_table", schema=schema, table=table, **options)
        if reinit:
            self.reinit()

    def remove_table(self, schema: str, table: str, *, reinit: bool = True) -> None:
        """``ASNCDC.REMOVETABLE``, and let the agent read its registrations again."""
        self.control("remove_table", schema=schema, table=table)
        if reinit:
            self.reinit()

    def reinit(self) -> None:
        """Let the agent read registrations and parameters again; returns when it has."""
        self.control("reinit")

    def agent(self, command: str = "status") -> bool:
        """``stop``, ``start``, ``pause`` or ``resume`` the agent; returns whether it works."""
        return bool(self.control("agent", command=command))

    def step(self) -> int:
        """Let the agent do one cycle now, also when it is paused; returns how many transactions were new in the log."""
        return int(self.control("step"))

    def configure(self, **options: Any) -> None:
        """Change the agent's pace (``commit_interval``, ``idle_interval``, ``delay``), ``lock_timeout``, ``authorize`` or ``passwords``."""
        self.control("configure", **options)

    def prune(self, before: bytes | None = None, tables: list[tuple[str, str]] | None = None) -> int:
        """Delete what is in change tables up to and with an LSN, or all that is published; returns how many rows."""
        given = [list(table) for table in tables] if tables is not None else None
        return int(self.control("prune", before=before.hex() if before else None, tables=given))

    def prune_old(self) -> None:
        """Prune changes older than RETENTION_LIMIT, as the agent does every PRUNE_INTERVAL."""
        self.control("prune_old")

    def published(self) -> bytes:
        """The LSN up to which all is in the change tables."""
        return bytes.fromhex(self.control("published"))

    def catch_up(self, timeout: float = 120.0) -> bytes:
        """Wait until the agent has published what is committed now; returns what it has published then."""
        return bytes.fromhex(self.control("catch_up", timeout=timeout))

    def table_at(self, schema: str, table: str, lsn: bytes | None = None) -> list[Row]:
        """The committed rows of a table with DATA CAPTURE CHANGES, after the transactions up to and with an LSN, out of the log."""
        return self.table_at_each(schema, table, [lsn])[0]

    def table_at_each(self, schema: str, table: str, lsns: Sequence[bytes | None]) -> list[list[Row]]:
        """:meth:`table_at` of several LSNs, which ascend: the log is read once."""
        given = [lsn.hex() if lsn else None for lsn in lsns]
        found = self.control("table_at", schema=schema, table=table, lsns=given)
        return [[tuple(_decode_value(value) for value in row) for row in rows] for rows in found]

    def run_stats(self, schema: str, table: str) -> None:
        """``RUNSTATS``: SYSCAT.TABLES.CARD is right until rows change."""
        self.control("run_stats", schema=schema, table=table)

    def serve_changes(
        self, count: int, table: str = "BENCH", *, schema: str = "BENCH", transaction_rows: int = 1000
    ) -> dict[str, Any]:
        """Fill the change table of a table with so many plausible changes; returns ``first`` and ``last`` LSN, ``changes`` and ``transactions``."""
        return dict(
            self.control("serve_changes", count=count, table=table, schema=schema, transaction_rows=transaction_rows)
        )

    # starting

    def _prepare(self) -> None:
        jars.ensure("db2")
        if not self.data.exists():
            template.copy("db2", derby.ingredients(), derby.make, self.data)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        order = {"settings": self.options, "folder": str(self.data), "port": self.port, "control": str(self._control)}
        return [sys.executable, "-m", "dev.servers.db2", json.dumps(order)], {"PYTHONPATH": str(paths.ROOT)}

    def _answers(self) -> bool:
        try:
            self.control("sessions")
            return True
        except (OSError, json.JSONDecodeError):
            return False


def _decode_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    return DECODERS[kind](text)
