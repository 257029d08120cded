"""Operations on row blocks for events: images, keys, selections of rows, splitting key changes, unavailable values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.config.column_masking import Masking
from airflow_provider_cdc.core.converters.column_converter import ConvertedColumn
from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, READ, TRUNCATE, UPDATE, LogBlock, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema, arrow_type

Mask = npt.NDArray[np.bool_]

NAMES = pa.list_(pa.dictionary(pa.int16(), pa.string()))
"""Names of columns: for many events the same few."""


@dataclass(slots=True)
class SelectedColumns:
    """Selection that stays the same for all blocks of one table schema."""

    topic: str
    schema: TableSchema
    images: tuple[int, ...] | None  # columns of the row images; None = all of them
    names: npt.NDArray[np.str_]  # of the columns of the row images
    key: tuple[int, ...]
    image_type: pa.StructType
    key_type: pa.StructType | None
    maskings: dict[int, Masking] = field(default_factory=dict)  # column → the masking of its values in images
    converted: dict[int, ConvertedColumn] = field(default_factory=dict)  # the same of columns that are converted


def image_of(image: pa.StructArray | None, selected: SelectedColumns, n: int) -> pa.StructArray:
    """Return an image with the captured columns.

    :raises UnreadableValue: a user's converter does not convert a value
    """
    if image is None:
        return pa.nulls(n, selected.image_type)
    maskings, converted = selected.maskings, selected.converted
    if selected.images is None and not maskings and not converted:
        return image
    mask = image.is_null() if image.null_count else None
    children = []
    for i in range(image.type.num_fields) if selected.images is None else selected.images:
        values = image.field(i)
        if i in converted:
            values = converted[i].convert_values(values, mask)
        children.append(maskings[i](values) if i in maskings else values)
    return pa.StructArray.from_arrays(children, fields=list(selected.image_type), mask=mask)


def key_of(rows: RowBlock, selected: SelectedColumns) -> pa.StructArray:
    """Key of the image that a row ends with, or of the image before for a delete. Null for a truncate."""
    assert selected.key_type is not None
    before, after = rows.before, rows.after
    if before is None and after is None:
        return pa.nulls(len(rows), selected.key_type)
    deleted = pa.array(rows.op == DELETE) if before is not None and after is not None else None
    children = []
    for i in selected.key:
        if deleted is not None and before is not None and after is not None:
            children.append(pc.if_else(deleted, before.field(i), after.field(i)))
        else:
            image = after if after is not None else before
            assert image is not None
            children.append(image.field(i))
    return pa.StructArray.from_arrays(children, fields=list(selected.key_type))


def changed_rows(rows: RowBlock, selected: SelectedColumns) -> Mask:
    """Mask of the rows whose two images differ in a column of the key or of the images.

    A value that the log has only in the image after is a new one.
    """
    changed = np.zeros(len(rows), np.bool_)
    if rows.before is None or rows.after is None:
        return ~changed
    shown = range(len(rows.table.columns)) if selected.images is None else selected.images
    for i in {*shown, *selected.key}:
        differs = _differs(rows.before.field(i), rows.after.field(i))
        if rows.unavailable_after is not None:
            differs &= ~rows.unavailable_after[i]
        if rows.unavailable_before is not None:
            in_log = True if rows.unavailable_after is None else ~rows.unavailable_after[i]
            differs |= rows.unavailable_before[i] & in_log
        changed |= differs
    return changed


def _differs(before: pa.Array, after: pa.Array) -> Mask:
    """Mask of the values that are not the same. Floats are compared by their bits: 0.0 is not -0.0, NaN is itself."""
    kind = before.type
    if pa.types.is_null(kind):
        return np.zeros(len(before), np.bool_)
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return np.array([repr(old) != repr(new) for old, new in pairs], np.bool_)
    if pa.types.is_floating(kind):
        bits = pa.int64() if pa.types.is_float64(kind) else pa.int32()
        before, after = before.view(bits), after.view(bits)
    differs = pc.coalesce(pc.not_equal(before, after), pc.xor(before.is_null(), after.is_null()))
    mask: Mask = differs.to_numpy(zero_copy_only=False)
    return mask


def select_rows(rows: RowBlock, index: npt.NDArray[np.int64]) -> RowBlock:
    """Return some rows of a block."""
    picked = pa.array(index)
    before, after = rows.unavailable_before, rows.unavailable_after
    return RowBlock(
        table=rows.table,
        op=rows.op[index],
        before=rows.before.take(picked) if rows.before is not None else None,
        after=rows.after.take(picked) if rows.after is not None else None,
        order=rows.order[index],
        transaction=rows.transaction[index] if rows.transaction is not None else None,
        ts_us=rows.ts_us[index],
        source={name: column.take(picked) for name, column in rows.source.items()},
        unavailable_before=before[:, index] if before is not None else None,
        unavailable_after=after[:, index] if after is not None else None,
        beside={name: column.take(picked) for name, column in rows.beside.items()},
        address=rows.address.take(picked) if rows.address is not None else None,
        together=rows.together[index] if rows.together is not None else None,
    )


def split_key_changes(
    rows: RowBlock,
    last: npt.NDArray[np.int64],
    mask: Mask | None,
    changed: Mask,
    ordinals: npt.NDArray[np.int64] | None,
    selected: SelectedColumns,
) -> tuple[RowBlock, npt.NDArray[np.int64], Mask | None, npt.NDArray[np.int64] | None, pa.StructArray]:
    """Each update that changes the key becomes two rows: a delete with the image before, a create with the image after.

    The last returned value is ``previous_key``.
    """
    index = np.repeat(np.arange(len(rows)), np.where(changed, 2, 1))
    pair = changed[index]
    second = pair & (np.diff(index, prepend=-1) == 0)
    first = pair & ~second
    split = select_rows(rows, index)
    split.op = np.where(first, DELETE, np.where(second, CREATE, split.op)).astype(np.int8)
    # a key change was found by comparing the two images
    assert split.before is not None
    assert split.after is not None
    old = [split.before.field(i) for i in selected.key]
    previous = pa.StructArray.from_arrays(old, fields=list(selected.key_type or ()), mask=pa.array(~second))
    split.before = pc.if_else(pa.array(second), pa.scalar(None, split.before.type), split.before)
    split.after = pc.if_else(pa.array(first), pa.scalar(None, split.after.type), split.after)
    split.beside = {  # facts about an update hold for neither of the two
        name: column.take(pa.array(np.arange(len(split)), mask=pair)) for name, column in split.beside.items()
    }
    return (
        split,
        last[index] - first,
        mask[index] if mask is not None else None,
        ordinals[index] - first if ordinals is not None else None,
        previous,
    )


# -- values that the log does not have --------------------------------------------------------------------------------


def _masks(rows: RowBlock, selected: SelectedColumns) -> tuple[Mask | None, Mask | None]:
    """``unavailable_before`` and ``unavailable_after``, of the columns that images have and the rows that have the image."""
    masks = []
    for mask, operations in (
        (rows.unavailable_before, (UPDATE, DELETE)),
        (rows.unavailable_after, (READ, CREATE, UPDATE)),
    ):
        if mask is not None:
            mask = (mask if selected.images is None else mask[list(selected.images)]) & np.isin(rows.op, operations)
        masks.append(mask if mask is not None and mask.any() else None)
    return masks[0], masks[1]


def beside_of(rows: RowBlock, schema: TableSchema) -> dict[str, pa.Array]:
    """Return the schema's further columns of events.

    :raises ValueError: the rows have one that the schema does not have, or of another type
    """
    columns = schema.documents.columns if schema.documents is not None else ()
    types = {column.name: arrow_type(column.type) for column in columns}
    for name, values in rows.beside.items():
        if name not in types or values.type != types[name] or len(values) != len(rows):
            raise ValueError(f"{schema.id} has no column {name} of {len(rows)} times {values.type} beside its rows")
    return {name: rows.beside.get(name, pa.nulls(len(rows), type_)) for name, type_ in types.items()}


def lacking_columns(rows: RowBlock, selected: SelectedColumns) -> tuple[frozenset[str], frozenset[str]]:
    """Columns of which any value is unavailable: in either image, and in those after."""
    before, after = (
        frozenset[str]() if mask is None else frozenset(map(str, selected.names[mask.any(axis=1)]))
        for mask in _masks(rows, selected)
    )
    return before | after, after


def unavailable_names(rows: RowBlock, selected: SelectedColumns) -> tuple[pa.ListArray, pa.ListArray]:
    """``unavailable``, of the row that an event is about, and ``unavailable_before``, of an update's image before."""
    before, after = _masks(rows, selected)
    if before is None:
        return _names(after, selected, len(rows)), pa.nulls(len(rows), NAMES)
    gone = rows.op == DELETE
    about = before & gone if after is None else np.where(gone, before, after)
    return _names(about, selected, len(rows)), _names(before & ~gone, selected, len(rows))


def _names(mask: Mask | None, selected: SelectedColumns, n: int) -> pa.ListArray:
    """Return the names of a mask's columns, row by row; null for a row of which all values are there."""
    if mask is None or not mask.any():
        return pa.nulls(n, NAMES)
    of_row = mask.sum(axis=0, dtype=np.int32)
    ends = np.zeros(n + 1, np.int32)
    np.cumsum(of_row, out=ends[1:])
    columns = np.nonzero(mask.T)[1].astype(np.int16)
    values = pa.DictionaryArray.from_arrays(pa.array(columns), pa.array(selected.names, pa.string()))
    return pa.ListArray.from_arrays(pa.array(ends), values, type=NAMES, mask=pa.array(of_row == 0))


def check_keys(rows: RowBlock, selected: SelectedColumns, block: LogBlock) -> None:
    """Make sure that every row has its whole key: without it, an event could not say which row it is about.

    :raises SchemaConflict: the log does not have it
    """
    if rows.unavailable_before is None and rows.unavailable_after is None:
        return
    for mask, without in ((rows.unavailable_before, (READ, CREATE)), (rows.unavailable_after, (DELETE,))):
        for i in selected.key if mask is not None else ():
            assert mask is not None
            missing = np.flatnonzero(mask[i] & ~np.isin(rows.op, (*without, TRUNCATE)))
            if len(missing):
                raise _no_key(rows, block, int(missing[0]), rows.table.column_names[i])


def _no_key(rows: RowBlock, block: LogBlock, row: int, column: str) -> SchemaConflict:
    source = {name: values[row].as_py() for name, values in rows.source.items()}
    shown = ", ".join(f"{name} {value}" for name, value in source.items() if value is not None)
    return SchemaConflict(
        f"The log does not contain the value of the key column {column} for a change of {rows.table.id}.",
        where=f"{rows.table.id}, before {block.position}: {shown}",
        safe="Everything before this block is captured; no event was written under a wrong key.",
        remedy="configure the database to log all columns of the table, or name logged columns as its key with message.key.columns; "
        "then snapshot it again with snapshot.mode=always for one run",
    )
