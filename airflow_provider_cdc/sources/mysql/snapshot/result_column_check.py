"""Column definitions of a result set: whether a query returns its values in the types that the reader expects."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader

COM_STMT_PREPARE, COM_STMT_CLOSE = 0x16, 0x19


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column definition packet.

    :param charset: collation number; 63 for bytes and numbers
    :param length: greatest length of a value, bytes
    :param type: see ``columns/column_type_codes.py``
    """

    name: str
    charset: int
    length: int
    type: int
    flags: int
    decimals: int

    @classmethod
    def parse(cls, packet: bytes) -> ResultColumn:
        c = ByteReader(packet)
        parts = [
            c.read_bytes(c.read_lenenc()) for _ in range(6)
        ]  # catalog, database, table, its own name; name, its own name
        c.read_lenenc()
        return cls(parts[4].decode("utf-8", "replace"), *struct.unpack_from("<HIBHB", c.read_rest()))

    def has_same_encoding(self, other: ResultColumn) -> bool:
        """Check whether the values of both columns are encoded the same way."""
        return self._form() == other._form()

    def _form(self) -> tuple[object, ...]:
        if self.type in _STRINGS:
            return "bytes" if self.charset == 63 else "text", 0, 0
        sized = self.type in (w.T_NEWDECIMAL, w.T_BIT)
        unsigned = self.flags & _UNSIGNED if self.type in _NUMBERS else 0
        return _SAME.get(self.type, self.type), unsigned, (self.length, self.decimals) if sized else 0

    def __str__(self) -> str:
        unsigned = " unsigned" if self.flags & _UNSIGNED and self.type in _NUMBERS else ""
        kind = self._form()[0] if self.type in _STRINGS else _TYPE_NAMES.get(self.type, f"type {self.type}")
        return f"{self.name} {kind}{unsigned}" + (f"({self.length})" if self.type in (w.T_NEWDECIMAL, w.T_BIT) else "")


_UNSIGNED: Final = 0x20
_NUMBERS: Final = {w.T_TINY, w.T_SHORT, w.T_LONG, w.T_LONGLONG, w.T_INT24}
_STRINGS: Final = {w.T_VARCHAR, w.T_ENUM, w.T_SET, 249, 250, 251, w.T_BLOB, w.T_VAR_STRING, w.T_STRING}
_SAME: Final = {w.T_NEWDATE: w.T_DATE, w.T_INT24: w.T_LONG}
_TYPE_NAMES: Final = {
    w.T_TINY: "tinyint", w.T_SHORT: "smallint", w.T_LONG: "int", w.T_INT24: "mediumint", w.T_LONGLONG: "bigint",
    w.T_FLOAT: "float", w.T_DOUBLE: "double", w.T_NEWDECIMAL: "decimal", w.T_DATE: "date", w.T_TIME: "time",
    w.T_DATETIME: "datetime", w.T_TIMESTAMP: "timestamp", w.T_YEAR: "year", w.T_BIT: "bit", w.T_JSON: "json",
    w.T_GEOMETRY: "geometry", w.T_VECTOR: "vector", 6: "null",
}  # fmt: skip


class UnexpectedColumn(Exception):
    """A column of a result set has another type than expected."""

    def __init__(self, actual: ResultColumn, expected: ResultColumn) -> None:
        self.actual, self.expected = actual, expected
        super().__init__(f"{actual} instead of {expected}")


def result_columns(connection: Connection, sql: str) -> list[ResultColumn]:
    """Return the column definitions of a query. The query is prepared, not executed."""
    c: Any = connection
    c._execute_command(COM_STMT_PREPARE, sql)
    statement, ncols, nparams = struct.unpack_from("<IHH", c._read_packet()._data, 1)
    packets = [c._read_packet()._data for count in (nparams, ncols) for _ in range(count + (1 if count else 0))]
    connection._sock.sendall(struct.pack("<I", 5)[:3] + b"\0" + struct.pack("<BI", COM_STMT_CLOSE, statement))
    return [ResultColumn.parse(packet) for packet in packets[-ncols - 1 : -1]]
