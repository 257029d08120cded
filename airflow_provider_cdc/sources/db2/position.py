"""A position in the changes that the ASN capture agent has published: up to which commit they are captured.

Db2 writes a transaction's LSN of commit (``IBMSNAP_COMMITSEQ``) on each of its changes, and the agent publishes transactions in the order of
these. So one LSN is a position. An LSN has 10 or 16 bytes, by the platform and the version; :func:`lsn_sort_key` compares LSNs everywhere.

A position does not show whether anything is committed *after* it: the agent is seconds behind the database, and stands still while nothing is
written. A *mark* shows it: a row that this source writes and the agent finds in the log (:mod:`airflow_provider_cdc.sources.db2.asn.agent_marker_signals`). A reader that has read up to a mark has
everything committed before the mark, though the mark's LSN was not known when it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError

NOTE_INTERVAL_US: Final = 3_600_000_000
"""How often a position notes that nothing is published after it."""
LONGEST: Final = 16
"""Bytes of an LSN in current versions of Db2."""
_NOTHING: Mapping[str, bytes] = MappingProxyType({})
_NEVER: Mapping[str, int] = MappingProxyType({})
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class Db2Position:
    """A position between two transactions, in the order of their commits.

    :param commit_lsn: everything that committed up to and with this LSN is captured; ``b""`` = nothing
    :param published_us: of a reader: everything that had committed before this moment of the log is captured (µs since the epoch); 0 = not known
    :param seen_us: the database's clock at the last look that found nothing after this position (µs since the epoch), within an hour; 0 = not known. A
        reader at the LSN of an end of the log, but with an older ``seen_us``, has not reached that end: it looks once, and notes the look
    :param mark: of a reader: everything that had committed before this mark was written is captured; 0 = not known
    :param awaits: of an end of the log: a reader reaches it only with this mark; 0 = the LSN alone decides
    :param acknowledged: table → LSN from which its change table holds its changes, where a person has switched to another change table
    :param created_us: table → when its change table was made, µs by the database's clock; another time means another change table
    """

    commit_lsn: bytes
    published_us: int = 0
    mark: int = 0
    awaits: int = 0
    acknowledged: Mapping[str, bytes] = field(default_factory=lambda: _NOTHING)
    created_us: Mapping[str, int] = field(default_factory=lambda: _NEVER)
    seen_us: int = 0

    def advance_commit(self, commit_lsn: bytes, published_us: int = 0, mark: int = 0) -> Db2Position:
        """Return the position of a reader that has read on; it never goes back.

        :param published_us: as in the class, like ``mark``; 0 = not known for this LSN
        """
        lsn = commit_lsn if lsn_sort_key(commit_lsn) > lsn_sort_key(self.commit_lsn) else self.commit_lsn
        acknowledged = {
            table: start for table, start in self.acknowledged.items() if lsn_sort_key(start) > lsn_sort_key(lsn)
        }
        published, mark = max(self.published_us, published_us), max(self.mark, mark)
        return replace(
            self, commit_lsn=lsn, published_us=published, mark=mark, awaits=0, acknowledged=acknowledged or _NOTHING
        )

    def seen_at(self, now_us: int) -> Db2Position:
        """Note that nothing is published after this position now: only once an hour, as each note makes another position."""
        return replace(self, seen_us=now_us) if now_us >= self.newer_than_us + NOTE_INTERVAL_US else self

    @property
    def newer_than_us(self) -> int:
        """A moment before everything after this position was committed or published; 0 = not known."""
        return max(self.published_us, self.seen_us)

    def has_captured(self, commit_lsn: bytes) -> bool:
        """Check whether a commit is before this position."""
        return lsn_sort_key(commit_lsn) <= lsn_sort_key(self.commit_lsn)

    def is_table_complete(self, table: str, start: bytes) -> bool:
        """Check whether a change table that holds only changes after ``start`` lacks no change after this position."""
        return self.has_captured(start) or lsn_sort_key(start) <= lsn_sort_key(self.acknowledged.get(table, b""))

    def is_another(self, table: str, created_us: int) -> bool:
        """Check whether a change table made at a time is not the one that a reader at this position has read."""
        return self.created_us.get(table, created_us) != created_us

    def has_reached(self, other: Db2Position) -> bool:
        if not self.has_captured(other.commit_lsn) or other.awaits > max(self.mark, self.awaits):
            return False
        return lsn_sort_key(self.commit_lsn) != lsn_sort_key(other.commit_lsn) or self.seen_at(other.seen_us) == self

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"commit_lsn": lsn_text(self.commit_lsn)}
        if self.published_us:
            document["published_us"] = self.published_us
        if self.seen_us:
            document["seen_us"] = self.seen_us
        if self.mark:
            document["mark"] = self.mark
        if self.awaits:
            document["awaits"] = self.awaits
        if self.acknowledged:
            document["acknowledged"] = {t: lsn_text(lsn) for t, lsn in sorted(self.acknowledged.items())}
        if self.created_us:
            document["created_us"] = dict(sorted(self.created_us.items()))
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Db2Position:
        """Parse the result of :meth:`to_json`.

        Also reads the documented offsets ``{"commit_lsn": …, "change_lsn": …, "event_serial_no": …}``.

        A documented offset may be within its transaction: then the position is before it, and the transaction is captured again, whole.

        :raises ConfigError: it is no such position
        """
        try:
            lsn = lsn_bytes(document["commit_lsn"])
            if document.get("change_lsn") not in (None, "", "NULL"):
                lsn = previous_lsn(lsn)
            acknowledged = {str(t): lsn_bytes(at) for t, at in (document.get("acknowledged") or {}).items()}
            created = {str(t): int(at) for t, at in (document.get("created_us") or {}).items()}
            numbers = ("published_us", "mark", "awaits", "seen_us")
            published_us, mark, awaits, seen_us = (int(document.get(name) or 0) for name in numbers)
            return cls(lsn, published_us, mark, awaits, acknowledged or _NOTHING, created or _NEVER, seen_us)
        except (KeyError, ValueError, TypeError, AttributeError) as e:
            raise ConfigError(
                f"{dict(document)!r} is not a position in the changes of a Db2 database: {e!r}.",
                remedy='write it as {"commit_lsn": "00000025:00000d08:0025"}',
            ) from e

    def __str__(self) -> str:
        return f"LSN {lsn_text(self.commit_lsn)}" if self.commit_lsn else "the start of the log"


def lsn_text(lsn: bytes) -> str:
    """Format an LSN as people see it: hexadecimal, with colons behind byte 4 and byte 8 (spec DB2-401).

    >>> lsn_text(bytes.fromhex("0000002500000d080025"))
    '00000025:00000d08:0025'
    """
    text = lsn.hex()
    return ":".join(part for part in (text[:8], text[8:16], text[16:]) if part)


def lsn_bytes(text: str) -> bytes:
    """Parse an LSN; the inverse of :func:`lsn_text`.

    :raises ValueError: it is no LSN
    """
    bare = str(text).replace(":", "")
    if bare in ("NULL", "None"):
        return b""
    if not _HEX.fullmatch(bare):
        raise ValueError(f"{text!r} is not an LSN")
    return bytes.fromhex(bare)


def previous_lsn(lsn: bytes) -> bytes:
    """Return the greatest LSN of the same length before one."""
    number = int.from_bytes(lsn, "big")
    return (number - 1).to_bytes(len(lsn), "big") if number else b""


def lsn_sort_key(lsn: bytes) -> bytes:
    """Return the bytes that LSNs compare by: as if zero bytes followed, which some versions of Db2 pad them with."""
    return lsn.rstrip(b"\0")


def resized_lsn(lsn: bytes, like: bytes) -> bytes:
    """Pad or cut zero bytes of an LSN, to the length of the database's own LSNs.

    Db2 compares strings of unequal length as if *blanks* followed the shorter one, FOR BIT DATA or not. Only strings of one length compare as
    :func:`lsn_sort_key` does. The beginning becomes zero bytes, which are before every LSN.

    :param like: an LSN of the database; ``b""`` = not known
    """
    return lsn_sort_key(lsn).ljust(len(like) or LONGEST, b"\0")
