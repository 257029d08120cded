"""A signal: what people ask of a connector while it works, and what became of it.

However a signal is sent, it is recorded in the state tables first, with a number that grows, and taken from there; the offset
remembers the number of the last one that was taken, so that none is lost and none is carried out twice. Every signal has a state that
people can look up.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SignalState(enum.StrEnum):
    """What has become of a signal."""

    RECEIVED = "received"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (SignalState.DONE, SignalState.REFUSED, SignalState.FAILED)


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal as a channel brings it.

    :param id: whatever the sender calls it; may be empty, and need not be unique
    :param data: JSON text, or what was sent in its place
    :param origin: where it was found, unique within the connector: found again, it is the same signal; ``None`` = always new
    :param by: who sent it, where that is known
    """

    id: str
    type: str
    data: str | None = None
    channel: str = "airflow"
    origin: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """A recorded signal.

    :param number: its place among all signals of all connectors; grows
    """

    number: int
    id: str
    type: str
    data: str | None = None
    channel: str = "airflow"
