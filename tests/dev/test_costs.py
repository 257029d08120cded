"""Costly tests are tried by turns, and none is forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.pytest_runs import costs
from tests.support.pytest_runs.sampled import CaseSample


def test_each_costly_test_has_one_line() -> None:
    names = [line.split()[1] for line in costs.FILE.read_text().splitlines()]
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_each_costly_test_is_there(every_test: set[str]) -> None:
    assert set(costs.costly()) - every_test == set()


@pytest.mark.parametrize("turns", [costs.TURNS, 3])
def test_as_many_runs_as_there_are_turns_try_each_test_once(turns: int) -> None:
    names = {*costs.costly(), "tests/test_cheap.py::test_it"}
    tried = [names - costs.left_out(names, CaseSample(long=False, seed=40 + run), turns) for run in range(turns)]
    assert set.union(*tried) == names
    assert set.intersection(*tried) == {"tests/test_cheap.py::test_it"}


def test_runs_take_about_as_long_as_each_other() -> None:
    cost = {name: int(line.split()[0]) for line in costs.FILE.read_text().splitlines() for name in [line.split()[1]]}
    every = set(cost)
    taken = [
        sum(cost[name] for name in every - costs.left_out(every, CaseSample(long=False, seed=run)))
        for run in range(costs.TURNS)
    ]
    assert max(taken) - min(taken) <= max(cost.values())


def test_what_tests_take_is_written_down_with_the_costliest_first(tmp_path: Path) -> None:
    file = tmp_path / "costs.txt"
    costs.write(file, ["3.2 tests/a.py::b", "40 tests/a.py::c", "2.5 tests/a.py::b", "0.4 tests/a.py::cheap"])
    assert file.read_text() == "  40 tests/a.py::c\n   6 tests/a.py::b\n"


def test_measuring_some_tests_keeps_what_is_known_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "costs.txt"
    costs.write(file, ["40 tests/a.py::a", "30 tests/a.py::b", "20 tests/a.py::c"])
    costs.write(file, ["50 tests/a.py::b", "0.4 tests/a.py::c"])
    assert file.read_text() == "  50 tests/a.py::b\n  40 tests/a.py::a\n"


def test_processes_that_a_test_has_started_count() -> None:
    before = costs.cpu_s()
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert costs.cpu_s() - before > 0.4
        process.communicate(b"\n")
