"""Reads files of a Delta table with Arrow: whole ones, or only where they have some keys."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.keys import Numbers, among
from spark_jobs.targets.delta.files import DataFiles

Range = tuple[str, int, int]
"""A key column of integers, with its least and its greatest value."""
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class NotOnArrays(Exception):
    """A file has something that is left to Spark; the message says what."""


@dataclass(frozen=True)
class OldFile:
    """A file of the table.

    :param action: of Delta, by which it was added
    """

    action: Any
    path: Any
    size: int
    stats: str
    has_vector: bool

    @classmethod
    def of(cls, action: Any, log: Any) -> OldFile:
        vector = action.deletionVector()
        return cls(action, action.absolutePath(log), int(action.size()), action.stats() or "", vector is not None)

    @cached_property
    def bounds(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The least and the greatest values by the columns' physical names, as far as they are known."""
        return self._said.get("minValues") or {}, self._said.get("maxValues") or {}

    @property
    def number_of_rows(self) -> int | None:
        """Also those that a deletion vector has taken away; ``None`` if the table does not say."""
        return self._said.get("numRecords")

    @cached_property
    def _said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stats) if self.stats else {}
        return found

    def may_have(self, ranges: Sequence[Range]) -> bool:
        """Whether it can have keys, by its bounds."""
        least, most = self.bounds
        return not any(_apart(least.get(name), most.get(name), low, high) for name, low, high in ranges)


def ranges_of(keys: pa.Table) -> list[Range]:
    """What is known of all keys."""
    found = []
    for name in keys.column_names:
        if keys.num_rows and pa.types.is_integer(keys[name].type) and not keys[name].null_count:
            ends = pc.min_max(keys[name]).as_py()
            found.append((name, ends["min"], ends["max"]))
    return found


def _apart(least: Any, most: Any, low: int, high: int) -> bool:
    return isinstance(least, int) and isinstance(most, int) and (most < low or least > high)


class OldFiles:
    """Reads them.

    :param made: knows the table's columns
    :param files: the table's filesystem, in Hadoop's words
    :param path: makes a path of Hadoop's
    """

    def __init__(self, made: DataFiles, files: Any, path: Any) -> None:
        self._made, self._files, self._path = made, files, path

    def read(self, file: OldFile, needed: Sequence[str]) -> pa.Table:
        """All rows, with the columns that the table has now.

        :param needed: columns that the file must have
        :raises NotOnArrays: it cannot be read here
        """
        with self._local(file.path) as name:
            source = self._opened(name, needed)
            return self._made.held(source.read())

    def places(self, file: OldFile, keys: pa.Table) -> Numbers:
        """The numbers of the rows that have some of the keys, in order; also of rows that a deletion vector has taken away.

        :param keys: with the names and types of the table's files
        :raises NotOnArrays: the file cannot be read here
        """
        found, first = list[Numbers](), 0
        with self._parts(file) as stream:
            source = self._opened(stream, keys.column_names)
            bounded = [(_leaf(source, name), low, high) for name, low, high in ranges_of(keys)]
            for number in range(source.num_row_groups):
                group = source.metadata.row_group(number)
                if all(_group_may_have(group, leaf, low, high) for leaf, low, high in bounded):
                    rows = self._made.as_now(source.read_row_group(number, keys.column_names, use_threads=False))
                    found.append(first + np.flatnonzero(among(rows, keys)))
                first += group.num_rows
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _opened(self, source: Any, needed: Sequence[str]) -> pq.ParquetFile:
        opened = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
        if set(_OTHER_CALENDAR) & set(opened.metadata.metadata or {}):
            raise NotOnArrays("a file has dates of an older calendar")
        if lacking := set(needed) - set(opened.schema_arrow.names):
            raise NotOnArrays(f"a file lacks {', '.join(sorted(lacking))}")
        return opened

    @contextlib.contextmanager
    def _local(self, path: Any) -> Iterator[str]:
        uri = path.toUri()
        if self._files.getUri().getScheme() == "file":
            yield uri.getPath()
            return
        with tempfile.TemporaryDirectory(prefix="cdc-") as scratch:
            name = Path(scratch, "file.parquet")
            self._files.copyToLocalFile(False, path, self._path(name.as_uri()), True)
            yield str(name)

    @contextlib.contextmanager
    def _parts(self, file: OldFile) -> Iterator[Any]:
        """The file, of which only some parts will be read."""
        if self._files.getUri().getScheme() == "file":
            yield file.path.toUri().getPath()
            return
        with contextlib.closing(self._files.open(file.path)) as stream:
            yield _Parts(stream, file.size)


def _leaf(source: pq.ParquetFile, name: str) -> int | None:
    """The number of a column in the file's metadata; ``None`` if a field of another column could be meant, too: paths are joined by dots."""
    paths = [source.metadata.schema.column(number).path for number in range(source.metadata.num_columns)]
    return paths.index(name) if paths.count(name) == 1 else None


def _group_may_have(group: pq.RowGroupMetaData, leaf: int | None, low: int, high: int) -> bool:
    """Whether a row group can have keys, by the bounds of one of its columns."""
    said = None if leaf is None else group.column(leaf).statistics
    return said is None or not said.has_min_max or not _apart(said.min, said.max, low, high)


class _Parts(io.RawIOBase):
    """A stream of Hadoop's as Arrow reads files: here and there."""

    def __init__(self, stream: Any, size: int) -> None:
        super().__init__()
        self._stream, self._size, self._at = stream, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        self._stream.seek(self._at)
        found = bytes(self._stream.readNBytes(self._size - self._at if size < 0 else size))
        self._at += len(found)
        return found
