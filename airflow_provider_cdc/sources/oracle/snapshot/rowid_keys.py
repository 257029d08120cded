"""ROWIDs as chunk keys of tables without a key.

No index gives rows in the order of their ROWIDs: ``ORDER BY ROWID`` would read the whole rest of a table for each chunk. So a table is
split along its extents, and a query reads some blocks only. The splits need not be exact: every row is between two of them, before the
first or after the last.

A row keeps its ROWID unless its segment gets another data object number (``ALTER TABLE … MOVE``, ``TRUNCATE``, exchanged partitions).
Then rows that were not read yet could be before the key. A key therefore has a fingerprint: the greatest data object number, and a
checksum of all numbers up to it: ``AAAR0pAAHAAAACAAAB@73001.2a9b7cf1``. New partitions have greater numbers and do not change it.
"""

from __future__ import annotations

import bisect
import logging
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRejected
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, fetch_rows, translate_driver_errors
from airflow_provider_cdc.sources.oracle.snapshot import rowid_ranges
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import read_extents

log = logging.getLogger(__name__)

_SEGMENTS = (
    "SELECT DATA_OBJECT_ID FROM ALL_OBJECTS WHERE OWNER = :o AND OBJECT_NAME = :n AND OBJECT_TYPE LIKE 'TABLE%'"
    " AND DATA_OBJECT_ID IS NOT NULL"
)
_STEP: Final = 32
"""Blocks between two splits."""
_MOST_CUTS: Final = 64
"""Greatest number of these parts in one query, where they have few rows."""


def compute_fingerprint(numbers: Iterable[int], upto: int | None = None) -> str:
    """Fingerprint of the data object numbers of a table's segments, up to one of them; by default of all.

    >>> compute_fingerprint([7, 9]) == compute_fingerprint([9, 7, 12], 9) != compute_fingerprint([7, 12], 9)
    True
    """
    ordered = sorted(set(numbers))
    last = max(ordered, default=0) if upto is None else upto
    text = ",".join(str(number) for number in ordered if number <= last)
    return f"{last}.{zlib.crc32(text.encode()):08x}"


def strip_fingerprint(key: str) -> str:
    """Return the ROWID of a key, without the fingerprint.

    >>> strip_fingerprint("AAAR0pAAHAAAACAAAB@73001.2a9b7cf1")
    'AAAR0pAAHAAAACAAAB'
    """
    return key.partition("@")[0]


class RowidKeys:
    """Chunk keys by ROWID of one table."""

    def __init__(self, connection: Connection, config: OracleConfig, table: TableId) -> None:
        self._connection, self._config, self._table = connection, config, table
        self._cuts: list[str] | None = None

    def build_key(self, row_id: str, origin: str | None) -> str:
        """Return the key of a ROWID.

        :param origin: an earlier key of the same scan, whose fingerprint is kept; ``None`` = there is none
        """
        return f"{row_id}@{origin.partition('@')[2] if origin else compute_fingerprint(self._segments())}"

    def check_key(self, key: str) -> None:
        """Make sure that a key is still valid.

        :raises QueryRejected: rows have got other ROWIDs since
        """
        fingerprint = key.partition("@")[2]
        if fingerprint and compute_fingerprint(self._segments(), int(fingerprint.partition(".")[0])) != fingerprint:
            raise QueryRejected(
                f"The ROWIDs of {self._table} have changed since the read by ROWID started: the table, or one of "
                "its partitions, was moved, truncated, exchanged or dropped.",
                where=str(self._table),
                safe="Rows that were read are captured, and so are all changes.",
                remedy="send the signal again",
            )

    def list_part_bounds(self, after: str | None) -> Iterator[tuple[str | None, str | None]]:
        """Bounds (from, and up to but not including) of the parts after a ROWID; the parts grow, for the case that they have few rows."""
        if self._cuts is None:
            self._cuts = sorted(self._extents(), key=_number)
        at = 0 if after is None else bisect.bisect_right(self._cuts, _number(after), key=_number)
        low, step = None, 1
        while at < len(self._cuts):
            end = min(at + step, len(self._cuts))
            yield low, self._cuts[end - 1]
            low, at, step = self._cuts[end - 1], end, min(step * 2, _MOST_CUTS)
        yield low, None

    def _segments(self) -> list[int]:
        rows = fetch_rows(self._connection, _SEGMENTS, o=self._table.namespace, n=self._table.name)
        return [int(number) for (number,) in rows]

    def _extents(self) -> list[str]:
        try:
            with translate_driver_errors(self._config, str(self._table)):
                return rowid_ranges.split_extents(read_extents(self._connection, self._table), _STEP)
        except PrerequisiteError as e:
            log.warning(
                "%s is read completely for each chunk (by ROWID), because its extents cannot be read: %s",
                self._table,
                e.message,
            )
            return []


def _number(row_id: str) -> int:
    """Return a ROWID as a number; numbers sort like ROWIDs."""
    value = 0
    for character in row_id:
        value = value << 6 | rowid_ranges.DIGITS.index(character)
    return value
