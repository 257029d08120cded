"""Rows that the source has made are inserted without a look whether they are there, and written as others if the table has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects.mysql import MariaDb
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events import last_event_windows
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "a": "string"}, key=("id",))
    return source


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def apply(engine: sa.Engine, connector: Connector) -> list[tuple[str, list[int]]]:
    """Apply what there is; the writes that were tried, and the ids of their rows."""
    done = list[tuple[str, list[int]]]()
    sink = DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name)
    dialect = sink._dialect

    def watch_write(what: str) -> Any:
        plain = getattr(dialect, what)

        def write(connection: sa.Connection, table: DatabaseTargetTable, some: pa.Table, **more: Any) -> None:
            done.append((what, sorted(some[table.key_columns[0].name].to_pylist())))
            plain(connection, table, some, **more)

        return write

    for what in ("insert", "upsert"):
        setattr(dialect, what, watch_write(what))
    sink.apply()
    return done


def insert_rows(source: MemoryDatabase, *ids: int) -> None:
    with source.transaction() as t:
        for id_ in ids:
            t.insert("s.t", {"id": id_, "a": f"a{id_}"})


def test_only_rows_that_the_source_has_made_are_new(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert_rows(source, 1, 2)
    connector.capture()
    assert apply(engine, connector) == [("insert", [1, 2])]
    insert_rows(source, 3, 4, 5)
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"a": "changed"})
        t.update("s.t", {"id": 3}, {"a": "changed"})  # it is new as before
        t.delete("s.t", {"id": 4})
        t.delete("s.t", {"id": 2})
        t.insert("s.t", {"id": 2, "a": "again"})  # the table has it
    connector.capture()
    assert apply(engine, connector) == [("upsert", [1, 2]), ("insert", [3, 5])]
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_a_new_row_that_is_there_is_changed_and_the_rest_of_the_run_looks(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_event_windows, "WINDOW_EVENTS", 1)
    insert_rows(source, 1)
    connector.capture()
    apply(engine, connector)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO p_s_t (id, a) VALUES (2, 'foreign')")
    for id_ in (2, 3):
        insert_rows(source, id_)
        connector.capture()
    assert apply(engine, connector) == [("insert", [2]), ("upsert", [2]), ("upsert", [3])]
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_a_table_whose_key_is_not_enforced_gets_no_rows_twice(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """It has a unique index instead of a primary key: where that is enough, rows are looked for."""
    whole = "NUMBER(19)" if engine.dialect.name == "oracle" else "BIGINT"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE p_s_t (id {whole} NOT NULL UNIQUE, a VARCHAR(20))")
    insert_rows(source, 1, 2)
    connector.capture()
    assert [what for what, _ in apply(engine, connector)] == ["upsert"]
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_statements_stay_far_below_what_a_server_takes() -> None:
    """However much longer the texts of values are than the values: truth values have a bit each."""
    names = [f"c{number}" for number in range(60)]
    fields = tuple(DatabaseColumn(name, Column(name=name, type="bool")) for name in names)
    some = pa.table({name: pa.array([True, False] * 100_000) for name in names})
    dialect: TargetDialect = MariaDb()
    assert isinstance(dialect, MariaDb)
    sizes = [
        len(text)
        for text in dialect._statements(DatabaseTargetTable("t", TargetTableName("t"), fields), some, 16 << 20)
    ]
    assert len(sizes) > 10
    assert max(sizes) < 4 << 20
