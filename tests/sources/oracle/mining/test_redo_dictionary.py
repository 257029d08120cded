"""Dictionaries in the redo: which one is used, and when another is written."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.oracle.connect import fetch_rows
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import changes, flushed_scn, ids, insert, mine_rows, session_of, settings
from tests.support.sources.oracle.oracle_server import run


def test_a_dictionary_in_the_redo_knows_the_structure_of_then(server: Oracle) -> None:
    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        at = server.scn()
        session.open_window(at, flushed_scn(server))
        found = []
        for step in range(4):
            server.sql(f"INSERT INTO ty (id) VALUES ({step})")
            server.sql(f"ALTER TABLE ty ADD (w{step} NUMBER)")
            server.sql(f"INSERT INTO ty (id) VALUES ({step + 10})")
            if step % 2:
                server.switch_log()
            end = flushed_scn(server)
            found += mine_rows(session, at, end, first=False)
            at = end
        assert ids(found) == [0, 10, 1, 11, 2, 12, 3, 13]
        texts = changes(found)
        assert all('"ID"' in text and "COL" not in text for text in texts)
        assert ['"W1"' in text for text in texts] == [False, False, False, True, True, True, True, True]


def test_a_dictionary_is_written_at_the_start_and_after_each_switch_only(server: Oracle) -> None:
    def count_dictionary_builds() -> int:
        with closing(server.capture()) as connection:
            return int(
                fetch_rows(connection, "SELECT COUNT(*) FROM v$archived_log WHERE dictionary_begin = 'YES'")[0][0]
            )

    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        at = server.scn()
        counts = []
        for switch in (False, False, True, False, False, True, True, False):
            if switch:
                server.switch_log()
            insert(server, 1)
            end = flushed_scn(server)
            assert ids(mine_rows(session, at, end, False)) == [1]
            at = end
            counts.append(count_dictionary_builds())
    assert counts == [1, 1, 2, 2, 2, 3, 4, 4]
    with session_of(server, log__mining__strategy="redo_log_catalog") as session:
        session.open_window(at, flushed_scn(server))
        assert count_dictionary_builds() == 4, "a new run goes on with the dictionary that is there"


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
        assert ids(mine_rows(session, start, flushed_scn(server))) == [1]
        assert len(waits) == 2
        server.hold_archiving()
        server.switch_log()
        start = server.scn()
        insert(server, 2)
        assert ids(mine_rows(session, start, flushed_scn(server))) == [2], "the older dictionary does as well"


def test_a_dictionary_file_is_used_where_one_is_named(server: Oracle) -> None:
    with closing(server.capture()) as connection:
        run(connection, "BEGIN DBMS_LOGMNR_D.BUILD('d.ora', '/tmp', OPTIONS => DBMS_LOGMNR_D.STORE_IN_FLAT_FILE); END;")
    start = server.scn()
    insert(server, 1)
    server.sql("ALTER TABLE ty ADD (w NUMBER)")
    end = flushed_scn(server)
    with session_of(server, log__mining__path__dictionary="/tmp/d.ora") as session:
        assert changes(mine_rows(session, start, end)) == ["""insert into "APP"."TY"("ID","V") values ('1','v');"""]
    with (
        session_of(server, log__mining__path__dictionary="/tmp/none.ora") as session,
        pytest.raises(PrerequisiteError, match="dictionary file"),
    ):
        session.open_window(start, end)
