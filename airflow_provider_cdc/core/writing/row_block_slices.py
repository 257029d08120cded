"""Rows of blocks as events are made of them: some of them, in an order, joined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import LogBlock, RowBlock
from airflow_provider_cdc.core.writing.row_block_transforms import Mask, select_rows

Places = npt.NDArray[np.int64]


@dataclass(slots=True)
class OrderedRows:
    """Rows whose changes of keys are split, in the order in which their events come.

    :param previous: ``previous_key`` of each
    :param passing: they are of rows that have come to a key and left it within one transaction
    :param late: some come behind rows that came after them
    :param place: each one's number among the rows of its transaction and table, from 0
    """

    rows: RowBlock
    previous: pa.StructArray
    passing: bool
    late: bool
    place: Places


@dataclass(slots=True)
class RowBlockPart:
    """Rows of a block, as events are made of them.

    :param ordered: there where keys were held by several rows
    :param changed: mask of the updates that change the key; ``None``: there are none, or they are split
    """

    rows: RowBlock
    changed: Mask | None
    ordered: OrderedRows | None = None


@dataclass(slots=True)
class RowBlockParts:
    """A block with the facts about its rows."""

    block: LogBlock
    parts: list[RowBlockPart]


def select_part_rows(part: RowBlockPart, mask: Mask) -> RowBlockPart:
    index = np.flatnonzero(mask)
    return RowBlockPart(select_rows(part.rows, index), None if part.changed is None else part.changed[index])


def renumber_parts(parts: list[RowBlockPart]) -> list[RowBlockPart]:
    """Parts whose rows are numbered 0, 1, 2 … in the order that they had."""
    parts = [part for part in parts if len(part.rows)]
    order = np.concatenate([part.rows.order for part in parts]) if parts else np.zeros(0, np.int64)
    number = np.empty(len(order), np.int64)
    number[np.argsort(order, kind="stable")] = np.arange(len(order))
    begin = 0
    for part in parts:
        part.rows = replace(part.rows, order=number[begin : begin + len(part.rows)])
        begin += len(part.rows)
    return parts


OrderKey = tuple[Places, Places, Places, Places]
"""Of each row: behind which one it comes, whether late, its own number, and which half of a change of key it is."""


def numbers_of(keys: list[OrderKey]) -> Places:
    """Assign a number to each row: 0, 1, 2 and so on."""
    behind, late, order, half = (np.concatenate(column) for column in zip(*keys, strict=True))
    number = np.empty(len(order), np.int64)
    number[np.lexsort((half, order, late, behind))] = np.arange(len(order))
    return number


def sorted_part(part: RowBlockPart, number: Places) -> RowBlockPart:
    """Return a part with new numbers, ascending."""
    if part.ordered is None:
        # its rows keep their order, but for what others have put between them
        part.rows = replace(part.rows, order=number)
        return part
    index = np.argsort(number, kind="stable")
    rows = select_rows(replace(part.rows, order=number), index)
    old = part.ordered
    ordered = OrderedRows(rows, old.previous.take(pa.array(index)), old.passing, old.late, old.place[index])
    return RowBlockPart(rows, None, ordered)


def concatenate_parts(parts: list[RowBlockPart]) -> RowBlockPart:
    """Parts of one table schema as one."""
    if len(parts) == 1:
        return parts[0]
    rows = _concatenated([part.rows for part in parts])
    changed = [np.zeros(len(part.rows), np.bool_) if part.changed is None else part.changed for part in parts]
    index = np.argsort(rows.order, kind="stable")
    return RowBlockPart(select_rows(rows, index), np.concatenate(changed)[index])


def _concatenated(blocks: list[RowBlock]) -> RowBlock:
    def arrays(columns: list[pa.Array | None], type_: pa.DataType) -> pa.Array:
        return pa.concat_arrays(
            [
                pa.nulls(len(block), type_) if array is None else array
                for block, array in zip(blocks, columns, strict=True)
            ]
        )

    def images(structs: list[pa.StructArray | None]) -> pa.StructArray | None:
        there = next((struct for struct in structs if struct is not None), None)
        return None if there is None else arrays(structs, there.type)

    def masks(row_masks: list[Mask | None]) -> Mask | None:
        if all(mask is None for mask in row_masks):
            return None
        columns = len(blocks[0].table.columns)
        filled = [
            np.zeros((columns, len(block)), np.bool_) if mask is None else mask
            for block, mask in zip(blocks, row_masks, strict=True)
        ]
        return np.concatenate(filled, axis=1)

    plain = [
        {name: _plain(values) for name, values in block.source.items()} for block in blocks
    ]  # dictionaries differ from block to block
    names = list(dict.fromkeys(name for source in plain for name in source))
    types = {name: next(source[name].type for source in plain if name in source) for name in names}
    beside = list(dict.fromkeys(name for block in blocks for name in block.beside))
    beside_types = {name: next(b.beside[name].type for b in blocks if name in b.beside) for name in beside}
    address = [block.address for block in blocks]
    return RowBlock(
        table=blocks[0].table,
        op=np.concatenate([block.op for block in blocks]),
        before=images([block.before for block in blocks]),
        after=images([block.after for block in blocks]),
        order=np.concatenate([block.order for block in blocks]),
        transaction=np.concatenate([block.transaction for block in blocks]),
        ts_us=np.concatenate([block.ts_us for block in blocks]),
        source={name: arrays([source.get(name) for source in plain], types[name]) for name in names},
        unavailable_before=masks([block.unavailable_before for block in blocks]),
        unavailable_after=masks([block.unavailable_after for block in blocks]),
        beside={name: arrays([block.beside.get(name) for block in blocks], beside_types[name]) for name in beside},
        address=None if None in address else pa.concat_arrays([_plain(array) for array in address]),
        together=None if blocks[0].together is None else np.concatenate([block.together for block in blocks]),
    )


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
