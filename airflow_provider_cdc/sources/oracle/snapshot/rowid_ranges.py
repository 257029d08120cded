"""ROWIDs as bounds of the parts of a table.

A part has the ROWIDs from one bound up to the next; the first part has no lower and the last no upper bound. So each row is in exactly
one part, whatever the bounds: extents that are added or dropped meanwhile only make the parts uneven.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_MOST_FILES = 1024
"""Relative number of the only file of a bigfile tablespace."""


def row_id(data_object: int, file: int, block: int, row: int = 0) -> str:
    """Return the text of an extended ROWID.

    >>> row_id(73001, 7, 128)
    'AAAR0pAAHAAAACAAAA'
    """
    parts = ((data_object, 6), (file % _MOST_FILES, 3), (block, 6), (row, 3))
    return "".join(DIGITS[(number >> 6 * digit) & 63] for number, width in parts for digit in reversed(range(width)))


def split_extents(extents: Sequence[tuple[int, int, int, int]], blocks: int) -> list[str]:
    """Bounds that split a table into parts of about ``blocks`` blocks.

    :param extents: data object, file, first block and number of blocks of each extent, in the order of ROWIDs
    """
    bounds, filled = [], 0
    for data_object, file, first, size in extents:
        at = 0
        while filled + size - at > blocks:
            step = blocks - filled
            at += step
            filled = 0
            bounds.append(row_id(data_object, file, first + at))
        filled += size - at
    return bounds


def build_part_conditions(edges: Sequence[str]) -> list[str]:
    """Conditions on the table ``t`` for the parts between the bounds."""
    bounds = [None, *edges, None]
    parts = []
    for low, high in itertools.pairwise(bounds):
        sides = [f"t.ROWID >= CHARTOROWID('{low}')"] if low else []
        sides += [f"t.ROWID < CHARTOROWID('{high}')"] if high else []
        parts.append(" AND ".join(sides))
    return parts
