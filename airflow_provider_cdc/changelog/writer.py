"""Writes the Parquet files of one batch, in a thread of its own, so that decoding goes on meanwhile."""

from __future__ import annotations

import queue
import re
import threading
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.storage import DurableFile, Storage
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.manifest import DataFile
from airflow_provider_cdc.core.spi.source import VARIED

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 32 << 20
FILE_BYTES = 512 << 20
"""Size of the events in memory at which a file is closed and the next one begun."""
QUEUE_BYTES = 16 << 20
"""Bytes of events that may wait for the writing thread."""
WAITING_BYTES = 64 << 20
"""Bytes of events that may wait for row groups, all files together: beyond it the largest row group is written, however small."""
OPEN_FILES = 32
"""How many files are open at once: beyond it, the one that was least recently written is finished, and its topic gets another file."""
COMMITTED = "source.ts_ms"
"""When an event was committed at the source. Its highest value is among a file's statistics: readers see how fresh a file is without its rows."""


@dataclass(slots=True)
class _Part:
    """One file that is being written. Events wait until there are enough for a row group; the file is opened for the first one."""

    topic: str
    version: int
    name: str
    schema: pa.Schema
    file: DurableFile | None = None
    parquet: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    bytes: int = 0
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    unavailable: set[str] = field(default_factory=set)
    unavailable_after: set[str] = field(default_factory=set)


class ParquetBatchWriter:
    """Writes events of one batch to Parquet files; implements :class:`airflow_provider_cdc.core.spi.interfaces.BatchWriter`.

    :param folder: the batch's folder, relative to the storage's root
    :param writer: unique id of the run, part of every file name
    """

    def __init__(self, storage: Storage, folder: tuple[str, ...], writer: str) -> None:
        self._storage, self._folder, self._writer = storage, folder, writer
        self._parts: dict[tuple[str, int], _Part] = {}
        self._open: dict[tuple[str, int], _Part] = {}  # those with a file, the least recently written first
        self._waiting_bytes = 0
        self._closed: list[_Part] = []
        self._marked = 0
        self._marked_bytes = 0
        self._numbers = 0
        self.buffered_bytes = 0
        self._error: BaseException | None = None
        self._queue: queue.Queue[EventBatch | Literal["mark", "rollback", "finish"]] = queue.Queue()
        self._room = threading.Condition()
        self._queued = 0
        self._thread = threading.Thread(target=self._work, name="cdc-parquet", daemon=True)
        self._thread.start()

    def write(self, batch: EventBatch) -> None:
        size = batch.events.nbytes
        with self._room:
            self._room.wait_for(lambda: self._queued < QUEUE_BYTES or self._error is not None)
            self._queued += size
        self._raise()
        self.buffered_bytes += size
        self._queue.put(batch)

    def mark(self) -> None:
        self._marked_bytes = self.buffered_bytes
        self._queue.put("mark")

    def rollback(self) -> None:
        self.buffered_bytes = self._marked_bytes
        self._queue.put("rollback")

    def finish(self) -> list[DataFile]:
        self._join()
        self._raise()
        return [self._describe(part) for part in self._closed]

    def abandon(self) -> None:
        self._join()
        for part in (*self._closed, *self._parts.values()):
            _discard(part)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        self._queue.put("finish")
        self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        """Handle the queue until ``finish``. After an error, only empty it, so that no caller waits for ever."""
        while True:
            item = self._queue.get()
            try:
                if self._error is None:
                    self._handle(item)
            except BaseException as e:  # raised again by the next call of the owner
                self._error = e
            finally:
                with self._room:
                    if isinstance(item, EventBatch):
                        self._queued -= item.events.nbytes
                    self._room.notify_all()
            if item == "finish":
                return

    def _handle(self, item: EventBatch | str) -> None:
        if isinstance(item, EventBatch):
            self._add(item)
            return
        while self._parts:  # to close one that has no file yet closes another one, if too many are open
            self._close(next(iter(self._parts.values())))
        if item == "mark":
            self._marked = len(self._closed)
        elif item == "rollback":
            for part in self._closed[self._marked :]:
                _discard(part)
            del self._closed[self._marked :]

    def _add(self, batch: EventBatch) -> None:
        part = self._parts.get((batch.topic, batch.schema.version)) or self._begin(batch)
        part.waiting.append(batch.events)
        part.waiting_rows += batch.events.num_rows
        part.waiting_bytes += batch.events.nbytes
        self._waiting_bytes += batch.events.nbytes
        part.first_seq = part.first_seq or batch.first_seq
        part.last_seq = batch.last_seq
        for letter, n in batch.counts.items():
            part.counts[letter] = part.counts.get(letter, 0) + n
        part.unavailable |= batch.unavailable
        part.unavailable_after |= batch.unavailable_after
        if part.waiting_rows >= ROW_GROUP_ROWS or part.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush(part)
            if part.bytes >= FILE_BYTES:
                self._close(part)
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._parts.values(), key=lambda part: part.waiting_bytes))

    def _begin(self, batch: EventBatch) -> _Part:
        self._numbers += 1
        safe = re.sub(r"[^A-Za-z0-9.-]", "_", batch.topic)[:120]
        name = f"{self._numbers:05d}-{safe}-v{batch.schema.version}-{self._writer}.parquet"
        part = _Part(batch.topic, batch.schema.version, name, batch.events.schema)
        self._parts[batch.topic, batch.schema.version] = part
        return part

    def _parquet(self, part: _Part) -> pq.ParquetWriter:
        """The part's file, opened if it is not yet."""
        key = part.topic, part.version
        self._open.pop(key, None)
        if part.parquet is None:
            while len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open.values())))
            part.file = self._storage.open(self._storage.path(*self._folder, part.name))
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
        self._open[key] = part
        return part.parquet

    def _flush(self, part: _Part) -> None:
        if not part.waiting:
            return
        # dictionaries differ from block to block (GTIDs): one row group, one set of columns
        table = pa.Table.from_batches(part.waiting)
        self._parquet(part).write_table(table, row_group_size=max(1, part.waiting_rows))
        self._waiting_bytes -= part.waiting_bytes
        part.bytes += part.waiting_bytes
        part.rows += part.waiting_rows
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0

    def _close(self, part: _Part) -> None:
        self._flush(part)
        assert part.parquet is not None
        assert part.file is not None
        part.parquet.close()
        part.file.close()
        part.parquet = None
        del self._parts[part.topic, part.version], self._open[part.topic, part.version]
        self._closed.append(part)

    def _describe(self, part: _Part) -> DataFile:
        assert part.file is not None
        return DataFile(
            topic=part.topic,
            schema_version=part.version,
            path="/".join((*self._folder[1:], part.name)),
            rows=part.rows,
            bytes=part.file.size,
            crc32=part.file.crc32,
            first_seq=part.first_seq,
            last_seq=part.last_seq,
            counts=part.counts,
            unavailable=sorted(part.unavailable),
            unavailable_after=None if part.unavailable_after == part.unavailable else sorted(part.unavailable_after),
        )


def _discard(part: _Part) -> None:
    if part.file is not None:
        part.file.discard()


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
