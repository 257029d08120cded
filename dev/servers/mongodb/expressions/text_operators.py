"""Operators of aggregation on texts that are computed already (MongoDB manual, "String Expression Operators")."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bson import Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.expressions import conversions, dates
from dev.servers.mongodb.expressions.operators import is_null
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document, Regex, Symbol
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING


def coerce_to_text(value: Any) -> str:
    """A value as operators on texts take it: numbers and dates become texts, null an empty one."""
    if is_null(value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, DatetimeMS):
        return dates.text(value)
    if order.is_number(value):
        return str(conversions.to_text(value))
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    raise MongoError(16007, f"can't convert from BSON type {type_name(value)} to String")


def kind_of(value: Any) -> str:
    """The type of a value, for errors."""
    return "missing" if value is MISSING else type_name(value)


def length(value: Any, name: str, code: int, *, in_bytes: bool) -> int:
    """``$strLenCP`` and ``$strLenBytes``."""
    if not isinstance(value, str):
        raise MongoError(code, f"{name} requires a string argument, found: {kind_of(value)}")
    return len(value.encode()) if in_bytes else len(value)


def substring(value: Any, start: Any, count: Any) -> str:
    """``$substrBytes``: it may not cut a character."""
    raw = coerce_to_text(value).encode()
    for what, one, code in (("starting index", start, 16034), ("length", count, 16035)):
        if not order.is_number(one):
            raise MongoError(code, f"$substrBytes: {what} must be a numeric type (is BSON type {kind_of(one)})")
    begin, size = int(order.number(start)), int(order.number(count))
    if begin < 0:
        raise MongoError(50752, f"$substrBytes: starting index must be non-negative (got: {begin})")
    if begin < len(raw) and raw[begin] & 0xC0 == 0x80:
        raise MongoError(28656, "$substrBytes: Invalid range, starting index is a UTF-8 continuation byte.")
    end = len(raw) if size < 0 else min(begin + size, len(raw))
    if end < len(raw) and raw[end] & 0xC0 == 0x80:
        raise MongoError(28657, "$substrBytes: Invalid range, ending index is in the middle of a UTF-8 character.")
    return raw[begin:end].decode()


def split(value: Any, separator: Any) -> Any:
    """``$split``."""
    if is_null(value) or is_null(separator):
        return None
    if not isinstance(value, str):
        raise MongoError(
            40085,
            f"$split requires an expression that evaluates to a string as a first argument, found: {type_name(value)}",
        )
    if not isinstance(separator, str):
        raise MongoError(
            40086,
            f"$split requires an expression that evaluates to a string as a second argument, found: {type_name(separator)}",
        )
    if not separator:
        raise MongoError(40087, "$split requires a non-empty separator")
    return value.split(separator)


def _index(in_bytes: bool, name: str) -> Callable[..., Any]:
    def run(text: Any, expected: Any, start: Any = 0, end: Any = MISSING) -> Any:
        if is_null(text):
            return None
        if not isinstance(text, str):
            raise MongoError(
                40091 if in_bytes else 40093,
                f"{name} requires a string as the first argument, found: {type_name(text)}",
            )
        if not isinstance(expected, str):
            raise MongoError(
                40092 if in_bytes else 40094,
                f"{name} requires a string as the second argument, found: {kind_of(expected)}",
            )
        one: Any = text.encode() if in_bytes else text
        other: Any = expected.encode() if in_bytes else expected
        return place_of(name, one, start, end, lambda low, high: one.find(other, low, high))

    return run


_BLANKS = "\0\t\n\v\f\r \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))


def _make_trim_operator(name: str, cut: Callable[[str, str], str]) -> Callable[..., Any]:
    def run(input: Any, chars: Any = MISSING) -> Any:
        if is_null(input) or chars is None:
            return None
        if not isinstance(input, str):
            raise MongoError(
                50699, f"{name} requires its input to be a string, got {input} (of type {type_name(input)}) instead."
            )
        if chars is not MISSING and not isinstance(chars, str):
            raise MongoError(
                50700, f"{name} requires 'chars' to be a string, got {chars} (of type {type_name(chars)}) instead."
            )
        return cut(input, _BLANKS if chars is MISSING else chars)

    return run


def _make_replace_operator(name: str, count: int) -> Callable[..., Any]:
    def run(input: Any, find: Any, replacement: Any) -> Any:
        for value, what, code in ((input, "input", 51746), (find, "find", 51745), (replacement, "replacement", 51744)):
            if not is_null(value) and not isinstance(value, str):
                raise MongoError(code, f"{name} requires that '{what}' be a string, found: {value}")
        return (
            None if is_null(input) or is_null(find) or is_null(replacement) else input.replace(find, replacement, count)
        )

    return run


def _matcher(name: str, regex: Any, options: Any) -> re.Pattern[str] | None:
    if is_null(regex):
        return None
    if not isinstance(regex, str | Regex):
        raise MongoError(51105, f"{name} needs 'regex' to be of type string or regex")
    if not is_null(options) and not isinstance(options, str):
        raise MongoError(51106, f"{name} needs 'options' to be of type string")
    pattern, given = (regex.pattern, regex.options) if isinstance(regex, Regex) else (regex, "")
    if given and not is_null(options):
        raise MongoError(51107, f"{name}: found regex option(s) specified in both 'regex' and 'option' fields")
    flags = 0
    for letter in given or ("" if is_null(options) else options):
        if letter not in "imsx":
            raise MongoError(51108, f"{name} invalid flag in regex options: {letter}")
        flags |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}[letter]
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise MongoError(51111, f"Invalid Regex in {name}: {error}") from None


def _regex(name: str, none: Any, work: Callable[[re.Pattern[str], str], Any]) -> Callable[..., Any]:
    def run(input: Any, regex: Any, options: Any = MISSING) -> Any:
        if not is_null(input) and not isinstance(input, str):
            raise MongoError(51104, f"{name} needs 'input' to be of type string")
        matcher = _matcher(name, regex, options)
        return none if matcher is None or is_null(input) else work(matcher, input)

    return run


def _match(found: re.Match[str]) -> Document:
    return {"match": found[0], "idx": found.start(), "captures": [*found.groups()]}


def _one_match(matcher: re.Pattern[str], text: str) -> Any:
    found = matcher.search(text)
    return None if found is None else _match(found)


def compared_texts(first: Any, other: Any) -> int:
    """``$strcasecmp``."""
    a, b = coerce_to_text(first).upper(), coerce_to_text(other).upper()
    return (a > b) - (a < b)


def place_of(name: str, items: Any, start: Any, end: Any, find: Callable[[int, int], int]) -> int:
    """Find the index of something between two indexes; -1 if it is not there."""
    bounds = []
    for value, default, what in ((start, 0, "starting"), (end, len(items), "ending")):
        if value is MISSING:
            bounds.append(default)
            continue
        if not order.is_number(value) or order.number(value) != int(order.number(value)):
            raise MongoError(
                40096, f"{name} requires an integral {what} index, found a value of type: {kind_of(value)}"
            )
        if order.number(value) < 0:
            raise MongoError(40097, f"{name} requires a nonnegative {what} index, found: {value}")
        bounds.append(int(order.number(value)))
    low, high = bounds[0], min(bounds[1], len(items))
    return -1 if low > high else find(low, high)


EAGER: dict[str, tuple[Callable[..., Any], tuple[int, int] | None]] = {
    "$strLenCP": (lambda value: length(value, "$strLenCP", 34471, in_bytes=False), (1, 1)),
    "$strLenBytes": (lambda value: length(value, "$strLenBytes", 34473, in_bytes=True), (1, 1)),
    "$toLower": (lambda value: "".join(c.lower() if c.isascii() else c for c in coerce_to_text(value)), (1, 1)),
    "$toUpper": (lambda value: "".join(c.upper() if c.isascii() else c for c in coerce_to_text(value)), (1, 1)),
    "$substr": (substring, (3, 3)),
    "$substrBytes": (substring, (3, 3)),
    "$split": (split, (2, 2)),
    "$indexOfCP": (_index(False, "$indexOfCP"), (2, 4)),
    "$indexOfBytes": (_index(True, "$indexOfBytes"), (2, 4)),
    "$strcasecmp": (compared_texts, (2, 2)),
}
"""What computes an operator, and how many arguments it takes."""
NAMED: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]] = {
    "$trim": (_make_trim_operator("$trim", str.strip), ("input",), ("chars",)),
    "$ltrim": (_make_trim_operator("$ltrim", str.lstrip), ("input",), ("chars",)),
    "$rtrim": (_make_trim_operator("$rtrim", str.rstrip), ("input",), ("chars",)),
    "$replaceOne": (_make_replace_operator("$replaceOne", 1), ("input", "find", "replacement"), ()),
    "$replaceAll": (_make_replace_operator("$replaceAll", -1), ("input", "find", "replacement"), ()),
    "$regexMatch": (
        _regex("$regexMatch", False, lambda matcher, text: matcher.search(text) is not None),
        ("input", "regex"),
        ("options",),
    ),
    "$regexFind": (_regex("$regexFind", None, _one_match), ("input", "regex"), ("options",)),
    "$regexFindAll": (
        _regex("$regexFindAll", [], lambda matcher, text: [_match(one) for one in matcher.finditer(text)]),
        ("input", "regex"),
        ("options",),
    ),
}
"""What computes an operator, the arguments that it needs, and those that it may have."""
