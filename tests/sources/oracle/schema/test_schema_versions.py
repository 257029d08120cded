"""Structures of Oracle's tables over time: which one rows are read under, the history, records of schema changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, of_table
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
STRATEGIES = ["redo_log_catalog", "hybrid"]


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def _changes(found: list[Record]) -> list[Record]:
    """Records of schema changes."""
    return [r for r in found if r["topic"] == "test"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_read_under_the_structure_of_their_place(
    schema: Oracle, connector_factory: Callable[..., Connector], strategy: str
) -> None:
    """No structure in between is the one that the dictionary has by now; a restart knows it from the history."""
    schema.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format("T"))
    connector = connector_factory(log_mining_strategy=strategy)
    capture_records(connector)
    schema.sql(
        "INSERT INTO T VALUES (3, 3)", "COMMIT", "ALTER TABLE T ADD (A NUMBER(4))", "INSERT INTO T VALUES (4, 4, 4)"
    )
    schema.sql(
        "ALTER TABLE T DROP COLUMN V", "ALTER TABLE T ADD (B VARCHAR2(9))", "INSERT INTO T VALUES (5, 5, 'five')"
    )
    assert [r["value"]["after"] for r in of_table(capture_records(connector), "T")] == [
        {"ID": 3, "V": 3}, {"ID": 4, "V": 4, "A": 4}, {"ID": 5, "A": 5, "B": "five"},
    ]  # fmt: skip
    schema.sql(
        "INSERT INTO T VALUES (6, 6, 'six')",
        "COMMIT",
        "ALTER TABLE T DROP COLUMN A",
        "UPDATE T SET B = 'x' WHERE ID = 6",
    )
    found = [r["value"] for r in of_table(capture_records(connector), "T")]
    assert [(v["before"], v["after"]) for v in found] == [
        (None, {"ID": 6, "A": 6, "B": "six"}), ({"ID": 6, "B": "six"}, {"ID": 6, "B": "x"}),
    ]  # fmt: skip
    history = [r for r in connector.store.schema_history("test") if not r.snapshot]
    assert [r.ddl.rstrip(";") for r in history] == [
        "ALTER TABLE T ADD (A NUMBER(4))", "ALTER TABLE T DROP COLUMN V", "ALTER TABLE T ADD (B VARCHAR2(9))",
        "ALTER TABLE T DROP COLUMN A",
    ]  # fmt: skip
    places = [int(r.position["commit_scn"].partition(":")[0]) for r in history]
    assert places == sorted(set(places))


def test_rows_and_structures_come_in_one_order(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    schema.sql(
        "CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format("T"), "INSERT INTO T VALUES (1, 1)"
    )
    schema.sql("CREATE TABLE U (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("U"))
    connector = connector_factory()
    capture_records(connector)
    schema.sql(
        "UPDATE T SET V = 9",
        "COMMIT",
        "ALTER TABLE T ADD (W NUMBER(3))",
        "DELETE FROM T",
        "COMMIT",
        "DROP TABLE U PURGE",
    )
    schema.sql("INSERT INTO T VALUES (5, 5, 5)")
    reported = [r["value"] and (r["value"].get("op") or r["value"]["ddl"][:10]) for r in capture_records(connector)]
    assert reported == ["u", "ALTER TABL", "d", None, "DROP TABLE", "c"]


def test_the_history_is_kept_whether_schema_changes_are_reported_or_not(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    schema.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T"), "INSERT INTO T VALUES (1)")
    connector = connector_factory(include_schema_changes=False)
    found = capture_records(connector)
    before = time.time()
    schema.sql("ALTER TABLE T ADD (V NUMBER(9))", "INSERT INTO T VALUES (2, 2)")
    found += capture_records(connector)
    assert {r["topic"] for r in found} == {"test.APP.T"}
    *_, last = connector.store.schema_history("test")
    assert (last.ddl.rstrip(";"), last.database, last.changes[0].id.namespace) == (
        "ALTER TABLE T ADD (V NUMBER(9))",
        "ORCLPDB1",
        "APP",
    )
    assert abs(last.ts_us / 1e6 - before) < 60
    assert int(last.source["scn"]) == int(last.position["commit_scn"].partition(":")[0])
    assert last.changes[0].table is not None
    assert last.changes[0].table.column_names == ("ID", "V")


def test_only_captured_tables_are_recorded(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    for name in ("T", "U"):
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name))
    connector = connector_factory(table_include_list=r"APP\.T")
    found = capture_records(connector)
    schema.sql("ALTER TABLE T ADD (V NUMBER(9))", "ALTER TABLE U ADD (V NUMBER(9))", "CREATE TABLE W (ID NUMBER)")
    found += capture_records(connector)
    assert [c["id"] for r in _changes(found) for c in r["value"]["tableChanges"]] == ['"ORCLPDB1"."APP"."T"'] * 2
    assert {str(c.id) for r in connector.store.schema_history("test") for c in r.changes} == {"APP.T"}
    # what was not recorded is no hindrance: the table is read, with its structure, when it is added
    schema.sql("INSERT INTO U VALUES (1, 2)")
    connector.properties["table.include.list"] = r"APP\.(T|U)"
    assert [r["value"]["after"] for r in of_table(capture_records(connector), "U")] == [{"ID": 1, "V": 2}]


def test_a_statement_that_is_not_understood_neither_stops_nor_is_skipped(
    schema: Oracle,
    connector_factory: Callable[..., Connector],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dictionary says what it made of the table."""
    from airflow_provider_cdc.sources.oracle.schema import ddl

    schema.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T"), "INSERT INTO T VALUES (1)")
    connector = connector_factory()
    capture_records(connector)
    schema.sql("ALTER TABLE T ADD (V NUMBER(9))", "INSERT INTO T VALUES (2, 2)")
    understood = ddl.parse_ddl_statement

    def read(text: str) -> Any:
        return understood(text.replace("ADD (V NUMBER(9))", "ADD PERIOD VERY NEW (V)"))

    monkeypatch.setattr(ddl, "parse_ddl_statement", read)
    with caplog.at_level(logging.WARNING):
        capture_records(connector)
    assert [r for r in caplog.records if "cannot be parsed" in r.message and "APP.T" in r.message]
    monkeypatch.undo()
    schema.sql("INSERT INTO T VALUES (3, 3)")
    capture_records(connector)
    assert connector.rows("APP.T") == [{"ID": 1, "V": None}, {"ID": 2, "V": 2}, {"ID": 3, "V": 3}]


# records


def test_a_schema_change_holds_the_whole_structure_after_it(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    schema.sql("CREATE TABLE FIRST (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("FIRST"))
    connector = connector_factory(log_mining_strategy="hybrid")
    (snapshot,) = _changes(capture_records(connector))
    statements = [
        "CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL, NAME VARCHAR2(255 CHAR), PRICE NUMBER(8,2) DEFAULT 0 NOT NULL, PRIMARY KEY (ID))",
        "ALTER TABLE CUSTOMERS ADD (BORN DATE)",
        "ALTER TABLE CUSTOMERS RENAME TO CLIENTS",
        "DROP TABLE FIRST PURGE",
    ]  # fmt: skip
    schema.sql(*statements[:2], LOGGED.format("CUSTOMERS"), *statements[2:])
    captured_from = time.time_ns() // 10**6
    found = [r for r in _changes(capture_records(connector)) if r["value"]["source"]["snapshot"] == "false"]
    assert [r["key"] for r in (snapshot, *found)] == [{"databaseName": "ORCLPDB1"}] * 5
    created, altered, renamed, dropped = (r["value"] for r in found)
    for value, statement in zip((created, altered, renamed, dropped), statements, strict=True):
        assert {"source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"} == set(value)
        assert value["ddl"].rstrip(";") == statement
        assert (value["databaseName"], value["schemaName"]) == ("ORCLPDB1", "APP")
        assert value["source"]["scn"].isdigit()
        assert (value["source"]["connector"], value["source"]["db"], value["source"]["schema"]) == (
            "oracle",
            "ORCLPDB1",
            "APP",
        )
        assert value["source"]["ts_ms"] <= captured_from <= value["ts_ms"] <= time.time() * 1000
    kinds = [(v["tableChanges"][0]["type"], v["tableChanges"][0]["id"]) for v in (created, altered, renamed, dropped)]
    customers, clients = '"ORCLPDB1"."APP"."CUSTOMERS"', '"ORCLPDB1"."APP"."CLIENTS"'
    assert kinds == [
        ("CREATE", customers), ("ALTER", customers), ("ALTER", clients), ("DROP", '"ORCLPDB1"."APP"."FIRST"'),
    ]  # fmt: skip
    assert dropped["tableChanges"][0]["table"] is None
    table = altered["tableChanges"][0]["table"]
    assert list(table) == ["defaultCharsetName", "primaryKeyColumnNames", "columns", "comment", "attributes"]
    assert (table["defaultCharsetName"], table["primaryKeyColumnNames"], table["attributes"]) == (None, ["ID"], [])
    names = (
        "name", "jdbcType", "nativeType", "typeName", "typeExpression", "charsetName", "length", "scale", "position",
        "optional", "autoIncremented", "generated",
    )  # fmt: skip
    assert [tuple(c[n] for n in names) for c in table["columns"]] == [
        ("ID", 2, None, "NUMBER", "NUMBER", None, 9, 0, 1, False, False, False),
        ("NAME", 12, None, "VARCHAR2", "VARCHAR2", None, 255, None, 2, True, False, False),
        ("PRICE", 2, None, "NUMBER", "NUMBER", None, 8, 2, 3, False, False, False),
        ("BORN", 93, None, "DATE", "DATE", None, None, None, 4, True, False, False),
    ]
    assert renamed["tableChanges"][0]["table"]["columns"] == table["columns"]


def test_the_structures_of_a_snapshot_say_so(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    schema.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T"), "INSERT INTO T VALUES (1)")
    structure, row = capture_records(connector_factory())
    source = structure["value"]["source"]
    assert (source["snapshot"], source["txId"], source["lcr_position"], source["commit_scn"]) == (
        "true",
        None,
        None,
        None,
    )
    assert source["scn"] == row["value"]["source"]["scn"]
    assert structure["value"]["ddl"].startswith('CREATE TABLE "APP"."T"')
    (change,) = structure["value"]["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"ORCLPDB1"."APP"."T"')


def test_a_table_is_reported_with_its_structure_before_its_first_row(tmp_path: Path) -> None:
    """Also where no DDL in the log reports it, and tables are not read."""
    with Oracle() as server:
        server.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T"))
        for _ in range(5):
            server.switch_log()
        server.purge()
        connector = oracle_connector(
            server, tmp_path, snapshot_mode="never", schema_include_list="APP", log_mining_strategy="hybrid"
        )
        server.sql("INSERT INTO T VALUES (1)")
        structure, row = capture_records(connector)
        (change,) = structure["value"]["tableChanges"]
        assert (change["type"], change["id"]) == ("CREATE", '"ORCLPDB1"."APP"."T"')
        assert [c["name"] for c in change["table"]["columns"]] == ["ID"]
        assert (row["key"], row["value"]["op"]) == ({"ID": 1}, "c")
        server.sql("INSERT INTO T VALUES (2)")
        (row,) = capture_records(connector)
        assert row["key"] == {"ID": 2}
