"""Decompression of events: MySQL's compressed transactions, MariaDB's compressed rows and statements."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet

_COMPRESSED = np.array([ev.TRANSACTION_PAYLOAD, ev.MARIADB_QUERY_COMPRESSED, *ev.COMPRESSED_ROWS])
_PIECE = 32 << 20
"""About how many decompressed bytes are given at once, so that memory does not grow with the compression ratio."""


def decompress_events(events: EventSet) -> Iterator[EventSet]:
    """Yield the events, with compressed ones replaced by the events inside them.

    If there are any, the sets given are ``full``: none of their events can be kept for the next set. Events from inside a
    TRANSACTION_PAYLOAD have the log position of the payload.

    :raises ValueError: a compressed event cannot be read
    :raises zlib.error: the same, of MariaDB
    """
    compressed = np.isin(events.table[:, k.EV_TYPE], _COMPRESSED)
    if not compressed.any():
        yield events
        return
    parts: list[EventSet] = []
    size = at = 0
    for i in (*np.flatnonzero(compressed).tolist(), len(events)):
        if i > at:
            parts.append(_plain(events, at, i))
        at = i + 1
        if i == len(events):
            break
        for piece in _pieces(events, i):
            parts.append(piece)
            size += len(piece.buf)
            if size >= _PIECE:
                yield _together(parts)
                parts, size = [], 0
    if parts:
        yield _together(parts)


def _plain(events: EventSet, lo: int, hi: int) -> EventSet:
    first = int(events.table[lo, k.EV_START])
    last = int(events.table[hi - 1, k.EV_START] + events.table[hi - 1, k.EV_LENGTH])
    table = events.table[lo:hi].copy()
    table[:, k.EV_START] -= first
    return EventSet(events.buf[first:last], table)


def _together(parts: list[EventSet]) -> EventSet:
    table = np.concatenate([p.table for p in parts])
    offsets = np.cumsum([0, *(len(p.buf) for p in parts[:-1])])
    table[:, k.EV_START] += np.repeat(offsets, [len(p.table) for p in parts])
    return EventSet(np.concatenate([p.buf for p in parts]), table, full=True)


def _pieces(events: EventSet, i: int) -> Iterator[EventSet]:
    """Yield the events inside one compressed event."""
    kind, body = int(events.table[i, k.EV_TYPE]), events.get_event_body(i)
    if kind == ev.TRANSACTION_PAYLOAD:
        yield from _payload(events, i, body)
        return
    plain_kind, plain = (
        (ev.QUERY, decompress_query(body)) if kind == ev.MARIADB_QUERY_COMPRESSED else decompress_rows(kind, body)
    )
    table = events.table[i : i + 1].copy()
    table[0, k.EV_START], table[0, k.EV_LENGTH], table[0, k.EV_TYPE] = 0, k.HEADER + len(plain), plain_kind
    # EV_SIZE stays the size in the log: the event's position is computed from it
    yield EventSet(np.frombuffer(bytes(k.HEADER) + plain, np.uint8), table)


def _payload(events: EventSet, i: int, body: bytes) -> Iterator[EventSet]:
    """Yield the events of a compressed transaction, ``_PIECE`` bytes at a time."""
    rest = b""
    for data in decompress_payload(body, _PIECE):
        buf = np.frombuffer(rest + data, np.uint8)
        complete = _complete(buf)
        rest = buf[complete:].tobytes()
        if not complete:
            continue
        table = np.empty((max(complete // k.HEADER, 1), k.EV_FIELDS), np.int64)
        n, _, why = k.split_events(buf, 0, complete, table)
        if why == k.BAD_LENGTH:
            raise ValueError("an event inside a compressed transaction has an invalid length")
        table = table[:n].copy()
        table[:, k.EV_END] = events.table[i, k.EV_END]
        table[:, k.EV_SIZE] = events.table[i, k.EV_SIZE]
        yield EventSet(buf[:complete], table)
    if rest:
        raise ValueError("a compressed transaction ends inside an event")


def _complete(buf: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """Offset after the last complete event."""
    p = 0
    while len(buf) - p >= k.HEADER:
        size = int.from_bytes(buf[p + 9 : p + 13].tobytes(), "little")
        if size < k.HEADER or p + size > len(buf):
            break
        p += size
    return p


# -- one event --------------------------------------------------------------------------------------------------------


def mariadb_decompress(data: bytes) -> bytes:
    """Decompress MariaDB's form of a zlib stream: a byte with the width of the length, the length, the stream.

    :raises ValueError: the algorithm is unknown, or the length is wrong
    """
    width = data[0] & 0x07
    if data[0] & 0x70:
        raise ValueError(f"compression algorithm {(data[0] & 0x70) >> 4} is unknown")
    length = int.from_bytes(data[1 : 1 + width], "big")
    plain = zlib.decompress(data[1 + width :])
    if len(plain) != length:
        raise ValueError(f"decompression returned {len(plain)} bytes instead of {length}")
    return plain


def decompress_rows(event_type: int, body: bytes) -> tuple[int, bytes]:
    """Type and body of the plain row event inside a compressed one of MariaDB."""
    plain_type = ev.COMPRESSED_ROWS[event_type]
    c = ByteReader(body)
    c.read_bytes(8)
    if plain_type >= ev.WRITE_ROWS:
        c.read_bytes(c.read_uint(2) - 2)
    count = c.read_lenenc()
    c.read_bytes((count + 7) // 8 * (2 if plain_type in (ev.UPDATE_ROWS_V1, ev.UPDATE_ROWS) else 1))
    return plain_type, body[: c.pos] + mariadb_decompress(body[c.pos :])


def decompress_query(body: bytes) -> bytes:
    """Body of the plain QUERY event inside a compressed one of MariaDB."""
    db_length, status_length = body[8], int.from_bytes(body[11:13], "little")
    start = 13 + status_length + db_length + 1
    return body[:start] + mariadb_decompress(body[start:])


def decompress_payload(body: bytes, piece: int) -> Iterator[bytes]:
    """Yield the events inside a TRANSACTION_PAYLOAD event of MySQL, as bytes, about ``piece`` of them at a time."""
    c = ByteReader(body)
    algorithm = 0
    while (kind := c.read_lenenc()) != 0:
        value = ByteReader(c.read_bytes(c.read_lenenc()))
        if kind == 2:
            algorithm = value.read_lenenc()
    if algorithm == 255:
        yield c.read_rest()
    elif algorithm == 0:
        import zstandard

        yield from zstandard.ZstdDecompressor().read_to_iter(c.read_rest(), write_size=piece)
    else:
        raise ValueError(f"compression algorithm {algorithm} is unknown")
