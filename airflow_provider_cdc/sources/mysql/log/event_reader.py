"""Reads the events of a binlog dump from a socket, many at a time.

Bytes are received in large blocks into one buffer, and a kernel finds the events in it. The protocol splits an event of 16 MB or more
over several packets: it is put together where it lies, so that it keeps its place among the others. A lost connection always raises:
nothing reconnects by itself, since the caller knows the position to continue from.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pymysql

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import translate_error
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import has_checksums
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

LARGEST_PACKET: Final = 0xFFFFFF
"""Bytes in a packet whose event continues in the next packet."""
_MAX_EVENTS: Final = 1 << 17
_BEFORE_EVENT: Final = 5
"""Bytes of a packet before its event: a length of three bytes, a sequence number, a status."""


class BinlogEventReader:
    """Reads events from a connection on which a dump was requested.

    Iterate :meth:`read_events` or :meth:`raw_events`, once.

    :param start: position that the dump was requested at, for errors
    :param checksums: whether the server says that its events end in a CRC-32
    :param buffer: size of the buffer, bytes; it grows for an event that is larger, and shrinks after it
    :param silence_s: seconds without a byte after which the connection counts as lost
    :param patience: gives the seconds to wait for bytes before :meth:`read_events` yields ``None``; asked before each wait. Without it,
        only the server's heartbeats interrupt a wait, at most once a second
    :param largest: length of a packet whose event continues in the next one
    """

    def __init__(
        self,
        sock: socket.socket,
        config: MySqlConfig,
        start: MySqlPosition,
        *,
        checksums: bool,
        buffer: int,
        silence_s: float,
        patience: Callable[[], float] | None = None,
        largest: int = LARGEST_PACKET,
    ) -> None:
        self._sock, self._config, self._start = sock, config, start
        self._patience, self._silence_s, self._largest = patience, silence_s, largest
        sock.settimeout(silence_s)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._heard_at = time.monotonic()
        self._checksum = 4 if checksums else 0
        self._usual_size = buffer
        # offsets in the buffer: kept events begin at front, packets not split yet at tail, free room at have
        self._buf = np.empty(buffer, np.uint8)
        self._front = self._tail = self._have = 0
        self._table = np.empty((_MAX_EVENTS, k.EV_FIELDS), np.int64)
        self._count = 0
        self._keep: int | None = None

    # -- events -------------------------------------------------------------------------------------------------------

    def read_events(self) -> Iterator[EventSet | None]:
        """Yield sets of events, up to the end of the dump, with the server's heartbeats.

        ``None`` is yielded when nothing came for as long as ``patience`` said.

        The buffer is reused: a set of events is valid until the next one is asked for, except the events that :meth:`keep_from` names.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        :raises SourceLogDamaged: an event has a wrong length or checksum
        """
        while True:
            n, self._tail, why = k.split_packets(
                self._buf, self._tail, self._have, self._table[self._count :], self._checksum, self._largest
            )
            self._count += n
            if why == k.SPLIT_PACKET:
                self._add_split_event()
            if n or why == k.SPLIT_PACKET:
                events = self._set()
                yield events
                self._drop_delivered(events)
            if why == k.END_OF_FILE:
                return
            if why == k.MORE:
                while self._patience is not None and self._idle(self._patience()):
                    yield None
                self._fill(_BEFORE_EVENT)
            elif why not in (k.EVENTS_FULL, k.SPLIT_PACKET):
                self._fail(why)

    def keep_from(self, i: int | None) -> None:
        """Yield event ``i`` of the last set and those after it again, at the head of the next set.

        ``None`` = none of them. A full set cannot be kept.
        """
        self._keep = i

    def _set(self) -> EventSet:
        table = self._table[: self._count]
        full = self._count == _MAX_EVENTS or self._tail - self._front > self._usual_size * 3 // 4
        events = EventSet(self._buf, table, full)
        if table[-1, k.EV_TYPE] == ev.FORMAT_DESCRIPTION:
            self._read_format(events.get_event_body(self._count - 1))
        return events

    def _drop_delivered(self, events: EventSet) -> None:
        """Keep the events that :meth:`keep_from` has named."""
        count = len(events)
        keep = count if self._keep is None or events.full else self._keep
        self._keep = None
        self._front = self._tail if keep == count else int(self._table[keep, k.EV_START]) - _BEFORE_EVENT
        self._table[: count - keep] = self._table[keep:count].copy()
        self._count = count - keep

    def _read_format(self, body: bytes) -> None:
        """Set from a FORMAT_DESCRIPTION event whether the events after it end in a checksum."""
        if len(body) < 5:
            self._fail(k.BAD_LENGTH)
        checksums = body[-1] == 1 if self._checksum else has_checksums(body)
        self._checksum = 4 if checksums else 0

    def _add_split_event(self) -> None:
        """Wait for the event at the tail, which the protocol has split over several packets, and add it to the table."""
        event, row = self._whole_event(), self._table[self._count : self._count + 1]
        count, _, _ = k.split_events(event, 0, len(event), row)
        if not count or row[0, k.EV_SIZE] != len(event):
            self._fail(k.BAD_LENGTH)
        if self._checksum and not _intact(event):
            self._fail(k.BAD_CHECKSUM)
        row[0, k.EV_START] = self._tail + _BEFORE_EVENT
        row[0, k.EV_LENGTH] -= self._checksum
        self._count += 1
        self._tail = self._after

    # -- one by one ---------------------------------------------------------------------------------------------------

    def event_headers(self) -> Iterator[tuple[int, int]]:
        """Type and time (seconds since the epoch) of each event; read like :meth:`raw_events`."""
        for event in self.raw_events():
            yield int(event[4]), int.from_bytes(event[:4].tobytes(), "little")

    def raw_events(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the events one by one, each as bytes from its header on.

        This uses no kernel: loading one takes longer than reading a few events.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        """
        while True:
            event = self._whole_event()
            status = self._buf[self._tail + 4]
            if status == 0xFE and len(event) < 8:
                return
            if status != 0:
                self._fail(k.SERVER_ERROR)
            if len(event) < k.HEADER or int.from_bytes(event[9:13].tobytes(), "little") != len(event):
                self._fail(k.BAD_LENGTH)
            if self._checksum and event[4] == ev.FORMAT_DESCRIPTION and not _intact(event):
                self._fail(k.BAD_CHECKSUM)
            yield event
            self._front = self._tail = self._after

    # -- packets ------------------------------------------------------------------------------------------------------

    def _whole_event(self) -> npt.NDArray[np.uint8]:
        """Wait for all packets of the event at the tail, and put it together there. ``_after`` is then the offset behind them."""
        while True:
            parts, length, after = [], self._largest, self._tail
            while length == self._largest and self._have - after >= 4:
                length = self._packet_length(after)
                parts.append(slice(after + 4, after + 4 + length))
                after += 4 + length
            if length != self._largest and after <= self._have:
                break
            self._fill(after - self._tail + 4 * (length == self._largest))
        end = parts[0].stop
        for part in parts[1:]:
            length = part.stop - part.start
            self._buf[end : end + length] = self._buf[part]
            end += length
        self._after = after
        return self._buf[self._tail + _BEFORE_EVENT : end]

    def _packet_length(self, at: int) -> int:
        return int(self._buf[at]) | int(self._buf[at + 1]) << 8 | int(self._buf[at + 2]) << 16

    def _fill(self, least: int) -> None:
        """Move the bytes from the front on to the beginning of the buffer and receive more.

        :param least: how many bytes there are to be from the tail on, at least; the packet at the tail, if that is more
        """
        if self._have - self._tail >= 4:
            least = max(least, 4 + self._packet_length(self._tail))
        front, needed = self._front, self._tail - self._front + least
        buf, rest = self._buf, self._have - front
        if needed > len(buf):  # doubled, since it is moved each time
            buf = np.empty(max(needed + self._usual_size // 4, 2 * len(buf)), np.uint8)
        elif len(buf) > self._usual_size >= 2 * max(needed, rest):
            buf = np.empty(self._usual_size, np.uint8)
        if front or buf is not self._buf:
            buf[:rest] = self._buf[front : self._have]
            self._table[: self._count, k.EV_START] -= front
            self._buf, self._have, self._tail, self._front = buf, rest, self._tail - front, 0
        room = max(needed, self._usual_size)
        if not self._receive(room):
            raise self._lost("the server closed it")
        # receive while the server has more ready: fuller buffers are faster. If it closes the connection meanwhile, the bytes
        # received before are still read
        while self._have < self._usual_size // 2 and self._ready() and self._receive(room):
            pass

    def _ready(self, wait_s: float = 0) -> bool:
        """Check whether bytes arrive within ``wait_s`` seconds."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        return bool(self._poll.poll(wait_s * 1000))

    def _idle(self, patience_s: float) -> bool:
        """Check whether nothing came within ``patience_s`` seconds.

        :raises SourceUnavailable: several heartbeats are missing, so the connection counts as lost
        """
        if self._ready(patience_s):
            return False
        if time.monotonic() - self._heard_at > self._silence_s:
            raise self._lost("the server sent no data, not even a heartbeat")
        return True

    def _receive(self, room: int) -> int:
        """Receive once, up to offset ``room``; returns the number of bytes, 0 when the server has closed the connection."""
        try:
            n = self._sock.recv_into(memoryview(self._buf)[self._have : room])  # type: ignore[arg-type]
        except TimeoutError as e:
            raise self._lost("the server sent no data, not even a heartbeat") from e
        except OSError as e:
            raise self._lost(str(e)) from e
        self._have += n
        self._heard_at = time.monotonic()
        return int(n)

    # -- failing ------------------------------------------------------------------------------------------------------

    def _lost(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"The connection to the binary log was lost: {why}.",
            where=f"{self._config.database_hostname}:{self._config.database_port}, reading from {self._start}",
            safe="Changes that were not committed to the change log are captured again by the next run.",
            remedy="a retry resumes at the offset; if the error repeats, check the server's log, net_write_timeout, and "
            f"whether another replica uses server id {self._config.database_server_id}",
        )

    def _fail(self, why: int) -> None:
        """Raise the error for the packet at the tail."""
        if why == k.SERVER_ERROR:
            packet = self._buf[self._tail + 4 : self._tail + 4 + self._packet_length(self._tail)].tobytes()
            code = int.from_bytes(packet[1:3], "little")
            text = packet[9:] if packet[3:4] == b"#" else packet[3:]
            raise translate_error(
                pymysql.err.OperationalError(code, text.decode("utf-8", "replace")), self._config, str(self._start)
            )
        problem = "an invalid checksum" if why == k.BAD_CHECKSUM else "an invalid length"
        raise SourceLogDamaged(
            f"An event of the binary log has {problem}.",
            where=f"{self._config.database_hostname}:{self._config.database_port}, reading from {self._start}",
            safe="Everything before it is captured; no part of the event was written.",
            remedy="run the capture again; if the error persists, the log file is damaged on the server: snapshot the "
            "tables again with snapshot.mode=always for one run",
        )


def _intact(event: npt.NDArray[np.uint8]) -> bool:
    return zlib.crc32(event[:-4].data) == int.from_bytes(event[-4:].tobytes(), "little")
