"""The metrics of a run, by the documented names: of its snapshot, its stream, its chunks and its schema history."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.run_metrics import RunMetrics
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid_sets import parse_gtids
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot
from tests.support.change_log.rendered import records
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import send, signal_state, snapshot
from tests.support.sources.mysql.mysql_chunks import FixedTables, read_log_rows, source_of

NO_QUEUE = {"QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes"}


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("metrics") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
        database.sql("CREATE TABLE e (id INT PRIMARY KEY)")
        database.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO u VALUES (1), (2)")
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    """A connector; it has not run yet."""
    return lambda **properties: mysql_connector(
        db.server, tmp_path, db.server.kind, **{"database_include_list": db.name, **properties}
    )


def test_a_snapshot_counts_its_tables_and_rows_and_is_over_when_it_is_over(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
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
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RunMetrics] = []
    reading = RunMetrics.start_snapshot
    monkeypatch.setattr(
        RunMetrics, "start_snapshot", lambda self, tables: (seen.append(self), reading(self, tables))[1]
    )
    read = MySqlSnapshot.read

    def fail_at_table(self: Any, chunk: Any) -> Any:
        if chunk.table.name == "u":
            raise CdcError("gone")
        yield from read(self, chunk)

    monkeypatch.setattr(MySqlSnapshot, "read", fail_at_table)
    with pytest.raises(CdcError, match="gone"):
        connector_factory(batch_max_rows=1, snapshot_max_threads=1).capture()
    assert seen[0].snapshot is not None
    found = seen[0].snapshot.to_snapshot_document([])
    assert (found["SnapshotAborted"], found["SnapshotCompleted"], found["SnapshotRunning"]) == (True, False, False)
    assert (found["TotalTableCount"], found["RemainingTableCount"]) == (3, 1)


def test_a_stream_counts_its_events_by_operation(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory(skipped_operations="d")
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


def test_the_delay_is_that_of_the_last_event(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    connector.capture()
    db.sql("INSERT INTO u VALUES (3)")
    time.sleep(2.5)
    found = connector.capture().metrics["streaming"]
    assert 1_000 <= found["MilliSecondsBehindSource"] < 60_000


def test_the_schema_history_reports_what_was_read_and_what_was_added(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
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


def test_chunks_report_the_progress_of_their_table_and_its_pauses(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("INSERT INTO t SELECT seq.id + t.id * 10, 0 FROM t JOIN (SELECT 1 id UNION SELECT 2) seq")
    connector = connector_factory(
        snapshot_mode="no_data", incremental_snapshot_chunk_size=4, signal_poll_interval_ms=50
    )
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
    assert signal_state(connector, number) == ("done", "")
    # keys 1 2 3 11 | 12 21 22 31 | 32, of which the last two may share a window
    assert (found["ChunkId"], found["ChunkFrom"], found["ChunkTo"]) in (("3", "[31]", "[32]"), ("2", "[11]", "[32]"))
    assert (found["TableFrom"], found["TableTo"]) == ("[1]", "[32]")
    assert (found["SnapshotPaused"], found["SnapshotPausedDurationInSeconds"]) == (False, 0)
    assert (found["RowsScanned"], found["TotalNumberOfEventsSeen"]) == ({f"{db.name}.t": 9}, 9)
    assert json.loads(json.dumps(metrics)) == metrics


def test_the_first_key_of_a_table_is_reported_for_its_own_run_and_table_only(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_mode="no_data", incremental_snapshot_chunk_size=1, signal_poll_interval_ms=50
    )
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


# what MySQL has


def _capture_streaming_metrics(connector: Connector) -> dict[str, Any]:
    return connector.capture().metrics["streaming"]


def _log(db: Any) -> tuple[str, int, str]:
    """The file that the server writes, where it writes next, and its GTIDs."""
    mariadb = db.server.kind == "mariadb"
    row = db.sql("SHOW MASTER STATUS" if mariadb else "SHOW BINARY LOG STATUS")[0]
    gtids = db.sql("SELECT @@gtid_binlog_pos")[0][0] if mariadb else row[4].replace("\n", "")
    return row[0], row[1], str(parse_gtids(gtids))  # the server writes tagged ones in a shorter form


def _last_event(db: Any, file: str) -> dict[str, str]:
    events = [e for e in db.sql(f"SHOW BINLOG EVENTS IN '{file}'") if e[2] != "Binlog_checkpoint"]
    return {"server_id": str(events[-1][3]), "file": events[-1][0], "pos": str(events[-1][1])}


def test_the_places_of_the_stream_are_those_of_the_server(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    connector.capture()
    db.sql("INSERT INTO u VALUES (3)", "FLUSH BINARY LOGS", "INSERT INTO u VALUES (4)")
    file, end, gtids = _log(db)
    found = _capture_streaming_metrics(connector)
    assert found["BinlogFilename"] == file
    assert abs(end - found["BinlogPosition"]) in (0, 40), (
        "MariaDB may note behind it, at any time, that the file before is closed"
    )
    assert (found["IsGtidModeEnabled"], found["GtidSet"]) == (True, gtids)
    assert found["SourceEventPosition"] == _last_event(db, file)
    assert found["LastTransactionId"] == captured_sources(connector)[-1]["gtid"]
    assert found["LastTransactionId"]
    db.sql("ALTER TABLE u ADD v INT")
    file, end, gtids = _log(db)
    changed = _capture_streaming_metrics(connector)
    assert (changed["BinlogFilename"], changed["GtidSet"]) == (file, gtids)
    assert abs(end - changed["BinlogPosition"]) in (0, 40)
    assert changed["SourceEventPosition"] == _last_event(db, file)
    assert changed["LastTransactionId"] not in ("", found["LastTransactionId"])
    found = _capture_streaming_metrics(connector)
    assert (found["SourceEventPosition"], found["LastTransactionId"]) == ({}, ""), "of each run anew"


def test_whether_the_server_has_gtids_is_reported(mysql97: Any, mysql_factory: Any, tmp_path: Path) -> None:
    with mysql97.database("with_gtids") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = mysql_connector(mysql97, tmp_path / "with", "mysql", database_include_list=db.name)
        connector.capture()
        db.sql("INSERT INTO t VALUES (1)")
        assert _capture_streaming_metrics(connector)["IsGtidModeEnabled"] is True
    plain = mysql_factory("9.7", gtid_mode=False, enforce_gtid_consistency=False)
    with plain as server, server.database("plain") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = mysql_connector(server, tmp_path / "without", "mysql", database_include_list=db.name)
        connector.capture()
        db.sql("INSERT INTO t VALUES (1)")
        found = _capture_streaming_metrics(connector)
        (event,) = captured_sources(connector)
    assert (found["IsGtidModeEnabled"], found["GtidSet"], found["NumberOfCommittedTransactions"]) == (False, "", 1)
    assert found["LastTransactionId"].startswith(f"file={event['file']},pos=")


def captured_sources(connector: Connector) -> list[dict[str, Any]]:
    """The source blocks of all row events of the stream so far."""
    events = records(connector)
    return [e["value"]["source"] for e in events if e["value"].get("op") in ("c", "u", "d")]


def test_transactions_are_counted_as_they_end(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binlog_connection, "BUFFER", 1 << 14)
    db.sql("CREATE TABLE large (id INT PRIMARY KEY, v VARCHAR(99))")
    with db.server.database("else") as other:
        other.sql("CREATE TABLE o (id INT PRIMARY KEY)")
        connector = connector_factory()
        connector.capture()
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for i in range(3):
                cursor.execute(f"INSERT INTO t VALUES ({10 + i}, 1)")
                cursor.execute(f"INSERT INTO t VALUES ({20 + i}, 1)")
                connection.commit()
            cursor.executemany("INSERT INTO large VALUES (%s, %s)", [(i, "x" * 99) for i in range(900)])
            connection.commit()
        other.sql("INSERT INTO o VALUES (1)", "ALTER TABLE o ADD v INT")
        db.sql("ALTER TABLE u ADD v INT", "DROP TABLE e")
        found = _capture_streaming_metrics(connector)
    counts = ("Committed", "RolledBack", "NotWellFormed", "Large")
    assert [found[f"NumberOf{name}Transactions"] for name in counts] == [5, 0, 0, 1]
    assert found["TotalNumberOfCreateEventsSeen"] == 906
    if db.server.kind == "mariadb":  # MySQL leaves such a transaction out of its log
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (90, 1)")
            cursor.execute("CREATE TEMPORARY TABLE passing (id INT)")
            connection.rollback()
        found = _capture_streaming_metrics(connector)
        assert [found[f"NumberOf{name}Transactions"] for name in counts] == [0, 1, 0, 0]


def test_prepared_transactions_count_when_they_end(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    connector.capture()
    for ends in ("COMMIT", "ROLLBACK"):
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for statement in ("START 'm'", "INSERT", "END 'm'", "PREPARE 'm'"):
                cursor.execute("INSERT INTO u VALUES (7)" if statement == "INSERT" else f"XA {statement}")
            found = _capture_streaming_metrics(connector)
            assert (found["NumberOfCommittedTransactions"], found["NumberOfRolledBackTransactions"]) == (0, 0)
            cursor.execute(f"XA {ends} 'm'")
        found = _capture_streaming_metrics(connector)
        counted = (found["NumberOfCommittedTransactions"], found["NumberOfRolledBackTransactions"])
        assert counted == ((1, 0) if ends == "COMMIT" else (0, 1))
        db.sql("DELETE FROM u WHERE id = 7")
        connector.capture()


def test_a_lost_connection_is_counted(db: Any) -> None:
    db.sql("INSERT INTO t VALUES (70, 1)")
    with source_of(db.server, poll_interval_ms=50) as source:
        tables = source.discover_tables()
        start = source.current_position()
        assert source.collect_stream_metrics()["NumberOfDisconnects"] == 0
        db.server.sql(f"KILL {source._connected().thread_id()}")
        assert source.discover_tables().keys() == tables.keys(), "the catalog is asked on a new connection"
        assert source.collect_stream_metrics()["NumberOfDisconnects"] == 1
        with pytest.raises(SourceUnavailable):  # noqa: PT012
            for _ in source.stream_log(start, FixedTables(tables), until=None):
                for process in db.server.sql("SHOW PROCESSLIST"):
                    if process[4].startswith("Binlog Dump"):
                        db.server.sql(f"KILL {process[0]}")
        assert source.collect_stream_metrics()["NumberOfDisconnects"] == 2


def test_a_transaction_without_its_end_is_counted_and_an_error(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = binlog_connection.BinlogConnection.read_events

    def without_ends(self: Any) -> Iterator[Any]:
        for events in whole(self):
            if events is not None:
                kinds = events.table[:, k.EV_TYPE]
                kinds[kinds == ev.XID] = ev.STOP  # which means nothing
            yield events

    with source_of(db.server) as source:
        tables, start = source.discover_tables(), source.current_position()
        db.sql("INSERT INTO u VALUES (5)", "INSERT INTO u VALUES (6)")
        monkeypatch.setattr(binlog_connection.BinlogConnection, "read_events", without_ends)
        with pytest.raises(UnknownLogEvent):
            read_log_rows(source, start, tables)
        assert source.collect_stream_metrics()["NumberOfNotWellFormedTransactions"] == 1
        monkeypatch.setattr(binlog_connection.BinlogConnection, "read_events", whole)
        assert len(read_log_rows(source, start, tables)) == 2
        found = source.collect_stream_metrics()
    assert (found["NumberOfNotWellFormedTransactions"], found["NumberOfCommittedTransactions"]) == (1, 2)


@pytest.mark.parametrize(("mode", "held"), [("minimal", False), ("extended", True), ("none", False)])
def test_locks_are_reported_as_long_as_they_are_held(db: Any, mode: str, held: bool) -> None:
    during: list[Any] = []
    with source_of(db.server, snapshot_locking_mode=mode) as source:
        tables = [t for t in source.discover_tables() if t.namespace == db.name]
        creation_reader = source._file_created
        source._file_created = lambda file: (
            during.append(source.collect_stream_metrics()["HoldingGlobalLock"]),
            creation_reader(file),
        )[1]  # type: ignore[method-assign]
        with source.open_snapshot(tables, readers=1):
            assert source.collect_stream_metrics()["HoldingGlobalLock"] is held
            with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION lock_wait_timeout = 1")
                with pytest.raises(pymysql.err.OperationalError) if held else contextlib.nullcontext():
                    cursor.execute("INSERT INTO u VALUES (9)")
        assert source.collect_stream_metrics()["HoldingGlobalLock"] is False


def test_the_files_of_the_log_give_its_extent(db: Any, connector_factory: Callable[..., Connector]) -> None:
    """Compare the extent with the server's list; the age of a file counts from the begin of the next one."""
    connector = connector_factory()
    kept = connector.capture().metrics["streaming"]
    before, now = db.server.sql("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0], time.time()
    try:
        db.sql("SET GLOBAL binlog_expire_logs_seconds = 36000")
        with source_of(db.server) as source:
            at = source.current_position()
            assert source.log_window(at) == LogWindow(0, pytest.approx(now + 36_000, abs=60))
            db.sql("INSERT INTO t VALUES (4, 4)", "FLUSH BINARY LOGS")
            sizes = {str(name): int(size) for name, size, *_ in db.server.sql("SHOW BINARY LOGS")}
            names = [*sizes]
            expected = sizes[at.file] - at.pos + sum(sizes[name] for name in names[names.index(at.file) + 1 :])
            found = source.log_window(at)
            assert found.behind_bytes is not None
            assert found.behind_bytes >= expected > 0
            assert found.gone_at_s == pytest.approx(now + 36_000, abs=60)
            held = {"x": {"file": names[0], "pos": 4, "server": at.server}}
            assert (source.log_window(replace(at, prepared=held)).gone_at_s or 0) <= found.gone_at_s
            assert source.find_log_retention() == LogRetention(36_000, "binlog_expire_logs_seconds=36000")
            db.sql("SET GLOBAL binlog_expire_logs_seconds = 0")
            assert source.find_log_retention() == LogRetention(None, "binlog_expire_logs_seconds=0")
            assert source.log_window(at).gone_at_s is None
            assert source.log_window(replace(at, server="another")) == LogWindow()
            assert source.log_window(replace(at, file="binlog.999999")) == LogWindow()
    finally:
        db.sql(f"SET GLOBAL binlog_expire_logs_seconds = {before}")
    assert kept["LogBytesBehindSource"] >= 0
