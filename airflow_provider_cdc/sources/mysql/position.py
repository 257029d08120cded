"""A position in the binary log: file and offset, which hold on one server, and the executed GTIDs, which hold on all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.sources.mysql.gtid import MariaDbGtids, MySqlGtids, parse_gtids


@dataclass(frozen=True, slots=True)
class MySqlPosition:
    """A position between two transactions of the binary log.

    :param file: name of the log file; empty if only the GTIDs are known
    :param pos: offset in the file, bytes
    :param gtids: the GTIDs executed up to here; empty if the server has no GTIDs
    :param created: when the file was created, seconds since the epoch; distinguishes files of the same name after a RESET; 0 = unknown
    :param server: ``server_uuid`` or, with MariaDB, ``server_id``
    :param prepared: XA transactions that are prepared but not ended: XA id → file, offset and server at which they begin
    """

    file: str
    pos: int
    gtids: str = ""
    created: int = 0
    server: str = ""
    prepared: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"file": self.file, "pos": self.pos, "created": self.created, "server": self.server}
        if self.gtids:
            document["gtids"] = self.gtids
        if self.prepared:
            document["prepared"] = self.prepared
        return document

    def reached(self, other: MySqlPosition) -> bool:
        """Whether this position is at or after another one: by file and offset on the same server, otherwise by GTIDs."""
        if not (self.file and other.file):
            return not other.gtids or (bool(self.gtids) and _covers(self.gtids, other.gtids))
        if self.same_log(other):
            return self._coordinates() >= other._coordinates()
        if self.gtids and other.gtids:
            return _covers(self.gtids, other.gtids)
        # a position that does not name a server is assumed to be of the same one
        return not (self.server and other.server) and self._coordinates() >= other._coordinates()

    def same_log(self, other: MySqlPosition) -> bool:
        """Whether both are of the same server, so that files and offsets can be compared."""
        return self.server == other.server

    def _coordinates(self) -> tuple[int, int]:
        return file_number(self.file), self.pos

    def __str__(self) -> str:
        if not self.file:
            return f"GTIDs {self.gtids}"
        return f"{self.file}:{self.pos}" + (f" (GTIDs {self.gtids})" if self.gtids else "")


def _covers(mine: str, theirs: str) -> bool:
    a, b = parse_gtids(mine), parse_gtids(theirs)
    if isinstance(a, MySqlGtids) and isinstance(b, MySqlGtids):
        return a.covers(b)
    return isinstance(a, MariaDbGtids) and isinstance(b, MariaDbGtids) and a.covers(b)


def file_number(name: str) -> int:
    """``binlog.000012`` → 12; the number may grow beyond six digits."""
    return int(name.rpartition(".")[2])
