"""Reduces change events to final rows, with the present names of columns."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.changelog.reading.partial_document_updates import DocumentsLost, find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import ColumnLineage, PendingBatches, trace_columns
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column, DocumentSchema, TableSchema
from airflow_provider_cdc.targets.lake.events.event_files import (
    event_schema,
    files_after,
    list_schema_versions,
    open_event_files,
    struct_of,
)
from airflow_provider_cdc.targets.lake.events.event_metadata import EventMetadata
from airflow_provider_cdc.targets.lake.events.partial_updates import (
    Present,
    build_document_values,
    complete_documents,
    list_document_fields,
)
from airflow_provider_cdc.targets.lake.events.row_images import read_image_differences
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import (
    FROM,
    OMITTED,
    OP,
    OURS,
    SEQ,
    UNKNOWN,
    last_per_key,
)
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import expand_row_counts
from airflow_provider_cdc.targets.lake.rules.projection import LEFT, WHOLE, Projection
from airflow_provider_cdc.targets.lake.session.unique_key_check import read_once
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_fill_value,
    build_struct_type,
    can_hold_type,
    format_constant,
    from_file,
    quote_name,
    spark_type,
)


def final_types(schema: TableSchema, shape: Projection = WHOLE) -> dict[str, str]:
    """Map each column of the table to its Spark type, in the table's order.

    :raises TargetError: a column has a name that the job uses for its own columns
    """
    if ours := [c.name for c in schema.columns if c.name.lower().startswith(OURS)]:
        raise TargetError(
            f"Columns with names that begin with {OURS} cannot be applied: the job uses such names for its own columns.",
            where=f"{schema.id}: {', '.join(ours)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="leave the column out with column.exclude.list, or rename it at the source",
        )
    return shape.map_column_types(schema)


def check_names(pending: PendingBatches) -> None:
    """Check the names of columns.

    :raises TargetError: two columns cannot be distinguished
    """
    for schema in pending.schemas.values():
        lower = [name.lower() for name in schema.column_names]
        if both := [name for name in schema.column_names if lower.count(name.lower()) > 1]:
            raise TargetError(
                "The names of columns differ only in upper and lower case, and neither Spark nor the tables distinguish them.",
                where=f"{schema.id}: {', '.join(both)}",
                safe="The table was not changed; the change log keeps the batches.",
                remedy="leave all but one of them out with column.exclude.list, or rename them at the source; for events that the change log has already, "
                "capture the table again under another topic.prefix",
            )


def list_truncates(spark: SparkSession, pending: PendingBatches) -> list[tuple[int, int]]:
    """List each ``t`` event: its number, and when it was committed at the source, in order.

    Times are in microseconds since 1970. The statement by which another table has taken the name is listed too, as of
    :attr:`~airflow_provider_cdc.changelog.reading.pending_batches.PendingBatches.taken`.
    """
    files = [path for path, file in pending.files if "t" in file.counts]
    taken = [] if pending.name_takeover is None else [pending.name_takeover]
    if not files:
        return taken
    events = spark.read.schema("seq bigint, op string, source struct<ts_us:bigint>").parquet(*files)
    rows = events.where("op = 't'").select("seq", F.col("source.ts_us")).orderBy("seq").collect()
    return sorted([(int(row[0]), int(row[1])) for row in rows] + taken)


def last_truncate(spark: SparkSession, pending: PendingBatches) -> int:
    """Return the number of the last one of :func:`list_truncates`, 0 if there is none."""
    files = [path for path, file in pending.files if "t" in file.counts]
    taken = 0 if pending.name_takeover is None else pending.name_takeover[0]
    if not files:
        return taken
    events = spark.read.schema("seq bigint, op string").parquet(*files)
    row = events.where("op = 't'").agg(F.max("seq")).head()
    return max(taken, int(row[0]) if row is not None else 0)


def key_changed(pending: PendingBatches, after: int) -> bool:
    """Check whether events after a sequence number have another key than the newest schema.

    Then the present key does not identify rows.
    """
    for version in list_schema_versions(pending, after):
        origins = trace_columns(pending, version)
        if {origins[name].column for name in pending.schema.key} != set(pending.schemas[version].key):
            return True
    return False


def build_table_contents(
    spark: SparkSession, pending: PendingBatches, cut: int, shape: Projection = WHOLE
) -> DataFrame:
    """Return the rows of an empty table after the events behind ``cut``.

    Values that the events lack are NULL, and named in :data:`UNKNOWN`, which is there if events leave any out.
    """
    columns = list(final_types(pending.schema, shape))
    names = list(map(quote_name, columns))
    if not pending.schema.key or key_changed(pending, cut):
        changes = read_image_differences(spark, pending, cut, shape)
        return (
            build_empty_rows(spark, pending, shape).select(*names)
            if changes is None
            else expand_row_counts(changes, columns)
        )
    rows = read_events(spark, pending, cut, shape)
    left_out = shape.list_sparse_columns(list_sparse_columns(pending, cut), pending.schema)
    if rows is None:
        return build_empty_rows(spark, pending, shape).select(*names)
    once = read_once(spark, pending, cut)
    last = rows if once else last_per_key(rows, shape.list_key_columns(pending.schema), left_out, shape.retired_columns)
    if left_out:
        unknown = F.col(OMITTED) if once else F.concat(OMITTED, UNKNOWN)
        return last.where(F.col(OP) != "d").select(*names, unknown.alias(UNKNOWN))
    return last.where(F.col(OP) != "d").select(*names)


def build_empty_rows(spark: SparkSession, pending: PendingBatches, shape: Projection = WHOLE) -> DataFrame:
    """No reduced row."""
    return spark.createDataFrame([], build_struct_type({OP: "string"})).select(
        OP, *[F.lit(None).cast(t).alias(c) for c, t in final_types(pending.schema, shape).items()]
    )


def read_events(
    spark: SparkSession, pending: PendingBatches, after: int, shape: Projection = WHOLE, *, truncates: bool = False, present: Present | None = None
) -> DataFrame | None:  # fmt: skip
    """Events after a number: :data:`SEQ`, :data:`OP`, and the row with its final columns.

    The row of a delete is the image before it. Where events leave values out (:func:`list_sparse_columns`), :data:`OMITTED` names those columns;
    where events that change keys do, :data:`FROM` is the key before. ``None`` when there is no file with such events.

    :param truncates: with ``t`` events, whose rows are empty
    :param present: the documents that the table has before the events, where partial updates are applied to them; none by default
    :raises TargetError: partial updates cannot be applied
    """
    documents = find_partial_documents(pending) if shape.mode != "log" else None
    if documents is not None and not shape.needs_column(documents.body, pending.schema):
        documents = None
    left_out = list_sparse_columns(pending, after, deletes=shape.needs_deleted)
    moved = bool(left_out) and _moves(spark, pending, after)
    metadata = EventMetadata(shape.needed_metadata, truncates=truncates)
    parts = []
    for version in list_schema_versions(pending, after):
        files = files_after(pending, version, after)
        lists_kept = bool(left_out or shape.retired_columns)
        rows = _read(
            spark,
            pending,
            version,
            files,
            lists_kept=lists_kept,
            moved=moved,
            metadata=metadata,
            shape=shape,
            documents=documents,
        )
        parts.append(rows.where(F.col(SEQ) > after) if after else rows)
    if not parts:
        return None
    events = reduce(DataFrame.unionAll, parts)
    if documents is not None:
        try:
            events = complete_documents(
                spark, pending, events, documents, present, lambda: last_truncate(spark, pending)
            )
        except DocumentsLost as e:
            raise _not_kept(e, documents, shape, pending.schema) from e
    return shape.project_events(events, pending.schema, left_out)


def _not_kept(lost: DocumentsLost, documents: DocumentSchema, shape: Projection, schema: TableSchema) -> DocumentsLost:
    """Build the error for documents that are not known.

    If that is because of the table's rule, reading them again helps but once.
    """
    name = shape.map_column_names(schema).get(documents.body)
    if shape.is_identity or (name is not None and shape.map_column_types(schema)[name] == "string"):
        return lost
    problem = (
        f"has no column with the text of {documents.body}"
        if name is None
        else f"converts {documents.body} to another type"
    )
    return DocumentsLost(
        f"{lost.message} The rule of the table {problem}, so updates cannot be applied to it.",
        where=lost.where,
        safe=lost.safe,
        remedy=f"keep {documents.body} as text in the rule, or configure the source to send the whole document with each update; then snapshot the collection again",
    )


def read_event_keys(spark: SparkSession, pending: PendingBatches, shape: Projection = WHOLE) -> DataFrame:
    """Return the key columns of all events, of batches with one schema; a key may come several times."""
    schema, names = pending.schema, shape.map_column_names(pending.schema)
    types = final_types(schema, shape)
    events = open_event_files(
        spark,
        build_struct_type({"key": struct_of([schema.get_column(k) for k in schema.key])}),
        [p for p, _ in pending.files],
    )
    values = [F.lit(shape.constants[name]).alias(name) for name in shape.rule.shard]
    for k in schema.key:
        value = from_file(F.col(f"key.{quote_name(k)}"), schema.get_column(k).type)
        values.append(value.cast(types[names[k]]).alias(names[k]))
    return events.where("key IS NOT NULL").select(*values)


def list_sparse_columns(
    pending: PendingBatches, after: int, *, deletes: bool = False, as_they_are: bool = False
) -> list[str]:
    """Return the final names of the columns whose values some events leave out (``unavailable``).

    :param deletes: also those that only deletes leave out
    :param as_they_are: also documents that :func:`read_events` completes
    """
    documents = None if deletes or as_they_are else find_partial_documents(pending)
    names: set[str] = set()
    for version in list_schema_versions(pending, after):
        files = [f for _, f in pending.files if f.schema_version == version and f.last_seq > after]
        if lacking := {name for f in files for name in (f.unavailable if deletes else f.sparse_columns)}:
            names |= {name for name, origin in trace_columns(pending, version).items() if origin.column in lacking}
    if documents is not None:
        names.discard(documents.body)
    return [name for name in pending.schema.column_names if name in names and name not in pending.schema.key]


def _moves(spark: SparkSession, pending: PendingBatches, after: int) -> bool:
    """Check whether any event that changes a key leaves values out."""
    for version in list_schema_versions(pending, after):
        lacking = {
            p
            for p, f in pending.files
            if f.schema_version == version and {"c", "d"} <= set(f.counts) and f.sparse_columns
        }
        files = [path for path in files_after(pending, version, after) if path in lacking]
        key = struct_of([pending.schemas[version].get_column(name) for name in pending.schemas[version].key])
        if files:
            file_schema = build_struct_type({"previous_key": key, "unavailable": "array<string>"})
            events = open_event_files(spark, file_schema, files)
            if events.where("previous_key IS NOT NULL AND size(unavailable) > 0").head(1):
                return True
    return False


def _read(
    spark: SparkSession, pending: PendingBatches, version: int, files: list[str], *, lists_kept: bool, moved: bool, metadata: EventMetadata, shape: Projection, documents: DocumentSchema | None
) -> DataFrame:  # fmt: skip
    """Events of one schema version."""
    then, now = pending.schemas[version], pending.schema
    document_fields = [] if documents is None else list_document_fields(documents)
    schema = T.StructType(
        [
            *event_schema(then).fields,
            *build_struct_type(metadata.list_metadata_fields(spark, files)).fields,
            *document_fields,
        ]
    )
    raw = open_event_files(spark, schema, files)
    raw = raw if metadata.truncates else raw.where("op <> 't'")
    origins = trace_columns(pending, version)
    names = shape.map_column_names(now)
    selected = [F.col("seq").alias(SEQ), F.col("op").alias(OP)]
    for column in now.columns:
        type_ = spark_type(column.type)
        origin = _as_it_was(pending, version, shape, origins[column.name], names.get(column.name), type_)
        selected.append(_value(then, origin, column).cast(type_).alias(column.name))
    before, lacking = _left(pending, version, shape)
    selected += before
    if lists_kept:
        selected.append(F.concat(_left_out(now, origins), lacking).alias(OMITTED))
    if moved:
        selected.append(_previous(then, now, origins).alias(FROM))
    if documents is not None:
        selected += build_document_values(documents, origins[documents.body])
    return raw.select(
        *selected, *metadata.build_metadata_values(F.concat(_left_out(now, origins, deletes=True), lacking))
    )


def _as_it_was(
    pending: PendingBatches, version: int, shape: Projection, origin: ColumnLineage, there: str | None, type_: str
) -> ColumnLineage:
    """Find the origin of a value in a row that has the values of an event, and nothing that was added later.

    A column that was dropped and made again is one in such a table.

    :param there: the column of the table
    """
    if shape.mode != "log" or origin.column is not None:
        return origin
    then, before, lower = pending.schemas[version], shape.as_of(version), str(there).lower()
    old = next((c for c in then.columns if str(before.map_column_name(c.name)).lower() == lower), None)
    return (
        ColumnLineage(column=old.name)
        if old is not None and can_hold_type(type_, spark_type(old.type))
        else ColumnLineage()
    )


def _left(pending: PendingBatches, version: int, shape: Projection) -> tuple[list[Expression], Expression]:
    """Return the values of events of a version for columns whose columns of the source are dropped, or continue in others.

    The names of those for which they have nothing are returned too.
    """
    then = pending.schemas[version]
    values, lacking = [], []
    for name, left in shape.left.items():
        own, value = f"{LEFT}{name}", F.lit(None)
        if version < left.until:
            origin = trace_columns(pending, version, left.until - 1)[left.column]
            origin = _as_it_was(pending, version, shape, origin, name, left.type)
            value = _value(then, origin, pending.schemas[left.until - 1].get_column(left.column))
            if origin.column is not None:
                lacking.append(F.when(F.array_contains("unavailable", origin.column), F.lit(own)))
        elif shape.ends_left:
            lacking.append(F.lit(own))
        values.append(value.cast(left.type).alias(own))
    none = F.array().cast("array<string>")
    return values, F.array_compact(F.array(*lacking)) if lacking else none


def _left_out(now: TableSchema, origins: dict[str, ColumnLineage], *, deletes: bool = False) -> Expression:
    """Return the final names of the columns that an event leaves out. New rows have no value to keep.

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


def _previous(then: TableSchema, now: TableSchema, origins: dict[str, ColumnLineage]) -> Expression:
    """``previous_key`` with the final columns."""
    parts = []
    for name in now.key:
        old = str(origins[name].column)
        value = from_file(F.col(f"previous_key.{quote_name(old)}"), then.get_column(old).type)
        parts.append(value.cast(spark_type(now.get_column(name).type)).alias(name))
    return F.when(F.col("previous_key").isNotNull(), F.struct(*parts))


def _value(then: TableSchema, origin: ColumnLineage, column: Column) -> Expression:
    """Return a column of the row: from the image that the operation leaves, or from the key if images leave it out."""
    if origin.column is None:
        return build_fill_value(format_constant(origin.fill, column.type), spark_type(column.type))
    name, type_ = quote_name(origin.column), then.get_column(origin.column).type
    value = F.when(F.col("op") == "d", F.col(f"before.{name}")).otherwise(F.col(f"after.{name}"))
    if origin.column in then.key:
        value = F.coalesce(value, F.col(f"key.{name}"))
    return from_file(value, type_)
