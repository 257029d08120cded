"""Where the reading of the log stands: behind the last complete transaction, and inside the one that is open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.gtid import Gtids, MariaDbGtids, MySqlGtids, parse_gtids
from airflow_provider_cdc.sources.mysql.log.transaction_ids import add_gtid_numbers
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is being read, where it is more than the kernels know.

    :param id: its id, once a part of it was handed on; ``None`` while all of it is in the buffer
    :param gtid: its GTID event as numbers, once that has left the buffer
    :param standalone: it consists of one statement (MariaDB says so)
    :param thread: number of the session, as its BEGIN said
    :param row_events: row events of it that have left the buffer
    :param savepoints: name → row events before it
    :param xa: its XA id, if it has one
    """

    id: str | None = None
    gtid: Int64s | None = None
    standalone: bool = False
    thread: int = -1
    row_events: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    xa: str | None = None


class LogCursor:
    """Where one stream stands in the log. The event dispatcher moves it; everything else only reads it.

    :param start: where to begin
    :param until: where to end; ``None`` = never
    :ivar position: after the last complete transaction
    :ivar file: the log file that is being read
    :ivar created: when that file was begun, seconds since the epoch
    :ivar end: log position, 64 bits, after the last event that was used
    :ivar gtids: the transactions that are executed up to the position
    :ivar open: the transaction of which a part was handed on
    :ivar rolled_back: row events of the open transaction that it takes back later, as ranges of their numbers
    """

    __slots__ = ("created", "end", "file", "gtids", "open", "position", "rolled_back", "server", "until")

    def __init__(self, server: Server, start: MySqlPosition, until: MySqlPosition | None) -> None:
        self.server, self.until = server, until
        self.rolled_back: list[tuple[int, int]] = []
        self._move_to(start)

    def _move_to(self, start: MySqlPosition) -> None:
        self.position = start
        self.file, self.created, self.end = start.file, start.created, start.pos
        empty: Gtids = MariaDbGtids() if self.server.mariadb else MySqlGtids()
        self.gtids = parse_gtids(start.gtids) if start.gtids else empty
        self.open = OpenTransaction()

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def reached(self) -> bool:
        """Whether everything up to ``until`` was read, and no transaction is open."""
        return self.until is not None and self.open.id is None and self.position.reached(self.until)

    def is_past(self, pos: int) -> bool:
        """Whether a position in the present file is at or after ``until``."""
        if self.until is None or not self.until.same_log(self.position):
            return False
        return (file_number(self.file), pos) >= (file_number(self.until.file), self.until.pos)

    @property
    def lacks_gtids(self) -> bool:
        """Whether the server has GTIDs, and none is known yet."""
        return self.server.gtids and not str(self.gtids)

    def count_within(self, ends: Int64s) -> int:
        """How many of the next transactions, which end at these positions, may be committed at once."""
        if self.until is None or not len(ends):
            return len(ends)
        if not self.until.same_log(self.position):
            return 1  # one by one: only their ids can be compared
        if file_number(self.file) != file_number(self.until.file):
            return len(ends) if file_number(self.file) < file_number(self.until.file) else 0
        return int(np.searchsorted(ends, self.until.pos, side="right"))

    # -- transactions -------------------------------------------------------------------------------------------------

    def commit(self, end: int, executed: Int64s | None = None) -> None:
        """Stand behind complete transactions; none is open then.

        :param end: log position after the last of them
        :param executed: their GTIDs, as the ``read_gtids`` kernel gives them
        """
        if executed is not None:
            add_gtid_numbers(self.gtids, executed)
        self.end = end
        self.position = self._position(end, str(self.gtids))
        self.open, self.rolled_back = OpenTransaction(), []

    def leave_open(self, transaction: OpenTransaction) -> None:
        """A part of a transaction was handed on; the rest is still to come."""
        self.open = transaction

    def roll_back(self, since: int, to: int) -> bool:
        """The open transaction takes row events back that were handed on.

        :return: whether that is news, so that the transaction has to be read again
        """
        if (since, to) in self.rolled_back:
            return False
        self.rolled_back.append((since, to))
        return True

    def read_again(self) -> None:
        """Begin once more behind the last complete transaction; what is known to be void stays known."""
        self._move_to(self.position)

    def prepare(self, xid: str, start: dict[str, Any]) -> None:
        """An XA transaction is prepared, whose rows begin at ``start``."""
        self.position = replace(self.position, prepared={**self.position.prepared, xid: start})

    def end_prepared(self, xid: str) -> None:
        """A prepared XA transaction was committed or rolled back."""
        rest = {x: start for x, start in self.position.prepared.items() if x != xid}
        self.position = replace(self.position, prepared=rest)

    # -- files --------------------------------------------------------------------------------------------------------

    def start_after(self, gtids: str) -> None:
        """The server sends its log from behind these GTIDs on."""
        if gtids != self.position.gtids:
            self.gtids = parse_gtids(gtids)
            self.position = replace(self.position, gtids=gtids)

    def begin_file(self, name: str, pos: int) -> None:
        """The log goes on at this position of a file, a new one or the present one."""
        until = self.until
        if until is not None and until.same_log(self.position) and until.file == self.file != name:
            self.position = replace(self.position, file=self.file, pos=max(until.pos, self.position.pos))
        # asked by GTID, the server begins at the head of a file; asked by position, it repeats that position
        self.end = pos
        if name != self.file:
            self.file, self.created = name, 0

    def file_created(self, seconds: int) -> None:
        """The present file was begun then."""
        self.created = seconds

    def executed_before_file(self, gtids: Gtids) -> None:
        """These transactions lie before the present file."""
        self.gtids = gtids

    def heartbeat(self, end: int) -> None:
        """Stand where the server says that its log ends: what lies before may be no transaction, as the head of a new file."""
        gtids = str(self.gtids) if self.server.gtids else ""
        position = self._position(end, gtids)
        # on the way to where a reader by GTIDs stands, what it has is passed over
        if self.until is None and (not position.same_log(self.position) or position.reached(self.position)):
            self.position = position

    def move_to_until(self) -> None:
        """Stand at ``until``, as what comes next in the log comes after it: its last bytes need not be a transaction's."""
        assert self.until is not None
        self.position = replace(self.position, file=self.until.file, pos=self.until.pos)

    def end_log(self) -> None:
        """The server has come to the end of its log, which is not before ``until``."""
        until = self.until
        if until is not None and until.same_log(self.position) and not self.position.reached(until):
            self.move_to_until()

    def _position(self, pos: int, gtids: str) -> MySqlPosition:
        return replace(
            self.position, file=self.file, pos=pos, gtids=gtids, created=self.created, server=self.server.identity
        )
