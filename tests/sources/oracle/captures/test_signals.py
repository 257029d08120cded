"""Snapshots on demand as the documents of Oracle describe them: names, the row id in place of a key, structures, and notifications."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.incremental.chunks_per_window import WindowSize
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector
from tests.support.signals import list_notifications, scans, send, signal_state, snapshot

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
DOCUMENTED = "CREATE TABLE {} (ID VARCHAR2(42) PRIMARY KEY, TYPE VARCHAR2(32) NOT NULL, DATA VARCHAR2(2048) NULL)"


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    """A table of 25 products, and the signal table of the documents."""
    columns = "ID NUMBER(9) PRIMARY KEY, COLOR VARCHAR2(9), QUANTITY NUMBER(9)"
    schema.sql(f"CREATE TABLE PRODUCTS ({columns})", LOGGED.format("PRODUCTS"))
    schema.sql(*(f"INSERT INTO PRODUCTS VALUES ({i}, '{'blue' if i % 2 else 'red'}', {i})" for i in range(25)))
    schema.sql(DOCUMENTED.format("DEBEZIUM_SIGNAL"), LOGGED.format("DEBEZIUM_SIGNAL"))
    schema.sql(f"GRANT SELECT, INSERT, DELETE ON DEBEZIUM_SIGNAL TO {schema.user}")
    return schema


@pytest.fixture
def connector_factory(db: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that has begun to stream, and has read no row."""

    def make(**properties: Any) -> Connector:
        options = {
            "table_include_list": r"APP\.PRODUCTS", "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10,
            "signal_poll_interval_ms": 50,
        }  # fmt: skip
        connector = oracle_connector(db, tmp_path, **options | properties)
        connector.replay.partial = True
        connector.capture()
        return connector

    return make


@pytest.mark.parametrize("name", ["APP.PRODUCTS", "ORCLPDB1.APP.PRODUCTS", '"APP"."PRODUCTS"', r"ORCLPDB1\.APP\.P.*"])
def test_a_table_is_named_with_its_database_or_without(connector_factory: Callable[..., Connector], name: str) -> None:
    connector = connector_factory()
    conditions = [{"data-collection": name, "filter": "COLOR = 'blue' AND QUANTITY > 20"}]
    number = snapshot(connector, name, additional_conditions=conditions)
    found = of_table(capture_records(connector), "PRODUCTS")
    assert signal_state(connector, number) == ("done", "")
    assert [r["value"]["after"]["ID"] for r in found] == [21, 23]
    assert {(r["value"]["op"], r["value"]["source"]["snapshot"], r["value"]["before"]) for r in found} == {
        ("r", "incremental", None)
    }


@pytest.mark.parametrize("named", ["ORCLPDB1.APP.DEBEZIUM_SIGNAL", "APP.DEBEZIUM_SIGNAL"])
def test_the_statement_of_the_documents_has_a_table_read(
    db: Oracle, connector_factory: Callable[..., Connector], named: str
) -> None:
    allowed = "source:execute-snapshot,additional-conditions"
    connector = connector_factory(signal_data_collection=named, signal_allowed_types=allowed)
    db.sql(
        "INSERT INTO DEBEZIUM_SIGNAL (ID, TYPE, DATA) VALUES ('ad-hoc-1', 'execute-snapshot', "
        '\'{"data-collections": ["APP.PRODUCTS"],"type":"incremental","additional-condition":"QUANTITY < 3"}\')'
    )
    connector.capture()
    connector.capture()
    assert [row["ID"] for row in connector.rows("APP.PRODUCTS")] == [0, 1, 2]
    (signal,) = connector.store.signals_of("test", limit=5)
    assert (signal.id, signal.channel, signal.state) == ("ad-hoc-1", "source", "done")


def test_chunks_report_the_progress_of_their_table_and_its_pauses(
    connector_factory: Callable[..., Connector],
) -> None:
    connector = connector_factory()
    number = snapshot(connector, "APP.PRODUCTS")
    send(connector, "pause-snapshot")
    paused = connector.capture(run_for_s=1.5).metrics["incremental-snapshot"]
    assert paused["SnapshotPaused"] is True
    assert 1 <= paused["SnapshotPausedDurationInSeconds"] < 60
    send(connector, "resume-snapshot")
    found = connector.capture().metrics["incremental-snapshot"]
    assert signal_state(connector, number) == ("done", "")
    # the last two chunks may share a window
    assert (found["ChunkId"], found["ChunkFrom"], found["ChunkTo"]) in (("3", "[19]", "[24]"), ("2", "[9]", "[24]"))
    assert (found["TableFrom"], found["TableTo"]) == ("[0]", "[24]")
    assert (found["SnapshotPaused"], found["RowsScanned"]) == (False, {"APP.PRODUCTS": 25})


def test_a_table_without_a_key_of_its_own_is_read_by_its_row_ids(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE BAG (A NUMBER(9) NOT NULL, B NUMBER(9))", LOGGED.format("BAG"))
    db.sql(*(f"INSERT INTO BAG VALUES ({i}, {i})" for i in range(25)))
    connector = connector_factory(table_include_list="APP.BAG", message_key_columns="APP.BAG:A")
    number = snapshot(connector, "APP.BAG", surrogate_key="ROWID")
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    assert sorted(row["A"] for row in connector.rows("APP.BAG")) == list(range(25))


def test_a_snapshot_on_demand_is_notified_under_the_id_of_its_signal(
    db: Oracle, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowSize, "compute_chunk_count", lambda *_: 1)
    db.sql("CREATE TABLE BARE (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("BARE"))
    connector = connector_factory(table_include_list=r"APP\.(PRODUCTS|BARE)", batch_max_rows=1)
    snapshot(connector, "APP.PRODUCTS", "APP.BARE", id_="ad-hoc-1")
    send(connector, "pause-snapshot", id_="ad-hoc-2")
    send(connector, "resume-snapshot", id_="ad-hoc-3")
    connector.capture()
    rows = [row.notification for row in connector.store.list_notifications("test", after=0, limit=1000)]
    found = [n for n in rows if n.aggregate_type == "Incremental Snapshot"]
    name = {"connector_name": "test"}
    both = name | {"data_collections": "APP.PRODUCTS, APP.BARE"}
    progress = both | {"current_collection_in_progress": "APP.PRODUCTS", "maximum_key": "[24]"}
    assert [(n.type, n.additional_data) for n in found] == [
        ("STARTED", both), ("PAUSED", name), ("RESUMED", name),
        ("IN_PROGRESS", progress | {"last_processed_key": "[9]", "total_rows_scanned": "10"}),
        ("IN_PROGRESS", progress | {"last_processed_key": "[19]", "total_rows_scanned": "20"}),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "APP.PRODUCTS", "total_rows_scanned": "25", "status": "SUCCEEDED"}),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "APP.BARE", "total_rows_scanned": "0", "status": "EMPTY"}),
        ("COMPLETED", name),
    ]  # fmt: skip
    assert {n.id for n in found} == {"ad-hoc-1"}


def test_a_table_that_is_not_read_says_why_by_its_status(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE KEYLESS (A NUMBER(9))", "INSERT INTO KEYLESS VALUES (1)", LOGGED.format("KEYLESS"))
    for table in ("GONE", "FILTERED", "OTHER"):
        db.sql(f"CREATE TABLE {table} (ID NUMBER(9) PRIMARY KEY, N NUMBER(9))", LOGGED.format(table))
        db.sql(f"INSERT INTO {table} VALUES (1, 1)")
    connector = connector_factory(table_include_list=r"APP\.(PRODUCTS|KEYLESS|GONE|FILTERED|OTHER)")
    conditions = [{"data-collection": "APP.FILTERED", "filter": "N <> <>"}]
    names = [f"APP.{table}" for table in ("KEYLESS", "GONE", "PRODUCTS", "FILTERED")]
    number = snapshot(connector, *names, additional_conditions=conditions)
    other = snapshot(connector, "APP.OTHER", surrogate_key="N")
    db.sql("DROP TABLE GONE")
    connector.capture()
    assert scans(connector) == {
        "APP.KEYLESS": "NO_PRIMARY_KEY", "APP.GONE": "UNKNOWN_SCHEMA", "APP.PRODUCTS": "SUCCEEDED", "APP.FILTERED": "SQL_EXCEPTION",
        "APP.OTHER": "SKIPPED",
    }  # fmt: skip
    assert signal_state(connector, number)[0] == signal_state(connector, other)[0] == "failed"
    messages = {data.get("scanned_collection"): data.get("message", "") for _, data in list_notifications(connector)}
    assert "APP.KEYLESS has no key" in messages["APP.KEYLESS"]
    assert messages["APP.PRODUCTS"] == ""


def test_a_structure_of_a_signal_is_taken_over_without_a_restart(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    columns = [
        {"name": "ID", "jdbcType": 2, "typeName": "NUMBER", "typeExpression": "NUMBER", "charsetName": None, "length": 9,
         "scale": 0, "position": 1, "optional": False, "autoIncremented": False, "generated": False},
        {"name": "COLOR", "jdbcType": 12, "typeName": "VARCHAR2", "typeExpression": "VARCHAR2", "charsetName": None, "length": 40,
         "scale": None, "position": 2, "optional": True, "autoIncremented": False, "generated": False},
        {"name": "QUANTITY", "jdbcType": 2, "typeName": "NUMBER", "typeExpression": "NUMBER", "charsetName": None, "length": 9,
         "scale": 0, "position": 3, "optional": True, "autoIncremented": False, "generated": False},
    ]  # fmt: skip
    change = {"type": "ALTER", "id": '"ORCLPDB1"."APP"."PRODUCTS"', "table": {
        "defaultCharsetName": None, "primaryKeyColumnNames": ["ID"], "columns": columns,
    }}  # fmt: skip
    number = send(connector, "schema-changes", {"database": "ORCLPDB1", "schema": "APP", "changes": [change]})
    (record,) = capture_records(connector)
    assert signal_state(connector, number) == ("done", "adopted the structure of APP.PRODUCTS")
    reported = record["value"]["tableChanges"][0]["table"]
    assert [c["length"] for c in reported["columns"] if c["name"] == "COLOR"] == [40]
    assert json.dumps(reported["primaryKeyColumnNames"]) == '["ID"]'
