"""The commands about targets: which one is meant, and what Spark needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector, connect


def test_only_targets_that_were_applied_to_are_maintained(shop_connector: ShopConnector) -> None:
    with pytest.raises(SystemExit, match="No connector 'shop' has run yet"):
        run("maintain", "shop")
    capture(shop_connector)
    with pytest.raises(SystemExit, match="targets of its applies: none"):
        run("maintain", "shop")
    reports = ApplyReports(Storage(shop_connector.definition.changelog), "shop")
    reports.write({**reports.register_target("delta", "/lake/{table}"), "last_batch": 1})
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
def test_a_command_that_needs_spark_says_what_to_install(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    reports = ApplyReports(Storage(shop_connector.definition.changelog), "shop")
    reports.write({**reports.register_target("delta", "/lake/{table}"), "last_batch": 1})
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark.operators.spark_submit", None)
    for line in (("maintain", "shop"), ("verify", "shop"), ("rebuild", "shop", "inventory.orders")):
        with pytest.raises(SystemExit, match=r"not installed\.\n  Repair: pip install 'airflow-provider-cdc\[spark\]'"):
            run(*line)


def test_what_spark_needs_may_be_said_as_to_the_apply(
    shop_connector: ShopConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    reports = ApplyReports(Storage(shop_connector.definition.changelog), "shop")
    reports.write({**reports.register_target("iceberg", "lake.{database}.{table}"), "last_batch": 1})
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
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit):
        run("verify", "shop", f"--timeout={seconds}")
    assert "is not a number of seconds" in capsys.readouterr().err


def test_one_target_is_compared_or_built_again_and_several_are_named(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(shop_connector)
    reports = ApplyReports(Storage(shop_connector.definition.changelog), "shop")
    for table in ("a", "b"):
        reports.write({**reports.register_target("delta", f"/{table}/{{table}}"), "last_batch": 1})
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
