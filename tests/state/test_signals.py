"""Signals: recorded once, taken in their order, and with a state that people can look up."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.batch_manifest import SignalOutcome
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal, SignalState
from airflow_provider_cdc.core.signals.signal_intake import STORED_CHARACTERS
from airflow_provider_cdc.core.signals.signal_request_parser import LARGEST
from airflow_provider_cdc.core.spi.state_records import SignalCounts, SignalRecord
from airflow_provider_cdc.state.state_store import StateStore
from tests.state.conftest import Stores
from tests.support.change_log.manifests import manifest
from tests.support.patience import LONGEST_S

SNAPSHOT = SentSignal("ad-hoc-1", "execute-snapshot", '{"data-collections": ["shop.a"]}', "airflow", None, "ada")


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Every server that Airflow's metadata DB can be on."""
    if request.param == "sqlite":
        yield _create_state_url(f"sqlite:///{tmp_path}/state.db")
        return
    server: Any = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql97"}[request.param])
    with server.database("state") as database:
        yield _create_state_url(server.url(getattr(database, "name", database)))


def _create_state_url(address: str) -> str:
    store = StateStore(address)
    store.create_tables()
    store.close()
    return address


def test_a_signal_is_taken_as_it_was_sent(store: StateStore) -> None:
    number = store.send("c", SNAPSHOT)
    assert store.list_signals("c", 0) == [Signal(number, "ad-hoc-1", "execute-snapshot", SNAPSHOT.data, "airflow")]
    assert store.list_signals("c", number) == []
    assert store.list_signals("other", 0) == []
    (row,) = store.signals_of("c")
    assert timedelta(0) <= datetime.now(UTC) - row.received_at < timedelta(minutes=5)
    assert row == SignalRecord(
        number,
        "ad-hoc-1",
        "execute-snapshot",
        SNAPSHOT.data,
        "airflow",
        "ada",
        SignalState.RECEIVED,
        "",
        {},
        row.received_at,
    )


def test_numbers_grow_and_signals_come_in_their_order(store: StateStore) -> None:
    numbers = [store.send(("c", "d")[n % 2], SentSignal(str(n), "log")) for n in range(10)]
    assert numbers == sorted(set(numbers))
    assert [s.id for s in store.list_signals("c", 0)] == ["0", "2", "4", "6", "8"]
    assert [s.id for s in store.list_signals("c", numbers[4])] == ["6", "8"]


def test_what_is_found_again_at_the_same_place_is_the_same_signal(store: StateStore) -> None:
    def send_signal(origin: str | None, connector: str = "c") -> int:
        return store.send(connector, SentSignal("x", "log", origin=origin))

    first = send_signal("kafka:signals:0:17")
    store.set_signal_state("c", first, SignalState.DONE)
    assert send_signal("kafka:signals:0:17") == first
    assert send_signal("kafka:signals:0:18") != first
    assert send_signal("kafka:signals:0:17", "d") != first
    long = "/" + "long/" * 300
    assert send_signal(long + "1") == send_signal(long + "1") != send_signal(long + "2")
    assert send_signal(None) != send_signal(None)
    # databases that think that letters are alike must not lose a signal
    assert len({send_signal(o) for o in ("file:Ä", "file:A", "file:a", "file:a ", "file:ä")}) == 5
    assert len(store.signals_of("c", 100)) == 11


def test_states_have_their_times_and_a_final_one_stays(store: StateStore) -> None:
    number = store.send("c", SNAPSHOT)
    store.set_signal_state("c", number, SignalState.RUNNING, progress={"tables": 3, "left": 2})
    (running,) = store.signals_of("c")
    assert (running.state, running.progress, running.ended_at) == ("running", {"tables": 3, "left": 2}, None)
    assert running.running_at >= running.received_at
    store.set_signal_state("c", number, SignalState.RUNNING, "reading shop.a", {"tables": 3, "left": 1})
    store.set_signal_state("c", number, SignalState.RECEIVED)
    (later,) = store.signals_of("c")
    assert (later.state, later.message, later.progress["left"]) == ("running", "reading shop.a", 1)
    assert later.running_at == running.running_at
    store.set_signal_state("c", number, SignalState.FAILED, "the table is gone")
    (ended,) = store.signals_of("c")
    for state in (SignalState.DONE, SignalState.RUNNING):
        store.set_signal_state("c", number, state, "too late", {"tables": 0})
    assert store.signals_of("c") == [ended]
    assert (ended.state, ended.message, ended.progress["left"]) == ("failed", "the table is gone", 1)
    assert ended.ended_at >= ended.running_at


def test_the_state_of_a_signal_of_another_connector_is_not_touched(store: StateStore) -> None:
    number = store.send("c", SNAPSHOT)
    store.set_signal_state("d", number, SignalState.DONE)
    store.set_signal_state("c", number + 1, SignalState.DONE)
    assert store.signals_of("c")[0].state == "received"


def test_states_are_committed_with_the_batch_that_they_belong_to(store: StateStore) -> None:
    one, two = store.send("c", SNAPSHOT), store.send("c", SNAPSHOT)
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        batch = manifest(signal_outcomes=[SignalOutcome(number=one, state=SignalState.DONE, message="3 rows")])
        stored = store.commit_batch(lease, store.load_offset("c"), batch, "x")
        assert [(s.state, s.message) for s in store.signals_of("c")] == [("received", ""), ("done", "3 rows")]
        assert store.signals_of("c", under_way=True)[0].number == two
        assert stored.offset is not None
        store.advance_offset(
            lease, stored, stored.offset, (), [SignalOutcome(number=two, state=SignalState.REFUSED, message="no")]
        )
    assert store.signals_of("c", under_way=True) == []


def test_people_see_one_signal_in_full_and_lists_short(store: StateStore) -> None:
    data = '{"message": "' + "x" * 100_000 + '"}'
    first = store.send("c", SentSignal("1", "log", data))
    second = store.send("c", SentSignal("2", "log"))
    assert [s.number for s in store.signals_of("c")] == [second, first]
    assert [s.number for s in store.signals_of("c", 1)] == [second]
    assert len(store.signals_of("c", 5)[1].data) == 2000
    assert store.signals_of("c", 1, number=first)[0].data == data
    assert store.list_signals("c", 0)[0].data == data


def test_whatever_is_sent_can_be_kept(store: StateStore) -> None:
    """A channel may find any signal: it is answered, and is no error of the channel."""
    odd = SentSignal(
        "é😀\0\ud800" + "i" * 1000, "t" * 1000, "\0\ud800" + "😀" * LARGEST, "c" * 100, "o" * 999, "b" * 999
    )
    number = store.send("c", odd)
    assert store.send("c", odd) == number
    (signal,) = store.list_signals("c", 0)
    assert signal.id.startswith("é😀\x01?iii")
    assert signal.data is not None
    assert len(signal.data) == LARGEST + 1  # so that it is seen to be too large
    store.set_signal_state("c", number, SignalState.REFUSED, "it is \0 \ud800 odd")
    assert store.signals_of("c")[0].message.startswith("it is \x01 ? odd. Its data has 1,048,577 characters")


def test_numbers_go_on_behind_the_last_signal_that_the_offset_knows(store: StateStore) -> None:
    """The state tables were lost and rebuilt from a change log; a signal with a lower number would never be taken."""
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1}, signal=1000))
    other = store.send("other", SNAPSHOT)
    assert other < 1000
    numbers = [store.send("c", SNAPSHOT), store.send("c", SNAPSHOT), store.send("other", SNAPSHOT)]
    assert numbers == [1001, 1002, 1003]
    assert [s.number for s in store.list_signals("c", 1000)] == [1001, 1002]


def test_a_number_is_not_given_out_again_after_its_connector_was_deleted(store: StateStore) -> None:
    number = store.send("c", SNAPSHOT)
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.delete_connector(lease)
    assert store.list_signals("c", 0) == []
    assert store.send("c", SNAPSHOT) > number


def test_signals_of_many_senders_are_seen_in_the_order_of_their_numbers(store: StateStore, stores: Stores) -> None:
    """A number is given out before its row can be seen. A reader that asks for those above the last one must miss none."""
    senders, each = 4, 15
    seen: list[int] = []
    sent: list[int] = []
    ended = threading.Event()

    def delay_insert(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "INSERT INTO cdc_signal" in statement:
            time.sleep(random.random() / 50)

    def send(sender: int) -> None:
        mine = stores()
        sa.event.listen(mine.database.engine, "after_cursor_execute", delay_insert)
        sent.extend(mine.send("c", SentSignal(f"{sender}-{n}", "log")) for n in range(each))

    def take_signals() -> None:
        mine = stores()
        while True:
            last = ended.is_set()
            seen.extend(s.number for s in mine.list_signals("c", seen[-1] if seen else 0))
            if last:
                return

    taker = threading.Thread(target=take_signals)
    threads = [threading.Thread(target=send, args=(n,)) for n in range(senders)]
    for thread in (taker, *threads):
        thread.start()
    for thread in threads:
        thread.join(120)
    ended.set()
    taker.join(120)
    assert len(sent) == senders * each
    assert seen == sorted(sent)


def test_the_same_origin_from_many_senders_at_once_is_one_signal(stores: Stores) -> None:
    numbers: list[int] = []
    barrier = threading.Barrier(4)

    def send() -> None:
        mine = stores()
        barrier.wait(LONGEST_S)
        numbers.extend(mine.send("c", SentSignal("x", "log", origin=f"file:{n}")) for n in range(10))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(numbers) == 40
    assert len(set(numbers)) == 10


LONG = '{"message": "' + "x" * 3000 + '"}'


def test_the_data_of_a_refused_signal_is_cut(store: StateStore) -> None:
    number = store.send("c", SentSignal("a", "log", LONG, "source", "o"))
    store.set_signal_state("c", number, SignalState.REFUSED, "no such type")
    (found,) = store.signals_of("c", number=number)
    assert found.data == LONG[:STORED_CHARACTERS]
    assert found.message.startswith("no such type. Its data has 3,015 characters")
    done = store.send("c", SentSignal("b", "log", LONG, "source", "p"))
    store.set_signal_state("c", done, SignalState.DONE)
    assert store.signals_of("c", number=done)[0].data == LONG


def test_a_refused_signal_is_never_taken_by_a_run(store: StateStore) -> None:
    number = store.send("c", SentSignal("a", "log", "{}", "source", "o"), refusal="too many")
    assert store.send("c", SentSignal("a", "log", "{}", "source", "o")) == number
    assert list(store.list_signals("c", 0)) == []


def test_signals_of_a_channel_are_counted(store: StateStore) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    for i in range(3):
        store.send("c", SentSignal(str(i), "log", "äöü", "source", str(i)))
    store.send("c", SentSignal("other", "log", "{}", "file", "x"))
    store.send("d", SentSignal("other", "log", "{}", "source", "x"))
    store.set_signal_state("c", store.send("c", SentSignal("0", "log", "äöü", "source", "0")), SignalState.DONE)
    assert store.count_signals("c", "source", began) == SignalCounts(3, 9, 2)
    assert store.count_signals("c", "source", began + timedelta(hours=1)) == SignalCounts(0, 0, 2)
    assert store.count_signals("c", "kafka", began) == SignalCounts()
