"""From change events to final rows: columns as they are called now, and of each key the last event."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.schema import Column, TableSchema
from spark_jobs.datatypes import literal, quoted, spark_type
from spark_jobs.pending import Origin, Pending, lineage

KEPT = "__kept"
"""Column of reduced rows: names of the columns that no event told the value of, so that the table's value stays."""


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


def key_changed(pending: Pending, after: int) -> bool:
    """Whether events after a sequence number have another key than the newest schema, so that keys do not tell rows apart."""
    for version in _versions(pending, after):
        origins = lineage(pending, version)
        if {origins[name].column for name in pending.schema.key} != set(pending.schemas[version].key):
            return True
    return False


def contents(spark: SparkSession, pending: Pending, cut: int) -> DataFrame:
    """The table that the events after ``cut`` make out of nothing."""
    names = list(pending.schema.names)
    if not pending.schema.key or key_changed(pending, cut):
        changes = differences(spark, pending, cut)
        return nothing(spark, pending).select(*map(quoted, names)) if changes is None else repeated(changes, names)
    rows = events(spark, pending, cut)
    if rows is None:
        return nothing(spark, pending).select(*map(quoted, names))
    # a snapshot reads each key once
    only_reads = all(set(f.counts) <= {"r", "t"} for _, f in pending.files if f.last_seq > cut)
    last = rows if only_reads else last_per_key(rows, pending.schema.key)
    return last.where("__op <> 'd'").select(*map(quoted, names))


def nothing(spark: SparkSession, pending: Pending) -> DataFrame:
    """No reduced row."""
    columns = ", ".join(f"{quoted(name)} {type_}" for name, type_ in final_types(pending.schema).items())
    return spark.createDataFrame([], f"__op string, {columns}")


def events(spark: SparkSession, pending: Pending, after: int) -> DataFrame | None:
    """Events after a sequence number: ``seq``, ``__op``, and the row with its final columns.

    The row of a delete is the image before it. Where updates left values out, ``__kept`` names those columns.
    ``None`` when there is no file with such events.
    """
    kept = leaves_out(spark, pending, after)
    parts = []
    for version in _versions(pending, after):
        rows = _read(spark, pending, version, _files(pending, version, after), kept=kept)
        parts.append(rows.where(f"seq > {after}") if after else rows)
    return reduce(DataFrame.unionAll, parts) if parts else None


def leaves_out(spark: SparkSession, pending: Pending, after: int) -> bool:
    """Whether any update lacks the value of a column (``unavailable``)."""
    files = [path for path, f in pending.files if "u" in f.counts and f.last_seq > after]
    if not files:
        return False
    lacking = spark.read.schema("op string, unavailable array<string>").parquet(*files)
    return bool(lacking.where("op = 'u' AND size(unavailable) > 0").head(1))


def _versions(pending: Pending, after: int) -> list[int]:
    return sorted({f.schema_version for _, f in pending.files if f.last_seq > after})


def _files(pending: Pending, version: int, after: int) -> list[str]:
    return [path for path, f in pending.files if f.schema_version == version and f.last_seq > after]


def _read(spark: SparkSession, pending: Pending, version: int, files: list[str], *, kept: bool) -> DataFrame:
    """Events of one schema version."""
    then, now = pending.schemas[version], pending.schema
    raw = spark.read.schema(_file_schema(then)).parquet(*files).where("op <> 't'")
    origins = lineage(pending, version)
    selected = [F.col("seq"), F.col("op").alias("__op")]
    for column in now.columns:
        selected.append(_value(then, origins[column.name]).cast(spark_type(column.type)).alias(column.name))
    if kept:
        selected.append(_left_out(now, origins).alias(KEPT))
    return raw.select(*selected)


def _left_out(now: TableSchema, origins: dict[str, Origin]) -> Expression:
    """Final names of the columns that an update leaves out. Whatever comes anew has no value to keep."""
    names = [
        F.when(F.array_contains("unavailable", str(origins[c.name].column)), F.lit(c.name))
        for c in now.columns
        if origins[c.name].column is not None and c.name not in now.key
    ]
    there = (F.col("op") == "u") & (F.size("unavailable") > 0)
    return F.when(there, F.array_compact(F.array(*names))).otherwise(F.array().cast("array<string>"))


def _file_schema(schema: TableSchema) -> str:
    """What to read of a file. Spark reads by name, so columns that the file does not have come as NULL."""
    image = _struct(list(schema.columns))
    key = f", key {_struct([schema.column(k) for k in schema.key])}" if schema.key else ""
    return f"seq bigint, op string, before {image}, after {image}, unavailable array<string>{key}"


def _struct(columns: list[Column]) -> str:
    return "struct<" + ", ".join(f"{quoted(c.name)}: {spark_type(c.type)}" for c in columns) + ">"


def _value(then: TableSchema, origin: Origin) -> Expression:
    """A column of the row: from the image that the operation leaves, or from the key if images leave it out."""
    if origin.column is None:
        return F.lit(origin.fill)
    name = quoted(origin.column)
    value = F.when(F.col("op") == "d", F.col(f"before.{name}")).otherwise(F.col(f"after.{name}"))
    return F.coalesce(value, F.col(f"key.{name}")) if origin.column in then.key else value


def last_per_key(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of each key the event with the highest ``seq``; without ``seq``.

    With ``__kept``, a column that the last event leaves out has the value of the last event that tells it; it stays in
    ``__kept`` if none does.
    """
    groups = rows.groupBy(*map(quoted, key))
    if KEPT not in rows.columns:
        names = ", ".join(quoted(c) for c in rows.columns if c != "seq")
        return groups.agg(F.expr(f"max_by(struct({names}), seq)").alias("__last")).select("__last.*")
    others = [c for c in rows.columns if c not in ("seq", "__op", KEPT, *key)]
    picked = groups.agg(
        F.expr("max_by(__op, seq)").alias("__op"),
        *[F.expr(_last_told(c)).alias(f"__told_{i}") for i, c in enumerate(others)],
    )
    untold = [F.when(F.col(f"__told_{i}").isNull(), F.lit(c)) for i, c in enumerate(others)]
    return picked.select(
        "__op",
        *[F.col(quoted(c)) for c in key],
        *[F.col(f"__told_{i}.v").alias(c) for i, c in enumerate(others)],
        F.array_compact(F.array(*untold)).alias(KEPT),
    )


def _last_told(column: str) -> str:
    told = f"NOT array_contains({KEPT}, {literal(column)})"
    return f"max_by(named_struct('v', {quoted(column)}), seq) FILTER (WHERE {told})"


def differences(spark: SparkSession, pending: Pending, after: int) -> DataFrame | None:
    """Each row image that comes (``__n`` = 1) or goes (-1), with the final columns: for tables whose rows have no key.

    :raises TargetError: updates leave values out, so that the row they change cannot be found
    """
    if leaves_out(spark, pending, after):
        raise TargetError(
            f"Updates of {pending.topic} lack values of columns, and the table has no key to find their rows by.",
            where=f"batches {pending.first} to {pending.last}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="give the table a key at the source or with message.key.columns, then read it again with snapshot.mode=always for one run",
        )
    parts = []
    for version in _versions(pending, after):
        files = _files(pending, version, after)
        raw = spark.read.schema(_file_schema(pending.schemas[version])).parquet(*files)
        raw = raw.where(f"seq > {after} AND op <> 't'")
        origins = lineage(pending, version)
        for image, sign in (("before", -1), ("after", 1)):
            columns = [_image_value(image, origins[c.name], c) for c in pending.schema.columns]
            parts.append(raw.where(f"{image} IS NOT NULL").select(*columns, F.lit(sign).alias("__n")))
    return reduce(DataFrame.unionAll, parts) if parts else None


def _image_value(image: str, origin: Origin, column: Column) -> Expression:
    value = F.lit(origin.fill) if origin.column is None else F.col(f"{image}.{quoted(origin.column)}")
    return value.cast(spark_type(column.type)).alias(column.name)


def repeated(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Equal rows put together (``__n`` summed up), then each as often as it is there."""
    summed = rows.groupBy(*map(quoted, columns)).agg(F.sum("__n").alias("__n"))
    checked = summed.withColumn("__n", F.expr(f"CASE WHEN __n < 0 THEN raise_error('{ABSENT}') ELSE __n END"))
    return (
        checked.where("__n <> 0")
        .withColumn("__i", F.explode(F.sequence(F.lit(1), F.col("__n"))))
        .select(*map(quoted, columns))
    )


ABSENT = "a row goes that is not there"
"""What the query of :func:`repeated` fails with when the table and the change log do not belong together."""
