"""Signals that a run takes, and its answers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.log_item_writer import LogItemWriter
from airflow_provider_cdc.core.capture.signal_handling.signal_processor import SignalProcessor
from airflow_provider_cdc.core.model.log_items import LogBlock, LogItem
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, FORMS, fill, partial
from tests.support.signals import list_notifications, send, signal_state, snapshot
from tests.support.workloads.small_tables import equal


@pytest.mark.parametrize(
    ("type_", "data", "said"),
    [
        ("execute-snapshot", {"data-collections": ["shop.orders"]}, "no captured table has the name shop.orders"),
        ("execute-snapshot", {"data-collections": ["shop.aa"]}, "did you mean shop.a?"),
        ("execute-snapshot", {"data-collections": ["shop.signals2"]}, "captured tables: shop.a, shop.b, shop.c"),
        ("execute-snapshot", "{not json", "its data is not JSON"),
        ("execute-snapshot", {"data-collections": ["shop.a"], "type": "sideways"}, "valid values are"),
        ("execute-snapshot", "x" * ((1 << 20) + 1), "1,048,577 characters"),
        ("stop-snapshot", {"data-collections": ["shop.a"]}, "missing"),
        ("exekute-snapshot", {}, "did you mean execute-snapshot?"),
        ("log", {}, "message"),
    ],
)
def test_a_signal_that_cannot_be_carried_out_is_answered_and_harms_nothing(
    db: MemoryDatabase, tmp_path: Path, type_: str, data: Any, said: str
) -> None:
    connector = partial(db, tmp_path)
    number = send(connector, type_, data, id_="wrong")
    fill(db, "shop.a", range(5000, 5003))
    assert connector.capture().events == 3
    state, message = signal_state(connector, number)
    assert state == "refused"
    assert said in message
    ((kind, told_data),) = list_notifications(connector, "Signal")
    assert kind == "REFUSED"
    assert "wrong" in told_data["message"]


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("execute-snapshot", {"data-collections": ["shop.a", "([a-z0-9_]+.?)+!"]}),
        ("execute-snapshot", {"data-collections": ["shop.b"], "additional-conditions": [
            {"data-collection": "([a-z0-9_]+.?)+!", "filter": "id < 5"}]}),
        ("execute-snapshot", {"data-collections": [f".*_.*_.*_.*!{i}" for i in range(2000)]}),
        ("stop-snapshot", {"data-collections": ["([a-z0-9_]+.?)+!"], "type": "incremental"}),
    ],
)  # fmt: skip
def test_a_pattern_that_would_hold_the_run_up_is_refused(
    db: MemoryDatabase, tmp_path: Path, type_: str, data: dict[str, Any]
) -> None:
    """Nothing can end the matching of one, and no other thread would get its turn; the next run would meet it again."""
    db.create_table("shop.a_table_of_customers_and_their_addresses_of_last_year", COLUMNS, key=("id",))
    connector = partial(db, tmp_path, table_include_list="shop.*")
    snapshot(connector, "shop.a", "shop.a_.*")
    send(connector, "pause-snapshot")
    number = send(connector, type_, data, id_="wrong")
    send(connector, "resume-snapshot")
    connector.capture()
    state, message = signal_state(connector, number)
    assert (state, "may take longer than a run can wait" in message) == ("refused", True)
    assert "instead of ([a-z0-9_]+.?)*" in message
    equal(connector, db, "shop.a")


def test_of_many_names_that_there_are_not_some_are_reported(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, *(f"shop.nix{i}" for i in range(500)))
    connector.capture()
    state, message = signal_state(connector, number)
    assert (state, "shop.nix19" in message, "or any of 480 more names" in message) == ("refused", True, True)
    assert "shop.nix20" not in message


def test_an_empty_list_of_tables_is_no_action(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector)
    connector.capture()
    assert signal_state(connector, number) == ("done", "the signal names no table: nothing to do")


def test_a_table_that_is_unknown_among_others_fails_the_request_but_not_the_others(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", "shop.nix")
    connector.capture()
    equal(connector, db, "shop.a")
    state, message = signal_state(connector, number)
    assert (state, "shop.nix" in message) == ("failed", True)


def test_a_log_signal_reports_the_position(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = partial(db, tmp_path)
    number = send(connector, "log", {"message": "now at {}"})
    with caplog.at_level("INFO"):
        connector.capture()
    assert "now at entry 7" in caplog.text
    assert signal_state(connector, number) == ("done", "now at entry 7")


def test_a_signal_row_is_taken_from_the_log_once(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert(
            "shop.signals", {"id": "row-1", "type": "execute-snapshot", "data": '{"data-collections": ["shop.a"]}'}
        )
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.channel, signal.state) == ("row-1", "source", "done")
    assert connector.replay.operations["r"] == 1000


def test_a_signal_row_is_not_lost_when_a_run_is_killed_behind_it(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset may be behind the row before the run looks at its signals the next time."""
    connector = partial(db, tmp_path, batch_max_rows=1, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert("shop.b", {"id": 5000, "n": 1, "note": "fills the batch"})
        t.insert("shop.signals", {"id": "row-1", "type": "log", "data": '{"message": "taken"}'})
    with monkeypatch.context() as m:
        m.setattr(SignalProcessor, "process_if_due", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            connector.capture()
    assert len(connector.rows("shop.b")) == 1
    connector.capture()
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.state, signal.message) == ("row-1", "done", "taken")


def test_signal_rows_are_not_kept_while_their_transaction_is_open(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still be rolled back."""
    connector = partial(db, tmp_path, memory_block_rows=1, **FORMS["insert_insert"])
    with db.transaction() as t:
        for i in range(3):
            t.log_void("shop.signals", {"id": f"void-{i}", "type": "log", "data": '{"message": "never"}'})
        t.insert("shop.signals", {"id": "row-1", "type": "log", "data": '{"message": "taken"}'})
    make, write, opened, outputs = LogItemWriter.__init__, LogItemWriter.write_item, [], []

    def record_output(self: LogItemWriter, output: RunOutput, *more: Any) -> None:
        outputs.append(output)
        make(self, output, *more)

    def record_and_write(self: LogItemWriter, item: LogItem) -> None:
        write(self, item)
        if isinstance(item, LogBlock):
            opened.append(item.open)
            outputs[-1].committer.commit()

    monkeypatch.setattr(LogItemWriter, "__init__", record_output)
    monkeypatch.setattr(LogItemWriter, "write_item", record_and_write)
    connector.capture()
    assert True in opened
    assert [s.id for s in connector.store.signals_of("test", limit=10)] == ["row-1"]


@pytest.mark.parametrize("same", ["moment", "row"])
def test_signal_rows_at_one_place_of_two_logs_are_two_signals(db: MemoryDatabase, tmp_path: Path, same: str) -> None:
    """A server that resets its log numbers files, places and transactions from the beginning again."""
    connector = partial(db, tmp_path, snapshot_mode="when_needed", **FORMS["insert_insert"])
    moments = iter(range(10**15, 10**15 + 10**6))
    db.clock = (lambda: 10**15) if same == "moment" else (lambda: next(moments))
    for i in range(2):
        db.log.clear()
        connector.capture()
        data = f'{{"message": "{0 if same == "row" else i}"}}'
        with db.transaction() as t:
            t.insert("shop.signals", {"id": "again", "type": "log", "data": data})
        connector.capture()
    assert [s.state for s in connector.store.signals_of("test", limit=10)] == ["done", "done"]


def test_a_channel_that_is_not_enabled_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, signal_enabled_channels="source")
    number = snapshot(connector, "shop.a")
    connector.capture()
    assert signal_state(connector, number) == ("refused", "the channel airflow is not in signal.enabled.channels")


def test_the_position_is_set_by_a_signal(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    fill(db, "shop.a", range(5000, 5003))  # skipped
    fill(db, "shop.b", range(5000, 5003))
    number = send(connector, "set-memory-position", {"entry": 8})
    connector.capture()
    assert connector.rows("shop.a") == []
    assert len(connector.rows("shop.b")) == 3
    assert signal_state(connector, number) == ("done", "continues from entry 8 instead of entry 7 (skip)")
    wrong = send(connector, "set-memory-position", {"entry": 800})
    connector.capture()
    assert signal_state(connector, wrong)[0] == "refused"
