"""Snapshots of Oracle, and the changes that are streamed after them; modes; statements of one's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.snapshot import snapshot
from airflow_provider_cdc.sources.oracle.snapshot.select_overrides import as_of
from dev.servers.oracle import Oracle
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, of_table
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
ORDERS = TableId(namespace="SHOP", name="ORDERS", catalog="PDB")
OVERRIDES = "snapshot.select.statement.overrides"


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    for name in ("T", "U"):
        _table(schema, name)
    schema.sql("INSERT INTO T VALUES (1, 1)", "INSERT INTO T VALUES (2, 2)", "INSERT INTO U VALUES (1, 1)")
    return schema


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def _table(server: Oracle, name: str) -> None:
    server.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format(name))


def _rows(found: list[Record]) -> list[tuple[str, str, int]]:
    """Table, operation and id of the rows' records."""
    values = [(r["topic"].rpartition(".")[2], r["value"]) for r in found if r["topic"] != "test" and r["value"]]
    return [(t, v["op"], (v["after"] or v["before"])["ID"]) for t, v in values]


def _source_rows(db: Oracle, table: str) -> list[dict[str, Any]]:
    return sorted(({"ID": i, "V": v} for i, v in db.sql(f"SELECT ID, V FROM {table}")), key=repr)


def _while_reading(monkeypatch: pytest.MonkeyPatch, what: Callable[[], Any]) -> None:
    """Do something when a snapshot reads its first chunk, once."""
    read, first = snapshot.OracleSnapshot.read, threading.Semaphore(1)

    def reading(self: Any, chunk: Any) -> Any:
        if first.acquire(blocking=False):
            what()
        yield from read(self, chunk)

    monkeypatch.setattr(snapshot.OracleSnapshot, "read", reading)


# one moment


def test_what_happens_during_the_snapshot_is_streamed_after_it(
    db: Oracle, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is read once, all as of one SCN; rows and tables of later come from the log, from that SCN on."""
    connector = connector_factory()

    def write_meanwhile() -> None:
        db.sql("INSERT INTO T VALUES (3, 3)", "UPDATE T SET V = 7 WHERE ID = 1", "COMMIT")
        _table(db, "LATE")
        db.sql("INSERT INTO LATE VALUES (1, 1)", "INSERT INTO U VALUES (2, 2)")

    before, began = db.scn(), time.time() * 1000
    with monkeypatch.context() as patch:
        _while_reading(patch, write_meanwhile)
        found = [r for r in capture_records(connector) if r["topic"] != "test"]
    reported = _rows(found)
    assert sorted(reported[:3]) == [("T", "r", 1), ("T", "r", 2), ("U", "r", 1)]
    assert reported[3:] == [("T", "c", 3), ("T", "u", 1), ("LATE", "c", 1), ("U", "c", 2)]
    reads = [r["value"] for r in found[:3]]
    (scn,) = {v["source"]["scn"] for v in reads}
    assert before <= int(scn) < min(int(r["value"]["source"]["scn"]) for r in found[3:])
    (at,) = {v["source"]["ts_ms"] for v in reads}
    assert began - 1000 <= at <= min(v["ts_ms"] for v in reads)
    assert reads[0]["source"]["snapshot"] == "first"
    assert reads[2]["source"]["snapshot"] == "last"
    assert {r["topic"] for r in found[:3]} == {"test.APP.T", "test.APP.U"}
    for table in ("T", "U", "LATE"):
        assert connector.rows(f"APP.{table}") == _source_rows(db, table)
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.snapshot.pending == {}
    db.sql("INSERT INTO U VALUES (3, 3)")
    assert _rows(capture_records(connector)) == [("U", "c", 3)]
    assert capture_records(connector) == []


def test_a_transaction_that_was_open_at_the_snapshot_is_captured_when_it_is_committed(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """Its changes of before the snapshot too, though runs end and begin in between."""
    connector = connector_factory()
    with closing(db.connect()) as owner, closing(db.connect()) as other:
        owner.cursor().execute("INSERT INTO T VALUES (10, 10)")
        other.cursor().execute("INSERT INTO T VALUES (20, 20)")
        assert ("T", "r", 10) not in _rows(capture_records(connector))
        db.switch_log()
        assert capture_records(connector) == []
        owner.cursor().execute("INSERT INTO T VALUES (11, 11)")
        owner.commit()
        other.rollback()
    assert _rows(capture_records(connector)) == [("T", "c", 10), ("T", "c", 11)]
    assert connector.rows("APP.T") == _source_rows(db, "T")


def test_a_run_that_dies_in_the_snapshot_leaves_nothing_that_counts(
    db: Oracle, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(BaseException):
        pass

    def die_at_once() -> None:
        raise Dies

    connector = connector_factory()
    with monkeypatch.context() as patch:
        _while_reading(patch, die_at_once)
        with pytest.raises(Dies):
            connector.capture()
    assert connector.store.load_offset("test").offset is None
    db.sql("DELETE FROM T WHERE ID = 1")
    assert sorted(_rows(capture_records(connector))) == [("T", "r", 2), ("U", "r", 1)]
    assert connector.rows("APP.T") == _source_rows(db, "T")


def test_structures_of_captured_tables_are_in_the_history_with_their_statement(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(table_include_list=r"APP\.T", snapshot_mode="schema_only")
    capture_records(connector)
    (record,) = connector.store.schema_history("test")
    assert record.snapshot
    assert record.ddl.startswith('CREATE TABLE "APP"."T"')
    (change,) = record.changes
    assert (change.type, str(change.id)) == ("CREATE", "APP.T")


# modes


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        ("always", ["r", "r", "r"], ["r", "r", "r", "r"]),
        ("initial", ["r", "r", "r"], ["c"]),
        (None, ["r", "r", "r"], ["c"]),
        ("initial_only", ["r", "r", "r"], []),
        ("schema_only", [], ["c"]),
        ("no_data", [], ["c"]),
    ],
)
def test_the_mode_says_what_is_read_and_whether_it_is_streamed(
    db: Oracle, connector_factory: Callable[..., Connector], mode: str | None, first: list[str], second: list[str]
) -> None:
    connector = connector_factory(**({} if mode is None else {"snapshot_mode": mode}))
    assert [op for _, op, _ in _rows(capture_records(connector))] == first
    db.sql("INSERT INTO T VALUES (3, 3)")
    found = [r for r in capture_records(connector) if (r["value"] or {}).get("op") != "t"]
    assert [op for _, op, _ in _rows(found)] == second


def test_recovery_builds_the_history_again_and_reads_no_row(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    import sqlalchemy as sa

    connector = connector_factory()
    capture_records(connector)
    db.sql("INSERT INTO T VALUES (3, 3)")
    engine = sa.create_engine(connector.state_url)
    with engine.begin() as connection:
        (name,) = [t for t in sa.inspect(engine).get_table_names() if t.endswith("schema_history")]
        connection.execute(sa.text(f"DELETE FROM {name}"))
    engine.dispose()
    connector.properties["snapshot.mode"] = "schema_only_recovery"
    assert _rows(capture_records(connector)) == [("T", "c", 3)]
    assert sorted(str(c.id) for r in connector.store.schema_history("test") for c in r.changes) == ["APP.T", "APP.U"]


# which rows


@pytest.mark.parametrize("names", [r"ORCLPDB1\.APP\.T", r"APP\.T", r"orclpdb1\.app\.(t|x)"])
def test_the_snapshot_list_names_tables_with_the_pluggable_database_or_without(
    db: Oracle, connector_factory: Callable[..., Connector], names: str
) -> None:
    connector = connector_factory(snapshot_include_collection_list=names)
    assert sorted(_rows(capture_records(connector))) == [("T", "r", 1), ("T", "r", 2)]
    db.sql("INSERT INTO U VALUES (2, 2)")
    assert _rows(capture_records(connector)) == [("U", "c", 2)]


def test_a_name_of_part_of_a_table_is_not_in_the_snapshot_list(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    assert _rows(capture_records(connector_factory(snapshot_include_collection_list=r"PDB1\.APP\.T,PP\.T,APP"))) == []


def test_a_statement_of_ones_own_says_which_rows_a_snapshot_reads_and_the_log_is_whole(
    db: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = "SELECT t.* FROM app.t t WHERE v > 1 ORDER BY id DESC;"
    connector = oracle_connector(db, tmp_path, schema_include_list="APP")
    connector.properties |= {OVERRIDES: "APP.T", f"{OVERRIDES}.APP.T": statement}
    with monkeypatch.context() as patch:  # what is changed meanwhile is not in the view
        _while_reading(patch, lambda: db.sql("UPDATE T SET V = 5 WHERE ID = 1"))
        found = [r for r in capture_records(connector) if r["topic"] != "test"]
    assert sorted(_rows(found[:2])) == [("T", "r", 2), ("U", "r", 1)]
    assert _rows(found[2:]) == [("T", "u", 1)]
    assert of_table(found, "T")[0]["value"]["after"] == {"ID": 2, "V": 2}
    db.sql("INSERT INTO T VALUES (3, 0)")
    assert _rows(capture_records(connector)) == [("T", "c", 3)]
    with open_source(connector.definition(), connector.secrets) as source:
        ids = [TableId(namespace="APP", name=n, catalog="ORCLPDB1") for n in ("T", "U")]
        with source.open_snapshot(ids, readers=4) as session:
            assert [c.condition for c in session.split_table(ids[0])] == [None]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM shop.orders o WHERE o.paid = 1 ; ", "SELECT * FROM shop.orders AS OF SCN 7 o WHERE o.paid = 1"),
        ('select x.id, "SHOP"."ORDERS".n from x, "SHOP"."ORDERS"', 'select x.id, "SHOP"."ORDERS".n from x, "SHOP"."ORDERS" AS OF SCN 7'),
        ("select * from shop.orders partition (p1) where n in (select n from shop.orders)",
         "select * from shop.orders partition (p1) AS OF SCN 7 where n in (select n from shop.orders AS OF SCN 7)"),
        ("select * from shop.lines l join shop.orders on (shop.orders.id = l.id)",
         "select * from shop.lines l join shop.orders AS OF SCN 7 on (shop.orders.id = l.id)"),
        ("select 'from shop.orders' /* from shop.orders */ from shop.orders", "select 'from shop.orders' /* from shop.orders */ from shop.orders AS OF SCN 7"),
        ("select * from shop.orders as of scn 5", "select * from shop.orders as of scn 5"),
    ],
)  # fmt: skip
def test_the_table_is_read_as_of_the_snapshot_wherever_the_statement_names_it(statement: str, expected: str) -> None:
    assert as_of(statement, ORDERS, 7, "cdc") == expected


def test_a_name_without_a_schema_is_the_capture_users(db: Oracle) -> None:
    assert as_of("SELECT * FROM orders", ORDERS, 7, "shop") == "SELECT * FROM orders AS OF SCN 7"


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM orders", "SELECT * FROM x.orders", "SELECT 1 FROM shop.orders2", "SELECT 'a", ""]
)
def test_a_statement_that_does_not_read_the_table_is_refused(statement: str) -> None:
    with pytest.raises(ConfigError, match=r"overrides\.SHOP\.ORDERS"):
        as_of(statement, ORDERS, 7, "cdc")


def test_a_listed_table_needs_its_statement_and_a_statement_its_table() -> None:
    statement = "SELECT * FROM SHOP.ORDERS"
    made = config(**{OVERRIDES: "SHOP.ORDERS", f"{OVERRIDES}.SHOP.ORDERS": statement})
    assert made.snapshot_select_statement_overrides == {"SHOP.ORDERS": statement}
    assert type(made).parse({**made.to_public_properties(), "database.hostname": "h"}) == made
    for wrong in ({OVERRIDES: "SHOP.ORDERS"}, {f"{OVERRIDES}.SHOP.ORDERS": statement}):
        with pytest.raises(ConfigError, match=r"SHOP\.ORDERS"):
            config(**wrong)
