"""A position in the redo log: up to which commit changes are captured, and from which SCN mining has to resume.

Oracle may write the changes of a transaction long before its commit. So a position needs two numbers (Debezium Oracle connector, "How
the connector maintains offsets"): ``scn``, the low watermark, from which mining resumes, so that no open transaction is lost; and
``commit_scn``, the high watermark, up to which commits are captured, one per redo thread, because each thread commits independently.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_cdc.core.errors import ConfigError

_ENTRY = re.compile(r"(\d+)(?::(\d+)(?::(.*))?)?")
_OLD = re.compile(r"(\d+)\s*:\s*\"?(?:0x)?([0-9A-Fa-f.]+)\s*:\s*(\d+)\"?")
_RAW = re.compile(r"[0-9A-Fa-f]{16}")
"""An XID as ``RAWTOHEX`` shows it."""
_XID = struct.Struct("<HHI")


def transaction_id(xid: bytes) -> str:
    """Return the documented form of an XID: undo segment, slot and sequence.

    >>> transaction_id(bytes.fromhex("06001c0027030000"))
    '6.28.807'
    """
    segment, slot, sequence = _XID.unpack(xid)
    return f"{segment}.{slot}.{sequence}"


@dataclass(frozen=True, slots=True)
class ThreadCommits:
    """The last captured commits of one redo thread.

    :param scn: SCN of the last one
    :param transactions: ids of the transactions captured at ``scn`` itself; there may be others with the same SCN
    """

    scn: int
    transactions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OraclePosition:
    """A position between two transactions, in the order of commits.

    :param scn: SCN from which mining resumes; every open transaction with changes of captured tables began at it or later
    :param read_scn: all commits up to this SCN are captured
    :param commits: redo thread → its last captured commits, if they are after ``read_scn``
    :param resetlogs: SCN at which the database's incarnation began (``RESETLOGS_CHANGE#``); 0 = unknown
    :param dbid: ``DBID`` of the database; 0 = unknown
    :param given_up: ids of open transactions that were given up; they are not captured when they commit
    :param names: id → user and client id of open transactions that began before ``scn``: LogMiner knows them from the START alone
    """

    scn: int
    read_scn: int
    commits: dict[int, ThreadCommits] = field(default_factory=dict)
    resetlogs: int = 0
    dbid: int = 0
    given_up: frozenset[str] = frozenset()
    names: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def has_commit(self, scn: int, thread: int, transaction: str) -> bool:
        """Check whether a commit is before this position."""
        if scn <= self.read_scn:
            return True
        last = self.commits.get(thread)
        return last is not None and (scn < last.scn or (scn == last.scn and transaction in last.transactions))

    def advance_commits(self, scn: int, thread: int, transactions: frozenset[str]) -> OraclePosition:
        """Return the position after more commits of a thread.

        :param scn: SCN of the last of them
        :param transactions: ids of those with this SCN
        """
        last = self.commits.get(thread)
        if last is not None and last.scn == scn:
            transactions |= last.transactions
        return replace(self, commits=self.commits | {thread: ThreadCommits(scn, transactions)})

    def advance_read_scn(self, scn: int) -> OraclePosition:
        """Return the position after the log was read up to ``scn``."""
        commits = {thread: last for thread, last in self.commits.items() if last.scn > scn}
        return replace(self, read_scn=max(scn, self.read_scn), commits=commits)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"scn": str(self.scn), "read_scn": str(self.read_scn)}
        if self.commits:
            document["commit_scn"] = ",".join(
                f"{last.scn}:{thread}:{'-'.join(sorted(last.transactions))}"
                for thread, last in sorted(self.commits.items())
            )
        if self.resetlogs:
            document["resetlogs"] = str(self.resetlogs)
        if self.dbid:
            document["dbid"] = self.dbid
        if self.given_up:
            document["given_up"] = "-".join(sorted(self.given_up))
        if self.names:
            document["names"] = {id_: list(names) for id_, names in sorted(self.names.items())}
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OraclePosition:
        """Parse the form of :meth:`to_json`; also the documented offsets ``{"scn": …, "commit_scn": …}``.

        :raises ConfigError: it is not a position in a redo log
        """
        try:
            scn = int(document["scn"])
            commits = _commits(str(document.get("commit_scn") or ""))
            read = int(document.get("read_scn", max(0, scn - 1)))
            given_up = frozenset(filter(None, str(document.get("given_up") or "").split("-")))
            names = {str(id_): (user, client) for id_, (user, client) in dict(document.get("names") or {}).items()}
            identity = int(document.get("resetlogs", 0)), int(document.get("dbid", 0))
            return cls(scn, read, commits, *identity, given_up, names)
        except (KeyError, TypeError, ValueError) as e:
            raise ConfigError(
                f"{document!r} is not a position in an Oracle redo log: {e}.",
                remedy='write it as {"scn": "324567897", "commit_scn": "324567900:1:6.28.807"}',
            ) from e

    def has_reached(self, other: OraclePosition) -> bool:
        return self.read_scn >= other.read_scn and all(
            self.has_commit(last.scn, thread, t)
            for thread, last in other.commits.items()
            for t in last.transactions or ("",)
        )

    def __str__(self) -> str:
        last = max((c.scn for c in self.commits.values()), default=self.read_scn)
        return f"SCN {last}" + (f" (reading begins at {self.scn})" if self.scn < last else "")


def _commits(text: str) -> dict[int, ThreadCommits]:
    """Parse the three forms of ``commit_scn``: ``scn:thread:txid-txid`` per thread, a bare SCN, ``scn: "0xtxid:thread"``."""
    commits: dict[int, ThreadCommits] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if (old := _OLD.fullmatch(entry)) and ("x" in entry or '"' in entry):
            commits[int(old[3])] = ThreadCommits(int(old[1]), _transactions([old[2]]))
        elif m := _ENTRY.fullmatch(entry):
            commits[int(m[2] or 1)] = ThreadCommits(int(m[1]), _transactions(filter(None, (m[3] or "").split("-"))))
        else:
            raise ValueError(f"{entry!r} is not a commit SCN")
    return commits


def _transactions(ids: Iterable[str]) -> frozenset[str]:
    """Ids of transactions; Debezium writes XIDs as they are."""
    return frozenset(transaction_id(bytes.fromhex(id_)) if _RAW.fullmatch(id_) else id_ for id_ in ids)
