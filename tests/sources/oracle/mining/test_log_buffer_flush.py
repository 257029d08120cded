"""The log buffer is written before it is mined, in every instance, and without an instance nothing is mined too early."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import oracledb
import pytest

from airflow_provider_cdc.core.errors import ConfigError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.connect import DatabaseStatus, connect, current_scn, database_of, fetch_rows
from airflow_provider_cdc.sources.oracle.mining.live_catalog_lookups import CatalogLookups
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import (
    LONGEST_WAIT,
    RETRY_AFTER,
    WRITTEN_AFTER,
    LogWriterFlush,
)
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import changes, mine_rows, session_of, settings
from tests.support.sources.oracle.oracle_server import run


@pytest.fixture
def server() -> Iterator[Oracle]:
    with Oracle() as server:
        server.sql("CREATE TABLE ty (id NUMBER)")
        server.configure(flush_timer=False, private_strands=False)
        yield server


@pytest.fixture
def cluster() -> Iterator[Oracle]:
    with Oracle({"threads": 2}) as server:
        server.sql("CREATE TABLE ty (id NUMBER)")
        server.configure(flush_timer=False, private_strands=False)
        yield server


def facts(server: Oracle) -> DatabaseStatus:
    with closing(server.capture()) as connection:
        return database_of(connection)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def open_log_writer_flush(server: Oracle, clock: Clock | None = None, **properties: object) -> LogWriterFlush:
    more = {"clock": clock} if clock else {}
    config = settings(server, **properties)
    return LogWriterFlush(config, facts(server), dict, sleep=lambda seconds: None, **more)  # type: ignore[arg-type]


def two_windows(server: Oracle, flush: LogWriterFlush | None, thread: int = 1) -> list[str]:
    """A transaction is open when the first window ends, and is committed within the second."""
    session = session_of(server)
    with session, closing(server.connect(thread=thread)) as owner:
        start = session.minable_scn()
        run(owner, "INSERT INTO ty VALUES (1)")
        middle = session.minable_scn()
        if flush:
            middle = flush.flush(middle).scn
        found = mine_rows(session, start, middle)
        run(owner, "COMMIT")
        end = session.minable_scn()
        if flush:
            end = flush.flush(end).scn
        return changes(found + mine_rows(session, middle, end, first=False))


def test_without_a_flush_a_change_in_the_log_buffer_is_lost_for_ever(server: Oracle) -> None:
    assert two_windows(server, None) == []


def test_a_change_in_the_log_buffer_is_written_before_it_is_mined(server: Oracle) -> None:
    with open_log_writer_flush(server) as flush:
        assert two_windows(server, flush) == ["""insert into "APP"."TY"("ID") values ('1');"""]


def test_a_commit_that_does_not_wait_is_written_too(server: Oracle) -> None:
    server.configure(commits_wait=False)
    with open_log_writer_flush(server) as flush:
        assert two_windows(server, flush) == ["""insert into "APP"."TY"("ID") values ('1');"""]


def test_open_transactions_are_those_of_before_the_flush_in_every_instance(cluster: Oracle) -> None:
    config = settings(cluster, rac__nodes=",".join(cluster.nodes))
    with (
        closing(CatalogLookups(config)) as lookups,
        LogWriterFlush(config, facts(cluster), lookups.open_transactions) as flush,
    ):
        assert flush.flush(cluster.scn()).open_transactions == {}
        before = cluster.scn()
        with closing(cluster.connect(thread=1)) as one, closing(cluster.connect(thread=2)) as two:
            for connection in (one, two):
                run(connection, "INSERT INTO ty VALUES (1)")
            found = flush.flush(cluster.scn()).open_transactions
        assert len(found) == 2
        assert all(scn > before for scn in found.values())


def test_the_table_is_made_in_the_schema_of_the_capture_user_and_has_one_row(server: Oracle) -> None:
    for table in ("LOG_MINING_FLUSH", "OTHER_FLUSH"):
        for _ in range(2):
            with open_log_writer_flush(server, log__mining__flush__table__name=table) as flush:
                for _ in range(3):
                    scn = server.scn()
                    assert flush.flush(scn).scn == scn
        with closing(server.capture()) as connection:
            assert fetch_rows(connection, f"SELECT COUNT(*), MAX(last_scn) FROM {table}") == [(1, scn)]


def test_a_name_that_is_none_of_a_table_is_refused(server: Oracle) -> None:
    with pytest.raises(ConfigError, match=r"log\.mining\.flush\.table\.name"):
        open_log_writer_flush(server, log__mining__flush__table__name="X (A NUMBER) --")


def test_every_instance_of_a_cluster_writes_its_own_buffer(cluster: Oracle) -> None:
    with open_log_writer_flush(cluster, rac__nodes=",".join(cluster.nodes)) as flush:
        assert two_windows(cluster, flush, thread=2) == ["""insert into "APP"."TY"("ID") values ('1');"""]


def test_an_instance_that_no_node_names_is_mined_when_it_has_written_by_itself(
    cluster: Oracle, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with open_log_writer_flush(cluster, clock) as flush:
        first = cluster.scn()
        assert flush.flush(first).scn == 0
        cluster.jump_scn(1)
        cluster.flush()
        clock.now += WRITTEN_AFTER / 2
        second = cluster.scn()
        assert flush.flush(second).scn == 0
        cluster.jump_scn(1)
        cluster.flush()
        clock.now += WRITTEN_AFTER / 2
        assert flush.flush(cluster.scn()).scn == first
        clock.now += WRITTEN_AFTER / 2
        assert flush.flush(cluster.scn()).scn == second
    assert caplog.text.count("redo threads 2 cannot be reached") == 1
    assert "rac.nodes" in caplog.text


def test_an_instance_whose_log_writer_is_held_up_bounds_what_is_mined(cluster: Oracle) -> None:
    clock = Clock()
    cluster.configure(held_writers=[2])
    session = session_of(cluster)
    with session, open_log_writer_flush(cluster, clock) as flush, closing(cluster.connect(thread=2)) as owner:
        start = session.minable_scn()
        run(owner, "INSERT INTO ty VALUES (1)")
        scn = session.minable_scn()
        assert flush.flush(scn).scn == 0
        clock.now += WRITTEN_AFTER
        cluster.flush()
        assert flush.flush(session.minable_scn()).scn == 0, "its redo is in the buffer yet"
        cluster.configure(held_writers=[])
        cluster.jump_scn(1)
        cluster.flush()
        assert flush.flush(session.minable_scn()).scn >= scn
        assert changes(mine_rows(session, start, scn)) == ["""insert into "APP"."TY"("ID") values ('1');"""]


def test_an_instance_that_writes_no_redo_for_long_is_an_error(cluster: Oracle) -> None:
    clock = Clock()
    cluster.configure(held_writers=[2])
    with open_log_writer_flush(cluster, clock) as flush:
        flush.flush(cluster.scn())
        clock.now += LONGEST_WAIT + 1
        with pytest.raises(SourceUnavailable, match=r"redo threads 2 cannot be reached.* no redo for 300 s") as error:
            flush.flush(cluster.scn())
    assert "rac.nodes" in str(error.value.remedy)


def test_the_instance_that_is_last_to_write_bounds_what_is_mined_and_is_named() -> None:
    clock = Clock()
    with Oracle({"threads": 3}) as cluster, open_log_writer_flush(cluster, clock) as flush:
        cluster.configure(flush_timer=False, private_strands=False, held_writers=[3])
        flush.flush(cluster.scn())
        cluster.jump_scn(1)
        cluster.flush()
        clock.now += LONGEST_WAIT
        assert flush.flush(cluster.scn()).scn == 0
        clock.now += 1
        with pytest.raises(SourceUnavailable, match="redo threads 3 cannot be reached"):
            flush.flush(cluster.scn())


def test_more_redo_may_come_with_the_last_scn_on_disk(cluster: Oracle) -> None:
    clock = Clock()
    with open_log_writer_flush(cluster, clock) as flush, closing(cluster.capture()) as connection:
        ((scn,),) = fetch_rows(connection, "SELECT LAST_REDO_CHANGE# FROM V$THREAD WHERE THREAD# = 2")
        flush.flush(scn)
        clock.now += WRITTEN_AFTER
        assert flush.flush(cluster.scn()).scn == 0
        cluster.flush()
        assert flush.flush(cluster.scn()).scn == scn


def test_a_node_that_is_down_delays_and_is_tried_again(cluster: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    clock, down = Clock(), {"node": ""}
    config = settings(cluster, rac__nodes=",".join(cluster.nodes))

    def connect_to_host(host: str | None) -> oracledb.Connection:
        if host == down["node"]:
            return connect(config, host="127.0.0.1:1")
        return connect(config, host=host)

    with LogWriterFlush(
        config, facts(cluster), dict, open_connection=connect_to_host, sleep=lambda seconds: None, clock=clock
    ) as flush:
        down["node"] = cluster.nodes[1]
        before = cluster.scn()
        assert flush.flush(before).scn == 0
        assert f"{cluster.nodes[1]} cannot flush its log buffer now" in caplog.text
        clock.now += WRITTEN_AFTER
        cluster.jump_scn(1)
        cluster.flush()
        assert flush.flush(cluster.scn()).scn == before
        down["node"] = ""
        assert flush.flush(cluster.scn()).scn == before, "not tried again so soon"
        clock.now += RETRY_AFTER
        now = cluster.scn()
        assert flush.flush(now).scn == now
        cluster.close_thread(2)
        for node in flush._nodes[1:]:
            flush._drop(node)
        down["node"] = cluster.nodes[1]
        now = cluster.scn()
        assert flush.flush(now).scn == now, "an instance that is closed has nothing to write"


def test_a_database_that_does_not_answer_is_an_error(server: Oracle) -> None:
    config = settings(server)
    database = facts(server)
    with LogWriterFlush(config, database, dict) as flush:
        scn = server.scn()
        flush.flush(scn)
        server.kill()
        with pytest.raises(SourceUnavailable):
            flush.flush(scn)
        server.start()
        assert server.scn() > scn


def test_no_flush_where_only_archived_logs_are_mined(server: Oracle) -> None:
    with open_log_writer_flush(server, log__mining__archive__log__only__mode=True) as flush:
        assert not flush.needed
        assert flush.flush(5).scn == 5
    with closing(server.capture()) as connection:
        assert fetch_rows(connection, "SELECT COUNT(*) FROM user_tables") == [(0,)]


def test_mining_on_a_standby_writes_on_the_primary(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Oracle({"standby": True}) as server:
        with closing(server.capture(dsn=server.standby_dsn)) as connection:
            standby = database_of(connection)
            scn = current_scn(connection)
        assert not standby.is_writable
        assert not LogWriterFlush(settings(server), standby, dict).needed
        named = settings(server, log__mining__readonly__hostname=f"{server.host}:{server._standby_port}")
        with LogWriterFlush(named, standby, dict) as flush:
            assert flush.flush(scn).scn == scn
        with closing(server.capture()) as connection:
            assert fetch_rows(connection, "SELECT COUNT(*) FROM log_mining_flush") == [(1,)]
