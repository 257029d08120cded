"""The common part of MariaDB and MySQL servers."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dev.bootstrap import databases
from dev.servers import template
from dev.servers.base import Server

if TYPE_CHECKING:
    from pymysql.connections import Connection

CAPTURE_PRIVILEGES = "SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT"
"""What the capture user may do, and no more; ``REPLICATION CLIENT`` is an alias of ``BINLOG MONITOR`` on MariaDB."""

Rows = list[tuple[Any, ...]]


class MySqlFamily(Server):
    """A MariaDB or MySQL server.

    ``user``/``password`` belong to the capture user. ``sql`` and ``connect`` act as the administrator ``root`` over the
    Unix socket; over TCP the administrator is ``admin``/``admin``.
    """

    user = "cdc"
    password = "cdc"
    admin_user = "admin"
    admin_password = "admin"

    AT_CREATION: ClassVar[frozenset[str]] = frozenset(
        {"lower_case_table_names", "innodb_page_size", "innodb_data_file_path"}
    )
    """Options that must already hold when the data folder is made."""

    def __init__(
        self, options: dict[str, Any] | None = None, *, folder: Path | str | None = None, port: int | None = None
    ) -> None:
        super().__init__(options, folder=folder, port=port)
        self._installation: databases.Installation | None = None

    @property
    def installation(self) -> databases.Installation:
        """The programs, fetched when they are not there yet."""
        if self._installation is None:
            self._installation = databases.ensure(self._program_name())
        return self._installation

    @property
    def socket(self) -> Path:
        """The Unix socket."""
        return self.socket_folder / "s.sock"

    @property
    def version(self) -> str:
        """The version of the server program."""
        return self.installation.version

    # SQL

    def connect(self, **overrides: Any) -> "Connection[Any]":
        """A new PyMySQL connection, autocommit: ``root`` over the socket, ``admin`` over TCP if ``host`` is given."""
        import pymysql

        arguments: dict[str, Any] = {
            "user": "root",
            "password": "",
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
        }
        if "host" in overrides or "port" in overrides:
            arguments |= {
                "host": self.host,
                "port": self.port,
                "user": self.admin_user,
                "password": self.admin_password,
            }
        else:
            # PyMySQL would read all of the system's certificates for each connection: most of a test's time
            arguments |= {"unix_socket": str(self.socket), "ssl_disabled": True}
        return pymysql.connect(**(arguments | overrides))

    def sql(self, *statements: str, args: Any = None, database: str | None = None) -> Rows:
        """Run statements in one session, each committed at once; returns the rows of the last one."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, args)
            return list(cursor.fetchall())

    def url(self, database: str = "", driver: str = "mysql+pymysql") -> str:
        """A SQLAlchemy address of the administrator."""
        return f"{driver}://{self.admin_user}:{self.admin_password}@{self.host}:{self.port}/{database}"

    @contextmanager
    def database(self, prefix: str = "db") -> Iterator["Database"]:
        """A new database with a unique name, dropped at the end."""
        database = Database(self, f"{prefix}_{uuid.uuid4().hex[:8]}")
        self.sql(f"CREATE DATABASE `{database.name}`")
        try:
            yield database
        finally:
            if self.running:
                self.sql(f"DROP DATABASE IF EXISTS `{database.name}`")

    # starting

    def _program_name(self) -> str:
        """The name of the server in :mod:`dev.bootstrap.databases`."""
        raise NotImplementedError

    def _initialize(self, scratch: Self) -> None:
        """Fill the empty data folder of ``scratch``."""
        raise NotImplementedError

    def _setup_statements(self) -> list[str]:
        """Return the statements that a new data folder needs: they make the users."""
        return [
            f"CREATE USER '{self.admin_user}'@'%' IDENTIFIED BY '{self.admin_password}'",
            f"GRANT ALL PRIVILEGES ON *.* TO '{self.admin_user}'@'%' WITH GRANT OPTION",
            f"CREATE USER '{self.user}'@'%' IDENTIFIED BY '{self.password}'",
            f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO '{self.user}'@'%'",
        ]

    def _prepare(self) -> None:
        (self.folder / "tmp").mkdir(exist_ok=True)
        if self.data.exists():
            return
        creation = {name: value for name, value in self.options.items() if name in self.AT_CREATION}
        ingredients = [self.version, self._setup_statements(), creation]
        template.copy(
            f"{self._program_name()}-{self.version}",
            ingredients,
            lambda work: self._make_data(work, creation),
            self.data,
        )

    def _make_data(self, work: Path, creation: dict[str, Any]) -> Path:
        """A finished data folder: initialized, with users, cleanly shut down, without binary logs."""
        scratch = self._scratch({**creation, "log_bin": False}, work)
        (work / "tmp").mkdir()
        self._initialize(scratch)
        scratch.start()
        try:
            scratch.sql(*self._setup_statements())
            scratch.stop()
        finally:
            scratch.kill()
        (scratch.data / "auto.cnf").unlink(missing_ok=True)  # holds the unique id of a MySQL server
        return scratch.data

    def _scratch(self, options: dict[str, Any], folder: Path) -> Self:
        """A server of the same kind for making a data folder."""
        return type(self)(options, folder=folder)

    def base_arguments(self) -> list[str]:
        """The arguments that every run of the program on this data folder needs."""
        arguments = [
            "--no-defaults",
            *self.installation.arguments,
            f"--datadir={self.data}",
            f"--tmpdir={self.folder / 'tmp'}",
        ]
        if os.geteuid() == 0:
            arguments.append("--user=root")
        return arguments

    def _command(self) -> tuple[list[str], dict[str, str]]:
        place = [
            f"--socket={self.socket}",
            f"--port={self.port}",
            f"--bind-address={self.host}",
            f"--pid-file={self.folder / 'pid'}",
        ]
        command = [*self.installation.command, *self.base_arguments(), *place, *option_arguments(self.options)]
        return command, self.installation.environment

    def _answers(self) -> bool:
        import pymysql

        if not self.socket.exists():
            return False
        try:
            self.connect(connect_timeout=5).close()
        except pymysql.err.OperationalError:
            return False
        return True


@dataclass(frozen=True)
class Database:
    """A database on a server."""

    server: MySqlFamily
    name: str

    def sql(self, *statements: str, args: Any = None) -> Rows:
        """Run statements in this database as the administrator; returns the rows of the last one."""
        return self.server.sql(*statements, args=args, database=self.name)

    def connect(self, **overrides: Any) -> "Connection[Any]":
        """A new connection with this database selected."""
        return self.server.connect(**{"database": self.name, **overrides})

    def __str__(self) -> str:
        return self.name


def option_arguments(options: dict[str, Any]) -> list[str]:
    """Command-line form of server variables: booleans become ON and OFF, ``None`` leaves the server's own default."""
    return [_option_argument(name.replace("_", "-"), value) for name, value in options.items() if value is not None]


def _option_argument(name: str, value: Any) -> str:
    if name == "log-bin" and value is False:
        return "--skip-log-bin"  # "--log-bin=OFF" would write a binary log called OFF
    if isinstance(value, bool):
        value = "ON" if value else "OFF"
    return f"--{name}={value}"
