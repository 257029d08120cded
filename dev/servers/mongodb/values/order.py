"""The order of BSON values, which is the order of ``_id`` and of sorting: by type first, all numbers as one type.

>>> sorted(["a", 2, Int64(1), None], key=key)
[None, Int64(1), 2, 'a']

``key`` gives a tuple that Python compares as the server compares the values (its manual, "Comparison/Sort Order").
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.values.documents import Code, DbPointer, Regex, Symbol, Undefined

NUMBER, TEXT, OBJECT, ARRAY = 10, 15, 20, 25
RANKS: dict[type, int] = {
    MinKey: -1,
    Undefined: 0,
    type(None): 5,
    int: NUMBER,
    Int64: NUMBER,
    float: NUMBER,
    Decimal128: NUMBER,
    str: TEXT,
    Symbol: TEXT,
    dict: OBJECT,
    list: ARRAY,
    Binary: 30,
    bytes: 30,
    ObjectId: 35,
    bool: 40,
    DatetimeMS: 45,
    Timestamp: 47,
    Regex: 50,
    DbPointer: 55,
    Code: 60,
    MaxKey: 127,
}


def rank(value: Any) -> int:
    """The place of a value's type among the types; what is missing comes as :data:`MISSING` does."""
    if isinstance(value, Code) and value.scope is not None:
        return 65
    return RANKS[type(value)]


def key(value: Any) -> tuple[Any, ...]:
    """Return the key that sorts a value."""
    place = rank(value)
    return (place, *_PARTS[place](value)) if place in _PARTS else (place,)


def number(value: Any) -> int | float | Decimal:
    """The number that a numeric value is."""
    return value.to_decimal() if isinstance(value, Decimal128) else value


def is_number(value: Any) -> bool:
    """Check whether a value is of a numeric type."""
    return RANKS.get(type(value)) == NUMBER


def is_nan(value: Any) -> bool:
    """Check whether a number is NaN, of either kind."""
    return (
        value.to_decimal().is_nan() if isinstance(value, Decimal128) else isinstance(value, float) and math.isnan(value)
    )


def equal(first: Any, other: Any) -> bool:
    """Check whether the server takes two values as equal: 1 and 1.0 are."""
    return key(first) == key(other)


def _number(value: Any) -> tuple[Any, ...]:
    return (0, 0) if is_nan(value) else (1, number(value))


def _object(value: dict[str, Any]) -> tuple[Any, ...]:
    fields = []
    for name, item in value.items():
        place, *rest = key(item)
        fields.append((place, name.encode("utf-8", "surrogateescape"), *rest))
    return (tuple(fields),)


def _binary(value: Any) -> tuple[Any, ...]:
    return (len(value), getattr(value, "subtype", 0), bytes(value))


_PARTS: dict[int, Any] = {
    NUMBER: _number,
    TEXT: lambda v: ((v.text if isinstance(v, Symbol) else v).encode("utf-8", "surrogateescape"),),
    OBJECT: _object,
    ARRAY: lambda v: (tuple(key(item) for item in v),),
    30: _binary,
    35: lambda v: (v.binary,),
    40: lambda v: (v,),
    45: lambda v: (int(v),),
    47: lambda v: (v.time, v.inc),
    50: lambda v: (v.pattern.encode("utf-8", "surrogateescape"), v.options.encode("utf-8", "surrogateescape")),
    55: lambda v: (len(v.ref), v.ref.encode("utf-8", "surrogateescape"), v.id.binary),
    60: lambda v: (v.text.encode("utf-8", "surrogateescape"),),
    65: lambda v: (v.text.encode("utf-8", "surrogateescape"), *_object(v.scope)),
}
