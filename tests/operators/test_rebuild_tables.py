"""The task that builds tables again: what it submits, and what it makes of the job's report.

A stand-in for ``spark-submit`` records how it was called; the real one is at work in ``tests/targets/lake``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
from airflow_provider_cdc.operators.rebuild_tables import RebuildTablesOperator
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException

LOCATION = "/lake/{database}/{table}"
SUBMIT = """#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
from airflow_provider_cdc.changelog.reports.rebuild_report_store import RebuildReports
from airflow_provider_cdc.changelog.files.storage import Storage
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps(sys.argv[1:]))
run = sys.argv[sys.argv.index("--run-id") + 1]
if (folder / "report.json").exists():
    report = json.loads((folder / "report.json").read_text())
    RebuildReports(Storage(f"{{folder}}/changelog"), "shop").write({{"run": run, **report}})
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


def _task(folder: Path, **more: Any) -> RebuildTablesOperator:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", {}, {})
    given = {"tables": ["s.a", "s.it's"], **more}
    return RebuildTablesOperator(task_id="rebuild", definition=definition, location=LOCATION, **given)


def _set_outcome(folder: Path, status: int, *built: str, problem: str = "") -> None:
    tables = [{"topic": topic, "location": f"/lake/{topic}", "batch": 7, "seconds": 1.0} for topic in built]
    report = {"connector": "shop", "target": "delta", "location": LOCATION, "tables": tables, "problem": problem}
    if built or problem:
        (folder / "report.json").write_text(json.dumps({**report, "seconds": 2.5}))
    (folder / "status").write_text(str(status))


def test_it_submits_the_job_and_reports_what_was_built(folder: Path) -> None:
    _set_outcome(folder, 0, "shop.s.a", "shop.s.it_s")
    done = _task(folder, to="/beside/{table}", batch=7).execute(context())
    built = {"shop.s.a": 7, "shop.s.it_s": 7}
    assert done == {"connector": "shop", "target": "delta", "tables": built, "seconds": 2.5}
    called = json.loads((folder / "call.json").read_text())
    given = called[called.index(job_path("rebuild_tables.py")) + 1 :]
    assert given[:-2] == [
        "--changelog", f"{folder}/changelog", "--connector", "shop", "--location", LOCATION, "--target", "delta",
        "--topic", "s.a", "--topic", "s.it's", "--to", "/beside/{table}", "--batch", "7",
    ]  # fmt: skip


def test_names_of_route_tables_and_a_time_reach_the_job(folder: Path) -> None:
    _set_outcome(folder, 0, "shop.s.a", "shop.s.a")
    written = json.loads((folder / "report.json").read_text())
    for number, one in enumerate(written["tables"]):
        one |= {"name": f"shop.s.a → /lake/{number}", "batch": number}
    (folder / "report.json").write_text(json.dumps(written))
    done = _task(folder, tables="/lake/it's one", to="/b/{place}", time="2026-03-01T12:00:00+00:00").execute(context())
    assert done["tables"] == {"shop.s.a → /lake/0": 0, "shop.s.a → /lake/1": 1}
    called = json.loads((folder / "call.json").read_text())
    given = called[called.index("--topic") :]
    assert given[:-2] == ["--topic", "/lake/it's one", "--to", "/b/{place}", "--time", "2026-03-01T12:00:00+00:00"]


def test_a_table_that_cannot_be_built_fails_the_task_which_names_those_that_are(folder: Path) -> None:
    _set_outcome(folder, 1, "shop.s.a", problem="The table of shop.s.it_s does not exist.\n  Repair: run the apply")
    with pytest.raises(
        AirflowException,
        match=r"table of shop.s.it_s does not exist.\n  Repair: run the apply\n  Rebuilt before the error: shop.s.a",
    ):
        _task(folder).execute(context())


def test_a_job_without_a_report_and_no_table_at_all_are_failures(folder: Path) -> None:
    _set_outcome(folder, 0)
    with pytest.raises(AirflowException, match="wrote no report"):
        _task(folder).execute(context())
    (folder / "call.json").unlink()
    with pytest.raises(AirflowFailException, match="No table to rebuild is named"):
        _task(folder, tables=[]).execute(context())
    with pytest.raises(AirflowFailException, match=r"'last week' is not a time\.[\s\S]*2026-03-01T12:00:00"):
        _task(folder, to="/beside/{table}", time="last week").execute(context())
    assert not (folder / "call.json").exists()


def test_a_secret_in_the_place_to_build_at_is_refused(folder: Path) -> None:
    _set_outcome(folder, 0, "shop.s.a")
    with pytest.raises(AirflowFailException, match="command line of spark-submit: to") as e:
        _task(folder, to="s3a://key:sesame@lake/{table}").execute(context())
    assert "sesame" not in str(e.value)
    assert not (folder / "call.json").exists()
