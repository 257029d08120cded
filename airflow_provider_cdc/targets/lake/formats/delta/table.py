"""Delta tables, by path or by a name of the session's catalog.

The marker is Delta's own transaction identifier (``txn`` action: application id and version), which lands in the commit of the
data and makes a repeated commit of the same version a no-op. It is read back through the table's log object, for which Delta has
no SQL.

A table begins with the plainest protocol, which most readers know, unless its profile says otherwise. The first change that needs a
feature (a column that is renamed or widened) switches it on.

Columns are changed by ``ALTER TABLE`` before the data, in commits of their own; the table property ``cdc.columns`` says which schema
version that is on its way to, so that the next run finds its way after a kill.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.column_renames import list_renames
from airflow_provider_cdc.targets.lake.formats.creation_owner_file import CreationMarker
from airflow_provider_cdc.targets.lake.formats.delta import column_changes as columns
from airflow_provider_cdc.targets.lake.formats.delta.array_commit import (
    NEEDED,
    DeltaArrayCommit,
    DeltaClasses,
    count_snapshot_bytes,
    read_snapshot_markers,
    too_large,
)
from airflow_provider_cdc.targets.lake.formats.delta.catalog_location import CatalogTableName
from airflow_provider_cdc.targets.lake.formats.delta.commit_conflicts import (
    OF_COLUMNS,
    OF_MERGE,
    or_conflict,
    translate_conflicts,
)
from airflow_provider_cdc.targets.lake.formats.delta.commit_history import WRITER
from airflow_provider_cdc.targets.lake.formats.delta.data_file_writer import DeltaFileWriter
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.delta.file_schema import DeltaFileLayout, not_for
from airflow_provider_cdc.targets.lake.formats.delta.jvm_access import DeltaTableFolder
from airflow_provider_cdc.targets.lake.formats.delta.keyless_commit import DeltaKeylessCommit
from airflow_provider_cdc.targets.lake.formats.delta.maintenance import DeltaMaintenance
from airflow_provider_cdc.targets.lake.formats.delta.merge_builder import build_merge
from airflow_provider_cdc.targets.lake.formats.delta.partition_value_check import (
    guard_partition_values,
    unfit_partitions,
)
from airflow_provider_cdc.targets.lake.formats.delta.write_metrics import read_write_metrics
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import (
    NEVER,
    Marker,
    Owner,
    build_owner_properties,
    owner_of,
)
from airflow_provider_cdc.targets.lake.formats.reserved_names import refuse_reserved
from airflow_provider_cdc.targets.lake.formats.table_location import is_path
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
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import find_missing_member
from airflow_provider_cdc.targets.lake.spark_releases.python_features import COPIES_VARIANT_ROWS
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, quote_text
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import VARIANT

_C = TypeVar("_C", bound=DeltaArrayCommit)
_TXN = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_VERSION, _VARIANTS = "cdc.columns", "cdc.variants"
# only properties with this beginning can be given with the rows of the first commit
_OWNER = "delta.cdc.connector", "delta.cdc.topic", "delta.cdc.changelog"
_RULE = "delta.cdc.rule"
_VECTORS = {"delta.enableDeletionVectors": "true"}
"""Removing rows without rewriting files."""


class DeltaTarget(Target):
    """A Delta table; implements :class:`airflow_provider_cdc.targets.lake.formats.target_interface.Target`."""

    def __init__(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> None:
        super().__init__(spark, location, profile=profile)
        self._named = None if is_path(location) else CatalogTableName(spark, location)
        self._folder = DeltaTableFolder(spark, self._named.resolve_folder() if self._named else location)

    @property
    def _name(self) -> str:
        return f"delta.{quote_name(self._folder.name)}"

    def exists(self) -> bool:
        table_exists = self._folder.exists()
        if table_exists and self._named and self.read_owner() and not self._named.is_registered():
            self._named.register(self._folder.name)  # the run that made it was killed before
        return table_exists

    def find_foreign_content(self, owner: Owner) -> str:
        return CreationMarker(self.spark, *self._folder.resolve_filesystem()).find_foreign_content(owner)

    def read_owner(self) -> Owner | None:
        properties = self._folder.read_properties()
        return owner_of(properties, _OWNER)

    def record_owner(self, owner: Owner) -> None:
        with translate_conflicts():
            self._set(_owned(owner))

    def read_rule(self) -> str:
        return self._folder.read_properties().get(_RULE, "")

    def record_rule(self, rule: str) -> None:
        if rule != self.read_rule():
            self.check_stand()
            with translate_conflicts():
                self._set({_RULE: rule})

    def read_variants(self) -> str:
        return self._folder.read_properties().get(_VARIANTS, "")

    def record_variants(self, text: str) -> None:
        self.check_stand()
        with translate_conflicts():
            self._set({_VARIANTS: text})

    def read_markers(self) -> dict[str, int]:
        return read_snapshot_markers(self.spark, self._folder.read_snapshot())

    def read_last_writer(self, app: str) -> str:
        return self._folder.writers.get(app, "")

    def set_back(self, app: str) -> str:
        batch = self.read_marker(app)
        return "" if batch == NEVER else self._folder.set_back(app, batch)

    def read_rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self._folder.name)

    def pin_table_state(self) -> PinnedTableState:
        snapshot = self._folder.read_snapshot()
        version = int(snapshot.version())
        # a frame without a version reads the newest one each time
        return PinnedTableState(str(version), read_snapshot_markers(self.spark, snapshot), self._at(version))

    def read_column_types(self) -> dict[str, str]:
        return _columns(self.read_rows())

    def read_column_names(self) -> list[str]:
        # a frame of the table, which knows the types, takes longer than a small commit
        return [field["name"] for field in self._layout(self._folder.read_snapshot()).fields]

    def resolve_data_path(self) -> str:
        return self._folder.name

    def describe_catalog(self) -> Mapping[str, str]:
        return self._named.describe_catalog() if self._named else {}

    def count_file_bytes(self) -> int:
        return count_snapshot_bytes(self._folder.read_snapshot())

    # -- columns ------------------------------------------------------------------------------------------------------

    def read_schema_version(self, app: str) -> int:
        version, _, owner = self._folder.read_properties().get(_VERSION, "0").partition(" ")
        return int(version) if owner == app else 0

    def can_evolve(self, evolution: ColumnEvolution) -> bool:
        there = self.read_column_types()
        self._check_new(evolution.types)
        can, gone = (
            columns.can_evolve(evolution, there, self.location, self._folder.can_widen),
            evolution.list_dropped_columns(there),
        )
        return can and (not gone or self._drops(gone))

    def _drops(self, names: list[str]) -> bool:
        """Check whether columns can be dropped in place.

        They can if files have other names for columns than the table, and none of these has a say in the layout.
        """
        snapshot = self._folder.read_snapshot()
        laid_out = self._partitions(snapshot)
        clustered = self._folder.load_class("org.apache.spark.sql.delta.skipping.clustering.ClusteredTableUtils")
        laid_out += [name for name in names if clustered.getClusteringColumnsOptional(snapshot).isDefined()]
        mapped = self._folder.read_properties().get("delta.columnMapping.mode", "none") != "none"
        return mapped and not {name.lower() for name in names} & {name.lower() for name in laid_out}

    def evolve_columns(self, evolution: ColumnEvolution) -> dict[str, str | None]:
        with translate_conflicts(*OF_COLUMNS):
            there = self.read_column_types()
            statements = list(columns.build_alter_statements(evolution, there, self.location))
            if statements:
                lacking = self._off(columns.list_evolution_properties(evolution, there))
                self.check_stand()
                self._set({_VERSION: f"{evolution.version} {evolution.app}", **lacking})
                self.changes_columns(evolution.version)
            for statement in statements:  # each is a separate commit, which Delta makes regardless of other commits
                self.check_stand()
                self._alter(statement)
        column_names = {name.lower() for name in there} | {new for _, new in list_renames(evolution)}
        return {
            name: value
            for name, value in evolution.fills.items()
            if value is not None or (name.lower() in column_names and self._has_values(name))
        }

    def write_comments(self, comments: TableComments) -> None:
        metadata = self._folder.open_log(fresh=True).unsafeVolatileSnapshot().metadata()
        fields = json.loads(metadata.schemaString())["fields"]
        there = {field["name"]: field["metadata"].get("comment", "") for field in fields}
        with translate_conflicts():
            for statement in columns.build_comment_statements(comments, metadata.description() or "", there):
                self._alter(statement)

    def _alter(self, clause: str) -> None:
        self.spark.sql(f"ALTER TABLE {self._name} {clause}")

    def _set(self, properties: Mapping[str, str]) -> None:
        self._alter(f"SET TBLPROPERTIES ({_listed(properties)})")

    def _off(self, features: Mapping[str, str]) -> dict[str, str]:
        """List those of some features that the table does not have."""
        snapshot = self._folder.read_snapshot()
        on = self._folder.read_properties()
        supported = self._folder.to_python_value(snapshot.protocol().readerAndWriterFeatureNames())
        on.update({name: "supported" for name in columns.NTZ if name.removeprefix("delta.feature.") in supported})
        return {name: value for name, value in features.items() if on.get(name) != value}

    def _has_values(self, name: str) -> bool:
        return bool(self.read_rows().where(F.col(quote_name(name)).isNotNull()).head(1))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def check_columns(self, names: Iterable[str]) -> None:
        vectors = self._layout(self._folder.read_snapshot()).has_vectors if self.exists() else self.profile == "fast"
        more = columns.RESERVED_BESIDE_VECTORS if vectors else ()
        refuse_reserved("Delta", columns.RESERVED.union(more), names, self.location)

    def _check_new(self, names: Iterable[str]) -> None:
        """Check names that the table does not have, as :meth:`check_columns`: a table that was adopted may have one."""
        there = {name.lower() for name in self.read_column_names()}
        self.check_columns(name for name in names if name.lower() not in there)

    def check_layout(self, layout: TableLayout) -> None:
        if transforms := [name for name in layout.partition_by if name.endswith(")")]:
            raise ConfigError(
                f"partition_by: Delta tables are partitioned by columns, not by {transforms[0]!r}.",
                where=self.location,
                safe="The table was not created.",
                remedy='name a column; columns.computed can add one, for example {"day": "to_date(created_at)"}; or use cluster_by',
            )

    def create(self, rows: DataFrame, marker: Marker, layout: TableLayout = PLAIN_LAYOUT) -> None:
        self.check_layout(layout)
        self.check_columns(rows.columns)
        rows = guard_partition_values(rows, layout.partition_by)
        writer = self._writer(rows, marker, "errorifexists")
        if layout.partition_by:
            writer = writer.partitionBy(*layout.partition_by)
        if layout.cluster_by:
            writer = writer.clusterBy(*layout.cluster_by)
        if layout.rule:
            writer = writer.option(_RULE, layout.rule)
        types = _columns(rows)
        vectors = self.profile == "fast" and (COPIES_VARIANT_ROWS or VARIANT not in types.values())
        features = {**columns.list_column_properties(types), **(_VECTORS if vectors else {})}
        with (
            CreationMarker(self.spark, *self._folder.resolve_filesystem()).mark_creation(
                marker.owner, self._folder.exists
            ),
            self._writing(marker),
        ):
            writer.options(**features, **_owned(marker.owner)).save(self._folder.name)
        self._tell("create", marker)
        if self._named:
            self._named.register(self._folder.name)

    def merge(self, merge: KeyedMerge, marker: Marker) -> None:
        before = self._folder.read_version()
        merge = replace(merge, rows=guard_partition_values(merge.rows, self._partitions()))
        with self._writing(marker, OF_MERGE), self._transaction(marker):
            build_merge(self._folder, merge).execute()
        self._tell("merge", marker, before)

    def find_upsert_obstacle(self, *, inserts_only: bool) -> str:
        snapshot = self._folder.read_snapshot()
        layout = self._layout(snapshot)
        if reason := self._release_obstacle() or not_for(layout, [field["name"] for field in layout.fields]):
            return reason
        return "" if inserts_only else too_large(layout, snapshot)

    def upsert_arrays(self, changes: KeyedChanges, keys: Callable[[], DataFrame], marker: Marker) -> str:
        if obstacle := self._release_obstacle():
            return obstacle
        if (transaction := self._begin(marker)) is None:
            return ""
        version = str(int(transaction.snapshot().version()))
        if changes.source_version not in ("", version):
            raise WriteConflict(
                f"rows were computed from version {changes.source_version}, but the table is now at version {version}"
            )
        layout = self._layout(transaction.snapshot())
        if reason := not_for(layout, changes.column_names):
            return reason
        commit = self._commit(DeltaArrayCommit, transaction, layout)
        with self._writing(marker):
            reason = commit.write_batch(changes, keys, marker)
        self.written = commit.written
        return reason

    def apply_difference(self, changes: MultisetDifference, marker: Marker) -> str:
        if obstacle := self._release_obstacle():
            return obstacle
        if (transaction := self._begin(marker)) is None:
            return ""
        layout = self._layout(transaction.snapshot())
        if reason := not_for(layout, changes.column_names, others=True):
            return reason
        commit = self._commit(DeltaKeylessCommit, transaction, layout)
        with self._writing(marker):
            commit.write_difference(changes, marker)
        self.written = commit.written
        return ""

    def _release_obstacle(self) -> str:
        """Why this release of Delta cannot commit arrays; empty if it can."""
        return find_missing_member(self.spark, "Delta", NEEDED)

    def _begin(self, marker: Marker) -> Any:
        """Begin a transaction at the newest version; nothing if the table has the batch.

        :raises Conflict: another run has brought the table to a batch between the one that it had and this one: some of the events would come twice
        """
        none = self._folder.load_class("scala.Option").empty()
        transaction = self._folder.open_log(fresh=True).startTransaction(none, none)
        last_batch = read_snapshot_markers(self.spark, transaction.snapshot()).get(marker.application_name, NEVER)
        if last_batch >= marker.batch:
            return None
        if self.stand is not None and self.stand.app == marker.application_name and last_batch != self.stand.batch:
            raise WriteConflict(f"another run has advanced the table from batch {self.stand.batch} to {last_batch}")
        return transaction

    def _commit(self, kind: type[_C], transaction: Any, layout: DeltaFileLayout) -> _C:
        folder, files = self._folder.resolve_filesystem()
        writer = DeltaFileWriter(layout, folder, files, self._folder.build_path)
        old = DeltaFileReader(writer, files, self._folder.build_path)
        return kind(self.spark, self._folder.open_log(), transaction, layout, writer, old, self._at)

    def _at(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self._folder.name)

    def _layout(self, snapshot: Any) -> DeltaFileLayout:
        metadata = snapshot.metadata()
        return DeltaFileLayout(
            json.loads(metadata.schemaString())["fields"],
            self._folder.to_python_value(metadata.partitionColumns()),
            self._folder.to_python_value(metadata.configuration()),
            frozenset(self._folder.to_python_value(snapshot.protocol().readerAndWriterFeatureNames())),
        )

    def list_maintenance_steps(self, keep: timedelta) -> Upkeep:
        steps = DeltaMaintenance(
            self.spark, self._folder.name, lambda: self._folder.open_log(fresh=True), self._folder.measure_files
        )
        named: dict[str, Callable[[], MaintenanceStepResult]] = {
            "compact": steps.compact_files,
            "checkpoint": steps.write_checkpoint,
            "remove old files": lambda: steps.remove_old_files(keep),
        }
        return {name: or_conflict(step) for name, step in named.items()}

    def append(self, rows: DataFrame, marker: Marker) -> None:
        there = {name.lower(): type_ for name, type_ in self.read_column_types().items()}
        rows = rows.select(
            *[F.col(quote_name(c)).cast(there.get(c.lower(), t)).alias(c) for c, t in _columns(rows).items()]
        )
        before = self._folder.read_version()
        rows = guard_partition_values(rows, self._partitions())
        # events since another batch than the table has would come twice; from here on, Delta sees who is faster
        self._folder.open_log(fresh=True)
        self.check_stand()
        with self._writing(marker):
            self._writer(rows, marker, "append").save(self._folder.name)
        self._tell("append", marker, before)

    def replace(self, rows: DataFrame, marker: Marker) -> None:
        self._check_new(rows.columns)
        partitions = self._partitions()
        rows = guard_partition_values(rows, partitions)
        writer = self._writer(rows, marker, "overwrite")
        fields = self._layout(self._folder.read_snapshot()).fields
        # a table that is adopted may have columns that may not be NULL
        if self.read_column_types() != _columns(rows) or not all(field["nullable"] for field in fields):
            if lacking := self._off(columns.list_column_properties(_columns(rows))):
                with translate_conflicts():
                    self._set(lacking)
            kept_partitions = [name for name in partitions if name in rows.columns]
            writer = writer.option("overwriteSchema", "true").partitionBy(*kept_partitions)
        before = self._folder.read_version()
        with self._writing(marker):
            writer.save(self._folder.name)
        self._tell("replace", marker, before)

    def rebuild_rows(self, rows: DataFrame, marker: Marker) -> None:
        # a writer of Spark's does nothing for a batch that the table has already
        log, none, delta = (
            self._folder.open_log(fresh=True),
            self._folder.load_class("scala.Option").empty(),
            DeltaClasses(self.spark),
        )
        transaction = log.startTransaction(none, none)
        last_batch = read_snapshot_markers(self.spark, transaction.snapshot()).get(marker.application_name, NEVER)
        if last_batch != marker.batch:
            raise WriteConflict(f"another run has advanced the table to batch {last_batch}")
        rows = guard_partition_values(rows, self._partitions())
        with self._writing(marker):
            gone = [file.remove() for file in delta.read_all_files(transaction)]
            new_files = delta.to_python_list(transaction.writeFiles(rows._jdf))
            delta.commit_actions(transaction, [*gone, *new_files], marker.application_name, marker.batch)

    def _partitions(self, snapshot: Any = None) -> list[str]:
        """Return the columns by which the table is partitioned."""
        partition_columns: list[str] = self._folder.to_python_value(
            (snapshot or self._folder.read_snapshot()).metadata().partitionColumns()
        )
        return partition_columns

    @contextlib.contextmanager
    def _writing(self, marker: Marker, *more: str) -> Iterator[None]:
        """Open a commit, which says who has written the marker's batch.

        :param more: as of :func:`.commit_conflicts.translate_conflicts`
        :raises Conflict: another writer was faster
        :raises TargetError: a row has a value that a partition cannot have
        """
        self.spark.conf.set(_METADATA, json.dumps({WRITER: marker.writer}))
        try:
            with unfit_partitions(self._folder.name), translate_conflicts(*more):
                yield
        finally:
            self.spark.conf.unset(_METADATA)

    def _tell(self, way: str, marker: Marker, before: int = -1) -> None:
        """Find the metrics of Spark's commit.

        There is nothing to find if the batch was there already, or another writer has committed since.

        :param before: the table's version before the write
        """
        log, version = self._folder.open_log(), self._folder.read_version()
        actions = self._folder.read_actions(log, version) if version > before else []
        self.written = read_write_metrics(way, actions, marker)

    def _writer(self, rows: DataFrame, marker: Marker, mode: str) -> DataFrameWriter:
        # the option wins over a cluster's default, under which Delta replaces only the partitions that have rows
        writer = rows.write.format("delta").mode(mode).option("partitionOverwriteMode", "static")
        return writer.option("txnAppId", marker.application_name).option("txnVersion", marker.batch)

    @contextlib.contextmanager
    def _transaction(self, marker: Marker) -> Iterator[None]:
        """Set the marker for a SQL statement. Left behind in the session, it would make later statements silent no-ops."""
        for name, value in zip(_TXN, (marker.application_name, str(marker.batch)), strict=True):
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in _TXN:
                self.spark.conf.unset(name)


def _owned(owner: Owner) -> dict[str, str]:
    return build_owner_properties(owner, _OWNER)


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_text(name)} = {quote_text(value)}" for name, value in properties.items())


def _columns(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields}
