"""Replaces the files of a table in which rows change, on Arrow arrays: the work of a MERGE for small tables, without the cost of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_cdc.changelog.reading.arrow_row_matching import match_keys, match_multiset
from airflow_provider_cdc.targets.lake.formats.delta.data_file_writer import DeltaFileWriter
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaDataFile, DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported, ranges_of
from airflow_provider_cdc.targets.lake.formats.table_values import KeyedChanges

MOST_BYTES = 64 << 20
"""Bytes of a table whose rows the driver may hold."""
MOST_FILES = 200
GATHERED, SMALL_FILE = 16, 8 << 20
"""How many files a table may have below so many bytes; then they become one."""


@dataclass(frozen=True)
class DeltaFileReplacement:
    """Files that go, and the rows of theirs that stay, with the names and types of the table's files."""

    gone: list[DeltaDataFile]
    rows: list[pa.Table]


class DeltaCopyOnWrite:
    """Finds the files that hold keys of a batch, and their remaining rows.

    :param writer: writes the table's files, and knows their columns
    :param files: reads those that are there
    """

    def __init__(self, writer: DeltaFileWriter, files: DeltaFileReader) -> None:
        self._writer, self._files = writer, files

    def replace_keys(self, old: Sequence[DeltaDataFile], changes: KeyedChanges) -> DeltaFileReplacement:
        """Replace the files that have some of the keys.

        :raises NotOnArrays: a file that has to be replaced cannot be
        """
        keys = self._writer.to_file_columns(changes.keys)
        ranges = ranges_of(keys)
        gone: list[DeltaDataFile] = []
        left: list[pa.Table] = []
        others: list[DeltaDataFile] = []
        for file in old:
            if not (keys.num_rows and file.may_have(ranges) and self._take(file, keys, gone, left)):
                others.append(file)
        self._gather(others, gone, left)
        return DeltaFileReplacement(gone, left)

    def remove_rows(
        self, places: Sequence[tuple[DeltaDataFile, pa.Table]], others: Sequence[DeltaDataFile]
    ) -> DeltaFileReplacement:
        """Replace files, without some of their rows.

        :param places: files, and rows that go from each, with the table's columns; of equal ones any
        :param others: the other files of the table; empty if they are too many to read
        :raises NotOnArrays: a file cannot be replaced here
        """
        gone: list[DeltaDataFile] = []
        left: list[pa.Table] = []
        for file, rows_to_remove in places:
            if file.has_vector:
                raise ArrowUnsupported("a file with some of the rows has a deletion vector")
            rows = self._files.read_rows(file, ())
            going = match_multiset(rows, self._writer.to_file_columns(rows_to_remove))
            if going.sum() != rows_to_remove.num_rows:
                raise ArrowUnsupported("Arrow does not find the rows that Spark found")
            gone.append(file)
            if not going.all():
                left.append(rows.filter(pa.array(~going)))
        self._gather(others, gone, left)
        return DeltaFileReplacement(gone, left)

    def _gather(self, files: Sequence[DeltaDataFile], gone: list[DeltaDataFile], left: list[pa.Table]) -> None:
        """Many small files become one."""
        small = [file for file in files if file.size < SMALL_FILE and not file.has_vector]
        if len(small) >= GATHERED:
            gone += small
            left += [self._files.read_rows(file, ()) for file in small]

    def _take(self, file: DeltaDataFile, keys: pa.Table, gone: list[DeltaDataFile], left: list[pa.Table]) -> bool:
        """Check whether a file has some of the keys; if so, keep its remaining rows."""
        rows = self._files.read_rows(file, keys.column_names)
        matches = match_keys(rows.select(keys.column_names), keys)
        if not matches.any():
            return False
        if file.has_vector:
            raise ArrowUnsupported("a file with some of the keys has a deletion vector")
        gone.append(file)
        if not matches.all():
            left.append(rows.filter(pa.array(~matches)))
        return True
