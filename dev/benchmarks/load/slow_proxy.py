"""A TCP proxy that lets each connection receive so many bytes a second: a network that is slower than the machines."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import threading
import time
from typing import Self

_PIECE = 1 << 16


class SlowProxy:
    """Forwards connections to a server, in a separate process. In a ``with`` block.

    :param bytes_per_s: of the server's answers, on each connection
    """

    def __init__(self, host: str, port: int, bytes_per_s: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listener, (host, port), bytes_per_s), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def _serve(listener: socket.socket, target: tuple[str, int], bytes_per_s: int) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(target)
        threading.Thread(target=_forward, args=(client, server, 0), daemon=True).start()
        threading.Thread(target=_forward, args=(server, client, bytes_per_s), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, bytes_per_s: int) -> None:
    due = time.monotonic()
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)
            if bytes_per_s:
                due = max(due, time.monotonic() - 0.1) + len(data) / bytes_per_s
                time.sleep(max(0.0, due - time.monotonic()))
        target.shutdown(socket.SHUT_WR)
