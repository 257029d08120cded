"""Treatment of the rows of a table whose keys several rows have held.

It finds the events that come late, the events that pass, and the key of each row.

Rows are looked at some at a time, as they may be on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.writing.key_handovers import KeyChanges, KeyStays, find_key_stays
from airflow_provider_cdc.core.writing.row_block_slices import OrderedRows, OrderKey, Places, RowBlockPart
from airflow_provider_cdc.core.writing.row_block_transforms import Mask, SelectedColumns, select_rows, split_key_changes
from airflow_provider_cdc.core.writing.row_hashes import mix_hashes, row_hashes


@dataclass(slots=True)
class RowSlice:
    """Rows, and which updates among them change the key."""

    rows: RowBlock
    changed: Mask | None


class RowSlices(Protocol):
    """Rows of one table schema, some at a time."""

    table: TableSchema

    def iterate_slices(self) -> Iterator[RowSlice]:
        """All of them, each time."""


@dataclass(slots=True)
class MovedRows:
    """Findings about the rows of some pieces.

    :param origin: number of the row's first change, whose old key it had before the transaction
    :param old_keys: of all rows
    :param known: column → for each row, the change whose image after has the value that the row has
    :param values: column → the image after, of the changes that are named in ``known``
    :param place: see :func:`_places`
    :param behind: the last row of each one's transaction
    """

    stays: KeyStays
    origin: Places
    old_keys: pa.StructArray
    leaves: Mask
    known: dict[int, Places] = field(default_factory=dict)
    values: dict[int, tuple[Places, pa.Array]] = field(default_factory=dict)
    place: Places | None = None
    behind: Places | None = None


def pieces_of(pieces: Any) -> Iterator[RowSlice]:
    return iter(pieces) if isinstance(pieces, list) else pieces.iterate_slices()


def moves_of(pieces: list[RowSlice] | RowSlices, selected: SelectedColumns) -> MovedRows | None:
    """Look at all rows of a table schema; ``None``: no key was held by several rows."""
    columns, lacks, addressed = len(_columns(pieces)), np.zeros(0, np.bool_), True
    lacks = np.zeros(columns, np.bool_)
    moving = list[Mask]()
    owners, transactions = list[Places](), list[Places]()
    for piece in pieces_of(pieces):
        rows = piece.rows
        for mask, operations in (
            (rows.unavailable_before, (UPDATE, DELETE)),
            (rows.unavailable_after, (UPDATE, CREATE)),
        ):
            if mask is not None:
                lacks |= (mask & np.isin(rows.op, operations)).any(axis=1)
        addressed &= rows.address is not None and not rows.address.null_count
        assert rows.transaction is not None
        transactions.append(rows.transaction.astype(np.int64))
        owners.append(transactions[-1] if rows.together is None else rows.together)
        moving.append(np.zeros(len(rows), np.bool_) if piece.changed is None else piece.changed)
    owner, moved = np.concatenate(owners), np.concatenate(moving)
    concerned = np.isin(owner, np.unique(owner[moved]))
    hashed = list[tuple[Any, ...]]()
    for piece in pieces_of(pieces):
        hashed.append(_hashed(piece.rows, selected, np.flatnonzero(~lacks), addressed=addressed))
    leaves, comes, old_key, new_key, old_row, new_row = (np.concatenate(column) for column in zip(*hashed, strict=True))
    stays = find_key_stays(KeyChanges(owner, leaves & concerned, comes & concerned, old_key, new_key, old_row, new_row))
    if stays is None:
        return None
    old_keys = pa.concat_arrays([_old_keys(piece.rows, selected) for piece in pieces_of(pieces)])
    result = MovedRows(stays, _first(stays.before), old_keys, leaves)
    if lacks.any() and stays.leaves_after_arrival.any():
        _complete(pieces, result, np.flatnonzero(lacks))
    if isinstance(pieces, list):
        result.place = _places(stays, moved, np.concatenate(transactions))
        result.behind = _behind(owner, pieces[0].rows.order)
    return result


def _columns(rows: list[RowSlice] | RowSlices) -> Sequence[Any]:
    return rows[0].rows.table.columns if isinstance(rows, list) else rows.table.columns


def _hashed(rows: RowBlock, selected: SelectedColumns, complete_columns: Places, *, addressed: bool) -> tuple[Any, ...]:
    n = len(rows)
    leaves, comes = np.isin(rows.op, (UPDATE, DELETE)), np.isin(rows.op, (UPDATE, CREATE))

    def image(of: pa.StructArray | None, columns: Sequence[int]) -> npt.NDArray[np.uint64]:
        return np.zeros(n, np.uint64) if of is None else row_hashes([of.field(int(i)) for i in columns], n)

    keys = [image(of, selected.key) for of in (rows.before, rows.after)]
    images = [image(of, [*complete_columns]) for of in (rows.before, rows.after)]
    if addressed:  # of some rows the address may mean nothing, and be the same for all
        assert rows.address is not None
        at = row_hashes([rows.address], n)
        images = [mix_hashes(row_hash) ^ at for row_hash in images]
    return leaves, comes, *keys, *images


def _old_keys(rows: RowBlock, selected: SelectedColumns) -> pa.StructArray:
    assert selected.key_type is not None
    if rows.before is None:
        return pa.nulls(len(rows), selected.key_type)
    fields = [rows.before.field(i) for i in selected.key]
    return pa.StructArray.from_arrays(fields, fields=list(selected.key_type))


def _first(before: Places) -> Places:
    """Find the first change of each row, as far as changes are linked."""
    step = np.where(before >= 0, before, np.arange(len(before)))
    while True:
        further = step[step]
        if (further == step).all():
            return step
        step = further


def _complete(pieces: list[RowSlice] | RowSlices, moved: MovedRows, columns: Places) -> None:
    """Find the value that a change before the last one has and the last one leaves as it is.

    The event of the last change says nothing of the key.
    """
    lacking = {int(i): [] for i in columns}  # type: dict[int, list[Mask]]
    for piece in pieces_of(pieces):
        mask = piece.rows.unavailable_after
        for i, some in lacking.items():
            some.append(np.zeros(len(piece.rows), np.bool_) if mask is None else mask[i])
    for i, masks in lacking.items():
        lacks = np.concatenate(masks)
        source_row, came = np.arange(len(lacks)), moved.stays.before
        while True:
            on = lacks[source_row] & (came[source_row] >= 0)
            if not on.any():
                break
            source_row = np.where(on, came[source_row], source_row)
        moved.known[i] = np.where(lacks[source_row], np.arange(len(lacks)), source_row)
        needed = np.unique(moved.known[i][lacks & (moved.known[i] != np.arange(len(lacks)))])
        begin, values = 0, list[pa.Array]()
        for piece in pieces_of(pieces):
            own = needed[(needed >= begin) & (needed < begin + len(piece.rows))] - begin
            begin += len(piece.rows)
            if len(own) and piece.rows.after is not None:
                values.append(piece.rows.after.field(i).take(pa.array(own)))
        if len(needed):
            moved.values[i] = needed, pa.concat_arrays(values)


def _behind(owner: Places, order: Places) -> Places:
    """For each row, the number of the last one of its transaction."""
    _, number = np.unique(owner, return_inverse=True)
    last = np.zeros(len(owner), np.int64)
    np.maximum.at(last, number, order)
    return last[number]


def _places(stays: KeyStays, split_: Mask, owner: Places) -> Places:
    """``[2, n]``: the place that each half has among the rows of its transaction; of a whole one, the second half."""
    n = len(owner)
    there = np.stack([split_, np.ones(n, np.bool_)])
    late = np.stack([np.zeros(n, np.bool_), stays.late])
    at, half = np.broadcast_to(np.arange(n), (2, n)), np.repeat([[0], [1]], n, axis=1)
    chosen = np.flatnonzero(there.ravel())
    owners = np.broadcast_to(owner, (2, n)).ravel()[chosen]
    order = np.lexsort((half.ravel()[chosen], at.ravel()[chosen], late.ravel()[chosen], owners))
    begins = np.concatenate([[True], np.diff(owners[order]) != 0])
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    places = np.zeros(2 * n, np.int64)
    places[chosen[order]] = np.arange(len(order)) - starts
    return places.reshape(2, n)


def split_moved_rows(
    part: RowBlockPart, moved: MovedRows, begin: int, selected: SelectedColumns
) -> Iterator[tuple[OrderedRows, OrderKey]]:
    """Split the rows of a part with their changes of keys: those that events say something of, and those that pass.

    Beside them what their order follows from.

    :param begin: number of the part's first row among all rows of the table
    """
    rows = _completed(part.rows, moved, begin)
    n, own = len(rows), slice(begin, begin + len(rows))
    changed = np.zeros(n, np.bool_) if part.changed is None else part.changed
    index = np.repeat(np.arange(n), np.where(changed, 2, 1))
    second = np.concatenate([[False], index[1:] == index[:-1]]) if n else np.zeros(0, np.bool_)
    first = changed[index] & ~second
    if changed.any():
        split, *_, previous = split_key_changes(rows, np.zeros(n, np.int64), None, changed, None, selected)
    else:
        split, previous = rows, pa.nulls(n, selected.key_type)
    late, goes = moved.stays.late[own][index] & ~first, moved.stays.arrives_and_leaves[own][index]
    came = moved.stays.leaves_after_arrival[own][index]
    passing = np.where(first | (split.op == DELETE), came, goes)
    lacking = np.zeros(len(index), np.bool_)
    if rows.unavailable_after is not None:
        lacking = np.asarray(rows.unavailable_after.any(axis=0))[index]
    previous = _origins(
        previous,
        moved,
        np.arange(begin, begin + n)[index],
        second & came & ~passing,
        lacking=lacking,
    )
    half, order = np.where(first, 0, 1), rows.order[index]
    place = order if moved.place is None else moved.place[half, index]
    behind = order if moved.behind is None else np.where(late, moved.behind[index], order)
    key = behind, late.astype(np.int64), order, half
    for passes in (False, True):
        chosen = np.flatnonzero(passing == passes)
        if len(chosen):
            some = select_rows(split, chosen)
            ordered = OrderedRows(
                some, previous.take(pa.array(chosen)), passes, bool(late[chosen].any()), place[chosen]
            )
            yield ordered, tuple(column[chosen] for column in key)  # type: ignore[misc]


def _origins(previous: pa.StructArray, moved: MovedRows, at: Places, through: Mask, *, lacking: Mask) -> pa.StructArray:
    """``previous_key`` of rows that have passed other keys: the one that they had before the transaction, if they were there."""
    # of a row that has begun in the transaction, and is whole, the key before says no more than where it was
    through = through & (moved.leaves[moved.origin[at]] | lacking)
    if not through.any():
        return previous
    first = moved.origin[at[through]]
    origins = moved.old_keys.take(pa.array(first, mask=~moved.leaves[first]))
    position = np.arange(len(previous))
    position[through] = len(previous) + np.arange(len(first))
    return pa.concat_arrays([previous, origins]).take(pa.array(position))


def _completed(rows: RowBlock, moved: MovedRows, begin: int) -> RowBlock:
    """Rows with the values that changes of the same row before have."""
    if not moved.values or rows.after is None or rows.unavailable_after is None:
        return rows
    own, images = slice(begin, begin + len(rows)), [rows.after.field(i) for i in range(rows.after.type.num_fields)]
    lacks = rows.unavailable_after.copy()
    came = moved.stays.leaves_after_arrival[own]
    for i, (numbers, values) in moved.values.items():
        source_row = moved.known[i][own]
        filled = lacks[i] & came & (source_row != np.arange(begin, begin + len(rows)))
        if filled.any():
            taken = values.take(pa.array(np.searchsorted(numbers, np.where(filled, source_row, numbers[0]))))
            images[i] = pc.if_else(pa.array(filled), taken, images[i])
            lacks[i] &= ~filled
    mask = rows.after.is_null() if rows.after.null_count else None
    after = pa.StructArray.from_arrays(images, fields=list(rows.after.type), mask=mask)
    return replace(rows, after=after, unavailable_after=lacks)
