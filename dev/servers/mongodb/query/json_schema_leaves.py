"""The keywords of JSON Schema that look at one value and hold no schema of their own (:mod:`dev.servers.mongodb.query.json_schema`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import TYPE_NUMBERS, MongoError, type_name

PARSE, MISMATCH = 9, 14
JSON_TYPES = {"object": "object", "array": "array", "boolean": "bool", "null": "null", "string": "string"}

Rule = Callable[[Any], Document | None]
"""What a value breaks; None when it does not."""


def check_type(keyword: str, value: Any, expected: type) -> Any:
    """A keyword's argument, which must be of a type."""
    if not isinstance(value, expected):
        raise MongoError(MISMATCH, f"$jsonSchema keyword '{keyword}' must be a {type_name(expected())}")
    return value


def number(keyword: str, value: Any) -> Any:
    """A keyword's argument, which must be a number."""
    if not order.is_number(value):
        raise MongoError(MISMATCH, f"$jsonSchema keyword '{keyword}' must be a number")
    return value


def length(keyword: str, value: Any) -> int:
    """A keyword's argument, which must be a count."""
    found = order.number(number(keyword, value))
    if found != int(found) or found < 0:
        raise MongoError(PARSE, f"$jsonSchema keyword '{keyword}' must be a non-negative integer")
    return int(found)


def _leaf(keyword: str, specified: Document, fits: Callable[[Any], bool], reason: str, test: Callable[[Any], bool]) -> Rule:  # fmt: skip
    """A rule on values of some types that says what the value was."""

    def rule(value: Any) -> Document | None:
        if not fits(value) or test(value):
            return None
        return {"operatorName": keyword, "specifiedAs": specified, "reason": reason, "consideredValue": value}

    return rule


# numbers and texts


def multiple_of(argument: Any, given: Document) -> Rule:
    """``multipleOf``."""
    divisor = order.number(number("multipleOf", argument))
    if divisor <= 0:
        raise MongoError(PARSE, "$jsonSchema keyword 'multipleOf' must have a positive value")

    def test(value: Any) -> bool:
        found = Decimal(order.number(value))
        return found.is_finite() and found % Decimal(divisor) == 0

    reason = "considered value is not a multiple of the specified value"
    return _leaf("multipleOf", {"multipleOf": argument}, order.is_number, reason, test)


def bound(keyword: str, exclusive: str, sign: int) -> Callable[[Any, Document], Rule]:
    """``minimum`` and ``maximum``."""

    def make(argument: Any, given: Document) -> Rule:
        strict = bool(check_type(exclusive, given.get(exclusive, False), bool))
        specified = {keyword: number(keyword, argument), **({exclusive: given[exclusive]} if exclusive in given else {})}  # fmt: skip
        edge = order.key(argument)

        def test(value: Any) -> bool:
            place = order.key(value)
            if place == edge or order.is_nan(value):
                return place == edge and not strict
            return place > edge if sign > 0 else place < edge

        return _leaf(keyword, specified, order.is_number, "comparison failed", test)

    return make


def text_length(keyword: str, sign: int) -> Callable[[Any, Document], Rule]:
    """``minLength`` and ``maxLength``, in code points."""

    def make(argument: Any, given: Document) -> Rule:
        limit = length(keyword, argument)
        reason = "specified string length was not satisfied"
        test = (lambda value: len(value) >= limit) if sign > 0 else (lambda value: len(value) <= limit)
        return _leaf(keyword, {keyword: argument}, lambda value: isinstance(value, str), reason, test)

    return make


def pattern(argument: Any, given: Document) -> Rule:
    """``pattern``."""
    matcher = regex("pattern", argument)
    return _leaf(
        "pattern", {"pattern": argument}, lambda value: isinstance(value, str), "regular expression did not match",
        lambda value: matcher.search(value) is not None,
    )  # fmt: skip


def regex(keyword: str, pattern: Any) -> re.Pattern[str]:
    """A regular expression of a schema."""
    try:
        return re.compile(check_type(keyword, pattern, str))
    except re.error as error:
        raise MongoError(51091, f"Regular expression is invalid: {error}") from None


# arrays


def item_count(keyword: str, sign: int) -> Callable[[Any, Document], Rule]:
    """``minItems`` and ``maxItems``."""

    def make(argument: Any, given: Document) -> Rule:
        limit = length(keyword, argument)

        def rule(value: Any) -> Document | None:
            if not isinstance(value, list) or (len(value) >= limit if sign > 0 else len(value) <= limit):
                return None
            return {
                "operatorName": keyword, "specifiedAs": {keyword: argument}, "reason": "array did not match specified length", "consideredValue": value,
                "numberOfItems": len(value),
            }  # fmt: skip

        return rule

    return make


def unique_items(argument: Any, given: Document) -> Rule:
    """``uniqueItems``."""
    expected = check_type("uniqueItems", argument, bool)

    def rule(value: Any) -> Document | None:
        if not expected or not isinstance(value, list):
            return None
        seen = set()
        for item in value:
            if (place := order.key(_order_fields(item))) in seen:
                return {
                    "operatorName": "uniqueItems", "specifiedAs": {"uniqueItems": True}, "reason": "found a duplicate item", "consideredValue": value,
                    "duplicatedValue": item,
                }  # fmt: skip
            seen.add(place)
        return None

    return rule


def _order_fields(value: Any) -> Any:
    """A value whose documents have their fields in the order of their names: here their own order makes no difference."""
    if isinstance(value, dict):
        return {name: _order_fields(value[name]) for name in sorted(value)}
    return [_order_fields(item) for item in value] if isinstance(value, list) else value


def property_count(keyword: str, sign: int) -> Callable[[Any, Document], Rule]:
    """``minProperties`` and ``maxProperties``."""

    def make(argument: Any, given: Document) -> Rule:
        limit = length(keyword, argument)
        reason = "specified number of properties was not satisfied"

        def rule(value: Any) -> Document | None:
            if not isinstance(value, dict) or (len(value) >= limit if sign > 0 else len(value) <= limit):
                return None
            return {"operatorName": keyword, "specifiedAs": {keyword: argument}, "reason": reason, "numberOfProperties": len(value)}  # fmt: skip

        return rule

    return make


def enum(argument: Any, given: Document) -> Rule:
    """``enum``."""
    if not check_type("enum", argument, list):
        raise MongoError(PARSE, "$jsonSchema keyword 'enum' cannot be an empty array")
    places = {order.key(_order_fields(item)) for item in argument}
    if len(places) < len(argument):
        raise MongoError(PARSE, "$jsonSchema keyword 'enum' array cannot contain duplicate values.")
    return _leaf(
        "enum", {"enum": argument}, lambda value: True, "value was not found in enum", lambda value: order.key(_order_fields(value)) in places
    )  # fmt: skip


def types(keyword: str) -> Callable[[Any, Document], Rule]:
    """``type`` and ``bsonType``."""

    def make(argument: Any, given: Document) -> Rule:
        names = {name for item in (argument if isinstance(argument, list) else [argument]) for name in _type(keyword, item)}  # fmt: skip

        def rule(value: Any) -> Document | None:
            if type_name(value) in names:
                return None
            return {
                "operatorName": keyword, "specifiedAs": {keyword: argument}, "reason": "type did not match", "consideredValue": value,
                "consideredType": type_name(value),
            }  # fmt: skip

        return rule

    return make


def _type(keyword: str, name: Any) -> list[str]:
    if not isinstance(name, str):
        raise MongoError(MISMATCH, f"$jsonSchema keyword '{keyword}' must name types by texts")
    if name == "number":
        return ["double", "int", "long", "decimal"]
    if keyword == "bsonType" and name in TYPE_NUMBERS.values():
        return [name]
    if keyword == "type" and name == "integer":
        raise MongoError(PARSE, "$jsonSchema type 'integer' is not currently supported.")
    if keyword == "type" and name in JSON_TYPES:
        return [JSON_TYPES[name]]
    raise MongoError(2, f"Unknown type name alias: {name}")
