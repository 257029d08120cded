"""Ports for servers of this machine that stop and start again, or that tell their port before they have it.

A port that the system chooses is one of those that it gives to outgoing connections too: while a server is down, any connection of any process may
get it, and the server does not come back. These here are others, and no one who asks here gets one that a process has which still lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
from functools import cache
from pathlib import Path

FIRST = 20_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 500
_taken: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which no one listens, and that no other process has got here, until this process ends."""
    end, any_ = _end(), random.SystemRandom()
    for _ in range(TRIES if end > FIRST + 1000 else 0):
        port = any_.randrange(FIRST, end)
        if port not in _taken and _lock_port(port) and _is_free(host, port):
            _taken.add(port)
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _end() -> int:
    """The first port that the system gives to outgoing connections; where it does not tell, that of the standard."""
    return int(RANGE.read_text().split()[0]) if RANGE.exists() else 49_152


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((host, port))
        return True
    return False


def _lock_port(port: int) -> bool:
    """A lock on one byte of a file: it ends with the process, however that ends, and a fork does not have it."""
    try:
        fcntl.lockf(_locks(os.getuid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _locks(user: int) -> int:
    # open until the process ends: with any of its descriptors closed, a process has no lock on the file any more
    return os.open(f"/tmp/cdc-ports-{user}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
