"""LogMiner inside a pluggable database, where it finds the logs by itself: on premises, and where no view shows the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import translate_driver_errors
from airflow_provider_cdc.sources.oracle.error_translation import translate_error
from airflow_provider_cdc.sources.oracle.mining import logminer_calls
from airflow_provider_cdc.sources.oracle.mining.mining_session_logs import (
    DiscoveredSessionLogs,
    UnlistedSessionLogs,
    session_logs,
)
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import RedoLogFile
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from airflow_provider_cdc.sources.oracle.source import OracleSource
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import as_rows, flushed_scn, ids, insert, mine_rows, session_of, settings
from tests.support.sources.oracle.oracle_server import run

PLACES = ["on premises", "autonomous"]


@pytest.fixture(params=PLACES)
def server(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """A server whose capture user is a local one of the pluggable database."""
    with Oracle(
        {"local": True, "autonomous": request.param == "autonomous", "pdbs": ["ORCLPDB1", "ORCLPDB2"]}
    ) as oracle:
        table(oracle)
        yield oracle


@pytest.fixture
def autonomous() -> Iterator[Oracle]:
    with Oracle({"local": True, "autonomous": True}) as oracle:
        table(oracle)
        yield oracle


def table(server: Oracle, **login: Any) -> None:
    server.sql(
        "CREATE TABLE ty (id NUMBER, v VARCHAR2(20))", "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS", **login
    )


def open_quick_session(server: Oracle, **properties: Any) -> MiningSession:
    """A session that does not wait for logs."""
    config = settings(server, **properties)
    return MiningSession(config, Filters(config), sleep=lambda seconds: None)


def overwrite_logs(server: Oracle) -> None:
    for _ in range(3):  # as many as there are groups
        server.switch_log()


def test_the_logs_are_found_and_rows_of_this_container_alone_are_given(server: Oracle) -> None:
    other = {"dsn": f"{server.host}:{server.port}/ORCLPDB2"}
    table(server, **other)
    start = server.scn()
    insert(server, 1)
    server.sql("INSERT INTO ty VALUES (9, 'v')", **other)
    server.switch_log()
    insert(server, 2)
    with session_of(server) as session:
        assert ids(mine_rows(session, start, flushed_scn(server))) == [1, 2]
        assert isinstance(session.log_collector, UnlistedSessionLogs) == bool(server.options["autonomous"])
        assert [status for _, status in session.counters.logs] == ["ARCHIVED", "CURRENT"]


def test_windows_over_log_switches_give_every_row_once(server: Oracle) -> None:
    start = at = server.scn()
    found: list[int] = []
    with session_of(server) as session:
        for number in range(8):
            insert(server, number)
            if number % 2:
                overwrite_logs(server)
            end = flushed_scn(server)
            found += ids(mine_rows(session, at, end, at == start))
            at = end
        assert session.counters.retries == 0
    assert found == list(range(8))


@pytest.mark.parametrize("fetch", [1, 3])
def test_a_log_that_is_overwritten_while_it_is_read_is_mined_again(server: Oracle, fetch: int) -> None:
    start = server.scn()
    insert(server, 1, 2, 3, 4)
    end = flushed_scn(server)
    with open_quick_session(server, query__fetch__size=fetch) as session:
        session.open_window(start, end)
        batches = session.read_rows(start, end)
        found = next(batches).to_pylist()
        overwrite_logs(server)
        found += as_rows(batches)
        assert ids(found) == [1, 2, 3, 4]
        assert session.counters.retries == 1
        assert {status for _, status in session.counters.logs} == {"ARCHIVED"}


def test_a_switch_that_overwrites_nothing_is_no_reason_to_mine_again(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1, 2)
    end = flushed_scn(server)
    with open_quick_session(server, query__fetch__size=1) as session:
        session.open_window(start, end)
        batches = session.read_rows(start, end)
        found = next(batches).to_pylist()
        for _ in range(2):  # of three groups
            server.switch_log()
        assert ids(found + as_rows(batches)) == [1, 2]
        assert session.counters.retries == 0


def test_an_instance_that_is_down_overwrites_nothing() -> None:
    with Oracle({"local": True, "autonomous": True, "threads": 2}) as server:
        table(server)
        start = server.scn()
        server.sql("INSERT INTO ty VALUES (1, 'v')", thread=2)
        server.close_thread(2)
        insert(server, 2)
        with open_quick_session(server) as session:
            assert ids(mine_rows(session, start, flushed_scn(server))) == [1, 2]
            assert session.counters.retries == 0


def test_logs_that_are_deleted_are_an_error_that_says_so(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    overwrite_logs(server)
    server.purge()
    with (
        open_quick_session(server) as session,
        pytest.raises(PositionLost, match=r"snapshot\.mode=when_needed") as caught,
    ):
        session.open_window(start, flushed_scn(server))
    assert f"SCN {start}" in str(caught.value.where)
    assert ("RESTORE ARCHIVELOG" in str(caught.value.remedy)) == (not server.options["autonomous"])
    with closing(OracleSource(settings(server))) as source:
        position = source.current_position()
        source.verify_position(position)
        oldest = source.oldest_position()
        assert start < oldest.scn <= position.scn
        source.verify_position(oldest)
        for lost in (oldest.scn - 1, start):
            with pytest.raises(PositionLost):
                source.verify_position(source.parse_position({"scn": lost}))


def test_the_log_is_known_back_to_its_beginning(server: Oracle) -> None:
    with closing(OracleSource(settings(server))) as source:
        insert(server, 1)
        overwrite_logs(server)
        oldest = source.oldest_position()
        assert oldest.scn == source.database_status.resetlogs
        source.verify_position(oldest)
        server.reset_logs()
        with pytest.raises(PositionLost, match="RESETLOGS"):
            source.verify_position(source.parse_position({"scn": source.database_status.resetlogs}))


def test_the_log_is_complete_from_behind_a_missing_one(server: Oracle) -> None:
    overwrite_logs(server)
    server.hold_archiving()
    missing = server.scn()
    overwrite_logs(server)
    with closing(OracleSource(settings(server))) as source:
        oldest = source.oldest_position()
        assert oldest.scn > missing
        source.verify_position(oldest)


def test_logs_that_are_not_archived_yet_are_no_loss() -> None:
    with Oracle({"local": True}) as server:
        table(server)
        server.hold_archiving()
        start = server.scn()
        insert(server, 1)
        overwrite_logs(server)
        with open_quick_session(server) as session:
            with pytest.raises(SourceUnavailable):
                session.open_window(start, flushed_scn(server))
            server.release_archiving()
            assert ids(mine_rows(session, start, flushed_scn(server))) == [1]


def test_logs_that_logminer_leaves_out_are_noticed(server: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online logs, say. Their redo would be lost silently; and it is no position that is lost."""
    find: Callable[..., tuple[RedoLogFile, ...]] = logminer_calls.find_logs

    def find_archived(*arguments: Any) -> tuple[RedoLogFile, ...]:
        return tuple(one for one in find(*arguments) if one.archived)

    monkeypatch.setattr(logminer_calls, "find_logs", find_archived)
    start = server.scn()
    insert(server, 1)
    with open_quick_session(server) as session:
        with pytest.raises(SourceUnavailable, match=r"log\.mining\.archive\.log\.only\.mode=true"):
            session.open_window(start, flushed_scn(server))
        end = flushed_scn(server)
        server.switch_log()
        assert ids(mine_rows(session, start, end)) == [1]


def test_a_log_before_the_last_that_logminer_leaves_out_is_noticed(
    server: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    find: Callable[..., tuple[RedoLogFile, ...]] = logminer_calls.find_logs
    monkeypatch.setattr(logminer_calls, "find_logs", lambda *arguments: find(*arguments)[1:])
    start = server.scn()
    server.switch_log()
    with (
        open_quick_session(server) as session,
        pytest.raises((PositionLost, SourceUnavailable), match=f"from SCN {start}"),
    ):
        session.open_window(start, flushed_scn(server))


@pytest.mark.parametrize("following", [None, 2**48 - 1, 2**64 - 1])
def test_the_current_log_is_known_by_the_next_scn_of_each_release(
    autonomous: Oracle, monkeypatch: pytest.MonkeyPatch, following: int | None
) -> None:
    ask: Callable[..., list[tuple[Any, ...]]] = logminer_calls.fetch_rows
    monkeypatch.setattr(
        logminer_calls, "fetch_rows", lambda *asked: [(*row[:4], following, *row[5:]) for row in ask(*asked)]
    )
    scn = autonomous.scn()
    with closing(autonomous.capture()) as connection:
        (one,) = logminer_calls.find_logs(connection, settings(autonomous), scn, scn)
    assert one.is_current


def test_a_row_for_missing_logs_is_no_log(autonomous: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    ask: Callable[..., list[tuple[Any, ...]]] = logminer_calls.fetch_rows
    monkeypatch.setattr(logminer_calls, "fetch_rows", lambda *asked: [("MISSING", *row[1:6], 4) for row in ask(*asked)])
    scn = autonomous.scn()
    with closing(autonomous.capture()) as connection, pytest.raises(logminer_calls.LogsMoved, match="MISSING"):
        logminer_calls.find_logs(connection, settings(autonomous), scn, scn)


def test_missing_logs_that_the_views_show_are_no_lost_position(server: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are they if LogMiner does not find the redo of now either."""

    def raise_missing_log(*_: Any) -> None:
        raise logminer_calls.LogsMoved("missing log file") from oracledb.DatabaseError("Similar to ORA-01292")

    monkeypatch.setattr(logminer_calls, "find_logs", raise_missing_log)
    with open_quick_session(server) as session, pytest.raises(SourceUnavailable, match="does not find all redo"):
        session.open_window(server.scn() - 1, flushed_scn(server))


def test_a_log_that_is_found_late_is_no_lost_position(autonomous: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """No view says that a log is deleted, so that a position is lost only after all pauses."""
    find: Callable[..., tuple[RedoLogFile, ...]] = logminer_calls.find_logs
    start, waits = autonomous.scn(), list[float]()

    def find_late(connection: oracledb.Connection, config: OracleConfig, low: int, end: int) -> tuple[RedoLogFile, ...]:
        if low == start and len(waits) < 3:
            raise logminer_calls.LogsMoved("missing log file")
        return find(connection, config, low, end)

    monkeypatch.setattr(logminer_calls, "find_logs", find_late)
    end = autonomous.jump_scn(1)
    with closing(autonomous.capture()) as connection:
        assert session_logs(connection, settings(autonomous), sleep=waits.append).collect(start, end)
    assert waits == sorted(waits)


def test_a_switch_begins_a_new_session(server: Oracle) -> None:
    """Begin a session with each switch, as in the root: it does not grow, and follows changes to summer time."""
    with session_of(server) as session:
        start = at = server.scn()
        for number in range(6):
            if number == 3:
                server.switch_log()
                assert session.counters.sessions == 1
            insert(server, number)
            end = flushed_scn(server)
            assert ids(mine_rows(session, at, end, at == start)) == [number]
            at = end
        assert session.counters.sessions == 2


def test_archived_logs_alone_are_mined_where_their_view_is_shown() -> None:
    with Oracle({"local": True}) as server:
        table(server)
        server.admin(
            f"REVOKE SELECT_CATALOG_ROLE FROM {server.user}",
            *(f"REVOKE SELECT ON V_${name} FROM {server.user}" for name in ("LOG", "LOGFILE", "LOG_HISTORY", "ARCHIVE_DEST_STATUS")),
            f"GRANT SELECT ON V_$THREAD TO {server.user}",
        )  # fmt: skip
        start = server.scn()
        insert(server, 1)
        server.switch_log()
        insert(server, 2)
        with open_quick_session(server) as session:
            assert isinstance(session.log_collector, UnlistedSessionLogs)
            assert ids(mine_rows(session, start, flushed_scn(server))) == [1, 2]
        with open_quick_session(server, log__mining__archive__log__only__mode=True) as session:
            assert isinstance(session.log_collector, DiscoveredSessionLogs)
            assert not isinstance(session.log_collector, UnlistedSessionLogs)
            end = session.minable_scn()
            assert ids(mine_rows(session, start, end)) == [1]
            server.purge()
            overwrite_logs(server)
            with pytest.raises(PositionLost, match="no longer exist"):
                session.log_collector.collect(start, end)


def test_a_destination_of_copies_has_no_effect(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    overwrite_logs(server)
    with open_quick_session(server, log__mining__archive__destination__name="LOG_ARCHIVE_DEST_2") as session:
        assert ids(mine_rows(session, start, flushed_scn(server))) == [1]


def test_logs_that_are_found_again_begin_one_session(autonomous: Oracle) -> None:
    start = autonomous.scn()
    insert(autonomous, 1)
    end = flushed_scn(autonomous)
    with open_quick_session(autonomous) as session:
        session.open_window(start, end)
        overwrite_logs(autonomous)
        assert ids(as_rows(session.read_rows(start, end))) == [1]
        insert(autonomous, 2)
        assert ids(mine_rows(session, end, flushed_scn(autonomous), first=False)) == [2]
        assert (session.counters.retries, session.counters.sessions) == (1, 2)


def test_a_session_that_was_closed_begins_as_a_new_one(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    session = session_of(server)
    for number in (1, 2):
        with session:
            assert ids(mine_rows(session, start, flushed_scn(server))) == [1]
            assert session.counters.sessions == number


def test_a_second_session_beside_the_first(server: Oracle) -> None:
    """An autonomous database refuses it, until the first one ends."""
    start = server.scn()
    insert(server, 1)
    end = flushed_scn(server)
    with session_of(server) as second:
        with session_of(server) as first:
            assert ids(mine_rows(first, start, end)) == [1]
            if server.options["autonomous"]:
                with pytest.raises(SourceUnavailable, match="Another LogMiner session"):
                    second.open_window(start, end)
            else:
                assert ids(mine_rows(second, start, end)) == [1]
            assert ids(mine_rows(first, start, end)) == [1]
        assert ids(mine_rows(second, start, end)) == [1]


def test_asking_for_logs_leaves_no_session_behind(autonomous: Oracle) -> None:
    with closing(OracleSource(settings(autonomous))) as source, session_of(autonomous) as session:
        position = source.current_position()
        source.verify_position(position)
        session.open_window(position.scn, position.scn)


def test_an_scn_that_logminer_refuses_is_one_without_redo(autonomous: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., tuple[RedoLogFile, ...]] = logminer_calls.find_logs
    border = autonomous.jump_scn(5)

    def refuse_low_scn(
        connection: oracledb.Connection, config: OracleConfig, low: int, end: int
    ) -> tuple[RedoLogFile, ...]:
        if low < border:
            with translate_driver_errors(config):
                raise oracledb.DatabaseError("Similar to ORA-01281")
        return find(connection, config, low, end)

    monkeypatch.setattr(logminer_calls, "find_logs", refuse_low_scn)
    with closing(autonomous.capture()) as connection:
        assert session_logs(connection, settings(autonomous)).oldest_scn() == border


def test_a_release_that_refuses_to_mine_inside_is_an_error_that_names_the_root(
    autonomous: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(autonomous)

    def refuse_start(connection: oracledb.Connection, *_: Any) -> None:
        with translate_driver_errors(config):
            run(connection, "BEGIN SYS.DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => 'x', OPTIONS => DBMS_LOGMNR.NEW); END;")

    monkeypatch.setattr(logminer_calls, "find_logs", refuse_start)
    with session_of(autonomous) as session, pytest.raises(PrerequisiteError, match="root container"):
        session.open_window(1, 2)


def test_errors_of_damaged_logs_are_no_lost_position(autonomous: Oracle) -> None:
    config = settings(autonomous)
    with closing(autonomous.capture()) as connection:
        logs = session_logs(connection, config)
        damaged = oracledb.DatabaseError("ORA-00353: log corruption")
        moved = logminer_calls.LogsMoved("log corruption")
        moved.__cause__ = damaged
        assert type(logs.explain_failure(moved, 1, 2)) is type(translate_error(damaged, config))


def test_how_much_is_left_to_mine_is_not_known_without_the_views(server: Oracle) -> None:
    with closing(OracleSource(settings(server))) as source:
        found = source.log_window(source.current_position())
    assert found == (LogWindow() if server.options["autonomous"] else LogWindow(0))


def test_borders_of_logs_are_known_where_they_are_shown(server: Oracle) -> None:
    start = server.scn()
    insert(server, 1)
    server.switch_log()
    with session_of(server) as session:
        assert len(session.log_ends(start)) == (0 if server.options["autonomous"] else 1)
        mine_rows(session, start, flushed_scn(server))
        assert start < session.log_collector.switched_scn() <= server.scn()


def test_the_thread_that_was_switched_first_says_up_to_where_all_redo_is_in_a_log() -> None:
    with Oracle({"local": True, "autonomous": True, "threads": 2}) as server:
        table(server)
        start = at = server.scn()
        with session_of(server) as session:
            for thread in (2, 1):
                server.switch_log(thread)
                insert(server, thread)
                end = flushed_scn(server)
                assert ids(mine_rows(session, at, end, at == start)) == [thread]
                assert (session.log_collector.switched_scn() > start) == (thread == 1)
                at = end


def test_a_connection_that_is_lost_before_the_logs_are_asked_for_is_an_error_of_the_source(server: Oracle) -> None:
    with session_of(server) as session:
        session.connection.close()
        with pytest.raises(SourceUnavailable):
            session.minable_scn()
