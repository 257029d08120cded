"""Commands that send signals and show what became of them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.services.text.pause_gap_signal_texts import progress_text
from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector


@pytest.fixture
def captured_connector(shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> ShopConnector:
    shop_connector.order(1)
    capture(shop_connector)
    clean(capsys)
    return shop_connector


def run_rejected(*line: str) -> str:
    with pytest.raises(SystemExit) as ended:
        run(*line)
    return str(ended.value)


def notify(shop_connector: ShopConnector, *notifications: Notification) -> None:
    with shop_connector.store.acquire_lease("shop", "a test", wait_s=0) as lease:
        stored = shop_connector.store.load_offset("shop")
        shop_connector.store.advance_offset(lease, stored, stored.offset or Offset(), notifications)


def test_a_signal_is_recorded_with_who_sent_it(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("signal", "shop", "log", "--data", '{"message": "hello at {}"}', "--id", "greeting")
    assert re.fullmatch(r"Signal \d+ \(log, id greeting\) was sent to shop\.\n", capsys.readouterr().out)
    (signal,) = captured_connector.store.signals_of("shop")
    assert (signal.id, signal.type, signal.data, signal.channel) == (
        "greeting", "log", '{"message": "hello at {}"}', "airflow",
    )  # fmt: skip
    assert " on " in signal.sent_by


def test_data_can_be_in_a_file(captured_connector: ShopConnector, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"message": "ä"}', encoding="utf-8")
    run("signal", "shop", "log", "--data", f"@{tmp_path}/data.json")
    assert captured_connector.store.list_signals("shop", 0)[0].data == '{"message": "ä"}'
    assert "cannot be read" in run_rejected("signal", "shop", "log", "--data", f"@{tmp_path}/nothing.json")


def test_each_signal_has_an_id_of_its_own(captured_connector: ShopConnector) -> None:
    for _ in range(2):
        run("signal", "shop", "pause-snapshot")
    assert len({s.id for s in captured_connector.store.list_signals("shop", 0)}) == 2


def test_what_would_be_refused_is_not_sent(captured_connector: ShopConnector) -> None:
    for line, words in (
        (["signal", "shop", "log"], "it has no data"),
        (["signal", "shop", "execute-snapshot", "--data", "{"], "its data is not JSON"),
        (["snapshot", "shop", "shop.["], "not a regular expression"),
        (["snapshot", "shop", "a.b", "--filter", "id > 3"], "not of the form TABLE=SQL"),
        (["snapshot", "shop", "a.b", "--chunk-size", "0"], '"chunk-size" is not a whole number from 1'),
        (
            ["snapshot", "shop", "a.b", "--chunk-size", "9", "--type", "blocking"],
            "is valid only for incremental snapshots",
        ),
        (["snapshot", "shop", "a.b", "--type", "incremental", "--on-spark"], 'needs "type": "blocking"'),
        (["signal", "shpo", "pause-snapshot"], "No connector 'shpo' has run yet"),
    ):
        assert words in run_rejected(*line)
    assert captured_connector.store.list_signals("shop", 0) == []
    assert captured_connector.store.list_signals("shpo", 0) == []


def test_a_snapshot_is_asked_for_in_the_documented_form(captured_connector: ShopConnector) -> None:
    run(
        "snapshot", "shop", "inventory.orders", "inventory.l.*", "--type", "blocking", "--filter",
        "inventory.orders=SELECT * FROM orders WHERE note = 'x'", "--surrogate-key", "id",
    )  # fmt: skip
    run("snapshot", "shop", "inventory.orders", "--replace", "--chunk-size", "500")
    run("snapshot", "shop", "inventory.orders", "--on-spark")
    first, second, third = captured_connector.store.list_signals("shop", 0)
    assert (first.type, json.loads(first.data or "")) == (
        "execute-snapshot",
        {
            "type": "blocking",
            "data-collections": ["inventory.orders", "inventory.l.*"],
            "additional-conditions": [
                {"data-collection": "inventory.orders", "filter": "SELECT * FROM orders WHERE note = 'x'"}
            ],
            "surrogate-key": "id",
        },
    )
    assert json.loads(second.data or "") == {
        "type": "incremental", "data-collections": ["inventory.orders"], "replace": True, "chunk-size": 500,
    }  # fmt: skip
    assert json.loads(third.data or "") == {
        "type": "blocking", "data-collections": ["inventory.orders"], "engine": "spark",
    }  # fmt: skip


def _play_steps(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[int], None]) -> None:
    """Play a run: it does a step with the signal between any two polls of the reader that waits for it."""
    left = iter(steps)

    def pause(seconds: float) -> None:
        next(left)(shop_connector.store.signals_of("shop", 1)[0].number)

    monkeypatch.setattr("airflow_provider_cdc.cli.signals.time", SimpleNamespace(sleep=pause))


def test_waiting_shows_how_it_comes_on_and_ends_with_its_state(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = captured_connector.store
    progress = {"tables": 2, "left": 1, "table": "inventory.orders", "rows": 120000, "rows_per_s": 81000}
    _play_steps(
        captured_connector,
        monkeypatch,
        lambda n: store.set_signal_state("shop", n, SignalState.RUNNING, progress=progress),
        lambda n: store.set_signal_state("shop", n, SignalState.DONE, "120,001 rows", {"tables": 2, "left": 0}),
    )
    run("snapshot", "shop", "inventory.*", "--wait")
    sent, received, running, done = capsys.readouterr().out.splitlines()
    assert sent.startswith("Signal ")
    assert received == "received (no capture run is active; the next run continues)"
    assert "120,000 rows" in running
    assert running.startswith(f"running: {progress_text(progress)} (")
    assert done == f"done: 120,001 rows: {progress_text({'tables': 2, 'left': 0})}"


@pytest.mark.parametrize("state", [SignalState.REFUSED, SignalState.FAILED])
def test_waiting_for_what_is_not_done_ends_with_1(
    captured_connector: ShopConnector,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state: SignalState,
) -> None:
    _play_steps(
        captured_connector,
        monkeypatch,
        lambda n: captured_connector.store.set_signal_state("shop", n, state, "there is no table x"),
    )
    assert run_rejected("snapshot", "shop", "x", "--wait") == "1"
    assert capsys.readouterr().out.splitlines()[-1] == f"{state.value}: there is no table x"


def test_waiting_says_why_nothing_moves(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pause", "shop", "--reason", "upgrade")
    clean(capsys)
    _play_steps(
        captured_connector,
        monkeypatch,
        lambda n: captured_connector.store.set_signal_state("shop", n, SignalState.DONE),
    )
    run("signal", "shop", "resume-snapshot", "--wait")
    assert "the connector is paused" in capsys.readouterr().out.splitlines()[1]


def test_signals_are_listed_with_their_states(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("signals", "shop")
    assert capsys.readouterr().out == "No signal was sent to shop.\n"
    first = captured_connector.store.send("shop", SentSignal("one", "log", '{"message": 1}'))
    captured_connector.store.send("shop", SentSignal("two", "pause-snapshot"))
    captured_connector.store.set_signal_state("shop", first, SignalState.REFUSED, "no text")
    run("signals", "shop", "-o", "json")
    newest, oldest = json.loads(capsys.readouterr().out)
    assert (newest["id"], newest["state"], oldest["state"], oldest["message"]) == (
        "two",
        "received",
        "refused",
        "no text",
    )
    run("signals", "shop", "-o", "json", "--number", str(first))
    assert [s["id"] for s in json.loads(capsys.readouterr().out)] == ["one"]
    run("signals", "shop")
    assert "refused" in capsys.readouterr().out


def test_notifications_are_printed_oldest_first_and_followed(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.store.register_connector(ConnectorRegistration("shop", "memory", "x"))
    run("notifications", "shop")
    assert capsys.readouterr().out == "Connector shop has sent no notification yet.\n"
    data = {"connector_name": "shop", "scanned_collection": "inventory.orders"}
    notify(shop_connector, Notification(aggregate_type="Initial Snapshot", type="STARTED"))
    notify(
        shop_connector,
        Notification(aggregate_type="Initial Snapshot", type="IN_PROGRESS", additional_data=data, ts_ms=0),
    )
    run("notifications", "shop")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("  Initial Snapshot: STARTED")
    assert second == "1970-01-01T00:00:00+00:00  Initial Snapshot: IN_PROGRESS (scanned_collection=inventory.orders)"

    shown: list[str] = []

    class Enough(Exception):
        """The reader has seen enough."""

    def sleep(seconds: float) -> None:
        if len(shown) >= 2:
            raise Enough
        time.sleep(0.05)

    monkeypatch.setattr("airflow_provider_cdc.cli.signals.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("airflow_provider_cdc.cli.signals.print", lambda line, **_: shown.append(line), raising=False)

    def follow() -> None:
        with pytest.raises(Enough):
            run("notifications", "shop", "--follow", "--limit", "1", "-o", "json")

    following = threading.Thread(target=follow)
    following.start()
    while not shown and following.is_alive():
        time.sleep(0.05)
    notify(shop_connector, Notification(aggregate_type="Initial Snapshot", type="COMPLETED"))
    following.join(30)
    assert [json.loads(line)["type"] for line in shown] == ["IN_PROGRESS", "COMPLETED"]
