"""Interfaces that files and topics implement: lines in an order, with the position behind each."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.model.position import Position

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

PIECE_BYTES = 4 << 20
"""Bytes of lines that are parsed together, at least."""


class RecordLines(abc.ABC):
    """Lines that follow each other, each a record: a JSON object of ``topic``, ``key``, ``value`` and ``headers``.

    :ivar lines: without their ends
    :ivar times: microseconds since 1970 of each line, where it is known
    """

    lines: list[bytes]
    times: list[int] | None = None

    @abc.abstractmethod
    def position_from_count(self, count: int) -> Position:
        """Return the position behind the first ``count`` lines."""

    @abc.abstractmethod
    def describe_line(self, line: int) -> str:
        """Describe the place of a line, as people find it."""

    @abc.abstractmethod
    def build_source_fields(self, lines: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        """``file``, ``partition`` and ``offset`` of some lines."""


class RecordFeed(abc.ABC):
    """Files, or topics."""

    @abc.abstractmethod
    def read(
        self, start: Position, until: Position | None, wait: Callable[[], None]
    ) -> Iterator[RecordLines | Position]:
        """Pieces from a position on, and a position where there is nothing new up to it. Ends at ``until``; without it, never.

        :param wait: waits a moment
        :raises PositionLost: what comes next is not there any more
        """

    @abc.abstractmethod
    def find_end_position(self) -> Position:
        """Behind the last whole line."""

    @abc.abstractmethod
    def find_begin_position(self) -> Position:
        """Before the first line."""

    @abc.abstractmethod
    def verify_position(self, position: Position) -> None:
        """Check that the feed can be read from a position on.

        :raises PositionLost: what comes next is not there any more
        """

    @abc.abstractmethod
    def list_findings(self) -> list[tuple[str, str, bool]]:
        """List the problems: text, remedy, and whether nothing can be read before the repair."""

    @abc.abstractmethod
    def read_sample(self) -> Iterator[RecordLines]:
        """Yield some lines, which show the kinds of records."""

    @abc.abstractmethod
    def is_topic_ordered(self, topic: str) -> bool:
        """Check whether all lines of a topic are in one order: between partitions there is none."""

    @abc.abstractmethod
    def close(self) -> None:
        """May be called twice."""
