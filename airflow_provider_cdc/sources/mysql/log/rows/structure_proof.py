"""The proof that rows without column names were written with the structure that the schema history has of their table.

A structure of a snapshot, or of statements that follow one, was right when the log had come to it. It is not right any more if a session
has altered the table with ``sql_log_bin=0``: two columns that changed places would be mixed up without a sign. Therefore the catalog is
read whenever the server has opened the table again, which it does after each such statement. If the catalog has another structure, the
statements in the rest of the log must lead to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError, TerminalError
from airflow_provider_cdc.core.model.log_items import SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.structure_comparison import find_difference

_PAUSES_S: Final = (0.1, 0.5, 2.0)
"""Pauses before the catalog is read again: some servers show the structure after a statement before the statement is in the log."""


@dataclass(slots=True)
class ForecastTables:
    """The structures that the statements in the rest of the log lead to; a :class:`CapturedTableSchemas`.

    :param tables: the tables at the position that the stream has come to
    :ivar end: the rest of the log was read up to here
    :ivar changes: table → position of each change, and the structure after it
    :ivar unknown: tables whose structure some statement does not show
    """

    tables: CapturedTableSchemas
    end: MySqlPosition
    first: dict[TableId, TableSchema] = field(init=False)
    schemas: dict[TableId, TableSchema] = field(init=False)
    changes: dict[TableId, list[tuple[MySqlPosition, TableSchema | None]]] = field(default_factory=dict)
    unknown: set[TableId] = field(default_factory=set)

    def __post_init__(self) -> None:
        known = ((table, self.tables.find_schema(table)) for table in self.tables.list_known_tables())
        self.first = {table: schema for table, schema in known if schema is not None}
        self.schemas = dict(self.first)

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.schemas.get(table)

    def is_captured(self, table: TableId) -> bool:
        return self.tables.is_captured(table)

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return sorted(self.schemas, key=str)

    def schema_at(self, table: TableId, position: MySqlPosition) -> TableSchema | None:
        """Return the structure at a position up to :attr:`end`."""
        past = [schema for at, schema in self.changes.get(table, ()) if position.has_reached(at)]
        return past[-1] if past else self.first.get(table)

    def apply_change(self, item: SchemaChange) -> None:
        """Apply a statement in the rest of the log."""
        assert isinstance(item.position, MySqlPosition)
        for change in item.changes:
            if change.previous_id not in (None, change.id):
                assert change.previous_id is not None
                self._put(change.previous_id, None, item.position)
        for change in item.changes:
            self._put(change.id, change.table, item.position)
            if change.table is not None and change.table.provisional and (not change.exact or change.type == "CREATE"):
                self.unknown.add(change.id)
        self.unknown.update(item.structure_unknown)

    def _put(self, table: TableId, schema: TableSchema | None, position: MySqlPosition) -> None:
        self.changes.setdefault(table, []).append((position, schema))
        if schema is None:
            self.schemas.pop(table, None)
        else:
            self.schemas[table] = schema


class NoTables:
    """No captured tables: the rows of a log are passed over. A :class:`CapturedTableSchemas`."""

    def find_schema(self, table: TableId) -> TableSchema | None:
        return None

    def is_captured(self, table: TableId) -> bool:
        return False

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return []


class _Unreadable(Exception):
    """The statements in the rest of the log cannot be read; the text says why."""


class StructureProof:
    """Compares the schema history with the catalog, for tables whose rows come without column names.

    :param position: returns the position that the stream has come to
    :param read_end: returns the end of the log
    :param read_statements: returns the schema changes of the log between two positions, given the tables that they change; it passes rows over
    """

    def __init__(
        self,
        tables: CapturedTableSchemas,
        catalog: LiveCatalog,
        position: Callable[[], MySqlPosition],
        read_end: Callable[[], MySqlPosition],
        read_statements: Callable[[MySqlPosition, MySqlPosition, ForecastTables], Iterable[SchemaChange]],
    ) -> None:
        self._tables, self._catalog, self._position = tables, catalog, position
        self._read_end, self._read_statements = read_end, read_statements
        self._forecast: ForecastTables | None = None
        self._agreed: dict[TableId, tuple[TableSchema, tuple[int, int]]] = {}

    def find_doubt(self, schema: TableSchema, at: tuple[int, int]) -> str | None:
        """Return why a structure may not be the one of the rows at a place in the log; ``None`` if it is.

        :param schema: the structure in force
        :param at: number of the log file, and offset of the table map
        """
        agreed = self._agreed.get(schema.id)
        if agreed is not None and agreed[0] is schema and at <= agreed[1]:
            return None
        try:
            return self._compare(schema)
        except _Unreadable as e:
            return str(e)

    def _compare(self, schema: TableSchema) -> str | None:
        doubt = None
        for pause_s in (0, *_PAUSES_S):
            time.sleep(pause_s)
            before = self._read_end()
            try:
                present = self._catalog.read_table(schema.id)
            except PrerequisiteError as e:
                return f"the catalog cannot be compared: {e.message}"
            difference = find_difference(schema, present)
            if self._is_provisional(schema):
                doubt = self._doubt_provisional(schema, difference)
            elif difference is not None:
                doubt = self._find_unexplained(schema, present, before, difference)
            else:
                doubt = None
            if doubt is None:
                if before.same_log(self._position()):
                    self._agreed[schema.id] = schema, (file_number(before.file), before.pos)
                return None
        return doubt

    def _is_provisional(self, schema: TableSchema) -> bool:
        return schema.provisional or self._position().moved

    def _doubt_provisional(self, schema: TableSchema, difference: str | None) -> str | None:
        """Prove a structure by the catalog alone: no statement of the rest of the log may change it."""
        why = (
            "its structure was read from the catalog, which may be ahead of the log"
            if schema.provisional
            else "the position was set by hand, or is the oldest of the log, so statements may have been skipped"
        )
        if difference is not None:
            return f"{why}; in the catalog, {difference}"
        forecast = self._look_ahead(schema, self._read_end())
        if forecast.changes.get(schema.id) or schema.id in forecast.unknown:
            return f"{why}; a later statement in the log changes the table"
        return None

    def _find_unexplained(
        self, schema: TableSchema, present: TableSchema | None, before: MySqlPosition, difference: str
    ) -> str | None:
        """Return a difference that the statements in the rest of the log do not lead to."""
        table, forecast = schema.id, self._look_ahead(schema, self._read_end())
        if table in forecast.unknown:
            return f"in the catalog, {difference}, and a later statement in the log does not show the whole structure"
        changes = forecast.changes.get(table, [])
        later = [after for position, after in changes if not before.has_reached(position)]
        # the catalog was read when the log had come to one of these
        differences = [find_difference(after, present) for after in (forecast.schema_at(table, before), *later)]
        if None in differences:
            return None
        return f"in the catalog, {differences[-1]}, and no statement in the log has changed this (sql_log_bin=0?)"

    def _look_ahead(self, schema: TableSchema, end: MySqlPosition) -> ForecastTables:
        """Read the statements in the rest of the log, each once as long as they lead to the structures in force."""
        start, forecast, self._forecast = self._position(), self._forecast, None
        ahead = None
        if forecast is not None and forecast.end.has_reached(start):
            ahead = forecast.schema_at(schema.id, start)
        if forecast is None or ahead is None or not ahead.same_structure(schema):
            forecast = ForecastTables(self._tables, start)
        if not forecast.end.has_reached(end):
            try:
                for item in self._read_statements(forecast.end, end, forecast):
                    forecast.apply_change(item)
            except TerminalError as e:
                raise _Unreadable(f"the rest of the log cannot be read: {e.message}") from e
            forecast.end = end
        self._forecast = forecast
        return forecast
