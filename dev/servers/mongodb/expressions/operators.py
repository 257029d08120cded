"""Operators of aggregation on values that are computed already."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.values import numbers, order
from dev.servers.mongodb.values.documents import INT32, Document, Symbol, Undefined
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING, Missing


def walk_path(value: Any, parts: list[str]) -> Any:
    """The value of a path; an array on the way gives the array of what its documents have there."""
    for i, part in enumerate(parts):
        if isinstance(value, dict):
            if part not in value:
                return MISSING
            value = value[part]
        elif isinstance(value, list):
            found = [walk_path(item, parts[i:]) for item in value if isinstance(item, dict | list)]
            return [item for item in found if item is not MISSING]
        else:
            return MISSING
    return value


def is_true(value: Any) -> bool:
    """Check whether a value counts as true: all but false, zero, null, undefined and what is missing."""
    if isinstance(value, bool):
        return value
    if order.is_number(value):
        return bool(order.number(value) != 0)
    return not (value is None or value is MISSING or isinstance(value, Undefined))


def is_null(value: Any) -> bool:
    """Check whether a value is null, undefined or missing."""
    return value is None or value is MISSING or isinstance(value, Undefined)


def _null(value: Any) -> Any:
    return None if value is MISSING else value


def sort_key(value: Any) -> tuple[Any, ...]:
    """Return the key that compares a value; a missing one comes before everything but the smallest key."""
    return (-0.5,) if isinstance(value, Missing) else order.key(value)


def _compare(check: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda one, other: check(sort_key(one), sort_key(other))


def _make_fold_operator(work: Callable[[Any, Any], Any], start: Any, code: int, name: str) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        out = start
        if any(is_null(value) for value in values):
            return None
        for value in values:
            if not order.is_number(value):
                if name == "$add" and isinstance(value, DatetimeMS):
                    out = DatetimeMS(int(value) + int(order.number(out)))
                    continue
                raise MongoError(14, f"{name} only supports numeric types, not {type_name(value)}")
            if isinstance(out, DatetimeMS):
                out = DatetimeMS(int(out) + int(order.number(value)))
            else:
                out = numbers.compute_number(out, value, work, overflow_to_double=True)
        return out

    return run


def _subtract(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if isinstance(one, DatetimeMS):
        return (
            Int64(int(one) - int(other))
            if isinstance(other, DatetimeMS)
            else DatetimeMS(int(one) - int(order.number(other)))
        )
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(14, f"can't $subtract {type_name(other)} from {type_name(one)}")
    return numbers.compute_number(one, other, lambda a, b: a - b, overflow_to_double=True)


def _divide(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(14, f"$divide only supports numeric types, not {type_name(one)} and {type_name(other)}")
    if order.number(other) == 0:
        raise MongoError(2, "can't $divide by zero")
    if isinstance(one, Decimal128) or isinstance(other, Decimal128):
        return numbers.compute_number(one, other, lambda a, b: a / b)
    return float(order.number(one)) / float(order.number(other))


def _mod(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(16611, f"$mod only supports numeric types, not {type_name(one)} and {type_name(other)}")
    if order.number(other) == 0:
        raise MongoError(16610, "can't $mod by zero")
    return numbers.compute_number(
        one,
        other,
        lambda a, b: math.fmod(a, b) if isinstance(a, float) else int(math.copysign(1, a)) * (abs(a) % abs(b)),
    )


def _numeric(name: str, work: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(value: Any) -> Any:
        if is_null(value):
            return None
        if not order.is_number(value):
            raise MongoError(28765, f"{name} only supports numeric types, not {type_name(value)}")
        result = work(value.to_decimal() if isinstance(value, Decimal128) else value)
        if isinstance(value, Decimal128):
            return Decimal128(numbers.as_decimal(result) if isinstance(result, int | float) else result)
        if isinstance(value, float):
            return float(result)
        return Int64(result) if isinstance(value, Int64) or result not in INT32 else int(result)

    return run


def _concat(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    for value in values:
        if not isinstance(value, str):
            raise MongoError(16702, f"$concat only supports strings, not {type_name(value)}")
    return "".join(values)


def _concat_arrays(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    for value in values:
        if not isinstance(value, list):
            raise MongoError(28664, f"$concatArrays only supports arrays, not {type_name(value)}")
    return [item for value in values for item in value]


def _slice(items: Any, *bounds: Any) -> Any:
    if is_null(items) or any(is_null(bound) for bound in bounds):
        return None
    if not isinstance(items, list):
        raise MongoError(28724, f"First argument to $slice must be an array, but is of type: {type_name(items)}")
    counts = [_require_whole_number(bound, "$slice") for bound in bounds]
    if len(counts) == 1:
        return items[: counts[0]] if counts[0] >= 0 else items[counts[0] :]
    start, length = counts
    if length <= 0:
        raise MongoError(28729, f"Third argument to $slice must be positive: {length}")
    start = start if start >= 0 else max(len(items) + start, 0)
    return items[start : start + length]


def _require_whole_number(value: Any, name: str) -> int:
    if not order.is_number(value) or order.number(value) != int(order.number(value)):
        raise MongoError(28725, f"argument to {name} must be a whole number, but is: {value}")
    return int(order.number(value))


def _element(items: Any, index: Any) -> Any:
    if is_null(items) or is_null(index):
        return None
    if not isinstance(items, list):
        raise MongoError(28689, f"$arrayElemAt's first argument must be an array, but is {type_name(items)}")
    at = _require_whole_number(index, "$arrayElemAt")
    return items[at] if -len(items) <= at < len(items) else MISSING


def _size(items: Any) -> Any:
    if not isinstance(items, list):
        raise MongoError(
            17124,
            f"The argument to $size must be an array, but was of type: {'missing' if items is MISSING else type_name(items)}",
        )
    return len(items)


def _merge_objects(*values: Any) -> Any:
    out: Document = {}
    given = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    for value in given:
        if is_null(value):
            continue
        if not isinstance(value, dict):
            raise MongoError(
                40400, f"$mergeObjects requires object inputs, but input {value} is of type {type_name(value)}"
            )
        out |= value
    return out


def _contains_value(value: Any, items: Any) -> Any:
    if not isinstance(items, list):
        raise MongoError(
            40081,
            f"$in requires an array as a second argument, found: {'missing' if items is MISSING else type_name(items)}",
        )
    return any(sort_key(value) == sort_key(item) for item in items)


def _set_union(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    out: dict[Any, Any] = {}
    for value in values:
        for item in value:
            out.setdefault(order.key(item), item)
    return [out[key] for key in sorted(out)]


def _set_intersection(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    first, *rest = [{order.key(item): item for item in value} for value in values]
    return [first[key] for key in sorted(first) if all(key in other for other in rest)]


def _set_difference(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    seen = {order.key(item) for item in other}
    return [item for item in one if order.key(item) not in seen and not seen.add(order.key(item))]  # type: ignore[func-returns-value]


def _object_to_array(value: Any) -> Any:
    if is_null(value):
        return None
    if not isinstance(value, dict):
        raise MongoError(40390, f"$objectToArray requires a document input, found: {type_name(value)}")
    return [{"k": name, "v": item} for name, item in value.items()]


def _array_to_object(value: Any) -> Any:
    if is_null(value):
        return None
    if not isinstance(value, list):
        raise MongoError(40386, f"$arrayToObject requires an array input, found: {type_name(value)}")
    return {item["k"]: item["v"] if isinstance(item, dict) else item[1] for item in value if isinstance(item, dict)} | {
        item[0]: item[1] for item in value if isinstance(item, list)
    }


def _text(value: Any) -> str:
    if is_null(value):
        return ""
    return value.text if isinstance(value, Symbol) else str(value)


def _substr(value: Any, start: Any, length: Any) -> str:
    text, begin, count = _text(value), int(order.number(start)), int(order.number(length))
    return text[begin:] if count < 0 else text[begin : begin + count]


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        items = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        real = [item for item in items if not is_null(item)]
        return pick(real, key=order.key) if real else None

    return run


def _sum(*values: Any) -> Any:
    items = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    out: Any = 0
    for item in items:
        if order.is_number(item):
            out = numbers.compute_number(out, item, numbers.add, overflow_to_double=True)
    return out


def _avg(*values: Any) -> Any:
    items = [
        item
        for item in (values[0] if len(values) == 1 and isinstance(values[0], list) else values)
        if order.is_number(item)
    ]
    return _divide(_sum(items), len(items)) if items else None


def _reverse(value: Any) -> Any:
    return None if is_null(value) else value[::-1]
