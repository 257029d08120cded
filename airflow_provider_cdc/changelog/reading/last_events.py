"""Reduces the pending batches of a topic to the last event of each key, on Arrow arrays.

For batches that fit into the memory of one machine: their keys are held at once, their row images one row group after the other. A caller
that has more than that, or what :func:`not_on_arrays` names, reduces elsewhere, and gets the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema, arrow_type
from airflow_provider_cdc.core.read_ahead import map_ahead

_NOT_KEYS = ("float", "double", "list", "struct", "null")
"""Types of key columns that arrays compare in another way than tables do (NaN, -0.0), or not at all."""
EVENT_FACTS: Mapping[str, tuple[tuple[str, ...], pa.DataType]] = {
    "seq": (("seq",), pa.int64()),
    "op": (("op",), pa.string()),
    "commit_ts": (("source", "ts_us"), pa.timestamp("us", tz="UTC")),
    "captured_ts": (("ts_us",), pa.timestamp("us", tz="UTC")),
    "transaction_id": (("transaction", "id"), pa.string()),
    "snapshot": (("source", "snapshot"), pa.string()),
}
"""Facts of events besides their rows: the place in the files and the type of each. Numbers of microseconds become times."""


def not_on_arrays(pending: PendingBatches) -> str:
    """Why these batches cannot be reduced on arrays; empty if they can.

    >>> not_on_arrays(pending)
    'the table has no key'
    """
    schema = pending.schema
    odd = [name for name in schema.key if schema.get_column(name).type.startswith(_NOT_KEYS)]
    sparse = sorted({name for _, file in pending.files for name in file.sparse_columns})
    if not schema.key:
        return "the table has no key"
    if odd:
        return f"the key has columns of types other than numbers, strings and times: {', '.join(odd)}"
    if len({file.schema_version for _, file in pending.files}) > 1:
        return "the table's columns change within the batches"
    if "t" in pending.count_operations():
        return "the table is emptied within the batches"
    if sparse:
        return f"events omit values of {', '.join(sparse)}"
    return ""


@dataclass(frozen=True, slots=True)
class LastEvents:
    """The last event of each key; implements :class:`airflow_provider_cdc.targets.lake.formats.table_values.KeyedChanges`.

    :param schema: of all rows
    :param keys: the key columns; each key once
    :param created: for each key, whether its first event is a create: the table does not have it unless something else put it there
    :param deleted: for each key, whether its last event is a delete
    """

    schema: TableSchema
    keys: pa.Table
    created: npt.NDArray[np.bool_]
    deleted: npt.NDArray[np.bool_]
    _changelog: ChangeLog
    _connector: str
    _files: tuple[DataFile, ...]
    _last: npt.NDArray[np.bool_]
    """For each event, in the order of the files: whether it is the last of its key, and leaves a row."""
    _gone: npt.NDArray[np.bool_]
    """The same: whether it is the last of its key, and a delete."""
    source_version: str = ""

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of rows."""
        return self.schema.column_names

    @property
    def inserts_only(self) -> bool:
        """Check whether all keys are new ones, by their events."""
        return bool(self.created.all())

    def number_of_rows(self) -> int:
        """Rows that the batches leave."""
        return int(self._last.sum())

    def number_of_deletes(self) -> int:
        """Rows that were there before the batches, and are not after them."""
        return int((self.deleted & ~self.created).sum())

    def read_rows(self) -> Iterator[pa.Table]:
        """Yield the rows that the batches leave, a row group at a time.

        They have the schema's columns and their types in the change log.
        """
        for rows, _ in self.read_images():
            yield rows

    def read_images(self, names: Collection[str] = (), *, deleted: bool = False) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the same as :meth:`read_rows`, and beside them the columns that describe their events.

        :param names: of :data:`EVENT_FACTS`
        :param deleted: also those that are gone, with the image that their deletes have of them
        """
        chosen = self._last | self._gone if deleted else self._last
        images = ["after", "key", *(["before", "op"] if deleted else [])]
        columns = list(dict.fromkeys([*images, *(".".join(EVENT_FACTS[name][0]) for name in names)]))
        ends = np.cumsum([file.rows for file in self._files])
        begins = {file.path: int(end) - file.rows for file, end in zip(self._files, ends, strict=True)}
        wanted = [f for f in self._files if chosen[begins[f.path] : begins[f.path] + f.rows].any()]
        for file, opened in self._changelog.open_files(self._connector, wanted):
            first = begins[file.path]
            with opened:
                source = pq.ParquetFile(opened)
                for group in range(source.num_row_groups):
                    number = source.metadata.row_group(group).num_rows
                    selected = chosen[first : first + number]
                    first += number
                    if selected.any():
                        events = source.read_row_group(group, columns=columns)
                        events = events if selected.all() else events.filter(pa.array(selected))
                        yield self._images(events, deleted=deleted), _event_columns(events, names)

    def _images(self, events: pa.Table, *, deleted: bool) -> pa.Table:
        image, key = _fields(events, "after"), _fields(events, "key")
        if deleted:
            gone, before = pc.equal(events["op"], "d"), _fields(events, "before")
            image = {name: pc.if_else(gone, before[name], value) for name, value in image.items()}
        columns = []
        for column in self.schema.columns:
            value = image.get(column.name)
            if column.name in self.schema.key:  # images may leave keys out
                value = key[column.name] if value is None else pc.coalesce(value, key[column.name])
            columns.append(_typed(value, column, events.num_rows))
        return pa.table(columns, schema=arrow_schema(self.schema))


def reduce_to_last_events(changelog: ChangeLog, connector: str, pending: PendingBatches) -> LastEvents:
    """Find the last event of each key.

    :raises ValueError: it cannot be done on arrays, see :func:`not_on_arrays`
    :raises ChangeLogDamaged: a file is not what its manifest says
    """
    if reason := not_on_arrays(pending):
        raise ValueError(f"{pending.topic}: {reason}")
    files = tuple(file for _, file in pending.files)
    schema = pending.schemas[files[0].schema_version] if files else pending.schema
    events = list(map_ahead(lambda file: _read(changelog, connector, file, schema), files))
    if not events:
        nothing = np.zeros(0, np.bool_)
        empty = arrow_schema(schema, schema.key).empty_table()
        return LastEvents(schema, empty, nothing, nothing, changelog, connector, files, nothing, nothing)
    keys = pa.concat_tables(part.keys for part in events)
    created, deleted = (np.concatenate([getattr(part, name) for part in events]) for name in ("created", "deleted"))
    leaves, gone = np.zeros(keys.num_rows, np.bool_), np.zeros(keys.num_rows, np.bool_)
    first, last = _ends(keys, schema.key, np.concatenate([part.seq for part in events]))
    if len(last) == keys.num_rows:  # each key has one event
        leaves, gone = ~deleted, deleted
    else:
        keys, created, deleted = keys.take(pa.array(last)), created[first], deleted[last]
        leaves[last[~deleted]], gone[last[deleted]] = True, True
    return LastEvents(schema, keys, created, deleted, changelog, connector, files, leaves, gone)


def arrow_schema(schema: TableSchema, names: Sequence[str] | None = None) -> pa.Schema:
    """Columns of a table and their types in the change log.

    :param names: only these
    """
    field_names = schema.column_names if names is None else names
    return pa.schema([pa.field(name, arrow_type(schema.get_column(name).type)) for name in field_names])


@dataclass(frozen=True, slots=True)
class _FileEvents:
    """Events of one file, in its order."""

    keys: pa.Table
    seq: npt.NDArray[np.int64]
    created: npt.NDArray[np.bool_]
    deleted: npt.NDArray[np.bool_]


def _read(changelog: ChangeLog, connector: str, file: DataFile, schema: TableSchema) -> _FileEvents:
    """Read the events of a file, without their rows."""
    with changelog.open_file(connector, file) as opened:
        try:
            events = pq.ParquetFile(opened).read(columns=["seq", "op", "key"])
        except (pa.ArrowInvalid, OSError) as e:
            raise ChangeLogDamaged(
                f"A file of the change log cannot be read: {e}",
                where=changelog.file_uri(connector, file),
                safe="The table was not changed; targets keep the batches they have applied.",
                remedy="restore the file from a backup, or snapshot the connector's tables again under a new connector name",
            ) from e
    key = _fields(events, "key")
    keys = [_typed(key[name], schema.get_column(name), events.num_rows) for name in schema.key]
    created, deleted = (pc.equal(events["op"], letter).to_numpy() for letter in "cd")
    return _FileEvents(
        pa.table(keys, schema=arrow_schema(schema, schema.key)), events["seq"].to_numpy(), created, deleted
    )


def _ends(keys: pa.Table, names: Sequence[str], seq: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """For each key, where its first and its last event are."""
    order = None if (np.diff(seq) > 0).all() else np.argsort(seq, kind="stable")
    at = np.arange(len(seq)) if order is None else np.empty(len(seq), np.int64)
    if order is not None:
        at[order] = np.arange(len(seq))
    plain = [f"k{i}" for i in range(len(names))]
    numbered = keys.rename_columns(plain).append_column("at", pa.array(at))
    ends = numbered.group_by(plain).aggregate([("at", "min"), ("at", "max")])
    first, last = ends["at_min"].to_numpy(), ends["at_max"].to_numpy()
    return (first, last) if order is None else (order[first], order[last])


def _fields(events: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a column of structs. Those of a missing struct are NULL."""
    structs = events[name]
    return {field.name: pc.struct_field(structs, [i]) for i, field in enumerate(structs.type)}


def _event_columns(events: pa.Table, names: Collection[str]) -> pa.Table:
    columns = {}
    for fact in names:
        (head, *inner), type_ = EVENT_FACTS[fact]
        # a column that a file does not have is NULL
        value = events[head] if head in events.column_names else None
        for name in inner:
            value = None if value is None else _fields(events, head).get(name)
        columns[fact] = pa.nulls(events.num_rows, type_) if value is None else value.cast(type_)
    return pa.table(columns)


def _typed(value: pa.ChunkedArray | None, column: Column, rows: int) -> pa.ChunkedArray:
    type_ = arrow_type(column.type)
    if value is None:
        return pa.chunked_array([pa.nulls(rows, type_)])
    return value if value.type == type_ else value.cast(type_)
