"""``dev/bench`` with few rows: it runs through, counts what it captured, and writes its figures in the form that others read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dev import paths
from dev.benchmarks.figures import Bar, compared, summed_up, verdicts
from dev.benchmarks.stages import Stages

ROWS = 3000


def _bench(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "figures.json"
    command = [paths.ROOT / "dev" / "bench", *arguments, "--rows", str(ROWS), "--repeat", "1", "--json", str(file)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Figures count only from a machine that does nothing else" in done.stdout
    return dict(json.loads(file.read_text()))


@pytest.mark.slow
@pytest.mark.mysql  # starts a MariaDB of its own
@pytest.mark.parametrize(("what", "unit"), [("capture", "events"), ("snapshot", "rows")])
def test_ours_is_measured_with_the_shares_of_its_stages(tmp_path: Path, what: str, unit: str) -> None:
    document = _bench(tmp_path, what, "--skip-debezium")
    ours = document["ours"]
    assert set(document) == {"ours", "server", "rows", "load"}
    assert ours["events"] == ROWS
    assert all(ours[name] > 0 for name in (f"{unit}_per_s", f"{unit}_per_cpu_s", "cpu_s", "peak_rss_mb", "seconds"))
    assert {"socket", "decode", "envelope", "parquet", "state", "other"} <= set(ours["stages"])
    assert sum(stage["share"] for stage in ours["stages"].values()) == pytest.approx(1, abs=0.02)


@pytest.mark.slow
def test_capture_of_logminer_rows_is_measured_beside_the_driver_and_the_parser_alone(tmp_path: Path) -> None:
    document = _bench(tmp_path, "oracle")
    ours = document["ours"]
    assert ours["events"] == ROWS
    assert all(ours[name] > 0 for name in ("rows_per_s", "rows_per_cpu_s", "parser_rows_per_s", "fetch_rows_per_s"))
    assert {"fetch", "redo", "decode", "envelope", "parquet", "state", "other"} <= set(ours["stages"])


def test_the_document_has_both_sides_and_their_ratio() -> None:
    run = {"events": 1000, "seconds": 1.0, "cpu_s": 2.0, "cpu_s_total": 3.0, "peak_rss_mb": 100.0}
    ours = summed_up([run, {**run, "seconds": 0.5, "peak_rss_mb": 200.0}, {**run, "seconds": 4.0}], "events")
    document = compared(ours, summed_up([{**run, "seconds": 10.0, "cpu_s": 20.0}], "events"), "events")
    assert (ours["events_per_s"], ours["peak_rss_mb"]) == (1000, 200.0)
    assert document["ratio"] == {"events_per_s": 10.0, "events_per_cpu_s": 10.0}


def test_a_bar_that_was_not_measured_is_not_met() -> None:
    document = {"ours": {"peak_rss_mb": 499.0}, "ratio": {"events_per_s": 7.9}}
    bars = [Bar("ours.peak_rss_mb", 500, at_most=True), Bar("ratio.events_per_s", 8), Bar("ratio.rows_per_s", 5)]
    text, fine = verdicts(bars, document)
    assert [line.split("  ")[0] for line in text.splitlines()] == ["pass", "FAIL", "not measured"]
    assert not fine
    assert verdicts(bars[:1], document)[1]


def test_a_stage_inside_another_counts_only_as_itself() -> None:
    class Work:
        def outer(self) -> int:
            return self.inner() + _spin(0.05)

        def inner(self) -> int:
            return _spin(0.1)

        def items(self) -> Any:
            for _ in range(3):
                self.inner()
                yield 1

    stages = Stages()
    stages.function(Work, "outer", "outer")
    stages.function(Work, "inner", "inner")
    stages.generator(Work, "items", "items")
    Work().outer()
    assert sum(Work().items()) == 3
    assert stages.cpu["inner"] == pytest.approx(0.4, rel=0.3)
    assert stages.cpu["outer"] == pytest.approx(0.05, rel=0.5)
    assert stages.cpu["items"] < 0.05


def _spin(seconds: float) -> int:
    """Use so much CPU time of this thread."""
    import time

    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return 1


@pytest.mark.parametrize("arguments", [["fly"], ["capture", "--rows", "1"], ["capture", "--server", "oracle"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "dev.benchmarks", *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: dev/bench" in done.stderr
