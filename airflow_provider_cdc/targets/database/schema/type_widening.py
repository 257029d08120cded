"""Types of which one has room for all values of another, by the words of all databases that change columns."""

from __future__ import annotations

import re

_TYPE = re.compile(
    r"(?P<name>[a-z][a-z0-9_ ]*?)\s*(?:\((?P<numbers>[\d, ]+|max)(?: char| byte| codeunits32|[kmg])?\))?\s*"
    r"(?P<rest>unsigned|with time zone|without time zone)?\s*(?:zerofill)?"
)
_WHOLE = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 19}
"""Whole numbers, and how many digits they have."""
_SAME = {
    "integer": "int", "character varying": "varchar", "numeric": "decimal", "double precision": "double", "real": "float",
    "longtext": "text", "number": "decimal", "varchar2": "varchar", "nvarchar": "varchar", "clob": "text", "raw": "varbinary", "blob": "longblob",
    "binary_float": "float", "binary_double": "double", "datetime2": "timestamp",
}  # fmt: skip
_ANY = {"varchar": "text", "varbinary": "longblob"}
"""Type without a longest length (``max``) → the type that it stands for."""
_WITH_LENGTH = frozenset({"varchar", "varbinary", "time", "timestamp", "datetime", "datetimeoffset"})
_DECIMAL, _PLAIN = "decimal", ""


def is_wider_type(there: str, required: str) -> bool:
    """Check whether one type has room for all values of another, and for more.

    >>> is_wider_type("NUMBER(19)", "NUMBER(19,0)"), is_wider_type("NUMBER(19,0)", "NUMBER(19)")
    (False, False)
    >>> is_wider_type("VARCHAR(10)", "varchar(20)"), is_wider_type("BIGINT", "integer"), is_wider_type("INTEGER", "numeric(12, 2)")
    (True, False, True)
    """
    narrow, wide = _read(there), _read(required)
    return narrow is not None and wide is not None and narrow != wide and _holds(wide, narrow)


def parse_enum_members(there: str, name: str) -> tuple[str, ...]:
    """List the members of an enumeration or a set; none if it is of another type.

    >>> parse_enum_members("ENUM('a','it''s')", "enum")
    ('a', "it's")
    """
    if not there.lower().startswith(f"{name}("):
        return ()
    return tuple(member.replace("''", "'") for member in re.findall(r"'((?:[^']|'')*)'", there))


_Read = tuple[str, tuple[int, ...], str]


def _read(type_: str) -> _Read | None:
    """Parse name, numbers, and the text after them."""
    plain = re.split(r" (?:character set|collate|default|not null)\b", type_.lower())[0].strip()
    match = _TYPE.fullmatch(plain)
    if match is None:
        return None
    name, rest = _SAME.get(match["name"], match["name"]), (match["rest"] or "").replace("without time zone", "")
    if match["numbers"] == "max":
        return _ANY.get(name, name), (), rest
    numbers = tuple(int(number) for number in (match["numbers"] or "").split(",") if number.strip())
    if match["name"] == "float" and numbers[:1] > (24,):  # of SQL Server
        return "double", (), rest
    if name in _WHOLE or name in _ANY.values():
        return name, (), rest
    return name, numbers[:1] if name == _DECIMAL and numbers[1:] == (0,) else numbers, rest


def _holds(wide: _Read, narrow: _Read) -> bool:
    (name, numbers, rest), (old, before, old_rest) = wide, narrow
    if old in _WHOLE and name in _WHOLE:
        return _WHOLE[name] > _WHOLE[old] and rest in (_PLAIN, old_rest)
    if old in _WHOLE and name in ("varchar", "text"):
        return name == "text" or numbers[:1] > (_WHOLE[old],)
    if old in _WHOLE and name == _DECIMAL:
        return not numbers or numbers[0] - sum(numbers[1:]) >= _WHOLE[old] + (old_rest == "unsigned")
    if name == old == _DECIMAL:
        if not (numbers and before):
            return not numbers and bool(before)
        scale, scale_before = sum(numbers[1:]), sum(before[1:])
        return scale >= scale_before and numbers[0] - scale >= before[0] - scale_before
    if old == "float" and name == "double":
        return not before
    if old in ("varchar", "char") and name == "text":
        return True
    if old == "varbinary" and name == "longblob":
        return True
    if name == old and rest == old_rest and name in _WITH_LENGTH:
        return not numbers or numbers[0] > sum(before)
    return False
