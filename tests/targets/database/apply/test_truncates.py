"""A truncate at the source costs by the changes, not by the rows of the table, where the database can undo a TRUNCATE."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply import table_writer
from airflow_provider_cdc.targets.database.dialects import postgresql
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, sink
from tests.targets.database.apply.test_statement_costs import statements
from tests.targets.database.verify.test_verify_database import run

pytestmark = pytest.mark.parametrize("url", ["postgresql"], indirect=True)
TRUNCATE, DELETE = 'TRUNCATE TABLE ONLY "p_s_t"', 'DELETE FROM "p_s_t"'
COLUMNS = {"id": "int64!", "parent": "int64"}


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", COLUMNS, key=("id",))
    return source


@pytest.fixture
def connector(engine: sa.Engine, source: MemoryDatabase, tmp_path: Path) -> Connector:
    """Return a connector whose table has rows, also in the target."""
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    _insert(source, *range(10))
    connector.capture()
    sink(engine, connector).apply()
    return connector


def _insert(source: MemoryDatabase, *ids: int) -> None:
    with source.transaction() as t:
        for number in ids:
            t.insert("s.t", {"id": number, "parent": 0})


def _truncated(engine: sa.Engine, source: MemoryDatabase, connector: Connector, later: int) -> list[str]:
    source.truncate_table("s.t")
    _insert(source, later)
    connector.capture()
    with statements(engine) as seen:
        sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    return [statement for statement in seen if statement in (TRUNCATE, DELETE)]


def test_a_large_table_is_truncated_and_rows_of_a_small_one_are_deleted(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _truncated(engine, source, connector, 20) == [DELETE]
    monkeypatch.setattr(table_writer, "LARGE_BYTES", 8192)
    assert _truncated(engine, source, connector, 21) == [TRUNCATE]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (id bigint REFERENCES p_s_t (id) ON DELETE CASCADE)",
        "ALTER TABLE p_s_t ENABLE ROW LEVEL SECURITY",
    ],
)
def test_rows_are_deleted_where_a_truncate_would_do_something_else(
    engine: sa.Engine,
    source: MemoryDatabase,
    connector: Connector,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
) -> None:
    monkeypatch.setattr(table_writer, "LARGE_BYTES", 0)
    run(engine, statement)
    assert _truncated(engine, source, connector, 20) == [DELETE]


def test_rows_are_deleted_if_foreign_keys_of_others_in_the_transaction_are_still_to_be_checked(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "LARGE_BYTES", 0)
    run(
        engine,
        "CREATE TABLE parents (id bigint PRIMARY KEY)",
        "INSERT INTO parents VALUES (0)",
        "ALTER TABLE p_s_t ADD FOREIGN KEY (parent) REFERENCES parents (id) DEFERRABLE",
    )
    empty = postgresql.PostgreSql.empty_table

    def after_a_row(self: postgresql.PostgreSql, connection: sa.Connection, *arguments: object, **more: object) -> None:
        connection.exec_driver_sql("INSERT INTO p_s_t VALUES (99, 0)")
        empty(self, connection, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(postgresql.PostgreSql, "empty_table", after_a_row)
    assert _truncated(engine, source, connector, 20) == [TRUNCATE, DELETE]


def test_rows_are_deleted_beside_a_reader_of_the_table(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "LARGE_BYTES", 0)
    monkeypatch.setattr(postgresql, "TRUNCATE_WAIT_MS", 100)
    other = sa.create_engine(engine.url)
    with other.connect() as reader:
        assert reader.exec_driver_sql("SELECT count(*) FROM p_s_t").scalar() == 10
        assert _truncated(engine, source, connector, 20) == [TRUNCATE, DELETE]
    other.dispose()
