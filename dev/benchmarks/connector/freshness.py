"""The time from the commit of a change until the target table shows it, at 1,000 changes a second.

A second table gets a row with the time at which it was written, five times a second. When such a row is visible is read afterwards from the
target's own log: the moment at which the commit that has it was there. So no reader disturbs the measurement.

First the warm form: one continuous capture, with batches of a second, and one continuous apply. Then the batch form, as a DAG runs
it: a capture up to the end of the log, then ``spark-submit``, over and over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.benchmarks.capture.incremental import summary
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.warm_process import ApplyProcess
from dev.benchmarks.load.workload import DATABASE, RowWriter
from dev.benchmarks.load.writers import Writers
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.benchmarks.measure.visible import KINDS
from dev.bootstrap import jars
from dev.bootstrap.report import Problem, Report, Step
from dev.servers.mysql_family import MySqlFamily

BARS = [Bar("ours.lag_s.p95", 5, at_most=True)]
TABLE, PROBE = f"{DATABASE}.lake", f"{DATABASE}.probe"
BATCH_MS = 1000
"""``batch.max.ms`` of the warm form."""
_EARLY_S = 120
"""When the memory is measured that the end is compared with."""


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """A table of a tenth of ``--rows``, changed for ``--seconds`` in each form."""
    rows, target, profile = options.rows // 10, options.target or "delta", options.profile or "compatible"
    report = Report(4)
    ours = OwnConnector.mysql(server, options.server, f"{TABLE},{PROBE}", folder / "ours", **{"batch.max.ms": BATCH_MS})
    with server.connect(autocommit=False) as connection, report.step(f"a table of {rows:,} rows, captured") as step:
        work = RowWriter(connection, step.progress)
        work.prepare("lake")
        work.fill("lake", rows)
        server.sql(f"CREATE TABLE {PROBE} (id BIGINT AUTO_INCREMENT PRIMARY KEY, at_us BIGINT NOT NULL)")
        server.sql(f"INSERT INTO {PROBE} (at_us) VALUES (0)")
        ours.run(step.progress)
    with report.step("Spark's jars") as step:
        found = jars.ensure(target, step=step)
    bench = Freshness(ours, server, rows, folder, target, profile, found)
    with report.step(f"warm, {options.seconds} s") as step:
        warm = bench.warm(options.seconds, step)
        step.done(f"p95 {warm['lag_s']['p95']} s")
    with report.step("in batches, one after the other") as step:
        batch = bench.batches(options.seconds / 5, step)
        step.done(f"p95 {batch['lag_s']['p95']} s")
    document = {
        "ours": warm, "batch": batch, "target": target, "profile": profile, "server": options.server, "rows": rows,
        "batch_max_ms": BATCH_MS, "load": machine.load(),
    }  # fmt: skip
    print(f"\n{table(document)}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


class Freshness:
    """Measures one form after the other, on the same tables."""

    def __init__(
        self,
        ours: OwnConnector,
        server: MySqlFamily,
        rows: int,
        folder: Path,
        target: str,
        profile: str,
        jars_: list[Path],
    ) -> None:
        self._ours, self._rows, self._jars, self._folder = ours, rows, jars_, folder
        self._target, self._profile = target, profile
        self._address = {"unix_socket": str(server.socket), "user": "root", "password": ""}
        self._location = f"{folder}/lake/{{table}}"
        self._visible = KINDS[target](Path(self._location.format(table="probe")), "at_us")

    def warm(self, seconds: float, step: Step) -> dict[str, Any]:
        """Measure the warm form: a continuous capture beside a continuous apply."""
        apply, capture = self._apply("--run-for", 86_400), self._ours.stream(f"bench.{TABLE}", f"bench.{PROBE}")
        with apply:
            step.progress("starting Spark")
            _wait_until(lambda: bool(self._visible.rows()), 300, apply)
            with Writers(self._address, TABLE, self._rows, PROBE) as writers, capture:
                capture.wait("streaming", 180)
                step.progress("getting warm")
                time.sleep(min(30.0, seconds / 4))
                began, cpu, rounds = time.time(), {**apply.cpu_s(), "capture": capture.cpu_s()}, len(apply.rounds())
                changes, early = writers.changes, dict[str, float]()
                while (left := began + seconds - time.time()) > 0:
                    step.progress(f"{left:.0f} s left")
                    time.sleep(min(left, 5))
                    if not early and time.time() - began >= min(_EARLY_S, seconds / 5):
                        early = {**apply.rss_mb(), "capture": capture.rss_mb()}
                ended, changes = time.time(), writers.changes - changes
                after = {**apply.cpu_s(), "capture": capture.cpu_s()}
                late = {**apply.rss_mb(), "capture": capture.rss_mb()}
                load, found = machine.load(), apply.rounds()[rounds:]
                if not writers.alive:
                    raise Problem("The process that writes to the table has died: the figures mean nothing.")
                step.progress("applying the rest")
                _wait_until(lambda: max(self._visible.rows()) >= ended * 1e6, 120, apply)
            apply.end()
        return {
            "lag_s": self._lags(began, ended),
            "seconds": round(ended - began, 1),
            "changes_per_s": round(changes / (ended - began)),
            "cpu_s": {name: round(after[name] - cpu[name], 1) for name in after},
            "rss_mb_early": {name: round(value) for name, value in early.items()},
            "rss_mb_end": {name: round(value) for name, value in late.items()},
            "rounds": len(found),
            "round_s": summary([taken for _, _, taken in found]),
            "load": load,
        }

    def batches(self, seconds: float, step: Step) -> dict[str, Any]:
        """Capture and apply one after the other, each a separate process."""
        captures, applies = [], []
        with Writers(self._address, TABLE, self._rows, PROBE) as writers:
            began, changes = time.time(), writers.changes
            while time.time() - began < seconds or len(applies) < 2:
                step.progress(f"run {len(applies) + 1}")
                at = time.monotonic()
                self._ours.run(lambda _: None)
                captures.append(time.monotonic() - at)
                with self._apply() as apply:
                    applies.append(apply.wait())
            ended, changes = time.time(), writers.changes - changes
        return {
            "lag_s": self._lags(began, ended - captures[-1] - applies[-1]),
            "seconds": round(ended - began, 1),
            "changes_per_s": round(changes / (ended - began)),
            "runs": len(applies),
            "capture_s": summary(captures),
            "apply_s": summary(applies),
            "load": machine.load(),
        }

    def _apply(self, *arguments: Any) -> ApplyProcess:
        log = self._folder / "apply.log"
        return ApplyProcess(
            self._ours.changelog, self._location, self._target, self._jars, log, "--profile", self._profile, *arguments
        )

    def _lags(self, began: float, ended: float) -> dict[str, float]:
        lags = [at - us / 1e6 for us, at in self._visible.rows().items() if began <= us / 1e6 < ended]
        found = summary(lags)
        if found is None:
            raise Problem("No row of the timestamps is in the table: the figures mean nothing.")
        return {name: round(value, 2) for name, value in found.items()}


def table(document: dict[str, Any]) -> str:
    """For people."""
    warm, batch = document["ours"], document["batch"]
    lines = [f"{'from commit to visible, s':<34}{'warm':>10}{'in batches':>12}"]
    lines += [
        f"  {name:<32}{warm['lag_s'][name]:>10.2f}{batch['lag_s'][name]:>12.2f}" for name in ("p50", "p95", "max")
    ]
    lines.append(f"{'changes per second':<34}{warm['changes_per_s']:>10,}{batch['changes_per_s']:>12,}")
    lines.append(f"{'rounds, runs':<34}{warm['rounds']:>10,}{batch['runs']:>12,}")
    lines.append(f"{'seconds of one, p50':<34}{warm['round_s']['p50']:>10.1f}{batch['apply_s']['p50']:>12.1f}")
    lines.append(f"{'load meanwhile':<34}{warm['load']:>10.1f}{batch['load']:>12.1f}")
    lines.append(f"\n{'warm':<22}{'CPU s':>10}{'of a core':>12}{'MB early':>12}{'MB at end':>12}")
    for name, cpu in warm["cpu_s"].items():
        early, end = warm["rss_mb_early"].get(name, 0), warm["rss_mb_end"][name]
        lines.append(f"  {name:<20}{cpu:>10.1f}{cpu / warm['seconds']:>12.0%}{early:>12,}{end:>12,}")
    return "\n".join(lines)


def _wait_until(condition: Callable[[], bool], seconds: float, apply: ApplyProcess) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise apply.problem(f"was not that far within {seconds:.0f} s")
        time.sleep(0.5)
