"""The target interface: the operations of a table format that an apply needs, role by role."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import ObservedProgress
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics
from airflow_provider_cdc.targets.lake.formats.target_roles import (
    TargetColumns,
    TargetIdentity,
    TargetMaintenance,
    TargetProgress,
    TargetRows,
)


class Target(TargetIdentity, TargetProgress, TargetColumns, TargetRows, TargetMaintenance):
    """A table of a format. Made for each table and each attempt, in the thread that uses it.

    A write whose marker is not after the table's own is a no-op. All writes raise
    :class:`WriteConflict` when another writer was faster.
    """

    def __init__(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> None:
        self.spark, self.location, self.profile = spark, location, profile
        self.written: WriteMetrics | None = None
        """Metrics of the last write; ``None`` if nothing had to be written."""
        self.stand: ObservedProgress | None = None
        """How far the table was when the work on it was decided, if others may write to it. :meth:`evolve_columns`, :meth:`record_rule` and :meth:`record_variants` have no
        marker that makes a late one a no-op; they change the table only if it is there still."""
