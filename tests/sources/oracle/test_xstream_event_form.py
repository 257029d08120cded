"""The XStream form of a change log that was captured from the test server. See "XStream" in ``docs/sources/oracle.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRecord, DebeziumRenderer
from airflow_provider_cdc.sources.oracle.xstream_event_form import XSTREAM, lcr_position
from dev.servers import Oracle
from tests.sources.oracle_adapter import oracle_connector

PLACEHOLDER = "__debezium_unavailable_value"
FIELDS = [
    "version", "connector", "name", "db", "schema", "table", "snapshot", "txId", "ts_ms", "ts_us", "ts_ns", "scn",
    "lcr_position", "user_name", "row_id",
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Oracle]:
    """With two RAC instances."""
    with Oracle({"threads": 2}) as server:
        yield server


@pytest.fixture(scope="module")
def records(server: Oracle, tmp_path_factory: pytest.TempPathFactory) -> list[DebeziumRecord]:
    server.sql(
        "CREATE TABLE parts (part_id NUMBER(9) PRIMARY KEY, label VARCHAR2(80) NOT NULL, notes CLOB)",
        "ALTER TABLE parts ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        "INSERT INTO parts VALUES (501, 'bolt M6', 'zinc coated')",
    )
    connector = oracle_connector(
        server, tmp_path_factory.mktemp("xstream"), schema_include_list="APP", lob_enabled=True, log_mining_strategy="redo_log_catalog",
        provide_transaction_metadata=True
    )  # fmt: skip
    connector.capture()
    with server.connect() as one, server.connect(thread=2) as two:
        one.cursor().execute("INSERT INTO parts VALUES (600, 'begun first', NULL)")
        two.cursor().execute("INSERT INTO parts VALUES (601, 'committed first', NULL)")
        two.commit()
        one.commit()
    server.sql("UPDATE parts SET label = 'bolt M8' WHERE part_id = 501")
    server.sql("UPDATE parts SET notes = 'galvanized' WHERE part_id = 501")
    server.sql("UPDATE parts SET part_id = 9501 WHERE part_id = 501")
    server.sql("ALTER TABLE parts ADD (price NUMBER(10,2))")
    server.sql("DELETE FROM parts WHERE part_id = 600")
    server.sql("TRUNCATE TABLE parts")
    connector.capture()
    return list(DebeziumRenderer(connector.changelog, connector.name, schemas=True, form=XSTREAM).render_records())


def _values(records: list[DebeziumRecord], *ops: str) -> list[dict[str, Any]]:
    return [r.value for r in records if r.value and r.value.get("op") in ops]


def test_the_source_block_has_the_fields_of_that_form_and_no_others(records: list[DebeziumRecord]) -> None:
    blocks = [value["source"] for value in _values(records, "r", "c", "u", "d", "t")]
    assert {tuple(block) for block in blocks} == {tuple(FIELDS)}
    assert {b["connector"] for b in blocks} == {"oracle_xstream"}
    assert {(b["db"], b["schema"], b["table"]) for b in blocks} == {("ORCLPDB1", "APP", "PARTS")}
    created = _values(records, "c")[0]["source"]
    assert created["ts_ns"] == created["ts_us"] * 1000
    assert created["ts_ms"] == created["ts_us"] // 1000
    assert created["snapshot"] == "false"
    assert created["user_name"] == "APP"
    assert len(created["row_id"]) == 18
    assert created["txId"]
    assert int(created["scn"]) > 0


def test_a_snapshot_has_no_position_user_or_row_id(records: list[DebeziumRecord]) -> None:
    (read,) = _values(records, "r")
    assert {n: read["source"][n] for n in ("lcr_position", "user_name", "row_id", "txId")} == {
        "lcr_position": None, "user_name": None, "row_id": None, "txId": None,
    }  # fmt: skip
    assert int(read["source"]["scn"]) > 0
    assert read["source"]["snapshot"] != "false"


def test_positions_have_one_length_and_the_order_of_the_commits(records: list[DebeziumRecord]) -> None:
    changes = [r for r in records if r.value and r.value["source"]["snapshot"] == "false"]
    positions = [r.value["source"]["lcr_position"] for r in changes if r.value]
    assert {len(p) for p in positions} == {48}
    assert positions == sorted(set(positions))
    assert len(positions) == 9  # eight events, one DDL
    created = [v["after"]["PART_ID"] for v in _values(records, "c")]
    assert created == [601, 600, 9501]


def test_a_later_commit_has_a_greater_position_though_it_began_earlier() -> None:
    assert lcr_position(scn=10, commit_scn=40, seq=2) > lcr_position(scn=20, commit_scn=30, seq=1)
    assert lcr_position(scn=99, commit_scn=40, seq=3) < lcr_position(scn=20, commit_scn=40, seq=4)
    assert lcr_position(scn=1, commit_scn=1 << 48, seq=1) > lcr_position(scn=1, commit_scn=(1 << 48) - 1, seq=1)


def test_lobs_that_a_change_left_alone_are_placeholders(records: list[DebeziumRecord]) -> None:
    relabelled, rewritten = _values(records, "u")
    assert relabelled["after"] == {"PART_ID": 501, "LABEL": "bolt M8", "NOTES": PLACEHOLDER}
    assert (rewritten["before"]["NOTES"], rewritten["after"]["NOTES"]) == (PLACEHOLDER, "galvanized")


def test_a_key_change_is_delete_tombstone_and_create_with_the_lob_as_placeholder(records: list[DebeziumRecord]) -> None:
    at = next(i for i, r in enumerate(records) if r.value and r.value.get("op") == "d")
    deleted, tombstone, created = records[at : at + 3]
    assert (deleted.key, tombstone.key, created.key) == ({"PART_ID": 501}, {"PART_ID": 501}, {"PART_ID": 9501})
    assert tombstone.value is None
    assert created.value is not None
    assert created.value["op"] == "c"
    assert created.value["after"] == {"PART_ID": 9501, "LABEL": "bolt M8", "NOTES": PLACEHOLDER}


def test_transactions_are_in_the_schema_only(records: list[DebeziumRecord]) -> None:
    assert {v["transaction"] for v in _values(records, "r", "c", "u", "d", "t")} == {None}
    assert [r for r in records if r.topic.endswith(".transaction")] == []
    schema = next(r.value_schema for r in records if r.value and "op" in r.value)
    described = {f["field"]: f for f in schema["fields"]}
    assert described["transaction"]["name"] == "event.block"
    assert described["source"]["name"] == "io.confluent.connect.oracle.xstream.Source"
    assert [f["field"] for f in described["source"]["fields"]] == FIELDS
    assert schema["version"] == 2
    assert list(described) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
