"""Connections from one member to another."""

from __future__ import annotations

import asyncio
import ssl
import struct

from dev.servers.mongodb.values.documents import Document, encode
from dev.servers.mongodb.wire import messages

MEMBER = "_standInMember"


class Peer:
    """Another member. Each call is one command; a call that fails closes the connection, and the next opens another."""

    def __init__(self, address: str, key: str, tls: Document) -> None:
        self.address, self._key, self._tls = address, key, tls
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lock = asyncio.Lock()

    async def call(self, body: Document, seconds: float) -> Document:
        """The reply to a command. Raises :class:`OSError` when the member does not answer."""
        try:
            async with self._lock:
                return await asyncio.wait_for(self._call(body), seconds)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionError(f"{self.address} does not answer: {error}") from error

    async def _call(self, body: Document) -> Document:
        if self._writer is None:
            host, _, port = self.address.partition(":")
            self._reader, self._writer = await asyncio.open_connection(
                host, int(port), ssl=self._context(), limit=2**20
            )
            await self._exchange({MEMBER: 1, "key": self._key, "$db": "admin"})
        return await self._exchange(body)

    def _context(self) -> ssl.SSLContext | None:
        if not self._tls:
            return None
        context = ssl.create_default_context(cafile=self._tls.get("ca"))
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self._tls["certificate"], self._tls.get("key"))
        return context

    async def _exchange(self, body: Document) -> Document:
        assert self._reader is not None
        assert self._writer is not None
        payload = struct.pack("<I", 0) + b"\0" + encode(body)
        self._writer.write(messages.HEADER.pack(16 + len(payload), 1, 0, messages.OP_MSG) + payload)
        await self._writer.drain()
        header = await self._reader.readexactly(16)
        data = await self._reader.readexactly(messages.HEADER.unpack(header)[0] - 16)
        return messages.parse_message(header, data).body

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
