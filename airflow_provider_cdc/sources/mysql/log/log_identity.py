"""Identity of a log: whether the server's log is the one that a position was taken in, or continues from it.

A server's id, the names of its log files and the numbers of its transactions may all come again: after a reset, with a restored backup,
a replica that is made again in place, another ``log_bin``. A log is identified in this order:

1. The file of the position, on the same server: created in the same second, as long as the position's offset, and with the last captured
   transaction where it was. Then it is the same log.
2. GTIDs (:mod:`.gtid_continuity_check`): the server has executed all that is captured, and has purged nothing else.
3. After a reset of the same server, new transactions have the GTIDs of old ones. So the last captured transaction, where the log still has
   it, must have been committed when the captured one was. If it was purged, or came with a backup (``gtid_purged``, ``gtid_slave_pos``),
   GTIDs alone decide.
"""

from __future__ import annotations

import itertools
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceLogDamaged
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.dump_errors import another_log
from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids, MySqlGtids, missing_gtids
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import (
    commit_time,
    has_checksums,
    parse_mariadb_gtid,
)
from airflow_provider_cdc.sources.mysql.log.events.event_decompression import decompress_query, decompress_rows
from airflow_provider_cdc.sources.mysql.log.gtid_continuity_check import before_file, held_by_mariadb, held_by_mysql
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection

_BEGIN: Final = frozenset({ev.GTID, ev.ANONYMOUS_GTID, ev.GTID_TAGGED, ev.MARIADB_GTID})
_CHANGES: Final = frozenset({*ev.ROWS, *ev.COMPRESSED_ROWS, ev.QUERY, ev.MARIADB_QUERY_COMPRESSED})
_FARTHEST: Final = 0xFFFF_FFFF
"""Offsets beyond 4 GiB cannot be requested."""
_NEAR: Final = 8
"""Among so many events after MariaDB's GTID event is the first change: comments and table maps precede it."""


class BinlogEvent(NamedTuple):
    """An event without its checksum."""

    kind: int
    server_id: int
    seconds: int
    body: bytes


def begin_of_transaction(begin: BinlogEvent, following: Iterable[BinlogEvent], file: str, pos: int) -> dict[str, Any]:
    """Return the identity of a transaction, as ``MySqlPosition.last`` has it; empty if that is not known.

    With MySQL it is the time of its commit, in µs, which replicas keep. MariaDB's log has seconds: there it is the time of the transaction's first
    statement, which replicas keep too, and a checksum of what that changed.

    :param begin: its GTID event
    :param following: the events after it
    :param pos: offset at which it begins
    """
    body = begin.body
    if begin.kind == ev.MARIADB_GTID:
        mariadb_gtid = parse_mariadb_gtid(body)
        gtid = f"{mariadb_gtid.domain}-{begin.server_id}-{mariadb_gtid.sequence}"
        time, changes = _first_change(following)
        return {"gtid": gtid, "file": file, "pos": pos, "time": time, "changes": changes} if time else {}
    time = commit_time(body) if begin.kind in (ev.GTID, ev.ANONYMOUS_GTID) else 0
    if not time:
        return {}
    number = int.from_bytes(body[17:25], "little")
    gtid = f"{uuid.UUID(bytes=body[1:17])}:{number}" if begin.kind == ev.GTID else ""
    return {"gtid": gtid, "file": file, "pos": pos, "time": time}


def _first_change(events: Iterable[BinlogEvent]) -> tuple[int, int]:
    """Time (µs since the epoch) and checksum of the first change of a transaction; 0 = not known."""
    for event in itertools.islice(events, _NEAR):
        if event.kind in _CHANGES:
            kind, body = event.kind, event.body
            if kind in ev.COMPRESSED_ROWS:
                kind, body = decompress_rows(kind, body)
            elif kind == ev.MARIADB_QUERY_COMPRESSED:
                kind, body = ev.QUERY, decompress_query(body)
            # a replica has other numbers of tables and sessions
            start = 8 if kind != ev.QUERY else 13 + int.from_bytes(body[11:13], "little")
            return event.seconds * 1_000_000, zlib.crc32(body[start : start + 4096])
    return 0, 0


class LogIdentityCheck:
    """Compares the log of one server with positions.

    :param open_log: opens the server's log at a position, by GTIDs if the position has some
    """

    def __init__(
        self, connection: Connection, server: MySqlServer, open_log: Callable[[MySqlPosition], BinlogConnection]
    ) -> None:
        self._connection, self._server, self._open = connection, server, open_log

    def why_not_same(self, position: MySqlPosition, files: Mapping[str, int]) -> str:
        """Why the log is not the one that a position was taken in; empty if it is.

        :param files: the server's log files with their sizes, oldest first
        """
        name = position.file
        if not name:
            return "the position has no file"
        if position.server not in ("", self._server.identity):
            return f"{name} is a file of another server"
        if name not in files:
            return _missing(name, [*files])
        created, last = self._look_at(position)
        if position.created and created and position.created != created:
            return f"{name} is not the file that was read: the server's log was reset or replaced"
        if position.pos > files[name]:
            return (
                f"{name} has {files[name]} bytes, less than the saved position: the server's log was reset or truncated"
            )
        if last is not None and last != position.last:
            return (
                f"{name} has a different transaction at {position.last['pos']} than the one that was read: the "
                "server's log was reset or replaced"
            )
        return ""

    def verify_last_transaction(self, position: MySqlPosition) -> None:
        """Make sure that the captured transactions which the log of the same server has are those that were captured, where GTIDs match.

        :raises PositionLost: transactions of a new log have the GTIDs of captured ones
        """
        last = position.last
        if position.server != self._server.identity:
            return  # of another server GTIDs decide; they may have been given to transactions by hand there
        held = held_by_mariadb if self._server.mariadb else held_by_mysql
        gtids = held(self._connection, position)
        if not last.get("gtid"):
            if own := self._own(position, gtids):
                raise another_log(f"it contains {own}, and was started after the position", str(position))
            return
        if missing_gtids(str(gtids), last["gtid"]):
            return
        transaction = self._find(position, last["gtid"])
        if transaction and any(transaction.get(fact) != last.get(fact) for fact in ("time", "changes")):
            raise another_log(f"its transaction {last['gtid']} is not the one that was captured", str(position))

    def _own(self, position: MySqlPosition, gtids: MySqlGtids | MariaDbGtids) -> str:
        """Return the ones of some GTIDs that the server itself has given.

        It receives them by replication only if it was restored meanwhile.
        """
        if isinstance(gtids, MySqlGtids):
            mine = {s: i for s, i in gtids.sources.items() if s.partition(":")[0] == self._server.identity}
            return str(MySqlGtids(mine))
        own = [f"{d}-{s}-{n}" for d, (s, n) in gtids.domains.items() if f"id-{s}" == self._server.identity]
        # the state of a log that was begun again may have been set by hand
        return ",".join(gtid for gtid in own if self._find(position, gtid))

    # -- reading the log ----------------------------------------------------------------------------------------------

    def read_creation_time(self, file: str) -> int:
        """Return the time when a log file was created, seconds since the epoch; 0 = not known.

        It comes from the file's FORMAT_DESCRIPTION event.
        """
        with self._open(MySqlPosition(file, 4, server=self._server.identity)) as log:
            return next((event.seconds for event in _events(log) if event.kind == ev.FORMAT_DESCRIPTION), 0)

    def _look_at(self, position: MySqlPosition) -> tuple[int, dict[str, Any] | None]:
        """Return when the file of a position was created, and the transaction that begins where the last captured one did.

        ``None`` = not known.
        """
        last, file = position.last, position.file
        if last.get("file") != file or int(last["pos"]) > _FARTHEST:
            return self.read_creation_time(file), None
        created, transaction, pos = 0, None, int(last["pos"])
        try:
            with self._open(MySqlPosition(file, pos, server=self._server.identity)) as log:
                events = _events(log)
                for event in events:
                    if event.kind == ev.FORMAT_DESCRIPTION:
                        created = event.seconds
                    elif event.kind in _BEGIN:
                        transaction = begin_of_transaction(event, events, file, pos)
                        break
                    elif event.kind not in ev.HARMLESS and event.kind != ev.ROTATE:
                        return created, {}
        except (SourceLogDamaged, PositionLost):  # no event begins there
            return created or self.read_creation_time(file), {}
        except PrerequisiteError:  # with gtid_mode=ON the server does not send transactions without GTIDs
            return created or self.read_creation_time(file), None
        return created, transaction

    def _find(self, position: MySqlPosition, gtid: str) -> dict[str, Any]:
        """Find a transaction in the log, by its GTID; empty if it is not there."""
        if self._server.mariadb:
            start = MySqlPosition(self._file_of(MariaDbGtids.parse(gtid)), 4, server=self._server.identity)
        else:
            others = MySqlGtids.parse(position.gtids).subtract_gtids(MySqlGtids.parse(gtid))
            start = MySqlPosition("", 4, str(others), server=self._server.identity)
        with self._open(start) as log:
            events = _events(log)
            for event in events:
                if event.kind in _BEGIN and _gtid_of(event) == gtid:
                    return begin_of_transaction(event, events, "", 0)
        return {}

    def _file_of(self, gtid: MariaDbGtids) -> str:
        """Return the file of MariaDB's log with a transaction: the last one whose head does not list it."""
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            files = [str(row[0]) for row in cursor.fetchall()]
        low, high = 0, len(files) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if before_file(self._connection, files[middle]).contains_gtids(gtid):
                high = middle - 1
            else:
                low = middle
        return files[low]


def _events(log: BinlogConnection) -> Iterator[BinlogEvent]:
    checksum = 0
    for raw in log.raw_events():
        event = raw.tobytes()
        kind, body = event[4], event[k.HEADER :]
        if kind == ev.FORMAT_DESCRIPTION:
            checksum = 4 if has_checksums(body) else 0
        body = body[: len(body) - checksum]
        yield BinlogEvent(kind, int.from_bytes(event[5:9], "little"), int.from_bytes(event[:4], "little"), body)


def _gtid_of(begin: BinlogEvent) -> str:
    return str(begin_of_transaction(begin, [BinlogEvent(ev.QUERY, 0, 1, bytes(13))], "", 0).get("gtid", ""))


def _missing(name: str, files: list[str]) -> str:
    """Why a server does not list a file."""
    if not files:
        return f"the server has no {name}; it has no log files"
    listed = f"it has {files[0]} to {files[-1]}"
    if name.rpartition(".")[0] != files[-1].rpartition(".")[0]:
        return f"the server's log files have other names than {name}; {listed}"
    if file_number(name) > file_number(files[-1]):
        return f"the server's log was restarted: it does not reach {name}; {listed}"
    return f"the server has purged {name}; {listed}"
