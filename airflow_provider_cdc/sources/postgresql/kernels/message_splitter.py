"""Splits the byte stream of logical replication into messages of pgoutput."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.postgresql.kernels.big_endian import read_int32, read_int64
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import (
    BAD_MESSAGE,
    KEEPALIVE,
    MESSAGES_FULL,
    MSG_END,
    MSG_KIND,
    MSG_LSN,
    MSG_START,
    NEED_BYTES,
    OTHER_MESSAGE,
)

_COPY_DATA, _LOG_DATA, _ALIVE = ord("d"), ord("w"), ord("k")
_FRAME = 5
"""Bytes of a frame's type and length."""
_LOG_HEADER = 25
"""Bytes before a message of pgoutput: ``w``, LSN, end of the log, time of the server."""
_ALIVE_SIZE = 18


@jit
def split_messages(
    buf: npt.NDArray[np.uint8], start: int, end: int, messages: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """Find the messages of pgoutput in frames of the frontend/backend protocol ("Streaming Replication Protocol").

    :param messages: output, ``int64[messages, MSG_FIELDS]``
    :return: number of messages, offset of the first unused byte, and why it stopped
    """
    n, p = 0, start
    while n < len(messages):
        if end - p < _FRAME:
            return n, p, NEED_BYTES
        length = read_int32(buf, p + 1)
        if length < 4 or length > 0x7FFFFFFF:
            return n, p, BAD_MESSAGE
        if buf[p] != _COPY_DATA:
            return n, p, OTHER_MESSAGE
        if end - p < 1 + length:
            return n, p, NEED_BYTES
        body, after = p + _FRAME, p + 1 + length
        if after - body == _ALIVE_SIZE and buf[body] == _ALIVE:
            return n, p, KEEPALIVE
        if after - body <= _LOG_HEADER or buf[body] != _LOG_DATA:
            return n, p, BAD_MESSAGE
        messages[n, MSG_KIND] = buf[body + _LOG_HEADER]
        messages[n, MSG_START] = body + _LOG_HEADER + 1
        messages[n, MSG_END] = after
        messages[n, MSG_LSN] = read_int64(buf, body + 1)
        n += 1
        p = after
    return n, p, MESSAGES_FULL
