"""Keys that bound the chunks of a table: extracted from a row, stored as JSON, written into SQL.

A key must return to the database as exactly the value that it had there: text in the bytes of its column's character set, a float with all
its bits, an ENUM as the number that it is ordered by. All comparisons are made by the database, which knows the column's collation.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import quoted_name
from airflow_provider_cdc.sources.mysql.schema.column_types import BLOBS, INTEGERS, SPATIAL, TEXTS, MySqlColumnType

INT, NUMBER, FLOAT, TEXT, BYTES, MEMBER, PLAIN = "int", "number", "float", "text", "bytes", "member", "plain"
_KINDS: Final = {
    **dict.fromkeys([*INTEGERS, "year", "bit"], INT),
    "decimal": NUMBER,
    "float": FLOAT,
    "double": FLOAT,
    **dict.fromkeys(TEXTS, TEXT),
    **dict.fromkeys(BLOBS, BYTES),
    "enum": MEMBER,
    "set": MEMBER,
    **dict.fromkeys(["date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"], PLAIN),
}
_EXACT: Final = "utf8mb4"
"""The character set whose text the connection returns with the same bytes as in the table."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_PLAIN = re.compile(r"[0-9A-Fa-f:.\- ]*")


class KeyOrderChanged(Exception):
    """A key was stored when the table's rows had another order than now."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that rows are ordered by.

    :param kind: how its values are stored in a key: :data:`INT`, :data:`TEXT` and so on
    :param collation: of a text column
    :param members: of an ENUM or SET column
    :param bits: it is a SET, whose members are bits of a number
    :param by_image: the row image has the exact value; otherwise :attr:`exact_expression` has to be selected
    :param number: index of the column in the row image
    """

    name: str
    kind: str
    nullable: bool
    charset: str
    collation: str
    members: tuple[str, ...]
    bits: bool
    by_image: bool
    number: int

    @classmethod
    def from_schema(cls, schema: TableSchema, name: str, charset: str, collation: str) -> KeyColumn | None:
        """Return the key column of a table's column; ``None`` if its type gives no order.

        :param charset: of a text column, else empty
        :param collation: of a text column, else empty
        """
        column, number = schema.get_column(name), schema.column_names.index(name)
        type_ = MySqlColumnType.from_column(column)
        kind = _KINDS.get(type_.base)
        if kind is None or type_.base in SPATIAL:
            return None
        exact = {
            INT: column.type in ("int16", "int32", "int64") and not (type_.base == "bigint" and type_.unsigned),
            FLOAT: True,
            TEXT: charset == _EXACT,
            BYTES: column.type == "binary",
        }
        return cls(
            name, kind, column.nullable, charset, collation, type_.values, type_.base == "set", exact.get(kind, False), number
        )  # fmt: skip

    # -- out of a row ----------------------------------------------------------------------------------------------------

    @property
    def exact_expression(self) -> str:
        """The SQL expression that gives the exact value, where the row image does not have it."""
        name = quoted_name(self.name)
        if self.kind == BYTES:
            return name
        if self.kind == TEXT:
            return f"CAST({name} AS BINARY)"
        # a BIT, an ENUM and a SET become the number that they are ordered by
        if self.kind == MEMBER:
            return f"CAST(CAST({name} AS UNSIGNED) AS CHAR)"
        return f"CAST({name}{'+0' if self.kind == INT else ''} AS CHAR)"

    def to_json_value(self, value: pa.Scalar) -> Any:
        """Convert a value of the row image, or of :attr:`exact_expression`, to its JSON form."""
        if not value.is_valid:
            return None
        if self.kind in (TEXT, BYTES):
            return self._bytes(value.as_buffer().to_pybytes())
        if self.by_image:
            return value.as_py()
        text = value.as_py().decode("ascii")
        if self.kind == INT:
            return int(text)
        if self.kind == MEMBER:
            return self.encode_member(int(text))
        return text

    def encode_member(self, number: int) -> dict[str, Any]:
        """Encode a member of an ENUM, or members of a SET, in JSON form."""
        return {"member": number, "of": self._members(number)}

    def _bytes(self, raw: bytes) -> Any:
        if self.kind == BYTES:
            return {"hex": raw.hex()}
        if self.charset == _EXACT:
            try:
                return {"text": raw.decode(), "collation": self.collation}
            except UnicodeDecodeError:
                pass
        return {"hex": raw.hex(), "collation": self.collation}

    def _members(self, number: int) -> str:
        """Checksum of the members up to this number: changes when the order of the values before it does."""
        before = self.members[: number.bit_length() if self.bits else number]
        return f"{zlib.crc32(repr(before).encode()):08x}"

    # -- into SQL --------------------------------------------------------------------------------------------------------

    def format_literal(self, value: Any) -> str:
        """Format a value of a key as an SQL literal.

        :raises KeyOrderChanged: it was stored when the column had another type, collation or list of members
        """
        match self.kind, value:
            case "int", int():
                return str(value)
            case "number", str() | int() if _NUMBER.fullmatch(str(value)):
                return str(value)
            case "float", float() | int():
                text = repr(float(value))
                return text if "e" in text else f"{text}e0"  # without an exponent it would be a decimal
            case "plain", str() if _PLAIN.fullmatch(value):
                return f"'{value}'"
            case "bytes", {"hex": str(text), **rest} if not rest:
                return f"X'{bytes.fromhex(text).hex()}'"
            case "text", {"collation": self.collation, "text": str(text)}:
                return f"_{self.charset} X'{text.encode().hex()}'"
            case "text", {"collation": self.collation, "hex": str(text)}:
                return f"_{self.charset} X'{bytes.fromhex(text).hex()}'"
            case "member", {"member": int(number), "of": str(members)} if members == self._members(number):
                return str(number)
        raise KeyOrderChanged(self.name)

    @property
    def _compared(self) -> str:
        """The left side of a comparison with a literal."""
        name = quoted_name(self.name)
        # servers compare a SET and a number as doubles, which hold no more than 53 of its 64 members
        return f"CAST({name} AS UNSIGNED)" if self.bits else name

    def format_equality(self, value: Any) -> str:
        if value is None:
            return f"{quoted_name(self.name)} IS NULL"
        return f"{self._compared} = {self.format_literal(value)}"

    def format_greater(self, value: Any) -> str:
        """Condition for rows after a value; NULL comes before all others."""
        if value is None:
            return f"{quoted_name(self.name)} IS NOT NULL"
        return f"{self._compared} > {self.format_literal(value)}"

    def at_least(self, value: Any) -> str:
        """Condition for rows after a value, or equal to it; the value is not NULL."""
        return f"{self._compared} >= {self.format_literal(value)}"

    def format_membership(self, values: Sequence[Any]) -> str:
        """Condition for rows with one of some values; none of them is NULL."""
        return f"{self._compared} IN ({', '.join(map(self.format_literal, values))})"

    def format_upper_bound(self, value: Any, *, inclusive: bool) -> str | None:
        """Condition for rows before a value, or equal to it; ``None`` = no row can meet it."""
        name = quoted_name(self.name)
        if value is None:
            return f"{name} IS NULL" if inclusive else None
        condition = f"{self._compared} {'<=' if inclusive else '<'} {self.format_literal(value)}"
        return f"({condition} OR {name} IS NULL)" if self.nullable else condition


def format_after_key(columns: Sequence[KeyColumn], key: Key) -> str:
    """Condition for rows after a key, as a union of index ranges."""
    same: list[str] = []
    ranges = []
    for column, value in zip(columns, key, strict=True):
        ranges.append(" AND ".join([*same, column.format_greater(value)]))
        same.append(column.format_equality(value))
    return " OR ".join(f"({part})" for part in ranges)


def format_from_key(columns: Sequence[KeyColumn], key: Key) -> str:
    """Condition for rows after a key and the rows with this key, as a union of index ranges.

    :param key: of all columns, or only of the first ones
    """
    same: list[str] = []
    ranges = []
    for i, (column, value) in enumerate(zip(columns, key, strict=False)):
        ranges.append(
            " AND ".join([*same, column.at_least(value) if i == len(key) - 1 else column.format_greater(value)])
        )
        same.append(column.format_equality(value))
    return " OR ".join(f"({part})" for part in ranges)


def format_among_keys(columns: Sequence[KeyColumn], keys: Sequence[Key]) -> str:
    """Condition for rows with one of some keys.

    :param keys: of all columns, or only of the first ones
    """
    if len(keys[0]) == 1:
        return columns[0].format_membership([key[0] for key in keys])
    return " OR ".join(
        f"({' AND '.join(c.format_equality(value) for c, value in zip(columns, key, strict=False))})" for key in keys
    )


def format_upto_key(columns: Sequence[KeyColumn], key: Key) -> str:
    """Condition for rows before a key and the row with this key, as a union of index ranges."""
    same: list[str] = []
    ranges = []
    for i, (column, value) in enumerate(zip(columns, key, strict=True)):
        before = column.format_upper_bound(value, inclusive=i == len(columns) - 1)
        if before is not None:
            ranges.append(" AND ".join([*same, before]))
        same.append(column.format_equality(value))
    return " OR ".join(f"({part})" for part in ranges)


class KeyExtractor:
    """Extracts keys from row images.

    :ivar extras: expressions to select after the table's columns
    """

    def __init__(self, schema: TableSchema, columns: Sequence[KeyColumn]) -> None:
        self.columns = columns
        self.extras = [c.exact_expression for c in columns if not c.by_image]
        numbers = iter(range(len(schema.columns), len(schema.columns) + len(self.extras)))
        self._numbers = [c.number if c.by_image else next(numbers) for c in columns]

    def extract_last_key(self, images: Sequence[pa.StructArray]) -> Key | None:
        """Return the key of the last row; ``None`` without a row."""
        if not images:
            return None
        pairs = zip(self.columns, self._numbers, strict=True)
        return [column.to_json_value(images[-1].field(number)[-1]) for column, number in pairs]
