"""The splitter of messages: cut anywhere, damaged anywhere."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.kernels.message_splitter import split_messages

LSNS = st.integers(0, (1 << 63) - 1)
MESSAGES = st.lists(st.tuples(LSNS, st.binary(min_size=1, max_size=40)), max_size=20)


def frame(body: bytes, kind: bytes = b"d") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def log_data(lsn: int, message: bytes) -> bytes:
    return frame(struct.pack("!cqqq", b"w", lsn, lsn, 0) + message)


def split(data: bytes, start: int = 0, room: int = 1000, split: Any = split_messages) -> tuple[list[Any], int, int]:
    """Split a copy without a byte to spare, so that a read beyond the end is seen (``NUMBA_BOUNDSCHECK=1``)."""
    buf, messages = np.frombuffer(data, np.uint8).copy(), np.zeros((room, layout.MSG_FIELDS), np.int64)
    n, after, why = split(buf, start, len(buf), messages)
    found = [
        (int(lsn), bytes([kind]) + data[begin:end])
        for kind, begin, end, lsn in messages[:n, [layout.MSG_KIND, layout.MSG_START, layout.MSG_END, layout.MSG_LSN]].tolist()
    ]  # fmt: skip
    return found, after, why


@given(MESSAGES, st.data())
def test_messages_are_found_wherever_the_bytes_are_cut(messages: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(log_data(*message) for message in messages)
    cut = data.draw(st.integers(0, len(stream)))
    found, after, why = split(stream[:cut])
    assert why == layout.NEED_BYTES
    rest, end, why = split(stream, after)
    assert (found + rest, end, why) == (messages, len(stream), layout.NEED_BYTES)


@given(MESSAGES, st.integers(1, 3))
def test_an_array_without_room_ends_the_search_behind_its_last_message(
    messages: list[tuple[int, bytes]], room: int
) -> None:
    stream = b"".join(log_data(*message) for message in messages)
    found, after, why = split(stream, room=room)
    assert found == messages[:room]
    assert why == (layout.MESSAGES_FULL if len(messages) >= room else layout.NEED_BYTES)
    assert after == sum(len(log_data(*message)) for message in found)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(struct.pack("!cqqb", b"k", 9, 0, 1)), layout.KEEPALIVE),
        (frame(b"SERROR\0\0", b"E"), layout.OTHER_MESSAGE),
        (frame(b"", b"c"), layout.OTHER_MESSAGE),
        (frame(struct.pack("!cqqq", b"w", 1, 1, 0)), layout.BAD_MESSAGE),
        (frame(b"x" * 30), layout.BAD_MESSAGE),
        (frame(b""), layout.BAD_MESSAGE),
        (b"d\0\0\0\3", layout.BAD_MESSAGE),
        (b"d\xff\xff\xff\xff", layout.BAD_MESSAGE),
    ],
)
def test_other_messages_end_the_search_before_them(data: bytes, reason: int) -> None:
    first = log_data(7, b"I1")
    for splitter in (split_messages, split_messages.py_func):
        assert split(first + data, split=splitter) == ([(7, b"I1")], len(first), reason)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_whatever_the_bytes_are_nothing_behind_them_is_read(data: bytes, start: int) -> None:
    found, after, why = split(data, min(start, len(data)), split=split_messages.py_func)
    assert after <= len(data)
    assert why in (layout.NEED_BYTES, layout.KEEPALIVE, layout.OTHER_MESSAGE, layout.BAD_MESSAGE)
    assert all(len(message) >= 1 for _, message in found)
