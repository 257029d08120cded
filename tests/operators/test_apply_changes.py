"""The apply task: what it submits, and what it makes of the job's report.

A stand-in for ``spark-submit`` records how it was called; the real one is at work in ``tests/system``.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, merge_by_table
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.changelog.reports.asset_event_outbox import AssetEventOutbox
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.metric_samples import MetricSamples
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator, build_connector_alias, build_topic_asset
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from airflow_provider_cdc.services.tasks.connector_fields import owner_of
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import read_table_stamp
from airflow_provider_cdc.targets.lake.spark_releases.release_packages import (
    S3_EXCLUDED,
    find_packages,
    find_s3_packages,
)
from tests.support.airflow.airflow_connector import TaskState, connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException
from tests.support.change_log.manifests import manifest

LOCATION = "/lake/{database}/{table}"
SUBMIT = """#!{python}
import json, os, pathlib, re, sys
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ)}}))
if archive := re.search(r"-XX:ArchiveClassesAtExit=(\\S+)", " ".join(sys.argv)):
    pathlib.Path(archive[1]).write_text("classes")
report = folder / "next_report.json"
if report.exists():
    place = pathlib.Path({place!r})
    place.parent.mkdir(parents=True, exist_ok=True)
    report.rename(place)
print("the job speaks")
sys.exit(int((folder / "status").read_text()) if (folder / "status").exists() else 0)
"""


class Spark:
    """A stand-in for ``spark-submit``: a program that records its call, and ends as a test has set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "bin" / "spark-submit"
        program.parent.mkdir()
        reports = ApplyReports(Storage(f"{folder}/changelog"), "shop")
        place = reports.report_path("delta", LOCATION)
        program.write_text(SUBMIT.format(python=sys.executable, folder=str(folder), place=place))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")

    def will(self, report: dict[str, Any] | None = None, *, status: int = 0) -> None:
        """Set the report that the next job writes, and its exit status."""
        if report is not None:
            (self.folder / "next_report.json").write_text(json.dumps(report))
        (self.folder / "status").write_text(str(status))

    @property
    def arguments(self) -> list[str]:
        return list(json.loads((self.folder / "call.json").read_text())["arguments"])

    @property
    def java(self) -> str:
        """Options of the driver's JVM."""
        return next(a for a in self.arguments if a.startswith("spark.driver.extraJavaOptions="))

    @property
    def archives(self) -> list[Path]:
        return sorted((self.folder / "cache" / "airflow-provider-cdc").glob("*"))

    @property
    def environment(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "call.json").read_text())["environment"])


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(tmp_path, monkeypatch)


def table(topic: str, **rows: int) -> dict[str, Any]:
    position = {"file": "binlog.000001", "pos": 4711}
    return {"topic": topic, "location": f"/lake/{topic}", "first_batch": 3, "last_batch": 4, "rows": rows} | {
        "position": position,
        "seconds": 0.1,
    }


def report(*tables: dict[str, Any], last_batch: int = 4, **failed: str) -> dict[str, Any]:
    return {"connector": "shop", "target": "delta", "last_batch": last_batch, "tables": list(tables)} | {
        "location": LOCATION,
        "failed": failed,
        "seconds": 1.5,
        "lagging": {},
        "table_states": {},
    }


def apply(folder: Path, **more: Any) -> ApplyChangesOperator:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {}, more.pop("options", {}))
    return ApplyChangesOperator(
        task_id="apply",
        definition=definition,
        location=more.pop("location", LOCATION),
        **{"jars": "/jars/delta.jar", **more},
    )


def events(given: Any) -> dict[str, Any]:
    added = given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    assert len({e.dest_asset_key.uri for e in added}) == len(added)
    return {e.dest_asset_key.uri: e.extra for e in added}


@pytest.mark.parametrize(
    "argument", ["repositories", "packages", "jars", "files", "py_files", "archives", "driver_class_path", "properties_file"]
)  # fmt: skip
def test_a_login_in_an_address_for_spark_submit_is_rejected(tmp_path: Path, spark: Spark, argument: str) -> None:
    """AF25"""
    spark.will(report())
    task = apply(tmp_path, **{argument: "https://a.example/x,https://bob:s3same@nexus.example/maven"})
    with pytest.raises(AirflowFailException, match=f"on the command line of spark-submit: {argument}") as caught:
        task.execute(context())
    assert "s3same" not in str(caught.value)
    assert not (spark.folder / "call.json").exists()


def test_a_spark_connection_that_does_not_exist_fails_the_task_by_name_without_another_try(
    tmp_path: Path, spark: Spark
) -> None:
    """AF13. Airflow's hook would submit to YARN."""
    spark.will(report())
    with pytest.raises(AirflowFailException, match=r"Connection spark_elsewhere, .*, does not exist"):
        apply(tmp_path, conn_id="spark_elsewhere").execute(context())
    assert not (spark.folder / "call.json").exists()


@pytest.mark.parametrize(("master", "local"), [("local[2]", True), ("spark://cluster:7077", False)])
def test_a_local_driver_listens_on_the_loopback_alone(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch, master: str, local: bool
) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host=master)
    spark.will(report())
    apply(tmp_path, conf={"spark.ui.retainedJobs": "5"}).execute(context())
    settings = [value for name, value in zip(spark.arguments, spark.arguments[1:], strict=False) if name == "--conf"]
    assert "spark.ui.retainedJobs=5" in settings
    for setting in ("spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1"):
        assert (setting in settings) == local


def test_it_submits_the_job_that_is_installed_beside_it(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path).execute(context())
    at = spark.arguments.index(job_path("apply_changes.py"))
    assert spark.arguments[at + 1 :] == [
        "--changelog", f"{tmp_path}/changelog", "--connector", "shop", "--location", "/lake/{database}/{table}",
        "--target", "delta", "--profile", "compatible", "--writes", "auto", "--threads", "4", "--owner", owner_of(context()),
    ]  # fmt: skip
    assert spark.arguments[: spark.arguments.index("--master") + 2][-1] == "local[1]"
    assert spark.arguments[spark.arguments.index("--jars") + 1] == "/jars/delta.jar"
    assert "--packages" not in spark.arguments
    assert spark.environment["PYSPARK_PYTHON"] == os.environ.get("PYSPARK_PYTHON", sys.executable)


def test_an_unknown_target_or_profile_is_refused_when_the_dag_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'hudi' is not a kind of target\. Valid values are: "):
        apply(tmp_path, target="hudi")
    with pytest.raises(ConfigError, match=r"'quick' is not a table profile\. Valid values are: compatible, fast"):
        apply(tmp_path, profile="quick")
    with pytest.raises(ConfigError, match=r"'never' is not a write strategy\. Valid values are: auto, merge, commit"):
        apply(tmp_path, writes="never")
    with pytest.raises(ConfigError, match=r"threads must be at least 1, but is 0"):
        apply(tmp_path, threads=0)


def test_one_topic_to_adopt_may_be_a_text(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path, adopt="shop.a").execute(context())
    assert [a for a in spark.arguments if a.startswith("--adopt")] == ["--adopt=shop.a"]


def test_rules_of_tables_reach_the_job_and_are_checked_when_the_dag_is_parsed(tmp_path: Path, spark: Spark) -> None:
    rules = [{"tables": r"shop\.(a|b)", "mode": "log", "filter": "x = 'it''s {not} {{ rendered }}'"}]
    spark.will(report())
    apply(tmp_path, tables=rules).execute(context())
    given = spark.arguments[spark.arguments.index("--tables") + 1]
    assert TableRules.parse(given) == TableRules.parse(rules)
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    assert apply(tmp_path, tables=str(tmp_path / "rules.json")).tables == TableRules.parse(rules)
    with pytest.raises(ConfigError, match="did you mean 'history'"):
        apply(tmp_path, tables=[{"tables": "a", "mode": "histroy"}])


@pytest.mark.parametrize("routed", [False, True])
def test_a_secret_in_the_location_of_a_rule_is_refused(tmp_path: Path, spark: Spark, *, routed: bool) -> None:
    there = {"location": "s3a://key:sesame@lake/{table}"}
    rules = [{"tables": "a", **({"route": {"when": "x", **there}} if routed else there)}]
    with pytest.raises(AirflowFailException, match="location of the rule for a") as caught:
        apply(tmp_path, tables=rules).execute(context())
    assert "sesame" not in str(caught.value)


def test_without_jars_the_packages_of_the_target_are_fetched(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path, jars="").execute(context())
    assert spark.arguments[spark.arguments.index("--packages") + 1] == ",".join(find_packages("delta"))


def test_for_tables_in_s3_the_packages_of_s3_are_fetched_without_the_whole_sdk(tmp_path: Path, spark: Spark) -> None:
    rules = [{"tables": "p\\.orders", "location": "s3a://lake/orders"}]
    spark.will(report())
    apply(tmp_path, jars="", tables=rules).execute(context())
    packages = spark.arguments[spark.arguments.index("--packages") + 1]
    assert packages == ",".join((*find_packages("delta"), *find_s3_packages()))
    assert f"spark.jars.excludes={S3_EXCLUDED}" in spark.arguments
    spark.will(report())
    apply(tmp_path, jars="", packages="a:b:1", tables=rules).execute(context())
    assert spark.arguments[spark.arguments.index("--packages") + 1] == "a:b:1"  # the user knows better


def test_packages_follow_the_release_of_spark_that_runs_the_job(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path, jars="", spark_version="3.5").execute(context())
    assert spark.arguments[spark.arguments.index("--packages") + 1] == "io.delta:delta-spark_2.12:3.3.3"
    with pytest.raises(
        ConfigError, match=r"spark_version='2\.4' is not supported\. Valid values are: 3\.5, 4\.0, 4\.1"
    ):
        apply(tmp_path, spark_version="2.4")


def test_each_table_that_changed_gets_an_event_with_rows_and_position(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(table("shop.a", c=2, d=1), table("shop.b", u=5), table("shop.a", c=1)))
    given = context()
    operator = apply(tmp_path)
    result = operator.execute(given)
    tables = result.pop("tables")
    assert [(topic, found["events"], found["seconds"]) for topic, found in tables.items()] == [
        ("shop.b", 5, 0.1),
        ("shop.a", 4, 0.2),
    ]
    assert result == {
        "connector": "shop", "target": "delta", "last_batch": 4, "events": 9, "topics": {"shop.b": 5, "shop.a": 4},
        "seconds": 1.5,
    }  # fmt: skip
    assert events(given) == {
        "cdc://shop/shop.a": {
            "rows": {"c": 3, "d": 1}, "position": {"file": "binlog.000001", "pos": 4711}, "first_batch": 3,
            "last_batch": 4, "location": "/lake/shop.a",
        },
        "cdc://shop/shop.b": {
            "rows": {"u": 5}, "position": {"file": "binlog.000001", "pos": 4711}, "first_batch": 3, "last_batch": 4,
            "location": "/lake/shop.b",
        },
    }  # fmt: skip
    assert build_topic_asset("shop", "shop.a").uri == "cdc://shop/shop.a"
    assert operator.batch == 4


def test_tables_that_a_route_makes_of_one_topic_get_an_event_each_and_their_events_count_once(
    tmp_path: Path, spark: Spark
) -> None:
    names = {f"shop.a → /lake/{place}": f"/lake/{place}" for place in ("eu", "us")}
    spark.will(report(*({**table("shop.a", c=2), "name": name, "location": at} for name, at in names.items())))
    given = context()
    result = apply(tmp_path).execute(given)
    assert (result["events"], result["topics"]) == (2, dict.fromkeys(names, 2))
    added = given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    assert [(e.dest_asset_key.uri, e.extra["location"]) for e in added] == [
        ("cdc://shop/shop.a", "/lake/eu"),
        ("cdc://shop/shop.a", "/lake/us"),
    ]


def test_what_an_earlier_job_could_not_report_gets_events_too_also_after_a_failed_try(
    tmp_path: Path, spark: Spark
) -> None:
    earlier = {**table("shop.a", c=2), "first_batch": 1, "last_batch": 2}
    lost = {"unreported": [earlier, {**table("shop.c", u=1), "first_batch": 2, "last_batch": 2}]}
    spark.will(report(table("shop.a", c=1), table("shop.b", u=5)) | lost)
    given = context()
    result = apply(tmp_path).execute(given)
    reported = {uri: (e["rows"], e["first_batch"], e["last_batch"]) for uri, e in events(given).items()}
    assert reported == {
        "cdc://shop/shop.a": ({"c": 3}, 1, 4), "cdc://shop/shop.b": ({"u": 5}, 3, 4), "cdc://shop/shop.c": ({"u": 1}, 2, 2),
    }  # fmt: skip
    assert (result["events"], result["topics"]) == (9, {"shop.a": 3, "shop.b": 5, "shop.c": 1})
    remembered = TaskState()
    spark.will(report(table("shop.a", c=1), **{"shop.b": "trouble"}) | lost, status=1)
    with pytest.raises(AirflowException):
        apply(tmp_path).execute(context(task_state_store=remembered))
    spark.will(report(table("shop.b", c=7)))
    given = context(task_state_store=remembered)
    apply(tmp_path).execute(given)
    assert {uri.rpartition(".")[2] for uri in events(given)} == {"a", "b", "c"}


def test_nothing_to_apply_is_a_success_without_events(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    given = context()
    assert apply(tmp_path).execute(given)["events"] == 0
    assert events(given) == {}


def test_tables_that_failed_are_named_and_no_event_is_emitted(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(table("shop.a", c=1), **{"shop.b": "column x is INT in the table"}), status=1)
    given = context()
    with pytest.raises(AirflowException, match=r"shop\.b: column x is INT in the table") as caught:
        apply(tmp_path).execute(given)
    assert not isinstance(caught.value, AirflowFailException)
    assert events(given) == {}


@pytest.mark.parametrize("has_store", [True, False], ids=["3.3", "3.1"])
def test_what_a_failed_try_applied_is_announced_by_the_next_one(tmp_path: Path, spark: Spark, has_store: bool) -> None:
    store = {"task_state_store": TaskState()} if has_store else {}
    spark.will(report(table("shop.a", c=1), **{"shop.b": "trouble"}), status=1)
    with pytest.raises(AirflowException):
        apply(tmp_path).execute(context(**store))
    spark.will(report(table("shop.b", c=7)))
    given = context(**store)
    apply(tmp_path).execute(given)
    assert {uri: e["rows"] for uri, e in events(given).items()} == {
        "cdc://shop/shop.a": {"c": 1},
        "cdc://shop/shop.b": {"c": 7},
    }
    spark.will(report(table("shop.b", c=8)))
    given = context(**({"task_state_store": TaskState()} if has_store else {}))  # of the next run
    apply(tmp_path).execute(given)
    assert {*events(given)} == {"cdc://shop/shop.b"}  # and once


def test_what_the_last_try_has_applied_is_announced_by_the_next_run_or_if_it_is_cleared_before_by_that_try(
    tmp_path: Path, spark: Spark
) -> None:
    remembered = TaskState()
    for number, done in enumerate(({"c": 1}, {"c": 10}, {"c": 100}, {"c": 1000}), start=1):
        spark.will(report(table("shop.a", **done), **{"shop.b": "trouble"}), status=1)
        with pytest.raises(AirflowException):
            apply(tmp_path).execute(context(task_state_store=remembered, try_number=number))
    spark.will(report(table("shop.b", c=7)))
    given = context(task_state_store=TaskState())
    apply(tmp_path).execute(given)
    assert events(given)["cdc://shop/shop.a"]["rows"] == {"c": 1111}
    spark.will(report(table("shop.b", c=8)))
    for store in (remembered, TaskState()):  # no store reports it again
        given = context(task_state_store=store)
        apply(tmp_path).execute(given)
        assert "cdc://shop/shop.a" not in events(given)


def test_events_are_emitted_though_those_of_earlier_runs_cannot_be_read_which_stay(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the task failed then, its next try would find that nothing is to be applied, and nothing to tell of."""
    spark.will(report(table("shop.a", c=1), **{"shop.b": "trouble"}), status=1)
    with pytest.raises(AirflowException):
        apply(tmp_path).execute(context(try_number=4))
    spark.will(report(table("shop.b", c=7)))
    given = context()
    with monkeypatch.context() as patched:
        patched.setattr(AssetEventOutbox, "read", _unavailable)
        apply(tmp_path).execute(given)
    assert set(events(given)) == {"cdc://shop/shop.b"}
    spark.will(report(table("shop.b", c=8)))
    given = context()
    with monkeypatch.context() as patched:
        patched.setattr(AssetEventOutbox, "delete_all", _unavailable)  # rather twice than never
        apply(tmp_path).execute(given)
    assert set(events(given)) == {"cdc://shop/shop.a", "cdc://shop/shop.b"}


def test_what_a_task_had_applied_that_was_killed_when_its_job_had_ended_is_announced_by_the_next_one(
    tmp_path: Path, spark: Spark
) -> None:
    """Its report says so, and the next job hands that on, as long as no job has reported it."""
    earlier = [{"owner": "the killed one", "tables": [table("shop.a", c=2)]}]
    for message in ({"cdc://shop/shop.a", "cdc://shop/shop.b"}, {"cdc://shop/shop.b"}):
        spark.will({**report(table("shop.b", c=7)), "owner": owner_of(context()), "earlier": earlier})
        given = context()
        apply(tmp_path).execute(given)
        assert set(events(given)) == message
    turns = ApplyTurns(Storage(f"{tmp_path}/changelog"), "shop", "delta", LOCATION)
    assert turns.is_announced(owner_of(context()))


def test_a_task_whose_report_another_job_has_replaced_reports_what_its_own_has_done(
    tmp_path: Path, spark: Spark
) -> None:
    mine = {"owner": owner_of(context()), "tables": [table("shop.a", c=2)]}
    spark.will({**report(table("shop.b", c=7)), "owner": "another task", "earlier": [mine]})
    given = context()
    apply(tmp_path).execute(given)
    assert {uri: e["rows"] for uri, e in events(given).items()} == {"cdc://shop/shop.a": {"c": 2}}


def test_what_was_applied_stays_with_the_task_if_it_cannot_be_left_to_its_next_run(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.will(report(table("shop.a", c=1), **{"shop.b": "no room at all"}), status=1)
    remembered = TaskState()
    monkeypatch.setattr(AssetEventOutbox, "add", _unavailable)
    with pytest.raises(AirflowException, match="no room at all"):
        apply(tmp_path).execute(context(task_state_store=remembered, try_number=4))
    assert '"c": 1' in str(remembered)


def _unavailable(*_: Any) -> Any:
    raise StorageUnavailable("503 slow down")


def test_a_job_that_died_is_not_judged_by_an_older_report(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(table("shop.a", c=1), **{"shop.b": "old trouble"}), status=1)
    with pytest.raises(AirflowException, match="old trouble"):
        apply(tmp_path).execute(context())
    spark.will(status=137)
    with pytest.raises(AirflowException, match="137") as caught:
        apply(tmp_path).execute(context())
    assert "old trouble" not in str(caught.value)


def test_a_job_that_wrote_no_report_is_no_success(tmp_path: Path, spark: Spark) -> None:
    spark.will()
    with pytest.raises(AirflowException, match="wrote no report"):
        apply(tmp_path).execute(context())


def test_where_every_table_stands_at_the_last_batch_no_job_is_submitted(tmp_path: Path, spark: Spark) -> None:
    """The tables are two commits of a Delta log; what makes real ones is at work in ``tests/targets/lake/apply/test_up_to_date_check.py``."""
    location = f"{tmp_path}/lake/{{table}}"
    operator = apply(tmp_path, location=location)
    changelog = operator.connector_access.open_change_log()
    for batch in (1, 2):
        changelog.commit_manifest(manifest(batch, connector="shop"))
    commit = tmp_path / "lake" / "orders" / "_delta_log" / f"{7:020d}.json"
    commit.parent.mkdir(parents=True)
    commit.write_text('{"commitInfo": {"txnId": "a"}}')
    stands = {"location": f"{tmp_path}/lake/orders", "batch": 1}
    stands["stamp"] = read_table_stamp(changelog, "delta", stands["location"])
    stood = {
        **report(table("shop.orders", c=1), last_batch=2),
        "location": location,
        "table_states": {"shop.orders": stands},
    }
    ApplyReports(changelog.storage, "shop").write(stood)
    given = context()
    assert operator.execute(given)["last_batch"] == 2
    assert events(given) == {}
    assert not (tmp_path / "call.json").exists()
    # other rules, another commit, a batch, an older copy: each is looked at by Spark
    spark.will()
    apply(tmp_path, location=location, tables=[{"tables": "x", "mode": "log"}]).execute(context())
    assert (tmp_path / "call.json").exists()
    (tmp_path / "call.json").unlink()
    ApplyReports(changelog.storage, "shop").write(stood)
    spark.will()
    commit.write_text('{"commitInfo": {"txnId": "b"}}')
    operator.execute(context())
    assert (tmp_path / "call.json").exists()


def test_a_report_that_cannot_be_read_is_none(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(table("shop.a", c=1)))
    apply(tmp_path).execute(context())
    path = Path(
        ApplyReports(apply(tmp_path).connector_access.open_change_log().storage, "shop").report_path("delta", LOCATION)
    )
    path.write_text(path.read_text()[:-20])
    spark.will(report(table("shop.a", c=2)))
    assert apply(tmp_path).execute(context())["topics"] == {"shop.a": 2}


def test_a_table_to_be_adopted_is_named_to_the_job(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path, adopt=["shop.a"], check_crc=True).execute(context())
    assert spark.arguments[spark.arguments.index("--adopt=shop.a") + 1] == "--check-crc"


def test_storage_secrets_reach_the_job_by_its_environment_and_nothing_else(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch, "lake", conn_type="generic", extra={"auto_mkdir": True})
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark.will(report())
    apply(tmp_path, storage_conn_id="lake", options={"use_listings_cache": False}).execute(context())
    assert json.loads(spark.environment["CDC_STORAGE_OPTIONS"]) == {"auto_mkdir": True, "use_listings_cache": False}
    assert "auto_mkdir" not in " ".join(spark.arguments)
    assert "auto_mkdir" not in "".join(capfd.readouterr())
    assert "CDC_STORAGE_OPTIONS" not in os.environ
    assert spark.environment["PYSPARK_PYTHON"] == sys.executable


def test_storage_secrets_are_not_handed_to_a_cluster(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    connect(monkeypatch, "lake", conn_type="generic", extra={"auto_mkdir": True})
    with pytest.raises(AirflowFailException, match="cluster mode"):
        apply(tmp_path, storage_conn_id="lake").execute(context())
    assert not (tmp_path / "call.json").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"conf": {"spark.hadoop.fs.s3a.secret.key": "sesame"}}, r"conf\[spark.hadoop.fs.s3a.secret.key\]"),
        ({"conf": {"spark.hadoop.fs.azure.account.key.x": "y", "spark.ssl.keyPassword": "sesame"}}, "keyPassword"),
        ({"location": "s3a://key:sesame@lake/{table}"}, "location"),
    ],
)
def test_what_would_be_on_the_command_line_holds_no_secret(
    tmp_path: Path, spark: Spark, wrong: dict[str, Any], message: str
) -> None:
    operator = apply(tmp_path)
    operator.conf, operator.location = wrong.get("conf"), wrong.get("location", operator.location)
    with pytest.raises(AirflowFailException, match=message) as caught:
        operator.execute(context())
    assert "sesame" not in str(caught.value)
    assert not (tmp_path / "call.json").exists()


def test_settings_that_only_speak_of_credentials_are_no_secrets(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    operator = apply(tmp_path)
    operator.conf = {"spark.hadoop.fs.s3a.aws.credentials.provider": "x.y.Provider", "spark.ui.enabled": "false"}
    operator.execute(context())
    assert "spark.hadoop.fs.s3a.aws.credentials.provider=x.y.Provider" in " ".join(spark.arguments)


def test_the_job_cannot_be_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="application cannot be set"):
        apply(tmp_path, application="/my/job.py")


# -- how the JVM is started -------------------------------------------------------------------------------------------


def test_the_first_job_makes_an_archive_of_its_classes_and_the_next_ones_use_it(tmp_path: Path, spark: Spark) -> None:
    spark.will(report())
    apply(tmp_path).execute(context())
    assert "-XX:ArchiveClassesAtExit=" in spark.java
    (made,) = spark.archives
    assert made.read_text() == "classes"
    spark.will(report())
    apply(tmp_path).execute(context())
    assert f"-XX:SharedArchiveFile={made} " in spark.java
    assert "AtExit" not in spark.java
    # one that continues has no time to make one at its end
    with pytest.raises(AirflowException, match="wrote nothing to"):
        apply(tmp_path, jars="/jars/other.jar", run_for=60).execute(context())
    assert "Archive" not in spark.java
    assert spark.archives == [made]


def test_an_archive_is_that_of_one_installation(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark-core.jar").write_text("4.1.3")
    used = set()
    for n in range(5):
        if n == 1:
            (jars / "spark-core.jar").write_text("4.1.4 ")
        elif n == 2:
            monkeypatch.setenv("JAVA_HOME", "/opt/java")
        elif n == 3:
            monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/hadoop/*")
        spark.will(report())
        apply(tmp_path, driver_class_path="/a.jar" if n == 4 else None).execute(context())
        assert "AtExit" in spark.java, n
        used |= set(spark.archives)
    assert len(used) == 5
    assert len(spark.archives) == 3  # disks are not filled with those of installations that are gone


def test_a_failure_that_the_archive_may_have_caused_does_not_come_twice(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(table("shop.a", c=1)), status=1)
    given = context(task_state_store=TaskState())
    assert apply(tmp_path).execute(given)["events"] == 1  # the tables are up to date, says the report
    assert events(given)["cdc://shop/shop.a"]["rows"] == {"c": 1}
    assert [f.suffix for f in spark.archives] == [".failed"]
    spark.will(report(table("shop.a", c=2)))
    apply(tmp_path).execute(context())
    assert "jsa" not in spark.java
    long_ago = spark.archives[0].stat().st_mtime - 100_000
    os.utime(spark.archives[0], (long_ago, long_ago))
    spark.will(report(table("shop.a", c=3)))
    apply(tmp_path).execute(context())
    assert "AtExit" in spark.java


@pytest.mark.parametrize("how", ["settings", "options", "cluster", "blank"])
def test_there_is_no_archive_where_java_or_the_user_does_not_want_one(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    operator = apply(tmp_path)
    if how == "settings":  # on the class path, where Java wants none
        (tmp_path / "settings").mkdir()
        (tmp_path / "settings" / "spark-defaults.conf").touch()
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "settings"))
    elif how == "options":
        operator.conf = {"spark.driver.extraJavaOptions": "-Dmine=1"}
    elif how == "cluster":
        connect(monkeypatch, "spark_default", conn_type="spark", host="spark://h", port=7077)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/with blank")
    spark.will(report())
    operator.execute(context())
    assert "jsa" not in spark.java
    for uri in re.findall(r"log4j2\.configurationFile=file://(\S+)", spark.java):
        assert Path(uri).is_file()
    assert ("TieredStopAtLevel" in spark.java) == (how in ("settings", "blank"))
    assert not spark.archives


def test_a_jvm_for_little_work_is_a_lean_one(tmp_path: Path, spark: Spark) -> None:
    def java(*files: DataFile, **more: Any) -> str:
        changelog.commit_manifest(
            manifest(1 + max(changelog.list_batches("shop"), default=0), connector="shop", files=list(files))
        )
        spark.will(report())
        apply(tmp_path, **more).execute(context())
        return spark.java

    def file(topic: str, size: int) -> DataFile:
        return DataFile(
            topic=topic, schema_version=1, path="p", rows=1, bytes=size, crc32=0, first_seq=1, last_seq=1, counts={"c": 1}
        )  # fmt: skip

    def report_standing(**tables: dict[str, Any]) -> None:
        last = changelog.list_batches("shop")[-1]
        ApplyReports(changelog.storage, "shop").write({**report(last_batch=last), "table_states": tables})

    changelog = apply(tmp_path).connector_access.open_change_log()
    lean = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    assert lean in java(file("shop.a", 4711))
    report_standing(a={"bytes": 1 << 20}, b={"bytes": 1 << 40}, c={})
    assert lean in java(file("a", 4711))
    report_standing(a={"bytes": 1 << 20}, b={"bytes": 1 << 40}, c={})
    assert lean not in java(file("a", 4711), file("b", 4711))  # a large table
    report_standing(a={"bytes": 1 << 20}, b={"bytes": 1 << 40}, c={})
    assert lean not in java(file("a", 4711), file("c", 4711))  # one of an unknown size
    report_standing(a={"bytes": 1 << 20})
    assert lean not in java(file("a", 100 << 20))  # a large batch
    report_standing(a={"bytes": 1 << 20})
    with pytest.raises(AirflowException, match="wrote nothing to"):
        java(file("a", 4711), run_for=60)
    assert lean not in spark.java


def test_merging_reports_keeps_the_newest_position_and_adds_rows() -> None:
    older, newer = table("t", c=1), {**table("t", c=2, d=1), "first_batch": 5, "last_batch": 6, "position": {"pos": 9}}
    (only,) = merge_by_table([older, newer])
    assert (only["rows"], only["first_batch"], only["last_batch"], only["position"]) == (
        {"c": 3, "d": 1},
        3,
        6,
        {"pos": 9},
    )


def test_an_apply_reports_what_it_did_to_each_topic_also_if_it_fails(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[MetricSamples] = []
    monkeypatch.setattr("airflow_provider_cdc.operators.base.apply_metrics.to_airflow", reports.append)
    written = {"rows_written": 3, "bytes_written": 4096, "freshness_s": 7.5}
    routed = [{**table("shop.a", c=3), **written, "name": f"a {n}", "location": f"/lake/{n}"} for n in (1, 2)]
    spark.will(report(*routed))
    apply(tmp_path).execute(context())
    spark.will(report(table("shop.b", c=1), **{"shop.c": "trouble"}, last_batch=5), status=1)
    with pytest.raises(AirflowException):
        apply(tmp_path).execute(context())
    spark.will(status=1)  # it has died, and the report is that of the one before
    with pytest.raises(AirflowException):
        apply(tmp_path).execute(context())
    well, failed, died = reports
    assert (well.connector, well.tags["target"], well.ended) == ("shop", "delta", True)
    assert well.series["shop.a"].counters == {
        "apply.TotalNumberOfEventsApplied": 3, "apply.TotalNumberOfRowsWritten": 6, "apply.TotalNumberOfBytesWritten": 8192,
    }  # fmt: skip
    assert well.series["shop.a"].observed == {"apply.FreshnessInSeconds": [7.5, 7.5]}
    assert [one.series[""].counters["apply.TotalNumberOfFailedRuns"] for one in reports] == [0, 1, 1]
    assert [one.series[""].gauges.get("apply.LastBatch") for one in reports] == [4, 5, None]
    assert failed.series["shop.b"].counters["apply.TotalNumberOfEventsApplied"] == 1
    assert set(died.series) == {""}
