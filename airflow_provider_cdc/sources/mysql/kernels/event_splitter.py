"""Splits the byte stream of a binlog dump into events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import read_uint32
from airflow_provider_cdc.sources.mysql.kernels.crc import compute_crc32
from airflow_provider_cdc.sources.mysql.kernels.event_array_layout import (
    BAD_CHECKSUM,
    BAD_LENGTH,
    END_OF_FILE,
    EV_END,
    EV_FLAGS,
    EV_LENGTH,
    EV_SERVER,
    EV_SIZE,
    EV_START,
    EV_TIME,
    EV_TYPE,
    EVENTS_FULL,
    HEADER,
    MORE,
    SERVER_ERROR,
    SPLIT_PACKET,
)
from airflow_provider_cdc.sources.mysql.kernels.event_codes import ARTIFICIAL_FLAG, FORMAT_DESCRIPTION


@jit
def _header(buf: npt.NDArray[np.uint8], p: int, events: npt.NDArray[np.int64], n: int, checksum: int) -> None:
    size = read_uint32(buf, p + 9)
    events[n, EV_START] = p
    events[n, EV_LENGTH] = size - checksum
    events[n, EV_TYPE] = buf[p + 4]
    events[n, EV_TIME] = read_uint32(buf, p)
    events[n, EV_SERVER] = read_uint32(buf, p + 5)
    events[n, EV_END] = read_uint32(buf, p + 13)
    events[n, EV_FLAGS] = np.int64(buf[p + 17]) | np.int64(buf[p + 18]) << 8
    events[n, EV_SIZE] = size


@jit
def split_packets(
    buf: npt.NDArray[np.uint8], start: int, end: int, events: npt.NDArray[np.int64], checksum: int, largest: int
) -> tuple[int, int, int]:
    """Find the events in network packets: a length of 3 bytes, a sequence number, a status byte, the event.

    The search ends with a FORMAT_DESCRIPTION, which says whether the events after it have checksums.

    :param events: output, ``int64[events, EV_FIELDS]``
    :param checksum: 4 if events end in a CRC-32, which is verified; else 0
    :param largest: length of a packet whose event continues in the next packet
    :return: number of events, offset of the first unused byte, and why it stopped
    """
    n, p = 0, start
    while n < len(events):
        if end - p < 5:
            return n, p, MORE
        length = np.int64(buf[p]) | np.int64(buf[p + 1]) << 8 | np.int64(buf[p + 2]) << 16
        if buf[p + 4] == 0xFE and length < 9:
            return n, p, END_OF_FILE
        if length == largest and buf[p + 4] == 0:
            return n, p, SPLIT_PACKET
        if end - p < 4 + length:
            return n, p, MORE
        if buf[p + 4] != 0:
            return n, p, SERVER_ERROR
        q = p + 5
        size = length - 1
        if size < HEADER + checksum or read_uint32(buf, q + 9) != size:
            return n, p, BAD_LENGTH
        # a FORMAT_DESCRIPTION says whether there are checksums; artificial events are not in the file
        plain = buf[q + 4] != FORMAT_DESCRIPTION and not buf[q + 17] & ARTIFICIAL_FLAG
        if checksum and plain and compute_crc32(buf, q, q + size - 4) != read_uint32(buf, q + size - 4):
            return n, p, BAD_CHECKSUM
        _header(buf, q, events, n, checksum)
        n += 1
        p += 4 + length
        if not plain and buf[q + 4] == FORMAT_DESCRIPTION:
            break
    return n, p, EVENTS_FULL


@jit
def split_events(
    buf: npt.NDArray[np.uint8], start: int, end: int, events: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """Find the events in bytes without packets and checksums, as inside compressed transactions; else like :func:`split_packets`."""
    n, p = 0, start
    while n < len(events):
        if p == end:
            return n, p, MORE
        if end - p < HEADER:
            return n, p, BAD_LENGTH
        size = read_uint32(buf, p + 9)
        if size < HEADER or p + size > end:
            return n, p, BAD_LENGTH
        _header(buf, p, events, n, 0)
        n += 1
        p += size
    return n, p, EVENTS_FULL
