"""The metrics of a run, by the documented names: of its snapshot, its stream, its schema history; and its lines in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.run_metrics import RunMetrics
from airflow_provider_cdc.sources.oracle import metrics
from airflow_provider_cdc.sources.oracle.metrics import LogMinerMetrics, StreamGauges
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.snapshot import snapshot
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import session_of
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import of_table, records
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
NO_QUEUE = {"QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes"}


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that captures two tables; the snapshot is done."""
    for name in ("T", "U"):
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format(name))

    def make(**properties: Any) -> Connector:
        connector = oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})
        connector.capture()
        return connector

    return make


def capture_streaming_metrics(connector: Connector) -> dict[str, Any]:
    return connector.capture().metrics["streaming"]


# what every source has


def test_a_snapshot_counts_its_tables_and_rows_and_is_over_when_it_is_over(schema: Oracle, tmp_path: Path) -> None:
    for name, rows in (("T", 3), ("U", 2), ("EMPTY", 0)):
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name))
        schema.sql(*(f"INSERT INTO {name} VALUES ({i})" for i in range(rows)))
    connector = oracle_connector(schema, tmp_path, schema_include_list="APP")
    found = connector.capture().metrics["snapshot"]
    assert 0 <= found.pop("MilliSecondsSinceLastEvent") < 60_000
    assert 0 <= found.pop("SnapshotDurationInSeconds") < 60
    assert found.pop("LastEvent") in ("test.APP.T r seq 8", "test.APP.U r seq 8"), "three structures, five rows"
    assert found == {
        "TotalNumberOfEventsSeen": 5, "NumberOfEventsFiltered": 0, "CapturedTables": ["APP.EMPTY", "APP.T", "APP.U"],
        "TotalTableCount": 3, "RemainingTableCount": 0, "SnapshotRunning": False, "SnapshotAborted": False,
        "SnapshotCompleted": True, "RowsScanned": {"APP.EMPTY": 0, "APP.T": 3, "APP.U": 2},
    }  # fmt: skip
    assert "snapshot" not in connector.capture().metrics, "there is none in a run that reads no table"


def test_a_snapshot_that_fails_was_aborted_with_the_tables_that_are_left(
    schema: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("T", "U"):
        schema.sql(
            f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name), f"INSERT INTO {name} VALUES (1)"
        )
    seen: list[RunMetrics] = []
    monkeypatch.setattr(RunMetrics, "start_snapshot", _keeping(RunMetrics.start_snapshot, seen))
    read = snapshot.OracleSnapshot.read

    def fail_at_table(self: Any, chunk: Any) -> Any:
        if chunk.table.name == "U":
            raise CdcError("gone")
        yield from read(self, chunk)

    monkeypatch.setattr(snapshot.OracleSnapshot, "read", fail_at_table)
    with pytest.raises(CdcError, match="gone"):
        oracle_connector(schema, tmp_path, schema_include_list="APP", batch_max_rows=1).capture()
    assert seen[0].snapshot is not None
    found = seen[0].snapshot.to_snapshot_document([])
    assert (found["SnapshotAborted"], found["SnapshotCompleted"], found["SnapshotRunning"]) == (True, False, False)
    assert found["RowsScanned"] == {"APP.T": 1, "APP.U": 0}
    assert (found["TotalTableCount"], found["RemainingTableCount"]) == (2, 1)


def _keeping(method: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    def keep_and_call(self: Any, *arguments: Any) -> Any:
        seen.append(self)
        return method(self, *arguments)

    return keep_and_call


def test_a_stream_counts_its_events_by_operation(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory(skipped_operations="d")
    schema.sql(
        "INSERT INTO T VALUES (1, 1)", "INSERT INTO T VALUES (2, 1)", "INSERT INTO U VALUES (1, 1)",
        "UPDATE T SET V = 2", "DELETE FROM U",
    )  # fmt: skip
    time.sleep(0.3)
    found = capture_streaming_metrics(connector)
    assert found["LastEvent"] == "test.APP.T u seq 7"
    assert found["CapturedTables"] == ["APP.T", "APP.U"]
    assert found["Connected"] is True
    names = ("TotalNumberOfEventsSeen", "TotalNumberOfCreateEventsSeen", "TotalNumberOfUpdateEventsSeen", "TotalNumberOfDeleteEventsSeen")  # fmt: skip
    assert [found[name] for name in names] == [5, 3, 2, 0]
    assert found["NumberOfEventsFiltered"] == 1
    assert 0 <= found["MilliSecondsSinceLastEvent"] < 60_000
    assert 300 <= found["MilliSecondsBehindSource"] < 60_000
    assert not NO_QUEUE & set(found)


def test_without_events_there_is_no_last_one(connector_factory: Callable[..., Connector]) -> None:
    found = capture_streaming_metrics(connector_factory())
    assert (found["LastEvent"], found["MilliSecondsSinceLastEvent"], found["TotalNumberOfEventsSeen"]) == ("", -1, 0)


def test_the_schema_history_reports_what_was_read_and_what_was_added(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    schema.sql("ALTER TABLE T ADD W NUMBER(3)")
    began = time.time()
    found = connector.capture().metrics["schema-history"]
    assert found["Status"] == "RUNNING"
    assert began - 2 < found["RecoveryStartTime"] < began + 60
    assert (found["ChangesRecovered"], found["ChangesApplied"]) == (2, 3)
    assert 0 <= found["MilliSecondsSinceLastAppliedChange"] <= found["MilliSecondsSinceLastRecoveredChange"] < 60_000
    assert found["LastRecoveredChange"].startswith("APP.U: ")
    assert found["LastAppliedChange"] == "APP.T: ALTER TABLE T ADD W NUMBER(3);"


# what Oracle has


def test_the_places_of_the_stream_are_those_of_the_database(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    before = schema.scn()
    for id_ in (1, 2):
        schema.sql(f"INSERT INTO T VALUES ({id_}, 1)")
    committed = schema.scn()
    result = connector.capture()
    found = result.metrics["streaming"]
    assert before < int(found["CommittedScn"]) <= committed <= int(found["CurrentScn"]) <= schema.scn()
    assert found["SourceEventPosition"] == {"scn": found["OffsetScn"], "commit_scn": found["CommittedScn"]}
    assert (found["OffsetScn"], found["OldestScn"]) == (found["CurrentScn"], "0")
    assert f"SCN {found['CurrentScn']}" in result.position
    assert 0 <= found["ScnLag"] < 10  # a look at the SCN moves it, and a run ends where the database was when it began
    first, last = (event["value"]["source"] for event in of_table(records(connector), "T"))
    assert int(first["commit_scn"]) < int(last["commit_scn"]) <= int(found["CommittedScn"])
    assert found["LastTransactionId"] == last["txId"] != first["txId"]
    _of_three_windows()


def test_windows_queries_and_rows_are_counted_and_timed(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    schema.sql(*(f"INSERT INTO T VALUES ({i}, 1)" for i in range(10)))
    slow = MiningSession._begin

    def begin_slowly(self: MiningSession, low: int, end: int) -> None:
        time.sleep(0.05)
        slow(self, low, end)

    began = time.monotonic()
    with patch.object(MiningSession, "_begin", begin_slowly):
        found = capture_streaming_metrics(connector)
    seconds = time.monotonic() - began
    assert [
        found[f"{name}CapturedDml{rest}"] for name, rest in (("Last", "Count"), ("Max", "InBatch"), ("Total", "Count"))
    ] == [10] * 3
    assert found["RegisteredDmlCount"] == 10
    assert found["FetchingQueryCount"] == found["NumberOfMiningSessions"] == 1
    assert found["TotalProcessedRows"] >= 12, "a START and a COMMIT besides"
    times = [found[f"{name}BatchProcessingTimeInMilliseconds"] for name in ("Min", "Last", "Max")]
    assert times == sorted(times)
    assert found["TotalProcessingTimeInMilliseconds"] >= times[0] >= 50
    assert times[0] > found["LastDurationOfFetchQueryInMilliseconds"] >= 1
    assert found["MaxDurationOfFetchQueryInMilliseconds"] == found["LastDurationOfFetchQueryInMilliseconds"]
    assert found["TotalResultSetNextTimeInMilliseconds"] == found["MaxDurationOfFetchQueryInMilliseconds"]
    assert found["MaxMiningSessionStartTimeInMilliseconds"] == found["LastMiningSessionStartTimeInMilliseconds"] >= 1
    assert found["TotalMiningSessionStartTimeInMilliseconds"] >= found["MaxMiningSessionStartTimeInMilliseconds"]
    assert 0 < found["TotalParseTimeInMilliseconds"] <= found["TotalProcessingTimeInMilliseconds"]
    speeds = [found[f"{name}BatchProcessingThroughput"] for name in ("Last", "Average", "Max")]
    assert speeds[0] == speeds[2] > 0
    assert speeds[1] == pytest.approx(speeds[0], rel=0.1)
    assert found["BatchSize"] == 20_000
    assert found["MillisecondToSleepBetweenMiningQuery"] == 100
    assert found["CommitThroughput"] >= int(found["NumberOfCommittedTransactions"] / seconds)  # a whole number a second
    assert 0 < found["LastCommitDurationInMilliseconds"] <= found["MaxCommitDurationInMilliseconds"]
    _of_three_windows()


def _of_three_windows() -> None:
    """Check values of the last window, the least, the most and the sum, by a clock and counters of the test."""
    now = [1_000_000.0]
    measured = LogMinerMetrics(config(), clock=lambda: now[0])
    gauges = StreamGauges(
        position=OraclePosition(5, 5), current=9, read=9, active=0, oldest=None, buffered=0, buffered_bytes=0, window=7, pause=0.5
    )  # fmt: skip
    for rows, changes, commits, seconds, lag_s, fetches, logs, switches in (
        (60, 8, 4, 2.0, 3.0, [0.1, 0.3], 2, 5),
        (50, 9, 2, 0.5, 1.0, [0.2], 4, 6),
        (30, 2, 1, 1.0, 2.0, [0.1], 3, 4),
    ):
        now[0] += seconds
        measured.session.record_session_start([("a", "CURRENT")] * logs, switches)
        measured.session.record_window_start(lag_s)
        measured.session.count_query()
        for fetched in fetches:
            measured.session.record_fetch_time(fetched)
        measured.session.rows += rows
        measured.rows.changes += changes
        measured.rows.ts_us = int((now[0] - lag_s) * 1e6)
        measured.rows.record_block_time(seconds / 10)
        measured.record_window(gauges, rows, seconds)
        measured.rows.count_ended_transactions(commits, [], f"1.2.{rows}", 100 - rows)
    found = measured.to_document(gauges)
    ms = "InMilliseconds"
    expected = {
        "LastCapturedDmlCount": 2, "MaxCapturedDmlInBatch": 9, "TotalCapturedDmlCount": 19, "RegisteredDmlCount": 19,
        "FetchingQueryCount": 3, "TotalProcessedRows": 140, f"LastDurationOfFetchQuery{ms}": 100, f"MaxDurationOfFetchQuery{ms}": 400,
        f"TotalResultSetNextTime{ms}": 700, f"LastMiningSessionStartTime{ms}": 2000, f"MaxMiningSessionStartTime{ms}": 3000,
        f"TotalMiningSessionStartTime{ms}": 6000, f"LastBatchProcessingTime{ms}": 1000, f"MinBatchProcessingTime{ms}": 500,
        f"MaxBatchProcessingTime{ms}": 2000, f"TotalProcessingTime{ms}": 3500, "LastBatchProcessingThroughput": 30,
        "MaxBatchProcessingThroughput": 100, "AverageBatchProcessingThroughput": 40, "CommitThroughput": 2,
        "LastTransactionId": "1.2.30", "CommittedScn": "70",
        f"LastCommitDuration{ms}": 100, f"MaxCommitDuration{ms}": 200, f"LagFromSource{ms}": 2000, f"MinLagFromSource{ms}": 1000,
        f"MaxLagFromSource{ms}": 3000, "MinimumMinedLogCount": 2, "MaximumMinedLogCount": 4, "SwitchCounter": 4, "BatchSize": 7,
        "MillisecondToSleepBetweenMiningQuery": 500,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_transactions_are_counted_by_their_end(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    schema.sql("INSERT INTO T VALUES (1, 1)")
    with schema.connect() as connection:
        connection.cursor().execute("INSERT INTO T VALUES (2, 1)")
        connection.rollback()
    with patch.dict(LogMinerMetrics.__init__.__kwdefaults__, clock=lambda: time.time() + 5):  # the last row may be new
        found = capture_streaming_metrics(connector)
    commits = found["NumberOfCommittedTransactions"]
    assert commits >= 1, "those of other tables count too, as the one that has the log written"
    assert found["NumberOfRolledBackTransactions"] == len(found["RolledBackTransactionIds"]) == 1
    assert found["RolledBackTransactionIds"][0].count(".") == 2
    assert (found["NumberOfActiveTransactions"], found["TotalNumberOfEventsSeen"]) == (0, 1)
    lags = [found[f"{name}LagFromSourceInMilliseconds"] for name in ("Min", "", "Max")]
    assert 5_000 <= lags[0] <= lags[1] <= lags[2] < 60_000
    _of_three_windows()


@pytest.mark.usefixtures("redo_at_once")
def test_an_open_transaction_is_seen_to_keep_the_offset_where_it_began(
    schema: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory()
    with schema.connect() as connection:
        before = schema.scn()
        connection.cursor().execute("INSERT INTO T VALUES (1, 1)")
        schema.sql("INSERT INTO U VALUES (1, 1)")
        first = capture_streaming_metrics(connector)
        schema.sql("INSERT INTO U VALUES (2, 1)")
        with caplog.at_level(logging.INFO):
            found = capture_streaming_metrics(connector)
        schema_scn = schema.scn()
        connection.rollback()
    assert before <= int(found["OldestScn"]) == int(found["OffsetScn"]) < int(found["CurrentScn"]) <= schema_scn
    assert found["ScnFreezeCount"] == 1
    assert (found["NumberOfActiveTransactions"], found["BufferedChangesCount"]) == (1, 1)
    # in memory where it was mined; then it is carried over, and takes none
    assert (first["BufferedChangesInBytes"] > 0, found["BufferedChangesInBytes"]) == (True, 0)
    assert found["CarriedChangesInBytes"] > 0
    assert found["OldestTransactionId"].count(".") == 2
    assert 0 <= found["OldestTransactionAgeInMilliseconds"] < 60_000
    assert (
        f"Open: 1 transactions, the oldest {found['OldestTransactionId']} since SCN {found['OldestScn']}" in caplog.text
    )
    found = capture_streaming_metrics(connector)
    assert (found["ScnFreezeCount"], found["OldestTransactionId"], found["BufferedChangesCount"]) == (0, "", 0)


@pytest.mark.usefixtures("redo_at_once")
def test_abandoned_transactions_are_reported_by_their_ids(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(log_mining_transaction_retention_ms=7_200_000)
    with schema.connect() as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO T VALUES (:1, 1)", [(i,) for i in range(5)])
        assert capture_streaming_metrics(connector)["AbandonedTransactionIds"] == []
        assert capture_streaming_metrics(connector)["HoursToKeepTransactionInBuffer"] == 2
        connector.properties |= {"log.mining.buffer.transaction.events.threshold": 4}
        found = capture_streaming_metrics(connector)
        connection.commit()
    assert len(found["AbandonedTransactionIds"]) == found["NumberOfOversizedTransactions"] == 1
    assert found["ErrorCount"] == 1
    assert found["BufferedChangesCount"] == 0


def test_logs_of_the_session_and_switches_of_the_last_day_are_reported(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(log_mining_strategy="online_catalog")
    before = capture_streaming_metrics(connector)["SwitchCounter"]
    schema.sql("INSERT INTO T VALUES (1, 1)")
    schema.switch_log()
    schema.sql("INSERT INTO T VALUES (2, 1)")
    found = capture_streaming_metrics(connector)
    assert found["SwitchCounter"] - before >= 1
    logs = [entry for entry in found["RedoLogStatus"] if not entry.endswith("CURRENT")]
    (current,) = set(found["RedoLogStatus"]) - set(logs)
    assert [entry.partition("|")[0] for entry in found["RedoLogStatus"]] == found["CurrentRedoLogFileName"]
    assert logs
    assert all(entry.endswith(".arc|ARCHIVED") for entry in logs)
    assert current.endswith(".log|CURRENT")
    assert found["MinimumMinedLogCount"] == found["MaximumMinedLogCount"] == len(logs) + 1
    _of_three_windows()
    assert (found["NumberOfLogRetries"], found["NumberOfScnGaps"]) == (0, 0)


def test_ddl_that_is_not_understood_and_complaints_are_counted(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    schema.sql("ALTER TABLE T ADD W NUMBER(3)")
    found = capture_streaming_metrics(connector)
    assert (found["UnparsableDdlCount"], found["WarningCount"], found["ErrorCount"]) == (0, 0, 0)
    unknown = ddl.parse_ddl_statement("ALTER TABLE APP.T FROBNICATE (V)")
    schema.sql("ALTER TABLE T ADD X NUMBER(3)")
    with patch.object(
        ddl,
        "parse_ddl_statement",
        lambda text: unknown if text.startswith("ALTER") else ddl.statement_reader.parse_ddl_statement(text),
    ):
        found = capture_streaming_metrics(connector)
    assert (found["UnparsableDdlCount"], found["WarningCount"], found["ErrorCount"]) == (1, 1, 0)


@pytest.mark.usefixtures("redo_at_once")
def test_spilled_changes_are_counted(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory(log_mining_buffer_memory_max_bytes=0)
    with schema.connect() as connection:
        connection.cursor().executemany("INSERT INTO T VALUES (:1, 1)", [(i,) for i in range(7)])
        found = capture_streaming_metrics(connector)
        connection.rollback()
    assert (found["SpilledChangesCount"], found["BufferedChangesCount"], found["BufferedChangesInBytes"]) == (7, 7, 0)


def test_memory_of_the_session_is_reported_where_the_user_may_see_it(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    names = [
        f"MiningSession{area}GlobalArea{most}MemoryInBytes" for area in ("User", "Process") for most in ("", "Max")
    ]
    connector = connector_factory()
    values = [capture_streaming_metrics(connector)[name] for name in names]
    with closing(session_of(schema)) as session:
        shown = "SELECT n.NAME, s.VALUE FROM V$MYSTAT s, V$STATNAME n WHERE n.STATISTIC# = s.STATISTIC#"
        own = dict(session.connection.cursor().execute(shown).fetchall())
    assert values == [own[f"session {area} memory{most}"] for area in ("uga", "pga") for most in ("", " max")]
    with patch(
        "airflow_provider_cdc.sources.oracle.mining.session._STATISTICS", "SELECT NAME, VALUE FROM SYS.NOT_FOR_US"
    ):
        found = capture_streaming_metrics(connector)
    assert not set(names) & set(found)


# the log


def test_a_run_reports_what_it_did_when_it_ends_and_meanwhile_from_time_to_time(
    schema: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(log_mining_batch_size_default=1, log_mining_batch_size_min=1)

    def lines() -> list[str]:
        caplog.clear()
        schema.sql("INSERT INTO T SELECT NVL(MAX(ID), 0) + 1, 1 FROM T", "DELETE FROM U")
        with caplog.at_level(logging.INFO):
            found = capture_streaming_metrics(connector)
        messages = [r.getMessage() for r in caplog.records if r.name == metrics.__name__]
        assert f"up to SCN {found['CurrentScn']} (" in messages[-1]
        assert " 1 changes, " in messages[-1]
        return messages

    assert len(lines()) == 1
    with patch.object(metrics, "REPORT_SECONDS", 0.0):
        assert len(lines()) > 2


def test_the_result_is_fit_for_json_and_names_no_value_of_a_row(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    schema.sql("INSERT INTO T VALUES (123454321, 987656789)")
    shown = str(connector.capture().metrics)
    assert "APP.T" in shown
    assert "123454321" not in shown
    assert "987656789" not in shown
