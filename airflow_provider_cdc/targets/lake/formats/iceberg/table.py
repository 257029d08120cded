"""Iceberg tables, by path or by the name of a catalog's table.

Each write is one replacement of the table's metadata, and succeeds only if the table is in the very state in which its marker was read:
Spark writes within a transaction (:mod:`airflow_provider_cdc.targets.lake.formats.iceberg.spark_plans`), owner and marker are added to it, then it is published.

The marker is in the snapshot of the data, so that it goes back with the rows when a user rolls the table back: missing batches are applied again.
It is also a property of the table, with the snapshot's sequence number: compaction makes a snapshot without a marker, and when the ones
before it are expired, the property still knows. If it is newer than the rows, :meth:`IcebergTarget.set_back` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.column_renames import list_renames
from airflow_provider_cdc.targets.lake.formats.iceberg import compaction, spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.array_commit import (
    BY_KEY,
    IcebergArrayCommit,
    no_positions,
    unfit_table,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import (
    ICEBERG,
    add_snapshot_properties,
    extract_error_message,
    refused_by_hive,
    to_python_dict,
    translate_conflicts,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.keyless_commit import IcebergKeylessCommit
from airflow_provider_cdc.targets.lake.formats.iceberg.maintenance import IcebergMaintenance
from airflow_provider_cdc.targets.lake.formats.iceberg.schema_evolution import can_evolve, list_schema_updates
from airflow_provider_cdc.targets.lake.formats.iceberg.snapshot_markers import (
    MARKER,
    SNAPSHOT_MARKER,
    WRITER,
    SnapshotHistory,
    bring_columns_back,
    remove_new_files,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.table_locations import resolve_location
from airflow_provider_cdc.targets.lake.formats.iceberg.table_schema import (
    RESERVED,
    build_iceberg_schema,
    check_types,
    find_missing_comments,
    format_of,
    lay_out,
    lays_out,
    parse_transform,
    rearrange_columns,
    spark_types_from_schema,
    was_partitioned_by_a_column_that_is_gone,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.write_metrics import read_write_metrics
from airflow_provider_cdc.targets.lake.formats.jvm_errors import failed_with
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker, Owner, build_owner_properties, owner_of
from airflow_provider_cdc.targets.lake.formats.reserved_names import refuse_reserved
from airflow_provider_cdc.targets.lake.formats.table_values import (
    PLAIN_LAYOUT,
    ColumnEvolution,
    KeyedChanges,
    KeyedMerge,
    MaintenanceStepResult,
    PinnedTableState,
    TableComments,
    TableLayout,
    Upkeep,
    WriteConflict,
)
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rows.multiset_diff import MultisetDifference
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.iceberg")

_OWNER = "cdc.connector", "cdc.topic", "cdc.changelog"
_RULE = "cdc.rule"
_COMMENT = "comment"
"""The property that Spark and others show as the table's comment."""
_VERSION, _VARIANTS = "cdc.columns", "cdc.variants"
_PROPERTIES = {
    # files are not rewritten for a few changed rows
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # changed rows need no sorting before they are written
    "write.distribution-mode": "none",
    # one metadata file is made by each batch
    "write.metadata.delete-after-commit.enabled": "true",
}
_FORMAT_VERSION = "format-version"


class IcebergTarget(Target):
    """An Iceberg table; implements :class:`airflow_provider_cdc.targets.lake.formats.target_interface.Target`."""

    def __init__(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> None:
        super().__init__(spark, location, profile=profile)
        self._place = resolve_location(spark, location)
        self._loaded: Any = None
        self._view: Any = None
        self._before: Any = None
        self._snapshot_history: SnapshotHistory | None = None
        self._overtaken = False

    def exists(self) -> bool:
        """Begin a transaction, too: all other methods read it, and the next write publishes it."""
        self._loaded, self._overtaken = self._place.load_table(), False
        if self._loaded is None:
            return False
        transaction = self._loaded.newTransaction()  # reads the newest state, though a catalog may have kept the table
        self._before, self._view = self._loaded.operations().current(), self._within(transaction)
        self._snapshot_history = SnapshotHistory(self.spark, self._view)
        if went := self._snapshot_history.went_back:
            bring_columns_back(self.spark, self._view, went, _VERSION)
        return True

    def find_foreign_content(self, owner: Owner) -> str:
        return self._place.find_foreign_content(owner)

    def read_owner(self) -> Owner | None:
        properties = self._properties()
        return owner_of(properties, _OWNER)

    def record_owner(self, owner: Owner) -> None:
        there, version = self._properties(), self._metadata().formatVersion()
        new_properties = {**_owned(owner), **{k: v for k, v in _PROPERTIES.items() if there.get(k) != v}}
        self._alter(lambda table: _set(table, new_properties | ({_FORMAT_VERSION: "2"} if version < 2 else {})))

    def read_rule(self) -> str:
        return self._properties().get(_RULE, "")

    def record_rule(self, rule: str) -> None:
        if rule != self.read_rule():
            self.check_stand()
            self._alter(lambda table: _set(table, {_RULE: rule}))

    def read_variants(self) -> str:
        return self._properties().get(_VARIANTS, "")

    def record_variants(self, text: str) -> None:
        self.check_stand()
        self._alter(lambda table: _set(table, {_VARIANTS: text}))

    def read_markers(self) -> dict[str, int]:
        return {app: marker.batch for app, marker in self._history().last_markers.items()}

    def read_last_writer(self, app: str) -> str:
        return self._history().read_last_writer(app)

    def set_back(self, app: str) -> str:
        return self._history().set_back(app)

    def _history(self) -> SnapshotHistory:
        self._table()
        assert self._snapshot_history is not None
        return self._snapshot_history

    def read_rows(self) -> DataFrame:
        return spark_plans.read_table_rows(self.spark, self._table())

    def pin_table_state(self) -> PinnedTableState:
        table = self._table()
        return PinnedTableState(_version(table), self.read_markers(), spark_plans.read_table_rows(self.spark, table))

    def read_column_types(self) -> dict[str, str]:
        return spark_types_from_schema(self.spark, self._table().schema())

    def count_file_bytes(self) -> int:
        snapshot = self._table().currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get("total-files-size") or 0)

    def resolve_data_path(self) -> str:
        return str(self._table().location())

    def describe_catalog(self) -> Mapping[str, str]:
        return self._place.describe_catalog()

    # -- columns ------------------------------------------------------------------------------------------------------

    def read_schema_version(self, app: str) -> int:
        version, _, owner = self._properties().get(_VERSION, "0").partition(" ")
        return int(version) if owner == app else 0

    def can_evolve(self, evolution: ColumnEvolution) -> bool:
        self.check_columns(evolution.types)
        there = self.read_column_types()
        return can_evolve(evolution, there, self.location) and not lays_out(
            self._table(), evolution.list_dropped_columns(there)
        )

    def evolve_columns(self, evolution: ColumnEvolution) -> dict[str, str | None]:
        there = {name.lower(): name for name in self.read_column_types()}
        changes = [*list_schema_updates(self.spark, evolution, self.read_column_types())]
        if changes:
            self.check_stand()  # each commit of this run reads the table again

            def change(table: Any) -> None:
                _upgrade(table, evolution.types)
                update = table.updateSchema()
                for name, *arguments in changes:
                    getattr(update, name)(*arguments)
                update.commit()
                _set(table, {_VERSION: f"{evolution.version} {evolution.app}"})

            self._alter(change)
            self.changes_columns(evolution.version)
        column_names = set(there) | {new for _, new in list_renames(evolution)}
        return {
            name: value
            for name, value in evolution.fills.items()
            if value is not None or (name.lower() in column_names and self._has_values(name))
        }

    def write_comments(self, comments: TableComments) -> None:
        lacking = find_missing_comments(self.spark, self._table(), comments.columns)
        own = {_COMMENT: comments.table} if comments.table else {}
        if not lacking and own.items() <= self._properties().items():
            return

        def change(table: Any) -> None:
            _set(table, own)
            update = table.updateSchema()
            for name, text in lacking.items():
                update.updateColumnDoc(name, text)
            update.commit()

        self._alter(change)

    def _has_values(self, name: str) -> bool:
        return bool(self.read_rows().where(F.col(quote_name(name)).isNotNull()).head(1))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def check_columns(self, names: Iterable[str]) -> None:
        refuse_reserved("Iceberg", RESERVED, names, self.location)

    def check_types(self, types: Mapping[str, str]) -> None:
        check_types(types)

    def check_layout(self, layout: TableLayout) -> None:
        for text in layout.partition_by:
            parse_transform(text)

    def create(self, rows: DataFrame, marker: Marker, layout: TableLayout = PLAIN_LAYOUT) -> None:
        self.check_columns(rows.columns)
        properties = {_FORMAT_VERSION: format_of(_columns(rows)), **_PROPERTIES, **_owned(marker.owner)}
        if layout.rule:
            properties[_RULE] = layout.rule
        if self.profile == "fast":
            properties[BY_KEY] = "true"
        with self._place.mark_creation(marker.owner):
            with translate_conflicts():
                transaction = self._place.begin_creation(build_iceberg_schema(self.spark, _columns(rows)), properties)
            table = self._within(transaction)
            lay_out(self.spark, table, layout.partition_by, layout.cluster_by)
            self._write(table, marker, lambda: spark_plans.append_rows(self.spark, table, rows))
            metrics = read_write_metrics("create", table)
            with translate_conflicts(), self._place.lock_metadata():
                transaction.commitTransaction()
        self.written = metrics
        self.exists()

    def merge(self, merge: KeyedMerge, marker: Marker) -> None:
        def write(table: Any) -> None:
            if was_partitioned_by_a_column_that_is_gone(table):
                # Spark's writers of deletes look for that column; those that rewrite files do not
                _set(table, {"write.merge.mode": "copy-on-write"})
            spark_plans.merge_rows(self.spark, table, merge)

        self._put("merge", marker, write)

    def find_upsert_obstacle(self, *, inserts_only: bool) -> str:
        table = self._table()
        if why := unfit_table(self.spark, table, list(self.read_column_types())):
            return why
        by_key = self._properties().get(BY_KEY) == "true"
        return "" if inserts_only or by_key else no_positions(table)

    def upsert_arrays(self, changes: KeyedChanges, keys: Callable[[], DataFrame], marker: Marker) -> str:
        if self.read_marker(marker.application_name) >= marker.batch:
            return ""
        table = self._table()
        if changes.source_version not in ("", version := _version(table)):
            raise WriteConflict(
                f"rows were computed from snapshot {changes.source_version}, but the table is now at {version}"
            )
        commit = IcebergArrayCommit(self.spark, table, changes)
        if why := commit.find_merge_reason() or commit.write_batch(
            keys, f"{SNAPSHOT_MARKER}{marker.application_name}", marker.batch
        ):
            return why
        self._record(table, marker)
        self._publish()
        self.written = commit.written
        self._compact()
        return ""

    def apply_difference(self, changes: MultisetDifference, marker: Marker) -> str:
        if self.read_marker(marker.application_name) >= marker.batch:
            return ""
        table = self._table()
        commit = IcebergKeylessCommit(self.spark, table, changes)
        if why := commit.find_replace_reason() or commit.write_snapshot(
            f"{SNAPSHOT_MARKER}{marker.application_name}", marker.batch
        ):
            return why
        self._record(table, marker)
        self._publish()
        self.written = commit.written
        self._compact()
        return ""

    def append(self, rows: DataFrame, marker: Marker) -> None:
        names = {name.lower(): name for name in rows.columns}
        whole = rows.select(
            *[
                (F.col(quote_name(names[c.lower()])) if c.lower() in names else F.lit(None)).cast(t).alias(c)
                for c, t in self.read_column_types().items()
            ]
        )
        self._put("append", marker, lambda table: spark_plans.append_rows(self.spark, table, whole))

    def replace(self, rows: DataFrame, marker: Marker) -> None:
        self.check_columns(rows.columns)

        def write(table: Any) -> None:
            _upgrade(table, _columns(rows))
            rearrange_columns(self.spark, table, _columns(rows))
            spark_plans.overwrite_rows(self.spark, table, rows)

        self._put("replace", marker, write)

    def rebuild_rows(self, rows: DataFrame, marker: Marker) -> None:
        table, last_batch = self._table(), self.read_marker(marker.application_name)
        if last_batch != marker.batch:
            raise WriteConflict(f"another run has advanced the table to batch {last_batch}")
        self._write(table, marker, lambda: spark_plans.overwrite_rows(self.spark, table, rows))
        self._publish()

    def _put(self, way: str, marker: Marker, write: Callable[[Any], None]) -> None:
        if self.read_marker(marker.application_name) >= marker.batch:
            return
        table = self._table()
        self._write(table, marker, lambda: write(table))
        metrics = read_write_metrics(way, table)
        self._publish()
        self.written = metrics
        self._compact()

    def _write(self, table: Any, marker: Marker, write: Callable[[], None]) -> None:
        """Write rows within a transaction, and the marker with them."""
        with add_snapshot_properties(self.spark, {f"{SNAPSHOT_MARKER}{marker.application_name}": str(marker.batch)}):
            write()
        self._record(table, marker)

    def _record(self, table: Any, marker: Marker) -> None:
        """Write the marker of the current snapshot to the table's properties, too."""
        snapshot = table.currentSnapshot()
        properties = {f"{MARKER}{marker.application_name}": f"{marker.batch} {snapshot.sequenceNumber()}"}
        _set(table, properties | {f"{WRITER}{marker.application_name}": f"{marker.batch} {marker.writer}"})

    def _compact(self) -> None:
        """Compact the files of small commits, if it is time. The batch is in the table, even if this fails."""
        if not compaction.is_compaction_due(self._table()):
            return
        markers, overtaken = self.read_markers(), self._overtaken
        try:
            with self._place.lock_metadata():
                compaction.compact_files(self.spark, self._place.load_table())
            log.info("The files of %s were compacted.", self.location)
        except (Py4JJavaError, PySparkException) as e:
            log.warning(
                "The files of %s could not be compacted; a later commit tries again: %s",
                self.location,
                extract_error_message(e),
            )
        self.exists()
        self._overtaken = overtaken or self.read_markers() != markers

    def list_maintenance_steps(self, keep: timedelta) -> Upkeep:
        steps = IcebergMaintenance(self.spark, self._place.load_table, self._place.lock_metadata)
        named: dict[str, Callable[[], MaintenanceStepResult]] = {
            "compact": steps.compact_files,
            "rewrite manifests": steps.rewrite_manifests,
            "expire snapshots": lambda: steps.expire_snapshots(keep),
            "remove orphans": lambda: steps.remove_orphans(keep),
        }
        return {name: _or_conflict(step) for name, step in named.items()}

    def _alter(self, change: Callable[[Any], None]) -> None:
        """Change columns or properties, in one commit."""
        change(self._table())
        self._publish()

    # -- commits ------------------------------------------------------------------------------------------------------

    def _table(self) -> Any:
        """Return the table within the transaction."""
        if self._loaded is None and not self.exists():
            raise WriteConflict("the table no longer exists")
        return self._view

    def _metadata(self) -> Any:
        return self._table().operations().current()

    def _properties(self) -> dict[str, str]:
        return to_python_dict(self._metadata().properties())

    def _within(self, transaction: Any) -> Any:
        """Return the table as it is within a transaction.

        It can be read, and its commits change nothing but the transaction.
        """
        inner = transaction.table()
        return load_jvm_class(self.spark, f"{ICEBERG}.BaseTable")(inner.operations(), inner.name())

    def _publish(self) -> None:
        """Publish the transaction as the table's state, if no other writer has changed it."""
        table, before = self._view, self._before
        if self._overtaken:
            raise WriteConflict("another writer committed meanwhile")
        try:
            with translate_conflicts(), self._place.lock_metadata():
                self._loaded.operations().commit(before, table.operations().current())
        except WriteConflict:
            self._discard(table, before)
            raise
        except (Py4JJavaError, PySparkException) as e:
            if not failed_with(e, "CommitStateUnknownException"):
                raise
            if refused := refused_by_hive(e, self.location):
                raise refused from e
            # the table shows whether it was done, when it is read again
            raise WriteConflict(f"it is unknown whether the commit succeeded: {e}") from e
        self.exists()
        # the caller's knowledge of the table holds only until another writer commits
        self._overtaken = _snapshot_id(self._table()) != _snapshot_id(table)

    def _discard(self, table: Any, before: Any) -> None:
        try:
            remove_new_files(table, before, self._place.load_table())
        except (Py4JJavaError, PySparkException) as e:
            log.warning("Files of a failed commit to %s may remain: %s", self.location, extract_error_message(e))


def _or_conflict(step: Callable[[], MaintenanceStepResult]) -> Callable[[], MaintenanceStepResult]:
    def work() -> MaintenanceStepResult:
        with translate_conflicts("ValidationException"):
            return step()

    return work


def _snapshot_id(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def _version(table: Any) -> str:
    """Return the version, as :attr:`PinnedTableState.version`."""
    snapshot = _snapshot_id(table)
    return "no snapshot" if snapshot is None else str(snapshot)


def _set(table: Any, properties: Mapping[str, str]) -> None:
    update = table.updateProperties()
    for name, value in properties.items():
        update.set(name, value)
    update.commit()


def _upgrade(table: Any, types: Mapping[str, str]) -> None:
    """Give a table the format that columns of some types need, if it has an older one."""
    needed = format_of(types)
    if table.operations().current().formatVersion() < int(needed):
        _set(table, {_FORMAT_VERSION: needed})


def _owned(owner: Owner) -> dict[str, str]:
    return build_owner_properties(owner, _OWNER)


def _columns(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields}
