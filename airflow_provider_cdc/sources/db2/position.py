"""A position in the changes that the ASN capture agent has published: up to which commit they are captured.

Db2 writes a transaction's LSN of commit (``IBMSNAP_COMMITSEQ``) on each of its changes, and the agent publishes transactions in the order of
these. So one LSN is a position. LSNs are 10 or 16 bytes, by the platform and the version; they are compared as bytes.

Whether there is anything *after* a position is another question: the agent is behind the database by seconds. Its own clock mark, ``SYNCHTIME``,
answers it. A reader that has read up to the published LSN at a moment when ``SYNCHTIME`` was later than *t* has everything that had
committed by *t*, though no LSN says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_cdc.core.errors import ConfigError

_NOTHING: Mapping[str, bytes] = MappingProxyType({})
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class Db2Position:
    """A position between two transactions, in the order of their commits.

    :param commit_lsn: everything that committed up to and with this LSN is captured; ``b""`` = nothing
    :param published_us: of a reader: everything that had committed before this moment of the database's clock is captured, too (µs since the
        epoch); 0 = not known
    :param awaits_us: of an end of the log: a reader has everything up to it only when its ``published_us`` is later than this moment; 0 = the LSN
        alone decides
    :param acknowledged: table → LSN from which its change table holds its changes, where a person has switched to another change table
    """

    commit_lsn: bytes
    published_us: int = 0
    awaits_us: int = 0
    acknowledged: Mapping[str, bytes] = field(default_factory=lambda: _NOTHING)

    def read(self, commit_lsn: bytes, published_us: int = 0) -> Db2Position:
        """The position of a reader that has read on; it never goes back.

        :param published_us: see the class; 0 = not known there
        """
        lsn = commit_lsn if _order(commit_lsn) > _order(self.commit_lsn) else self.commit_lsn
        kept = {table: start for table, start in self.acknowledged.items() if _order(start) > _order(lsn)}
        published = max(self.published_us, published_us)
        return replace(self, commit_lsn=lsn, published_us=published, awaits_us=0, acknowledged=kept or _NOTHING)

    def captured(self, commit_lsn: bytes) -> bool:
        """Whether a commit is before this position."""
        return _order(commit_lsn) <= _order(self.commit_lsn)

    def reached(self, other: Db2Position) -> bool:
        if _order(self.commit_lsn) < _order(other.commit_lsn):
            return False
        return other.awaits_us == 0 or self.published_us > other.awaits_us or self.awaits_us >= other.awaits_us

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"commit_lsn": lsn_text(self.commit_lsn)}
        if self.published_us:
            document["published_us"] = self.published_us
        if self.awaits_us:
            document["awaits_us"] = self.awaits_us
        if self.acknowledged:
            document["acknowledged"] = {t: lsn_text(lsn) for t, lsn in sorted(self.acknowledged.items())}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Db2Position:
        """The inverse of :meth:`to_json`; also reads the documented offsets ``{"commit_lsn": …, "change_lsn": …, "event_serial_no": …}``.

        A documented offset may be within its transaction: then the position is before it, and the transaction is captured again, whole.

        :raises ConfigError: it is no such position
        """
        try:
            lsn = lsn_bytes(document["commit_lsn"])
            if document.get("change_lsn") not in (None, "", "NULL"):
                lsn = before(lsn)
            acknowledged = {str(t): lsn_bytes(at) for t, at in (document.get("acknowledged") or {}).items()}
            return cls(
                lsn,
                int(document.get("published_us") or 0),
                int(document.get("awaits_us") or 0),
                acknowledged or _NOTHING,
            )
        except (KeyError, ValueError, TypeError, AttributeError) as e:
            raise ConfigError(
                f"{dict(document)!r} is not a position in the changes of a Db2 database: {e!r}.",
                remedy='write it as {"commit_lsn": "00000025:00000d08:0025"}',
            ) from e

    def __str__(self) -> str:
        return f"LSN {lsn_text(self.commit_lsn)}" if self.commit_lsn else "the beginning"


def lsn_text(lsn: bytes) -> str:
    """An LSN as people see it: hexadecimal, with colons behind byte 4 and byte 8 (spec DB2-401).

    >>> lsn_text(bytes.fromhex("0000002500000d080025"))
    '00000025:00000d08:0025'
    """
    text = lsn.hex()
    return ":".join(part for part in (text[:8], text[8:16], text[16:]) if part)


def lsn_bytes(text: str) -> bytes:
    """The inverse of :func:`lsn_text`.

    :raises ValueError: it is no LSN
    """
    bare = str(text).replace(":", "")
    if bare in ("NULL", "None"):
        return b""
    if not _HEX.fullmatch(bare):
        raise ValueError(f"{text!r} is no LSN")
    return bytes.fromhex(bare)


def before(lsn: bytes) -> bytes:
    """The greatest LSN of the same length before one."""
    number = int.from_bytes(lsn, "big")
    return (number - 1).to_bytes(len(lsn), "big") if number else b""


def _order(lsn: bytes) -> bytes:
    """What LSNs compare by: as if zero bytes followed, which some versions of Db2 pad them with."""
    return lsn.rstrip(b"\0")
