"""Measured runs of our own capture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.measure import figures
from dev.bootstrap.report import Problem, Report, Step


def measured_runs(
    options: argparse.Namespace, report: Report, ours: OwnConnector, folder: Path
) -> list[dict[str, Any]]:
    """A first run that compiles what has to be compiled and watches the stages, then those that count."""
    with report.step("ours, with stopwatches (compiles the kernels if need be)") as step:
        ours.copy_to(folder / "warm").run(step.progress)
        watched = ours.copy_to(folder / "watched").run(step.progress, stages=True)
        measure_run(watched, step)
    done = []
    with report.step("ours captures") as step:
        for _ in range(options.repeat):
            run = ours.copy_to(folder / "run")
            done.append(measure_run(run.run(step.progress), step))
    for one in (watched, *done):
        if one["events"] != options.rows:
            raise Problem(
                f"{one['events']:,} events were captured instead of {options.rows:,}: the figures mean nothing."
            )
    done[0]["stages"] = figures.compute_shares(watched["stages"], watched["cpu_s"])
    return done


def measure_run(run: dict[str, Any], step: Step) -> dict[str, Any]:
    step.done(f"{run['events'] / run['seconds']:,.0f} a second, {run['cpu_s']:.1f} CPU s, {run['peak_rss_mb']:,.0f} MB")
    return run
