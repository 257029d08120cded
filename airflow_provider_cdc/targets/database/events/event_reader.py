"""Events of the change log as a table's rows: the columns of the target, read from the files of a topic, a part of a row group at a time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog, committed_ms
from airflow_provider_cdc.changelog.reading.partial_document_updates import find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, trace_columns
from airflow_provider_cdc.core.errors import ChangeLogDamaged, TargetError
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.table_schema import Column, arrow_type
from airflow_provider_cdc.targets.database.schema.target_table import (
    COORDINATES,
    PREVIOUS,
    DatabaseColumn,
    DatabaseTargetTable,
    exclude_columns,
)

WHOLE_GROUP = 65_536
"""Most events that are processed together."""
BEFORE = "before"
"""The document before an event."""
_TRIED = 2000
"""Rows by which the width of a table is known."""


@dataclass(frozen=True, slots=True)
class TableEvents:
    """Some events, in their order.

    :param rows: with the columns of the target; of a delete, the key
    :param left_out: columns that an event does not have, of those that any of them lacks; one text for each event, empty if it has all
    :param previous: keys before, by the names of :data:`PREVIOUS`, where events change a key and leave values out: these are in the row that had the key before
    :param moves: which ones do
    :param unfit: for each event, the column with a value that is none of the type which the source has given the column since; empty if there is none
    :param partial: where updates may have the changes of a document instead of the document: :data:`BEFORE`, and the event columns of the schema
    """

    op: npt.NDArray[np.object_]
    seq: npt.NDArray[np.int64]
    rows: pa.Table
    left_out: npt.NDArray[np.object_] | None
    previous: pa.Table | None = None
    moves: npt.NDArray[np.bool_] | None = None
    partial: pa.Table | None = None
    unfit: npt.NDArray[np.object_] | None = None

    def select_events(self, chosen: npt.NDArray[Any]) -> TableEvents:
        """Return some of the events.

        :param chosen: which ones: truth values, or numbers in order, each once
        """
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        if len(at) == len(self.op):
            return self
        numbers = pa.array(at)
        left_out = None if self.left_out is None else self.left_out[at]
        partial = None if self.partial is None else self.partial.take(numbers)
        unfit = None if self.unfit is None or not self.unfit[at].any() else self.unfit[at]
        selected = TableEvents(
            self.op[at], self.seq[at], self.rows.take(numbers), left_out, partial=partial, unfit=unfit
        )
        if self.previous is None or self.moves is None or not self.moves[at].any():
            return selected
        return replace(selected, previous=self.previous.take(numbers), moves=self.moves[at])


def files_of(pending: PendingBatches) -> list[DataFile]:
    """List the files of a topic, in the order of their events.

    :raises ChangeLogDamaged: two of them have events of the same time
    """
    files = sorted((file for _, file in pending.files), key=lambda file: file.first_seq)
    for earlier, later in itertools.pairwise(files):
        if later.first_seq <= earlier.last_seq:
            raise ChangeLogDamaged(
                f"The events of two files of {pending.topic} overlap: {earlier.path} and {later.path}.",
                where=f"batches {pending.first} to {pending.last}",
                safe="The table was not changed.",
                remedy=f"snapshot the table again with `{pending.read_again}`",
            )
    return files


def events_after(
    changelog: ChangeLog,
    connector: str,
    pending: PendingBatches,
    table: DatabaseTargetTable,
    after: int,
    committed: Callable[[int], None],
) -> Iterator[TableEvents]:
    """Read the events of pending batches, in their order.

    :param after: the number of the last one that is left out
    :param committed: as of :func:`read_file_events`
    :raises ChangeLogDamaged: a file differs from its manifest
    """
    later = [file for file in files_of(pending) if file.last_seq > after]
    for file, opened in changelog.open_files(connector, later):
        with opened:
            for events in read_file_events(
                changelog, connector, file, pending, table, committed=committed, opened=opened
            ):
                yield events if file.first_seq > after else events.select_events(events.seq > after)


def read_file_events(
    changelog: ChangeLog,
    connector: str,
    file: DataFile,
    pending: PendingBatches,
    table: DatabaseTargetTable,
    *,
    share: int = 0,
    share_count: int = 1,
    groups: Sequence[int] | None = None,
    only_keys: bool = False,
    most: int | None = None,
    committed: Callable[[int], None] = lambda _: None,
    opened: Any = None,
) -> Iterator[TableEvents]:
    """Read the events of a file, in their order.

    :param share: which one of its shares is read
    :param share_count: how many shares it has; each has some of its row groups
    :param groups: its row groups that are read, instead of those of a share
    :param only_keys: only the columns of keys are read, and the table has only these
    :param most: events that come together; :data:`WHOLE_GROUP` by default
    :param committed: gets the time at which the newest of the file's events was committed, in ms since 1970
    :param opened: the file, if it is open already
    """
    with changelog.open_file(connector, file) if opened is None else contextlib.nullcontext(opened) as there_opened:
        source = pq.ParquetFile(there_opened)
        committed(committed_ms(source.metadata))
        there = set(source.schema_arrow.names)
        column_names = [name for name in ("seq", "op", "key", "after", "unavailable", "previous_key") if name in there]
        documents = find_partial_documents(pending) if file.sparse_columns else None
        if documents is not None:
            column_names += [name for name in (BEFORE, *(column.name for column in documents.columns)) if name in there]
        if only_keys:
            origins = trace_columns(pending, file.schema_version)
            images = [f"after.{origins[field.column.name].column}" for field in table.key_columns]
            column_names = ["seq", "op", *(["key"] if "key" in there else []), *images]
        chosen = range(share, source.num_row_groups, share_count) if groups is None else groups
        for batch in source.iter_batches(most or WHOLE_GROUP, row_groups=chosen, columns=column_names):
            yield _build_events(pa.Table.from_batches([batch]), file, pending, table)


def estimate_row_bytes(
    changelog: ChangeLog, connector: str, pending: PendingBatches, table: DatabaseTargetTable
) -> float:
    """Estimate the bytes of a row in Arrow's form, by some of the rows of a topic's largest file.

    :raises ChangeLogDamaged: the file differs from its manifest
    """
    _, largest = max(pending.files, key=lambda entry: entry[1].rows)
    some = next(read_file_events(changelog, connector, largest, pending, table, most=_TRIED), None)
    return 0.0 if some is None else some.rows.nbytes / max(some.rows.num_rows, 1)


def newest_commit(changelog: ChangeLog, connector: str, pending: PendingBatches) -> int:
    """Return the time at which the newest of a topic's events was committed at the source.

    It is in ms since 1970; 0 if that is not known.
    """
    newest = 0
    for _, opened in changelog.open_files(connector, (file for _, file in pending.files)):
        with opened:
            newest = max(newest, committed_ms(pq.read_metadata(opened)))
    return newest


def _build_events(events: pa.Table, file: DataFile, pending: PendingBatches, table: DatabaseTargetTable) -> TableEvents:
    key, after = _fields(events, "key"), _fields(events, "after")
    origins = trace_columns(pending, file.schema_version)
    columns, unfit = {}, np.full(events.num_rows, "", object)
    for field in table.fields:
        value, bad = _value(field, origins, key, after, events, file)
        if bad is not None:
            if field.key or file.sparse_columns:
                raise unfit_value(table, field.name, int(events["seq"].to_numpy()[bad][0]))
            unfit[bad] = field.name
        # databases take both zeros as one key
        columns[field.name] = (
            pc.add(value, 0.0).cast(value.type) if field.key and pa.types.is_floating(value.type) else value
        )
    op = events["op"].to_numpy(zero_copy_only=False)
    left_out = None
    if file.sparse_columns:
        final = {
            origin.column: field.name
            for field in table.fields
            if (origin := origins.get(field.column.name)) is not None
        }
        left_out = _left_out(events, final)
    partial = None
    if (documents := find_partial_documents(pending) if file.sparse_columns else None) is not None:
        before = _fields(events, BEFORE).get(documents.body, pa.nulls(events.num_rows, pa.string()))
        changes = {c.name: events[c.name] for c in documents.columns if c.name in events.column_names}
        partial = pa.table({BEFORE: before, **changes})
    table_events = TableEvents(op, events["seq"].to_numpy(), pa.table(columns), left_out, partial=partial)
    if unfit.any():
        table_events = replace(table_events, unfit=unfit)
    return table_events if left_out is None else _with_moves(table_events, events, left_out, origins, table)


def _value(
    field: DatabaseColumn, origins: Any, key: dict[str, Any], after: dict[str, Any], events: pa.Table, file: DataFile
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_] | None]:
    """Read a column of the target, for all events.

    If an event has a value that is none of the column's type, also return where there are such values.
    """
    column, rows = field.column, events.num_rows
    if column in COORDINATES:
        constant = {"__connect_topic": pa.scalar(file.topic), "__connect_partition": pa.scalar(0, pa.int32())}
        coordinates = (
            events["seq"] if column is COORDINATES[2] else pa.chunked_array([pa.repeat(constant[column.name], rows)])
        )
        return coordinates, None
    origin = origins[column.name]
    type_ = arrow_type(column.type)
    if origin.column is None:
        value = pa.scalar(origin.fill, pa.string()).cast(type_) if origin.fill is not None else pa.scalar(None, type_)
        return pa.chunked_array([pa.repeat(value, rows)]), None
    value = after.get(origin.column)
    if origin.column in key:  # images may leave keys out, and deletes have no image
        value = key[origin.column] if value is None else pc.coalesce(value, key[origin.column])
    try:
        return _typed(value, column, rows), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _fitting(value, type_)


def _typed(value: pa.ChunkedArray | None, column: Column, rows: int) -> pa.ChunkedArray:
    type_ = arrow_type(column.type)
    if value is None:
        return pa.chunked_array([pa.nulls(rows, type_)])
    return value if value.type == type_ else value.cast(type_)


def _fitting(value: pa.ChunkedArray, type_: pa.DataType) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """Return the values that are of a type, NULL for all others; and which ones these are."""
    encoded = value.combine_chunks().dictionary_encode()
    casts = []
    for distinct in encoded.dictionary:
        try:
            casts.append(distinct.cast(type_).as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            casts.append(None)
    converted = pa.array(casts, type_).take(encoded.indices)
    bad = pc.and_(encoded.is_valid(), converted.is_null())
    return pa.chunked_array([converted]), bad.to_numpy(zero_copy_only=False)


def unfit_value(table: DatabaseTargetTable, column: str, seq: int) -> TargetError:
    """Build the error for a value that is none of the type which the source has given its column since."""
    return TargetError(
        f"The type of the column {column} was changed at the source, and an earlier value does not fit the new type.",
        where=f"{table.topic}, event {seq}",
        safe="The table was not changed.",
        remedy=f"leave the column out: {exclude_columns(table.topic, next(f.column.name for f in table.fields if f.name == column))}",
    )


def _left_out(events: pa.Table, final: dict[str | None, str]) -> npt.NDArray[np.object_]:
    """Return for each event the columns of the target that it has no value of."""
    if "unavailable" not in events.column_names:
        return np.full(events.num_rows, "", object)
    unavailable: Sequence[list[str] | None] = events["unavailable"].to_pylist()
    texts = [
        "\0".join(sorted(final[name] for name in names if name in final)) if names else "" for names in unavailable
    ]
    return np.array(texts, object)


def _with_moves(
    table_events: TableEvents,
    events: pa.Table,
    left_out: npt.NDArray[np.object_],
    origins: Any,
    table: DatabaseTargetTable,
) -> TableEvents:
    """With the keys before, if an event changes a key and leaves values out."""
    if "previous_key" not in events.column_names or not table.key_columns:
        return table_events
    moves = events["previous_key"].is_valid().to_numpy(zero_copy_only=False) & (left_out != "")
    if not moves.any():
        return table_events
    before = _fields(events, "previous_key")
    columns = {
        PREVIOUS.format(at): _typed(before.get(origins[field.column.name].column), field.column, events.num_rows)
        for at, field in enumerate(table.key_columns)
    }
    return replace(table_events, previous=pa.table(columns), moves=moves)


def _fields(events: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a column of structs. Those of a missing struct are NULL."""
    if name not in events.column_names or not pa.types.is_struct(events[name].type):
        return {}
    return {field.name: pc.struct_field(events[name], [i]) for i, field in enumerate(events[name].type)}
