"""Writes the Parquet files of one batch in a separate thread, so that decoding continues meanwhile."""

from __future__ import annotations

import queue
import threading
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.part_file_buffer import ARRAY_BYTES, PartFile, UnwrittenEvents, arrays_of
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.spi.source import VARIED

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 32 << 20
FILE_BYTES = 512 << 20
"""Size of the events in memory at which a file is closed and the next one begun."""
QUEUE_BYTES = 8 << 20
"""Bytes of events that may wait for the writing thread."""
WAITING_BYTES = 48 << 20
"""Bytes of events that may wait for row groups, all files together: beyond it the largest ones are written, however small."""
PACKED_BYTES = 1 << 20
"""Events of a file that take no more are packed instead, and written if that is not enough: a file for each few rows costs more."""
OPEN_FILES = 32
"""How many files are open at once: beyond it, the one that was least recently written is finished, and its topic gets another file."""
COMMITTED = "source.ts_ms"
"""When an event was committed at the source. Its highest value is among a file's statistics: readers see how fresh a file is without its rows."""


class ParquetBatchWriter:
    """Writes events of one batch to Parquet files; implements :class:`airflow_provider_cdc.core.spi.store_interfaces.BatchWriter`.

    :param folder: the batch's folder, relative to the storage's root
    :param writer: unique id of the run, part of every file name
    """

    def __init__(self, storage: Storage, folder: tuple[str, ...], writer: str) -> None:
        self._storage, self._folder, self._writer = storage, folder, writer
        self._parts: dict[tuple[str, int, bool], PartFile] = {}
        self._open: dict[tuple[str, int, bool], PartFile] = {}  # those with a file, the least recently written first
        self._touched: list[PartFile] = []  # since the mark
        self._waiting_bytes = 0
        self._closed: list[PartFile] = []
        self._marked = True  # at the beginning
        self._marked_bytes = 0
        self._arrays: dict[tuple[str, int], int] = {}
        self._numbers = 0
        self.buffered_bytes = 0
        self._error: BaseException | None = None
        self._queue: queue.Queue[tuple[EventBatch, int] | Literal["mark", "rollback", "settle", "finish"]] = (
            queue.Queue()
        )
        self._room = threading.Condition()
        self._queued = 0
        self._thread = threading.Thread(target=self._work, name="cdc-parquet", daemon=True)
        self._thread.start()

    def write(self, batch: EventBatch) -> None:
        arrays = self._arrays.get((batch.topic, batch.schema.version)) or self._count_arrays(batch)
        bytes_ = batch.events.nbytes
        size = bytes_ + arrays * ARRAY_BYTES
        with self._room:
            self._room.wait_for(lambda: self._queued < QUEUE_BYTES or self._error is not None)
            self._queued += size
        self._raise()
        self.buffered_bytes += bytes_
        self._queue.put((batch, size))

    def set_savepoint(self) -> None:
        self._marked_bytes = self.buffered_bytes
        self._queue.put("mark")

    def rollback(self) -> None:
        self.buffered_bytes = self._marked_bytes
        self._queue.put("rollback")

    def release_savepoint(self) -> None:
        self._marked_bytes = self.buffered_bytes
        self._queue.put("settle")

    def finish_files(self) -> list[DataFile]:
        self._join()
        self._raise()
        return [self._describe(part) for part in self._closed]

    def discard_files(self) -> None:
        self._join()
        for part in (*self._closed, *self._parts.values()):
            part.discard()

    def _count_arrays(self, batch: EventBatch) -> int:
        count = self._arrays[batch.topic, batch.schema.version] = arrays_of(batch.events.schema)
        return count

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        self._queue.put("finish")
        self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        """Handle the queue until ``finish_files``. After an error, only empty it, so that no caller waits for ever."""
        while True:
            item = self._queue.get()
            try:
                if self._error is None:
                    self._handle(item)
            except BaseException as e:  # raised again by the next call of the owner
                self._error = e
            finally:
                with self._room:
                    if isinstance(item, tuple):
                        self._queued -= item[1]
                    self._room.notify_all()
            if item == "finish":
                return

    def _handle(self, item: tuple[EventBatch, int] | str) -> None:
        if isinstance(item, tuple):
            self._add(*item)
            return
        if item == "rollback":
            self._take_back()
            return
        for part in self._touched:
            part.confirm_events()
        self._touched, self._marked = [], item == "mark"
        if item == "finish":
            while self._parts:  # to close one that has no file yet closes another one, if too many are open
                self._close(next(iter(self._parts.values())))

    def _take_back(self) -> None:
        """Forget everything since the mark; the next events may be taken back, too."""
        for part in self._touched:
            if part.new:
                self._waiting_bytes -= part.waiting_bytes
                self._leave(part)
                part.discard()
            else:
                self._waiting_bytes -= part.discard_open_events()
        self._closed = [part for part in self._closed if not part.new]
        self._touched = []

    def _add(self, batch: EventBatch, size: int) -> None:
        part = self._parts.get((batch.topic, batch.schema.version, batch.passing))
        if part is None:
            part = self._begin(batch.topic, batch.schema.version, batch.passing, batch.events.schema)
        elif self._marked and part.open_summary is None and not part.new:
            self._touched.append(part)
        part.add_batch(batch, size, marked=self._marked)
        self._waiting_bytes += size
        rows, whole = part.waiting.rows + part.open.rows, part.waiting.written_bytes + part.open.written_bytes
        if rows >= ROW_GROUP_ROWS or whole >= ROW_GROUP_BYTES:
            part = self._flush(part)
            if part.bytes >= FILE_BYTES:
                self._close(part)
        while self._waiting_bytes > WAITING_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Have the events that take the most memory take less, or none."""
        for part in sorted(self._parts.values(), key=lambda part: part.waiting_bytes, reverse=True):
            if 0 < part.loose_bytes <= PACKED_BYTES:
                self._waiting_bytes -= part.compress_waiting()
            else:
                self._flush(part)
            if self._waiting_bytes <= WAITING_BYTES * 7 // 8:
                break

    def _begin(self, topic: str, version: int, passing: bool, schema: pa.Schema) -> PartFile:
        self._numbers += 1
        name = f"{self._numbers:05d}-{topic[:120]}-v{version}-{self._writer}.parquet"
        part = PartFile(topic, version, passing, name, schema, new=self._marked)
        self._parts[part.part_key] = part
        if part.new:
            self._touched.append(part)
        return part

    def _parquet(self, part: PartFile) -> pq.ParquetWriter:
        """Return the part's file, opened if it is not yet."""
        self._open.pop(part.part_key, None)
        if part.parquet is None:
            while len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open.values())))
            part.file = self._storage.open_output(self._storage.join_path(*self._folder, part.name))
            part.parquet = pq.ParquetWriter(
                pa.PythonFile(part.file, mode="w"),
                part.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=_repetitive(part.schema),
                write_statistics=["seq", COMMITTED, *_leaves(part.schema, "key")],
                store_schema=False,
                store_decimal_as_integer=True,
                version="2.6",
            )
        self._open[part.part_key] = part
        return part.parquet

    def _flush(self, part: PartFile) -> PartFile:
        """Write the events that wait.

        Events that may be taken back continue to wait, as nothing is removed from files; if they are too many, they come into a separate file.

        :return: the part that the last events are in
        """
        if part.open_summary is not None and (
            not part.waiting.items or part.open.is_full(ROW_GROUP_ROWS, ROW_GROUP_BYTES)
        ):
            part = self._split(part)
        if not part.waiting.items:
            return part
        self._parquet(part).write_table(part.waiting.table(), row_group_size=max(1, part.waiting.rows))
        self._waiting_bytes -= part.waiting.bytes
        part.bytes += part.waiting.bytes
        part.rows += part.waiting.rows
        part.waiting = UnwrittenEvents()
        return part

    def _split(self, part: PartFile) -> PartFile:
        """Close a part with the events that it had at the mark.

        The events since then continue as another part, which is returned.
        """
        new = self._begin(part.topic, part.version, part.passing, part.schema)
        part.transfer_open_events(new)
        self._close(part)
        return new

    def _close(self, part: PartFile) -> None:
        if part.open_summary is not None:
            self._split(part)
            return
        self._flush(part)
        assert part.parquet is not None
        assert part.file is not None
        part.parquet.close()
        part.file.close()
        part.parquet = None
        self._leave(part)
        self._closed.append(part)

    def _leave(self, part: PartFile) -> None:
        """Remove a part from those that are written."""
        for parts in (self._parts, self._open):
            if parts.get(part.part_key) is part:
                del parts[part.part_key]

    def _describe(self, part: PartFile) -> DataFile:
        assert part.file is not None
        about = part.about
        return DataFile(
            topic=part.topic,
            schema_version=part.version,
            path="/".join((*self._folder[1:], part.name)),
            rows=part.rows,
            bytes=part.file.size,
            crc32=part.file.crc32,
            first_seq=about.first_seq,
            last_seq=about.last_seq,
            counts=about.counts,
            unavailable=sorted(about.unavailable),
            unavailable_after=None if about.unavailable_after == about.unavailable else sorted(about.unavailable_after),
            passing=part.passing,
            late=about.late,
        )


def _leaves(schema: pa.Schema, *prefixes: str, varied: bool = True) -> list[str]:
    """Dotted names of the leaf columns below some top-level columns.

    :param varied: include columns whose texts seldom repeat
    """
    names: list[str] = []

    def walk(column: pa.Field, path: str) -> None:
        if pa.types.is_struct(column.type):
            for child in column.type:
                walk(child, f"{path}.{child.name}")
        elif pa.types.is_list(column.type):
            names.append(f"{path}.list.{column.type.value_field.name}")
        elif varied or (column.metadata or {}).items().isdisjoint(VARIED.items()):
            names.append(path)

    for column in schema:
        if column.name in prefixes:
            walk(column, column.name)
    return names


def _repetitive(schema: pa.Schema) -> list[str]:
    """Columns for which a dictionary pays: those of the envelope, not the rows' values."""
    parts = (
        "op",
        "source",
        "transaction",
        "ts_ms",
        "ts_us",
        "ts_ns",
        "unavailable",
        "unavailable_before",
        "schema_version",
    )
    return _leaves(schema, *parts, varied=False)
