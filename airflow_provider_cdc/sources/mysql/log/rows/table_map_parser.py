"""Parsing of TABLE_MAP events: a table's columns, their types, and the optional metadata (``binlog_row_metadata``)."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader

_NUMERIC = {w.T_TINY, w.T_SHORT, w.T_LONG, w.T_FLOAT, w.T_DOUBLE, w.T_LONGLONG, w.T_INT24, w.T_NEWDECIMAL}
_ONE_META = {
    w.T_FLOAT,
    w.T_DOUBLE,
    w.T_BLOB,
    w.T_JSON,
    w.T_GEOMETRY,
    w.T_TIMESTAMP2,
    w.T_DATETIME2,
    w.T_TIME2,
    w.T_BLOB_COMPRESSED,
    w.T_VECTOR,
}
_TWO_META = {
    w.T_VARCHAR,
    w.T_VAR_STRING,
    w.T_STRING,
    w.T_NEWDECIMAL,
    w.T_BIT,
    w.T_ENUM,
    w.T_SET,
    w.T_VARCHAR_COMPRESSED,
}


@dataclass(slots=True)
class ColumnCollations:
    """Collation numbers of the columns of one kind (character columns, or ENUM and SET columns).

    :param default: collation of the columns that ``numbers`` does not have
    :param numbers: index among the columns of the kind → collation
    """

    default: int = 0
    numbers: dict[int, int] = field(default_factory=dict)

    def get_collation(self, number: int) -> int:
        return self.numbers.get(number, self.default)


@dataclass(slots=True)
class TableMap:
    """A TABLE_MAP event: the log's description of a table for the row events after it.

    :param mariadb: written by MariaDB, whose metadata cover other columns than MySQL's
    :param types: wire type per column (``columns/column_type_codes.py``), with ENUM and SET in place of the STRING that carries them
    :param meta: type parameters per column, as stored
    :param names: column names; ``None`` if ``binlog_row_metadata`` was not FULL when the rows were written
    :param unsigned: per column; ``None`` if not known
    :param unsigned_with_years: ``unsigned`` if the server counts YEAR among the numeric columns; ``None`` if there is no such doubt
    :param collations: of the character columns
    :param member_collations: of the ENUM and SET columns
    :param values: index of an ENUM or SET column → its members
    :param primary_key: indices of the key columns; ``None`` if not logged
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
    collations: ColumnCollations = field(default_factory=lambda: ColumnCollations())
    member_collations: ColumnCollations = field(default_factory=lambda: ColumnCollations())
    values: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    primary_key: tuple[int, ...] | None = None


def parse_table_map(body: bytes, *, mariadb: bool) -> TableMap:
    """Parse a TABLE_MAP event.

    :param mariadb: written by MariaDB, which logs a sign for YEAR columns; MySQL does so in some versions only
    :raises ValueError: the event is truncated
    """
    c = ByteReader(body)
    table_id = c.read_uint(6)
    c.read_bytes(2)
    database = c.read_bytes(c.read_uint(1)).decode()
    c.read_bytes(1)
    table = c.read_bytes(c.read_lenenc()).decode()
    c.read_bytes(1)
    count = c.read_lenenc()
    types = list(c.read_bytes(count))
    meta_block = ByteReader(c.read_bytes(c.read_lenenc()))
    meta = [_column_meta(t, meta_block) for t in types]
    bits = c.read_bytes((count + 7) // 8)
    nullable = [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(count)]
    for i, (t, m) in enumerate(zip(types, meta, strict=True)):
        if t == w.T_STRING and m >> 8 in (w.T_ENUM, w.T_SET):
            types[i] = m >> 8
    table_map = TableMap(mariadb, table_id, database, table, types, meta, nullable)
    while c.has_more:
        kind = c.read_uint(1)
        _optional(table_map, kind, c.read_bytes(c.read_lenenc()), _NUMERIC | {w.T_YEAR} if mariadb else _NUMERIC)
    return table_map


def _column_meta(column_type: int, c: ByteReader) -> int:
    """Type parameters of a column. For strings and decimals the first byte is the high one."""
    if column_type in _ONE_META:
        return c.read_uint(1)
    if column_type in (w.T_STRING, w.T_ENUM, w.T_SET, w.T_NEWDECIMAL):
        return int.from_bytes(c.read_bytes(2), "big")
    return c.read_uint(2) if column_type in _TWO_META else 0


def _signs(types: list[int], bits: bytes, counted: set[int]) -> list[bool]:
    """Return whether each column is unsigned, from the bit field.

    It has one bit per column of the ``counted`` types.
    """
    unsigned = [False] * len(types)
    for n, i in enumerate(i for i, t in enumerate(types) if t in counted):
        unsigned[i] = n >> 3 < len(bits) and bool(bits[n >> 3] & (0x80 >> (n & 7)))
    return unsigned


def _optional(table_map: TableMap, kind: int, value: bytes, signed: set[int]) -> None:
    """Parse one field of the optional metadata."""
    c = ByteReader(value)
    match kind:  # geometry types, visibility and vector dimensions are not needed to read rows
        case 1:
            table_map.unsigned = _signs(table_map.types, value, signed)
            if w.T_YEAR in table_map.types and w.T_YEAR not in signed:
                table_map.unsigned_with_years = _signs(table_map.types, value, signed | {w.T_YEAR})
        case 2:
            table_map.collations = _default_and_others(c)
        case 3:
            table_map.collations = _one_by_one(c)
        case 10:
            table_map.member_collations = _default_and_others(c)
        case 11:
            table_map.member_collations = _one_by_one(c)
        case 4:
            names = []
            while c.has_more:
                names.append(c.read_bytes(c.read_lenenc()).decode())
            table_map.names = names
        case 5 | 6:
            member_type = w.T_SET if kind == 5 else w.T_ENUM
            for i in (i for i, t in enumerate(table_map.types) if t == member_type):
                count = c.read_lenenc()
                table_map.values[i] = tuple(c.read_bytes(c.read_lenenc()) for _ in range(count))
        case 8 | 9:
            key = []
            while c.has_more:
                key.append(c.read_lenenc())
                if kind == 9:
                    c.read_lenenc()  # length of the part of the column that is in the key
            table_map.primary_key = tuple(key)


def _default_and_others(c: ByteReader) -> ColumnCollations:
    collations = ColumnCollations(c.read_lenenc())
    while c.has_more:
        number = c.read_lenenc()
        collations.numbers[number] = c.read_lenenc()
    return collations


def _one_by_one(c: ByteReader) -> ColumnCollations:
    collations = ColumnCollations()
    while c.has_more:
        collations.numbers[len(collations.numbers)] = c.read_lenenc()
    return collations
