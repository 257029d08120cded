"""Keys of events as keys of chunks: the way back from the values that the change log has to those of the database.

A handling mode may have left out a part of a value: such a key is refused, as it could be that of another row.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.type_mapping import BITS, DEFAULT_FRACTION, Db2ColumnType
from airflow_provider_cdc.sources.relational.event_key_decoder import IrreversibleKey, key_bytes, key_decimal

_SECOND_US: Final = 1_000_000


def event_key(column: Column, value: Any, config: Db2Config) -> Any:
    """Convert a key value of an event to a value of a key column, as :class:`.chunk_keys.Db2KeyColumn` has it.

    :param value: as the change log has it, in JSON
    :raises IrreversibleKey: it may stand for several values
    """
    t = Db2ColumnType.from_column(column)
    if t.base in ("DECIMAL", "DECFLOAT"):
        precision = None if t.base == "DECFLOAT" else t.length or 0
        return str(key_decimal(column, value, precision, t.scale or 0))
    if t.base in ("REAL", "DOUBLE"):
        return repr(float(value))
    if t.base in BITS:
        return base64.b64encode(key_bytes(column, value, config.binary_handling_mode)).decode()
    if t.base == "TIME":
        if int(value) % _SECOND_US:
            raise IrreversibleKey(f"{value} of {column.name} has fractional seconds, which a TIME does not support")
        return int(value) // _SECOND_US
    if t.base == "TIMESTAMP":
        if t.fraction_digits > DEFAULT_FRACTION and column.type == "timestamp[us]":
            raise IrreversibleKey(f"time.precision.mode=connect truncates the nanoseconds of {column.name}")
        return str(value).replace("T", " ")
    return value
