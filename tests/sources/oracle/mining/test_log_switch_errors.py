"""Logs that are switched, archived, deleted or used again while they are mined: every row comes once, or it is an error."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.sources.oracle.connect import database_of
from airflow_provider_cdc.sources.oracle.mining import unmined_redo
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import RedoLogFile
from airflow_provider_cdc.sources.oracle.mining.scn_windows import WindowPlanner
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from airflow_provider_cdc.sources.oracle.source import OracleSource
from dev.servers.oracle import Oracle
from dev.servers.oracle.redo.redo import MEMBER_SIZE
from tests.sources.oracle.mined import flushed_scn, ids, insert, mine_rows, session_of, settings
from tests.support.sources.oracle.oracle_server import run

XID = bytes.fromhex("0100020003000000")


class MeddlingSession(MiningSession):
    """Something happens just after the logs were collected."""

    def __init__(self, server: Oracle, *deeds: Callable[[], object], **properties: Any) -> None:
        config = settings(server, **properties)
        super().__init__(config, Filters(config), sleep=lambda seconds: None)
        self._deeds = list(deeds)

    def _needed(self, low: int, end: int) -> tuple[RedoLogFile, ...]:
        files = super()._needed(low, end)
        if self._deeds:
            self._deeds.pop(0)()
        return files


def switches(server: Oracle, count: int) -> Callable[[], None]:
    def switch() -> None:
        for _ in range(count):
            server.switch_log()

    return switch


def test_what_is_left_to_mine_is_the_archived_logs_behind_the_position(server: Oracle) -> None:
    source = OracleSource(settings(server))
    with closing(source):
        server.switch_log()
        at = source.current_position()
        assert source.log_window(at) == LogWindow(0)
        for logs in (1, 2, 3):
            insert(server, logs)
            server.switch_log()
            found = source.log_window(at).behind_bytes
            assert found is not None
            # the first one has SCNs from before the position, too
            assert (logs - 1) * MEMBER_SIZE < found <= logs * MEMBER_SIZE
        assert source.log_window(replace(at, dbid=at.dbid + 1)) == LogWindow()


def test_when_the_log_is_removed_is_known_as_soon_as_some_was(server: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest archived log is as old as logs get, unless a job has just deleted all of them: less than a day says nothing."""
    server.switch_log()
    with closing(OracleSource(settings(server))) as source:
        kept = source.find_log_retention()
        assert kept is not None
        assert kept.seconds is None
        assert "never removes its log (no archived log was deleted yet; RMAN" in kept.format_text()
        server.purge()
        assert source.find_log_retention() is None, "there is none that could be measured"
        insert(server, 1)
        server.switch_log()
        time.sleep(2)
        at = source.current_position()
        insert(server, 2)
        server.switch_log()
        time.sleep(1)
        assert source.log_window(at).gone_at_s is None
        monkeypatch.setattr(unmined_redo, "SHORT_S", 1)
        kept, found = source.find_log_retention(), source.log_window(at)
        assert kept is not None
        assert kept.seconds is not None
        assert found.gone_at_s is not None
        assert 2 <= kept.seconds <= 30
        assert found.gone_at_s - time.time() == pytest.approx(kept.seconds - 1, abs=1.5), "its log is a second old"
        assert source.log_window(source.current_position()).gone_at_s is None, "it is in an online log"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_logs_that_are_switched_after_they_were_collected(server: Oracle, count: int) -> None:
    start = server.scn()
    insert(server, 1, 2, 3)
    end = flushed_scn(server)
    with MeddlingSession(server, switches(server, count), switches(server, count)) as session:
        assert ids(mine_rows(session, start, end)) == [1, 2, 3]
        assert (session.counters.retries > 0) == (count >= 3), "three switches use the online file again"


def test_an_archived_log_that_is_deleted_after_it_was_collected_is_read_online(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    server.switch_log()
    with MeddlingSession(server, server.purge) as session:
        assert ids(mine_rows(session, start, flushed_scn(server))) == [1]
        assert session.counters.retries == 1


def test_logs_that_are_deleted_for_good_are_an_error(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    switches(server, 5)()
    with MeddlingSession(server, server.purge) as session, pytest.raises(PositionLost, match="RESTORE ARCHIVELOG"):
        session.open_window(start, flushed_scn(server))


def test_logs_that_go_on_changing_are_an_error_that_a_retry_may_mend(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    end = flushed_scn(server)
    server.hold_archiving()
    with MeddlingSession(server, *[switches(server, 3)] * 50) as session, pytest.raises(SourceUnavailable):
        session.open_window(start, end)


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
        end = flushed_scn(server)
        with session_of(server) as quiet:
            expected = mine_rows(quiet, start, end)
        assert len(expected) == 17
        with session_of(server, query__fetch__size=size) as session:
            session.open_window(start, end)
            found: list[dict[str, Any]] = []
            switched = False
            for batch in session.read_rows(start, end):
                found += batch.to_pylist()
                if len(found) >= at and not switched:
                    switches(server, 3)()
                    switched = True
            assert found == expected
            assert session.counters.retries == 1


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


class LogTrouble(threading.Thread):
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


@pytest.mark.parametrize(
    "inside",
    [{}, {"local": True}, {"local": True, "autonomous": True}],
    ids=["logs added", "logs found", "logs found and not shown"],
)
def test_many_switches_at_random_moments_lose_no_row_and_give_none_twice(inside: dict[str, Any]) -> None:
    """Two instances write, switch, hold back archiving and delete what was mined; windows follow each other the whole time."""
    with Oracle({"threads": 2, "switch_every": 40, **inside}) as server:
        server.configure(private_strands=False)
        server.sql(
            "CREATE TABLE ty (id NUMBER, v VARCHAR2(20))", "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        )
        config = settings(server, query__fetch__size=20, rac__nodes=",".join(server.nodes))
        with closing(server.capture()) as connection:
            facts = database_of(connection)
        stop = threading.Event()
        writers, trouble = [Writer(server, instance, stop) for instance in (1, 2)], LogTrouble(server, stop)
        found: list[tuple[int, str]] = []
        with MiningSession(config, Filters(config)) as session, LogWriterFlush(config, facts, dict) as flush:
            windows = WindowPlanner(config)
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
                end = flush.flush(windows.choose_window(at, session.minable_scn()).end).scn
                found += _inserts(mine_rows(session, at, end, at == start))
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
