"""The costs of tests.

A run of all tests tries the costly ones by turns: a 40th of them, another part in each run; a third with ``--third``, as the build
server does, and all with ``--all``.

``tests/costs.txt`` names them, with the seconds of a core that all their cases take together; a fourth of the time that they take, if that is more. ``dev/test --costs`` measures them again, and
``dev/test --costs tests/targets/database`` those of a part.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from tests.support.pytest_runs.sampled import CaseSample

FILE = Path(__file__).parents[2] / "costs.txt"
COSTLY = 0.5
"""Seconds of a core from which on a test is costly."""
WAITED_PER_SECOND = 4
"""Seconds of waiting that cost as much as a second of a core: other workers run meanwhile."""
TURNS = 40
"""A run tries one costly test in so many, unless options say otherwise."""
_TICK = os.sysconf("SC_CLK_TCK")


def name_of(nodeid: str) -> str:
    """A test without the parts in brackets.

    >>> name_of("tests/test_a.py::test_b[x-1]")
    'tests/test_a.py::test_b'
    """
    return nodeid.partition("[")[0]


def costly(file: Path = FILE) -> list[str]:
    """Names of the costly tests, those that cost most first."""
    return [line.split(None, 1)[1] for line in file.read_text().splitlines() if line]


def left_out(names: Iterable[str], chosen: CaseSample, turns: int = TURNS, file: Path = FILE) -> set[str]:
    """Return the tests, out of the given ones, that this run does not try.

    Turns go by cost: of tests that cost about the same, one is tried, so that all runs take about as long.

    :param turns: the run tries one of so many costly tests
    """
    known = [name for name in costly(file) if name in set(names)]
    return {name for number, name in enumerate(known) if not chosen.of(number, turns)}


class CostMeasurement:
    """Measures the calls of tests, with all processes that they have started, and writes the costly ones down. Setups count for no one: what they
    make is shared. With several workers each writes a part, and the last one to end puts the parts together."""

    def __init__(self, file: Path = FILE) -> None:
        self._file, self._cost = file, Counter[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        before, began = cpu_s(), time.monotonic()
        try:
            return (yield)
        finally:
            cost = max(cpu_s() - before, (time.monotonic() - began) / WAITED_PER_SECOND)
            self._cost[name_of(item.nodeid)] += cost  # type: ignore[assignment]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        parts = self._file.with_suffix(".parts")
        if worker or self._cost:
            parts.mkdir(exist_ok=True)
            text = "".join(f"{seconds} {name}\n" for name, seconds in self._cost.items())
            (parts / (worker or "alone")).write_text(text)
        if not worker and parts.is_dir():
            write(self._file, [line for part in sorted(parts.iterdir()) for line in part.read_text().splitlines()])
            for part in parts.iterdir():
                part.unlink()
            parts.rmdir()


def write(file: Path, lines: Iterable[str]) -> None:
    """Write down the costly ones of some tests; what is known of others stays.

    :param lines: seconds and name of each; a name may come several times
    """
    cost = Counter[str]()
    for seconds, name in (line.split(None, 1) for line in lines):
        cost[name] += float(seconds)  # type: ignore[assignment]
    for line in file.read_text().splitlines() if file.exists() else []:
        seconds, name = line.split(None, 1)
        cost.setdefault(name, int(seconds))
    some = sorted((-max(1, round(seconds)), name) for name, seconds in cost.items() if seconds >= COSTLY)
    file.write_text("".join(f"{-seconds:4d} {name}\n" for seconds, name in some))


def cpu_s() -> float:
    """Seconds of a core that this process has taken, and all that it has started and that have not been left by their parents."""
    parents, taken = dict[int, int](), dict[int, float]()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            parents[int(process.name)] = int(fields[1])
            taken[int(process.name)] = sum(map(int, fields[11:15])) / _TICK
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found, todo = 0.0, [os.getpid()]
    while todo:
        process_id = todo.pop()
        found += taken.get(process_id, 0.0)
        todo += children.get(process_id, [])
    return found
