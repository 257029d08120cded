"""The replication connection: requests a binlog dump and splits the byte stream into events, many at a time.

PyMySQL connects and authenticates. From then on this module reads the socket, in large blocks into one buffer, and a kernel finds the
events. A lost connection always raises: nothing reconnects by itself, since the caller knows the position to go on from.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pymysql

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server, connect, translate, translated
from airflow_provider_cdc.sources.mysql.gtid import MySqlGtids
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_bodies import has_checksums
from airflow_provider_cdc.sources.mysql.log.events.event_table import Events
from airflow_provider_cdc.sources.mysql.log.failover import dump_gtids
from airflow_provider_cdc.sources.mysql.log.gtid_sources import GtidSources
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

BUFFER = 4 << 20
_MAX_EVENTS = 1 << 17
_COM_REGISTER_SLAVE, _COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x15, 0x12, 0x1E
_NON_BLOCK, _SEND_ANNOTATE, _THROUGH_GTID = 0x01, 0x02, 0x04
_LEAST_BEAT_S = 1.0
"""Shortest heartbeat period. While MySQL skips transactions that the reader has, it counts in whole seconds: with a shorter period it
would send a heartbeat for each of them."""
_QUIET_BEATS = 10
"""After this many missed heartbeats the connection counts as lost."""
_NO_REPLICA = 0
"""Server id of a reader that does not register as a replica. A server ends the older of two dumps with the same id, except with id 0."""


class BinlogConnection:
    """A dump of the binary log from one position on. A context manager.

    Only the stream of a run registers as a replica, with ``database.server.id``; the server then ends an older dump with that id. All
    other readers (``unregistered``) use server id 0, which ends no other dump.

    :param follow: wait for new events for ever; otherwise the server ends the stream at the end of the log
    :param unregistered: read the log without registering as a replica; not together with ``follow``
    :param patience: gives the seconds to wait for bytes before :meth:`events` yields ``None``; asked before each wait. Without it,
        only the server's heartbeats interrupt a wait, at most once a second
    :ivar gtids: the GTIDs that the server was told the reader has: those of ``start``, and those of excluded sources
    :raises AccessDenied: user, password or privileges are wrong
    :raises PositionLost: the server does not have the position any more
    :raises SourceUnavailable: no server answers
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: Server,
        start: MySqlPosition,
        *,
        follow: bool = False,
        unregistered: bool = False,
        patience: Callable[[], float] | None = None,
    ) -> None:
        assert not (unregistered and follow), "the server ends a dump that is no replica's at the end of the log"
        self._config, self._server, self._start, self._follow = config, server, start, follow
        self._replica = _NO_REPLICA if unregistered else config.database_server_id
        self._patience = patience
        self._beat_s = max(config.poll_interval_ms / 1000, _LEAST_BEAT_S)
        self._checksum = 0 if server.variables.get("binlog_checksum", "NONE").upper() == "NONE" else 4
        self._buf = np.empty(BUFFER, np.uint8)
        self._have = 0
        self._heard_at = time.monotonic()
        self._table = np.empty((_MAX_EVENTS, k.EV_FIELDS), np.int64)
        self._keep: int | None = None
        self._connection = connect(config, initial=False)
        try:
            with translated(config, str(start)):
                self._ask()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection._force_close()

    def __enter__(self) -> BinlogConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking -------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum"
            )
            cursor.execute(
                f"SET @master_heartbeat_period = {int(self._beat_s * 1e9)}, @source_heartbeat_period = {int(self._beat_s * 1e9)}"
            )
            for name in ("read", "write"):
                if seconds := getattr(self._config, f"binlog_net_{name}_timeout"):
                    cursor.execute(f"SET net_{name}_timeout = {seconds}")
            self.gtids = dump_gtids(self._connection, self._server, self._start, GtidSources.of(self._config))
            if self._server.mariadb:
                cursor.execute("SET @mariadb_slave_capability = 4")
                if self.gtids:
                    cursor.execute("SET @slave_connect_state = %s", (self.gtids,))
                    # failover.py has found logs that begin too late; strict mode would also refuse one that begins right after it
                    cursor.execute("SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
        sock: socket.socket = self._connection._sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._silence_s = self._beat_s * _QUIET_BEATS if self._follow else 60 + self._beat_s
        sock.settimeout(self._silence_s)
        self._sock, self._poll = sock, select.poll()
        self._poll.register(sock, select.POLLIN)
        if self._replica != _NO_REPLICA:
            self._register()
        self._send(self._dump_request())

    def _register(self) -> None:
        """Register as a replica, so that administrators see this reader in ``SHOW REPLICAS``."""
        host = b"airflow_provider_cdc"
        body = struct.pack("<BIB", _COM_REGISTER_SLAVE, self._replica, len(host)) + host
        self._send(body + struct.pack("<BBHII", 0, 0, 0, 0, 0))
        self._connection._next_seq_id = 1
        self._connection._read_packet()

    def _dump_request(self) -> bytes:
        flags = 0 if self._follow else _NON_BLOCK
        if self._server.mariadb and self._config.include_query:
            flags |= _SEND_ANNOTATE
        if self.gtids and self._server.gtids and not self._server.mariadb:
            encoded = MySqlGtids.parse(self.gtids).encode()
            head = struct.pack(
                "<BHIIQI", _COM_BINLOG_DUMP_GTID, flags | _THROUGH_GTID, self._replica, 0, 4, len(encoded)
            )
            return head + encoded
        by_gtid = self._server.mariadb and self.gtids
        name, pos = (b"", 4) if by_gtid else (self._start.file.encode(), self._start.pos)
        if pos > 0xFFFFFFFF:
            raise UnknownLogEvent(
                "The position is beyond 4 GB in its file: without GTIDs, the replication protocol cannot name it.",
                where=str(self._start),
                safe="Everything before it is captured.",
                remedy="switch GTIDs on at the source, or set snapshot.mode=when_needed after the file was purged",
            )
        return struct.pack("<BIHI", _COM_BINLOG_DUMP, pos, flags, self._replica) + name

    def _send(self, body: bytes) -> None:
        self._sock.sendall(struct.pack("<I", len(body))[:3] + b"\0" + body)

    # -- reading ------------------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Events | None]:
        """Sets of events, up to the end of the log or for ever (``follow``), with the server's heartbeats.

        ``None`` is yielded when nothing came for as long as ``patience`` said.

        The buffer is reused: a set of events is valid until the next one is asked for, except the events that :meth:`keep_from` names.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        :raises SourceLogDamaged: an event has a wrong length or checksum
        """
        front = tail = count = 0  # buffer offsets: kept events begin at front, bytes not split yet at tail
        while True:
            n, tail, why = k.split_packets(self._buf, tail, self._have, self._table[count:], self._checksum)
            # a FORMAT_DESCRIPTION says whether the events after it have checksums: end the set with it
            formats = np.flatnonzero(self._table[count : count + n, k.EV_TYPE] == ev.FORMAT_DESCRIPTION)
            if len(formats):
                if formats[0] + 1 < n:
                    n, why = int(formats[0]) + 1, k.EVENTS_FULL
                    tail = int(self._table[count + n - 1, k.EV_START] + self._table[count + n - 1, k.EV_SIZE])
                self._read_format(Events(self._buf, self._table[count : count + n]).body(n - 1), tail)
            count += n
            if n:
                full = why == k.SPLIT_PACKET or count == _MAX_EVENTS or tail - front > BUFFER * 3 // 4
                events = Events(self._buf, self._table[:count], full)
                yield events
                keep = count if self._keep is None or full else self._keep
                self._keep = None
                front = tail if keep == count else int(self._table[keep, k.EV_START]) - 5
                self._table[: count - keep] = self._table[keep:count].copy()
                count -= keep
            if why == k.END_OF_FILE:
                return
            if why == k.MORE:
                while self._patience is not None and self._idle(self._patience()):
                    yield None
                self._fill(front, tail)
                self._table[:count, k.EV_START] -= front
                front, tail = 0, tail - front
            elif why == k.SPLIT_PACKET:
                large, tail = self._large(tail)
                front = tail
                yield large
            elif why != k.EVENTS_FULL:
                self._fail(why, tail)

    def keep_from(self, i: int | None) -> None:
        """Yield event ``i`` of the last set and those after it again, at the head of the next set.

        ``None`` = none of them. A full set cannot be kept.
        """
        self._keep = i

    def event_headers(self) -> Iterator[tuple[int, int]]:
        """Type and time (seconds since the epoch) of each event; read like :meth:`raw_events`."""
        for event in self.raw_events():
            yield int(event[4]), int.from_bytes(event[:4].tobytes(), "little")

    def raw_events(self) -> Iterator[npt.NDArray[np.uint8]]:
        """The events one by one, each as bytes from its header on.

        This uses no kernel: loading one takes longer than reading a few events. Do not call :meth:`events` on the same connection.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        """
        at = 0
        while True:
            while self._have - at < 4 or self._have - at < 4 + self._packet_length(at):
                self._fill(at, at)
                at = 0
            length = self._packet_length(at)
            status, event = self._buf[at + 4], self._buf[at + 5 : at + 4 + length]
            if status == 0xFF:
                self._fail(k.SERVER_ERROR, at)
            if status == 0xFE and length < 9:
                return
            if len(event) < k.HEADER:
                self._fail(k.BAD_LENGTH, at)
            if self._checksum and event[4] == ev.FORMAT_DESCRIPTION and not _intact(event):
                self._fail(k.BAD_CHECKSUM, at)
            yield event
            at += 4 + length

    def _read_format(self, body: bytes, tail: int) -> None:
        """Set from a FORMAT_DESCRIPTION event whether the events after it end in a checksum."""
        if len(body) < 5:
            self._fail(k.BAD_LENGTH, tail)
        checksums = body[-1] == 1 if self._checksum else has_checksums(body)
        self._checksum = 4 if checksums else 0

    def _fill(self, front: int, tail: int) -> None:
        """Move the bytes from ``front`` on to the beginning of the buffer and receive more.

        :param tail: offset of the packet that is not complete yet
        """
        needed = tail - front + 4
        if self._have - tail >= 4:
            needed += self._packet_length(tail)
        rest = self._have - front
        buf = self._buf if needed <= len(self._buf) else np.empty(needed + BUFFER // 4, np.uint8)
        buf[:rest] = self._buf[front : self._have].copy()
        self._buf, self._have = buf, rest
        if not self._receive():
            raise self._lost("the server closed it")
        # receive while the server has more ready: fuller buffers are faster. If it closes the connection meanwhile, the bytes
        # received before are still read
        while self._have < len(self._buf) // 2 and self._ready() and self._receive():
            pass

    def _ready(self, wait_s: float = 0) -> bool:
        """Whether bytes arrive within ``wait_s`` seconds."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(wait_s * 1000))

    def _idle(self, patience_s: float) -> bool:
        """Whether nothing came within ``patience_s`` seconds.

        :raises SourceUnavailable: several heartbeats are missing, so the connection counts as lost
        """
        if self._ready(patience_s):
            return False
        if time.monotonic() - self._heard_at > self._silence_s:
            raise self._lost("nothing came, not even a heartbeat")
        return True

    def _receive(self) -> int:
        """Receive once; returns the number of bytes, 0 when the server has closed the connection."""
        try:
            n = self._sock.recv_into(memoryview(self._buf)[self._have :])  # type: ignore[arg-type]
        except TimeoutError as e:
            raise self._lost("nothing came, not even a heartbeat") from e
        except OSError as e:
            raise self._lost(str(e)) from e
        self._have += n
        self._heard_at = time.monotonic()
        return int(n)

    def _large(self, used: int) -> tuple[Events, int]:
        """An event of 16 MB or more, which the protocol splits into several packets."""
        parts = []
        length = 0xFFFFFF
        while length == 0xFFFFFF:
            while self._have - used < 4 or self._have - used < 4 + self._packet_length(used):
                self._fill(used, used)
                used = 0
            length = self._packet_length(used)
            parts.append(self._buf[used + 4 : used + 4 + length].copy())
            used += 4 + length
        event = np.concatenate(parts)[1:]
        table = np.empty((1, k.EV_FIELDS), np.int64)
        count, _, why = k.split_events(event, 0, len(event), table)
        if self._checksum and not _intact(event):
            why = k.BAD_CHECKSUM
        if count != 1 or why == k.BAD_CHECKSUM:
            self._fail(k.BAD_CHECKSUM if why == k.BAD_CHECKSUM else k.BAD_LENGTH, used)
        table[0, k.EV_LENGTH] -= self._checksum
        return Events(event, table, full=True), used

    def _packet_length(self, at: int) -> int:
        return int(self._buf[at]) | int(self._buf[at + 1]) << 8 | int(self._buf[at + 2]) << 16

    # -- failing ------------------------------------------------------------------------------------------------------

    def _lost(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"The connection to the binary log was lost: {why}.",
            where=f"{self._config.database_hostname}:{self._config.database_port}, reading from {self._start}",
            safe="What was not committed is captured again by the next run.",
            remedy="a retry goes on where the offset stands; if it happens again and again, look at the server's log, at net_write_timeout, and "
            f"for another replica with server id {self._config.database_server_id}",
        )

    def _fail(self, why: int, at: int) -> None:
        if why == k.SERVER_ERROR:
            packet = self._buf[at + 4 : at + 4 + self._packet_length(at)].tobytes()
            code = int.from_bytes(packet[1:3], "little")
            text = packet[9:] if packet[3:4] == b"#" else packet[3:]
            raise translate(
                pymysql.err.OperationalError(code, text.decode("utf-8", "replace")), self._config, str(self._start)
            )
        what = "a checksum that is wrong" if why == k.BAD_CHECKSUM else "a length that is wrong"
        raise SourceLogDamaged(
            f"An event of the binary log has {what}.",
            where=f"{self._config.database_hostname}:{self._config.database_port}, reading from {self._start}",
            safe="Everything before it is captured; nothing of it was written.",
            remedy="run the capture again: if the error stays, the log file is damaged on the server; read the tables again with "
            "snapshot.mode=always for one run",
        )


def _intact(event: npt.NDArray[np.uint8]) -> bool:
    return zlib.crc32(event[:-4].tobytes()) == int.from_bytes(event[-4:].tobytes(), "little")
