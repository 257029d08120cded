"""The maintenance task: what it submits, and what it makes of the job's report.

A stand-in for ``spark-submit`` records how it was called; the real one is at work in ``tests/system``.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_cdc.operators.spark_job import job_path
from airflow_provider_cdc.runtime import ConnectorDefinition
from tests.support.face import connect, context

LOCATION = "/lake/{database}/{table}"
SUBMIT = """#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
from airflow_provider_cdc.changelog.maintained import MaintenanceReports
from airflow_provider_cdc.changelog.storage import Storage
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
    return tmp_path


def _task(folder: Path, **more: Any) -> MaintainTablesOperator:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {}, {})
    return MaintainTablesOperator(task_id="maintain", definition=definition, location=LOCATION, **more)


def _will(folder: Path, status: int, *tables: dict[str, Any], **more: Any) -> None:
    report = {"connector": "shop", "target": "delta", "location": LOCATION, "tables": tables, "seconds": 2.5, **more}
    if tables:
        (folder / "report.json").write_text(json.dumps(report))
    (folder / "status").write_text(str(status))


def _table(topic: str, problem: str = "", **steps: bool) -> dict[str, Any]:
    said = {name: {"changed": changed, "said": f"said of {name}"} for name, changed in steps.items()}
    return {"topic": topic, "location": f"/lake/{topic}", "steps": said, "problem": problem, "seconds": 1.0}


def test_it_submits_the_job_and_tells_what_was_done_and_what_was_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _will(folder, 0, _table("a", compact=True, vacuum=False), _table("b", compact=False))
    done = _task(folder, keep=timedelta(days=2), threads=3).execute(context())
    assert done == {"connector": "shop", "target": "delta", "tables": {"a": ["compact"]}, "seconds": 2.5}
    called = json.loads((folder / "call.json").read_text())
    given = called[called.index(job_path("maintain_tables.py")) + 1 :]
    assert given[:-2] == [
        "--changelog", f"{folder}/changelog", "--connector", "shop", "--location", LOCATION, "--target", "delta",
        "--keep-hours", "48", "--threads", "3",
    ]  # fmt: skip
    assert given[-2:] == ["--run-id", "d/t/r/1"]
    assert called[called.index("--packages") + 1].startswith("io.delta:")
    said = capsys.readouterr().out
    assert "  vacuum: said of vacuum (nothing to do)" in said
    assert "  compact: said of compact  " in said


def test_a_table_that_could_not_be_maintained_fails_the_task_and_is_named(folder: Path) -> None:
    _will(folder, 1, _table("a", compact=True), _table("b", "compact: the disk is full"))
    with pytest.raises(AirflowException, match=r"1 tables of shop could not be maintained:\n  b: compact: the disk"):
        _task(folder).execute(context())


def test_a_job_without_a_report_of_its_own_is_a_failure(folder: Path) -> None:
    _will(folder, 0)
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(folder).execute(context())
    _will(folder, 0, _table("a", compact=True), run="another one")
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(folder).execute(context())
    _will(folder, 2)
    with pytest.raises(AirflowException, match="Cannot execute"):
        _task(folder).execute(context())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"keep": 0.5}, "1 hour or longer"), ({"keep": timedelta(0)}, "1 hour or longer"), ({"target": "hudi"}, "Valid values are"),
        ({"application": "x.py"}, "cannot be set"), ({"threads": 0}, "threads must be 1 at least, and is 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_when_the_dag_is_parsed(folder: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        _task(folder, **given)


def test_a_secret_is_refused_before_anything_is_submitted(folder: Path) -> None:
    _will(folder, 0)
    task = _task(folder, conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    with pytest.raises(AirflowException, match="A secret would be on the command line"):
        task.execute(context())
    assert not (folder / "call.json").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"conf": {"spark.sql.catalog.lake.uri": "jdbc:postgresql://db/iceberg?user=cdc&password=sesame"}}, r"conf\[spark\.sql\.catalog\.lake\.uri\]"),
        ({"conf": {"spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.trustStorePassword=sesame"}}, r"conf\[spark\.driver\.extraJavaOptions\]"),
        ({"changelog": "s3://key:sesame@lake/changelog"}, "changelog"),
    ],
)  # fmt: skip
def test_a_secret_within_a_setting_or_an_address_is_refused_too(folder: Path, given: dict[str, Any], told: str) -> None:
    _will(folder, 0)
    task = _task(folder, conf=given.get("conf"))
    task.changelog = given.get("changelog", task.changelog)  # as a template may have put it there
    with pytest.raises(AirflowException, match=f"A secret would be on the command line of spark-submit: {told}") as e:
        task.execute(context())
    assert "sesame" not in str(e.value)
    assert not (folder / "call.json").exists()


def test_secrets_in_the_environment_are_refused_where_they_would_be_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _will(folder, 0, _table("a", compact=True))
    _task(folder, env_vars={"AWS_SECRET_ACCESS_KEY": "sesame"}).execute(context())
    assert "sesame" not in (folder / "call.json").read_text()
    (folder / "call.json").unlink()
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    with pytest.raises(AirflowException, match=r"command line of spark-submit: env_vars\[AWS_SECRET_ACCESS_KEY\]"):
        _task(folder, env_vars={"AWS_SECRET_ACCESS_KEY": "sesame"}).execute(context())
    assert not (folder / "call.json").exists()


def test_settings_without_a_secret_in_them_are_taken(folder: Path) -> None:
    _will(folder, 0, _table("a", compact=True))
    java = "-XX:+UseG1GC -Dlog4j2.x=file:///a:b@c -Dcom.amazonaws.credentials.provider=x.Y"
    conf = {"spark.sql.catalog.lake.uri": "https://catalog.example.com:8181/v1", "spark.driver.extraJavaOptions": java}
    _task(folder, conf=conf).execute(context())
    assert java in (folder / "call.json").read_text()


def test_a_machine_without_spark_is_an_error_that_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bin" / "spark-submit").unlink()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))  # nor is it beside it
    with pytest.raises(AirflowException, match=r"There is no program spark-submit[\s\S]*airflow-provider-cdc\[spark\]"):
        _task(folder).execute(context())
