"""Filters as ``find``, ``update``, ``$match`` and others take them: ``compiled(filter)(document)`` says whether it is let through.

Written here and not taken from mongomock or montydb: both compare Python values, so that types of BSON that Python has no order for (timestamps,
min and max key, decimals beside doubles) raise or compare wrongly, and a comparison does not stay within its type as the recordings ask for.
What is not known is refused with the server's error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from bson import MaxKey, MinKey

from dev.servers.mongodb.expressions import expressions, operators
from dev.servers.mongodb.query.json_schema import Schema
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import UNDEFINED, Document, Regex, Symbol, Undefined
from dev.servers.mongodb.values.errors import TYPE_NUMBERS, MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

Test = Callable[[Document], bool]
ValueTest = Callable[[Any], bool]


def compile_filter(query: Document, variables: Document | None = None) -> Test:
    """A function from document to whether the filter lets it through. Raises :class:`MongoError` for a filter that is wrong.

    ``variables`` are for expressions in the filter.
    """
    tests = [_clause(name, condition, variables or {}) for name, condition in query.items()]
    return lambda document: all(test(document) for test in tests)


def _clause(name: str, condition: Any, variables: Document) -> Test:
    if name in ("$and", "$or", "$nor"):
        return _logical(name, condition, variables)
    if name == "$expr":
        compute = expressions.compile_expression(condition)
        return lambda document: operators.is_true(compute(document, variables))
    if name == "$comment":
        return lambda document: True
    if name == "$alwaysTrue":
        return lambda document: True
    if name == "$alwaysFalse":
        return lambda document: False
    if name == "$jsonSchema":
        schema = Schema(condition)
        return lambda document: not schema.broken(document)
    if name.startswith("$"):
        raise MongoError(
            2,
            f"unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        )
    return _field(name.split("."), condition)


def _logical(name: str, conditions: Any, variables: Document) -> Test:
    if not isinstance(conditions, list):
        raise MongoError(2, f"{name} argument must be an array, but was given {type_name(conditions)}")
    if not conditions or not all(isinstance(part, dict) for part in conditions):
        raise MongoError(
            2,
            f"{name} argument must be a non-empty array"
            if not conditions
            else f"{name} argument's entries must be objects",
        )
    tests = [compile_filter(part, variables) for part in conditions]
    if name == "$and":
        return lambda document: all(test(document) for test in tests)
    if name == "$or":
        return lambda document: any(test(document) for test in tests)
    return lambda document: not any(test(document) for test in tests)


def is_operators(condition: Any) -> bool:
    """Check whether a condition on a field is made of operators and not a value to be equal to."""
    return (
        isinstance(condition, dict)
        and bool(condition)
        and next(iter(condition)).startswith("$")
        and next(iter(condition)) not in ("$ref", "$id", "$db")
    )


def _field(path: list[str], condition: Any) -> Test:
    if not is_operators(condition):
        return _positive(
            path, _regex(condition.pattern, condition.options) if isinstance(condition, Regex) else _equality(condition)
        )
    tests = []
    for name, argument in condition.items():
        if name == "$options":
            continue
        if name == "$regex":
            tests.append(_positive(path, _regex_of(argument, condition.get("$options"))))
            continue
        tests.append(_operator(path, name, argument))
    return lambda document: all(test(document) for test in tests)


def _operator(path: list[str], name: str, argument: Any) -> Test:
    if name == "$not":
        if isinstance(argument, Regex) or is_operators(argument):
            inner = _field(path, argument)
        else:
            raise MongoError(2, "$not needs a regex or a document")
        return lambda document: not inner(document)
    if name in ("$ne", "$nin"):
        if name == "$ne" and isinstance(argument, Regex):
            raise MongoError(2, "Can't have regex as arg to $ne.")
        inner = _operator(path, "$eq" if name == "$ne" else "$in", argument)
        return lambda document: not inner(document)
    if name == "$exists":
        expected = bool(argument)
        return lambda document: any(value is not MISSING for value in values(document, path)) == expected
    whole = {"$size": _size, "$elemMatch": _elem_match, "$type": _type}.get(name)
    if whole is not None:
        return _on_whole(path, whole(argument), expand=name == "$type")
    if name == "$all":
        return _make_all_test(path, argument)
    maker = _TESTS.get(name)
    if maker is None:
        raise MongoError(2, f"unknown operator: {name}")
    return _positive(path, maker(argument))


def _positive(path: list[str], test: ValueTest) -> Test:
    """A condition that some value of the path must meet; an array also by one of its elements."""

    def check(document: Document) -> bool:
        for value in values(document, path):
            if test(value) or (isinstance(value, list) and any(test(item) for item in value)):
                return True
        return False

    return check


def _on_whole(path: list[str], test: ValueTest, *, expand: bool = False) -> Test:
    def check(document: Document) -> bool:
        found = values(document, path)
        return any(
            test(value) or (expand and isinstance(value, list) and any(test(item) for item in value)) for value in found
        )

    return check


def values(document: Any, path: list[str]) -> Iterator[Any]:
    """The values of a path: an array on the way stands for each of its documents, and for the element of that number."""
    if not path:
        yield document
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        if name in document:
            yield from values(document[name], rest)
        else:
            yield MISSING
    elif isinstance(document, list):
        found = False
        if name.isdigit() and int(name) < len(document):
            found = True
            yield from values(document[int(name)], rest)
        for item in document:
            if isinstance(item, dict):
                found = True
                yield from values(item, path)
        if not found and not name.isdigit():
            return
    else:
        yield MISSING


def _equality(expected: Any) -> ValueTest:
    if expected is None:
        return lambda value: value is None or value is MISSING or isinstance(value, Undefined)
    if isinstance(expected, Undefined):
        raise MongoError(2, "cannot compare to undefined")
    place = order.key(expected)
    return lambda value: value is not MISSING and order.key(value) == place


def _compare(check: Callable[[Any, Any], bool], *, equal: bool) -> Callable[[Any], ValueTest]:
    def maker(expected: Any) -> ValueTest:
        if isinstance(expected, Regex):
            raise MongoError(2, "Can't have RegEx as arg to predicate over field.")
        if isinstance(expected, MinKey | MaxKey):
            place = order.key(expected)
            return lambda value: value is not MISSING and check(order.key(value), place)
        if expected is None:
            return _equality(None) if equal else lambda value: False
        kind, place = order.rank(expected), order.key(expected)
        if order.is_number(expected) and order.is_nan(expected):
            return (lambda value: value is not MISSING and order.key(value) == place) if equal else lambda value: False

        def test(value: Any) -> bool:
            if value is MISSING or order.rank(value) != kind or (order.is_number(value) and order.is_nan(value)):
                return False
            return check(order.key(value), place)

        return test

    return maker


def _make_in_test(expected: Any) -> ValueTest:
    if not isinstance(expected, list):
        raise MongoError(2, "$in needs an array")
    if any(is_operators(item) for item in expected):
        raise MongoError(2, "cannot nest $ under $in")
    patterns = [_regex(item.pattern, item.options) for item in expected if isinstance(item, Regex)]
    places = {order.key(item) for item in expected if not isinstance(item, Regex)}
    null = any(item is None for item in expected)

    def test(value: Any) -> bool:
        if value is MISSING or isinstance(value, Undefined):
            return null
        return order.key(value) in places or any(pattern(value) for pattern in patterns)

    return test


def _regex_of(argument: Any, options: str | None) -> ValueTest:
    if isinstance(argument, Regex):
        return _regex(argument.pattern, options if options is not None else argument.options)
    if not isinstance(argument, str):
        raise MongoError(2, "$regex has to be a string")
    return _regex(argument, options or "")


def _regex(pattern: str, options: str) -> ValueTest:
    flags = 0
    for letter in options:
        flags |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": 0}.get(letter, 0)
    try:
        matcher = re.compile(pattern, flags)
    except re.error as error:
        raise MongoError(51091, f"Regular expression is invalid: {error}") from None

    def test(value: Any) -> bool:
        if isinstance(value, Regex):
            return value == Regex(pattern, options)
        if isinstance(value, Symbol):
            value = value.text
        return isinstance(value, str) and matcher.search(value) is not None

    return test


def _size(expected: Any) -> ValueTest:
    if not order.is_number(expected) or expected != int(order.number(expected)) or expected < 0:
        raise MongoError(2, "Failed to parse $size. Expected a non-negative number")
    return lambda value: isinstance(value, list) and len(value) == expected


def _elem_match(condition: Any) -> ValueTest:
    if not isinstance(condition, dict):
        raise MongoError(2, "$elemMatch needs an Object")
    if is_operators(condition) and next(iter(condition)) not in ("$and", "$or", "$nor", "$expr"):
        inner = _field(["x"], condition)
        return lambda value: isinstance(value, list) and any(inner({"x": item}) for item in value)
    whole = compile_filter(condition)
    return lambda value: isinstance(value, list) and any(whole(item) for item in value if isinstance(item, dict))


def element_matching(condition: Any) -> ValueTest:
    """The test of one array element, as ``$pull`` and array filters have it."""
    if is_operators(condition):
        inner = _field(["x"], condition)
        return lambda item: inner({"x": item})
    if isinstance(condition, dict):
        whole = compile_filter(condition)
        return lambda item: isinstance(item, dict) and whole(item)
    inner = _field(["x"], condition)
    return lambda item: inner({"x": item}) if not isinstance(item, list) else order.equal(item, condition)


def _make_all_test(path: list[str], expected: Any) -> Test:
    if not isinstance(expected, list):
        raise MongoError(2, "$all needs an array")
    parts = [
        _operator(path, "$elemMatch", item["$elemMatch"])
        if isinstance(item, dict) and "$elemMatch" in item
        else _field(path, item)
        for item in expected
    ]
    return lambda document: bool(parts) and all(part(document) for part in parts)


def _type(expected: Any) -> ValueTest:
    names = set()
    for item in expected if isinstance(expected, list) else [expected]:
        name = TYPE_NUMBERS.get(int(item)) if order.is_number(item) else item
        if name != "number" and name not in TYPE_NUMBERS.values():
            raise MongoError(
                2,
                f"Unknown type name alias: {item}" if isinstance(item, str) else f"Invalid numerical type code: {item}",
            )
        names |= {"double", "int", "long", "decimal"} if name == "number" else {name}
    return lambda value: value is not MISSING and type_name(value) in names


def _mod(argument: Any) -> ValueTest:
    if not isinstance(argument, list) or len(argument) != 2:
        raise MongoError(2, "malformed mod, needs to be an array of two elements")
    divisor, remainder = (int(order.number(item)) for item in argument)
    if divisor == 0:
        raise MongoError(2, "divisor cannot be 0")

    def test(value: Any) -> bool:
        if value is MISSING or not order.is_number(value) or order.is_nan(value):
            return False
        whole = int(order.number(value))
        return abs(whole) % abs(divisor) * (1 if whole >= 0 else -1) == remainder

    return test


def _bits(name: str, check: Callable[[int, int], bool]) -> Callable[[Any], ValueTest]:
    """A test of the bits of whole numbers and of binary values, by a mask: a number, binary, or the places of bits."""

    def maker(argument: Any) -> ValueTest:
        mask = _mask(name, argument)

        def test(value: Any) -> bool:
            bits = _bits_of(value)
            return bits is not None and check(bits, mask)

        return test

    return maker


def _mask(name: str, argument: Any) -> int:
    places = argument if isinstance(argument, list) else []
    if any(not order.is_number(place) or place < 0 or place != int(place) for place in places):
        raise MongoError(9, f"bit positions of {name} must be non-negative integers")
    if isinstance(argument, list):
        return sum(1 << place for place in {int(place) for place in places})
    mask = _bits_of(argument)
    if mask is None or (mask < 0 and order.is_number(argument)):
        raise MongoError(9, f"{name} takes an Array, a non-negative number, or a BinData")
    return mask


def _bits_of(value: Any) -> int | None:
    """The bits of a value, those of a negative number without end; None when it has none."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "little")
    if value is MISSING or not order.is_number(value):
        return None
    number = order.number(value)
    return int(number) if math.isfinite(number) and number == int(number) and -(2**63) <= number < 2**63 else None


_TESTS: dict[str, Callable[[Any], ValueTest]] = {
    "$eq": lambda wanted: (lambda value: value == wanted) if isinstance(wanted, Regex) else _equality(wanted),
    "$gt": _compare(lambda one, other: one > other, equal=False),
    "$gte": _compare(lambda one, other: one >= other, equal=True),
    "$lt": _compare(lambda one, other: one < other, equal=False),
    "$lte": _compare(lambda one, other: one <= other, equal=True),
    "$in": _make_in_test,
    "$mod": _mod,
    "$bitsAllSet": _bits("$bitsAllSet", lambda bits, mask: bits & mask == mask),
    "$bitsAllClear": _bits("$bitsAllClear", lambda bits, mask: bits & mask == 0),
    "$bitsAnySet": _bits("$bitsAnySet", lambda bits, mask: bits & mask != 0),
    "$bitsAnyClear": _bits("$bitsAnyClear", lambda bits, mask: bits & mask != mask),
}

__all__ = ["MISSING", "UNDEFINED", "compile_filter", "element_matching", "is_operators", "values"]
