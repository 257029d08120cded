"""The maintenance task: what it submits, and what it makes of the job's report.

A stand-in for ``spark-submit`` records how it was called; the real one is at work in ``tests/system``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_cdc.operators.retention import RetentionOperator
from airflow_provider_cdc.state.models import OffsetHistoryRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, cdc_command
from tests.support.change_log.manifests import manifest

LOCATION = "/lake/{database}/{table}"
SUBMIT = """#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
from airflow_provider_cdc.changelog.reports.table_maintenance_report import MaintenanceReports
from airflow_provider_cdc.changelog.files.storage import Storage
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps(sys.argv[1:]))
run = sys.argv[sys.argv.index("--run-id") + 1]
if (folder / "report.json").exists():
    report = json.loads((folder / "report.json").read_text())
    MaintenanceReports(Storage(f"{{folder}}/changelog"), "shop").write({{"run": run, **report}})
sys.exit(int((folder / "status").read_text()))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    root = str(Path(__file__).resolve().parents[2])
    program.write_text(SUBMIT.format(python=sys.executable, folder=str(tmp_path), root=root))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    store = StateStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    store.close()
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{tmp_path}/state.db")
    return tmp_path


def _task(folder: Path, *, properties: dict[str, Any] | None = None, **more: Any) -> MaintainTablesOperator:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", properties or {}, {})
    return MaintainTablesOperator(task_id="maintain", definition=definition, location=LOCATION, **more)


def _set_outcome(folder: Path, status: int, *tables: dict[str, Any], **more: Any) -> None:
    report = {"connector": "shop", "target": "delta", "location": LOCATION, "tables": tables, "seconds": 2.5, **more}
    if tables:
        (folder / "report.json").write_text(json.dumps(report))
    (folder / "status").write_text(str(status))


def _table(topic: str, problem: str = "", **steps: bool) -> dict[str, Any]:
    text = {name: {"changed": changed, "said": f"said of {name}"} for name, changed in steps.items()}
    return {"topic": topic, "location": f"/lake/{topic}", "steps": text, "problem": problem, "seconds": 1.0}


def test_it_submits_the_job_and_reports_what_was_done_and_what_was_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _set_outcome(folder, 0, _table("a", compact=True, vacuum=False), _table("b", compact=False))
    done = _task(folder, keep=timedelta(days=2), threads=3).execute(context())
    assert {**done, "changelog": None} == {
        "connector": "shop", "target": "delta", "tables": {"a": ["compact"]}, "seconds": 2.5, "changelog": None,
        "state": {"problem": "", "removed": {"offset_history": 0, "batches": 0, "notifications": 0, "signals": 0}},
    }  # fmt: skip
    assert done["changelog"]["why"] == "the change log contains no batch"
    called = json.loads((folder / "call.json").read_text())
    given = called[called.index(job_path("maintain_tables.py")) + 1 :]
    assert given[:-2] == [
        "--changelog", f"{folder}/changelog", "--connector", "shop", "--location", LOCATION, "--target", "delta",
        "--keep-hours", "48", "--threads", "3",
    ]  # fmt: skip
    assert given[-2:] == ["--run-id", "d/t/r/1"]
    assert called[called.index("--packages") + 1].startswith("io.delta:")
    output = capsys.readouterr().out
    assert "  vacuum: said of vacuum (nothing to do)" in output
    assert "  compact: said of compact  " in output


def test_a_table_that_could_not_be_maintained_fails_the_task_and_is_named(folder: Path) -> None:
    _set_outcome(folder, 1, _table("a", compact=True), _table("b", "compact: the disk is full"))
    with pytest.raises(AirflowException, match=r"1 tables of shop could not be maintained:\n  b: compact: the disk"):
        _task(folder).execute(context())


def _applied_change_log(folder: Path, batches: int) -> ChangeLog:
    """A change log of which a target has everything."""
    changelog = ChangeLog(f"{folder}/changelog")
    for n in range(1, batches + 1):
        changelog.commit_manifest(
            manifest(n, first=2 * n, changes=0, connector="shop", files=[], created_at="2026-03-01T00:00:00+00:00")
        )
    reports = ApplyReports(changelog.storage, "shop")
    reports.write({**reports.register_target("delta", LOCATION), "last_batch": batches})
    return changelog


AT_ONCE = {"changelog.retention.ms": 0}


def test_batches_that_no_target_needs_are_removed_whatever_becomes_of_the_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog = _applied_change_log(folder, 3)
    _set_outcome(folder, 0, _table("a", compact=True))
    done = _task(folder).execute(context())
    assert done["changelog"]["removed"] == 0  # they stay for a week
    done = _task(folder, properties=AT_ONCE, retention=False).execute(context())
    assert done["changelog"] is done["state"] is None
    assert changelog.list_batches("shop") == [1, 2, 3]
    _set_outcome(folder, 1, _table("b", "compact: the disk is full"))
    with pytest.raises(AirflowException, match="compact: the disk is full") as caught:
        _task(folder, properties=AT_ONCE).execute(context())
    assert "Old batches" not in str(caught.value)
    assert changelog.list_batches("shop") == [3]
    assert (
        "Batches 1 to 2 are removed, because all targets had applied them for longer than changelog.retention.ms=0; 3 to 3 stay."
        in capsys.readouterr().out
    )


def test_what_holds_batches_back_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changelog = _applied_change_log(folder, 3)
    ApplyReports(changelog.storage, "shop").register_target("iceberg", LOCATION)
    _set_outcome(folder, 0, _table("a", compact=True))
    done = _task(folder, properties=AT_ONCE).execute(context())
    assert [(hold["target"], hold["after"]) for hold in done["changelog"]["holds"]] == [("iceberg", 0)]
    output = capsys.readouterr().out
    command = f"forget-target shop --target iceberg --location '{LOCATION}' --confirm shop"
    assert cdc_command(command) in output


@pytest.mark.parametrize("failing", [False, True])
def test_a_change_log_that_cannot_be_maintained_keeps_no_table_from_it(folder: Path, *, failing: bool) -> None:
    _applied_change_log(folder, 3)
    _set_outcome(folder, int(failing), _table("a", "compact: the disk is full" if failing else "", compact=True))
    with pytest.raises(AirflowException, match=r"changelog\.retention\.ms is 'soon'") as caught:
        _task(folder, properties={"changelog.retention.ms": "soon"}).execute(context())
    assert ("the disk is full" in str(caught.value)) == failing
    assert (folder / "call.json").exists()


def test_change_log_and_state_are_maintained_without_spark(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changelog = _applied_change_log(folder, 3)
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", AT_ONCE, {})
    planned = RetentionOperator(task_id="retention", definition=definition, dry_run=True).execute(context())
    plan = planned["changelog"]
    assert planned["state"] == {"problem": "", "removed": None}
    assert (plan["removed"], plan["keep"]) == (2, 3)
    assert changelog.list_batches("shop") == [1, 2, 3]
    done = RetentionOperator(task_id="retention", definition=definition).execute(context())
    assert done["changelog"] == plan
    assert done["state"]["removed"] is not None
    assert changelog.list_batches("shop") == [3]
    assert not (folder / "call.json").exists()
    wrong = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {"changelog.retention.bytes": -5}, {})
    with pytest.raises(AirflowFailException, match="must be a number of at least -1"):
        RetentionOperator(task_id="retention", definition=wrong).execute(context())
    assert "Old batches of shop could not be removed" in capsys.readouterr().out


def test_a_job_without_a_report_of_its_own_is_a_failure(folder: Path) -> None:
    _set_outcome(folder, 0)
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(folder).execute(context())
    _set_outcome(folder, 0, _table("a", compact=True), run="another one")
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(folder).execute(context())
    _set_outcome(folder, 2)
    with pytest.raises(AirflowException, match="Cannot execute"):
        _task(folder).execute(context())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"keep": 0.5}, "1 hour or longer"), ({"keep": timedelta(0)}, "keep must be more than 0 seconds"), ({"target": "hudi"}, "Valid values are"),
        ({"application": "x.py"}, "cannot be set"), ({"threads": 0}, "threads must be at least 1, but is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_when_the_dag_is_parsed(folder: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        _task(folder, **given)


def test_a_secret_is_refused_before_anything_is_submitted(folder: Path) -> None:
    _set_outcome(folder, 0)
    task = _task(folder, conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    with pytest.raises(AirflowException, match="A secret would be on the command line"):
        task.execute(context())
    assert not (folder / "call.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"conf": {"spark.sql.catalog.lake.uri": "jdbc:postgresql://db/iceberg?user=cdc&password=sesame"}}, r"conf\[spark\.sql\.catalog\.lake\.uri\]"),
        ({"conf": {"spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.trustStorePassword=sesame"}}, r"conf\[spark\.driver\.extraJavaOptions\]"),
        ({"changelog": "s3://key:sesame@lake/changelog"}, "changelog"),
    ],
)  # fmt: skip
def test_a_secret_within_a_setting_or_an_address_is_refused_too(
    folder: Path, given: dict[str, Any], message: str
) -> None:
    _set_outcome(folder, 0)
    task = _task(folder, conf=given.get("conf"))
    task.changelog = given.get("changelog", task.changelog)  # as a template may have put it there
    with pytest.raises(
        AirflowException, match=f"A secret would be on the command line of spark-submit: {message}"
    ) as e:
        task.execute(context())
    assert "sesame" not in str(e.value)
    assert not (folder / "call.json").exists()


def test_secrets_in_the_environment_are_refused_where_they_would_be_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_outcome(folder, 0, _table("a", compact=True))
    _task(folder, env_vars={"AWS_SECRET_ACCESS_KEY": "sesame"}).execute(context())
    assert "sesame" not in (folder / "call.json").read_text()
    (folder / "call.json").unlink()
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    with pytest.raises(AirflowException, match=r"command line of spark-submit: env_vars\[AWS_SECRET_ACCESS_KEY\]"):
        _task(folder, env_vars={"AWS_SECRET_ACCESS_KEY": "sesame"}).execute(context())
    assert not (folder / "call.json").exists()


def test_settings_without_a_secret_in_them_are_taken(folder: Path) -> None:
    _set_outcome(folder, 0, _table("a", compact=True))
    java = "-XX:+UseG1GC -Dlog4j2.x=file:///a:b@c -Dcom.amazonaws.credentials.provider=x.Y"
    conf = {"spark.sql.catalog.lake.uri": "https://catalog.example.com:8181/v1", "spark.driver.extraJavaOptions": java}
    _task(folder, conf=conf).execute(context())
    assert java in (folder / "call.json").read_text()


def test_a_machine_without_spark_is_an_error_that_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bin" / "spark-submit").unlink()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))  # nor is it beside it
    with pytest.raises(AirflowException, match=r"The program spark-submit[\s\S]*airflow-provider-cdc\[spark\]"):
        _task(folder).execute(context())


HOUR = {"state.retention.offset.history.ms": 3_600_000}


@pytest.fixture
def store(folder: Path) -> Iterator[StateStore]:
    """State with four offsets, which are two hours old."""
    store = StateStore(f"sqlite:///{folder}/state.db")
    with store.acquire_lease("shop", "me", wait_s=0) as lease:
        stored = store.load_offset("shop")
        for n in range(4):
            stored = store.advance_offset(lease, stored, Offset(position={"entry": n}))
    with store.database.open_transaction() as c:
        c.execute(sa.update(OffsetHistoryRow).values(created_at=datetime.now(UTC) - timedelta(hours=2)))
    yield store
    store.close()


def test_old_rows_of_the_state_tables_are_removed_whatever_becomes_of_the_tables(
    folder: Path, store: StateStore
) -> None:
    _set_outcome(folder, 1, _table("a", "compact: the disk is full"))
    with pytest.raises(AirflowException, match="1 tables of shop could not be maintained"):
        _task(folder, properties=HOUR, retention=False).execute(context())
    assert [r.version for r in store.offset_history("shop")] == [4, 3, 2, 1]
    with pytest.raises(AirflowException, match="1 tables of shop could not be maintained"):
        _task(folder, properties=HOUR).execute(context())
    assert [r.version for r in store.offset_history("shop")] == [4]


def test_state_tables_that_cannot_be_reached_keep_neither_log_nor_tables_from_maintenance(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog = _applied_change_log(folder, 3)
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="")
    _set_outcome(folder, 0, _table("a", compact=True))
    with pytest.raises(AirflowException, match=r"Connection cdc_state_default has no URL"):
        _task(folder, properties=AT_ONCE).execute(context())
    assert changelog.list_batches("shop") == [3]
    assert (folder / "call.json").exists()
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {"changelog.retention.ms": "soon"}, {})
    with pytest.raises(AirflowException, match=r"is 'soon'[\s\S]*rows of shop in the state tables[\s\S]*has no URL"):
        RetentionOperator(task_id="retention", definition=definition).execute(context())
