"""A position in the change stream of a deployment: behind an event, or behind a moment of the cluster's time.

Every event has a *resume token*. As text, tokens are in the order of their events: by cluster time first, and within it, as all events of a
transaction have the same, by their place. A token is good for a stream of the same deployment, whatever its scope. A position that is not behind an event is
behind a moment: the beginning of a snapshot, the end of the log, and where a stream that has nothing new has come to. A stream can begin right
behind any moment that the oplog still has.

Server's *high-water marks*, which are tokens of no event, stand before all events of their moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError

_TOKEN: Final = re.compile(r"82[0-9A-F]{16}([0-9A-F]{2})*")
_MARK: Final = re.compile(r"82[0-9A-F]{16}2B0[24]29[0-9A-F]*")
_TEXT: Final = re.compile(r"(\d+):(\d+)")
_PART: Final = re.compile(r"(?<=0000)(?:29|2B[0-9A-F]{2})04$")
"""The end of the token of a part of a large event, instead of ``04``: the number of the part."""
_LAST: Final = 2**32 - 1
"""The last number that a write can have within a second."""


@dataclass(frozen=True, slots=True, order=True)
class ClusterTime:
    """A moment of the cluster's time.

    :param seconds: since the epoch
    :param ordinal: number of the write within the second, from 1 on
    """

    seconds: int
    ordinal: int

    def next_time(self) -> ClusterTime:
        """Return the moment after this one."""
        return ClusterTime(self.seconds, self.ordinal + 1) if self.ordinal < _LAST else ClusterTime(self.seconds + 1, 0)

    def previous_time(self) -> ClusterTime:
        """Return the moment before this one."""
        return ClusterTime(self.seconds, self.ordinal - 1) if self.ordinal else ClusterTime(self.seconds - 1, _LAST)

    @property
    def ts_us(self) -> int:
        """Microseconds since the epoch, to the second."""
        return self.seconds * 1_000_000

    def __str__(self) -> str:
        return f"{self.seconds}:{self.ordinal}"


@dataclass(frozen=True, slots=True)
class MongoPosition:
    """A position between two events, or between two transactions where the last event ends one.

    :param time: cluster time of the last event, or the last moment that is behind this position
    :param token: resume token of that event; ``None``: everything of that moment, and before it, is behind this position
    :param type_bits: hexadecimal; bits that a token needs besides, where the document's key has numbers of several widths
    """

    time: ClusterTime
    token: str | None = None
    type_bits: str = field(default="", compare=False)

    @classmethod
    def behind_token(cls, token: str, type_bits: str = "") -> MongoPosition:
        """Return the position that a resume token of the server's stands for."""
        time = time_of(token)
        if is_mark(token):
            return cls(time.previous_time())
        return cls(time, token, type_bits)

    @classmethod
    def from_resume_token(cls, resume_token: Mapping[str, Any]) -> MongoPosition:
        """Return the same of a token as the server sends it: ``{"_data": …}``."""
        return cls.behind_token(str(resume_token["_data"]), bytes(resume_token.get("_typeBits", b"")).hex())

    @property
    def whole_event_position(self) -> MongoPosition:
        """Behind the whole event, where this is behind its last part: a stream that splits events otherwise, or not at all, can begin there, too."""
        if self.token is None or not _PART.search(self.token):
            return self
        return replace(self, token=_PART.sub("04", self.token))

    @property
    def sort_key(self) -> str:
        """Text by which positions and tokens compare: a position has every event whose token is not greater."""
        return self.token if self.token is not None else f"82{_hex(self.time.next_time())}"

    def has_reached(self, other: MongoPosition) -> bool:
        return self.sort_key >= other.sort_key

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"sec": self.time.seconds, "ord": self.time.ordinal}
        if self.token is not None:
            document["resume_token"] = self.token
        if self.type_bits:
            document["type_bits"] = self.type_bits
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MongoPosition:
        """Parse a position, as the inverse of :meth:`to_json`.

        Also reads Debezium's offsets, whose token is a JSON text with ``_data``, and a bare token.

        :raises ConfigError: it is no such position
        """
        try:
            token = document.get("resume_token")
            if isinstance(token, str) and (match := re.search(r'"_data"\s*:\s*"([0-9A-Fa-f]+)"', token)):
                token = match[1]
            if token is not None:
                return cls.behind_token(
                    normalize_token(str(token)), str(document.get("type_bits") or "")
                ).whole_event_position
            return cls(ClusterTime(int(document["sec"]), int(document["ord"])))
        except (KeyError, ValueError, TypeError, AttributeError) as e:
            raise ConfigError(
                f"{dict(document)!r} is not a position in a change stream: {e!r}.",
                remedy='write it as {"sec": 1795333441, "ord": 36}, or as {"resume_token": "82…"}',
            ) from e

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.time.seconds, UTC).isoformat(timespec="seconds")
        return f"{'an event at' if self.token else 'cluster time'} {self.time} ({moment})"


def normalize_token(token: str) -> str:
    """Return a token in the spelling by which tokens compare.

    :raises ValueError: it is none
    """
    upper = token.upper()
    if not _TOKEN.fullmatch(upper):
        raise ValueError(f"{token[:60]!r} is not the _data of a resume token")
    return upper


def is_mark(token: str) -> bool:
    """Check whether a token is a high-water mark, which stands for a moment and for no event.

    >>> is_mark("826B029D52000000052B0429296E1404")
    True
    """
    return _MARK.fullmatch(token) is not None


def time_of(token: str) -> ClusterTime:
    """Return the cluster time that a token begins with.

    >>> str(time_of("826B029D52000000052B0429296E1404"))
    '1795333458:5'
    """
    return ClusterTime(int(token[2:10], 16), int(token[10:18], 16))


def _hex(time: ClusterTime) -> str:
    return f"{time.seconds:08X}{time.ordinal:08X}"
