"""The time at which each row became visible, from a table's own log, so that no reader disturbs the measurement."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


class CommitTimes(abc.ABC):
    """The rows of one table and when the first commit that has them was there.

    What was read once is not read again: ask as often as you like.

    :param table: folder of the table
    :param column: integer column whose value names a row
    """

    def __init__(self, table: Path, column: str) -> None:
        self.table, self.column = table, column
        self._seen: dict[int, float] = {}
        self._read: set[Any] = set()

    def rows(self) -> dict[int, float]:
        """Value of the column → when it was there, in seconds since 1970."""
        for commit, at in self.commits():
            if commit not in self._read:
                for value in self.added(commit):
                    self._seen.setdefault(value, at)
                self._read.add(commit)
        return self._seen

    @abc.abstractmethod
    def commits(self) -> list[tuple[Any, float]]:
        """Each commit with its time, in their order."""

    @abc.abstractmethod
    def added(self, commit: Any) -> Iterator[int]:
        """The column's values in the files that a commit has added."""


class VisibleInDelta(CommitTimes):
    """By the times of the log's files."""

    def __init__(self, table: Path, column: str) -> None:
        super().__init__(table, column)
        self._physical = column

    def commits(self) -> list[tuple[Any, float]]:
        return [(file, file.stat().st_mtime) for file in sorted((self.table / "_delta_log").glob("*.json"))]

    def added(self, commit: Path) -> Iterator[int]:
        for action in map(json.loads, commit.read_text().splitlines()):
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                found = next(field for field in fields if field["name"] == self.column)
                self._physical = found["metadata"].get("delta.columnMapping.physicalName", self.column)
            if "add" in action:
                file = self.table / action["add"]["path"]
                yield from pq.read_table(file, columns=[self._physical], partitioning=None)[self._physical].to_pylist()


class VisibleInIceberg(CommitTimes):
    """By the times of the snapshots, which are taken some milliseconds before the end of a commit."""

    def commits(self) -> list[tuple[Any, float]]:
        from pyiceberg.table import StaticTable

        files = (self.table / "metadata").glob("v*.metadata.json")
        newest = max(files, key=lambda file: int(file.name[1:].split(".")[0]), default=None)
        if newest is None:
            return []
        self._table = StaticTable.from_metadata(str(newest))
        return [(snapshot.snapshot_id, snapshot.timestamp_ms / 1000) for snapshot in self._table.snapshots()]

    def added(self, commit: int) -> Iterator[int]:
        from pyiceberg.manifest import DataFileContent, ManifestEntryStatus

        snapshot = self._table.snapshot_by_id(commit)
        for manifest in snapshot.manifests(self._table.io) if snapshot else ():
            if manifest.added_snapshot_id != commit:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io):
                if entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.DATA:
                    file = entry.data_file.file_path.removeprefix("file:")
                    yield from pq.read_table(file, columns=[self.column], partitioning=None)[self.column].to_pylist()


KINDS: dict[str, type[CommitTimes]] = {"delta": VisibleInDelta, "iceberg": VisibleInIceberg}
"""Kind of target → the class that finds when its rows were there."""
