"""The transaction buffer: open transactions and their changes, delivered whole and in commit order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FIRST_PIECE, FOREVER, LAST_CHANGE
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer.commit_positions import TransactionCommit, resume_scns
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import (
    OpenTransactions,
    UncommittedTransaction,
)
from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import CarriedRows, RowSegment
from airflow_provider_cdc.sources.oracle.transactions.buffer.spill_buffer import SpillBuffer
from airflow_provider_cdc.sources.oracle.transactions.user_filter import UserFilter
from airflow_provider_cdc.sources.oracle.transactions.window_cut_values import UnfinishedValues

log = logging.getLogger(__name__)

BLOCK_ROWS = 32_768
UNCERTAIN_ROWS = 32_768
"""Most rows of a transaction that are together in memory because it is not certain which changes it has undone."""

Int64s = npt.NDArray[np.int64]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """Rows of committed transactions, without those that were rolled back within them.

    :param rows: columns of :data:`.row_segments.ROWS`, by transaction in the order of ``commits``
    :param low: SCN from which mining has to resume after them; ``None`` while more rows of the same transaction follow
    :param began: when collecting them began, by ``time.monotonic``
    :param undecided: undo rows among them were not matched with the changes that they undo, and all rows of these transactions are here
    """

    rows: pa.Table
    commits: list[TransactionCommit]
    low: int | None
    began: float
    undecided: bool = False


class TransactionBuffer:
    """Owns the open transactions and their buffered changes.

    :param start: the position to begin at; transactions that were given up before it stay given up
    :param schemas: the schemas of a table, by its number
    :param needed: SCN from which the log is needed, whatever is open
    """

    def __init__(
        self,
        config: OracleConfig,
        start: OraclePosition,
        counters: RowCounters,
        schemas: Callable[[int], Sequence[TableSchema]],
        needed: int = FOREVER,
    ) -> None:
        self._schemas, self._needed, self._lobs = schemas, needed, config.lob_enabled
        self._most = config.log_mining_buffer_transaction_events_threshold
        self._open = OpenTransactions(start, UserFilter(config))
        self._buffer = SpillBuffer(config.log_mining_buffer_memory_max_bytes, config.log_mining_buffer_spill_folder)
        self._counters = counters
        self._values = UnfinishedValues()

    # -- state ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    @property
    def oldest_transaction(self) -> UncommittedTransaction | None:
        """The oldest open transaction that is not given up."""
        return min((t for t in self._open if not t.given_up), key=lambda t: t.first_scn, default=None)

    @property
    def worth_carrying(self) -> bool:
        """Check whether the log would have to be mined again if the open transactions were not carried over."""
        return bool(self._buffer.counts) or self.has_hidden_transactions

    @property
    def has_hidden_transactions(self) -> bool:
        """Check whether transactions are open of which the log has shown nothing."""
        return self._open.has_hidden_transactions

    @property
    def given_up(self) -> frozenset[str]:
        """Ids of transactions that were given up and have not ended, as far as is known."""
        return self._open.given_up

    @property
    def change_count(self) -> int:
        """Number of buffered changes."""
        return sum(self._buffer.counts.values())

    @property
    def nbytes(self) -> int:
        """Memory of the buffered changes, bytes."""
        return self._buffer.nbytes

    def find_resume_scn(self, otherwise: int) -> int:
        """SCN from which mining has to resume, see :meth:`.open_transactions.OpenTransactions.find_resume_scn`."""
        return min(self._open.find_resume_scn(otherwise, self._buffer.counts), self._needed)

    def list_transaction_users(self) -> dict[str, tuple[str | None, str | None]]:
        """Users and client ids for the position, see :meth:`.open_transactions.OpenTransactions.list_transaction_users`."""
        return self._open.list_transaction_users(self._buffer.counts)

    # -- windows --------------------------------------------------------------------------------------------------------

    def begin_window(self, start: int, in_database: Mapping[bytes, int], switched: int = 0) -> dict[bytes, int]:
        """Begin with the rows of a window. Transactions that are read again are not buffered any more.

        :param start: SCN after which it begins
        :param in_database: XID → start SCN of the transactions that were open after its end was chosen
        :param switched: SCN before which all redo is in a log
        :return: XID → start SCN of the transactions of which all rows have to be read, from before the window, too
        """
        late, again = self._open.begin_window(start, in_database, switched)
        self._values.discard_transactions(again)
        self._buffer.drop_transactions([serial for serial in again if serial in self._buffer.counts])
        return late

    def end_window(self, end: int) -> None:
        """All rows up to an SCN were processed."""
        self._open.end_window(end)
        self._values.end_window()

    @property
    def unfinished_scn(self) -> int | None:
        """SCN from which LogMiner has to read to know the rows that come next; ``None``: from there on."""
        return self._values.find_first_scn()

    # -- state that is carried over -----------------------------------------------------------------------------------

    def restore_state(self, state: Mapping[str, Any], segments: Sequence[RowSegment]) -> None:
        """Begin with transactions that were open at the end of another stream. To be called first.

        :param state: from :meth:`export_state`
        :param segments: their rows; the serial of each transaction is its place in the state
        """
        self._open.restore_state(state)
        self._values.restore_scn(state["unfinished"])
        self._buffer.restore_segments(segments)
        given_up = [t.serial for t in self._open if t.given_up and t.serial in self._buffer.counts]
        if given_up:
            self._buffer.drop_transactions(given_up)

    def export_state(self) -> dict[str, Any]:
        """Return the open transactions, fit for JSON."""
        return {**self._open.export_state(), "unfinished": self.unfinished_scn}

    def find_state_numbers(self, serials: Int64s) -> list[int]:
        """Map serials to numbers of the transactions in :meth:`export_state`."""
        open_serials = np.array(sorted(t.serial for t in self._open), np.int64)
        numbers: list[int] = np.searchsorted(open_serials, serials).tolist()
        return numbers

    def carry_segments(self, write: Callable[[RowSegment], CarriedRows], whole: Callable[[list[RowSegment]], _T]) -> _T:
        """See :meth:`.spill_buffer.SpillBuffer.carry_segments`."""
        return self._buffer.carry_segments(write, whole)

    # -- changes in --------------------------------------------------------------------------------------------------------

    def assign_serials(self, rows: pa.Table) -> tuple[Int64s, dict[int, UncommittedTransaction]]:
        """Return the serial of each row's transaction, and serial → transaction. Unknown XIDs become open transactions."""
        return self._open.assign_serials(rows)

    def find_relevant_rows(self, serials: Int64s, met: Mapping[int, UncommittedTransaction]) -> npt.NDArray[np.bool_]:
        """Mask of the rows whose transaction is neither given up nor left out.

        :param met: serial → transaction
        """
        unwanted = [serial for serial, t in met.items() if t.given_up or t.left_out]
        return ~np.isin(serials, unwanted) if unwanted else np.ones(len(serials), np.bool_)

    def add_changes(
        self, changes: pa.Table, commits: list[TransactionCommit], ended: list[UncommittedTransaction]
    ) -> pa.Table:
        """Buffer the changes of transactions that are still open, or that have buffered rows already.

        :param changes: new rows, columns of :data:`.row_segments.ROWS`
        :param commits: the commits among the new rows, without those that are captured already
        :param ended: all transactions that ended, by commit or rollback
        :return: the changes that need no buffer, since their transaction begins and commits among the new rows
        """
        self._values.add_changes(changes)
        self._values.discard_transactions([t.serial for t in ended])
        tx = changes.column("tx").to_numpy()
        direct = [c.serial for c in commits if c.serial not in self._buffer.counts]
        here = _among(tx, np.array(sorted(direct), np.int64))
        if here.all():
            return changes
        stored = set(self._buffer.counts) & {c.serial for c in commits}
        done = np.array(sorted({t.serial for t in ended} - stored), np.int64)
        spilled = self._buffer.spilled_rows
        self._buffer.add_rows(changes.filter(pa.array(~here & ~_among(tx, done))))
        self._counters.spilled += self._buffer.spilled_rows - spilled
        return _filtered(changes, here)

    def give_up_oversized(self) -> list[UncommittedTransaction]:
        """Give up transactions with too many changes; returns them."""
        if not self._most:
            return []
        large = [t for t in self._open if self._buffer.counts.get(t.serial, 0) > self._most]
        self._counters.oversized += len(large)
        return self._give_up(large)

    def give_up_before(self, ts_us: int) -> list[UncommittedTransaction]:
        """Give up transactions that began before a moment (µs since the epoch); returns them."""
        changed = self._buffer.counts
        return self._give_up(
            [t for t in self._open if not t.given_up and t.first_ts_us < ts_us and t.serial in changed]
        )

    def leaves_out(self, xid: bytes) -> bool:
        """Check whether changes of an open transaction are not captured, because of its user."""
        return self._open.leaves_out(xid)

    def discard_unchanged(self, transactions: Iterable[UncommittedTransaction]) -> None:
        """Forget transactions without changes of captured tables."""
        self._open.end_transactions([t for t in transactions if t.serial not in self._buffer.counts], ())

    # -- transactions out -------------------------------------------------------------------------------------------------------

    def deliver_committed(
        self, now: pa.Table, commits: list[TransactionCommit], ended: list[UncommittedTransaction]
    ) -> Iterator[CommittedRows]:
        """Deliver transactions in commit order, and remove all that ended.

        :param now: the rows that :meth:`add_changes` returned
        """
        counts = dict(
            zip(*(a.tolist() for a in np.unique(now.column("tx").to_numpy(), return_counts=True)), strict=True)
        )
        self._open.end_transactions(ended, {c.serial for c in commits})
        sizes = [self._buffer.counts.get(c.serial, 0) + counts.get(c.serial, 0) for c in commits]
        left = [(commit, size) for commit, size in zip(commits, sizes, strict=True) if size]
        begins = resume_scns([commit for commit, _ in left], self.find_resume_scn(FOREVER))
        group: list[TransactionCommit] = []
        rows = group_low = 0
        for (commit, size), low in zip(left, begins, strict=True):
            if group and rows + size > BLOCK_ROWS:
                yield self._together(now, group, group_low)
                group, rows = [], 0
            if size > BLOCK_ROWS and commit.serial in self._buffer.counts:
                yield from self._large(commit, low)
            else:
                group.append(commit)
                rows, group_low = rows + size, low
        if group:
            yield self._together(now, group, group_low)
        self._buffer.drop_transactions([t.serial for t in ended if t.serial in self._buffer.counts])

    def close(self) -> None:
        """Remove all buffered changes."""
        self._buffer.close()

    def _together(self, now: pa.Table, commits: list[TransactionCommit], low: int) -> CommittedRows:
        """Return the rows of several transactions."""
        began = time.monotonic()
        serials = np.array([c.serial for c in commits], np.int64)
        stored = [c.serial for c in commits if c.serial in self._buffer.counts]
        parts = [self._buffer.read(stored)] if stored else []
        if len(stored) < len(commits):
            here = _among(now.column("tx").to_numpy(), np.sort(serials))
            parts.append(_filtered(now, here))
        rows = pa.concat_tables(parts)
        order = np.argsort(serials)
        rank = order[np.searchsorted(serials[order], rows.column("tx").to_numpy())]
        if (np.diff(rank) < 0).any():
            rows = rows.take(pa.array(np.argsort(rank, kind="stable")))
        remaining = _rollback().not_rolled_back(rows, self._schemas, infer=False, lobs=self._lobs)
        _warn_unmatched(remaining.unmatched, commits)
        self._warn_inferred(remaining.inferred, commits)
        if not remaining.keep.all():
            rows = rows.filter(pa.array(remaining.keep))
        return CommittedRows(rows.combine_chunks(), commits, low, began, undecided=bool(remaining.uncertain))

    def _large(self, commit: TransactionCommit, low: int) -> Iterator[CommittedRows]:
        """Yield the rows of a transaction that is larger than a block, in several parts."""
        began = time.monotonic()
        keep, uncertain = self._remaining_of(commit)
        if uncertain:
            rows, keep = self._rows_of(commit, keep, uncertain)
            yield CommittedRows(rows, [commit], None if keep.any() else low, began, undecided=True)
        at, left = 0, int(keep.sum())
        for piece in _between_changes(self._buffer.read_pieces(commit.serial, BLOCK_ROWS)):
            began = time.monotonic()
            of_piece = keep[at : at + piece.num_rows]
            at += piece.num_rows
            count = int(of_piece.sum())
            if not count:
                continue
            left -= count
            rows = (piece if of_piece.all() else piece.filter(pa.array(of_piece))).combine_chunks()
            yield CommittedRows(rows, [commit], None if left else low, began)
        self._buffer.drop_transactions([commit.serial])

    def _remaining_of(self, commit: TransactionCommit) -> tuple[npt.NDArray[np.bool_], list[int]]:
        """Return a mask of the rows of a large transaction that were not rolled back.

        It reads only the columns that are needed for that.

        :return: mask of these rows, and the tables of which that is decided later, with all their rows together
        """
        names = ["code", "rollback"]
        parts = [p.combine_chunks() for p in self._buffer.read_pieces(commit.serial, BLOCK_ROWS, names)]
        if any(pc.any(part.column("rollback")).as_py() for part in parts):
            parts = [
                _without_data(part) for part in self._buffer.read_pieces(commit.serial, BLOCK_ROWS, _rollback().COLUMNS)
            ]
        rows = pa.concat_tables(parts)
        remaining = _rollback().not_rolled_back(rows, self._schemas, infer=False, lobs=self._lobs)
        uncertain: list[int] = remaining.uncertain
        if uncertain and np.isin(rows.column("table").to_numpy(), uncertain).sum() > UNCERTAIN_ROWS:
            remaining = _rollback().not_rolled_back(rows, self._schemas)
            uncertain = []
        _warn_unmatched(remaining.unmatched, [commit])
        self._warn_inferred(remaining.inferred, [commit])
        return remaining.keep, uncertain

    def _warn_inferred(self, inferred: list[tuple[int, int]], commits: list[TransactionCommit]) -> None:
        ids = {commit.serial: commit.id for commit in commits}
        for serial, table in inferred:
            _rollback().warn_inferred(ids[serial], self._schemas(table)[-1].id)

    def _rows_of(
        self, commit: TransactionCommit, keep: npt.NDArray[np.bool_], tables: list[int]
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the remaining rows of some tables in a large transaction, and the mask of its other remaining rows."""
        pieces, at, others = [], 0, keep.copy()
        for piece in self._buffer.read_pieces(commit.serial, BLOCK_ROWS):
            of_piece = slice(at, at + piece.num_rows)
            at += piece.num_rows
            mine = np.isin(piece.column("table").to_numpy(), tables)
            pieces.append(piece.filter(pa.array(mine & keep[of_piece])))
            others[of_piece] &= ~mine
        return pa.concat_tables(pieces).combine_chunks(), others

    def _give_up(self, transactions: list[UncommittedTransaction]) -> list[UncommittedTransaction]:
        for transaction in transactions:
            log.error(
                "Transaction %s, which started at SCN %d, is abandoned: %d changes are lost if it commits. "
                        "Snapshot their tables again.",
                transaction.id, transaction.first_scn, self._buffer.counts.get(transaction.serial, 0),
            )  # fmt: skip
            transaction.given_up = True
            self._counters.abandoned.append(transaction.id)
        self._buffer.drop_transactions([t.serial for t in transactions if t.serial in self._buffer.counts])
        return transactions


def _rollback() -> ModuleType:
    """Import the module that removes undone changes.

    It is compiled, and loading the compiler takes longer than a run that commits nothing.
    """
    from airflow_provider_cdc.sources.oracle.transactions.buffer import rolled_back_rows

    return rolled_back_rows


def _warn_unmatched(count: int, commits: list[TransactionCommit]) -> None:
    if count:
        log.warning(
            "%d rows of %s undo changes that are not in the log; these changes were not captured.",
            count, ", ".join(c.id for c in commits[:10]),
        )  # fmt: skip


def _without_data(rows: pa.Table) -> pa.Table:
    """Return the rows with the beginnings of the texts of pieces, which name the row and the column of a value."""
    texts, piece = rows.column("sql"), pc.greater_equal(rows.column("code"), FIRST_PIECE)
    short = pc.if_else(piece, pc.utf8_slice_codeunits(texts, 0, _rollback().PIECE_CHARACTERS), texts)
    return rows.set_column(rows.schema.get_field_index("sql"), "sql", short)


def _among(values: Int64s, members: Int64s) -> npt.NDArray[np.bool_]:
    """Mask of the values that are in ``members``, which is ascending."""
    if not len(members):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(members, values), len(members) - 1)
    mask: npt.NDArray[np.bool_] = members[at] == values
    return mask


def _filtered(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a mask; without a copy, where they follow each other."""
    at = np.flatnonzero(mask)
    if len(at) and at[-1] - at[0] + 1 == len(at):
        return rows.slice(int(at[0]), len(at))
    return rows.filter(pa.array(mask))


def _between_changes(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows, split before changes, so that the pieces of a long value stay with their change."""
    held: pa.Table | None = None
    for piece in pieces:
        rows = piece if held is None else pa.concat_tables([held, piece])
        undo = rows.column("rollback").to_numpy(
            zero_copy_only=False
        )  # an undo row that is left concerns the change before it
        begins = np.flatnonzero((rows.column("code").to_numpy() <= LAST_CHANGE) & ~undo)
        cut = int(begins[-1]) if len(begins) else 0
        if cut:
            yield rows.slice(0, cut)
        held = rows.slice(cut)
    if held is not None and held.num_rows:
        yield held
