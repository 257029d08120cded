"""GTID sets of MySQL, and GTID positions of MariaDB.

>>> MySqlGtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7").covers(
...     MySqlGtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:2-3"))
True
>>> str(MariaDbGtids.parse("0-1-270,7-2-5"))
'0-1-270,7-2-5'
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TAGGED: Final = 1
"""Format of a binary GTID set with tags: in the highest and in the lowest byte of its first number; the bytes between count the sources."""


@dataclass(slots=True)
class MySqlGtids:
    """A GTID set of MySQL.

    :ivar sources: UUID of the source server, or ``uuid:tag`` (MySQL 8.3) → sorted, disjoint intervals of transaction numbers, both ends
        included
    """

    sources: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MySqlGtids:
        gtids = cls()
        for part in filter(None, (p.strip() for p in text.replace("\n", "").split(","))):
            source, *ranges = part.split(":")
            key = source.strip().lower()
            for item in ranges:
                if not item.strip()[:1].isdigit():
                    key = f"{source.strip().lower()}:{item.strip().lower()}"
                    continue
                low, _, high = item.partition("-")
                gtids.add_interval(key, int(low), int(high or low))
        return gtids

    @classmethod
    def from_event_body(cls, body: bytes) -> MySqlGtids:
        """Read a PREVIOUS_GTIDS event: the GTIDs in all log files before its own.

        :raises ValueError: its format is not known
        """
        (count,), at, gtids = struct.unpack_from("<Q", body), 8, cls()
        form, tagged = count >> 56, count >> 56 == _TAGGED
        if form and not tagged:
            raise ValueError(f"a GTID set has the format {form}, which this release does not support")
        for _ in range(count >> 8 & 0xFFFF_FFFF_FFFF if tagged else count):
            source, at = str(uuid.UUID(bytes=body[at : at + 16])), at + 16
            if tagged:
                if body[at] & 1:
                    raise ValueError("the tag of a GTID is too long")
                length, at = body[at] >> 1, at + 1
                source, at = source + (":" + body[at : at + length].decode("ascii") if length else ""), at + length
            (intervals,), at = struct.unpack_from("<Q", body, at), at + 8
            for _ in range(intervals):
                low, high = struct.unpack_from("<QQ", body, at)
                gtids.add_interval(source, low, high - 1)
                at += 16
        return gtids

    def add_interval(self, source: str, low: int, high: int) -> None:
        """Add the numbers ``low`` to ``high`` of one source."""
        intervals = self.sources.setdefault(source, [])
        if intervals and intervals[-1][0] <= low <= intervals[-1][1] + 1:
            intervals[-1] = (intervals[-1][0], max(high, intervals[-1][1]))
            return
        merged: list[tuple[int, int]] = []
        for a, b in sorted([*intervals, (low, high)]):
            if merged and a <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            else:
                merged.append((a, b))
        self.sources[source] = merged

    def add_all(self, source: str, numbers: npt.NDArray[np.int64]) -> None:
        """Add many numbers of one source, in any order."""
        import numpy as np  # a run that finds nothing does without

        ordered = np.unique(numbers)
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        lows, highs = ordered[np.concatenate([[0], breaks + 1])], ordered[np.concatenate([breaks, [-1]])]
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            self.add_interval(source, low, high)

    def contains_gtids(self, other: MySqlGtids) -> bool:
        """Check whether every GTID of ``other`` is in this set."""
        return all(
            any(a <= low and high <= b for a, b in self.sources.get(source, ()))
            for source, intervals in other.sources.items()
            for low, high in intervals
        )

    def subtract_gtids(self, other: MySqlGtids) -> MySqlGtids:
        """Return the GTIDs that are not in ``other``."""
        left = MySqlGtids()
        for source, intervals in self.sources.items():
            for low, high in intervals:
                for first, last in other.sources.get(source, ()):
                    if first <= high and last >= low:
                        if first > low:
                            left.add_interval(source, low, first - 1)
                        low = last + 1
                if low <= high:
                    left.add_interval(source, low, high)
        return left

    def merge_gtids(self, other: MySqlGtids) -> MySqlGtids:
        """Return the GTIDs of both sets."""
        both = self.copy()
        for source, intervals in other.sources.items():
            for low, high in intervals:
                both.add_interval(source, low, high)
        return both

    def copy(self) -> MySqlGtids:
        return MySqlGtids({source: list(intervals) for source, intervals in self.sources.items()})

    @property
    def has_tags(self) -> bool:
        return any(":" in source for source in self.sources)

    def encode(self) -> bytes:
        """Encode the set for ``COM_BINLOG_DUMP_GTID``, in which the end of an interval is not included.

        The format with tags is used only if there are tags: servers before 8.3 do not know it.
        """
        tagged, count = self.has_tags, len(self.sources)
        out = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
        for source, intervals in sorted(self.sources.items()):
            server, _, tag = source.partition(":")
            out.append(uuid.UUID(server).bytes)
            if tagged:
                out.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
            out.append(struct.pack("<Q", len(intervals)))
            out += [struct.pack("<QQ", low, high + 1) for low, high in intervals]
        return b"".join(out)

    def __str__(self) -> str:
        return ",".join(
            ":".join([source, *(str(a) if a == b else f"{a}-{b}" for a, b in intervals)])
            for source, intervals in sorted(self.sources.items())
        )


@dataclass(slots=True)
class MariaDbGtids:
    """A GTID position of MariaDB.

    :ivar domains: replication domain → server id and sequence number of its last transaction
    """

    domains: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MariaDbGtids:
        gtids = cls()
        for part in filter(None, (p.strip() for p in text.split(","))):
            domain, server, sequence = map(int, part.split("-"))
            gtids.domains[domain] = (server, sequence)
        return gtids

    @classmethod
    def from_event_body(cls, body: bytes) -> MariaDbGtids:
        """Read a GTID_LIST event: the last GTIDs in all log files before its own."""
        count = struct.unpack_from("<I", body)[0] & 0x0FFF_FFFF
        # the last entry of a domain is its newest
        entries = [struct.unpack_from("<IIQ", body, 4 + 16 * i) for i in range(count)]
        return cls({domain: (server, sequence) for domain, server, sequence in entries})

    def contains_gtids(self, other: MariaDbGtids) -> bool:
        """Check whether every domain of ``other`` is at least as far here."""
        return all(self._has(domain, *last) for domain, last in other.domains.items())

    def _has(self, domain: int, server: int, sequence: int) -> bool:
        """Check whether a transaction is not after the last one of its domain.

        Of two servers' transactions with one number, only one is the last.
        """
        mine = self.domains.get(domain, (0, -1))
        return mine[1] > sequence or mine == (server, sequence)

    def subtract_gtids(self, other: MariaDbGtids) -> MariaDbGtids:
        """Return the domains that are further here than in ``other``."""
        return MariaDbGtids({d: (s, n) for d, (s, n) in self.domains.items() if n > other.domains.get(d, (0, 0))[1]})

    def copy(self) -> MariaDbGtids:
        return MariaDbGtids(dict(self.domains))

    def __str__(self) -> str:
        return ",".join(f"{d}-{server}-{n}" for d, (server, n) in sorted(self.domains.items()))


Gtids = MySqlGtids | MariaDbGtids


def missing_gtids(there: str, required: str) -> str:
    """Return the GTIDs of ``required`` that ``there`` does not have.

    Both are in MySQL's or both in MariaDB's form.
    """
    if ":" in required:
        return str(MySqlGtids.parse(required).subtract_gtids(MySqlGtids.parse(there)))
    return str(MariaDbGtids.parse(required).subtract_gtids(MariaDbGtids.parse(there)))


def parse_gtids(text: str) -> Gtids:
    """Parse a GTID set of MySQL, or a GTID position of MariaDB (``0-1-270``)."""
    first = next(iter(filter(None, text.split(","))), "")
    return MySqlGtids.parse(text) if ":" in first else MariaDbGtids.parse(text)
