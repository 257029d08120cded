"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of Oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.log_items import LogItem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.carry_over import CarryOver
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.remote_readers import RowReader, ViewMeeting, ViewSharing
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas, Finding, SnapshotSession, Source, any_table
from airflow_provider_cdc.core.spi.source_block_formats import EventForm
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    DatabaseStatus,
    connect,
    current_scn,
    database_of,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.metrics import LogMinerMetrics
from airflow_provider_cdc.sources.oracle.mining.live_catalog_lookups import CatalogLookups
from airflow_provider_cdc.sources.oracle.mining.logminer_stream import LogMinerStream, verify_incarnation
from airflow_provider_cdc.sources.oracle.mining.mining_session_logs import session_logs
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import RedoLogCollector
from airflow_provider_cdc.sources.oracle.mining.unmined_redo import find_log_retention, window_around
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.schema_signal import signal_table, table_of
from airflow_provider_cdc.sources.oracle.schema.source_fields import ROWID, SOURCE_FIELDS
from airflow_provider_cdc.sources.oracle.transactions.unreadable_row_check import build_unlogged_error, may_be_unlogged
from airflow_provider_cdc.sources.oracle.xstream_event_form import XSTREAM


class OracleSource(Source):
    """Oracle Database 12.1 and newer, read with LogMiner."""

    Config: ClassVar[type[ConnectorConfig]] = OracleConfig
    PSEUDO_COLUMNS: ClassVar[frozenset[str]] = frozenset({ROWID})
    FORMS: ClassVar[Mapping[str, EventForm]] = {XSTREAM.name: XSTREAM}
    CARRIES: ClassVar[bool] = True
    VIEW_SHARING: ClassVar[ViewSharing] = ViewSharing.LATE
    connector = "oracle"

    def __init__(self, config: OracleConfig) -> None:
        self._config = config
        self._root: Connection | None = None
        self._database: DatabaseStatus | None = None
        self._lookups = CatalogLookups(config)
        self._metrics = LogMinerMetrics(config)
        self._stream: LogMinerStream | None = None
        self._carried: CarryOver | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_prerequisites(self) -> list[Finding]:
        return check_prerequisites(self._config)

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        return self._lookups.read_needed_schemas(needed)

    def current_position(self) -> OraclePosition:
        connection = connect(self._config, host=self._config.log_mining_readonly_hostname)
        try:
            database = database_of(connection)
            logs = session_logs(connection, self._config)
            with translate_driver_errors(self._config):
                scn = logs.archived_scn() if logs.archived_only() else current_scn(connection)
        finally:
            connection.close()
        return OraclePosition(scn, scn, resetlogs=database.resetlogs, dbid=database.dbid)

    def oldest_position(self) -> OraclePosition:
        with self._logs() as logs:
            scn = logs.oldest_scn()
        return OraclePosition(scn, scn - 1, resetlogs=self.database_status.resetlogs, dbid=self.database_status.dbid)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, OraclePosition)
        verify_incarnation(position, self.database_status)
        newest = self.current_position()
        if position.read_scn > newest.read_scn and not self._config.log_mining_archive_log_only_mode:
            raise PositionLost(
                f"The database is at SCN {newest.read_scn}, which is before the position: the database was "
                "restored or replaced.",
                where=str(position),
                safe="Everything before the position is captured.",
                remedy="set snapshot.mode=when_needed to snapshot all tables again",
            )
        with self._logs() as logs:
            logs.collect(position.scn, max(position.scn, min(position.read_scn, newest.read_scn)))

    def log_window(self, position: Position) -> LogWindow:
        assert isinstance(position, OraclePosition)
        if (position.dbid, position.resetlogs) != (self.database_status.dbid, self.database_status.resetlogs):
            return LogWindow()
        connection = connect(self._config, host=self._config.log_mining_readonly_hostname)
        try:
            with translate_driver_errors(self._config, str(position)):
                return window_around(connection, position)
        finally:
            connection.close()

    def find_log_retention(self) -> LogRetention | None:
        with translate_driver_errors(self._config):
            return find_log_retention(self._rooted(), self.database_status.resetlogs)

    def parse_position(self, document: dict[str, Any]) -> OraclePosition:
        return OraclePosition.from_json(document)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.oracle.snapshot.snapshot import OracleSnapshot

        return OracleSnapshot(self._config, tables, readers, selects)

    def open_shared_snapshot(
        self,
        tables: Sequence[TableId],
        meeting: ViewMeeting,
        *,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.oracle.snapshot.snapshot import OracleSnapshot

        return OracleSnapshot(self._config, tables, 1, selects, shared=True)

    def open_row_reader(self) -> RowReader:
        from airflow_provider_cdc.sources.oracle.snapshot.row_reader import OracleRowReader

        return OracleRowReader(self._config)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        from airflow_provider_cdc.sources.oracle.snapshot.chunk_reader import OracleChunkReader

        return OracleChunkReader(self._config, signals)

    def signal_table(self, text: str) -> TableId:
        return signal_table(text, self._config)

    def table_of(self, document: Mapping[str, Any], database: str, schema: str | None) -> TableChange:
        return table_of(document, database, schema, self._config)

    def receive_carry_over(self, carried: CarryOver) -> None:
        self._carried = carried

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        assert isinstance(start, OraclePosition)
        assert until is None or isinstance(until, OraclePosition)
        self._refuse_unlogged(tables)
        carried, self._carried = self._carried, None
        self._stream = LogMinerStream(
            self._config, self.database_status, start, until, tables, self._lookups, self._metrics, patience, carried
        )
        yield from self._stream.read_items()

    def _refuse_unlogged(self, tables: CapturedTableSchemas) -> None:
        """Check that LogMiner shows the changes of the captured tables.

        :raises UnreadableValue: LogMiner shows no change of a captured table
        """
        schemas = [
            schema
            for t in tables.list_known_tables()
            if tables.is_captured(t) and (schema := tables.find_schema(t)) is not None
        ]
        for table, columns in self._lookups.find_unlogged_columns(s.id for s in schemas if may_be_unlogged(s)).items():
            raise build_unlogged_error(table, columns)

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return self._stream.read_metrics() if self._stream is not None else {}

    def execute_statement(self, statement: str) -> None:
        """Run a statement and commit; in the pluggable database, if one is configured."""
        connection = connect(self._config, container=True)
        try:
            with translate_driver_errors(self._config, statement), connection.cursor() as cursor:
                cursor.execute(statement.strip().rstrip(";"))
                connection.commit()
        finally:
            connection.close()

    @property
    def source_fields(self) -> list[pa.Field]:
        return [f for f in SOURCE_FIELDS if f.name != "redo_sql" or self._config.log_mining_include_redo_sql]

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def database_status(self) -> DatabaseStatus:
        """Identity, role and modes of the mined database, asked once."""
        if self._database is None:
            with translate_driver_errors(self._config):
                self._database = database_of(self._rooted())
        return self._database

    def close(self) -> None:
        self._lookups.close()
        if self._root is not None:
            with contextlib.suppress(oracledb.Error):  # gone already
                self._root.close()
        self._root = None

    def _rooted(self) -> Connection:
        """Return a connection to the mined database, in the container where it is mined.

        The mined database is the standby, if ``log.mining.readonly.hostname`` names one.
        """
        if self._root is None or not self._root.is_healthy():
            self._root = connect(self._config, host=self._config.log_mining_readonly_hostname)
        return self._root

    @contextlib.contextmanager
    def _logs(self) -> Iterator[RedoLogCollector]:
        with translate_driver_errors(self._config):
            yield session_logs(self._rooted(), self._config)
