"""The sink's work-arounds for the Db2 stand-in: it has Derby's engine, and IBM's driver on Derby's protocol.

Array binds end the connection (the driver chains requests in a way that Derby does not read), and MERGE takes its rows from a table, not from VALUES. Here, each
row of an array is executed by itself, and a MERGE from VALUES is one from SYSIBM.SYSDUMMY1, which has one row, with the bound values in their places. Derby has one
savepoint at a time, has no large objects in tables of a session, and changes no type of a column but its length: a column gets another type as a new one that is renamed. A savepoint inside another is left out, where the sink runs a single statement, which Derby undoes by itself if it fails. All else is sent as it is. On a real Db2 nothing of this is needed: the statements as they are sent there are compared as texts in ``tests/targets/database/dialects/test_statements.py``.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from dev.servers.db2.statements.dialect import CLAUSES, MaskedStatement

_MERGE = re.compile(r"(MERGE INTO .*?) t USING \(VALUES \((.*)\)\) AS s \(([^)]*)\) (ON .*)", re.DOTALL)

_RETYPED = re.compile(
    r'ALTER TABLE (\S+) ALTER COLUMN ("(?:[^"]|"")*") SET DATA TYPE ((?!VARCHAR)[A-Z]+(?: ?\([^)]*\))?)(?: ALTER COLUMN \S+ DROP NOT NULL)?'
)
_SESSION_TABLE = re.compile(
    r"DECLARE GLOBAL TEMPORARY TABLE (\S+) AS \((.*)\) WITH NO DATA ON COMMIT PRESERVE ROWS NOT LOGGED WITH REPLACE",
    re.DOTALL,
)
_SAVEPOINTS = re.compile(r"(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT) (\w+)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))?")
_SAVEPOINT = "savepoint of Derby"


def adapt_engine(engine: sa.Engine) -> sa.Engine:
    """The engine, that gets along with the stand-in if it is of a Db2."""
    if engine.dialect.name == "db2":
        sa.event.listen(engine, "do_execute", _adapt_statement)
        sa.event.listen(
            engine, "do_execute_no_params", lambda cursor, sql, context: _adapt_statement(cursor, sql, (), context)
        )
        sa.event.listen(engine, "do_executemany", _many)
        for end in ("commit", "rollback"):
            sa.event.listen(engine, end, lambda connection: connection.info.pop(_SAVEPOINT, None))
    return engine


def _adapt_statement(cursor: Any, statement: str, row: Any, context: Any) -> bool:
    if "SAVEPOINT " in statement[:25]:
        return _handle_savepoint(cursor, statement, context)
    if statement.startswith("DECLARE "):
        return _declare_session_table(cursor, statement)
    if statement.startswith(("ALTER ", "CALL ")):
        return _retype_column(cursor, statement)
    if statement.startswith("UPDATE ") and "CODEUNITS32)" in statement:
        cursor.execute(statement.replace(" CODEUNITS32)", ")"), row)
        return True
    return statement.startswith("MERGE ") and _many(cursor, statement, [row], context)


def _retype_column(cursor: Any, statement: str) -> bool:
    """A column of another type: Derby changes lengths only, and has nothing to reorganize."""
    if statement.startswith("CALL SYSPROC.ADMIN_CMD('REORG TABLE "):
        return True
    found = _RETYPED.fullmatch(statement)
    if found is None:
        return False
    table, column, type_ = found.groups()
    for sql in (
        f"ALTER TABLE {table} ADD COLUMN CDC_NEW {type_}", f"UPDATE {table} SET CDC_NEW = {column}",
        f"ALTER TABLE {table} DROP COLUMN {column}", f"ALTER TABLE {table} RENAME COLUMN CDC_NEW TO {column}",
    ):  # fmt: skip
        cursor.execute(sql)
    return True


def _declare_session_table(cursor: Any, statement: str) -> bool:
    """A table of the session's own. Derby's have no large objects, and are not made out of a query: it is a real one, in the schema that has the same name."""
    found = _SESSION_TABLE.fullmatch(statement)
    if found is None:
        cursor.execute(statement.replace(" WITH REPLACE", ""))
        return True
    name, query = found.groups()
    with contextlib.suppress(Exception):  # it is not there
        cursor.execute(f"DROP TABLE {name}")
    cursor.execute(f"CREATE TABLE {name} AS {query} WITH NO DATA")
    return True


def _handle_savepoint(cursor: Any, statement: str, context: Any) -> bool:
    """Check whether nothing is left to do for a statement about savepoints."""
    found = _SAVEPOINTS.match(statement)
    if found is None:
        return False
    what, name = found.groups()
    info = context.root_connection.info
    if what == "SAVEPOINT":
        return info.setdefault(_SAVEPOINT, name) != name
    if info.get(_SAVEPOINT) != name:
        return True
    del info[_SAVEPOINT]
    cursor.execute(statement)
    if what != "RELEASE SAVEPOINT":
        cursor.execute(f"RELEASE SAVEPOINT {name}")
    return True


def _many(cursor: Any, statement: str, rows: Any, context: Any) -> bool:
    sql, places = _of_derby(statement)
    for row in rows:
        cursor.execute(sql, tuple(map(_of_micros, row if places is None else (row[at] for at in places))))
    return True


def _of_micros(value: Any) -> Any:
    """A value for Derby, whose moments have six digits of a second, whatever their column says."""
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    return f"{found[1]}.{(found[2] or '').ljust(6, '0')[:6]}" if found else value


@lru_cache
def _of_derby(statement: str) -> tuple[str, list[int] | None]:
    """A statement for Derby, and which values it takes, in which order.

    >>> _of_derby('MERGE INTO "T" t USING (VALUES (CAST(? AS INTEGER))) AS s ("A") ON (t."A" = s."A") WHEN NOT MATCHED THEN INSERT ("A") VALUES (s."A")')[1]
    [0, 0]
    """
    masked = MaskedStatement(statement)
    found = _MERGE.fullmatch(masked.text)
    if found is None:
        return statement, None
    head, values, names, rest = found.groups()
    for pattern, instead in CLAUSES:
        values = pattern.sub(instead, values)
    marks = ["CAST(" + part for part in values.removeprefix("CAST(").split(", CAST(")]
    order = [masked.shown(name) for name in names.split(", ")]
    places: list[int] = []

    def bound(column: re.Match[str]) -> str:
        places.append(order.index(masked.shown(column[1])))
        return marks[places[-1]]

    rest = re.sub(r"\bs\.(\x01\d+\x01)", bound, rest)
    return masked.shown(f"{head} t USING SYSIBM.SYSDUMMY1 s {rest}"), places
