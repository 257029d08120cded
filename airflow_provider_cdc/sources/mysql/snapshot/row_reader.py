"""Reads chunks in another process, in a view that shows the same rows as that of a snapshot session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pymysql.connections import Connection

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.remote_readers import RowReader, SnapshotView, TableOutOfView
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, raise_cdc_errors, server_of
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from airflow_provider_cdc.sources.mysql.snapshot.consistent_views import open_view, view_position
from airflow_provider_cdc.sources.mysql.snapshot.select_overrides import build_override_selects
from airflow_provider_cdc.sources.mysql.snapshot.view_rows import (
    IDLE_S,
    PATIENCE_S,
    find_table_change,
    read_view_rows,
)

_BEGUN_PATIENCE_S: Final = 60.0
"""How long a table is tried again that this reader has read of already: statements that alter it wait for this reader's view."""


class MySqlRowReader(RowReader):
    """Implements :class:`airflow_provider_cdc.core.spi.remote_readers.RowReader`: a connection with a view, and one for the catalog."""

    def __init__(self, config: MySqlConfig) -> None:
        self._config, self._configured = config, build_override_selects(config)
        self._connections = list[Connection]()
        self._begun = set[TableId]()
        try:
            self._view, catalog = self._connect(), self._connect()
            self._server = server_of(catalog)
            self._catalog = MySqlCatalog(catalog, config, mariadb=self._server.mariadb)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Connection:
        connection = connect(self._config)
        self._connections.append(connection)
        with raise_cdc_errors(self._config, "a reader of a snapshot"), connection.cursor() as cursor:
            cursor.execute(f"SET SESSION wait_timeout = {IDLE_S}, lock_wait_timeout = {PATIENCE_S}")
        return connection

    def open_view(self) -> dict[str, Any]:
        with raise_cdc_errors(self._config, "opening a view"):
            open_view(self._view)
            if not self._server.mariadb:
                return {}
            file, pos = view_position(self._view)
        return {"file": file, "pos": pos}

    def read(self, chunk: SnapshotChunk, view: SnapshotView) -> Iterator[RowBlock]:
        assert isinstance(view.position, MySqlPosition)
        table, select = chunk.table, view.selects.get(chunk.table)
        if (why := self._find_change(table, view)) is not None:
            raise TableOutOfView(why)
        self._begun.add(table)
        configured = self._configured.get(table) == select
        yield from read_view_rows(
            self._view, self._config, view.schemas[table], chunk, view.position, view.ts_us, select=select, configured=configured,
        )  # fmt: skip

    def _find_change(self, table: TableId, view: SnapshotView) -> str | None:
        """Return why the view does not show a table as it was; ``None`` if it does."""
        until = time.monotonic() + _BEGUN_PATIENCE_S
        with raise_cdc_errors(self._config, str(table)):
            while True:
                why, waits = find_table_change(self._view, table)
                if not waits or table not in self._begun or time.monotonic() > until:
                    break
            if why is None and self._catalog.read_columns(table) != view.schemas[table].columns:
                why = "its columns differ"
        return why

    def close(self) -> None:
        for connection in self._connections:
            connection._force_close()
        self._connections.clear()
