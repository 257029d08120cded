"""The server process: listeners for clients, one port per instance, and a channel through which tests control it."""

import decimal
import json
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.servers.oracle.database import Database, Settings
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.session import Session
from dev.servers.oracle.wire.packets import Connection
from dev.servers.oracle.wire.session import Session as WireSession
from dev.servers.oracle.wire.tls import TlsListener

LOG = logging.getLogger("oracle.server")
CONTROLS = frozenset(
    {"switch_log", "hold_archiving", "release_archiving", "purge", "scn", "jump_scn", "flush", "inject", "internal_ddl"}
    | {"close_thread", "open_thread"}
    | {"build_dictionary", "reset_logs", "expire_undo", "configure", "serve_rows", "table_at"}
)
"""Methods of the database that the channel may call."""


class Listener:
    """Lets clients in at one port."""

    def __init__(self, database: Database, port: int, thread: int, *, standby: bool) -> None:
        self._database = database
        self._thread = thread
        self._standby = standby
        self._socket = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=WireSession(Connection(client), self).run, daemon=True).start()

    def knows_service(self, name: str) -> bool:
        return self._database.container_of_service(name) is not None

    def password(self, user: str) -> str | None:
        account = self._database.engine.catalog.users.get(user)
        return account.password if account else None

    def open(self, user: str, service: str, check: Callable[[], None]) -> Session:
        return self._database.open(user, service, self._thread, check, standby=self._standby)


def control(database: Database, path: Path) -> None:
    """Answer calls on a Unix socket: a line of JSON with a name and arguments each, and a line back."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_answer, args=(database, client), daemon=True).start()


def _answer(database: Database, client: socket.socket) -> None:
    with client, client.makefile("rw") as file:
        for line in file:
            file.write(json.dumps(_call(database, json.loads(line))) + "\n")
            file.flush()


def _call(database: Database, order: dict[str, Any]) -> dict[str, Any]:
    name = order["call"]
    if name not in CONTROLS:
        return {"error": f"no control {name}"}
    try:
        return {"result": getattr(database, name)(**order["arguments"])}
    except (OraError, ValueError, KeyError, TypeError) as error:
        LOG.exception("control %s failed", name)
        return {"error": f"{type(error).__name__}: {error}"}


def serve(order: dict[str, Any]) -> None:
    """Run until killed: data in ``folder``, clients at ``ports``, tests at ``control``."""
    decimal.DefaultContext.prec = 80  # threads that start from here on compute numbers of 40 digits exactly
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in order["settings"].items()
    }
    settings = Settings(**given)
    folder = Path(order["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(folder, settings)
    for thread, port in enumerate(order["ports"], 1):
        Listener(database, port, thread, standby=False)
    if settings.standby:
        Listener(database, order["standby_port"], 1, standby=True)
    if settings.tls:
        certificate, key, *clients = settings.tls
        TlsListener(order["tls_port"], order["ports"][0], (certificate, key), *clients)
    LOG.info("ready on %s", order["ports"])
    control(database, Path(order["control"]))
