"""Checks whether the process that has left something is still there: by more than its number, which is given out again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")
_DEAD = "ZX"
"""States of processes that have ended, and whose exit no process has waited for yet."""


def this_process() -> str:
    """Identify this process, among all that its machine has had; empty where the system does not show it.

    >>> is_running(this_process())
    True
    """
    began = _began(os.getpid())
    return f"{_machine()} {os.getpid()} {began}" if began and _machine() else ""


def is_running(process: str) -> bool | None:
    """Check whether a process is still there.

    :param process: as :func:`this_process` names it
    :return: ``None`` if that cannot be known from here: it is of another machine or container
    """
    machine, _, rest = process.partition(" ")
    pid, _, began = rest.partition(" ")
    if not pid.isdigit() or not machine or machine != _machine():
        return None
    return _began(int(pid)) == began


def _machine() -> str:
    """Identify the running kernel, and the container: numbers of processes mean something only within both."""
    with contextlib.suppress(OSError):  # not Linux
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks of its kernel; empty if there is none."""
    with contextlib.suppress(OSError):  # it is gone
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return "" if state in _DEAD else fields[18]
    return ""
