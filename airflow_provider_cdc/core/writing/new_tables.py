"""Records tables with their first rows, of a source whose tables have no structures (``Source.STRUCTURED``)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from airflow_provider_cdc.core.model.events import RowBlock
from airflow_provider_cdc.core.model.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.writing.event_writer import EventWriter


class NewTables:
    """The tables that a run finds in rows, instead of in statements of the log.

    :param structured: of the source; if so, statements tell, and nothing is done here
    :param hidden: a table of which no event is made: the signal table
    :param truncates: whether events that empty a table are captured
    """

    def __init__(
        self, writer: EventWriter, history: SchemaHistory, hidden: TableId | None, *, structured: bool, truncates: bool
    ) -> None:
        self._writer, self._history, self._hidden = writer, history, hidden
        self._structured, self._truncates = structured, truncates

    def of(self, blocks: Iterable[RowBlock], position: dict[str, Any]) -> None:
        """Record the tables of rows that are written next, and give the rows the schema in force.

        :param position: at which the rows are
        """
        if self._structured:
            return
        for rows in blocks:
            if len(rows) and rows.table.id != self._hidden:
                rows.table = self.schema(rows.table, position, int(rows.ts_us[0])) or rows.table

    def schema(self, found: TableSchema | None, position: dict[str, Any], ts_us: int = 0) -> TableSchema | None:
        """The schema in force of a table that the source has.

        A table that was dropped before, and has rows again, is emptied first: rows of the one that is gone may still be in the targets.

        :param found: as the source has it
        """
        if found is None:
            return None
        known = self._history.get(found.id)
        if known is not None or self._structured:
            return known
        again = self._history.seen(found.id)
        change = self._history.apply(TableChange(type="CREATE", id=found.id, table=found))
        assert change is not None
        assert change.table is not None
        self._writer.schema_change(
            [change], [change.table], ddl="", database=found.id.database, position=position, ts_us=ts_us, source={}
        )
        if again and self._truncates:
            self._writer.truncate(change.table, ts_us or time.time_ns() // 1000, {})
        return change.table
