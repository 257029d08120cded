"""A set of events of the log, and what is known of the transactions in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.assemble import Routed, gtid_numbers, transaction_columns
from airflow_provider_cdc.sources.mysql.position import file_number
from airflow_provider_cdc.sources.mysql.wire import Events

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.stream import BinlogStream

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class Open:
    """The transaction that is being read, where it is more than the kernels know.

    :param id: its id, once a part of it was handed over; ``None`` while all of it is in the buffer
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


class EventSet:
    """Events as they came from the server, at most a buffer full, and the transactions that the kernels find in them.

    Events and transactions are named by their numbers in the set.

    :ivar state: what the routing kernel remembers between two calls
    :ivar transactions: a row per transaction, ``-1`` for what is not known of it
    :ivar routed: to which table and which transaction each row event belongs
    :ivar lo: first event that was not handed over yet
    :ivar first: the transaction it belongs to
    :ivar rolled_back: transactions that were rolled back as a whole
    :ivar apart: transactions of which nothing is committed here: DDL, and what is only prepared
    """

    def __init__(self, stream: BinlogStream, events: Events) -> None:
        self.s, self.events = stream, events
        n = len(events)
        self.state = np.zeros(k.STATE, np.int64)
        self.transactions = np.full((n + 1, k.TX_FIELDS), -1, np.int64)
        self.routed = Routed(events, np.full(n, k.NOT_ROWS, np.int32), np.zeros(n, np.int32), self._ends(), stream.file)
        self.lo = self.first = 0
        self.rolled_back: set[int] = set()
        self.apart: set[int] = set()
        self._notes: dict[int, Open] = {}
        if stream.open.id is not None:
            # the transaction that was begun in an earlier buffer is the first one here
            self.state[k.TX] = self.state[k.OPEN] = 1
            self._notes[0] = stream.open
            self.transactions[0, k.TX_THREAD] = stream.open.thread

    def __len__(self) -> int:
        return len(self.events)

    @property
    def at(self) -> int:
        """The event that is looked at."""
        return int(self.state[k.AT])

    @property
    def tx(self) -> int:
        """The transaction that was found last, ``-1`` before the first one."""
        return int(self.state[k.TX]) - 1

    @property
    def open(self) -> bool:
        """Whether that transaction has not ended yet."""
        return bool(self.state[k.OPEN])

    # -- events -------------------------------------------------------------------------------------------------------

    def kind(self, i: int) -> int:
        return int(self.events.table[i, k.EV_TYPE])

    def flags(self, i: int) -> int:
        return int(self.events.table[i, k.EV_FLAGS])

    def ts_us(self, i: int) -> int:
        """When an event was written, in µs since the epoch; the log has seconds."""
        return int(self.events.table[i, k.EV_TIME]) * 1_000_000

    def place(self, i: int) -> int:
        """Log position at which an event begins."""
        return int(self.routed.ends[i] - self.events.table[i, k.EV_SIZE])

    def where(self, i: int) -> str:
        """That position, for people."""
        return f"{self.s.file}:{self.place(i)}"

    def _ends(self) -> Int64s:
        """64-bit log positions after each event: the log has the low 32 bits only, and artificial events have no place."""
        table = self.events.table
        ends = table[:, k.EV_END].copy()
        artificial = (table[:, k.EV_FLAGS] & b.ARTIFICIAL_FLAG) != 0
        real = np.flatnonzero(~artificial & (ends > 0))
        low = np.concatenate([[self.s.last_end & 0xFFFFFFFF], ends[real]])
        # a file begins again at a small number after a ROTATE, of which the events after it know
        carry = np.cumsum((np.diff(low) < 0) & (table[real, k.EV_TYPE] != b.FORMAT_DESCRIPTION))
        ends[real] += (self.s.last_end & ~0xFFFFFFFF) + (carry << 32)
        return ends

    def new_file(self, i: int, name: str) -> None:
        """Positions of the events after ``i`` count from the beginning of another file."""
        self.routed.file = name
        self.routed.ends[i + 1 :] = self.events.table[i + 1 :, k.EV_END]

    def is_past(self, i: int) -> bool:
        """Whether an event begins at or after the place where the stream is to end."""
        s = self.s
        if s.until is None or not s.until.same_log(s.position) or self.flags(i) & b.ARTIFICIAL_FLAG:
            return False
        return (file_number(s.file), self.place(i)) >= (file_number(s.until.file), s.until.pos)

    # -- transactions -------------------------------------------------------------------------------------------------

    def begin(self, i: int) -> None:
        """A transaction begins with event ``i``."""
        self.transactions[self.tx + 1, k.TX_FIRST] = i
        self.routed.transaction_of[i] = self.tx + 1
        self.state[k.TX] += 1
        self.state[k.OPEN] = 1

    def close(self, i: int) -> None:
        """The open transaction ends with event ``i``."""
        self.transactions[self.tx, k.TX_END] = i
        self.state[k.OPEN] = 0

    def note(self, tx: int) -> Open:
        """What is known of a transaction besides what the kernels know."""
        return self._notes.setdefault(tx, Open())

    def rows(self, tx: int, hi: int) -> npt.NDArray[np.bool_]:
        """Which of the events before ``hi`` are row events of a transaction."""
        mine: npt.NDArray[np.bool_] = (self.routed.transaction_of[:hi] == tx) & (
            self.routed.layout_of[:hi] != k.NOT_ROWS
        )
        return mine

    def rows_before(self, i: int) -> int:
        """Number of row events of the open transaction before event ``i``, with those that have left the buffer."""
        return self.note(self.tx).row_events + int(np.count_nonzero(self.rows(self.tx, i)))

    def gtid(self, tx: int) -> int:
        """The GTID event of a transaction, ``-1`` if it is not in the set."""
        return int(self.transactions[tx, k.TX_GTID])

    def gtid_numbers(self, gtids: Int64s) -> Int64s:
        """GTID events as numbers."""
        return gtid_numbers(self.events, gtids)

    def mariadb_gtid(self, gtid: int) -> b.MariaDbGtid | None:
        """What a GTID event of MariaDB says; ``None`` where it is none."""
        if gtid < 0 or self.kind(gtid) != b.MARIADB_GTID:
            return None
        return b.parse_mariadb_gtid(self.events.body(gtid))

    def is_standalone(self, gtid: int) -> bool:
        """Whether the transaction of a GTID event consists of one statement (MariaDB says so)."""
        found = self.mariadb_gtid(gtid)
        return found is not None and bool(found.flags & b.MariaDbGtid.STANDALONE)

    def source(self, i: int) -> dict[str, object]:
        """``source`` of an envelope, of an event that is not a row."""
        gtid = None
        if self.s.server.gtids and self.tx >= 0:
            mine = self.transactions[self.tx : self.tx + 1]
            columns = transaction_columns(
                self.events, mine, self.routed.ends, self.s.file, self.note(self.tx).id, self.s.gtids
            )
            gtid = columns.transactions.id[0].as_py()
        server_id = int(self.events.table[i, k.EV_SERVER])
        return {
            "server_id": server_id, "gtid": gtid, "file": self.s.file, "pos": self.place(i), "row": 0, "thread": None,
            "query": None,
        }  # fmt: skip
