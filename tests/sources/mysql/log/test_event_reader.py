"""Events over packet borders: whatever the sizes, each comes once, whole and in its place."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.kernels import event_codes as code
from airflow_provider_cdc.sources.mysql.log.event_reader import LARGEST_PACKET, BinlogEventReader
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.sources.mysql.binlog import CONFIG, event, packets

START = MySqlPosition("binlog.000001", 4)
END = packets(b"\xfe\0\0\2\0")
OVERHEAD = 24
"""Bytes of a packet's payload beside an event's body: a status byte, a header, a checksum."""


def _encode_packets(events: Sequence[bytes], largest: int) -> bytes:
    return b"".join(packets(b"\0" + one, largest) for one in events) + END


@contextlib.contextmanager
def _reader(data: bytes, pieces: Sequence[int] = (1 << 20,), **options: Any) -> Iterator[BinlogEventReader]:
    ours, theirs = socket.socketpair()

    def send() -> None:
        at = turn = 0
        with theirs, contextlib.suppress(OSError):
            while at < len(data):
                size = pieces[turn % len(pieces)]
                theirs.sendall(data[at : at + size])
                at, turn = at + size, turn + 1

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    settled = {"checksums": True, "buffer": 1 << 12, "silence_s": 10.0, "largest": 100, **options}
    try:
        with ours:
            yield BinlogEventReader(ours, CONFIG, START, **settled)
    finally:
        thread.join()


def _read(reader: BinlogEventReader, keeps: random.Random | None = None) -> list[bytes]:
    """All events. Now and then the last ones are asked for again, as of a transaction that is not complete."""
    found: list[bytes] = []
    kept: list[bytes] = []
    for events in reader.read_events():
        assert events is not None
        whole = [
            bytes(events.buf[row[k.EV_START] : row[k.EV_START] + row[k.EV_SIZE]].tobytes()) for row in events.table
        ]
        assert whole[: len(kept)] == kept, "what was kept comes again, before all else"
        keep = keeps.randrange(len(whole) + 1) if keeps is not None and not events.full else len(whole)
        reader.keep_from(None if keep == len(whole) else keep)
        found += whole[:keep]
        kept = whole[keep:]
    return found + kept


_SIZES = st.one_of(
    st.integers(0, 30),
    st.builds(lambda packets, off: max(0, packets * 100 - OVERHEAD + off), st.integers(1, 60), st.integers(-2, 2)),
)


@settings(max_examples=150)
@given(
    sizes=st.lists(_SIZES, min_size=1, max_size=30),
    buffer=st.sampled_from([128, 600, 1 << 12]),
    pieces=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    checksums=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_events_of_all_sizes_come_once_and_in_order(
    sizes: list[int], buffer: int, pieces: list[int], checksums: bool, seed: int
) -> None:
    """H1a, R25: an event over packet borders is no exception; it keeps its place, also behind events that were kept."""
    bodies = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    events = [event(code.QUERY, body, 4, checksums=checksums) for body in bodies]
    data = _encode_packets(events, 100)
    with _reader(data, pieces, buffer=buffer, checksums=checksums) as reader:
        assert _read(reader, random.Random(seed)) == events
    with _reader(data, pieces, buffer=buffer, checksums=checksums) as reader:
        assert [one.tobytes() for one in reader.raw_events()] == events


def test_a_split_event_comes_behind_the_events_that_were_kept() -> None:
    """H1a: of a transaction that is not complete, as far as it is read, the first events are kept."""
    format_ = event(code.FORMAT_DESCRIPTION, bytes(57) + b"\0", 4)[:-4] + bytes(4)
    events = [format_, *(event(code.QUERY, bytes(size), 4, checksums=False) for size in (500, 10, 500))]

    class KeepAll(random.Random):
        def randrange(self, *_: Any) -> int:
            return 0

    with _reader(_encode_packets(events, 100), checksums=False) as reader:
        assert _read(reader, KeepAll()) == events


@pytest.mark.parametrize("packets_", [1, 2])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_events_around_the_real_border(packets_: int, off: int) -> None:
    sizes = [10, packets_ * LARGEST_PACKET - OVERHEAD + off, 10]
    events = [event(code.QUERY, bytes(size), 4) for size in sizes]
    for read in (lambda r: _read(r), lambda r: [one.tobytes() for one in r.raw_events()]):
        with _reader(_encode_packets(events, LARGEST_PACKET), buffer=4 << 20, largest=LARGEST_PACKET) as reader:
            assert read(reader) == events
            assert len(reader._buf) < 3 * packets_ * LARGEST_PACKET


def test_the_buffer_shrinks_after_a_large_event() -> None:
    events = [event(code.QUERY, bytes(size), 4) for size in [1 << 16, *[100] * 3000]]
    with _reader(_encode_packets(events, 100)) as reader:
        assert _read(reader) == events
        assert len(reader._buf) == 1 << 12


@pytest.mark.parametrize(
    ("read", "damage"),
    [
        *(("read_events", damage) for damage in ("cut", "length", "checksum", "hung up")),
        # which reads heads of files, and verifies the checksum of the format alone
        *(("raw_events", damage) for damage in ("cut", "length", "hung up")),
    ],
)
def test_a_split_event_that_is_damaged_is_an_error(read: str, damage: str) -> None:
    whole = bytearray(event(code.QUERY, bytes(range(200)), 4))
    if damage == "length":
        whole[9] += 1
    if damage == "checksum":
        whole[100] += 1
    data = packets(b"\0" + bytes(whole), 100)
    if damage == "cut":  # its last packet is another event
        data = data[:208] + packets(b"\0" + event(code.QUERY, b"x", 4), 100)
    data = data[:250] if damage == "hung up" else data + END
    with _reader(data) as reader, pytest.raises(SourceUnavailable if damage == "hung up" else SourceLogDamaged):
        for _ in getattr(reader, read)():
            pass


def test_a_format_ends_its_set_whatever_follows_it() -> None:
    """It says whether the events after it have checksums, also those over packet borders."""
    format_ = event(code.FORMAT_DESCRIPTION, bytes(57) + b"\0", 4)[:-4] + bytes(4)
    events = [format_, *(event(code.QUERY, bytes(size), 4, checksums=False) for size in (10, 500, 10))]
    with _reader(_encode_packets(events, 1 << 20), largest=1 << 20) as reader:
        assert _read(reader) == events
    with _reader(_encode_packets(events, 100), largest=100, checksums=False) as reader:
        found = _read(reader)
    assert np.cumsum([len(one) for one in found])[-1] == sum(map(len, events))
