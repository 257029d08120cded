"""Merges the changes of all tables into one order, transaction by transaction, in arrays.

Each table is a *run*: it gives its changes in order, some at a time. Changes that a run has not given yet come after the last change that it has given.
So every change up to the least of these last changes, over all runs that have more, can be put in order now: that is the *bound*. Transactions that
committed before the bound's are complete. Of one that is larger than a block, the changes up to the bound go out as an open block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.db2.kernels.merge_order import count_before, merged_order
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray, concatenate_lsns
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import ChangeArrays, concatenate_changes

BLOCK_ROWS: Final = 32_768
"""About how many changes a block has."""
ROW_BYTES: Final = 2048
"""A change that is larger counts as several."""

Int64s = npt.NDArray[np.int64]


class ChangeRun(Protocol):
    """The changes of one table in a window."""

    @property
    def more(self) -> bool:
        """True if :meth:`fetch_changes` may give more."""

    def fetch_changes(self) -> ChangeArrays | None:
        """Fetch the next changes, in order; ``None`` if there are none left."""


@dataclass(frozen=True, slots=True)
class BlockPart:
    """The changes of one table in a block.

    :param order: the number of each among all changes of the block; ascending
    :param transaction: the number of each one's transaction; ascending
    """

    changes: ChangeArrays
    order: Int64s
    transaction: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """Changes of whole transactions, or of a part of one.

    :param commits: LSNs of the commits of its transactions, ascending. If the block before was ``open``, the first is its rest
    :param open: the only transaction continues in the next block
    """

    parts: list[BlockPart]
    commits: LsnArray
    open: bool = False

    def __len__(self) -> int:
        return sum(len(part.changes) for part in self.parts)


class ChangeMerger:
    """Merges the runs of one window. Iterate :meth:`iterate_blocks` once.

    :param block_rows: about how many changes a block has; no more than these, and one fetch of each run, are in memory
    """

    def __init__(self, runs: Sequence[ChangeRun], block_rows: int = BLOCK_ROWS) -> None:
        self._waiting = [_PendingChanges(run) for run in runs]
        self._block_rows = block_rows
        self._open: LsnArray | None = None  # commit of the transaction that continues in the next block

    def iterate_blocks(self) -> Iterator[ChangeBlock]:
        """Yield the changes in the order of (commit, change), in blocks; the transactions of the last one are complete, too."""
        while True:
            self._fill()
            bound = min((run.last for run in self._waiting if run.more), default=None)
            if bound is None:
                yield from self._complete([run.pop_all() for run in self._waiting])
                return
            complete = [run.pop_committed_before(bound) for run in self._waiting]
            if any(len(changes) for changes in complete if changes is not None):
                yield from self._complete(complete)
            elif sum(run.weight for run in self._waiting) >= self._block_rows:
                yield from self._unfinished([run.pop_up_to(bound) for run in self._waiting])

    def _fill(self) -> None:
        """Fetch until each run that has more has some changes, and all have enough for a block."""
        for run in self._waiting:
            while run.more and not run.row_count:
                run.fetch_changes()
        weight = sum(run.weight for run in self._waiting)
        while weight < self._block_rows:
            least = min((run for run in self._waiting if run.more), key=lambda run: run.last, default=None)
            if least is None:
                return
            weight -= least.weight
            least.fetch_changes()
            weight += least.weight

    def _complete(self, taken: Sequence[ChangeArrays | None]) -> Iterator[ChangeBlock]:
        """Blocks of transactions that are complete."""
        runs = [changes for changes in taken if changes is not None and len(changes)]
        if not runs:
            yield from self._closed()
            return
        merged = _MergedChanges(runs)
        if self._open is not None and merged.commits_at(merged.begins[:1]).to_unpadded_bytes(
            0
        ) != self._open.to_unpadded_bytes(0):
            yield from self._closed()
        self._open = None
        for begin, end in _cuts(merged.begins, len(merged), self._block_rows):
            yield merged.build_block(begin, end)

    def _unfinished(self, taken: Sequence[ChangeArrays | None]) -> Iterator[ChangeBlock]:
        """Yield an open block of a transaction that has more changes than a block."""
        merged = _MergedChanges([changes for changes in taken if changes is not None and len(changes)])
        commit = merged.commits_at(merged.begins)
        assert len(commit) == 1, "changes up to the bound, none of which belong to a complete transaction"
        if self._open is not None and commit.to_unpadded_bytes(0) != self._open.to_unpadded_bytes(0):
            yield from self._closed()
        self._open = commit
        yield merged.build_block(0, len(merged), open_=True)

    def _closed(self) -> Iterator[ChangeBlock]:
        """Yield the end of an open transaction all of whose changes have gone out."""
        if self._open is not None:
            closing, self._open = self._open, None
            yield ChangeBlock([], closing)


@dataclass(frozen=True, slots=True, order=True)
class _Bound:
    """A change, by its LSNs without the zero bytes at their ends: so they compare as if padded."""

    commit: bytes
    intent: bytes


class _PendingChanges:
    """The changes of a run that were fetched and have not gone out.

    :ivar last: the last change that was fetched
    :ivar weight: how many changes they count as
    """

    def __init__(self, run: ChangeRun) -> None:
        self._run, self.last = run, _Bound(b"", b"")
        self._first = self.last
        self._changes: ChangeArrays | None = None
        self.weight = 0

    @property
    def more(self) -> bool:
        return self._run.more

    @property
    def row_count(self) -> int:
        return 0 if self._changes is None else len(self._changes)

    def fetch_changes(self) -> None:
        fetched = self._run.fetch_changes()
        if fetched is None or not len(fetched):
            return
        self.last = _Bound(fetched.commit.to_unpadded_bytes(-1), fetched.intent.to_unpadded_bytes(-1))
        self._keep(concatenate_changes([self._changes, fetched]) if self._changes is not None else fetched)

    def pop_all(self) -> ChangeArrays | None:
        return self._take(self.row_count)

    def pop_committed_before(self, bound: _Bound) -> ChangeArrays | None:
        """Remove and return the changes of transactions that committed before the bound's."""
        if self._changes is None or self._first.commit >= bound.commit:
            return None
        commit = LsnArray.from_bytes([bound.commit])
        words = max(self._changes.commit.words.shape[1], commit.words.shape[1])
        return self._take(count_before(self._changes.commit.pad_words(words), commit.pad_words(words), words, False))

    def pop_up_to(self, bound: _Bound) -> ChangeArrays | None:
        """Remove and return the changes up to the bound, with it."""
        if self._changes is None or self._first > bound:
            return None
        commit, intent = LsnArray.from_bytes([bound.commit]), LsnArray.from_bytes([bound.intent])
        widths = [
            max(mine.words.shape[1], its.words.shape[1])
            for mine, its in ((self._changes.commit, commit), (self._changes.intent, intent))
        ]
        key = np.hstack([commit.pad_words(widths[0]), intent.pad_words(widths[1])])
        return self._take(count_before(self._changes.build_order_keys(*widths), key, sum(widths), True))

    def _take(self, rows: int) -> ChangeArrays | None:
        if self._changes is None or not rows:
            return None
        taken = self._changes.slice_rows(0, rows)
        self._keep(self._changes.slice_rows(rows, self.row_count) if rows < self.row_count else None)
        return taken

    def _keep(self, changes: ChangeArrays | None) -> None:
        self._changes = changes
        self.weight = 0 if changes is None else max(len(changes), changes.image_bytes // ROW_BYTES)
        if changes is not None:
            self._first = _Bound(changes.commit.to_unpadded_bytes(0), changes.intent.to_unpadded_bytes(0))


class _MergedChanges:
    """The changes of several runs, in one order.

    :ivar begins: where in the order each transaction begins
    """

    def __init__(self, runs: Sequence[ChangeArrays]) -> None:
        self._runs = runs
        self._starts = np.cumsum([0, *map(len, runs)])
        commit_words = max(changes.commit.words.shape[1] for changes in runs)
        intent_words = max(changes.intent.words.shape[1] for changes in runs)
        self._commits = concatenate_lsns([changes.commit for changes in runs])
        if len(runs) == 1:
            self._order = np.arange(len(runs[0]))
        else:
            keys = np.concatenate([changes.build_order_keys(commit_words, intent_words) for changes in runs])
            self._order = merged_order(keys, self._starts)
        words = self._commits.words if len(runs) == 1 else self._commits.words[self._order]
        self._new = np.ones(len(self), np.bool_)
        self._new[1:] = (words[1:] != words[:-1]).any(axis=1)
        self.begins: Int64s = np.flatnonzero(self._new)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def commits_at(self, places: Int64s) -> LsnArray:
        """LSNs of the commits of the changes at some places of the order."""
        return self._commits[self._order[places]]

    def build_block(self, begin: int, end: int, *, open_: bool = False) -> ChangeBlock:
        """Build the block of the changes from one place of the order to before another one."""
        rows = self._order[begin:end]
        new = self._new[begin:end]
        transaction = (np.cumsum(new) - 1).astype(np.int32)
        commits = self.commits_at(np.flatnonzero(new) + begin)
        if len(self._runs) == 1:
            part = BlockPart(self._runs[0].slice_rows(begin, end), np.arange(end - begin), transaction)
            return ChangeBlock([part], commits, open_)
        run = np.searchsorted(self._starts, rows, side="right") - 1
        by_run = np.argsort(run, kind="stable")
        ends = np.cumsum(np.bincount(run, minlength=len(self._runs)))
        parts = []
        for number, places in enumerate(np.split(by_run, ends[:-1])):
            if len(places):
                first = int(rows[places[0]] - self._starts[number])
                changes = self._runs[number].slice_rows(first, first + len(places))
                parts.append(BlockPart(changes, places, transaction[places]))
        return ChangeBlock(parts, commits, open_)


def _cuts(begins: Int64s, rows: int, block_rows: int) -> Iterator[tuple[int, int]]:
    """Stretches of whole transactions, of about so many rows.

    :param begins: where each transaction begins
    """
    start = 0
    while start < rows:
        last = int(np.searchsorted(begins, start + block_rows, side="right")) - 1
        end = int(begins[last])
        if start + block_rows >= rows:
            end = rows
        elif end <= start:  # the transaction alone is larger than a block
            end = int(begins[last + 1]) if last + 1 < len(begins) else rows
        yield start, end
        start = end
