"""A watch over the addresses that processes listen on."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections.abc import Iterable
from typing import Self

import psutil

_EVERY_S = 0.2


class ListeningWatch:
    """Watches the processes of some groups, and everything that they start, for as long as it is entered.

    :param groups: ids of process groups
    """

    def __init__(self, groups: Iterable[int]) -> None:
        self._groups = set(groups)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen: dict[tuple[str, int], str] = {}
        """Address and port → name of the process."""
        self.programs: set[str] = set()
        """Names of all processes that were looked at."""

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.look()

    def beyond(self) -> list[str]:
        """List the listeners that other machines can reach."""
        return sorted(f"{name} on {ip}:{port}" for (ip, port), name in self.seen.items() if not _loopback(ip))

    def look(self) -> None:
        """Look once."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if self._ours(process):
                    name = process.name()
                    self.programs.add(name)
                    for connection in process.net_connections("tcp"):
                        if connection.status == psutil.CONN_LISTEN:
                            self.seen[(connection.laddr.ip, connection.laddr.port)] = name

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.look()

    def _ours(self, process: psutil.Process) -> bool:
        if os.getpgid(process.pid) in self._groups:
            return True
        return any(os.getpgid(parent.pid) in self._groups for parent in process.parents())


def _loopback(ip: str) -> bool:
    """``::ffff:127.0.0.1`` is a loopback address too, as Java writes it."""
    found = ipaddress.ip_address(ip)
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
