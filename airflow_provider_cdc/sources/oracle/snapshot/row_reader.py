"""Reads chunks in another process, as of the SCN of a snapshot session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import oracledb

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.spi.remote_readers import RowReader, SnapshotView, TableOutOfView, ViewExpired
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of, connect, translate_driver_errors
from airflow_provider_cdc.sources.oracle.error_translation import SNAPSHOT_TOO_OLD, TABLE_CHANGED, without_secrets
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.snapshot.flashback_rows import FlashbackRows

_NAME_UNKNOWN = frozenset({904, 942})
"""A column or a table does not exist, or the user may not see it."""


class OracleRowReader(RowReader):
    """Implements :class:`airflow_provider_cdc.core.spi.remote_readers.RowReader`: one connection, and flashback queries."""

    def __init__(self, config: OracleConfig) -> None:
        self._config = config
        self._connection = connect(config, container=True)

    def read(self, chunk: SnapshotChunk, view: SnapshotView) -> Iterator[RowBlock]:
        assert isinstance(view.position, OraclePosition)
        rows, select = FlashbackRows(self._config, view.position.read_scn, view.ts_us), view.selects.get(chunk.table)
        try:
            yield from rows.read(self._connection, view.schemas[chunk.table], chunk, select)
        except (oracledb.Error, OSError) as e:
            if self._is_changed(e, chunk, view):
                raise TableOutOfView(without_secrets(str(e), self._config)) from None
            error = rows.explain_error(e, chunk.table, select)
            if code_of(e) in SNAPSHOT_TOO_OLD:
                raise ViewExpired(error) from None
            raise error from error.__cause__

    def _is_changed(self, e: Exception, chunk: SnapshotChunk, view: SnapshotView) -> bool:
        """Check whether a statement has changed the table since the SCN."""
        if code_of(e) in TABLE_CHANGED:
            return True
        if code_of(e) not in _NAME_UNKNOWN:
            return False
        with translate_driver_errors(self._config, str(chunk.table)):
            present = OracleCatalog(self._connection, self._config).read_table(chunk.table)
        return present is None or present.columns != view.schemas[chunk.table].columns

    def close(self) -> None:
        with contextlib.suppress(oracledb.Error):  # gone already
            self._connection.close()
