"""LogMiner's rows of a transaction that is not over, and of those of others: redo that comes late, users that only the START names,
XIDs that are the same in two containers, STARTs without an end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records
from tests.support.connectors import Connector
from tests.support.sources.oracle.oracle_server import run

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    schema.sql(
        "CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))",
        LOGGED.format("T"),
        "CREATE TABLE OTHER (ID NUMBER(9))",
    )
    return schema


@pytest.fixture
def connector_factory(db: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector whose snapshot is done."""

    def make(**properties: object) -> Connector:
        connector = oracle_connector(db, tmp_path, **{"table_include_list": r"APP\.T", **properties})
        capture_records(connector)
        return connector

    return make


def ids(found: list[Record]) -> list[int]:
    return [r["value"]["after"]["ID"] for r in found]


def position(connector: Connector) -> dict[str, object]:
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    return offset.position


# redo that comes late


def test_a_transaction_that_is_in_no_log_when_its_scns_are_mined_is_captured_when_it_ends(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1, 1)")
        for _ in range(3):
            assert capture_records(connector) == []
        db.sql("INSERT INTO T VALUES (2, 2)")
        assert ids(capture_records(connector)) == [2]
        run(owner, "INSERT INTO T VALUES (3, 3)", "UPDATE T SET V = 9 WHERE ID = 1", "COMMIT")
        found = capture_records(connector)
    assert [(r["value"]["op"], r["value"]["after"]["ID"]) for r in found] == [("c", 1), ("c", 3), ("u", 1)]
    assert capture_records(connector) == []


@pytest.mark.parametrize("how", ["the strand is full", "the log is switched"])
def test_redo_that_comes_to_light_before_the_end_is_captured_once_and_in_order(
    db: Oracle, connector_factory: Callable[..., Connector], how: str
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (0, 0)")
        capture_records(connector)
        if how == "the strand is full":
            run(owner, *(f"UPDATE T SET V = {i} WHERE ID = 0" for i in range(1, 40)))
        else:
            db.switch_log()
        for value in (100, 101):
            run(owner, f"UPDATE T SET V = {value} WHERE ID = 0")
            capture_records(connector)
        run(owner, "COMMIT")
        found = capture_records(connector)
    values = [r["value"]["after"]["V"] for r in found]
    assert values == sorted(set(values))
    assert len(values) == (42 if how == "the strand is full" else 3)


def test_a_transaction_that_is_rolled_back_is_never_captured(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1, 1)")
        capture_records(connector)
        run(owner, "ROLLBACK")
        assert capture_records(connector) == []


# containers


@pytest.fixture
def multitenant_server() -> Iterator[Oracle]:
    with Oracle({"pdbs": ["ORCLPDB1", "ORCLPDB2"]}) as server:
        yield server


def test_transactions_of_two_pluggable_databases_with_the_same_ids_are_distinguished_under_load(
    multitenant_server: Oracle, tmp_path: Path
) -> None:
    """Each container numbers its transactions by itself, so most ids occur in both while both are written."""
    other = multitenant_server.dsn.rpartition("/")[0] + "/ORCLPDB2"
    for dsn in (None, other):
        multitenant_server.sql(
            "CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))",
            LOGGED.format("T"),
            **({"dsn": dsn} if dsn else {}),
        )
    connector = oracle_connector(multitenant_server, tmp_path, table_include_list=r"APP\.T")
    capture_records(connector)
    stop = threading.Event()
    committed: dict[str | None, list[int]] = {None: [], other: []}

    def write(dsn: str | None) -> None:
        chance = random.Random(str(dsn))
        with closing(multitenant_server.connect(**({"dsn": dsn} if dsn else {}))) as connection:
            number = 0
            while not stop.is_set():
                rows = range(number, number + chance.randint(1, 4))
                number += 10
                run(connection, *(f"INSERT INTO T VALUES ({i}, {int(dsn is None)})" for i in rows))
                time.sleep(chance.choice((0, 0, 0.05)))
                if chance.random() < 0.4:
                    run(connection, "ROLLBACK")
                else:
                    run(connection, "COMMIT")
                    committed[dsn] += rows

    writers = [threading.Thread(target=write, args=(dsn,)) for dsn in committed]
    for writer in writers:
        writer.start()
    found = []
    for _ in range(12):
        found += capture_records(connector)
    stop.set()
    for writer in writers:
        writer.join()
    found += capture_records(connector)
    assert [r["value"]["after"] for r in found] == [{"ID": i, "V": 1} for i in committed[None]]
    assert len(committed[other]) > 20


# users


@pytest.mark.parametrize("lists", [{"username_exclude_list": "BATCH"}, {"username_include_list": "APP"}, {"clientid_exclude_list": "night"}, {"clientid_include_list": "web"}])  # fmt: skip
@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.usefixtures("redo_at_once")
def test_a_transaction_that_spans_runs_is_captured_whole_or_not_at_all(
    db: Oracle, connector_factory: Callable[..., Connector], lists: dict[str, str], carried: bool
) -> None:
    """LogMiner names user and client id in the run alone that mines the START."""
    db.admin(
        "CREATE USER BATCH IDENTIFIED BY secret QUOTA UNLIMITED ON users",
        "GRANT CREATE SESSION, INSERT ANY TABLE TO BATCH",
    )
    more = {} if carried else {"log_mining_buffer_carry_max_bytes": 0}
    connector = connector_factory(**more, **{f"log_mining_{name}": value for name, value in lists.items()})
    try:
        with closing(db.connect()) as web, closing(db.connect(user="BATCH", password="secret")) as night:
            for connection, client in ((web, "web"), (night, "night")):
                run(connection, f"BEGIN DBMS_SESSION.SET_IDENTIFIER('{client}'); END;")
            run(night, "INSERT INTO APP.OTHER VALUES (1)")
            capture_records(connector)
            run(web, "INSERT INTO T VALUES (1, 1)")
            capture_records(connector)
            run(web, "INSERT INTO T VALUES (2, 2)")
            run(night, "INSERT INTO APP.T VALUES (3, 3)")
            capture_records(connector)
            run(web, "INSERT INTO T VALUES (4, 4)", "COMMIT")
            run(night, "INSERT INTO APP.T VALUES (5, 5)", "COMMIT")
        found = capture_records(connector)
    finally:
        db.admin("DROP USER BATCH CASCADE")
    assert ids(found) == [1, 2, 4]
    assert {r["value"]["source"]["user_name"] for r in found} == {"APP"}


def test_changes_of_sys_and_system_are_not_captured_but_their_ddl_is(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    db.admin("INSERT INTO APP.T VALUES (1, 1)", dsn=db.owner_dsn)
    db.admin("ALTER TABLE APP.T ADD (W NUMBER(9))", dsn=db.owner_dsn)
    db.sql("INSERT INTO T VALUES (2, 2, 2)")
    assert [r["value"]["after"] for r in capture_records(connector) if r["topic"] == "test.APP.T"] == [
        {"ID": 2, "V": 2, "W": 2}
    ]


# what keeps the position


@pytest.mark.usefixtures("redo_at_once")
def test_transactions_without_changes_of_captured_tables_do_not_keep_the_position(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as idle:
        run(idle, "INSERT INTO OTHER VALUES (1)")
        capture_records(connector)
        now = db.scn()
        capture_records(connector)
        assert int(str(position(connector)["scn"])) > now
        run(idle, "INSERT INTO T VALUES (1, 1)", "COMMIT")
        assert ids(capture_records(connector)) == [1]


def test_an_idle_transaction_in_a_private_strand_keeps_the_position_until_the_log_is_switched(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as idle:
        run(idle, "INSERT INTO OTHER VALUES (1)")
        capture_records(connector)
        now = db.scn()
        capture_records(connector)
        assert int(str(position(connector)["scn"])) < now
        db.switch_log()
        capture_records(connector)
        capture_records(connector)
        assert int(str(position(connector)["scn"])) > now
        run(idle, "INSERT INTO T VALUES (1, 1)", "COMMIT")
        assert ids(capture_records(connector)) == [1]


def test_a_replication_marker_ends_its_transaction(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    """Oracle GoldenGate's markers have a START, and neither COMMIT nor ROLLBACK."""
    connector = connector_factory()
    xid = {"hex": "0900210001000000"}
    db.inject([{"OPERATION_CODE": 6, "XID": xid}, {"OPERATION_CODE": 27, "XID": xid, "SQL_REDO": None}])
    metrics = connector.capture().metrics["streaming"]
    assert metrics["NumberOfActiveTransactions"] == 0
