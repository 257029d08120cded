"""Converters of users on a real server: rows of snapshots, of chunks and of the log have the same values."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, UnreadableValue
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import Connector, mysql_connector
from tests.support.own_converters import own_converters
from tests.support.signals import signal_state, snapshot

COLUMNS = (
    "id INT PRIMARY KEY, isbn VARCHAR(20) NOT NULL DEFAULT '978-1', price VARCHAR(10) DEFAULT '1.50', title VARCHAR(9)"
)


@pytest.fixture
def db(mariadb: Any) -> Iterator[Any]:
    with mariadb.database("conv") as database:
        yield database


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return own_converters(tmp_path, monkeypatch)


@pytest.fixture
def connector(own: Any, db: Any, tmp_path: Path) -> Connector:
    connector = mysql_connector(db.server, tmp_path, db.server.kind, database_include_list=db.name)
    connector.properties |= {"converters": "i, p", "i.type": "isbn", "p.type": "price"}
    return connector


def test_rows_of_snapshot_log_and_chunks_have_the_same_converted_values(db: Any, connector: Connector) -> None:
    values = "DEFAULT, DEFAULT, 'a'"
    db.sql(f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t VALUES (1, {values}), (4, '3-4', NULL, NULL)")
    (first, null) = of_table(capture_records(connector, schemas=True), "t")
    db.sql(
        f"INSERT INTO t VALUES (2, {values})", "UPDATE t SET price = NULL WHERE id = 2", "DELETE FROM t WHERE id = 2"
    )
    inserted, updated, deleted = of_table(capture_records(connector, schemas=True), "t")[:3]
    row = {"isbn": 9781, "price": "AJY=", "title": "a"}
    payloads = [r["value"]["payload"] for r in (first, null, inserted, updated, deleted)]
    assert [payloads[0]["after"], payloads[2]["after"]] == [{"id": 1, **row}, {"id": 2, **row}]
    assert payloads[1]["after"] == {"id": 4, "isbn": 34, "price": None, "title": None}
    assert (payloads[3]["before"], payloads[3]["after"]) == ({"id": 2, **row}, {"id": 2, **row, "price": None})
    assert payloads[4]["before"] == {"id": 2, **row, "price": None}
    assert row_fields(first) == row_fields(inserted)
    nodes = row_fields(inserted)
    assert (nodes["isbn"]["type"], nodes["isbn"]["default"]) == ("int64", 9781)
    assert (nodes["price"]["name"], nodes["price"]["default"]) == ("org.apache.kafka.connect.data.Decimal", "AJY=")
    number = snapshot(connector, f"{db.name}.t", replace=True)
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    rows = [
        {"id": 1, "isbn": 9781, "price": Decimal("1.50"), "title": "a"},
        {"id": 4, "isbn": 34, "price": None, "title": None},
    ]
    assert sorted(connector.rows(f"{db.name}.t"), key=lambda r: r["id"]) == rows


def test_a_column_that_is_added_is_converted_with_the_value_that_rows_have_in_it(db: Any, connector: Connector) -> None:
    db.sql(f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t VALUES (1, '1', '1', 'a')")
    connector.capture()
    db.sql(
        "ALTER TABLE t ADD isbn_13 VARCHAR(20) NOT NULL DEFAULT '7-7'", "INSERT INTO t VALUES (2, '2', '2', 'b', '8-8')"
    )
    connector.capture()
    rows = {row["id"]: row["isbn_13"] for row in connector.rows(f"{db.name}.t")}
    assert rows == {1: 77, 2: 88}


def test_a_column_that_loses_its_converter_by_its_name_has_its_table_read_again(db: Any, connector: Connector) -> None:
    db.sql(f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t VALUES (1, '1-1', '1', 'a')")
    connector.capture()
    db.sql("ALTER TABLE t CHANGE isbn code VARCHAR(20)", "INSERT INTO t VALUES (2, '2-2', '2', 'b')")
    connector.capture()
    assert {row["id"]: row["code"] for row in connector.rows(f"{db.name}.t")} == {1: "1-1", 2: "2-2"}


def test_a_value_that_is_not_converted_stops_its_table_alone_until_it_is_read_again(
    db: Any, connector: Connector
) -> None:
    db.sql(f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t (id) VALUES (1)", "CREATE TABLE u (id INT PRIMARY KEY)")
    connector.capture()
    db.sql("INSERT INTO t VALUES (2, 'none', NULL, NULL)", "INSERT INTO u VALUES (1)")
    with pytest.raises(UnreadableValue, match=r"The converter i\.type=isbn does not convert values of column isbn"):
        connector.capture()
    assert (len(connector.rows(f"{db.name}.t")), connector.rows(f"{db.name}.u")) == (1, [{"id": 1}])
    db.sql("UPDATE t SET isbn = '5-5' WHERE id = 2")
    snapshot(connector, f"{db.name}.t", type="blocking", replace=True)
    connector.capture()
    assert {row["id"]: row["isbn"] for row in connector.rows(f"{db.name}.t")} == {1: 9781, 2: 55}


def test_a_table_is_not_captured_with_two_types_of_one_column(db: Any, connector: Connector, own: Any) -> None:
    """A new version of the package counts as a changed property."""
    db.sql(f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t VALUES (1, '1', '1', 'a')")
    connector.capture()
    db.sql("INSERT INTO t VALUES (2, '2', '2', 'b')")
    with pytest.raises(ConfigError, match=r"Converters give columns another type") as e:
        connector.capture({"i.column": "none"})
    assert e.value.where == f"{db.name}.t.isbn"
    own.Isbn.type, own.Isbn.convert = "string", staticmethod(lambda values: values)
    with pytest.raises(ConfigError, match=r"Converters give columns another type"):
        connector.capture()
    connector.capture({"snapshot.mode": "always"})
    connector.capture()
    assert {row["id"]: row["isbn"] for row in connector.rows(f"{db.name}.t")} == {1: "1", 2: "2"}
