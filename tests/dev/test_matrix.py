"""Tests with other versions: what is installed, which tests run, and the table; without making an environment."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from pathlib import Path

import pytest

from dev import matrix, paths
from dev.bootstrap import jars
from dev.bootstrap.report import Step

PAGE = f"# Versions\n\n{matrix.BEGIN}\n| combination |\n| --- |\n| `old` | 1 |\n| `gone` | 1 |\n{matrix.END}\n\nmore\n"


@pytest.fixture
def row() -> matrix.Row:
    return matrix.Row(
        "airflow", "new", "3.11", ("apache-airflow==3.1.8",), ("apache-airflow", "absent"), ("tests/dag",)
    )


def test_every_test_of_the_plan_is_there_and_every_name_once() -> None:
    plan = matrix.read_plan()
    assert [path for row in plan for path in row.tests if not (paths.ROOT / path).exists()] == []
    assert len({row.name for row in plan}) == len(plan)


def test_the_plan_has_each_airflow_that_the_project_takes() -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    assert "apache-airflow>=3.1,<3.4" in project["dependencies"]
    tried = {row.packages[0].rpartition(".")[0] for row in matrix.read_plan() if row.kind == "airflow"}
    assert tried == {f"apache-airflow==3.{minor}" for minor in (1, 2, 3)}


def test_packages_of_a_row_replace_the_requirements_of_the_project() -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    asked = matrix.build_requirements(["apache_airflow==3.1.8", "pyspark==4.0.2"], project)
    assert [r for r in asked if matrix.name_of(r) in ("apache-airflow", "pyspark")] == [
        "apache_airflow==3.1.8",
        "pyspark==4.0.2",
    ]
    assert {"pytest", "alembic", "pymysql"} <= {matrix.name_of(r) for r in asked}
    assert not any(matrix.name_of(r) == matrix.OWN for r in asked)


def test_only_requirements_with_the_given_names_are_added_to_those_of_the_project() -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    asked = matrix.build_requirements(["apache-airflow==3.1.8"], project, only=["pytest"])
    own = {matrix.name_of(r) for r in project["project"]["dependencies"]}
    assert {matrix.name_of(r) for r in asked} == own | {"pytest"}


PLAN = """
[airflow]
show = []
tests = ["tests/dag"]
[quick]
tests = ["tests/hooks"]
requirements = ["pytest"]
[spark]
show = []
tests = []
"""
ROW = '[[row]]\nkind = "{0}"\nname = "{1}"\npython = "3.11"\npackages = ["apache-airflow=={1}"]\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Write a plan with Airflow 3.9.8, 3.10.1 and 3.11.0, in no order, and a row of Spark."""
    file = tmp_path / "matrix.toml"
    rows = [ROW.format("airflow", version) for version in ("3.10.1", "3.11.0", "3.9.8")]
    file.write_text(PLAN + "".join([ROW.format("spark", "1.0.0"), *rows]))
    return file


@pytest.mark.parametrize(
    ("locked", "names"), [("3.11.0", ["3.9.8-quick", "3.10.1-quick"]), ("3.9.8", ["3.10.1-quick", "3.11.0-quick"])]
)
def test_builds_try_the_oldest_airflow_and_the_newest_that_is_not_locked_by_turns(
    plan: Path, locked: str, names: list[str]
) -> None:
    chosen = [matrix.choose_quick_row(seed, locked, plan) for seed in range(4)]
    assert [row.name for row in chosen] == names * 2
    assert {(row.kind, row.tests, row.requirements) for row in chosen} == {("airflow", ("tests/hooks",), ("pytest",))}


def test_a_build_tries_an_airflow_that_the_other_tests_do_not_run_with() -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    locked = matrix.read_locked_version("apache-airflow")
    for seed in (0, 1):
        row = matrix.choose_quick_row(seed, locked)
        assert f"apache-airflow=={locked}" not in row.packages
        assert [path for path in row.tests if not (paths.ROOT / path).exists()] == []
        asked = matrix.build_requirements([], project, row.requirements)
        assert set(row.requirements) <= {matrix.name_of(r) for r in asked}


def test_an_environment_is_made_once(row: matrix.Row, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    binary, calls = tmp_path / "uv", tmp_path / "calls"
    binary.write_text(STAND_IN.format(calls=calls, python=row.interpreter))
    binary.chmod(0o755)
    results = []
    for _ in range(2):
        step = Step(quiet=True)
        matrix.make_environment(row, binary, step)
        results.append(step.result)
    assert results == ["made", "unchanged"]
    assert calls.read_text().split() == ["export", "pip", "venv", "pip", "pip"]


def test_packages_that_cannot_be_fetched_are_a_failure_of_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    monkeypatch.setattr("dev.bootstrap.uv.ensure", lambda _: Path("/bin/false"))
    monkeypatch.setattr("sys.argv", ["matrix", "airflow", "--quick"])
    assert matrix.main() == 1
    assert "reading uv.lock failed with exit code 1" in capsys.readouterr().err


STAND_IN = """#!/bin/sh
# a stand-in for uv: it fetches and resolves nothing
echo $1 >> {calls}
[ "$1" != venv ] || {{ mkdir -p $(dirname {python}); touch {python}; }}
"""


def test_counts_are_those_of_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert matrix.count_cases(report) == {"passed": 0, "skipped": 0, "failed": []}
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="x"/><testcase classname="a" name="y"><skipped/></testcase>'
        '<testcase classname="b" name="z"><failure/></testcase><testcase classname="b" name="w"><error/></testcase></testsuite></testsuites>'
    )
    assert matrix.count_cases(report) == {"passed": 1, "skipped": 1, "failed": ["b::w", "b::z"]}


def test_a_row_that_was_not_run_keeps_its_line_and_one_that_is_gone_does_not(row: matrix.Row) -> None:
    versions = {"python": "3.11.7", "apache-airflow": "3.1.8"}
    result = {"versions": versions, "passed": 7, "failed": ["x"], "skipped": 2, "status": 1, "date": "2026-01-02"}
    old = dataclasses.replace(row, name="old")
    page = matrix.render_table([row, old], {"new": result}, PAGE)
    assert page.startswith("# Versions")
    assert page.endswith(f"{matrix.END}\n\nmore\n")
    assert "| `new` | 3.11.7 | apache-airflow 3.1.8 | 7 | 1 | 2 | 2026-01-02 |\n| `old` | 1 |\n" in page
    assert "`gone`" not in page
    assert matrix.render_table([row, old], {}, page) == page


def test_a_run_that_has_ended_early_is_no_success(row: matrix.Row) -> None:
    result = {
        "versions": {"python": "3.11.7"},
        "passed": 0,
        "failed": [],
        "skipped": 0,
        "status": 4,
        "date": "2026-01-02",
    }
    assert "| 0, ended early |" in matrix.format_result(row, result)


def test_a_row_of_spark_has_the_versions_of_its_jars(
    row: matrix.Row, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    spark = dataclasses.replace(row, show=("pyspark",), jars=("delta", "iceberg"))
    spark.interpreter.parent.mkdir(parents=True)
    spark.interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    spark.interpreter.chmod(0o755)
    versions = matrix.read_versions(spark)
    files = {jar.file_name for jar in jars.list_jars("delta", "iceberg")}
    assert f"delta-storage-{versions['delta']}.jar" in files
    assert any(name.endswith(f"-{versions['iceberg']}.jar") for name in files)
    result = {"versions": versions, "passed": 1, "failed": [], "skipped": 0, "status": 0, "date": "2026-01-02"}
    assert f"| pyspark {versions['pyspark']}, delta {versions['delta']}, iceberg " in matrix.format_result(
        spark, result
    )
