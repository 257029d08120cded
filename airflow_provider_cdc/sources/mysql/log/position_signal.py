"""The ``set-binlog-position`` signal: turns a file and an offset, or a GTID set, into a position.

See "Set binlog position" in the Debezium MySQL connector's document. With a file and an offset the file is read up to that offset,
to collect the GTIDs before it and to make sure that it lies between two transactions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import ConfigError, PositionLost
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.gtid_sets import Gtids, MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import parse_rotate
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.gtid_continuity_check import executed_without_log
from airflow_provider_cdc.sources.mysql.log.transaction_ids import add_gtid_numbers, gtid_numbers
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

_FORMS: Final = (
    'valid forms are {"binlog_filename": "binlog.000003", "binlog_position": 1234}, {"file": …, "pos": …}, '
    '{"gtid_set": "<GTIDs>"}, and the output of'
)
_FILE = re.compile(r"[A-Za-z0-9_.-]+\.\d{6,}")
_MARIADB_SET = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")
_TRANSACTION: Final = {ev.GTID, ev.ANONYMOUS_GTID, ev.GTID_TAGGED, ev.MARIADB_GTID}
"""Events that begin a transaction."""
_HEAD: Final = {ev.FORMAT_DESCRIPTION, ev.PREVIOUS_GTIDS, ev.MARIADB_GTID_LIST, ev.MARIADB_START_ENCRYPTION}


def position_of(
    data: Mapping[str, Any], config: MySqlConfig, server: MySqlServer, connection: Connection
) -> MySqlPosition | None:
    """Return the position that the data of a signal name.

    ``None`` if it is a whole one, as ``airflow cdc offsets`` shows it.

    :raises ConfigError: the server has no such position, or the data are malformed
    """
    names = set(data)
    if "gtid_set" in names:
        if names != {"gtid_set"}:
            raise _wrong(f"gtid_set and {', '.join(sorted(names - {'gtid_set'}))} exclude each other")
        return _by_gtids(data["gtid_set"], server, connection)
    if names == {"file", "pos"}:  # of this server; its GTIDs are looked up
        return _named(data["file"], data["pos"], config, server, connection)
    if not names & {"binlog_filename", "binlog_position"}:
        return None
    if names != {"binlog_filename", "binlog_position"}:
        missing = {"binlog_filename", "binlog_position"} - names
        raise _wrong(f"{missing.pop()} is missing" if missing else f"{', '.join(sorted(names))} cannot be combined")
    return _named(data["binlog_filename"], data["binlog_position"], config, server, connection)


def _named(file: Any, pos: Any, config: MySqlConfig, server: MySqlServer, connection: Connection) -> MySqlPosition:
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        raise _wrong(f"the file is {file!r}, which is not the name of a log file")
    if not isinstance(pos, int) or isinstance(pos, bool) or pos < 0:
        raise _wrong(f"the offset is {pos!r}, not a number of 0 or more")
    return _by_file(file, max(pos, 4), config, server, connection)


def _wrong(problem: str) -> ConfigError:
    return ConfigError(f"The position does not exist: {problem}.", remedy=f"{_FORMS} `{name_cdc_command('offsets')}`")


# -- by GTIDs ---------------------------------------------------------------------------------------------------------


def _by_gtids(text: Any, server: MySqlServer, connection: Connection) -> MySqlPosition:
    if not isinstance(text, str) or not text.strip():
        raise _wrong(f"gtid_set is {text!r}, not a set of GTIDs")
    if not server.has_gtids:
        raise ConfigError(
            "The server has no GTIDs (gtid_mode is not ON).",
            remedy="name the position by binlog_filename and binlog_position",
        )
    text = re.sub(r"\s", "", text)
    gtids = _mariadb_set(text, connection) if server.mariadb else _mysql_set(text, connection)
    # without a file and a server the position is compared by its GTIDs only
    return MySqlPosition("", 4, gtids)


def _mysql_set(text: str, connection: Connection) -> str:
    with connection.cursor() as cursor:
        try:
            cursor.execute(
                "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, %s), GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)",
                (text, text),
            )
        except pymysql.err.Error as e:
            if e.args[0] == 1772:
                raise _wrong(f"gtid_set is {text!r}, not a set of GTIDs of MySQL") from None
            raise
        purged, unknown = (str(part).replace("\n", "") for part in cursor.fetchone() or ("", ""))
    gtids = MySqlGtids.parse(text)
    if unknown:
        raise _wrong(f"the server has not executed {unknown}")
    if purged:
        raise _wrong(f"the server has purged {purged}, which the set does not contain")
    return str(gtids)


def _mariadb_set(text: str, connection: Connection) -> str:
    if not _MARIADB_SET.fullmatch(text):
        raise _wrong(f"gtid_set is {text!r}, not a GTID position of MariaDB, such as 0-1-270")
    gtids = MariaDbGtids.parse(text)
    if len(gtids.domains) != text.count(",") + 1:
        raise _wrong(f"gtid_set is {text!r}, which contains a domain twice")
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")
        present = MariaDbGtids.parse(str((cursor.fetchone() or ("",))[0]))
    if not present.contains_gtids(gtids):
        raise _wrong(f"the server's log ends at {present}")
    return str(gtids)


# -- by file ----------------------------------------------------------------------------------------------------------


def _by_file(file: str, pos: int, config: MySqlConfig, server: MySqlServer, connection: Connection) -> MySqlPosition:
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        sizes = {str(row[0]): int(row[1]) for row in cursor.fetchall()}
    if file not in sizes:
        raise _wrong(f"the server has no file {file}; it has {min(sizes)} to {max(sizes)}")
    if pos > sizes[file]:
        raise _wrong(f"{file} has {sizes[file]} bytes")
    position = _LogFileSearch(config, server, file, pos).find_position()
    if position.gtids and not server.mariadb:
        gtids = MySqlGtids.parse(position.gtids).merge_gtids(executed_without_log(connection, server))
        return replace(position, gtids=str(gtids))
    return position


@dataclass(slots=True)
class _LogFileSearch:
    """Reads a log file from its head up to an offset.

    :ivar transaction_start: offset at which the last transaction begins that was read
    :ivar end: offset after the last event that was read
    :ivar head_starts: offsets of the events at the head of the file, before the first transaction
    """

    config: MySqlConfig
    server: MySqlServer
    file: str
    pos: int
    gtids: Gtids = field(init=False)
    created: int = 0
    transaction_start: int = 4
    end: int = 4
    head_starts: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gtids = MariaDbGtids() if self.server.mariadb else MySqlGtids()

    def find_position(self) -> MySqlPosition:
        """Return the whole position, with GTIDs.

        :raises ConfigError: the offset is inside a transaction
        """
        head = MySqlPosition(self.file, 4, server=self.server.identity)
        with BinlogConnection(self.config, self.server, head, unregistered=True) as connection:
            for events in connection.read_events():
                assert events is not None  # without patience
                try:
                    if self._read(events):
                        break
                except (ValueError, IndexError, struct.error) as e:
                    raise _wrong(f"{self.file} cannot be read up to this offset: {e}") from e
            else:
                self._require_boundary(self.end)
        gtids = str(self.gtids) if self.server.has_gtids else ""
        return MySqlPosition(self.file, self.pos, gtids, self.created, self.server.identity)

    def _read(self, events: EventSet) -> bool:
        """Read a set of events; returns whether the offset is reached."""
        begins: list[int] = []
        for i, row in enumerate(events.table):
            kind, size, flags = int(row[k.EV_TYPE]), int(row[k.EV_SIZE]), int(row[k.EV_FLAGS])
            if kind == ev.FORMAT_DESCRIPTION:
                self.created = self.created or int(row[k.EV_TIME])
            if (
                kind == ev.ROTATE
                and flags & ev.ARTIFICIAL_FLAG
                and parse_rotate(events.get_event_body(i))[0] != self.file
            ):
                self._require_boundary(self.end)
                self._count(events, begins)
                return True
            if flags & ev.ARTIFICIAL_FLAG or not row[k.EV_END]:
                continue
            start = self._full_position(int(row[k.EV_END])) - size
            if kind in _HEAD:
                self.head_starts.add(start)
                self.end = start + size
                if kind in (ev.PREVIOUS_GTIDS, ev.MARIADB_GTID_LIST):
                    decode = MariaDbGtids.from_event_body if self.server.mariadb else MySqlGtids.from_event_body
                    self.gtids = decode(events.get_event_body(i))
                continue
            if start >= self.pos:
                whole = start == self.pos and (kind in _TRANSACTION or kind in ev.HARMLESS or kind == ev.ROTATE)
                self._require_boundary(self.pos if whole else -1)
                self._count(events, begins)
                return True
            self.end = start + size
            if kind in _TRANSACTION:
                self.transaction_start = start
                begins.append(i)
        self._count(events, begins)
        return False

    def _full_position(self, end: int) -> int:
        """Return the 64-bit offset; an event's header has the low 32 bits only."""
        high = self.end & ~0xFFFFFFFF
        return high + end + (1 << 32 if high + end < self.end else 0)

    def _require_boundary(self, pos: int) -> None:
        if pos != self.pos and self.pos not in self.head_starts:
            raise _wrong(f"{self.file}:{self.pos} is inside a transaction, which begins at {self.transaction_start}")

    def _count(self, events: EventSet, begins: list[int]) -> None:
        add_gtid_numbers(self.gtids, gtid_numbers(events, np.array(begins, np.int64)))


def build_position_error(e: PositionLost) -> ConfigError:
    """Return the error for a position named by a signal that the server cannot send the log from."""
    return _wrong(f"{e.message} ({e.where})" if e.where else e.message)
