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

from airflow_provider_cdc.changelog.files.temporary_log import LOOK_AGAIN_S, scratch_folder
from airflow_provider_cdc.changelog.reading.arrow_keys import Numbers
from airflow_provider_cdc.targets.lake.formats.delta.data_files import DataFiles
from airflow_provider_cdc.targets.lake.formats.key_lookup import NotOnArrays, Parts, Range, apart, lookup, opened


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
        return not any(apart(least.get(name), most.get(name), low, high) for name, low, high in ranges)


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
        names = keys.column_names
        with self._parts(file) as stream:
            return lookup(self._opened(stream, names), keys, dict(zip(names, names, strict=True)), self._made.as_now)

    def _opened(self, source: Any, needed: Sequence[str]) -> pq.ParquetFile:
        found = opened(source)
        if lacking := set(needed) - set(found.schema_arrow.names):
            raise NotOnArrays(f"a file lacks {', '.join(sorted(lacking))}")
        return found

    @contextlib.contextmanager
    def _local(self, path: Any) -> Iterator[str]:
        uri = path.toUri()
        if self._files.getUri().getScheme() == "file":
            yield uri.getPath()
            return
        with scratch_folder(look_s=LOOK_AGAIN_S) as scratch:
            name = scratch / "file.parquet"
            self._files.copyToLocalFile(False, path, self._path(name.as_uri()), True)
            yield str(name)

    @contextlib.contextmanager
    def _parts(self, file: OldFile) -> Iterator[Any]:
        """The file, of which only some parts will be read."""
        if self._files.getUri().getScheme() == "file":
            yield file.path.toUri().getPath()
            return
        with contextlib.closing(self._files.open(file.path)) as stream:
            yield Parts(stream, file.size)
