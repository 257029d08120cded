"""Applies pending batches to one table: chooses the kind of write, and makes its rows.

There are four kinds. A new or truncated table is replaced by the rows that result from the events. A table with a key is merged. So is one whose
columns change, unless only a rewrite of all rows can change them in one commit. In a table without a key, row images are added and
removed by number, where they are; or all rows are rewritten. That is the only write that must not be repeated: it applies one batch at a time, so that the marker alone decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.partial_document_updates import find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import ChangeLogDamaged, TargetError
from airflow_provider_cdc.targets.lake.events import event_reduction, row_images
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import ORIGIN, SEQ, UNKNOWN, inherit_values, last_per_key
from airflow_provider_cdc.targets.lake.rows.multiset_diff import AbsentRows, compute_difference
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import ABSENT, NUMBER
from airflow_provider_cdc.targets.lake.rules.projection import WHOLE, Projection, lower_names
from airflow_provider_cdc.targets.lake.schema.column_successors import project_recorded_version
from airflow_provider_cdc.targets.lake.schema.column_successors import resolve_variants as followed_by_variants
from airflow_provider_cdc.targets.lake.schema.mixed_type_columns import check_values, with_room
from airflow_provider_cdc.targets.lake.schema.table_evolution import present_version
from airflow_provider_cdc.targets.lake.session.spark_session import tune_session
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import VARIANT
from airflow_provider_cdc.targets.lake.write.arrow_rule_projection import ProjectedReduction
from airflow_provider_cdc.targets.lake.write.column_drop_stages import build_changed_rows, rows_after, split_into_stages
from airflow_provider_cdc.targets.lake.write.modes import MODES
from airflow_provider_cdc.targets.lake.write.table_write import DraftWrite, TableWrite, key_is_another
from airflow_provider_cdc.targets.lake.write.write_strategy import WriteStrategy

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.table_batch_writer")


def one_batch_at_a_time(spark: SparkSession, pending: PendingBatches, shape: Projection = WHOLE) -> bool:
    """Check whether these batches can be applied to a table only one after the other."""
    if shape.mode != "current":
        return shape.mode == "log"  # rows are added: a row that is added twice exists twice
    if event_reduction.last_truncate(spark, pending):
        return False
    return not pending.schema.key or event_reduction.key_changed(pending, 0)


def bring_up(
    target: Target,
    pending: PendingBatches,
    marker: Marker,
    route: WriteStrategy,
    *,
    new: bool,
    shape: Projection = WHOLE,
    at: int | None = None,
) -> None:
    """Apply pending batches, and give the table the comments of the source.

    :param route: how rows of a table with a key are written
    :param new: no batch was applied before; rows that are there do not count
    :param shape: projection of the table's rows by its rule
    :param at: the last batch of the table, as it was when these batches were chosen
    :raises TargetError: the table cannot take a change
    :raises Conflict: another writer was faster
    """
    tune_session(target.spark, pending.file_bytes + (0 if new else target.count_file_bytes()))
    _write(target, pending, marker, route, new=new, shape=shape, at=at)
    if shape.build_comments(pending.schema):
        comments = project_recorded_version(
            target, marker.application_name, shape, pending.schema_version
        ).build_comments(pending.schema)
        try:
            target.write_comments(comments)
        except WriteConflict as e:
            log.info("The comments of %s are written with its next batch: %s", pending.topic, str(e)[:200])


def _write(
    target: Target,
    pending: PendingBatches,
    marker: Marker,
    route: WriteStrategy,
    *,
    new: bool,
    shape: Projection,
    at: int | None,
) -> None:
    spark = target.spark
    event_reduction.check_names(pending)
    joins = bool(shape.shard_column) and target.exists()
    if not new:
        pending, shape = followed_by_variants(target, pending, marker.application_name, shape)
        _refuse_document_texts(target, pending, marker, shape)
    pending = _with_room(target, pending, shape)
    write = TableWrite(target, pending, marker, shape, route, fresh=new and not joins, joins=new and joins, at=at)
    if write.fresh:
        _from_the_beginning(write)
        return
    if shape.mode == "current":
        if cut := event_reduction.last_truncate(spark, pending):
            write.replace_topic_rows(_contents(write, cut))
            return
        if not pending.schema.key or event_reduction.key_changed(pending, 0):
            _by_number(write, route)
            return
    elif shape.mode == "log":
        MODES[shape.mode](replace(write, merges=route.find_merge_reason(target, pending, shape, by_spark=True)))
        return
    _by_key(write)


def _refuse_document_texts(target: Target, pending: PendingBatches, marker: Marker, shape: Projection) -> None:
    """Raise an error if documents that are to be variants would come beside texts of an older Spark.

    :raises TargetError: the table has texts, and keeps rows
    """
    column = shape.map_column_names(pending.schema).get(shape.documents, "")
    if not column or shape.map_column_types(pending.schema)[column] != VARIANT:
        return
    types = {name.lower(): type_ for name, type_ in target.read_column_types().items()}
    if types.get(column.lower()) != "string" or event_reduction.last_truncate(target.spark, pending):
        return
    raise TargetError(
        f"Column {column} has documents as text (STRING), as Spark before 4.0 stores them, but this Spark stores them as VARIANT.",
        where=target.location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="move the table away and run the apply again, which builds the table from the change log; or apply with Spark 3.5",
    )


def _with_room(target: Target, pending: PendingBatches, shape: Projection) -> PendingBatches:
    """Return the batches, with types that have room for all that comes into the table.

    :raises TargetError: there is no such type
    """
    if not pending.changes:
        return pending
    if shape.mode in ("log", "history"):
        check_values(target.spark, pending, shape, target.location)
    return with_room(pending, event_reduction.last_truncate(target.spark, pending) if shape.mode == "current" else 0)


def _contents(write: TableWrite, cut: int) -> DataFrame:
    """Return the rows of a table that begins behind an event, or with these batches."""
    pending, shape = write.pending, write.shape
    if not write.fresh and (not pending.schema.key or event_reduction.key_changed(pending, cut)):
        parts = split_into_stages(write, cut)
        if len(parts) > 1:
            return rows_after(write, parts, cut)
    return event_reduction.build_table_contents(write.spark, pending, cut, shape).drop(UNKNOWN)


def _from_the_beginning(write: TableWrite) -> None:
    """Make all rows from the events, whatever the table has."""
    if write.shape.mode == "current":
        write.replace_topic_rows(_contents(write, event_reduction.last_truncate(write.spark, write.pending)))
    else:
        MODES[write.shape.mode](write)


def from_the_beginning(
    target: Target, pending: PendingBatches, marker: Marker, route: WriteStrategy, shape: Projection
) -> DataFrame:
    """Return the rows that an apply of these batches makes if it finds no table. Nothing is written.

    :param target: of the table's kind; it may be there
    :param pending: from batch 1 on
    :raises TargetError: the rule does not allow the contents of the batches
    """
    event_reduction.check_names(pending)
    tune_session(target.spark, pending.file_bytes)
    draft = DraftWrite(target, _with_room(target, pending, shape), marker, shape, route, fresh=True)
    _from_the_beginning(draft)
    (rows,) = draft.drafts
    return rows


def _by_key(write: TableWrite) -> None:
    """Bring the last event of each key into a table that is there: by arrays, by a commit of Spark's results, or by a MERGE."""
    target, pending, shape, route = write.target, write.pending, write.shape, write.route
    by_spark = route.needs_spark(target, pending, shape)
    merges = route.find_merge_reason(target, pending, shape, by_spark=bool(by_spark))
    if by_spark or merges or (merges := _by_arrays(write)):
        write = replace(write, by_spark=by_spark, merges=merges)
        (_last_events if shape.mode == "current" else MODES[shape.mode])(write)


def _by_arrays(write: TableWrite) -> str:
    """Commit arrays.

    :return: why the table has to be merged instead; empty if it is done
    """
    target, pending, shape = write.target, write.pending, write.shape
    present_version(target, pending, write.marker.application_name, shape)
    last_events = write.route.reduce(pending)
    changes = last_events if shape.is_identity else ProjectedReduction(shape, last_events)
    reason = target.upsert_arrays(
        changes, lambda: event_reduction.read_event_keys(target.spark, pending, shape), write.marker
    )
    if not reason:
        log.info("%s is committed: %d keys, %d rows.", pending.topic, changes.keys.num_rows, changes.number_of_rows())
    return reason


def _last_events(write: TableWrite) -> None:
    """Mode ``current``: the last event of each key."""
    pending, shape = write.pending, write.shape
    events, key = (
        event_reduction.read_events(write.spark, pending, 0, shape, present=write.read_documents),
        shape.list_key_columns(pending.schema),
    )
    sparse = shape.list_sparse_columns(event_reduction.list_sparse_columns(pending, 0), pending.schema)
    more = lower_names(write.target.read_column_types()) - lower_names(write.column_types)
    rows = (
        last_per_key(events, key, sparse, shape.retired_columns, recreated=bool(more))
        if events is not None
        else event_reduction.build_empty_rows(write.spark, pending, shape)
    )

    def final(there: DataFrame) -> DataFrame:
        return inherit_values(rows, there, key, sparse, shape.retired_columns) if ORIGIN in rows.columns else rows

    inherits = ORIGIN in rows.columns or find_partial_documents(pending) is not None
    write.merge_rows(final, key, shape.list_nullable_keys(pending.schema), inherits=inherits)


def _by_number(write: TableWrite, route: WriteStrategy) -> None:
    """Apply changes to a table without a key, which is a bag of rows: equal rows are added and removed by number."""
    target, pending, marker, shape = write.target, write.pending, write.marker, write.shape
    if shape.shard_column or shape.rule.metadata_columns:
        raise key_is_another(write, "a shared table or a table with columns from columns.metadata")
    if len(parts := split_into_stages(write)) > 1:
        log.info("%s is rewritten: it keeps columns that the source dropped after some of these events.", pending.topic)
        _replace(write, lambda: rows_after(write, parts))
        return
    changes, names = (
        row_images.read_image_differences(target.spark, pending, 0, shape),
        list(shape.map_column_types(pending.schema)),
    )
    if changes is None:
        nothing = event_reduction.build_empty_rows(target.spark, pending, shape).select(*map(quote_name, names))
        changes = nothing.withColumn(NUMBER, F.lit(1)).withColumn(SEQ, F.lit(0).cast("bigint"))
    if not pending.changes:
        write.refuse_removed_columns(pending.schema_version)
    if set(pending.count_operations()) <= {"c", "r"} and (not pending.changes or write.bring_columns_up()):
        target.append(changes.drop(NUMBER, SEQ), marker)
    elif why := route.find_rewrite_reason(pending) or _by_places(write, changes, names):
        log.info("%s is rewritten: %s.", pending.topic, why)
        _anew(write, changes, names)


def _by_places(write: TableWrite, changes: DataFrame, names: list[str]) -> str:
    """Remove the rows that are deleted, where they are, and add the new ones.

    :return: why the whole table has to be rewritten instead; empty if it is done
    """
    target, pending = write.target, write.pending
    if not write.bring_columns_up():
        return "its columns cannot be changed in place"
    there = {name.lower(): (name, type_) for name, type_ in target.read_column_types().items()}
    columns = [F.col(quote_name(c)).cast(there[c.lower()][1]).alias(there[c.lower()][0]) for c in names]
    arrays = collect_arrow(changes.select(*columns, NUMBER, SEQ))
    difference = compute_difference(arrays, follow=len(there) > len(names))
    try:
        reason = target.apply_difference(difference, write.marker)
    except AbsentRows as e:
        raise _absent(target, pending) from e
    if not reason:
        log.info(
            "%s is committed: %d rows removed, %d rows added.",
            pending.topic,
            difference.number.sum(),
            difference.number_of_new_rows(),
        )
    return reason


def _anew(write: TableWrite, changes: DataFrame, names: list[str]) -> None:
    """Write all rows of the table."""
    _replace(write, lambda: build_changed_rows(write.read_current_rows(), changes, names))


def _replace(write: TableWrite, rows: Callable[[], DataFrame]) -> None:
    """
    :param rows: makes the table's rows from those that are there
    """
    try:
        write.target.replace(rows(), write.marker)
    except AbsentRows as e:
        raise _absent(write.target, write.pending) from e
    except PySparkException as e:
        if ABSENT not in str(e):
            raise
        raise _absent(write.target, write.pending) from e


def _absent(target: TargetIdentity, pending: PendingBatches) -> ChangeLogDamaged:
    return ChangeLogDamaged(
        "The change log removes a row that the table does not have: the table and the change log do not belong together.",
        where=f"{target.location}, batches {pending.first} to {pending.last}",
        safe="The table was not changed.",
        remedy="drop the target table and run the apply again, which rebuilds it from the change log",
    )
