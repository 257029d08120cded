"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of PostgreSQL. Modules that a run without changes does not need are imported on use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg import Connection

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.model.transient_key_duplicates import KeysOverlap
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas, Finding, SnapshotSession, Source, any_table
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import (
    connect,
    raise_cdc_errors,
    raise_query_refused,
    server_of,
)
from airflow_provider_cdc.sources.postgresql.log_range import (
    check_position_readable,
    end_of_log,
    find_log_retention,
    find_oldest_position,
    window_around,
)
from airflow_provider_cdc.sources.postgresql.metrics import SlotStreamMetrics
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition
from airflow_provider_cdc.sources.postgresql.publication import ensure_published

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_cdc.core.model.log_items import LogItem
    from airflow_provider_cdc.sources.postgresql.log.slot_stream import SlotStream


class PostgresSource(Source):
    """PostgreSQL 14 and newer, by logical decoding with pgoutput."""

    Config: ClassVar[type[ConnectorConfig]] = PostgresConfig
    # unique constraints can be deferred to the end of a transaction
    KEYS_OVERLAP: ClassVar[KeysOverlap] = KeysOverlap.ALWAYS
    connector = "postgresql"

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._connection: Connection[tuple[Any, ...]] | None = None
        self._metrics = SlotStreamMetrics()
        self._stream: SlotStream | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_prerequisites(self) -> list[Finding]:
        from airflow_provider_cdc.sources.postgresql.checks import check_prerequisites

        named, signals, wrong = self._config.signal_data_collection, None, []
        try:
            signals = None if named is None else self.signal_table(named)
        except ConfigError as e:
            wrong = [Finding(e.message, "write it as <schema>.<table>", fatal=False)]
        with self._asking() as connection:
            return [*check_prerequisites(connection, server_of(connection), self._config, signals), *wrong]

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog

        with self._asking() as connection:
            structures = PostgresCatalog(connection, self._config).read_structures(needed=needed)
        return {table: structure.schema for table, structure in structures.items()}

    def current_position(self) -> PostgresPosition:
        with raise_cdc_errors(self._config), connect(self._config) as connection:
            return end_of_log(connection)

    def oldest_position(self) -> PostgresPosition:
        with self._asking() as connection:
            return find_oldest_position(connection, self._config)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, PostgresPosition)
        with self._asking(str(position)) as connection:
            check_position_readable(connection, self._config, position)

    def may_have_changed(self, position: Position, end: Position) -> bool:
        # a log that ends before the position is another one
        return not position.has_reached(end) or not end.has_reached(position)

    def log_window(self, position: Position) -> LogWindow:
        assert isinstance(position, PostgresPosition)
        with raise_cdc_errors(self._config, str(position)), connect(self._config) as connection:
            window, slot = window_around(connection, self._config, position)
        self._metrics.record_slot(slot)
        return window

    def find_log_retention(self) -> LogRetention | None:
        with self._asking() as connection:
            return find_log_retention(connection)

    def parse_position(self, document: dict[str, Any]) -> PostgresPosition:
        return PostgresPosition.from_json(document)

    def signal_table(self, text: str) -> TableId:
        parts = [part.strip('"') for part in text.split(".")]
        if len(parts) == 3 and parts[0] == self._config.database_dbname:
            parts = parts[1:]
        if len(parts) != 2 or not all(parts):
            raise ConfigError(f"signal.data.collection={text} does not have the form <schema>.<table>.")
        return TableId(catalog=self._config.database_dbname, namespace=parts[0], name=parts[1])

    # -- rows ---------------------------------------------------------------------------------------------------------

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.postgresql.snapshot.snapshot_session import PostgresSnapshot

        # before the view: a change that is committed before its table is published is never sent
        with self._asking() as connection:
            ensure_published(connection, self._config, tables)
        return PostgresSnapshot(self._config, tables, readers, selects)

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        from airflow_provider_cdc.sources.postgresql.log.slot_stream import SlotStream

        assert isinstance(start, PostgresPosition)
        assert until is None or isinstance(until, PostgresPosition)
        self._close_stream()  # a slot has one reader
        with self._asking() as connection:
            server = server_of(connection)
        self._metrics.log.read_up_to(start)
        self._stream = SlotStream(
            self._config, server, start, until, tables, patience=patience, metrics=self._metrics.log
        )
        # it stays open behind its end: what was read last is confirmed when it is durable
        yield from self._stream.read_items()

    def confirm_position(self, position: Position) -> None:
        """Let the server remove its log up to a position. Without a stream, the next one does."""
        assert isinstance(position, PostgresPosition)
        if self._stream is not None:
            self._stream.confirm_position(position)

    def execute_statement(self, statement: str) -> None:
        with (
            raise_query_refused(self._config, statement, "correct heartbeat.action.query, or grant what it needs"),
            connect(self._config) as connection,
        ):
            connection.execute(statement.encode())

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return self._metrics.build_metrics()

    @property
    def source_fields(self) -> list[pa.Field]:
        from airflow_provider_cdc.sources.postgresql.log.source_fields import SOURCE_FIELDS

        return SOURCE_FIELDS

    # -- connections --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._close_stream()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _asking(self, where: str | None = None) -> Iterator[Connection[tuple[Any, ...]]]:
        """Use the connection for questions. The server may have closed an idle one, so it is tried before."""
        with raise_cdc_errors(self._config, where):
            if self._connection is not None:
                try:
                    self._connection.execute("SELECT 1")
                except psycopg.Error:
                    self._connection.close()
                    self._connection = None
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._config)
            yield self._connection

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
