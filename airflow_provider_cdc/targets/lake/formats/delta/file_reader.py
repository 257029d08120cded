"""Reads files of a Delta table with Arrow: whole ones, or only where they have some keys."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.scratch_change_log import CLEANUP_EVERY_S, scratch_folder
from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers
from airflow_provider_cdc.targets.lake.formats.delta.data_file_writer import DeltaFileWriter
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import (
    ArrowUnsupported,
    JvmFileStream,
    Range,
    are_ranges_disjoint,
    find_key_rows,
    open_parquet_file,
)


@dataclass(frozen=True)
class DeltaDataFile:
    """A file of the table.

    :param action: of Delta, by which it was added
    """

    action: Any
    path: Any
    size: int
    stats: str
    has_vector: bool

    @classmethod
    def from_action(cls, action: Any, log: Any) -> DeltaDataFile:
        vector = action.deletionVector()
        return cls(action, action.absolutePath(log), int(action.size()), action.stats() or "", vector is not None)

    @cached_property
    def column_bounds(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The least and the greatest values by the columns' physical names, as far as they are known."""
        return self._statistics.get("minValues") or {}, self._statistics.get("maxValues") or {}

    @property
    def number_of_rows(self) -> int | None:
        """Also those that a deletion vector has taken away; ``None`` if the table does not say."""
        return self._statistics.get("numRecords")

    @cached_property
    def _statistics(self) -> dict[str, Any]:
        statistics: dict[str, Any] = json.loads(self.stats) if self.stats else {}
        return statistics

    def may_have(self, ranges: Sequence[Range]) -> bool:
        """Check whether the file can have keys, by its bounds."""
        least, most = self.column_bounds
        return not any(are_ranges_disjoint(least.get(name), most.get(name), low, high) for name, low, high in ranges)


class DeltaFileReader:
    """Reads them.

    :param writer: knows the table's columns
    :param files: the table's filesystem, in Hadoop's words
    :param path: makes a path of Hadoop's
    """

    def __init__(self, writer: DeltaFileWriter, files: Any, path: Any) -> None:
        self._writer, self._files, self._path = writer, files, path

    def read_rows(self, file: DeltaDataFile, needed: Sequence[str]) -> pa.Table:
        """All rows, with the columns that the table has now.

        :param needed: columns that the file must have
        :raises NotOnArrays: it cannot be read here
        """
        with self._local(file.path) as name:
            source = self._opened(name, needed)
            return self._writer.to_current_columns(source.read())

    def find_row_numbers(self, file: DeltaDataFile, keys: pa.Table) -> Numbers:
        """Return the numbers of the rows that have some of the keys, in order.

        Rows that a deletion vector has taken away are among them.

        :param keys: with the names and types of the table's files
        :raises NotOnArrays: the file cannot be read here
        """
        names = keys.column_names
        with self._parts(file) as stream:
            return find_key_rows(
                self._opened(stream, names), keys, dict(zip(names, names, strict=True)), self._writer.as_now
            )

    def _opened(self, source: Any, needed: Sequence[str]) -> pq.ParquetFile:
        parquet_file = open_parquet_file(source)
        if lacking := set(needed) - set(parquet_file.schema_arrow.names):
            raise ArrowUnsupported(f"a file lacks {', '.join(sorted(lacking))}")
        return parquet_file

    @contextlib.contextmanager
    def _local(self, path: Any) -> Iterator[str]:
        uri = path.toUri()
        if self._files.getUri().getScheme() == "file":
            yield uri.getPath()
            return
        with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S) as scratch:
            name = scratch / "file.parquet"
            self._files.copyToLocalFile(False, path, self._path(name.as_uri()), True)
            yield str(name)

    @contextlib.contextmanager
    def _parts(self, file: DeltaDataFile) -> Iterator[Any]:
        """Open the file, of which only some parts will be read."""
        if self._files.getUri().getScheme() == "file":
            yield file.path.toUri().getPath()
            return
        with contextlib.closing(self._files.open(file.path)) as stream:
            yield JvmFileStream(stream, file.size)
