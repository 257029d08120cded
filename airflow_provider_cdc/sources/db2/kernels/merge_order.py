"""The order of changes of several tables, each of which is in order."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit

Words = npt.NDArray[np.uint64]


@jit
def is_row_before(a: Words, i: int, b: Words, j: int, words: int) -> bool:
    """Check whether row ``i`` of ``a`` comes before row ``j`` of ``b``, by their first ``words`` words."""
    for w in range(words):
        if a[i, w] != b[j, w]:
            return bool(a[i, w] < b[j, w])
    return False


@jit
def merged_order(keys: Words, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows of several ascending runs in ascending order; of equal ones, those of an earlier run come first.

    :param keys: ``[row, word]``, the runs one after the other
    :param starts: where each run begins, and the end of the last one
    :return: numbers of rows
    """
    words, runs = keys.shape[1], len(starts) - 1
    order = np.empty(starts[runs] - starts[0], np.int64)
    at = starts[:runs].copy()
    heap = np.empty(max(runs, 1), np.int64)  # runs that have rows left, the least next row on top
    size = 0
    for run in range(runs):
        if at[run] < starts[run + 1]:
            heap[size] = run
            size += 1
    for parent in range(size // 2 - 1, -1, -1):
        _sift(heap, size, parent, keys, at, words)
    filled = 0
    while size:
        run = heap[0]
        if size == 1:
            while at[run] < starts[run + 1]:
                order[filled] = at[run]
                filled += 1
                at[run] += 1
            return order
        order[filled] = at[run]
        filled += 1
        at[run] += 1
        if at[run] == starts[run + 1]:
            size -= 1
            heap[0] = heap[size]
        _sift(heap, size, 0, keys, at, words)
    return order


@jit
def _sift(
    heap: npt.NDArray[np.int64], size: int, parent: int, keys: Words, at: npt.NDArray[np.int64], words: int
) -> None:  # fmt: skip
    """Let a run sink to its place in the heap."""
    while True:
        least = parent
        for child in (2 * parent + 1, 2 * parent + 2):
            if child < size:
                a, b = heap[child], heap[least]
                if is_row_before(keys, at[a], keys, at[b], words) or (
                    a < b and not is_row_before(keys, at[b], keys, at[a], words)
                ):
                    least = child
        if least == parent:
            return
        heap[parent], heap[least] = heap[least], heap[parent]
        parent = least


@jit
def count_before(keys: Words, bound: Words, words: int, with_equal: bool) -> int:
    """Count the rows of an ascending run that are before a bound.

    :param bound: ``[1, word]``
    :param words: how many words are compared
    :param with_equal: count those that are equal to it, too
    """
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        inside = (
            not is_row_before(bound, 0, keys, middle, words)
            if with_equal
            else is_row_before(keys, middle, bound, 0, words)
        )
        if inside:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def first_descending(keys: Words) -> int:
    """Find the first row that comes before the one above it; -1 = there is none."""
    words = keys.shape[1]
    for i in range(1, len(keys)):
        if is_row_before(keys, i, keys, i - 1, words):
            return i
    return -1


@jit
def find_row_numbers(sought: Words, among: Words) -> npt.NDArray[np.int64]:
    """Find each row of an ascending array in another ascending array; -1 = it is not there. Of equal ones, the last."""
    words = sought.shape[1]
    found = np.full(len(sought), -1, np.int64)
    at = 0
    for i in range(len(sought)):
        while at < len(among) and is_row_before(among, at, sought, i, words):
            at += 1
        while at + 1 < len(among) and not is_row_before(sought, i, among, at + 1, words):
            at += 1
        if at < len(among) and not is_row_before(sought, i, among, at, words):
            found[i] = at
    return found
