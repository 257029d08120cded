"""Names that are nearly the same: of topics, tables, columns and connectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sink.config import SinkConfig
from airflow_provider_cdc.sink.database import open_engine
from airflow_provider_cdc.sink.exact_names import alterations
from airflow_provider_cdc.sink.markers import MarkerTable
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.sink.conftest import _FIXTURES
from tests.sink.test_apply import in_order, rows, sink
from tests.support.connectors import Connector, memory_connector

COLUMNS = {"id": "int64!", "k": "string"}
OLD_MARKERS = (
    "CREATE TABLE cdc_applied (connector VARCHAR(255) NOT NULL, sink VARCHAR(100) NOT NULL, topic VARCHAR(255) NOT NULL, "
    "batch BIGINT NOT NULL, error TEXT, changed_at VARCHAR(32) NOT NULL, PRIMARY KEY (connector, sink, topic))"
)
"""As MySQL and MariaDB have it of earlier versions: in the collation of the database."""


@pytest.fixture(params=["mariadb", "mysql"])
def folding(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A target database whose own collation takes texts as equal that differ in their case."""
    with request.getfixturevalue(_FIXTURES[request.param]).database("names") as database:
        engine = open_engine(
            SinkConfig.parse({"connection.url": database.server.url(f"{database.name}?charset=utf8mb4")})
        )
        yield engine
        engine.dispose()


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def put(source: MemoryDatabase, table: str, *found: dict[str, Any]) -> None:
    with source.transaction() as t:
        for row in found:
            t.insert(table, row)


def execute(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _stopped(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    """``s.Orders`` and ``s.orders`` whose targets cannot take row 2, and of which both want it."""
    for name in ("s.Orders", "s.orders"):
        source.create_table(name, COLUMNS, key=("id",))
        put(source, name, {"id": 1, "k": name})
    connector.capture()
    sink(engine, connector).apply()
    execute(engine, *(f"ALTER TABLE {name} MODIFY k VARCHAR(8)" for name in ("p_s_Orders", "p_s_orders")))
    for name in ("s.Orders", "s.orders"):
        put(source, name, {"id": 2, "k": "is too long"})
    connector.capture()
    with pytest.raises(TargetError, match="2 of the tables"):
        sink(engine, connector).apply()
    for name in ("s.Orders", "s.orders"):
        put(source, name, {"id": 3, "k": "fits"})
    connector.capture()


def _mended(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    execute(engine, *(f"ALTER TABLE {name} MODIFY k LONGTEXT" for name in ("p_s_Orders", "p_s_orders")))
    sink(engine, connector).apply()
    for name in ("s.Orders", "s.orders"):
        assert in_order(rows(engine, f"p_{name.replace('.', '_')}")) == source.rows(name)


def test_topics_that_differ_in_case_have_markers_of_their_own(
    folding: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R37"""
    _stopped(folding, source, connector)
    with pytest.raises(TargetError):
        sink(folding, connector).apply()
    assert {row["topic"] for row in rows(folding, "cdc_applied")} == {"*", "p.s.Orders", "p.s.orders"}
    _mended(folding, source, connector)


def test_topics_that_shared_a_marker_of_an_earlier_version_are_both_behind(
    folding: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R37, with a target of an earlier version."""
    execute(folding, OLD_MARKERS)
    _stopped(folding, source, connector)
    # as that version has left it: one row for both, and the other topic taken for one that is up to date
    execute(
        folding,
        "DELETE FROM cdc_applied WHERE topic = 'p.s.orders'",
        *(
            f"ALTER TABLE cdc_applied MODIFY {column}"
            for column in (
                "connector VARCHAR(255) NOT NULL",
                "sink VARCHAR(100) NOT NULL",
                "topic VARCHAR(255) NOT NULL",
            )
        ),
    )
    _mended(folding, source, connector)


def test_connectors_that_differ_in_case_have_markers_of_their_own(
    folding: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6c"""
    execute(folding, OLD_MARKERS)
    for name, folder in (("Shop", "x"), ("shop", "y")):
        own = MemoryDatabase(str(tmp_path / folder))
        own.create_table("s.t", COLUMNS, key=("id",))
        put(own, "s.t", {"id": 1, "k": name})
        one = memory_connector(own, tmp_path / folder, topic_prefix=folder)
        one.name = name
        one.capture()
        with caplog.at_level(logging.WARNING):
            sink(folding, one).apply()
        assert rows(folding, f"{folder}_s_t") == [{"id": 1, "k": name}]
    assert {row["connector"] for row in rows(folding, "cdc_applied")} == {"Shop", "shop"}


def test_an_account_that_may_not_change_its_markers_is_told_how(
    folding: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R37, with a target of an earlier version and an account with few rights."""
    execute(folding, OLD_MARKERS)
    name = folding.url.database
    execute(
        folding,
        "CREATE USER IF NOT EXISTS few IDENTIFIED BY 'few'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `{name}`.* TO few",
    )
    source.create_table("s.t", COLUMNS, key=("id",))
    connector.capture()
    engine = open_engine(
        SinkConfig.parse(
            {"connection.url": folding.url.set(username="few", password="few").render_as_string(hide_password=False)}
        )
    )
    try:
        with pytest.raises(TargetError, match="earlier version") as refused:
            sink(engine, connector).apply()
        assert refused.value.remedy is not None
        statement = refused.value.remedy.removeprefix("run ").partition(";")[0]
        execute(folding, statement)
        sink(engine, connector).apply()
    finally:
        engine.dispose()
        execute(folding, "DROP USER few")


def test_markers_of_sql_server_get_a_binary_collation() -> None:
    """R37: its databases take texts as equal that differ in their case, too, and change no column of a key. No server of ours runs these."""
    table = MarkerTable("cdc_applied", "shop")._table
    dialect = sa.make_url("mssql+pymssql://").get_dialect()()
    assert alterations(dialect, table, "PK__cdc") == [
        "ALTER TABLE [cdc_applied] DROP CONSTRAINT [PK__cdc]",
        "ALTER TABLE [cdc_applied] ALTER COLUMN connector VARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL",
        "ALTER TABLE [cdc_applied] ALTER COLUMN sink VARCHAR(100) COLLATE Latin1_General_100_BIN2 NOT NULL",
        "ALTER TABLE [cdc_applied] ALTER COLUMN topic VARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL",
        "ALTER TABLE [cdc_applied] ADD PRIMARY KEY (connector, sink, topic)",
    ]
