"""Rows of the signal table that mark the beginning and the end of a chunk's window."""

from __future__ import annotations

import contextlib
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.signal_checks import DDL, build_registration_sql
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_COLUMNS: Final = 3


class Db2WatermarkWriter:
    """Writes into the signal table.

    :ivar remedy: makes the table take watermarks
    :raises PrerequisiteError: the table does not exist, has not enough columns, or is not in capture mode
    """

    def __init__(self, connection: Db2Connection, config: Db2Config, signals: TableId) -> None:
        self._connection, self._table = connection, quote_table(signals)
        catalog = Db2CatalogReader(connection, config)
        schema = catalog.read_table_schemas([signals]).get(signals)
        if schema is None or len(schema.columns) < _COLUMNS:
            raise PrerequisiteError(
                f"The signal table {signals} does not exist, or has fewer than {_COLUMNS} columns.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy=f"{DDL.format(self._table)}; {build_registration_sql(signals, config)}; or set read.only=true",
            )
        if signals not in catalog.list_registrations():
            raise PrerequisiteError(
                f"Watermarks would not appear in the log: the signal table {signals} is not in capture mode.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy=f"{build_registration_sql(signals, config)}; or set read.only=true",
            )
        self.remedy = (
            f"GRANT SELECT, INSERT, DELETE ON {self._table} TO USER {quoted_name(config.database_user.upper())}, give the "
            "table the columns id VARCHAR(42), type VARCHAR(32) and data VARCHAR(2048), or set read.only=true"
        )
        self._names = [quoted_name(name) for name in schema.column_names[:_COLUMNS]]

    def insert_watermark(self, id_: str, type_: str, data: str | None) -> None:
        """Insert a row, and commit it."""
        self._change(f"INSERT INTO {self._table} ({', '.join(self._names)}) VALUES (?, ?, ?)", id_, type_, data)

    def delete_watermark(self, id_: str) -> None:
        """Delete a row, and commit that; it need not be there."""
        self._change(f"DELETE FROM {self._table} WHERE {self._names[0]} = ?", id_)

    def _change(self, statement: str, *values: str | None) -> None:
        try:
            self._connection.execute(statement, *values)
            self._connection.commit()
        except Db2Error:
            with contextlib.suppress(Db2Error):  # the first error matters more
                self._connection.rollback()
            raise
