"""How long the rows of the state tables are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class StateRetention:
    """How long each kind of row is kept; ``None``: for good. See the properties ``state.retention.*``."""

    offset_history: timedelta | None
    batches: timedelta | None
    notifications: timedelta | None
    signals: timedelta | None
