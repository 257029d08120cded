"""A position in the log of a PostgreSQL cluster: an LSN, which holds on one cluster and one timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_LSN = re.compile(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})", re.IGNORECASE)


def parse_lsn(text: str) -> int:
    """Parse an LSN as PostgreSQL writes it.

    >>> parse_lsn("16/B374D848") == 0x16B374D848
    True

    :raises ValueError: it is none
    """
    match = _LSN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an LSN such as 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it.

    >>> format_lsn(0x16B374D848)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class PostgresPosition:
    """A position behind the commit of a transaction.

    Logical decoding sends transactions in the order of their commits. So one LSN says which of them a reader has.

    :param lsn: end of the last transaction that a reader has
    :param system: identifier of the cluster (``pg_control_system()``); empty = not known
    :param timeline: the cluster's timeline, which a promotion counts up; 0 = not known
    """

    lsn: int
    system: str = ""
    timeline: int = 0

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Parse the form that :meth:`to_json` returns.

        :raises TypeError: it is no such position
        :raises ValueError: it is none either
        """
        if unknown := document.keys() - {"lsn", "system", "timeline"}:
            raise ValueError(f"a position has no {', '.join(sorted(unknown))}")
        lsn, system, timeline = document["lsn"], document.get("system", ""), document.get("timeline", 0)
        if not isinstance(lsn, str) or not isinstance(system, str):
            raise TypeError("lsn and system are texts")
        if not isinstance(timeline, int) or isinstance(timeline, bool) or not 0 <= timeline < 1 << 32:
            raise ValueError("timeline is a number from 0 to 2^32 - 1")
        return cls(parse_lsn(lsn), system, timeline)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"lsn": format_lsn(self.lsn)}
        if self.system:
            document["system"] = self.system
        if self.timeline:
            document["timeline"] = self.timeline
        return document

    def has_reached(self, other: PostgresPosition) -> bool:
        """Check whether this position is at or after another one of the same cluster.

        The timeline does not decide: a promoted standby continues the LSNs of its primary.
        """
        same = not (self.system and other.system) or self.system == other.system
        return same and self.lsn >= other.lsn

    def __str__(self) -> str:
        return format_lsn(self.lsn)
