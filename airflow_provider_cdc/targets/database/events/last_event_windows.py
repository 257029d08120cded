"""Steps of many files at once: of each key of a window of events, only the last event is read and written.

Keys are read first, which is little, and then the rows of those events that are the last of their key; a row that comes and goes within a window is never written. The
steps are as large as the database likes them, however small the files are. Where events in between matter, :mod:`.event_operation_reader` has those of each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog, committed_ms
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode, PrimaryKeyMode
from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation, find_first_last_per_key
from airflow_provider_cdc.targets.database.events.event_reader import (
    WHOLE_GROUP,
    TableEvents,
    files_of,
    read_file_events,
)
from airflow_provider_cdc.targets.database.events.outdated_type_events import changes_types
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable

WINDOW_EVENTS, WINDOW_BYTES = 500_000, 64 << 20
"""A window ends with the row group after which it has so many events, or keys of so many bytes."""
STEP_ROWS, STEP_BYTES = 50_000, 16 << 20
"""A step has so many rows, or bytes, at least, if there are as many, and at most those that are read at once more."""
_HELD_BYTES = 1 << 20
"""A file of the change log that is not larger is read once only, and its events are held, up to :data:`WINDOW_BYTES` of them."""
_NOT_KEYS = ("float", "double", "list", "struct", "null")
"""Types of key columns that arrays compare in another way than databases do."""


def can_use_windows(pending: PendingBatches, table: DatabaseTargetTable, config: DatabaseTargetConfig) -> bool:
    """Check whether nothing but the last event of each key matters, and there is more than one part of a file."""
    return (
        (len(pending.files) > 1 or pending.event_count > WHOLE_GROUP)
        and config.insert_mode is InsertMode.UPSERT
        and config.primary_key_mode is PrimaryKeyMode.RECORD_KEY
        and pending.name_takeover is None
        and "t" not in pending.count_operations()
        and not any(file.sparse_columns for _, file in pending.files)
        and not changes_types(pending, table)
        and not any(field.column.type.startswith(_NOT_KEYS) for field in table.key_columns)
    )


@dataclass(slots=True)
class _RowGroup:
    """A row group.

    :param keys: of its events, in their order
    :param whole: its events with their rows, some at a time, if they are held
    """

    file: DataFile
    group: int
    op: npt.NDArray[np.object_]
    seq: npt.NDArray[np.int64]
    keys: pa.Table
    whole: list[TableEvents]


class EventWindows:
    """The steps of pending batches that :func:`can_use_windows`. The table must have no unique columns besides the key: rows are not written in their order.

    :param committed: as of :func:`~airflow_provider_cdc.targets.database.events.event_operation_reader.read_operations`
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        pending: PendingBatches,
        table: DatabaseTargetTable,
        config: DatabaseTargetConfig,
        *,
        committed: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._changelog, self._connector, self._pending, self._table = changelog, connector, pending, table
        self._deletes, self._committed = config.delete_enabled, committed
        self._only_keys = replace(table, fields=table.key_columns)

    def read_operations(self) -> Iterator[TableOperation]:
        """Yield of each window first the deletes, then rows that change and new ones.

        :raises ChangeLogDamaged: a file differs from its manifest
        """
        window, events, size = list[_RowGroup](), 0, 0
        for part in self._parts():
            window.append(part)
            events += len(part.op)
            size += part.keys.nbytes + sum(some.rows.nbytes for some in part.whole)
            if events >= WINDOW_EVENTS or size >= WINDOW_BYTES:
                yield from self._window(window)
                window, events, size = [], 0, 0
        if window:
            yield from self._window(window)

    def _parts(self) -> Iterator[_RowGroup]:
        for file, opened in self._changelog.open_files(self._connector, files_of(self._pending)):
            small = file.bytes <= _HELD_BYTES
            with opened:
                yield from self._parts_of(file, opened, small=small)

    def _parts_of(self, file: DataFile, opened: Any, *, small: bool) -> Iterator[_RowGroup]:
        metadata = pq.read_metadata(opened)
        self._committed(committed_ms(metadata))
        for group in range(metadata.num_row_groups):
            events = list(self._read(file, group, only_keys=not small, opened=opened))
            if events:
                names = [field.name for field in self._table.key_columns]
                keys = pa.concat_tables(some.rows.select(names) for some in events)
                op, seq = (np.concatenate([getattr(some, name) for some in events]) for name in ("op", "seq"))
                yield _RowGroup(file, group, op, seq, keys, events if small else [])

    def _read(self, file: DataFile, group: int, *, only_keys: bool, opened: Any = None) -> Iterator[TableEvents]:
        """Read the relevant events of a row group, some at a time."""
        table, arguments = self._only_keys if only_keys else self._table, (self._changelog, self._connector, file)
        for some in read_file_events(
            *arguments, self._pending, table, groups=[group], only_keys=only_keys, opened=opened
        ):
            selected = some if self._deletes else some.select_events(some.op != "d")
            if len(selected.op):
                yield selected

    def _window(self, parts: list[_RowGroup]) -> Iterator[TableOperation]:
        key = [field.name for field in self._table.key_columns]
        keys = pa.concat_tables(part.keys for part in parts)
        first, last = find_first_last_per_key(keys, key)
        new, gone = self._has_operation(parts, "c", "r")[first], self._has_operation(parts, "d")[last]
        if gone.any():
            seq = np.concatenate([part.seq for part in parts])[last[gone]]
            yield TableOperation("delete", keys.take(pa.array(last[gone])), seq)
        kind_per_event = np.zeros(keys.num_rows, np.int8)  # 1: changes its row, 2: makes it
        kind_per_event[last[~gone]] = np.where(new[~gone], 2, 1)
        del keys, first, last, new, gone
        pa.default_memory_pool().release_unused()  # before the rows come, which are more
        yield from self._written(parts, kind_per_event)

    def _has_operation(self, parts: list[_RowGroup], *letters: str) -> npt.NDArray[np.bool_]:
        """Check whether events are of some kinds."""
        return np.concatenate([np.isin(part.op, letters) for part in parts])

    def _written(self, parts: list[_RowGroup], kind_per_event: npt.NDArray[np.int8]) -> Iterator[TableOperation]:
        waiting, begin = {1: list[TableEvents](), 2: list[TableEvents]()}, 0
        for part in parts:
            end = begin + len(part.op)
            if kind_per_event[begin:end].any():
                for some in part.whole or self._read(part.file, part.group, only_keys=False):
                    kinds = kind_per_event[begin : begin + len(some.op)]
                    begin += len(some.op)
                    for kind, held in waiting.items():
                        if (chosen := kinds == kind).any():
                            held.append(some.select_events(chosen))
                            if _enough(held):
                                yield _step(held, new=kind == 2)
                                held.clear()
                assert begin == end
            begin, part.whole = end, []
        for kind, held in waiting.items():
            if held:
                yield _step(held, new=kind == 2)


def _enough(held: list[TableEvents]) -> bool:
    return sum(len(part.op) for part in held) >= STEP_ROWS or sum(part.rows.nbytes for part in held) >= STEP_BYTES


def _step(events: list[TableEvents], *, new: bool) -> TableOperation:
    rows = pa.concat_tables(part.rows for part in events)
    return TableOperation("write", rows, np.concatenate([part.seq for part in events]), new)
