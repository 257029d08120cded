"""The commands, as Airflow calls them: parsed arguments in, text out. With a real Airflow: ``tests/system``."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import Shop, connect


def records(text: str) -> list[dict[str, Any]]:
    """The records among the lines: captures of this process log to the same place. A process of its own prints only records."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_connectors_that_never_ran_are_not_invented(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    run("connectors")
    assert capsys.readouterr().out == "No connector has run yet.\n"
    with pytest.raises(SystemExit, match="No connector 'shop' has run yet"):
        run("batches", "shop")


def test_connectors_and_offsets_show_how_a_connector_stands(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.order(1)
    capture(shop)
    clean(capsys)
    run("connectors", "-o", "json")
    (only,) = json.loads(capsys.readouterr().out)
    assert {k: only[k] for k in ("connector", "source", "position", "seq", "batch", "captured_by")} == {
        "connector": "shop", "source": "memory", "position": {"entry": 2}, "seq": 2, "batch": 1, "captured_by": None,
    }  # fmt: skip
    run("connectors")
    table = capsys.readouterr().out
    assert "shop" in table
    assert "0 s ago" in table or "1 s ago" in table
    run("offsets", "shop", "-o", "json")
    assert (
        json.loads(capsys.readouterr().out)
        == [{"connector": "shop", "position": {"entry": 2}, "seq": 2, "batch": 1, "tables_filter": ""}]
        or "tables_filter" not in only
    )
    run("offsets")
    assert "entry 2" in capsys.readouterr().out


def test_only_targets_that_were_applied_to_are_maintained(shop: Shop) -> None:
    with pytest.raises(SystemExit, match="No connector 'shop' has run yet"):
        run("maintain", "shop")
    capture(shop)
    with pytest.raises(SystemExit, match="targets of its applies: none"):
        run("maintain", "shop")
    reports = ApplyReports(Storage(shop.definition.changelog), "shop")
    reports.write({"target": "delta", "location": "/lake/{table}", "last_batch": 1, "tables": [], "failed": {}})
    with pytest.raises(SystemExit, match=r"delta at /lake/\{table\}"):
        run("maintain", "shop", "--location", "/other/{table}")
    with pytest.raises(SystemExit, match="1 hour or longer"):
        run("maintain", "shop", "--keep-hours", "0.1")


@pytest.fixture
def nothing_of_operators_is_loaded() -> Iterator[None]:
    """Afterwards the modules are there that other tests know, for those who ask the interpreter and for those who ask the package."""
    package = importlib.import_module("airflow_provider_cdc.operators")

    def forget() -> dict[str, Any]:
        names = [name for name in sys.modules if name.startswith(f"{package.__name__}.")]
        found = {name: sys.modules.pop(name) for name in names}
        for name in found:
            vars(package).pop(name.rpartition(".")[2], None)
        return found

    before = forget()
    yield
    forget()
    sys.modules.update(before)
    for name, module in before.items():
        setattr(package, name.rpartition(".")[2], module)


@pytest.mark.usefixtures("nothing_of_operators_is_loaded")
def test_a_command_that_needs_spark_says_what_to_install(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(shop)
    ApplyReports(Storage(shop.definition.changelog), "shop").write(
        {"target": "delta", "location": "/lake/{table}", "last_batch": 1, "tables": [], "failed": {}}
    )
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark.operators.spark_submit", None)
    for line in (("maintain", "shop"), ("verify", "shop"), ("rebuild", "shop", "inventory.orders")):
        with pytest.raises(SystemExit, match=r"not installed\.\n  Repair: pip install 'airflow-provider-cdc\[spark\]'"):
            run(*line)


def test_what_spark_needs_may_be_said_as_to_the_apply(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop)
    ApplyReports(Storage(shop.definition.changelog), "shop").write(
        {"target": "iceberg", "location": "lake.{database}.{table}", "last_batch": 1, "tables": [], "failed": {}}
    )
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/call\nexit 2\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    given = ("--packages", "a:iceberg:1,b:s3:2", "--conf", "spark.sql.catalog.lake.type=rest", "--conf", "spark.x=a=b")
    for line in (("maintain", "shop"), ("verify", "shop"), ("rebuild", "shop", "inventory.orders")):
        with pytest.raises(SystemExit):
            run(*line, *given)
        called = (tmp_path / "call").read_text().splitlines()
        assert called[called.index("--packages") + 1] == "a:iceberg:1,b:s3:2"
        assert {"spark.sql.catalog.lake.type=rest", "spark.x=a=b"} <= set(called)
        (tmp_path / "call").unlink()
    with pytest.raises(SystemExit, match=r"--conf spark\.x has no value"):
        run("maintain", "shop", "--conf", "spark.x")


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_a_time_to_wait_that_makes_no_sense_is_refused(
    shop: Shop, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit):
        run("verify", "shop", f"--timeout={seconds}")
    assert "is not a number of seconds" in capsys.readouterr().err


def test_one_target_is_compared_or_built_again_and_several_are_named(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(shop)
    reports = ApplyReports(Storage(shop.definition.changelog), "shop")
    for table in ("a", "b"):
        reports.write(
            {"target": "delta", "location": f"/{table}/{{table}}", "last_batch": 1, "tables": [], "failed": {}}
        )
    clean(capsys)
    with pytest.raises(SystemExit) as ended:
        run("verify", "shop")
    assert ended.value.code == 2
    assert "delta at /a/{table}; delta at /b/{table}" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="select one with --location and --target"):
        run("rebuild", "shop", "inventory.orders")
    with pytest.raises(SystemExit) as ended:
        run("verify", "shop", "--location", "/a/{table}", "--tables", r"inventory\.none")
    assert ended.value.code == 2
    assert "captured tables: inventory.orders" in capsys.readouterr().err


def test_batches_are_listed_newest_first(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    capture(shop)
    for key in (1, 2):
        shop.order(key)
        capture(shop)
    clean(capsys)
    run("batches", "shop", "-o", "json", "--limit", "2")
    assert [(b["batch"], b["events"]) for b in json.loads(capsys.readouterr().out)] == [(3, 1), (2, 1)]
    run("batches", "shop")
    assert "entry 3" in capsys.readouterr().out


def test_events_are_debezium_json_with_key_and_tombstone(shop: Shop, capfdbinary: Any) -> None:
    capture(shop)
    shop.order(1, "first")
    with shop.database.transaction() as t:
        t.delete("inventory.orders", {"id": 1})
    capture(shop)
    run("events", "shop", "--topic", "shop.inventory.orders")
    created, deleted, tombstone = records(capfdbinary.readouterr().out.decode())
    assert created["key"] == {"id": 1}
    assert created["value"]["op"] == "c"
    assert created["value"]["after"] == {"id": 1, "note": "first"}
    assert (deleted["value"]["op"], deleted["value"]["after"]) == ("d", None)
    assert tombstone == {"topic": "shop.inventory.orders", "key": {"id": 1}, "value": None}


def test_events_begin_and_end_where_they_are_told(shop: Shop, capfdbinary: Any) -> None:
    capture(shop)
    for key in range(1, 5):
        shop.order(key)
        capture(shop)
    run("events", "shop", "--from-batch", "3", "--limit", "2")
    assert [r["key"]["id"] for r in records(capfdbinary.readouterr().out.decode())] == [2, 3]


def test_events_follow_the_log_as_it_grows(shop: Shop, capfdbinary: Any) -> None:
    capture(shop)
    following = threading.Thread(target=lambda: run("events", "shop", "--follow", "--from-batch", "2", "--limit", "2"))
    following.start()
    for key in (1, 2):
        shop.order(key)
        capture(shop)
    following.join(30)
    assert not following.is_alive()
    assert [r["key"]["id"] for r in records(capfdbinary.readouterr().out.decode())] == [1, 2]


def test_events_are_found_by_the_change_log_alone(
    shop: Shop, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.order(1)
    capture(shop)
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    run("events", "shop", "--changelog", shop.definition.changelog, "--topic", "shop.inventory.orders")
    assert [r["value"]["op"] for r in records(capfdbinary.readouterr().out.decode())] == ["r"]
    with pytest.raises(SystemExit, match="holds no connector 'ship'"):
        run("events", "ship", "--changelog", shop.definition.changelog)


def test_events_take_a_form_that_the_source_has(shop: Shop, capfdbinary: Any) -> None:
    shop.order(1)
    capture(shop)
    run("events", "shop", "--form", "debezium", "--topic", "shop.inventory.orders")
    assert [r["key"] for r in records(capfdbinary.readouterr().out.decode())] == [{"id": 1}]
    refusal = "no form 'xstream'. Valid values are: debezium"
    with pytest.raises(SystemExit, match=refusal):
        run("events", "shop", "--form", "xstream")
    with pytest.raises(SystemExit, match=refusal):
        run("events", "shop", "--form", "xstream", "--changelog", shop.definition.changelog)


def test_check_says_whether_everything_is_captured(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    capture(shop)
    clean(capsys)
    run("check", "shop")
    assert capsys.readouterr().out == "Ready for capture.\nThe log ends at entry 1.\nAll changes are captured.\n"
    shop.order(1)
    clean(capsys)
    run("check", "shop", "-o", "json")
    assert json.loads(capsys.readouterr().out) == {
        "ready": True, "findings": [], "position": "entry 2", "waiting": "the log has advanced to entry 2",
    }  # fmt: skip


def test_check_fails_with_the_statements_that_repair(
    shop: Shop, mariadb: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.sql("CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'fewfew'", "GRANT SELECT, RELOAD ON *.* TO few@'%'")
    fields = {"host": mariadb.host, "port": mariadb.port, "login": "few", "password": "fewfew"}
    monkeypatch.setenv("AIRFLOW_CONN_NEW", json.dumps({"conn_type": "cdc_mariadb", **fields}))
    with pytest.raises(SystemExit) as ended:
        run("check", "--conn-id", "new")
    assert ended.value.code == 1
    assert "    GRANT REPLICATION SLAVE ON *.* TO 'few'@'%'\n" in capsys.readouterr().out


def test_check_takes_what_the_connection_says_now(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(shop)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "cdc_memory", "host": "elsewhere"}')
    with pytest.raises(SystemExit, match="memory database 'elsewhere' does not exist"):
        run("check", "shop")


def test_a_command_without_the_state_says_how_to_set_it_up(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "sqlite:////nowhere/airflow.db")
    began = time.monotonic()
    with pytest.raises(SystemExit, match="airflow cdc setup"):
        run("connectors", "--state-conn-id", "nowhere")
    assert time.monotonic() - began < 20
