"""Ports in front of one database server, each of which may be shut: a server that is stopped, or one whose network drops everything.

with Doors(server.host, server.port, 50) as doors:
    doors.shut(range(25), "silent")
    doors.open(range(25))
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Literal, Self

from dev.ports import free_port

How = Literal["silent", "refused"]
"""``silent``: connections are taken, and no one answers; ``refused``: no one listens."""


class ForwardingPorts:
    """Each port leads to the same server.

    :ivar ports: one for each door
    :ivar opened: connections that were asked for, by door
    """

    def __init__(self, host: str, port: int, count: int) -> None:
        self._host, self._port = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: dict[int, asyncio.Server] = {}
        self._silent: set[int] = set()
        self._connections: dict[int, set[asyncio.StreamWriter]] = {number: set() for number in range(count)}
        self._tasks: set[asyncio.Task[None]] = set()
        self.opened = [0] * count
        self.ports = [free_port() for _ in range(count)]

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen(range(len(self.ports))))
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._do(self._shut(range(len(self.ports)), "refused"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def shut(self, numbers: Iterable[int], how: How) -> None:
        self._do(self._shut(numbers, how))

    def open(self, numbers: Iterable[int]) -> None:
        self._do(self._listen(numbers))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number in self._silent:
                self._silent.discard(number)
                self._cut(number)
            if number not in self._servers:
                self._servers[number] = await asyncio.start_server(
                    lambda reader, writer, number=number: self._come(number, reader, writer),  # type: ignore[misc]
                    "127.0.0.1",
                    self.ports[number],
                )

    async def _shut(self, numbers: Iterable[int], how: How) -> None:
        for number in numbers:
            if how == "silent":
                self._silent.add(number)
            elif server := self._servers.pop(number, None):
                server.close()
            self._cut(number)

    def _cut(self, number: int) -> None:
        for writer in list(self._connections[number]):
            writer.transport.abort()

    async def _come(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened[number] += 1
        self._connections[number].add(writer)
        try:
            if number in self._silent:
                while await reader.read(65536):
                    pass
                return
            answers, requests = await asyncio.open_connection(self._host, self._port)
            await asyncio.gather(_forward(reader, requests), _forward(answers, writer))
        except OSError:
            pass  # one of both has hung up, or was cut
        finally:
            self._connections[number].discard(writer)
            writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        while block := await reader.read(65536):
            writer.write(block)
            await writer.drain()
