"""``airflow cdc maintain``, ``targets`` and ``forget-target``: what is removed of a change log, who needs it, and who does not any more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.changelog.reports.table_maintenance_report import MaintenanceReports
from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.airflow.airflow_versions import cdc_command

HERE, THERE = ("delta", "/here/{table}"), ("iceberg", "lake.{database}.{table}")
SUBMIT = """#!/bin/sh
echo "$@" >> {folder}/calls
exit 1
"""


@pytest.fixture
def change_log(shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> ChangeLog:
    """Four batches, of which nothing is kept that all targets have."""
    shop_connector.definition = replace(
        shop_connector.definition, properties={**shop_connector.definition.properties, "changelog.retention.ms": 0}
    )
    for key in range(4):
        shop_connector.order(key)
        capture(shop_connector)
    clean(capsys)
    return ChangeLog(shop_connector.definition.changelog)


def _record_applied(log: ChangeLog, last: int, of: tuple[str, str] = HERE, **more: Any) -> None:
    reports = ApplyReports(log.storage, "shop")
    reports.write({**reports.register_target(*of), "last_batch": last, **more})


def test_the_log_is_maintained_alone_or_only_planned(change_log: ChangeLog, capsys: pytest.CaptureFixture[str]) -> None:
    _record_applied(change_log, 3)
    run("maintain", "shop", "--dry-run")
    output = capsys.readouterr().out
    assert (
        output
        == "Batches 1 to 3 are removed, because all targets had applied them for longer than changelog.retention.ms=0; 4 to 4 stay.\n"
    )
    assert change_log.list_batches("shop") == [1, 2, 3, 4]
    run("maintain", "shop", "--only", "retention", "-o", "json")
    found = json.loads(capsys.readouterr().out)
    assert found["targets"] == []
    assert found["state"]["removed"]["offset_history"] == 0
    assert {name: found["changelog"][name] for name in ("problem", "first", "last", "keep", "removed", "applied")} == {
        "problem": "", "first": 1, "last": 4, "keep": 4, "removed": 3, "applied": 3,
    }  # fmt: skip
    assert change_log.list_batches("shop") == [4]


def test_on_a_full_disk_applied_batches_go_at_once(
    change_log: ChangeLog, capsys: pytest.CaptureFixture[str], shop_connector: ShopConnector
) -> None:
    shop_connector.definition = replace(
        shop_connector.definition,
        properties={**shop_connector.definition.properties, "changelog.retention.ms": 604_800_000},
    )
    capture(shop_connector)  # the command uses the definition of the last run
    _record_applied(change_log, 3)
    clean(capsys)
    run("maintain", "shop", "--only", "retention")
    assert "Batches 1 to 4 stay" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"ConfigError: --now removes batches(.|\n)*Repair: add --only retention"):
        run("maintain", "shop", "--now")
    run("maintain", "shop", "--only", "retention", "--now", "--dry-run")
    assert capsys.readouterr().out.startswith("Batches 1 to 3 are removed, because all targets had applied them and `")
    assert change_log.list_batches("shop") == [1, 2, 3, 4]
    run("maintain", "shop", "--only", "retention", "--now")
    assert change_log.list_batches("shop") == [4]


def test_without_a_target_that_can_be_maintained_the_log_may_be(
    change_log: ChangeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    ApplyReports(change_log.storage, "shop").register_target(*HERE)
    with pytest.raises(SystemExit, match="No changes of shop were applied"):
        run("maintain", "shop")
    run("maintain", "shop", "--only", "retention")
    output = capsys.readouterr().out
    assert output.startswith("Batches 1 to 4 stay: all targets have applied the batches up to 0")


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_fails_of_log_or_tables_keeps_nothing_of_the_other_from_being_done_and_reported(
    shop_connector: ShopConnector,
    change_log: ChangeLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
) -> None:
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SUBMIT.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr("airflow_provider_cdc.cli.maintain.uuid", SimpleNamespace(uuid4=lambda: "known"))
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    steps = {"compact": {"changed": True, "said": "34 files became 1"}}
    tables = [{"topic": "shop.a", "location": "/here/a", "steps": steps, "problem": "vacuum: the disk is full"}]
    report = {"run": "command/known", "target": HERE[0], "location": HERE[1], "tables": tables, "seconds": 1.0}
    MaintenanceReports(change_log.storage, "shop").write({"connector": "shop", **report})
    _record_applied(change_log, 4)
    _record_applied(change_log, 3, THERE)
    with pytest.raises(SystemExit) as ended:
        run("maintain", "shop", "-o", form)
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    assert change_log.list_batches("shop") == [4]
    error_text = str(ended.value)
    assert "delta at /here/{table}: 1 tables of shop could not be maintained" in error_text
    assert "vacuum: the disk is full" in error_text
    assert "iceberg at lake.{database}.{table}: Cannot execute" in error_text
    out = capsys.readouterr().out
    if form == "table":
        assert "Batches 1 to 3 are removed" in out
        assert "compact: 34 files became 1" in out
        return
    found = json.loads(out)
    assert found["changelog"]["removed"] == 3
    assert [(one["target"], len(one["tables"]), bool(one["problem"])) for one in found["targets"]] == [
        ("delta", 1, True), ("iceberg", 0, True),
    ]  # fmt: skip
    clean(capsys)
    monkeypatch.setattr(ChangeLog, "find_first_batch", _refuse_access)
    with pytest.raises(
        SystemExit, match=r"Old batches of shop could not be removed: OSError: the folder is not readable\ndelta at"
    ):
        run("maintain", "shop", "-o", form)
    assert len((tmp_path / "calls").read_text().splitlines()) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["changelog"] == {
        "problem": "Old batches of shop could not be removed: OSError: the folder is not readable"
    }
    with pytest.raises(SystemExit) as ended:
        run("maintain", "shop", "--only", "tables", "-o", form)
    assert "Old batches" not in str(ended.value)
    found = json.loads(capsys.readouterr().out)
    assert found["changelog"] is found["state"] is None


def _refuse_access(*_: Any) -> None:
    raise OSError("the folder is not readable")


def test_targets_are_listed_with_what_they_hold_back(change_log: ChangeLog, capsys: pytest.CaptureFixture[str]) -> None:
    run("targets", "shop")
    assert "No target has applied changes of shop: no batch of its change log is removed." in capsys.readouterr().out
    _record_applied(change_log, 4)
    _record_applied(change_log, 4, THERE, failed={"shop.t": "no room"}, lagging={"shop.t": 2}, seconds=1)
    run("targets", "shop", "-o", "json")
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["last"]) == (1, 4)
    behind, whole = found["targets"]
    assert {name: behind[name] for name in ("target", "location", "after", "tables", "silent")} == {
        "target": THERE[0], "location": THERE[1], "after": 2, "tables": ["shop.t"], "silent": False,
    }  # fmt: skip
    assert behind["captured_at"] == change_log.find_manifest("shop", 3).created_at[:19] + "+00:00"  # type: ignore[union-attr]
    assert (whole["after"], whole["captured_at"]) == (4, "")
    run("targets", "shop")
    output = capsys.readouterr().out
    assert "shop.t" in output
    assert "The change log has batches 1 to 4." in output


def test_a_target_is_forgotten_when_its_name_is_confirmed(
    change_log: ChangeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    _record_applied(change_log, 4)
    _record_applied(change_log, 1, THERE)
    line = ("forget-target", "shop", "--target", THERE[0], "--location", THERE[1])
    run("maintain", "shop", "--only", "retention")
    assert change_log.list_batches("shop") == [2, 3, 4]
    run(*line)
    output = capsys.readouterr().out
    assert "iceberg at lake.{database}.{table} has applied batches up to 1." in output
    assert "Nothing was changed. To forget the target, add --confirm shop" in output
    run(*line, "--dry-run", "--confirm", "shop")
    with pytest.raises(SystemExit, match="--confirm is 'shoes', and the connector is shop"):
        run(*line, "--confirm", "shoes")
    with pytest.raises(
        SystemExit, match=r"to delta at /nowhere\.\n(.|\n)*iceberg at lake(.|\n)*" + cdc_command("targets shop")
    ):
        run("forget-target", "shop", "--target", "delta", "--location", "/nowhere", "--confirm", "shop")
    with (
        ApplyTurns(change_log.storage, "shop", *THERE).open_turn("somebody"),
        pytest.raises(SystemExit, match=r"An active apply to iceberg at"),
    ):
        run(*line, "--confirm", "shop")
    assert len(ApplyReports(change_log.storage, "shop").list_reports()) == 2
    run(*line, "--confirm", "shop")
    assert [report["target"] for report in ApplyReports(change_log.storage, "shop").list_reports()] == ["delta"]
    run("maintain", "shop", "--only", "retention")
    assert change_log.list_batches("shop") == [4]


def test_events_begin_with_the_first_batch_that_is_kept(
    change_log: ChangeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    _record_applied(change_log, 3)
    run("maintain", "shop", "--only", "retention")
    capsys.readouterr()
    run("events", "shop")
    assert [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")] == [
        {"id": 3}
    ]
    with pytest.raises(SystemExit, match="Batches 2 to 3 of connector shop were removed"):
        run("events", "shop", "--from-batch", "2")
