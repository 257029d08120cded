"""Stamps of tables: they change with each version, and a known one makes the next look cheap."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_cdc.targets.lake.formats import load_format

NAMES: dict[str, Callable[[int], str]] = {
    "delta": lambda n: f"_delta_log/{n:020}.json",
    "iceberg": lambda n: f"metadata/v{n}.metadata.json",
    "iceberg, compressed": lambda n: f"metadata/v{n}.gz.metadata.json",
    "iceberg, compressed in the older way": lambda n: f"metadata/v{n}.metadata.json.gz",
}


class CountedFiles(LocalFileSystem):
    """A local filesystem that counts the lists and the other requests that a store would get."""

    def __init__(self) -> None:
        super().__init__(skip_instance_cache=True)
        self.lists = self.requests = 0

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        self.lists += 1
        return super().ls(path, detail, **options)

    def cat_file(self, path: str, *range_: Any, **options: Any) -> Any:
        self.requests += 1
        return super().cat_file(path, *range_, **options)


@pytest.fixture(params=NAMES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FormatTable(tmp_path / "t", str(request.param))


class FormatTable:
    """Files of versions as a format names them; their contents are a stand-in of the formats' own."""

    def __init__(self, folder: Path, format_: str) -> None:
        self.folder, self._name = folder, NAMES[format_]
        self._stamp = load_format(format_.partition(",")[0]).load_stamp()
        self.files = CountedFiles()

    def commit(self, *versions: int, of: str = "this table") -> None:
        for n in versions:
            path = self.folder / self._name(n)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"id": f"{of} {n}"}))

    def drop_version(self, version: int) -> None:
        (self.folder / self._name(version)).unlink()

    def stamp(self, known: str = "") -> str:
        assert self._stamp is not None
        return self._stamp(self.files, str(self.folder), known)


def test_a_stamp_changes_with_each_version_whether_one_is_known_or_not(table: FormatTable) -> None:
    assert table.stamp() == ""
    seen = [""]
    for version in range(1, 40):
        table.commit(version)
        stamps = {table.stamp(), table.stamp(seen[-1]), table.stamp(seen[len(seen) // 2])}
        assert len(stamps) == 1
        assert stamps.isdisjoint(seen)
        seen += stamps


def test_a_known_stamp_makes_a_look_cheap_however_many_versions_there_are(table: FormatTable) -> None:
    table.commit(*range(1, 500))
    known = table.stamp()
    table.files.lists = table.files.requests = 0
    assert table.stamp(known) == known
    table.commit(500, 501)
    assert table.stamp(known) == table.stamp()
    assert table.files.lists == 1  # of the look without a known stamp
    assert table.files.requests < 30


def test_a_stamp_of_another_table_or_of_a_removed_version_is_no_start(table: FormatTable) -> None:
    table.commit(1, 2, 3)
    known = table.stamp()
    table.drop_version(3)
    assert table.stamp(known) == table.stamp() != known  # an older copy
    table.commit(3, 4, 5, of="another table")
    assert table.stamp(known) == table.stamp() != known
    later = table.stamp()
    table.commit(*range(6, 60))
    for version in range(1, 59):
        table.drop_version(version)
    assert table.stamp(later) == table.stamp() != later  # maintenance removed the known version
    shutil.rmtree(table.folder)
    assert table.stamp(later) == ""


def test_a_version_far_beyond_the_known_one_is_found(table: FormatTable) -> None:
    table.commit(1)
    known = table.stamp()
    table.commit(*range(2, 300))
    assert table.stamp(known) == table.stamp()
    assert table.stamp().startswith("299:")
