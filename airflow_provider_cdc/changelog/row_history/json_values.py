"""Values of the change log as JSON has them, for people: moments and decimals as texts, bytes as base64."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def to_json_values(values: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Convert the values of a column.

    >>> to_json_values(pa.array([{"id": 1, "price": Decimal("1.50")}, None]))
    [{'id': 1, 'price': '1.50'}, None]
    """
    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in to_json_values(chunk)]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_struct(values.type):
        names = [field.name for field in values.type]
        columns = [to_json_values(pc.struct_field(values, [n])) for n in range(len(names))]
        there = values.is_valid().to_pylist()
        if not columns:
            return [{} if valid else None for valid in there]
        return [
            dict(zip(names, row, strict=True)) if valid else None for valid, *row in zip(there, *columns, strict=True)
        ]
    if pa.types.is_timestamp(values.type):  # Python's moments end with microseconds
        return [None if value is None else value.replace(" ", "T") for value in values.cast(pa.string()).to_pylist()]
    return [plain_value(value) for value in values.to_pylist()]


def plain_value(value: Any) -> Any:
    """Convert one value, as Python has it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [plain_value(item) for item in value]
        case dict():
            return {name: plain_value(item) for name, item in value.items()}
        case _:
            return value
