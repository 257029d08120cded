"""Answers a stream's questions from the database's catalog (:class:`..schema.stream_lookups.StreamLookups`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, connect, translate_driver_errors
from airflow_provider_cdc.sources.oracle.open_database_transactions import open_transactions
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.column_defaults import is_constant
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StoredColumns, StoredFormats

_T = TypeVar("_T")


class CatalogLookups:
    """Asks the database, over a separate connection to the container of the tables, opened at the first question."""

    def __init__(self, config: OracleConfig) -> None:
        self._config = config
        self._connection: Connection | None = None
        self._formats: StoredFormats | None = None

    def read_needed_schemas(self, needed: Callable[[TableId], bool]) -> dict[TableId, TableSchema]:
        """Return the current schemas of the needed tables that can be captured."""
        return self._ask(lambda d: d.needed_tables(needed))

    def read_table(self, table: TableId) -> TableSchema | None:
        return self._ask(lambda d: d.read_table(table))

    def find_unlogged_columns(self, tables: Iterable[TableId]) -> dict[TableId, list[str]]:
        """Return the columns for whose sake LogMiner shows no change of a table."""
        named = list(tables)
        return self._ask(lambda d: d.find_unlogged_columns(named)) if named else {}

    def read_object_numbers(self, tables: Iterable[TableId]) -> dict[int, TableId]:
        named = list(tables)
        return self._ask(lambda d: d.read_object_numbers(named)) if named else {}

    def table_of_object(self, number: int) -> TableId | None:
        return self._ask(lambda d: d.table_of_object(number))

    def list_partitioned_tables(self) -> list[TableId]:
        return self._ask(lambda d: d.list_partitioned_tables())

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        return self._ask(lambda d: d.object_at(number, scn))

    def read_stored_columns(self, table: TableId) -> StoredColumns | None:
        columns = self._ask(lambda d: d.read_stored_columns(table))
        if not columns:
            return None
        return StoredColumns(
            frozenset(name for name, _, _ in columns), all(own and ordered for _, own, ordered in columns)
        )

    def read_hidden_columns(self, table: TableId) -> tuple[str, ...]:
        return self._ask(lambda d: d.read_hidden_columns(table))

    def read_stored_formats(self) -> StoredFormats:
        if self._formats is None:
            self._formats = StoredFormats(*self._ask(lambda d: d.read_stored_formats()))
        return self._formats

    def evaluate_constant(self, text: str) -> str | None:
        return self._ask(lambda d: d.evaluate_constant(text)) if is_constant(text) else None

    def read_flashback_row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        from airflow_provider_cdc.sources.oracle.snapshot.flashback_row import row_at  # loads the compiler of kernels

        return self._ask(lambda d: row_at(d.connection, d.config, schema, row_id, scn))

    def row_of_key(self, schema: TableSchema, key: Sequence[Any], scn: int) -> pa.StructArray | None:
        from airflow_provider_cdc.sources.oracle.snapshot.flashback_row import row_of_key

        return self._ask(lambda d: row_of_key(d.connection, d.config, schema, key, scn))

    def open_transactions(self) -> dict[bytes, int]:
        return self._ask(lambda d: open_transactions(d.connection, d.config))

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(oracledb.Error):  # gone already
                self._connection.close()
        self._connection = None

    def _ask(self, question: Callable[[OracleCatalog], _T]) -> _T:
        """Ask the catalog. The server may have closed an idle connection, so a second attempt uses a new one."""
        for attempt in range(2):
            if self._connection is None or not self._connection.is_healthy():
                self._connection = connect(self._config, container=True)
            try:
                with translate_driver_errors(self._config):
                    return question(OracleCatalog(self._connection, self._config))
            except SourceUnavailable:
                self._connection = None
                if attempt:
                    raise
        raise AssertionError("unreachable")
