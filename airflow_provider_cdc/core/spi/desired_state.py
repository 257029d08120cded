"""Desired state of a connector: that it runs, rests or has ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime


class DesiredState(enum.StrEnum):
    """States that people want of a connector."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ConnectorControl:
    """Desired state of a connector, and since when it is wanted.

    :param restarts: grows with each request that the run which is alive end and another one begin
    :param by: who asked for it last
    """

    desired_state: DesiredState = DesiredState.RUNNING
    restarts: int = 0
    by: str = ""
    reason: str = ""
    changed_at: datetime | None = None
