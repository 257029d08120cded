"""Row images before and after events, with the present names of columns: a table without a key, or one of several of a topic, is changed by them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.changelog.reading.pending_batches import ColumnLineage, PendingBatches, trace_columns
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.targets.lake.events.event_files import (
    event_schema,
    files_after,
    list_schema_versions,
    open_event_files,
)
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OP, SEQ, UNKNOWN
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER
from airflow_provider_cdc.targets.lake.rules.projection import WHOLE, Projection
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_fill_value,
    format_constant,
    from_file,
    quote_name,
    spark_type,
)


def read_image_differences(
    spark: SparkSession, pending: PendingBatches, after: int, shape: Projection = WHOLE
) -> DataFrame | None:
    """Each row image that is added (:data:`NUMBER` = 1) or removed (-1), with the final columns and its event's number: for tables whose rows have no key.

    :raises TargetError: updates leave values out, so that the row they change cannot be found
    """
    if lacking := _left_out_of_changes(spark, pending, after):
        raise TargetError(
            f"Updates or deletes of {pending.topic} lack values of columns ({', '.join(lacking)}), and the table has no key "
            "to find their rows.",
            where=f"batches {pending.first} to {pending.last}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="leave those columns out with column.exclude.list, or give the table a key at the source or with "
            f"message.key.columns; then snapshot it again with `{pending.read_again}`",
        )
    parts = [
        raw.where(f"{image} IS NOT NULL").select(*columns, F.lit(sign).alias(NUMBER), F.col("seq").alias(SEQ))
        for raw, image, sign, columns in _images(spark, pending, after)
    ]
    return shape.project_images(reduce(DataFrame.unionAll, parts), pending.schema, NUMBER, SEQ) if parts else None


def read_row_images(spark: SparkSession, pending: PendingBatches) -> DataFrame | None:
    """Return each row image after (:data:`NUMBER` = 1) and before (-1) an event.

    It has the final columns and its event's :data:`OP`. An update or a delete whose image before is not known is there with :data:`UNKNOWN`; so is the delete
    of a key that was looked up and has no row, as it is not known which one the table has. Values that an image lacks are NULL.
    """
    parts = []
    for raw, image, sign, columns in _images(spark, pending, 0, _SNAPSHOT):
        gone = F.col(image).isNull()
        there = ~gone
        if image == "before":
            looked_up = (F.col("op") == "d") & F.col("source.snapshot").eqNullSafe("incremental")
            there, gone = there | F.col("op").isin("u", "d"), gone | looked_up
        metadata = [F.lit(sign).alias(NUMBER), F.col("op").alias(OP), gone.alias(UNKNOWN)]
        parts.append(raw.where(there).select(*columns, *metadata))
    return reduce(DataFrame.unionAll, parts) if parts else None


_SNAPSHOT = T.StructField("source", T.StructType([T.StructField("snapshot", T.StringType())]))


def _images(
    spark: SparkSession, pending: PendingBatches, after: int, *more: T.StructField
) -> Iterator[tuple[DataFrame, str, int, list[Expression]]]:
    """Events, the image of them that is meant, its sign, and its values for the final columns.

    :param more: further values that are read of events
    """
    for version in list_schema_versions(pending, after):
        files = files_after(pending, version, after)
        raw = open_event_files(spark, T.StructType([*event_schema(pending.schemas[version]).fields, *more]), files)
        raw = raw.where(f"seq > {after} AND op <> 't'")
        origins, then = trace_columns(pending, version), pending.schemas[version]
        for image, sign in (("before", -1), ("after", 1)):
            yield raw, image, sign, [_image_value(image, then, origins[c.name], c) for c in pending.schema.columns]


def list_incomplete_columns(pending: PendingBatches) -> set[str]:
    """Return the final names of the columns whose values an image before or after some event lacks."""
    incomplete = set[str]()
    for version in list_schema_versions(pending, 0):
        of = {name for _, f in pending.files if f.schema_version == version for name in f.unavailable}
        incomplete |= {name for name, origin in trace_columns(pending, version).items() if of and origin.column in of}
    return incomplete


def _left_out_of_changes(spark: SparkSession, pending: PendingBatches, after: int) -> list[str]:
    """Columns that some updates or deletes lack."""
    files = [
        (path, f) for path, f in pending.files if f.unavailable and f.last_seq > after and {"u", "d"} & set(f.counts)
    ]
    if not files:
        return []
    lists = "unavailable array<string>, unavailable_before array<string>"
    events = spark.read.schema(f"seq bigint, op string, {lists}").parquet(*[path for path, _ in files])
    lacking = events.where(
        f"seq > {after} AND op IN ('u', 'd') AND (size(unavailable) > 0 OR size(unavailable_before) > 0)"
    )
    return sorted({name for _, f in files for name in f.unavailable}) if lacking.head(1) else []


def _image_value(image: str, then: TableSchema, origin: ColumnLineage, column: Column) -> Expression:
    if origin.column is None:
        value = build_fill_value(format_constant(origin.fill, column.type), spark_type(column.type))
    else:
        value = from_file(F.col(f"{image}.{quote_name(origin.column)}"), then.get_column(origin.column).type)
    return value.cast(spark_type(column.type)).alias(column.name)
