"""Oracle's functions for SQLite, and what type each gives."""

import datetime
import re
import sqlite3
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.values import datatypes, moments, rowids
from dev.servers.oracle.values.datatypes import DataType
from dev.servers.oracle.values.moments import Moment, Nls
from dev.servers.oracle.wire import codecs

NUMERIC = re.compile(r"-?\d*(?:\.\d+)?")


class Context(Protocol):
    """The part of the session that its functions use."""

    nls: Nls

    def now(self) -> datetime.datetime: ...
    def context(self, namespace: str, name: str) -> str | None: ...
    def scn_to_timestamp(self, scn: int) -> str: ...
    def timestamp_to_scn(self, text: str) -> int: ...
    def read_scn(self) -> int: ...
    def get_ddl(self, kind: str, name: str, owner: str | None) -> str: ...
    def next_value(self, owner: str, name: str) -> int: ...
    def failed(self, error: OraError) -> None: ...


TYPES: dict[str, DataType] = {
    **dict.fromkeys(("COUNT", "LENGTH", "INSTR", "MOD", "ROUND", "ABS", "CEIL", "FLOOR", "SIGN", "TO_NUMBER", "NTILE"), datatypes.NUMBER),
    **dict.fromkeys(("SUM", "AVG", "ROW_NUMBER", "RANK", "POWER", "ORA_HASH", "TIMESTAMP_TO_SCN", "LENGTHB"), datatypes.NUMBER),
    **dict.fromkeys(("DBMS_LOB_GETLENGTH", "READ_SCN", "NEXT_VALUE", "ROWNUM", "DBMS_ROWID_ROWID_BLOCK_NUMBER"), datatypes.NUMBER),
    **dict.fromkeys(("TO_CHAR", "UPPER", "LOWER", "SUBSTR", "TRIM", "LTRIM", "RTRIM", "LPAD", "RPAD", "REPLACE"), datatypes.VARCHAR),
    **dict.fromkeys(("SYS_CONTEXT", "USERENV", "RAWTOHEX", "UNISTR", "CHR", "INITCAP", "ROWIDTOCHAR", "GROUP_CONCAT"), datatypes.VARCHAR),
    **dict.fromkeys(("REGEXP_REPLACE", "REGEXP_SUBSTR", "DBTIMEZONE", "SESSIONTIMEZONE", "CONCAT", "DBMS_LOB_SUBSTR"), datatypes.VARCHAR),
    "HEXTORAW": datatypes.RAW, "SYS_GUID": datatypes.RAW, "SYSDATE": datatypes.DATE, "TO_DATE": datatypes.DATE,
    "CURRENT_DATE": datatypes.DATE, "SYSTIMESTAMP": datatypes.TIMESTAMP_TZ, "CURRENT_TIMESTAMP": datatypes.TIMESTAMP_TZ,
    "LOCALTIMESTAMP": datatypes.TIMESTAMP, "TO_TIMESTAMP": datatypes.TIMESTAMP, "TO_TIMESTAMP_TZ": datatypes.TIMESTAMP_TZ,
    "SCN_TO_TIMESTAMP": DataType("TIMESTAMP", scale=9), "SYS_EXTRACT_UTC": datatypes.TIMESTAMP,
    "EMPTY_CLOB": datatypes.CLOB, "EMPTY_BLOB": datatypes.BLOB, "TO_CLOB": datatypes.CLOB, "TO_NCLOB": DataType("NCLOB"),
    "TO_BLOB": datatypes.BLOB, "DBMS_METADATA_GET_DDL": datatypes.CLOB, "XMLSERIALIZE": datatypes.CLOB, "CHARTOROWID": datatypes.ROWID, "XMLTYPE": DataType("XMLTYPE"),
    **dict.fromkeys(("JSON_SERIALIZE", "VECTOR_SERIALIZE"), datatypes.CLOB), "JSON": DataType("JSON"), "TO_VECTOR": DataType("VECTOR"),
    "TO_DSINTERVAL": DataType("INTERVAL_DS", 9, 9), "TO_YMINTERVAL": DataType("INTERVAL_YM", 9), "ADD_MONTHS": datatypes.DATE,
    "NUMTODSINTERVAL": DataType("INTERVAL_DS", 9, 9), "LAST_DAY": datatypes.DATE, "TO_BINARY_DOUBLE": datatypes.DOUBLE,
    "TO_BINARY_FLOAT": datatypes.FLOAT,
}  # fmt: skip
"""What a call gives; a function that is in no list gives what its first value is."""

LIKE_FIRST_ARGUMENT = frozenset(
    {"NVL", "COALESCE", "GREATEST", "LEAST", "MIN", "MAX", "NULLIF", "TRUNC", "LAG", "LEAD", "FIRST_VALUE"}
)
NATIVE = frozenset(
    {"COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE", "NULLIF", "ABS", "ROW_NUMBER", "RANK", "NTILE", "LAG", "LEAD", "FIRST_VALUE"}
    | {"LAST_VALUE", "DENSE_RANK", "REPLACE", "SIGN"}
)  # fmt: skip


def register(connection: sqlite3.Connection, context: Context) -> frozenset[str]:
    """Give the connection these functions; returns the names a statement may use."""
    library = Library(context)
    for name, function in library.functions.items():
        connection.create_function(name, -1, _guard_function(function, context), deterministic=name in DETERMINISTIC)
    return frozenset(library.functions) | NATIVE


def _guard_function(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OraError as error:
            context.failed(error)
            raise
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            context.failed(OraError(900, f"{function.__name__.strip('_')}: {error}"))
            raise

    return call


DETERMINISTIC = frozenset(
    {
        "ORA_AS",
        "TO_DATE",
        "TO_TIMESTAMP",
        "TO_TIMESTAMP_TZ",
        "NVL",
        "ORA_RANK",
        "ORA_ROWID",
        "CHARTOROWID",
        "HEXTORAW",
        "DECODE",
        "ORA_ADD",
        "ORA_CONCAT",
        "REGEXP_LIKE",
        "UPPER",
        "LOWER",
    }
)


class Library:
    """The functions of one session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        plain: dict[str, Callable[..., Any]] = {
            "NVL": lambda value, other: other if value is None else value,
            "NVL2": lambda value, some, none: none if value is None else some,
            "DECODE": _decode, "UPPER": _text(str.upper), "LOWER": _text(str.lower), "INITCAP": _text(str.title),
            "LENGTH": lambda value: None if value in (None, "", b"") else len(value if isinstance(value, bytes) else _str(value)),
            "LENGTHB": lambda value: None if value is None else len(value if isinstance(value, bytes) else _str(value).encode()),
            "SUBSTR": _substr, "INSTR": _instr, "TRIM": _text(lambda text: text.strip(" ")),
            "LTRIM": lambda value, what=" ": None if value is None else _str(value).lstrip(what) or None,
            "RTRIM": lambda value, what=" ": None if value is None else _str(value).rstrip(what) or None,
            "LPAD": lambda value, size, fill=" ": None if value is None else _pad(_str(value), size, fill, left=True),
            "RPAD": lambda value, size, fill=" ": None if value is None else _pad(_str(value), size, fill, left=False),
            "CONCAT": _concat, "ORA_CONCAT": _concat, "CHR": lambda code: chr(int(code)), "UNISTR": _unistr,
            "RAWTOHEX": lambda value: None if value is None else value.hex().upper(),
            "HEXTORAW": lambda value: None if value is None else moments.from_hex(value),
            "TO_NUMBER": lambda value, *_: None if value is None else datatypes.number(value),
            "MOD": lambda a, b: None if a is None or b is None else a if b == 0 else datatypes.number(datatypes.decimal(a) % datatypes.decimal(b)),
            "POWER": lambda a, b: a**b, "CEIL": lambda value: -(-value // 1), "FLOOR": lambda value: value // 1,
            "ROUND": _round, "TRUNC": self._trunc, "GREATEST": _extreme(max), "LEAST": _extreme(min),
            "REGEXP_LIKE": _regexp_like, "REGEXP_REPLACE": lambda text, pattern, new="": re.sub(pattern, new, text) or None,
            "REGEXP_SUBSTR": _regexp_substr, "ORA_HASH": lambda value, top=4294967295, *_: hash_of(value) % (top + 1),
            "EMPTY_CLOB": lambda: "", "EMPTY_BLOB": lambda: b"", "DBMS_LOB_GETLENGTH": lambda value: None if value is None else len(value),
            "TO_CLOB": lambda value: value, "TO_NCLOB": lambda value: value, **dict.fromkeys(("XMLTYPE", "JSON", "TO_VECTOR"), lambda value: value),
            "TO_BLOB": lambda value: value, "TO_BINARY_DOUBLE": lambda value: value if value in (None, "nan") else float(value),
            "TO_BINARY_FLOAT": lambda value: None if value is None else moments.single(float(value)),
            "DBMS_LOB_SUBSTR": lambda value, size, start=1: None if value is None else value[start - 1 : start - 1 + size],
            "ORA_RANK": _rank, "ORA_ROWID": lambda object_id, row: rowids.make(object_id, row), "CHARTOROWID": _chartorowid,
            "ROWIDTOCHAR": lambda value: None if value is None else rowids.to_text(_chartorowid(value)),
            "DBMS_ROWID_ROWID_BLOCK_NUMBER": lambda value: rowids.parts(value)[2],
            "DBMS_ROWID_ROWID_CREATE": lambda kind, obj, file, block, slot: struct.pack(">IHIH", obj, file, block, slot),
            "TO_DSINTERVAL": lambda text: None if text is None else moments.day_second(text),
            "TO_YMINTERVAL": lambda text: None if text is None else moments.year_month(text),
            "NUMTODSINTERVAL": lambda count, unit: interval(str(count), unit.upper()), "ORA_ADD": _add, "LAST_DAY": _last_day,
            "ADD_MONTHS": _add_months, "ORA_DIVIDE": _divide, "DUMP": lambda value: f"Len={len(_str(value))}",
        }  # fmt: skip
        self.functions = plain | self._of_session()

    def _of_session(self) -> dict[str, Callable[..., Any]]:
        context = self._context
        return {
            "SYSDATE": lambda: f"{context.now():%Y-%m-%d %H:%M:%S}", "CURRENT_DATE": lambda: f"{context.now():%Y-%m-%d %H:%M:%S}",
            "SYSTIMESTAMP": self._now("TIMESTAMP_TZ"), "ORA_CURRENT_TIMESTAMP": self._now("TIMESTAMP_TZ"),
            "LOCALTIMESTAMP": self._now("TIMESTAMP"), "TO_CHAR": self._to_char, "TO_DATE": self._reader("DATE"),
            "TO_TIMESTAMP": self._reader("TIMESTAMP"), "TO_TIMESTAMP_TZ": self._reader("TIMESTAMP_TZ"), "ORA_CAST": self._cast,
            "ORA_AS": self._as_type,
            "SYS_CONTEXT": lambda namespace, name, *_: context.context(namespace.upper(), name.upper()),
            "USERENV": lambda name: context.context("USERENV", name.upper()),
            "SCN_TO_TIMESTAMP": lambda scn: None if scn is None else context.scn_to_timestamp(int(scn)),
            "TIMESTAMP_TO_SCN": lambda text: None if text is None else context.timestamp_to_scn(text),
            "READ_SCN": lambda *_: context.read_scn(),
            "DBMS_METADATA_GET_DDL": lambda kind, name, owner=None, *_: context.get_ddl(kind, name, owner),
            "NEXT_VALUE": context.next_value, "DBTIMEZONE": lambda: "+00:00", "SESSIONTIMEZONE": lambda: moments.offset(context.nls.zone),
            "SYS_EXTRACT_UTC": lambda text: None if text is None else text[:29],
        }  # fmt: skip

    def _now(self, kind: str) -> Callable[[], str]:
        def current_time(*_: Any) -> str:
            time = self._context.now()
            zone = 0 if kind == "TIMESTAMP_TZ" else None
            return moments.store_moment(
                Moment(time.replace(microsecond=0, tzinfo=None), time.microsecond * 1000, zone), kind
            )

        return current_time

    def _reader(self, kind: str) -> Callable[..., str | None]:
        def read(text: Any, pattern: str | None = None, *_: Any) -> str | None:
            if text is None:
                return None
            nls = self._context.nls
            if pattern is None and moments.STORED.fullmatch(str(text)):
                moment = moments.read(str(text))
            else:
                moment = moments.parse(str(text), pattern or nls.format_of(kind), nls)
            return moments.store_moment(moment, kind, nls.zone)

        return read

    def _to_char(self, value: Any, pattern: str | None = None, *_: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not moments.STORED.fullmatch(value):
            if pattern and pattern.upper() == "TM9":
                return datatypes.number_text(value, longest=64)
            return (
                _number_format(value, pattern) if pattern and not isinstance(value, str) else datatypes.text_of(value)
            )
        moment = moments.read(value)
        kind = "DATE" if len(value) == 19 else "TIMESTAMP" if moment.zone is None else "TIMESTAMP_TZ"
        digits = 0 if kind == "DATE" else 9 if pattern and re.search(r"FF\d", pattern.upper()) else 6
        return moments.write(moment, pattern or self._context.nls.format_of(kind), digits, self._context.nls.zone)

    def _cast(self, value: Any, type_text: str) -> Any:
        kind = datatypes.parse(type_text)
        if kind is None:
            raise OraError(900, f"CAST to {type_text}")
        if value is None:
            return None
        if kind.kind == "DATE" and isinstance(value, str) and moments.STORED.fullmatch(value):
            return moments.store_moment(moments.read(value), "DATE")
        return datatypes.store(value, kind, "CAST", self._context.nls)

    def _as_type(self, kind: str, value: Any) -> Any:
        """The other side of a comparison as this type, without rounding it to a column's digits."""
        if value is None or (kind == "NUMBER" and not isinstance(value, str)):
            return value
        if kind == "NUMBER":
            return datatypes.number(value)
        text = str(value)
        if moments.STORED.fullmatch(text):
            moment = moments.read(text)
        else:
            moment = moments.parse(text, self._context.nls.format_of(kind), self._context.nls)
        if kind == "DATE" and moment.nanos:
            return moments.store_moment(moment, "TIMESTAMP")
        return moments.store_moment(moment, kind, self._context.nls.zone)

    def _trunc(self, value: Any, places: Any = 0) -> Any:
        if value is None:
            return None
        if isinstance(value, str) and moments.STORED.fullmatch(value):
            cut = {"DD": 10, "HH24": 13, "HH": 13, "MI": 16, "MM": 7, "MONTH": 7, "YYYY": 4, "YEAR": 4, 0: 10}
            if places not in cut:
                raise OraError(900, f"TRUNC(date, '{places}')")
            return value[: cut[places]] + "0000-01-01 00:00:00"[cut[places] :]
        scale = Decimal(1).scaleb(-int(places))
        return datatypes.number(datatypes.decimal(value).quantize(scale, rounding="ROUND_DOWN"))


def interval(amount: str, unit: str) -> str:
    """An interval of one unit."""
    seconds = {"DAY": 86400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}.get(unit)
    if seconds is None:
        raise OraError(900, f"INTERVAL {unit}")
    return moments.of_nanos(round(Decimal(amount) * seconds * 10**9))


def hash_of(value: Any) -> int:
    """A stable hash."""
    import zlib

    return zlib.crc32(value if isinstance(value, bytes) else _str(value).encode())


def _str(value: Any) -> str:
    return value if isinstance(value, str) else datatypes.text_of(value)


def _text(function: Callable[[str], str]) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else function(_str(value)) or None


def _concat(*values: Any) -> str | bytes | None:
    if any(isinstance(value, bytes) for value in values):
        return b"".join(value for value in values if value is not None)
    return "".join(_str(value) for value in values if value is not None) or None


def _decode(value: Any, *pairs: Any) -> Any:
    for search, result in zip(pairs[::2], pairs[1::2], strict=False):
        if value == search:
            return result
    return pairs[-1] if len(pairs) % 2 else None


def _substr(value: Any, start: int, size: int | None = None) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, bytes) else _str(value)
    at = max(start - 1, 0) if start >= 0 else max(len(text) + start, 0)
    return text[at : None if size is None else at + max(int(size), 0)] or None


def _instr(value: Any, what: Any, start: int = 1, *_: Any) -> int | None:
    return None if value is None or what is None else _str(value).find(_str(what), start - 1) + 1


def _pad(text: str, size: int, fill: str, *, left: bool) -> str:
    missing = int(size) - len(text)
    if missing <= 0:
        return text[: int(size)]
    padding = (fill * missing)[:missing]
    return padding + text if left else text + padding


def _unistr(value: str | None) -> str | None:
    if value is None:
        return None
    units = re.sub(r"\\\\|\\([0-9A-Fa-f]{4})", lambda match: chr(int(match[1], 16)) if match[1] else "\\", value)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _round(value: Any, places: int = 0) -> Any:
    if value is None:
        return None
    return datatypes.number(
        datatypes.decimal(value).quantize(Decimal(1).scaleb(-int(places)), rounding="ROUND_HALF_UP")
    )


def _extreme(choose: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *values: None if any(value is None for value in values) else choose(values)


def _regexp_like(value: Any, pattern: str, flags: str = "") -> int | None:
    if value is None:
        return None
    return int(re.search(pattern, _str(value), re.IGNORECASE if "i" in flags else 0) is not None)


def _regexp_substr(value: Any, pattern: str, *_: Any) -> str | None:
    match = re.search(pattern, _str(value)) if value is not None else None
    return match[0] if match else None


def _rank(value: Any) -> bytes | None:
    """Return bytes that sort as the number or row id that a kept value stands for."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and len(value) == 18 and not NUMERIC.fullmatch(value):
        return rowids.from_text(value)
    return codecs.encode_number(value)


def _chartorowid(value: Any) -> Any:
    return value if value is None or isinstance(value, bytes) else rowids.from_text(value)


def _divide(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if right == 0:
        raise OraError(1476)
    return datatypes.number(datatypes.NUMBER_DIGITS.divide(datatypes.decimal(left), datatypes.decimal(right)))


def _add(left: Any, sign: int, right: Any) -> Any:
    """Date plus or minus a number of days or an interval; date minus date; number and number."""
    if left is None or right is None:
        return None
    if not isinstance(left, str) or not moments.STORED.fullmatch(left):
        return datatypes.number(datatypes.decimal(left) + sign * datatypes.decimal(right))
    moment = moments.read(left)
    if isinstance(right, str) and moments.STORED.fullmatch(right):
        apart = moment.time - moments.read(right).time
        return datatypes.number(apart.total_seconds() / 86400)
    days = moments.interval_days(right) if isinstance(right, str) and right[0] in "+-" else float(right)
    kind = "DATE" if len(left) == 19 else "TIMESTAMP" if moment.zone is None else "TIMESTAMP_TZ"
    shift = datetime.timedelta(seconds=round(sign * days * 86400, 6))
    return moments.store_moment(Moment(moment.time + shift, moment.nanos, moment.zone), kind)


def _add_months(value: str | None, months: int) -> str | None:
    if value is None:
        return None
    time = moments.read(value).time
    year, month = divmod(time.year * 12 + time.month - 1 + int(months), 12)
    last = (datetime.datetime(year + (month == 11), (month + 1) % 12 + 1, 1) - datetime.timedelta(days=1)).day
    return moments.store_moment(Moment(time.replace(year=year, month=month + 1, day=min(time.day, last))), "DATE")


def _last_day(value: str | None) -> str | None:
    first = _add_months(None if value is None else value[:8] + "01" + value[10:], 1)
    return None if first is None else str(_add(first, -1, 1))


def _number_format(value: Any, pattern: str) -> str:
    if set(pattern.upper()) <= set("XFM"):
        return f"{int(value):X}" if "FM" in pattern.upper() else f"{int(value):X}".rjust(len(pattern) + 1)
    if set(pattern.upper()) <= set("09.FM"):
        whole, _, fraction = pattern.upper().replace("FM", "").partition(".")
        text = f"{value:.{len(fraction)}f}"
        width = len(whole) + (len(fraction) + 1 if fraction else 0)
        text = text.rjust(width, "0") if "0" in whole else text
        return text if "FM" in pattern.upper() else text.rjust(width + 1)
    raise OraError(900, f"TO_CHAR(number, '{pattern}')")
