"""A TCP proxy that loses answers: the server has executed the request, and no one hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class Proxy:
    """Forwards connections to a server.

    :ivar lose: asked about each piece that a client sends; if it says yes, the piece is forwarded, the server's answer is
        awaited and thrown away, and both connections are cut
    :ivar lost: how often that happened
    """

    def __init__(self, host: str, port: int, *, listen: bool = True) -> None:
        self._target = (host, port)
        self.lose: Callable[[bytes], bool] = lambda data: False
        self.lost = 0
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        if listen:
            self.listen()

    def listen(self) -> None:
        """Accept connections from now on; before, they are refused."""
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Accept no connection any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, contextlib.suppress(OSError):
            cut = threading.Event()
            answers = threading.Thread(target=self._answers, args=(server, client, cut), daemon=True)
            answers.start()
            while data := client.recv(65536):
                if self.lose(data):
                    self.lost += 1
                    cut.set()
                    server.sendall(data)
                    answers.join(10)
                    break
                server.sendall(data)
            for end in (client, server):
                end.shutdown(socket.SHUT_RDWR)

    def _answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if cut.is_set():
                    return
                client.sendall(data)
        if not cut.is_set():  # the server has hung up
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
