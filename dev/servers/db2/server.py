"""The server process: the database, and a channel through which tests control it."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from dev.servers.db2.database import Database
from dev.servers.db2.errors import Db2Error
from dev.servers.db2.settings import Settings

LOG = logging.getLogger("db2.server")
CONTROLS = frozenset(
    {
        "agent",
        "step",
        "reinit",
        "published",
        "catch_up",
        "configure",
        "prune",
        "prune_old",
        "table_at",
        "serve_changes",
        "add_table",
        "remove_table",
    }
    | {"run_stats", "sessions", "services"}
)
"""Methods of the database that the channel may call."""


def serve(order: dict[str, Any]) -> None:
    """Run until SIGTERM: data in ``folder``, clients at ``port``, tests at ``control``."""
    folder = Path(order["folder"])
    database = Database(folder, Settings(**order["settings"]), order["port"])
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    threading.Thread(target=_control, args=(database, Path(order["control"])), daemon=True).start()
    LOG.info("ready on %s", order["port"])
    done.wait()
    database.stop()
    sys.stdout.flush()


def _control(database: Database, path: Path) -> None:
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
    except (Db2Error, ValueError, KeyError, TypeError, TimeoutError, AssertionError) as error:
        LOG.exception("control %s failed", name)
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # the driver's errors; nothing else may end the channel
        LOG.exception("control %s failed", name)
        return {"error": f"{type(error).__name__}: {error}"}
