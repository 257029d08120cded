"""The connection of a logical replication stream ("Streaming Replication Protocol").

pg8000 logs on. Then this module reads the socket, many messages at a time: a server sends each message by itself, and to read each by
itself costs more than to decode it. So the socket wakes this reader when many bytes have come, or after a moment (``SO_RCVLOWAT``).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pg8000.core
import pg8000.exceptions

from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.kernels.message_splitter import split_messages
from airflow_provider_cdc.sources.postgresql.position import format_lsn
from airflow_provider_cdc.sources.postgresql.protocol.server_messages import ReplicationError, ServerNotice

BUFFER: Final = 4 << 20
_MAX_MESSAGES: Final = 1 << 17
_WAKE_BYTES: Final = 1 << 18
"""Bytes for which the socket waits, where they come fast."""
_GATHER_S: Final = 0.01
"""How long it waits for them."""
_FEEDBACK_S: Final = 5.0
"""Seconds between two reports to the server, which ends a stream without one after a minute (``wal_sender_timeout``)."""
_CLOSING_S: Final = 2.0
_TERMINATE: Final = struct.pack("!ci", b"c", 4) + struct.pack("!ci", b"X", 4)
_SSL_REQUEST: Final = struct.pack("!ii", 8, 80877103)
_EPOCH_S: Final = 946_684_800
"""2000-01-01, from which PostgreSQL counts."""


@dataclass(frozen=True, slots=True)
class ReplicationLogin:
    """Address of a server, and the account that reads its stream.

    :param tls: context for an encrypted connection; ``None`` = plain text
    :param require_tls: fail if the server has no TLS
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    tls: ssl.SSLContext | None = None
    require_tls: bool = True
    connect_timeout_s: float = 30.0


@dataclass(slots=True)
class MessageBlock:
    """Messages of pgoutput, as bytes. Valid until the next block is read.

    :param data: the bytes
    :param messages: ``int64[n, MSG_FIELDS]``, see :mod:`~airflow_provider_cdc.sources.postgresql.kernels.message_layout`
    """

    data: npt.NDArray[np.uint8]
    messages: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.messages)


class ReplicationConnection:
    """A stream of a replication slot. A context manager.

        >>> with ReplicationConnection(login, "cdc_shop", start, {"proto_version": "1", "publication_names": '"cdc_shop"'}) as stream:
        ...     block = stream.read_block(1.0)

    :param start: LSN from which on transactions are wanted; the server begins later if more was confirmed
    :param options: of pgoutput
    :param confirmed: LSN up to which everything is durable; by default, ``start``
    :ivar server_end: up to here the server has decoded its log: every transaction that ends before it was sent, once :meth:`read_block` returns nothing
    :raises ReplicationError: the server refuses
    :raises OSError: no server answers
    """

    def __init__(
        self,
        login: ReplicationLogin,
        slot: str,
        start: int,
        options: Mapping[str, str],
        *,
        confirmed: int | None = None,
    ) -> None:
        self._sock = _connect(login)
        try:
            self._session = _log_in(self._sock, login)
            self.server_end = start
            self._confirmed = start if confirmed is None else confirmed
            self._buffer = np.empty(BUFFER, np.uint8)
            self._messages = np.empty((_MAX_MESSAGES, layout.MSG_FIELDS), np.int64)
            self._begin = self._end = 0
            self._reported_at = 0.0
            self._streams = False
            self._sock.setblocking(False)
            self._poll = select.poll()
            self._poll.register(self._sock, select.POLLIN)
            given = ", ".join(f"{name} {_quote_literal(value)}" for name, value in options.items())
            query = f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(start)} ({given})'.encode() + b"\0"
            self._send(b"Q", query)
            self._wait_until_it_streams(login.connect_timeout_s)
        except BaseException:
            self.close()
            raise

    def read_block(self, timeout_s: float, awaited: int | None = None) -> MessageBlock:
        """Read the messages that have come; empty if none came in time.

        :param awaited: return too when the server has decoded its log up to this LSN
        :raises ReplicationError: the server has ended the stream
        :raises OSError: the connection is lost
        """
        until = time.monotonic() + timeout_s
        while True:
            if time.monotonic() - self._reported_at >= _FEEDBACK_S:
                self.report()
            n, self._begin, why = split_messages(self._buffer, self._begin, self._end, self._messages)
            if n:
                return MessageBlock(self._buffer, self._messages[:n])
            if why == layout.NEED_BYTES:
                if not self._receive(until):
                    return MessageBlock(self._buffer, self._messages[:0])
            elif why == layout.KEEPALIVE:
                self._keep_alive()
                if awaited is not None and self.server_end >= awaited:
                    return MessageBlock(self._buffer, self._messages[:0])
            elif why == layout.OTHER_MESSAGE:
                if not self._take_other() and not self._receive(until):
                    return MessageBlock(self._buffer, self._messages[:0])
            else:
                head = bytes(self._buffer[self._begin : self._begin + 32])
                raise ReplicationError("08P01", f"the stream has bytes that are no message: {head!r}")

    def confirm(self, lsn: int) -> None:
        """Report that everything up to an LSN is durable: the server may remove its log up to there."""
        self._confirmed = max(self._confirmed, lsn)
        self.report()

    def report(self, *, ask: bool = False) -> None:
        """Report the confirmed LSN, so that the server knows of a reader that lives.

        :param ask: the server answers at once, and says how far it has decoded its log
        """
        now = time.time_ns() // 1000 - _EPOCH_S * 1_000_000
        self._reported_at = time.monotonic()
        self._send(b"d", struct.pack("!cqqqqb", b"r", self._confirmed, self._confirmed, self._confirmed, now, ask))

    def close(self) -> None:
        """End the stream, and wait a moment until the server has noticed: until then, no other reader can use the slot. May be called twice."""
        if self._sock.fileno() < 0:
            return
        with self._sock as sock, contextlib.suppress(OSError):
            sock.settimeout(_CLOSING_S)
            sock.sendall(_TERMINATE)
            until = time.monotonic() + _CLOSING_S
            while sock.recv(1 << 16) and time.monotonic() < until:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _receive(self, until: float) -> bool:
        """Receive bytes behind those that are there; whether any came in time."""
        self._make_room()
        if self._receive_ready():
            return True
        left = until - time.monotonic()
        if left <= 0 or not self._poll.poll(min(left, _FEEDBACK_S) * 1000):
            return False
        raw = self._sock
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WAKE_BYTES)
        self._poll.poll(_GATHER_S * 1000)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return self._receive_ready()

    def _receive_ready(self) -> bool:
        """Receive the bytes that are ready, as many as there is room for."""
        began, view = self._end, memoryview(self._buffer)  # type: ignore[arg-type]
        while self._end < len(self._buffer):
            try:
                size = self._sock.recv_into(view[self._end :])
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            if not size:
                raise ConnectionResetError("the server has closed the connection")
            self._end += size
        return self._end > began

    def _make_room(self) -> None:
        """Move the bytes that are left to the front; for a message that is larger, take a larger buffer."""
        left = self._end - self._begin
        size = 0
        if left >= 5:
            size = 1 + int.from_bytes(self._buffer[self._begin + 1 : self._begin + 5].tobytes(), "big")
        if size > len(self._buffer):
            larger = np.empty(size + BUFFER, np.uint8)
            larger[:left] = self._buffer[self._begin : self._end]
            self._buffer = larger
        elif len(self._buffer) > BUFFER and max(left, size) < BUFFER:
            self._buffer = np.concatenate([self._buffer[self._begin : self._end], np.empty(BUFFER - left, np.uint8)])
        elif self._begin:
            self._buffer[:left] = self._buffer[self._begin : self._end].copy()
        self._begin, self._end = 0, left

    def _send(self, kind: bytes, body: bytes) -> None:
        data = memoryview(kind + struct.pack("!i", len(body) + 4) + body)
        while data:
            try:
                data = data[self._sock.send(data) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                select.select([], [self._sock], [], 1.0)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        """Take a keepalive, and answer it if the server wants that."""
        body = self._buffer[self._begin + 5 : self._begin + 23].tobytes()
        self._begin += 23
        _, end, _, wants_reply = struct.unpack("!cqqb", body)
        self.server_end = max(self.server_end, end)
        if wants_reply:
            self.report()

    def _take_other(self) -> bool:
        """Take a message that carries no part of the log; whether all of it was there.

        :raises ReplicationError: it is an error, or the end of the stream
        """
        size = 1 + int.from_bytes(self._buffer[self._begin + 1 : self._begin + 5].tobytes(), "big")
        if self._end - self._begin < size:
            return False
        kind, body = chr(self._buffer[self._begin]), self._buffer[self._begin + 5 : self._begin + size].tobytes()
        self._begin += size
        if kind == "E":
            raise ServerNotice.parse(body).to_error()
        if kind in "cCZ":
            raise ReplicationError("57P01", "the server has ended the stream")
        self._streams = self._streams or kind == "W"
        return True

    def _wait_until_it_streams(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not self._streams:
            if self._end - self._begin < 5 or not self._take_other():
                if time.monotonic() > until:
                    raise TimeoutError(f"the server has not begun the stream within {timeout_s:.0f} s")
                self._receive(until)
        self.report()


def _connect(login: ReplicationLogin) -> socket.socket:
    """Open a connection, encrypted where that is wanted."""
    sock = socket.create_connection((login.host, login.port), login.connect_timeout_s)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        if login.tls is None:
            return sock
        sock.sendall(_SSL_REQUEST)
        if sock.recv(1) == b"S":
            return login.tls.wrap_socket(sock, server_hostname=login.host)
        if login.require_tls:
            raise ReplicationError("08P01", "the server does not offer TLS")
        return sock
    except BaseException:
        sock.close()
        raise


def _log_in(sock: socket.socket, login: ReplicationLogin) -> pg8000.core.CoreConnection:
    """Log on for replication.

    :raises ReplicationError: the server refuses
    """
    try:
        return pg8000.core.CoreConnection(
            login.user, login.host, login.database, login.port, login.password,
            sock=sock, ssl_context=False, application_name="airflow_provider_cdc", replication="database",
        )  # fmt: skip
    except pg8000.exceptions.DatabaseError as e:
        fields = e.args[0] if e.args and isinstance(e.args[0], dict) else {"M": str(e)}
        raise ServerNotice(fields).to_error() from e
    except pg8000.exceptions.InterfaceError as e:
        raise ConnectionError(str(e)) from e


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
