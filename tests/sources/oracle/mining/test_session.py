"""Mining one window after the other: rows, sessions, and the shapes that a database may have."""

from __future__ import annotations

import datetime
import itertools
import logging
from contextlib import closing
from typing import Any

import oracledb
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.connect import fetch_rows
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH, WIRE, decode_contents
from airflow_provider_cdc.sources.oracle.mining.scn_windows import WindowPlanner
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import flushed_scn, ids, insert, mine_rows, session_of, settings
from tests.support.sources.oracle.oracle_server import run

XID = bytes.fromhex("0100020003000000")


# rows


def test_a_window_gives_its_rows_with_the_columns_of_a_batch(server: Oracle) -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp()
    start = server.scn()
    server.sql("INSERT INTO ty VALUES (1, 'a')", "SAVEPOINT s", "UPDATE ty SET v = 'b'", "ROLLBACK TO s")
    with session_of(server) as session:
        found = mine_rows(session, start, flushed_scn(server))
    assert [(row["code"], row["rollback"]) for row in found] == [
        (6, False),
        (1, False),
        (3, False),
        (3, True),
        (7, False),
    ]
    row = found[1]
    assert (row["owner"], row["table"], row["csf"], row["user"], row["thread"], row["status"]) == (
        "APP",
        "TY",
        False,
        "APP",
        1,
        0,
    )
    assert row["sql"] == """insert into "APP"."TY"("ID","V") values ('1','a');"""
    assert len(row["xid"]) == 8
    assert len(row["row_id"]) == 18
    assert row["rs_id"].strip().startswith("0x")
    assert row["object"] > 0
    assert abs(row["ts_us"] / 1e6 - before) < 30
    assert [row["scn"] for row in found] == sorted(row["scn"] for row in found)


def test_windows_that_follow_each_other_give_every_row_once(server: Oracle) -> None:
    start = server.scn()
    borders = [start]
    with closing(server.connect()) as owner:
        for number in range(30):
            run(owner, f"INSERT INTO ty VALUES ({number}, 'v')", *(["COMMIT"] if number % 3 == 0 else []))
            borders.append(flushed_scn(server))
        run(owner, "COMMIT")
    borders.append(flushed_scn(server))
    with session_of(server) as session:
        found = [row for at, end in itertools.pairwise(borders) for row in mine_rows(session, at, end, at == start)]
        assert ids(found) == list(range(30))
        assert session.counters.sessions == 1, "one LogMiner session is used for all windows of the same logs"
        assert mine_rows(session, borders[-1], borders[-1], False) == []


def test_the_first_window_has_its_first_scn_and_the_next_ones_have_not(server: Oracle) -> None:
    scn = server.scn() + 5
    server.inject([{"SCN": scn, "OPERATION_CODE": 1, "SQL_REDO": "x", "XID": XID, "SEG_OWNER": "APP", "TABLE_NAME": "TY",
                    "SRC_CON_NAME": server.pdb}])  # fmt: skip
    server.jump_scn(10)
    with session_of(server) as session:
        assert [row["scn"] for row in mine_rows(session, scn, flushed_scn(server), first=True)] == [scn]
        assert mine_rows(session, scn, flushed_scn(server), first=False) == []
        assert [row["scn"] for row in mine_rows(session, scn - 1, scn, first=False)] == [scn]


def test_scns_beyond_what_a_double_can_hold_are_exact(server: Oracle) -> None:
    server.jump_scn(2**53 + 1001)
    start = server.scn()
    insert(server, *range(10))
    with session_of(server) as session:
        end = flushed_scn(server)
        found = mine_rows(session, start, end)
        scns = [row["scn"] for row in found]
        assert len(set(scns)) == 12
        assert scns == list(range(scns[0], scns[0] + 12))
        assert any(scn % 2 for scn in scns if scn > 2**53)
        middle = scns[5]
        assert [r["scn"] for r in mine_rows(session, start, middle)] + [
            r["scn"] for r in mine_rows(session, middle, end, False)
        ] == scns


def test_times_are_utc_whatever_the_clock_of_the_server_shows() -> None:
    moment = datetime.datetime(2026, 7, 1, 12, 30)
    row: dict[str, Any] = dict.fromkeys(WIRE.names) | {
        "SCN": 1,
        "OPERATION_CODE": 1,
        "TIMESTAMP": moment,
        "CSF": 1,
    }
    batch = decode_contents(pa.Table.from_pylist([row], WIRE), 2 * 3600)
    assert batch.schema == BATCH
    utc = int((moment - datetime.timedelta(hours=2)).replace(tzinfo=datetime.UTC).timestamp() * 1e6)
    assert batch.to_pylist()[0] == dict.fromkeys(BATCH.names) | {
        "scn": 1,
        "code": 1,
        "csf": True,
        "rollback": False,
        "ts_us": utc,
    }


def test_rows_are_streamed_in_bounded_memory(server: Oracle) -> None:
    served = server.serve_rows(120_000)
    most, count = 0, 0
    with session_of(server, query__fetch__size=2000) as session:
        session.open_window(served["first"], served["last"])
        base = pa.total_allocated_bytes()
        for batch in session.read_rows(served["first"], served["last"]):
            count += sum(code == 1 for code in batch.column("code").to_pylist())
            most = max(most, pa.total_allocated_bytes() - base)
    assert count == 120_000
    assert most < 8_000_000


def test_both_threads_of_a_cluster_are_mined_by_scn() -> None:
    with Oracle({"threads": 2}) as server:
        server.sql("CREATE TABLE ty (id NUMBER, v VARCHAR2(20))")
        start = server.scn()
        for number in range(10):
            server.sql(f"INSERT INTO ty VALUES ({number}, 'v')", thread=number % 2 + 1)
            if number == 5:
                server.switch_log(2)
        with session_of(server) as session:
            found = mine_rows(session, start, flushed_scn(server))
        assert ids(found) == list(range(10))
        assert {row["thread"] for row in found} == {1, 2}


# sessions


def test_a_switch_begins_a_new_session_and_logs_that_are_done_are_removed_from_it(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        insert(server, 1)
        first = flushed_scn(server)
        assert ids(mine_rows(session, start, first)) == [1]
        assert session.counters.sessions == 1
        server.switch_log()
        insert(server, 2)
        second = flushed_scn(server)
        assert ids(mine_rows(session, first, second, False)) == [2]
        assert (session.counters.sessions, len(session.files)) == (2, 2)
        insert(server, 3)
        third = flushed_scn(server)
        assert ids(mine_rows(session, second, third, False)) == [3]
        assert (session.counters.sessions, len(session.files)) == (2, 1)
        assert fetch_rows(session.connection, "SELECT COUNT(*) FROM V$LOGMNR_LOGS") == [(1,)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_switch_is_counted_and_writes_a_dictionary_for_a_session_that_has_a_connection_as_configured(
    server: Oracle, restart: bool
) -> None:
    properties = {"log__mining__strategy": "redo_log_catalog", "log__mining__restart__connection": restart}
    config = settings(server, **properties)
    opened: list[oracledb.Connection] = []

    def open_connection() -> oracledb.Connection:
        opened.append(server.capture())
        return opened[-1]

    with MiningSession(config, Filters(config), open_connection=open_connection) as session:
        start = server.scn()
        insert(server, 1)
        first = flushed_scn(server)
        assert ids(mine_rows(session, start, first)) == [1]
        before, counted = {one.sequence for one in session.files}, session.counters.switches
        server.switch_log()
        insert(server, 2)
        assert ids(mine_rows(session, first, flushed_scn(server), False)) == [2]
        assert session.counters.sessions == 2
        assert session.counters.switches > counted
        assert {one.sequence for one in session.files if one.dictionary_begin} - before
    assert len(opened) == (2 if restart else 1)


@pytest.mark.parametrize("restart", [False, True])
def test_an_old_session_ends_and_its_connection_where_that_is_configured(server: Oracle, restart: bool) -> None:
    clock = iter(range(0, 10_000_000, 1_000))  # every look at the clock is 1,000 s later
    config = settings(server, log__mining__session__max__ms=500_000_000, log__mining__restart__connection=restart)
    opened: list[oracledb.Connection] = []

    def open_connection() -> oracledb.Connection:
        opened.append(server.capture())
        return opened[-1]

    with MiningSession(config, Filters(config), open_connection=open_connection, clock=lambda: next(clock)) as session:
        at = server.scn()
        for number in range(400):
            if number % 40 == 0:
                insert(server, number)
            end = flushed_scn(server)
            session.open_window(at + (number > 0), end)
            at = end
        assert 2 <= session.counters.sessions <= 20
    assert len(opened) == (session.counters.sessions if restart else 1)
    usual = settings(server)
    assert (usual.log_mining_session_max_ms, usual.log_mining_restart_connection) == (0, False)


def test_without_a_limit_a_session_is_never_too_old(server: Oracle) -> None:
    config = settings(server)
    clock = iter(range(0, 10**15, 10**9))
    with MiningSession(config, Filters(config), clock=lambda: next(clock)) as session:
        at = server.scn()
        for number in range(5):
            end = flushed_scn(server)
            session.open_window(at + (number > 0), end)
            at = end
        assert session.counters.sessions == 1


def test_a_lost_connection_is_an_error_that_a_retry_mends(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        insert(server, 1)
        mine_rows(session, start, flushed_scn(server))
        end = server.scn()
        server.kill()
        with pytest.raises(SourceUnavailable):
            session.open_window(start, end)
        server.start()
    with session_of(server) as session:
        assert ids(mine_rows(session, start, end)) == [1]


def test_what_the_driver_says_of_wrong_rights_is_reported(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        server.admin("REVOKE LOGMINING FROM c##dbzuser", "REVOKE SELECT ANY TRANSACTION FROM c##dbzuser")
        with pytest.raises(PrerequisiteError):
            session.open_window(start, flushed_scn(server))


# rows that say something about the mining


def test_missing_redo_is_searched_once_more_and_then_reported(server: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    start = server.scn()
    insert(server, 1)
    (scn,) = server.inject([{"OPERATION_CODE": 34, "INFO": "missing"}])
    insert(server, 2)
    end = flushed_scn(server)
    with session_of(server) as session:
        found = mine_rows(session, start, end)
        assert ids(found) == [1, 2]
        assert 34 not in [row["code"] for row in found]
        assert (session.counters.missing_scns, session.counters.sessions) == (1, 2)
        assert f"missing redo at SCN {scn}, but its logs are complete: " in caplog.text
        assert "redo01.log (thread 1, sequence 1" in caplog.text


def test_unsupported_rows_are_given_of_captured_tables(server: Oracle) -> None:
    server.sql("CREATE TABLE odd (id NUMBER)", "CREATE TABLE other (id NUMBER)")
    server.configure(unsupported=["ODD", "OTHER"])
    start = server.scn()
    server.sql("INSERT INTO odd VALUES (1)", "INSERT INTO other VALUES (1)")
    with session_of(server, table__include__list=r"APP\.(ODD|TY)") as session:
        found = mine_rows(session, start, flushed_scn(server))
    assert [(row["code"], row["table"]) for row in found if row["code"] == 255] == [(255, "ODD")]


def test_ddl_is_given_and_rows_older_than_it_are_given_without_names(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    server.sql("ALTER TABLE ty ADD (w NUMBER)")
    for strategy in ("online_catalog", "hybrid"):
        with session_of(server, log__mining__strategy=strategy) as session:
            found = mine_rows(session, start, flushed_scn(server))
        assert [row["sql"] for row in found if row["code"] == 5] == ["ALTER TABLE ty ADD (w NUMBER);"]
        (row,) = (row for row in found if row["code"] == 1)
        assert '("COL 1","COL 2") values (HEXTORAW(' in row["sql"]
        assert row["status"] == 2
        assert row["object"] > 0


# other shapes of the database


def test_only_archived_logs_are_mined_up_to_where_they_go(server: Oracle) -> None:
    with session_of(server, log__mining__archive__log__only__mode=True) as session:
        start = server.scn()
        insert(server, 1)
        server.switch_log()
        first = session.minable_scn()
        insert(server, 2)
        assert session.minable_scn() == first < server.scn()
        assert ids(mine_rows(session, start, first)) == [1]
        server.switch_log()
        assert ids(mine_rows(session, first, session.minable_scn(), False)) == [2]
        assert all(one.archived for one in session.files)
        archived = session.minable_scn()
    insert(server, 3)
    with session_of(server) as session:
        assert session.minable_scn() > archived, "by default online logs, too"


@pytest.mark.parametrize("strategy", ["online_catalog", "redo_log_catalog"])
def test_a_standby_is_mined_as_far_as_it_has_logs(strategy: str) -> None:
    with Oracle({"standby": True, "cdb": False}) as server:
        server.sql("CREATE TABLE ty (id NUMBER, v VARCHAR2(20))")
        start = server.scn()
        insert(server, 1)
        server.switch_log()
        insert(server, 2)
        standby = {
            "log__mining__readonly__hostname": f"{server.host}:{server._standby_port}",
            "log__mining__strategy": strategy,
        }
        with session_of(server, **standby) as session:
            end = session.minable_scn()
            if strategy == "redo_log_catalog":
                with pytest.raises(PrerequisiteError, match=r"on the primary: EXECUTE DBMS_LOGMNR_D\.BUILD"):
                    session.open_window(start, end)
                with closing(server.capture()) as primary:
                    run(primary, "BEGIN DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;")
            assert ids(mine_rows(session, start, end)) == [1]
            server.switch_log()
            assert ids(mine_rows(session, end, session.minable_scn(), False)) == [2]


def test_a_database_without_containers_is_mined() -> None:
    with Oracle({"cdb": False}) as server:
        server.sql("CREATE TABLE ty (id NUMBER, v VARCHAR2(20))")
        start = server.scn()
        insert(server, 1)
        with session_of(server) as session:
            assert ids(mine_rows(session, start, flushed_scn(server))) == [1]


def test_the_time_of_an_scn_is_known_or_not(server: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with session_of(server) as session:
        insert(server, 1)
        time = session.scn_time(server.scn())
        assert time is not None
        assert abs(time - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)) < datetime.timedelta(seconds=30)
        assert session.scn_time(5) is None
        assert session.scn_time(10**15) is None


def test_the_ends_of_logs_are_borders_of_windows(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    for _ in range(3):
        server.switch_log()
    with session_of(server, log__mining__log__count__min=2) as session:
        borders = session.log_ends(start)
        assert len(borders) == 3
        assert session.log_ends(borders[0]) == borders[1:]
        windows = WindowPlanner(settings(server, log__mining__log__count__min=2))
        windows.size = 1
        end = windows.choose_window(start, server.scn(), log_ends=session.log_ends).end
        assert end == borders[1]
        session.open_window(start, end)
        assert len(session.files) == 2
