"""What a run tells of itself, by the documented names: of its snapshot, its stream, its chunks and its schema history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.metrics import RunMetrics
from airflow_provider_cdc.sources.mysql.snapshot import MySqlSnapshot
from tests.support.asked import fate, send, snapshot
from tests.support.connectors import Connector, mysql_connector

NO_QUEUE = {"QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes"}


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("metrics") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
        database.sql("CREATE TABLE e (id INT PRIMARY KEY)")
        database.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO u VALUES (1), (2)")
        yield database


@pytest.fixture
def made(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    """A connector; it has not run yet."""
    return lambda **properties: mysql_connector(
        db.server, tmp_path, db.server.kind, **{"database_include_list": db.name, **properties}
    )


def test_a_snapshot_counts_its_tables_and_rows_and_is_over_when_it_is_over(
    db: Any, made: Callable[..., Connector]
) -> None:
    connector = made()
    found = connector.capture().metrics["snapshot"]
    assert 0 <= found.pop("MilliSecondsSinceLastEvent") < 60_000
    assert found.pop("SnapshotDurationInSeconds") < 60
    assert found.pop("LastEvent").split(" seq ")[0] in (f"test.{db.name}.t r", f"test.{db.name}.u r")
    names = [f"{db.name}.{table}" for table in "etu"]
    assert found == {
        "TotalNumberOfEventsSeen": 5, "NumberOfEventsFiltered": 0, "CapturedTables": names, "TotalTableCount": 3,
        "RemainingTableCount": 0, "SnapshotRunning": False, "SnapshotAborted": False, "SnapshotCompleted": True,
        "RowsScanned": dict(zip(names, (0, 3, 2), strict=True)),
    }  # fmt: skip
    assert "snapshot" not in connector.capture().metrics, "there is none in a run that reads no table"


def test_a_snapshot_that_fails_was_aborted_with_the_tables_that_are_left(
    db: Any, made: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RunMetrics] = []
    reading = RunMetrics.reading
    monkeypatch.setattr(RunMetrics, "reading", lambda self, tables: (seen.append(self), reading(self, tables))[1])
    read = MySqlSnapshot.read

    def failing(self: Any, chunk: Any) -> Any:
        if chunk.table.name == "u":
            raise CdcError("gone")
        yield from read(self, chunk)

    monkeypatch.setattr(MySqlSnapshot, "read", failing)
    with pytest.raises(CdcError, match="gone"):
        made(batch_max_rows=1, snapshot_max_threads=1).capture()
    assert seen[0].snapshot is not None
    found = seen[0].snapshot.snapshot([])
    assert (found["SnapshotAborted"], found["SnapshotCompleted"], found["SnapshotRunning"]) == (True, False, False)
    assert (found["TotalTableCount"], found["RemainingTableCount"]) == (3, 1)


def test_a_stream_counts_its_events_by_operation(db: Any, made: Callable[..., Connector]) -> None:
    connector = made(skipped_operations="d")
    connector.capture()
    db.sql("INSERT INTO t VALUES (4, 1), (5, 1)", "INSERT INTO u VALUES (3)", "UPDATE t SET v = 9", "DELETE FROM u")
    found = connector.capture().metrics["streaming"]
    assert found["LastEvent"].startswith(f"test.{db.name}.t u seq ")
    assert found["CapturedTables"] == [f"{db.name}.{table}" for table in "etu"]
    assert found["Connected"] is True
    names = ("TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen", "TotalNumberOfDeleteEventsSeen")  # fmt: skip
    assert [found[name] for name in names] == [8, 3, 5, 0]
    assert found["NumberOfEventsFiltered"] == 3
    assert 0 <= found["MilliSecondsSinceLastEvent"] < 60_000
    assert not NO_QUEUE & set(found)
    again = connector.capture().metrics["streaming"]
    assert (again["LastEvent"], again["MilliSecondsSinceLastEvent"]) == ("", -1), "of each run anew"
    assert [again[name] for name in names] == [0, 0, 0, 0]


def test_the_delay_is_that_of_the_last_event(db: Any, made: Callable[..., Connector]) -> None:
    connector = made()
    connector.capture()
    db.sql("INSERT INTO u VALUES (3)")
    time.sleep(2.5)
    found = connector.capture().metrics["streaming"]
    assert 1_000 <= found["MilliSecondsBehindSource"] < 60_000


def test_the_schema_history_tells_what_was_read_and_what_was_added(db: Any, made: Callable[..., Connector]) -> None:
    connector = made()
    connector.capture()
    db.sql("ALTER TABLE t ADD w INT")
    began = time.time()
    found = connector.capture().metrics["schema-history"]
    assert found["Status"] == "RUNNING"
    assert began - 2 < found["RecoveryStartTime"] < began + 60
    assert (found["ChangesRecovered"], found["ChangesApplied"]) == (3, 4)
    assert 0 <= found["MilliSecondsSinceLastAppliedChange"] <= found["MilliSecondsSinceLastRecoveredChange"] < 60_000
    assert found["LastRecoveredChange"].startswith(f"{db.name}.u: ")
    assert found["LastAppliedChange"] == f"{db.name}.t: ALTER TABLE t ADD w INT"


def test_chunks_tell_how_far_their_table_is_and_how_long_it_was_paused(db: Any, made: Callable[..., Connector]) -> None:
    db.sql("INSERT INTO t SELECT seq.id + t.id * 10, 0 FROM t JOIN (SELECT 1 id UNION SELECT 2) seq")
    connector = made(snapshot_mode="no_data", incremental_snapshot_chunk_size=4, signal_poll_interval_ms=50)
    connector.replay.partial = True
    assert "incremental-snapshot" not in connector.capture().metrics
    number = snapshot(connector, f"{db.name}.t")
    send(connector, "pause-snapshot")
    paused = connector.capture(run_for_s=1.5).metrics["incremental-snapshot"]
    assert paused["SnapshotPaused"] is True
    assert 1 <= paused["SnapshotPausedDurationInSeconds"] < 60
    assert connector.capture().metrics["incremental-snapshot"]["SnapshotPaused"] is True, "in the next run too"
    send(connector, "resume-snapshot")
    metrics = connector.capture().metrics
    found = metrics["incremental-snapshot"]
    assert fate(connector, number) == ("done", "")
    # keys 1 2 3 11 | 12 21 22 31 | 32
    assert (found["ChunkId"], found["ChunkFrom"], found["ChunkTo"]) == ("3", "[31]", "[32]")
    assert (found["TableFrom"], found["TableTo"]) == ("[1]", "[32]")
    assert (found["SnapshotPaused"], found["SnapshotPausedDurationInSeconds"]) == (False, 0)
    assert (found["RowsScanned"], found["TotalNumberOfEventsSeen"]) == ({f"{db.name}.t": 9}, 9)
    assert json.loads(json.dumps(metrics)) == metrics


def test_the_first_key_of_a_table_is_told_of_its_own_run_and_table_only(
    db: Any, made: Callable[..., Connector]
) -> None:
    connector = made(snapshot_mode="no_data", incremental_snapshot_chunk_size=1, signal_poll_interval_ms=50)
    connector.replay.partial = True
    connector.capture()
    db.sql("CREATE TABLE d (k DATETIME(6), b VARBINARY(8), PRIMARY KEY (k, b))")
    db.sql("INSERT INTO d VALUES ('2024-05-06 07:08:09.000010', x'00ff'), ('2024-05-07', x'01')")
    connector.capture()
    snapshot(connector, f"{db.name}.t", f"{db.name}.d", f"{db.name}.e")
    found = connector.capture().metrics["incremental-snapshot"]
    assert (found["TableFrom"], found["TableTo"], found["ChunkTo"]) == ("", "", ""), "the last table is empty"
    snapshot(connector, f"{db.name}.d")
    found = connector.capture().metrics["incremental-snapshot"]
    first, _ = json.loads(found["TableFrom"])
    assert first.startswith("2024-05-06 07:08:09.00001")
    assert json.loads(found["TableTo"])[0].startswith("2024-05-07")
