"""Positions: behind a line of a file, or behind an offset of each partition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Behind so many bytes of a file; files are in the order of their names.

    :param file: its name below the path; empty before the first file
    :param offset: bytes, of the content of a compressed file
    :param line: lines
    :param size: of a file that was read to its end and cannot grow, as it is stored; ``None``: it may have more
    :param before: how many files come before it
    """

    file: str = ""
    offset: int = 0
    line: int = 0
    size: int | None = None
    before: int = 0

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"file": self.file, "offset": self.offset, "line": self.line, "before": self.before}
        return document if self.size is None else document | {"size": self.size}

    def has_reached(self, other: FilePosition) -> bool:
        return self._place >= other._place

    @property
    def _place(self) -> tuple[str, float]:
        return self.file, self.offset if self.size is None else math.inf

    def __str__(self) -> str:
        if not self.file:
            return "before the first file"
        return (
            f"the end of {self.file}" if self.size is not None else f"{self.file}, line {self.line}, byte {self.offset}"
        )


@dataclass(frozen=True, slots=True)
class TopicsPosition:
    """Before an offset of each partition.

    :param offsets: topic → partition → offset of the next record; partitions that are not in it were not begun
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "topics": {
                topic: {str(p): offset for p, offset in sorted(partitions.items())}
                for topic, partitions in sorted(self.offsets.items())
            }
        }

    def has_reached(self, other: TopicsPosition) -> bool:
        return all(
            self.offsets.get(topic, {}).get(partition, 0) >= offset
            for topic, partitions in other.offsets.items()
            for partition, offset in partitions.items()
        )

    def __str__(self) -> str:
        return (
            ", ".join(
                f"{topic}[{partition}]@{offset}"
                for topic, partitions in sorted(self.offsets.items())
                for partition, offset in sorted(partitions.items())
            )
            or "before the first record"
        )


def parse_position(document: Mapping[str, Any]) -> FilePosition | TopicsPosition:
    """Parse the position that :meth:`to_json` described.

    >>> parse_position({"file": "a.jsonl", "offset": 12, "line": 1, "before": 0})
    FilePosition(file='a.jsonl', offset=12, line=1, size=None, before=0)

    :raises ValueError: it is none
    :raises KeyError: something is missing
    """
    if "topics" in document:
        return TopicsPosition(
            {t: {int(p): int(offset) for p, offset in ps.items()} for t, ps in document["topics"].items()}
        )
    size = document.get("size")
    return FilePosition(
        str(document["file"]), int(document["offset"]), int(document["line"]), None if size is None else int(size),
        int(document.get("before", 0)),
    )  # fmt: skip
