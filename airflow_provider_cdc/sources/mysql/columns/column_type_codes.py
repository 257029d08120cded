"""Type codes of columns in the client protocol and in the binary log."""

from __future__ import annotations

from typing import Final

T_TINY, T_SHORT, T_LONG, T_FLOAT, T_DOUBLE, T_TIMESTAMP, T_LONGLONG, T_INT24 = 1, 2, 3, 4, 5, 7, 8, 9
T_DATE, T_TIME, T_DATETIME, T_YEAR, T_NEWDATE, T_VARCHAR, T_BIT = 10, 11, 12, 13, 14, 15, 16
T_TIMESTAMP2, T_DATETIME2, T_TIME2 = 17, 18, 19
T_BLOB_COMPRESSED, T_VARCHAR_COMPRESSED = 140, 141
T_VECTOR, T_JSON, T_NEWDECIMAL, T_ENUM, T_SET, T_BLOB, T_VAR_STRING, T_STRING, T_GEOMETRY = (
    242, 245, 246, 247, 248, 252, 253, 254, 255,
)  # fmt: skip
TEXTUAL: Final = frozenset(
    {T_VARCHAR, T_VAR_STRING, T_STRING, T_BLOB, T_BLOB_COMPRESSED, T_VARCHAR_COMPRESSED, T_VECTOR}
)
"""Types with a collation number (63 = binary). With MariaDB spatial types have one as well."""
