"""The committed rows of a table at an LSN, out of the log: what tests compare captured tables with."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from dev.servers.db2.engine.driver import Connection
from dev.servers.db2.log import positions
from dev.servers.db2.log.log import DELETE, INSERT, Changes, Log, Table


def table_at(
    connection: Connection, log: Log, table: Table, lsns: Sequence[bytes | None]
) -> list[list[tuple[Any, ...]]]:
    """The rows of a table whose changes are logged, after the transactions up to and with each of these LSNs, which ascend; None: after all that are
    committed.

    The columns are those that the table had then.
    """
    log.read_view()
    found: list[list[tuple[Any, ...]]] = []
    ends = [positions.number(lsn) if lsn else (1 << 63) - 1 for lsn in lsns]
    known = log.changes_of(table)
    since = [positions.unit(changes.first, 0) for changes in known]
    for place, some in groupby(ends, lambda end: bisect_right(since, end) - 1):
        if place < 0:
            raise ValueError(f"the changes of {table[0]}.{table[1]} were not logged at all of these LSNs")
        found += _rows_at(connection, known[place], list(some))
    connection.commit()
    return found


def _rows_at(connection: Connection, changes: Changes, ends: list[int]) -> list[list[tuple[Any, ...]]]:
    """The rows at each of some ends, while the table had the same columns."""
    rows = Counter(_normalize_row(row) for row in connection.rows(f"SELECT * FROM DB2LOG.S{changes.id}"))
    events = deque(_events(connection, changes, ends[-1]))
    found = []
    for end in ends:
        while events and events[0][0] <= end:
            _, operation, before, after = events.popleft()
            if operation != INSERT:
                rows[before] -= 1
                if rows[before] < 0:
                    raise AssertionError(f"{changes.name}: a row that is not there was changed: {before}")
            if operation != DELETE:
                rows[after] += 1
        found.append(list(rows.elements()))
    return found


def _events(
    connection: Connection, changes: Changes, end: int
) -> list[tuple[int, str, tuple[Any, ...], tuple[Any, ...]]]:
    """Transaction, operation and both images of each change, in order."""
    count = len(changes.columns)
    images = ", ".join(f"S.{side}{order}" for side in "BA" for order in range(1, count + 1))
    rows = connection.rows(
        f"SELECT U.N, S.OP, {images} FROM {changes.name} S JOIN DB2LOG.UNITS U ON U.XID = S.XID WHERE U.N <= ? ORDER BY U.N, S.LSN WITH UR",
        (end,),
    )
    return [(row[0], row[1], _normalize_row(row[2 : count + 2]), _normalize_row(row[count + 2 :])) for row in rows]


def _normalize_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(bytes(value) if isinstance(value, bytearray | memoryview) else value for value in row)
