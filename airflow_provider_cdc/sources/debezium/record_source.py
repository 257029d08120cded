"""What files and topics have in common: lines in an order, with the position behind each."""

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


class Piece(abc.ABC):
    """Lines that follow each other, each a record: a JSON object of ``topic``, ``key``, ``value`` and ``headers``.

    :ivar lines: without their ends
    :ivar times: microseconds since 1970 of each line, where it is known
    """

    lines: list[bytes]
    times: list[int] | None = None

    @abc.abstractmethod
    def behind(self, count: int) -> Position:
        """The position behind the first ``count`` lines."""

    @abc.abstractmethod
    def where(self, line: int) -> str:
        """The place of a line, as people find it."""

    @abc.abstractmethod
    def source(self, lines: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        """``file``, ``partition`` and ``offset`` of some lines."""


class Feed(abc.ABC):
    """Files, or topics."""

    @abc.abstractmethod
    def read(self, start: Position, until: Position | None, wait: Callable[[], None]) -> Iterator[Piece | Position]:
        """Pieces from a position on, and a position where there is nothing new up to it. Ends at ``until``; without it, never.

        :param wait: waits a moment
        :raises PositionLost: what comes next is not there any more
        """

    @abc.abstractmethod
    def end(self) -> Position:
        """Behind the last whole line."""

    @abc.abstractmethod
    def begin(self) -> Position:
        """Before the first line."""

    @abc.abstractmethod
    def verify(self, position: Position) -> None:
        """
        :raises PositionLost: what comes next is not there any more
        """

    @abc.abstractmethod
    def findings(self) -> list[tuple[str, str, bool]]:
        """What is not as it should be: what, how it is mended, and whether nothing can be read before."""

    @abc.abstractmethod
    def sample(self) -> Iterator[Piece]:
        """Some lines, which show what there is."""

    @abc.abstractmethod
    def ordered(self, topic: str) -> bool:
        """Whether all lines of a topic are in one order: between partitions there is none."""

    @abc.abstractmethod
    def close(self) -> None:
        """May be called twice."""
