"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of MongoDB."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import JSONMode, JSONOptions

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.log_items import LogItem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.model.transient_key_duplicates import KeysOverlap
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.remote_readers import RowReader, ViewMeeting, ViewSharing
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas, Finding, SnapshotSession, Source, any_table
from airflow_provider_cdc.sources.mongodb.checks import check_prerequisites
from airflow_provider_cdc.sources.mongodb.collection_tables import (
    SOURCE_FIELDS,
    list_visible_collections,
    schema_of,
    validator_of,
)
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import (
    Client,
    deployment_of,
    now_of,
    open_client,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.mongodb.field_rules import parts_of
from airflow_provider_cdc.sources.mongodb.log.change_stream_loop import ChangeStream
from airflow_provider_cdc.sources.mongodb.metrics import MongoSnapshotMetrics, MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.oplog_range import (
    check_position_readable,
    find_log_retention,
    find_oldest_position,
    window_around,
)
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

if TYPE_CHECKING:
    # a run that finds nothing does without rows, and so without NumPy
    from airflow_provider_cdc.core.model.log_items import RowBlock
    from airflow_provider_cdc.sources.mongodb.columns.row_conversion import ColumnTables


class MongoDbSource(Source):
    """MongoDB 5.0 and newer, a replica set or a sharded cluster, by its change streams."""

    KEYS_OVERLAP: ClassVar[KeysOverlap] = KeysOverlap.NEVER
    Config: ClassVar[type[ConnectorConfig]] = MongoDbConfig
    STRUCTURED: ClassVar[bool] = False
    VIEW_SHARING: ClassVar[ViewSharing] = ViewSharing.LATE
    connector = "mongodb"

    def __init__(self, config: MongoDbConfig) -> None:
        self._config = config
        self._metrics, self._snapshots = MongoStreamMetrics(), MongoSnapshotMetrics()
        self._forms: dict[TableId, bool] = {}
        self._streamed: CapturedTableSchemas | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_prerequisites(self) -> list[Finding]:
        return check_prerequisites(self._config)

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        with self._asking("the list of collections") as client:
            tables = [
                table for table, _ in list_visible_collections(client) if self._config.in_scope(table) and needed(table)
            ]
            return {table: self._schema(table) for table in tables}

    def current_position(self) -> MongoPosition:
        with self._asking("the end of the log") as client:
            deployment_of(client)
            return MongoPosition(now_of(client))

    def oldest_position(self) -> MongoPosition:
        with self._asking("the start of the log") as client:
            deployment_of(client)
            return find_oldest_position(client, self._config)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, MongoPosition)
        with self._asking(str(position)) as client:
            check_position_readable(client, self._config, position)

    def log_window(self, position: Position) -> LogWindow:
        assert isinstance(position, MongoPosition)
        with self._asking("the range of the log") as client:
            return window_around(client, position)

    def find_log_retention(self) -> LogRetention | None:
        with self._asking("how long the log is kept") as client:
            return find_log_retention(client)

    def parse_position(self, document: dict[str, Any]) -> MongoPosition:
        return MongoPosition.from_json(document)

    # -- documents ----------------------------------------------------------------------------------------------------

    def _schema(self, table: TableId) -> TableSchema:
        """Build a collection's table before anything is known of its documents.

        It is in the form that it has elsewhere (:meth:`adopt_columns`), or as the configuration says.
        """
        columns = self._forms.get(table)
        if self._config.as_columns(table) if columns is None else columns:
            return self._columns.resolve_schema(table)
        return schema_of(self._config, table)

    def _chunked(self, table: TableId) -> TableSchema:
        """Build a collection's table in the form that it has in the run that streams: rows of chunks are merged with events."""
        streamed = None if self._streamed is None else self._streamed.find_schema(table)
        if streamed is None:
            return self._schema(table)
        return self._columns.resolve_schema(table, streamed) if streamed.documents is None else streamed

    @cached_property
    def _columns(self) -> ColumnTables:
        from airflow_provider_cdc.sources.mongodb.columns.row_conversion import ColumnTables

        return ColumnTables(self._config, self._validator)

    def _validator(self, table: TableId) -> Mapping[str, Any] | None:
        with self._asking(f"the validator of {table}") as client:
            return validator_of(client, table)

    def conform_rows(self, rows: RowBlock, known: TableSchema | None) -> RowBlock:
        return self._columns.convert_rows(rows, known)

    def adopt_columns(self, tables: Iterable[TableSchema]) -> None:
        tables = list(tables)
        self._forms |= {table.id: table.documents is None for table in tables}
        if in_columns := [table for table in tables if table.documents is None]:  # others need no kernels
            self._columns.adopt_columns(in_columns)

    def resolve_reread_schema(self, inspected: TableSchema, known: TableSchema) -> TableSchema:
        return self._columns.resolve_schema(inspected.id, known) if self._config.as_columns(inspected.id) else inspected

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.mongodb.snapshot.collection_snapshot import MongoSnapshot

        return MongoSnapshot(self._config, tables, selects, self._snapshots, self._schema)

    def open_shared_snapshot(
        self,
        tables: Sequence[TableId],
        meeting: ViewMeeting,
        *,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> SnapshotSession:
        return self.open_snapshot(tables, readers=self._config.snapshot_max_threads, selects=selects)

    def open_row_reader(self) -> RowReader:
        from airflow_provider_cdc.sources.mongodb.snapshot.row_reader import MongoRowReader

        return MongoRowReader(self._config)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        from airflow_provider_cdc.sources.mongodb.snapshot.chunk_reader import MongoChunkReader

        return MongoChunkReader(self._config, signals, self._chunked)

    def signal_table(self, text: str) -> TableId:
        database, collection = parts_of(text)
        if not database or not collection:
            raise ConfigError(f"signal.data.collection={text} does not have the format <database>.<collection>.")
        return TableId(namespace=database, name=collection)

    def signal_of(self, row: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
        """Id, type and data of a document of the signalling collection: ``data`` is a document, or a text of JSON (spec MG-049 to 052)."""
        id_ = json.loads(row["_id"]) if row.get("_id") else None
        text = row.get("document")
        document = json.loads(text) if text else {}
        return _text(id_), _text(document.get("type")), _text(document.get("data"))

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        assert isinstance(start, MongoPosition)
        assert until is None or isinstance(until, MongoPosition)
        self._streamed = tables
        yield from ChangeStream(self._config, start, until, tables, self._metrics, patience).read_items()

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return self._metrics.to_document() if self._metrics.position is not None else {}

    def snapshot_metrics(self) -> Mapping[str, Value]:
        return self._snapshots.to_document()

    def execute_statement(self, statement: str) -> None:
        """Run a command: a document in extended JSON, with its database as ``$db``."""
        try:
            command = json_util.loads(statement)
            database = str(command.pop("$db"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{statement[:200]!r} is not a command.",
                remedy='write it as {"$db": "shop", "update": "heartbeat", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": true}]}',
            ) from None
        with self._asking(statement[:200]) as client:
            client[database].command(command)

    @property
    def source_fields(self) -> list[pa.Field]:
        return list(SOURCE_FIELDS)

    def close(self) -> None:
        """Close nothing: each question has a separate client, and the stream closes its client when it ends."""

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[Client]:
        """Open a client for one question.

        :param where: the subject of the question, for errors
        """
        with contextlib.closing(open_client(self._config)) as client, translate_driver_errors(self._config, where):
            yield client


_RELAXED: Final = JSONOptions(json_mode=JSONMode.RELAXED, datetime_conversion=DatetimeConversion.DATETIME_MS)


def _text(value: Any) -> str | None:
    """Format a value of a signal as JSON, whose numbers are plain ones and whose other values are extended JSON.

    A text is as it is, an ObjectId its digits.

    :param value: strict extended JSON, parsed
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {"$oid"}:
        return str(value["$oid"])
    text = json.dumps(value, ensure_ascii=False)
    try:
        return json_util.dumps(json_util.loads(text, json_options=_RELAXED), json_options=_RELAXED, ensure_ascii=False)
    except (ValueError, TypeError, BSONError):  # its fields have the names of extended JSON, and something else in them
        return text
