"""Names by which rows of our own tables are found: in a collation that takes two of them as one, two topics or two connectors would share a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

_MYSQL, _MSSQL = "utf8mb4_bin", "Latin1_General_100_BIN2"
TRANSACTIONAL: Mapping[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("row_format", "DYNAMIC"))
}
"""Options of our own tables: without them, a server's default may have no transactions, or shorter keys."""


def exact_name(length: int, *, letters: bool = False) -> sa.String:
    """Build the type of a column of names, in which no two names are equal.

    :param letters: they may have other letters than those of ASCII
    """
    exact: Any = mysql.VARCHAR(length, charset="utf8mb4", collation=_MYSQL)
    return (
        sa.String(length)
        .with_variant(exact, "mysql", "mariadb")
        .with_variant((sa.Unicode if letters else sa.String)(length, collation=_MSSQL), "mssql")
    )
