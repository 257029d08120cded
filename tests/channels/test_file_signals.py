"""Signals from a file: every line once, whatever ends in the middle."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.channels import file_signals as module
from airflow_provider_cdc.channels import open_channels
from airflow_provider_cdc.channels.file_signals import FileChannel
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal
from airflow_provider_cdc.core.signals.signal_request_parser import (
    LARGEST,
    ExecuteSnapshotRequest,
    SignalRejected,
    parse_request,
)
from airflow_provider_cdc.state.state_store import StateStore

EXECUTE = {"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["shop.orders"], "type": "INCREMENTAL"}}
LOG = {"id": "2", "type": "log", "data": {"message": "hello"}}


def _config(path: Path) -> TableConfig:
    return TableConfig.parse({"topic.prefix": "shop", "signal.enabled.channels": "file", "signal.file": str(path)})


def _channel(path: Path, connector: str = "shop", quiet_s: float = 0.05) -> FileChannel:
    return FileChannel(_config(path), connector, quiet_s=quiet_s)


def _time_goes_by(channel: FileChannel) -> None:
    """No one has written for as long as the channel waits, however slow the machine was before."""
    channel._quiet_s = 0.05
    time.sleep(0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "signals.txt"


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    store = StateStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    return store


def _append(path: Path, *signals: Any) -> None:
    with path.open("a") as f:
        f.writelines((s if isinstance(s, str) else json.dumps(s)) + "\n" for s in signals)


def _parse_signal(signal: SentSignal) -> Any:
    return parse_request(Signal(1, signal.id, signal.type, signal.data, signal.channel))


def _refusal(signal: SentSignal) -> str:
    with pytest.raises(SignalRejected) as caught:
        _parse_signal(signal)
    return f"{signal.id}: {caught.value}"


def test_lines_are_signals_and_are_read_once(path: Path) -> None:
    channel = _channel(path)
    assert channel.poll() == []
    _append(path, EXECUTE, "", LOG)
    first, second = channel.poll()
    assert _parse_signal(first) == ExecuteSnapshotRequest(("shop.orders",))
    assert (second.id, second.type, json.loads(second.data or ""), second.channel) == ("2", "log", LOG["data"], "file")
    assert not path.exists()
    channel.acknowledge([first, second])
    assert channel.poll() == []
    _append(path, LOG)
    (third,) = channel.poll()
    assert third.origin not in (first.origin, second.origin)


def test_it_is_opened_by_its_name(path: Path) -> None:
    (channel,) = open_channels(_config(path), "shop")
    _append(path, LOG)
    assert [s.id for s in channel.poll()] == ["2"]


def test_data_may_be_a_text_or_missing_and_an_id_may_be_missing(path: Path) -> None:
    _append(
        path,
        {"type": "log", "data": '{"message": "x"}'},
        {"id": 7, "type": "pause-snapshot"},
        "\ufeff" + json.dumps(LOG),
    )
    first, second, third = _channel(path).poll()
    assert (first.id, first.data) == ("signals.txt line 1", '{"message": "x"}')
    assert (second.id, second.data) == ("7", None)
    assert third.id == "2"


def test_what_is_not_acknowledged_comes_again(path: Path) -> None:
    channel = _channel(path)
    _append(path, EXECUTE, LOG)
    signals = channel.poll()
    assert channel.poll() == signals
    channel.acknowledge(signals[:1])
    assert channel.poll() == signals[1:]


def test_after_a_crash_the_same_lines_have_the_same_numbers(path: Path, store: StateStore) -> None:
    _append(path, EXECUTE, LOG)
    first = _channel(path)
    signals = first.poll()
    numbers = [store.send("shop", s) for s in signals[:1]]  # and here it ends
    second = _channel(path)
    _append(path, {**LOG, "id": "3"})
    again = second.poll()
    assert again[:2] == signals
    numbers += [store.send("shop", s) for s in again]
    assert numbers == [numbers[0], numbers[0], numbers[0] + 1, numbers[0] + 2]
    second.acknowledge(again)
    assert [s.id for s in store.list_signals("shop", 0)] == ["1", "2", "3"]


def test_a_taken_file_is_deleted_when_it_is_recorded_and_quiet(path: Path) -> None:
    channel = _channel(path, quiet_s=600)
    _append(path, LOG)
    signals = channel.poll()
    channel.acknowledge(signals)
    assert len(list(path.parent.glob("signals.txt.shop.taken-*"))) == 1, "somebody may still be writing"
    _time_goes_by(channel)
    assert channel.poll() == []
    assert list(path.parent.iterdir()) == []


def test_a_taken_file_that_is_not_recorded_is_never_deleted(path: Path) -> None:
    channel = _channel(path)
    _append(path, LOG)
    channel.poll()
    time.sleep(0.1)
    channel.poll()
    channel.close()
    assert [s.id for s in _channel(path).poll()] == ["2"]


def test_a_run_that_ends_at_once_leaves_the_deleting_to_the_next_one(path: Path, store: StateStore) -> None:
    _append(path, LOG)
    for _ in range(2):
        channel = _channel(path, quiet_s=0.2)
        signals = channel.poll()
        for signal in signals:
            store.send("shop", signal)
        channel.acknowledge(signals)
        channel.close()
        time.sleep(0.3)
    assert [p.name for p in path.parent.iterdir()] == ["state.db"]
    assert len(store.list_signals("shop", 0)) == 1


def test_a_line_that_is_still_being_written_is_waited_for(path: Path) -> None:
    channel = _channel(path, quiet_s=600)
    text = json.dumps(LOG)
    with path.open("a", buffering=1) as writer:
        writer.write(json.dumps(EXECUTE) + "\n" + text[:10])
        writer.flush()
        signals = channel.poll()
        assert [s.id for s in signals] == ["1"]
        channel.acknowledge(signals)
        assert channel.poll() == []
        writer.write(text[10:] + "\n" + json.dumps({**LOG, "id": "3"}) + "\n")
    assert [(s.id, (s.origin or "")[-2:]) for s in channel.poll()] == [("2", ":2"), ("3", ":3")]


def test_a_last_line_without_an_end_is_read_when_no_one_writes_any_more(path: Path) -> None:
    channel = _channel(path, quiet_s=600)
    path.write_text(json.dumps(LOG))
    assert channel.poll() == []
    _time_goes_by(channel)
    (signal,) = channel.poll()
    assert signal.id == "2"
    channel.acknowledge([signal])
    assert list(path.parent.iterdir()) == []


def test_lines_of_a_writer_that_had_the_file_open_are_not_lost(path: Path) -> None:
    """It continues writing to the renamed file, after everything in there was recorded."""
    channel = _channel(path, quiet_s=600)
    ids = []
    with path.open("a") as writer:
        for i in range(20):
            writer.write(json.dumps({**LOG, "id": str(i)}) + "\n")
            writer.flush()
            signals = channel.poll()
            ids += [s.id for s in signals]
            channel.acknowledge(signals)
            time.sleep(0.02)
    assert ids == [str(i) for i in range(20)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("execute please", "signals.txt line 2: its data is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('["a"]', "signals.txt line 2: its data is a JSON array, not an object"),
        ('{"id": "x", "data": {}}', "x (signals.txt line 2): it has no type"),
        ('{"id": "x", "type": 5}', "x (signals.txt line 2): it has no type"),
        ('{"id": "x", "type": "log"}', "x: it has no data; the data must be a JSON object"),
        ('{"id": "x", "type": "log", "data": [1]}', "x: its data is a JSON array, not an object"),
        ("[" * 100_000, "signals.txt line 2: its data is not JSON: "),
        ("\x00\x01", "signals.txt line 2: its data is not JSON: "),
    ],
)
def test_a_line_that_is_no_signal_is_refused_with_its_place(path: Path, line: str, message: str) -> None:
    _append(path, LOG, line, LOG)
    before, signal, after = _channel(path).poll()
    assert _refusal(signal).startswith(message)
    assert before.id == after.id == "2"


def test_bytes_that_are_no_text_are_refused_and_do_no_harm(path: Path, store: StateStore) -> None:
    path.write_bytes(b"\xff\xfe\x80\n" + json.dumps(LOG).encode() + b"\r\n")
    signals = _channel(path).poll()
    assert _refusal(signals[0]).startswith("signals.txt line 1: its data is not JSON")
    assert [store.send("shop", s) for s in signals]


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(path: Path) -> None:
    _append(path, "x" * (9 * LARGEST), LOG, {**LOG, "data": {"message": "y" * LARGEST}})
    long, fine, large = _channel(path).poll()
    assert "the limit is 1,048,576" in _refusal(long)
    assert "the limit is 1,048,576" in _refusal(large)
    assert fine.id == "2"


def test_many_lines_come_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 10)
    channel = _channel(path)
    _append(path, *({**LOG, "id": str(i)} for i in range(25)))
    counts = []
    while signals := channel.poll():
        counts.append(len(signals))
        channel.acknowledge(signals)
    assert counts == [10, 10, 5]


def test_connectors_do_not_take_each_others_lines(path: Path) -> None:
    """A file belongs to one connector; what another one has taken is not read."""
    _append(path, LOG)
    one, other = _channel(path, "a.b"), _channel(path, "a.b.taken-1")
    assert len(one.poll()) == 1
    assert other.poll() == []
    _append(path, EXECUTE)
    assert len(other.poll()) == 1
    assert [s.id for s in _channel(path, "a.b").poll()] == ["2"]


def test_a_folder_that_is_not_there_yet_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "later" / "signals.txt"
    channel = _channel(path)
    assert channel.poll() == []
    path.parent.mkdir()
    _append(path, LOG)
    assert len(channel.poll()) == 1


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"signal\.file: .* is a folder"):
        _channel(tmp_path)


def test_a_taken_file_that_someone_deletes_is_forgotten(path: Path) -> None:
    channel = _channel(path)
    _append(path, LOG)
    signals = channel.poll()
    for taken in path.parent.glob("*.taken-*"):
        os.unlink(taken)
    channel.acknowledge(signals)
    assert channel.poll() == []
