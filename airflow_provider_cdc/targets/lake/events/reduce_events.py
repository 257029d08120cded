"""Reduces change events to final rows, with the present names of columns."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.changelog.reading.partial_updates import DocumentsLost, partial
from airflow_provider_cdc.changelog.reading.pending_batches import Origin, Pending, lineage
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.schema import Column, Documents, TableSchema
from airflow_provider_cdc.targets.lake.events.event_files import event_schema, files_after, opened, struct_of, versions
from airflow_provider_cdc.targets.lake.events.event_metadata import Told
from airflow_provider_cdc.targets.lake.events.partial_updates import Present, completed, fields, values
from airflow_provider_cdc.targets.lake.events.row_images import differences
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import FROM, KEPT, OP, OURS, SEQ, UNKNOWN, last_per_key
from airflow_provider_cdc.targets.lake.rows.multiset import repeated
from airflow_provider_cdc.targets.lake.rules.projection import LEFT, WHOLE, Shape
from airflow_provider_cdc.targets.lake.session.snapshot_reads import read_once
from airflow_provider_cdc.targets.lake.types.spark_types import (
    constant,
    filled,
    from_file,
    holds,
    quoted,
    spark_type,
    structure,
)


def final_types(schema: TableSchema, shape: Shape = WHOLE) -> dict[str, str]:
    """Column of the table → Spark type, in the table's order.

    :raises TargetError: a column has a name that the job uses for columns of its own
    """
    if ours := [c.name for c in schema.columns if c.name.lower().startswith(OURS)]:
        raise TargetError(
            f"Columns whose names begin with {OURS} cannot be applied: the job uses such names for its own columns.",
            where=f"{schema.id}: {', '.join(ours)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="leave the column out with column.exclude.list, or rename it at the source",
        )
    return shape.types(schema)


def check_names(pending: Pending) -> None:
    """
    :raises TargetError: two columns cannot be told apart
    """
    for schema in pending.schemas.values():
        lower = [name.lower() for name in schema.names]
        if both := [name for name in schema.names if lower.count(name.lower()) > 1]:
            raise TargetError(
                "Columns differ in upper and lower case only, and neither Spark nor the tables tell them apart.",
                where=f"{schema.id}: {', '.join(both)}",
                safe="The table was not changed; the change log keeps the batches.",
                remedy="leave all but one of them out with column.exclude.list, or rename them at the source; for what the change log has already, "
                "capture the table again under another topic.prefix",
            )


def truncates(spark: SparkSession, pending: Pending) -> list[tuple[int, int]]:
    """Each ``t`` event: its number, and when it was committed at the source, in microseconds since 1970; in order. And the statement by which another
    table has taken the name, as of :attr:`~airflow_provider_cdc.changelog.reading.pending_batches.Pending.taken`."""
    files = [path for path, file in pending.files if "t" in file.counts]
    taken = [] if pending.taken is None else [pending.taken]
    if not files:
        return taken
    events = spark.read.schema("seq bigint, op string, source struct<ts_us:bigint>").parquet(*files)
    rows = events.where("op = 't'").select("seq", F.col("source.ts_us")).orderBy("seq").collect()
    return sorted([(int(row[0]), int(row[1])) for row in rows] + taken)


def last_truncate(spark: SparkSession, pending: Pending) -> int:
    """Number of the last one of :func:`truncates`, 0 if there is none."""
    files = [path for path, file in pending.files if "t" in file.counts]
    taken = 0 if pending.taken is None else pending.taken[0]
    if not files:
        return taken
    events = spark.read.schema("seq bigint, op string").parquet(*files)
    row = events.where("op = 't'").agg(F.max("seq")).head()
    return max(taken, int(row[0]) if row is not None else 0)


def key_changed(pending: Pending, after: int) -> bool:
    """Whether events after a sequence number have another key than the newest schema, so that the present key does not identify rows."""
    for version in versions(pending, after):
        origins = lineage(pending, version)
        if {origins[name].column for name in pending.schema.key} != set(pending.schemas[version].key):
            return True
    return False


def contents(spark: SparkSession, pending: Pending, cut: int, shape: Shape = WHOLE) -> DataFrame:
    """The rows of an empty table after the events behind ``cut``. Values that the events lack are NULL, and named in
    :data:`UNKNOWN`, which is there if events leave any out."""
    columns = list(final_types(pending.schema, shape))
    names = list(map(quoted, columns))
    if not pending.schema.key or key_changed(pending, cut):
        changes = differences(spark, pending, cut, shape)
        return nothing(spark, pending, shape).select(*names) if changes is None else repeated(changes, columns)
    rows = events(spark, pending, cut, shape)
    left_out = shape.sparse(sparse(pending, cut), pending.schema)
    if rows is None:
        return nothing(spark, pending, shape).select(*names)
    once = read_once(spark, pending, cut)
    last = rows if once else last_per_key(rows, shape.key(pending.schema), left_out, shape.carried)
    if left_out:
        unknown = F.col(KEPT) if once else F.concat(KEPT, UNKNOWN)
        return last.where(F.col(OP) != "d").select(*names, unknown.alias(UNKNOWN))
    return last.where(F.col(OP) != "d").select(*names)


def nothing(spark: SparkSession, pending: Pending, shape: Shape = WHOLE) -> DataFrame:
    """No reduced row."""
    return spark.createDataFrame([], structure({OP: "string"})).select(
        OP, *[F.lit(None).cast(t).alias(c) for c, t in final_types(pending.schema, shape).items()]
    )


def events(
    spark: SparkSession, pending: Pending, after: int, shape: Shape = WHOLE, *, truncates: bool = False, present: Present | None = None
) -> DataFrame | None:  # fmt: skip
    """Events after a number: :data:`SEQ`, :data:`OP`, and the row with its final columns.

    The row of a delete is the image before it. Where events leave values out (:func:`sparse`), :data:`KEPT` names those columns;
    where events that change keys do, :data:`FROM` is the key before. ``None`` when there is no file with such events.

    :param truncates: with ``t`` events, whose rows are empty
    :param present: the documents that the table has before the events, where partial updates are applied to them; none by default
    :raises TargetError: partial updates cannot be applied
    """
    documents = partial(pending) if shape.mode != "log" else None
    if documents is not None and not shape.needs(documents.body, pending.schema):
        documents = None
    left_out = sparse(pending, after, deletes=shape.needs_deleted)
    moved = bool(left_out) and _moves(spark, pending, after)
    told = Told(shape.meta, truncates=truncates)
    parts = []
    for version in versions(pending, after):
        files = files_after(pending, version, after)
        kept = bool(left_out or shape.carried)
        rows = _read(
            spark, pending, version, files, kept=kept, moved=moved, told=told, shape=shape, documents=documents
        )
        parts.append(rows.where(F.col(SEQ) > after) if after else rows)
    if not parts:
        return None
    found = reduce(DataFrame.unionAll, parts)
    if documents is not None:
        try:
            found = completed(spark, pending, found, documents, present, lambda: last_truncate(spark, pending))
        except DocumentsLost as e:
            raise _not_kept(e, documents, shape, pending.schema) from e
    return shape.events(found, pending.schema, left_out)


def _not_kept(lost: DocumentsLost, documents: Documents, shape: Shape, schema: TableSchema) -> DocumentsLost:
    """The error for documents that are not known; if that is because of the table's rule, reading them again helps but once."""
    name = shape.names(schema).get(documents.body)
    if shape.plain or (name is not None and shape.types(schema)[name] == "string"):
        return lost
    what = (
        f"has no column with the text of {documents.body}"
        if name is None
        else f"makes another type of {documents.body}"
    )
    return DocumentsLost(
        f"{lost.what} The rule of the table {what}, to which updates could be applied.",
        where=lost.where,
        safe=lost.safe,
        remedy=f"let the rule keep {documents.body} as text, or have the source tell the whole document of each update; then read the collection again",
    )


def keys(spark: SparkSession, pending: Pending, shape: Shape = WHOLE) -> DataFrame:
    """The key columns of all events, of batches with one schema; a key may come several times."""
    schema, names = pending.schema, shape.names(pending.schema)
    types = final_types(schema, shape)
    found = opened(
        spark, structure({"key": struct_of([schema.column(k) for k in schema.key])}), [p for p, _ in pending.files]
    )
    values = [F.lit(shape.constants[name]).alias(name) for name in shape.rule.shard]
    for k in schema.key:
        value = from_file(F.col(f"key.{quoted(k)}"), schema.column(k).type)
        values.append(value.cast(types[names[k]]).alias(names[k]))
    return found.where("key IS NOT NULL").select(*values)


def sparse(pending: Pending, after: int, *, deletes: bool = False, as_they_are: bool = False) -> list[str]:
    """Final names of the columns whose values some events leave out (``unavailable``).

    :param deletes: also those that only deletes leave out
    :param as_they_are: also documents that :func:`events` completes
    """
    documents = None if deletes or as_they_are else partial(pending)
    names: set[str] = set()
    for version in versions(pending, after):
        files = [f for _, f in pending.files if f.schema_version == version and f.last_seq > after]
        if lacking := {name for f in files for name in (f.unavailable if deletes else f.sparse)}:
            names |= {name for name, origin in lineage(pending, version).items() if origin.column in lacking}
    if documents is not None:
        names.discard(documents.body)
    return [name for name in pending.schema.names if name in names and name not in pending.schema.key]


def _moves(spark: SparkSession, pending: Pending, after: int) -> bool:
    """Whether any event that changes a key leaves values out."""
    for version in versions(pending, after):
        lacking = {
            p for p, f in pending.files if f.schema_version == version and {"c", "d"} <= set(f.counts) and f.sparse
        }
        files = [path for path in files_after(pending, version, after) if path in lacking]
        key = struct_of([pending.schemas[version].column(name) for name in pending.schemas[version].key])
        if files:
            wanted = structure({"previous_key": key, "unavailable": "array<string>"})
            found = opened(spark, wanted, files)
            if found.where("previous_key IS NOT NULL AND size(unavailable) > 0").head(1):
                return True
    return False


def _read(
    spark: SparkSession, pending: Pending, version: int, files: list[str], *, kept: bool, moved: bool, told: Told, shape: Shape, documents: Documents | None
) -> DataFrame:  # fmt: skip
    """Events of one schema version."""
    then, now = pending.schemas[version], pending.schema
    said = [] if documents is None else fields(documents)
    schema = T.StructType([*event_schema(then).fields, *structure(told.fields(spark, files)).fields, *said])
    raw = opened(spark, schema, files)
    raw = raw if told.truncates else raw.where("op <> 't'")
    origins = lineage(pending, version)
    names = shape.names(now)
    selected = [F.col("seq").alias(SEQ), F.col("op").alias(OP)]
    for column in now.columns:
        type_ = spark_type(column.type)
        origin = _as_it_was(pending, version, shape, origins[column.name], names.get(column.name), type_)
        selected.append(_value(then, origin, column).cast(type_).alias(column.name))
    before, lacking = _left(pending, version, shape)
    selected += before
    if kept:
        selected.append(F.concat(_left_out(now, origins), lacking).alias(KEPT))
    if moved:
        selected.append(_previous(then, now, origins).alias(FROM))
    if documents is not None:
        selected += values(documents, origins[documents.body])
    return raw.select(*selected, *told.values(F.concat(_left_out(now, origins, deletes=True), lacking)))


def _as_it_was(pending: Pending, version: int, shape: Shape, origin: Origin, there: str | None, type_: str) -> Origin:
    """Where a value comes from in a row that tells what an event said, and nothing that was added later. A column that was dropped and made again is one
    in such a table.

    :param there: the column of the table
    """
    if shape.mode != "log" or origin.column is not None:
        return origin
    then, before, lower = pending.schemas[version], shape.as_of(version), str(there).lower()
    old = next((c for c in then.columns if str(before.name(c.name)).lower() == lower), None)
    return Origin(column=old.name) if old is not None and holds(type_, spark_type(old.type)) else Origin()


def _left(pending: Pending, version: int, shape: Shape) -> tuple[list[Expression], Expression]:
    """What events of a version have for columns whose columns of the source are dropped, or go on in others; and the names of those for which they have
    nothing."""
    then = pending.schemas[version]
    values, lacking = [], []
    for name, left in shape.left.items():
        own, value = f"{LEFT}{name}", F.lit(None)
        if version < left.until:
            origin = lineage(pending, version, left.until - 1)[left.column]
            origin = _as_it_was(pending, version, shape, origin, name, left.type)
            value = _value(then, origin, pending.schemas[left.until - 1].column(left.column))
            if origin.column is not None:
                lacking.append(F.when(F.array_contains("unavailable", origin.column), F.lit(own)))
        elif shape.ends_left:
            lacking.append(F.lit(own))
        values.append(value.cast(left.type).alias(own))
    none = F.array().cast("array<string>")
    return values, F.array_compact(F.array(*lacking)) if lacking else none


def _left_out(now: TableSchema, origins: dict[str, Origin], *, deletes: bool = False) -> Expression:
    """Final names of the columns that an event leaves out. New rows have no value to keep.

    :param deletes: also of the image before a delete
    """
    names = [
        F.when(F.array_contains("unavailable", str(origins[c.name].column)), F.lit(c.name))
        for c in now.columns
        if origins[c.name].column is not None and c.name not in now.key
    ]
    there = F.lit(deletes) | (F.col("op") != "d")
    there &= F.size("unavailable") > 0
    return F.when(there, F.array_compact(F.array(*names))).otherwise(F.array().cast("array<string>"))


def _previous(then: TableSchema, now: TableSchema, origins: dict[str, Origin]) -> Expression:
    """``previous_key`` with the final columns."""
    parts = []
    for name in now.key:
        old = str(origins[name].column)
        value = from_file(F.col(f"previous_key.{quoted(old)}"), then.column(old).type)
        parts.append(value.cast(spark_type(now.column(name).type)).alias(name))
    return F.when(F.col("previous_key").isNotNull(), F.struct(*parts))


def _value(then: TableSchema, origin: Origin, column: Column) -> Expression:
    """A column of the row: from the image that the operation leaves, or from the key if images leave it out."""
    if origin.column is None:
        return filled(constant(origin.fill, column.type), spark_type(column.type))
    name, type_ = quoted(origin.column), then.column(origin.column).type
    value = F.when(F.col("op") == "d", F.col(f"before.{name}")).otherwise(F.col(f"after.{name}"))
    if origin.column in then.key:
        value = F.coalesce(value, F.col(f"key.{name}"))
    return from_file(value, type_)
