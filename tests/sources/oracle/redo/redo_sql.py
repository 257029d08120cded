"""SQL_REDO texts of random rows, written from the table of shapes alone, by no one who looks at the reader.

A value is plain Python; :func:`literal` is how LogMiner spells it, :func:`recorded_value` how a reader of the change log sees it.
"""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

Row = dict[str, Any]

ALPHABET = "abcXYZ 0189'\"\\,;()|=:/*-ÄßéЖ日本😀\n\t"
TYPES = {
    "ID": "NUMBER(9)", "N1": "NUMBER(2)", "N18": "NUMBER(18)", "N38": "NUMBER(38)", "D12": "NUMBER(12,2)", "D38": "NUMBER(38,10)",
    "NV": "NUMBER", "F": "FLOAT", "BF": "BINARY_FLOAT", "BD": "BINARY_DOUBLE", "DAY": "DATE", "T0": "TIMESTAMP(0)",
    "T3": "TIMESTAMP(3)", "T6": "TIMESTAMP(6)", "T9": "TIMESTAMP(9)", "TZ": "TIMESTAMP(6) WITH TIME ZONE",
    "LTZ": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "YM": "INTERVAL YEAR TO MONTH", "DS": "INTERVAL DAY TO SECOND",
    "R": "RAW(20)", "C": "CHAR(8)", "V": "VARCHAR2(60)", "NC": "NCHAR(8)", "NVC": "NVARCHAR2(60)", "RID": "ROWID",
    "CL": "CLOB", "BL": "BLOB",
}  # fmt: skip
LOBS = {"CL", "BL"}


# -- values -----------------------------------------------------------------------------------------------------------------------


def _make_integer_draw(digits: int) -> Callable[[random.Random], Decimal]:
    return lambda r: Decimal(r.randrange(10 ** r.randint(1, digits)) * r.choice((1, -1)))


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    def make(r: random.Random) -> Decimal:
        with localcontext() as context:
            context.prec = 60
            return Decimal(r.randrange(10 ** r.randint(1, digits)) * r.choice((1, -1))).scaleb(-r.randint(0, scale))

    return make


def _text(r: random.Random) -> str:
    return "".join(r.choice(ALPHABET) for _ in range(r.randint(1, 12)))


def _draw_moment(r: random.Random, digits: int, first: int = 1, last: int = 9999) -> tuple[dt.datetime, int]:
    """A moment, and its nanoseconds, of which ``digits`` are there."""
    at = dt.datetime(
        r.randint(first, last), r.randint(1, 12), r.randint(1, 28), r.randrange(24), r.randrange(60), r.randrange(60)
    )
    return at, r.randrange(10**digits) * 10 ** (9 - digits)


def _float(r: random.Random) -> float:
    return r.choice(
        (
            0.0,
            1.5,
            -2.25,
            r.uniform(-1e3, 1e3),
            r.uniform(-1, 1) * 10.0 ** r.randint(-30, 30),
            float("inf"),
            float("-inf"),
            float("nan"),
        )
    )


_MAKE: dict[str, Callable[[random.Random], Any]] = {
    "ID": _make_integer_draw(9), "N1": _make_integer_draw(2), "N18": _make_integer_draw(18), "N38": _make_integer_draw(38), "D12": _decimal(10, 2), "D38": _decimal(28, 10),
    "NV": _decimal(38, 30), "F": _decimal(30, 10), "BF": _float, "BD": _float,
    "DAY": lambda r: _draw_moment(r, 0), "T0": lambda r: _draw_moment(r, 0), "T3": lambda r: _draw_moment(r, 3), "T6": lambda r: _draw_moment(r, 6),
    "T9": lambda r: _draw_moment(r, 9, 1678, 2261), "TZ": lambda r: (*_draw_moment(r, 6), r.choice((0, 330, -210, 720, -60))),
    "LTZ": lambda r: _draw_moment(r, 6), "YM": lambda r: r.randrange(1200) * r.choice((1, -1)),
    "DS": lambda r: r.randrange(10**14) * r.choice((1, -1)), "R": lambda r: r.randbytes(r.randint(1, 20)),
    "C": lambda r: r.choice(("Y", "n", "ü'")).ljust(8), "V": _text, "NC": lambda r: r.choice(("Y", "Ж")).ljust(8), "NVC": _text,
    "RID": lambda r: "AAAS" + "".join(r.choice("xkAFCX+/09") for _ in range(14)), "CL": lambda r: r.choice(("", _text(r))),
    "BL": lambda r: r.choice((b"", r.randbytes(9))),
}  # fmt: skip


def random_row(r: random.Random) -> Row:
    return {name: None if name != "ID" and r.random() < 0.15 else make(r) for name, make in _MAKE.items()}


# -- how LogMiner spells them -----------------------------------------------------------------------------------------------------


def literal(r: random.Random, name: str, value: Any) -> str:
    if value is None:
        return "NULL"
    kind = TYPES[name]
    if kind.startswith("NUMBER") or kind == "FLOAT":
        return f"'{_digits(value)}'"
    if kind.startswith("BINARY"):
        return f"'{_floating(value, kind)}'"
    if kind == "DATE":
        return f"TO_DATE('{value[0]:{_iso(value[0])}}', 'YYYY-MM-DD HH24:MI:SS')"
    if kind.startswith("TIMESTAMP"):
        return _timestamp(r, kind, value)
    if name == "YM":
        return f"TO_YMINTERVAL('{'-' if value < 0 else '+'}{abs(value) // 12:02d}-{abs(value) % 12:02d}')"
    if name == "DS":
        seconds, micros = divmod(abs(value), 10**6)
        clock = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return f"TO_DSINTERVAL('{'-' if value < 0 else '+'}{seconds // 86400:03d} {clock}.{micros:06d}')"
    if name in ("R", "BL"):
        return f"HEXTORAW('{value.hex().upper() if r.random() < 0.5 else value.hex()}')" if value else "EMPTY_BLOB()"
    if name == "CL" and not value:
        return "EMPTY_CLOB()"
    if name in ("NC", "NVC"):
        return _national(r, value)
    return "'" + value.replace("'", "''") + "'"


def _digits(value: Decimal) -> str:
    """Without a zero before the point and without zeros after the last decimal."""
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    text = text[1:] if text.startswith("0.") else text
    return "0" if text == "0" else sign + text


def _floating(value: float, kind: str) -> str:
    if value != value:
        return "Nan"
    if value in (float("inf"), float("-inf")):
        return "Inf" if value > 0 else "-Inf"
    mantissa, exponent = f"{value:.{8 if kind == 'BINARY_FLOAT' else 16}E}".split("E")
    return f"{mantissa}E{exponent[0]}{int(exponent[1:]):03d}"


def _iso(at: dt.datetime) -> str:
    return f"{at.year:04d}-%m-%d %H:%M:%S"


def _timestamp(r: random.Random, kind: str, value: Any) -> str:
    at, nanos = value[:2]
    fraction = f"{nanos:09d}".rstrip("0")
    if r.random() < 0.3:
        fraction = fraction.ljust(9 if kind == "TIMESTAMP(9)" else 6, "0")
    text = f"{at:{_iso(at)}}.{fraction}"
    if "WITH TIME ZONE" not in kind:
        return f"TO_TIMESTAMP('{text}')"
    minutes = value[2]
    return f"TO_TIMESTAMP_TZ('{text} {'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}')"


def _national(r: random.Random, value: str) -> str:
    """Everything but ASCII in UTF-16 units; long texts in two parts."""

    def part(text: str) -> str:
        out = ""
        for c in text:
            units = c.encode("utf-16-be")
            escaped = "".join(f"\\{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
            out += "\\\\" if c == "\\" else "''" if c == "'" else c if c.isascii() else escaped
        return f"UNISTR('{out}')"

    if len(value) > 2 and r.random() < 0.2:
        return part(value[:2]) + r.choice((" || ", "||")) + part(value[2:])
    return part(value)


def insert(r: random.Random, row: Row) -> str:
    values = [literal(r, n, v) for n, v in row.items()]
    return f"""insert into "SHOP"."PARTS"({",".join(f'"{n}"' for n in row)}) values ({",".join(values)});"""


def conditions(r: random.Random, row: Row, alias: str = "") -> str:
    parts = [f'{alias}"{n}" IS NULL' if v is None else f'{alias}"{n}" = {literal(r, n, v)}' for n, v in row.items()]
    return " and ".join(parts)


def delete(r: random.Random, row: Row) -> str:
    return f'delete from "SHOP"."PARTS" where {conditions(r, row)};'


def update(r: random.Random, row: Row, changed: Row) -> str:
    alias = "a." if r.random() < 0.05 else ""
    table = '"SHOP"."PARTS"' + (" a" if alias else "")
    sets = ", ".join(f'{alias}"{n}" = {literal(r, n, v)}' for n, v in changed.items())
    return f"update {table} set {sets} where {conditions(r, row, alias)};"


# -- what they mean ---------------------------------------------------------------------------------------------------------------


def recorded_value(name: str, value: Any) -> Any:
    """The value as the recorded cases spell it."""
    if value is None:
        return None
    kind = TYPES[name]
    if name in ("ID", "N1", "N18"):
        return int(value)
    if name in ("NV", "F"):
        text = f"{value:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text in ("-0", "") else text
    if kind.startswith("NUMBER"):
        with localcontext() as context:
            context.prec = 60
            scaled = value.quantize(Decimal(1).scaleb(-{"N38": 0, "D12": 2, "D38": 10}[name]))
            return str(scaled if scaled else abs(scaled))
    if kind.startswith("BINARY"):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        written = float(_floating(value, kind))
        return struct.unpack("<f", struct.pack("<f", written))[0] if kind == "BINARY_FLOAT" else written
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        at, nanos = value[:2]
        if name == "TZ":
            minutes = value[2]
            zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"
            return f"{at.isoformat()}.{nanos // 1000:06d}{zone}"
        fraction = f"{nanos:09d}" if name == "T9" else f"{nanos // 1000:06d}"
        return f"{at.isoformat(' ')}.{fraction}" + ("Z" if name == "LTZ" else "")
    if name == "YM":
        return value * 2_629_800_000_000
    if name in ("R", "BL"):
        return value.hex()
    return value
