"""Row ids as keys of tables that have none.

Rows have no other order that an index would give: ``ORDER BY ROWID`` reads all that is left of a table for each chunk. So a table
is cut along its extents, and only some blocks are read at a time. The cuts need not be right: rows lie between two of them, before the
first or behind the last.

A row keeps its id unless its segment gets another number (``ALTER TABLE … MOVE``, ``TRUNCATE``, exchanged partitions). Rows that had
been ahead could then be behind. A key therefore has the greatest number that there was, and a sum of all numbers up to that:
``AAAR0pAAHAAAACAAAB@73001.2a9b7cf1``. New partitions have greater numbers and change nothing.
"""

from __future__ import annotations

import bisect
import logging
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRefused
from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, rows, translated
from airflow_provider_cdc.sources.oracle.snapshot import rowids
from airflow_provider_cdc.sources.oracle.snapshot.read_blocks import extents

log = logging.getLogger(__name__)

_SEGMENTS = (
    "SELECT DATA_OBJECT_ID FROM ALL_OBJECTS WHERE OWNER = :o AND OBJECT_NAME = :n AND OBJECT_TYPE LIKE 'TABLE%'"
    " AND DATA_OBJECT_ID IS NOT NULL"
)
_STEP: Final = 32
"""Blocks between two cuts."""
_MOST_CUTS: Final = 64
"""At most so many of these parts are read at a time, where few rows are left in them."""


def fingerprint(numbers: Iterable[int], upto: int | None = None) -> str:
    """The numbers of a table's segments up to one of them, by default all.

    >>> fingerprint([7, 9]) == fingerprint([9, 7, 12], 9) != fingerprint([7, 12], 9)
    True
    """
    kept = sorted(set(numbers))
    last = max(kept, default=0) if upto is None else upto
    text = ",".join(str(number) for number in kept if number <= last)
    return f"{last}.{zlib.crc32(text.encode()):08x}"


def plain(key: str) -> str:
    """The row id of a key.

    >>> plain("AAAR0pAAHAAAACAAAB@73001.2a9b7cf1")
    'AAAR0pAAHAAAACAAAB'
    """
    return key.partition("@")[0]


class RowidKeys:
    """The row ids of one table."""

    def __init__(self, connection: Connection, config: OracleConfig, table: TableId) -> None:
        self._connection, self._config, self._table = connection, config, table
        self._cuts: list[str] | None = None

    def mark(self, row_id: str, origin: str | None) -> str:
        """A row id as a key has it.

        :param origin: a key of the same scan; ``None`` = it is the first one
        """
        return f"{row_id}@{origin.partition('@')[2] if origin else fingerprint(self._segments())}"

    def verify(self, key: str) -> None:
        """Make sure that a key is still one.

        :raises QueryRefused: the ids are not those any more that the key is one of
        """
        known = key.partition("@")[2]
        if known and fingerprint(self._segments(), int(known.partition(".")[0])) != known:
            raise QueryRefused(
                f"Rows of {self._table} have other row ids than when reading them by ROWID began: the table, or a partition of "
                "it, was moved, truncated, exchanged or dropped.",
                where=str(self._table),
                safe="Rows that were read are captured, and so is every change.",
                remedy="send the signal again",
            )

    def parts(self, after: str | None) -> Iterator[tuple[str | None, str | None]]:
        """Bounds of parts behind a row id: from here on, and up to here without it. Several small ones are taken together."""
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
        found = rows(self._connection, _SEGMENTS, o=self._table.namespace, n=self._table.name)
        return [int(number) for (number,) in found]

    def _extents(self) -> list[str]:
        try:
            with translated(self._config, str(self._table)):
                return rowids.cuts(extents(self._connection, self._table), _STEP)
        except PrerequisiteError as e:
            log.warning(
                "%s is read by ROWID in full for each chunk, as its extents cannot be seen: %s", self._table, e.what
            )
            return []


def _number(row_id: str) -> int:
    """Row ids as numbers in their order."""
    value = 0
    for character in row_id:
        value = value << 6 | rowids.DIGITS.index(character)
    return value
