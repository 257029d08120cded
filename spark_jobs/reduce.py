"""From change events to final rows: columns as they are called now, and of each key the last event."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.schema import Column, TableSchema
from spark_jobs.pending import Origin, Pending, lineage
from spark_jobs.session import spark_type


def final_types(schema: TableSchema) -> dict[str, str]:
    """Column → Spark type, in the table's order."""
    return {c.name: spark_type(c.type) for c in schema.columns}


def last_truncate(spark: SparkSession, pending: Pending) -> int:
    """Sequence number of the last ``t`` event, 0 if there is none."""
    files = [path for path, file in pending.files if "t" in file.counts]
    if not files:
        return 0
    events = spark.read.schema("seq bigint, op string").parquet(*files)
    row = events.where("op = 't'").agg(F.max("seq")).head()
    return int(row[0]) if row is not None else 0


def events(spark: SparkSession, pending: Pending, after: int) -> DataFrame | None:
    """Events after a sequence number: ``seq``, ``__op``, and the row with its final columns.

    The row of a delete is the image before it. ``None`` when there is no file with such events.
    """
    parts = []
    versions = {f.schema_version for _, f in pending.files if f.last_seq > after}
    for version in sorted(versions):
        files = [path for path, f in pending.files if f.schema_version == version and f.last_seq > after]
        rows = _read(spark, pending, version, files)
        parts.append(rows.where(f"seq > {after}") if after else rows)
    return reduce(DataFrame.unionAll, parts) if parts else None


def _read(spark: SparkSession, pending: Pending, version: int, files: list[str]) -> DataFrame:
    """Events of one schema version."""
    then, now = pending.schemas[version], pending.schema
    raw = spark.read.schema(_file_schema(then)).parquet(*files).where("op <> 't'")
    origins = lineage(pending, version)
    selected = [F.col("seq"), F.col("op").alias("__op")]
    for column in now.columns:
        selected.append(_value(then, origins[column.name]).cast(spark_type(column.type)).alias(column.name))
    return raw.select(*selected)


def _file_schema(schema: TableSchema) -> str:
    """What to read of a file. Spark reads by name, so columns that the file does not have come as NULL."""
    image = _struct(list(schema.columns))
    key = f", key {_struct([schema.column(k) for k in schema.key])}" if schema.key else ""
    return f"seq bigint, op string, before {image}, after {image}{key}"


def _struct(columns: list[Column]) -> str:
    return "struct<" + ", ".join(f"{_quoted(c.name)}: {spark_type(c.type)}" for c in columns) + ">"


def _value(then: TableSchema, origin: Origin) -> F.Column:  # type: ignore[name-defined]
    """A column of the row: from the image that the operation leaves, or from the key if images leave it out."""
    if origin.column is None:
        return F.lit(origin.fill)
    name = _quoted(origin.column)
    value = F.when(F.col("op") == "d", F.col(f"before.{name}")).otherwise(F.col(f"after.{name}"))
    return F.coalesce(value, F.col(f"key.{name}")) if origin.column in then.key else value


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def last_per_key(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of each key the event with the highest ``seq``; without ``seq``."""
    rest = [c for c in rows.columns if c != "seq"]
    names = ", ".join(_quoted(c) for c in rest)
    picked = rows.groupBy(*[_quoted(c) for c in key]).agg(F.expr(f"max_by(struct({names}), seq)").alias("__last"))
    return picked.select("__last.*")


def differences(spark: SparkSession, pending: Pending, after: int) -> DataFrame | None:
    """For a table without a key: each row image that comes (``__n`` = 1) or goes (-1), with the final columns."""
    parts = []
    for version in sorted({f.schema_version for _, f in pending.files if f.last_seq > after}):
        files = [path for path, f in pending.files if f.schema_version == version and f.last_seq > after]
        raw = spark.read.schema(_file_schema(pending.schemas[version])).parquet(*files)
        raw = raw.where(f"seq > {after} AND op <> 't'")
        for image, sign in (("before", -1), ("after", 1)):
            columns = [_image_value(image, pending, version, c) for c in pending.schema.columns]
            parts.append(raw.where(f"{image} IS NOT NULL").select(*columns, F.lit(sign).alias("__n")))
    return reduce(DataFrame.unionAll, parts) if parts else None


def _image_value(image: str, pending: Pending, version: int, column: Column) -> F.Column:  # type: ignore[name-defined]
    origin = lineage(pending, version)[column.name]
    value = F.lit(origin.fill) if origin.column is None else F.col(f"{image}.{_quoted(origin.column)}")
    return value.cast(spark_type(column.type)).alias(column.name)


def repeated(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Equal rows put together (``__n`` summed up), then each as often as it is there."""
    summed = rows.groupBy(*map(_quoted, columns)).agg(F.sum("__n").alias("__n"))
    checked = summed.withColumn(
        "__n", F.expr("CASE WHEN __n < 0 THEN raise_error('a row goes that is not there') ELSE __n END")
    )
    return (
        checked.where("__n > 0")
        .withColumn("__i", F.explode(F.sequence(F.lit(1), F.col("__n"))))
        .select(*map(_quoted, columns))
    )
