"""Signals and snapshots on demand as the documents of MySQL describe them, on real servers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.change_log.rendered import capture_records, of_table, records
from tests.support.chunk_hook import AtRead, chunk_hook
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import scans, send, signal_state, snapshot
from tests.support.sources.mysql.workload import source_rows

DOCUMENTED = "CREATE TABLE {} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
PRODUCTS = "CREATE TABLE products (id INT PRIMARY KEY, color VARCHAR(9), quantity INT)"


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A table of 25 products, another with a name that needs quotes, and the signal table of the documents."""
    server = request.getfixturevalue(request.param)
    with server.database("asks") as database:
        database.sql(PRODUCTS, "CREATE TABLE `My.Table` (id INT PRIMARY KEY)", DOCUMENTED.format("debezium_signal"))
        database.sql(
            "INSERT INTO products VALUES " + ", ".join(f"({i}, IF({i} % 2, 'blue', 'red'), {i})" for i in range(25))
        )
        database.sql("INSERT INTO `My.Table` VALUES (1), (2)")
        yield database


@pytest.fixture
def signal_table(db: Any) -> Iterator[str]:
    """The signal table, which the account of the connector may write to."""
    account, table = f"'{db.server.user}'@'%'", f"{db.name}.debezium_signal"
    db.server.sql(f"GRANT SELECT, INSERT, DELETE ON {table} TO {account}")
    yield table
    db.server.sql(f"REVOKE SELECT, INSERT, DELETE ON {table} FROM {account}")


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that has begun to stream, and has read no row."""

    def make(**properties: Any) -> Connector:
        options = {
            "database_include_list": db.name, "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10,
            "signal_poll_interval_ms": 50,
        }  # fmt: skip
        connector = mysql_connector(db.server, tmp_path, db.server.kind, **options | properties)
        connector.replay.partial = True
        connector.capture()
        return connector

    return make


@pytest.fixture
def at_read(monkeypatch: pytest.MonkeyPatch) -> AtRead:
    return chunk_hook(monkeypatch)


def insert(db: Any, id_: str, type_: str, data: Any) -> None:
    """The statement of the documents."""
    db.sql(f"INSERT INTO debezium_signal (id, type, data) VALUES ('{id_}', '{type_}', {_literal(data)})")


def _literal(data: Any) -> str:
    return "NULL" if data is None else "'" + json.dumps(data).replace("\\", "\\\\").replace("'", "''") + "'"


def current_position(connector: Connector) -> MySqlPosition:
    with open_source(connector.definition(), connector.secrets) as source:
        position = source.current_position()
    assert isinstance(position, MySqlPosition)
    return position


# the signal table


def test_the_statements_of_the_documents_have_a_table_read(
    db: Any, connector_factory: Callable[..., Connector], signal_table: str
) -> None:
    allowed = "source:*"  # of itself, a row of the table may bring no condition
    connector = connector_factory(signal_data_collection=signal_table, signal_allowed_types=allowed)
    data = {
        "data-collections": [f"{db.name}.products", f'{db.name}."My.Table"'], "type": "incremental",
        "additional-conditions": [{"data-collection": f"{db.name}.products", "filter": "color='blue' AND quantity>10"}],
    }  # fmt: skip
    insert(db, "ad-hoc-1", "execute-snapshot", data)
    connector.capture()
    connector.capture()
    assert [row["id"] for row in connector.rows(f"{db.name}.products")] == [11, 13, 15, 17, 19, 21, 23]
    assert [row["id"] for row in connector.rows(f"{db.name}.My.Table")] == [1, 2]
    assert signal_state(connector, 1) == ("done", "")
    types = {row[0] for row in db.sql("SELECT type FROM debezium_signal")}
    assert types == {"execute-snapshot", "snapshot-window-open", "snapshot-window-close"}
    insert(db, "ad-hoc-2", "pause-snapshot", None)
    insert(db, "ad-hoc-3", "log", {"message": "now at {}"})
    connector.capture()
    assert (signal_state(connector, 2)[0], signal_state(connector, 3)[0]) == ("done", "done")
    assert db.server.kind == "mariadb" or "binlog" in signal_state(connector, 3)[1]


def test_an_account_that_may_not_write_there_gets_the_grant_and_captures_on(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    table = f"{db.name}.debezium_signal"
    connector = connector_factory(signal_data_collection=table)
    number = snapshot(connector, f"{db.name}.products")
    db.sql("INSERT INTO `My.Table` VALUES (3)")
    assert connector.capture().events == 1
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "GRANT SELECT, INSERT, DELETE ON" in message
    again = snapshot(connector, f"{db.name}.products")
    connector.capture({"read.only": True})
    assert signal_state(connector, again) == ("done", ""), "which writes nothing"
    assert db.sql("SELECT COUNT(*) FROM debezium_signal") == [(0,)]


def test_the_signal_table_is_named_as_it_is_written(
    db: Any, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    for wrong in (f"{db.name}.DEBEZIUM_SIGNAL", f"{db.name}.debezium_signals"):
        caplog.clear()
        connector_factory(signal_data_collection=wrong)
        assert f"the table {wrong} does not exist" in caplog.text
    caplog.clear()
    connector = connector_factory(signal_data_collection=f"{db.name}.debezium_signal")
    assert "does not exist; create it" not in caplog.text
    db.sql("INSERT INTO debezium_signal VALUES ('by-table', 'log', '{\"message\": \"heard\"}')")
    connector.capture()
    assert [(s.id, s.state) for s in connector.store.signals_of("test")] == [("by-table", "done")]


# conditions


def test_text_without_quotes_is_no_condition_and_is_reported_so(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    table = f"{db.name}.products"
    wrong = snapshot(connector, table, additional_conditions=[{"data-collection": table, "filter": "color=blue"}])
    connector.capture()
    assert signal_state(connector, wrong)[0] == "failed"
    assert "blue" in signal_state(connector, wrong)[1]
    assert scans(connector) == {table: "SQL_EXCEPTION"}


def test_the_example_of_a_blocking_snapshot(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    table = f"{db.name}.products"
    select = f"SELECT * FROM `{db.name}`.`products` WHERE quantity < 5 ORDER BY color DESC"
    conditions = [{"data-collection": table, "filter": select}]
    number = snapshot(connector, rf"{db.name}\.prod.*", type="blocking", additional_conditions=conditions)
    connector.capture()
    assert signal_state(connector, number) == ("done", f"read {table}")
    assert [row["id"] for row in connector.rows(table)] == [0, 1, 2, 3, 4]
    db.sql("INSERT INTO products VALUES (100, 'x', 1)")
    assert connector.capture().events == 1, "the stream goes on where it stood"


def test_a_blocking_snapshot_of_a_table_that_may_not_be_read_ends_no_run(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    """The signal has its answer, and the runs that follow do not meet it again."""
    db.server.sql(
        "CREATE USER asks_poor@'%' IDENTIFIED BY 'poor'",
        "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT, SHOW DATABASES, LOCK TABLES ON *.* TO asks_poor@'%'",
        f"GRANT SELECT ON {db.name}.products TO asks_poor@'%'",
        f"GRANT SELECT (id), INSERT ON {db.name}.debezium_signal TO asks_poor@'%'",
    )
    try:
        connector = connector_factory(table_include_list=f"{db.name}[.](products|debezium_signal)")
        connector.secrets |= {"database.user": "asks_poor", "database.password": "poor"}
        number = snapshot(connector, f"{db.name}.debezium_signal", type="blocking")
        for n in (1, 2):
            db.sql(f"UPDATE products SET quantity = -{n} WHERE id = 7")
            assert connector.capture().events == 1
    finally:
        db.server.sql("DROP USER asks_poor@'%'")
    state, message = signal_state(connector, number)
    assert (state, "SELECT command denied to user" in message) == ("failed", True)


def test_a_surrogate_key_orders_the_chunks_of_a_table_with_a_composite_key(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE pairs (a INT, b INT, turn INT NOT NULL UNIQUE, PRIMARY KEY (a, b))")
    db.sql("INSERT INTO pairs VALUES " + ", ".join(f"({i % 4}, {i}, {1000 - i})" for i in range(33)))
    connector = connector_factory()
    number = snapshot(connector, f"{db.name}.pairs", surrogate_key="turn")
    found = connector.capture().metrics["incremental-snapshot"]
    assert signal_state(connector, number) == ("done", "")
    assert json.loads(found["TableFrom"])[0] == 968
    assert connector.rows(f"{db.name}.pairs") == source_rows(db.server, db.name, "pairs")
    unknown = snapshot(connector, f"{db.name}.pairs", surrogate_key="ROWID")
    connector.capture()
    assert "has no column ROWID, the surrogate key" in signal_state(connector, unknown)[1]


# what changes meanwhile


def test_a_primary_key_that_is_changed_in_the_middle_has_the_table_read_again(
    db: Any, connector_factory: Callable[..., Connector], at_read: Any
) -> None:
    connector = connector_factory()
    at_read(2, lambda: db.sql("ALTER TABLE products DROP PRIMARY KEY, ADD PRIMARY KEY (quantity, id)"))
    number = snapshot(connector, f"{db.name}.products")
    connector.capture()
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    rows = {(r["id"], r["color"], r["quantity"]) for r in connector.rows(f"{db.name}.products")}
    assert rows == {(i, "blue" if i % 2 else "red", i) for i in range(25)}


def test_a_default_that_is_changed_in_the_middle_changes_no_value(
    db: Any, connector_factory: Callable[..., Connector], at_read: Any
) -> None:
    connector = connector_factory()
    at_read(2, lambda: db.sql("ALTER TABLE products ALTER quantity SET DEFAULT 77"))
    number = snapshot(connector, f"{db.name}.products")
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    assert connector.rows(f"{db.name}.products") == source_rows(db.server, db.name, "products")
    *_, last = connector.store.schema_history("test")
    assert "SET DEFAULT 77" in last.ddl


# set-binlog-position


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["file", "gtids"])
def test_a_position_that_is_set_skips_or_repeats_at_once(
    db: Any, connector_factory: Callable[..., Connector], form: str
) -> None:
    connector = connector_factory(table_include_list=f"{db.name}.products")

    def position_data() -> dict[str, Any]:
        position = current_position(connector)
        if form == "gtids":
            return {"gtid_set": position.gtids}
        return {"binlog_filename": position.file, "binlog_position": position.pos}

    start = position_data()
    db.sql("INSERT INTO products VALUES (100, 'x', 1)")
    later = position_data()
    db.sql("INSERT INTO products VALUES (101, 'x', 1)")
    number = send(connector, "set-binlog-position", later)
    assert [r["key"]["id"] for r in of_table(capture_records(connector), "products")] == [101], "100 is skipped"
    assert signal_state(connector, number)[0] == "done"
    db.sql("INSERT INTO products VALUES (102, 'x', 1)")
    send(connector, "set-binlog-position", start)
    found = [r["key"]["id"] for r in of_table(capture_records(connector), "products")]
    assert found in ([100, 101, 102], [102, 100, 101, 102]), "101 comes again"
    assert capture_records(connector) == [], "and the place is kept"


def test_a_position_that_is_none_is_refused_and_the_present_one_kept(
    db: Any, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(table_include_list=f"{db.name}.products")
    now = current_position(connector)
    good = {"binlog_filename": now.file, "binlog_position": now.pos}
    wrong = [
        {}, {"binlog_filename": now.file}, {"binlog_position": 4}, {**good, "gtid_set": now.gtids},
        {**good, "binlog_filename": "no file"}, {**good, "binlog_position": -1}, {"gtid_set": "nonsense"},
        {**good, "binlog_position": now.pos + 100_000_000},
    ]  # fmt: skip
    numbers = [send(connector, "set-binlog-position", data) for data in [*wrong, None]]
    db.sql("INSERT INTO products VALUES (100, 'x', 1)")
    with caplog.at_level(logging.WARNING):
        assert connector.capture().events == 1
    assert [signal_state(connector, number)[0] for number in numbers] == ["refused"] * 9
    assert caplog.text.count("is refused") == 9


# schema-changes


def test_structures_of_a_signal_are_taken_over(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory(table_include_list=f"{db.name}.products")
    (known,) = (c for r in records(connector) if r["topic"] == "test" for c in r["value"]["tableChanges"])
    changed = json.loads(json.dumps(known))
    changed["type"] = "ALTER"
    changed["table"]["columns"][1]["length"] = 200
    number = send(connector, "schema-changes", {"database": db.name, "schema": None, "changes": [changed]})
    same = send(connector, "schema-changes", {"database": db.name, "changes": [changed]})
    connector.capture()
    assert signal_state(connector, number) == ("done", f"adopted the structure of {db.name}.products")
    assert signal_state(connector, same) == ("done", "the structures were already known")
    *_, last = connector.store.schema_history("test")
    assert last.changes[0].table is not None
    (color,) = (c for c in last.changes[0].table.columns if c.name == "color")
    assert color.declared.length == 200
    other = send(connector, "schema-changes", {"database": "elsewhere", "changes": [{**changed, "id": "elsewhere.t"}]})
    connector.capture()
    assert signal_state(connector, other) == ("refused", "elsewhere.t is not captured")


def test_pause_log_structures_and_resume_are_carried_out(db: Any, connector_factory: Callable[..., Connector]) -> None:
    """The types besides those that ask for a snapshot and end one."""
    table = f"{db.name}.products"
    connector = connector_factory(table_include_list=table)
    (known,) = (c for r in records(connector) if r["topic"] == "test" for c in r["value"]["tableChanges"])
    changed = json.loads(json.dumps(known)) | {"type": "ALTER"}
    changed["table"]["columns"][1]["length"] = 200
    signal_number = snapshot(connector, table)
    send(connector, "pause-snapshot")
    reported = send(connector, "log", {"message": "at {}."})
    connector.capture()
    assert connector.rows(table) == []
    state, message = signal_state(connector, reported)
    assert (state, message.startswith("at "), "{}" in message, message == "at .") == ("done", True, False, False)
    structure = send(connector, "schema-changes", {"database": db.name, "changes": [changed]})
    send(connector, "resume-snapshot")
    connector.capture()
    assert len(connector.rows(table)) == 25
    assert [signal_state(connector, number)[0] for number in (signal_number, structure)] == ["done"] * 2
    *_, last = connector.store.schema_history("test")
    assert last.changes[0].table is not None
    assert [c.declared.length for c in last.changes[0].table.columns if c.name == "color"] == [200]


def test_structures_of_a_signal_are_taken_over_all_or_none(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(table_include_list=f"{db.name}.products")
    before = len(list(connector.store.schema_history("test")))
    (known,) = (c for r in records(connector) if r["topic"] == "test" for c in r["value"]["tableChanges"])
    changed = json.loads(json.dumps(known)) | {"type": "ALTER"}
    changed["table"]["columns"][1]["length"] = 200
    changes = [changed, {**changed, "id": f"{db.name}.elsewhere"}]
    number = send(connector, "schema-changes", {"database": db.name, "changes": changes})
    connector.capture()
    state, message = signal_state(connector, number)
    assert (state, message.partition(". ")[0]) == ("refused", f"{db.name}.elsewhere is not captured")
    assert len(list(connector.store.schema_history("test"))) == before
