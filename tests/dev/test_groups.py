"""Tests that share a worker, and a worker that dies: every other test still runs, and the run ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import LONGEST_S
from tests.support.pytest_runs.groups import group_of

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
from tests.support.pytest_runs.groups import GroupScheduling

def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
"""


def run(folder: Path, files: list[list[str]], workers: int) -> str:
    """Run pytest on files with tests that either pass or kill their worker, and return its output."""
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, tests in enumerate(files):
        body = {"pass": "pass", "kill": "os._exit(1)"}
        lines = [f"def test_{n}():\n    {body[test]}\n" for n, test in enumerate(tests)]
        (folder / f"test_{number}.py").write_text("import os\n\n" + "\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadfile", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(folder)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_worker_that_dies_costs_one_test(tmp_path: Path, workers: int) -> None:
    chance = random.Random(workers)
    for number in range(3):
        files = [["pass"] * chance.randint(1, 4) for _ in range(chance.randint(1, 5))]
        tests = chance.choice(files)
        tests[chance.randrange(len(tests))] = "kill"
        total = sum(map(len, files))
        verdict = run(tmp_path / str(number), files, workers)
        passed = f", {total - 1} passed" if total > 1 else ""
        assert verdict.startswith(f"1 failed{passed} in "), (files, verdict)


def test_several_workers_that_die_cost_a_test_each(tmp_path: Path) -> None:
    files = [["kill"], ["pass", "kill", "pass"], ["pass"], ["kill", "pass"], ["pass", "pass"]]
    assert run(tmp_path / "tests", files, workers=2).startswith("3 failed, 6 passed in ")


def test_spark_is_two_groups_and_other_files_are_one_each() -> None:
    spark = {
        group_of(f"tests/targets/lake/{file}.py::test")
        for file in ("apply/test_a", "jobs/test_a", "placement/test_a", "write/modes/test_a")
    }
    assert len(spark) == 2
    assert group_of("tests/system/test_a.py::test") == group_of("tests/system/test_b.py::test")
    assert group_of("tests/core/test_a.py::test[x]") == "tests/core/test_a.py"
