"""The tables of the random writer for Db2, their keys, and values as SQL has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from random import Random
from typing import Any

VALUES = {"N": "INTEGER", "D": "DECIMAL(10,2)", "S": "VARCHAR(40)", "AT": "TIMESTAMP"}
CREATE = {
    "ONE": {"ID": "INTEGER", **VALUES},
    "Two": {"A": "VARCHAR(10)", "B": "BIGINT", **VALUES},
    "BITS": {"C": "CHAR(4) FOR BIT DATA", "V": "VARCHAR(12) FOR BIT DATA", "N": "INTEGER", "S": "VARCHAR(40)"},
    "BAG": {"WHO": "SMALLINT", **VALUES},
    "DOC": {"ID": "INTEGER", "N": "INTEGER", "T": "CLOB(1M)", "R": "BLOB(1M)"},
    "OLD": {"ID": "INTEGER", **VALUES},
}
KEYS = {"ONE": ("ID",), "Two": ("B", "A"), "BITS": ("V", "C"), "BAG": (), "DOC": ("ID",), "OLD": ("ID",)}
LOBS = {"T", "R"}
FIXED = {"ID", "A", "B", "C", "V", "WHO", "N", *LOBS}
"""Columns that stay."""
PREFIX = "O_"
"""Of the columns with images from before, which ``OLD`` has: its updates are one row each."""


def value(r: Random, type_: str) -> str:
    """A literal of a type, NULL now and then."""
    if r.random() < 0.12:
        return "NULL"
    match type_.split("(")[0]:
        case "DECIMAL":
            return f"{r.randint(-(10**8), 10**8) / 100:.2f}"
        case "INTEGER" | "BIGINT":
            return str(r.choice((0, -1, 2_147_483_647, r.randint(-(10**6), 10**6))))
        case "DOUBLE":
            return repr(r.uniform(-1e6, 1e6)) + "E0"
        case "DATE" | "TIMESTAMP" as kind:
            at = dt.datetime(1950, 1, 1) + dt.timedelta(seconds=r.randrange(3 * 10**9), microseconds=r.randrange(10**6))
            return f"{kind}('{at:%Y-%m-%d}')" if kind == "DATE" else f"{kind}('{at:%Y-%m-%d %H:%M:%S.%f}')"
        case "BLOB":
            return f"CAST(X'{r.randbytes(r.choice((1, 50, 900))).hex()}' AS BLOB(1M))"
        case "CLOB":
            return literal(_text(r, r.choice((3, 60, 2500))))
    if "BIT DATA" in type_:
        return f"X'{r.randbytes(r.randint(1, 20)).hex()}'"
    return literal(_text(r, r.choice((5, 9, 200)) if "400" in type_ else 9))


def _text(r: Random, longest: int) -> str:
    part = "".join(r.choice("abc é€'\"\\ =?") for _ in range(r.randint(1, min(longest, 60))))
    return (part * (longest // len(part) + 1))[:longest] if longest > 9 else part


def key_of(table: str, n: int) -> Any:
    """A key out of a number."""
    match table:
        case "Two":
            return n, f"k {n % 7}"
        case "BITS":
            return (b"\0\xff%x" % n).hex(), f"{n % 5:08x}"
    return None if table == "BAG" else n


def parts(table: str, key: Any) -> dict[str, str]:
    """Column of a key → literal."""
    if table == "Two":
        return {"B": str(key[0]), "A": literal(key[1])}
    if table == "BITS":
        return {"V": f"X'{key[0]}'", "C": f"X'{key[1]}'"}
    return {} if table == "BAG" else {"ID": str(key)}


def where_clause(table: str, key: Any) -> str:
    return " AND ".join(f'"{c}" = {v}' for c, v in parts(table, key).items())


def column_names(names: Iterable[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
