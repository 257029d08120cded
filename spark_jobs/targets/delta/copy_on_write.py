"""Replaces the files of a table in which rows change, on Arrow arrays: what a MERGE does for small tables, without Spark's price for one."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.keys import among, goes
from spark_jobs.targets.base import Changes
from spark_jobs.targets.delta.files import DataFiles

MOST_BYTES = 64 << 20
"""Bytes of a table whose rows the driver may hold."""
MOST_FILES = 200
GATHERED, SMALL_FILE = 16, 8 << 20
"""How many files a table may have below so many bytes; then they become one."""
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
        found = json.loads(self.stats) if self.stats else {}
        return found.get("minValues") or {}, found.get("maxValues") or {}


@dataclass(frozen=True)
class Replacement:
    """Files that go, and the rows of theirs that stay, with the names and types of the table's files."""

    gone: list[OldFile]
    rows: list[pa.Table]


class CopyOnWrite:
    """Finds the files that hold keys of a batch, and what is left of them.

    :param made: writes the table's files, and knows their columns
    :param files: the table's filesystem, in Hadoop's words
    :param path: makes a path of Hadoop's
    """

    def __init__(self, made: DataFiles, files: Any, path: Any) -> None:
        self._made, self._files, self._path = made, files, path

    def replace(self, old: Sequence[OldFile], changes: Changes) -> Replacement:
        """
        :raises NotOnArrays: a file that has to be replaced cannot be
        """
        keys = self._made.physical(changes.keys)
        ranges = list(_integers(keys))
        gone: list[OldFile] = []
        left: list[pa.Table] = []
        others: list[OldFile] = []
        for file in old:
            if not (keys.num_rows and _may_have(file, ranges) and self._take(file, keys, gone, left)):
                others.append(file)
        self._gather(others, gone, left)
        return Replacement(gone, left)

    def without(self, places: Sequence[tuple[OldFile, pa.Table]], others: Sequence[OldFile]) -> Replacement:
        """
        :param places: files, and rows that go from each, with the table's columns; of equal ones any
        :param others: the other files of the table; nothing if they are too many to look at
        :raises NotOnArrays: a file cannot be replaced here
        """
        gone: list[OldFile] = []
        left: list[pa.Table] = []
        for file, wanted in places:
            if file.has_vector:
                raise NotOnArrays("a file with some of the rows has a deletion vector")
            rows = self._read(file, ())
            going = goes(rows, self._made.physical(wanted))
            if going.sum() != wanted.num_rows:
                raise NotOnArrays("Arrow does not find the rows that Spark has found")
            gone.append(file)
            if not going.all():
                left.append(rows.filter(pa.array(~going)))
        self._gather(others, gone, left)
        return Replacement(gone, left)

    def _gather(self, files: Sequence[OldFile], gone: list[OldFile], left: list[pa.Table]) -> None:
        """Many small files become one."""
        small = [file for file in files if file.size < SMALL_FILE and not file.has_vector]
        if len(small) >= GATHERED:
            gone += small
            left += [self._read(file, ()) for file in small]

    def _take(self, file: OldFile, keys: pa.Table, gone: list[OldFile], left: list[pa.Table]) -> bool:
        """Whether a file has some of the keys; if so, what is left of it is kept."""
        rows = self._read(file, keys.column_names)
        known = among(rows.select(keys.column_names), keys)
        if not known.any():
            return False
        if file.has_vector:
            raise NotOnArrays("a file with some of the keys has a deletion vector")
        gone.append(file)
        if not known.all():
            left.append(rows.filter(pa.array(~known)))
        return True

    def _read(self, file: OldFile, keys: Sequence[str]) -> pa.Table:
        with self._local(file.path) as name:
            source = pq.ParquetFile(name, coerce_int96_timestamp_unit="us")
            if set(_OTHER_CALENDAR) & set(source.metadata.metadata or {}):
                raise NotOnArrays("a file has dates of an older calendar")
            if lacking := set(keys) - set(source.schema_arrow.names):
                raise NotOnArrays(f"a file lacks {', '.join(sorted(lacking))}")
            return self._made.held(source.read())

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


def _integers(keys: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Key columns of integers, with the least and the greatest value."""
    for name in keys.column_names:
        if keys.num_rows and pa.types.is_integer(keys[name].type) and not keys[name].null_count:
            ends = pc.min_max(keys[name]).as_py()
            yield name, ends["min"], ends["max"]


def _may_have(file: OldFile, ranges: Sequence[tuple[str, int, int]]) -> bool:
    least, most = file.bounds
    return not any(
        isinstance(least.get(name), int)
        and isinstance(most.get(name), int)
        and (most[name] < low or least[name] > high)
        for name, low, high in ranges
    )
