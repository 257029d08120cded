"""Tables that the configuration does not fit, or of which the change log has no longer everything: they stay behind, and no other one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sink.config import SinkConfig
from airflow_provider_cdc.sink.database import open_engine
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.sink.conftest import _FIXTURES
from tests.sink.test_apply import in_order, rows, sink
from tests.sink.test_staged import staged
from tests.support.connectors import Connector, memory_connector

COLUMNS = {"id": "int64!", "n": "int32"}


@pytest.fixture(params=["sqlite", "mariadb", "mariadb, staged"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A sink for an empty database: one with DDL in its transactions, one without, and one by way of staging tables."""
    kind, _, way = request.param.partition(", ")
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/target.db"
    else:
        server = request.getfixturevalue(_FIXTURES[kind])
        url = server.url(f"{request.getfixturevalue('mariadb_database').name}?charset=utf8mb4")
    engine = open_engine(SinkConfig.parse({"connection.url": url}))
    yield engine, (staged if way else sink)
    engine.dispose()


@pytest.fixture
def mariadb_database(request: pytest.FixtureRequest) -> Any:
    with request.getfixturevalue("mariadb").database("stopped") as database:
        yield database


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def put(source: MemoryDatabase, connector: Connector, *tables: str, ids: tuple[int, ...]) -> None:
    with source.transaction() as t:
        for table in tables:
            for number in ids:
                t.insert(table, {"id": number, "n": number})
    connector.capture()


def same(engine: sa.Engine, source: MemoryDatabase, *tables: str) -> None:
    for table in tables:
        assert in_order(rows(engine, "p_" + table.replace(".", "_"))) == in_order(source.rows(table)), table


def markers(engine: sa.Engine) -> dict[str, int]:
    return {row["topic"]: row["batch"] for row in rows(engine, "cdc_applied")}


def test_a_table_without_a_key_stops_and_no_other(target: Any, source: MemoryDatabase, connector: Connector) -> None:
    engine, of = target
    source.create_table("s.keyless", COLUMNS, key=())
    source.create_table("s.good", COLUMNS, key=("id",))
    for ids in ((1, 2), (3,)):
        put(source, connector, "s.keyless", "s.good", ids=ids)
        with pytest.raises(TargetError, match=r"(?s)1 of the tables.*p\.s\.keyless: .*no key.*message\.key\.columns"):
            of(engine, connector).apply()
        same(engine, source, "s.good")
        assert not sa.inspect(engine).has_table("p_s_keyless")
    last = connector.changelog.batches(connector.name)[-1]
    assert markers(engine) == {"*": last, "p.s.keyless": 0}
    (report,) = AppliedReports(connector.changelog.storage, connector.name).all()
    assert report["lagging"] == {"p.s.keyless": 0}
    assert "no key" in report["failed"]["p.s.keyless"]
    # its error names this way out
    assert of(engine, connector, topics__regex=r"p\.s\.good").apply().batch == last
    assert markers(engine) == {"*": last}
    (report,) = AppliedReports(connector.changelog.storage, connector.name).all()
    assert (report["lagging"], report["failed"]) == ({}, {})


def test_a_table_that_the_properties_do_not_fit_goes_on_when_they_are_mended(
    target: Any, source: MemoryDatabase, connector: Connector
) -> None:
    engine, of = target
    source.create_table("s.bad", COLUMNS, key=("id",))
    source.create_table("s.good", {**COLUMNS, "m": "int32"}, key=("m", "id"))
    with source.transaction() as t:
        for number in range(3):
            t.insert("s.good", {"id": number, "m": 1, "n": 0})
    put(source, connector, "s.bad", ids=(1, 2))
    with pytest.raises(TargetError, match=r"(?s)p\.s\.bad: primary\.key\.fields names m") as caught:
        of(engine, connector, primary__key__fields="id,m").apply()
    assert "p.s.good:" not in str(caught.value)
    same(engine, source, "s.good")
    of(engine, connector).apply()
    same(engine, source, "s.good", "s.bad")
