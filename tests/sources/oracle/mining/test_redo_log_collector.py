"""Logs that hold a range of SCNs: in every thread, without a gap, whatever happens to them while we look."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import oracledb
import pytest

from airflow_provider_cdc.core.errors import ConfigError, PositionLost, SourceUnavailable
from airflow_provider_cdc.sources.oracle.connect import connect
from airflow_provider_cdc.sources.oracle.mining import redo_log_collector
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import (
    RedoGap,
    RedoLogCollector,
    RedoLogFile,
    RedoLogListing,
    RedoThread,
)
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.support.sources.oracle.oracle_server import rows

Collect = Callable[..., RedoLogCollector]


@pytest.fixture
def server() -> Iterator[Oracle]:
    with Oracle() as server:
        yield server


@pytest.fixture
def cluster() -> Iterator[Oracle]:
    with Oracle({"threads": 2}) as server:
        yield server


def collector(server: Oracle, connection: oracledb.Connection, **properties: object) -> RedoLogCollector:
    return RedoLogCollector(connection, settings(server, **properties), sleep=lambda seconds: None)


def sequences(files: tuple[RedoLogFile, ...]) -> list[tuple[int, int, bool]]:
    return [(one.thread, one.sequence, one.archived) for one in files]


def test_archived_copies_are_preferred_and_the_current_log_is_read_online(server: Oracle) -> None:
    start = server.scn()
    for _ in range(3):
        server.switch_log()
    with closing(server.capture()) as connection:
        files = collector(server, connection).collect(start, server.scn())
    assert sequences(files) == [(1, 1, True), (1, 2, True), (1, 3, True), (1, 4, False)]
    assert files[-1].is_current
    assert files[0].first_scn <= start
    assert all(one.next_scn == other.first_scn for one, other in itertools.pairwise(files))


def test_only_logs_of_the_range_are_taken(server: Oracle) -> None:
    server.switch_log()
    start = server.scn()
    server.switch_log()
    end = server.scn()
    server.switch_log()
    with closing(server.capture()) as connection:
        files = collector(server, connection).collect(start, end)
        assert sequences(files) == [(1, 2, True), (1, 3, True)]
        border = files[0].next_scn
        assert border is not None
        assert sequences(collector(server, connection).collect(start, border - 1)) == [(1, 2, True)]
        assert sequences(collector(server, connection).collect(border, end)) == [(1, 3, True)]


def test_a_log_that_is_not_archived_yet_is_read_online(server: Oracle) -> None:
    start = server.scn()
    server.hold_archiving()
    server.switch_log()
    with closing(server.capture()) as connection:
        assert sequences(collector(server, connection).collect(start, server.scn())) == [(1, 1, False), (1, 2, False)]
        server.release_archiving()
        assert sequences(collector(server, connection).collect(start, server.scn())) == [(1, 1, True), (1, 2, False)]


def test_a_log_whose_archived_copy_was_deleted_is_read_online_as_long_as_it_is_there(server: Oracle) -> None:
    start = server.scn()
    server.switch_log()
    server.purge()
    with closing(server.capture()) as connection:
        assert sequences(collector(server, connection).collect(start, server.scn())) == [(1, 1, False), (1, 2, False)]


def test_purged_logs_are_an_error_that_names_them_and_the_repair(server: Oracle) -> None:
    start = server.scn()
    for _ in range(5):
        server.switch_log()
    gone = [sequence for _, sequence in server.purge()]
    assert gone == [1, 2, 3, 4, 5]
    waits: list[float] = []
    with closing(server.capture()) as connection:
        logs = RedoLogCollector(connection, settings(server), sleep=waits.append)
        with pytest.raises(PositionLost) as error:
            logs.collect(start, server.scn())
        oldest = logs.oldest_scn()
        assert sequences(logs.collect(oldest, server.scn())) == [(1, 4, False), (1, 5, False), (1, 6, False)]
    text = str(error.value)
    assert "thread 1 (sequence 1 to 3)" in text
    assert f"from SCN {start}," in text
    assert f"before SCN {oldest}" in text
    assert f"oldest SCN that can still be mined is {oldest}" in text
    assert "RMAN> RESTORE ARCHIVELOG FROM SEQUENCE 1 UNTIL SEQUENCE 3 THREAD 1" in text
    assert "snapshot.mode=when_needed" in text
    assert len(waits) == 1, "what the database calls deleted is not waited for"


def test_a_hole_between_logs_is_found(server: Oracle) -> None:
    start = server.scn()
    server.switch_log()
    kept = server.scn()
    server.switch_log()
    for _ in range(4):
        server.switch_log()
    server.purge(before=kept)
    with closing(server.capture()) as connection, pytest.raises(PositionLost, match=r"sequence 1 to 1"):
        collector(server, connection).collect(start, server.scn())


def test_every_thread_of_a_cluster_is_collected(cluster: Oracle) -> None:
    start = cluster.scn()
    cluster.switch_log(1)
    cluster.switch_log(2)
    cluster.switch_log(2)
    with closing(cluster.capture()) as connection:
        files = collector(cluster, connection).collect(start, cluster.scn())
    assert sequences(files) == [(1, 1, True), (1, 2, False), (2, 1, True), (2, 2, True), (2, 3, False)]


def test_a_gap_in_one_thread_is_an_error_though_the_other_is_complete(cluster: Oracle) -> None:
    start = cluster.scn()
    for _ in range(4):
        cluster.switch_log(2)
    cluster.purge()
    with closing(cluster.capture()) as connection:
        logs = collector(cluster, connection)
        with pytest.raises(PositionLost, match=r"thread 2 \(sequence 1 to 2\)"):
            logs.collect(start, cluster.scn())
        assert logs.oldest_scn() > start
        logs.collect(logs.oldest_scn(), cluster.scn())


def test_a_closed_thread_is_needed_up_to_where_it_was_closed(cluster: Oracle) -> None:
    start = cluster.scn()
    for _ in range(4):
        cluster.switch_log(2)
    closed = cluster.close_thread(2)
    later = cluster.scn()
    for _ in range(4):
        cluster.switch_log(1)
    with closing(cluster.capture()) as connection:
        logs = collector(cluster, connection)
        assert {one.thread for one in logs.collect(start, cluster.scn())} == {1, 2}
        cluster.purge(before=closed)
        logs.discard_cached_logs()
        assert [one for one in logs.collect(later, cluster.scn()) if one.thread == 1]
        with pytest.raises(PositionLost, match="thread 2"):
            logs.collect(start, cluster.scn())
        cluster.open_thread(2)
        assert logs.collect(later, cluster.scn())[-1].is_current


def test_archived_only_ends_where_the_slowest_open_thread_is_archived(cluster: Oracle) -> None:
    with closing(cluster.capture()) as connection:
        logs = collector(cluster, connection, log__mining__archive__log__only__mode=True)
        assert logs.archived_only()
        assert logs.archived_scn() == 0
        cluster.switch_log(1)
        assert logs.archived_scn() == 0
        start = 2_000_001
        cluster.switch_log(2)
        cluster.switch_log(1)
        end = logs.archived_scn()
        assert end > start
        cluster.switch_log(1)
        assert logs.archived_scn() == end, "thread 2 is not archived further"
        assert sequences(logs.collect(start, end)) == [(1, 1, True), (1, 2, True), (2, 1, True)]
        cluster.close_thread(2)
        cluster.switch_log(1)
        assert logs.archived_scn() == end, "the closed thread's last log is not archived"
        cluster.switch_log(2)
        cluster.switch_log(1)
        assert logs.archived_scn() > end


def test_a_closed_thread_that_is_archived_to_its_last_scn_bounds_nothing(cluster: Oracle) -> None:
    with closing(cluster.capture()) as connection:
        logs = collector(cluster, connection, log__mining__archive__log__only__mode=True)
        closed = cluster.close_thread(2)
        cluster.switch_log(2)
        assert [one.next_scn for one in logs.list_logs().list_thread_files(2)] == [closed + 1]
        cluster.jump_scn(10)
        cluster.switch_log(1)
        assert logs.archived_scn() > closed


def test_what_is_still_being_archived_is_waited_for(server: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    start = server.scn()
    server.hold_archiving()
    server.switch_log()
    end = server.scn()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            server.switch_log()
            server.release_archiving()

    with closing(server.capture()) as connection:
        config = settings(server, log__mining__archive__log__only__mode=True)
        files = RedoLogCollector(connection, config, sleep=wait).collect(start, end)
    assert sequences(files) == [(1, 1, True), (1, 2, True)]
    assert len(waits) == 3
    assert "checking again" in caplog.text


def test_what_is_never_archived_is_an_error_that_a_retry_may_mend(server: Oracle) -> None:
    start = server.scn()
    server.hold_archiving()
    server.switch_log()
    with (
        closing(server.capture()) as connection,
        pytest.raises(SourceUnavailable, match="still being archived") as error,
    ):
        collector(server, connection, log__mining__archive__log__only__mode=True).collect(start, server.scn())
    assert "V$ARCHIVE_DEST_STATUS" in str(error.value)


def test_archived_logs_are_asked_for_again_only_when_a_log_was_switched_or_archived(
    server: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their view may have ten thousands of rows."""
    requests: list[str] = []
    ask = redo_log_collector.fetch_rows

    def count_and_ask(connection: object, sql: str, **binds: object) -> list[tuple[object, ...]]:
        requests.append(sql)
        return ask(connection, sql, **binds)  # type: ignore[arg-type]

    monkeypatch.setattr(redo_log_collector, "fetch_rows", count_and_ask)
    with closing(server.capture()) as connection:
        logs = collector(server, connection)
        counts = []
        for step in ("", "", "hold", "switch", "", "release", "", "purge", ""):
            if step == "hold":
                server.hold_archiving()
            elif step == "switch":
                server.switch_log()
            elif step == "release":
                server.release_archiving()
            elif step == "purge":
                server.purge()
                logs.discard_cached_logs()
            before = len(requests)
            scn = server.scn()
            assert logs.collect(scn, scn)
            counts.append(sum("FROM V$ARCHIVED_LOG" in sql for sql in requests[before:]))
    assert counts == [1, 0, 0, 1, 0, 1, 0, 1, 0]


def test_a_log_that_two_destinations_have_is_read_once(server: Oracle) -> None:
    server.configure(destinations=2)
    start = server.scn()
    server.switch_log()
    with closing(server.capture()) as connection:
        assert rows(connection, "SELECT COUNT(*) FROM v$archived_log") == [(2,)]
        assert sequences(collector(server, connection).collect(start, server.scn())) == [(1, 1, True), (1, 2, False)]


def test_a_named_destination_is_the_one_that_is_read(server: Oracle) -> None:
    start = server.scn()
    server.switch_log()
    with closing(server.capture()) as connection:
        only = {"log__mining__archive__log__only__mode": True}
        end = collector(server, connection, **only).archived_scn()

        def read(names: str) -> list[tuple[int, int, bool]]:
            logs = collector(server, connection, log__mining__archive__destination__name=names, **only)
            return sequences(logs.collect(start, end))

        assert read("LOG_ARCHIVE_DEST_1") == [(1, 1, True)]
        assert read("log_archive_dest_2, log_archive_dest_1") == [(1, 1, True)]
        with pytest.raises(SourceUnavailable):
            read("LOG_ARCHIVE_DEST_2")
        with pytest.raises(ConfigError, match="no archive destination LOG_ARCHIVE_DEST_9"):
            read("LOG_ARCHIVE_DEST_9")


def test_archived_logs_older_than_so_many_hours_are_not_read(server: Oracle) -> None:
    start = server.scn()
    for _ in range(4):
        server.switch_log()
    with closing(server.capture()) as connection:
        logs = collector(server, connection, log__mining__archive__log__hours=2)
        assert len(logs.collect(start, server.scn())) == 5
        server.configure(clock_seconds=3 * 3600)
        with pytest.raises(PositionLost, match=r"older than log\.mining\.archive\.log\.hours=2"):
            logs.collect(start, server.scn())
        assert len(collector(server, connection).collect(start, server.scn())) == 5, "by default all are read"


def test_a_position_before_a_resetlogs_is_lost(server: Oracle) -> None:
    start = server.scn()
    begins = server.reset_logs()
    with closing(server.capture()) as connection:
        logs = collector(server, connection)
        with pytest.raises(PositionLost, match=f"RESETLOGS at SCN {begins}"):
            logs.collect(start, server.scn())
        files = logs.collect(begins, server.scn())
        assert files[0].first_scn <= begins


def test_a_standby_reads_archived_logs_only() -> None:
    with Oracle({"standby": True}) as server:
        start = server.scn()
        server.switch_log()
        config = settings(server, log__mining__readonly__hostname=f"{server.host}:{server._standby_port}")
        with closing(connect(config, host=config.log_mining_readonly_hostname)) as connection:
            logs = RedoLogCollector(connection, config)
            assert logs.archived_only()
            assert sequences(logs.collect(start, logs.archived_scn())) == [(1, 1, True)]


@pytest.mark.parametrize("real_time", [False, True])
def test_a_thread_that_only_the_standby_shows_as_closed_is_waited_for(real_time: bool) -> None:
    with Oracle({"standby": True, "threads": 2}) as server:
        server.configure(closed_on_standby=[2], real_time_apply=real_time)
        for thread in (1, 2):
            server.switch_log(thread)
        start = server.scn()
        server.switch_log(1)
        config = settings(server, log__mining__readonly__hostname=f"{server.host}:{server._standby_port}")
        with closing(connect(config, host=config.log_mining_readonly_hostname)) as connection:
            logs = RedoLogCollector(connection, config)
            assert logs.archived_scn() < start, "the redo of thread 2 has not come yet"
            server.switch_log(2)
            server.switch_log(1)
            end = logs.archived_scn()
            assert end > start
            assert {one.thread for one in logs.collect(start, end)} == {1, 2}


def test_a_log_that_lacks_after_the_end_of_a_closed_thread_is_a_gap() -> None:
    logs = tuple(
        RedoLogFile(f"2_{sequence}.arc", 2, sequence, first, following, archived=True)
        for sequence, first, following in ((5, 900, 1001), (7, 1201, 1301))
    )
    listing = RedoLogListing(1, (RedoThread(2, enabled_scn=1, last_scn=1000),), logs, archived_only=True)
    assert listing.find_gap(900, 1000) is None
    assert listing.find_gap(900, 1250) == RedoGap(2, 1001, 1201)
    assert listing.find_gap(1210, 1250) is None


def test_logs_that_are_switched_archived_and_purged_meanwhile_leave_no_gap() -> None:
    """Many switches at random moments: what is collected always covers its range, by what the log files are in the end."""
    with Oracle({"threads": 2}) as server:
        stop = threading.Event()
        found: list[tuple[int, int, tuple[RedoLogFile, ...]]] = []

        def disturb() -> None:
            chance = random.Random(5)
            for switches in itertools.count():
                # a few switches ahead of each listing, no more: listings take longer with every log, so that a machine
                # which switches faster than it lists would never be done
                while switches > 15 * (len(found) + 1):
                    server.release_archiving()
                    if stop.wait(0.005):
                        return
                if stop.is_set():
                    return
                server.switch_log(chance.choice((1, 2)))
                if chance.random() < 0.3:
                    server.hold_archiving() if chance.random() < 0.5 else server.release_archiving()

        thread = threading.Thread(target=disturb)
        with closing(server.capture()) as connection:
            logs = RedoLogCollector(connection, settings(server))
            thread.start()
            start = server.scn()
            while len(found) < 60:
                end = server.scn()
                found.append((start, end, logs.collect(start, end)))
                start = max(start, end - 20)
            stop.set()
            thread.join()
            server.release_archiving()
            true = {
                (number, sequence): (first, following)
                for number, sequence, first, following in rows(
                    connection, "SELECT thread#, sequence#, first_change#, next_change# FROM v$archived_log"
                )
            }
        assert len(true) > 60
        for low, high, files in found:
            for number in (1, 2):
                mine = {one.sequence for one in files if one.thread == number}
                needed = {
                    s
                    for (n, s), (first, following) in true.items()
                    if n == number and following > low and first <= high
                }
                assert needed <= mine
                assert len(mine) == sum(one.thread == number for one in files)


# the check itself


def file(sequence: int, first: int, following: int | None, thread: int = 1) -> RedoLogFile:
    return RedoLogFile(f"{thread}_{sequence}", thread, sequence, first, following, following is not None)


def list_logs(*files: RedoLogFile, threads: tuple[RedoThread, ...] = (RedoThread(1, 0, None),)) -> RedoLogListing:
    return RedoLogListing(1, threads, files, False)


@pytest.mark.parametrize(
    ("shown", "gap"),
    [
        (list_logs(file(5, 100, 200), file(6, 200, None)), None),
        (list_logs(file(5, 151, 200), file(6, 200, None)), RedoGap(1, 150, 151)),
        (list_logs(file(5, 100, 200), file(7, 300, None)), RedoGap(1, 200, 300)),
        (list_logs(file(5, 100, 200)), RedoGap(1, 200, None)),
        (list_logs(file(5, 100, 251)), None),
        (list_logs(file(5, 100, 250)), RedoGap(1, 250, None)),
        (list_logs(), RedoGap(1, 150, None)),
        (list_logs(file(1, 160, None)), None),
        (
            list_logs(file(5, 100, None), threads=(RedoThread(1, 0, None), RedoThread(2, 0, None))),
            RedoGap(2, 150, None),
        ),
        (list_logs(file(5, 100, None), threads=(RedoThread(1, 0, None), RedoThread(2, 0, 149))), None),
        (list_logs(file(5, 100, None), threads=(RedoThread(1, 0, None), RedoThread(2, 0, 151))), RedoGap(2, 150, None)),
        (list_logs(file(5, 100, None), threads=(RedoThread(1, 0, None), RedoThread(2, 251, None))), None),
        (
            list_logs(
                file(5, 100, None), file(9, 180, None, 2), threads=(RedoThread(1, 0, None), RedoThread(2, 180, None))
            ),
            None,
        ),
    ],
)
def test_gaps_of_the_range_150_to_250(shown: RedoLogListing, gap: RedoGap | None) -> None:
    assert shown.find_gap(150, 250) == gap
