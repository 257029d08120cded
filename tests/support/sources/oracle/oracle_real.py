"""A real Oracle in the place of the test server.

    ORACLE_DSN=db.example.org:1521/ORCLCDB ORACLE_USER=c##dbzuser ORACLE_PASSWORD=… ORACLE_PDB=ORCLPDB1 ORACLE_ADMIN_PASSWORD=… \\
        dev/test tests/sources/oracle

``ORACLE_DSN`` is where the capture user connects, the root of a container database; without containers ``ORACLE_PDB`` is not set.
``ORACLE_ADMIN_PASSWORD`` is that of SYSTEM, who makes the owner of the tables, APP, and drops it again; a user of that name must not be there.
``ORACLE_NODES`` names the instances of a cluster, ``host:port`` with commas between. The capture user must have its grants, and the
database its supplemental logging: the check of the source says what is missing.

What only the test server can do (purging logs, holding archiving, rows by hand ...) skips the test that asks for it.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, NoReturn

import oracledb
import pytest

Rows = list[tuple[Any, ...]]


class RealOracle:
    """A real server with the methods of :class:`dev.servers.oracle.Oracle` that it can provide.

    :param environment: the variables of the module's description
    """

    owner = "APP"
    owner_password = "cdc_Test_1"
    admin_user = "system"

    def __init__(self, environment: dict[str, str]) -> None:
        self.dsn = environment["ORACLE_DSN"]
        address, _, self.database = self.dsn.partition("/")
        self.host, _, port = address.partition(":")
        self.port = int(port or 1521)
        self.user, self.password = environment["ORACLE_USER"], environment["ORACLE_PASSWORD"]
        self.pdb = environment.get("ORACLE_PDB") or None
        self.admin_password = environment["ORACLE_ADMIN_PASSWORD"]
        nodes = environment.get("ORACLE_NODES", "")
        self.nodes = [n.strip() for n in nodes.split(",")] if nodes else [f"{self.host}:{self.port}"]

    def __enter__(self) -> RealOracle:
        # an owner that is there already is an error (ORA-01920): its tables would be dropped
        self.admin(
            f'CREATE USER {self.owner} IDENTIFIED BY "{self.owner_password}" QUOTA UNLIMITED ON users',
            f"GRANT CREATE SESSION, CREATE TABLE, CREATE SEQUENCE TO {self.owner}",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.admin(f"DROP USER {self.owner} CASCADE")

    @property
    def cdb(self) -> bool:
        return self.pdb is not None

    @property
    def owner_dsn(self) -> str:
        return self._service(1, self.pdb or self.database)

    def _service(self, thread: int, name: str) -> str:
        return f"{self.nodes[thread - 1]}/{name}"

    def connect(self, *, thread: int = 1, **overrides: Any) -> oracledb.Connection:
        """A new connection of the tables' owner on one instance; ``user``, ``password`` and ``dsn`` replace it."""
        given = {"user": self.owner, "password": self.owner_password}
        return oracledb.connect(**{**given, "dsn": self._service(thread, self.pdb or self.database), **overrides})

    def capture(self, *, thread: int = 1, **overrides: Any) -> oracledb.Connection:
        """A new connection of the capture user."""
        given = {"user": self.user, "password": self.password, "dsn": self._service(thread, self.database)}
        return self.connect(**{**given, **overrides})

    def sql(self, *statements: str, args: Any = None, **overrides: Any) -> Rows:
        """Run statements in one session of the owner and commit at the end; returns the rows of the last one."""
        with closing(self.connect(**overrides)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, args)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return list(rows)

    def admin(self, *statements: str, **overrides: Any) -> Rows:
        """The same as SYSTEM."""
        return self.sql(*statements, **{"user": self.admin_user, "password": self.admin_password, **overrides})

    def scn(self) -> int:
        """The newest SCN."""
        return int(self.admin("SELECT current_scn FROM v$database", dsn=self.dsn)[0][0])

    def switch_log(self, thread: int = 1) -> int:
        """Switch the log of a thread, wait until it is archived; returns the sequence of the new one."""
        node = self._service(thread, self.database)
        self.admin("ALTER SYSTEM ARCHIVE LOG CURRENT", dsn=node)
        return int(self.admin(f"SELECT MAX(sequence#) FROM v$log WHERE thread# = {thread}", dsn=node)[0][0])

    def flush(self) -> None:
        """Nothing to do: the database writes its log by itself, and at each commit."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"{name} is a control of the test server; a real Oracle has none")


def is_real_server_given() -> bool:
    """Check whether tests are to run on a real Oracle."""
    return bool(os.environ.get("ORACLE_DSN"))


def open_real_server() -> RealOracle:
    """The server that the environment names; not connected to yet."""
    return RealOracle(dict(os.environ))
