"""Rows of the signal table that mark the beginning and the end of a chunk's window."""

from __future__ import annotations

import contextlib
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.signal_checks import DDL, explain_uncaptured_signals
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_COLUMNS: Final = 3


class OracleWatermarkWriter:
    """Writes into the signal table: into its first three columns, whatever their names.

    :param writable: the database is not open read-only
    :ivar remedy: makes the table take watermarks
    :raises PrerequisiteError: watermarks cannot be written, or would not be captured
    """

    def __init__(self, connection: Connection, config: OracleConfig, signals: TableId, *, writable: bool) -> None:
        self._connection, self._table = connection, quote_table(signals)
        if not writable:
            raise PrerequisiteError(
                "Watermarks cannot be written: the database is open read-only.",
                where=str(signals),
                safe="Nothing was read; capture continues.",
                remedy="set read.only=true, or database.hostname to the primary",
            )
        if reason := explain_uncaptured_signals(signals, config):
            raise PrerequisiteError(
                f"Watermarks would not appear in the log: {reason}.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy="fix this, or set read.only=true",
            )
        schema = OracleCatalog(connection, config).read_table(signals)
        if schema is None or len(schema.columns) < _COLUMNS:
            raise PrerequisiteError(
                f"The signal table {signals} does not exist, the account may not see it, or it has fewer "
                f"than {_COLUMNS} columns.",
                where=signals.full_name,
                safe="Nothing was read; capture continues.",
                remedy=f"{DDL.format(self._table)}; GRANT SELECT, INSERT, DELETE ON {self._table} "
                f"TO {config.database_user}; or set read.only=true",
            )
        self.remedy = (
            f"GRANT SELECT, INSERT, DELETE ON {self._table} TO {config.database_user}, give the table "
            "the columns id VARCHAR2(42), type VARCHAR2(32) and data VARCHAR2(2048), or set read.only=true"
        )
        self._names = [quoted_name(name) for name in schema.column_names[:_COLUMNS]]

    def insert_watermark(self, id_: str, type_: str, data: str | None) -> None:
        """Insert a row, and commit it."""
        self._change(f"INSERT INTO {self._table} ({', '.join(self._names)}) VALUES (:1, :2, :3)", id_, type_, data)

    def delete_watermark(self, id_: str) -> None:
        """Delete a row, and commit that; it need not be there."""
        self._change(f"DELETE FROM {self._table} WHERE {self._names[0]} = :1", id_)

    def _change(self, statement: str, *values: str | None) -> None:
        with self._connection.cursor() as cursor:
            try:
                cursor.execute(statement, values)
                self._connection.commit()
            except oracledb.Error:
                with contextlib.suppress(oracledb.Error):  # the first error matters more
                    self._connection.rollback()
                raise
