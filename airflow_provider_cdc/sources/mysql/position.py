"""A position in the binary log: file and offset, which hold on one server, and the executed GTIDs, which hold on all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids, MySqlGtids, parse_gtids

_FILE = re.compile(r".+\.\d+")


@dataclass(frozen=True, slots=True)
class MySqlPosition:
    """A position between two transactions of the binary log.

    :param file: name of the log file; empty if only the GTIDs are known
    :param pos: offset in the file, bytes
    :param gtids: the GTIDs executed up to here; empty if the server has no GTIDs
    :param created: when the file was created, seconds since the epoch; distinguishes files of the same name after a RESET; 0 = unknown
    :param server: ``server_uuid`` or, with MariaDB, ``server_id``
    :param prepared: XA transactions that are prepared but not ended: XA id → file, offset and server at which they begin
    :param last: the last captured transaction, which identifies the log: ``gtid``, ``file`` and ``pos`` at which it begins, and ``time``, see
        :mod:`airflow_provider_cdc.sources.mysql.log.log_identity`; empty if it is not known
    :param moved: the stream has not come here from a snapshot: a person has named the position, or it was the oldest one of the log. Statements
        that it has not read may have changed the known structures
    """

    file: str
    pos: int
    gtids: str = ""
    created: int = 0
    server: str = ""
    prepared: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    moved: bool = field(default=False, compare=False)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Parse the form that :meth:`to_json` returns.

        :raises TypeError: it is no such position
        :raises ValueError: it is none either
        """
        texts = [document.get(name, "") for name in ("file", "gtids", "server")]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("file, gtids and server are texts")
        if not all(_is_number(document.get(name, 0)) for name in ("pos", "created")):
            raise ValueError("pos and created are numbers from 0 to 2^63 - 1")
        if texts[0] and not _FILE.fullmatch(texts[0]):
            raise ValueError(f"{texts[0]!r} is not the name of a log file")
        prepared = document.get("prepared", {})
        if not isinstance(prepared, dict) or not all(isinstance(at, dict) for at in prepared.values()):
            raise TypeError("prepared is a JSON object of objects")
        last = document.get("last", {})
        if not isinstance(last, dict) or not all(
            isinstance(value, str) if name in ("gtid", "file") else _is_number(value) for name, value in last.items()
        ):
            raise TypeError("last has texts and numbers")
        if not isinstance(document.get("moved", False), bool):
            raise TypeError("moved is true or false")
        if last and not {"gtid", "file", "pos", "time"} <= set(last):
            raise ValueError("last has gtid, file, pos and time")
        return cls(**document)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"file": self.file, "pos": self.pos, "created": self.created, "server": self.server}
        if self.gtids:
            document["gtids"] = self.gtids
        if self.prepared:
            document["prepared"] = self.prepared
        if self.last:
            document["last"] = self.last
        if self.moved:
            document["moved"] = True
        return document

    def has_reached(self, other: MySqlPosition) -> bool:
        """Check whether this position is at or after another one.

        Where both have GTIDs, they alone decide: files and offsets begin again when a log is reset, and differ between servers. Otherwise
        files and offsets decide, on the same server.
        """
        if self.gtids and other.gtids:
            return _covers(self.gtids, other.gtids)
        if not (self.file and other.file):
            return not other.gtids
        # a position that does not name a server is assumed to be of the same one
        return (self.same_log(other) or not (self.server and other.server)) and not self.is_earlier(other)

    def same_log(self, other: MySqlPosition) -> bool:
        """Check whether both are of the same server, so that files and offsets can be compared."""
        return self.server == other.server

    def is_earlier(self, other: MySqlPosition) -> bool:
        """Check whether file and offset are before those of another position of the same log."""
        return self._coordinates() < other._coordinates()

    def _coordinates(self) -> tuple[int, int]:
        return file_number(self.file), self.pos

    def __str__(self) -> str:
        if not self.file:
            return f"GTIDs {self.gtids}"
        return f"{self.file}:{self.pos}" + (f" (GTIDs {self.gtids})" if self.gtids else "")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= int(value) < 1 << 63


def _covers(mine: str, theirs: str) -> bool:
    a, b = parse_gtids(mine), parse_gtids(theirs)
    if isinstance(a, MySqlGtids) and isinstance(b, MySqlGtids):
        return a.contains_gtids(b)
    return isinstance(a, MariaDbGtids) and isinstance(b, MariaDbGtids) and a.contains_gtids(b)


def file_number(name: str) -> int:
    """``binlog.000012`` → 12; the number may grow beyond six digits."""
    return int(name.rpartition(".")[2])
