"""More operators of aggregation on values that are computed already: arrays, sets, numbers, bits (MongoDB manual, "Aggregation Operators")."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from typing import Any

from bson import Decimal128, Int64, Timestamp
from bson.binary import Binary

from dev.servers.mongodb.expressions.operators import is_null, is_true, walk_path
from dev.servers.mongodb.expressions.text_operators import kind_of, place_of
from dev.servers.mongodb.values import numbers, order
from dev.servers.mongodb.values.documents import INT32, encode
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

# arrays and sets


def index_of_array(items: Any, expected: Any, start: Any = 0, end: Any = MISSING) -> Any:
    """``$indexOfArray``."""
    if is_null(items):
        return None
    if not isinstance(items, list):
        raise MongoError(40090, f"$indexOfArray requires an array as a first argument, found: {type_name(items)}")
    place = (-0.5,) if expected is MISSING else order.key(expected)
    return place_of(
        "$indexOfArray", items, start, end, lambda low, high: next((i for i in range(low, high) if order.key(items[i]) == place), -1)
    )  # fmt: skip


def count_up(start: Any, end: Any, step: Any = 1) -> Any:
    """``$range``."""
    bounds = []
    for value, what, code in ((start, "starting", 34443), (end, "ending", 34445), (step, "step", 34447)):
        if not order.is_number(value):
            raise MongoError(code, f"$range requires a numeric {what} value, found value of type: {kind_of(value)}")
        number = order.number(value)
        if order.is_nan(value) or number != int(number) or int(number) not in INT32:
            raise MongoError(
                code + 1,
                f"$range requires a {what} value that can be represented as a 32-bit integer, found value: {value}",
            )
        bounds.append(int(number))
    if bounds[2] == 0:
        raise MongoError(34449, "$range requires a non-zero step value")
    return list(range(*bounds))


def zip_arrays(inputs: Any, useLongestLength: Any = False, defaults: Any = MISSING) -> Any:
    """``$zip``."""
    if is_null(inputs):
        return None
    if not isinstance(inputs, list):
        raise MongoError(34461, f"inputs must be an array of expressions, found {type_name(inputs)}")
    if any(is_null(one) for one in inputs):
        return None
    for one in inputs:
        if not isinstance(one, list):
            raise MongoError(34468, f"$zip found a non-array expression in input: {one}")
    if not useLongestLength:
        return [list(row) for row in zip(*inputs, strict=False)]
    fill = [None] * len(inputs) if defaults is MISSING else defaults
    none = object()
    rows = itertools.zip_longest(*inputs, fillvalue=none)
    return [[other if item is none else item for item, other in zip(row, fill, strict=True)] for row in rows]


def sorted_array(input: Any, sortBy: Any) -> Any:
    """``$sortArray``."""
    if is_null(input):
        return None
    if not isinstance(input, list):
        raise MongoError(
            2942504, f"The input argument to $sortArray must be an array, but was of type: {type_name(input)}"
        )
    if not isinstance(sortBy, dict):
        return sorted(input, key=order.key, reverse=order.number(sortBy) < 0)
    out = list(input)
    for path, direction in reversed(sortBy.items()):
        out.sort(key=lambda item: _value_at(item, path.split(".")), reverse=order.number(direction) < 0)
    return out


def _value_at(item: Any, parts: list[str]) -> Any:
    found = walk_path(item, parts) if isinstance(item, dict) else MISSING
    return order.key(None if found is MISSING else found)


def _make_slice_operator(name: str, take: Callable[[list[Any], int], list[Any]]) -> Callable[..., Any]:
    def run(n: Any, input: Any) -> Any:
        if not isinstance(input, list):
            raise MongoError(5788200, f"Input must be an array, but found: {kind_of(input)}")
        if not order.is_number(n) or order.number(n) != int(order.number(n)):
            raise MongoError(5787903, f"Value for 'n' must be of integral type, but found {n}")
        if n <= 0:
            raise MongoError(5787908, f"'n' must be greater than 0, found {n}")
        return take(input, int(order.number(n)))

    return run


def _smallest_items(items: list[Any], n: int) -> list[Any]:
    return sorted((item for item in items if not is_null(item)), key=order.key)[:n]


def _greatest(items: list[Any], n: int) -> list[Any]:
    return sorted((item for item in items if not is_null(item)), key=order.key, reverse=True)[:n]


def _sets(name: str, code: int, values: tuple[Any, ...]) -> list[set[Any]]:
    for value in values:
        if not isinstance(value, list):
            raise MongoError(code, f"All operands of {name} must be arrays. One argument is of type: {kind_of(value)}")
    return [{order.key(item) for item in value} for value in values]


def same_sets(*values: Any) -> bool:
    """``$setEquals``."""
    first, *rest = _sets("$setEquals", 17044, values)
    return all(other == first for other in rest)


def is_subset(subset: Any, other: Any) -> bool:
    """``$setIsSubset``."""
    (a,), (b,) = _sets("$setIsSubset", 17046, (subset,)), _sets("$setIsSubset", 17042, (other,))
    return a <= b


def _elements(name: str, code: int, check: Callable[[list[bool]], bool]) -> Callable[[Any], bool]:
    def run(value: Any) -> bool:
        if not isinstance(value, list):
            raise MongoError(code, f"{name}'s argument must be an array, but is {kind_of(value)}")
        return check([is_true(item) for item in value])

    return run


# numbers


def _make_bit_position_operator(name: str, how: str) -> Callable[..., Any]:
    def run(value: Any, place: Any = 0) -> Any:
        if is_null(value) or is_null(place):
            return None
        if not order.is_number(value):
            raise MongoError(51081, f"{name} only supports numeric types, not {type_name(value)}")
        if not order.is_number(place) or order.number(place) != int(order.number(place)):
            raise MongoError(51082, f"precision argument to {name} must be a integral value")
        digits = int(order.number(place))
        if not -20 <= digits < 100:
            raise MongoError(51083, f"cannot apply {name} with precision value {digits} value must be in [-20, 100]")
        number = order.number(value)
        if isinstance(number, float) and not math.isfinite(number):
            return value
        if isinstance(number, Decimal) and not number.is_finite():
            return value
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
        if isinstance(number, int) and digits >= 0:
            return value
        quantum = Decimal(1).scaleb(-digits)
        with_places = (
            exact
            if isinstance(number, float) and exact.as_tuple().exponent >= -digits
            else exact.quantize(quantum, how)
        )  # type: ignore[operator]
        if isinstance(value, Decimal128):
            return Decimal128(with_places)
        if isinstance(value, float):
            return math.copysign(float(with_places), value)
        result = int(with_places)
        return Int64(result) if isinstance(value, Int64) or result not in INT32 else result

    return run


def power(base: Any, exponent: Any) -> Any:
    """``$pow``."""
    if is_null(base) or is_null(exponent):
        return None
    for value, what, code in ((base, "base", 28762), (exponent, "exponent", 28763)):
        if not order.is_number(value):
            raise MongoError(code, f"$pow's {what} must be numeric, not {type_name(value)}")
    if order.number(base) == 0 and order.number(exponent) < 0:
        raise MongoError(28764, "$pow cannot take a base of 0 and a negative exponent")
    if isinstance(base, int) and isinstance(exponent, int) and int(exponent) < 0 and abs(int(base)) != 1:
        return float(base) ** float(exponent)
    return numbers.compute_number(base, exponent, _compute_power, overflow_to_double=True)


def _compute_power(a: Any, b: Any) -> Any:
    try:
        result = a**b
    except ZeroDivisionError:
        return math.inf
    return math.nan if isinstance(result, complex) else result


def _make_real_operator(
    name: str,
    work: Callable[[float], float],
    decimal: Callable[[Decimal], Decimal] | None,
    bad: Callable[[Any], bool],
    code: int,
    what: str,
) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        if is_null(value):
            return None
        if not order.is_number(value):
            raise MongoError(28765, f"{name} only supports numeric types, not {type_name(value)}")
        number = order.number(value)
        if not order.is_nan(value) and bad(number):
            raise MongoError(code, f"{name}'s argument must be {what}, but is {value}")
        if isinstance(value, Decimal128):
            if decimal is None:
                raise MongoError(9, f"the stand-in's {name} does not compute with decimals")
            with_context = decimal(value.to_decimal())
            return Decimal128(with_context)
        try:
            return work(float(number))
        except OverflowError:
            return math.inf

    return run


def logarithm(value: Any, base: Any) -> Any:
    """``$log``."""
    if is_null(value) or is_null(base):
        return None
    for one, what, code in ((value, "argument", 28756), (base, "base", 28757)):
        if not order.is_number(one):
            raise MongoError(code, f"$log's {what} must be numeric, not {type_name(one)}")
    if order.number(value) <= 0:
        raise MongoError(28758, f"$log's argument must be a positive number, but is {value}")
    if order.number(base) <= 0 or order.number(base) == 1:
        raise MongoError(28759, f"$log's base must be a positive number not equal to 1, but is {base}")
    return math.log(float(order.number(value))) / math.log(float(order.number(base)))


def _bits(name: str, start: int, work: Callable[[int, int], int]) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        if any(is_null(value) for value in values):
            return None
        out, wide = start, False
        for value in values:
            if type(value) not in (int, Int64):
                raise MongoError(14, f"{name} only supports int and long operands.")
            out, wide = work(out, int(value)), wide or isinstance(value, Int64)
        return Int64(out) if wide else out

    return run


def bit_not(value: Any) -> Any:
    """``$bitNot``."""
    if is_null(value):
        return None
    if type(value) not in (int, Int64):
        raise MongoError(28765, f"$bitNot only supports int and long, not {type_name(value)}")
    return Int64(~int(value)) if isinstance(value, Int64) else ~value


# sizes and parts


def document_size(value: Any) -> Any:
    """``$bsonSize``."""
    if is_null(value):
        return None
    if not isinstance(value, dict):
        raise MongoError(31393, f"$bsonSize requires a document input, found: {type_name(value)}")
    return len(encode(value))


def binary_size(value: Any) -> Any:
    """``$binarySize``."""
    if is_null(value):
        return None
    if not isinstance(value, str | Binary | bytes):
        raise MongoError(51276, f"$binarySize requires a string or BinData argument, found: {type_name(value)}")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _of_timestamp(name: str, code: int, get: Callable[[Timestamp], int]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        if is_null(value):
            return None
        if not isinstance(value, Timestamp):
            raise MongoError(code, f"{name} requires a timestamp argument, found {type_name(value)}")
        return Int64(get(value))

    return run


def _never_fails(number: Any) -> bool:
    return False


EAGER: dict[str, tuple[Callable[..., Any], tuple[int, int] | None]] = {
    "$indexOfArray": (index_of_array, (2, 4)),
    "$range": (count_up, (2, 3)),
    "$setEquals": (same_sets, None),
    "$setIsSubset": (is_subset, (2, 2)),
    "$allElementsTrue": (_elements("$allElementsTrue", 17040, all), (1, 1)),
    "$anyElementTrue": (_elements("$anyElementTrue", 17041, any), (1, 1)),
    "$round": (_make_bit_position_operator("$round", ROUND_HALF_EVEN), (1, 2)),
    "$trunc": (_make_bit_position_operator("$trunc", ROUND_DOWN), (1, 2)),
    "$pow": (power, (2, 2)),
    "$sqrt": (
        _make_real_operator("$sqrt", math.sqrt, Decimal.sqrt, lambda n: n < 0, 28714, "greater than or equal to 0"),
        (1, 1),
    ),
    "$exp": (_make_real_operator("$exp", math.exp, Decimal.exp, _never_fails, 0, ""), (1, 1)),
    "$ln": (_make_real_operator("$ln", math.log, Decimal.ln, lambda n: n <= 0, 28766, "a positive number"), (1, 1)),
    "$log10": (
        _make_real_operator("$log10", math.log10, Decimal.log10, lambda n: n <= 0, 28761, "a positive number"),
        (1, 1),
    ),
    "$log": (logarithm, (2, 2)),
    "$sin": (_make_real_operator("$sin", math.sin, None, math.isinf, 50989, "finite"), (1, 1)),
    "$cos": (_make_real_operator("$cos", math.cos, None, math.isinf, 50989, "finite"), (1, 1)),
    "$tan": (_make_real_operator("$tan", math.tan, None, math.isinf, 50989, "finite"), (1, 1)),
    "$degreesToRadians": (_make_real_operator("$degreesToRadians", math.radians, None, _never_fails, 0, ""), (1, 1)),
    "$radiansToDegrees": (_make_real_operator("$radiansToDegrees", math.degrees, None, _never_fails, 0, ""), (1, 1)),
    "$bitAnd": (_bits("$bitAnd", -1, lambda a, b: a & b), None),
    "$bitOr": (_bits("$bitOr", 0, lambda a, b: a | b), None),
    "$bitXor": (_bits("$bitXor", 0, lambda a, b: a ^ b), None),
    "$bitNot": (bit_not, (1, 1)),
    "$bsonSize": (document_size, (1, 1)),
    "$binarySize": (binary_size, (1, 1)),
    "$tsSecond": (_of_timestamp("$tsSecond", 5687301, lambda stamp: stamp.time), (1, 1)),
    "$tsIncrement": (_of_timestamp("$tsIncrement", 5687302, lambda stamp: stamp.inc), (1, 1)),
    "$rand": (lambda *none: random.random(), None),
}
"""What computes an operator, and how many arguments it takes."""
NAMED: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]] = {
    "$zip": (zip_arrays, ("inputs",), ("useLongestLength", "defaults")),
    "$sortArray": (sorted_array, ("input", "sortBy"), ()),
    "$firstN": (_make_slice_operator("$firstN", lambda items, n: items[:n]), ("n", "input"), ()),
    "$lastN": (_make_slice_operator("$lastN", lambda items, n: items[-n:]), ("n", "input"), ()),
    "$minN": (_make_slice_operator("$minN", _smallest_items), ("n", "input"), ()),
    "$maxN": (_make_slice_operator("$maxN", _greatest), ("n", "input"), ()),
}  # fmt: skip
"""What computes an operator, the arguments that it needs, and those that it may have."""
