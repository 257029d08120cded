"""A small, slow reader of row statements, written from the table of shapes, to judge the real one by.

It shares no code with the reader: a statement becomes a list of tokens, the tokens become columns, and a column's text becomes what
the recorded cases show of it. :class:`InvalidStatement` is its one answer to everything else.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import zoneinfo
from decimal import Decimal, localcontext
from typing import Any

from tests.sources.oracle.redo import redo_sql

ABSENT = object()
"""The statement does not have the value."""
_TOKEN = re.compile(
    r"""(?P<skip>\s+|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|(?P<name>"[^"]*")|(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))"""
    r"""|(?P<bind>:[A-Za-z0-9_]+)|(?P<word>[A-Za-z_][A-Za-z0-9_$\#]*)|(?P<sign>\|\||[(),;.=])""",
    re.DOTALL,
)
_DATE = re.compile(
    r"\s*\+?([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{0,9}))?)?\s*(\S+)?"
)
_REGIONS = {name.lower(): name for name in zoneinfo.available_timezones()}


class InvalidStatement(Exception):
    """Not a statement, or not a value of its column."""


class Statement:
    """A statement's columns: ``before`` and ``after`` as the recorded cases show them, without the absent ones."""

    def __init__(self, text: str, code: int, types: dict[str, str] = redo_sql.TYPES) -> None:
        self.tokens = _tokens(text)
        self.types = types
        verb = self.take("word").lower()
        if {"insert": 1, "delete": 2, "update": 3}.get(verb) != code:
            raise InvalidStatement(verb)
        new: dict[str, Any] = {}
        where: dict[str, Any] = {}
        if code == 1:
            self.optional("into")
            self.table()
            new = self.insert()
        else:
            if code == 2:
                self.optional("from")
            self.table()
            if not self.next_is("set", "where", ";", "") and self.tokens[0][0] in ("word", "name"):
                self.tokens.pop(0)
            if code == 3:
                self.expect("set")
                new = self.pairs(",", condition=False)
            if self.optional("where"):
                where = self.pairs("and", condition=True)
        self.optional(";")
        if self.tokens:
            raise InvalidStatement(f"more: {self.tokens[:3]}")
        self.before = None if code == 1 else self.shown(where)
        self.after = None if code == 2 else self.shown({**where, **new})

    # tokens

    def next_is(self, *wanted: str) -> bool:
        if not self.tokens:
            return "" in wanted
        return self.tokens[0][0] in ("word", "sign") and self.tokens[0][1].lower() in wanted

    def take(self, *kinds: str) -> str:
        if not self.tokens or self.tokens[0][0] not in kinds:
            raise InvalidStatement(f"{kinds} expected: {self.tokens[:3]}")
        return self.tokens.pop(0)[1]

    def optional(self, wanted: str) -> bool:
        if self.tokens and self.next_is(wanted):
            self.tokens.pop(0)
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.optional(wanted):
            raise InvalidStatement(f"{wanted} expected: {self.tokens[:3]}")

    def name(self) -> str:
        token = self.take("word", "name")
        return token[1:-1] if token.startswith('"') else token.upper()

    def dotted(self) -> list[str]:
        parts = [self.name()]
        while len(parts) < 2 and self.optional("."):
            parts.append(self.name())
        return parts

    def table(self) -> None:
        if self.dotted() not in (["SHOP", "PARTS"], ["PARTS"]):
            raise InvalidStatement("another table")

    # columns

    def insert(self) -> dict[str, Any]:
        self.expect("(")
        names = [self.dotted()[-1]]
        while self.optional(","):
            names.append(self.dotted()[-1])
        for sign in (")", "values", "("):
            self.expect(sign)
        values = [self.value()]
        while self.optional(","):
            values.append(self.value())
        self.expect(")")
        if len(values) != len(names) or len(set(names)) != len(names):
            raise InvalidStatement("columns and values")
        return dict(zip(names, values, strict=True))

    def pairs(self, separator: str, *, condition: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            name = self.dotted()[-1]
            if name in found:
                raise InvalidStatement("twice")
            if condition and self.optional("is"):
                self.expect("null")
                found[name] = ("null",)
            else:
                self.expect("=")
                found[name] = self.value()
            if not self.optional(separator):
                return found

    def value(self) -> tuple[Any, ...]:
        first = self.operand()
        if not self.next_is("||"):
            return first
        parts = [first]
        while self.optional("||"):
            parts.append(self.operand())
        return ("text", "".join(_join_value(part) for part in parts))

    def operand(self) -> tuple[Any, ...]:
        kind = self.tokens[0][0] if self.tokens else ""
        if kind == "text":
            return ("text", self.take("text")[1:-1].replace("''", "'"))
        if kind in ("number", "bind"):
            return (kind, self.take(kind))
        word = self.name() if kind == "name" else self.take("word").upper()
        if kind == "word" and word in ("NULL", "LM_EMPTY_STRING"):
            return ("null",) if word == "NULL" else ("text", "")
        if kind == "word" and word == "UNSUPPORTED":
            self.optional("type")
            return ("bind", "")
        self.expect("(")
        arguments = []
        if not self.optional(")"):
            arguments.append(self.value())
            while self.optional(","):
                arguments.append(self.value())
            self.expect(")")
        if word == "XMLTYPE" and len(arguments) == 1:
            return arguments[0]
        if len(arguments) > 2 or any(a[0] != "text" for a in arguments):
            raise InvalidStatement("arguments")
        return ("call", word, *(a[1] for a in arguments))

    def shown(self, values: dict[str, Any]) -> dict[str, Any]:
        if unknown := values.keys() - self.types.keys():
            raise InvalidStatement(f"unknown {unknown}")
        made = {name: recorded_value(name, self.types[name], value) for name, value in values.items()}
        return {name: value for name, value in made.items() if value is not ABSENT}


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None or not m.lastgroup:
            raise InvalidStatement(f"no token at {at}")
        if m.lastgroup != "skip":
            found.append((m.lastgroup, m[0]))
        at = m.end()
    return found


def _join_value(value: tuple[Any, ...]) -> str:
    if value[0] == "null":
        return ""
    if value[0] == "text":
        return str(value[1])
    if value[:2] == ("call", "UNISTR") and len(value) > 2:
        return _unistr(value[2])
    raise InvalidStatement("cannot be joined")


def _unistr(text: str) -> str:
    units: list[bytes] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            units.append(text[at].encode("utf-16-be"))
            at += 1
        elif text[at + 1 : at + 2] == "\\":
            units.append("\\".encode("utf-16-be"))
            at += 2
        else:
            digits = text[at + 1 : at + 5]
            if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
                raise InvalidStatement("UNISTR")
            units.append(bytes.fromhex(digits))
            at += 5
    try:
        return b"".join(units).decode("utf-16-be")
    except UnicodeDecodeError as e:
        raise InvalidStatement("half of a character") from e


# -- values -----------------------------------------------------------------------------------------------------------------------


def recorded_value(name: str, type_: str, value: tuple[Any, ...]) -> Any:
    """Return a value in the form that the recorded cases have."""
    lob = type_ in ("CLOB", "BLOB")
    if value[0] == "bind":
        return ABSENT
    if value[0] == "null":
        return None
    if value == ("text", ""):
        return "" if lob else None
    base = type_.partition("(")[0]
    if base in ("RAW", "BLOB"):
        return _binary(value, lob=lob)
    if base in ("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "ROWID", "CLOB"):
        if value[:2] == ("call", "EMPTY_CLOB") and lob:
            return ""
        if value[0] == "number":
            raise InvalidStatement("a number")
        text = _join_value(value)
        return text if text or lob else None
    if base in ("NUMBER", "FLOAT", "BINARY_FLOAT", "BINARY_DOUBLE"):
        return _number(type_, value)
    if base.startswith("INTERVAL"):
        return _interval(type_, value)
    return _time(name, type_, value)


def _binary(value: tuple[Any, ...], *, lob: bool) -> str | None:
    if value[:2] == ("call", "EMPTY_BLOB") and lob:
        return ""
    if value[:2] != ("call", "HEXTORAW"):
        raise InvalidStatement("no bytes")
    digits = value[2].lower() if len(value) > 2 else ""
    if re.search("[^0-9a-f]", digits):
        raise InvalidStatement("no hexadecimal digits")
    return ("0" * (len(digits) % 2) + digits) or ("" if lob else None)


def _number(type_: str, value: tuple[Any, ...]) -> Any:
    if value[0] not in ("text", "number"):
        raise InvalidStatement("no number")
    text = value[1]
    if type_.startswith("BINARY"):
        if not re.fullmatch(r"(?i)[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan", text):
            raise InvalidStatement("no float")
        number = float(text)
        if type_ == "BINARY_FLOAT":
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        return (
            number if abs(number) < float("inf") else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(number), "NaN")
        )
    if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
        raise InvalidStatement("no number")
    with localcontext() as context:
        context.prec = 2_000
        exact = Decimal(text)
        found = re.search(r"\(([0-9]+)(?:,([0-9]+))?\)", type_)
        if found is None:
            plain = f"{exact:f}"
            plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
            return "0" if plain in ("-0", "") else plain
        digits, scale = int(found[1]), int(found[2] or 0)
        if abs(exact) >= Decimal(10) ** (digits - scale) or exact != round(exact, scale):
            raise InvalidStatement("digits")
        rounded = round(exact, scale)
        return int(exact) if scale == 0 and digits <= 18 else str(rounded if rounded else abs(rounded))


def _interval(type_: str, value: tuple[Any, ...]) -> int:
    months = "YEAR" in type_
    if value[:2] != ("call", "TO_YMINTERVAL" if months else "TO_DSINTERVAL") or len(value) < 3:
        raise InvalidStatement("no interval")
    pattern = (
        "([+-]?)([0-9]{1,9})-([0-9]{1,9})"
        if months
        else r"([+-]?)([0-9]{1,9}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?"
    )
    m = re.fullmatch(pattern, value[2])
    if m is None:
        raise InvalidStatement("no interval")
    if months:
        if int(m[3]) > 11:
            raise InvalidStatement("months")
        micros = (int(m[2]) * 12 + int(m[3])) * 2_629_800_000_000
    else:
        if int(m[3]) > 23 or int(m[4]) > 59 or int(m[5]) > 59:
            raise InvalidStatement("clock")
        seconds = ((int(m[2]) * 24 + int(m[3])) * 60 + int(m[4])) * 60 + int(m[5])
        micros = seconds * 1_000_000 + int((m[6] or "").ljust(9, "0")) // 1000
    if micros >= 1 << 63:
        raise InvalidStatement("too long")
    return -micros if m[1] == "-" else micros


def _time(name: str, type_: str, value: tuple[Any, ...]) -> str:
    if value[0] != "call" or value[1] not in ("TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ") or len(value) < 3:
        raise InvalidStatement("no time")
    if len(value) > 3 and not re.fullmatch(
        r"S?YYYY-MM-DD( HH24:MI:SS([.X]?FF[0-9]?|\.)?)?( ?(TZH:TZM|TZR))?", value[3].upper()
    ):
        raise InvalidStatement("another format")
    m = _DATE.fullmatch(value[2])
    if m is None:
        raise InvalidStatement("no time")
    try:
        at = dt.datetime.fromisoformat(f"{m[1]}-{m[2]}-{m[3]}T{m[4] or '00:00:00'}")
    except ValueError as e:
        raise InvalidStatement("not in the calendar") from e
    nanos = int((m[5] or "").ljust(9, "0"))
    zoned = "WITH" in type_
    if (m[6] and not zoned) or ("WITH TIME" in type_ and not m[6]) or (nanos and type_ == "DATE"):
        raise InvalidStatement("zone or decimals")
    if type_ != "TIMESTAMP(9)" and nanos % 1000:
        raise InvalidStatement("decimals")
    minutes = _offset(m[6], at) if m[6] else 0
    fraction = f"{nanos:09d}" if type_ == "TIMESTAMP(9)" else f"{nanos // 1000:06d}"
    if "WITH TIME" in type_:
        zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"
        return f"{at.isoformat()}.{fraction}{zone}"
    if (
        type_ == "TIMESTAMP(9)"
        and not -9_223_372_036 <= (at - dt.datetime(1970, 1, 1)).total_seconds() <= 9_223_372_035
    ):
        raise InvalidStatement("nanoseconds")
    if zoned:
        try:
            at -= dt.timedelta(minutes=minutes)
        except OverflowError:
            return str(ABSENT)
    return f"{at.isoformat(' ')}.{fraction}" + ("Z" if zoned else "")


def _offset(zone: str, at: dt.datetime) -> int:
    if m := re.fullmatch("([+-])([0-9]{1,2}):([0-9]{2})", zone):
        value = int(m[2]) * 60 + int(m[3])
        if int(m[3]) > 59 or value >= 960:
            raise InvalidStatement("offset")
        return -value if m[1] == "-" else value
    if not re.fullmatch(r"[A-Za-z][\w/+-]*", zone) or zone.lower() not in _REGIONS:
        raise InvalidStatement("zone")
    region = zoneinfo.ZoneInfo(_REGIONS[zone.lower()])
    found = {at.replace(tzinfo=region, fold=fold).utcoffset() for fold in (0, 1)}
    if len(found) != 1:
        raise InvalidStatement("two moments")
    return int((found.pop() or dt.timedelta()).total_seconds()) // 60
