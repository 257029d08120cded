"""The task that applies to a relational database by a Spark job: what it submits, and how it uses the report of the job.

A stand-in for ``spark-submit`` records how it was called; the real one is at work in ``tests/targets/lake/jobs/test_apply_to_database.py``.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.apply_to_database_on_spark import PROPERTIES, ApplyToDatabaseOnSparkOperator
from airflow_provider_cdc.operators.base.connector_apply_report import build_connector_alias
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.targets.lake.jobs import apply_to_database
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException

SUBMIT = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ)}}))
result = folder / "result.json"
if result.exists():
    pathlib.Path(sys.argv[sys.argv.index("--result") + 1]).write_text(result.read_text())
sys.exit(int((folder / "status").read_text()))
"""
DONE = {
    "place": "postgresql://db:5432/shop/cdc_applied", "batch": 7, "events": 3, "seconds": 1.5, "failed": {}, "ended": True,
    "tables": {
        "shop.inventory.orders": {
            "topic": "shop.inventory.orders", "rows": {"c": 2, "d": 1}, "location": "shop_inventory_orders", "first_batch": 6, "last_batch": 7,
            "seconds": 1.0, "committed_ms": 1, "freshness_s": 2.5, "position": {},
        }
    },
}  # fmt: skip


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SUBMIT.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    connect(monkeypatch, "spark_default", conn_type="spark", host="spark://master:7077")
    connect(
        monkeypatch,
        "warehouse",
        conn_type="postgres",
        host="db",
        port=5432,
        schema="shop",
        login="cdc",
        password="sesame",
    )
    set_outcome(tmp_path, DONE)
    return tmp_path


def set_outcome(folder: Path, result: dict[str, Any] | None, status: int = 0) -> None:
    (folder / "status").write_text(str(status))
    (folder / "result.json").unlink(missing_ok=True)
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))


def load_call(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "call.json").read_text()))


def apply(folder: Path, given: Any = None, **more: Any) -> dict[str, Any]:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {}, more.pop("options", {}))
    operator = ApplyToDatabaseOnSparkOperator(
        task_id="apply", definition=definition, database_conn_id="warehouse", **more
    )
    return operator.execute(given or context())


def test_it_submits_the_job_and_announces_what_that_has_changed(spark: Path) -> None:
    given = context()
    assert apply(spark, given, sink={"insert.mode": "upsert"}, run_for=60) == {
        "connector": "shop", "target": DONE["place"], "last_batch": 7, "events": 3, "tables": ["shop.inventory.orders"],
        "seconds": 1.5,
    }  # fmt: skip
    (event,) = given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    assert event.dest_asset_key.uri == "cdc://shop/shop.inventory.orders"
    assert event.extra == {"rows": {"c": 2, "d": 1}, "last_batch": 7, "location": "shop_inventory_orders"}
    arguments = load_call(spark)["arguments"]
    assert arguments[arguments.index(job_path("apply_to_database.py")) :][:5] == [
        job_path("apply_to_database.py"), "--changelog", f"{spark}/changelog", "--connector", "shop",
    ]  # fmt: skip
    assert arguments[-2:] == ["--run-for", "60"]
    assert "delta" not in " ".join(arguments)


@pytest.mark.parametrize("lost", ["warehouse", "spark_default"])
def test_a_connection_that_does_not_exist_fails_the_task_by_name_without_another_try(
    spark: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """AF13"""
    monkeypatch.delenv(f"AIRFLOW_CONN_{lost.upper()}")
    with pytest.raises(AirflowFailException, match=f"Connection {lost}, .*, does not exist"):
        apply(spark)
    assert not (spark / "call.json").exists()


def test_the_login_of_the_database_reaches_the_job_by_its_environment_and_nothing_else(spark: Path) -> None:
    apply(spark, sink={"name": "second"}, options={"auto_mkdir": True})
    call = load_call(spark)
    assert "sesame" not in " ".join(call["arguments"])
    assert PROPERTIES == apply_to_database.PROPERTIES
    assert json.loads(call["environment"][PROPERTIES]) == {
        "name": "second", "connection.url": "postgresql+psycopg://db:5432/shop", "connection.username": "cdc",
        "connection.password": "sesame",
    }  # fmt: skip
    assert json.loads(call["environment"]["CDC_STORAGE_OPTIONS"]) == {"auto_mkdir": True}
    assert PROPERTIES not in os.environ


def test_the_login_of_the_database_is_not_handed_to_a_cluster(spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=r"(?s)cluster mode.*client"):
        apply(spark)
    assert not (spark / "call.json").exists()


@pytest.mark.parametrize(("terminal", "kind"), [(True, AirflowFailException), (False, AirflowException)])
def test_what_the_job_has_failed_with_is_the_error_of_the_task(spark: Path, terminal: bool, kind: type) -> None:
    set_outcome(spark, {"error": "p_s_t rejects a row", "terminal": terminal, "ended": True}, status=1)
    with pytest.raises(AirflowException, match="p_s_t rejects a row") as caught:
        apply(spark)
    assert type(caught.value) is kind


@pytest.mark.parametrize(("status", "message"), [(1, "Cannot execute"), (0, "reported no result")])
def test_a_job_that_says_nothing_is_an_error(spark: Path, status: int, message: str) -> None:
    set_outcome(spark, None, status=status)
    with pytest.raises(AirflowException, match=message):
        apply(spark)


def test_what_the_job_has_measured_is_kept_also_if_it_fails_or_is_killed(
    spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_url = f"sqlite:///{spark}/state.db"
    store = StateStore(state_url, lease_ttl_s=5, patience_s=1)
    store.create_tables()
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state_url)

    def series() -> dict[str, Any]:
        return {
            one.topic: one for one in store.metrics.load_series("shop") if one.producer.startswith("apply database ")
        }

    apply(spark)
    table = series()["shop.inventory.orders"]
    assert table.counters["apply.TotalNumberOfEventsApplied"] == 3
    fresh = table.histograms["apply.FreshnessInSeconds"]
    assert (sum(fresh.classes), fresh.total) == (1, 2.5)
    gauges = series()[""].gauges
    assert (gauges["apply.LastRunFailed"], gauges["apply.FailedTables"], gauges["apply.LastBatch"]) == (0, 0, 7)
    given, behind = context(), {"failed": {"shop.inventory.lines": "no room"}, "batch": 8}
    set_outcome(spark, {**DONE, **behind, "error": "1 of the tables stay behind", "terminal": False}, status=1)
    with pytest.raises(AirflowException, match="stay behind"):
        apply(spark, given)
    gauges = series()[""].gauges
    assert (gauges["apply.LastRunFailed"], gauges["apply.FailedTables"], gauges["apply.LastBatch"]) == (1, 1, 8)
    set_outcome(spark, {**DONE, "ended": False}, status=137)
    with pytest.raises(AirflowException, match="Cannot execute"):
        apply(spark, given)
    assert series()["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 9
    assert series()[""].counters["apply.TotalNumberOfFailedRuns"] == 2
    assert not given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    set_outcome(spark, {**DONE, "tables": {}, "batch": 9})  # the next run reports the changes of those
    assert apply(spark, given)["events"] == 6
    (event,) = given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    assert event.extra == {"rows": {"c": 4, "d": 2}, "last_batch": 9, "location": "shop_inventory_orders"}
    assert apply(spark)["events"] == 0
    store.close()


def test_reports_of_the_job_say_how_commands_come_to_the_database(spark: Path) -> None:
    apply(spark, sink={"name": "second", "connection.password": "sesame"})
    arguments = load_call(spark)["arguments"]
    given = apply_to_database._arguments(arguments[arguments.index(job_path("apply_to_database.py")) + 1 :])
    assert given.noted == {"database": {"conn_id": "warehouse", "sink": {"name": "second"}}}


def test_a_property_that_there_is_not_fails_before_anything_is_submitted(spark: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"insert\.mod: unknown property"):
        apply(spark, sink={"insert.mod": "upsert"})
    assert not (spark / "call.json").exists()


def test_a_secret_on_the_command_line_is_refused(spark: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"conf\[spark\.hadoop\.fs\.s3a\.secret\.key\]"):
        apply(spark, conf={"spark.hadoop.fs.s3a.secret.key": "open"})
    assert not (spark / "call.json").exists()
