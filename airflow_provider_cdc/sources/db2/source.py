"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of Db2. Modules that a run without changes does not need are imported on use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from airflow_provider_cdc.core.config.connector import ConnectorConfig
from airflow_provider_cdc.core.model.log_items import LogItem
from airflow_provider_cdc.core.model.log_range import LogWindow
from airflow_provider_cdc.core.model.metrics import Value
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.procedures import Done, Procedure, ProcedurePlan, Standing
from airflow_provider_cdc.core.spi.source import Finding, SnapshotSession, Source, Tables, any_table
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Connection, connect, translated
from airflow_provider_cdc.sources.db2.log.source_fields import SOURCE_FIELDS
from airflow_provider_cdc.sources.db2.log_range import end_of_log, oldest, verify, window_around
from airflow_provider_cdc.sources.db2.metrics import StreamMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.procedures import PROCEDURES
from airflow_provider_cdc.sources.db2.schema.catalog import Catalog
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
        self._metrics = StreamMetrics()
        self._stream: AsnStream | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check(self) -> list[Finding]:
        from airflow_provider_cdc.sources.db2.checks import check

        return check(self._config)

    def discover(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        with self._asking("the catalog") as connection:
            catalog = Catalog(connection, self._config)
            return catalog.tables([table for table in catalog.registrations() if needed(table)])

    def current_position(self) -> Db2Position:
        with self._asking("the end of the log") as connection:
            return end_of_log(connection, self._config)

    def oldest_position(self) -> Db2Position:
        with self._asking("the beginning of the log") as connection:
            return oldest(connection, self._config)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, Db2Position)
        with self._asking(str(position)) as connection:
            verify(connection, self._config, position)

    def log_window(self, position: Position) -> LogWindow:
        assert isinstance(position, Db2Position)
        with self._asking(str(position)) as connection:
            return window_around(connection, self._config, position)

    def parse_position(self, document: dict[str, Any]) -> Db2Position:
        return Db2Position.from_json(document)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.db2.snapshot.snapshot import Db2Snapshot

        return Db2Snapshot(self._config, tables, readers, selects)

    def chunks(self, *, signals: TableId | None) -> ChunkReader:
        from airflow_provider_cdc.sources.db2.snapshot.chunk_reader import Db2ChunkReader

        return Db2ChunkReader(self._config, signals)

    def signal_table(self, text: str) -> TableId:
        return signal_table(text, self._config)

    def table_of(self, document: Mapping[str, Any], database: str, schema: str | None) -> TableChange:
        return table_of(document, database, schema, self._config)

    def stream(
        self,
        start: Position,
        tables: Tables,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        from airflow_provider_cdc.sources.db2.log.stream import AsnStream

        assert isinstance(start, Db2Position)
        assert until is None or isinstance(until, Db2Position)
        self._stream = AsnStream(self._config, start, until, tables, self._metrics, patience)
        yield from self._stream.items()

    def metrics(self) -> Mapping[str, Value]:
        return self._stream.measured() if self._stream is not None else {}

    def plan_procedure(
        self, procedure: Procedure, table: TableId, flags: frozenset[str], standing: Standing
    ) -> ProcedurePlan:
        from airflow_provider_cdc.sources.db2.administration import Administration

        return Administration(self._config, table).plan(procedure, flags, standing)

    def carry_out(self, plan: ProcedurePlan, standing: Standing, tell: Callable[[str], None]) -> Done:
        from airflow_provider_cdc.sources.db2.administration import Administration

        return Administration(self._config, plan.table).carry_out(plan, standing, tell)

    def execute(self, statement: str) -> None:
        with self._asking(statement) as connection:
            connection.execute(statement.strip().rstrip(";"))
            connection.commit()

    @property
    def source_fields(self) -> list[pa.Field]:
        return list(SOURCE_FIELDS)

    # -- connections --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing is open: each question has a connection of its own, and the stream closes its own when it ends."""

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[Connection]:
        """A connection for one question.

        :param where: what is asked for, for errors
        """
        with contextlib.closing(connect(self._config)) as connection, translated(self._config, where):
            yield connection
