"""Retention of the rows of the state tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class StateRetention:
    """Retention of each kind of row; ``None``: for good. See the properties ``state.retention.*``."""

    offset_history: timedelta | None
    batches: timedelta | None
    notifications: timedelta | None
    signals: timedelta | None
