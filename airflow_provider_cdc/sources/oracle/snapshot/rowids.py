"""Row ids as the edges of a table's parts.

A part has the row ids from one edge to the next; the first one has no lower edge and the last one no upper. So the parts together
hold each row once, wherever the edges are: extents that come and go meanwhile make them uneven, and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_MOST_FILES = 1024
"""In a bigfile tablespace there is one file, whose number here is this."""


def row_id(data_object: int, file: int, block: int, row: int = 0) -> str:
    """The text of an extended row id.

    >>> row_id(73001, 7, 128)
    'AAAR0pAAHAAAACAAAA'
    """
    parts = ((data_object, 6), (file % _MOST_FILES, 3), (block, 6), (row, 3))
    return "".join(DIGITS[(number >> 6 * place) & 63] for number, width in parts for place in reversed(range(width)))


def cuts(extents: Sequence[tuple[int, int, int, int]], blocks: int) -> list[str]:
    """Where to cut a table so that its parts have about this many blocks.

    :param extents: data object, file, first block and number of blocks of each, in the order of row ids
    """
    found, filled = [], 0
    for data_object, file, first, size in extents:
        at = 0
        while filled + size - at > blocks:
            step = blocks - filled
            at += step
            filled = 0
            found.append(row_id(data_object, file, first + at))
        filled += size - at
    return found


def conditions(edges: Sequence[str]) -> list[str]:
    """The parts between the edges, as conditions on the table ``t``."""
    bounds = [None, *edges, None]
    parts = []
    for low, high in itertools.pairwise(bounds):
        sides = [f"t.ROWID >= CHARTOROWID('{low}')"] if low else []
        sides += [f"t.ROWID < CHARTOROWID('{high}')"] if high else []
        parts.append(" AND ".join(sides))
    return parts
