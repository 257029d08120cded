"""Reads the events of one key from the change log: from the batches that the index names, and from those that it does not know yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.row_history.json_values import to_json_values
from airflow_provider_cdc.changelog.row_history.key_index import (
    IndexChanged,
    KeyIndex,
    KeyIndexView,
    ProgressCallback,
    key_columns,
    keys_of_batch,
    map_in_threads,
    unreadable_file_error,
)
from airflow_provider_cdc.changelog.row_history.key_index_segment import KeyColumns, Keys, joined_keys
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest
from airflow_provider_cdc.core.model.table_schema import TableSchema

Row = dict[str, Any]
KeyOf = Callable[[int], RowKey]
"""The key, with the names that its columns have in a version of the table."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class RowEvent:
    """An event of a row, or of all rows of its table (``t``). Values are as JSON has them.

    :param captured_at: of the batch: when it was committed, in ISO form
    :param next_key: of a delete that is half of a key change: the key that the row has got
    :param said: the event columns of the schema (:attr:`~airflow_provider_cdc.core.model.table_schema.DocumentSchema.columns`)
    """

    batch: int
    created_at: str
    topic: str
    schema: TableSchema
    seq: int
    op: str
    key: Row | None
    previous_key: Row | None
    next_key: Row | None
    before: Row | None
    after: Row | None
    source: Row
    transaction: Row | None
    ts_us: int
    unavailable: tuple[str, ...]
    unavailable_before: tuple[str, ...]
    said: Row

    @property
    def committed_us(self) -> int:
        """Time of the change in the database, microseconds since 1970."""
        return int(self.source["ts_us"])


@dataclass(slots=True)
class KeyEventReader:
    """Reads events of keys from one connector's change log.

    :param until: ``time.monotonic()`` at which to stop looking at batches that the index does not know
    :param report_progress: is called with the number of batches that have come into the index
    :ivar first: batch that is kept; 0 if there is none
    :ivar last: newest batch
    :ivar left_out: batches, from and to, that there was no time for
    """

    changelog: ChangeLog
    connector: str
    until: float
    report_progress: ProgressCallback | None = None
    after: int = 0
    first: int = 0
    last: int = 0
    left_out: list[tuple[int, int]] = field(default_factory=list)
    _view: KeyIndexView | None = None
    _index: KeyIndex = field(init=False)
    _manifests: dict[int, Manifest] = field(default_factory=dict)
    _tail: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index = KeyIndex(self.changelog, self.connector)
        self.first = self.changelog.find_first_batch(self.connector)
        there = (
            self.after
            if self.after > self.first and self.changelog.has_batch(self.connector, self.after)
            else self.first
        )
        self.last = self.changelog.find_last_batch(self.connector, after=there) if self.first else 0
        if self.first:
            self._look_again()

    def list_key_columns(self) -> Keys:
        """List the key columns of all tables that the batches have events of."""
        assert self._view is not None
        own = (keys_of_batch(self._manifests[batch]) for batch in self._tail)
        return joined_keys([self._view.keys, *own])

    def find_events(self, table: str, key_of: KeyOf) -> list[RowEvent]:
        """All events of a key, and those that empty its table, by ``seq``.

        :param table: full name
        :param key_of: the key by versions
        """
        if not self.first:
            return []
        batches = sorted({*self._indexed_batches(table, key_of), *self._tail})
        self._read(batches)
        jobs = [
            (manifest, file)
            for batch in batches
            if (manifest := self._manifests.get(batch)) is not None
            for file in manifest.files
            if _schema(manifest, file).id.full_name == table
        ]
        results = map_in_threads(lambda job: self._of_file(job[0], job[1], key_of), jobs, self._index.at_once)
        moved = {seq: key for _, some in results for seq, key in some.items()}
        events = sorted((event for some, _ in results for event in some), key=lambda event: event.seq)
        return [replace(event, next_key=_next_key(event, events, moved)) for event in events]

    def _indexed_batches(self, table: str, key_of: KeyOf) -> set[int]:
        """Batches by the index."""
        for _ in range(_TRIES):
            assert self._view is not None
            try:
                return self._view.find_batches(
                    table, lambda version, columns: key_of(version).compute_hash(table, columns)
                )
            except IndexChanged:
                self._look_again()
        raise ChangeLogDamaged(
            f"The key index of {self.connector} keeps changing.",
            where=self.changelog.storage.join_path(self.connector, "keys"),
            safe="The change log itself is not affected.",
            remedy="run the command again; if the error persists, delete the folder: the index is rebuilt",
        )

    def _look_again(self) -> None:
        """Bring the index up, and read the manifests of batches that it does not know."""
        self._index.bring_up(self.first, self.last, until=self.until, report_progress=self.report_progress)
        self._view = self._index.open_view(self.first, self.last)
        unknown = [batch for a, b in self._view.unknown for batch in range(a, b + 1)]
        self._tail, self.left_out = [], []
        for at in range(len(unknown), 0, -_STEP):
            if at < len(unknown) and time.monotonic() >= self.until:
                self.left_out = _ranges(unknown[:at])
                break
            some = unknown[max(at - _STEP, 0) : at]
            self._read(some)
            self._tail += [batch for batch in some if batch in self._manifests]

    def _read(self, batches: Sequence[int]) -> None:
        """Read manifests that are not read yet. Batches that were removed since the look began are left out."""
        new = [batch for batch in batches if batch not in self._manifests]
        manifests = map_in_threads(
            lambda batch: self.changelog.find_manifest(self.connector, batch), new, self._index.at_once
        )
        for batch, manifest in zip(new, manifests, strict=True):
            if manifest is not None:
                self._manifests[batch] = manifest
            elif (first_kept := self.changelog.open_truncation_markers(self.connector).find_newest_number()) > batch:
                self.first = first_kept
            else:
                raise ChangeLogDamaged(
                    f"The manifest of batch {batch} of connector {self.connector} is missing.",
                    where=self.changelog.path_of(self.connector, batch),
                    safe="Other batches are not affected; targets keep the batches they have applied.",
                    remedy="restore the file from a backup",
                )

    # -- one file -----------------------------------------------------------------------------------------------------

    def _of_file(self, manifest: Manifest, file: DataFile, key_of: KeyOf) -> tuple[list[RowEvent], dict[int, Row]]:
        """Read the events of a key, and those by which rows got other keys instead of it: number and key."""
        schema = _schema(manifest, file)
        columns, key = key_columns(schema), key_of(schema.version)
        emptied = bool(file.counts.get("t"))
        if not emptied and key.to_key(columns) is None:
            return [], {}
        passed = self._passed(manifest, file)
        with self.changelog.open_file(self.connector, file) as opened:
            try:
                source, whole = pq.ParquetFile(opened), emptied or passed is not None or file.passing
                groups = [n for n in range(source.num_row_groups) if whole or _may_have(source, n, key, columns)]
                rows = [row for n in groups for row in _rows(source, n, key, columns, passed, emptied=emptied)]
            except (pa.ArrowInvalid, OSError) as e:
                raise unreadable_file_error(self.changelog, self.connector, file, e) from e
        moved = {row["seq"]: row["key"] for row in rows if row["moved"]}
        return [_event(row, manifest, file.topic, schema, None) for row in rows if row["own"]], moved

    def _passed(self, manifest: Manifest, file: DataFile) -> pa.Table | None:
        """Read the deletes of rows that have passed keys on their way to those in a file: their numbers, and the keys."""
        deletes = []
        for other in manifest.files:
            if other.passing and other.topic == file.topic and other.schema_version == file.schema_version:
                with self.changelog.open_file(self.connector, other) as opened:
                    events = pq.ParquetFile(opened).read(columns=["seq", "op", "key"])
                deletes.append(events.filter(pc.equal(events["op"], "d")).select(["seq", "key"]))
        return pa.concat_tables(deletes) if deletes and not file.passing else None


def _next_key(event: RowEvent, events: Sequence[RowEvent], moved: Mapping[int, Row]) -> Row | None:
    """Find the key that a row got when it left this one.

    The next event says it, or a later one, before another row leaves this key.

    :param events: of the same key
    :param moved: number of each create by which a row got another key instead of this one
    """
    if event.op != "d" or event.seq + 1 in moved:
        return moved.get(event.seq + 1) if event.op == "d" else None
    end = min((later.seq for later in events if later.op == "d" and later.seq > event.seq), default=None)
    at = min((seq for seq in moved if seq > event.seq and (end is None or seq < end)), default=None)
    return None if at is None else moved[at]


_STEP = 200
"""Manifests that are read between two looks at the clock."""


def _rows(
    source: pq.ParquetFile, group: int, key: RowKey, columns: KeyColumns, passed: pa.Table | None, *, emptied: bool
) -> Iterator[Row]:
    """Events of a key, and those that another key got from it (``moved``).

    :param passed: deletes of rows that have passed keys: the event after one of them is about the row that was there
    """
    if not columns:
        own, moved = None, None
        keys = source.read_row_group(group, columns=["op"])
    else:
        keys = source.read_row_group(group, columns=["seq", "op", "key", "previous_key"])
        keys = _by_way_of(keys, passed)
        own, moved = key.match_keys(keys["key"], columns), key.match_keys(keys["previous_key"], columns)
    nothing = pa.chunked_array([pa.array([False] * keys.num_rows, pa.bool_())])
    own, moved = nothing if own is None else own, nothing if moved is None else moved
    if emptied:
        own = pc.or_(own, pc.equal(keys["op"], "t"))
    selected = pc.or_(own, moved)
    if not pc.any(selected).as_py():
        return
    events = _by_way_of(source.read_row_group(group), passed).filter(selected)
    names = events.column_names
    for row in zip(
        *(to_json_values(column) for column in events.columns),
        own.filter(selected).to_pylist(),
        moved.filter(selected).to_pylist(),
        strict=True,
    ):
        yield dict(zip((*names, "own", "moved"), row, strict=True))


def _by_way_of(events: pa.Table, passed: pa.Table | None) -> pa.Table:
    """Events with the keys before that rows have passed."""
    if passed is None or "previous_key" not in events.column_names:
        return events
    at = pc.index_in(pc.subtract(events["seq"], 1), passed["seq"].combine_chunks())
    at = pc.if_else(pc.equal(events["op"], "c"), at, None)
    way = passed["key"].combine_chunks().take(at.combine_chunks() if isinstance(at, pa.ChunkedArray) else at)
    previous = events["previous_key"].combine_chunks()
    chosen = pc.if_else(pc.and_(way.is_valid(), previous.is_valid()), way, previous)
    return events.set_column(events.column_names.index("previous_key"), "previous_key", chosen)


def _may_have(source: pq.ParquetFile, group: int, key: RowKey, columns: KeyColumns) -> bool:
    """Check whether a row group may have a key, or rows that got another one instead.

    The statistics of its first column of whole numbers say it.
    """
    values = key.to_key(columns)
    if values is None:
        return False
    about = source.metadata.row_group(group)
    places = {about.column(n).path_in_schema: n for n in range(about.num_columns)}
    for value, (name, type_) in zip(values, columns, strict=True):
        at = places.get(f"key.{name}")
        if type_.startswith("int") and value is not None and at is not None:
            statistics = about.column(at).statistics
            if statistics is not None and statistics.has_min_max:
                return bool(statistics.min <= value <= statistics.max)
    return True


def _event(row: Row, manifest: Manifest, topic: str, schema: TableSchema, next_key: Row | None) -> RowEvent:
    return RowEvent(
        batch=manifest.batch, created_at=manifest.created_at, topic=topic, schema=schema, seq=row["seq"], op=row["op"], key=row.get("key"),
        previous_key=row.get("previous_key"), next_key=next_key if row["op"] == "d" else None, before=row["before"], after=row["after"],
        source=row["source"], transaction=row["transaction"], ts_us=row["ts_us"], unavailable=tuple(row["unavailable"] or ()),
        unavailable_before=tuple(row["unavailable_before"] or ()),
        said={c.name: row.get(c.name) for c in schema.documents.columns} if schema.documents is not None else {},
    )  # fmt: skip


def _schema(manifest: Manifest, file: DataFile) -> TableSchema:
    return manifest.schemas[file.topic][str(file.schema_version)]


def _ranges(batches: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers as stretches, ascending."""
    ranges: list[tuple[int, int]] = []
    for batch in batches:
        if ranges and ranges[-1][1] == batch - 1:
            ranges[-1] = ranges[-1][0], batch
        else:
            ranges.append((batch, batch))
    return ranges
