"""The stream on the Db2 test server: what was committed comes, once, in the order of commits, whatever becomes of agent, server and tables."""

from __future__ import annotations

import collections
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import mark_at, write_mark
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, read_agent_progress
from airflow_provider_cdc.sources.db2.connect import Db2Connection, connect_database
from airflow_provider_cdc.sources.db2.log import cursor_pool, stream
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeMerger
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_bytes, lsn_text, previous_lsn
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from dev.servers.db2 import Db2
from tests.sources.db2.log.streamed import Event, Streamed, replayed, short
from tests.support.patience import LONGEST_S, until
from tests.support.sources.db2.db2_settings import config

T = "T (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))"
U = "U (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))"


@pytest.fixture
def on(db2: Db2) -> Iterator[Streamed]:
    """A schema of the shared server with the tables T and U."""
    streamed = Streamed(db2)
    streamed.create(T, U)
    yield streamed.begin()
    db2.agent("start")
    db2.agent("resume")
    streamed.close()


# what comes


def test_changes_come_with_their_images_lsns_and_times(on: Streamed) -> None:
    before = int(time.time() * 1e6)
    on.sql("INSERT INTO {s}.T VALUES (1, 'a'), (2, 'b')", "UPDATE {s}.T SET V = 'c' WHERE ID = 2")
    on.sql("DELETE FROM {s}.T WHERE ID = 1")
    events = on.read()
    assert [(e.op, e.before, e.after) for e in events] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("c", None, {"ID": 2, "V": "b"}),
        ("u", {"ID": 2, "V": "b"}, {"ID": 2, "V": "c"}),
        ("d", {"ID": 1, "V": "a"}, None),
    ]
    commits = [lsn_bytes(e.commit) for e in events]
    assert commits[0] == commits[2] < commits[3] <= on.position.commit_lsn
    changes = [(lsn_bytes(e.commit), lsn_bytes(e.change)) for e in events]
    assert changes == sorted(changes)
    for e in events:
        assert before <= e.ts_us <= time.time() * 1e6
    assert sum(len(block.transactions) for block in on.blocks) == 2


def test_a_rollback_leaves_nothing(on: Streamed) -> None:
    with on.server.connect("W1") as writer:
        writer.execute(f"INSERT INTO {on.namespace}.T VALUES (1, 'a')")
        writer.rollback()
        writer.execute(f"INSERT INTO {on.namespace}.T VALUES (2, 'b')")
        writer.commit()
    assert short(on.read()) == [("c", "T", 2)]


def test_changes_of_one_transaction_over_several_tables_come_in_the_order_in_which_they_were_made(on: Streamed) -> None:
    on.sql(
        "INSERT INTO {s}.T VALUES (1, 'a')", "INSERT INTO {s}.U VALUES (1, 'a')", "UPDATE {s}.T SET V = 'b'",
        "UPDATE {s}.U SET V = 'b'", "DELETE FROM {s}.T", "INSERT INTO {s}.U VALUES (2, 'c')",
    )  # fmt: skip
    events = on.read()
    assert short(events) == [
        ("c", "T", 1), ("c", "U", 1), ("u", "T", 1), ("u", "U", 1), ("d", "T", 1), ("c", "U", 2),
    ]  # fmt: skip
    assert len({e.commit for e in events}) == 1


def test_transactions_of_several_writers_come_whole_and_in_the_order_of_their_commits(on: Streamed) -> None:
    rng = random.Random(7)
    committed: list[list[tuple[str, int]]] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(on.server.connect(f"W{i}")) for i in range(3)]
        open_: list[list[tuple[str, int]]] = [[], [], []]
        for number in range(60):
            i = rng.randrange(3)
            table = rng.choice("TU")
            writers[i].execute(f"INSERT INTO {on.namespace}.{table} VALUES ({number}, 'w{i}')")
            open_[i].append((table, number))
            if rng.random() < 0.3:
                if rng.random() < 0.7:
                    writers[i].commit()
                    committed.append(open_[i])
                else:
                    writers[i].rollback()
                open_[i] = []
                if rng.random() < 0.5:  # so that the agent sees some commits one by one
                    on.server.step()
    by_commit: dict[str, list[tuple[str, int]]] = {}
    for op, table, key, commit in ((e.op, e.table, (e.after or {})["ID"], e.commit) for e in on.read()):
        assert op == "c"
        by_commit.setdefault(commit, []).append((table, key))
    # the test's agent tells commits that it sees together apart only by their changes: the order of whole transactions is the order of LSNs
    assert sorted(by_commit.values()) == sorted(committed)
    assert list(by_commit) == sorted(by_commit)
    assert len(on.events) == sum(map(len, committed))


def test_a_key_change_is_an_update_of_both_keys(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')", "UPDATE {s}.T SET ID = 9")
    assert [(e.op, e.before, e.after) for e in on.read()][1] == ("u", {"ID": 1, "V": "a"}, {"ID": 9, "V": "a"})


def test_lsns_of_ten_bytes_are_read_as_those_of_sixteen(db2_factory: Callable[..., Db2]) -> None:
    on = Streamed(db2_factory(lsn_bytes=10))
    on.create(T, U)
    on.begin()
    for i in range(5):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')", f"INSERT INTO {{s}}.U VALUES ({i}, 'b')")
    events = on.read()
    assert short(events) == [("c", table, i) for i in range(5) for table in "TU"]
    assert {len(lsn_bytes(e.commit)) for e in events} == {10}
    assert on.read() == []


def test_the_beginning_is_before_all_rows_of_change_tables(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    on.position = Db2Position(b"")
    assert short(on.read()) == [("c", "T", 1), ("c", "T", 2)]


@pytest.mark.parametrize("lsn_bytes", [10, 16])
def test_a_position_with_an_lsn_of_another_length_loses_and_repeats_nothing(
    db2_factory: Callable[..., Db2], lsn_bytes: int
) -> None:
    on = Streamed(db2_factory(lsn_bytes=lsn_bytes))
    on.create(T)
    on.begin()
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    for length in (10, 16, 7):
        other = on.position.commit_lsn.rstrip(b"\0").ljust(length, b"\0")
        on.position = replace(on.position, commit_lsn=other)
        assert on.read() == []
        on.sql("INSERT INTO {s}.T VALUES (2, 'a')", "DELETE FROM {s}.T WHERE ID = 2")
        assert short(on.read()) == [("c", "T", 2), ("d", "T", 2)]


def test_updates_that_come_as_one_row_have_no_image_before(on: Streamed) -> None:
    on.create("ONE (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))", upd_to_del_ins=False)
    on.begin()
    on.sql("INSERT INTO {s}.ONE VALUES (1, 'a')", "UPDATE {s}.ONE SET V = 'b'", "DELETE FROM {s}.ONE")
    on.sql("INSERT INTO {s}.ONE VALUES (2, 'c')")
    on.sql("DELETE FROM {s}.ONE", "INSERT INTO {s}.ONE VALUES (3, 'd')")
    assert [(e.op, e.before, e.after) for e in on.read()] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("u", None, {"ID": 1, "V": "b"}),
        ("d", {"ID": 1, "V": "b"}, None),
        ("c", None, {"ID": 2, "V": "c"}),
        ("d", {"ID": 2, "V": "c"}, None),
        ("c", None, {"ID": 3, "V": "d"}),
    ]


def test_updates_that_come_as_one_row_have_the_image_before_from_its_own_columns(on: Streamed) -> None:
    on.create("B (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))", upd_to_del_ins=False, before_prefix="X")
    on.begin()
    on.sql("INSERT INTO {s}.B VALUES (1, 'a')", "UPDATE {s}.B SET ID = 2, V = 'b'", "DELETE FROM {s}.B")
    assert [(e.op, e.before, e.after) for e in on.read()] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("u", {"ID": 1, "V": "a"}, {"ID": 2, "V": "b"}),
        ("d", {"ID": 2, "V": "b"}, None),
    ]


def test_an_unknown_operation_is_an_error_that_names_table_and_lsn(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.server.catch_up()
    on.server.sql(f"UPDATE {on.change_table('T')} SET IBMSNAP_OPERATION = 'X'")
    with pytest.raises(UnknownLogEvent, match="'X'") as e:
        on.read()
    assert f"{on.namespace}.T" in str(e.value)


# restarts, blocks, windows


@pytest.mark.parametrize("block_rows", [1, 7, 64])
def test_a_restart_inside_a_large_commit_gives_the_whole_transaction_again(on: Streamed, block_rows: int) -> None:
    on.sql("INSERT INTO {s}.U VALUES (0, 'before')")
    with on.server.connect("W1") as writer:
        for i in range(150):
            writer.execute(f"INSERT INTO {on.namespace}.{'TU'[i % 2]} VALUES ({i + 1}, 'x')")
        writer.execute(f"UPDATE {on.namespace}.T SET V = 'y'")
        writer.commit()
    on.sql("INSERT INTO {s}.U VALUES (500, 'after')")
    on.server.catch_up()
    with patch.object(ChangeMerger.__init__, "__defaults__", (block_rows,)), patch.object(stream, "FETCH_ROWS", 10):
        for stop in (2, 3, 2):
            on.read_until(lambda stop=stop: len(on.blocks) >= stop)  # type: ignore[misc]
            assert len(on.events) <= 1
            on.blocks.clear()
        on.read()
    assert any(block.open for block in on.blocks)
    assert len(on.events) == 1 + 150 + 75 + 1
    assert [e.table for e in on.events[1:151]] == ["T", "U"] * 75
    assert len({e.commit for e in on.events}) == 3
    assert len(replayed(on.events, "T")) == 75


def test_a_backlog_is_read_in_windows_and_every_position_within_is_one_to_go_on_from(on: Streamed) -> None:
    for i in range(30):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')", f"INSERT INTO {{s}}.U VALUES ({i}, 'a')")
    end = Db2Position(on.server.catch_up())
    start = on.position
    with (
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.FIRST", 4),
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.LEAST", 4),
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.MOST", 4),
    ):
        on.read(end)
        assert on.metrics.counters.windows >= 7
        whole = short(on.events)
        assert whole == [("c", table, i) for i in range(30) for table in "TU"]
        positions = [start, *(block.position for block in on.blocks)]
        for position in positions:
            again = Streamed.__new__(Streamed)
            again.__dict__ |= on.__dict__ | {"position": position, "events": [], "blocks": []}
            again.read(end)
            assert short(again.events) == whole[len(whole) - len(again.events) :]
            assert len(again.events) == sum(lsn_bytes(e.commit) > position.commit_lsn for e in on.events)  # type: ignore[attr-defined]


def test_transactions_that_uow_does_not_have_have_the_time_up_to_which_the_agent_has_published(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.server.catch_up()
    on.server.sql("DELETE FROM ASNCDC.IBMSNAP_UOW")
    (event,) = on.read()
    assert abs(event.ts_us - time.time() * 1e6) < 60e6


def test_many_tables_are_read_with_few_open_results(on: Streamed) -> None:
    names = [f"M{i}" for i in range(24)]
    on.create(*(f"{name} (ID INTEGER NOT NULL PRIMARY KEY)" for name in names))
    on.begin()
    for i in range(0, 60, 3):
        on.sql(*(f"INSERT INTO {{s}}.{name} VALUES ({i + j})" for j in range(3) for name in names))
    most = 0
    fetch = cursor_pool.CursorPool.fetch_rows

    def watched(self: cursor_pool.CursorPool, *args: object) -> list[tuple[object, ...]]:
        nonlocal most
        found = fetch(self, *args)  # type: ignore[arg-type]
        most = max(most, len(self._open))
        return found

    with (
        patch.object(cursor_pool.CursorPool.__init__, "__defaults__", (3,)), patch.object(cursor_pool.CursorPool, "fetch_rows", watched),
        patch.object(ChangeMerger.__init__, "__defaults__", (50,)), patch.object(stream, "FETCH_ROWS", 7),
    ):  # fmt: skip
        events = on.read()
    assert most == 3
    assert short(events) == [("c", name, i) for i in range(60) for name in names]


def test_a_quiet_table_beside_a_busy_one_costs_no_query(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.U VALUES (0, 'a')")
    on.read()
    for i in range(5):
        queries = on.metrics.counters.queries
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
        assert short(on.read()) == [("c", "T", i)]
        assert on.metrics.counters.queries == queries + 1
    on.sql("UPDATE {s}.U SET V = 'b'")
    assert short(on.read()) == [("u", "U", 0)]


# positions to read up to


def test_nothing_from_after_the_position_to_read_up_to_comes(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    until = Db2Position(on.server.catch_up())
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    on.server.catch_up()
    assert short(on.read(until)) == [("c", "T", 1)]
    assert on.position.commit_lsn == until.commit_lsn
    assert short(on.read()) == [("c", "T", 2)]


def test_the_end_of_the_log_is_reached_when_the_agent_has_published_what_had_committed_by_then(on: Streamed) -> None:
    on.server.agent("pause")
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    with closing(connect_database(on.config)) as connection:
        now = read_agent_progress(connection, '"ASNCDC"')
        end = Db2Position(now.lsn, awaits=write_mark(connection, on.config))
    resumed = threading.Thread(
        target=lambda: (until(lambda: on.heartbeats > 10, "it waits for the agent"), on.server.agent("resume"))
    )
    resumed.start()
    assert short(on.read(end)) == [("c", "T", 1)]
    resumed.join()
    assert on.heartbeats > 10
    assert on.position.mark == end.awaits


def test_marks_are_numbered_in_the_order_in_which_they_were_written_whatever_the_clock_does(on: Streamed) -> None:
    with closing(connect_database(on.config)) as connection:
        first = write_mark(connection, on.config)
        late = f"{first + 10**12:020d}"  # by a clock that was eleven days ahead
        on.server.sql(
            f"UPDATE ASNCDC.IBMSNAP_SIGNAL SET SIGNAL_INPUT_IN = '{late}' WHERE SIGNAL_INPUT_IN = '{first:020d}'"
        )
        try:
            assert write_mark(connection, on.config) == int(late) + 1
            lsn = on.server.catch_up()
            assert mark_at(connection, on.config, lsn) == int(late) + 1
            assert mark_at(connection, on.config, previous_lsn(lsn)) < int(late) + 1
        finally:
            on.server.sql("DELETE FROM ASNCDC.IBMSNAP_SIGNAL")


def test_a_quiet_log_gives_heartbeats_as_often_as_the_caller_is_patient(on: Streamed) -> None:
    on.properties = {"poll.interval.ms": 10_000}
    asked = 0

    def patience() -> float:
        nonlocal asked
        asked += 1
        return 0.01

    began = time.monotonic()
    for number, item in enumerate(on.stream(patience=patience)):
        assert isinstance(item, Heartbeat)
        if number == 40:
            break
    assert asked >= 30
    assert time.monotonic() - began < 60, "by its own interval it were 400 seconds"
    assert on.metrics.counters.polls > 3


def test_a_look_at_a_quiet_log_is_one_question(on: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 1_000)
    on.read()
    made = stream.AsnStream(on.config, on.position, None, on.tables, on.metrics)
    items = made.read_items()
    for _ in range(20):
        next(items)
    questions, polls = made._questions.count, on.metrics.counters.polls
    while on.metrics.counters.polls < polls + 10:
        next(items)
    assert made._questions.count - questions == on.metrics.counters.polls - polls
    items.close()  # type: ignore[attr-defined]


# the agent and the server


def test_what_was_committed_while_the_agent_was_stopped_comes_when_it_goes_on(on: Streamed) -> None:
    on.server.agent("stop")
    for i in range(10):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
    items = on.stream()
    for _ in range(15):
        assert isinstance(next(items), Heartbeat)
    on.server.agent("start")
    deadline = time.monotonic() + LONGEST_S
    while len(on.events) < 10 and time.monotonic() < deadline:
        next(items)
    items.close()  # type: ignore[attr-defined]
    assert short(on.events) == [("c", "T", i) for i in range(10)]


def test_the_agent_may_be_slow_and_be_restarted_while_others_write(on: Streamed) -> None:
    on.server.configure(delay=0.3)
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with on.server.connect("W1") as writer:
            while not stop.is_set():
                writer.execute(f"INSERT INTO {on.namespace}.T VALUES ({written}, 'a')")
                writer.execute(f"UPDATE {on.namespace}.T SET V = 'b' WHERE ID = {written}")
                writer.commit()
                written += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        items = on.stream()
        for moment in range(4):
            until = time.monotonic() + 0.8
            while time.monotonic() < until:
                next(items)
            on.server.agent("stop" if moment % 2 == 0 else "start")
        items.close()  # type: ignore[attr-defined]
    finally:
        stop.set()
        writing.join()
        on.server.configure(delay=0.0)
        on.server.agent("start")
    on.read()
    assert written > 5
    assert short(on.events) == [(op, "T", i) for i in range(written) for op in "cu"]


def test_the_agent_is_looked_at_once_in_each_poll_interval(on: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is nothing new. The clock goes on only where the stream sleeps."""
    assert config().poll_interval_ms == 500
    for poll_interval_ms in (500, 1700):
        on.properties = {"poll.interval.ms": poll_interval_ms}
        now, looks = [100.0], list[float]()

        def look(*asked: Any, now: list[float] = now, looks: list[float] = looks) -> AgentProgress:
            looks.append(now[0])
            return read_agent_progress(*asked)

        def sleep(seconds: float, now: list[float] = now) -> None:
            now[0] += seconds

        clock = SimpleNamespace(monotonic=lambda now=now: now[0], sleep=sleep)
        with monkeypatch.context() as patched:
            patched.setattr(stream, "read_agent_progress", look)
            patched.setattr(stream, "time", clock)
            on.read_until(lambda looks=looks: len(looks) == 4)  # type: ignore[misc]
        pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
        assert pauses == pytest.approx([poll_interval_ms / 1000] * 3)


def test_an_agent_that_is_behind_is_told_in_the_metrics(on: Streamed) -> None:
    on.server.agent("pause")
    time.sleep(1.2)
    items = on.stream()
    next(items)
    latency = on.metrics.build_metrics()["AgentLatencyInMilliseconds"]
    items.close()  # type: ignore[attr-defined]
    assert isinstance(latency, int)
    assert latency >= 1000


@pytest.mark.crash
def test_a_killed_server_is_an_error_and_the_stream_goes_on_where_it_was(db2_factory: Callable[..., Db2]) -> None:
    on = Streamed(db2_factory())
    on.create(T, U)
    on.begin()
    for i in range(40):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')", f"INSERT INTO {{s}}.U VALUES ({i}, 'a')")
    on.server.catch_up()
    with patch.object(ChangeMerger.__init__, "__defaults__", (8,)), patch.object(stream, "FETCH_ROWS", 5):
        items = on.stream()
        while len(on.events) < 20:
            next(items)
        on.server.kill()
        with pytest.raises(SourceUnavailable):
            collections.deque(items)
    on.server.start()
    on.sql("INSERT INTO {s}.T VALUES (100, 'a')")
    on.read()
    assert short(on.events) == [("c", table, i) for i in range(40) for table in "TU"] + [("c", "T", 100)]


# what is lost, and is no secret


@pytest.fixture(scope="module")
def with_apply() -> Iterator[Db2]:
    """A server with an Apply program, which made the agent fill synchpoints of registrations."""
    with Db2({"synchpoints": "both"}) as server:
        yield server


@pytest.fixture
def applied(with_apply: Db2) -> Streamed:
    streamed = Streamed(with_apply)
    streamed.create(T, U)
    return streamed.begin()


def test_a_table_pruned_past_the_position_is_an_error(applied: Streamed) -> None:
    on = applied
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    at = on.server.catch_up()
    on.server.prune(tables=[(on.namespace, "T")])
    with pytest.raises(PositionLost, match="pruned") as e:
        on.read()
    assert (f"{on.namespace}.T" in str(e.value), lsn_text(at) in str(e.value)) == (True, True)
    assert on.events == []


def test_a_table_pruned_up_to_the_position_is_no_error(applied: Streamed) -> None:
    on = applied
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    on.server.prune(before=on.position.commit_lsn, tables=[(on.namespace, "T")])
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    assert short(on.read()) == [("c", "T", 2)]


@contextmanager
def kept_for(on: Streamed, minutes: int) -> Iterator[None]:
    """Let the agent keep changes for a number of minutes."""
    on.server.sql(f"UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = {minutes}")
    try:
        yield
    finally:
        on.server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 10080")


def test_changes_pruned_for_their_age_are_an_error_though_no_synchpoint_shows_it(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    assert short(on.read()) == [("c", "T", 1)]
    on.sql("INSERT INTO {s}.T VALUES (2, 'lost')")
    on.server.catch_up()
    with kept_for(on, 0):
        on.server.prune_old()
        with pytest.raises(PositionLost, match="keeps changes for 0 minutes") as e:
            on.read()
    assert "snapshot.mode=when_needed" in str(e.value)
    assert len(on.events) == 1


@pytest.mark.parametrize("evidence", ["unit of work", "change table"])
def test_a_row_from_before_the_position_proves_that_nothing_after_it_was_pruned(on: Streamed, evidence: str) -> None:
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    on.read()
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    on.server.catch_up()
    if evidence == "change table":
        on.server.sql("DELETE FROM ASNCDC.IBMSNAP_UOW")
    with kept_for(on, 0):
        assert short(on.read()) == [("c", "T", 2)]


def test_a_log_that_stood_still_for_longer_than_changes_are_kept_has_lost_nothing(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    long_ago = 30 * 86_400_000_000
    on.position = replace(on.position, published_us=on.position.published_us - long_ago)
    moment = datetime.fromtimestamp(on.position.published_us / 1_000_000, UTC).replace(tzinfo=None)
    on.server.sql(
        "DELETE FROM ASNCDC.IBMSNAP_UOW",
        f"DELETE FROM {on.change_table('T')}",
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHTIME = TIMESTAMP('{moment}') WHERE GLOBAL_RECORD = 'Y'",
    )
    left = on.position
    on.read_until(lambda: on.heartbeats > 3)
    assert on.position.seen_us > left.published_us + long_ago - 60_000_000
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    assert short(on.read()) == [("c", "T", 2)]
    on.position = left
    with pytest.raises(PositionLost, match="keeps changes for"):
        on.read()


def test_a_quiet_log_was_not_pruned(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    with kept_for(on, 0):
        on.server.prune_old()
        assert on.read() == []


def test_rows_pruned_while_they_are_read_are_an_error(applied: Streamed) -> None:
    on = applied
    for i in range(60):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
    on.server.catch_up()
    with patch.object(ChangeMerger.__init__, "__defaults__", (10,)), patch.object(stream, "FETCH_ROWS", 10):
        items = on.stream()
        while not on.events:
            next(items)
        on.server.prune(tables=[(on.namespace, "T")])
        with pytest.raises(PositionLost):
            collections.deque(items)
    assert short(on.events) == [("c", "T", i) for i in range(len(on.events))]
    assert len(on.events) < 60


def test_a_table_that_was_registered_anew_is_an_error(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    on.server.remove_table(on.namespace, "T")
    on.sql("INSERT INTO {s}.T VALUES (2, 'lost')")
    on.server.catch_up()
    on.server.add_table(on.namespace, "T")
    on.sql("INSERT INTO {s}.T VALUES (3, 'a')")
    with pytest.raises(PositionLost, match="registered again") as e:
        on.read()
    assert re.search(
        r"`airflow cdc db2 switch-capture-instance \w+ \w+\.T --confirm \w+` \(without --writers-stopped\)",
        str(e.value),
    )
    assert short(on.events) == [("c", "T", 1)]


def test_a_table_that_was_registered_anew_on_purpose_is_read_from_its_beginning(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    on.server.remove_table(on.namespace, "T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    on.server.catch_up()
    on.server.add_table(on.namespace, "T")
    with closing(connect_database(on.config)) as connection:
        made = Db2CatalogReader(connection, on.config).list_registrations()[on.id("T")].made_us
    on.sql("INSERT INTO {s}.T VALUES (3, 'a')")
    assert on.position.made[f"{on.namespace}.T"] < made
    on.position = replace(on.position, made={**on.position.made, f"{on.namespace}.T": made})
    assert short(on.read()) == [("c", "U", 1), ("c", "T", 3)]


def test_a_change_table_that_begins_later_on_purpose_is_acknowledged_until_the_position_reaches_it(
    applied: Streamed,
) -> None:
    on = applied
    on.read()
    on.server.remove_table(on.namespace, "T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    on.server.catch_up()
    on.server.add_table(on.namespace, "T")
    with closing(connect_database(on.config)) as connection:
        one = Db2CatalogReader(connection, on.config).list_registrations()[on.id("T")]
    assert one.old is not None
    on.sql("INSERT INTO {s}.T VALUES (3, 'a')")
    name = f"{on.namespace}.T"
    on.position = replace(on.position, made={name: one.made_us}, acknowledged={name: one.old})
    assert short(on.read()) == [("c", "U", 1), ("c", "T", 3)]
    assert not on.position.acknowledged


def test_a_registration_that_is_gone_is_an_error_while_the_table_exists(on: Streamed) -> None:
    on.read()
    on.server.remove_table(on.namespace, "T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    with pytest.raises(PrerequisiteError, match="registration is gone") as e:
        on.read()
    assert "ADDTABLE" in str(e.value)
    assert re.search(
        r"`airflow cdc db2 switch-capture-instance \w+ \w+\.T --confirm \w+` \(without --writers-stopped\)",
        str(e.value),
    )


def test_a_registration_that_is_gone_is_noticed_on_a_quiet_log(on: Streamed) -> None:
    items = on.stream()
    for _ in range(5):
        next(items)
    on.server.remove_table(on.namespace, "T")
    with pytest.raises(PrerequisiteError, match="registration is gone"):
        collections.deque(items)


def test_a_dropped_table_is_dropped(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    on.server.remove_table(on.namespace, "T")
    on.server.sql(f"DROP TABLE {on.namespace}.T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    assert short(on.read()) == [("c", "U", 1)]
    assert [(c.type, c.id.name) for item in on.changes for c in item.changes] == [("DROP", "T")]
    assert on.id("T") not in on.tables.schemas


def test_a_table_that_is_dropped_while_the_stream_reads_is_dropped(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    items = on.stream()
    while not on.events:
        next(items)
    on.server.remove_table(on.namespace, "T")
    on.server.sql(f"DROP TABLE {on.namespace}.T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    while len(on.events) < 2:
        next(items)
    items.close()  # type: ignore[attr-defined]
    assert short(on.events) == [("c", "T", 1), ("c", "U", 1)]
    assert [(c.type, c.id.name) for item in on.changes for c in item.changes] == [("DROP", "T")]


def test_a_change_table_that_is_dropped_while_the_stream_reads_is_an_error(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    items = on.stream()
    while not on.events:
        next(items)
    on.server.agent("pause")
    on.drop_change_table("T")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    on.server.agent("resume")
    with pytest.raises(PrerequisiteError, match=r"does not exist any more|stopped after error ASN0057E"):
        collections.deque(items)


def test_a_change_table_that_is_gone_is_an_error(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.server.catch_up()
    on.drop_change_table("T")
    with pytest.raises(PrerequisiteError, match="no longer exists") as e:
        on.read()
    assert f"CDC_{on.namespace}_T" in str(e.value)


@pytest.mark.parametrize(("state", "what"), [("I", "inactive"), ("S", "stopped after error ASN0057E")])
def test_a_registration_that_is_not_active_is_an_error_that_says_how_to_activate_it(
    on: Streamed, state: str, what: str
) -> None:
    on.read()
    info = "'ASN0057E'" if state == "S" else "NULL"
    on.server.sql(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}', STATE_INFO = {info} WHERE SOURCE_OWNER = '{on.namespace}' AND SOURCE_TABLE = 'T'"
    )
    with pytest.raises(PrerequisiteError, match=what) as e:
        on.read(Db2Position(b"\xff" * 16))
    assert "SET STATE = 'A'" in str(e.value)


def test_a_database_that_was_set_back_is_an_error(on: Streamed) -> None:
    on.position = Db2Position(b"\xff" * 16)
    with pytest.raises(PositionLost, match="before the position"):
        on.read_until(lambda: False)


# tables and columns that come


def test_a_table_that_is_added_while_the_stream_reads_is_new_and_its_changes_come(on: Streamed) -> None:
    items = on.stream()
    for _ in range(3):
        next(items)
    on.server.sql(
        f"CREATE TABLE {on.namespace}.N (ID INTEGER NOT NULL PRIMARY KEY)", f"INSERT INTO {on.namespace}.N VALUES (1)"
    )
    on.server.add_table(on.namespace, "N")
    on.sql("INSERT INTO {s}.N VALUES (2)")
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    deadline = time.monotonic() + LONGEST_S
    while len(on.events) < 2 and time.monotonic() < deadline:
        next(items)
    items.close()  # type: ignore[attr-defined]
    ((change,),) = [item.changes for item in on.changes]
    assert (change.type, change.id, change.exact) == ("CREATE", on.id("N"), False)
    assert change.table is not None
    assert change.table.key == ("ID",)
    assert short(on.events) == [("c", "N", 2), ("c", "T", 1)]
    on.sql("INSERT INTO {s}.N VALUES (3)")  # and after a restart, no loss is seen that is none
    assert short(on.read()) == [("c", "N", 3)]


def test_a_table_that_the_filters_leave_out_is_no_concern(on: Streamed) -> None:
    on.tables.left_out.add("U")
    on.tables.schemas.pop(on.id("U"))
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')", "INSERT INTO {s}.T VALUES (1, 'a')")
    on.server.sql(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_OWNER = '{on.namespace}' AND SOURCE_TABLE = 'U'"
    )
    assert short(on.read()) == [("c", "T", 1)]
    assert on.changes == []


def test_a_column_that_table_and_change_table_have_got_comes_with_its_default(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.server.catch_up()
    for table in (f"{on.namespace}.T", on.change_table("T")):
        on.server.sql(
            f"ALTER TABLE {table} ADD COLUMN W INTEGER DEFAULT 5", f"ALTER TABLE {table} ADD COLUMN X VARCHAR(9)"
        )
    on.server.reinit()
    on.sql("INSERT INTO {s}.T VALUES (2, 'b', 6, 'x')")
    events = on.read()
    ((change,),) = [item.changes for item in on.changes]
    assert (change.type, change.added, change.renamed, change.exact) == ("ALTER", {"W": "5", "X": None}, {}, True)
    assert [e.after for e in events][-1] == {"ID": 2, "V": "b", "W": 6, "X": "x"}
    assert on.changes[0].ddl == ""
    on.sql("INSERT INTO {s}.T VALUES (3, 'c', 7, 'y')")
    on.read()
    assert len(on.changes) == 1


def test_a_column_that_the_change_table_does_not_have_is_not_captured_until_it_has(on: Streamed) -> None:
    on.server.sql(f"ALTER TABLE {on.namespace}.T ADD COLUMN W INTEGER")
    on.sql("INSERT INTO {s}.T VALUES (1, 'a', 6)")
    assert [e.after for e in on.read()] == [{"ID": 1, "V": "a"}]
    assert on.changes == []
    on.server.sql(f"ALTER TABLE {on.change_table('T')} ADD COLUMN W INTEGER")
    on.server.reinit()
    on.sql("INSERT INTO {s}.T VALUES (2, 'b', 7)")
    assert [e.after for e in on.read()] == [{"ID": 2, "V": "b", "W": 7}]
    assert len(on.changes) == 1


# LOBs

DOCS = "DOCS (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20), TEXT CLOB(1M), DATA BLOB(1M))"


def _docs(on: Streamed, **options: Any) -> None:
    on.create(DOCS, **options)
    on.begin()


def _last(events: list[Event]) -> Event:
    assert events
    return events[-1]


def test_lobs_that_were_changed_are_read_from_the_table_by_key(on: Streamed) -> None:
    _docs(on)
    on.sql(
        "INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))",
        "INSERT INTO {s}.DOCS VALUES (2, 'b', NULL, NULL)",
    )
    first, second = on.read()
    assert first.after == {"ID": 1, "NAME": "a", "TEXT": "some text", "DATA": b"\x00\xff"}
    assert second.after == {"ID": 2, "NAME": "b", "TEXT": None, "DATA": None}
    assert (first.lacking, second.lacking) == ((), ())
    on.sql("UPDATE {s}.DOCS SET TEXT = CAST('another' AS CLOB(1M)) WHERE ID = 1")
    update = _last(on.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "a", "TEXT": "another", "DATA": b"\x00\xff"}, ())
    assert update.lacking_before == ("TEXT", "DATA")


def test_lobs_of_updates_that_come_as_one_row_are_read_where_they_were_changed(on: Streamed) -> None:
    _docs(on, upd_to_del_ins=False, before_prefix="X", lob_columns="letter")
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))")
    on.read()
    on.sql("UPDATE {s}.DOCS SET NAME = 'c' WHERE ID = 1")
    update = _last(on.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "c", "TEXT": None, "DATA": None}, ("TEXT", "DATA"))
    on.sql("UPDATE {s}.DOCS SET TEXT = CAST('another' AS CLOB(1M)) WHERE ID = 1")
    update = _last(on.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "c", "TEXT": "another", "DATA": None}, ("DATA",))


@pytest.mark.parametrize("lob_writes", ["indicator", "nothing", "values"])
@pytest.mark.parametrize("pairs", [True, False])
def test_lob_values_come_from_the_table_whatever_the_agent_writes_into_change_tables(
    db2_factory: Callable[..., Db2], lob_writes: str, pairs: bool
) -> None:
    on = Streamed(db2_factory(lob_writes=lob_writes))
    _docs(on, upd_to_del_ins=pairs)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('U' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))")
    on.sql("INSERT INTO {s}.DOCS VALUES (2, 'b', CAST('text' AS CLOB(1M)), NULL)")
    first, second = on.read()
    assert first.after == {"ID": 1, "NAME": "a", "TEXT": "U", "DATA": b"\x00\xff"}
    assert second.after == {"ID": 2, "NAME": "b", "TEXT": "text", "DATA": None}
    on.sql("UPDATE {s}.DOCS SET NAME = 'c', DATA = CAST(X'01' AS BLOB(1M)) WHERE ID = 2")
    update = _last(on.read())
    assert (update.after, update.lacking) == ({"ID": 2, "NAME": "c", "TEXT": "text", "DATA": b"\x01"}, ())


def test_lobs_of_a_row_that_is_inserted_again_without_them_are_null(on: Streamed) -> None:
    """Nothing in the change table tells it from a row whose LOBs stay as they are."""
    _docs(on)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))")
    on.read()
    on.sql("DELETE FROM {s}.DOCS", "INSERT INTO {s}.DOCS VALUES (1, 'a', NULL, NULL)")
    update = _last(on.read())
    assert (update.op, update.lacking) == ("u", ())
    assert update.after == {"ID": 1, "NAME": "a", "TEXT": None, "DATA": None}


def test_lobs_come_along_when_the_key_changes(on: Streamed) -> None:
    _docs(on)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    on.read()
    on.sql("UPDATE {s}.DOCS SET ID = 7")
    update = _last(on.read())
    assert (update.after, update.lacking) == ({"ID": 7, "NAME": "a", "TEXT": "some text", "DATA": None}, ())


def test_lobs_of_a_row_that_is_gone_are_unavailable_and_not_null(on: Streamed) -> None:
    _docs(on)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    on.sql("DELETE FROM {s}.DOCS")
    create, delete = on.read()
    assert (create.op, create.lacking) == ("c", ("TEXT", "DATA"))
    assert (delete.op, delete.lacking_before) == ("d", ("TEXT", "DATA"))


def test_lobs_are_left_out_where_that_is_wanted(on: Streamed) -> None:
    on.properties = {"lob.handling.mode": "unavailable"}
    _docs(on)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    assert _last(on.read()).lacking == ("TEXT", "DATA")


def test_lobs_of_a_table_without_a_key_are_unavailable_with_a_warning(
    on: Streamed, caplog: pytest.LogCaptureFixture
) -> None:
    on.create("BAG (N INTEGER, TEXT CLOB(1M))")
    on.begin()
    on.sql("INSERT INTO {s}.BAG VALUES (1, CAST('some text' AS CLOB(1M)))")
    assert _last(on.read()).lacking == ("TEXT",)
    assert "has no key" in caplog.text


def test_items_of_a_stream_are_blocks_changes_and_heartbeats_only(on: Streamed) -> None:
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    until = Db2Position(on.server.catch_up())
    assert [type(item) for item in on.stream(until)] == [LogBlock, Heartbeat]


def test_whatever_is_asked_and_read_ends_its_transaction(on: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise tables could not be put into and out of capture mode."""
    began: dict[int, set[str]] = {}
    seen: set[str] = set()

    def noted(name: str) -> None:
        method = getattr(Db2Connection, name)

        def asked(self: Db2Connection, *args: Any, **more: Any) -> Any:
            began.setdefault(id(self), set()).add(name)
            seen.add(name)
            return method(self, *args, **more)

        monkeypatch.setattr(Db2Connection, name, asked)

    def ended(self: Db2Connection) -> None:
        rollback(self)
        began.pop(id(self), None)

    for name in ("fetch_rows", "open_cursor", "execute"):
        noted(name)
    rollback = Db2Connection.rollback
    monkeypatch.setattr(Db2Connection, "rollback", ended)
    items = on.stream()
    for i in range(3):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
        on.server.catch_up()
        while len(on.events) <= i:
            next(items)
        while not isinstance(next(items), Heartbeat):
            pass
        assert seen == {"fetch_rows", "open_cursor"}
        assert not began
        seen.clear()
    items.close()  # type: ignore[attr-defined]
