"""A binary log made by hand: events of any layout, and a server that sends them as MySQL's dump does.

A real server cannot be had to write an event over a certain packet border, end a dump between two certain events, or have four gigabytes
between two of them in no time.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem, Rollback
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.gtid_sets import MySqlGtids
from airflow_provider_cdc.sources.mysql.kernels import event_codes as code
from airflow_provider_cdc.sources.mysql.log.event_reader import LARGEST_PACKET, BinlogEventReader
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import parse_table_map
from airflow_provider_cdc.sources.mysql.log.rows.table_map_schema import schema_of_table_map
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from tests.support.sources.mysql.mysql_chunks import FixedTables

SERVER_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CONFIG = MySqlConfig.parse(
    {"topic.prefix": "p", "database.server.id": 4712, "database.hostname": "made", "database.port": 1}
    | {"database.user": "u", "database.password": "p"}
)
ARTIFICIAL = 0x20


def packets(payload: bytes, largest: int = LARGEST_PACKET) -> bytes:
    """A payload in packets of the protocol."""
    out = bytearray()
    for number, at in enumerate(range(0, len(payload) + 1, largest)):
        part = payload[at : at + largest]
        out += struct.pack("<I", len(part))[:3] + bytes([number & 0xFF]) + part
    return bytes(out)


def event(
    kind: int, body: bytes, end: int, *, flags: int = 0, checksums: bool = True, at: int = 1_700_000_000
) -> bytes:
    """An event with its header and checksum."""
    size = 19 + len(body) + 4 * checksums
    whole = struct.pack("<IBIIIH", at, kind, 1, size, end & 0xFFFFFFFF, flags) + body
    return whole + struct.pack("<I", zlib.crc32(whole)) if checksums else whole


def lenenc(number: int) -> bytes:
    if number < 251:
        return bytes([number])
    return b"\xfc" + struct.pack("<H", number) if number < 1 << 16 else b"\xfe" + struct.pack("<Q", number)


def query(sql: bytes) -> bytes:
    return struct.pack("<IIBHH", 7, 0, 1, 0, 0) + b"d\0" + sql


def table_map(table_id: int, table: bytes = b"t", names: Sequence[bytes] = (b"id", b"v")) -> bytes:
    """``CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)``."""
    body = struct.pack("<Q", table_id)[:6] + b"\1\0" + b"\1d\0" + bytes([len(table)]) + table + b"\0"
    body += b"\2" + bytes([3, 252]) + b"\1\4" + b"\2"
    listed = b"".join(lenenc(len(name)) + name for name in names)
    for kind, value in ((1, b"\0"), (2, b"\x3f"), (4, listed), (8, b"\0")):
        body += bytes([kind]) + lenenc(len(value)) + value
    return body


def rows(kind: int, table_id: int, images: Sequence[tuple[int, bytes]]) -> bytes:
    """Body of a row event; ``images`` are (id, v), with both images of each row of an update."""
    body = (
        struct.pack("<Q", table_id)[:6] + b"\1\0" + b"\2\0" + b"\2" + (b"\3\3" if kind == code.UPDATE_ROWS else b"\3")
    )
    return body + b"".join(b"\0" + struct.pack("<iI", id_, len(v)) + v for id_, v in images)


def payload(events: Sequence[bytes], *, compress: bool = True) -> bytes:
    """Body of a TRANSACTION_PAYLOAD."""
    import zstandard

    plain = b"".join(events)
    packed = zstandard.ZstdCompressor().compress(plain) if compress else plain
    head = b""
    for kind, number in ((2, 0 if compress else 255), (3, len(plain)), (1, len(packed))):
        value = lenenc(number)
        head += bytes([kind]) + lenenc(len(value)) + value
    return head + b"\0" + packed


@dataclass
class StoredEvent:
    """An event in a file: where it begins and ends, its bytes, and whether a transaction ends with it."""

    start: int
    end: int
    data: bytes
    closes: bool = False


@dataclass
class File:
    name: str
    created: int
    events: list[StoredEvent] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.events[-1].end if self.events else 4


class MadeLog:
    """The log of a server. Each method writes at its end.

    :param gtids: transactions have GTIDs
    :ivar committed: the rows (id, length of v) of each transaction, in order, with the place after it
    """

    def __init__(self, *, gtids: bool = False, checksums: bool = True) -> None:
        self.gtids, self.checksums = gtids, checksums
        self.files: list[File] = []
        self.committed: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
        self._number = 0
        self.rotate()

    @property
    def end(self) -> tuple[int, int]:
        """Number of the last file, counted from 0, and the offset after its last event."""
        return len(self.files) - 1, self.files[-1].end

    def position(self, place: tuple[int, int] | None = None, gtids: str = "") -> MySqlPosition:
        number, offset = place or self.end
        file = self.files[number]
        return MySqlPosition(file.name, offset, gtids, file.created, SERVER_UUID)

    def rotate(self) -> None:
        """Begin a new file."""
        name = f"binlog.{len(self.files) + 1:06}"
        if self.files:
            self.write(code.ROTATE, struct.pack("<Q", 4) + name.encode())
        self.files.append(File(name, 1_700_000_000 + len(self.files)))
        self.write(code.FORMAT_DESCRIPTION, self._format())
        self.write(code.PREVIOUS_GTIDS, struct.pack("<Q", 0))

    def write(self, kind: int, body: bytes, *, gap: int = 0, closes: bool = False) -> None:
        """Write an event.

        :param gap: bytes before it in the file, of events that the server does not send
        """
        file = self.files[-1]
        start = file.end + gap
        end = start + 19 + len(body) + 4 * self.checksums
        made = event(kind, body, end, checksums=self.checksums, at=file.created)
        file.events.append(StoredEvent(start, end, made, closes))

    def begin(self) -> None:
        self._number += 1
        body = b"\1" + bytes.fromhex(SERVER_UUID.replace("-", "")) + struct.pack("<Q", self._number)
        body += b"\2" + struct.pack("<QQ", self._number - 1, self._number)
        self.write(code.GTID if self.gtids else code.ANONYMOUS_GTID, body)

    def commit(self, found: list[tuple[int, int]]) -> None:
        """The end of a transaction.

        :param found: its rows
        """
        self.write(code.XID, struct.pack("<Q", self._number), closes=True)
        self.committed.append((self.end, found))

    def transaction(self, *statements: Callable[[MadeLog], list[tuple[int, int]]]) -> None:
        """A transaction of some statements, each of which gives the rows that it writes."""
        self.begin()
        self.write(code.QUERY, query(b"BEGIN"))
        self.commit([row for statement in statements for row in statement(self)])

    def compressed(self, *statements: Callable[[MadeLog], list[tuple[int, int]]], compress: bool = True) -> None:
        """A transaction in one TRANSACTION_PAYLOAD."""
        inner = MadeLog(checksums=False)
        inner.files[-1].events.clear()
        inner.write(code.QUERY, query(b"BEGIN"))
        found = [row for statement in statements for row in statement(inner)]
        inner.write(code.XID, struct.pack("<Q", self._number))
        self.begin()
        made = payload([stored.data for stored in inner.files[-1].events], compress=compress)
        self.write(code.TRANSACTION_PAYLOAD, made, closes=True)
        self.committed.append((self.end, found))

    def _format(self) -> bytes:
        return struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(41) + bytes([int(self.checksums)])


def insert(id_: int, size: int, *, table_id: int = 100, gap: int = 0) -> Callable[[MadeLog], list[tuple[int, int]]]:
    """Insert a row, with a value of so many bytes."""

    def write(log: MadeLog) -> list[tuple[int, int]]:
        log.write(code.TABLE_MAP, table_map(table_id), gap=gap)
        log.write(code.WRITE_ROWS, rows(code.WRITE_ROWS, table_id, [(id_, bytes([id_ % 251]) * size)]))
        return [(id_, size)]

    return write


def update(id_: int, before: int, after: int, *, table_id: int = 100) -> Callable[[MadeLog], list[tuple[int, int]]]:
    """Update a row, from a value of ``before`` bytes to one of ``after`` bytes."""

    def write(log: MadeLog) -> list[tuple[int, int]]:
        images = [(id_, b"b" * before), (id_, bytes([id_ % 251]) * after)]
        log.write(code.TABLE_MAP, table_map(table_id))
        log.write(code.UPDATE_ROWS, rows(code.UPDATE_ROWS, table_id, images))
        return [(id_, after)]

    return write


def annotate(size: int) -> Callable[[MadeLog], list[tuple[int, int]]]:
    """A ROWS_QUERY of so many bytes."""

    def write(log: MadeLog) -> list[tuple[int, int]]:
        log.write(code.ROWS_QUERY, b"\0" + b"s" * size)
        return []

    return write


# -- the server ----------------------------------------------------------------------------------------------------------


@dataclass
class Dump:
    """The end of a dump of the log by the server.

    :param events: events of the log until the dump ends; ``None``: all up to the end of the log
    :param hangs_up: True if it ends without the packet that marks the end
    """

    events: int | None = None
    hangs_up: bool = False


class MadeServer:
    """Sends a log as ``COM_BINLOG_DUMP`` asks for it.

    :param dumps: how each dump ends, one after the other; those after the last one end at the end of the log
    :param largest: length of a packet whose event continues in the next one
    :param pieces: sizes of what is sent at once, in turn
    :ivar sent: the place after the last event that was sent
    :ivar asked: how many dumps were asked for
    """

    def __init__(
        self, log: MadeLog, dumps: Sequence[Dump] = (), *, largest: int = LARGEST_PACKET, buffer: int = 4 << 20,
        pieces: Sequence[int] = (1 << 16,),
    ) -> None:  # fmt: skip
        self.log, self._dumps, self._largest, self._buffer, self._pieces = (
            log,
            list(dumps),
            largest,
            buffer,
            list(pieces),
        )
        self.sent, self.asked = (0, 4), 0
        mode = "ON" if log.gtids else "OFF"
        variables = {"gtid_mode": mode, "binlog_checksum": "CRC32" if log.checksums else "NONE"}
        self.server = MySqlServer("8.0.36", False, SERVER_UUID, variables)

    def connection(self, config: MySqlConfig, server: MySqlServer, start: MySqlPosition, **options: Any) -> Connection:
        """In place of ``BinlogConnection``."""
        ours, theirs = socket.socketpair()
        dump = self._dumps[self.asked] if self.asked < len(self._dumps) else Dump()
        self.asked += 1
        thread = threading.Thread(target=self._send, args=(theirs, start, dump), daemon=True)
        thread.start()
        return Connection(
            ours, config, start, checksums=self.log.checksums, buffer=self._buffer, silence_s=20, largest=self._largest,
            patience=options.get("patience"),
        ).after(start.gtids)  # fmt: skip

    def _send(self, to: socket.socket, start: MySqlPosition, dump: Dump) -> None:
        with to, contextlib.suppress(OSError):
            pending = bytearray()
            for data, place in self._events(start, dump.events):
                pending += packets(b"\0" + data, self._largest)
                self.sent = max(self.sent, place)
                if len(pending) > 1 << 16:
                    self._push(to, pending)
            if not dump.hangs_up:
                pending += packets(b"\xfe\0\0\2\0")
            self._push(to, pending)

    def _push(self, to: socket.socket, pending: bytearray) -> None:
        turn = 0
        while pending:
            size = self._pieces[turn % len(self._pieces)]
            to.sendall(pending[:size])
            del pending[:size]
            turn += 1

    def _events(self, start: MySqlPosition, limit: int | None) -> Iterator[tuple[bytes, tuple[int, int]]]:
        names = [file.name for file in self.log.files]
        count, first = 0, names.index(start.file)
        has = MySqlGtids.parse(start.gtids) if self.log.gtids else MySqlGtids()
        for number in range(first, len(names)):
            file = self.log.files[number]
            # asked by GTIDs, a server begins at the head of the file, and skips
            at = start.pos if number == first and not has.sources else 4
            yield self._artificial(code.ROTATE, struct.pack("<Q", at) + file.name.encode()), (number, 0)
            if at > 4:
                end = -4 if self.log.checksums else None
                yield self._artificial(code.FORMAT_DESCRIPTION, file.events[0].data[19:end]), (number, 0)
            skips = skipped = 0
            for stored in file.events:
                if stored.start < at:
                    continue
                if stored.data[4] == code.GTID:
                    own = MySqlGtids({SERVER_UUID: [(int.from_bytes(stored.data[36:44], "little"),) * 2]})
                    skips = has.contains_gtids(own)
                if skips:
                    skips, skipped = not stored.closes, stored.end
                    continue
                if limit is not None and count >= limit:
                    return
                count += 1
                if skipped:
                    yield self._heartbeat(file.name, skipped), (number, 0)
                    skipped = 0
                yield stored.data, (number, stored.end)
            if skipped:
                yield self._heartbeat(file.name, skipped), (number, skipped)

    def _heartbeat(self, file: str, end: int) -> bytes:
        return event(code.HEARTBEAT, file.encode(), end, checksums=self.log.checksums)

    def _artificial(self, kind: int, body: bytes) -> bytes:
        return event(kind, body, 0, flags=ARTIFICIAL, checksums=self.log.checksums)


class Connection(BinlogEventReader):
    """The connection that a stream reads from."""

    gtids = ""
    without_log = MySqlGtids()

    def after(self, gtids: str) -> Self:
        self.gtids = gtids
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


# -- reading it ----------------------------------------------------------------------------------------------------------


class _Catalog:
    def read_table(self, table: TableId) -> None:
        return None

    def read_charsets(self) -> dict[int, str]:
        return {63: "binary"}


CATALOG = LiveCatalog(lambda question: question(_Catalog()))  # type: ignore[arg-type]


def tables() -> FixedTables:
    """The tables of a made log."""
    id_ = TableId(namespace="d", name="t")
    known = parse_table_map(table_map(1), mariadb=False)
    return FixedTables({id_: schema_of_table_map(known, id_, [], CONFIG, {63: "binary"})})


@dataclass
class StreamedTransactions:
    """The transactions that a stream returned: whole ones alone."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    positions: list[MySqlPosition] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    open: int | None = None
    error: SourceUnavailable | None = None

    def take(self, items: Iterator[LogItem]) -> Self:
        """Everything up to the end of the stream, or to an error that is tried again."""
        try:
            for item in items:
                self._take(item)
        except SourceUnavailable as e:
            self.error = e
        self._roll_back()
        return self

    def _take(self, item: LogItem) -> None:
        if isinstance(item, Rollback):
            self._roll_back()
        elif isinstance(item, LogBlock):
            before = len(self.rows)
            found = [(order, row, pos) for block in item.rows for order, row, pos in _rows(block)]
            for _, row, pos in sorted(found, key=lambda one: one[0]):
                self.rows.append(row)
                self.places.append(pos)
            if item.open:
                self.open = before if self.open is None else self.open
            else:
                self.open = None
                self._at(item.position)
        elif isinstance(item, Heartbeat):
            self._at(item.position)

    def _at(self, position: Any) -> None:
        self.positions.append(position)

    def _roll_back(self) -> None:
        if self.open is not None:
            del self.rows[self.open :], self.places[self.open :]
            self.open = None


def _rows(block: Any) -> Iterator[tuple[int, tuple[int, int], int]]:
    for order, row, pos in zip(
        block.order.tolist(), block.after.to_pylist(), block.source["pos"].to_pylist(), strict=True
    ):
        assert row["v"] == bytes([row["id"] % 251]) * len(row["v"]), f"the value of row {row['id']} is another one"
        yield order, (row["id"], len(row["v"])), pos
