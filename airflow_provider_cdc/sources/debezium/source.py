"""Captures events that some Debezium has written as JSON, in files or in Kafka topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import (
    ConfigError,
    PrerequisiteError,
    QueryRejected,
    UnknownLogEvent,
    UnreadableValue,
)
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogItem, SchemaChange
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas, Finding, SnapshotSession, Source, any_table
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig
from airflow_provider_cdc.sources.debezium.log_item_reader import DebeziumEventReader
from airflow_provider_cdc.sources.debezium.position import parse_position
from airflow_provider_cdc.sources.debezium.record_feed_interface import RecordFeed, RecordLines

log = logging.getLogger(__name__)

_NO_TABLES = "The source is a sequence of events, without tables that a snapshot could read."
_READ_WHERE = "take the snapshot with the connector that writes the events: the snapshot rows are captured as events"


class DebeziumSource(Source):
    """The files, or the topics, of one connector."""

    Config: ClassVar[type[ConnectorConfig]] = DebeziumConfig
    connector = "debezium"

    def __init__(self, config: DebeziumConfig) -> None:
        self._config = config
        self._feed = _feed(config)
        self._reader: DebeziumEventReader | None = None
        self._discovered: _FoundTables | None = None

    def check_prerequisites(self) -> list[Finding]:
        return [Finding(problem, fix, fatal) for problem, fix, fatal in self._feed.list_findings()]

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        """List the tables of the first events there are; others come with their own first event."""
        if self._discovered is None:
            self._discovered = _FoundTables(self._config)
            reader = DebeziumEventReader(self._config, self._feed, self._discovered, logs_skipped=False)
            try:
                for piece in self._feed.read_sample():
                    for item in reader.read_items(piece):
                        self._discovered.add_item(item)
            except (UnknownLogEvent, UnreadableValue) as e:
                log.info(
                    "The tables of later events are not known yet: %s", e.message
                )  # the stream raises it, in its turn
        return {table: schema for table, schema in self._discovered.schemas.items() if needed(table)}

    def current_position(self) -> Position:
        return self._feed.find_end_position()

    def oldest_position(self) -> Position:
        return self._feed.find_begin_position()

    def verify_position(self, position: Position) -> None:
        self._feed.verify_position(position)

    def parse_position(self, document: dict[str, Any]) -> Position:
        return parse_position(document)

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        raise QueryRejected(_NO_TABLES, safe="Nothing was read; capture continues.", remedy=_READ_WHERE)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        raise PrerequisiteError(_NO_TABLES, safe="Nothing was read; capture continues.", remedy=_READ_WHERE)

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        self.verify_position(start)
        self._reader = reader = DebeziumEventReader(self._config, self._feed, tables)

        def wait() -> None:
            time.sleep(self._config.poll_interval_ms / 1000 if patience is None else patience())

        for piece in self._feed.read(start, until, wait):
            if isinstance(piece, RecordLines):
                yield from reader.read_items(piece)
            else:
                yield Heartbeat(piece)

    def execute_statement(self, statement: str) -> None:
        raise ConfigError("A source of events cannot run statements: remove heartbeat.action.query.")

    @property
    def source_fields(self) -> list[pa.Field]:
        return [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("file", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64(), nullable=False),
        ]

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return {} if self._reader is None else {"NumberOfRecordsLeftOut": self._reader.left_out.total()}

    def close(self) -> None:
        self._feed.close()


class _FoundTables:
    """Takes schemas as they come, of the tables that are selected; see :class:`~airflow_provider_cdc.core.spi.source.CapturedTableSchemas`."""

    def __init__(self, config: DebeziumConfig) -> None:
        self.schemas: dict[TableId, TableSchema] = {}
        self._filters = Filters(config)

    def add_item(self, item: LogItem) -> None:
        for change in item.changes if isinstance(item, SchemaChange) else ():
            if change.table is not None:
                self.schemas[change.id] = change.table

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.schemas.get(table)

    def is_captured(self, table: TableId) -> bool:
        return self._filters.is_table_captured(table)

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return list(self.schemas)


def _feed(config: DebeziumConfig) -> RecordFeed:
    if config.from_files:
        from airflow_provider_cdc.sources.debezium.file_feed import FileFeed

        return FileFeed(config)
    from airflow_provider_cdc.sources.debezium.topic_feed import TopicFeed

    return TopicFeed(config)
