"""Keys of events as keys of chunks: the way back from the values that the change log has to those of the database.

A handling mode may have left out a part of a value: such a key is refused, as it could be that of another row.
"""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal
from typing import Any, Final

from airflow_provider_cdc.core.config.values import BinaryHandling
from airflow_provider_cdc.core.model.schema import Column
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.types import BITS, DEFAULT_FRACTION, ColumnType

_EXACT_DIGITS: Final = 15
"""Digits of a decimal that a double keeps."""
_SECOND_US: Final = 1_000_000
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Irreversible(ValueError):
    """The key of a row is not known from the key of its events; the text says why."""


def event_key(column: Column, value: Any, config: Db2Config) -> Any:
    """A value of a key column, as :class:`.chunk_keys.KeyColumn` has it.

    :param value: as the change log has it, in JSON
    :raises Irreversible: it may stand for several values
    """
    t = ColumnType.of(column)
    if t.base in ("DECIMAL", "DECFLOAT"):
        return _number(t, column, value)
    if t.base in ("REAL", "DOUBLE"):
        return repr(float(value))
    if t.base in BITS:
        return _bytes(column, value, config)
    if t.base == "TIME":
        if int(value) % _SECOND_US:
            raise Irreversible(f"{value} of {column.name} has parts of a second, which a TIME does not have")
        return int(value) // _SECOND_US
    if t.base == "TIMESTAMP":
        if t.fraction > DEFAULT_FRACTION and column.type == "timestamp[us]":
            raise Irreversible(f"time.precision.mode=connect cuts off the nanoseconds of {column.name}")
        return str(value).replace("T", " ")
    return value


def _number(t: ColumnType, column: Column, value: Any) -> Any:
    if column.type == "double":
        if t.base == "DECFLOAT" or (t.length or 0) > _EXACT_DIGITS:
            raise Irreversible(f"decimal.handling.mode=double does not keep all digits of {column.name}")
        return f"{round(Decimal(repr(value)), t.scale or 0):f}"
    if not _NUMBER.fullmatch(str(value)):
        raise Irreversible(f"{value!r} of {column.name} is no decimal number")
    return str(value)


def _bytes(column: Column, value: str, config: Db2Config) -> str:
    mode = BinaryHandling.BASE64 if column.type == "binary" else config.binary_handling_mode
    try:
        if mode is BinaryHandling.HEX:
            return base64.b64encode(bytes.fromhex(value)).decode()
        altchars = b"-_" if mode is BinaryHandling.BASE64_URL_SAFE else None
        return base64.b64encode(base64.b64decode(value, altchars, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise Irreversible(f"{value!r} of {column.name} is not of the form binary.handling.mode={mode.value}") from None
