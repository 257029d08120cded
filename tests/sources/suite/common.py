"""Common parts of the shared suite: two tables and one without a key, connectors on them, the log of a source, and deaths."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.connector_capture import CaptureResult
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.model.log_items import LogBlock, LogItem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.state.state_store import StateStore
from tests.sources.suite.adapter import INT, TEXT, Adapter, Row
from tests.support.connectors import Connector


class Suite:
    """Fixtures that each part of the suite takes. Subclasses give the fixture ``db``."""

    STORIES = 12
    """How many stories of several statements are drawn, besides those of one."""

    def second_opinion(self, connector: Connector, db: Adapter, start: Row, end: Row) -> None:
        """Compare the events of a stretch of the log with those of another reader, where there is one."""

    @pytest.fixture
    def filled_adapter(self, db: Adapter) -> Adapter:
        """Two tables with a key and one without, with a few rows."""
        for table in ("a", "b"):
            db.create(table, {"id": INT, "n": INT, "note": TEXT}, key=("id",))
        db.create("bag", {"n": INT, "note": TEXT})
        with db.transaction() as t:
            for table in ("a", "b"):
                t.insert(table, *({"id": i, "n": i * 10, "note": f"ä{i}"} for i in range(1, 6)))
            t.insert("bag", {"n": 1, "note": "x"}, {"n": 1, "note": "x"}, {"n": None, "note": None})
        return db


class RunKilled(BaseException):
    """The end of a run that is killed."""


def dies_at_commit(patch: pytest.MonkeyPatch, at: int) -> None:
    """Have the next run die at its n-th commit: at every other one, when its manifest is there and its offset is not."""
    commit, left = StateStore.commit_batch, itertools.count(1)

    def die_at_commit(self: StateStore, *args: Any, **options: Any) -> Any:
        n = next(left)
        if n >= at and at % 2:
            raise RunKilled
        result = commit(self, *args, **options)
        if n >= at:
            raise RunKilled
        return result

    patch.setattr(StateStore, "commit_batch", die_at_commit)


CHUNKS = {"incremental_snapshot_chunk_size": 3, "signal_poll_interval_ms": 50}


def start_connector(db: Adapter, folder: Path, **properties: Any) -> Connector:
    """A connector whose snapshot is done."""
    connector = db.connector(folder, **properties)
    connector.capture()
    return connector


def equal(connector: Connector, db: Adapter, *tables: str) -> None:
    for table in tables or ("a", "b", "bag", "bare"):
        if tables or f"test.{db.namespace}.{table}" in connector.replay.advance().tables:
            assert connector.rows(f"{db.namespace}.{table}") == db.rows(table), table


def events(connector: Connector, result: CaptureResult) -> list[Row]:
    """The events of one run in their order, each with its table."""
    found = []
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files if manifest.batch in result.batches else ():
            with connector.changelog.open_file("test", file) as f:
                rows = pq.ParquetFile(f).read().to_pylist()
            found += [row | {"table": file.topic.rpartition(".")[2]} for row in rows]
    return sorted(found, key=lambda e: e["seq"])


def die_after(patch: pytest.MonkeyPatch, cls: type[Source], n: int) -> None:
    """The run ends after the n-th item of the log, before anything else is done."""
    stream: Callable[..., Iterator[Any]] = cls.stream_log

    def stream_and_die(self: Source, *args: Any, **options: Any) -> Iterator[Any]:
        for count, item in enumerate(stream(self, *args, **options), 1):
            yield item
            if count == n:
                raise RunKilled

    patch.setattr(cls, "stream_log", stream_and_die)


@contextlib.contextmanager
def open_connector_source(db: Adapter, folder: Path, **properties: Any) -> Iterator[Source]:
    connector = db.connector(folder, **properties)
    with open_source(connector.definition(), connector.secrets) as source:
        yield source


def open_blocks(connector: Connector, db: Adapter) -> list[bool]:
    """Return the mark ``open`` of each block of the log, from the connector's offset on."""
    return [item.open for item in items_of(connector, db) if isinstance(item, LogBlock)]


def rows_until(connector: Connector, db: Adapter, until: Position) -> int:
    """Count the rows from the connector's offset up to a position."""
    return sum(item.row_count for item in items_of(connector, db, until) if isinstance(item, LogBlock))


def items_of(connector: Connector, db: Adapter, until: Position | None = None) -> list[LogItem]:
    with source_of(connector) as source:
        return list(stream_of(source, connector, db, until or source.current_position()))


def source_of(connector: Connector) -> Source:
    return open_source(connector.definition(), connector.secrets)


def stream_of(source: Source, connector: Connector, db: Adapter, until: Position | None) -> Iterator[LogItem]:
    """The log from the connector's offset on."""
    history = SchemaHistory.from_records(connector.store.schema_history("test"))
    filters = Filters(TableConfig.parse({"topic.prefix": "x", "table.include.list": rf"{db.namespace}\..*"}))
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    tables = CapturedTables(filters, history)
    return source.stream_log(source.parse_position(offset.position), tables, until=until)
