"""The expected VARIANT of a document, derived from its canonical extended JSON alone.

The canonical JSON of MongoDB's own libraries names the type of every value.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from decimal import Decimal, localcontext
from typing import Any

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


class DuplicateField(Exception):
    """A document has a field twice."""


class PlainFields(dict[str, Any]):
    """A document that is one, and no value with a type."""


def expected_value(canonical: str, text: str) -> Any:
    """The Python value that a reader has to give of a document.

    :param text: what it is if there is a field twice
    """
    try:
        return _value(json.loads(canonical, object_pairs_hook=_pairs))
    except DuplicateField:
        return text


def _pairs(pairs: list[tuple[str, Any]]) -> PlainFields:
    found = PlainFields(pairs)
    if len(found) < len(pairs):
        raise DuplicateField
    return found


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(one) for one in value]
    if not isinstance(value, PlainFields):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if (typed := _typed_value(name, inner)) is not None:
            return typed
    if list(value) == ["$code", "$scope"]:
        return {"$code": value["$code"], "$scope": _value(value["$scope"])}
    return {name: _value(inner) for name, inner in value.items()}


def _typed_value(name: str, inner: Any) -> Any:
    if name in ("$numberInt", "$numberLong"):
        return int(inner)
    if name == "$numberDouble":
        return float(inner)
    if name == "$numberDecimal":
        return _decimal(inner)
    if name == "$date" and isinstance(inner, dict) and list(inner) == ["$numberLong"]:
        ms = int(inner["$numberLong"])
        try:
            return EPOCH + datetime.timedelta(milliseconds=ms)
        except OverflowError:
            return {"$date": ms}
    if name == "$binary" and isinstance(inner, dict) and list(inner) == ["base64", "subType"]:
        if inner["subType"] == "00":
            return base64.b64decode(inner["base64"])
        return {"$binary": inner["base64"], "$type": inner["subType"].upper()}
    if name == "$regularExpression" and isinstance(inner, dict):
        return {"$regex": inner["pattern"], "$options": inner["options"]}
    if name == "$dbPointer" and isinstance(inner, dict):
        return dict(inner) | {"$id": dict(inner["$id"])}
    if name == "$timestamp" and isinstance(inner, dict):
        return {"$timestamp": dict(inner)}
    if name in ("$minKey", "$maxKey"):
        return {name: inner}
    return None


def _decimal(text: str) -> Any:
    whole = Decimal(text)
    if not whole.is_finite():
        return {"$numberDecimal": text}
    sign, digits, exponent = whole.as_tuple()
    fits = isinstance(exponent, int) and -38 <= exponent <= 0 and not (sign and not any(digits))
    return whole if fits and len(str(int("".join(map(str, digits))))) <= 38 else {"$numberDecimal": text}


def are_identical(found: Any, expected: Any) -> bool:
    """Check whether values are equal with their types, signs of zeros and digits; what is not a number equals itself."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(are_identical, found, expected))
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(are_identical(found[k], expected[k]) for k in expected)
        )
    if type(found) is not type(expected):
        return False
    if isinstance(expected, float):
        return (math.isnan(found) and math.isnan(expected)) or (
            found == expected and math.copysign(1, found) == math.copysign(1, expected)
        )
    return bool(found == expected)


def read(value: Any) -> Any:
    """Read a VARIANT with pyspark's reader, with all digits of decimals, which it rounds to those of the context."""
    with localcontext() as context:
        context.prec = 60
        return _in_utc(value.toPython())


def _in_utc(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_utc(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_utc(one) for one in value]
    return value.astimezone(UTC) if isinstance(value, datetime.datetime) else value
