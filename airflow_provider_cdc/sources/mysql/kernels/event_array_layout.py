"""Columns of the fields of an event in a set of events, and reasons why splitting a byte stream has stopped.

Plain numbers, without numba.
"""

from __future__ import annotations

from typing import Final

EV_START: Final = 0  # offset of the event's header in the buffer
EV_LENGTH: Final = 1  # header included, checksum left out
EV_TYPE: Final = 2
EV_TIME: Final = 3  # seconds
EV_SERVER: Final = 4
EV_END: Final = 5  # offset in the log file after the event, its low 32 bits
EV_FLAGS: Final = 6
EV_SIZE: Final = 7  # as the header says, checksum included
EV_FIELDS: Final = 8
HEADER: Final = 19

MORE: Final = 0  # the buffer ends inside a packet
SPLIT_PACKET: Final = 1  # a packet of the largest size, whose event continues in the next one
END_OF_FILE: Final = 2  # the server ended the stream
SERVER_ERROR: Final = 3  # an error packet
BAD_CHECKSUM: Final = 4
BAD_LENGTH: Final = 5
EVENTS_FULL: Final = 6  # no room for another event, or the last one was a FORMAT_DESCRIPTION

MAP_DESCRIPTION: Final = (
    8  # offset in the body of a table map after its table id and flags, which change while the table stays the same
)
