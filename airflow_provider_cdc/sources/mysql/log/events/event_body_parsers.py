"""Parsing of events that are not rows: ROTATE, FORMAT_DESCRIPTION, MariaDB's GTID, XA_PREPARE.

Formats are those of "Binary Log Event" in the MySQL internals documentation and of "Replication Protocol" in MariaDB's. A body
is an event without its 19-byte header and without its checksum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader


def parse_rotate(body: bytes) -> tuple[str, int]:
    """Name of the next log file and the offset in it, from a ROTATE event."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def has_checksums(body: bytes) -> bool:
    """Check whether events end in a CRC-32.

    :param body: of a FORMAT_DESCRIPTION event, with its own checksum
    """
    return body[-5] == 1


@dataclass(slots=True)
class MariaDbGtid:
    """A GTID event of MariaDB.

    :param extra: the second byte of flags, 0 if the event has none
    """

    domain: int
    sequence: int
    flags: int
    extra: int

    STANDALONE = 1
    GROUP_COMMIT = 2
    DDL = 32
    PREPARED_XA = 64
    COMPLETED_XA = 128

    EXTRA_START_ALTER = 2
    EXTRA_COMMIT_ALTER = 4
    EXTRA_ROLLBACK_ALTER = 8


def parse_mariadb_gtid(body: bytes) -> MariaDbGtid:
    """Read a GTID event of MariaDB.

    :raises ValueError: the event is shorter than it says
    """
    c = ByteReader(body)
    sequence, domain, flags = c.read_uint(8), c.read_uint(4), c.read_uint(1)
    if flags & MariaDbGtid.GROUP_COMMIT:
        c.read_bytes(8)
    if flags & (MariaDbGtid.PREPARED_XA | MariaDbGtid.COMPLETED_XA):
        c.read_bytes(4)
        c.read_bytes(c.read_uint(1) + c.read_uint(1))
    return MariaDbGtid(domain, sequence, flags, c.read_uint(1) if c.has_more else 0)


def commit_time(body: bytes) -> int:
    """Return the time when a transaction was first committed, µs since the epoch; 0 = not known.

    It comes from a GTID or ANONYMOUS_GTID event of MySQL; replicas keep it.

    :param body: of an event without a tag
    """
    at = 42  # after flags, UUID, number and logical clock
    immediate = int.from_bytes(body[at : at + 7], "little")
    if immediate >> 55:  # the original time follows, as a replica has committed it later
        return int.from_bytes(body[at + 7 : at + 14], "little")
    return immediate


def xa_id(body: bytes) -> str:
    """Return the XA id of an XA_PREPARE event, as ``XA COMMIT`` spells it."""
    format_id, global_length, branch_length = struct.unpack_from("<III", body, 1)
    data = body[13 : 13 + global_length + branch_length]
    return f"X'{data[:global_length].hex()}',X'{data[global_length:].hex()}',{format_id}"
