"""Events of the binary log other than rows: their codes, and what is read out of each, in plain Python.

Formats are those of "Binary Log Event" in the MySQL internals documentation and of "Replication Protocol" in MariaDB's. A body
here is an event without its 19-byte header and without its checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_cdc.core.errors import UnknownLogEvent

# -- event types -----------------------------------------------------------------------------------------------------------------
QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
TABLE_MAP: Final = 19
INCIDENT: Final = 26
HEARTBEAT: Final = 27
ROWS_QUERY: Final = 29
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
GTID_TAGGED: Final = 42
MARIADB_ANNOTATE: Final = 160
MARIADB_GTID: Final = 162
MARIADB_GTID_LIST: Final = 163
MARIADB_START_ENCRYPTION: Final = 164
MARIADB_QUERY_COMPRESSED: Final = 165

ROWS: Final = frozenset({23, 24, 25, 30, 31, 32})
COMPRESSED_ROWS: Final = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""MariaDB's compressed row events → the type they hold."""
HARMLESS: Final = {
    STOP: "STOP",
    5: "INTVAR",
    13: "RAND",
    14: "USER_VAR",
    HEARTBEAT: "HEARTBEAT",
    28: "IGNORABLE",
    PREVIOUS_GTIDS: "PREVIOUS_GTIDS",
    36: "TRANSACTION_CONTEXT",
    37: "VIEW_CHANGE",
    41: "HEARTBEAT_V2",
    161: "BINLOG_CHECKPOINT",
    MARIADB_GTID_LIST: "GTID_LIST",
    MARIADB_START_ENCRYPTION: "START_ENCRYPTION",
}
"""Events that hold no data of tables: INTVAR, RAND and USER_VAR only prepare a statement that follows."""
FRAMES: Final = frozenset({XID, GTID, ANONYMOUS_GTID, GTID_TAGGED})
"""Events that a transaction begins or ends with; MariaDB's own has its place among what is read."""
IGNORABLE_FLAG: Final = 0x80
ARTIFICIAL_FLAG: Final = 0x20

NAMES: Final = {
    1: "START_V3", QUERY: "QUERY", ROTATE: "ROTATE", 6: "LOAD", 8: "CREATE_FILE", 9: "APPEND_BLOCK", 10: "EXEC_LOAD",
    11: "DELETE_FILE", 12: "NEW_LOAD", FORMAT_DESCRIPTION: "FORMAT_DESCRIPTION", XID: "XID", 17: "BEGIN_LOAD_QUERY",
    18: "EXECUTE_LOAD_QUERY", TABLE_MAP: "TABLE_MAP", 20: "PRE_GA_WRITE_ROWS", 21: "PRE_GA_UPDATE_ROWS",
    22: "PRE_GA_DELETE_ROWS", INCIDENT: "INCIDENT", PARTIAL_UPDATE_ROWS: "PARTIAL_UPDATE_ROWS",
    TRANSACTION_PAYLOAD: "TRANSACTION_PAYLOAD", GTID_TAGGED: "GTID_TAGGED", MARIADB_QUERY_COMPRESSED: "QUERY_COMPRESSED",
}  # fmt: skip

# -- column types ----------------------------------------------------------------------------------------------------------------
T_TINY, T_SHORT, T_LONG, T_FLOAT, T_DOUBLE, T_TIMESTAMP, T_LONGLONG, T_INT24 = 1, 2, 3, 4, 5, 7, 8, 9
T_DATE, T_TIME, T_DATETIME, T_YEAR, T_NEWDATE, T_VARCHAR, T_BIT = 10, 11, 12, 13, 14, 15, 16
T_TIMESTAMP2, T_DATETIME2, T_TIME2 = 17, 18, 19
T_BLOB_COMPRESSED, T_VARCHAR_COMPRESSED = 140, 141
T_VECTOR, T_JSON, T_NEWDECIMAL, T_ENUM, T_SET, T_BLOB, T_VAR_STRING, T_STRING, T_GEOMETRY = (
    242, 245, 246, 247, 248, 252, 253, 254, 255,
)  # fmt: skip
_NUMERIC = {T_TINY, T_SHORT, T_LONG, T_FLOAT, T_DOUBLE, T_LONGLONG, T_INT24, T_NEWDECIMAL}
TEXTUAL: Final = frozenset(
    {T_VARCHAR, T_VAR_STRING, T_STRING, T_BLOB, T_BLOB_COMPRESSED, T_VARCHAR_COMPRESSED, T_VECTOR}
)
"""Types that have a collation, be it only that of bytes. With MariaDB spatial types have one as well."""
_ONE_META = {
    T_FLOAT,
    T_DOUBLE,
    T_BLOB,
    T_JSON,
    T_GEOMETRY,
    T_TIMESTAMP2,
    T_DATETIME2,
    T_TIME2,
    T_BLOB_COMPRESSED,
    T_VECTOR,
}
_TWO_META = {T_VARCHAR, T_VAR_STRING, T_STRING, T_NEWDECIMAL, T_BIT, T_ENUM, T_SET, T_VARCHAR_COMPRESSED}


class Cursor:
    """Reads the little-endian and length-encoded numbers of the protocol one after the other."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data, self.pos = data, pos

    def take(self, n: int) -> bytes:
        if n < 0 or self.pos + n > len(self.data):
            raise ValueError(f"event ends at byte {len(self.data)}, byte {self.pos + n} was asked for")
        part = self.data[self.pos : self.pos + n]
        self.pos += n
        return part

    def uint(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def lenenc(self) -> int:
        first = self.uint(1)
        if first in (0xFB, 0xFF):
            raise ValueError(f"a length begins with {first:#x}, which is none")
        return first if first < 0xFB else self.uint({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.pos)

    @property
    def more(self) -> bool:
        return self.pos < len(self.data)


@dataclass(slots=True)
class Collations:
    """Collation numbers as stored: of all columns of a kind in order, or a default and what differs from it.

    The keys of ``numbers`` count columns of the kind.
    """

    default: int = 0
    numbers: dict[int, int] = field(default_factory=dict)

    def of(self, place: int) -> int:
        return self.numbers.get(place, self.default)


@dataclass(slots=True)
class TableMap:
    """What the log says of a table at this place.

    :param mariadb: written by MariaDB, whose metadata counts other columns than MySQL's
    :param types: column types, with ENUM and SET in place of the STRING that carries them
    :param meta: type parameters as stored
    :param names: ``None`` where the server's ``binlog_row_metadata`` was not FULL when the row was written
    :param unsigned: per column, ``None`` where it is not known
    :param collations: of the columns of characters, and apart from them of the ENUM and SET columns
    :param values: members per ENUM or SET column
    """

    mariadb: bool
    table_id: int
    database: str
    table: str
    types: list[int]
    meta: list[int]
    nullable: list[bool]
    names: list[str] | None = None
    unsigned: list[bool] | None = None
    unsigned_with_years: list[bool] | None = None
    collations: Collations = field(default_factory=lambda: Collations())
    member_collations: Collations = field(default_factory=lambda: Collations())
    values: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    primary_key: tuple[int, ...] | None = None


def parse_table_map(body: bytes, *, mariadb: bool) -> TableMap:
    """Read a TABLE_MAP event.

    :param mariadb: MariaDB tells whether a YEAR is unsigned, MySQL counts it among the types that have no sign
    :raises ValueError: the event is shorter than it says
    """
    c = Cursor(body)
    table_id = c.uint(6)
    c.take(2)
    database = c.take(c.uint(1)).decode()
    c.take(1)
    table = c.take(c.lenenc()).decode()
    c.take(1)
    count = c.lenenc()
    types = list(c.take(count))
    meta_block = Cursor(c.take(c.lenenc()))
    meta = [_column_meta(t, meta_block) for t in types]
    bits = c.take((count + 7) // 8)
    nullable = [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(count)]
    for i, (t, m) in enumerate(zip(types, meta, strict=True)):
        if t == T_STRING and m >> 8 in (T_ENUM, T_SET):
            types[i] = m >> 8
    found = TableMap(mariadb, table_id, database, table, types, meta, nullable)
    while c.more:
        kind = c.uint(1)
        _optional(found, kind, c.take(c.lenenc()), _NUMERIC | {T_YEAR} if mariadb else _NUMERIC)
    return found


def _column_meta(column_type: int, c: Cursor) -> int:
    """Type parameters. For strings and decimals the first byte is the high one."""
    if column_type in _ONE_META:
        return c.uint(1)
    if column_type in (T_STRING, T_ENUM, T_SET, T_NEWDECIMAL):
        return int.from_bytes(c.take(2), "big")
    return c.uint(2) if column_type in _TWO_META else 0


def _signs(types: list[int], bits: bytes, counted: set[int]) -> list[bool]:
    """Whether each column is unsigned, from one bit per column of the types that are counted."""
    unsigned = [False] * len(types)
    for n, i in enumerate(i for i, t in enumerate(types) if t in counted):
        unsigned[i] = n >> 3 < len(bits) and bool(bits[n >> 3] & (0x80 >> (n & 7)))
    return unsigned


def _optional(found: TableMap, kind: int, value: bytes, signed: set[int]) -> None:
    """One field of the optional metadata."""
    c = Cursor(value)
    match kind:  # geometry types, visibility and vector dimensions are not needed to read rows
        case 1:
            found.unsigned = _signs(found.types, value, signed)
            if T_YEAR in found.types and T_YEAR not in signed:
                found.unsigned_with_years = _signs(found.types, value, signed | {T_YEAR})
        case 2:
            found.collations = _default_and_others(c)
        case 3:
            found.collations = _one_by_one(c)
        case 10:
            found.member_collations = _default_and_others(c)
        case 11:
            found.member_collations = _one_by_one(c)
        case 4:
            names = []
            while c.more:
                names.append(c.take(c.lenenc()).decode())
            found.names = names
        case 5 | 6:
            wanted = T_SET if kind == 5 else T_ENUM
            for i in (i for i, t in enumerate(found.types) if t == wanted):
                count = c.lenenc()
                found.values[i] = tuple(c.take(c.lenenc()) for _ in range(count))
        case 8 | 9:
            key = []
            while c.more:
                key.append(c.lenenc())
                if kind == 9:
                    c.lenenc()  # length of the part of the column that is in the key
            found.primary_key = tuple(key)


def _default_and_others(c: Cursor) -> Collations:
    found = Collations(c.lenenc())
    while c.more:
        place = c.lenenc()
        found.numbers[place] = c.lenenc()
    return found


def _one_by_one(c: Cursor) -> Collations:
    found = Collations()
    while c.more:
        found.numbers[len(found.numbers)] = c.lenenc()
    return found


# -- other events -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Query:
    """A QUERY event: a statement, in the database it ran in.

    :param error: what the server answered; not 0 when the statement failed after it had changed something
    """

    thread: int
    error: int
    database: str
    sql: str
    sql_mode: int

    @property
    def strict(self) -> bool:
        """Whether the session refused values that do not fit, instead of bending them."""
        return bool(self.sql_mode & (0x200000 | 0x400000))


def parse_query(body: bytes, codec: Callable[[int], str]) -> Query:
    """Read a QUERY event.

    :param codec: collation number → Python codec of the session's character set, in which the text is written
    """
    thread, _seconds, db_length, error, status_length = struct.unpack_from("<IIBHH", body)
    sql_mode, collation = _session(body[13 : 13 + status_length])
    start = 13 + status_length
    database = body[start : start + db_length].decode("utf-8", "replace")
    text = body[start + db_length + 1 :].decode("utf-8" if collation is None else codec(collation), "backslashreplace")
    return Query(thread, error, database, text, sql_mode)


def _session(status: bytes) -> tuple[int, int | None]:
    """The session's ``sql_mode`` and the number of its ``character_set_client``, out of the status variables.

    They are written in a fixed order; what may come before these two is known, and nothing after them is of interest.
    """
    c, sql_mode = Cursor(status), 0
    while c.more:
        match c.uint(1):
            case 0 | 3:  # flags, step of AUTO_INCREMENT
                c.take(4)
            case 1:
                sql_mode = c.uint(8)
            case 6:  # catalogue
                c.take(c.uint(1))
            case 4:
                return sql_mode, c.uint(2)
            case _:
                break
    return sql_mode, None


def parse_rotate(body: bytes) -> tuple[str, int]:
    """Next file and the position in it."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def has_checksums(body: bytes) -> bool:
    """Whether, by a FORMAT_DESCRIPTION event (with its own checksum still on), events end in a CRC-32."""
    return body[-5] == 1


@dataclass(slots=True)
class MariaDbGtid:
    """A GTID event of MariaDB.

    :param extra: the second byte of flags, 0 where the event has none
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
    c = Cursor(body)
    sequence, domain, flags = c.uint(8), c.uint(4), c.uint(1)
    if flags & MariaDbGtid.GROUP_COMMIT:
        c.take(8)
    if flags & (MariaDbGtid.PREPARED_XA | MariaDbGtid.COMPLETED_XA):
        c.take(4)
        c.take(c.uint(1) + c.uint(1))
    return MariaDbGtid(domain, sequence, flags, c.uint(1) if c.more else 0)


def xa_id(body: bytes) -> str:
    """The XA id of an XA_PREPARE event, as ``XA COMMIT`` spells it."""
    format_id, global_length, branch_length = struct.unpack_from("<III", body, 1)
    data = body[13 : 13 + global_length + branch_length]
    return f"X'{data[:global_length].hex()}',X'{data[global_length:].hex()}',{format_id}"


def mariadb_uncompress(data: bytes) -> bytes:
    """MariaDB's form of a zlib stream: a byte with the width of the length, the length, the stream."""
    width = data[0] & 0x07
    if data[0] & 0x70:
        raise ValueError(f"compression algorithm {(data[0] & 0x70) >> 4} is not known")
    length = int.from_bytes(data[1 : 1 + width], "big")
    plain = zlib.decompress(data[1 + width :])
    if len(plain) != length:
        raise ValueError(f"{len(plain)} bytes came out of {length}")
    return plain


def uncompress_rows(event_type: int, body: bytes) -> tuple[int, bytes]:
    """A compressed row event of MariaDB as the plain one: type and body."""
    plain_type = COMPRESSED_ROWS[event_type]
    c = Cursor(body)
    c.take(8)
    if plain_type >= 30:
        c.take(c.uint(2) - 2)
    count = c.lenenc()
    c.take((count + 7) // 8 * (2 if plain_type in (24, 31) else 1))
    return plain_type, body[: c.pos] + mariadb_uncompress(body[c.pos :])


def uncompress_query(body: bytes) -> bytes:
    """A compressed QUERY event of MariaDB as the plain one."""
    db_length, status_length = body[8], int.from_bytes(body[11:13], "little")
    start = 13 + status_length + db_length + 1
    return body[:start] + mariadb_uncompress(body[start:])


def uncompress_payload(body: bytes, piece: int) -> Iterator[bytes]:
    """The events inside a TRANSACTION_PAYLOAD event of MySQL, as bytes, about ``piece`` of them at a time."""
    c = Cursor(body)
    algorithm = 0
    while (kind := c.lenenc()) != 0:
        value = Cursor(c.take(c.lenenc()))
        if kind == 2:
            algorithm = value.lenenc()
    if algorithm == 255:
        yield c.rest()
    elif algorithm == 0:
        import zstandard

        yield from zstandard.ZstdDecompressor().read_to_iter(c.rest(), write_size=piece)
    else:
        raise ValueError(f"compression algorithm {algorithm} is not known")


def unknown_event(event_type: int, where: str, why: str = "it is not known to this release") -> UnknownLogEvent:
    """An event that may carry data and cannot be read."""
    return UnknownLogEvent(
        f"The binary log holds an event of type {event_type} ({NAMES.get(event_type, 'no name')}): {why}.",
        where=where,
        safe="Everything before it is captured; the offset stands before its transaction.",
        remedy="see docs/sources/mysql.md#events for what can be read; to go on past it, read the tables again with "
        "snapshot.mode=always for one run",
    )
