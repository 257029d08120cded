"""Starts the server as a separate process, and talks to it."""

import json
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev import paths
from dev.ports import free_port
from dev.servers.base import Server

if TYPE_CHECKING:
    from oracledb import Connection

Rows = list[tuple[Any, ...]]


class OracleError(RuntimeError):
    """A control call failed."""


class Oracle(Server):
    """An Oracle test server.

    ``options`` are the settings of :class:`dev.servers.oracle.database.Settings`: ``cdb`` (default true), ``threads``
    (RAC instances, one port each), ``tls`` (one more port, with TLS), ``standby`` (a second, read-only database that sees archived redo only),
    ``local`` (captured by a local user, inside its pluggable database), ``autonomous`` (pluggable databases are as those of Autonomous Database),
    ``supplemental`` (``["MIN"]``; ``[]`` for none), ``archiving``, ``lazy_flush``, ``switch_every``.

    ``user``/``password`` belong to the capture user, with :data:`CAPTURE_GRANTS`; ``connect`` and ``sql`` act as the
    owner of the schema, ``admin`` as SYSTEM. In a CDB the owner's tables are in the pluggable database.
    """

    kind = "oracle"
    owner = "APP"
    owner_password = "app"
    password = "dbz"
    admin_user = "system"
    admin_password = "manager"

    def __init__(
        self, options: dict[str, Any] | None = None, *, folder: Path | str | None = None, port: int | None = None
    ) -> None:
        super().__init__(options, folder=folder, port=port)
        self._more_ports: list[int] = []

    # where it is

    @property
    def cdb(self) -> bool:
        """True if it is a container database."""
        return bool(self.options.get("cdb", True))

    @property
    def user(self) -> str:  # type: ignore[override]
        """The capture user: a common one in a CDB, unless it is ``local``."""
        if self.options.get("local"):
            return "cdc"
        return "c##dbzuser" if self.cdb else "dbzuser"

    @property
    def database(self) -> str:
        """The service for the capture user: the root of a CDB, or the pluggable database if the user is ``local``."""
        return "ORCLPDB1" if self.options.get("local") else self._name

    @property
    def _name(self) -> str:
        return "ORCLCDB" if self.cdb else "ORCL"

    @property
    def pdb(self) -> str | None:
        """The pluggable database with the owner's schema."""
        return "ORCLPDB1" if self.cdb else None

    @property
    def ports(self) -> list[int]:
        """The port of each RAC instance."""
        expected = (
            int(self.options.get("threads", 1)) - 1 + bool(self.options.get("standby")) + bool(self.options.get("tls"))
        )
        while len(self._more_ports) < expected:
            self._more_ports.append(free_port(self.host))
        return [self.port, *self._more_ports[: int(self.options.get("threads", 1)) - 1]]

    @property
    def dsn(self) -> str:
        """The address for the capture user, on the first instance."""
        return f"{self.host}:{self.port}/{self.database}"

    @property
    def root_dsn(self) -> str:
        """The root of a CDB, on the first instance."""
        return f"{self.host}:{self.port}/{self._name}"

    @property
    def owner_dsn(self) -> str:
        """The address for the owner: the pluggable database of a CDB."""
        return f"{self.host}:{self.port}/{self.pdb or self.database}"

    @property
    def nodes(self) -> list[str]:
        """``host:port`` of each RAC instance."""
        return [f"{self.host}:{port}" for port in self.ports]

    @property
    def standby_dsn(self) -> str:
        """The read-only standby, when there is one."""
        return f"{self.host}:{self._standby_port}/{self.database}"

    @property
    def tls_port(self) -> int:
        """The port at which the first instance listens with TLS; 0 without TLS."""
        return self._more_ports[-1] if self.ports and self.options.get("tls") else 0

    @property
    def _standby_port(self) -> int:
        last = -2 if self.options.get("tls") else -1
        return self._more_ports[last] if self.ports and self.options.get("standby") else 0

    @property
    def _control(self) -> Path:
        return self.socket_folder / "control.sock"

    # SQL

    def connect(self, *, thread: int = 1, **overrides: Any) -> "Connection":
        """A new connection of the schema's owner on one RAC instance; ``user``, ``password`` and ``dsn`` replace it."""
        import oracledb

        dsn = f"{self.host}:{self.ports[thread - 1]}/{self.pdb or self.database}"
        return oracledb.connect(**{"user": self.owner, "password": self.owner_password, "dsn": dsn, **overrides})

    def capture(self, *, thread: int = 1, **overrides: Any) -> "Connection":
        """A new connection of the capture user, to the root of a CDB."""
        dsn = f"{self.host}:{self.ports[thread - 1]}/{self.database}"
        return self.connect(**{"user": self.user, "password": self.password, "dsn": dsn, **overrides})

    def sql(self, *statements: str, args: Any = None, **overrides: Any) -> Rows:
        """Run statements in one session of the owner and commit at the end; returns the rows of the last one."""
        with closing(self.connect(**overrides)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, args)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return list(rows)

    def admin(self, *statements: str, **overrides: Any) -> Rows:
        """The same as SYSTEM: grants, supplemental logging of the database, ALTER SYSTEM."""
        return self.sql(*statements, **{"user": self.admin_user, "password": self.admin_password, **overrides})

    # control

    def control(self, call: str, **arguments: Any) -> Any:
        """Call a method of :class:`dev.servers.oracle.database.Database` in the server."""
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(self._control))
            with channel.makefile("rw") as file:
                file.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
                file.flush()
                answer = json.loads(file.readline())
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer["result"]

    def switch_log(self, thread: int = 1) -> int:
        """Switch the log of a thread; returns the sequence of the new one."""
        return int(self.control("switch_log", thread=thread))

    def close_thread(self, thread: int) -> int:
        """Shut one instance of a cluster down; returns the SCN at which its redo ends."""
        return int(self.control("close_thread", thread=thread))

    def open_thread(self, thread: int) -> None:
        """Start that instance again."""
        self.control("open_thread", thread=thread)

    def hold_archiving(self) -> None:
        """Logs stay unarchived from now."""
        self.control("hold_archiving")

    def release_archiving(self) -> None:
        """Archive what has waited."""
        self.control("release_archiving")

    def purge(self, before: int | None = None) -> list[list[int]]:
        """Delete archived logs that end at or before an SCN, or all; returns ``[thread, sequence]`` of each."""
        return list(self.control("purge", before=before))

    def scn(self) -> int:
        """The newest SCN."""
        return int(self.control("scn"))

    def jump_scn(self, distance: int) -> int:
        """Move the SCN forward; returns it."""
        return int(self.control("jump_scn", distance=distance))

    def flush(self) -> None:
        """Put all redo on disk, where LogMiner sees it."""
        self.control("flush")

    def inject(self, rows: list[dict[str, Any]]) -> list[int]:
        """Put rows of V$LOGMNR_CONTENTS into the redo as they are; returns their SCNs."""
        encoded = [
            {name: {"hex": value.hex()} if isinstance(value, bytes) else value for name, value in row.items()}
            for row in rows
        ]
        return list(self.control("inject", rows=encoded))

    def expire_undo(self, scn: int | None = None) -> None:
        """From now a flashback to before this SCN, or before now, is ORA-01555."""
        self.control("expire_undo", scn=scn)

    def reset_logs(self) -> int:
        """A new incarnation of the database; returns its RESETLOGS_CHANGE#."""
        return int(self.control("reset_logs"))

    def configure(self, **options: Any) -> None:
        """Change options of the running server.

        ``flush_timer`` (false: redo reaches the disk by commits and switches alone), ``held_writers`` (threads of which
        that is so), ``real_time_apply`` (of the standby), ``closed_on_standby`` (threads that it shows as closed, as if for ever), ``partial_xids`` (undo rows whose
        transaction began before the mined window show no sequence), ``binary_xml``, ``lob_shape`` (``19c``, ``23ai`` or
        ``23ai_basicfile``: how LOBs are logged from now), ``unsupported`` (names of tables whose changes are rows of code 255),
        ``dropped_partitions`` (names of tables whose rows are in a partition that was dropped since), ``destinations`` (archive copies), ``switch_every``, ``archiving``,
        ``clock_seconds`` (how far the server's clock is ahead).
        """
        self.control("configure", **options)

    def serve_rows(self, count: int, table: str = "BENCH", **options: int) -> dict[str, int]:
        """Serve prepared LogMiner rows from now, for benchmarks; returns ``first``, ``last`` SCN and ``rows``.

        ``transaction_rows`` (1000) in each transaction, of which ``at_once`` (1) are open together. One more, with ``open_rows`` (0)
        rows, is open from the first row to the last. With ``later`` the database's SCN stays before them, see :meth:`jump_scn`. A query
        has ``pace`` rows a second at most (0: as many as the client takes).
        """
        return dict(self.control("serve_rows", count=count, table=table, **options))

    def table_at(self, name: str, scn: int | None = None) -> Rows:
        """The committed rows of a table of the owner at an SCN, out of the engine itself; bytes as bytes."""
        rows = self.control("table_at", name=name, scn=scn)
        return [
            tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in row) for row in rows
        ]

    # starting

    def _prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        settings = {
            "owner": self.owner,
            "owner_password": self.owner_password,
            "user": self.user,
            "user_password": self.password,
        }
        settings |= {"admin_password": self.admin_password, **self.options}
        order = {
            "settings": settings, "folder": str(self.data), "ports": self.ports, "standby_port": self._standby_port,
            "tls_port": self.tls_port, "control": str(self._control),
        }  # fmt: skip
        return [sys.executable, "-m", "dev.servers.oracle", json.dumps(order)], {"PYTHONPATH": str(paths.ROOT)}

    def _answers(self) -> bool:
        try:
            return self.scn() > 0
        except (OSError, json.JSONDecodeError):
            return False
