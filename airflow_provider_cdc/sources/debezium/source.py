"""Captures what some Debezium has written as JSON, in files or in Kafka topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from airflow_provider_cdc.core.config.connector import ConnectorConfig
from airflow_provider_cdc.core.config.filters import Filters
from airflow_provider_cdc.core.errors import (
    ConfigError,
    PrerequisiteError,
    QueryRefused,
    UnknownLogEvent,
    UnreadableValue,
)
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogItem, SchemaChange
from airflow_provider_cdc.core.model.metrics import Value
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.source import Finding, SnapshotSession, Source, Tables, any_table
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig
from airflow_provider_cdc.sources.debezium.event_reader import EventReader
from airflow_provider_cdc.sources.debezium.position import parse_position
from airflow_provider_cdc.sources.debezium.record_source import Feed, Piece

log = logging.getLogger(__name__)

_NO_TABLES = "There are no tables that could be read: the source is a sequence of events."
_READ_WHERE = "have the connector that writes the events take the snapshot: its reads come as events"


class DebeziumSource(Source):
    """The files, or the topics, of one connector."""

    Config: ClassVar[type[ConnectorConfig]] = DebeziumConfig
    connector = "debezium"

    def __init__(self, config: DebeziumConfig) -> None:
        self._config = config
        self._feed = _feed(config)
        self._reader: EventReader | None = None
        self._found: _Found | None = None

    def check(self) -> list[Finding]:
        return [Finding(what, fix, fatal) for what, fix, fatal in self._feed.findings()]

    def discover(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        """The tables of the first events there are; others come with their own first event."""
        if self._found is None:
            self._found = _Found(self._config)
            reader = EventReader(self._config, self._feed, self._found, tell=False)
            try:
                for piece in self._feed.sample():
                    for item in reader.items(piece):
                        self._found.take(item)
            except (UnknownLogEvent, UnreadableValue) as e:
                log.info(
                    "The tables of later events are not known yet: %s", e.what
                )  # the stream raises it, in its turn
        return {table: schema for table, schema in self._found.schemas.items() if needed(table)}

    def current_position(self) -> Position:
        return self._feed.end()

    def oldest_position(self) -> Position:
        return self._feed.begin()

    def verify_position(self, position: Position) -> None:
        self._feed.verify(position)

    def parse_position(self, document: dict[str, Any]) -> Position:
        return parse_position(document)

    def snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        raise QueryRefused(_NO_TABLES, safe="Nothing was read; capture goes on.", remedy=_READ_WHERE)

    def chunks(self, *, signals: TableId | None) -> ChunkReader:
        raise PrerequisiteError(_NO_TABLES, safe="Nothing was read; capture goes on.", remedy=_READ_WHERE)

    def stream(
        self,
        start: Position,
        tables: Tables,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        self.verify_position(start)
        self._reader = reader = EventReader(self._config, self._feed, tables)

        def wait() -> None:
            time.sleep(self._config.poll_interval_ms / 1000 if patience is None else patience())

        for found in self._feed.read(start, until, wait):
            if isinstance(found, Piece):
                yield from reader.items(found)
            else:
                yield Heartbeat(found)

    def execute(self, statement: str) -> None:
        raise ConfigError("Events run no statements: leave heartbeat.action.query out.")

    @property
    def source_fields(self) -> list[pa.Field]:
        return [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("file", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64(), nullable=False),
        ]

    def metrics(self) -> Mapping[str, Value]:
        return {} if self._reader is None else {"NumberOfRecordsLeftOut": self._reader.left_out.total()}

    def close(self) -> None:
        self._feed.close()


class _Found:
    """Takes schemas as they come, of the tables that are selected; see :class:`~airflow_provider_cdc.core.spi.source.Tables`."""

    def __init__(self, config: DebeziumConfig) -> None:
        self.schemas: dict[TableId, TableSchema] = {}
        self._filters = Filters(config)

    def take(self, item: LogItem) -> None:
        for change in item.changes if isinstance(item, SchemaChange) else ():
            if change.table is not None:
                self.schemas[change.id] = change.table

    def get(self, table: TableId) -> TableSchema | None:
        return self.schemas.get(table)

    def captured(self, table: TableId) -> bool:
        return self._filters.table(table)

    def read_again(self, table: TableId) -> bool:
        return False

    def known(self) -> list[TableId]:
        return list(self.schemas)


def _feed(config: DebeziumConfig) -> Feed:
    if config.from_files:
        from airflow_provider_cdc.sources.debezium.files import Files

        return Files(config)
    from airflow_provider_cdc.sources.debezium.topics import Topics

    return Topics(config)
