"""Finds the batches that have events of a key, without a look at all others.

The capture writes nothing for it. A maintenance, or a search for a row, makes files of the index for new batches (:mod:`.key_index_segment`), of a hundred batches
each, and one of ten shorter ones. They are made from batches that never change, under names that say which, and each is there as a whole or not at all: several
processes may write at once, or be killed. A reader searches the batches that no file has yet itself.
"""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.row_history.key_hashes import Hashes, compute_hash_version, emptied_hash, key_hashes
from airflow_provider_cdc.changelog.row_history.key_index_segment import (
    LONGEST,
    BatchRange,
    KeyColumns,
    Keys,
    KeySegment,
    SegmentDamaged,
    build_entries,
    encode_segment,
    joined_keys,
    merge_entries,
)
from airflow_provider_cdc.core.errors import BatchesRemoved, ChangeLogDamaged, StorageUnavailable
from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest
from airflow_provider_cdc.core.model.table_schema import TableSchema

log = logging.getLogger(__name__)

FOLDER = "keys"
STEP = 100
"""Batches of the shortest file that is made if they do not have too many events."""
MOST = 4 << 20
"""Entries that a file has at most, unless one batch has more: 32 MB."""
AT_ONCE = 8
"""Requests at the same time."""
Item = TypeVar("Item")
Other = TypeVar("Other")
ProgressCallback = Callable[[int, int], None]
"""Receives the number of batches that are done, and the number of all."""


HashOf = Callable[[int, KeyColumns], int | None]
"""The hash of a key by the key columns of a version; ``None`` if it cannot be a key of these."""


class IndexChanged(Exception):
    """Files of the index are others now: look again."""


class KeyIndexView:
    """A view of the entries of the index for some batches.

    :ivar keys: of the tables that they have events of
    :ivar unknown: batches, from and to, of which it says nothing; ascending
    """

    def __init__(self, index: KeyIndex, segments: list[KeySegment], first: int, last: int) -> None:
        self._index, self._segments, self._first, self._last = index, segments, first, last
        self.keys = joined_keys(segment.keys for segment in segments)
        self.unknown = _gaps([segment.stretch for segment in segments], first, last)

    def find_batches(self, table: str, hash_of: HashOf) -> set[int]:
        """Batches that have events of a key, or in which all rows of the table go, by the index: hardly any without.

        :param table: its full name
        :raises IndexChanged: a file of the index is not there any more
        """
        hashes = {
            (version, columns): hash_of(version, columns)
            for version, several in self.keys.get(table, {}).items()
            for columns in several
        }
        emptied = emptied_hash(table)

        def search_segment(segment: KeySegment) -> set[int]:
            own = ((v, columns) for v, several in segment.keys[table].items() for columns in several)
            searched_hashes = {emptied, *(key_hash for version in own if (key_hash := hashes[version]) is not None)}
            try:
                return segment.find_batches(searched_hashes)
            except SegmentDamaged as e:
                self._index.give_up(segment.stretch, e)
                raise IndexChanged from e
            except FileNotFoundError as e:
                raise IndexChanged from e

        results = map_in_threads(
            search_segment, [segment for segment in self._segments if table in segment.keys], self._index.at_once
        )
        return {batch for some in results for batch in some if self._first <= batch <= self._last}


class KeyIndex:
    """The index of one connector.

        >>> index = KeyIndex(changelog, "shop")
        >>> index.bring_up(1, 1_000_000)
        0
        >>> index.open_view(1, 1_000_000).batches("inventory.orders", hash_of)
        {17, 4711}

    A store that refuses to keep files of it is no error: then more has to be looked at.
    """

    def __init__(self, changelog: ChangeLog, connector: str) -> None:
        self._changelog, self._connector, self._storage = changelog, connector, changelog.storage
        self._folder = changelog.storage.join_path(connector, FOLDER)
        self.at_once = 1 if self._storage.local else AT_ONCE

    def open_view(self, first: int, last: int) -> KeyIndexView:
        """Return the view of some batches.

        :param first: batch that is kept
        :param last: newest batch
        """
        stretches = [stretch for stretch in self._shown() if first <= stretch.last_batch <= last]
        opened = map_in_threads(self._usable, stretches, self.at_once)
        return KeyIndexView(self, [segment for segment in opened if segment is not None], first, last)

    def bring_up(
        self, first: int, last: int, *, until: float | None = None, report_progress: ProgressCallback | None = None
    ) -> int:
        """Make the files that are missing, the newest ones first.

        :param until: ``time.monotonic()`` at which to stop: finished files stay, and the next call continues
        :param report_progress: is called with the progress
        :return: batches that no file has though there could be one
        """
        self._remove(first)
        blocks = self._missing(first, last)
        try:
            for number, low in enumerate(reversed(blocks)):
                if until is not None and time.monotonic() >= until:
                    return (len(blocks) - number) * STEP
                self._make(BatchRange(low, STEP), first, until)
                self._join(BatchRange(low, STEP))
                if report_progress is not None:
                    report_progress((number + 1) * STEP, len(blocks) * STEP)
        except StorageUnavailable as e:
            log.warning("The key index of %s could not be updated: %s", self._connector, e.message)
        return len(self._missing(first, last)) * STEP

    # -- files of the index -------------------------------------------------------------------------------------------

    def _all(self) -> list[BatchRange]:
        stretches = (BatchRange.from_file_name(name) for name in self._storage.list(self._folder))
        return sorted(stretch for stretch in stretches if stretch is not None)

    def _shown(self) -> list[BatchRange]:
        """List the longest stretches, without those that they have in them."""
        longest: list[BatchRange] = []
        for stretch in sorted(self._all(), key=lambda stretch: (stretch.low, -stretch.size)):
            if not longest or stretch.low > longest[-1].last_batch:
                longest.append(stretch)
        return longest

    def _missing(self, first: int, last: int) -> list[int]:
        """List the first batches of blocks that are complete and not known, ascending."""
        gaps = _gaps(self._shown(), first, last)
        lows = (range(_block(a), _block(b) + 1, STEP) for a, b in gaps)
        return sorted({low for some in lows for low in some if low + STEP - 1 <= last})

    def _usable(self, stretch: BatchRange) -> KeySegment | None:
        """Open the file of a stretch; ``None`` if it cannot be used."""
        try:
            return self._open(stretch)
        except FileNotFoundError:  # another process has joined it with others
            return None
        except SegmentDamaged as e:
            self.give_up(stretch, e)
            return None

    def _open(self, stretch: BatchRange) -> KeySegment:
        """Open the file of a stretch.

        :raises SegmentDamaged: the file is not whole, or about another log that was here before
        """
        segment = KeySegment(self._storage, self._path(stretch), stretch)
        if segment.stamp != self._stamp(stretch.last_batch):
            raise SegmentDamaged("its last batch is a different one, or it was built in a different way")
        return segment

    def give_up(self, stretch: BatchRange, why: SegmentDamaged) -> None:
        """Delete a file that cannot be used, so that it is made again."""
        log.warning("Rebuilding %s: %s.", self._path(stretch), why)
        self._storage.delete(self._path(stretch))

    # -- making -------------------------------------------------------------------------------------------------------

    def _make(self, stretch: BatchRange, first: int, until: float | None) -> None:
        """Make a file for a stretch, or several shorter ones if it has too many events."""
        if not _gaps(self._shown(), max(stretch.low, first), stretch.last_batch):
            return
        begin = max(stretch.low, first) - 1
        manifests = self._changelog.read_manifests(
            self._connector, after=begin, until=stretch.last_batch, there=stretch.last_batch
        )
        read, rows = list[Manifest](), 0
        for manifest in manifests:
            read.append(manifest)
            rows += manifest.event_count
            if rows > MOST and stretch.size > 1:
                break
        else:
            self._write(stretch, self._entries(read, stretch), joined_keys(map(keys_of_batch, read)))
            return
        for low in range(stretch.low, stretch.last_batch + 1, stretch.size // 10):
            part = BatchRange(low, stretch.size // 10)
            if part.last_batch >= first and not (until is not None and time.monotonic() >= until):
                self._make(part, first, until)

    def _entries(self, manifests: list[Manifest], stretch: BatchRange) -> Hashes:
        files = [(manifest, file) for manifest in manifests for file in manifest.files]
        hashes = map_in_threads(
            lambda entry: build_entries(self._hashes(*entry), stretch, entry[0].batch), files, self.at_once
        )
        return np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)

    def _hashes(self, manifest: Manifest, file: DataFile) -> Hashes:
        """Compute the hashes of the keys of one file."""
        schema = manifest.schemas[file.topic][str(file.schema_version)]
        table = schema.id.full_name
        emptied = np.array([emptied_hash(table)] if file.counts.get("t") else [], np.uint64)
        if not schema.key:
            return emptied
        with self._changelog.open_file(self._connector, file) as opened:
            try:
                keys = pq.ParquetFile(opened).read(columns=["key"])["key"]
            except (pa.ArrowInvalid, OSError) as e:
                raise unreadable_file_error(self._changelog, self._connector, file, e) from e
        if len(emptied):
            keys = keys.drop_null()
        return np.concatenate([emptied, np.unique(key_hashes(table, _columns(keys, schema.key)))])

    def _join(self, stretch: BatchRange) -> None:
        """Make one file of ten, and again one of ten such."""
        size = stretch.size * 10
        while size <= LONGEST:
            whole = BatchRange((stretch.low - 1) // size * size + 1, size)
            parts = [BatchRange(low, size // 10) for low in range(whole.low, whole.last_batch + 1, size // 10)]
            there = set(self._all())
            if not there.issuperset(parts):
                return
            try:
                opened = [self._open(part) for part in parts]
                if sum(part.count for part in opened) > MOST:
                    return
                self._write(whole, merge_entries(whole, opened), joined_keys(part.keys for part in opened))
            except FileNotFoundError:  # another process has joined them
                return
            except SegmentDamaged as e:
                log.warning("Files of the key index of %s could not be merged: %s.", self._connector, e)
                return
            for part in parts:
                self._storage.delete(self._path(part))
            size *= 10

    def _write(self, stretch: BatchRange, entries: Hashes, keys: Keys) -> None:
        with contextlib.suppress(FileExistsError):  # it is the same, whichever process has written it
            self._storage.create(
                self._path(stretch), encode_segment(stretch, entries, keys, self._stamp(stretch.last_batch))
            )

    def _remove(self, first: int) -> None:
        """Delete files about batches that are not kept."""
        for stretch in self._all():
            if stretch.last_batch < first:
                self._storage.delete(self._path(stretch))

    def _stamp(self, batch: int) -> int:
        """Return the stamp of a log whose batch this is, and of the way in which hashes are made.

        :raises SegmentDamaged: it is not there
        """
        data = self._storage.read(self._changelog.path_of(self._connector, batch))
        if data is None:
            raise SegmentDamaged(f"batch {batch} does not exist")
        return zlib.crc32(data, compute_hash_version())

    def _path(self, stretch: BatchRange) -> str:
        return f"{self._folder}/{stretch.file_name}"


def bring_up_index(changelog: ChangeLog, connector: str, *, seconds: float) -> int:
    """Bring the index of a connector up to its newest batch, as far as that goes within some seconds.

    :return: batches that are left for the next time
    """
    index, first = KeyIndex(changelog, connector), changelog.find_first_batch(connector)
    if not first:
        return 0
    try:
        return index.bring_up(
            first, changelog.find_last_batch(connector, after=first), until=time.monotonic() + seconds
        )
    except BatchesRemoved as e:  # a removal is at work: the next maintenance continues
        log.info("The update of the key index waits: %s", e.message)
        return STEP


def map_in_threads(function: Callable[[Item], Other], items: Sequence[Item], at_once: int) -> list[Other]:
    """Return the results of a function for some items, in their order.

    :param at_once: items that it is at work on at the same time: more than one where each of them waits for a store
    """
    if at_once == 1 or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(at_once, "cdc-keys") as pool:
        return list(pool.map(function, items))


def unreadable_file_error(changelog: ChangeLog, connector: str, file: DataFile, e: Exception) -> ChangeLogDamaged:
    """Build the error for a file that is no Parquet file."""
    return ChangeLogDamaged(
        f"A file of the change log cannot be read: {e}",
        where=changelog.file_uri(connector, file),
        safe="Other batches are not affected; targets keep the batches they have applied.",
        remedy="restore the file from a backup",
    )


def keys_of_batch(manifest: Manifest) -> Keys:
    """Return the key columns of all tables that a batch has events of."""
    schemas = {(file.topic, file.schema_version) for file in manifest.files}
    schemas_of_batch = (manifest.schemas[topic][str(version)] for topic, version in schemas)
    return joined_keys({schema.id.full_name: {schema.version: (key_columns(schema),)}} for schema in schemas_of_batch)


def key_columns(schema: TableSchema) -> KeyColumns:
    """Return the key columns of a table."""
    return tuple((name, schema.get_column(name).type) for name in schema.key)


def _columns(keys: pa.ChunkedArray, names: tuple[str, ...]) -> pa.Table:
    """Select the key columns, in their order."""
    places = {field.name: n for n, field in enumerate(keys.type)}
    return pa.table([pc.struct_field(keys, [places[name]]) for name in names], names=list(names))


def _block(batch: int) -> int:
    """Return the first batch of the block that a batch belongs to."""
    return (batch - 1) // STEP * STEP + 1


def _gaps(stretches: list[BatchRange], first: int, last: int) -> list[tuple[int, int]]:
    """List the ranges that stretches leave out of some batches, ascending."""
    return list(_between(sorted(stretches), first, last))


def _between(stretches: list[BatchRange], first: int, last: int) -> Iterator[tuple[int, int]]:
    at = first
    for stretch in stretches:
        if stretch.low > at:
            yield at, min(stretch.low - 1, last)
        at = max(at, stretch.last_batch + 1)
        if at > last:
            return
    if at <= last:
        yield at, last
