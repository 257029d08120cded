"""Replaces the files of a table in which rows change, on Arrow arrays: what a MERGE does for small tables, without Spark's price for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_cdc.changelog.reading.arrow_keys import among, goes
from airflow_provider_cdc.targets.lake.formats.delta.data_files import DataFiles
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import OldFile, OldFiles
from airflow_provider_cdc.targets.lake.formats.key_lookup import NotOnArrays, ranges_of
from airflow_provider_cdc.targets.lake.formats.target import Changes

MOST_BYTES = 64 << 20
"""Bytes of a table whose rows the driver may hold."""
MOST_FILES = 200
GATHERED, SMALL_FILE = 16, 8 << 20
"""How many files a table may have below so many bytes; then they become one."""


@dataclass(frozen=True)
class Replacement:
    """Files that go, and the rows of theirs that stay, with the names and types of the table's files."""

    gone: list[OldFile]
    rows: list[pa.Table]


class CopyOnWrite:
    """Finds the files that hold keys of a batch, and what is left of them.

    :param made: writes the table's files, and knows their columns
    :param files: reads those that are there
    """

    def __init__(self, made: DataFiles, files: OldFiles) -> None:
        self._made, self._files = made, files

    def replace(self, old: Sequence[OldFile], changes: Changes) -> Replacement:
        """
        :raises NotOnArrays: a file that has to be replaced cannot be
        """
        keys = self._made.physical(changes.keys)
        ranges = ranges_of(keys)
        gone: list[OldFile] = []
        left: list[pa.Table] = []
        others: list[OldFile] = []
        for file in old:
            if not (keys.num_rows and file.may_have(ranges) and self._take(file, keys, gone, left)):
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
            rows = self._files.read(file, ())
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
            left += [self._files.read(file, ()) for file in small]

    def _take(self, file: OldFile, keys: pa.Table, gone: list[OldFile], left: list[pa.Table]) -> bool:
        """Whether a file has some of the keys; if so, what is left of it is kept."""
        rows = self._files.read(file, keys.column_names)
        known = among(rows.select(keys.column_names), keys)
        if not known.any():
            return False
        if file.has_vector:
            raise NotOnArrays("a file with some of the keys has a deletion vector")
        gone.append(file)
        if not known.all():
            left.append(rows.filter(pa.array(~known)))
        return True
