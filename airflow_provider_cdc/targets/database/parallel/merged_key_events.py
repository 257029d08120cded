"""Events of a key as one: their joint effect on its row.

The same function reduces the events of a part of the change log and the results of several parts: it does not matter how they are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.changelog.reading.arrow_row_matching import number_rows

SEQ, DELETED, RECREATED, LEFT_OUT = "cdc seq", "cdc deleted", "cdc recreated", "cdc left out"
"""Columns besides those of the target: number of the event, whether the row goes, whether none of the values that it had before stay (as it went in between), and
the columns that no event has a value of, with NUL between them."""
OWN = (SEQ, DELETED, RECREATED, LEFT_OUT)

_Places = npt.NDArray[np.int64]
_Truths = npt.NDArray[np.bool_]


def merge_events_per_key(events: pa.Table, key: Sequence[str]) -> pa.Table:
    """Merge the events of each key into one row.

    :param events: with the columns of the target and :data:`OWN`; each number once
    :return: in any order, the same columns; of those that are left out the values mean nothing, as those of a row that goes, but for its key
    """
    if not events.num_rows:
        return events
    (codes,) = number_rows(events.select(key), one_zero=False)
    order = np.lexsort((events[SEQ].to_numpy(), codes))
    begins = np.concatenate([[True], np.diff(codes[order]) != 0])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(order)) - 1
    last = order[ends]
    left_out = events[LEFT_OUT].to_numpy(zero_copy_only=False)
    if not (left_out != "").any():
        return events if len(last) == len(order) else events.take(pa.array(last))
    return _overlaid(events, key, order, starts, ends, left_out[order])


def _overlaid(
    events: pa.Table, key: Sequence[str], order: _Places, starts: _Places, ends: _Places, left_out: npt.NDArray[Any]
) -> pa.Table:
    """Return each column with the value of the last event that has one.

    :param order: rows by key, and by number for each key
    :param starts: where each key begins in ``order``
    :param ends: where it ends
    :param left_out: in ``order``
    """
    last, at = order[ends], np.arange(len(order))
    deleted, recreated = (_truths(events, name)[order] for name in (DELETED, RECREATED))
    base = np.maximum.reduceat(np.where(deleted | recreated, at, -1), starts)
    counts = np.repeat(base, ends - starts + 1) <= at
    counts &= ~deleted
    patterns, which = np.unique(left_out, return_inverse=True)
    lacking = [set(pattern.split("\0")) for pattern in patterns]
    gone, missing, columns = deleted[ends], dict[str, _Truths](), dict[str, Any]()
    for name in events.column_names:
        lacks = np.array([name in names for names in lacking])
        if name in key or not lacks.any():
            columns[name] = events[name].take(pa.array(last))
            continue
        last_with_value = np.maximum.reduceat(np.where(counts & ~lacks[which], at, -1), starts)
        missing[name] = (last_with_value < 0) & ~gone
        columns[name] = events[name].take(pa.array(order[np.where(last_with_value < 0, ends, last_with_value)]))
    columns[RECREATED] = pa.array((base >= 0) & ~gone)
    columns[LEFT_OUT] = pa.array(_named(missing, len(ends)), pa.string())
    return pa.table(columns)


def _truths(events: pa.Table, name: str) -> _Truths:
    values: _Truths = events[name].to_numpy(zero_copy_only=False)
    return values.astype(np.bool_)


def _named(missing: dict[str, _Truths], rows: int) -> list[str]:
    """For each row, the columns that it lacks."""
    names = sorted(missing)
    if not names:
        return [""] * rows
    patterns, which = np.unique(np.stack([missing[name] for name in names]), axis=1, return_inverse=True)
    texts = ["\0".join(name for name, lacks in zip(names, pattern, strict=True) if lacks) for pattern in patterns.T]
    return [texts[number] for number in which.ravel()]
