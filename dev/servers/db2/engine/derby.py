"""The engine: Apache Derby's network server, a child of the server process that ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.bootstrap import jars
from dev.ports import free_port
from dev.servers.process import ServerError, run_once, tail

HERE = Path(__file__).parent
START_SECONDS, ATTEMPTS = 60, 3
PR_SET_PDEATHSIG = 1
LOCK_WAIT_S, DEADLOCK_S = 4, 1
"""How long the engine itself waits for a lock: the shim tries again until the session's own timeout is over."""
SCRIPTS = ("control_tables.sql", "log.sql", "catalog.sql")


def java() -> str:
    """The Java to run."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def classpath() -> str:
    """The jars of the engine."""
    return os.pathsep.join(str(path) for path in jars.ensure("db2"))


def ingredients() -> list[str]:
    """List the jars and scripts that a new database is made from."""
    return [
        *(jar.coordinates for jar in jars.list_jars("db2")),
        *((HERE / "sql" / name).read_text() for name in SCRIPTS),
    ]


def make(work: Path) -> Path:
    """A new database with the control tables of the agent and the tables of the server; returns its folder."""
    home = work / "data"
    home.mkdir()
    script = "connect 'jdbc:derby:TESTDB;create=true;user=SYSTEM';\n"
    script += "\n".join((HERE / "sql" / name).read_text() for name in SCRIPTS)
    (work / "make.sql").write_text(script + "\nexit;\n")
    command = [java(), "-Xmx256m", f"-Dderby.system.home={home}", "-Dij.exceptionTrace=false", "-cp", classpath()]
    log = work / "ij.log"
    run_once(
        "making a database",
        [*command, f"-Dij.outfile={log}", "org.apache.derby.tools.ij", str(work / "make.sql")],
        {},
        cwd=work,
    )
    if errors := [line for line in log.read_text().splitlines() if line.startswith(("ERROR ", "IJ ERROR"))]:
        raise ServerError("making a database failed:\n" + "\n".join(errors))
    return home


class Derby:
    """The engine's process."""

    def __init__(self, home: Path, *, heap_mb: int = 512) -> None:
        self._home, self._heap_mb = home, heap_mb
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers. From the main thread only: it ends when the thread that started it does."""
        for attempt in range(ATTEMPTS):
            self.port = free_port()
            self._process = subprocess.Popen(
                self._command(),
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                stderr=sys.stderr,
                preexec_fn=_ends_with_us(),
            )
            if self._answers():
                return
            if attempt + 1 == ATTEMPTS:
                raise ServerError(f"Derby did not start; the end of its log:\n{tail(self._home / 'derby.log')}")

    def stop(self) -> None:
        """Shut it down in an orderly way."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def running(self) -> bool:
        """True if it runs."""
        return self._process is not None and self._process.poll() is None

    def _command(self) -> Sequence[str]:
        settings = {
            "derby.system.home": self._home,
            "derby.system.durability": "test",  # no fsync: what is committed survives the process, and not the machine
            "derby.locks.waitTimeout": LOCK_WAIT_S,
            "derby.locks.deadlockTimeout": DEADLOCK_S,
            "derby.locks.escalationThreshold": 1_000_000_000,
            "derby.language.sequence.preallocator": 1_000_000,  # each new range waits for the others that want one, and may fail
            "derby.storage.pageCacheSize": 8000,
            "derby.drda.keepAlive": "true",
            "user.timezone": "UTC",  # as CURRENT TIMEZONE says
            "derby.stream.error.file": self._home / "derby.log",
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        memory = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-noSecurityManager"]
        return [
            java(),
            *memory,
            *options,
            "-cp",
            classpath(),
            "org.apache.derby.drda.NetworkServerControl",
            "start",
            *where,
        ]

    def _answers(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.running:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            except OSError:
                time.sleep(0.05)
        return False


def _ends_with_us() -> Callable[[], None] | None:
    """Linux: what the child calls before it starts, so that it gets SIGKILL when this process is gone, however it went."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
