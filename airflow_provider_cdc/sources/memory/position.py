"""A position in the log of a memory database: a number of entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryPosition:
    """After ``entry`` entries of the log."""

    entry: int

    def to_json(self) -> dict[str, Any]:
        return {"entry": self.entry}

    def has_reached(self, other: MemoryPosition) -> bool:
        return self.entry >= other.entry

    def __str__(self) -> str:
        return f"entry {self.entry}"
