"""Windows: removes rows of a chunk that events have superseded meanwhile, on arrays.

A window is registered before its chunk is read. From then on each event of the table supersedes the chunk's row of the same key,
whichever of the two is newer in the database: the event brings the row to its state in the log, and later events follow. The rows that are
left when the stream has passed the high watermark equal what the database held there, so no outdated row is ever written (Debezium connector documents, "Snapshot windows").

An event may lack values that the log does not have (:class:`~.core.model.log_items.RowBlock`). It does not supersede the row's values in these columns:
the row is written with them, and with all other columns marked as unavailable, which leaves those as they are.

Keys that were looked up and have no row become deletes, unless an event of their rows came meanwhile: such an event is newer than
the looked-up state, or says the same.

The key says which row an event is about. When the key of a table gets other columns or types, rows with the one cannot
be found by the other: such a chunk is read again (:meth:`ChunkWindow.keyed_by`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.key_json import Key, build_key_arrays, key_to_json
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, READ, UPDATE, RowBlock
from airflow_provider_cdc.core.model.notifications import ScanProblem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema, row_struct
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows
from airflow_provider_cdc.core.writing.row_block_transforms import Mask, select_rows

Columns = list[pa.Array]
KeyColumns = tuple[tuple[str, str], ...]
"""Name and type of each column of a key."""


@dataclass(slots=True)
class TouchedKeys:
    """The keys that a stretch of the log has events for, in one table.

    :param key: names and types of their key columns; empty if the table had none, so that it is not known which rows the events are about
    :param whole: key columns of the rows that have complete events, or that were deleted
    :param partly: key columns of the rows whose events lack values; for each column's name, which rows lack it
    :param everything: the table was emptied
    """

    key: KeyColumns = ()
    whole: list[Columns] = field(default_factory=list)
    partly: list[tuple[Columns, dict[str, Mask]]] = field(default_factory=list)
    everything: bool = False

    @classmethod
    def from_rows(cls, rows: RowBlock, key: Sequence[int], mask: Mask | None) -> TouchedKeys:
        """Collect the keys of rows that events are made of.

        :param key: numbers of the key columns
        :param mask: rows that events are made of; ``None`` = all
        """
        touched = cls(tuple((rows.table.columns[i].name, rows.table.columns[i].type) for i in key))
        if not key:
            return touched
        keep = np.ones(len(rows), np.bool_) if mask is None else mask
        lacking = rows.unavailable_after
        part = keep & np.isin(rows.op, (CREATE, UPDATE)) & (lacking.any(axis=0) if lacking is not None else False)
        if part.any():
            assert lacking is not None
            assert rows.after is not None
            index = np.flatnonzero(part)
            masks = {
                name: lacking[i, index] for i, name in enumerate(rows.table.column_names) if lacking[i, index].any()
            }
            touched.partly.append((_picked(rows.after, key, index), masks))
            touched._add_moved(rows, key, index)
        if rows.before is not None:  # of an update, the old key counts if it was another one
            touched._add(rows.before, key, keep & ~part & np.isin(rows.op, (UPDATE, DELETE)))
        if rows.after is not None:
            touched._add(rows.after, key, keep & ~part & np.isin(rows.op, (CREATE, UPDATE, READ)))
        return touched

    @classmethod
    def from_truncate(cls) -> TouchedKeys:
        """Every row: the table was emptied."""
        return cls(everything=True)

    def _add(self, image: pa.StructArray, key: Sequence[int], rows: Mask) -> None:
        if rows.all():
            self.whole.append([image.field(i) for i in key])
        elif rows.any():
            self.whole.append(_picked(image, key, np.flatnonzero(rows)))

    def _add_moved(self, rows: RowBlock, key: Sequence[int], index: npt.NDArray[np.int64]) -> None:
        """Old keys of updates that changed the key: the row no longer has them, whatever values the event lacks."""
        if rows.before is None or rows.after is None:
            return
        index = index[rows.op[index] == UPDATE]
        old, new = _picked(rows.before, key, index), _picked(rows.after, key, index)
        there, other = encode_keys(old, new)
        if len(moved := np.flatnonzero(there != other)):
            self.whole.append([column.take(pa.array(moved)) for column in old])


def _picked(image: pa.StructArray, key: Sequence[int], index: npt.NDArray[np.int64]) -> Columns:
    picked = pa.array(index)
    return [image.field(i).take(picked) for i in key]


@dataclass(slots=True)
class ChunkWindow:
    """A chunk between its watermarks.

    The reading thread makes it and sets ``chunk``; everything else is the streaming thread's.

    :param number: 1, 2, 3 … within the run
    :param request: number of the signal
    :param marker: id of the row of the signal table whose insertion, or deletion, closes it; ``None`` with read watermarks
    :param floor: the stream's position when it was registered
    :param probe: it has no row, and shows that the table can be read
    :ivar next: the table's scan when this window is written, without its counts
    :ivar gone: deletes of the keys that were looked up, whether they have rows or not; ``key`` names their columns
    :ivar bound: with written watermarks, the end of the log once the closing one was written: a high watermark as well
    :ivar final: the table has no more rows
    :ivar marked: the stream has met one of its written watermarks
    :ivar closed: the stream has reached the high watermark
    :ivar stale: which rows have documents that events have changed since, without saying what these are now
    """

    number: int
    table: TableId
    request: int
    marker: str | None = None
    floor: Position | None = None
    probe: bool = False
    schema: TableSchema | None = None
    order: tuple[str, ...] = ()
    upto: Key | None = None
    chunk: ChunkRows | None = None
    next: TableScan | None = None
    gone: RowBlock | None = None
    key: Sequence[str] = ()
    final: bool = False
    problem: ScanProblem | None = None
    bound: Position | None = None
    marked: bool = False
    closed: bool = False
    waiting: list[TouchedKeys] = field(default_factory=list)
    alive: list[Mask] = field(default_factory=list)
    absent: Mask | None = None
    streamed: list[dict[str, Mask]] = field(default_factory=list)
    stale: list[Mask] = field(default_factory=list)
    keys: set[KeyColumns] = field(default_factory=set)

    @property
    def first_key(self) -> Key | None:
        """Key of the first row, for people to see; ``None`` when there is no row, or none of its columns orders the rows."""
        block = self.chunk.rows[0] if self.chunk is not None and self.chunk.rows else None
        if block is None or block.after is None or not set(self.order) <= set(block.table.column_names):
            return None
        columns = [block.after.field(block.table.column_names.index(name))[:1] for name in self.order]
        # as text, since moments of Python have no nanoseconds
        exact = [c.cast(pa.string()) if pa.types.is_timestamp(c.type) else c for c in columns]
        values = key_to_json([c.to_pylist()[0] for c in exact])
        return [v if isinstance(v, int | float | str) else str(v) for v in values]

    @property
    def is_empty(self) -> bool:
        """Return whether it says nothing about any row."""
        return not len(self.chunk or ()) and self.gone is None

    @property
    def is_unmarked(self) -> bool:
        """Return whether it is closed and has rows, but its watermarks have not come back.

        Then it is not known whether the rows have everything that the stream delivered before.
        """
        return self.closed and self.marker is not None and not self.marked and not self.is_empty

    def record_events(self, touched: TouchedKeys) -> None:
        """Events of the table."""
        self.waiting.append(touched)
        if not touched.everything:
            self.keys.add(touched.key)
        self.remove_superseded_rows()

    def keyed_by(self, key: KeyColumns) -> bool:
        """Return whether all events since the window was registered have this key.

        If not, it is not known which rows they are about, and none may be written.
        """
        return self.keys <= {key}

    def remove_superseded_rows(self) -> None:
        """Remove the rows that known events supersede, once the chunk is read."""
        if self.chunk is None:
            return
        if not self.alive:
            self.alive = [np.ones(len(block), np.bool_) for block in self.chunk.rows]
            self.streamed = [{} for _ in self.chunk.rows]
            self.stale = [np.zeros(len(block), np.bool_) for block in self.chunk.rows]
        if self.gone is not None and self.absent is None:
            self.absent = np.ones(len(self.gone), np.bool_)
            for block in self.chunk.rows:
                _mark_present(self.gone, self.absent, block, self.key)
        for touched in self.waiting:
            if self.gone is not None and self.absent is not None:
                _touch(self.gone, self.absent, touched)
            for block, alive, streamed, stale in zip(
                self.chunk.rows, self.alive, self.streamed, self.stale, strict=True
            ):
                _supersede(block, alive, streamed, stale, touched)
        self.waiting.clear()

    def iterate_remaining_rows(self, key: Sequence[str]) -> Iterator[RowBlock]:
        """Yield the rows that no event has superseded, without those that are :attr:`stale`.

        :param key: names of the key columns
        """
        self.remove_superseded_rows()
        for block, alive, streamed, stale in zip(
            self.chunk.rows if self.chunk else (), self.alive, self.streamed, self.stale, strict=True
        ):
            alive = alive & ~stale
            if streamed:
                block = _without(block, streamed, key)
                lacking = block.unavailable_after
                assert lacking is not None
                apart = [i for i, name in enumerate(block.table.column_names) if name not in key]
                alive = alive & ~lacking[apart].all(axis=0)
            if alive.all():
                yield block
            elif alive.any():
                remaining = select_rows(block, np.flatnonzero(alive))
                remaining.order = np.arange(len(remaining))
                yield remaining

    def stale_keys(self, key: Sequence[str]) -> list[Key]:
        """Keys of the rows that are :attr:`stale`, as the change log has them.

        :param key: names of the key columns
        """
        self.remove_superseded_rows()
        outdated_keys: list[Key] = []
        for block, alive, stale in zip(self.chunk.rows if self.chunk else (), self.alive, self.stale, strict=True):
            if block.after is not None and (again := np.flatnonzero(alive & stale)).size:
                columns = _picked(block.after, [block.table.column_names.index(name) for name in key], again)
                outdated_keys += [
                    list(key_values) for key_values in zip(*[column.to_pylist() for column in columns], strict=True)
                ]
        return outdated_keys

    def build_deletes(self) -> RowBlock | None:
        """Build deletes of the keys that have neither a row nor an event; ``None`` if there are none."""
        self.remove_superseded_rows()
        if self.gone is None or self.absent is None or not self.absent.any():
            return None
        deletes = select_rows(self.gone, np.flatnonzero(self.absent))
        deletes.order = np.arange(len(deletes))
        return deletes


def deletes_of(schema: TableSchema, key: Sequence[str], keys: Sequence[Key], ts_us: int) -> RowBlock:
    """Build deletes of rows of which only the keys are known.

    :param key: names of the key columns
    :param keys: their values, in JSON
    :raises InvalidKeyValue: the columns cannot hold a value
    """
    n, type_ = len(keys), row_struct(schema)
    key_arrays = dict(zip(key, build_key_arrays(keys, [schema.get_column(name) for name in key]), strict=True))
    children = [key_arrays[f.name] if f.name in key_arrays else pa.nulls(n, f.type) for f in type_]
    lacking = np.array(
        [
            name not in key_arrays and not pa.types.is_null(f.type)
            for name, f in zip(schema.column_names, type_, strict=True)
        ]
    )
    return RowBlock(
        table=schema,
        op=np.full(n, DELETE, np.int8),
        before=pa.StructArray.from_arrays(children, fields=list(type_)),
        after=None,
        order=np.arange(n),
        transaction=None,
        ts_us=np.full(n, ts_us, np.int64),
        source={},
        unavailable_before=np.repeat(lacking[:, None], n, axis=1),
    )


def _mark_present(gone: RowBlock, absent: Mask, block: RowBlock, key: Sequence[str]) -> None:
    """Keys that have a row are not absent."""
    assert gone.before is not None
    assert block.after is not None
    mine, theirs = gone.table.column_names, block.table.column_names
    keys = [gone.before.field(mine.index(name)) for name in key]
    if (matches := find_matching_keys(keys, [block.after.field(theirs.index(name)) for name in key])) is not None:
        absent &= ~matches


def _touch(gone: RowBlock, absent: Mask, touched: TouchedKeys) -> None:
    """Keys that an event is about: whether they have a row is up to the event."""
    if touched.everything:
        absent[:] = False
        return
    columns = {column.name: (i, column.type) for i, column in enumerate(gone.table.columns)}
    if gone.before is None or not touched.key or any(columns.get(n, (0, None))[1] != t for n, t in touched.key):
        return  # see _supersede
    mine = [gone.before.field(columns[name][0]) for name, _ in touched.key]
    for theirs in (*touched.whole, *(key for key, _ in touched.partly)):
        if (matches := find_matching_keys(mine, theirs)) is not None:
            absent &= ~matches


def _supersede(block: RowBlock, alive: Mask, streamed: dict[str, Mask], stale: Mask, touched: TouchedKeys) -> None:
    if touched.everything:
        alive[:] = False
        return
    types = {column.name: column.type for column in block.table.columns}
    if block.after is None or not touched.key or any(types.get(name) != type_ for name, type_ in touched.key):
        return  # these have a key that the rows do not have: they are not written (Window.keyed_by)
    names = list(types)
    mine = [block.after.field(names.index(name)) for name, _ in touched.key]
    for columns in touched.whole:
        if (matches := find_matching_keys(mine, columns)) is not None:
            alive &= ~matches
    for columns, lacking in touched.partly:
        ours, theirs = encode_keys(mine, columns)
        order = np.argsort(theirs, kind="stable")
        at = np.searchsorted(theirs[order], ours)
        hit = (at < len(order)) & (theirs[order[np.minimum(at, len(order) - 1)]] == ours)
        if not hit.any():
            continue
        documents = block.table.documents
        if documents is not None and documents.updates is not None:
            lacks = theirs[lacking[documents.body]] if documents.body in lacking else theirs[:0]
            stale |= np.isin(ours, lacks)
        for name in names:
            mask = lacking.get(name)
            present = streamed.setdefault(name, np.zeros(len(block), np.bool_))
            for row in np.flatnonzero(hit):  # few: events that lack values, of rows of one chunk
                same = theirs == ours[row]
                present[row] |= True if mask is None else bool((~mask[same]).any())


def _without(block: RowBlock, streamed: dict[str, Mask], key: Sequence[str]) -> RowBlock:
    """Return the block, with the streamed columns marked as unavailable."""
    names = block.table.column_names
    mask = np.zeros((len(names), len(block)), np.bool_)
    for i, name in enumerate(names):
        if name not in key and name in streamed:
            mask[i] = streamed[name]
    if block.unavailable_after is not None:
        mask |= block.unavailable_after
    assert block.after is not None
    children = [_nulled(block.after.field(i), mask[i]) for i in range(len(names))]
    image = pa.StructArray.from_arrays(children, fields=list(block.after.type))
    return replace(block, after=image, unavailable_after=mask)


def _nulled(column: pa.Array, mask: Mask) -> pa.Array:
    if not mask.any():
        return column
    index = np.arange(len(column))
    return column.take(pa.array(index, mask=mask))


# -- keys -------------------------------------------------------------------------------------------------------------


def find_matching_keys(mine: Columns, others: Columns) -> Mask | None:
    """Return which of some keys are among others; ``None`` = none of them."""
    if not len(mine[0]) or not len(others[0]):
        return None
    if len(mine) == 1 and _plain_numbers(mine[0], others[0]):
        a, b = mine[0].to_numpy(), others[0].to_numpy()
        # most events are far from the chunk, which is a stretch of the keys
        near = b[(b >= a.min()) & (b <= a.max())]
        return np.isin(a, near) if len(near) else None
    a, b = encode_keys(mine, others)
    matches: Mask = np.isin(a, b)
    return matches if matches.any() else None


def _plain_numbers(a: pa.Array, b: pa.Array) -> bool:
    """Return whether two columns are integers of one type without NULL, which no number stands for."""
    return pa.types.is_integer(a.type) and a.type == b.type and not a.null_count and not b.null_count


def encode_keys(mine: Columns, others: Columns) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a number for each key, the same for equal ones."""
    n = len(mine[0])
    code = np.zeros(n + len(others[0]), np.int64)
    for a, b in zip(mine, others, strict=True):
        both = pa.concat_arrays([a, b if b.type == a.type else b.cast(a.type)]).dictionary_encode()
        index = both.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        code = np.unique(code * (len(both.dictionary) + 1) + index, return_inverse=True)[1]
    return code[:n], code[n:]
