"""Statements to spans: which column has which literal, in the image before and in the image after.

The shapes are those of LogMiner without ``PRINT_PRETTY_SQL``::

    insert into "O"."T"("A","B") values ('1',NULL);
    update "O"."T" set "A" = '2', "B" = '3' where "A" = '1' and "B" IS NULL;
    delete from "O"."T" where "A" = '1' and "B" IS NULL;
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.oracle.kernels.literal_scanner import (
    ABSENT,
    NULL,
    UNKNOWN,
    as_bytes,
    has_prefix,
    scan_literal,
)
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import DELETE, INSERT, UPDATE

BEFORE: Final = 0
AFTER: Final = 1

_VALUES = as_bytes(") values (")
_WHERE = as_bytes(" where ")
_AND = as_bytes(" and ")
_EQUALS = as_bytes(" = ")
_IS_NULL = as_bytes(" IS NULL")


@jit
def split_rows(
    buf: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], lo: int, hi: int,
    heads: npt.NDArray[np.uint8], head_ends: npt.NDArray[np.int64], names: npt.NDArray[np.uint8],
    name_ends: npt.NDArray[np.int64], begin: npt.NDArray[np.int32], length: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8], left: npt.NDArray[np.uint8], order: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    """Split the statements ``lo`` to ``hi``; statement ``lo`` has index 0 in the output.

    :param heads: how an insert, a delete and an update of the table begin, one after the other; ``head_ends[code]`` is where
    :param names: quoted column names one after the other; the ones that are not captured come last
    :param begin: ``[image, column, row]``, relative to the text's begin; likewise ``length`` and ``kind``
    :param left: per text, set to 1 where the shape is not one of the above
    :param order: room for one number per column
    """
    columns = kind.shape[1]
    for row in range(lo, hi):
        at = row - lo
        for c in range(columns):
            kind[BEFORE, c, at] = ABSENT
            kind[AFTER, c, at] = ABSENT
        code = codes[row]
        start, end = offsets[row], offsets[row + 1]
        good = False
        if code >= INSERT and code <= UPDATE:
            head = heads[head_ends[code - 1] : head_ends[code]]
            if has_prefix(buf, start, end, head):
                p = start + len(head)
                if code == INSERT:
                    good = _insert(buf, p, start, end, names, name_ends, at, begin, length, kind, order)
                elif code == DELETE:
                    good = _where(buf, p, start, end, names, name_ends, at, begin, length, kind)
                else:
                    good = _update(buf, p, start, end, names, name_ends, at, begin, length, kind)
        if not good:
            left[row] = 1
            for c in range(columns):
                kind[BEFORE, c, at] = ABSENT
                kind[AFTER, c, at] = ABSENT


@jit
def _column(
    buf: npt.NDArray[np.uint8], p: int, end: int, names: npt.NDArray[np.uint8], name_ends: npt.NDArray[np.int64], guess: int
) -> int:  # fmt: skip
    """Index of the column whose quoted name is at ``p``; -1 = unknown. Columns mostly come in the table's order."""
    count = len(name_ends) - 1
    for i in range(count):
        c = guess + i
        if c >= count:
            c -= count
        if has_prefix(buf, p, end, names[name_ends[c] : name_ends[c + 1]]):
            return c
    return -1


@jit
def _put(
    image: int, column: int, at: int, k: int, begin_: int, length_: int, begin: npt.NDArray[np.int32],
    length: npt.NDArray[np.int32], kind: npt.NDArray[np.uint8],
) -> bool:  # fmt: skip
    """Store the span of a column's literal; false if it has one already. Columns that are not captured are skipped."""
    if column >= kind.shape[1]:
        return True
    if kind[image, column, at] != ABSENT:
        return False
    kind[image, column, at] = k
    begin[image, column, at] = begin_
    length[image, column, at] = length_
    return True


@jit
def _insert(
    buf: npt.NDArray[np.uint8], p: int, start: int, end: int, names: npt.NDArray[np.uint8],
    name_ends: npt.NDArray[np.int64], at: int, begin: npt.NDArray[np.int32], length: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8], order: npt.NDArray[np.int64],
) -> bool:  # fmt: skip
    count = 0
    guess = 0
    while True:
        c = _column(buf, p, end, names, name_ends, guess)
        if c < 0 or count >= len(order):
            return False
        order[count] = c
        count += 1
        guess = c + 1 if c + 2 < len(name_ends) else 0
        p += name_ends[c + 1] - name_ends[c]
        if p < end and buf[p] == 44:
            p += 1
            continue
        break
    if not has_prefix(buf, p, end, _VALUES):
        return False
    p += len(_VALUES)
    for i in range(count):
        k, b, e, p = scan_literal(buf, p, end)
        if k == UNKNOWN or not _put(AFTER, order[i], at, k, b - start, e - b, begin, length, kind):
            return False
        if p >= end or buf[p] != (44 if i + 1 < count else 41):
            return False
        p += 1
    return _ends(buf, p, end)


@jit
def _ends(buf: npt.NDArray[np.uint8], p: int, end: int) -> bool:
    """Check whether only the semicolon follows."""
    return p == end or (p + 1 == end and buf[p] == 59)


@jit
def _where(
    buf: npt.NDArray[np.uint8], p: int, start: int, end: int, names: npt.NDArray[np.uint8],
    name_ends: npt.NDArray[np.int64], at: int, begin: npt.NDArray[np.int32], length: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8],
) -> bool:  # fmt: skip
    """Read the conditions after ``where``: the before image."""
    guess = 0
    while True:
        c = _column(buf, p, end, names, name_ends, guess)
        if c < 0:
            return False
        guess = c + 1 if c + 2 < len(name_ends) else 0
        p += name_ends[c + 1] - name_ends[c]
        if has_prefix(buf, p, end, _EQUALS):
            k, b, e, p = scan_literal(buf, p + 3, end)
            if k == UNKNOWN:
                return False
        elif has_prefix(buf, p, end, _IS_NULL):
            k, b, e = NULL, p, p
            p += len(_IS_NULL)
        else:
            return False
        if not _put(BEFORE, c, at, k, b - start, e - b, begin, length, kind):
            return False
        if has_prefix(buf, p, end, _AND):
            p += len(_AND)
            continue
        return _ends(buf, p, end)


@jit
def _update(
    buf: npt.NDArray[np.uint8], p: int, start: int, end: int, names: npt.NDArray[np.uint8],
    name_ends: npt.NDArray[np.int64], at: int, begin: npt.NDArray[np.int32], length: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8],
) -> bool:  # fmt: skip
    """Read an update: ``set`` has the new values; all other columns keep the value in ``where``."""
    guess = 0
    while True:
        c = _column(buf, p, end, names, name_ends, guess)
        if c < 0:
            return False
        guess = c + 1 if c + 2 < len(name_ends) else 0
        p += name_ends[c + 1] - name_ends[c]
        if not has_prefix(buf, p, end, _EQUALS):
            return False
        k, b, e, p = scan_literal(buf, p + 3, end)
        if k == UNKNOWN or not _put(AFTER, c, at, k, b - start, e - b, begin, length, kind):
            return False
        if p + 1 < end and buf[p] == 44 and buf[p + 1] == 32:
            p += 2
            continue
        break
    if not has_prefix(buf, p, end, _WHERE):
        return False
    if not _where(buf, p + len(_WHERE), start, end, names, name_ends, at, begin, length, kind):
        return False
    for c in range(kind.shape[1]):
        if kind[AFTER, c, at] == ABSENT and kind[BEFORE, c, at] != ABSENT:
            kind[AFTER, c, at] = kind[BEFORE, c, at]
            begin[AFTER, c, at] = begin[BEFORE, c, at]
            length[AFTER, c, at] = length[BEFORE, c, at]
    return True
