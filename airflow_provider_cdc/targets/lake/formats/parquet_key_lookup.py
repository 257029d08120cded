"""Looks for keys in Parquet files of tables, on Arrow arrays: only the key columns are read, of row groups that can have some of the keys."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers, match_keys

MOST_FILES, MOST_BYTES = 500, 4 << 30
"""Files that are looked into, and their bytes, of which only those of the key columns are read: beyond that Spark is faster, with all of its
executors."""
Range = tuple[str, int, int]
"""A key column of integers, with its least and its greatest value."""
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class ArrowUnsupported(Exception):
    """A file has something that is left to Spark; the message names it."""


def open_parquet_file(source: Any) -> pq.ParquetFile:
    """Open a file of the table.

    :param source: its path, or :class:`JvmFileStream` of it
    :raises NotOnArrays: Arrow would misread its values
    """
    parquet_file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
    if set(_OTHER_CALENDAR) & set(parquet_file.metadata.metadata or {}):
        raise ArrowUnsupported("a file has dates of an older calendar")
    return parquet_file


def find_key_rows(
    file: pq.ParquetFile, keys: pa.Table, columns: Mapping[str, str], as_now: Callable[[pa.Table], pa.Table]
) -> Numbers:
    """Return the numbers of a file's rows that have some of the keys, in order.

    :param columns: column of ``keys`` → its name in the file
    :param as_now: gives rows of the file the names and types of ``keys``
    """
    numbers, first, held = list[Numbers](), 0, [columns[name] for name in keys.column_names]
    bounded = [(_leaf(file, columns[name]), low, high) for name, low, high in ranges_of(keys)]
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if all(_may_have(group, leaf, low, high) for leaf, low, high in bounded):
            # a name stands for columns that begin with it and a dot, too, and all come in the order of the file
            rows = file.read_row_group(number, held, use_threads=False).select(held)
            numbers.append(first + np.flatnonzero(match_keys(as_now(rows), keys)))
        first += group.num_rows
    return np.concatenate(numbers) if numbers else np.zeros(0, np.int64)


def ranges_of(keys: pa.Table) -> list[Range]:
    """Compute the ranges of all keys."""
    ranges = []
    for name in keys.column_names:
        if keys.num_rows and pa.types.is_integer(keys[name].type) and not keys[name].null_count:
            ends = pc.min_max(keys[name]).as_py()
            ranges.append((name, ends["min"], ends["max"]))
    return ranges


def are_ranges_disjoint(least: Any, most: Any, low: int, high: int) -> bool:
    """Check whether values between two bounds are none of those between two others, as far as the bounds are known."""
    return isinstance(least, int) and isinstance(most, int) and (most < low or least > high)


def _leaf(file: pq.ParquetFile, name: str) -> int | None:
    """Return the number of a column in the file's metadata.

    Return ``None`` if a field of another column could be meant, too: paths are joined by dots.
    """
    paths = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
    return paths.index(name) if paths.count(name) == 1 else None


def _may_have(group: pq.RowGroupMetaData, leaf: int | None, low: int, high: int) -> bool:
    """Check whether a row group can have keys, by the bounds of one of its columns."""
    statistics = None if leaf is None else group.column(leaf).statistics
    return (
        statistics is None
        or not statistics.has_min_max
        or not are_ranges_disjoint(statistics.min, statistics.max, low, high)
    )


class JvmFileStream(io.RawIOBase):
    """A stream of the JVM as Arrow reads files: here and there.

    :param stream: with ``seek`` and ``readNBytes``; of Hadoop's or of Iceberg's
    :param size: bytes
    """

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
        block = bytes(self._stream.readNBytes(self._size - self._at if size < 0 else size))
        self._at += len(block)
        return block
