"""Files of an Iceberg table that are written from arrays: rows, keys that are deleted, and positions that are deleted."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.scratch_change_log import CLEANUP_EVERY_S, scratch_folder
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class

FILE_BYTES = 256 << 20
"""About as many bytes of Arrow arrays are one file."""
_PLAIN = {
    "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
_ID = "PARQUET:field_id"
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={_ID: "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_ID: "2147483545"}),
    ]
)
"""Of files with deleted positions, as the format has it."""


def read_table_fields(spark: SparkSession, table: Any) -> list[dict[str, Any]]:
    """Return the columns of a table, as the format's JSON has them."""
    fields: list[dict[str, Any]] = json.loads(load_jvm_class(spark, f"{ICEBERG}.SchemaParser").toJson(table.schema()))[
        "fields"
    ]
    return fields


class IcebergFileWriter:
    """Writes new files of a table that has no partitions.

    :param table: ``org.apache.iceberg.Table``; its columns have types that :func:`arrow_type` knows
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._spark, self._table = spark, table
        self._schema = pa.schema([_field(field) for field in read_table_fields(spark, table)])
        self._written: dict[str, int] = {}

    @property
    def column_names(self) -> list[str]:
        """The columns of the table."""
        return list(self._schema.names)

    @property
    def file_sizes(self) -> list[int]:
        """Bytes of each file that was written."""
        return list(self._written.values())

    def write_rows(self, slices: Iterator[pa.Table]) -> Iterator[Any]:
        """Write rows.

        :return: files (``org.apache.iceberg.DataFile``)
        """
        waiting: list[pa.Table] = []
        for slice_ in slices:
            waiting.append(self.to_file_columns(slice_))
            if sum(rows.nbytes for rows in waiting) >= FILE_BYTES:
                yield self._data(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            yield self._data(pa.concat_tables(waiting))

    def write_equality_deletes(self, keys: pa.Table) -> Any:
        """Delete all rows of older snapshots that have one of some keys; NULL equals NULL.

        :return: a file (``org.apache.iceberg.DeleteFile``)
        """
        physical = self.to_file_columns(keys)
        numbers = [int(field.metadata[_ID.encode()]) for field in physical.schema]
        gateway = self._spark.sparkContext._gateway
        ids = gateway.new_array(gateway.jvm.int, len(numbers))  # type: ignore[union-attr]
        for at, number in enumerate(numbers):
            ids[at] = number
        return self._deletes(physical, "keys", self._builder().ofEqualityDeletes(ids), self._of_table())

    def write_position_deletes(self, positions: pa.Table) -> Any:
        """Delete rows by where they are.

        :param positions: ``file``, and the positions in it in a list, ``at``
        :return: a file (``org.apache.iceberg.DeleteFile``)
        """
        positions = positions.sort_by("file").combine_chunks()
        at = positions["at"].combine_chunks()
        paths = positions["file"].combine_chunks().take(pc.list_parent_indices(at))
        rows = pa.table([paths.cast(pa.string()), pc.list_flatten(at).cast(pa.int64())], schema=_POSITIONS)
        config = load_jvm_class(self._spark, f"{ICEBERG}.MetricsConfig").forPositionDelete()
        return self._deletes(rows, "positions", self._builder().ofPositionDeletes(), config)

    def to_file_columns(self, rows: pa.Table) -> pa.Table:
        """Rows with the table's types, the numbers that its columns have, and their order."""
        fields = [field for field in self._schema if field.name in rows.column_names]
        return pa.table([_cast(rows[f.name], f.type) for f in fields], schema=pa.schema(fields))

    def to_current_columns(self, rows: pa.Table) -> pa.Table | None:
        """Return the rows of a file of the table with all its columns, as their names and types are now.

        Return ``None`` if that is left to Spark.
        """
        numbers = [(field.metadata or {}).get(_ID.encode()) for field in rows.schema]
        if None in numbers:
            return None
        columns = []
        for field in self._schema:
            if (number := field.metadata[_ID.encode()]) not in numbers:
                columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)], field.type))
            elif _becomes(rows.column(at := numbers.index(number)).type, field.type):
                columns.append(_cast(rows.column(at), field.type))
            else:
                return None
        return pa.table(columns, schema=self._schema)

    def in_file(self, schema: pa.Schema, names: Sequence[str]) -> dict[str, str] | None:
        """Return the names that some columns have in a file of the table; ``None`` if that is left to Spark.

        :param schema: of the file
        """
        numbers = {(field.metadata or {}).get(_ID.encode()): field for field in schema}
        names_in_file = {}
        for name in names:
            field = self._schema.field(name)
            held = numbers.get(field.metadata[_ID.encode()])
            if held is None or not _becomes(held.type, field.type):
                return None
            names_in_file[name] = held.name
        return names_in_file

    def as_now(self, rows: pa.Table) -> pa.Table:
        """Return some columns of a file of the table, as their names and types are now."""
        now = {field.metadata[_ID.encode()]: field for field in self._schema}
        fields = [now[field.metadata[_ID.encode()]] for field in rows.schema]
        return pa.table(
            [_cast(rows[at], field.type) for at, field in enumerate(fields)], [field.name for field in fields]
        )

    def remove_files(self) -> None:
        """Remove all files that were written: no snapshot will have them."""
        for location in self._written:
            self._table.io().deleteFile(location)

    def _data(self, rows: pa.Table) -> Any:
        builder = load_jvm_class(self._spark, f"{ICEBERG}.DataFiles").builder(self._table.spec())
        return self._build_file(rows.select(self._schema.names), "rows", builder, self._of_table())

    def _deletes(self, rows: pa.Table, kind: str, builder: Any, config: Any) -> Any:
        return self._build_file(rows, kind, builder, config)

    def _builder(self) -> Any:
        return load_jvm_class(self._spark, f"{ICEBERG}.FileMetadata").deleteFileBuilder(self._table.spec())

    def _of_table(self) -> Any:
        return load_jvm_class(self._spark, f"{ICEBERG}.MetricsConfig").forTable(self._table)

    def _build_file(self, rows: pa.Table, kind: str, builder: Any, config: Any) -> Any:
        location, size = self._put(rows, kind)
        written = self._table.io().newInputFile(location)
        metrics = load_jvm_class(self._spark, f"{ICEBERG}.parquet.ParquetUtil").fileMetrics(written, config)
        return builder.withPath(location).withFormat("parquet").withFileSizeInBytes(size).withMetrics(metrics).build()

    def _put(self, rows: pa.Table, kind: str) -> tuple[str, int]:
        """Write a file where the table has its own, through its own way to the store."""
        name = f"{uuid.uuid4()}-{kind}.parquet"
        location = str(self._table.locationProvider().newDataLocation(name))
        with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S) as scratch:
            local = scratch / name
            pq.write_table(
                rows, local, compression="zstd", compression_level=1, store_decimal_as_integer=True, coerce_timestamps="us"
            )  # fmt: skip
            path = load_jvm_class(self._spark, "java.nio.file.Path").of(
                str(local), self.create_empty_array("java.lang.String")
            )
            self._written[location] = os.path.getsize(local)
            stream = self._table.io().newOutputFile(location).create()
            try:
                load_jvm_class(self._spark, "java.nio.file.Files").copy(path, stream)
            finally:
                stream.close()
            return location, self._written[location]

    def create_empty_array(self, type_: str) -> Any:
        """Create an empty array of a class of the JVM: a method with any number of arguments takes it for none."""
        return self._spark.sparkContext._gateway.new_array(load_jvm_class(self._spark, type_), 0)  # type: ignore[union-attr]


# -- types ------------------------------------------------------------------------------------------------------------


def arrow_type(type_: Any) -> pa.DataType | None:
    """Return the Arrow type of a type in the format's JSON; ``None`` if it is none that change logs have.

    >>> arrow_type("decimal(12, 2)")
    Decimal128Type(decimal128(12, 2))
    """
    if isinstance(type_, str):
        if type_.startswith("decimal("):
            return pa.decimal128(*map(int, type_.removeprefix("decimal(").removesuffix(")").split(",")))
        return _PLAIN.get(type_)
    if type_["type"] == "list":
        element = arrow_type(type_["element"])
        return None if element is None else pa.list_(_numbered("element", element, type_["element-id"]))
    if type_["type"] == "struct" and all(arrow_type(field["type"]) is not None for field in type_["fields"]):
        return pa.struct([_field(field) for field in type_["fields"]])
    return None


def _field(field: Mapping[str, Any]) -> pa.Field:
    type_ = arrow_type(field["type"])
    assert type_ is not None, "unfit has looked"
    return _numbered(field["name"], type_, field["id"])


def _numbered(name: str, type_: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, type_, metadata={_ID: str(number)})


def _cast(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([_cast_one(chunk, type_) for chunk in values.chunks], type_)


def _cast_one(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values as another type. Arrow's own cast leaves the numbers of nested fields out."""
    if pa.types.is_struct(type_):
        parts = [_cast_one(pc.struct_field(values, [i]), type_.field(i).type) for i in range(type_.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=values.is_null())
    return values.cast(type_)


def _becomes(there: pa.DataType, type_: pa.DataType) -> bool:
    """Check whether values of a file are those of a column, or become them without a change of value."""
    if pa.types.is_nested(type_):
        return bool(there.equals(type_, check_metadata=True))
    if pa.types.is_decimal128(there) and pa.types.is_decimal128(type_):
        return bool(there.scale == type_.scale and there.precision <= type_.precision)
    return there == type_ or (there, type_) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def explain_unfit_columns(columns: Sequence[Mapping[str, Any]], names: Sequence[str], *, others: bool = False) -> str:
    """Why rows with some columns cannot be written as files of a table; empty if they can.

    :param columns: of the table, as :func:`read_table_fields` gives them
    :param others: whether the table may have more columns
    """
    there = {column["name"] for column in columns}
    if more := set(names) - there if others else there ^ set(names):
        return f"its columns differ from the source columns: {', '.join(sorted(more))}"
    if required := [column["name"] for column in columns if column["required"]]:
        return f"some columns are NOT NULL: {', '.join(required)}"
    odd = [
        f"{column['name']} has the type {column['type']}" for column in columns if arrow_type(column["type"]) is None
    ]
    return f"column {odd[0]}" if odd else ""
