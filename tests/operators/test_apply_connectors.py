"""The apply task of several connectors: what it submits, and what it makes of their reports.

A stand-in for ``spark-submit`` records how it was called, and writes the reports that the job would; the job itself is at work in
``tests/targets/lake/jobs/test_concurrent_connectors.py``.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator, ConnectorApplyOptions
from airflow_provider_cdc.operators.base.connector_apply_report import build_connector_alias
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from tests.operators.base.test_continuous_job_control import ActionThread, wait_until
from tests.operators.test_apply_changes import LOCATION, table
from tests.support.airflow.airflow_connector import TaskState, connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException

SUBMIT = """#!{python}
import json, os, pathlib, sys, threading, time
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ)}}))
will = json.loads((folder / "will.json").read_text())
told = [json.loads(text) for name, text in zip(sys.argv, sys.argv[1:]) if name == "--apply"]
given = dict(zip(sys.argv, sys.argv[1:]))

def follow(one):
    with ApplyTurns(Storage(one["changelog"]), one["connector"], "delta", one["location"]).open_turn(given["--owner"]) as turn:
        while not turn.successor and time.monotonic() < end:
            time.sleep(0.02)
        turn.set_report(will["reports"][one["connector"]])

if "--run-for" in given:
    end = time.monotonic() + float(given["--run-for"])
    threads = [threading.Thread(target=follow, args=(one,)) for one in told if one["connector"] in will["reports"]]
    for thread in threads:
        thread.start()
    (folder / "works").touch()
    for thread in threads:
        thread.join()
else:
    for one in told:
        if one["connector"] in will["reports"]:
            ApplyReports(Storage(one["changelog"]), one["connector"]).write(will["reports"][one["connector"]])
sys.exit(will["status"])
"""
NAMES = ("shop", "bil-l.ing_2")


class Spark:
    """A stand-in for ``spark-submit``: a program that records its call, and ends as a test has set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(SUBMIT.format(python=sys.executable, folder=str(folder)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")

    def will(self, *reports: dict[str, Any], status: int = 0) -> None:
        """Set the reports that the next job writes, and its exit status."""
        document = {"reports": {report["connector"]: report for report in reports}, "status": status}
        (self.folder / "will.json").write_text(json.dumps(document))

    @property
    def called(self) -> bool:
        return (self.folder / "call.json").exists()

    @property
    def call(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "call.json").read_text()))

    @property
    def told(self) -> list[dict[str, Any]]:
        """Return the options that the call has for each connector."""
        arguments = self.call["arguments"]
        return [json.loads(text) for name, text in pairwise(arguments) if name == "--apply"]


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(tmp_path, monkeypatch)


def report(connector: str, *tables: dict[str, Any], last_batch: int = 4, **failed: str) -> dict[str, Any]:
    return {"connector": connector, "target": "delta", "last_batch": last_batch, "tables": list(tables)} | {
        "location": LOCATION, "failed": failed, "seconds": 1.5, "lagging": {}, "table_states": {},
    }  # fmt: skip


def definition(folder: Path, name: str, **more: Any) -> ConnectorDefinition:
    return ConnectorDefinition(name, "mariadb", f"{folder}/log of {name}", **more)


def apply(folder: Path, **more: Any) -> ApplyConnectorsOperator:
    given = more.pop("connectors", [definition(folder, name) for name in NAMES])
    common = {"location": LOCATION, "jars": "/jars/delta.jar", **more}
    return ApplyConnectorsOperator(task_id="apply", connectors=given, **common)


def events(given: Any) -> dict[str, Any]:
    found = [e for name in NAMES for e in given["outlet_events"][build_connector_alias(name)].asset_alias_events]
    return {e.dest_asset_key.uri: e.extra["rows"] for e in found}


def turns(folder: Path, name: str) -> ApplyTurns:
    return ApplyTurns(Storage(f"{folder}/log of {name}"), name, "delta", LOCATION)


# -- what is submitted ------------------------------------------------------------------------------------------------


def test_one_job_gets_the_options_of_each_connector(tmp_path: Path, spark: Spark) -> None:
    rules = [{"tables": r"s\.a", "mode": "log", "filter": "x = '{{ not rendered }}'"}]
    own = ConnectorApplyOptions(
        definition=definition(tmp_path, NAMES[1]), location="/other/{table}", profile="fast", writes="merge",
        tables=rules, threads=5, adopt=["it's a topic"], check_crc=True,
    )  # fmt: skip
    spark.will(report("shop"), {**report(NAMES[1]), "location": "/other/{table}"})
    apply(tmp_path, connectors=[definition(tmp_path, "shop"), own]).execute(context())
    first, second = spark.told
    assert first == {
        "connector": "shop", "changelog": f"{tmp_path}/log of shop", "location": LOCATION, "profile": "compatible",
        "writes": "auto", "threads": 2,
    }  # fmt: skip
    assert TableRules.parse(second.pop("tables")) == TableRules.parse(rules)
    assert second == {
        "connector": NAMES[1], "changelog": f"{tmp_path}/log of {NAMES[1]}", "location": "/other/{table}", "profile": "fast",
        "writes": "merge", "threads": 5, "adopt": ["it's a topic"], "check_crc": True,
    }  # fmt: skip
    arguments = spark.call["arguments"]
    assert arguments[arguments.index(job_path("apply_connectors.py")) :][-4:-1] == ["--target", "delta", "--owner"]


def test_what_the_job_is_reported_is_what_it_understands(tmp_path: Path, spark: Spark) -> None:
    from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec

    spark.will(*map(report, NAMES))
    rules = [{"tables": "a", "columns": {"constant": {"x": "{table} 'ö' $y"}}}]
    apply(tmp_path, tables=rules, check_crc=True).execute(context())
    for name, message in zip(NAMES, spark.told, strict=True):
        (spec,) = ConnectorSpec.parse(json.dumps(message, ensure_ascii=False))
        assert (spec.connector, spec.tables, spec.check_crc) == (name, TableRules.parse(rules), True)


def test_templates_are_rendered_and_rules_are_not(tmp_path: Path) -> None:
    own = ConnectorApplyOptions(
        definition=ConnectorDefinition("shop", "mariadb", "{{ ds }}/log", {}, {"endpoint": "{{ ds }}"}),
        adopt=["{{ ds }}"], storage_conn_id="{{ ds }}", tables=[{"tables": "a", "filter": "x = '{{ ds }}'"}],
    )  # fmt: skip
    operator = apply(tmp_path, connectors=[own], location="/lake/{{ ds }}/{table}")
    operator.render_template_fields({"ds": "today"})
    (tables,) = operator._connectors()
    assert (tables.location, tables.adopt) == ("/lake/today/{table}", ["today"])
    assert tables.access.definition.changelog == "today/log"
    assert (tables.access.definition.changelog_options, tables.access.storage_conn_id) == (
        {"endpoint": "today"},
        "today",
    )
    assert tables.rules.rules[0].filter == "x = '{{ ds }}'"


def test_storage_secrets_reach_the_job_by_connector_and_by_its_environment(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch, "lake", conn_type="generic", extra={"auto_mkdir": True})
    own = ConnectorApplyOptions(
        definition=definition(tmp_path, "shop", changelog_options={"use_listings_cache": False})
    )
    given = [own, ConnectorApplyOptions(definition=definition(tmp_path, NAMES[1]), storage_conn_id="lake")]
    spark.will(*map(report, NAMES))
    apply(tmp_path, connectors=given).execute(context())
    assert json.loads(spark.call["environment"]["CDC_STORAGE_OPTIONS"]) == {
        "shop": {"use_listings_cache": False},
        NAMES[1]: {"auto_mkdir": True},
    }
    assert "auto_mkdir" not in " ".join(spark.call["arguments"]) + "".join(capfd.readouterr())
    assert "CDC_STORAGE_OPTIONS" not in os.environ


def test_a_secret_that_would_be_seen_is_refused(tmp_path: Path, spark: Spark) -> None:
    there = "s3a://key:sesame@lake/{table}"
    for wrong in ({"location": there}, {"tables": [{"tables": "a", "location": there}]}):
        with pytest.raises(AirflowFailException, match=r"location.* of shop") as caught:
            apply(tmp_path, **wrong).execute(context())
        assert "sesame" not in str(caught.value)
    assert not spark.called


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"connectors": []}, "each connector only once"),
        ({"connectors": [ConnectorDefinition("shop", "mariadb", "/a")] * 2}, "given: shop, shop"),
        ({"location": None}, "tables of connector shop have no location"),
        ({"profile": "quick"}, "'quick' is not a table profile"),
        ({"target": "hudi"}, "'hudi' is not a kind of target"),
        ({"tables": [{"tables": "a", "mode": "histroy"}]}, "did you mean 'history'"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"run_for": 0}, "run_for must be more than 0"),
    ],
)
def test_what_cannot_be_used_is_refused_when_the_dag_is_parsed(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        apply(tmp_path, **wrong)


# -- a job that ends --------------------------------------------------------------------------------------------------


def test_the_tables_of_each_connector_get_their_events(tmp_path: Path, spark: Spark) -> None:
    spark.will(report("shop", table("s.a", c=2)), report(NAMES[1], table("s.a", u=5), table("s.b", d=1)))
    given = context()
    result = apply(tmp_path).execute(given)
    assert events(given) == {
        "cdc://shop/s.a": {"c": 2},
        f"cdc://{NAMES[1]}/s.a": {"u": 5},
        f"cdc://{NAMES[1]}/s.b": {"d": 1},
    }
    assert (result["events"], result["target"]) == (8, "delta")
    assert {name: one["events"] for name, one in result["connectors"].items()} == {"shop": 2, NAMES[1]: 6}


def _prepare_applied_connector(folder: Path, name: str) -> None:
    """A connector with nothing to apply: its table stands at the last batch."""
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.targets.lake.apply.up_to_date_check import read_table_stamp
    from tests.support.change_log.manifests import manifest

    changelog = ChangeLog(f"{folder}/log of {name}")
    changelog.commit_manifest(manifest(1, connector=name))
    commit = folder / name / "_delta_log" / f"{7:020d}.json"
    commit.parent.mkdir(parents=True)
    commit.write_text('{"commitInfo": {"txnId": "a"}}')
    stood = {
        "location": f"{folder}/{name}",
        "batch": 1,
        "stamp": read_table_stamp(changelog, "delta", f"{folder}/{name}"),
    }
    ApplyReports(changelog.storage, name).write({**report(name, last_batch=1), "table_states": {"s.a": stood}})


def test_only_connectors_with_something_new_are_submitted_and_without_any_no_job_is(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", conn_type="generic", extra={"auto_mkdir": True})
    _prepare_applied_connector(tmp_path, "shop")
    spark.will(report(NAMES[1], table("s.a", c=1)))
    given = context()
    result = apply(tmp_path, storage_conn_id="lake").execute(given)
    assert [one["connector"] for one in spark.told] == [NAMES[1]]
    # the job refuses options of connectors that are not in its arguments
    assert list(json.loads(spark.call["environment"]["CDC_STORAGE_OPTIONS"])) == [NAMES[1]]
    assert events(given) == {f"cdc://{NAMES[1]}/s.a": {"c": 1}}
    assert [one["last_batch"] for one in result["connectors"].values()] == [1, 4]
    (tmp_path / "call.json").unlink()
    _prepare_applied_connector(tmp_path, NAMES[1])
    assert apply(tmp_path).execute(context())["events"] == 0
    assert not spark.called


def test_what_has_failed_is_named_by_connector_and_the_next_try_announces_the_rest(
    tmp_path: Path, spark: Spark
) -> None:
    spark.will(report("shop", table("s.a", c=1), **{"s.b": "no room"}), report(NAMES[1], table("s.a", c=2)), status=1)
    remembered, given = TaskState(), context()
    with pytest.raises(AirflowException, match=r"tables of shop could not[\s\S]*s\.b: no room") as caught:
        apply(tmp_path).execute({**given, "task_state_store": remembered})
    assert NAMES[1] not in str(caught.value)
    assert events(given) == {}
    spark.will(report("shop", table("s.b", c=3)), report(NAMES[1]))
    given = context(task_state_store=remembered)
    apply(tmp_path).execute(given)
    assert events(given) == {"cdc://shop/s.a": {"c": 1}, "cdc://shop/s.b": {"c": 3}, f"cdc://{NAMES[1]}/s.a": {"c": 2}}


def test_one_of_which_the_job_says_nothing_is_named_and_the_others_are_remembered(tmp_path: Path, spark: Spark) -> None:
    spark.will(report(NAMES[1], table("s.a", c=2)), status=1)
    remembered = TaskState()
    with pytest.raises(AirflowException, match="Connector shop: the Spark job reported no result for it") as caught:
        apply(tmp_path).execute(context(task_state_store=remembered))
    assert "could not be applied" not in str(caught.value)
    assert '"c": 2' in str(remembered)
    spark.will(status=137)
    with pytest.raises(AirflowException, match="137") as caught:  # of none: only Spark's own error is known
        apply(tmp_path).execute(context())
    assert "no word" not in str(caught.value)


@pytest.mark.parametrize("run_for", [None, 0.1])
def test_one_that_cannot_be_opened_keeps_none_of_the_others(
    tmp_path: Path, spark: Spark, run_for: float | None
) -> None:
    given = [
        ConnectorApplyOptions(definition=definition(tmp_path, "shop"), storage_conn_id="there_is_none"),
        definition(tmp_path, NAMES[1]),
    ]
    spark.will(report(NAMES[1], table("s.a", c=2)))
    remembered = TaskState()
    with pytest.raises(AirflowException, match=r"Connector shop: .*there_is_none"):
        apply(tmp_path, connectors=given, run_for=run_for).execute(context(task_state_store=remembered))
    assert [one["connector"] for one in spark.told] == [NAMES[1]]
    assert '"c": 2' in str(remembered)


# -- a job that continues -----------------------------------------------------------------------------------------------


def test_a_job_that_goes_on_has_the_same_owner_in_all_turns_and_its_end_emits_the_events(
    tmp_path: Path, spark: Spark
) -> None:
    spark.will(report("shop", table("s.a", c=2)), report(NAMES[1], table("s.a", u=1)))
    given = context(task_state_store=TaskState())
    result = apply(tmp_path, run_for=0.1).execute(given)
    assert result["events"] == 3
    assert events(given) == {"cdc://shop/s.a": {"c": 2}, f"cdc://{NAMES[1]}/s.a": {"u": 1}}
    assert len({turns(tmp_path, name).newest_owner() for name in NAMES}) == 1


def test_a_task_that_is_killed_ends_all_turns_and_keeps_the_events_for_the_next_try(
    tmp_path: Path, spark: Spark
) -> None:
    spark.will(report("shop", table("s.a", c=2)), report(NAMES[1], table("s.a", u=1)))
    operator, remembered = apply(tmp_path, run_for=3600), TaskState()

    def kill() -> None:
        wait_until(lambda: all(turns(tmp_path, name).list_numbers() for name in NAMES))
        operator.on_kill()

    killer = ActionThread(tmp_path, kill)
    killer.start()
    with pytest.raises(AirflowException, match="the next try continues"):
        operator.execute(context(task_state_store=remembered))
    killer.join()
    for name in NAMES:
        assert (turns(tmp_path, name).read_turn(1) or {})["report"]["connector"] == name
    spark.will(*map(report, NAMES))
    given = context(task_state_store=remembered)
    apply(tmp_path, run_for=0.1).execute(given)
    assert events(given) == {"cdc://shop/s.a": {"c": 2}, f"cdc://{NAMES[1]}/s.a": {"u": 1}}


@pytest.mark.parametrize("taken_over", [(), ("shop",), NAMES])
def test_what_has_failed_is_tried_again_unless_another_one_goes_on_with_it(
    tmp_path: Path, spark: Spark, taken_over: tuple[str, ...]
) -> None:
    reports = [report(name, table("s.a", c=2), **{"s.b": f"no room for {name}"}) for name in NAMES]
    spark.will(*reports, status=1)

    def take_turn_late(name: str) -> None:
        wait_until(lambda: turns(tmp_path, name).list_numbers())
        with turns(tmp_path, name).open_turn("the next one"):
            pass

    threads = [threading.Thread(target=take_turn_late, args=(name,)) for name in taken_over]
    for thread in threads:
        thread.start()
    remembered = TaskState()
    with pytest.raises(AirflowException, match=r"no room for shop[\s\S]*no room for bil") as caught:
        apply(tmp_path, run_for=3.0).execute(context(task_state_store=remembered))
    for thread in threads:
        thread.join()
    assert isinstance(caught.value, AirflowFailException) == (taken_over == NAMES)
    assert len(remembered) == (0 if taken_over == NAMES else 2)
    spark.will(*map(report, NAMES))
    given = context(task_state_store=remembered)
    apply(tmp_path, run_for=0.1).execute(given)  # the next try, or the next run
    assert events(given) == {f"cdc://{name}/s.a": {"c": 2} for name in NAMES}


def test_lineage_has_the_tables_of_all_connectors(tmp_path: Path, spark: Spark) -> None:
    spark.will(report("shop", table("s.a", c=2)), report(NAMES[1], {**table("s.b", u=5), "location": "/lake/s.a"}))
    operator = apply(tmp_path)
    operator.execute(context())
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert [one.name for one in lineage.inputs] == [
        f"{tmp_path}/log of shop/shop/s.a",
        f"{tmp_path}/log of {NAMES[1]}/{NAMES[1]}/s.b",
    ]
    assert [one.name for one in lineage.outputs] == ["/lake/s.a"]  # a table that both share
