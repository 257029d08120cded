"""Mining one window after the other: every row once, whatever happens to the logs meanwhile."""

from __future__ import annotations

import datetime
import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import oracledb
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.sources.oracle.connect import database_of, rows
from airflow_provider_cdc.sources.oracle.mining.flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.mining.log_switch import Progress
from airflow_provider_cdc.sources.oracle.mining.query import BATCH, WIRE, decoded
from airflow_provider_cdc.sources.oracle.mining.redo_logs import LogFile
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from airflow_provider_cdc.sources.oracle.mining.windows import Windows
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import changes, mined, session_of, settings
from tests.support.oracle_server import run

XID = bytes.fromhex("0100020003000000")


@pytest.fixture
def server() -> Iterator[Oracle]:
    with Oracle() as server:
        server.sql(
            "CREATE TABLE ty (id NUMBER, v VARCHAR2(20))", "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        )
        yield server


def insert(server: Oracle, *ids: int) -> None:
    server.sql(*(f"INSERT INTO ty VALUES ({id_}, 'v')" for id_ in ids))


def ids(found: list[dict[str, Any]]) -> list[int]:
    return [int(text.split("values ('")[1].split("'")[0]) for text in changes(found)]


def now(server: Oracle) -> int:
    """An SCN up to which all is on disk."""
    scn = server.scn()
    server.flush()
    return scn


# rows


def test_a_window_gives_its_rows_with_the_columns_of_a_batch(server: Oracle) -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp()
    start = server.scn()
    server.sql("INSERT INTO ty VALUES (1, 'a')", "SAVEPOINT s", "UPDATE ty SET v = 'b'", "ROLLBACK TO s")
    with session_of(server) as session:
        found = mined(session, start, now(server))
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
            borders.append(now(server))
        run(owner, "COMMIT")
    borders.append(now(server))
    with session_of(server) as session:
        found = [row for at, end in itertools.pairwise(borders) for row in mined(session, at, end, at == start)]
        assert ids(found) == list(range(30))
        assert session.counters.sessions == 1, "one LogMiner session is used for all windows of the same logs"
        assert mined(session, borders[-1], borders[-1], False) == []


def test_the_first_window_has_its_first_scn_and_the_next_ones_have_not(server: Oracle) -> None:
    scn = server.scn() + 5
    server.inject([{"SCN": scn, "OPERATION_CODE": 1, "SQL_REDO": "x", "XID": XID, "SEG_OWNER": "APP", "TABLE_NAME": "TY",
                    "SRC_CON_NAME": server.pdb}])  # fmt: skip
    server.jump_scn(10)
    with session_of(server) as session:
        assert [row["scn"] for row in mined(session, scn, now(server), first=True)] == [scn]
        assert mined(session, scn, now(server), first=False) == []
        assert [row["scn"] for row in mined(session, scn - 1, scn, first=False)] == [scn]


def test_scns_beyond_what_a_double_can_hold_are_exact(server: Oracle) -> None:
    server.jump_scn(2**53 + 1001)
    start = server.scn()
    insert(server, *range(10))
    with session_of(server) as session:
        end = now(server)
        found = mined(session, start, end)
        scns = [row["scn"] for row in found]
        assert len(set(scns)) == 12
        assert scns == list(range(scns[0], scns[0] + 12))
        assert any(scn % 2 for scn in scns if scn > 2**53)
        middle = scns[5]
        assert [r["scn"] for r in mined(session, start, middle)] + [
            r["scn"] for r in mined(session, middle, end, False)
        ] == scns


def test_times_are_utc_whatever_the_clock_of_the_server_shows() -> None:
    moment = datetime.datetime(2026, 7, 1, 12, 30)
    row: dict[str, Any] = dict.fromkeys(WIRE.names) | {
        "SCN": 1,
        "OPERATION_CODE": 1,
        "TIMESTAMP": moment,
        "CSF": 1,
    }
    batch = decoded(pa.Table.from_pylist([row], WIRE), 2 * 3600)
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
        session.open(served["first"], served["last"], first=True)
        base = pa.total_allocated_bytes()
        for batch in session.rows(served["first"], served["last"], first=True):
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
            found = mined(session, start, now(server))
        assert ids(found) == list(range(10))
        assert {row["thread"] for row in found} == {1, 2}


# sessions


def test_a_switch_begins_a_new_session_and_logs_that_are_done_are_removed_from_it(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        insert(server, 1)
        first = now(server)
        assert ids(mined(session, start, first)) == [1]
        assert session.counters.sessions == 1
        server.switch_log()
        insert(server, 2)
        second = now(server)
        assert ids(mined(session, first, second, False)) == [2]
        assert (session.counters.sessions, len(session.files)) == (2, 2)
        insert(server, 3)
        third = now(server)
        assert ids(mined(session, second, third, False)) == [3]
        assert (session.counters.sessions, len(session.files)) == (2, 1)
        assert rows(session.connection, "SELECT COUNT(*) FROM V$LOGMNR_LOGS") == [(1,)]


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
            end = now(server)
            session.open(at, end, number == 0)
            at = end
        assert 2 <= session.counters.sessions <= 20
    assert len(opened) == (session.counters.sessions if restart else 1)


def test_without_a_limit_a_session_is_never_too_old(server: Oracle) -> None:
    config = settings(server)
    clock = iter(range(0, 10**15, 10**9))
    with MiningSession(config, Filters(config), clock=lambda: next(clock)) as session:
        at = server.scn()
        for number in range(5):
            end = now(server)
            session.open(at, end, number == 0)
            at = end
        assert session.counters.sessions == 1


def test_a_lost_connection_is_an_error_that_a_retry_mends(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        insert(server, 1)
        mined(session, start, now(server))
        end = server.scn()
        server.kill()
        with pytest.raises(SourceUnavailable):
            session.open(start, end, True)
        server.start()
    with session_of(server) as session:
        assert ids(mined(session, start, end)) == [1]


def test_what_the_driver_says_of_wrong_rights_is_told(server: Oracle) -> None:
    with session_of(server) as session:
        start = server.scn()
        server.admin("REVOKE LOGMINING FROM c##dbzuser", "REVOKE SELECT ANY TRANSACTION FROM c##dbzuser")
        with pytest.raises(PrerequisiteError):
            session.open(start, now(server), True)


# logs that change


class Meddling(MiningSession):
    """Something happens just after the logs were collected."""

    def __init__(self, server: Oracle, *deeds: Callable[[], object], **properties: Any) -> None:
        config = settings(server, **properties)
        super().__init__(config, Filters(config), sleep=lambda seconds: None)
        self._deeds = list(deeds)

    def _needed(self, low: int, end: int) -> tuple[LogFile, ...]:
        files = super()._needed(low, end)
        if self._deeds:
            self._deeds.pop(0)()
        return files


def switches(server: Oracle, count: int) -> Callable[[], None]:
    def switch() -> None:
        for _ in range(count):
            server.switch_log()

    return switch


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_logs_that_are_switched_after_they_were_collected(server: Oracle, count: int) -> None:
    start = server.scn()
    insert(server, 1, 2, 3)
    end = now(server)
    with Meddling(server, switches(server, count), switches(server, count)) as session:
        assert ids(mined(session, start, end)) == [1, 2, 3]
        assert (session.counters.retries > 0) == (count >= 3), "three switches use the online file again"


def test_an_archived_log_that_is_deleted_after_it_was_collected_is_read_online(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    server.switch_log()
    with Meddling(server, server.purge) as session:
        assert ids(mined(session, start, now(server))) == [1]
        assert session.counters.retries == 1


def test_logs_that_are_deleted_for_good_are_an_error(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    switches(server, 5)()
    with Meddling(server, server.purge) as session, pytest.raises(PositionLost, match="RESTORE ARCHIVELOG"):
        session.open(start, now(server), True)


def test_logs_that_go_on_changing_are_an_error_that_a_retry_may_mend(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    end = now(server)
    server.hold_archiving()
    with Meddling(server, *[switches(server, 3)] * 50) as session, pytest.raises(SourceUnavailable):
        session.open(start, end, True)


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_an_online_log_that_is_used_again_while_it_is_read_is_read_on_in_its_copy(server: Oracle, size: int) -> None:
    """Also in the midst of rows with the same SCN, and of rows that are the pieces of one text."""
    for at in (1, 4, 7, 8, 9, 11, 15):
        start = server.scn()
        insert(server, 1, 2, 3)
        scn = server.scn() + 5
        server.inject([
            {"SCN": scn, "OPERATION_CODE": 1, "SQL_REDO": f"piece {n}", "XID": XID, "SEG_OWNER": "APP", "TABLE_NAME": "TY",
             "SRC_CON_NAME": server.pdb, "CSF": int(n % 2), "RS_ID": " 0x000001.00000001.0010 ", "SSN": n // 2}
            for n in range(8)
        ])  # fmt: skip
        server.jump_scn(10)
        insert(server, 4, 5)
        end = now(server)
        with session_of(server) as quiet:
            expected = mined(quiet, start, end)
        assert len(expected) == 17
        with session_of(server, query__fetch__size=size) as session:
            session.open(start, end, True)
            found: list[dict[str, Any]] = []
            switched = False
            for batch in session.rows(start, end, True):
                found += batch.to_pylist()
                if len(found) >= at and not switched:
                    switches(server, 3)()
                    switched = True
            assert found == expected
            assert session.counters.retries == 1


@pytest.mark.parametrize(
    ("batches", "low", "taken", "ordered"),
    [
        ([[5, 7], [7, 9]], 9, 1, True), ([[5, 7], [7, 7], [7]], 7, 4, True), ([[5], [6, 6]], 6, 2, True),
        ([[5, 7], [6, 8]], 8, 1, False), ([[5, 8, 7]], 7, 1, False),
    ],
)  # fmt: skip
def test_a_place_in_a_window_needs_rows_by_ascending_scn(
    batches: list[list[int]], low: int, taken: int, ordered: bool
) -> None:
    progress = Progress(5)
    for scns in batches:
        progress.advance(batch_of(scns))
    assert (progress.low, progress.rows, progress.ordered) == (low, taken, ordered)


def batch_of(scns: list[int]) -> pa.RecordBatch:
    blank: dict[str, Any] = dict.fromkeys(BATCH.names)
    return pa.RecordBatch.from_pylist([blank | {"scn": scn} for scn in scns], schema=BATCH)


class Writer(threading.Thread):
    """Makes transactions in one instance, and counts the rows."""

    def __init__(self, server: Oracle, instance: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.instance, self.stop, self.count = server, instance, stop, 0

    def run(self) -> None:
        chance = random.Random(self.instance)
        with closing(self.server.connect(thread=self.instance)) as connection:
            while not self.stop.wait(chance.random() * 0.01):
                for _ in range(chance.randrange(1, 6)):
                    self.count += 1
                    run(connection, f"INSERT INTO ty VALUES ({self.count * 10 + self.instance}, 'v')")
                run(connection, "COMMIT" if chance.random() < 0.8 else "ROLLBACK")


class Trouble(threading.Thread):
    """Switches logs, holds archiving back, and deletes logs that were mined, at random moments."""

    def __init__(self, server: Oracle, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.stop, self.mined_to = server, stop, 0

    def run(self) -> None:
        chance, server = random.Random(9), self.server
        deeds = [switches(server, 1), switches(server, 3), switches(server, 4), lambda: server.switch_log(2)]
        deeds += [server.hold_archiving, server.release_archiving, server.release_archiving]
        deeds.append(lambda: server.purge(before=self.mined_to))
        while not self.stop.wait(chance.random() * 0.05):
            chance.choice(deeds)()
        server.release_archiving()


def test_many_switches_at_random_moments_lose_no_row_and_give_none_twice() -> None:
    """Two instances write, switch, hold back archiving and delete what was mined; windows follow each other the whole time."""
    with Oracle({"threads": 2, "switch_every": 40}) as server:
        server.sql(
            "CREATE TABLE ty (id NUMBER, v VARCHAR2(20))", "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        )
        config = settings(server, query__fetch__size=20, rac__nodes=",".join(server.nodes))
        with closing(server.capture()) as connection:
            facts = database_of(connection)
        stop = threading.Event()
        writers, trouble = [Writer(server, instance, stop) for instance in (1, 2)], Trouble(server, stop)
        found: list[tuple[int, str]] = []
        with MiningSession(config, Filters(config)) as session, LogWriterFlush(config, facts) as flush:
            windows = Windows(config)
            start = at = session.minable_scn()
            for worker in (*writers, trouble):
                worker.start()
            last = False
            while not last:
                if windows.counters.steps > 40:
                    last = True
                    stop.set()
                    for worker in (*writers, trouble):
                        worker.join()
                end = flush.flush(windows.next(at, session.minable_scn()).end)
                found += _inserts(mined(session, at, end, at == start))
                trouble.mined_to = at = end
            assert session.counters.sessions > 10
            assert session.counters.retries > 0
        for writer in writers:
            mine = [int(number) for _, number in found if int(number) % 10 == writer.instance]
            assert mine == [n * 10 + writer.instance for n in range(1, writer.count + 1)]
            assert writer.count > 100
        assert [scn for scn, _ in found] == sorted(scn for scn, _ in found)


def _inserts(rows_: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["scn"], row["sql"].split("'")[1]) for row in rows_ if row["code"] == 1 and not row["rollback"]]


# rows that say something about the mining


def test_missing_redo_is_looked_for_once_more_and_then_told(server: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    start = server.scn()
    insert(server, 1)
    (scn,) = server.inject([{"OPERATION_CODE": 34, "INFO": "missing"}])
    insert(server, 2)
    end = now(server)
    with session_of(server) as session:
        found = mined(session, start, end)
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
        found = mined(session, start, now(server))
    assert [(row["code"], row["table"]) for row in found if row["code"] == 255] == [(255, "ODD")]


def test_ddl_is_given_and_rows_older_than_it_are_given_without_names(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    server.sql("ALTER TABLE ty ADD (w NUMBER)")
    for strategy in ("online_catalog", "hybrid"):
        with session_of(server, log__mining__strategy=strategy) as session:
            found = mined(session, start, now(server))
        assert [row["sql"] for row in found if row["code"] == 5] == ["ALTER TABLE ty ADD (w NUMBER);"]
        (row,) = (row for row in found if row["code"] == 1)
        assert '("COL 1","COL 2") values (HEXTORAW(' in row["sql"]
        assert row["status"] == 2
        assert row["object"] > 0


# dictionaries


def test_a_dictionary_in_the_redo_knows_the_structure_of_then(server: Oracle) -> None:
    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        at = server.scn()
        session.open(at, now(server), True)
        found = []
        for step in range(4):
            server.sql(f"INSERT INTO ty (id) VALUES ({step})")
            server.sql(f"ALTER TABLE ty ADD (w{step} NUMBER)")
            server.sql(f"INSERT INTO ty (id) VALUES ({step + 10})")
            if step % 2:
                server.switch_log()
            end = now(server)
            found += mined(session, at, end, first=False)
            at = end
        assert ids(found) == [0, 10, 1, 11, 2, 12, 3, 13]
        texts = changes(found)
        assert all('"ID"' in text and "COL" not in text for text in texts)
        assert ['"W1"' in text for text in texts] == [False, False, False, True, True, True, True, True]


def test_a_dictionary_is_written_at_the_start_and_after_each_switch_only(server: Oracle) -> None:
    def built() -> int:
        with closing(server.capture()) as connection:
            return int(rows(connection, "SELECT COUNT(*) FROM v$archived_log WHERE dictionary_begin = 'YES'")[0][0])

    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        at = server.scn()
        counts = []
        for switch in (False, False, True, False, False, True, True, False):
            if switch:
                server.switch_log()
            insert(server, 1)
            end = now(server)
            assert ids(mined(session, at, end, False)) == [1]
            at = end
            counts.append(built())
    assert counts == [1, 1, 2, 2, 2, 3, 4, 4]
    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        session.open(at, now(server))
        assert built() == 4, "a new run goes on with the dictionary that is there"


def test_a_dictionary_that_is_not_archived_is_waited_for(server: Oracle) -> None:
    server.hold_archiving()
    config = settings(server, log__mining__strategy="redo_log_catalog")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            server.release_archiving()

    start = server.scn()
    insert(server, 1)
    with MiningSession(config, Filters(config), sleep=wait) as session:
        assert ids(mined(session, start, now(server))) == [1]
        assert len(waits) == 2
        server.hold_archiving()
        server.switch_log()
        start = server.scn()
        insert(server, 2)
        assert ids(mined(session, start, now(server))) == [2], "the older dictionary does as well"


def test_a_dictionary_file_is_used_where_one_is_named(server: Oracle) -> None:
    with closing(server.capture()) as connection:
        run(connection, "BEGIN DBMS_LOGMNR_D.BUILD('d.ora', '/tmp', OPTIONS => DBMS_LOGMNR_D.STORE_IN_FLAT_FILE); END;")
    start = server.scn()
    insert(server, 1)
    server.sql("ALTER TABLE ty ADD (w NUMBER)")
    end = now(server)
    with session_of(server, log__mining__path__dictionary="/tmp/d.ora") as session:
        assert changes(mined(session, start, end)) == ["""insert into "APP"."TY"("ID","V") values ('1','v');"""]
    with (
        session_of(server, log__mining__path__dictionary="/tmp/none.ora") as session,
        pytest.raises(PrerequisiteError, match="dictionary file"),
    ):
        session.open(start, end, True)


# other shapes of the database


def test_only_archived_logs_are_mined_up_to_where_they_go(server: Oracle) -> None:
    with session_of(server, log__mining__archive__log__only__mode=True) as session:
        start = server.scn()
        insert(server, 1)
        server.switch_log()
        first = session.minable_scn()
        insert(server, 2)
        assert session.minable_scn() == first < server.scn()
        assert ids(mined(session, start, first)) == [1]
        server.switch_log()
        assert ids(mined(session, first, session.minable_scn(), False)) == [2]
        assert all(one.archived for one in session.files)


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
                    session.open(start, end, True)
                with closing(server.capture()) as primary:
                    run(primary, "BEGIN DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;")
            assert ids(mined(session, start, end)) == [1]
            server.switch_log()
            assert ids(mined(session, end, session.minable_scn(), False)) == [2]


def test_a_database_without_containers_is_mined() -> None:
    with Oracle({"cdb": False}) as server:
        server.sql("CREATE TABLE ty (id NUMBER, v VARCHAR2(20))")
        start = server.scn()
        insert(server, 1)
        with session_of(server) as session:
            assert ids(mined(session, start, now(server))) == [1]


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
    switches(server, 3)()
    with session_of(server, log__mining__log__count__min=2) as session:
        borders = session.borders(start)
        assert len(borders) == 3
        assert session.borders(borders[0]) == borders[1:]
        windows = Windows(settings(server, log__mining__log__count__min=2))
        windows.size = 1
        end = windows.next(start, server.scn(), borders=session.borders).end
        assert end == borders[1]
        session.open(start, end, True)
        assert len(session.files) == 2
