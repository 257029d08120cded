"""The metrics of a run, by the documented names."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support.signals import snapshot
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector


def test_a_run_counts_what_it_reads_streams_and_reads_in_chunks(uri: str, tmp_path: Path, database: Any) -> None:
    orders, notes = f"{database.name}.orders", f"{database.name}.notes"
    database.orders.insert_many([{"_id": n} for n in range(5)])
    database.notes.insert_one({"_id": 1})
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, incremental_snapshot_chunk_size=2)
    found: dict[str, Any] = dict(connector.capture().metrics["snapshot"])
    assert 0 <= found.pop("MilliSecondsSinceLastEvent") < 60_000
    assert 0 <= found.pop("SnapshotDurationInSeconds") < 60
    assert found.pop("LastEvent").startswith(f"test.{database.name}.")
    assert found == {
        "TotalNumberOfEventsSeen": 6, "NumberOfEventsFiltered": 0, "CapturedTables": [notes, orders], "TotalTableCount": 2,
        "RemainingTableCount": 0, "SnapshotRunning": False, "SnapshotAborted": False, "SnapshotCompleted": True,
        "RowsScanned": {orders: 5, notes: 1}, "NumberOfDisconnects": 0,
    }  # fmt: skip
    with database.client.start_session() as session, session.start_transaction():
        database.orders.insert_one({"_id": 10}, session=session)
        database.notes.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
    database.orders.delete_one({"_id": 0})
    time.sleep(0.3)
    found = dict(connector.capture({"skipped.operations": "d"}).metrics["streaming"])
    names = ("TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen", "TotalNumberOfDeleteEventsSeen")  # fmt: skip
    assert [found[name] for name in names] == [2, 1, 1, 0]
    assert (found["NumberOfEventsFiltered"], found["NumberOfCommittedTransactions"], found["Connected"]) == (1, 2, True)
    assert found["LastEvent"].startswith(f"test.{database.name}.notes u seq ")
    assert found["CapturedTables"] == [notes, orders]
    assert 300 <= found["MilliSecondsBehindSource"] < 60_000
    assert 0 <= found["MilliSecondsSinceLastEvent"] < 60_000
    assert int(found["SourceEventPosition"]["sec"]) > time.time() - 600
    assert (found["NumberOfDisconnects"], found["NumberOfPrimaryElections"]) == (0, 0)
    snapshot(connector, orders)
    found = dict(connector.capture().metrics["incremental-snapshot"])
    assert ("1" in found["TableFrom"], "10" in found["TableTo"], found["RowsScanned"]) == (True, True, {orders: 5})
    assert (found["SnapshotPaused"], found["ChunkTo"]) == (False, found["TableTo"])
    assert {"ChunkId", "ChunkFrom", "SnapshotPausedDurationInSeconds"} <= found.keys()
    assert not {"QueueTotalCapacity", "QueueRemainingCapacity"} & found.keys(), "there is no queue"
