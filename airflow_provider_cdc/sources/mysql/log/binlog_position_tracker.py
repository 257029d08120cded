"""The cursor of a binlog stream: the position after the last complete transaction, and the state of the open one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.gtid_sets import Gtids, MariaDbGtids, MySqlGtids, parse_gtids
from airflow_provider_cdc.sources.mysql.log.transaction_ids import add_gtid_numbers, first_that_reaches
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class OpenTransaction:
    """State of a transaction that the kernels do not keep.

    :param id: its id, once a part of it was delivered; ``None`` while all of it is in the buffer
    :param gtid: its GTID event as numbers, once that event has left the buffer
    :param standalone: it consists of one statement (flag of MariaDB's GTID event)
    :param thread: session id, from its BEGIN
    :param identity: its identity, see :attr:`.position.MySqlPosition.last`, once its GTID event has left the buffer
    :param row_events: number of its row events that have left the buffer
    :param savepoints: name → number of its row events before the savepoint
    :param xa: its XA id, if it has one
    :param begins: file and offset at which it begins, once that event has left the buffer
    """

    id: str | None = None
    gtid: Int64s | None = None
    standalone: bool = False
    thread: int = -1
    identity: dict[str, Any] = field(default_factory=dict)
    row_events: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    xa: str | None = None
    begins: tuple[str, int] | None = None


class LogCursor:
    """Position of one stream in the log. The event dispatcher moves it; everything else only reads it.

    :param start: position to begin at
    :param until: position to end at; ``None`` = none
    :ivar position: the position after the last complete transaction
    :ivar file: the log file that is being read
    :ivar created: when that file was created, seconds since the epoch; 0 = not known
    :ivar end: offset (64 bits) in the file at which the next set of events begins
    :ivar passed: the next event in the log is after ``until``
    :ivar gtids: the GTIDs executed up to the position; while :attr:`lacks_gtids`, those that the stream has met
    :ivar lacks_gtids: the server has GTIDs, but those executed before the stream's beginning are not known
    :ivar open: state of the transaction of which a part was delivered
    :ivar rolled_back: ranges of row event numbers in the open transaction that it rolls back later
    """

    __slots__ = (
        "created", "end", "file", "gtids", "lacks_gtids", "open", "passed", "position", "rolled_back", "server", "until",
    )  # fmt: skip

    def __init__(self, server: MySqlServer, start: MySqlPosition, until: MySqlPosition | None) -> None:
        self.server, self.until, self.passed = server, until, False
        self.rolled_back: list[tuple[int, int]] = []
        self._move_to(start)

    def _move_to(self, start: MySqlPosition) -> None:
        self.position = start
        self.file, self.created, self.end = start.file, start.created, start.pos
        empty: Gtids = MariaDbGtids() if self.server.mariadb else MySqlGtids()
        self.gtids = parse_gtids(start.gtids) if start.gtids and self.server.has_gtids else empty
        self.lacks_gtids = self.server.has_gtids and not start.gtids
        self.open = OpenTransaction()

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def has_reached_end(self) -> bool:
        """Check whether the stream has reached ``until`` and no transaction is open."""
        if self.until is None or self.open.id is not None:
            return False
        return self.passed or self.position.has_reached(self.until)

    @property
    def has_all(self) -> bool:
        """Check whether the stream, where the server has ended the log, has all that ``until`` has.

        It has all by GTIDs, or because all of the log was sent up to the offset of ``until``. A server may have executed transactions that its log does not have.
        """
        until = self.until
        if until is None or self.open.id is not None or self.has_reached_end or until.server != self.server.identity:
            return self.has_reached_end
        return (file_number(self.file), self.end) >= (file_number(until.file), until.pos)

    def is_past(self, pos: int) -> bool:
        """Check whether an offset in the current file is at or after ``until``, where file and offset decide."""
        if self.until is None or self.ends_by_gtids or not self.until.same_log(self.position):
            return False
        return (file_number(self.file), pos) >= (file_number(self.until.file), self.until.pos)

    @property
    def ends_by_gtids(self) -> bool:
        """Check whether GTIDs decide where ``until`` is; otherwise file and offset do."""
        return self.until is not None and bool(self.until.gtids and self.position.gtids)

    def count_within(self, ends: Int64s) -> int:
        """Count the next transactions that are not after ``until``, by file and offset.

        They may be committed at once.

        :param ends: offsets at which the transactions end, ascending
        """
        if self.until is None or not len(ends):
            return len(ends)
        if not self.until.same_log(self.position):
            return 1
        if file_number(self.file) != file_number(self.until.file):
            return len(ends) if file_number(self.file) < file_number(self.until.file) else 0
        return int(np.searchsorted(ends, self.until.pos, side="right"))

    def count_to_gtids(self, numbers: Int64s) -> int:
        """Count the next transactions that may be committed at once.

        These are the ones up to the one with which ``until`` is reached by GTIDs.

        :param numbers: their GTIDs, a row of the ``read_gtids`` kernel for each
        """
        assert self.until is not None
        return first_that_reaches(self.gtids, parse_gtids(self.until.gtids), numbers)

    def accept_move(self) -> None:
        """Record that the known structures do not count as those of this position any more."""
        self.position = replace(self.position, moved=False)

    # -- transactions -------------------------------------------------------------------------------------------------

    def commit_transactions(self, end: int, executed: Int64s | None = None, last: dict[str, Any] | None = None) -> None:
        """Move after complete transactions. No transaction is open then.

        :param end: offset after the last of them
        :param executed: their GTIDs, as rows of the ``read_gtids`` kernel
        :param last: the identity of the last of them, see ``MySqlPosition.last``
        """
        if executed is not None:
            add_gtid_numbers(self.gtids, executed)
        self.end = end
        self.position = self._position(end)
        if last:
            self.position = replace(self.position, last=last)
        self._learn_gtids()
        self.open, self.rolled_back = OpenTransaction(), []

    def leave_open(self, transaction: OpenTransaction, end: int) -> None:
        """Record that a part of a transaction was delivered, up to offset ``end``.

        The rest follows in a later buffer.
        """
        self.open, self.end = transaction, end

    def discard_transaction(self) -> None:
        """Discard the open transaction: it has no end in the log."""
        self.open, self.rolled_back = OpenTransaction(), []

    def roll_back(self, first: int, to: int) -> bool:
        """Roll back row events of the open transaction that were delivered, numbers ``first`` up to ``to``.

        :return: whether this range was not known before, so that the transaction has to be read again without it
        """
        if (first, to) in self.rolled_back:
            return False
        self.rolled_back.append((first, to))
        return True

    def read_again(self) -> None:
        """Go back to the last complete transaction; the known rolled-back ranges are kept."""
        self._move_to(self.position)

    def add_prepared(self, xid: str, start: dict[str, Any]) -> None:
        """Remember a prepared XA transaction whose rows begin at ``start``."""
        self.position = replace(self.position, prepared={**self.position.prepared, xid: start})

    def end_prepared(self, xid: str) -> None:
        """Forget a prepared XA transaction: it was committed or rolled back."""
        rest = {x: start for x, start in self.position.prepared.items() if x != xid}
        self.position = replace(self.position, prepared=rest)

    # -- files --------------------------------------------------------------------------------------------------------

    def start_after(self, gtids: str, without_log: MySqlGtids) -> None:
        """Start after these GTIDs: the server sends the transactions after them.

        :param without_log: those that its log does not have, if the position has none
        """
        if isinstance(self.gtids, MySqlGtids) and self.lacks_gtids:
            self.gtids = self.gtids.merge_gtids(without_log)
        if gtids != self.position.gtids:
            self.gtids = parse_gtids(gtids)
            self.position = replace(self.position, gtids=gtids)

    def begin_file(self, name: str, pos: int) -> None:
        """Continue at offset ``pos`` of a file, the next one or the current one."""
        # asked by GTID, the server begins at the head of a file; asked by file and offset, it repeats that offset
        self.end = pos
        if name != self.file:
            self.file, self.created = name, 0

    def file_created(self, seconds: int) -> None:
        """Record when the current file was created, seconds since the epoch."""
        self.created = seconds

    def executed_before_file(self, gtids: Gtids) -> None:
        """Record the GTIDs executed before the current file.

        From now on the position has GTIDs.
        """
        if isinstance(gtids, MySqlGtids) and isinstance(self.gtids, MySqlGtids):
            gtids = gtids.merge_gtids(self.gtids)
        self.gtids, self.lacks_gtids = gtids, False

    def read_up_to(self, end: int) -> None:
        """Move to an offset in the file at which no transaction is open: the bytes before it may be no transaction, as the head of a file.

        Never moves back: asked by GTIDs, the server begins at the head of a file, and reports the transactions that it skips.
        """
        self.end = end
        if (self.file, end) != (self.position.file, self.position.pos):
            position = self._position(end)
            if not (position.same_log(self.position) and position.is_earlier(self.position)):
                self.position = position
        self._learn_gtids()

    def _learn_gtids(self) -> None:
        """Take the GTIDs of ``until`` where the stream has come there by file and offset: they were executed up to there."""
        until = self.until
        if not self.lacks_gtids or until is None or not until.gtids or not self.position.has_reached(until):
            return
        if not isinstance(self.gtids, MySqlGtids):  # MariaDB says its GTIDs after file and offset, so they may be ahead
            return
        # some that the stream has met may not count as executed yet
        self.gtids, self.lacks_gtids = MySqlGtids.parse(until.gtids).merge_gtids(self.gtids), False
        self.position = replace(self.position, gtids=str(self.gtids))

    def _position(self, pos: int) -> MySqlPosition:
        # some of the GTIDs would be worse than none: by them, the server sends the others again
        gtids = "" if self.lacks_gtids else str(self.gtids)
        return replace(
            self.position, file=self.file, pos=pos, gtids=gtids, created=self.created, server=self.server.identity
        )
