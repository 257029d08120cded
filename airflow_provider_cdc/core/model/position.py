"""A position is a place in a source's log.

What it consists of is the source's own affair: core stores it as JSON, hands it back, and asks one question of it, whether it lies
at or after another one. ``seq`` orders everything downstream, so nothing else ever compares log coordinates.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class Position(Protocol):
    """A place between two transactions of a source's log; immutable.

    ``str()`` gives the form people see in errors and in the UI, in the database's own terms.
    """

    def to_json(self) -> dict[str, Any]:
        """A JSON object from which ``Source.parse_position`` builds an equal position."""

    def reached(self, other: Self) -> bool:
        """Whether a reader that stands here has everything that a reader at ``other`` has."""
