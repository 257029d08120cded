"""The owner's side of a guarded server program."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD = Path(__file__).with_name("guard.py")


class ServerError(RuntimeError):
    """A server did not start, stop or answer; the message carries the end of its log."""


@dataclass(frozen=True)
class Account:
    """The system user a program runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Program:
    """A program to run: its command, folder, log, environment and user."""

    command: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    account: Account | None = None
    """Only when it shall be another user than the current one."""
    delete: Sequence[Path] = ()
    """What to delete when the owner dies."""
    quit_signal: int = 0
    """A signal that ends the program at once but tidily, tried before SIGKILL when the owner dies."""


class GuardedProcess:
    """A running program that ends when this process ends, even by SIGKILL. See :mod:`dev.servers.guard`."""

    def __init__(self, program: Program) -> None:
        order = {
            "command": list(program.command),
            "cwd": str(program.folder),
            "log": str(program.log),
            "environment": dict(program.environment),
            "user": program.account.uid if program.account else None,
            "group": program.account.gid if program.account else None,
            "delete": [str(path) for path in program.delete],
            "quit": int(program.quit_signal),
        }
        with program.log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), json.dumps(order)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._guard.stdout
        with self._guard.stdout as pipe:
            line = pipe.readline()
        if not line:
            self._guard.wait()
            raise ServerError(f"cannot run {program.command[0]}\n{tail(program.log)}")
        self.pid = int(line)

    @property
    def guard_pid(self) -> int:
        """The pid of the guard; SIGTERM to it stops the program and deletes its folder."""
        return self._guard.pid

    @property
    def running(self) -> bool:
        """True if the program still runs."""
        return self._guard.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the program; False when it still runs after that time."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if self._guard.stdin:
            self._guard.stdin.close()
        return True

    def detach(self) -> None:
        """Let the program outlive this process."""
        assert self._guard.stdin
        self._guard.stdin.write(b"k")
        self._guard.stdin.close()
        self._guard.returncode = 0  # no longer ours: keeps Popen from warning that it still runs


def run_once(title: str, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
    """Run a program to its end; a failure carries what it printed."""
    result = subprocess.run(
        command, env={**os.environ, **environment}, text=True, errors="replace", capture_output=True, **options
    )
    if result.returncode:
        raise ServerError(f"{title} failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")


def command_line(pid: int) -> str:
    """Return the command line of the process ``pid``; empty when it does not run any more."""
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True).stdout
    return ""


def tail(log: Path, lines: int = 25) -> str:
    """The end of a log file, indented."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "    (no log)"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
