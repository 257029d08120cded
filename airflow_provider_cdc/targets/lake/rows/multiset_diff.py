"""The effect of some changes on a table without a key, on arrays.

It says how many rows of which image go, and which rows come.

Such a table is a bag of rows: an image that goes takes away any one of the rows that are equal to it, as the source cannot distinguish them
either. Images that come and go within the changes cancel each other, so that only the rest has to be looked for in the table.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers, number_rows
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import SEQ
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER


class AbsentRows(Exception):
    """The table does not have a row that goes."""


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Rows of a table that go.

    :param image: for each of them, its image's number in :attr:`MultisetDifference.goes`; ascending
    :param places: where they are, in the words of the kind of table
    :param others: their values in columns that no image has
    :param signed: their values in columns whose zeros have signs
    """

    image: Numbers
    places: pa.Table
    others: pa.Table
    signed: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class MultisetDifference:
    """The effect of some changes on a bag of rows.

    :param removed_images: row images, each once. Zeros are equal whatever their sign, as in SQL
    :param number: how many rows of each image go
    :param signed: row images that go, each as often as ``signed_number`` says, with the signs of their zeros; ``signed_image`` is their number
        in ``removed_images``. Of equal rows those go first that are the same
    """

    removed_images: pa.Table
    number: Numbers
    signed: pa.Table
    signed_image: Numbers
    signed_number: Numbers
    _comes: pa.Table
    _root: Numbers
    """For each row that comes, the image of the row that it continues; -1 for a new one."""
    _nth: Numbers
    """Which of the rows of this image."""

    @property
    def column_names(self) -> list[str]:
        """The columns of images."""
        return list(self._comes.column_names)

    def number_of_new_rows(self) -> int:
        """Rows that come."""
        return int(self._comes.num_rows)

    def build_removed_rows(self, located: LocatedRows) -> pa.Table:
        """Return the rows that go, with all their columns and places."""
        rows = self.removed_images.take(pa.array(located.image))
        if located.signed is not None:
            for name, values in zip(located.signed.column_names, located.signed.columns, strict=True):
                rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
        for part in (located.others, located.places):
            for field, values in zip(part.schema, part.columns, strict=True):
                rows = rows.append_column(field, values)
        return rows

    def build_added_rows(self, located: LocatedRows) -> pa.Table:
        """Return the rows that come.

        One that continues a row that goes has the values of that row in columns that no image has.
        """
        if not located.others.num_columns:
            return self._comes
        new = self._root < 0
        at = pa.array(np.searchsorted(located.image, self._root) + self._nth, mask=new)
        rows = self._comes
        for name in located.others.column_names:
            rows = rows.append_column(located.others.schema.field(name), located.others[name].take(at))
        return rows


def compute_difference(changes: pa.Table, *, follow: bool = False) -> MultisetDifference:
    """Compute the difference that changes make.

    :param changes: images with :data:`airflow_provider_cdc.targets.lake.rows.multiset_rewrite.NUMBER` (1 or -1) and the number of their event; those of an update have the same one
    :param follow: whether the table has columns that no image has, so that it matters which row an update continues
    """
    images = changes.drop_columns([NUMBER, SEQ])
    sign, seq = (changes[name].to_numpy().astype(np.int64) for name in (NUMBER, SEQ))
    return _followed(images, sign, seq) if follow else _net(images, sign)


def _net(images: pa.Table, sign: Numbers) -> MultisetDifference:
    [codes] = number_rows(images, one_zero=False)  # a zero whose sign changes is a row that comes
    net = np.bincount(codes, weights=sign).astype(np.int64)
    first = _first(codes)
    come, go = net > 0, net < 0
    gone, each = images.take(first[go]), -net[go]
    [equal] = number_rows(gone)
    goes, number = gone.take(_first(equal)), np.bincount(equal, weights=each).astype(np.int64)
    rows = np.repeat(first[come], net[come])
    new = np.full(len(rows), -1, np.int64)
    return MultisetDifference(goes, number, gone, equal, each, images.take(rows), new, np.zeros_like(new))


def _first(codes: Numbers) -> Numbers:
    """Return the index at which each number is first."""
    return np.unique(codes, return_index=True)[1].astype(np.int64)


def _followed(images: pa.Table, sign: Numbers, seq: Numbers) -> MultisetDifference:
    """Follow each row from image to image.

    Of equal ones the one that came last goes first, then those of the table. The sign of a zero is exact in the changes, and may not be in the table.
    """
    [codes], [same] = number_rows(images), number_rows(images, one_zero=False)
    left: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # where it came, and its root
    taken: defaultdict[int, int] = defaultdict(int)
    gone = list[int]()
    event, root = 0, (-1, 0)
    # an update's image goes before its other one comes
    for at in np.lexsort((sign, seq)).tolist():
        code, own = int(codes[at]), int(same[at])
        if seq[at] != event:
            event, root = int(seq[at]), (-1, 0)
        if sign[at] > 0:
            left[own].append((at, *root))
        elif left[own]:
            root = left[own].pop()[1:]
        else:
            root = code, taken[code]
            taken[code] += 1
            gone.append(at)
    first, numbers = _first(codes), sorted(taken)
    order = {code: number for number, code in enumerate(numbers)}
    rows = [entry for of_image in left.values() for entry in of_image]
    return MultisetDifference(
        images.take(first[np.array(numbers, np.int64)]),
        np.array([taken[code] for code in numbers], np.int64),
        images.take(pa.array(gone, pa.int64())),
        np.array([order[int(codes[at])] for at in gone], np.int64),
        np.ones(len(gone), np.int64),
        images.take(pa.array([at for at, _, _ in rows], pa.int64())),
        np.array([order.get(code, -1) for _, code, _ in rows], np.int64),
        np.array([nth for _, _, nth in rows], np.int64),
    )
