"""Commits a batch as a file of its own beside deletion vectors of the rows that it replaces, in one transaction and without a MERGE.

Arrow writes the file, Spark only finds the rows: the cost follows the batch and the key columns, not the rows of the table. Delta has
no public interface for such a commit. What is called here is its own, of the version that ``FORMAT.packages`` names; a table that has
anything which these calls would not take care of is merged (:func:`not_for`).
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reduction import Reduction
from spark_jobs.datatypes import quoted
from spark_jobs.last import OURS

FILE_BYTES = 256 << 20
"""About as many bytes of Arrow arrays are one file."""
STRICT_TEXT = 32
"""Characters of a text up to which the statistics of a file may hold it whole."""
GREGORIAN = datetime.date(1582, 10, 15)
"""Dates before it are others to readers that know an older calendar."""
BROADCAST_KEYS = 5_000_000
METADATA = f"{OURS}metadata"
"""Column of Spark's that says where a row is."""
_FEATURES = frozenset(
    {"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
)  # fmt: skip
"""Features of tables that ask nothing more of a writer than what is done here."""
_PLAIN = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as its files have it, at some version.

    :param fields: of the schema, as Delta writes them
    :param properties: of the table
    :param features: names in its protocol
    """

    fields: list[dict[str, Any]]
    partitions: list[str]
    properties: Mapping[str, str]
    features: frozenset[str]

    @property
    def has_vectors(self) -> bool:
        return self.properties.get("delta.enableDeletionVectors") == "true"


def not_for(layout: Layout, names: Sequence[str]) -> str:
    """Why a table has to be merged; empty if it need not be.

    :param names: columns of the source
    """
    there = {field["name"] for field in layout.fields}
    odd = layout.features - _FEATURES
    if layout.partitions:
        return f"it is partitioned by {', '.join(layout.partitions)}"
    if odd:
        return f"it has {', '.join(sorted(odd))}"
    if more := there ^ set(names):
        return f"its columns are not those of the source: {', '.join(sorted(more))}"
    if any(
        set(field["metadata"]) - {k for k in field["metadata"] if k.startswith(_MAPPING)} - _HARMLESS
        for field in layout.fields
    ):
        return "its columns have conditions or generated values"
    rules = [name for name in layout.properties if name.startswith("delta.constraints.")]
    if rules or layout.properties.get("delta.enableChangeDataFeed") == "true":
        return "it has constraints, or a feed of its changes"
    if layout.properties.get("delta.appendOnly") == "true":
        return "it takes no deletes"
    for field in layout.fields:
        if _arrow(field["type"]) is None:
            return f"column {field['name']} has the type {field['type']}"
    return ""


_MAPPING = "delta.columnMapping."
_HARMLESS = frozenset({"comment", "delta.typeChanges"})


class DataFiles:
    """Writes rows as new files of a table.

    :param folder: of the table, in Hadoop's words
    :param files: its filesystem, in Hadoop's words
    """

    def __init__(self, layout: Layout, folder: Any, files: Any, path: Any) -> None:
        self._layout, self._folder, self._files, self._path = layout, folder, files, path
        # the calendar of dates is that of Spark 3 and later
        self._schema = pa.schema(
            [_field(field) for field in layout.fields], {"org.apache.spark.version": pyspark.__version__}
        )

    def write(self, rows: Iterator[pa.Table]) -> list[dict[str, Any]]:
        """``add`` actions of the files."""
        made: list[dict[str, Any]] = []
        waiting: list[pa.Table] = []
        for slice_ in rows:
            waiting.append(self._physical(slice_))
            if sum(table.nbytes for table in waiting) >= FILE_BYTES:
                made.append(self._file(pa.concat_tables(waiting)))
                waiting = []
        if waiting:
            made.append(self._file(pa.concat_tables(waiting)))
        return made

    def _physical(self, rows: pa.Table) -> pa.Table:
        """Rows with the table's types, and the names that its files have."""
        columns = [
            _cast(rows[field["name"]], wanted.type)
            for field, wanted in zip(self._layout.fields, self._schema, strict=True)
        ]
        return pa.table(columns, schema=self._schema)

    def _file(self, rows: pa.Table) -> dict[str, Any]:
        name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        with tempfile.TemporaryDirectory(prefix="cdc-") as scratch:
            local = Path(scratch, name)
            pq.write_table(
                rows,
                local,
                compression="zstd",
                compression_level=1,
                store_decimal_as_integer=True,
                coerce_timestamps="us",
            )
            size = os.path.getsize(local)
            stats = statistics(rows)
            self._files.copyFromLocalFile(True, True, self._path(local.as_uri()), self._path(self._folder, name))
        return {
            "path": name, "partitionValues": {}, "size": size, "modificationTime": int(time.time() * 1000), "dataChange": True,
            "stats": json.dumps({**stats, "tightBounds": True} if self._layout.has_vectors else stats),
        }  # fmt: skip


def statistics(rows: pa.Table) -> dict[str, Any]:
    """What a file holds, for readers that skip files: of columns of numbers, dates and short texts, as Delta writes it."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in rows.schema:
        values = rows[column.name]
        if pa.types.is_nested(column.type):
            continue
        nulls[column.name] = values.null_count
        if not _ordered(column.type):
            continue
        ends = pc.min_max(values).as_py()
        if ends["min"] is not None and None not in (shown := (_shown(ends["min"]), _shown(ends["max"]))):
            least[column.name], most[column.name] = shown
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _shown(value: Any) -> Any:
    """A value as statistics have it; ``None`` if they cannot hold it exactly: an inexact one would hide rows from readers."""
    if isinstance(value, Decimal):
        number = int(value) if value == value.to_integral_value() else float(value)
        return number if Decimal(repr(number)) == value and "e" not in repr(number) else None
    if isinstance(value, str):
        return value if len(value) <= STRICT_TEXT else None
    if isinstance(value, datetime.date):
        return value.isoformat() if value > GREGORIAN else None
    return value if isinstance(value, int) else None


def matching(rows: DataFrame, keys: DataFrame, changes: Reduction) -> DataFrame:
    """The table's rows with some of the keys, as where they are: their files' :data:`METADATA`.

    :param rows: of the table at the version that the commit is based on
    :param keys: with the key columns; a key may come several times
    """
    names = list(changes.keys.column_names)
    found = rows.select(
        *[F.col(quoted(name)).alias(f"t{i}") for i, name in enumerate(names)],
        F.col("_metadata").alias(METADATA),
    )  # fmt: skip
    for i, name in enumerate(names):
        if bounds := _bounds(changes.keys[name]):  # files without such keys are not read
            found = found.where(F.col(f"t{i}").between(*bounds))
    same = reduce(and_, [F.col(f"t{i}").eqNullSafe(F.col(f"k.{quoted(name)}")) for i, name in enumerate(names)])
    known = F.broadcast(keys) if changes.keys.num_rows < BROADCAST_KEYS else keys
    return found.join(known.alias("k"), same, "left_semi")


def _bounds(keys: pa.ChunkedArray) -> tuple[Column, Column] | None:
    """The least and the greatest key, if a filter by them finds all keys."""
    if keys.null_count or not len(keys) or not _ordered(keys.type):
        return None
    ends = pc.min_max(keys).as_py()
    least, most = ends["min"], ends["max"]
    if isinstance(least, datetime.date):
        if least <= GREGORIAN:  # filters that Spark gives to the reader of files take such dates for others
            return None
        return F.lit(least.isoformat()).cast("date"), F.lit(most.isoformat()).cast("date")
    return F.lit(least), F.lit(most)


def _ordered(type_: pa.DataType) -> bool:
    is_ = pa.types
    return any(kind(type_) for kind in (is_.is_integer, is_.is_string, is_.is_date, is_.is_decimal))


# -- types ------------------------------------------------------------------------------------------------------------


def _field(field: Mapping[str, Any]) -> pa.Field:
    """A field of Delta's schema as it is in the files: by its physical name and number, where columns are mapped."""
    name = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    number = field["metadata"].get("delta.columnMapping.id")
    type_ = _arrow(field["type"])
    assert type_ is not None, "not_for has looked"
    return pa.field(name, type_, metadata=None if number is None else {"PARQUET:field_id": str(number)})


def _arrow(type_: Any) -> pa.DataType | None:
    """The Arrow type of a Delta type; ``None`` if it is none that change logs have."""
    if isinstance(type_, str):
        if type_.startswith("decimal("):
            return pa.decimal128(*map(int, type_.removeprefix("decimal(").removesuffix(")").split(",")))
        return _PLAIN.get(type_)
    if type_["type"] == "array":
        element = _arrow(type_["elementType"])
        return None if element is None else pa.list_(pa.field("element", element))
    if type_["type"] == "struct" and all(_arrow(field["type"]) is not None for field in type_["fields"]):
        return pa.struct([_field(field) for field in type_["fields"]])
    return None


def _cast(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_struct(wanted):
        whole = values.combine_chunks()
        chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
        made = []
        for chunk in chunks:
            parts = [pc.struct_field(chunk, [i]).cast(wanted.field(i).type) for i in range(wanted.num_fields)]
            made.append(pa.StructArray.from_arrays(parts, fields=list(wanted), mask=chunk.is_null()))
        return pa.chunked_array(made, wanted)
    return values.cast(wanted)


# -- the transaction ----------------------------------------------------------------------------------------------------


class Delta:
    """Delta's own classes, by their full names."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def cls(self, name: str) -> Any:
        return getattr(self._spark._jvm, name)

    def object(self, name: str) -> Any:
        """An object of Scala."""
        return getattr(self.cls(f"{name}$"), "MODULE$")

    def vectors(self, transaction: Any, log: Any, rows: DataFrame) -> list[Any]:
        """Actions that give files new deletion vectors, in which some rows are gone."""
        commands, some = "org.apache.spark.sql.delta.commands", self.cls("scala.Option").apply
        session = self._spark._jsparkSession
        # the whole table counts as read: whoever changes it first makes this commit fail
        files = transaction.filterFiles()
        always = self.cls("org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral()
        found = self.object(f"{commands}.DeletionVectorBitmapGenerator").buildRowIndexSetsForFilesMatchingCondition(
            session,
            transaction,
            True,
            rows._jdf,
            files,
            always,
            some(F.col(f"{METADATA}.file_path")._jc),
            some(F.col(f"{METADATA}.row_index")._jc),
        )
        if found.isEmpty():
            return []
        helper = self.object(f"{commands}.DMLWithDeletionVectorsHelper")
        by_path = helper.generateCandidateFileMap(log.dataPath(), files)
        touched = helper.findFilesWithMatchingRows(transaction, by_path, found)
        actions = helper.processUnmodifiedData(session, touched, transaction.snapshot(), 32)._1()
        return list(self.cls("scala.jdk.javaapi.CollectionConverters").asJava(actions))

    def commit(self, transaction: Any, actions: Sequence[Any], app: str, batch: int) -> None:
        none = self.cls("scala.Option").empty()
        found = self.cls("java.util.ArrayList")()
        for action in actions:
            found.add(action)
        scala = self.cls("scala.jdk.javaapi.CollectionConverters").asScala(found).toSeq()
        mode = self.cls("org.apache.spark.sql.streaming.OutputMode").Update()
        transaction.updateSetTransaction(app, batch, none)
        # history shows it as the update of a stream: its id is the application's, its epoch the batch
        operation = self.cls("org.apache.spark.sql.delta.DeltaOperations$StreamingUpdate")(mode, app, batch, none)
        transaction.commit(scala, operation)

    def added(self, file: Mapping[str, Any]) -> Any:
        return self.cls("org.apache.spark.sql.delta.actions.Action").fromJson(json.dumps({"add": file}))
