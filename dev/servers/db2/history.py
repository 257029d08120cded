"""The committed rows of a table at an LSN, out of the log: what tests compare captured tables with."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dev.servers.db2 import positions
from dev.servers.db2.driver import Connection
from dev.servers.db2.log import DELETE, INSERT, Changes, Log, Table


def table_at(connection: Connection, log: Log, table: Table, lsn: bytes | None) -> list[tuple[Any, ...]]:
    """The rows of a table whose changes are logged, after the transactions up to and with this LSN; None: after all that are committed.

    The columns are those that the table had then.
    """
    log.look()
    end = positions.number(lsn) if lsn else (1 << 63) - 1
    versions = [changes for changes in log.of(table) if positions.unit(changes.since, 0) <= end]
    if not versions:
        raise ValueError(f"the changes of {table[0]}.{table[1]} were not logged at {lsn.hex() if lsn else 'any LSN'}")
    changes = versions[-1]
    rows = Counter(_plain(row) for row in connection.rows(f"SELECT * FROM DB2LOG.S{changes.id}"))
    for operation, before, after in _events(connection, changes, end):
        if operation != INSERT:
            rows[before] -= 1
            if rows[before] < 0:
                raise AssertionError(f"{changes.name}: a row that is not there was changed: {before}")
        if operation != DELETE:
            rows[after] += 1
    connection.commit()
    return list(rows.elements())


def _events(connection: Connection, changes: Changes, end: int) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    count = len(changes.columns)
    images = ", ".join(f"S.{side}{order}" for side in "BA" for order in range(1, count + 1))
    rows = connection.rows(
        f"SELECT S.OP, {images} FROM {changes.name} S JOIN DB2LOG.UNITS U ON U.XID = S.XID WHERE U.N <= ? ORDER BY U.N, S.LSN",
        (end,),
    )
    return [(row[0], _plain(row[1 : count + 1]), _plain(row[count + 1 :])) for row in rows]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(bytes(value) if isinstance(value, bytearray | memoryview) else value for value in row)
