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
from tests.sources.db2.log.streamed import Event, StreamedSchema, replay_events, shorten_events
from tests.support.patience import LONGEST_S, wait_until
from tests.support.sources.db2.db2_settings import config

T = "T (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))"
U = "U (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))"


@pytest.fixture
def streamed_schema(db2: Db2) -> Iterator[StreamedSchema]:
    """A schema of the shared server with the tables T and U."""
    streamed = StreamedSchema(db2)
    streamed.create(T, U)
    yield streamed.begin()
    db2.agent("start")
    db2.agent("resume")
    streamed.close()


# what comes


def test_changes_come_with_their_images_lsns_and_times(streamed_schema: StreamedSchema) -> None:
    before = int(time.time() * 1e6)
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a'), (2, 'b')", "UPDATE {s}.T SET V = 'c' WHERE ID = 2")
    streamed_schema.sql("DELETE FROM {s}.T WHERE ID = 1")
    events = streamed_schema.read()
    assert [(e.op, e.before, e.after) for e in events] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("c", None, {"ID": 2, "V": "b"}),
        ("u", {"ID": 2, "V": "b"}, {"ID": 2, "V": "c"}),
        ("d", {"ID": 1, "V": "a"}, None),
    ]
    commits = [lsn_bytes(e.commit) for e in events]
    assert commits[0] == commits[2] < commits[3] <= streamed_schema.position.commit_lsn
    changes = [(lsn_bytes(e.commit), lsn_bytes(e.change)) for e in events]
    assert changes == sorted(changes)
    for e in events:
        assert before <= e.ts_us <= time.time() * 1e6
    assert sum(len(block.transactions) for block in streamed_schema.blocks) == 2


def test_a_rollback_leaves_nothing(streamed_schema: StreamedSchema) -> None:
    with streamed_schema.server.connect("W1") as writer:
        writer.execute(f"INSERT INTO {streamed_schema.namespace}.T VALUES (1, 'a')")
        writer.rollback()
        writer.execute(f"INSERT INTO {streamed_schema.namespace}.T VALUES (2, 'b')")
        writer.commit()
    assert shorten_events(streamed_schema.read()) == [("c", "T", 2)]


def test_changes_of_one_transaction_over_several_tables_come_in_the_order_in_which_they_were_made(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.sql(
        "INSERT INTO {s}.T VALUES (1, 'a')", "INSERT INTO {s}.U VALUES (1, 'a')", "UPDATE {s}.T SET V = 'b'",
        "UPDATE {s}.U SET V = 'b'", "DELETE FROM {s}.T", "INSERT INTO {s}.U VALUES (2, 'c')",
    )  # fmt: skip
    events = streamed_schema.read()
    assert shorten_events(events) == [
        ("c", "T", 1), ("c", "U", 1), ("u", "T", 1), ("u", "U", 1), ("d", "T", 1), ("c", "U", 2),
    ]  # fmt: skip
    assert len({e.commit for e in events}) == 1


def test_transactions_of_several_writers_come_whole_and_in_the_order_of_their_commits(
    streamed_schema: StreamedSchema,
) -> None:
    rng = random.Random(7)
    committed: list[list[tuple[str, int]]] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(streamed_schema.server.connect(f"W{i}")) for i in range(3)]
        open_: list[list[tuple[str, int]]] = [[], [], []]
        for number in range(60):
            i = rng.randrange(3)
            table = rng.choice("TU")
            writers[i].execute(f"INSERT INTO {streamed_schema.namespace}.{table} VALUES ({number}, 'w{i}')")
            open_[i].append((table, number))
            if rng.random() < 0.3:
                if rng.random() < 0.7:
                    writers[i].commit()
                    committed.append(open_[i])
                else:
                    writers[i].rollback()
                open_[i] = []
                if rng.random() < 0.5:  # so that the agent sees some commits one by one
                    streamed_schema.server.step()
    by_commit: dict[str, list[tuple[str, int]]] = {}
    for op, table, key, commit in ((e.op, e.table, (e.after or {})["ID"], e.commit) for e in streamed_schema.read()):
        assert op == "c"
        by_commit.setdefault(commit, []).append((table, key))
    # the test's agent distinguishes commits that it sees together only by their changes: the order of whole transactions is the order of LSNs
    assert sorted(by_commit.values()) == sorted(committed)
    assert list(by_commit) == sorted(by_commit)
    assert len(streamed_schema.events) == sum(map(len, committed))


def test_a_key_change_is_an_update_of_both_keys(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')", "UPDATE {s}.T SET ID = 9")
    assert [(e.op, e.before, e.after) for e in streamed_schema.read()][1] == (
        "u",
        {"ID": 1, "V": "a"},
        {"ID": 9, "V": "a"},
    )


def test_lsns_of_ten_bytes_are_read_as_those_of_sixteen(db2_factory: Callable[..., Db2]) -> None:
    on = StreamedSchema(db2_factory(lsn_bytes=10))
    on.create(T, U)
    on.begin()
    for i in range(5):
        on.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')", f"INSERT INTO {{s}}.U VALUES ({i}, 'b')")
    events = on.read()
    assert shorten_events(events) == [("c", table, i) for i in range(5) for table in "TU"]
    assert {len(lsn_bytes(e.commit)) for e in events} == {10}
    assert on.read() == []


def test_the_beginning_is_before_all_rows_of_change_tables(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    streamed_schema.position = Db2Position(b"")
    assert shorten_events(streamed_schema.read()) == [("c", "T", 1), ("c", "T", 2)]


@pytest.mark.parametrize("lsn_bytes", [10, 16])
def test_a_position_with_an_lsn_of_another_length_loses_and_repeats_nothing(
    db2_factory: Callable[..., Db2], lsn_bytes: int
) -> None:
    on = StreamedSchema(db2_factory(lsn_bytes=lsn_bytes))
    on.create(T)
    on.begin()
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    for length in (10, 16, 7):
        other = on.position.commit_lsn.rstrip(b"\0").ljust(length, b"\0")
        on.position = replace(on.position, commit_lsn=other)
        assert on.read() == []
        on.sql("INSERT INTO {s}.T VALUES (2, 'a')", "DELETE FROM {s}.T WHERE ID = 2")
        assert shorten_events(on.read()) == [("c", "T", 2), ("d", "T", 2)]


def test_updates_that_come_as_one_row_have_no_image_before(streamed_schema: StreamedSchema) -> None:
    streamed_schema.create("ONE (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))", upd_to_del_ins=False)
    streamed_schema.begin()
    streamed_schema.sql("INSERT INTO {s}.ONE VALUES (1, 'a')", "UPDATE {s}.ONE SET V = 'b'", "DELETE FROM {s}.ONE")
    streamed_schema.sql("INSERT INTO {s}.ONE VALUES (2, 'c')")
    streamed_schema.sql("DELETE FROM {s}.ONE", "INSERT INTO {s}.ONE VALUES (3, 'd')")
    assert [(e.op, e.before, e.after) for e in streamed_schema.read()] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("u", None, {"ID": 1, "V": "b"}),
        ("d", {"ID": 1, "V": "b"}, None),
        ("c", None, {"ID": 2, "V": "c"}),
        ("d", {"ID": 2, "V": "c"}, None),
        ("c", None, {"ID": 3, "V": "d"}),
    ]


def test_updates_that_come_as_one_row_have_the_image_before_from_its_own_columns(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.create("B (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))", upd_to_del_ins=False, before_prefix="X")
    streamed_schema.begin()
    streamed_schema.sql("INSERT INTO {s}.B VALUES (1, 'a')", "UPDATE {s}.B SET ID = 2, V = 'b'", "DELETE FROM {s}.B")
    assert [(e.op, e.before, e.after) for e in streamed_schema.read()] == [
        ("c", None, {"ID": 1, "V": "a"}),
        ("u", {"ID": 1, "V": "a"}, {"ID": 2, "V": "b"}),
        ("d", {"ID": 2, "V": "b"}, None),
    ]


def test_an_unknown_operation_is_an_error_that_names_table_and_lsn(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.server.catch_up()
    streamed_schema.server.sql(f"UPDATE {streamed_schema.change_table('T')} SET IBMSNAP_OPERATION = 'X'")
    with pytest.raises(UnknownLogEvent, match="'X'") as e:
        streamed_schema.read()
    assert f"{streamed_schema.namespace}.T" in str(e.value)


# restarts, blocks, windows


@pytest.mark.parametrize("block_rows", [1, 7, 64])
def test_a_restart_inside_a_large_commit_gives_the_whole_transaction_again(
    streamed_schema: StreamedSchema, block_rows: int
) -> None:
    streamed_schema.sql("INSERT INTO {s}.U VALUES (0, 'before')")
    with streamed_schema.server.connect("W1") as writer:
        for i in range(150):
            writer.execute(f"INSERT INTO {streamed_schema.namespace}.{'TU'[i % 2]} VALUES ({i + 1}, 'x')")
        writer.execute(f"UPDATE {streamed_schema.namespace}.T SET V = 'y'")
        writer.commit()
    streamed_schema.sql("INSERT INTO {s}.U VALUES (500, 'after')")
    streamed_schema.server.catch_up()
    with patch.object(ChangeMerger.__init__, "__defaults__", (block_rows,)), patch.object(stream, "FETCH_ROWS", 10):
        for stop in (2, 3, 2):
            streamed_schema.read_until(lambda stop=stop: len(streamed_schema.blocks) >= stop)  # type: ignore[misc]
            assert len(streamed_schema.events) <= 1
            streamed_schema.blocks.clear()
        streamed_schema.read()
    assert any(block.open for block in streamed_schema.blocks)
    assert len(streamed_schema.events) == 1 + 150 + 75 + 1
    assert [e.table for e in streamed_schema.events[1:151]] == ["T", "U"] * 75
    assert len({e.commit for e in streamed_schema.events}) == 3
    assert len(replay_events(streamed_schema.events, "T")) == 75


def test_a_backlog_is_read_in_windows_and_every_position_within_is_one_to_go_on_from(
    streamed_schema: StreamedSchema,
) -> None:
    for i in range(30):
        streamed_schema.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')", f"INSERT INTO {{s}}.U VALUES ({i}, 'a')")
    end = Db2Position(streamed_schema.server.catch_up())
    start = streamed_schema.position
    with (
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.FIRST", 4),
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.LEAST", 4),
        patch("airflow_provider_cdc.sources.db2.log.commit_windows.MOST", 4),
    ):
        streamed_schema.read(end)
        assert streamed_schema.metrics.counters.windows >= 7
        whole = shorten_events(streamed_schema.events)
        assert whole == [("c", table, i) for i in range(30) for table in "TU"]
        positions = [start, *(block.position for block in streamed_schema.blocks)]
        for position in positions:
            again = StreamedSchema.__new__(StreamedSchema)
            again.__dict__ |= streamed_schema.__dict__ | {"position": position, "events": [], "blocks": []}
            again.read(end)
            assert shorten_events(again.events) == whole[len(whole) - len(again.events) :]
            assert len(again.events) == sum(lsn_bytes(e.commit) > position.commit_lsn for e in streamed_schema.events)  # type: ignore[attr-defined]


def test_transactions_that_uow_does_not_have_have_the_time_up_to_which_the_agent_has_published(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.server.catch_up()
    streamed_schema.server.sql("DELETE FROM ASNCDC.IBMSNAP_UOW")
    (event,) = streamed_schema.read()
    assert abs(event.ts_us - time.time() * 1e6) < 60e6


def test_many_tables_are_read_with_few_open_results(streamed_schema: StreamedSchema) -> None:
    names = [f"M{i}" for i in range(24)]
    streamed_schema.create(*(f"{name} (ID INTEGER NOT NULL PRIMARY KEY)" for name in names))
    streamed_schema.begin()
    for i in range(0, 60, 3):
        streamed_schema.sql(*(f"INSERT INTO {{s}}.{name} VALUES ({i + j})" for j in range(3) for name in names))
    most = 0
    fetch = cursor_pool.CursorPool.fetch_rows

    def count_open_cursors(self: cursor_pool.CursorPool, *args: object) -> list[tuple[object, ...]]:
        nonlocal most
        found = fetch(self, *args)  # type: ignore[arg-type]
        most = max(most, len(self._open))
        return found

    with (
        patch.object(cursor_pool.CursorPool.__init__, "__defaults__", (3,)), patch.object(cursor_pool.CursorPool, "fetch_rows", count_open_cursors),
        patch.object(ChangeMerger.__init__, "__defaults__", (50,)), patch.object(stream, "FETCH_ROWS", 7),
    ):  # fmt: skip
        events = streamed_schema.read()
    assert most == 3
    assert shorten_events(events) == [("c", name, i) for i in range(60) for name in names]


def test_a_quiet_table_beside_a_busy_one_costs_no_query(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.U VALUES (0, 'a')")
    streamed_schema.read()
    for i in range(5):
        queries = streamed_schema.metrics.counters.queries
        streamed_schema.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
        assert shorten_events(streamed_schema.read()) == [("c", "T", i)]
        assert streamed_schema.metrics.counters.queries == queries + 1
    streamed_schema.sql("UPDATE {s}.U SET V = 'b'")
    assert shorten_events(streamed_schema.read()) == [("u", "U", 0)]


# positions to read up to


def test_nothing_from_after_the_position_to_read_up_to_comes(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    until = Db2Position(streamed_schema.server.catch_up())
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    streamed_schema.server.catch_up()
    assert shorten_events(streamed_schema.read(until)) == [("c", "T", 1)]
    assert streamed_schema.position.commit_lsn == until.commit_lsn
    assert shorten_events(streamed_schema.read()) == [("c", "T", 2)]


def test_the_end_of_the_log_is_reached_when_the_agent_has_published_what_had_committed_by_then(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.server.agent("pause")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    with closing(connect_database(streamed_schema.config)) as connection:
        now = read_agent_progress(connection, '"ASNCDC"')
        end = Db2Position(now.lsn, awaits=write_mark(connection, streamed_schema.config))
    resumed = threading.Thread(
        target=lambda: (
            wait_until(lambda: streamed_schema.heartbeats > 10, "it waits for the agent"),
            streamed_schema.server.agent("resume"),
        )
    )
    resumed.start()
    assert shorten_events(streamed_schema.read(end)) == [("c", "T", 1)]
    resumed.join()
    assert streamed_schema.heartbeats > 10
    assert streamed_schema.position.mark == end.awaits


def test_marks_are_numbered_in_the_order_in_which_they_were_written_whatever_the_clock_does(
    streamed_schema: StreamedSchema,
) -> None:
    with closing(connect_database(streamed_schema.config)) as connection:
        first = write_mark(connection, streamed_schema.config)
        late = f"{first + 10**12:020d}"  # by a clock that was eleven days ahead
        streamed_schema.server.sql(
            f"UPDATE ASNCDC.IBMSNAP_SIGNAL SET SIGNAL_INPUT_IN = '{late}' WHERE SIGNAL_INPUT_IN = '{first:020d}'"
        )
        try:
            assert write_mark(connection, streamed_schema.config) == int(late) + 1
            lsn = streamed_schema.server.catch_up()
            assert mark_at(connection, streamed_schema.config, lsn) == int(late) + 1
            assert mark_at(connection, streamed_schema.config, previous_lsn(lsn)) < int(late) + 1
        finally:
            streamed_schema.server.sql("DELETE FROM ASNCDC.IBMSNAP_SIGNAL")


def test_a_quiet_log_gives_heartbeats_as_often_as_the_caller_is_patient(streamed_schema: StreamedSchema) -> None:
    streamed_schema.properties = {"poll.interval.ms": 10_000}
    requested = 0

    def patience() -> float:
        nonlocal requested
        requested += 1
        return 0.01

    began = time.monotonic()
    for number, item in enumerate(streamed_schema.stream(patience=patience)):
        assert isinstance(item, Heartbeat)
        if number == 40:
            break
    assert requested >= 30
    assert time.monotonic() - began < 60, "by its own interval it were 400 seconds"
    assert streamed_schema.metrics.counters.polls > 3


def test_a_look_at_a_quiet_log_is_one_question(
    streamed_schema: StreamedSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STRUCTURE_CHECK_SECONDS", 1_000)
    streamed_schema.read()
    made = stream.AsnStream(
        streamed_schema.config, streamed_schema.position, None, streamed_schema.tables, streamed_schema.metrics
    )
    items = made.read_items()
    for _ in range(20):
        next(items)
    questions, polls = made._questions.count, streamed_schema.metrics.counters.polls
    while streamed_schema.metrics.counters.polls < polls + 10:
        next(items)
    assert made._questions.count - questions == streamed_schema.metrics.counters.polls - polls
    items.close()  # type: ignore[attr-defined]


# the agent and the server


def test_what_was_committed_while_the_agent_was_stopped_comes_when_it_goes_on(streamed_schema: StreamedSchema) -> None:
    streamed_schema.server.agent("stop")
    for i in range(10):
        streamed_schema.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
    items = streamed_schema.stream()
    for _ in range(15):
        assert isinstance(next(items), Heartbeat)
    streamed_schema.server.agent("start")
    deadline = time.monotonic() + LONGEST_S
    while len(streamed_schema.events) < 10 and time.monotonic() < deadline:
        next(items)
    items.close()  # type: ignore[attr-defined]
    assert shorten_events(streamed_schema.events) == [("c", "T", i) for i in range(10)]


def test_the_agent_may_be_slow_and_be_restarted_while_others_write(streamed_schema: StreamedSchema) -> None:
    streamed_schema.server.configure(delay=0.3)
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with streamed_schema.server.connect("W1") as writer:
            while not stop.is_set():
                writer.execute(f"INSERT INTO {streamed_schema.namespace}.T VALUES ({written}, 'a')")
                writer.execute(f"UPDATE {streamed_schema.namespace}.T SET V = 'b' WHERE ID = {written}")
                writer.commit()
                written += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        items = streamed_schema.stream()
        for moment in range(4):
            until = time.monotonic() + 0.8
            while time.monotonic() < until:
                next(items)
            streamed_schema.server.agent("stop" if moment % 2 == 0 else "start")
        items.close()  # type: ignore[attr-defined]
    finally:
        stop.set()
        writing.join()
        streamed_schema.server.configure(delay=0.0)
        streamed_schema.server.agent("start")
    streamed_schema.read()
    assert written > 5
    assert shorten_events(streamed_schema.events) == [(op, "T", i) for i in range(written) for op in "cu"]


def test_the_agent_is_looked_at_once_in_each_poll_interval(
    streamed_schema: StreamedSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is nothing new. The clock continues only where the stream sleeps."""
    assert config().poll_interval_ms == 500
    for poll_interval_ms in (500, 1700):
        streamed_schema.properties = {"poll.interval.ms": poll_interval_ms}
        now, looks = [100.0], list[float]()

        def record_look(*asked: Any, now: list[float] = now, looks: list[float] = looks) -> AgentProgress:
            looks.append(now[0])
            return read_agent_progress(*asked)

        def sleep(seconds: float, now: list[float] = now) -> None:
            now[0] += seconds

        clock = SimpleNamespace(monotonic=lambda now=now: now[0], sleep=sleep)
        with monkeypatch.context() as patched:
            patched.setattr(stream, "read_agent_progress", record_look)
            patched.setattr(stream, "time", clock)
            streamed_schema.read_until(lambda looks=looks: len(looks) == 4)  # type: ignore[misc]
        pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
        assert pauses == pytest.approx([poll_interval_ms / 1000] * 3)


def test_an_agent_that_is_behind_is_reported_in_the_metrics(streamed_schema: StreamedSchema) -> None:
    streamed_schema.server.agent("pause")
    time.sleep(1.2)
    items = streamed_schema.stream()
    next(items)
    latency = streamed_schema.metrics.build_metrics()["AgentLatencyInMilliseconds"]
    items.close()  # type: ignore[attr-defined]
    assert isinstance(latency, int)
    assert latency >= 1000


@pytest.mark.crash
def test_a_killed_server_is_an_error_and_the_stream_goes_on_where_it_was(db2_factory: Callable[..., Db2]) -> None:
    on = StreamedSchema(db2_factory())
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
    assert shorten_events(on.events) == [("c", table, i) for i in range(40) for table in "TU"] + [("c", "T", 100)]


# what is lost, and is no secret


@pytest.fixture(scope="module")
def with_apply() -> Iterator[Db2]:
    """A server with an Apply program, which made the agent fill synchpoints of registrations."""
    with Db2({"synchpoints": "both"}) as server:
        yield server


@pytest.fixture
def streamed_with_apply(with_apply: Db2) -> StreamedSchema:
    streamed = StreamedSchema(with_apply)
    streamed.create(T, U)
    return streamed.begin()


def test_a_table_pruned_past_the_position_is_an_error(streamed_with_apply: StreamedSchema) -> None:
    on = streamed_with_apply
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    at = on.server.catch_up()
    on.server.prune(tables=[(on.namespace, "T")])
    with pytest.raises(PositionLost, match="pruned") as e:
        on.read()
    assert (f"{on.namespace}.T" in str(e.value), lsn_text(at) in str(e.value)) == (True, True)
    assert on.events == []


def test_a_table_pruned_up_to_the_position_is_no_error(streamed_with_apply: StreamedSchema) -> None:
    on = streamed_with_apply
    on.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    on.read()
    on.server.prune(before=on.position.commit_lsn, tables=[(on.namespace, "T")])
    on.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    assert shorten_events(on.read()) == [("c", "T", 2)]


@contextmanager
def kept_for(on: StreamedSchema, minutes: int) -> Iterator[None]:
    """Let the agent keep changes for a number of minutes."""
    on.server.sql(f"UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = {minutes}")
    try:
        yield
    finally:
        on.server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 10080")


def test_changes_pruned_for_their_age_are_an_error_though_no_synchpoint_shows_it(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    assert shorten_events(streamed_schema.read()) == [("c", "T", 1)]
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'lost')")
    streamed_schema.server.catch_up()
    with kept_for(streamed_schema, 0):
        streamed_schema.server.prune_old()
        with pytest.raises(PositionLost, match="keeps changes for 0 minutes") as e:
            streamed_schema.read()
    assert "snapshot.mode=when_needed" in str(e.value)
    assert len(streamed_schema.events) == 1


@pytest.mark.parametrize("evidence", ["unit of work", "change table"])
def test_a_row_from_before_the_position_proves_that_nothing_after_it_was_pruned(
    streamed_schema: StreamedSchema, evidence: str
) -> None:
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    streamed_schema.read()
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    streamed_schema.server.catch_up()
    if evidence == "change table":
        streamed_schema.server.sql("DELETE FROM ASNCDC.IBMSNAP_UOW")
    with kept_for(streamed_schema, 0):
        assert shorten_events(streamed_schema.read()) == [("c", "T", 2)]


def test_a_log_that_stood_still_for_longer_than_changes_are_kept_has_lost_nothing(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.read()
    long_ago = 30 * 86_400_000_000
    streamed_schema.position = replace(
        streamed_schema.position, published_us=streamed_schema.position.published_us - long_ago
    )
    moment = datetime.fromtimestamp(streamed_schema.position.published_us / 1_000_000, UTC).replace(tzinfo=None)
    streamed_schema.server.sql(
        "DELETE FROM ASNCDC.IBMSNAP_UOW",
        f"DELETE FROM {streamed_schema.change_table('T')}",
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHTIME = TIMESTAMP('{moment}') WHERE GLOBAL_RECORD = 'Y'",
    )
    left = streamed_schema.position
    streamed_schema.read_until(lambda: streamed_schema.heartbeats > 3)
    assert streamed_schema.position.seen_us > left.published_us + long_ago - 60_000_000
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'a')")
    assert shorten_events(streamed_schema.read()) == [("c", "T", 2)]
    streamed_schema.position = left
    with pytest.raises(PositionLost, match="keeps changes for"):
        streamed_schema.read()


def test_a_quiet_log_was_not_pruned(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.read()
    with kept_for(streamed_schema, 0):
        streamed_schema.server.prune_old()
        assert streamed_schema.read() == []


def test_rows_pruned_while_they_are_read_are_an_error(streamed_with_apply: StreamedSchema) -> None:
    on = streamed_with_apply
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
    assert shorten_events(on.events) == [("c", "T", i) for i in range(len(on.events))]
    assert len(on.events) < 60


def test_a_table_that_was_registered_again_is_an_error(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.read()
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'lost')")
    streamed_schema.server.catch_up()
    streamed_schema.server.add_table(streamed_schema.namespace, "T")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (3, 'a')")
    with pytest.raises(PositionLost, match="registered again") as e:
        streamed_schema.read()
    assert re.search(
        r"`airflow cdc db2 switch-capture-instance \w+ \w+\.T --confirm \w+` \(without --writers-stopped\)",
        str(e.value),
    )
    assert shorten_events(streamed_schema.events) == [("c", "T", 1)]


def test_a_table_that_was_registered_again_on_purpose_is_read_from_its_beginning(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.read()
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    streamed_schema.server.catch_up()
    streamed_schema.server.add_table(streamed_schema.namespace, "T")
    with closing(connect_database(streamed_schema.config)) as connection:
        made_us = (
            Db2CatalogReader(connection, streamed_schema.config)
            .list_registrations()[streamed_schema.id("T")]
            .created_us
        )
    streamed_schema.sql("INSERT INTO {s}.T VALUES (3, 'a')")
    assert streamed_schema.position.created_us[f"{streamed_schema.namespace}.T"] < made_us
    streamed_schema.position = replace(
        streamed_schema.position,
        created_us={**streamed_schema.position.created_us, f"{streamed_schema.namespace}.T": made_us},
    )
    assert shorten_events(streamed_schema.read()) == [("c", "U", 1), ("c", "T", 3)]


def test_a_change_table_that_begins_later_on_purpose_is_acknowledged_until_the_position_reaches_it(
    streamed_with_apply: StreamedSchema,
) -> None:
    on = streamed_with_apply
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
    on.position = replace(on.position, created_us={name: one.created_us}, acknowledged={name: one.old})
    assert shorten_events(on.read()) == [("c", "U", 1), ("c", "T", 3)]
    assert not on.position.acknowledged


def test_a_registration_that_is_gone_is_an_error_while_the_table_exists(streamed_schema: StreamedSchema) -> None:
    streamed_schema.read()
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    with pytest.raises(PrerequisiteError, match="registration is gone") as e:
        streamed_schema.read()
    assert "ADDTABLE" in str(e.value)
    assert re.search(
        r"`airflow cdc db2 switch-capture-instance \w+ \w+\.T --confirm \w+` \(without --writers-stopped\)",
        str(e.value),
    )


def test_a_registration_that_is_gone_is_noticed_on_a_quiet_log(streamed_schema: StreamedSchema) -> None:
    items = streamed_schema.stream()
    for _ in range(5):
        next(items)
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    with pytest.raises(PrerequisiteError, match="registration is gone"):
        collections.deque(items)


def test_a_dropped_table_is_dropped(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.read()
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    streamed_schema.server.sql(f"DROP TABLE {streamed_schema.namespace}.T")
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    assert shorten_events(streamed_schema.read()) == [("c", "U", 1)]
    assert [(c.type, c.id.name) for item in streamed_schema.changes for c in item.changes] == [("DROP", "T")]
    assert streamed_schema.id("T") not in streamed_schema.tables.schemas


def test_a_table_that_is_dropped_while_the_stream_reads_is_dropped(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    items = streamed_schema.stream()
    while not streamed_schema.events:
        next(items)
    streamed_schema.server.remove_table(streamed_schema.namespace, "T")
    streamed_schema.server.sql(f"DROP TABLE {streamed_schema.namespace}.T")
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    while len(streamed_schema.events) < 2:
        next(items)
    items.close()  # type: ignore[attr-defined]
    assert shorten_events(streamed_schema.events) == [("c", "T", 1), ("c", "U", 1)]
    assert [(c.type, c.id.name) for item in streamed_schema.changes for c in item.changes] == [("DROP", "T")]


def test_a_change_table_that_is_dropped_while_the_stream_reads_is_an_error(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    items = streamed_schema.stream()
    while not streamed_schema.events:
        next(items)
    streamed_schema.server.agent("pause")
    streamed_schema.drop_change_table("T")
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')")
    streamed_schema.server.agent("resume")
    with pytest.raises(PrerequisiteError, match=r"does not exist any more|stopped after error ASN0057E"):
        collections.deque(items)


def test_a_change_table_that_is_gone_is_an_error(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.server.catch_up()
    streamed_schema.drop_change_table("T")
    with pytest.raises(PrerequisiteError, match="no longer exists") as e:
        streamed_schema.read()
    assert f"CDC_{streamed_schema.namespace}_T" in str(e.value)


@pytest.mark.parametrize(("state", "what"), [("I", "inactive"), ("S", "stopped after error ASN0057E")])
def test_a_registration_that_is_not_active_is_an_error_that_says_how_to_activate_it(
    streamed_schema: StreamedSchema, state: str, what: str
) -> None:
    streamed_schema.read()
    info = "'ASN0057E'" if state == "S" else "NULL"
    streamed_schema.server.sql(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}', STATE_INFO = {info} WHERE SOURCE_OWNER = '{streamed_schema.namespace}' AND SOURCE_TABLE = 'T'"
    )
    with pytest.raises(PrerequisiteError, match=what) as e:
        streamed_schema.read(Db2Position(b"\xff" * 16))
    assert "SET STATE = 'A'" in str(e.value)


def test_a_database_that_was_set_back_is_an_error(streamed_schema: StreamedSchema) -> None:
    streamed_schema.position = Db2Position(b"\xff" * 16)
    with pytest.raises(PositionLost, match="before the position"):
        streamed_schema.read_until(lambda: False)


# tables and columns that come


def test_a_table_that_is_added_while_the_stream_reads_is_new_and_its_changes_come(
    streamed_schema: StreamedSchema,
) -> None:
    items = streamed_schema.stream()
    for _ in range(3):
        next(items)
    streamed_schema.server.sql(
        f"CREATE TABLE {streamed_schema.namespace}.N (ID INTEGER NOT NULL PRIMARY KEY)",
        f"INSERT INTO {streamed_schema.namespace}.N VALUES (1)",
    )
    streamed_schema.server.add_table(streamed_schema.namespace, "N")
    streamed_schema.sql("INSERT INTO {s}.N VALUES (2)")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    deadline = time.monotonic() + LONGEST_S
    while len(streamed_schema.events) < 2 and time.monotonic() < deadline:
        next(items)
    items.close()  # type: ignore[attr-defined]
    ((change,),) = [item.changes for item in streamed_schema.changes]
    assert (change.type, change.id, change.exact) == ("CREATE", streamed_schema.id("N"), False)
    assert change.table is not None
    assert change.table.key == ("ID",)
    assert shorten_events(streamed_schema.events) == [("c", "N", 2), ("c", "T", 1)]
    streamed_schema.sql("INSERT INTO {s}.N VALUES (3)")  # and after a restart, no loss is seen that is none
    assert shorten_events(streamed_schema.read()) == [("c", "N", 3)]


def test_a_table_that_the_filters_leave_out_is_no_concern(streamed_schema: StreamedSchema) -> None:
    streamed_schema.tables.left_out.add("U")
    streamed_schema.tables.schemas.pop(streamed_schema.id("U"))
    streamed_schema.sql("INSERT INTO {s}.U VALUES (1, 'a')", "INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.server.sql(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_OWNER = '{streamed_schema.namespace}' AND SOURCE_TABLE = 'U'"
    )
    assert shorten_events(streamed_schema.read()) == [("c", "T", 1)]
    assert streamed_schema.changes == []


def test_a_column_that_table_and_change_table_have_got_comes_with_its_default(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    streamed_schema.server.catch_up()
    for table in (f"{streamed_schema.namespace}.T", streamed_schema.change_table("T")):
        streamed_schema.server.sql(
            f"ALTER TABLE {table} ADD COLUMN W INTEGER DEFAULT 5", f"ALTER TABLE {table} ADD COLUMN X VARCHAR(9)"
        )
    streamed_schema.server.reinit()
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'b', 6, 'x')")
    events = streamed_schema.read()
    ((change,),) = [item.changes for item in streamed_schema.changes]
    assert (change.type, change.added, change.renamed, change.exact) == ("ALTER", {"W": "5", "X": None}, {}, True)
    assert [e.after for e in events][-1] == {"ID": 2, "V": "b", "W": 6, "X": "x"}
    assert streamed_schema.changes[0].ddl == ""
    streamed_schema.sql("INSERT INTO {s}.T VALUES (3, 'c', 7, 'y')")
    streamed_schema.read()
    assert len(streamed_schema.changes) == 1


def test_a_column_that_the_change_table_does_not_have_is_not_captured_until_it_has(
    streamed_schema: StreamedSchema,
) -> None:
    streamed_schema.server.sql(f"ALTER TABLE {streamed_schema.namespace}.T ADD COLUMN W INTEGER")
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a', 6)")
    assert [e.after for e in streamed_schema.read()] == [{"ID": 1, "V": "a"}]
    assert streamed_schema.changes == []
    streamed_schema.server.sql(f"ALTER TABLE {streamed_schema.change_table('T')} ADD COLUMN W INTEGER")
    streamed_schema.server.reinit()
    streamed_schema.sql("INSERT INTO {s}.T VALUES (2, 'b', 7)")
    assert [e.after for e in streamed_schema.read()] == [{"ID": 2, "V": "b", "W": 7}]
    assert len(streamed_schema.changes) == 1


# LOBs

DOCS = "DOCS (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20), TEXT CLOB(1M), DATA BLOB(1M))"


def _docs(on: StreamedSchema, **options: Any) -> None:
    on.create(DOCS, **options)
    on.begin()


def _last_event(events: list[Event]) -> Event:
    assert events
    return events[-1]


def test_lobs_that_were_changed_are_read_from_the_table_by_key(streamed_schema: StreamedSchema) -> None:
    _docs(streamed_schema)
    streamed_schema.sql(
        "INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))",
        "INSERT INTO {s}.DOCS VALUES (2, 'b', NULL, NULL)",
    )
    first, second = streamed_schema.read()
    assert first.after == {"ID": 1, "NAME": "a", "TEXT": "some text", "DATA": b"\x00\xff"}
    assert second.after == {"ID": 2, "NAME": "b", "TEXT": None, "DATA": None}
    assert (first.lacking, second.lacking) == ((), ())
    streamed_schema.sql("UPDATE {s}.DOCS SET TEXT = CAST('another' AS CLOB(1M)) WHERE ID = 1")
    update = _last_event(streamed_schema.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "a", "TEXT": "another", "DATA": b"\x00\xff"}, ())
    assert update.lacking_before == ("TEXT", "DATA")


def test_lobs_of_updates_that_come_as_one_row_are_read_where_they_were_changed(streamed_schema: StreamedSchema) -> None:
    _docs(streamed_schema, upd_to_del_ins=False, before_prefix="X", lob_columns="letter")
    streamed_schema.sql(
        "INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))"
    )
    streamed_schema.read()
    streamed_schema.sql("UPDATE {s}.DOCS SET NAME = 'c' WHERE ID = 1")
    update = _last_event(streamed_schema.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "c", "TEXT": None, "DATA": None}, ("TEXT", "DATA"))
    streamed_schema.sql("UPDATE {s}.DOCS SET TEXT = CAST('another' AS CLOB(1M)) WHERE ID = 1")
    update = _last_event(streamed_schema.read())
    assert (update.after, update.lacking) == ({"ID": 1, "NAME": "c", "TEXT": "another", "DATA": None}, ("DATA",))


@pytest.mark.parametrize("lob_writes", ["indicator", "nothing", "values"])
@pytest.mark.parametrize("pairs", [True, False])
def test_lob_values_come_from_the_table_whatever_the_agent_writes_into_change_tables(
    db2_factory: Callable[..., Db2], lob_writes: str, pairs: bool
) -> None:
    on = StreamedSchema(db2_factory(lob_writes=lob_writes))
    _docs(on, upd_to_del_ins=pairs)
    on.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('U' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))")
    on.sql("INSERT INTO {s}.DOCS VALUES (2, 'b', CAST('text' AS CLOB(1M)), NULL)")
    first, second = on.read()
    assert first.after == {"ID": 1, "NAME": "a", "TEXT": "U", "DATA": b"\x00\xff"}
    assert second.after == {"ID": 2, "NAME": "b", "TEXT": "text", "DATA": None}
    on.sql("UPDATE {s}.DOCS SET NAME = 'c', DATA = CAST(X'01' AS BLOB(1M)) WHERE ID = 2")
    update = _last_event(on.read())
    assert (update.after, update.lacking) == ({"ID": 2, "NAME": "c", "TEXT": "text", "DATA": b"\x01"}, ())


def test_lobs_of_a_row_that_is_inserted_again_without_them_are_null(streamed_schema: StreamedSchema) -> None:
    """Nothing in the change table distinguishes it from a row whose LOBs stay as they are."""
    _docs(streamed_schema)
    streamed_schema.sql(
        "INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), CAST(X'00FF' AS BLOB(1M)))"
    )
    streamed_schema.read()
    streamed_schema.sql("DELETE FROM {s}.DOCS", "INSERT INTO {s}.DOCS VALUES (1, 'a', NULL, NULL)")
    update = _last_event(streamed_schema.read())
    assert (update.op, update.lacking) == ("u", ())
    assert update.after == {"ID": 1, "NAME": "a", "TEXT": None, "DATA": None}


def test_lobs_come_along_when_the_key_changes(streamed_schema: StreamedSchema) -> None:
    _docs(streamed_schema)
    streamed_schema.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    streamed_schema.read()
    streamed_schema.sql("UPDATE {s}.DOCS SET ID = 7")
    update = _last_event(streamed_schema.read())
    assert (update.after, update.lacking) == ({"ID": 7, "NAME": "a", "TEXT": "some text", "DATA": None}, ())


def test_lobs_of_a_row_that_is_gone_are_unavailable_and_not_null(streamed_schema: StreamedSchema) -> None:
    _docs(streamed_schema)
    streamed_schema.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    streamed_schema.sql("DELETE FROM {s}.DOCS")
    create, delete = streamed_schema.read()
    assert (create.op, create.lacking) == ("c", ("TEXT", "DATA"))
    assert (delete.op, delete.lacking_before) == ("d", ("TEXT", "DATA"))


def test_lobs_are_left_out_where_that_is_wanted(streamed_schema: StreamedSchema) -> None:
    streamed_schema.properties = {"lob.handling.mode": "unavailable"}
    _docs(streamed_schema)
    streamed_schema.sql("INSERT INTO {s}.DOCS VALUES (1, 'a', CAST('some text' AS CLOB(1M)), NULL)")
    assert _last_event(streamed_schema.read()).lacking == ("TEXT", "DATA")


def test_lobs_of_a_table_without_a_key_are_unavailable_with_a_warning(
    streamed_schema: StreamedSchema, caplog: pytest.LogCaptureFixture
) -> None:
    streamed_schema.create("BAG (N INTEGER, TEXT CLOB(1M))")
    streamed_schema.begin()
    streamed_schema.sql("INSERT INTO {s}.BAG VALUES (1, CAST('some text' AS CLOB(1M)))")
    assert _last_event(streamed_schema.read()).lacking == ("TEXT",)
    assert "has no key" in caplog.text


def test_items_of_a_stream_are_blocks_changes_and_heartbeats_only(streamed_schema: StreamedSchema) -> None:
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1, 'a')")
    until = Db2Position(streamed_schema.server.catch_up())
    assert [type(item) for item in streamed_schema.stream(until)] == [LogBlock, Heartbeat]


def test_whatever_is_asked_and_read_ends_its_transaction(
    streamed_schema: StreamedSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise tables could not be put into and out of capture mode."""
    began: dict[int, set[str]] = {}
    seen: set[str] = set()

    def record_method(name: str) -> None:
        method = getattr(Db2Connection, name)

        def record_call(self: Db2Connection, *args: Any, **more: Any) -> Any:
            began.setdefault(id(self), set()).add(name)
            seen.add(name)
            return method(self, *args, **more)

        monkeypatch.setattr(Db2Connection, name, record_call)

    def end_transaction(self: Db2Connection) -> None:
        rollback(self)
        began.pop(id(self), None)

    for name in ("fetch_rows", "open_cursor", "execute"):
        record_method(name)
    rollback = Db2Connection.rollback
    monkeypatch.setattr(Db2Connection, "rollback", end_transaction)
    items = streamed_schema.stream()
    for i in range(3):
        streamed_schema.sql(f"INSERT INTO {{s}}.T VALUES ({i}, 'a')")
        streamed_schema.server.catch_up()
        while len(streamed_schema.events) <= i:
            next(items)
        while not isinstance(next(items), Heartbeat):
            pass
        assert seen == {"fetch_rows", "open_cursor"}
        assert not began
        seen.clear()
    items.close()  # type: ignore[attr-defined]
