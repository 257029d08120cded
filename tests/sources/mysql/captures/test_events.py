"""Records of MySQL: keys, the ``source`` block, schemas, transactions, schema changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc import __version__
from tests.support.change_log.rendered import Record, capture_records, of_table, row_fields
from tests.support.connectors import Connector, mysql_connector

SOURCE = "io.debezium.connector.mysql.Source"


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("records") as database:
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that captures the database, under the prefix ``srv``."""
    return lambda **properties: mysql_connector(
        db.server, tmp_path, "mysql", **{"database_include_list": db.name, "topic_prefix": "srv", **properties}
    )


def _values(found: list[Record]) -> list[Record]:
    return [r["value"] for r in found]


# keys


def test_the_key_is_the_primary_key_else_a_unique_one_else_the_configured_one(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE customers (id INT NOT NULL, name VARCHAR(9), PRIMARY KEY (id))")
    db.sql("CREATE TABLE pair (b INT NOT NULL, a VARCHAR(5) NOT NULL, c INT, PRIMARY KEY (a, b), UNIQUE KEY (b))")
    db.sql("CREATE TABLE only_unique (c INT, u INT NOT NULL, UNIQUE KEY (u))")
    db.sql("CREATE TABLE loose (x INT, y INT)")
    db.sql("CREATE TABLE named (x INT, y INT)")
    for table in ("customers VALUES (1001, 'a')", "pair VALUES (2, 'x', 3)", "only_unique VALUES (3, 4)"):
        db.sql(f"INSERT INTO {table}")
    db.sql("INSERT INTO loose VALUES (1, 2)", "INSERT INTO named VALUES (1, 2)")
    connector = connector_factory(message_key_columns=rf"{db.name}.nam(.*):y,x;elsewhere.t:a")
    keys = {r["topic"].rpartition(".")[2]: r["key"] for r in capture_records(connector, schemas=True)}
    assert keys["customers"] == {
        "schema": {
            "type": "struct", "name": f"srv.{db.name}.customers.Key", "optional": False,
            "fields": [{"field": "id", "type": "int32", "optional": False}],
        },
        "payload": {"id": 1001},
    }  # fmt: skip
    assert list(keys["pair"]["payload"].items()) == [("a", "x"), ("b", 2)]
    assert keys["pair"]["schema"]["name"] == f"srv.{db.name}.pair.Key"
    assert keys["only_unique"]["payload"] == {"u": 4}
    assert list(keys["named"]["payload"].items()) == [("y", 2), ("x", 1)]
    assert keys["loose"] is None


def test_configured_keys_win_over_the_primary_key_and_change_as_it_does(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
    connector = connector_factory(message_key_columns=f"{db.name}.t:k")
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (1, 7, 0)", "UPDATE t SET id = 2", "UPDATE t SET k = 8")
    found = of_table(capture_records(connector), "t")
    assert [(r["key"], r["value"] and r["value"]["op"]) for r in found] == [
        ({"k": 7}, "c"), ({"k": 7}, "u"), ({"k": 7}, "d"), ({"k": 7}, None), ({"k": 8}, "c"),
    ]  # fmt: skip


def test_the_key_is_that_of_the_time_of_the_event(db: Any, connector_factory: Callable[..., Connector]) -> None:
    db.sql("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a))")
    connector = connector_factory()
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (1, 2)", "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)")
    db.sql("INSERT INTO t VALUES (3, 4)", "ALTER TABLE t DROP PRIMARY KEY")
    assert [r["key"] for r in of_table(capture_records(connector), "t") if r["value"]["op"] == "c"] == [
        {"a": 1},
        {"b": 4},
    ]


# values


def test_before_and_after_are_whole_rows_and_name_their_schemas(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), w INT)", "INSERT INTO t VALUES (1, 'r', NULL)")
    connector = connector_factory()
    found = of_table(capture_records(connector, schemas=True), "t")
    db.sql("INSERT INTO t VALUES (2, 'c', 5)", "UPDATE t SET w = 6 WHERE id = 2", "DELETE FROM t WHERE id = 2")
    found += of_table(capture_records(connector, schemas=True), "t")
    payloads = [r["value"]["payload"] for r in found if r["value"]]
    old, new = {"id": 2, "v": "c", "w": 5}, {"id": 2, "v": "c", "w": 6}
    assert [(p["op"], p["before"], p["after"]) for p in payloads] == [
        ("r", None, {"id": 1, "v": "r", "w": None}), ("c", None, old), ("u", old, new), ("d", new, None),
    ]  # fmt: skip
    assert (found[-1]["key"]["payload"], found[-1]["value"]) == ({"id": 2}, None)
    schemas = [r["value"]["schema"] for r in found if r["value"]]
    assert all(s == schemas[0] for s in schemas)
    assert (schemas[0]["name"], schemas[0]["optional"]) == (f"srv.{db.name}.t.Envelope", False)
    fields = {f["field"]: f for f in schemas[0]["fields"]}
    for image in ("before", "after"):
        assert (fields[image]["type"], fields[image]["name"], fields[image]["optional"]) == (
            "struct", f"srv.{db.name}.t.Value", True,
        )  # fmt: skip
    assert (fields["op"]["type"], fields["op"]["optional"]) == ("string", False)
    assert (fields["source"]["name"], fields["source"]["optional"]) == (SOURCE, False)
    assert fields["transaction"]["optional"]
    for name in ("ts_ms", "ts_us", "ts_ns"):
        assert (fields[name]["type"], fields[name]["optional"]) == ("int64", True)


def test_the_schema_of_values_stays_until_the_table_changes(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    connector = connector_factory()
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (1, 1)", "UPDATE t SET v = 2", "ALTER TABLE t ADD w SMALLINT NOT NULL DEFAULT 3")
    db.sql("UPDATE t SET v = 4", "DELETE FROM t")
    found = [r for r in of_table(capture_records(connector, schemas=True), "t") if r["value"]]
    assert [list(row_fields(r)) for r in found] == [["id", "v"]] * 2 + [["id", "v", "w"]] * 2
    assert row_fields(found[3])["w"] == {"type": "int16", "optional": False, "default": 3, "field": "w"}
    assert found[0]["value"]["schema"] == found[1]["value"]["schema"]
    assert found[2]["value"]["schema"] == found[3]["value"]["schema"]


def test_times_are_when_the_change_was_made_and_when_it_was_captured(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    connector = connector_factory()
    capture_records(connector)
    changed = int(time.time())
    db.sql("INSERT INTO t VALUES (1)")
    captured_from = time.time_ns()
    (value,) = _values(of_table(capture_records(connector), "t"))
    assert captured_from <= value["ts_ns"] <= time.time_ns()
    assert (value["ts_us"], value["ts_ms"]) == (value["ts_ns"] // 1000, value["ts_ns"] // 10**6)
    source = value["source"]
    assert changed * 1000 <= source["ts_ms"] <= captured_from // 10**6  # the log has whole seconds
    assert (source["ts_us"], source["ts_ns"]) == (source["ts_ms"] * 1000, source["ts_ms"] * 10**6)
    assert 0 <= value["ts_ms"] - source["ts_ms"] < 60_000  # the delay


def test_a_truncate_has_no_key_and_no_row(db: Any, connector_factory: Callable[..., Connector]) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    connector = connector_factory(include_query=True)
    capture_records(connector)
    db.sql("TRUNCATE TABLE t", "TRUNCATE TABLE u")
    found = [r for r in capture_records(connector) if r["topic"] != "srv"]
    assert [(r["topic"], r["key"], r["value"]["op"]) for r in found] == [
        (f"srv.{db.name}.t", None, "t"), (f"srv.{db.name}.u", None, "t"),
    ]  # fmt: skip
    for value in _values(found):
        assert (value["before"], value["after"], value["source"]["query"]) == (None, None, None)
        assert value["source"]["pos"] > 4


# the source block


def test_the_source_block_says_where_in_the_log_a_change_is(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector = connector_factory()
    (read,) = of_table(capture_records(connector, schemas=True), "t")
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID(), @@global.server_id, @@server_uuid")
        thread, server_id, uuid = cursor.fetchone()
        cursor.execute("INSERT INTO t VALUES (2), (3), (4)")
    found = of_table(capture_records(connector, schemas=True), "t")
    blocks = [r["value"]["payload"]["source"] for r in found]
    assert [b["row"] for b in blocks] == [0, 1, 2]
    events = db.sql(f"SHOW BINLOG EVENTS IN '{blocks[0]['file']}' FROM {blocks[0]['pos']} LIMIT 1")
    assert events[0][2] == "Write_rows"
    number = blocks[0]["gtid"].removeprefix(f"{uuid}:")
    assert int(number) > 0
    common = {
        "version": __version__, "connector": "mysql", "name": "srv", "snapshot": "false", "db": db.name, "table": "t",
        "sequence": None, "server_id": server_id, "gtid": f"{uuid}:{number}", "thread": thread, "query": None,
    }  # fmt: skip
    for block in blocks:
        assert {n: block[n] for n in common} == common
        assert (block["file"], block["pos"]) == (blocks[0]["file"], blocks[0]["pos"])
    read_block = read["value"]["payload"]["source"]
    assert {n: read_block[n] for n in ("snapshot", "server_id", "gtid", "row", "thread", "query")} == {
        "snapshot": "last", "server_id": 0, "gtid": None, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    described = {f["field"]: f for f in found[0]["value"]["schema"]["fields"]}["source"]
    assert described["name"] == SOURCE
    assert {f["field"]: (f["type"], f["optional"]) for f in described["fields"]} == {
        "version": ("string", False), "connector": ("string", False), "name": ("string", False),
        "ts_ms": ("int64", False), "snapshot": ("string", True), "db": ("string", False), "sequence": ("string", True),
        "ts_us": ("int64", True), "ts_ns": ("int64", True), "table": ("string", True), "server_id": ("int64", False),
        "gtid": ("string", True), "file": ("string", False), "pos": ("int64", False), "row": ("int32", False),
        "thread": ("int64", True), "query": ("string", True),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_statements_are_reported_on_request_where_the_server_logs_them(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    server = request.getfixturevalue(kind)
    setting = "binlog_annotate_row_events" if kind == "mariadb" else "binlog_rows_query_log_events"
    source = "mariadb" if kind == "mariadb" else "mysql"
    with server.database("queries") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (0, 0)")
        with_it = mysql_connector(server, tmp_path / "with", source, database_include_list=db.name, include_query=True)
        without = mysql_connector(server, tmp_path / "without", source, database_include_list=db.name)
        (read,) = of_table(capture_records(with_it), "t")
        capture_records(without)
        assert read["value"]["source"]["query"] is None
        statements = ["INSERT INTO t VALUES (1, 1), (2, 2)", "UPDATE t SET v = 5 WHERE id = 1"]
        db.sql(f"SET SESSION {setting} = ON", *statements)
        found = of_table(capture_records(with_it), "t")
        assert [r["value"]["source"]["query"] for r in found] == [statements[0], statements[0], statements[1]]
        assert (found[2]["value"]["op"], found[2]["value"]["before"]) == ("u", {"id": 1, "v": 1})
        assert found[2]["value"]["source"]["gtid"]
        assert [r["value"]["source"]["query"] for r in of_table(capture_records(without), "t")] == [None] * 3


# transactions


def test_transactions_have_their_gtid_and_count_what_was_emitted(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    for table in ("t", "u", "hidden"):
        db.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    db.sql("INSERT INTO t VALUES (0)")
    connector = connector_factory(
        provide_transaction_metadata=True, skipped_operations="d", table_exclude_list=f"{db.name}.hidden"
    )
    (read,) = of_table(capture_records(connector), "t")
    assert read["value"]["transaction"] is None
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for statement in (
            "INSERT INTO t VALUES (1), (2)", "INSERT INTO u VALUES (1)", "INSERT INTO hidden VALUES (1), (2)",
            "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3)",
        ):  # fmt: skip
            cursor.execute(statement)
        connection.commit()
    begin, *rows, end = capture_records(connector)
    id_ = rows[0]["value"]["source"]["gtid"]
    assert re.fullmatch(r"[0-9a-f-]{36}:\d+", id_)
    assert [(r["topic"].rpartition(".")[2], r["value"]["transaction"]) for r in rows] == [
        ("t", {"id": id_, "total_order": 1, "data_collection_order": 1}),
        ("t", {"id": id_, "total_order": 2, "data_collection_order": 2}),
        ("u", {"id": id_, "total_order": 3, "data_collection_order": 1}),
        ("t", {"id": id_, "total_order": 4, "data_collection_order": 3}),
    ]
    assert (begin["topic"], end["topic"]) == ("srv.transaction", "srv.transaction")
    assert {n: begin["value"][n] for n in ("status", "id", "event_count", "data_collections")} == {
        "status": "BEGIN", "id": id_, "event_count": None, "data_collections": None,
    }  # fmt: skip
    assert {n: end["value"][n] for n in ("status", "id", "event_count", "data_collections")} == {
        "status": "END", "id": id_, "event_count": 4, "data_collections": [
            {"data_collection": f"{db.name}.t", "event_count": 3}, {"data_collection": f"{db.name}.u", "event_count": 1},
        ],
    }  # fmt: skip


# schema changes


def test_a_schema_change_holds_the_whole_structure_after_it(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE first (id INT PRIMARY KEY)")
    connector = connector_factory()
    capture_records(connector)
    statements = [
        "CREATE TABLE product (sku INT NOT NULL AUTO_INCREMENT, title VARCHAR(80), PRIMARY KEY (sku)) CHARSET utf8mb4",
        "ALTER TABLE product ADD price DECIMAL(8,2) NOT NULL DEFAULT 0",
        "RENAME TABLE product TO goods",
        "DROP TABLE first",
    ]
    db.sql(*statements)
    found = capture_records(connector)
    changes = [r for r in found if r["topic"] == "srv" and r["value"]["source"]["snapshot"] == "false"]
    assert [r["key"] for r in changes] == [{"databaseName": db.name}] * 4
    created, altered, renamed, dropped = _values(changes)
    for value, statement in zip((created, altered, renamed), statements, strict=False):
        assert value["ddl"] == statement
        assert (value["databaseName"], value["schemaName"]) == (db.name, None)
        assert {
            "connector",
            "name",
            "ts_ms",
            "db",
            "table",
            "server_id",
            "gtid",
            "file",
            "pos",
            "row",
            "sequence",
        } <= set(value["source"])
        assert value["source"]["pos"] > 4
    kinds = [(v["tableChanges"][0]["type"], v["tableChanges"][0]["id"]) for v in (created, altered, renamed, dropped)]
    assert kinds == [
        ("CREATE", f'"{db.name}"."product"'), ("ALTER", f'"{db.name}"."product"'),
        ("ALTER", f'"{db.name}"."goods"'), ("DROP", f'"{db.name}"."first"'),
    ]  # fmt: skip
    assert dropped["tableChanges"][0]["table"] is None
    table = altered["tableChanges"][0]["table"]
    assert (table["defaultCharsetName"], table["primaryKeyColumnNames"], table["attributes"]) == (
        "utf8mb4",
        ["sku"],
        [],
    )
    names = (
        "name", "jdbcType", "nativeType", "typeName", "typeExpression", "charsetName", "length", "scale", "position",
        "optional", "autoIncremented", "generated",
    )  # fmt: skip
    assert [tuple(c[n] for n in names) for c in table["columns"]] == [
        ("sku", 4, None, "INT", "INT", None, None, None, 1, False, True, True),
        ("title", 12, None, "VARCHAR", "VARCHAR", "utf8mb4", 80, None, 2, True, False, False),
        ("price", 3, None, "DECIMAL", "DECIMAL", None, 8, 2, 3, False, False, False),
    ]
    assert renamed["tableChanges"][0]["table"]["columns"] == table["columns"]
    # its own history has the same
    history = [r.ddl for r in connector.store.schema_history("test") if not r.snapshot]
    assert [d for d in history if d in statements] == statements[:3]


def test_without_schema_change_records_the_history_is_kept_all_the_same(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector = connector_factory(include_schema_changes=False)
    found = capture_records(connector)
    db.sql("ALTER TABLE t ADD v INT", "INSERT INTO t VALUES (2, 2)")
    found += capture_records(connector)
    assert {r["topic"] for r in found} == {f"srv.{db.name}.t"}
    *_, last = connector.store.schema_history("test")
    assert (last.ddl, last.position["pos"] > 4) == ("ALTER TABLE t ADD v INT", True)
