"""Fills a change table with many plausible rows at once, inside the engine, for benchmarks."""

from __future__ import annotations

from dev.servers.db2.capture import registrations
from dev.servers.db2.engine.driver import Connection
from dev.servers.db2.log import positions
from dev.servers.db2.log.log import Log, Table
from dev.servers.db2.log.positions import quote_name

THOUSAND = 1000
COLUMNS = "ID BIGINT NOT NULL PRIMARY KEY, NAME VARCHAR(60), AMOUNT DECIMAL(15, 2), QUANTITY INTEGER, RATE DOUBLE, CREATED TIMESTAMP, STATUS CHAR(8)"


def serve_changes(
    connection: Connection, log: Log, count: int, table: Table, transaction_rows: int
) -> dict[str, str | int]:
    """Put ``count`` changes into the change table of a table, which is made and registered if need be.

    Of ten changes five are inserts, three are updates (two rows each) and two are deletes. The source table stays empty.
    """
    if count % THOUSAND:
        raise ValueError(f"{count} changes: a multiple of {THOUSAND} is needed")
    if not log.columns(table):
        connection.execute(f"CREATE TABLE {quote_name(*table)} ({COLUMNS})")
        connection.commit()
        registrations.add(connection, log, table)
    change_table = (registrations.SCHEMA, f"CDC_{table[0]}_{table[1]}")
    _numbers(connection, max(THOUSAND, count // THOUSAND))
    log.read_view()
    mark = int(connection.scalar("VALUES NEXT VALUE FOR DB2LOG.LSN"))
    number = f"(A.I * {THOUSAND} + B.I)"
    commit = _bytes(f"{mark:016x}0000", f"{number} / {transaction_rows}", 12)
    connection.execute(f"LOCK TABLE {quote_name(*change_table)} IN EXCLUSIVE MODE")  # or a lock for each row
    for operation, half, where in (
        ("I", 1, f"MOD({number}, 10) < 8"),  # of inserts, and after updates
        ("D", 0, f"MOD({number}, 10) >= 5"),  # of deletes, and before updates
    ):
        intent = _bytes(f"{mark:016x}", f"{number} * 2 + {half}", 16)
        row = (
            f"{number}, 'row ' || RTRIM(CAST(CAST({number} AS CHAR(12)) AS VARCHAR(12))), CAST({number} AS DECIMAL(15, 2)) / 100, "
            f"CAST(MOD({number}, 1000) AS INTEGER), CAST({number} AS DOUBLE) / 7, CURRENT_TIMESTAMP, 'STATE{half}'"
        )
        connection.execute(
            f"INSERT INTO {quote_name(*change_table)} SELECT {commit}, {intent}, '{operation}', {row} "
            f"FROM DB2LOG.NUMBERS A, DB2LOG.NUMBERS B WHERE A.I < {count // THOUSAND} AND B.I < {THOUSAND} AND {where}"
        )
    transactions = (count - 1) // transaction_rows + 1
    unit = _bytes(f"{mark:016x}0000", number, 12)
    connection.execute(
        f"INSERT INTO ASNCDC.IBMSNAP_UOW (IBMSNAP_UOWID, IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER, IBMSNAP_AUTHTKN, IBMSNAP_AUTHID) SELECT "
        f"CAST(X'{mark:016x}0000' AS CHAR(10) FOR BIT DATA), {unit}, CURRENT_TIMESTAMP, 'python', 'BENCH' "
        f"FROM DB2LOG.NUMBERS A, DB2LOG.NUMBERS B WHERE A.I <= {transactions // THOUSAND} AND B.I < {THOUSAND} AND {number} < {transactions}"
    )
    first = mark.to_bytes(8, "big").ljust(16, b"\0")
    last = mark.to_bytes(8, "big") + b"\0\0" + (transactions - 1).to_bytes(6, "big")
    connection.execute(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = {positions.literal(last)}, SYNCHTIME = CURRENT_TIMESTAMP WHERE GLOBAL_RECORD = 'Y'"
    )
    connection.commit()
    return {"first": first.hex(), "last": last.hex(), "changes": count, "transactions": transactions}


def _numbers(connection: Connection, count: int) -> None:
    """Have a table of at least so many numbers."""
    if not connection.rows(
        "SELECT 1 FROM SYS.SYSTABLES T JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = T.SCHEMAID WHERE S.SCHEMANAME = 'DB2LOG' AND T.TABLENAME = 'NUMBERS'"
    ):
        connection.execute("CREATE TABLE DB2LOG.NUMBERS (I BIGINT NOT NULL PRIMARY KEY)")
    there = int(connection.scalar("SELECT COUNT(*) FROM DB2LOG.NUMBERS"))
    for first in range(there, count, THOUSAND):
        rows = ", ".join(f"({number})" for number in range(first, min(first + THOUSAND, count)))
        connection.execute(f"INSERT INTO DB2LOG.NUMBERS VALUES {rows}")
    connection.commit()


def _bytes(head: str, number: str, digits: int) -> str:
    """Bytes that begin with these digits and end with a number."""
    written = f"DB2LOG.HEX({number})"
    return f"DB2LOG.UNHEX('{head}' || SUBSTR('{'0' * digits}' || {written}, LENGTH({written}) + 1))"
