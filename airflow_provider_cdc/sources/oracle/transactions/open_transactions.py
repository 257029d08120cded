"""The open transactions at a position of the log."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_PARTIAL = b"\xff\xff\xff\xff"
"""Last four bytes of an XID without a sequence number: LogMiner does not know it if the transaction began before the mined logs."""


_XID = struct.Struct("<HHI")


@dataclass(slots=True)
class Transaction:
    """An open transaction.

    :param serial: number in the order in which transactions were first seen
    :param first_scn: SCN of its first row, START included
    :param first_ts_us: time of its first row, µs since the epoch
    :param given_up: its changes are not buffered any more (too large, or open for too long)
    """

    serial: int
    xid: bytes
    first_scn: int
    first_ts_us: int
    given_up: bool = False

    @property
    def id(self) -> str:
        return transaction_id(self.xid)


def transaction_id(xid: bytes) -> str:
    """The documented form of an XID: undo segment, slot and sequence.

    >>> transaction_id(bytes.fromhex("06001c0027030000"))
    '6.28.807'
    """
    segment, slot, sequence = _XID.unpack(xid)
    return f"{segment}.{slot}.{sequence}"


class OpenTransactions:
    """The open transactions, by their XIDs.

    :param given_up: ids of transactions that an earlier run gave up
    """

    def __init__(self, given_up: Iterable[str] = ()) -> None:
        self._by_xid: dict[bytes, Transaction] = {}
        self._earlier = set(given_up)
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_xid)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_xid.values())

    def number(
        self, xids: pa.Array, scns: npt.NDArray[np.int64], ts_us: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], dict[int, Transaction]]:
        """The serial of each row's transaction, and serial → transaction. Unknown XIDs become open transactions.

        :param xids: ``XID`` per row, binary
        """
        encoded = xids.dictionary_encode()
        index = encoded.indices.to_numpy(zero_copy_only=False)
        _, first = np.unique(index, return_index=True)
        serials = np.empty(len(encoded.dictionary), np.int64)
        met: dict[int, Transaction] = {}
        for i, xid in enumerate(encoded.dictionary.to_pylist()):
            transaction = self._find(xid)
            if transaction is None:
                at = int(first[i])
                transaction = Transaction(self._next, xid, int(scns[at]), int(ts_us[at]))
                transaction.given_up = len(xid) == _XID.size and transaction.id in self._earlier
                self._by_xid[xid] = transaction
                self._next += 1
            serials[i] = transaction.serial
            met[transaction.serial] = transaction
        return serials[index], met

    def _find(self, xid: bytes) -> Transaction | None:
        found = self._by_xid.get(xid)
        if found is not None or len(xid) != 8:
            return found
        if xid.endswith(_PARTIAL):  # a slot of an undo segment has one open transaction at a time
            return next((t for x, t in self._by_xid.items() if x.startswith(xid[:4])), None)
        partial = self._by_xid.pop(xid[:4] + _PARTIAL, None)
        if partial is not None:
            partial.xid = xid
            self._by_xid[xid] = partial
        return partial

    def restore(self, transactions: Iterable[tuple[str, int, int, bool]]) -> None:
        """Begin with open transactions.

        :param transactions: as :meth:`state` has them; their numbers become their serials
        """
        for serial, (xid, scn, ts_us, given_up) in enumerate(transactions, self._next):
            found = Transaction(serial, bytes.fromhex(xid), scn, ts_us, given_up)
            found.given_up |= len(found.xid) == _XID.size and found.id in self._earlier
            self._by_xid[found.xid] = found
            self._next = serial + 1

    def state(self) -> list[tuple[str, int, int, bool]]:
        """XID, first SCN and time, and whether it was given up, of each, in the order of their serials."""
        return [(t.xid.hex(), t.first_scn, t.first_ts_us, t.given_up) for t in sorted(self, key=lambda t: t.serial)]

    def end(self, transactions: Iterable[Transaction]) -> None:
        """Forget transactions that were committed or rolled back."""
        for transaction in transactions:
            self._by_xid.pop(transaction.xid, None)
            if self._earlier:
                self._earlier.discard(transaction.id)

    @property
    def given_up(self) -> frozenset[str]:
        """Ids of transactions that were given up and have not ended, as far as is known."""
        return frozenset(self._earlier | {t.id for t in self if t.given_up})

    def low(self, otherwise: int) -> int:
        """SCN at which the oldest transaction began that is not given up; ``otherwise`` without one."""
        return min((t.first_scn for t in self if not t.given_up), default=otherwise)
