"""Keeps the messages of transactions until they are delivered: whole transactions, or parts of a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.kernels.message_router import route_messages
from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import MessageBlock

_FIRST_BYTES: Final = 1 << 20
_MANY_BYTES: Final = 1 << 25
"""Memory that is returned after a large message."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows and transactions that are delivered together.

    :param data: the bytes that the offsets of the rows are in
    :param rows: ``int64[n, ROW_FIELDS]``
    :param transactions: ``int64[n, TX_FIELDS]``
    :param first: index of the first of the transactions, as the rows have it
    :param open: the last transaction continues
    :param continued: a part of the first transaction was delivered before
    """

    data: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    transactions: npt.NDArray[np.int64]
    first: int
    open: bool
    continued: bool


class MessageBuffer:
    """Messages that are not delivered.

    :ivar within: a transaction is open
    :ivar part_delivered: a part of it was delivered
    """

    def __init__(self) -> None:
        self._data = np.empty(_FIRST_BYTES, np.uint8)
        self._rows = np.empty((1024, layout.ROW_FIELDS), np.int64)
        self._transactions = np.empty((64, layout.TX_FIELDS), np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._end = self._row_count = self._transaction_count = self._first_row = self._first_transaction = 0
        self._messages = np.empty((0, layout.MSG_FIELDS), np.int64)
        self._next = 0
        self.within = self.part_delivered = False

    @property
    def byte_count(self) -> int:
        """Bytes that are kept."""
        return self._end

    @property
    def pending_rows(self) -> int:
        """Rows that are not delivered."""
        return self._row_count - self._first_row

    @property
    def open_transaction(self) -> npt.NDArray[np.int64] | None:
        """The transaction that is open: ``int64[TX_FIELDS]``."""
        return self._transactions[self._transaction_count - 1] if self.within else None

    @property
    def pending_transactions(self) -> npt.NDArray[np.int64]:
        """The transactions that are not delivered, or not whole: ``int64[n, TX_FIELDS]``."""
        return self._transactions[self._first_transaction : self._transaction_count]

    @property
    def pending_relations(self) -> set[int]:
        """Indexes of the relations of rows that are not delivered."""
        rows = self._rows[self._first_row : self._row_count, layout.ROW_RELATION]
        return set(np.unique(rows).tolist())

    def add_block(self, block: MessageBlock) -> None:
        """Add messages behind the others, which are all routed."""
        begin, end = int(block.messages[0, layout.MSG_START]), int(block.messages[-1, layout.MSG_END])
        size = end - begin
        if self._end + size > len(self._data):
            larger = np.empty(max(2 * len(self._data), self._end + size), np.uint8)
            larger[: self._end] = self._data[: self._end]
            self._data = larger
        self._data[self._end : self._end + size] = block.data[begin:end]
        self._messages = block.messages.copy()
        self._messages[:, [layout.MSG_START, layout.MSG_END]] += self._end - begin
        self._end += size
        self._next = 0
        self._rows = _with_room(self._rows, self._row_count, len(self._messages))
        self._transactions = _with_room(self._transactions, self._transaction_count, len(self._messages))

    def route(self, relations: npt.NDArray[np.int64]) -> int:
        """Route messages up to one that the caller has to read. Returns why it stopped."""
        self._next, self._row_count, self._transaction_count, self.within, why = route_messages(
            self._data, self._messages, self._next, relations, self._rows, self._row_count, self._transactions, self._transaction_count, self.within
        )  # fmt: skip
        return int(why)

    def get_message(self) -> tuple[str, int, bytes]:
        """Return the kind, the LSN and the body of the message at which :meth:`route` stopped."""
        kind, begin, end, lsn = self._messages[self._next].tolist()
        return chr(kind), lsn, self._data[begin:end].tobytes()

    def pass_message(self) -> None:
        """Pass over the message at which :meth:`route` stopped."""
        self._next += 1

    def read_commit(self) -> int | None:
        """Return the LSN behind the commit that follows the present message at once; ``None`` if it is not there."""
        following = self._next + 1
        if following >= len(self._messages) or int(self._messages[following, layout.MSG_KIND]) != ord("C"):
            return None
        begin = int(self._messages[following, layout.MSG_START]) + 9
        return int.from_bytes(self._data[begin : begin + 8].tobytes(), "big")

    def count_complete(self, until: int | None) -> int:
        """Count the complete transactions that are not delivered.

        :param until: leave out those whose commit is behind this LSN
        """
        pending = self.pending_transactions
        count = len(pending) - self.within
        if until is None:
            return count
        return min(count, int(np.searchsorted(pending[:, layout.TX_COMMIT], until)))

    def take_complete(self, count: int) -> Segment:
        """Take the first complete transactions."""
        first = self._first_transaction
        numbers = self._rows[self._first_row : self._row_count, layout.ROW_TRANSACTION]
        last_row = self._first_row + int(np.searchsorted(numbers, first + count))
        segment = Segment(
            self._data, self._rows[self._first_row : last_row], self._transactions[first : first + count], first,
            open=False, continued=self.part_delivered,
        )  # fmt: skip
        self._first_row, self._first_transaction = last_row, first + count
        self.part_delivered = False
        return segment

    def take_part(self) -> Segment:
        """Take what has come of the open transaction, which is the only one."""
        first = self._first_transaction
        segment = Segment(
            self._data, self._rows[self._first_row : self._row_count], self._transactions[first : first + 1], first,
            open=True, continued=self.part_delivered,
        )  # fmt: skip
        self._first_row = self._row_count
        self.part_delivered = True
        return segment

    def compact(self) -> None:
        """Move what is not delivered to the front. All messages are routed."""
        rows = self._rows[self._first_row : self._row_count].copy()
        transactions = self.pending_transactions.copy()
        begin = int(rows[0, layout.ROW_START]) if len(rows) else self._end
        if begin:
            left = self._end - begin
            self._data[:left] = self._data[begin : self._end].copy()
            self._end = left
        if len(self._data) > _MANY_BYTES and self._end < _FIRST_BYTES:
            self._data = self._data[:_FIRST_BYTES].copy()
        rows[:, [layout.ROW_START, layout.ROW_END]] -= begin
        rows[:, layout.ROW_TRANSACTION] -= self._first_transaction
        self._rows[: len(rows)] = rows
        self._transactions[: len(transactions)] = transactions
        self._row_count, self._transaction_count = len(rows), len(transactions)
        self._first_row = self._first_transaction = 0
        self._messages, self._next = self._messages[:0], 0


def _with_room(array: npt.NDArray[np.int64], used: int, more: int) -> npt.NDArray[np.int64]:
    """Return the array, or a larger one, with room for more entries."""
    if used + more <= len(array):
        return array
    larger = np.empty((max(2 * len(array), used + more), array.shape[1]), np.int64)
    larger[:used] = array[:used]
    return larger
