"""The rows that a table ought to have at its own last batch: those of the source at some position, and the changes captured since.

A *reference* has the rows of the source's table at a position of its log. The connector's own batches, from the first one that ends after this
position up to the table's last one, are put upon them as the apply would. The first batch may hold changes from before the position, too. To rows with
a key that does no harm: of each key the last event counts, and the reference has the events before it. Rows without a key are counted, so there each event may
count only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.partial_document_updates import find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import (
    ColumnLineage,
    PendingBatches,
    base_version,
    merge_pending,
    trace_columns,
)
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.events import event_reduction, row_images
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import (
    OMITTED,
    OP,
    ORIGIN,
    SEQ,
    UNKNOWN,
    inherit_values,
    last_per_key,
)
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER, expand_row_counts
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_fill_value,
    format_constant,
    quote_name,
    spark_type,
)
from airflow_provider_cdc.verify.batches_after_reference import ONLY_CHANGES, BatchesAfterReference, NotComparable

BROADCAST_EVENTS = 1_000_000
"""So many events at most are sent to all executors, so that the reference's rows stay where they are."""


@dataclass(frozen=True, slots=True)
class ExpectedTableRows:
    """The rows that a table ought to have, with the columns of ``schema``; with :data:`~airflow_provider_cdc.targets.lake.rows.last_event_per_key.UNKNOWN` where values are not known.

    :param rows_about: how many they are, roughly
    """

    rows: DataFrame
    schema: TableSchema
    rows_about: int


def of_reference(spark: SparkSession, reference: PendingBatches) -> ExpectedTableRows:
    """Return the rows of the reference itself."""
    rows = event_reduction.build_table_contents(spark, reference, event_reduction.last_truncate(spark, reference))
    return ExpectedTableRows(rows, reference.schema, reference.event_count)


def build_expected_rows(
    spark: SparkSession, reference: PendingBatches, later_changes: BatchesAfterReference, last: int
) -> ExpectedTableRows:
    """Return the rows of a reference with the changes captured since, up to some batch.

    :raises NotComparable: the columns were being changed at the position, or rows without a key
    """
    start = of_reference(spark, reference)
    parts = later_changes.list_parts(reference.topic, last)
    if not parts:
        return start
    pending = merge_pending(parts, last, {})
    about = start.rows_about + pending.event_count
    if cut := event_reduction.last_truncate(spark, pending):  # all rows of the table come after it
        return ExpectedTableRows(event_reduction.build_table_contents(spark, pending, cut), pending.schema, about)
    first = parts[0] if parts[0].last == later_changes.first and later_changes.straddles else None
    version = _version_at(start.schema, pending, first, later_changes)
    if version not in pending.schemas:
        schema = start.schema.model_copy(update={"version": version})
        pending = replace(pending, schemas={**pending.schemas, version: schema})
    rows = _brought_up(start.rows, pending, version)
    keys_differ = pending.schemas[version].key != start.schema.key or _key_is_another(pending, version)
    if not pending.schema.key or keys_differ or event_reduction.key_changed(pending, 0):
        if first is not None and first.event_count:
            raise NotComparable(
                "its rows have no key, and the source table was changing at the position of the reference: verify it again when "
                "fewer changes are written"
            )
        return ExpectedTableRows(_counted(spark, rows, pending), pending.schema, about)
    if first is not None and find_partial_documents(first) is not None:
        raise NotComparable(ONLY_CHANGES)
    return ExpectedTableRows(_upon(spark, rows, pending, straddles=first is not None), pending.schema, about)


# -- the reference's columns ------------------------------------------------------------------------------------------


def _version_at(
    source: TableSchema, pending: PendingBatches, first: PendingBatches | None, since: BatchesAfterReference
) -> int:
    """Return the version of the connector's schema that was in force at the position.

    :param source: the table at the position
    :param first: the part of the batch that the position is within
    """
    base = base_version(pending)
    newest = max(first.changes, default=base) if first is not None else base
    schemas = dict(pending.schemas)
    if base not in schemas and (before := since.schema_before(pending.topic)) is not None and before.version == base:
        schemas[base] = before
    source_columns = _columns(source)
    versions = [v for v in range(base, newest + 1) if v in schemas and _columns(schemas[v]) == source_columns]
    if not versions and base not in schemas and base > 0:
        return base  # no existing batch has the schema any more
    if not versions:
        there = [name for name, _ in _columns(schemas[max(v for v in schemas if v <= newest)])] if schemas else []
        raise NotComparable(
            f"at the position of the reference, its columns were {', '.join(source.column_names)}; in the change log, they "
            f"were {', '.join(there) or 'unknown'}: if a DDL statement has just changed them, verify it again"
        )
    extended = replace(pending, schemas={**pending.schemas, **{v: schemas[v] for v in versions}})
    if any(
        origin != ColumnLineage(column=name)
        for v in versions[1:]
        for name, origin in trace_columns(extended, versions[0], until=v).items()
    ):  # fmt: skip
        raise NotComparable("its columns were changing at the position of the reference: verify it again")
    return versions[0]


def _columns(schema: TableSchema) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in schema.columns]


def _key_is_another(pending: PendingBatches, version: int) -> bool:
    """Return whether the newest key is not that of the reference's rows."""
    origins = trace_columns(pending, version)
    return {origins[name].column for name in pending.schema.key} != set(pending.schemas[version].key)


def _brought_up(rows: DataFrame, pending: PendingBatches, version: int) -> DataFrame:
    """Rows of a version with the newest columns."""
    if version == pending.schema_version:
        return rows
    origins, columns = trace_columns(pending, version), []
    for column in pending.schema.columns:
        origin, type_ = origins[column.name], spark_type(column.type)
        if origin.column is None:
            value = build_fill_value(format_constant(origin.fill, column.type), type_)
        else:
            value = F.col(quote_name(origin.column)).cast(type_)
        columns.append(value.alias(column.name))
    if UNKNOWN in rows.columns:
        names = [
            F.when(F.array_contains(UNKNOWN, F.lit(origin.column)), F.lit(name))
            for name, origin in origins.items()
            if origin.column is not None
        ]
        columns.append(F.array_compact(F.array(*names)).alias(UNKNOWN))
    return rows.select(*columns)


# -- changes captured since -------------------------------------------------------------------------------------------


def _counted(spark: SparkSession, rows: DataFrame, pending: PendingBatches) -> DataFrame:
    """Rows without a key, and the images that came and went."""
    changes = row_images.read_image_differences(spark, pending, 0)
    names = list(pending.schema.column_names)
    whole = rows.select(*map(quote_name, names)).withColumn(NUMBER, F.lit(1))
    return rows if changes is None else expand_row_counts(whole.unionByName(changes.drop(SEQ)), names)


def _upon(spark: SparkSession, rows: DataFrame, pending: PendingBatches, *, straddles: bool) -> DataFrame:
    """Rows with a key, and the last event of each."""
    names, key = list(pending.schema.column_names), pending.schema.key
    sparse = event_reduction.list_sparse_columns(pending, 0)
    events = event_reduction.read_events(spark, pending, 0, present=lambda: rows.select(*map(quote_name, names)))
    if events is None:
        return rows
    last = last_per_key(events, key, sparse)
    few = pending.event_count <= BROADCAST_EVENTS
    moved = ORIGIN in last.columns
    if moved and not straddles:
        last = inherit_values(last, rows, key, sparse).drop(ORIGIN)
    if OMITTED in last.columns:
        last = _without_kept_values(last, key) if moved and straddles else last
    last = last.localCheckpoint()  # it is read several times
    touched = last.select(*[F.col(quote_name(k)) for k in key])
    same = _same(key, "r", "l")
    others = rows.alias("r").join(_sent(touched, few=few).alias("l"), same, "left_anti")
    new = last.where(F.col(OP) != "d")
    if UNKNOWN not in rows.columns and OMITTED not in last.columns:
        return others.select(*map(quote_name, names)).unionAll(new.select(*map(quote_name, names)))
    with_unknown = _with_unknown(others, names)
    if OMITTED not in last.columns:
        return with_unknown.unionAll(_with_unknown(new, names))
    old = rows.alias("r").join(_sent(touched, few=few).alias("l"), same, "left_semi")
    return with_unknown.unionAll(_completed(new, _with_unknown(old, names), names, key, sparse))


def _completed(
    new: DataFrame, old: DataFrame, names: list[str], key: tuple[str, ...], sparse: Sequence[str]
) -> DataFrame:
    """Fill reduced rows with the reference's values where no event had one.

    Where the reference has none either, the value is unknown.
    """
    there = old.withColumn(_THERE, F.lit(True)).alias("r")
    joined_ = new.alias("n").join(there, _same(key, "n", "r"), "left")

    def stays(name: str) -> Expression:
        return F.array_contains(f"n.{OMITTED}", F.lit(name))

    columns = []
    for name in names:
        value = F.col(f"n.{quote_name(name)}")
        if name in sparse:
            value = F.when(stays(name), F.col(f"r.{quote_name(name)}")).otherwise(value)
        columns.append(value.alias(name))
    lost = [
        F.when(
            stays(name) & (F.col(f"r.{_THERE}").isNull() | F.array_contains(f"r.{UNKNOWN}", F.lit(name))), F.lit(name)
        )
        for name in sparse
    ]
    unknown = F.array_distinct(F.concat(f"n.{UNKNOWN}", F.array_compact(F.array(*lost))))
    return joined_.select(*columns, unknown.alias(UNKNOWN))


_THERE = "__cdc_there"


def _without_kept_values(last: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Reduced rows of which the reference may have the old key or the new one: the values that they would keep are not known."""
    moved = ~F.col(ORIGIN).eqNullSafe(F.struct(*[F.col(quote_name(k)) for k in key]))
    none = F.array().cast("array<string>")
    unknown = F.when(moved, F.concat(UNKNOWN, OMITTED)).otherwise(F.col(UNKNOWN))
    changed = last.withColumn(UNKNOWN, unknown).withColumn(OMITTED, F.when(moved, none).otherwise(F.col(OMITTED)))
    return changed.drop(ORIGIN)


def _with_unknown(rows: DataFrame, names: list[str]) -> DataFrame:
    unknown = F.col(UNKNOWN) if UNKNOWN in rows.columns else F.array().cast("array<string>").alias(UNKNOWN)
    return rows.select(*map(quote_name, names), unknown)


def _same(key: tuple[str, ...], a: str, b: str) -> Expression:
    same = [F.col(f"{a}.{quote_name(k)}").eqNullSafe(F.col(f"{b}.{quote_name(k)}")) for k in key]
    whole = same[0]
    for condition in same[1:]:
        whole &= condition
    return whole


def _sent(rows: DataFrame, *, few: bool) -> DataFrame:
    return F.broadcast(rows) if few else rows
