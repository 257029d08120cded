"""Records of Oracle: the examples of the document from real changes, field by field."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc import __version__
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, of_table, row_fields
from tests.support.connectors import Connector

UNAVAILABLE = "__debezium_unavailable_value"
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
PARTS = (
    "CREATE TABLE PARTS (PART_ID NUMBER(9) NOT NULL PRIMARY KEY, LABEL VARCHAR2(80) NOT NULL, PRICE NUMBER(10,2), "
    "MADE_AT TIMESTAMP, NOTES CLOB)"
)
BOLT = "INSERT INTO SHOP.PARTS VALUES (501, 'bolt M6', 0.18, TIMESTAMP '2024-03-20 08:00:00', 'zinc coated')"
NUT = "INSERT INTO SHOP.PARTS VALUES (502, 'nut M6', 0.09, TIMESTAMP '2024-03-20 09:05:00.123456', NULL)"
BOLT_ROW = {
    "PART_ID": 501,
    "LABEL": "bolt M6",
    "PRICE": "0.18",
    "MADE_AT": 1710921600000000,
    "NOTES": "zinc coated",
}
NUT_ROW = {"PART_ID": 502, "LABEL": "nut M6", "PRICE": "0.09", "MADE_AT": 1710925500123456, "NOTES": None}
DOCUMENTED = {
    "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "schema", "table", "txId", "scn", "commit_scn",
    "lcr_position", "rs_id", "ssn", "redo_thread", "user_name",
}  # fmt: skip
USERS = ("SHOP", "SHOP_APP", "SHOP_ADM")


@pytest.fixture
def shop_server(oracle: Oracle) -> Iterator[Oracle]:
    """The shared server with the schema SHOP, and two other users who may change what is in it."""
    for user in USERS:
        oracle.admin(f"CREATE USER {user} IDENTIFIED BY secret QUOTA UNLIMITED ON users")
        oracle.admin(f"GRANT CREATE SESSION, CREATE TABLE TO {user}")
    try:
        yield oracle
    finally:
        for user in USERS:
            oracle.admin(f"DROP USER {user} CASCADE")


@pytest.fixture
def run_statements(shop_server: Oracle) -> Callable[..., None]:
    """Run statements in one transaction of a user, the owner by default."""
    return lambda *statements, user="SHOP": shop_server.sql(*statements, user=user, password="secret") and None


@pytest.fixture
def parts_table(shop_server: Oracle, run_statements: Callable[..., None]) -> Oracle:
    """The table of the document's examples, with one row."""
    run_statements(PARTS, LOGGED.format("PARTS"))
    run_statements(BOLT, "GRANT SELECT, INSERT, UPDATE, DELETE ON PARTS TO SHOP_APP", "GRANT ALL ON PARTS TO SHOP_ADM")
    return shop_server


@pytest.fixture
def connector_factory(shop_server: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector with the properties of the document's examples."""
    given = {
        "schema_include_list": "SHOP", "topic_prefix": "plant7", "decimal_handling_mode": "string", "lob_enabled": True, "log_mining_strategy": "redo_log_catalog",
        "include_schema_changes": False,
    }  # fmt: skip
    return lambda **properties: oracle_connector(shop_server, tmp_path, **given | properties)


def _source(server: Oracle, **more: Any) -> Record:
    """Return the fields of the ``source`` block that are the same for every change."""
    return {
        "version": __version__, "connector": "oracle", "name": "plant7", "db": server.pdb, "sequence": None, "schema": "SHOP",
        "table": "PARTS", "lcr_position": None, "snapshot": "false", **more,
    }  # fmt: skip


def _assert_has(block: Record, expected: Record) -> None:
    assert {name: block[name] for name in expected} == expected


def _assert_logged(server: Oracle, block: Record, user: str) -> None:
    """A ``source`` block of a row in the log."""
    _assert_has(block, _source(server, user_name=user, redo_thread=1))
    assert re.fullmatch(r"\d+\.\d+\.\d+", block["txId"])
    assert int(block["scn"]) < int(block["commit_scn"])
    assert re.fullmatch(r"(0x)?[0-9a-f]{6}\.[0-9a-f]{8}\.[0-9a-f]{4}", block["rs_id"])
    assert isinstance(block["ssn"], int)


# the examples of the document


def test_a_row_of_a_snapshot_is_that_of_the_document(
    parts_table: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    before = int(time.time() * 1000) - 1000
    (record,) = capture_records(connector_factory())
    assert (record["topic"], record["key"]) == ("plant7.SHOP.PARTS", {"PART_ID": 501})
    value = record["value"]
    _assert_has(value, {"before": None, "after": BOLT_ROW, "op": "r", "transaction": None})
    block = value["source"]
    nothing = dict.fromkeys(("txId", "commit_scn", "rs_id", "redo_thread", "user_name"))
    _assert_has(block, _source(parts_table, snapshot="last", ssn=0, **nothing))
    assert re.fullmatch(r"\d+", block["scn"])
    assert int(block["scn"]) <= parts_table.scn()
    assert before <= block["ts_ms"] <= value["ts_ms"]
    assert set(value) == {"before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"}
    assert set(block) == DOCUMENTED | {"ts_us", "ts_ns", "row_id"}
    assert block["row_id"] is None


def test_create_update_and_delete_are_those_of_the_document(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    run_statements(NUT, user="SHOP_APP")
    run_statements("UPDATE SHOP.PARTS SET PRICE = 0.21 WHERE PART_ID = 501", user="SHOP_APP")
    run_statements("DELETE FROM SHOP.PARTS WHERE PART_ID = 502", user="SHOP_ADM")
    created, updated, deleted, tombstone = capture_records(connector)
    assert [r["key"]["PART_ID"] for r in (created, updated, deleted, tombstone)] == [502, 501, 502, 502]
    _assert_has(created["value"], {"before": None, "after": NUT_ROW, "op": "c", "transaction": None})
    old = BOLT_ROW | {"NOTES": UNAVAILABLE}
    _assert_has(updated["value"], {"before": old, "after": old | {"PRICE": "0.21"}, "op": "u", "transaction": None})
    _assert_has(
        deleted["value"],
        {"before": NUT_ROW | {"NOTES": UNAVAILABLE}, "after": None, "op": "d", "transaction": None},
    )
    assert tombstone["value"] is None
    for record, user in ((created, "SHOP_APP"), (updated, "SHOP_APP"), (deleted, "SHOP_ADM")):
        _assert_logged(parts_table, record["value"]["source"], user)
    transactions = [r["value"]["source"]["txId"] for r in (created, updated, deleted)]
    assert len(set(transactions)) == 3


def test_a_change_of_the_key_is_that_of_the_document(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    run_statements("UPDATE PARTS SET PART_ID = 9501 WHERE PART_ID = 501")
    gone, tombstone, came = capture_records(connector)
    assert [r["key"] for r in (gone, tombstone, came)] == [{"PART_ID": 501}, {"PART_ID": 501}, {"PART_ID": 9501}]
    row = BOLT_ROW | {"NOTES": UNAVAILABLE}
    _assert_has(gone["value"], {"op": "d", "before": row, "after": None})
    assert tombstone["value"] is None
    _assert_has(came["value"], {"op": "c", "before": None, "after": row | {"PART_ID": 9501}})
    assert gone["value"]["source"] == came["value"]["source"]


def test_without_tombstones_a_change_of_the_key_is_a_delete_and_a_create(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory(tombstones_on_delete=False)
    capture_records(connector)
    run_statements("UPDATE PARTS SET PART_ID = 9501 WHERE PART_ID = 501", "DELETE FROM PARTS")
    found = capture_records(connector)
    assert [(r["key"]["PART_ID"], r["value"]["op"]) for r in found] == [(501, "d"), (9501, "c"), (9501, "d")]


def test_a_unique_key_changes_as_a_primary_key_does(
    shop_server: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    run_statements("CREATE TABLE T (CODE VARCHAR2(9) NOT NULL UNIQUE, V NUMBER(9))", LOGGED.format("T"))
    run_statements("INSERT INTO T VALUES ('a', 1)")
    connector = connector_factory()
    capture_records(connector)
    run_statements("UPDATE T SET CODE = 'b'", "UPDATE T SET V = 2")
    found = capture_records(connector)
    assert [(r["key"]["CODE"], r["value"] and r["value"]["op"]) for r in found] == [
        ("a", "d"), ("a", None), ("b", "c"), ("b", "u"),
    ]  # fmt: skip


def test_a_truncate_is_that_of_the_document(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    run_statements(NUT)
    run_statements("TRUNCATE TABLE PARTS")
    run_statements(NUT)
    before, (record), after = capture_records(connector)
    assert [r["value"]["op"] for r in (before, record, after)] == ["c", "t", "c"]  # a barrier in the table's one order
    assert (record["topic"], record["key"]) == ("plant7.SHOP.PARTS", None)
    _assert_has(record["value"], {"before": None, "after": None})
    block = record["value"]["source"]
    assert set(block) == set(before["value"]["source"])
    _assert_has(block, _source(parts_table, user_name="SHOP", redo_thread=1))
    assert int(before["value"]["source"]["scn"]) < int(block["scn"]) < int(after["value"]["source"]["scn"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", block["txId"])
    assert block["commit_scn"] is None  # the statement stands in the log before its commit


@pytest.mark.parametrize(
    ("skipped", "letters"), [("none", "cudt"), ("t", "cud"), ("c", "udt"), ("u,d", "ct"), ("c,u,d,t", "")]
)
def test_skipped_operations_are_left_out_of_the_stream_alone(
    parts_table: Oracle,
    connector_factory: Callable[..., Connector],
    run_statements: Callable[..., None],
    skipped: str,
    letters: str,
) -> None:
    connector = connector_factory(skipped_operations=skipped, tombstones_on_delete=False)
    assert [r["value"]["op"] for r in capture_records(connector)] == ["r"]
    run_statements(NUT, "UPDATE PARTS SET PRICE = 1 WHERE PART_ID = 502", "DELETE FROM PARTS WHERE PART_ID = 502")
    run_statements("TRUNCATE TABLE PARTS")
    assert "".join(r["value"]["op"] for r in capture_records(connector)) == letters


def test_updates_that_change_no_captured_column_can_be_left_out(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    statements = (
        "UPDATE PARTS SET PRICE = PRICE",
        "UPDATE PARTS SET MADE_AT = TIMESTAMP '2024-03-21 08:00:00'",
        "UPDATE PARTS SET LABEL = 'bolt M8'",
        "UPDATE PARTS SET NOTES = 'zinc'",
        "UPDATE PARTS SET PRICE = NULL",
        "UPDATE PARTS SET PRICE = NULL, LABEL = 'bolt M8'",
    )
    connector = connector_factory(skip_messages_without_change=True, column_exclude_list="SHOP.PARTS.MADE_AT")
    capture_records(connector)
    for statement in statements:
        run_statements(statement)
    found = capture_records(connector)
    assert [
        {n: v for n, v in r["value"]["after"].items() if v != r["value"]["before"][n]} for r in found
    ] == [{"LABEL": "bolt M8"}, {"NOTES": "zinc"}, {"PRICE": None}]  # fmt: skip
    run_statements("UPDATE PARTS SET PRICE = PRICE")
    assert len(capture_records(connector)) == 0
    del connector.properties["skip.messages.without.change"]
    run_statements("UPDATE PARTS SET PRICE = PRICE")
    assert len(capture_records(connector)) == 1, "by default each is told"


def test_every_update_is_captured_by_default(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    run_statements("UPDATE PARTS SET PRICE = PRICE")
    (record,) = capture_records(connector)
    assert (record["value"]["op"], record["value"]["before"]) == ("u", record["value"]["after"])


# the schema of a record


def test_before_and_after_are_one_schema_that_is_the_tables_own(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    run_statements(
        "CREATE TABLE OTHER (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("OTHER"), "INSERT INTO OTHER VALUES (1)"
    )
    connector = connector_factory()
    found = capture_records(connector, schemas=True)
    (other,) = of_table(found, "OTHER")
    run_statements(NUT, "UPDATE PARTS SET PRICE = 1 WHERE PART_ID = 502", "DELETE FROM PARTS WHERE PART_ID = 502")
    found = [r for r in [*of_table(found, "PARTS"), *capture_records(connector, schemas=True)] if r["value"]]
    assert [r["value"]["payload"]["op"] for r in found] == ["r", "c", "u", "d"]
    schemas = [r["value"]["schema"] for r in found]
    assert all(s == schemas[0] for s in schemas)
    assert (schemas[0]["name"], schemas[0]["optional"]) == ("plant7.SHOP.PARTS.Envelope", False)
    fields = {f["field"]: f for f in schemas[0]["fields"]}
    for image in ("before", "after"):
        _assert_has(fields[image], {"type": "struct", "name": "plant7.SHOP.PARTS.Value", "optional": True})
        assert {f["field"]: f["optional"] for f in fields[image]["fields"]} == {
            "PART_ID": False, "LABEL": False, "PRICE": True, "MADE_AT": True, "NOTES": True,
        }  # fmt: skip
    assert fields["before"]["fields"] == fields["after"]["fields"]
    _assert_has(fields["op"], {"type": "string", "optional": False})
    assert fields["transaction"]["optional"]
    for name in ("ts_ms", "ts_us", "ts_ns"):
        _assert_has(fields[name], {"type": "int64", "optional": True})
    assert other["value"]["schema"]["name"] == "plant7.SHOP.OTHER.Envelope"
    assert list(row_fields(other)) == ["ID"]


def test_a_schema_changes_with_its_table_and_travels_with_each_record(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    run_statements(NUT, "ALTER TABLE PARTS ADD (WEIGHT NUMBER(4) DEFAULT 3 NOT NULL)", "UPDATE PARTS SET PRICE = 1")
    found = capture_records(connector, schemas=True)
    assert [list(row_fields(r)) for r in found] == [[*BOLT_ROW], [*BOLT_ROW, "WEIGHT"], [*BOLT_ROW, "WEIGHT"]]
    assert row_fields(found[1])["WEIGHT"] == {"type": "int16", "optional": False, "default": 3, "field": "WEIGHT"}


def test_the_source_block_has_the_documented_types_and_nothing_of_mysql(
    parts_table: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    (record,) = capture_records(connector_factory(), schemas=True)
    described = next(f for f in record["value"]["schema"]["fields"] if f["field"] == "source")
    assert (described["name"], described["type"], described["optional"]) == (
        "io.debezium.connector.oracle.Source", "struct", False,
    )  # fmt: skip
    kinds = {f["field"]: (f["type"], f["optional"]) for f in described["fields"]}
    required = dict.fromkeys(("version", "connector", "name", "db"), ("string", False)) | {"ts_ms": ("int64", False)}
    texts = (
        "snapshot", "sequence", "schema", "table", "txId", "scn", "commit_scn", "lcr_position", "rs_id", "user_name", "row_id",
    )  # fmt: skip
    optional = dict.fromkeys(texts, ("string", True)) | dict.fromkeys(("ts_us", "ts_ns", "ssn"), ("int64", True))
    assert kinds == required | optional | {"redo_thread": ("int32", True)}
    snapshot = next(f for f in described["fields"] if f["field"] == "snapshot")
    _assert_has(snapshot, {"name": "io.debezium.data.Enum", "default": "false"})
    assert {"true", "last", "false", "incremental"} <= set(snapshot["parameters"]["allowed"].split(","))


# times and places


def test_times_are_when_the_change_was_made_and_when_it_was_captured(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    changed = int(time.time())
    run_statements(NUT)
    captured_from = time.time_ns()
    (record,) = capture_records(connector)
    value = record["value"]
    assert captured_from <= value["ts_ns"] <= time.time_ns()
    assert (value["ts_us"], value["ts_ms"]) == (value["ts_ns"] // 1000, value["ts_ns"] // 10**6)
    source = value["source"]
    assert changed * 1000 <= source["ts_ms"] <= captured_from // 10**6
    assert (source["ts_us"], source["ts_ns"]) == (source["ts_ms"] * 1000, source["ts_ms"] * 10**6)
    assert 0 <= value["ts_ms"] - source["ts_ms"] < 60_000  # the lag


def test_a_transaction_has_one_commit_and_its_rows_have_places_of_their_own(
    parts_table: Oracle, connector_factory: Callable[..., Connector], run_statements: Callable[..., None]
) -> None:
    connector = connector_factory(provide_transaction_metadata=True)
    capture_records(connector)
    with closing(parts_table.connect(user="SHOP", password="secret")) as late, late.cursor() as cursor:
        cursor.execute(NUT)
        run_statements(
            "UPDATE PARTS SET PRICE = 1 WHERE PART_ID = 501", "UPDATE PARTS SET PRICE = 2 WHERE PART_ID = 501"
        )
        cursor.execute("UPDATE PARTS SET PRICE = 3 WHERE PART_ID = 502")
        late.commit()
    found = of_table(capture_records(connector), "PARTS")
    blocks = [r["value"]["source"] for r in found]
    assert [r["key"]["PART_ID"] for r in found] == [501, 501, 502, 502]  # by their commits
    assert [b["txId"] == blocks[0]["txId"] for b in blocks] == [True, True, False, False]
    assert [b["commit_scn"] == blocks[0]["commit_scn"] for b in blocks] == [True, True, False, False]
    assert int(blocks[2]["scn"]) < int(blocks[0]["scn"]) < int(blocks[0]["commit_scn"]) < int(blocks[3]["commit_scn"])
    assert len({(b["scn"], b["rs_id"], b["ssn"]) for b in blocks}) == 4
    assert [(r["value"]["transaction"]["id"], r["value"]["transaction"]["total_order"]) for r in found] == [
        (b["txId"], order) for b, order in zip(blocks, (1, 2, 1, 2), strict=True)
    ]
    del connector.properties["provide.transaction.metadata"]
    run_statements("UPDATE PARTS SET PRICE = 4")
    assert {r["value"]["transaction"] for r in capture_records(connector)} == {None}, "by default none are told"
