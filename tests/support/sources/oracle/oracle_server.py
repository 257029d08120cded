"""Helpers of the tests of the Oracle test server: statements, and a mining session from start to end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oracledb
import pytest

from dev.servers.oracle import Oracle

NLS = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9'"
    " NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM' NLS_NUMERIC_CHARACTERS = '.,' TIME_ZONE = '00:00'"
)
ONLINE = "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.NO_ROWID_IN_STMT"


def drop_all(server: Oracle) -> None:
    for (name,) in server.sql("SELECT table_name FROM user_tables"):
        server.sql(f'DROP TABLE "{name}" PURGE')


def rows(connection: oracledb.Connection, sql: str, *binds: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        return cursor.execute(sql, binds).fetchall()


def run(connection: oracledb.Connection, *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def code(error: pytest.ExceptionInfo[oracledb.Error]) -> int:
    """The number of ``ORA-`` in an expected error."""
    return int(error.value.args[0].code)


def add_logs(connection: oracledb.Connection, start: int) -> None:
    """Add every log that may hold redo from an SCN on: archived ones by their copies."""
    files = rows(
        connection,
        "SELECT name FROM v$archived_log WHERE name IS NOT NULL AND status = 'A' AND next_change# > :1"
        " UNION SELECT MIN(f.member) FROM v$logfile f, v$log l WHERE f.group# = l.group# AND l.archived = 'NO' GROUP BY l.group#",
        start,
    )
    for (name,) in files:
        rows_added = {"f": name}
        connection.cursor().execute(
            "BEGIN sys.dbms_logmnr.add_logfile(LOGFILENAME => :f, OPTIONS => DBMS_LOGMNR.ADDFILE); END;", rows_added
        )


def mine_rows(
    connection: oracledb.Connection,
    start: int,
    end: int | None = None,
    options: str = ONLINE,
    columns: str = "operation_code, sql_redo",
    where: str = "seg_owner = 'APP'",
) -> list[tuple[Any, ...]]:
    """The rows of one mining session from an SCN on."""
    add_logs(connection, start)
    run(
        connection,
        f"BEGIN sys.dbms_logmnr.start_logmnr(startScn => {start}, endScn => {end or 0}, options => {options}); END;",
    )
    found = rows(connection, f"SELECT {columns} FROM v$logmnr_contents WHERE {where}")
    run(connection, "BEGIN SYS.DBMS_LOGMNR.END_LOGMNR(); END;")
    return found


@contextmanager
def redo_at_once(server: Oracle) -> Iterator[None]:
    """Have the redo of open transactions in the log at once, as that of large transactions is: no private strands."""
    server.configure(private_strands=False)
    try:
        yield
    finally:
        server.configure(private_strands=True)
