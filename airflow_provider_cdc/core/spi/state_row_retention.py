"""Retention of the rows of the state tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class StateRetention:
    """Retention of each kind of row; ``None``: for good. See the properties ``state.retention.*``.

    :param signal_bytes: size of the texts of ended signals; ``None``: any
    """

    offset_history: timedelta | None
    batches: timedelta | None
    notifications: timedelta | None
    signals: timedelta | None
    signal_bytes: int | None = None
