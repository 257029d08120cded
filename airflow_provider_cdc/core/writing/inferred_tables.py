"""Records tables with their first rows, and columns with the first rows that have them.

This is for a source whose tables have no structures (``Source.STRUCTURED``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_provider_cdc.core.model.log_items import LogBlock, RowBlock
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.writing.event_writer import EventWriter


class ImplicitTables:
    """The tables and columns that a run finds in rows, instead of in statements of the log.

    :param source: if its tables have structures, statements change them, and nothing is done here
    :param hidden: a table of which no event is made: the signal table
    :param truncates: whether events that empty a table are captured
    """

    def __init__(
        self, writer: EventWriter, history: SchemaHistory, hidden: TableId | None, source: Source, *, truncates: bool
    ) -> None:
        self._writer, self._history, self._hidden = writer, history, hidden
        self._source, self._structured, self._truncates = source, source.STRUCTURED, truncates

    def record_row_blocks(self, blocks: Iterable[RowBlock], position: dict[str, Any]) -> list[RowBlock]:
        """Record the tables and columns of rows that are written next.

        :param position: at which the rows are
        :return: the rows as they are written, with the schema in force
        """
        return [self._settled(rows, position) for rows in blocks]

    def record_log_block(self, block: LogBlock) -> LogBlock:
        """Return a block of the log with its rows in the form in which they are written."""
        if self._structured:
            return block
        return replace(block, rows=self.record_row_blocks(block.rows, block.position.to_json()))

    def _settled(self, rows: RowBlock, position: dict[str, Any]) -> RowBlock:
        if self._structured or not len(rows) or rows.table.id == self._hidden:
            return rows
        rows = self._source.conform_rows(rows, self._history.find_schema(rows.table.id))
        rows.table = self.resolve_schema(rows.table, position, int(rows.ts_us[0])) or rows.table
        return rows

    def resolve_schema(
        self, present: TableSchema | None, position: dict[str, Any], ts_us: int = 0
    ) -> TableSchema | None:
        """Return the schema in force of a table that the source has.

        A table that was dropped before, and has rows again, is emptied first: rows of the one that is gone may still be in the targets.

        :param present: as the source has it
        """
        if present is None:
            return None
        recorded = self._history.find_schema(present.id)
        if self._structured:
            return recorded
        if recorded is not None:
            return self._grown(recorded, present, position, ts_us)
        again = self._history.has_seen_table(present.id)
        change = self._history.apply_change(TableChange(type="CREATE", id=present.id, table=present))
        assert change is not None
        assert change.table is not None
        self._writer.schema_change(
            [change],
            [change.table],
            ddl="",
            database=present.id.database_name,
            position=position,
            ts_us=ts_us,
            source={},
        )
        if again and self._truncates:
            self._writer.write_truncate(change.table, ts_us or time.time_ns() // 1000, {})
        return change.table

    def _grown(self, recorded: TableSchema, present: TableSchema, position: dict[str, Any], ts_us: int) -> TableSchema:
        """Return the schema with the columns that rows have besides: they are null in all rows before."""
        new = present.columns[len(recorded.columns) :]
        if not new or present.columns[: len(recorded.columns)] != recorded.columns:
            return recorded
        added = TableChange(type="ALTER", id=present.id, table=present, added=dict.fromkeys(c.name for c in new))
        change = self._history.apply_change(added)
        assert change is not None
        assert change.table is not None
        self._writer.schema_change(
            [change],
            [change.table],
            ddl="",
            database=present.id.database_name,
            position=position,
            ts_us=ts_us,
            source={},
        )
        return change.table
