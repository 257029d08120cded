"""A signal: a request to a connector at work, and the state that it is in.

Every signal is first recorded in the state tables, with a number that grows; runs take signals from there. The offset has the number
of the last one that was taken, so that none is lost and none is carried out twice. People can look up the state of every signal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SignalState(enum.StrEnum):
    """The state of a signal."""

    RECEIVED = "received"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (SignalState.DONE, SignalState.REFUSED, SignalState.FAILED)


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal as a channel brings it.

    :param id: the sender's name for it; may be empty, and need not be unique
    :param data: JSON text, or whatever was sent instead
    :param origin: identifies it within the connector: the same origin again is the same signal; ``None`` = always a new one
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

    :param number: grows over all signals of all connectors
    """

    number: int
    id: str
    type: str
    data: str | None = None
    channel: str = "airflow"
