"""Writes Parquet files of a Delta table from Arrow arrays, and brings those that are there to its columns of today."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark

from airflow_provider_cdc.changelog.files.scratch_change_log import CLEANUP_EVERY_S, scratch_folder
from airflow_provider_cdc.targets.lake.formats.delta.file_schema import (
    DeltaFileLayout,
    cast_column,
    field_of,
    is_ordered,
)

FILE_BYTES = 256 << 20
"""About as many bytes of Arrow arrays are one file."""
STRICT_TEXT = 32
"""Characters of a text up to which the statistics of a file may hold it whole."""
GREGORIAN, LAST_DAY = -141_427, 2_932_896
"""1582-10-15, in days since 1970: dates before it are others to readers that know an older calendar. 9999-12-31: readers that parse statistics know none after it."""


class DeltaFileWriter:
    """Writes rows as new files of a table.

    :param folder: of the table, in Hadoop's words
    :param files: its filesystem, in Hadoop's words
    """

    def __init__(self, layout: DeltaFileLayout, folder: Any, files: Any, path: Any) -> None:
        self._layout, self._folder, self._files, self._path = layout, folder, files, path
        # the calendar of dates is that of Spark 3 and later
        self._schema = pa.schema(
            [field_of(field) for field in layout.fields], {"org.apache.spark.version": pyspark.__version__}
        )

    def write_files(self, rows: Iterator[pa.Table]) -> list[dict[str, Any]]:
        """``add`` actions of the files.

        :param rows: as :meth:`to_file_columns` or :meth:`to_current_columns` give them
        """
        actions: list[dict[str, Any]] = []
        waiting: list[pa.Table] = []
        for slice_ in rows:
            waiting.append(slice_)
            if sum(table.nbytes for table in waiting) >= FILE_BYTES:
                actions.append(self._file(pa.concat_tables(waiting)))
                waiting = []
        if waiting:
            actions.append(self._file(pa.concat_tables(waiting)))
        return actions

    def to_file_columns(self, rows: pa.Table) -> pa.Table:
        """Columns of a batch with the table's types, and the names that its files have."""
        fields = dict(zip((field["name"] for field in self._layout.fields), self._schema, strict=True))
        present_fields = [field for name, field in fields.items() if name in rows.column_names]
        columns = [cast_column(rows[name], field.type) for name, field in fields.items() if name in rows.column_names]
        return pa.table(columns, schema=pa.schema(present_fields, self._schema.metadata))

    def to_current_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a file of the table with all its columns, as their types are now."""
        columns = [
            cast_column(rows[field.name], field.type) if field.name in rows.column_names
            else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            for field in self._schema
        ]  # fmt: skip
        return pa.table(columns, schema=self._schema)

    def as_now(self, rows: pa.Table) -> pa.Table:
        """Return some columns of a file of the table, as their types are now."""
        names = rows.column_names
        return pa.table([cast_column(rows[name], self._schema.field(name).type) for name in names], names=names)

    def _file(self, rows: pa.Table) -> dict[str, Any]:
        name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S) as scratch:
            local = scratch / name
            pq.write_table(
                rows,
                local,
                compression="zstd",
                compression_level=1,
                store_decimal_as_integer=True,
                coerce_timestamps="us",
            )
            size = os.path.getsize(local)
            stats = compute_statistics(rows)
            self._files.copyFromLocalFile(True, True, self._path(local.as_uri()), self._path(self._folder, name))
        return {
            "path": name, "partitionValues": {}, "size": size, "modificationTime": int(time.time() * 1000), "dataChange": True,
            "stats": json.dumps({**stats, "tightBounds": True} if self._layout.has_vectors else stats),
        }  # fmt: skip


def compute_statistics(rows: pa.Table) -> dict[str, Any]:
    """Compute the statistics of a file, for readers that skip files.

    That is known of columns of numbers, dates and short texts, as Delta writes it.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in rows.schema:
        values = rows[column.name]
        if pa.types.is_nested(column.type):
            continue
        nulls[column.name] = values.null_count
        if not is_ordered(column.type):
            continue
        ends = pc.min_max(values)
        if ends["min"].is_valid and None not in (shown := (_shown(ends["min"]), _shown(ends["max"]))):
            least[column.name], most[column.name] = shown
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _shown(scalar: pa.Scalar) -> Any:
    """Return a value as statistics have it; ``None`` if they cannot hold it exactly.

    An inexact one would hide rows from readers.
    """
    if pa.types.is_date(scalar.type):
        days = scalar.cast(pa.int32()).as_py()
        return scalar.as_py().isoformat() if GREGORIAN < days <= LAST_DAY else None
    value = scalar.as_py()
    if isinstance(value, Decimal):
        number = int(value) if value == value.to_integral_value() else float(value)
        return number if Decimal(repr(number)) == value and "e" not in repr(number) else None
    if isinstance(value, str):
        return value if len(value) <= STRICT_TEXT else None
    return value if isinstance(value, int) else None
