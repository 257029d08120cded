"""The metrics of a run, by the documented names: of its snapshot, its stream, its schema history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.run_metrics import RunMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.snapshot.snapshot_session import Db2Snapshot
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import of_table, records
from tests.support.connectors import Connector

ConnectorFactory = Callable[..., Connector]
NO_QUEUE = {"QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes"}


@pytest.fixture(scope="module")
def adapter(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        for table in ("T", "U", "EMPTY"):
            adapter._create(table, {"ID": "INTEGER", "V": "INTEGER"}, ("ID",))
        yield adapter


@pytest.fixture
def db(adapter: Db2Adapter) -> Db2Adapter:
    """Three tables, with three rows, two and none."""
    t, u = adapter.name("T"), adapter.name("U")
    run(
        adapter, f"DELETE FROM {t}", f"DELETE FROM {u}", f"INSERT INTO {t} VALUES (0, 1), (1, 1), (2, 1)", f"INSERT INTO {u} VALUES (0, 1), (1, 1)",
    )  # fmt: skip
    return adapter


@pytest.fixture
def connector_factory(db: Db2Adapter, tmp_path: Path) -> ConnectorFactory:
    return lambda **properties: db.connector(tmp_path, **properties)


def run(db: Db2Adapter, *statements: str) -> None:
    db.server.transaction(*statements)
    db.server.catch_up()


def test_a_snapshot_counts_its_tables_and_rows_and_is_over_when_it_is_over(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    connector, s = connector_factory(), db.namespace
    found: dict[str, Any] = dict(connector.capture().metrics["snapshot"])
    assert 0 <= found.pop("MilliSecondsSinceLastEvent") < 60_000
    assert 0 <= found.pop("SnapshotDurationInSeconds") < 60
    assert found.pop("LastEvent") in (f"test.{s}.T r seq 8", f"test.{s}.U r seq 8"), "three structures, five rows"
    assert found == {
        "TotalNumberOfEventsSeen": 5, "NumberOfEventsFiltered": 0, "CapturedTables": [f"{s}.EMPTY", f"{s}.T", f"{s}.U"],
        "TotalTableCount": 3, "RemainingTableCount": 0, "SnapshotRunning": False, "SnapshotAborted": False,
        "SnapshotCompleted": True, "RowsScanned": {f"{s}.EMPTY": 0, f"{s}.T": 3, f"{s}.U": 2},
    }  # fmt: skip
    assert "snapshot" not in connector.capture().metrics, "there is none in a run that reads no table"


def test_a_snapshot_that_fails_was_aborted_with_the_tables_that_are_left(
    db: Db2Adapter, connector_factory: ConnectorFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RunMetrics] = []
    running: list[object] = []
    reading, read = RunMetrics.start_snapshot, Db2Snapshot.read

    def record_and_read(self: RunMetrics, tables: int) -> Any:
        seen.append(self)
        return reading(self, tables)

    def check_and_fail(self: Db2Snapshot, chunk: Any) -> Any:
        if chunk.table.name == "U":
            assert seen[0].snapshot is not None
            running.append(seen[0].snapshot.to_snapshot_document([])["SnapshotRunning"])
            raise CdcError("gone")
        yield from read(self, chunk)

    for table in ("T", "U"):
        db.server.run_stats(db.namespace, table)  # so small a batch begins again with the next table
    monkeypatch.setattr(RunMetrics, "start_snapshot", record_and_read)
    monkeypatch.setattr(Db2Snapshot, "read", check_and_fail)
    with pytest.raises(CdcError, match="gone"):
        connector_factory(
            table_include_list=rf"{db.namespace}\.(T|U)", batch_max_rows=1, snapshot_max_threads=1
        ).capture()
    assert running == [True]
    assert seen[0].snapshot is not None
    found = seen[0].snapshot.to_snapshot_document([])
    assert (found["SnapshotAborted"], found["SnapshotCompleted"], found["SnapshotRunning"]) == (True, False, False)
    assert (found["TotalTableCount"], found["RemainingTableCount"]) == (2, 1)


def test_a_stream_counts_its_events_by_operation(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    connector, s = connector_factory(), db.namespace
    connector.capture()
    t, u = db.name("T"), db.name("U")
    run(db, f"INSERT INTO {t} VALUES (11, 1), (12, 1)", f"INSERT INTO {u} VALUES (11, 1)")
    run(db, f"DELETE FROM {u} WHERE ID = 11", f"UPDATE {t} SET V = 2 WHERE ID > 10")
    time.sleep(0.3)
    found: dict[str, Any] = dict(connector.capture().metrics["streaming"])
    assert found["LastEvent"] == f"test.{s}.T u seq 14"
    assert found["CapturedTables"] == [f"{s}.EMPTY", f"{s}.T", f"{s}.U"]
    assert found["Connected"] is True
    names = ("TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen", "TotalNumberOfDeleteEventsSeen")  # fmt: skip
    assert [found[name] for name in names] == [6, 3, 2, 1]
    assert found["NumberOfEventsFiltered"] == 0
    assert 0 <= found["MilliSecondsSinceLastEvent"] < 60_000
    assert 300 <= found["MilliSecondsBehindSource"] < 60_000
    assert found["NumberOfCommittedTransactions"] == 2
    last = of_table(records(connector), "T")[-1]["value"]["source"]["commit_lsn"]
    assert found["LastTransactionId"] == last
    assert found["SourceEventPosition"]["commit_lsn"] >= last
    assert not NO_QUEUE & set(found)
    run(db, f"DELETE FROM {t} WHERE ID > 10")
    found = dict(connector.capture({"skipped.operations": "d"}).metrics["streaming"])
    assert [found[name] for name in (*names, "NumberOfEventsFiltered")] == [0, 0, 0, 0, 2]


def test_without_events_there_is_no_last_one(connector_factory: ConnectorFactory) -> None:
    connector = connector_factory()
    connector.capture()
    found = connector.capture().metrics["streaming"]
    assert (found["LastEvent"], found["MilliSecondsSinceLastEvent"], found["TotalNumberOfEventsSeen"]) == ("", -1, 0)


def test_the_schema_history_reports_what_was_read_and_what_was_added(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("ALTERED", {"ID": "INTEGER"}, ("ID",))
    connector, s = connector_factory(), db.namespace
    try:
        connector.capture()
        db.sql(*(f"ALTER TABLE {t} ADD COLUMN W INTEGER" for t in (db.name("ALTERED"), db.change_table("ALTERED"))))
        db.server.reinit()
        run(db, f"INSERT INTO {db.name('ALTERED')} VALUES (20, 2)")
        began = time.time()
        found: dict[str, Any] = dict(connector.capture(run_for_s=1).metrics["schema-history"])
    finally:
        db.drop_table("ALTERED")
    assert found["Status"] == "RUNNING"
    assert began - 2 < found["RecoveryStartTime"] < began + 60
    assert (found["ChangesRecovered"], found["ChangesApplied"]) == (4, 5)
    assert 0 < found["MilliSecondsSinceLastAppliedChange"] < found["MilliSecondsSinceLastRecoveredChange"] < 60_000
    assert found["LastRecoveredChange"].startswith(f"{s}.U: ")
    assert found["LastAppliedChange"].startswith(f"{s}.ALTERED: ")


def test_when_the_agent_prunes_what_is_not_captured_is_reported(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    connector, schema = connector_factory(), "ASNCDC"
    parameters = "SELECT RETENTION_LIMIT, AUTOPRUNE FROM ASNCDC.IBMSNAP_CAPPARMS"
    with db.server.connect() as connection:
        (limit, prune), *_ = connection.rows(parameters)
    try:
        for minutes, pruned in ((600, "Y"), (1200, "Y"), (600, "N")):
            db.server.transaction(
                f"UPDATE {schema}.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = {minutes}, AUTOPRUNE = '{pruned}'"
            )
            with open_source(connector.definition(), connector.secrets) as source:
                at = source.current_position()
                assert isinstance(at, Db2Position)
                found = source.log_window(at)
                assert found is not None
                assert found.behind_bytes is None
                expected = at.newer_than_us / 1_000_000 + 60 * minutes if pruned == "Y" else None
                assert found.gone_at_s == expected
                kept, where = source.find_log_retention(), f"{schema}.IBMSNAP_CAPPARMS"
                limited = LogRetention(60 * minutes, f"RETENTION_LIMIT={minutes} minutes in {where}")
                assert kept == (limited if pruned == "Y" else LogRetention(None, f"AUTOPRUNE is N in {where}"))
                undated = source.parse_position({"commit_lsn": at.to_json()["commit_lsn"]})
                assert source.log_window(undated) == LogWindow()
    finally:
        db.server.transaction(f"UPDATE {schema}.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = {limit}, AUTOPRUNE = '{prune}'")
