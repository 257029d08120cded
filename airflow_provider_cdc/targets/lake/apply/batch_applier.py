"""Brings one table from its marker to the last of some batches, and begins again when another writer was faster."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.last_events import reduce_to_last_events
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches, merge_pending
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.read_ahead import map_ahead
from airflow_provider_cdc.targets.lake.apply.apply_run_report import TableApplyResult
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.apply.table_batch_writer import bring_up, one_batch_at_a_time
from airflow_provider_cdc.targets.lake.apply.table_owner_check import applied_batch, put_back
from airflow_provider_cdc.targets.lake.formats.jvm_errors import lost_with_an_executor
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Marker, ObservedProgress, Owner
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.placement.recorded_rule_check import another_place, another_rule, same_rule
from airflow_provider_cdc.targets.lake.rules.projection import WHOLE, Projection
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.schema.column_origins import ColumnOriginRecorder
from airflow_provider_cdc.targets.lake.schema.column_successors import project_recorded_version
from airflow_provider_cdc.targets.lake.write.write_strategy import WriteStrategy

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.batch_applier")
Shapes = Callable[[SparkSession, str, TableSchema, bool, RouteBranch | None, Collection[str]], Projection]
"""Session, topic, schema, whether unknown names are refused, the place that is meant, and the columns that the table had → the shape; see
:func:`airflow_provider_cdc.targets.lake.rules.projection_builder.build_projection`."""

ATTEMPTS = 6


class CachedRowsLost(Exception):
    """Rows that were set aside are gone with an executor; nothing was committed.

    :param error: that Spark has raised
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class BatchApplier:
    """Catches tables up; used by several threads at once.

    :param open_table: location → the table there, in the session of the thread
    :param adopt: topics whose tables are taken over although they have another owner
    :param check_crc: compare the checksum of each file of the change log too
    :param writes: how rows of tables with a key are written, one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.WRITES`
    :param shapes: gives the projection of a topic's rows by its rule
    :param origins: notes where columns come from
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        open_table: Callable[[str], Target],
        *,
        adopt: Collection[str] = (),
        check_crc: bool = False,
        writes: str = "auto",
        shapes: Shapes = lambda spark, topic, schema, strict, place, before: WHOLE,
        origins: ColumnOriginRecorder | None = None,
    ) -> None:
        self._changelog, self._connector, self._open, self._check_crc = changelog, connector, open_table, check_crc
        self._shapes, self._origins = shapes, origins
        self._route = WriteStrategy(lambda pending: reduce_to_last_events(changelog, connector, pending), writes)
        self.adopt, self.newest = frozenset(adopt), 0
        """Topics as above, and the newest batch of the change log that is known."""
        self._writers = dict[int, str]()
        self.progress = JobTableProgress()
        """Of the round that is on."""

    def inspect_target(
        self, owner: Owner, location: str, place: RouteBranch | None = None
    ) -> tuple[Target, int | None]:
        """Return a table and its last batch, ``None`` if there is no table.

        :param place: of a topic with a route, whose rows it has to have
        :raises TargetError: it is not ours, or cannot be caught up
        """
        target = self._open(location)
        at = applied_batch(target, owner, adopt=owner.topic in self.adopt)
        # names of two places may be one to a catalog, or to a disk
        if place is not None and at not in (None, NEVER) and (problem := another_place(target, owner, place)):
            raise problem
        if at in (None, NEVER):
            return target, at
        writer = target.read_last_writer(owner.application_name)
        if writer and self._written_by(at) not in ("", writer):
            raise put_back(target, owner, at)
        if at <= self.newest or self._written_by(at):
            return target, at
        last = max(self._changelog.list_batches(self._connector), default=0)
        if at > last:  # nor has another run applied batches that were captured since this one began
            raise TargetError(
                f"The table is at batch {at}, but the change log ends with batch {last}: it is another change log, or its last batches are lost.",
                where=f"{target.location} ({owner})",
                safe="The table was not changed.",
                remedy="restore the change log from a backup; if it is lost for good, move the table away and run the apply again, which "
                "rebuilds it from the remaining batches",
            )
        return target, at

    def _written_by(self, batch: int) -> str:
        """Return the run that has written a batch; empty if the batch is not there.

        It may be removed, or not written yet. One request serves all tables whose last batch it is.
        """
        if batch not in self._writers:
            manifest = self._changelog.find_manifest(self._connector, batch)
            self._writers[batch] = "" if manifest is None else manifest.writer
        return self._writers[batch]

    def discard_cache(self) -> None:
        """Discard the parts of the change log that were read; the next round may find another one."""
        self._writers.clear()

    def apply_batches(
        self,
        owner: Owner,
        location: str,
        groups: list[BatchesByTopic],
        done: list[TableApplyResult],
        inspected: tuple[Target, int | None] | None = None,
        table: TargetTable | None = None,
        *,
        more: bool = False,
    ) -> int | None:
        """Apply the part of some groups of batches that a table lacks.

        :param groups: all of the run up to the one that is applied now
        :param inspected: the table as it was a moment ago
        :param table: which one it is, if a topic has several
        :param more: whether another group follows. If a killed run has brought the columns to a version which only that one has, nothing is done before
        :return: its last batch
        """
        table = table or TargetTable(owner.topic, owner.topic, location, owner.shared)
        last = ""
        for attempt in range(ATTEMPTS):
            try:
                target, at = inspected or self.inspect_target(owner, location, table.place)
                return self._attempt(owner, table, target, at, groups, done, more=more)
            except CachedRowsLost as e:
                if attempt + 1 == ATTEMPTS:
                    raise e.error from e
                inspected = None
                log.warning(
                    "An executor was lost while changes were merged into the table of %s (attempt %d). The merge is retried.",
                    table.name,
                    attempt + 1,
                )
            except WriteConflict as e:
                inspected, last = None, str(e)[:300]
                # a faster run may have applied the same batches: the marker shows it
                log.warning(
                    "Another writer committed to the table of %s first (attempt %d): %s", table.name, attempt + 1, last
                )
                time.sleep(0.5 * attempt)
        raise TargetError(
            f"Other writers changed the table of {table.name} {ATTEMPTS} times during the merge. Last conflict: {last}",
            where=location,
            safe="The table was not changed by this run.",
            remedy="stop the other writers, then run the apply again",
        )

    def _attempt(
        self, owner: Owner, table: TargetTable, target: Target, at: int | None, groups: list[BatchesByTopic], done: list[TableApplyResult],
        *, more: bool,
    ) -> int | None:  # fmt: skip
        """Apply the batches that a table lacks after the marker that was read once; commits are added to ``done``."""
        new = at in (None, NEVER)
        if new and groups[0].first > table.begins_after + 1:
            raise WriteConflict("the table was removed a moment ago")
        parts = [part for group in groups for part in group.list_parts(owner.topic, max(at or 0, 0))]
        if not parts:
            return at
        pending = merge_pending(parts, groups[-1].last, groups[-1].position)
        if not (pending.files or pending.changes or new):
            return at
        begun = 0 if new else target.read_schema_version(owner.application_name)
        if more and begun > pending.schema_version:
            return at
        committed = self._check(pending)
        shape = self._shape(owner, table, target, pending.schema, pending.all_column_names, new=new)
        if new and table.lacks:
            log_removed_batches(table, groups[0].first, shape.mode)
        alone = new and not (owner.shared and target.exists())
        one_by_one = not alone and one_batch_at_a_time(target.spark, pending, shape)
        for step in _steps(parts, begun, groups[-1]) if one_by_one else [pending]:
            began = time.monotonic()
            if step is not pending:
                shape = self._shape(owner, table, target, step.schema, pending.all_column_names, new=new)
            target.written = None
            target.stand = ObservedProgress(
                owner.application_name,
                NEVER if at is None else at,
                0 if at is None else target.read_schema_version(owner.application_name),
            )
            self.progress.record_batch_range(table.name, step.first, step.last)
            try:
                marker = Marker(owner, step.last, _writer(groups, step.last))
                bring_up(target, step, marker, self._route, new=new, shape=shape, at=at)
            except Exception as e:
                if not isinstance(e, WriteConflict) and (by := self._overtaken(owner, target)):
                    raise WriteConflict(f"{by}; meanwhile, this attempt failed: {e}") from e
                if lost_with_an_executor(e):
                    raise CachedRowsLost(e) from e
                raise
            new, at = False, step.last
            result = TableApplyResult(
                owner.topic, target.location, step.first, step.last, step.count_operations(), step.position,
                round(time.monotonic() - began, 3), max((committed[path] for path, _ in step.files), default=0),
                name="" if table.place is None else table.name,
            )  # fmt: skip
            done.append(result.add_write_metrics(target.written))
        if self._origins is not None:
            shape = project_recorded_version(target, owner.application_name, shape, pending.schema_version)
            self._origins.record_columns(table.name, target, shape, pending.schema)
        return at

    def _overtaken(self, owner: Owner, target: Target) -> str:
        """Describe how another run has brought a table further since work on it was decided; empty if none has.

        Reads of the table meanwhile do not belong to one state, and an error need not be one.
        """
        now = self._open(target.location)
        now.stand = target.stand
        try:
            if now.exists():
                now.check_stand()
        except WriteConflict as e:
            return str(e)
        except Exception:  # the error that led here describes the problem
            log.debug("The table at %s cannot be inspected again.", target.location, exc_info=True)
        return ""

    def check_rule(self, owner: Owner, table: TargetTable, target: Target, schema: TableSchema) -> None:
        """Check the rule that a table was made by.

        :param target: a table with rows of the owner
        :param schema: of the source's table
        :raises TargetError: it was made by another rule than the one that is in force
        """
        self._shape(owner, table, target, schema, (), new=False)

    def _shape(
        self,
        owner: Owner,
        table: TargetTable,
        target: Target,
        schema: TableSchema,
        before: Collection[str],
        *,
        new: bool,
    ) -> Projection:
        """Return the projection of a topic's rows by its rule.

        :param before: columns that the source's table had
        :raises TargetError: the table was made by another rule
        """
        has_table = not new or (owner.shared and target.exists())
        shape = self._shapes(target.spark, owner.topic, schema, not has_table, table.place, before)
        if has_table and not same_rule(target.read_rule(), shape.format_recorded_rule(), schema):
            raise another_rule(target, owner, shape)
        return shape

    def _check(self, pending: PendingBatches) -> dict[str, int]:
        """File → when its newest event was committed at the source, in ms.

        :raises ChangeLogDamaged: a file differs from its manifest
        """
        files = dict([*pending.files, *pending.passing])
        check = functools.partial(self._changelog.check_file, self._connector, crc=self._check_crc)
        return dict(zip(files, map_ahead(check, files.values()), strict=True))


def _writer(groups: list[BatchesByTopic], batch: int) -> str:
    """Return the run that has written a batch of some groups."""
    return next(group.writers[batch] for group in reversed(groups) if batch in group.writers)


def log_removed_batches(table: TargetTable, first: int, mode: str) -> None:
    """Log that a table is made from some batch on.

    :param first: this batch
    :param mode: of its rule
    """
    if mode == "current":
        log.info(
            "The table of %s starts with batch %d, in which the source table is truncated or snapshotted again: earlier batches are removed.",
            table.name, first,
        )  # fmt: skip
    else:
        log.warning(
            "The table of %s (mode %s) starts with batch %d: earlier states of its rows are lost, because earlier batches are removed.",
            table.name, mode, first,
        )  # fmt: skip


def _steps(parts: list[PendingBatches], begun: int, group: BatchesByTopic) -> list[PendingBatches]:
    """Batches that are applied one after the other. Those by which a killed run has changed columns stay together.

    :param begun: schema version of the table's columns
    """
    reach = next((n for n, part in enumerate(parts, 1) if part.schema_version >= begun), len(parts))
    first = parts[:reach]
    return [merge_pending(first, first[-1].last, first[-1].position), *parts[reach:]]
