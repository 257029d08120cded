"""Sources, readers of chunks and streams of MySQL and MariaDB, for tests of them by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.core.model.log_items import LogBlock, SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.source import MariaDbSource, MySqlSource


def source_of(server: Any, **properties: Any) -> MySqlSource:
    """A source on a server of ``dev.servers``; properties with underscores for dots."""
    named = {k.replace("_", "."): v for k, v in properties.items()}
    login = {
        "database.hostname": server.host,
        "database.port": server.port,
        "database.user": server.user,
        "database.password": server.password,
        "database.ssl.mode": "disabled",  # MariaDB has no certificate here, which would be a finding
    }
    config = MySqlConfig.parse({"topic.prefix": "p", "database.server.id": 4712, **login, **named})
    return (MariaDbSource if server.kind == "mariadb" else MySqlSource)(config)


class FixedTables:
    """Tables whose structures do not change, but for changes that were seen."""

    def __init__(self, schemas: dict[TableId, TableSchema]) -> None:
        self._schemas = schemas

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self._schemas.get(table)

    def is_captured(self, table: TableId) -> bool:
        return table in self._schemas

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return list(self._schemas)


@dataclass(frozen=True)
class LoggedRow:
    """A row event."""

    table: str
    op: int
    row: dict[str, Any]
    file: str
    pos: int
    gtid: str | None


def read_log_rows(
    source: MySqlSource, start: Any, tables: dict[TableId, TableSchema], until: Any = None
) -> list[LoggedRow]:
    """The row events from a position to the end of the log; for a deletion, the row that was there."""
    found: list[LoggedRow] = []
    for item in source.stream_log(start, FixedTables(tables), until=until or source.current_position()):
        if isinstance(item, SchemaChange):
            for change in item.changes:
                if change.table is not None:
                    tables[change.id] = change.table
        elif isinstance(item, LogBlock):
            events = []
            for block in item.rows:
                columns = [block.source[name].to_pylist() for name in ("file", "pos", "gtid")]
                for i, place in enumerate(zip(*columns, strict=True)):
                    image = block.before if block.op[i] == 3 else block.after
                    assert image is not None
                    event = LoggedRow(block.table.id.name, int(block.op[i]), image[i].as_py(), *place)
                    events.append((int(block.order[i]), event))
            found += [event for _, event in sorted(events, key=lambda e: e[0])]
    return found


@contextlib.contextmanager
def reader_of(server: Any, signals: TableId | None = None, **properties: Any) -> Iterator[ChunkReader]:
    """A reader of chunks."""
    with source_of(server, **properties) as source, source.open_chunk_reader(signals=signals) as reader:
        yield reader


def rows_of(chunk: ChunkRows) -> list[dict[str, Any]]:
    return [row for block in chunk.rows if block.after is not None for row in block.after.to_pylist()]


def read_whole_table(reader: ChunkReader, table: TableId, condition: str | None = None) -> ChunkRows:
    """All rows, as one chunk."""
    schema = reader.read_table_schema(table)
    assert schema is not None
    return reader.read(KeyRange(schema, schema.key, condition=condition), 1_000_000)
