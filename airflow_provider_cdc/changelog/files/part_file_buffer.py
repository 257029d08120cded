"""Holds a file of a batch that is being written: events that wait, and facts about all events."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.storage import DurableFile
from airflow_provider_cdc.core.model.event_batch import EventBatch

ARRAY_BYTES = 700
"""Memory that an Arrow array takes besides its values: of a few rows of a table, that is nearly everything."""


@dataclass(slots=True)
class EventSummary:
    """A summary of events, as a manifest has it."""

    first_seq: int = 0
    last_seq: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    unavailable: set[str] = field(default_factory=set)
    unavailable_after: set[str] = field(default_factory=set)
    late: bool = False

    def add(self, other: EventSummary | EventBatch) -> None:
        """Events that follow."""
        self.first_seq = self.first_seq or other.first_seq
        self.last_seq = other.last_seq
        for letter, n in other.counts.items():
            self.counts[letter] = self.counts.get(letter, 0) + n
        self.unavailable |= other.unavailable
        self.unavailable_after |= other.unavailable_after
        self.late |= other.late


class CompressedEvents(NamedTuple):
    """Events as a compressed Arrow stream.

    :ivar size: of the stream itself
    """

    size: int
    data: bytes


@dataclass(slots=True)
class UnwrittenEvents:
    """Events in memory, in the order in which they came.

    :ivar bytes: that they take, with those of their arrays
    :ivar loose: of them, the bytes of those that are not packed
    :ivar packed: bytes that those which are packed take when they are written
    """

    items: list[pa.RecordBatch | CompressedEvents] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    loose: int = 0
    packed: int = 0

    @property
    def written_bytes(self) -> int:
        """Bytes that all of them take when they are written."""
        return self.loose + self.packed

    def add_events(self, events: pa.RecordBatch, bytes_: int) -> None:
        self.items.append(events)
        self.rows, self.bytes, self.loose = self.rows + events.num_rows, self.bytes + bytes_, self.loose + bytes_

    def extend(self, other: UnwrittenEvents) -> None:
        """Events that follow."""
        self.items += other.items
        self.rows, self.bytes = self.rows + other.rows, self.bytes + other.bytes
        self.loose, self.packed = self.loose + other.loose, self.packed + other.packed

    def is_full(self, rows: int, bytes_: int) -> bool:
        """Check whether there are at least so many rows or bytes."""
        return self.rows >= rows or self.written_bytes >= bytes_

    def table(self) -> pa.Table:
        """All of them. Dictionaries differ from block to block (GTIDs): one row group has one set of columns."""
        tables = (
            _unpacked(item) if isinstance(item, CompressedEvents) else pa.Table.from_batches([item])
            for item in self.items
        )
        return pa.concat_tables(list(tables))

    def compress_events(self) -> int:
        """Have them take less memory. Returns how much less."""
        items = list[pa.RecordBatch | CompressedEvents]()
        for packed, run in groupby(self.items, key=lambda item: isinstance(item, CompressedEvents)):
            some = list(run)
            items += some if packed else [_packed(some)]
        bytes_ = sum(len(item.data) for item in items if isinstance(item, CompressedEvents))
        self.packed = sum(item.size for item in items if isinstance(item, CompressedEvents))
        saved, self.items, self.bytes, self.loose = self.bytes - bytes_, items, bytes_, 0
        return saved


@dataclass(slots=True)
class PartFile:
    """A file that is being written; it is opened for the first row group.

    The content since the last mark is separate, as it may be taken back: ``open_summary``, and the events in ``open``. A part that has begun since then is taken
    back as a whole, and needs no separate content.

    :ivar new: it has begun since the mark
    """

    topic: str
    version: int
    passing: bool
    name: str
    schema: pa.Schema
    new: bool = False
    file: DurableFile | None = None
    parquet: pq.ParquetWriter | None = None
    rows: int = 0
    bytes: int = 0
    about: EventSummary = field(default_factory=EventSummary)
    waiting: UnwrittenEvents = field(default_factory=UnwrittenEvents)
    open_summary: EventSummary | None = None
    open: UnwrittenEvents = field(default_factory=UnwrittenEvents)

    @property
    def part_key(self) -> tuple[str, int, bool]:
        return self.topic, self.version, self.passing

    @property
    def waiting_bytes(self) -> int:
        return self.waiting.bytes + self.open.bytes

    @property
    def loose_bytes(self) -> int:
        return self.waiting.loose + self.open.loose

    def add_batch(self, batch: EventBatch, bytes_: int, *, marked: bool) -> None:
        """
        :param marked: it may be taken back
        """
        if marked and not self.new:
            self.open_summary = self.open_summary or EventSummary()
            self.open_summary.add(batch)
            self.open.add_events(batch.events, bytes_)
        else:
            self.about.add(batch)
            self.waiting.add_events(batch.events, bytes_)

    def confirm_events(self) -> None:
        """Nothing is taken back any more."""
        self.new = False
        if self.open_summary is not None:
            self.about.add(self.open_summary)
            self.waiting.extend(self.open)
        self._forget()

    def compress_waiting(self) -> int:
        """Have the events that wait take less memory. Returns how much less."""
        return self.waiting.compress_events() + self.open.compress_events()

    def discard_open_events(self) -> int:
        """Forget the events since the mark. Returns the bytes that they took."""
        bytes_ = self.open.bytes
        self._forget()
        return bytes_

    def transfer_open_events(self, other: PartFile) -> None:
        """Give the events since the mark to a part that has begun since then."""
        assert self.open_summary is not None
        other.about, other.waiting = self.open_summary, self.open
        self._forget()

    def discard(self) -> None:
        """Delete the file."""
        if self.file is not None:
            self.file.discard()

    def _forget(self) -> None:
        self.open_summary, self.open = None, UnwrittenEvents()


def _packed(batches: list[pa.RecordBatch]) -> CompressedEvents:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        stream.write_table(pa.Table.from_batches(batches).unify_dictionaries().combine_chunks())
    buffer = sink.getvalue()
    return CompressedEvents(buffer.size, pa.compress(buffer, codec="zstd", asbytes=True))


def _unpacked(packed: CompressedEvents) -> pa.Table:
    data = pa.decompress(packed.data, decompressed_size=packed.size, codec="zstd")
    return pa.ipc.open_stream(data).read_all()


def arrays_of(schema: pa.Schema) -> int:
    """Count the arrays that a batch of events has.

    >>> arrays_of(pa.schema({"id": pa.int64(), "at": pa.build_struct({"x": pa.int64(), "y": pa.list_(pa.int64())})}))
    5
    """
    return sum(_arrays(column.type) for column in schema)


def _arrays(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return 1 + sum(_arrays(child.type) for child in type_)
    if pa.types.is_list(type_):
        return 1 + _arrays(type_.value_type)
    return 2 if pa.types.is_dictionary(type_) else 1
