"""Totals of the durable events of a run: of constant size for each table, however many batches there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.table_schema import TableSchema


@dataclass(slots=True)
class FileTotals:
    """Totals of the files of one topic."""

    events: int = 0
    bytes: int = 0
    files: int = 0


@dataclass(slots=True)
class BatchTotals:
    """Totals of the batches that a run has committed.

    :ivar batches: their numbers
    :ivar files: topic → its files
    :ivar schemas: topic → the newest schema that a batch has of it
    """

    batches: range = range(0)
    events: int = 0
    files: dict[str, FileTotals] = field(default_factory=dict)
    schemas: dict[str, TableSchema] = field(default_factory=dict)

    def add_batch(self, manifest: Manifest) -> None:
        """Count a batch, which follows the one before."""
        self.batches = range(self.batches.start or manifest.batch, manifest.batch + 1)
        self.events += manifest.event_count
        for topic, versions in manifest.schemas.items():
            self.schemas[topic] = versions[max(versions, key=int)]
        for file in manifest.files:
            totals = self.files.setdefault(file.topic, FileTotals())
            totals.events, totals.bytes, totals.files = (
                totals.events + file.rows,
                totals.bytes + file.bytes,
                totals.files + 1,
            )
