"""Transactions of Oracle: their records, their order, and what becomes of those that wait for long."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, of_table
from tests.support.connectors import Connector
from tests.support.patience import LONGEST_S
from tests.support.sources.oracle.oracle_server import run

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    for name in ("T", "U", "HIDDEN"):
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name))
    return schema


@pytest.fixture
def connector_factory(db: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(db, tmp_path, **{"schema_include_list": "APP", **properties})


def _ids(found: list[Record]) -> list[int]:
    return [r["value"]["after"]["ID"] for r in found if r["topic"] != "test"]


# records


def test_transactions_begin_and_end_with_what_was_emitted_of_them(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("INSERT INTO T VALUES (0)")
    options = {"skipped_operations": "d", "table_exclude_list": r"APP\.HIDDEN"}
    connector = connector_factory(provide_transaction_metadata=True, **options)
    (read,) = of_table(capture_records(connector), "T")
    assert read["value"]["transaction"] is None
    before = int(time.time())
    db.sql(
        "INSERT INTO T VALUES (1)", "INSERT INTO T VALUES (2)", "INSERT INTO U VALUES (1)", "INSERT INTO HIDDEN VALUES (1)",
        "DELETE FROM T WHERE ID = 2", "INSERT INTO T VALUES (3)",
    )  # fmt: skip
    begin, *rows, end = capture_records(connector)
    id_ = rows[0]["value"]["source"]["txId"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", id_)
    assert [(r["topic"].rpartition(".")[2], r["value"]["transaction"]) for r in rows] == [
        ("T", {"id": id_, "total_order": 1, "data_collection_order": 1}),
        ("T", {"id": id_, "total_order": 2, "data_collection_order": 2}),
        ("U", {"id": id_, "total_order": 3, "data_collection_order": 1}),
        ("T", {"id": id_, "total_order": 4, "data_collection_order": 3}),
    ]
    assert (begin["topic"], end["topic"]) == ("test.transaction", "test.transaction")
    assert begin["key"] == end["key"] == {"id": id_}
    reported = ("status", "id", "event_count", "data_collections")
    assert {n: begin["value"][n] for n in reported} == {
        "status": "BEGIN",
        "id": id_,
        "event_count": None,
        "data_collections": None,
    }
    assert {n: end["value"][n] for n in reported} == {
        "status": "END", "id": id_, "event_count": 4, "data_collections": [
            {"data_collection": "ORCLPDB1.APP.T", "event_count": 3}, {"data_collection": "ORCLPDB1.APP.U", "event_count": 1},
        ],
    }  # fmt: skip
    for boundary in (begin, end):
        assert before * 1000 <= boundary["value"]["ts_ms"] <= time.time() * 1000


def test_transactions_are_not_reported_unless_asked_for(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    db.sql("INSERT INTO T VALUES (1)")
    (record,) = capture_records(connector)
    assert (record["topic"], record["value"]["transaction"]) == ("test.APP.T", None)
    assert record["value"]["source"]["txId"]


def test_transactions_of_before_the_first_run_are_not_reported(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("INSERT INTO T VALUES (1)")
    found = capture_records(connector_factory(provide_transaction_metadata=True))
    assert [r["topic"] for r in found if r["topic"] != "test"] == ["test.APP.T"]


# order


def test_events_come_by_commit_whatever_the_order_of_the_changes(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """So the SCN of a change may be lower than that of the event before; that of its commit never is."""
    connector = connector_factory()
    capture_records(connector)
    with closing(db.connect()) as one, closing(db.connect()) as two, closing(db.connect()) as three:
        for number in range(3):
            run(one, f"INSERT INTO T VALUES (1{number})")
            run(two, f"INSERT INTO T VALUES (2{number})")
            run(three, f"INSERT INTO T VALUES (3{number})")
        run(two, "COMMIT")
        run(three, "ROLLBACK")
        run(one, "SAVEPOINT S", "INSERT INTO T VALUES (19)", "ROLLBACK TO S", "COMMIT")
    found = capture_records(connector)
    assert _ids(found) == [20, 21, 22, 10, 11, 12]
    sources = [r["value"]["source"] for r in found]
    scns, commits = [int(s["scn"]) for s in sources], [int(s["commit_scn"]) for s in sources]
    assert commits == sorted(commits)
    assert scns != sorted(scns)
    assert all(scn < commit for scn, commit in zip(scns, commits, strict=True))
    assert len({s["txId"] for s in sources}) == len(set(commits)) == 2


# transactions that wait


@pytest.mark.usefixtures("redo_at_once")
def test_a_transaction_that_is_open_for_longer_than_its_retention_is_given_up_and_reported(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    """Whole, its later changes too; after that its redo is not needed any more."""
    connector = connector_factory()
    capture_records(connector)
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1)")
        began = db.scn()
        id_ = ".".join(str(int(n)) for n in db.admin("SELECT XIDUSN, XIDSLOT, XIDSQN FROM V$TRANSACTION")[0])
        assert capture_records(connector) == []
        assert not [r for r in caplog.records if "is abandoned" in r.message]
        connector.properties["log.mining.transaction.retention.ms"] = 1500

        def given_up() -> bool:
            return any("is abandoned" in r.message for r in caplog.records)

        with caplog.at_level(logging.ERROR):
            metrics = connector.capture(run_for_s=LONGEST_S, until=given_up).metrics["streaming"]
        assert metrics["AbandonedTransactionIds"] == [id_]
        run(owner, "INSERT INTO T VALUES (2)")
        db.sql("INSERT INTO T VALUES (3)")
        run(owner, "COMMIT")
    messages = [r.getMessage() for r in caplog.records if "is abandoned" in r.message]
    assert len(messages) == 1
    assert id_ in messages[0]
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    assert int(offset.position["scn"]) > began
    assert _ids(capture_records(connector)) == [3]
    assert [row["ID"] for row in connector.rows("APP.T")] == [3]


def test_without_a_retention_a_transaction_is_waited_for(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory()
    capture_records(connector)
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1)")
        connector.capture(run_for_s=3)
        run(owner, "COMMIT")
    assert _ids(capture_records(connector)) == [1]
    assert not [r for r in caplog.records if "is abandoned" in r.message]


@pytest.mark.usefixtures("redo_at_once")
def test_a_waiting_transaction_with_too_many_events_is_given_up_and_reported(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(log_mining_buffer_transaction_events_threshold=5)
    capture_records(connector)
    with closing(db.connect()) as large, closing(db.connect()) as small:
        for number in range(6):
            run(large, f"INSERT INTO T VALUES (1{number})")
        for number in range(5):
            run(small, f"INSERT INTO U VALUES ({number})")
        connector.capture()
        run(large, "COMMIT")
        run(small, "COMMIT")
        assert len([r for r in caplog.records if "6 changes are lost" in r.getMessage()]) == 1


# rows that LogMiner cannot show


def test_a_change_that_logminer_cannot_show_stops_its_table_with_table_and_scn(tmp_path: Path) -> None:
    with Oracle() as server:
        for name in ("T", "ODD"):
            server.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name))
        connector = oracle_connector(server, tmp_path, schema_include_list="APP", log_mining_strategy="hybrid")
        capture_records(connector)
        server.configure(unsupported=["ODD"])
        server.sql("INSERT INTO T VALUES (1)")
        server.sql("INSERT INTO ODD VALUES (1)")
        with pytest.raises(UnreadableValue, match=r"APP\.ODD.*SCN \d+, transaction \d+\.") as caught:
            connector.capture()
        assert "table.exclude.list" in str(caught.value.remedy)
        connector.properties["table.exclude.list"] = r"APP\.ODD"
        del connector.properties["schema.include.list"]
        assert [r["ID"] for r in connector.rows("APP.T")] == [1]
        capture_records(connector)
