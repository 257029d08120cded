"""Keys of events as keys of chunks: the way back from the values that the change log has to those of the database.

A handling mode may have left out a part of a value, or a value that no type holds may stand for several: such a key is refused, as it could be
that of another row.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.mysql.columns import charset_codec
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema.column_types import MySqlColumnType
from airflow_provider_cdc.sources.mysql.snapshot.chunk_keys import BYTES, FLOAT, INT, MEMBER, NUMBER, TEXT, KeyColumn
from airflow_provider_cdc.sources.relational.event_key_decoder import IrreversibleKey, key_bytes, key_decimal

_PLAIN = re.compile(r"[0-9A-Fa-f:.]+")
_HOUR_US, _MINUTE_US, _SECOND_US = 3_600_000_000, 60_000_000, 1_000_000
_Reader = Callable[[KeyColumn, Column, Any, MySqlConfig], Any]


def event_key(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> Any:
    """Convert a value of a key column to the form that :class:`.chunk_keys.KeyColumn` has.

    :param value: as the change log has it, in JSON
    :raises IrreversibleKey: it may stand for several values
    """
    readers: dict[str, _Reader] = {
        INT: _integer, NUMBER: _number, FLOAT: _float, TEXT: _text, BYTES: _bytes, MEMBER: _member,
    }  # fmt: skip
    reader: _Reader = readers.get(key.kind, _plain)
    return reader(key, column, value, config)


def _integer(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> int:
    if column.type == "bool" and MySqlColumnType.from_column(column).base != "bit":
        raise IrreversibleKey(f"a converter maps all numbers except 0 in {key.name} to true")
    if column.type == "binary":  # BIT(n)
        return int.from_bytes(base64.b64decode(value), "little")
    return int(value)


def _number(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> str:
    precision, scale = MySqlColumnType.from_column(column).precision_and_scale
    return str(key_decimal(column, value, precision, scale))


def _float(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> float:
    return float(value)


def _text(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> dict[str, str]:
    if not charset_codec.is_known(key.charset):
        raise IrreversibleKey(f"the character set {key.charset} of {key.name} is not supported")
    if key.charset == "utf8mb4":
        return {"text": value, "collation": key.collation}
    try:
        return {"hex": charset_codec.encode_text(key.charset, value).hex(), "collation": key.collation}
    except ValueError as e:
        raise IrreversibleKey(
            f"{value!r} of {key.name} is not a text of the character set {key.charset}: {e}"
        ) from None


def _bytes(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> dict[str, str]:
    return {"hex": key_bytes(column, value, config.binary_handling_mode).hex()}


def _member(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> dict[str, Any]:
    number, members = 0, list(key.members)
    for member in (value.split(",") if key.bits else [value]) if value else ():
        if member not in members:
            raise IrreversibleKey(f"{member!r} is not a member of {key.name}")
        at = members.index(member)
        number = number | 1 << at if key.bits else at + 1
    return key.encode_member(number)


def _plain(key: KeyColumn, column: Column, value: Any, config: MySqlConfig) -> str:
    base = MySqlColumnType.from_column(column).base
    if base == "time":
        rest, sign = abs(value), "-" if value < 0 else ""
        seconds = f"{rest % _MINUTE_US // _SECOND_US:02}.{rest % _SECOND_US:06}"
        return f"{sign}{rest // _HOUR_US:02}:{rest % _HOUR_US // _MINUTE_US:02}:{seconds}"
    if base in ("date", "datetime", "timestamp"):
        text = str(value).removesuffix("+00:00").replace("T", " ")
        if text in ("1970-01-01", "1970-01-01 00:00:00"):
            raise IrreversibleKey(f"{text} of {key.name} also stands for invalid dates, such as 0000-00-00")
        return text
    if not _PLAIN.fullmatch(value.replace("-", "")):
        raise IrreversibleKey(f"{value!r} of {key.name} does not have the type {base.upper()}")
    return str(value)
