"""Commands that steer a connector. What they change is shown by what the next capture does, or by what is left."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.running_job_files import JobProgressBoard
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressReporter
from tests.cli.conftest import capture, clean, run
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.patience import LONGEST_S, wait_until


@pytest.fixture
def captured_connector(shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> ShopConnector:
    """A shop whose three orders are captured: entry 4, seq 4, batch 3."""
    shop_connector.order(1)
    capture(shop_connector)
    for key in (2, 3):
        shop_connector.order(key)
        capture(shop_connector)
    clean(capsys)
    return shop_connector


def keys(shop_connector: ShopConnector) -> list[Any]:
    """Keys of the events in the change log, in their order."""
    import pyarrow.parquet as pq

    from airflow_provider_cdc.changelog.files.change_log import ChangeLog

    log = ChangeLog(shop_connector.definition.changelog)
    files = [f for m in log.read_manifests("shop") for f in m.files]
    return [e["key"] and e["key"]["id"] for f in files for e in pq.read_table(log.open_file("shop", f)).to_pylist()]


def run_rejected(*line: str) -> str:
    with pytest.raises(SystemExit) as ended:
        run(*line)
    return str(ended.value)


# status, pause, resume, stop, restart


def test_status_says_in_words_how_a_connector_stands(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    captured_connector.store.send("shop", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    run("status", "shop")
    output = capsys.readouterr().out
    assert output.startswith("shop (memory): idle")
    assert "Position:   entry 4; batch 3, seq 4; offset moved " in output
    assert "Signal 1: execute-snapshot (id ad-hoc), received" in output
    assert "Tables:     1: inventory.orders" in output
    run("status", "shop", "-o", "json")
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["position"], document["signals"][0]["number"]) == (
        "unassigned",
        {"entry": 4},
        1,
    )
    assert document["tables"] == ["inventory.orders"]


def test_status_of_a_connector_whose_connection_is_gone_shows_the_tables_that_are_recorded(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SHOP")
    run("status", "shop")
    output = capsys.readouterr().out
    assert output.startswith("shop (memory): idle")
    assert "Tables:     1: inventory.orders" in output


def test_status_shows_how_far_targets_are_and_what_the_last_apply_did_to_their_tables(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {
        "topic": "shop.inventory.orders", "location": "/lake/orders", "first_batch": 1, "last_batch": 2, "rows": {"r": 1, "c": 1},
        "position": {}, "seconds": 1.25, "ways": {"commit": 1}, "rows_written": 2, "rows_deleted": 0, "bytes_written": 975,
        "files_written": 1, "freshness_s": 2.5,
    }  # fmt: skip
    reports = ApplyReports(Storage(captured_connector.definition.changelog), "shop")
    reports.write({**reports.register_target("iceberg", "/lake/{table}"), "last_batch": 2, "tables": [table]})
    run("status", "shop")
    output = capsys.readouterr().out
    assert "  Target iceberg at /lake/{table}: applied up to batch 2\n" in output
    assert (
        "    shop.inventory.orders: 2 events, 2 rows written, 975 bytes in 1 file by commit, 1.2 s, freshness 2.5 s\n"
        in output
    )
    run("status", "shop", "-o", "json")
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert (target["last_batch"], target["tables"]["shop.inventory.orders"]["bytes_written"]) == (2, 975)


def test_status_shows_what_is_at_work(captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> None:
    board = JobProgressBoard(Storage(captured_connector.definition.changelog), "shop")
    with ProgressReporter("Apply", "tables", where="delta at /lake", board=board) as work:
        work.report_progress(12, 200, now="at work: shop.inventory.orders (batch 7 of 523)")
        run("status", "shop")
        output = capsys.readouterr().out
        assert re.search(
            r"^  At work:    Apply: 12 of 200 tables \(6 %\).*; at work: shop.inventory.orders \(batch 7 of 523\) \[delta at /lake\]$",
            output,
            re.MULTILINE,
        )
        run("status", "shop", "-o", "json")
        (found,) = json.loads(capsys.readouterr().out)["work"]
        assert (found["name"], found["part"]) == ("Apply", 0.06)
    run("status", "shop")
    assert "At work" not in capsys.readouterr().out


def test_status_says_so_if_the_change_log_cannot_be_read(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(captured_connector.definition.changelog) / "shop" / "applied" / "delta-0.json").mkdir(parents=True)
    run("status", "shop")
    output = capsys.readouterr().out
    assert output.startswith("shop (memory): idle")
    assert "Targets:    the change log cannot be read from here" in output


def test_status_of_a_failed_connector_shows_the_error_and_ends_with_1(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    captured_connector.store.record_run_end("shop", "The log is gone.\n  Repair: look")
    assert run_rejected("status", "shop") == "1"
    output = capsys.readouterr().out
    assert output.startswith("shop (memory): failed for ")
    assert "ago: The log is gone.\n                Repair: look\n" in output
    run("connectors")
    assert "failed" in capsys.readouterr().out


def test_status_shows_the_metrics_of_the_last_run_also_of_one_that_failed(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (None, "The log is gone."):
        metrics = captured_connector.store.find_connector("shop").metrics
        captured_connector.store.record_run_end("shop", error, metrics)
        with pytest.raises(SystemExit) if error else contextlib.nullcontext():
            run("status", "shop")
        output = capsys.readouterr().out
        assert "  Last run, streaming:\n" in output
        assert re.search(r"^    TotalNumberOfCreateEventsSeen +1$", output, re.MULTILINE)
        assert re.search(r"^    CapturedTables +inventory\.orders$", output, re.MULTILINE)
        with pytest.raises(SystemExit) if error else contextlib.nullcontext():
            run("status", "shop", "-o", "json")
        assert json.loads(capsys.readouterr().out)["metrics"] == metrics


def test_pause_and_stop_hold_until_resume(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, state in (("pause", "paused"), ("stop", "stopped")):
        run(command, "shop", "--reason", "upgrade")
        assert "To resume it: airflow cdc resume shop" in capsys.readouterr().out
        control = captured_connector.store.load_control("shop")
        assert (control.desired_state, control.reason) == (state, "upgrade")
        assert " on " in control.by
        run("status", "shop")
        assert f"shop (memory): {state} for " in capsys.readouterr().out
        run("resume", "shop")
        assert captured_connector.store.load_control("shop").desired_state == "running"
        clean(capsys)


def test_pause_waits_for_the_run_that_is_alive(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = threading.Event()
    with captured_connector.store.acquire_lease("shop", "worker-1", wait_s=0):
        waiting = threading.Thread(target=lambda: (run("pause", "shop", "--wait"), ended.set()))
        waiting.start()
        wait_until(
            lambda: captured_connector.store.load_control("shop").desired_state == "paused", "the pause is asked for"
        )
        time.sleep(1.5)
        assert not ended.is_set()
    waiting.join(LONGEST_S)
    assert ended.is_set()
    output = capsys.readouterr().out
    assert "The run worker-1 ends at the next transaction." in output
    assert "Connector shop: paused" in output


def test_restart_counts_and_reports_that_a_paused_connector_stays_so(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("restart", "shop")
    assert capsys.readouterr().out == "No run is active, so no run was restarted.\n"
    run("pause", "shop")
    with captured_connector.store.acquire_lease("shop", "worker-1", wait_s=0):
        run("restart", "shop")
    output = capsys.readouterr().out
    assert "The run worker-1 ends at the next transaction." in output
    assert "The connector stays paused: airflow cdc resume shop" in output
    assert captured_connector.store.load_control("shop").restarts == 2


def test_an_unknown_connector_is_not_steered(captured_connector: ShopConnector) -> None:
    for line in (
        ["pause"],
        ["status"],
        ["delete", "--yes-delete", "shpo"],
        ["offset", "reset", "--confirm", "shpo"],
        ["gap"],
    ):
        assert "No connector 'shpo' has run yet." in run_rejected(*line, "shpo")
    assert captured_connector.store.load_control("shpo").changed_at is None
    assert captured_connector.store.load_offset("shop").version > 0


# the offset


def test_the_offset_is_shown_with_its_version_and_history(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("offset", "show", "shop")
    shown = json.loads(capsys.readouterr().out)
    assert shown["offset"]["position"] == {"entry": 4}
    run("offset", "history", "shop", "-o", "json", "--limit", "2")
    newest, before = json.loads(capsys.readouterr().out)
    assert newest["version"] == shown["version"] == before["version"] + 1
    run("offset", "history", "shop")
    assert "entry 4" in capsys.readouterr().out


CHANGES = [
    (
        ["offset", "set", "--to", '{"entry": 2}', "shop"],
        "REPEATED: the changes committed after entry 2, up to entry 4",
    ),
    (["offset", "reset", "shop"], "The next run takes a snapshot of every captured table again"),
    (["offset", "restore", "1", "shop"], "from entry 4 to entry 2 (repeat)"),
]


@pytest.mark.parametrize(("line", "words"), CHANGES, ids=["set", "reset", "restore"])
@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--confirm", "shop", "--dry-run"]], ids=" ".join)
def test_without_a_confirmation_a_change_is_only_shown(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str], line: list[str], words: str, more: list[str]
) -> None:
    before = captured_connector.store.load_offset("shop")
    run(*line, *more)
    output = capsys.readouterr().out
    assert words in output
    assert output.endswith("Nothing was changed. To make the change, add --confirm shop\n")
    assert "Nothing was changed." in run_rejected(*line, "--confirm", "yes")
    assert captured_connector.store.load_offset("shop") == before


def test_an_offset_that_is_set_repeats_what_was_reported(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("offset", "set", "--to", '{"entry": 2}', "shop", "--confirm", "shop")
    assert "the previous offset stays in the history" in capsys.readouterr().out
    assert "set to entry 2, by " in captured_connector.store.offset_history("shop", 1)[0].reason
    capture(captured_connector)
    assert keys(captured_connector) == [1, 2, 3, 2, 3]


def test_an_offset_that_is_reset_reads_all_again_and_can_be_restored(captured_connector: ShopConnector) -> None:
    version = captured_connector.store.load_offset("shop").version
    run("offset", "reset", "shop", "--confirm", "shop")
    run("offset", "restore", str(version), "shop", "--confirm", "shop")
    capture(captured_connector)
    assert keys(captured_connector) == [1, 2, 3]
    run("offset", "reset", "shop", "--confirm", "shop")
    capture(captured_connector)
    assert keys(captured_connector) == [1, 2, 3, None, 1, 2, 3]


def test_places_that_cannot_be_used_are_refused(captured_connector: ShopConnector) -> None:
    before = captured_connector.store.load_offset("shop")
    for to, words in (
        ("here", "--to is not JSON"), ("[1]", "--to is not a JSON object"), ("{}", "--to is not a JSON object"),
        ('{"pos": 3}', "is not a position"), ('{"entry": 99}', "The change is not possible; nothing was changed."),
    ):  # fmt: skip
        assert words in run_rejected("offset", "set", "--to", to, "shop", "--confirm", "shop")
    assert "no offset of version 77" in run_rejected("offset", "restore", "77", "shop", "--confirm", "shop")
    assert captured_connector.store.load_offset("shop") == before


def test_while_a_run_is_alive_the_offset_stays(captured_connector: ShopConnector) -> None:
    before = captured_connector.store.load_offset("shop")
    with captured_connector.store.acquire_lease("shop", "worker-1", wait_s=0):
        error_text = run_rejected("offset", "reset", "shop", "--confirm", "shop")
    assert "being captured by worker-1" in error_text
    assert "airflow cdc pause shop" in error_text
    assert captured_connector.store.load_offset("shop") == before


# gaps


@pytest.fixture
def connector_with_gap(captured_connector: ShopConnector) -> ShopConnector:
    """Order 4 is lost, order 5 is not."""
    captured_connector.order(4)
    captured_connector.order(5)
    captured_connector.database.purge_log(5)
    return captured_connector


def test_no_gap_ends_with_0(captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--repair", "skip", "--confirm", "shop"]):
        run("gap", "shop", *more)
        assert capsys.readouterr().out == "No gap: the log contains the position of shop.\n"
    run("gap", "shop", "-o", "json")
    assert json.loads(capsys.readouterr().out) == {"gap": None}


def test_a_gap_is_reported_exactly_with_the_ways_out_and_ends_with_1(
    connector_with_gap: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_rejected("gap", "shop") == "1"
    output = capsys.readouterr().out
    assert output.startswith("Lost: all changes committed after entry 4 (")
    assert " and before entry 5, the oldest position that can be read.\n" in output
    for how in ("snapshot", "incremental", "skip"):
        assert f"airflow cdc gap shop --repair {how}" in output
    assert run_rejected("gap", "shop", "-o", "json") == "1"
    assert json.loads(capsys.readouterr().out)["gap"]["oldest"] == {"entry": 5}


@pytest.mark.parametrize("how", ["snapshot", "incremental", "skip"])
def test_a_gap_is_not_repaired_without_a_confirmation(
    connector_with_gap: ShopConnector, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    before = connector_with_gap.store.load_offset("shop")
    run("gap", "shop", "--repair", how)
    assert capsys.readouterr().out.endswith("Nothing was changed. To make the change, add --confirm shop\n")
    assert "Nothing was changed." in run_rejected("gap", "shop", "--repair", how, "--confirm", "no")
    assert connector_with_gap.store.load_offset("shop") == before
    assert connector_with_gap.store.list_signals("shop", 0) == []


def test_a_gap_is_repaired_as_asked(connector_with_gap: ShopConnector, capsys: pytest.CaptureFixture[str]) -> None:
    run("gap", "shop", "--repair", "snapshot", "--confirm", "shop")
    assert capsys.readouterr().out.endswith("Repaired by snapshot.\n")
    capture(connector_with_gap)
    assert keys(connector_with_gap) == [1, 2, 3, None, 1, 2, 3, 4, 5]


def test_a_gap_that_is_skipped_is_lost(connector_with_gap: ShopConnector, capsys: pytest.CaptureFixture[str]) -> None:
    run("gap", "shop", "--repair", "skip", "--confirm", "shop")
    assert "LOST FOR GOOD" in capsys.readouterr().out
    capture(connector_with_gap)
    assert keys(connector_with_gap) == [1, 2, 3, 5]


@pytest.fixture
def chunkable_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table can be read in chunks."""
    monkeypatch.setitem(airflow_connector.SHOP, "id", "int64!")


def test_a_table_whose_key_may_be_null_is_not_repaired_beside_the_stream(connector_with_gap: ShopConnector) -> None:
    assert "id is nullable" in run_rejected("gap", "shop", "--repair", "incremental", "--confirm", "shop")
    assert connector_with_gap.store.list_signals("shop", 0) == []


def test_a_gap_is_repaired_beside_the_stream(
    chunkable_table: None, connector_with_gap: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("gap", "shop", "--repair", "incremental", "--confirm", "shop")
    (signal,) = connector_with_gap.store.list_signals("shop", 0)
    assert f"Signal {signal.number} requests the snapshot." in capsys.readouterr().out
    offset = connector_with_gap.store.load_offset("shop").offset
    assert offset is not None
    assert offset.position == {"entry": 5}


# deleting


def test_nothing_is_deleted_without_the_connectors_name(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--with-changelog"], ["--yes-delete", "yes"], ["--yes-delete", "yes", "--with-changelog"]):
        assert "Nothing was" in run_rejected("delete", "shop", *more)
    output = capsys.readouterr().out
    assert "3 batches" in output
    assert f"Change log: {captured_connector.definition.changelog}" in output
    assert captured_connector.store.find_connector("shop")
    assert keys(captured_connector) == [1, 2, 3]


def test_a_connector_is_deleted_with_its_change_log_only_if_that_is_said(
    captured_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("delete", "shop", "--yes-delete", "shop")
    assert "Connector shop was deleted; its change log stays." in capsys.readouterr().out
    assert captured_connector.store.list_connectors() == []
    assert keys(captured_connector) == [1, 2, 3]
    capture(captured_connector)
    run("delete", "shop", "--yes-delete", "shop", "--with-changelog")
    assert keys(captured_connector) == []


def test_a_connector_that_is_alive_is_not_deleted(captured_connector: ShopConnector) -> None:
    with captured_connector.store.acquire_lease("shop", "worker-1", wait_s=0):
        assert "worker-1" in run_rejected("delete", "shop", "--yes-delete", "shop", "--with-changelog")
    assert captured_connector.store.find_connector("shop")
    assert keys(captured_connector) == [1, 2, 3]
