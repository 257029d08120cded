"""A real Db2 in the place of the test server. It was never run on one: what is here follows IBM's and Debezium's documents.

    DB2_DSN=db.example.org:50000/SAMPLE DB2_USER=cdc DB2_PASSWORD=… DB2_ADMIN_USER=db2inst1 DB2_ADMIN_PASSWORD=… \\
        dev/test tests/sources/db2 tests/sources/test_suite_db2.py

``DB2_DSN`` is where the capture user connects. ``DB2_ADMIN_USER`` is another one, who makes schemas and tables, puts them into capture mode and
writes rows. ``DB2_AUTHENTICATION`` (``server``, ``server_encrypt``, ``data_encrypt``) is how passwords are sent; by default as the server asks for
it. The agent runs, with its control tables in ``ASNCDC``, with ``ADDTABLE``, ``REMOVETABLE`` and ``ASNCDCSERVICES`` there, and with a short
COMMIT_INTERVAL, since each transaction of a test waits for it. The capture user has its grants: the check of the source says what is missing.

What only the test server can do (holding or stopping the agent, pruning, rows of a table in the past ...) skips the test that asks for it.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dev.servers.db2.engine.driver import Connection, Row

SCHEMAS = re.compile(r"(SUITE|LOG)_\d+")
"""The schemas that tests make."""
LOOK_SECONDS = 0.1
_PUBLISHED = "SELECT MAX(SYNCHPOINT), MAX(CD_NEW_SYNCHPOINT) FROM ASNCDC.IBMSNAP_REGISTER WITH CS"
_SIGNAL = "INSERT INTO ASNCDC.IBMSNAP_SIGNAL (SIGNAL_TYPE, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) VALUES ('USER', 'TESTS', '{}', 'P')"
_FOUND = "SELECT SIGNAL_LSN FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_TYPE = 'USER' AND SIGNAL_SUBTYPE = 'TESTS' AND SIGNAL_INPUT_IN = '{}' WITH CS"
_REINIT = "VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')"


class RealDb2:
    """A real server with the methods of :class:`dev.servers.db2.Db2` that plain SQL can provide.

    :param environment: the variables of the module's description
    """

    def __init__(self, environment: dict[str, str]) -> None:
        address, _, database = environment["DB2_DSN"].partition("/")
        self.host, _, port = address.partition(":")
        self.port, self.database = int(port or 50000), database.upper()
        self.user, self.password = environment["DB2_USER"].upper(), environment["DB2_PASSWORD"]
        self.owner, self.owner_password = environment["DB2_ADMIN_USER"].upper(), environment["DB2_ADMIN_PASSWORD"]
        self.authentication = environment.get("DB2_AUTHENTICATION") or None
        self._before: set[str] = set()

    def __enter__(self) -> RealDb2:
        self._before = self._schemas()
        return self

    def __exit__(self, *_: object) -> None:
        for schema in sorted(self._schemas() - self._before):
            self._drop(schema)

    def _schemas(self) -> set[str]:
        found = self.rows("SELECT SCHEMANAME FROM SYSCAT.SCHEMATA")
        return {name for (name,) in found if SCHEMAS.fullmatch(name)}

    def _drop(self, schema: str) -> None:
        """Drop a schema of a test, with its tables, which go out of capture mode first."""
        registered = "SELECT SOURCE_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'N' AND SOURCE_OWNER = ?"
        for (table,) in self.rows(registered, (schema,)):
            self.remove_table(schema, table, reinit=False)
        self.sql(_REINIT)
        for (table,) in self.rows("SELECT TABNAME FROM SYSCAT.TABLES WHERE TYPE = 'T' AND TABSCHEMA = ?", (schema,)):
            self.sql(f'DROP TABLE {schema}."{table}"')
        self.sql(f"DROP SCHEMA {schema} RESTRICT")

    # SQL

    def dsn(self, user: str | None = None, password: str | None = None, **more: Any) -> str:
        """Format the string that the driver connects with.

        Any user but the capture user becomes the administrator: the server knows no others.
        """
        captures = (user or "").upper() == self.user
        words = {
            "DATABASE": self.database, "HOSTNAME": self.host, "PORT": self.port, "PROTOCOL": "TCPIP", "LOBCacheSize": 16777216,
            "UID": self.user if captures else self.owner,
            "PWD": password or (self.password if captures else self.owner_password),
            **({"AUTHENTICATION": self.authentication} if self.authentication else {}), **more,
        }  # fmt: skip
        return "".join(f"{name}={value};" for name, value in words.items())

    def connect(
        self, user: str | None = None, *, autocommit: bool = False, password: str | None = None, **more: Any
    ) -> Connection:
        """A new connection, of the administrator unless the capture user is named."""
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

    # the agent, as far as SQL reaches

    def add_table(self, schema: str, table: str, *, reinit: bool = True, **options: Any) -> None:
        """``CALL ASNCDC.ADDTABLE``, and let the agent read its registrations again.

        Options: ``upd_to_del_ins``. The others of the test server skip the test: ADDTABLE has none.
        """
        pairs = options.pop("upd_to_del_ins", True)
        if options:
            pytest.skip(f"ADDTABLE of a real Db2 has no {', '.join(options)}")
        self.sql(f"CALL ASNCDC.ADDTABLE('{schema}', '{table}')")
        if not pairs:
            where = f"SOURCE_OWNER = '{schema}' AND SOURCE_TABLE = '{table}'"
            self.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'N' WHERE {where}")
        if reinit:
            self.reinit()

    def remove_table(self, schema: str, table: str, *, reinit: bool = True) -> None:
        """``CALL ASNCDC.REMOVETABLE``, and let the agent read its registrations again."""
        self.sql(f"CALL ASNCDC.REMOVETABLE('{schema}', '{table}')")
        if reinit:
            self.reinit()

    def reinit(self) -> None:
        """Let the agent read registrations and parameters again, and wait until it has found a signal written afterwards."""
        self.sql(_REINIT)
        self.catch_up()

    def agent(self, command: str = "status") -> bool:
        """``start`` and ``resume`` have nothing to do, since an agent is never held; ``stop`` and ``pause`` skip the test."""
        if command in ("stop", "pause"):
            pytest.skip(f"agent({command!r}) is a control of the test server; on a real Db2, asncap runs on its host")
        return True

    def published(self) -> bytes:
        """The LSN up to which all is in the change tables."""
        return max(bytes(lsn) for lsn in (*self.rows(_PUBLISHED)[0], b"") if lsn is not None)

    def catch_up(self, timeout: float = 120.0) -> bytes:
        """Write a signal, wait until the agent has published its LSN and so everything committed before, and return the LSN."""
        name = uuid.uuid4().hex
        self.sql(_SIGNAL.format(name))

        def is_caught_up() -> bool:
            lsn = self.rows(_FOUND.format(name))[0][0]
            return lsn is not None and self.published() >= bytes(lsn)

        self._until(is_caught_up, timeout, "published all committed changes")
        return self.published()

    def _until(self, so: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not so():
            assert time.monotonic() < deadline, (
                f"the agent has not {what} after {timeout:g} s: does it run, and how long is its COMMIT_INTERVAL?"
            )
            time.sleep(LOOK_SECONDS)

    def run_stats(self, schema: str, table: str) -> None:
        """``RUNSTATS``: SYSCAT.TABLES.CARD is right until rows change."""
        self._command(f'RUNSTATS ON TABLE {schema}."{table}"')

    def reorganize(self, table: str) -> None:
        """``REORG``, which a table needs after a column was dropped or has got another type.

        :param table: its name in SQL
        """
        self._command(f"REORG TABLE {table}")

    def _command(self, command: str) -> None:
        self.sql(f"CALL SYSPROC.ADMIN_CMD('{command}')")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"{name} is a control of the test server; a real Db2 has none")


def authentication(server: Any) -> dict[str, str]:
    """The property of a connector that says how passwords are sent. The test server has no encrypted ones."""
    how = server.authentication if isinstance(server, RealDb2) else "server"
    return {} if how is None else {"database.authentication": how}


def is_real_server_given() -> bool:
    """Check whether tests are to run on a real Db2."""
    return bool(os.environ.get("DB2_DSN"))


def open_real_server() -> RealDb2:
    """The server that the environment names; not connected to yet."""
    return RealDb2(dict(os.environ))
