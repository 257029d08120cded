"""Numbers of the log, and what they look like in control tables and change tables."""

from __future__ import annotations

UNIT_BITS = 16
"""Transactions that the agent sees ended at the same moment differ in so many bits."""
LONG, SHORT = 16, 10


def unit(mark: int, order: int) -> int:
    """The number of a transaction: increasing in the order of commits."""
    return mark << UNIT_BITS | order


def lsn(number: int, length: int) -> bytes:
    """A number of a transaction, or of a moment, as an LSN."""
    return number.to_bytes(10, "big").ljust(length, b"\0")


def number(value: bytes) -> int:
    """The number in an LSN."""
    return int.from_bytes(value[:10].ljust(10, b"\0"), "big")


def in_sql(column: str, length: int) -> str:
    """An expression of SQL for the LSN of a change whose number is in this column."""
    digits = f"DB2LOG.HEX({column})"
    padded = f"SUBSTR('0000000000000000' || {digits}, LENGTH({digits}) + 1)"
    return f"DB2LOG.UNHEX({padded} || '{'00' * (length - 8)}')"


def literal(value: bytes) -> str:
    """A literal of SQL."""
    return f"X'{value.hex()}'"


def quote_name(*names: str) -> str:
    """A name of SQL with its parts delimited."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def text(value: str) -> str:
    """A character literal of SQL."""
    return "'" + value.replace("'", "''") + "'"
