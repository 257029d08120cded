"""PostgreSQL, for the relational sink, as a metadata database and as a source."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from dev.bootstrap import databases
from dev.servers import template
from dev.servers.base import Server, unprivileged_account
from dev.servers.process import Account, run_once

if TYPE_CHECKING:
    from psycopg import Connection


class Postgres(Server):
    """A PostgreSQL server whose superuser is ``cdc``/``cdc``; it asks for no password on this machine.

    ``edition="17"`` starts that major version, of those in ``databases.POSTGRES_MAJORS``, instead of the system's.
    """

    kind = "postgres"
    user = "cdc"
    password = "cdc"
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGINT  # "fast": ends sessions, writes a checkpoint
    QUIT_SIGNAL: ClassVar[int] = signal.SIGQUIT  # "immediate": no checkpoint, but frees shared memory
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "fsync": "off",
        "shared_buffers": "32MB",
        "wal_level": "logical",
        "timezone": "UTC",
        "max_connections": 200,
        "listen_addresses": "127.0.0.1",
    }

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        edition: str = "",
        folder: Path | str | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(options, folder=folder, port=port)
        self.edition = edition
        self._installation: databases.Installation | None = None

    @property
    def installation(self) -> databases.Installation:
        """The programs, fetched when they are not there yet."""
        if self._installation is None:
            self._installation = databases.ensure(f"postgres{self.edition}")
        return self._installation

    @property
    def socket(self) -> Path:
        """The folder of the Unix socket, as libpq wants it."""
        return self.socket_folder

    @property
    def version(self) -> str:
        """The version of the server program."""
        return self.installation.version

    # SQL

    def connect(self, **overrides: Any) -> "Connection[Any]":
        """A new psycopg connection with autocommit to the database ``postgres``."""
        import psycopg

        arguments = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "dbname": "postgres",
        }
        return psycopg.connect(**{"autocommit": True, "connect_timeout": 10, **arguments, **overrides})

    def sql(self, *statements: str, args: Any = None, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements in one session, each committed at once; returns the rows of the last one."""
        with self.connect(dbname=database or "postgres") as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, args)
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str = "postgres", driver: str = "postgresql+psycopg") -> str:
        """A SQLAlchemy address."""
        return f"{driver}://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    @contextmanager
    def database(self, prefix: str = "db") -> Iterator[str]:
        """The name of a new database, dropped at the end."""
        name = f"{prefix}_{uuid4().hex[:8]}"
        self.sql(f'CREATE DATABASE "{name}"')
        try:
            yield name
        finally:
            if self.running:
                self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    # starting

    def _prepare(self) -> None:
        if not self.data.exists():
            template.copy(f"postgres-{self.version}", [self.version, self.user], self._make_data, self.data)
        self.data.chmod(0o700)
        if account := self._account():
            for path in (self.folder, self.socket_folder, self.data, *self.data.rglob("*")):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)

    def _make_data(self, work: Path) -> Path:
        account = self._account()
        if account:
            os.chown(work, account.uid, account.gid)
        data = work / "data"
        options = ["-U", self.user, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        command = [str(self.installation.share / "initdb"), "-D", str(data), *options]
        drop = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
        run_once("initdb", command, self.installation.environment, cwd=work, **drop)
        return data

    def _account(self) -> Account | None:
        return unprivileged_account("postgres", "nobody")

    def _command(self) -> tuple[list[str], dict[str, str]]:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # of a killed run: its pid may now be someone else's
        options = {"port": self.port, "unix_socket_directories": self.socket_folder, **self.options}
        settings = [
            part for name, value in options.items() if value is not None for part in ("-c", f"{name}={_setting(value)}")
        ]
        return [*self.installation.command, "-D", str(self.data), *settings], self.installation.environment

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _setting(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
