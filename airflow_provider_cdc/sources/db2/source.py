"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of Db2. Modules that a run without changes does not need are imported on use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.log_items import LogItem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas, Finding, SnapshotSession, Source, any_table
from airflow_provider_cdc.core.spi.source_procedures import Procedure, ProcedureContext, ProcedurePlan, ProcedureResult
from airflow_provider_cdc.sources.db2.capture_procedure_catalog import PROCEDURES
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.log.source_fields import SOURCE_FIELDS
from airflow_provider_cdc.sources.db2.log_range import (
    check_position_readable,
    end_of_log,
    find_log_retention,
    find_oldest_position,
    window_around,
)
from airflow_provider_cdc.sources.db2.metrics import AsnStreamMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.schema.schema_signal import signal_table, table_of

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.db2.log.stream import AsnStream


class Db2Source(Source):
    """Db2 for Linux, UNIX and Windows, 10.5 and newer, by the change tables of the ASN capture agent."""

    Config: ClassVar[type[ConnectorConfig]] = Db2Config
    PROCEDURES: ClassVar[Mapping[str, Procedure]] = PROCEDURES
    connector = "db2"

    def __init__(self, config: Db2Config) -> None:
        self._config = config
        self._metrics = AsnStreamMetrics()
        self._stream: AsnStream | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_prerequisites(self) -> list[Finding]:
        from airflow_provider_cdc.sources.db2.checks import check_prerequisites

        return check_prerequisites(self._config)

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        with self._asking("the catalog") as connection:
            catalog = Db2CatalogReader(connection, self._config)
            return catalog.read_captured_schemas([table for table in catalog.list_registrations() if needed(table)])

    def current_position(self) -> Db2Position:
        with self._asking("the end of the log") as connection:
            return end_of_log(connection, self._config)

    def oldest_position(self) -> Db2Position:
        with self._asking("the beginning of the log") as connection:
            return find_oldest_position(connection, self._config)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, Db2Position)
        with self._asking(str(position)) as connection:
            check_position_readable(connection, self._config, position)

    def log_window(self, position: Position) -> LogWindow:
        assert isinstance(position, Db2Position)
        with self._asking(str(position)) as connection:
            return window_around(connection, self._config, position)

    def find_log_retention(self) -> LogRetention | None:
        with self._asking("how long changes are kept") as connection:
            return find_log_retention(connection, self._config)

    def parse_position(self, document: dict[str, Any]) -> Db2Position:
        return Db2Position.from_json(document)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.db2.snapshot.snapshot_session import Db2Snapshot

        return Db2Snapshot(self._config, tables, readers, selects)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        from airflow_provider_cdc.sources.db2.snapshot.chunk_reader import Db2ChunkReader

        return Db2ChunkReader(self._config, signals)

    def signal_table(self, text: str) -> TableId:
        return signal_table(text, self._config)

    def table_of(self, document: Mapping[str, Any], database: str, schema: str | None) -> TableChange:
        return table_of(document, database, schema, self._config)

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        from airflow_provider_cdc.sources.db2.log.stream import AsnStream

        assert isinstance(start, Db2Position)
        assert until is None or isinstance(until, Db2Position)
        self._stream = AsnStream(self._config, start, until, tables, self._metrics, patience)
        yield from self._stream.read_items()

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return self._stream.collect_metrics() if self._stream is not None else {}

    def plan_procedure(
        self, procedure: Procedure, table: TableId, flags: frozenset[str], context: ProcedureContext
    ) -> ProcedurePlan:
        from airflow_provider_cdc.sources.db2.capture_mode_procedures import CaptureModeProcedures

        return CaptureModeProcedures(self._config, table).plan_procedure(procedure, flags, context)

    def carry_out(
        self, plan: ProcedurePlan, context: ProcedureContext, report_step: Callable[[str], None]
    ) -> ProcedureResult:
        from airflow_provider_cdc.sources.db2.capture_mode_procedures import CaptureModeProcedures

        return CaptureModeProcedures(self._config, plan.table).carry_out(plan, context, report_step)

    def execute_statement(self, statement: str) -> None:
        with self._asking(statement) as connection:
            connection.execute(statement.strip().rstrip(";"))
            connection.commit()

    @property
    def source_fields(self) -> list[pa.Field]:
        return list(SOURCE_FIELDS)

    # -- connections --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close nothing: each query has a separate connection, and the stream closes its connections when it ends."""

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[Db2Connection]:
        """Open a connection for one question.

        :param where: the subject of the question, for errors
        """
        with (
            contextlib.closing(connect_database(self._config)) as connection,
            translate_driver_errors(self._config, where),
        ):
            yield connection
