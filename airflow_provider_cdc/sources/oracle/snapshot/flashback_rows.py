"""Reads rows of tables as of one SCN, by any connection: the SCN alone decides which rows there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.errors import CdcError, ConfigError, TransientError
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, code_of
from airflow_provider_cdc.sources.oracle.error_translation import (
    SNAPSHOT_TOO_OLD,
    TABLE_CHANGED,
    translate_error,
    without_secrets,
)
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import read_block, split_fetched_rows
from airflow_provider_cdc.sources.oracle.snapshot.select_overrides import as_of, override_of
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused
from airflow_provider_cdc.sources.relational.fetch_size import LOB_ROWS
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)


class FlashbackRows:
    """The rows of tables as of one SCN.

    :param ts_us: when the database was at the SCN
    """

    def __init__(self, config: OracleConfig, scn: int, ts_us: int) -> None:
        self._config, self._scn, self._ts_us = config, scn, ts_us

    def read(
        self, connection: Connection, schema: TableSchema, chunk: SnapshotChunk, select: str | None
    ) -> Iterator[RowBlock]:
        """Read the rows of a chunk. Nothing but the driver's errors is raised for errors of the database, see :meth:`explain_error`.

        A chunk of which no row was delivered is read again, ``snapshot.database.errors.max.retries`` times.

        :param select: statement of a signal, which gives the rows
        :raises ConfigError: the configured statement cannot be used
        :raises QueryRejected: the signal's statement cannot be used
        """
        for left in range(self._config.snapshot_database_errors_max_retries, -1, -1):
            handed_over = False
            try:
                for block in self._blocks(connection, schema, chunk, select):
                    handed_over = True
                    yield block
                return
            except (oracledb.Error, OSError) as e:
                if handed_over or not left or code_of(e) not in SNAPSHOT_TOO_OLD | TABLE_CHANGED:
                    raise
                log.warning("%s as of SCN %d is read again: %s", chunk.table, self._scn, e)

    def explain_error(self, e: Exception, table: TableId, select: str | None) -> CdcError:
        """Return the error for people of an error of the driver, with this as its cause if it shows no secrets.

        :param select: as of :meth:`read`
        """
        meaning = translate_error(e, self._config, f"{table} as of SCN {self._scn}")
        if select is not None and not isinstance(meaning, TransientError):
            meaning = build_query_refused(f"The database rejects the statement for {table}", meaning.message, select)
        meaning.__cause__ = e if without_secrets(str(e), self._config) == str(e) else None
        return meaning

    def _blocks(
        self, connection: Connection, schema: TableSchema, chunk: SnapshotChunk, select: str | None
    ) -> Iterator[RowBlock]:
        columns = QueryColumns(schema, self._config)
        sql = f"SELECT {', '.join(columns.expressions)} FROM {self._source(chunk.table, select)} t"
        sql += f" WHERE {chunk.condition}" if chunk.condition else ""
        size = self._config.snapshot_fetch_size
        frames = connection.fetch_df_batches(sql, size=min(size, LOB_ROWS) if columns.lobs else size)
        for frame in frames:
            for part in split_fetched_rows(pa.table(frame)):
                yield read_block(columns, part, self._scn, self._ts_us)

    def _source(self, table: TableId, select: str | None) -> str:
        """Return the FROM clause of a table."""
        statement = select or override_of(table, self._config.snapshot_select_statement_overrides)
        if statement is None:
            return f"{quote_table(table)} AS OF SCN {self._scn}"
        try:
            return f"({as_of(statement, table, self._scn, self._config.database_user)}\n)"
        except ConfigError as e:
            if select is None:
                raise
            raise build_query_refused(f"The statement for {table} cannot be used", e.message, statement) from None
