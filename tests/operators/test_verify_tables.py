"""The task that compares tables: what it reads, what it submits, and what it makes of the job's report.

A stand-in for ``spark-submit`` records how it was called and writes the report that the test sets; the real one is at work in ``tests/targets/lake``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.verify_tables import VerifyTablesOperator
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    cdc_command,
)

LOCATION = "/lake/{database}/{table}"
SUBMIT = """#!{python}
import json, pathlib, shutil, sys
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps(sys.argv[1:]))
scratch = pathlib.Path(sys.argv[sys.argv.index("--changelog") + 1])
shutil.copytree(scratch, folder / "seen")
if (folder / "report.json").exists():
    shutil.copy(folder / "report.json", scratch / "report.json")
sys.exit(int((folder / "status").read_text()))
"""


@pytest.fixture
def shop_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SUBMIT.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    shop_connector = make_shop(monkeypatch, tmp_path, str(tmp_path))
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def _set_outcome(folder: Path, status: int, *tables: TableVerification, named: bool = False) -> None:
    if tables:
        verified = VerificationReport("shop", {"entry": 3}, list(tables), 2.5, named)
        assert verified.exit_status == status
        (folder / "report.json").write_text(json.dumps(verified.to_document()))
    (folder / "status").write_text(str(status))


def _task(shop_connector: ShopConnector, **more: Any) -> VerifyTablesOperator:
    return VerifyTablesOperator(
        task_id="verify", definition=shop_connector.definition, source_conn_id="shop", location=LOCATION, **more
    )


def test_it_reads_the_source_submits_the_job_and_leaves_nothing(shop_connector: ShopConnector, tmp_path: Path) -> None:
    _set_outcome(tmp_path, 0, TableVerification("shop.inventory.orders", "/lake/inventory/orders", source=1, target=1))
    done = _task(shop_connector, values=True, keys="/keys", threads=3).execute(context())
    assert done == {
        "connector": "shop", "target": "delta", "position": {"entry": 3}, "tables": {"shop.inventory.orders": 1},
        "not_compared": {}, "seconds": 2.5,
    }  # fmt: skip
    called = json.loads((tmp_path / "call.json").read_text())
    given = called[called.index(job_path("verify_tables.py")) + 1 :]
    assert given[2:] == [
        "--connector", "shop", "--location", LOCATION, "--target", "delta", "--threads", "3", "--plan", "--values", "--keys", "/keys",
    ]  # fmt: skip
    assert called[called.index("--packages") + 1].startswith("io.delta:")
    plan = json.loads((tmp_path / "seen" / "plan.json").read_text())
    assert (plan["connector"], plan["changelog"]) == ("shop", shop_connector.definition.changelog)
    assert [(p["first"], p["straddles"], p["topics"]) for p in plan["references"]] == [
        (2, False, ["shop.inventory.orders"])
    ]
    assert not list((tmp_path / "changelog" / ".verify").iterdir())


def test_tables_that_differ_fail_the_task_for_good_and_those_not_compared_have_it_tried_again(
    shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = TableVerification("shop.a", "/lake/a", missing=2, different=1, source=10, target=8)
    unsure = TableVerification("shop.b", "/lake/b", not_compared="an incremental snapshot of it was running")
    _set_outcome(tmp_path, 1, wrong, unsure)
    with pytest.raises(
        AirflowFailException, match=r"1 tables of shop are not equal.*\n  shop.a: 2 rows missing, 0"
    ) as e:
        _task(shop_connector).execute(context())
    assert cdc_command("rebuild shop") in str(e.value)
    assert "shop.b: not verified" in capsys.readouterr().out
    _will_again(tmp_path, 2, unsure, TableVerification("shop.c", "/lake/c"))
    with pytest.raises(AirflowException, match="1 tables of shop could not be verified; the others are equal") as e:
        _task(shop_connector).execute(context())
    assert not isinstance(e.value, AirflowFailException)


def test_tables_that_can_never_be_compared_fail_the_task_only_if_someone_has_named_them(
    shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = TableVerification("shop.log", "/lake/log", not_compared="its rows are events", never=True)
    equal = TableVerification("shop.a", "/lake/eu", source=1, target=1, name="shop.a → /lake/eu")
    _set_outcome(tmp_path, 0, events, equal)
    done = _task(shop_connector).execute(context())
    assert (done["tables"], done["not_compared"]) == ({"shop.a → /lake/eu": 1}, {"shop.log": "its rows are events"})
    assert "shop.log: not verified, because its rows are events" in capsys.readouterr().out
    _will_again(tmp_path, 2, events, equal, named=True)
    with pytest.raises(AirflowFailException, match="1 tables of shop could not be verified; the others are equal"):
        _task(shop_connector, tables=r"inventory\.orders").execute(context())
    plan = json.loads((tmp_path / "seen" / "plan.json").read_text())
    assert plan["named"] is True
    unsure = TableVerification("shop.b", "/lake/b", not_compared="an incremental snapshot of it was running")
    _will_again(tmp_path, 2, events, unsure)
    with pytest.raises(AirflowException, match="1 tables of shop could not be verified") as e:
        _task(shop_connector).execute(context())
    assert not isinstance(e.value, AirflowFailException)


def _will_again(folder: Path, status: int, *tables: TableVerification, named: bool = False) -> None:
    import shutil

    shutil.rmtree(folder / "seen")
    _set_outcome(folder, status, *tables, named=named)


def test_a_job_without_a_report_is_a_failure(shop_connector: ShopConnector, tmp_path: Path) -> None:
    _set_outcome(tmp_path, 0)
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(shop_connector).execute(context())
    _will_again(tmp_path, 2)
    with pytest.raises(AirflowException, match="Cannot execute"):
        _task(shop_connector).execute(context())


def test_nothing_is_submitted_if_the_capture_does_not_come_there(shop_connector: ShopConnector, tmp_path: Path) -> None:
    _set_outcome(tmp_path, 0)
    shop_connector.order(2)
    with pytest.raises(AirflowException, match="has not reached entry"):
        _task(shop_connector, wait=timedelta(0)).execute(context())
    shop_connector.store.set_control("shop", DesiredState.PAUSED, "me")
    with pytest.raises(AirflowSkipException, match="is paused, and has not reached"):
        _task(shop_connector).execute(context())
    assert not (tmp_path / "call.json").exists()


def test_what_cannot_be_meant_is_refused(shop_connector: ShopConnector, tmp_path: Path) -> None:
    _set_outcome(tmp_path, 0)
    with pytest.raises(ConfigError, match="Valid values are"):
        _task(shop_connector, target="hudi")
    with pytest.raises(AirflowFailException, match="No captured table of connector shop matches other"):
        _task(shop_connector, tables="other").execute(context())
    with pytest.raises(AirflowFailException, match="A secret would be on the command line"):
        _task(shop_connector, conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"}).execute(context())
    assert not (tmp_path / "call.json").exists()


@pytest.mark.parametrize("where", ["keys", "scratch"])
def test_a_secret_in_a_place_to_write_to_is_refused(shop_connector: ShopConnector, tmp_path: Path, where: str) -> None:
    with pytest.raises(AirflowFailException, match=f"command line of spark-submit: {where}") as e:
        _task(shop_connector, **{where: "s3://key:sesame@lake/there"}).execute(context())
    assert "sesame" not in str(e.value)
    assert not (tmp_path / "call.json").exists()


def test_properties_are_templates_as_they_are_for_the_capture(shop_connector: ShopConnector) -> None:
    given = replace(shop_connector.definition, properties={"table.include.list": "{{ tables }}"})
    task = VerifyTablesOperator(task_id="verify", definition=given, source_conn_id="shop", location=LOCATION)
    task.render_template_fields({"tables": r"inventory\.orders"})  # type: ignore[typeddict-item]
    assert task.connector_access.definition.properties == {"table.include.list": r"inventory\.orders"}
