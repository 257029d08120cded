"""Runs one server program and ends it when its owner is gone, however the owner ended.

Started by :class:`dev.servers.process.GuardedProcess` as ``python -I -S guard.py JSON``; standard library only. The first line
on its standard output is the pid of the program. Its standard input closes when the owner dies, and then the program is
killed and its folder deleted. The byte ``k`` on standard input means that the program shall outlive the owner.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

KEEP = b"k"
QUIT_SECONDS = 3
CHECK_SECONDS = 0.5
PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the program until it ends, is asked to end, or has lost its owner."""
    order = json.loads(sys.argv[1])
    owner = os.getppid()
    wakeup = _wake_on_signals()
    child = subprocess.Popen(preexec_fn=_death_signal(), stdin=subprocess.DEVNULL, **_popen_arguments(order))
    print(child.pid, flush=True)
    sys.stdout.close()
    watched = [0, wakeup]
    while child.poll() is None:
        readable, _, _ = select.select(watched, [], [], CHECK_SECONDS)
        asked_to_end = wakeup in readable and signal.SIGTERM in os.read(wakeup, 100)
        message = os.read(0, 1) if 0 in readable else None
        if message == KEEP:
            watched, owner = [wakeup], 0
        owner_is_gone = message == b"" or (owner and os.getppid() != owner)
        if asked_to_end or owner_is_gone:
            return _clean_up(child, order)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _popen_arguments(order: dict[str, Any]) -> dict[str, Any]:
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    environment = {**os.environ, **order["environment"]}
    arguments: dict[str, Any] = {
        "args": order["command"],
        "cwd": order["cwd"],
        "stdout": log,
        "stderr": log,
        "env": environment,
    }
    if order["user"] is not None:
        arguments |= {"user": order["user"], "group": order["group"], "extra_groups": []}
    return arguments


def _wake_on_signals() -> int:
    """A file descriptor that becomes readable when the program ends or SIGTERM arrives."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def _death_signal() -> Callable[[], None] | None:
    """Linux: what the program calls before it starts, so that it gets SIGKILL when this guard itself is killed."""
    if sys.platform != "linux":
        return None
    import ctypes  # here and not in the child, which may be a user who cannot read this Python

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _clean_up(child: subprocess.Popen[bytes], order: dict[str, Any]) -> int:
    if order["quit"] and child.poll() is None:
        child.send_signal(order["quit"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(QUIT_SECONDS)
    child.kill()
    child.wait()
    for folder in order["delete"]:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
