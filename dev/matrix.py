"""Runs tests with other versions of Airflow and Spark than those of ``uv.lock``: ``dev/test --matrix airflow``.

python -m dev.matrix KIND [--only NAME…]   make the environments of dev/matrix.toml, run the tests, write results and the table
python -m dev.matrix airflow --quick       a few tests with the oldest Airflow or the newest that is not in uv.lock, by turns: in the build
python -m dev.matrix --table               write the table of docs/start/versions.md from the results
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev import paths
from dev.bootstrap import uv
from dev.bootstrap.jars import list_jars
from dev.bootstrap.report import Problem, Report, Step
from dev.bootstrap.venv import uv_environment

PLAN = paths.ROOT / "dev" / "matrix.toml"
FOLDER = paths.ROOT / ".dev" / "matrix"
"""A folder of this working copy alone: its environments have the working copy installed."""
RESULTS = FOLDER / "results.json"
PAGE = paths.ROOT / "docs" / "start" / "versions.md"
BEGIN, END = "<!-- python -m dev.matrix --table -->", "<!-- end -->"
OWN = "airflow-provider-cdc"
HEADS = ("combination", "Python", "versions", "passed", "failed", "skipped", "date")


@dataclass(frozen=True, slots=True)
class Row:
    """A combination of versions.

    :param kind: ``airflow`` or ``spark``: the table of the plan that says which tests run
    :param python: version, or path of the interpreter
    :param packages: requirements that replace those of the same names
    :param show: packages whose versions the table shows
    :param tests: paths of tests
    :param jars: groups of ``dev/jars.toml`` whose versions the table shows
    :param deselect: expression of marks, for ``pytest -m``
    :param requirements: names of those requirements of extras and of ``dev`` that are installed; empty = all
    """

    kind: str
    name: str
    python: str
    packages: tuple[str, ...]
    show: tuple[str, ...]
    tests: tuple[str, ...]
    jars: tuple[str, ...] = ()
    deselect: str = ""
    requirements: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def interpreter(self) -> Path:
        """The Python of the row's environment."""
        return self.folder / "venv" / "bin" / "python"


def read_plan(file: Path = PLAN) -> list[Row]:
    """Return all combinations of ``dev/matrix.toml``; a row takes from the table of its kind what it does not say itself."""
    plan = tomllib.loads(file.read_text())
    rows = []
    for own in plan["row"]:
        rows.append(Row(**_freeze_lists({**plan[own["kind"]], **own})))
    return rows


def _freeze_lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def choose_quick_row(seed: int, locked: str, file: Path = PLAN) -> Row:
    """Return the row of Airflow that a build tries, with the tests and the requirements of ``[quick]``.

    By turns it is the oldest row or the newest one whose Airflow is not that of ``uv.lock``. It has the Python that runs this, which the build
    machine has.

    :param seed: of the build; even = the oldest
    :param locked: version of Airflow in ``uv.lock``
    """
    others = [row for row in read_plan(file) if row.kind == "airflow" and _airflow_of(row) != _numbers(locked)]
    chosen = (min if seed % 2 == 0 else max)(others, key=_airflow_of)
    quick = _freeze_lists(tomllib.loads(file.read_text())["quick"])
    return replace(
        chosen, name=f"{chosen.name}-quick", python=getattr(sys, "_base_executable", sys.executable), **quick
    )


def _airflow_of(row: Row) -> tuple[int, ...]:
    (pin,) = (package for package in row.packages if name_of(package) == "apache-airflow")
    return _numbers(pin.rpartition("==")[2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def read_locked_version(package: str) -> str:
    """Return the version of a package in ``uv.lock``."""
    lock = tomllib.loads((paths.ROOT / "uv.lock").read_text())
    (found,) = (entry["version"] for entry in lock["package"] if entry["name"] == package)
    return str(found)


# environments


def build_requirements(packages: Iterable[str], project: Mapping[str, Any], only: Collection[str] = ()) -> list[str]:
    """Everything that the project and its tests need, with ``packages`` instead of the requirements of the same names.

    :param only: names of those requirements of extras and of ``dev`` that are needed; empty = all

    >>> build_requirements(["a==1"], {"project": {"dependencies": ["a>=2", "b"], "optional-dependencies": {}}, "dependency-groups": {"dev": []}})
    ['b', 'a==1']
    """
    own = project["project"]
    more = [
        *(requirement for extra in own["optional-dependencies"].values() for requirement in extra),
        *project["dependency-groups"]["dev"],
    ]
    stated = [*own["dependencies"], *(r for r in more if not only or name_of(r) in only)]
    replaced = {name_of(requirement) for requirement in packages} | {OWN}
    return [*dict.fromkeys(r for r in stated if name_of(r) not in replaced), *packages]


def name_of(requirement: str) -> str:
    """The normalized name in a requirement.

    >>> name_of("Apache_Airflow[x]>=3")
    'apache-airflow'
    """
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def make_environment(row: Row, binary: Path, step: Step) -> None:
    """Make the row's virtual environment, unless it has these packages already.

    :raises Problem: the requirements contradict each other, or cannot be fetched
    """
    row.folder.mkdir(parents=True, exist_ok=True)
    env = {**uv_environment(), "UV_DEFAULT_INDEX": uv.index_url()}
    asked, pinned, stamp = (row.folder / name for name in ("requirements.in", "requirements.txt", "stamp"))
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    asked.write_text("\n".join(build_requirements(row.packages, project, row.requirements)) + "\n")
    digest = hashlib.sha256((paths.ROOT / "uv.lock").read_bytes() + asked.read_bytes() + row.python.encode())
    if stamp.exists() and stamp.read_text() == digest.hexdigest() and row.interpreter.exists():
        step.done("unchanged")
        return
    stamp.unlink(missing_ok=True)

    def run(title: str, *command: str | Path) -> None:
        step.run([binary, *command], title=title, env=env, cwd=paths.ROOT)

    # versions that the output file has already are kept where they fit: so only what must differ from the lock differs
    exported = ("--frozen", "--no-hashes", "--no-emit-project", "--all-groups", "--all-extras")
    run("reading uv.lock", "export", *exported, "-o", pinned)
    run("resolving", "pip", "compile", "--quiet", "--python", row.python, asked, "-o", pinned)
    run("making the environment", "venv", "--clear", "--python", row.python, row.interpreter.parents[1])
    run("installing packages", "pip", "sync", "--python", row.interpreter, pinned)
    # Airflow finds the plugin and the provider by the metadata of an installed project; the version that it needs is what is tried
    run("installing the project", "pip", "install", "--python", row.interpreter, "--no-deps", "--editable", ".")
    stamp.write_text(digest.hexdigest())
    step.done("made")


def read_versions(row: Row) -> dict[str, str]:
    """Return the version of Python, and of each shown package and jar in the row's environment."""
    program = (
        "import json, platform, sys\nfrom importlib.metadata import version\n"
        "print(json.dumps({'python': platform.python_version()} | {name: version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([row.interpreter, "-c", program, *row.show], capture_output=True, text=True, check=True)
    versions = dict(json.loads(done.stdout))
    if row.jars:
        release = ".".join(versions["pyspark"].split(".")[:2])
        versions |= {jar.group: jar.version for jar in reversed(list_jars(*row.jars, spark=release))}
    return versions


# tests


def run_tests(row: Row) -> dict[str, Any]:
    """Run the row's tests in its environment; return versions, counts, names of failed tests, date."""
    report = row.folder / "report.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    workers = os.environ.get("CDC_TEST_WORKERS", "3")  # as dev/test
    command = [row.interpreter, "-m", "pytest", "-q", "-n", workers, "--dist", "loadfile", "-rfE", "--durations=15"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}", *row.tests]
    if row.deselect:
        command += ["-m", row.deselect]
    status = subprocess.run(command, cwd=paths.ROOT, env=_test_environment(row), check=False).returncode
    return {
        "kind": row.kind,
        "versions": read_versions(row),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(time.monotonic() - started),
        "status": status,
        **count_cases(report),
    }


def _test_environment(row: Row) -> dict[str, str]:
    left_out = ("VIRTUAL_ENV", "PYTHONHOME", "PYTEST_ADDOPTS", "AIRFLOW_HOME", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    return env | {
        "PATH": f"{row.interpreter.parent}:{env['PATH']}",
        "PYTHONPATH": str(paths.ROOT),
        "PYTHONPYCACHEPREFIX": str(row.folder / "pycache"),  # tests start many Pythons: compile once
        "CDC_TEST_AIRFLOW_HOMES": str(row.folder / "airflow"),  # versions cannot share a metadata DB
        "PYSPARK_PYTHON": str(row.interpreter),
        "PYSPARK_DRIVER_PYTHON": str(row.interpreter),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def count_cases(report: Path) -> dict[str, Any]:
    """Return ``{"passed", "skipped", "failed"}`` of a JUnit report: two counts, and the names of failed tests."""
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    outcomes = [({child.tag for child in case}, f"{case.get('classname')}::{case.get('name')}") for case in cases]
    failed = sorted(name for tags, name in outcomes if tags & {"failure", "error"})
    skipped = sum("skipped" in tags for tags, _ in outcomes)
    return {"passed": len(outcomes) - len(failed) - skipped, "skipped": skipped, "failed": failed}


# the table


def read_results() -> dict[str, Any]:
    """Return the result of each row by its name; ``{}`` before the first run."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def store_result(row: Row, result: Mapping[str, Any]) -> None:
    """Write the result of a row beside those of the others."""
    text = json.dumps({**read_results(), row.name: result}, indent=2, sort_keys=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text + "\n")


def render_table(rows: Sequence[Row], results: Mapping[str, Any], page: str) -> str:
    """Return the page with a new table. A row without a result keeps the line that the page has."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    kept = {line.split("|")[1].strip(" `"): line for line in page[begin:end].splitlines() if line.startswith("| `")}
    lines = [_line(*HEADS), _line(*["---"] * len(HEADS))]
    for row in rows:
        if row.name in results:
            lines.append(format_result(row, results[row.name]))
        elif row.name in kept:
            lines.append(kept[row.name])
    return page[:begin] + "\n" + "\n".join(lines) + "\n" + page[end:]


def format_result(row: Row, result: Mapping[str, Any]) -> str:
    """The line of a row in the table."""
    versions = ", ".join(
        f"{name} {result['versions'][name]}" for name in (*row.show, *row.jars) if name in result["versions"]
    )
    failed = str(len(result["failed"])) if result["status"] in (0, 1) else f"{len(result['failed'])}, ended early"
    counts = (str(result["passed"]), failed, str(result["skipped"]))
    return _line(f"`{row.name}`", result["versions"]["python"], versions, *counts, result["date"])


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def write_table() -> None:
    """Write the table into the page."""
    PAGE.write_text(render_table(read_plan(), read_results(), PAGE.read_text()))


def main() -> int:
    """Run a part of the matrix, and write the table; exit status 1 if a test has failed."""
    plan = read_plan()
    parser = argparse.ArgumentParser(prog="dev/test --matrix", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=sorted({row.kind for row in plan}))
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[row.name for row in plan], help="only these rows")
    parser.add_argument("--quick", action="store_true", help="only a few tests, with one Airflow, by turns")
    parser.add_argument("--make", action="store_true", help="make the environments and run no test")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/start/versions.md")
    given = parser.parse_args()
    if not given.table and given.kind is None:
        parser.error("name a kind, or --table")
    if given.quick:
        seed = int(os.environ.get("PYTHONHASHSEED", "0"))
        rows = [choose_quick_row(seed, read_locked_version("apache-airflow"))]
    else:
        rows = [] if given.table else [r for r in plan if r.kind == given.kind and r.name in (given.only or [r.name])]
    report, failed = Report(2 * len(rows)), False
    try:
        for row in rows:
            with report.step(f"environment {row.name}") as step:
                make_environment(row, uv.ensure(Step(quiet=True)), step)
            if given.make:
                continue
            with report.step(f"tests with {row.name}") as step:
                result = run_tests(row)
                if not given.quick:
                    store_result(row, result)
                failed |= bool(result["status"])
                step.done(f"{result['passed']} passed, {len(result['failed'])} failed, {result['skipped']} skipped")
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    if not (given.make or given.quick):
        write_table()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
