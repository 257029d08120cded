"""The tables that are captured at the position that a run has come to."""

from __future__ import annotations

from collections.abc import Callable, Collection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema


class CapturedTables:
    """The tables whose rows the log reader decodes now; see :class:`~airflow_provider_cdc.core.spi.source.CapturedTableSchemas`.

    :param signals: the signal table, which is read whatever the filters say
    :param again: returns the names of tables that will be read whole again
    """

    def __init__(
        self,
        filters: Filters,
        history: SchemaHistory,
        signals: TableId | None = None,
        again: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._filters, self._history, self._signals, self._again = filters, history, signals, again
        self._held_back: frozenset[str] = frozenset()

    def hold_back(self, names: Collection[str]) -> None:
        """Leave out the events of these tables: their rows at this position are already part of a snapshot, or will be."""
        self._held_back = frozenset(names)

    @property
    def held_back(self) -> frozenset[str]:
        """Names of the tables whose events are left out."""
        return self._held_back

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self._history.find_schema(table)

    def is_captured(self, table: TableId) -> bool:
        captured = self._filters.is_table_captured(table) or table == self._signals
        return captured and str(table) not in self._held_back

    def has_events(self, table: TableId) -> bool:
        """Return whether events are made of a table at this position: the signal table is read, and has none."""
        return self.is_captured(table) and table != self._signals

    def is_signal_table(self, name: str) -> bool:
        """Return whether a table of this name is the signal table."""
        return self._signals is not None and name == str(self._signals)

    def is_selected(self, table: TableId) -> bool:
        """Return whether events are made of a table, at this position or at a later one."""
        return self._filters.is_table_captured(table) and table != self._signals

    def read_again(self, table: TableId) -> bool:
        return str(table) in self._again()

    def list_known_tables(self) -> list[TableId]:
        return self._history.current_tables
