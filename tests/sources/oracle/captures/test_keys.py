"""Keys of Oracle's events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(
        schema, tmp_path, **{"schema_include_list": "APP", "topic_prefix": "server1", **properties}
    )


def _tables(server: Oracle, **tables: str) -> None:
    for name, columns in tables.items():
        server.sql(f"CREATE TABLE {name} ({columns})", LOGGED.format(name))


def test_the_key_is_the_primary_key_else_a_unique_one_else_the_configured_one(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    _tables(
        schema,
        customers="id NUMBER(9) NOT NULL, name VARCHAR2(9), PRIMARY KEY (id)",
        pair="b NUMBER(9) NOT NULL, a VARCHAR2(5) NOT NULL, c NUMBER(9), PRIMARY KEY (a, b), UNIQUE (b)",
        only_unique="c NUMBER(9), u NUMBER(9) NOT NULL, UNIQUE (u)",
        only_index="c NUMBER(9), i NUMBER(9) NOT NULL",
        loose="x NUMBER(9), y NUMBER(9)",
        named="x NUMBER(9), y NUMBER(9)",
    )
    schema.sql(
        "CREATE UNIQUE INDEX one ON only_index (i)", "INSERT INTO customers VALUES (1001, 'a')", "INSERT INTO pair VALUES (2, 'x', 3)",
        "INSERT INTO only_unique VALUES (3, 4)", "INSERT INTO only_index VALUES (5, 6)", "INSERT INTO loose VALUES (1, 2)",
        "INSERT INTO named VALUES (1, 2)",
    )  # fmt: skip
    connector = connector_factory(message_key_columns="app.nam(.*):y,X;elsewhere.t:a")
    keys = {r["topic"].rpartition(".")[2]: r["key"] for r in capture_records(connector, schemas=True)}
    assert keys["CUSTOMERS"] == {
        "schema": {
            "type": "struct", "name": "server1.APP.CUSTOMERS.Key", "optional": False,
            "fields": [{"field": "ID", "type": "int32", "optional": False}],
        },
        "payload": {"ID": 1001},
    }  # fmt: skip
    assert list(keys["PAIR"]["payload"].items()) == [("A", "x"), ("B", 2)]
    assert keys["ONLY_UNIQUE"]["payload"] == {"U": 4}
    assert keys["ONLY_INDEX"]["payload"] == {"I": 6}
    assert list(keys["NAMED"]["payload"].items()) == [("Y", 2), ("X", 1)]
    assert keys["LOOSE"] is None


def test_configured_keys_win_over_the_primary_key_and_change_as_it_does(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    _tables(schema, t="id NUMBER(9) PRIMARY KEY, k NUMBER(9), v NUMBER(9)")
    connector = connector_factory(message_key_columns="ORCLPDB1.APP.T:K")
    capture_records(connector)
    schema.sql("INSERT INTO t VALUES (1, 7, 0)", "UPDATE t SET id = 2", "UPDATE t SET k = 8")
    found = of_table(capture_records(connector), "T")
    assert [(r["key"], r["value"] and r["value"]["op"]) for r in found] == [
        ({"K": 7}, "c"), ({"K": 7}, "u"), ({"K": 7}, "d"), ({"K": 7}, None), ({"K": 8}, "c"),
    ]  # fmt: skip


def test_the_key_is_that_of_the_time_of_the_event(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    _tables(schema, t="a NUMBER(9) NOT NULL, b NUMBER(9) NOT NULL, CONSTRAINT old PRIMARY KEY (a)")
    connector = connector_factory()
    capture_records(connector)
    for row, key in (((1, 2), "b"), ((3, 4), "a"), ((5, 6), "b, a")):
        schema.sql(f"INSERT INTO t VALUES {row}", "COMMIT", "ALTER TABLE t DROP PRIMARY KEY")
        schema.sql(f"ALTER TABLE t ADD PRIMARY KEY ({key})")
    schema.sql("INSERT INTO t VALUES (7, 8)")
    found = [r["key"] for r in of_table(capture_records(connector), "T") if r["value"]["op"] == "c"]
    assert [list(key.items()) for key in found] == [[("A", 1)], [("B", 4)], [("A", 5)], [("B", 8), ("A", 7)]]


def test_names_are_as_the_database_has_them(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    _tables(schema, t='id NUMBER(9), "the Key" NUMBER(9) PRIMARY KEY')
    schema.sql("INSERT INTO t VALUES (1, 2)")
    (record,) = of_table(capture_records(connector_factory()), "T")
    assert (record["key"], record["value"]["after"]) == ({"the Key": 2}, {"ID": 1, "the Key": 2})


def test_columns_that_are_left_out_stay_in_the_key(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    _tables(schema, t="id NUMBER(9) PRIMARY KEY, v NUMBER(9)")
    connector = connector_factory(column_exclude_list=r"APP\.T\.ID")
    capture_records(connector)
    schema.sql("INSERT INTO t VALUES (1, 2)", "UPDATE t SET v = 3", "DELETE FROM t")
    found = of_table(capture_records(connector), "T")
    assert [r["key"] for r in found] == [{"ID": 1}] * 4
    assert [r["value"] and r["value"]["after"] for r in found] == [{"V": 2}, {"V": 3}, None, None]
