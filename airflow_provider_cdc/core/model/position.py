"""A position: a point in a source's log, between two transactions.

Only the source knows what it consists of. Core stores it as JSON, returns it to the source, and asks it one question: whether it is
at or after another one. ``seq`` orders everything downstream, so nothing else ever compares log coordinates.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class Position(Protocol):
    """A point between two transactions of a source's log; immutable.

    ``str()`` gives the form people see in errors and in the UI, in the database's own terms.
    """

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object from which ``Source.parse_position`` builds an equal position."""

    def has_reached(self, other: Self) -> bool:
        """Check whether a reader at this position has everything that a reader at ``other`` has."""
