"""Benchmarks of the page's answers: the overview of 200 connectors, and a row's story over a million batches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.benchmarks.page import overview, row_story
from dev.bootstrap.report import Report

BATCHES = 1_000_000
BARS = [Bar("row_story.p95_ms", 2000, at_most=True), Bar("row_story.command.without_start_p50_ms", 2000, at_most=True)]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """A part of the document for each page that has a bar."""
    report = Report(1)
    with report.step("a row's story") as step:
        found = row_story.measure_history(BATCHES, folder)
        step.done(
            f"{found['p50_ms']:,.0f} ms, {found['p95_ms']:,.0f} ms at the 95th percentile; the command {found['command']['p50_ms']:,.0f} ms, "
            f"of which {found['command']['process_start_p50_ms']:,.0f} ms are the start of the process"
        )
    document, bars = overview.run(options, folder / "overview")
    return {**document, "row_story": found, "load": machine.load()}, [*BARS, *bars]
