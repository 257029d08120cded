"""A set of binlog events, and the transactions in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import LogCursor, OpenTransaction
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import MariaDbGtid, parse_mariadb_gtid
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.log_identity import BinlogEvent, begin_of_transaction
from airflow_provider_cdc.sources.mysql.log.rows.row_decoder import RoutedEvents
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.log.transaction_ids import gtid_numbers, transaction_columns
from airflow_provider_cdc.sources.mysql.position import file_number

Int64s = npt.NDArray[np.int64]
_REPEATED = np.array([ev.FORMAT_DESCRIPTION, ev.MARIADB_GTID_LIST, ev.MARIADB_START_ENCRYPTION])
"""Events at the head of a file. A server that begins to send it elsewhere repeats them, without an offset."""


class EventBuffer:
    """Events as they came from the server, at most a buffer full, and the transactions that the kernels find in them.

    Methods take and return indices: ``i`` of events, ``tx`` of transactions, both counted from the start of the buffer.

    :param cursor: the position at which the buffer begins; not kept
    :ivar transactions: ``int64[transactions, TX_FIELDS]``, ``-1`` for unknown values
    :ivar routed: table and transaction of each row event
    :ivar lo: index of the first event that was not delivered yet
    :ivar first: index of the transaction it belongs to
    """

    def __init__(self, events: EventSet, cursor: LogCursor) -> None:
        self.events = events
        n = len(events)
        self.transactions = np.full((n + 1, k.TX_FIELDS), -1, np.int64)
        ends = _ends(events.table, cursor.end)
        self.routed = RoutedEvents(events, np.full(n, k.NOT_ROWS, np.int32), np.zeros(n, np.int32), ends, cursor.file)
        self.lo = self.first = self._file_from = 0
        self._route_state = np.zeros(k.STATE, np.int64)
        self._rolled_back: set[int] = set()
        self._uncounted: set[int] = set()
        self._transaction_states: dict[int, OpenTransaction] = {}
        if cursor.open.id is not None:
            # the first transaction here began in an earlier buffer
            self._route_state[k.TX] = self._route_state[k.OPEN] = 1
            self._transaction_states[0] = cursor.open
            self.transactions[0, k.TX_THREAD] = cursor.open.thread

    def __len__(self) -> int:
        return len(self.events)

    # -- going over the events ----------------------------------------------------------------------------------------

    @property
    def next_index(self) -> int:
        """Index of the next event to be handled."""
        return int(self._route_state[k.AT])

    def route_events(self, maps: TableMapCache) -> int:
        """Run the kernel up to the next event that needs plain Python; returns why it stopped, see ``kernels/transaction_router.py``."""
        return k.route_events(
            self.events.buf, self.events.table, self._route_state, self.routed.layout_of, self.routed.transaction_of,
            self.transactions, *maps.kernel_arguments,
        )  # fmt: skip

    def advance_event(self) -> None:
        """Continue with the next event."""
        self._route_state[k.AT] += 1

    def mark_delivered(self, last: int, done: int) -> None:
        """Record that the transactions before index ``done`` were delivered; ``last`` is their last event."""
        self.lo, self.first = last + 1, done

    # -- events -------------------------------------------------------------------------------------------------------

    def get_event_type(self, i: int) -> int:
        return int(self.events.table[i, k.EV_TYPE])

    def get_event_flags(self, i: int) -> int:
        return int(self.events.table[i, k.EV_FLAGS])

    def get_event_time(self, i: int) -> int:
        """Time of an event, seconds since the epoch."""
        return int(self.events.table[i, k.EV_TIME])

    def ts_us(self, i: int) -> int:
        """Time of an event in µs since the epoch; the log has whole seconds."""
        return self.get_event_time(i) * 1_000_000

    def get_end_offset(self, i: int) -> int:
        """Offset in the log file after an event, 64 bits."""
        return int(self.routed.ends[i])

    def get_start_offset(self, i: int) -> int:
        """Offset in the log file at which an event begins, 64 bits."""
        return int(self.routed.ends[i] - self.events.table[i, k.EV_SIZE])

    def get_place(self, i: int) -> tuple[int, int]:
        """Return the number of the log file, and the offset in it, at which an event begins."""
        return file_number(self.routed.file), self.get_start_offset(i)

    def format_location(self, i: int) -> str:
        """File and offset of an event as text, for errors and logs."""
        return f"{self.routed.file}:{self.get_start_offset(i)}"

    def server_id(self, i: int) -> int:
        """Id of the server that first wrote an event."""
        return int(self.events.table[i, k.EV_SERVER])

    def begin_file(self, i: int, name: str, pos: int) -> None:
        """Assign the events after ``i`` to another file, from offset ``pos`` on."""
        self.routed.file, self._file_from = name, i + 1
        self.routed.ends[i + 1 :] = _ends(self.events.table[i + 1 :], pos)

    def is_past(self, i: int, cursor: LogCursor) -> bool:
        """Check whether an event begins at or after ``until``."""
        return not self.get_event_flags(i) & ev.ARTIFICIAL_FLAG and cursor.is_past(self.get_start_offset(i))

    def end_before(self, i: int) -> int | None:
        """Offset after the last event before event ``i`` in its file; ``None`` if there is none in the buffer."""
        ends = self.routed.ends[self._file_from : i]
        return int(ends.max()) or None if len(ends) else None

    # -- transactions -------------------------------------------------------------------------------------------------

    @property
    def last_transaction_index(self) -> int:
        """Index of the last transaction found so far, ``-1`` before the first one."""
        return int(self._route_state[k.TX]) - 1

    @property
    def has_open_transaction(self) -> bool:
        """Check whether that transaction has not ended yet."""
        return bool(self._route_state[k.OPEN])

    def begin_transaction(self, i: int, *, gtid: bool = False) -> None:
        """Begin a transaction with event ``i``, which is its GTID event if ``gtid``."""
        self.transactions[self.last_transaction_index + 1, k.TX_FIRST] = i
        self.routed.transaction_of[i] = self.last_transaction_index + 1
        self._route_state[k.TX] += 1
        self._route_state[k.OPEN] = 1
        if gtid:
            self.transactions[self.last_transaction_index, k.TX_GTID] = i

    def close_transaction(self, i: int) -> None:
        """End the open transaction with event ``i``."""
        self.transactions[self.last_transaction_index, k.TX_END] = i
        self._route_state[k.OPEN] = 0

    def close_without_rows(self, i: int) -> None:
        """End the open transaction with event ``i``; it changes nothing: exclude its rows."""
        self.exclude_rows(np.flatnonzero(self.mask_row_events(self.last_transaction_index, i)))
        self.close_transaction(i)

    def discard_transaction(self) -> None:
        """Forget the open transaction: its end is not in the log."""
        self.routed.layout_of[: self.next_index][
            self.routed.transaction_of[: self.next_index] == self.last_transaction_index
        ] = k.NOT_ROWS
        self.transactions[self.last_transaction_index] = -1
        self._transaction_states.pop(self.last_transaction_index, None)
        self._route_state[k.TX] -= 1
        self._route_state[k.OPEN] = 0

    def mark_rolled_back(self) -> None:
        """Count the last transaction as rolled back."""
        self._rolled_back.add(self.last_transaction_index)

    def mark_uncounted(self) -> None:
        """Count the last transaction neither as committed nor as rolled back: it is DDL, or an XA transaction only prepared."""
        self._uncounted.add(self.last_transaction_index)

    def count_transactions(self, done: int) -> tuple[int, int]:
        """Count the undelivered transactions before index ``done``.

        Returns how many ended, and how many of these were rolled back.
        """
        handed = range(self.first, done)
        apart, rolled_back = (sum(t in handed for t in some) for some in (self._uncounted, self._rolled_back))
        return len(handed) - apart, rolled_back

    def has_delivered_part(self, tx: int) -> bool:
        """Check whether a part of a transaction was delivered from an earlier buffer."""
        return self.state_of(tx).id is not None

    def build_carried_state(self, id_: str) -> OpenTransaction:
        """State of the open transaction for the next buffer, after all its events in this one were delivered.

        :param id_: its id
        """
        tx, gtid = self.last_transaction_index, self.get_gtid_event(self.last_transaction_index)
        note = self.state_of(tx)
        if gtid >= 0:
            numbers = gtid_numbers(self.events, np.array([gtid]))
            note = replace(note, gtid=numbers, standalone=self.is_standalone(tx), identity=self._identity(gtid))
        first = int(self.transactions[tx, k.TX_FIRST])
        if first >= 0:
            note = replace(note, begins=(self.routed.file, self.get_start_offset(first)))
        thread = int(self.transactions[tx, k.TX_THREAD])
        return replace(note, id=id_, thread=thread, row_events=self.rows_before(len(self)))

    def state_of(self, tx: int) -> OpenTransaction:
        """State of a transaction that the kernels do not keep."""
        return self._transaction_states.setdefault(tx, OpenTransaction())

    # -- rows ---------------------------------------------------------------------------------------------------------

    def mask_row_events(self, tx: int, hi: int) -> npt.NDArray[np.bool_]:
        """Mask over the events before ``hi``: true for row events of the transaction."""
        mine: npt.NDArray[np.bool_] = (self.routed.transaction_of[:hi] == tx) & (
            self.routed.layout_of[:hi] != k.NOT_ROWS
        )
        return mine

    def rows_before(self, i: int) -> int:
        """Count the row events of the open transaction before event ``i``, including those of earlier buffers."""
        return self.state_of(self.last_transaction_index).row_events + int(
            np.count_nonzero(self.mask_row_events(self.last_transaction_index, i))
        )

    def exclude_rows(self, events: Int64s) -> None:
        """Exclude row events: they are not decoded."""
        self.routed.layout_of[events] = k.NOT_CAPTURED

    # -- savepoints, XA -----------------------------------------------------------------------------------------------

    def set_savepoint(self, name: str, i: int) -> None:
        """Set a savepoint of the open transaction before event ``i``."""
        self.state_of(self.last_transaction_index).savepoints[name] = self.rows_before(i)

    def name_xa(self, xid: str) -> None:
        """Set the XA id of the open transaction."""
        self.state_of(self.last_transaction_index).xa = xid

    def set_thread(self, number: int) -> None:
        """Set the session id of the open transaction."""
        self.transactions[self.last_transaction_index, k.TX_THREAD] = number

    # -- ids ----------------------------------------------------------------------------------------------------------

    def get_gtid_event(self, tx: int) -> int:
        """Index of the GTID event of a transaction, ``-1`` if it is not in the buffer."""
        return int(self.transactions[tx, k.TX_GTID])

    def collect_executed_gtids(self, lo: int, hi: int) -> Int64s:
        """GTIDs of the transactions ``lo`` to ``hi`` as numbers, including one that began in an earlier buffer."""
        picked = self.transactions[lo:hi, k.TX_GTID]
        here = gtid_numbers(self.events, picked[picked >= 0])
        begun = self.state_of(lo).gtid
        return here if begun is None else np.concatenate([begun, here])

    def collect_gtids(self, lo: int, hi: int) -> Int64s:
        """GTIDs of the transactions ``lo`` to ``hi`` as numbers, a row for each; the number of a transaction without one is negative."""
        numbers, begun = gtid_numbers(self.events, self.transactions[lo:hi, k.TX_GTID]), self.state_of(lo).gtid
        if begun is not None and len(numbers):
            numbers[0] = begun[0]
        return numbers

    def identity_of(self, tx: int) -> dict[str, Any]:
        """Return the identity of a transaction, see ``MySqlPosition.last``; empty if that is not known."""
        gtid = self.get_gtid_event(tx)
        return self.state_of(tx).identity if gtid < 0 else self._identity(gtid)

    def _identity(self, gtid: int) -> dict[str, Any]:
        if not self.events.table[gtid, k.EV_END]:
            return {}  # an event without an offset cannot be found again
        following = (self._event(i) for i in range(gtid + 1, len(self)))
        return begin_of_transaction(self._event(gtid), following, self.routed.file, self.get_start_offset(gtid))

    def _event(self, i: int) -> BinlogEvent:
        return BinlogEvent(
            self.get_event_type(i), self.server_id(i), self.get_event_time(i), self.events.get_event_body(i)
        )

    def mariadb_gtid(self, tx: int) -> MariaDbGtid | None:
        """Return the parsed GTID event of a transaction of MariaDB; ``None`` if the buffer has none."""
        gtid = self.get_gtid_event(tx)
        if gtid < 0 or self.get_event_type(gtid) != ev.MARIADB_GTID:
            return None
        return parse_mariadb_gtid(self.events.get_event_body(gtid))

    def is_standalone(self, tx: int) -> bool:
        """Check whether a transaction consists of one statement (flag of MariaDB's GTID event)."""
        if self.get_gtid_event(tx) < 0:
            return self.state_of(tx).standalone
        gtid = self.mariadb_gtid(tx)
        return gtid is not None and bool(gtid.flags & MariaDbGtid.STANDALONE)

    def build_source_block(self, i: int, cursor: LogCursor) -> dict[str, object]:
        """Build the ``source`` block of an event that is not a row, such as DDL."""
        gtid = None
        if cursor.server.has_gtids and self.last_transaction_index >= 0:
            mine = self.transactions[self.last_transaction_index : self.last_transaction_index + 1]
            columns = transaction_columns(
                self.events,
                mine,
                self.routed.ends,
                self.routed.file,
                self.state_of(self.last_transaction_index).id,
                cursor.server.mariadb,
            )
            gtid = columns.transactions.id[0].as_py()
        return {
            "server_id": self.server_id(i), "gtid": gtid, "file": self.routed.file, "pos": self.get_start_offset(i), "row": 0, "thread": None,
            "query": None,
        }  # fmt: skip


def _ends(table: Int64s, end: int) -> Int64s:
    """64-bit offset after each event. Headers have the low 32 bits only; artificial events have no offset.

    Nor have events within a transaction of MariaDB 11.4 and newer (``binlog_legacy_event_pos=OFF``): these follow each other in the file.

    :param table: of events of one file
    :param end: the offset at which the first event begins
    """
    ends = table[:, k.EV_END].copy()
    repeated = (ends == 0) & np.isin(table[:, k.EV_TYPE], _REPEATED)
    real = np.flatnonzero(((table[:, k.EV_FLAGS] & ev.ARTIFICIAL_FLAG) == 0) & ~repeated)
    with_end = np.flatnonzero(ends[real] > 0)
    low = np.concatenate([[end & 0xFFFFFFFF], ends[real[with_end]]])
    ends[real[with_end]] += (end & ~0xFFFFFFFF) + (np.cumsum(np.diff(low) < 0) << 32)
    if len(with_end) < len(real):
        # before each event: the last one whose end is known, and the bytes that followed it
        last = np.searchsorted(with_end, np.arange(len(real)), side="right")
        bytes_ = np.cumsum(table[real, k.EV_SIZE])
        ends[real] = (
            np.concatenate([[end], ends[real[with_end]]])[last] + bytes_ - np.concatenate([[0], bytes_[with_end]])[last]
        )
    return ends
