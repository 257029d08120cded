"""The open transactions at a position of the log.

Oracle may keep the redo of a transaction in memory until it ends, in a private redo strand: its rows are in no log, and later they are
in the log with the SCNs at which they were made, which windows before have covered. So what the database says of its open transactions
(``V$TRANSACTION``) is compared with what the log has shown: a transaction of which the log has not shown the START is *hidden*, and is
read from its beginning when it comes to light.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import START
from airflow_provider_cdc.sources.oracle.position import OraclePosition, transaction_id
from airflow_provider_cdc.sources.oracle.transactions.partial_xids import PARTIAL, complete_xids
from airflow_provider_cdc.sources.oracle.transactions.user_filter import UserFilter

_XID_BYTES = 8
UNKNOWN = "UNKNOWN"
"""``USERNAME`` of rows whose transaction began before the mined range: LogMiner knows user and client id from the START alone."""


MOST_ENDED = 200_000
"""How many of the last XIDs that ended are remembered: a transaction may still be in ``V$TRANSACTION`` when its commit was read."""


class MiningRestart(Exception):
    """Rows of the log came that belong before rows that were processed: the log has to be mined again from the position on."""


@dataclass(slots=True)
class UncommittedTransaction:
    """An open transaction.

    :param serial: number in the order in which transactions were first seen
    :param first_scn: SCN of its first row, START included
    :param first_ts_us: time of its first row, µs since the epoch
    :param given_up: its changes are not buffered any more (too large, or open for too long)
    :param started: its START was seen, so all its rows were
    :param user: who made its changes; ``None`` = not known
    :param client_id: client id of the session; ``None`` = without one, or not known
    :param left_out: changes of this user or client id are not captured
    """

    serial: int
    xid: bytes
    first_scn: int
    first_ts_us: int
    given_up: bool = False
    started: bool = False
    user: str | None = None
    client_id: str | None = None
    left_out: bool = False

    @property
    def id(self) -> str:
        return transaction_id(self.xid)


class OpenTransactions:
    """The open transactions of one container, by their XIDs.

    :param start: the position at which mining begins; a transaction that began before may not be complete
    :param users: decides which transactions are captured
    """

    def __init__(self, start: OraclePosition, users: UserFilter) -> None:
        self._begin, self._users = start.scn, users
        self._by_xid: dict[bytes, UncommittedTransaction] = {}
        self._earlier = set(start.given_up)
        self._names = dict(start.names)
        self._next = self._settled = 0
        self._recent = start.scn
        self._hidden: dict[bytes, int] = {}
        self._waiting: dict[bytes, int] = {}
        self._in_database: dict[bytes, int] = {}
        self._ended: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._by_xid)

    def __iter__(self) -> Iterator[UncommittedTransaction]:
        return iter(self._by_xid.values())

    # -- rows -----------------------------------------------------------------------------------------------------------

    def assign_serials(self, rows: pa.Table) -> tuple[npt.NDArray[np.int64], dict[int, UncommittedTransaction]]:
        """Return the serial of each row's transaction, and serial → transaction. Unknown XIDs become open transactions.

        :param rows: columns of ``mining.query.BATCH``
        """
        codes = rows.column("code").to_numpy()
        xids = complete_xids(rows.column("xid").combine_chunks().fill_null(bytes(_XID_BYTES)), codes, self._by_xid)
        encoded = xids.dictionary_encode()
        index = encoded.indices.to_numpy(zero_copy_only=False)
        _, first = np.unique(index, return_index=True)
        serials = np.empty(len(encoded.dictionary), np.int64)
        met: dict[int, UncommittedTransaction] = {}
        heads = rows.select(["scn", "ts_us", "user", "client_id"]).take(pa.array(first)).to_pylist()
        for i, xid in enumerate(encoded.dictionary.to_pylist()):
            transaction = self._find(xid)
            if transaction is None:
                transaction = self._add(xid, heads[i], started=bool(codes[first[i]] == START))
            serials[i] = transaction.serial
            met[transaction.serial] = transaction
        return serials[index], met

    def _add(self, xid: bytes, head: dict[str, object], *, started: bool) -> UncommittedTransaction:
        """Add an open transaction, by its first row."""
        transaction = UncommittedTransaction(
            self._next, xid, int(str(head["scn"])), int(str(head["ts_us"])), started=started
        )
        whole = len(xid) == _XID_BYTES
        transaction.given_up = whole and transaction.id in self._earlier
        if head["user"] not in (None, UNKNOWN):
            transaction.user, transaction.client_id = str(head["user"]), head["client_id"]  # type: ignore[assignment]
        elif whole:
            transaction.user, transaction.client_id = self._names.get(transaction.id, (None, None))
        transaction.left_out = not self._users.is_captured_user(transaction.user, transaction.client_id)
        if started:
            self._in_database.pop(xid, None)
        self._by_xid[xid] = transaction
        self._next += 1
        return transaction

    def _find(self, xid: bytes) -> UncommittedTransaction | None:
        transaction = self._by_xid.get(xid)
        if transaction is not None or len(xid) != _XID_BYTES:
            return transaction
        partial = self._by_xid.pop(xid[:4] + PARTIAL, None)
        if partial is not None:
            partial.xid = xid
            self._by_xid[xid] = partial
        return partial

    def leaves_out(self, xid: bytes) -> bool:
        """Check whether an open transaction is not captured, because of its user."""
        transaction = self._by_xid.get(xid)
        return transaction is not None and transaction.left_out

    def end_transactions(self, transactions: Iterable[UncommittedTransaction], committed: Collection[int]) -> None:
        """Forget transactions that ended.

        :param committed: serials of those that were committed
        :raises MiningRestart: the first rows of one were not read
        """
        for transaction in transactions:
            if transaction.xid in self._waiting and transaction.serial in committed:
                raise MiningRestart(f"transaction {transaction.id} has rows before the mined range")
            self._by_xid.pop(transaction.xid, None)
            self._in_database.pop(transaction.xid, None)
            self._ended[transaction.xid] = None
            if self._earlier or self._names:
                self._earlier.discard(transaction.id)
                self._names.pop(transaction.id, None)

    # -- windows --------------------------------------------------------------------------------------------------------

    def begin_window(
        self, start: int, in_database: Mapping[bytes, int], switched: int = 0
    ) -> tuple[dict[bytes, int], list[int]]:
        """Begin with the rows of a window.

        :param start: SCN after which it begins
        :param in_database: XID → start SCN of the transactions that were open after its end was chosen
        :param switched: SCN before which all redo is in a log, since logs were switched then: an idle session keeps the position no longer
        :return: XID → start SCN of the hidden transactions that may come to light: the window has to be read with all their rows; and
            the serials that some of them had: their rows are read again
        """
        late = {
            xid: scn
            for xid, scn in self._hidden.items()
            if xid not in in_database or xid in self._by_xid or scn > self._recent or scn < switched
        }
        self._waiting = {xid: scn for xid, scn in self._hidden.items() if xid not in late}
        self._recent = start
        again = [self._by_xid.pop(xid).serial for xid in late if xid in self._by_xid]
        shown = {xid for xid, transaction in self._by_xid.items() if transaction.started}
        if len(self._ended) > MOST_ENDED:
            self._ended = dict.fromkeys(list(self._ended)[-MOST_ENDED // 2 :])
        self._in_database = {
            xid: scn
            for xid, scn in in_database.items()
            if scn >= self._begin and xid not in shown and xid not in self._ended
        }
        return late, again

    def end_window(self, end: int) -> None:
        """All rows up to an SCN were seen, but for those of hidden transactions."""
        self._hidden = {xid: scn for xid, scn in self._in_database.items() if scn <= end}
        self._waiting, self._in_database, self._settled = {}, {}, self._next

    def find_resume_scn(self, otherwise: int, changed: Collection[int]) -> int:
        """Return the SCN from which mining has to resume.

        There the oldest transaction began that is open, not given up, and has changes of captured tables, or may have them.

        :param otherwise: without one
        :param changed: serials of the transactions with changes
        """
        scns = [t.first_scn for t in self if not t.given_up and (t.serial in changed or t.serial >= self._settled)]
        return min([*scns, *self._hidden.values(), *self._in_database.values()], default=otherwise)

    @property
    def given_up(self) -> frozenset[str]:
        """Ids of transactions that were given up and have not ended, as far as is known."""
        return frozenset(self._earlier | {t.id for t in self if t.given_up})

    def list_transaction_users(self, changed: Collection[int]) -> dict[str, tuple[str | None, str | None]]:
        """Id → user and client id of open transactions whose START is before the SCN from which mining resumes.

        :param changed: serials of the transactions with changes: their START is read again
        """
        users = {
            t.id: (t.user, t.client_id) for t in self if t.user and t.serial not in changed and len(t.xid) == _XID_BYTES
        }
        return self._names | users

    # -- state ----------------------------------------------------------------------------------------------------------

    def export_state(self) -> dict[str, list[Any]]:
        """Return the state that :meth:`restore_state` takes, for JSON. Transactions are in the order of their serials."""
        return {
            "transactions": [
                (t.xid.hex(), t.first_scn, t.first_ts_us, t.given_up, t.started, t.user, t.client_id)
                for t in sorted(self, key=lambda t: t.serial)
            ],
            "hidden": [(xid.hex(), scn) for xid, scn in self._hidden.items()],
        }

    def restore_state(self, state: Mapping[str, list[Any]]) -> None:
        """Begin with open transactions.

        :param state: as :meth:`export_state` has it; the places in its list become the serials
        """
        for serial, (xid, scn, ts_us, given_up, started, user, client_id) in enumerate(
            state["transactions"], self._next
        ):
            transaction = UncommittedTransaction(
                serial, bytes.fromhex(xid), scn, ts_us, given_up, started, user, client_id
            )
            transaction.given_up |= len(transaction.xid) == _XID_BYTES and transaction.id in self._earlier
            transaction.left_out = not self._users.is_captured_user(user, client_id)
            self._by_xid[transaction.xid] = transaction
            self._next = serial + 1
        self._settled = self._next
        self._hidden = {bytes.fromhex(xid): scn for xid, scn in state["hidden"]}

    @property
    def has_hidden_transactions(self) -> bool:
        """Check whether transactions are open of which the log has shown nothing."""
        return bool(self._hidden)
