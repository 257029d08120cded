"""Relational tables by way of Spark: equal to the source, whatever is killed and whichever other run applies at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import StagedDatabaseApply, StagingSizes
from airflow_provider_cdc.targets.database.parallel.staging_workers import PREFIX
from airflow_provider_cdc.targets.database.target_engine import open_engine
from airflow_provider_cdc.targets.lake.executors.database_sink_executors import build_executor_workers
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.targets.database.apply.test_database_apply import in_order, rows, write_transactions
from tests.targets.database.killed import start

pytestmark = [pytest.mark.spark]

ALL = StagingSizes(little=1, share=20_000, partition=200_000)
KINDS = ("postgresql", "mariadb", "mysql")
_FIXTURES = {"postgresql": "postgres", "mariadb": "mariadb", "mysql": "mysql97"}
TABLES = ("s.one", "s.two", "s.sparse")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    server = request.getfixturevalue(_FIXTURES[request.param])
    with server.database("spark") as database:
        yield (
            server.url(database) if request.param == "postgresql" else server.url(f"{database.name}?charset=utf8mb4")
        )


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    yield engine
    engine.dispose()


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    for name in TABLES:
        columns = {"id": "int64!", "a": "string", "b": "int32", "c": "timestamp[us]", "d": "binary"}
        source.create_table(name, columns, key=("id",), sparse=("a", "d") if name == "s.sparse" else ())
    return source


def on_spark(spark: SparkSession, url: str, connector: Connector, **properties: Any) -> StagedDatabaseApply:
    config = DatabaseTargetConfig.parse({**EQUAL, "connection.url": url, **properties})
    engine = open_engine(config)
    return StagedDatabaseApply(
        engine, config, connector.changelog, connector.name, build_executor_workers(spark), sizes=ALL
    )


def write_batches(source: MemoryDatabase, connector: Connector, r: Random, batches: int = 1) -> None:
    for _ in range(batches):
        for name in TABLES:
            write_transactions(source, name, r, 8)
        connector.capture()


def equal(engine: sa.Engine, source: MemoryDatabase) -> None:
    for name in TABLES:
        there = rows(engine, f"p_{name.replace('.', '_')}")
        assert in_order(there) == in_order(
            [{k: _plain_value(v) for k, v in row.items()} for row in source.copy_rows(name)]
        ), name
    assert [name for name in sa.inspect(engine).get_table_names() if name.startswith(PREFIX)] == []


def _plain_value(value: Any) -> Any:
    return value.isoformat(" ", "microseconds") if hasattr(value, "isoformat") else value


def test_random_work_ends_in_equal_tables(
    spark: SparkSession, engine: sa.Engine, url: str, source: MemoryDatabase, tmp_path: Path
) -> None:
    connector, r = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=9), Random(1)
    for number in range(3):
        write_batches(source, connector, r, 2)
        if number == 1:
            source.truncate_table("s.two")
            source.add_column("s.one", "added", "int32", 7, text="7")
            write_batches(source, connector, r)
        done = on_spark(spark, url, connector).apply()
        assert done.event_count > 0
        equal(engine, source)
    assert on_spark(spark, url, connector).apply().event_count == 0


@pytest.mark.crash
def test_runs_at_once_with_and_without_spark_apply_each_batch_once(
    spark: SparkSession, engine: sa.Engine, url: str, source: MemoryDatabase, tmp_path: Path
) -> None:
    connector, r = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=7), Random(2)
    for _ in range(3):
        write_batches(source, connector, r, 3)
        embedded = start({**EQUAL, "connection.url": url}, connector.changelog.storage.url, connector.name)
        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(on_spark(spark, url, connector).apply) for _ in range(2)]
            for one in running:
                one.result(LONGEST_S)
        embedded.join(LONGEST_S)
        assert embedded.exitcode == 0
        write_batches(
            source, connector, r
        )  # a run that was overtaken may have left tables, which go when the marker moves on
        on_spark(spark, url, connector).apply()
        equal(engine, source)
