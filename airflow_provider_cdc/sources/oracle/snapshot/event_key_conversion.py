"""Keys of events as keys of chunks: the way back from the values that the change log has to those of the database.

A handling mode may have left out a part of a value: such a key is refused, as it could be that of another row.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.relational.event_key_decoder import IrreversibleKey, key_bytes, key_decimal

_MICROS: Final = 6
"""Decimals of a second of most types of the change log."""
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,9})?)(Z|[+-]\d\d:\d\d)")


def event_key(column: Column, value: Any, config: OracleConfig) -> Any:
    """Return a value of a key column, as :class:`.chunk_key_binds.KeyColumn` has it.

    :param value: as the change log has it, in JSON
    :raises IrreversibleKey: it may stand for several values
    """
    t = ColumnType.from_column(column)
    if t.base in ("NUMBER", "FLOAT"):
        return _number(t, column, value)
    if t.base in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return repr(float(value))
    if t.base == "RAW":
        return base64.b64encode(key_bytes(column, value, config.binary_handling_mode)).decode()
    if t.base == "DATE" or t.base.startswith("TIMESTAMP"):
        return _moment(t, column, value)
    if t.base.startswith("INTERVAL"):
        raise IrreversibleKey(
            f"intervals, as in {column.name}, are captured in a different format than the database uses"
        )
    return value


def _number(t: ColumnType, column: Column, value: Any) -> Any:
    if column.type == "bool":
        raise IrreversibleKey(f"a converter maps all numbers above 0 in {column.name} to true")
    exact = t.base != "FLOAT" and t.length is not None and t.scale is not None
    return key_decimal(column, value, t.length if exact else None, t.scale or 0)


def _moment(t: ColumnType, column: Column, value: str) -> str:
    if t.base == "DATE":
        if column.type.startswith("date"):
            raise IrreversibleKey(f"time.precision.mode=connect truncates the time of day of {column.name}")
        if "." in value:
            raise IrreversibleKey(f"{value} of {column.name} has fractional seconds, which a DATE does not support")
        return value.replace("T", " ")
    if t.base == "TIMESTAMP WITH TIME ZONE":
        match = _ZONED.fullmatch(value)
        if match is None:
            raise IrreversibleKey(f"{value!r} of {column.name} is not a timestamp with a UTC offset")
        return f"{match[1]} {_nanos(match[2])} {'+00:00' if match[3] == 'Z' else match[3]}"
    if t.fraction_digits > _MICROS and not column.type.startswith("timestamp[ns"):
        raise IrreversibleKey(f"time.precision.mode=connect truncates the nanoseconds of {column.name}")
    text = _nanos(value.removesuffix("+00:00").replace("T", " "))
    return f"{text} +00:00" if t.base != "TIMESTAMP" else text


def _nanos(text: str) -> str:
    seconds, _, fraction = text.partition(".")
    return f"{seconds}.{fraction.ljust(9, '0')}"
