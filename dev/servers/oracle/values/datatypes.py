"""Column types, and how a value of each is kept inside the engine.

Inside, a value is what SQLite compares and sorts the way Oracle does: numbers as INTEGER or REAL where that is exact and
as text where it is not; dates as ``2024-02-29 01:02:03``; timestamps with nine digits of a second; timestamps with a
zone in UTC with the zone behind them; intervals with padded numbers; RAW and BLOB as bytes; everything else as text.
An empty string is NULL, except in a LOB.
"""

import re
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.values import moments, rowids

LONGEST_STRING = 32767
EXACT_DIGITS = 15
BIGGEST_INTEGER = 2**63
NUMBER_DIGITS = Context(prec=40)

TEXT_KINDS = frozenset({"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"})
NATIONAL_KINDS = frozenset({"NCHAR", "NVARCHAR2", "NCLOB"})
LOB_KINDS = frozenset({"CLOB", "NCLOB", "BLOB"})
DATE_KINDS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_TZ", "TIMESTAMP_LTZ"})
FLOAT_KINDS = frozenset({"BINARY_FLOAT", "BINARY_DOUBLE"})
UNSUPPORTED_KINDS = frozenset({"BOOLEAN", "JSON", "VECTOR"})
"""LogMiner shows a change of a table with one of them as UNSUPPORTED, without any value."""
UNLOGGED_KINDS = frozenset({"BFILE", "ODCINUMBERLIST"})
"""LogMiner shows no change of a table with one of them; the second is a VARRAY that every database has."""


@dataclass(frozen=True)
class DataType:
    """A column type; ``kind`` is ours, ``name`` is the one in the dictionary views."""

    kind: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    characters: bool = False
    """True if ``length`` counts characters, not bytes."""

    @property
    def name(self) -> str:
        """The name as in DATA_TYPE of ALL_TAB_COLUMNS."""
        if self.kind == "TIMESTAMP":
            return f"TIMESTAMP({self.scale})"
        if self.kind == "TIMESTAMP_TZ":
            return f"TIMESTAMP({self.scale}) WITH TIME ZONE"
        if self.kind == "TIMESTAMP_LTZ":
            return f"TIMESTAMP({self.scale}) WITH LOCAL TIME ZONE"
        if self.kind == "INTERVAL_DS":
            return f"INTERVAL DAY({self.precision}) TO SECOND({self.scale})"
        if self.kind == "INTERVAL_YM":
            return f"INTERVAL YEAR({self.precision}) TO MONTH"
        return self.kind

    @property
    def ddl(self) -> str:
        """The type as DBMS_METADATA writes it."""
        if self.kind == "NUMBER" and self.precision is None:
            return "NUMBER" if self.scale is None else f"NUMBER(*,{self.scale})"
        if self.kind == "NUMBER":
            return f"NUMBER({self.precision},{self.scale or 0})"
        if self.kind == "FLOAT":
            return f"FLOAT({self.precision})"
        if self.kind in ("NCHAR", "NVARCHAR2", "RAW"):
            return f"{self.kind}({self.length})"
        if self.kind in TEXT_KINDS:
            return f"{self.kind}({self.length}{' CHAR' if self.characters else ''})"
        return self.name.replace("TIMESTAMP(", "TIMESTAMP (").replace("DAY(", "DAY (").replace("YEAR(", "YEAR (")

    @property
    def affinity(self) -> str:
        """The SQLite type of the physical column: text is compared with numbers as a number where that loses nothing."""
        exact = self.kind == "NUMBER" and self.precision is not None and self.precision <= EXACT_DIGITS
        return "NUMERIC" if exact else "BLOB"

    @property
    def ranked(self) -> bool:
        """True if kept values may not have their order: numbers of many digits, which are texts, and row ids in columns."""
        return self.kind in ("NUMBER", "FLOAT", "ROWID") and self.affinity == "BLOB"


NUMBER = DataType("NUMBER")
INTEGER = DataType("NUMBER", 38, 0)
VARCHAR = DataType("VARCHAR2", length=4000)
RAW = DataType("RAW", length=2000)
DATE = DataType("DATE")
TIMESTAMP_TZ = DataType("TIMESTAMP_TZ", scale=6)
TIMESTAMP = DataType("TIMESTAMP", scale=6)
CLOB = DataType("CLOB")
BLOB = DataType("BLOB")
ROWID = DataType("ROWID")
DOUBLE = DataType("BINARY_DOUBLE")
FLOAT = DataType("BINARY_FLOAT")

_SIZE = r"(?:\(\s*(?P<a>-?\d+|\*)\s*(?:(?P<unit>BYTE|CHAR)|,\s*(?P<b>-?\d+))?\s*\))?"
_PLAIN = re.compile(rf"(?P<name>[A-Z0-9_ ]+?)\s*{_SIZE}", re.IGNORECASE)
_TIMESTAMP = re.compile(r"TIMESTAMP\s*(?:\(\s*(\d)\s*\))?(?:\s+WITH\s+(LOCAL\s+)?TIME\s+ZONE)?", re.IGNORECASE)
_DAY_SECOND = re.compile(r"INTERVAL\s+DAY\s*(?:\(\s*(\d)\s*\))?\s+TO\s+SECOND\s*(?:\(\s*(\d)\s*\))?", re.IGNORECASE)
_YEAR_MONTH = re.compile(r"INTERVAL\s+YEAR\s*(?:\(\s*(\d)\s*\))?\s+TO\s+MONTH", re.IGNORECASE)
_ALIASES = {
    "INT": INTEGER, "INTEGER": INTEGER, "SMALLINT": INTEGER, "REAL": DataType("FLOAT", 63),
    "DOUBLE PRECISION": DataType("FLOAT", 126), "DATE": DATE, "CLOB": CLOB, "NCLOB": DataType("NCLOB"), "BLOB": BLOB,
    "BINARY_FLOAT": FLOAT, "BINARY_DOUBLE": DOUBLE, "ROWID": ROWID, "XMLTYPE": DataType("XMLTYPE"),
    "SYS.XMLTYPE": DataType("XMLTYPE"), "BOOLEAN": DataType("BOOLEAN"), "JSON": DataType("JSON"), "BFILE": DataType("BFILE"),
    "SYS.ODCINUMBERLIST": DataType("ODCINUMBERLIST"), "CHAR": DataType("CHAR", length=1), "NCHAR": DataType("NCHAR", length=1, characters=True),
}  # fmt: skip


def parse(text: str) -> DataType | None:
    """The type written in a statement; None when it is none of the types this server has."""
    text = " ".join(text.split())
    if match := _TIMESTAMP.fullmatch(text):
        kind = "TIMESTAMP" if "WITH" not in text.upper() else "TIMESTAMP_LTZ" if match[2] else "TIMESTAMP_TZ"
        return DataType(kind, scale=6 if match[1] is None else int(match[1]))
    if match := _DAY_SECOND.fullmatch(text):
        return DataType("INTERVAL_DS", precision=int(match[1] or 2), scale=6 if match[2] is None else int(match[2]))
    if match := _YEAR_MONTH.fullmatch(text):
        return DataType("INTERVAL_YM", precision=int(match[1] or 2))
    if re.fullmatch(r"VECTOR\s*(\(.*\))?", text, re.IGNORECASE):
        return DataType("VECTOR")
    if text.upper() in _ALIASES:
        return _ALIASES[text.upper()]
    match = _PLAIN.fullmatch(text)
    return _sized_type(match["name"].upper(), match["a"], match["b"], match["unit"]) if match else None


def _sized_type(name: str, first: str | None, second: str | None, unit: str | None) -> DataType | None:
    if name in ("NUMBER", "NUMERIC", "DECIMAL", "DEC"):
        if first is None:
            return NUMBER if name == "NUMBER" else INTEGER
        if first == "*":
            return DataType("NUMBER", None if second is None else 38, int(second) if second else None)
        return DataType("NUMBER", int(first), int(second or 0))
    if name == "FLOAT":
        return DataType("FLOAT", int(first or 126))
    if first is None:
        return None
    if name in ("VARCHAR2", "VARCHAR", "CHAR", "CHARACTER", "CHARACTER VARYING", "CHAR VARYING"):
        kind = "CHAR" if name in ("CHAR", "CHARACTER") else "VARCHAR2"
        return DataType(kind, length=int(first), characters=(unit or "").upper() == "CHAR")
    if name in ("NVARCHAR2", "NCHAR", "NCHAR VARYING"):
        return DataType("NCHAR" if name == "NCHAR" else "NVARCHAR2", length=int(first), characters=True)
    return DataType("RAW", length=int(first)) if name == "RAW" else None


# numbers


def number(value: Any) -> int | float | str:
    """A number in the form the engine keeps: INTEGER, REAL with up to 15 digits, or exact text."""
    if isinstance(value, int):
        return value if -BIGGEST_INTEGER <= value < BIGGEST_INTEGER else _format_plain(Decimal(value))
    try:
        exact = Decimal(f"{value:.15g}") if isinstance(value, float) else Decimal(str(value).strip())
    except InvalidOperation:
        raise OraError(1722) from None
    if not exact.is_finite():
        raise OraError(1722)
    exact = NUMBER_DIGITS.plus(exact)
    if exact == exact.to_integral_value():
        return number(int(exact))
    text = _format_plain(exact)
    return float(text) if len(exact.normalize(NUMBER_DIGITS).as_tuple().digits) <= EXACT_DIGITS else text


def _format_plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def decimal(value: int | float | str) -> Decimal:
    """The exact number that a kept value stands for."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _round_number(value: Any, column: DataType) -> int | float | str:
    kept = number(value)
    if column.kind == "FLOAT":
        digits = max(1, int((column.precision or 126) * 0.30103 + 1))
        return number(Context(prec=digits).plus(decimal(kept)))
    if column.precision is None and column.scale is None:
        return kept
    scale = column.scale or 0
    if not (isinstance(kept, int) and scale >= 0):
        wide = Context(prec=80, rounding="ROUND_HALF_UP")
        try:
            kept = number(decimal(kept).quantize(Decimal(1).scaleb(-scale), context=wide))
        except InvalidOperation:  # more digits than any column has
            raise OraError(1438) from None
    if column.precision is not None and decimal(kept).copy_abs() >= Decimal(10) ** (column.precision - scale):
        raise OraError(1438)
    return kept


# any value


def store(value: Any, column: DataType, name: str, nls: "moments.Nls") -> Any:
    """A value as it is kept in a column of this type.

    Raises:
        OraError: the value does not fit (ORA-12899, 01438) or is no value of the type (ORA-01722, 01861 ...).
    """
    if value is None or (value == "" and column.kind not in LOB_KINDS):
        return None
    kind = column.kind
    if kind in ("NUMBER", "FLOAT"):
        return _round_number(value, column)
    if kind == "BOOLEAN":
        return int(value)
    if kind in TEXT_KINDS:
        return _text(value, column, name)
    if kind in DATE_KINDS:
        return moments.store(value, kind, column.scale or 0, nls)
    if kind in FLOAT_KINDS:
        return _float(value, kind)
    if kind in ("RAW", "BLOB"):
        data = value if isinstance(value, bytes) else moments.from_hex(str(value))
        if kind == "RAW" and len(data) > (column.length or 0):
            raise OraError(12899, name, len(data), column.length)
        return data
    if kind == "ROWID" and isinstance(value, bytes):
        return rowids.to_text(value)
    if kind == "INTERVAL_DS":
        return moments.day_second(str(value), column.precision or 2, column.scale or 0)
    if kind == "INTERVAL_YM":
        return moments.year_month(str(value), column.precision or 2)
    return text_of(value)


def _text(value: Any, column: DataType, name: str) -> str:
    text = text_of(value)
    limit = column.length or 0
    actual = len(text) if column.characters else len(text.encode())
    if actual > limit:
        raise OraError(12899, name, actual, limit)
    if column.kind in ("CHAR", "NCHAR"):
        text += " " * (limit - actual)
    return text


def text_of(value: Any) -> str:
    """A value as text, the way Oracle converts one without being asked."""
    if isinstance(value, float | int):
        return number_text(value)
    return value.hex().upper() if isinstance(value, bytes) else str(value)


def number_text(value: int | float | str, longest: int = 40) -> str:
    """A number as Oracle writes it: no zero before the point, at most 40 characters, or 64 in the format TM9."""
    text = _format_plain(decimal(value))
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits.startswith("0."):
        digits = digits[1:]
    if len(digits) > longest:
        mantissa, exponent = f"{decimal(value):.{longest - 7}E}".split("E")
        digits = f"{mantissa.lstrip('-').rstrip('0').rstrip('.')}E{int(exponent):+03d}"
    return sign + digits


def _float(value: Any, kind: str) -> float | str:
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise OraError(1722) from None
    if kind == "BINARY_FLOAT" and result == result and abs(result) != float("inf"):
        result = moments.single(result)
    return "nan" if result != result else result


def qualify_names(*parts: str) -> str:
    """Names in double quotes with points between them, as errors show them."""
    return ".".join(f'"{part}"' for part in parts)
