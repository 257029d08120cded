"""An Oracle database of one's own in the place of the test server, for the shared suite.

    ORACLE_DSN=db:1521/ORCLCDB ORACLE_PDB=ORCLPDB1 ORACLE_ADMIN=system/… ORACLE_CAPTURE=c##cdc/… dev/test tests/sources/test_suite_real_oracle.py

The database is changed: the tests make and drop users ``SUITE_…``, switch logs, and take the database's supplemental logging away for a
moment. It is prepared as ``docs/sources/oracle.md`` says, and nobody else's work is on it. The administrator may create users, grant,
and alter database and system, in the root and in the pluggable database. Without containers, ``ORACLE_PDB`` is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest


class RealOracle:
    """As much of :class:`dev.servers.Oracle` as the shared suite needs. A context manager."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.dsn = environment["ORACLE_DSN"]
        where, _, self.database = self.dsn.rpartition("/")
        self.host, _, port = where.partition(":")
        self.port = int(port or 1521)
        self.pdb = environment.get("ORACLE_PDB")
        self.admin_user, _, self.admin_password = environment["ORACLE_ADMIN"].partition("/")
        self.user, _, self.password = environment["ORACLE_CAPTURE"].partition("/")

    def __enter__(self) -> RealOracle:
        return self

    def __exit__(self, *_: object) -> None:
        """It is not ours to stop."""

    @property
    def nodes(self) -> list[str]:
        """One address: the instances of a cluster are not told apart."""
        return [f"{self.host}:{self.port}"]

    def connect(self, *, thread: int = 1, **overrides: Any) -> Any:
        """A connection to the pluggable database."""
        import oracledb

        return oracledb.connect(**{"dsn": f"{self.host}:{self.port}/{self.pdb or self.database}", **overrides})

    def sql(self, *statements: str, **overrides: Any) -> list[tuple[Any, ...]]:
        """Run statements in one session and commit at the end; returns the rows of the last one."""
        with closing(self.connect(**overrides)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return list(rows)

    def admin(self, *statements: str, **overrides: Any) -> list[tuple[Any, ...]]:
        """The same as the administrator."""
        return self.sql(*statements, **{"user": self.admin_user, "password": self.admin_password, **overrides})

    def switch_log(self, thread: int = 1) -> None:
        """Begin a new log."""
        self.admin("ALTER SYSTEM SWITCH LOGFILE", dsn=self.dsn)

    def purge(self) -> None:
        """Logs of a real database are deleted with RMAN, which is not asked for here."""
        pytest.skip("archived logs of a real database are not deleted by tests")
