"""Tables that only MariaDB has: with system versioning, which are refused by name, and with periods of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows

VERSIONED = [
    "CREATE TABLE h (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "CREATE TABLE h (id INT PRIMARY KEY, v INT WITH SYSTEM VERSIONING)",
    "CREATE TABLE h (id INT PRIMARY KEY, v INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS "
    "ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    "CREATE TABLE h (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 WEEK "
    "(PARTITION p0 HISTORY, PARTITION pn CURRENT)",
]


@pytest.fixture
def connector(database: Any, tmp_path: Path) -> Connector:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    return mysql_connector(database.server, tmp_path, database_include_list=database.name)


def _assert_refused(connector: Connector, database: Any) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        connector.capture()
    assert f"Table {database.name}.h is system-versioned" in str(caught.value)
    assert f"table.exclude.list={database.name}.h" in str(caught.value)


def _goes_on_without(connector: Connector, database: Any) -> None:
    connector.properties["table.exclude.list"] = f"{database.name}.h"
    connector.capture()
    assert connector.rows(f"{database.name}.t") == source_rows(database.server, database.name, "t")


@pytest.mark.parametrize("create", VERSIONED)
def test_a_table_created_with_system_versioning_is_refused_by_name(
    connector: Connector, database: Any, create: str
) -> None:
    connector.capture()
    database.sql(create, "INSERT INTO h (id, v) VALUES (1, 1)", "UPDATE h SET v = 2", "INSERT INTO t VALUES (2)")
    _assert_refused(connector, database)
    _goes_on_without(connector, database)


def test_system_versioning_that_came_and_went_is_refused_at_its_place(connector: Connector, database: Any) -> None:
    database.sql("CREATE TABLE h (id INT PRIMARY KEY, v INT)")
    connector.capture()
    database.sql(
        "ALTER TABLE h ADD SYSTEM VERSIONING", "INSERT INTO h VALUES (1, 1)", "DELETE FROM h", "ALTER TABLE h DROP SYSTEM VERSIONING",
        "ALTER TABLE h ADD n INT",
    )  # fmt: skip
    _assert_refused(connector, database)
    _goes_on_without(connector, database)


@pytest.mark.parametrize("create", VERSIONED)
def test_a_versioned_table_is_refused_before_a_snapshot_and_does_not_matter_where_it_is_left_out(
    connector: Connector, database: Any, create: str
) -> None:
    database.sql(create, "INSERT INTO h (id, v) VALUES (1, 1)", "DELETE FROM h")
    _assert_refused(connector, database)
    _goes_on_without(connector, database)


def test_a_table_with_a_period_is_read_by_its_statement_alone(connector: Connector, database: Any) -> None:
    database.sql("CREATE TABLE q (id INT PRIMARY KEY, a DATE, b DATE)")
    connector.capture()
    database.sql(
        "CREATE TABLE p (id INT, a DATE, B DATE, PERIOD FOR valid (a, b))",
        "INSERT INTO p VALUES (1, '2024-01-01', '2024-12-31')",
        "ALTER TABLE p ADD n INT",
        "ALTER TABLE q ADD PERIOD FOR valid (a, b)",
        "INSERT INTO q VALUES (1, '2024-01-01', '2024-12-31')",
        "UPDATE p FOR PORTION OF valid FROM '2024-02-01' TO '2024-03-01' SET id = id + 1",
        "ALTER TABLE q DROP PERIOD FOR valid, ADD n INT FIRST",
    )
    connector.capture()
    for table in ("p", "q"):
        assert connector.rows(f"{database.name}.{table}") == source_rows(database.server, database.name, table)
