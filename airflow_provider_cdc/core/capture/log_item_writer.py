"""Writes what the log holds, item by item: blocks of rows, schema changes, truncates, rollbacks."""

from __future__ import annotations

from airflow_provider_cdc.core.capture.schema_changes import SchemaChanges
from airflow_provider_cdc.core.incremental.coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.log_items import (
    CarriedOver,
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.signals.signal_table import SignalTable
from airflow_provider_cdc.core.writing.implicit_tables import NewTables
from airflow_provider_cdc.core.writing.run_output import Output


class LogItemWriter:
    """Writes the items of the log, and passes them to the signal table and to incremental snapshots."""

    def __init__(
        self,
        output: Output,
        changes: SchemaChanges,
        signal_table: SignalTable,
        incremental: IncrementalCoordinator,
        found: NewTables,
    ) -> None:
        self._state, self._writer, self._found = output.state, output.writer, found
        self._changes, self._signal_table, self._incremental = changes, signal_table, incremental

    def write(self, item: LogItem) -> None:
        """Write one item, and move the position behind it, unless it ends within a transaction.

        :raises SchemaConflict: the log does not have the key of a row, or rows were changed in a way that it does not show
        :raises ConfigError: a new table would have the topic of another one
        """
        match item:
            case LogBlock():
                for watermark in self._signal_table.rows(item):
                    self._incremental.watermark(watermark)
                self._writer.rows(self._found.within(item), since=self._state.offset.position or {})
                if not item.open:
                    self._state.move(item.position)
                self._incremental.events(item)
            case Rollback():
                self.rollback()
            case SchemaChange():
                self._changes.take(item)
            case Truncate():
                self._changes.truncated(item)
            case Heartbeat():
                self._state.move(item.position)
                if isinstance(item, CarriedOver):
                    self._state.carry(item.file)
                if not self._writer.open:
                    self._incremental.arrive(item.position)

    def rollback(self) -> None:
        """Take back the open transaction. If the log has more of it, that begins as a new one."""
        self._writer.rollback()
        self._incremental.rollback()
        self._signal_table.rollback()
