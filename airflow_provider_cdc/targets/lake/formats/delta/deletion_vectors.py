"""Takes rows out of files of a Delta table by deletion vectors: the driver reads the key columns, and writes the vectors.

It does the work of Delta's own DELETE, which takes several Spark jobs. Left to that are tables of very many files, and files that Arrow cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers
from airflow_provider_cdc.targets.lake.formats import parquet_key_lookup
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaDataFile, DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported, ranges_of

_ARRAY_MOST = 4096
"""Values that a container of a bitmap may list."""
_MAGIC, _NO_RUNS = 1681511377, 12346


class JvmClassLoader(Protocol):
    """Looks up classes and objects of the JVM by their full names."""

    def load_class(self, name: str) -> Any: ...
    def load_scala_object(self, name: str) -> Any: ...


class DeletionVectorWriter:
    """New deletion vectors for one table.

    :param log: Delta's view of the table
    :param conf: of Hadoop
    """

    def __init__(self, classes: JvmClassLoader, log: Any, conf: Any, files: DeltaFileReader) -> None:
        self._classes, self._log, self._conf, self._files = classes, log, conf, files

    def build_key_removals(self, old: Sequence[DeltaDataFile], keys: pa.Table) -> list[Any]:
        """Actions that take rows out of files.

        :param old: all files of the table
        :param keys: of the rows that go, with the names and types of the table's files
        :raises NotOnArrays: Spark has to look for the rows
        """
        ranges = ranges_of(keys)
        some = [file for file in old if file.may_have(ranges)]
        if (size := sum(file.size for file in some)) > parquet_key_lookup.MOST_BYTES:
            raise ArrowUnsupported(f"the keys may be in files of {size >> 30} GB")
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            places = list(pool.map(lambda file: self._files.find_row_numbers(file, keys), some))
        return self.build_row_removals(
            [(file, numbers) for file, numbers in zip(some, places, strict=True) if len(numbers)]
        )

    def build_row_removals(self, places: Sequence[tuple[DeltaDataFile, Numbers]]) -> list[Any]:
        """Actions that take rows out of files.

        :param places: files, and the numbers of the rows of each, in order
        :raises NotOnArrays: Spark has to write the vectors
        """
        if any(file.number_of_rows is None for file, _ in places):
            raise ArrowUnsupported("the table does not record the number of rows in a file")
        store = self._classes.load_scala_object(f"{_STORE}.DeletionVectorStore").createInstance(self._conf)
        actions: list[Any] = []
        bitmaps: list[tuple[DeltaDataFile, Any]] = []
        for file, numbers in places:
            bitmap, gone = self._bitmap(store, file, numbers)
            if gone == file.number_of_rows:
                actions.append(file.action.remove())
            elif gone:
                bitmaps.append((file, bitmap))
        return [*actions, *self._written(store, bitmaps)]

    def _bitmap(self, store: Any, file: DeltaDataFile, numbers: Numbers) -> tuple[Any, int]:
        """All rows that are gone from a file then, and how many they are; zero if there are no more than before."""
        bitmap, before = self._classes.load_class(_BITMAP).readFrom(serialize_row_numbers(numbers)), 0
        if file.has_vector:
            previous = store.read(file.action.deletionVector(), self._log.dataPath())
            before = int(previous.cardinality())
            getattr(bitmap, "or")(previous)
        gone = int(bitmap.cardinality())
        return bitmap, gone if gone > before else 0

    def _written(self, store: Any, bitmaps: Sequence[tuple[DeltaDataFile, Any]]) -> list[Any]:
        """Write vectors, all in one file.

        :return: actions that give them to the table's files
        """
        if not bitmaps:
            return []
        path = self._log.dataPath()
        folder = self._classes.load_scala_object("org.apache.spark.sql.delta.util.PathWithFileSystem").withConf(
            path, self._conf
        )
        vectors = self._classes.load_scala_object(f"{_COMMANDS}.DeletionVectorWriter")
        opened = vectors.createWriter(store, folder, "")
        writer, identity = opened._1(), opened._2()
        try:
            context = self._classes.load_class(f"{_COMMANDS}.DeletionVectorWriter$DeletionVectorMapperContext")
            there = context(store, writer, path, identity, "")
            portable = self._classes.load_scala_object(f"{_BITMAP}Format").Portable()
            actions = []
            for file, bitmap in bitmaps:
                bitmap.runOptimize()
                content = bitmap.serializeAsByteArray(portable)
                vector = vectors.storeSerializedBitmap(there, content, int(bitmap.cardinality()))
                both = file.action.removeRows(vector, True, True)
                actions += [both._1(), both._2()]
        finally:
            writer.close()
        return actions


_COMMANDS = "org.apache.spark.sql.delta.commands"
_STORE = "org.apache.spark.sql.delta.storage.dv"
_BITMAP = "org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray"


def serialize_row_numbers(numbers: Numbers) -> bytes:
    """Serialize numbers as Delta stores them in a deletion vector.

    That is a 64-bit Roaring bitmap in the portable form, with Delta's magic number before it
    (Delta's protocol, "Deletion Vector Format"; the Roaring format specification).

    :param numbers: in order, each once; below 2^32

    >>> len(serialize_row_numbers(np.array([1, 5])))
    36
    """
    if len(numbers) and int(numbers[-1]) >> 32:
        raise ArrowUnsupported("a file has more than 4 billion rows")
    high, low = numbers >> 16, (numbers & 0xFFFF).astype("<u2")
    containers, first, sizes = np.unique(high, return_index=True, return_counts=True)
    contents = [_container(low[at : at + size]) for at, size in zip(first, sizes, strict=True)]
    about = np.column_stack([containers, sizes - 1]).astype("<u2")
    head = np.array([_NO_RUNS, len(containers)], "<u4").tobytes() + about.tobytes()
    offsets = len(head) + 4 * len(containers) + np.cumsum([0, *map(len, contents)])[:-1]
    bitmap = head + offsets.astype("<u4").tobytes() + b"".join(contents)
    ahead = np.array([_MAGIC], "<u4").tobytes() + np.array([1], "<u8").tobytes() + np.array([0], "<u4").tobytes()
    return ahead + bitmap


def _container(values: npt.NDArray[np.uint16]) -> bytes:
    """Up to 65,536 numbers: few are listed, of many there is a bit for each."""
    if len(values) <= _ARRAY_MOST:
        return values.tobytes()
    bits = np.zeros(1 << 16, np.bool_)
    bits[values] = True
    return np.packbits(bits, bitorder="little").tobytes()
