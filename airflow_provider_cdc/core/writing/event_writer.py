"""The one writer of events: gives each its sequence number, puts it into the batch, and counts it.

>>> writer.rows(block, start=offset.position)
>>> writer.truncate(schema, ts_us=1_700_000_000_000_000, source={})
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.model.batch_manifest import DataFile, SchemaChangeRecord
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.log_items import LogBlock, RowBlock
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import EventMetrics, RunMetrics
from airflow_provider_cdc.core.model.table_schema import TableChange, TableSchema
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
from airflow_provider_cdc.core.writing.event_envelope import Envelope


class EventWriter:
    """Writes the events of a run. Nothing else gives out sequence numbers.

    :param structured: see :class:`~airflow_provider_cdc.core.spi.source.Source`; otherwise schema changes are internal
    :ivar open: a transaction is incomplete: its events may be taken back, and the batch must not end within it
    """

    def __init__(
        self, envelope: Envelope, batcher: BatchBuilder, metrics: RunMetrics, *, structured: bool = True
    ) -> None:
        self.envelope, self._batcher, self._metrics = envelope, batcher, metrics
        self._internal = not structured
        self.open = False

    def write_block(self, block: LogBlock, *, start: dict[str, Any]) -> None:
        """Write the events of a block of the log.

        :param start: position behind which the block begins
        :raises SchemaConflict: the log does not have the key of a row
        """
        if block.open and not self.open:
            self.set_savepoint()
        batches, _ = self.envelope.encode_block(block, self._batcher.last_seq)
        self._add(batches, self._metrics.streaming)
        for left in block.left_out:
            self._batcher.leave_out(left, start, block.position)
        if self.open and not block.open:
            self._batcher.release_savepoint()
            self.open = False

    def write_read_rows(
        self, rows: RowBlock, position: Position, *, snapshot: str | pa.DictionaryArray, metrics: EventMetrics
    ) -> None:
        """Write rows that were read from a table.

        :param position: at which they were read
        :param snapshot: value of ``source.snapshot``, of all rows or of each
        :param metrics: where they are counted
        """
        batches, _ = self.envelope.encode_read(rows, position, self._batcher.last_seq, snapshot=snapshot)
        self._add(batches, metrics)

    def add_read_files(
        self, tables: Sequence[tuple[TableSchema, Sequence[DataFile]]], last_seq: int, metrics: EventMetrics
    ) -> None:
        """Add files with rows of tables, which readers of other processes have written.

        :param tables: schema in force of a table, and its files
        :param last_seq: the last sequence number that was given to them
        :raises ChangeLogDamaged: a file is of another topic or version
        """
        for schema, files in tables:
            topic = self.envelope.claim_topic(schema.id)
            for file in files:
                if (file.topic, file.schema_version) != (topic, schema.version):
                    raise ChangeLogDamaged(
                        f"A reader of the snapshot has written events of {file.topic}, version {file.schema_version}, "
                        f"instead of {topic}, version {schema.version}.",
                        where=file.path,
                        safe="The batch was not committed.",
                        remedy="let the readers run the same release of airflow-provider-cdc as the capture, then run the capture again",
                    )
                metrics.counts.update(file.counts)
        self._batcher.add_files([(self.envelope.select_columns(schema), files) for schema, files in tables], last_seq)

    def write_truncate(
        self,
        schema: TableSchema,
        ts_us: int,
        source: Mapping[str, object],
        transaction: str | None = None,
        *,
        snapshot: str = "false",
        metrics: EventMetrics | None = None,
    ) -> None:
        """Write the event that empties a table.

        :param transaction: id of the transaction that consists of it
        :param snapshot: value of ``source.snapshot``: that of a snapshot which empties the table before it reads it again
        :param metrics: where it is counted
        """
        batch = self.envelope.encode_truncate(
            schema, self._batcher.last_seq + 1, ts_us, dict(source), transaction, snapshot=snapshot
        )
        self._batcher.add_events(batch)
        if metrics is not None:
            metrics.record_events([batch])

    def schema_change(
        self,
        changes: Sequence[TableChange],
        captured: Iterable[TableSchema],
        *,
        ddl: str,
        database: str,
        position: dict[str, Any],
        ts_us: int,
        source: dict[str, Any],
        snapshot: bool = False,
    ) -> None:
        """Write a schema change, which has a separate sequence number.

        :param changes: with their versions
        :param captured: schemas of captured tables after it, which their events have from here on
        """
        record = SchemaChangeRecord(
            seq=self._batcher.last_seq + 1, ddl=ddl, database=database, position=position, ts_us=ts_us, source=source,
            changes=list(changes), snapshot=snapshot, captured_us=time.time_ns() // 1000,
            internal=self._internal,
        )  # fmt: skip
        selected = {self.envelope.claim_topic(schema.id): self.envelope.select_columns(schema) for schema in captured}
        self._batcher.add_change(record, selected)
        self._metrics.history.record_applied(record)

    def set_savepoint(self) -> None:
        """Begin the next part of a transaction: events that were written up to here stay if it is rolled back."""
        self._batcher.set_savepoint()
        self.open = True

    def rollback(self) -> None:
        """Take back the open transaction."""
        if self.open:
            self._batcher.rollback()
        self.envelope.rollback()
        self.open = False

    def record_commit(self) -> None:
        """Everything that was written is durable."""
        self._metrics.record_commit()

    def discard_uncommitted(self) -> None:
        """Take back everything that is not committed."""
        self._metrics.streaming.newest.clear()
        self.envelope.rollback()
        self.open = False
        self._batcher.discard_batch()

    def _add(self, batches: Sequence[EventBatch], metrics: EventMetrics) -> None:
        for batch in batches:
            self._batcher.add_events(batch)
        metrics.record_events(batches)
        self._metrics.streaming.filtered = self.envelope.filtered
