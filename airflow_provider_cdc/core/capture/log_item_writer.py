"""Writes the content of the log, item by item: blocks of rows, schema changes, truncates, rollbacks."""

from __future__ import annotations

from airflow_provider_cdc.core.capture.schema_change_handler import SchemaChangeHandler
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.log_items import (
    CarryOverItem,
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.signals.signal_table_reader import SignalTableReader
from airflow_provider_cdc.core.writing.inferred_tables import ImplicitTables
from airflow_provider_cdc.core.writing.run_output import RunOutput


class LogItemWriter:
    """Writes the items of the log, and passes them to the signal table and to incremental snapshots."""

    def __init__(
        self,
        output: RunOutput,
        changes: SchemaChangeHandler,
        signal_table: SignalTableReader,
        incremental: IncrementalCoordinator,
        implicit_tables: ImplicitTables,
    ) -> None:
        self._state, self._writer, self._implicit_tables = output.state, output.writer, implicit_tables
        self._changes, self._signal_table, self._incremental = changes, signal_table, incremental

    def write_item(self, item: LogItem) -> None:
        """Write one item, and move the position behind it, unless it ends within a transaction.

        :raises SchemaConflict: the log does not have the key of a row, or rows were changed in a way that it does not show
        :raises ConfigError: a new table would have the topic of another one
        """
        match item:
            case LogBlock():
                for watermark in self._signal_table.read_block(item):
                    self._incremental.record_watermark(watermark)
                self._writer.write_block(
                    self._implicit_tables.record_log_block(item), start=self._state.offset.position or {}
                )
                if not item.open:
                    self._state.advance_position(item.position)
                self._incremental.record_events(item)
            case Rollback():
                self.rollback()
            case SchemaChange():
                self._changes.apply_change(item)
            case Truncate():
                self._changes.apply_truncate(item)
            case Heartbeat():
                self._state.advance_position(item.position)
                if isinstance(item, CarryOverItem):
                    self._state.set_carried_file(item.file)
                if not self._writer.open:
                    self._incremental.advance_position(item.position)

    def rollback(self) -> None:
        """Take back the open transaction. If the log has more of it, that begins as a new one."""
        self._writer.rollback()
        self._incremental.rollback()
        self._signal_table.rollback()
