"""An incremental snapshot beside a stream: how soon it is complete, what it costs, and how much later events come meanwhile.

One table is written to all the time, by :mod:`dev.benchmarks.load.writers`. A connector that streams already is sent ``execute-snapshot``
through its signal table; the clock runs from there to the snapshot's end (ours: its state is committed; Debezium: its notification, which
follows the last row, has come out). Timestamp rows of a second table show the lag, before the snapshot and during it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from dev.benchmarks.engines import debezium
from dev.benchmarks.engines.debezium import Debezium
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.streaming import Streaming
from dev.benchmarks.load.workload import DATABASE, RowWriter
from dev.benchmarks.load.writers import CHANGES_PER_S, Writers
from dev.benchmarks.measure import figures, machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report, Step
from dev.servers.mysql_family import MySqlFamily

BARS = [Bar("ratio.rows_per_s", 5)]
TABLE, PROBE, SIGNALS, SMALL = (f"{DATABASE}.{name}" for name in ("big", "probe", "signals", "small"))
BATCH_MS = 1000
"""``batch.max.ms`` of ours here: an event is durable with its batch, so this is most of the lag until then."""
LARGE, TARGET_MS = 16_384, 200
_SIZE = "incremental.snapshot.chunk.size"
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    f"ours, {LARGE}": {_SIZE: LARGE},
    f"ours, {TARGET_MS} ms": {"incremental.snapshot.chunk.target.ms": TARGET_MS},
    "ours, read-only": {"read.only": True},
    f"ours, read-only, {LARGE}": {"read.only": True, _SIZE: LARGE},
}
"""What is measured → properties. The first is what a connector has that has a signal table, as Debezium's."""
DEBEZIUM: dict[str, dict[str, Any]] = {"debezium": {}, f"debezium, {LARGE}": {_SIZE: LARGE}}
_DDL = (
    f"CREATE TABLE {PROBE} (id BIGINT AUTO_INCREMENT PRIMARY KEY, at_us BIGINT NOT NULL)",
    f"CREATE TABLE {SIGNALS} (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
)
_SMALL_ROWS, _LONGEST_S = 3000, 3600.0
_COLUMNS = (
    ("rows/s", "rows_per_s", "{:,.0f}"),
    ("rows/CPU s", "rows_per_cpu_s", "{:,.0f}"),
    ("seconds", "seconds", "{:.1f}"),
    ("CPU s", "cpu_s", "{:.1f}"),
    ("MB", "peak_rss_mb", "{:,.0f}"),
    ("changes/s", "changes_per_s", "{:,.0f}"),
    ("before", "cpu_share_before", "{:.0%}"),
    ("load", "load", "{:.1f}"),
)
_LAGS = (
    ("seen, before", "lag_before_ms"),
    ("seen, meanwhile", "lag_ms"),
    ("durable, before", "durable_before_ms"),
    ("durable, meanwhile", "durable_ms"),
)


class IncrementalMeasurement:
    """Measures one connector after the other on a server that is written to.

    :param before_s: seconds of streaming that the lag before the snapshot is taken from; before that it streams to warm up, half as
        long, and 5 seconds at most
    """

    def __init__(self, server: MySqlFamily, writers: Writers, rows: int, before_s: float) -> None:
        self._server, self._writers, self._rows, self._before_s = server, writers, rows, before_s
        self._warm_s = min(before_s / 2, 5.0)

    def run(self, process: Streaming, table: str, step: Step) -> dict[str, Any]:
        """Let it stream, ask it for the snapshot, and wait until that is complete.

        :param table: that is to be read
        """
        step.progress("starting to stream")
        with process:
            process.wait("streaming", 180)
            time.sleep(self._warm_s)
            cpu, began = process.cpu_s(), _now_us()
            step.progress("streaming")
            time.sleep(self._before_s)
            share = (process.cpu_s() - cpu) / ((_now_us() - began) / 1e6)
            cpu, changes, request_us = process.cpu_s(), self._writers.changes, _now_us()
            self._ask(table)
            step.progress("reading chunks")
            ended = int(process.wait("completed", _LONGEST_S))
            cpu, changes, memory = process.cpu_s() - cpu, self._writers.changes - changes, process.peak_rss_mb()
            time.sleep(2 * BATCH_MS / 1000)  # for the last timestamps
            found = process.end()
        if not self._writers.alive:
            raise Problem("The process that writes to the table has died: the figures mean nothing.")
        seconds = (ended - request_us) / 1e6
        return {
            "events": self._rows,
            "reads": found["reads"],
            "seconds": round(seconds, 3),
            "cpu_s": round(cpu, 2),
            "peak_rss_mb": round(memory, 1),
            "rows_per_s": round(self._rows / seconds),
            "rows_per_cpu_s": round(self._rows / max(cpu, 0.01)),
            "changes_per_s": round(changes / seconds),
            "cpu_share_before": round(share, 3),
            "load": machine.load(),
            **_measure_lags(found["probes"], began, request_us, ended),
        }

    def _ask(self, table: str) -> None:
        data = json.dumps({"data-collections": [table], "type": "incremental"})
        signal = (f"ask-{time.time_ns()}", "execute-snapshot", data)
        self._server.sql(f"INSERT INTO {SIGNALS} VALUES (%s, %s, %s)", args=signal)


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Fill the table, then measure ours and Debezium in all their forms, under the same changes."""
    rival = not options.skip_debezium
    # those that the ratio is of come next to each other: the load of a machine changes
    variants = [name for name in list(OURS)[1:] if name in (options.variant or OURS)]
    sides = ["ours", *list(DEBEZIUM) * rival, *variants]
    report = Report(2 + rival + len(sides))
    if rival:
        with report.step("Debezium") as step:
            debezium.ensure(step)
    with server.connect(autocommit=False) as connection, report.step(f"a table of {options.rows:,} rows") as step:
        work = RowWriter(connection, step.progress)
        for name, rows in ((SMALL, _SMALL_ROWS), (TABLE, options.rows)):
            work.prepare(name)
            work.fill(name, rows)
        server.sql(*_DDL, f"GRANT SELECT, INSERT, DELETE ON {SIGNALS} TO '{server.user}'@'%'")
    address = {"unix_socket": str(server.socket), "user": "root", "password": ""}
    measured: dict[str, dict[str, Any]] = {}
    with Writers(address, TABLE, options.rows, PROBE) as writers, machine.load_cores(1 if options.load else 0):
        with report.step("ours, of a small table (compiles the kernels if need be)") as step:
            IncrementalMeasurement(server, writers, _SMALL_ROWS, 0.5).run(
                _stream("ours", options, server, folder, SMALL), SMALL, step
            )
        bench = IncrementalMeasurement(server, writers, options.rows, min(max(options.rows / 50_000, 2.0), 15.0))
        for name in sides:
            with report.step(name) as step:
                times = options.repeat if name == "ours" else 1
                runs = [bench.run(_stream(name, options, server, folder, TABLE), TABLE, step) for _ in range(times)]
                for one in runs:
                    _verify(name, one, options.rows)
                measured[name] = {**_middle(runs), "runs": times}
                step.done(f"{measured[name]['rows_per_s']:,} rows a second")
    return _document(options, measured), BARS


def _stream(name: str, options: argparse.Namespace, server: MySqlFamily, folder: Path, table: str) -> Streaming:
    """A connector that knows nothing yet, and begins where the log is now."""
    place = folder / f"{time.time_ns()}"
    tables = f"{table},{PROBE}"
    common = {"snapshot.mode": "no_data", "signal.data.collection": SIGNALS}
    topics = f"bench.{table}", f"bench.{PROBE}"
    if name in OURS:
        ours = OwnConnector.mysql(
            server, options.server, tables, place, **common, **{"batch.max.ms": BATCH_MS}, **OURS[name]
        )
        return ours.stream(*topics)
    notification_properties = {
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "bench-notifications",
    }
    return Debezium(
        server, options.server, tables, place, **common, **notification_properties, **DEBEZIUM[name]
    ).stream(*topics)


def _verify(name: str, one: dict[str, Any], rows: int) -> None:
    """:raises Problem: rows are missing: but for those that were changed or away meanwhile, each has an event"""
    most = one["changes_per_s"] * one["seconds"] + 1000
    if not rows - most <= one["reads"] <= rows:
        raise Problem(f"{name}: {one['reads']:,} rows were read instead of {rows:,}: the figures mean nothing.")


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median by speed, with the highest memory of all."""
    middle = sorted(runs, key=lambda one: float(one["rows_per_s"]))[(len(runs) - 1) // 2]
    return {**middle, "peak_rss_mb": max(one["peak_rss_mb"] for one in runs)}


def _measure_lags(probes: list[list[int | None]], began: int, asked: int, ended: int) -> dict[str, Any]:
    """Milliseconds from before a row is written until its event is seen, and until that is durable."""
    whole = [probe for probe in probes if probe[0] is not None]
    lags = {}
    for suffix, low, high in (("_before_ms", began, asked), ("_ms", asked, ended)):
        inside = [probe for probe in whole if low <= (probe[0] or 0) < high]
        for name, at in (("lag", 1), ("durable", 2)):
            found = [(probe[at] - probe[0]) / 1000 for probe in inside if probe[at] is not None]  # type: ignore[operator]
            lags[name + suffix] = summary(found)
    return lags


def summary(values: list[float]) -> dict[str, float] | None:
    """Median, 95th percentile and maximum; ``None`` of nothing."""
    if not values:
        return None
    return {
        "p50": round(float(np.percentile(values, 50)), 1),
        "p95": round(float(np.percentile(values, 95)), 1),
        "max": round(max(values), 1),
    }


def _document(options: argparse.Namespace, measured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    document = figures.build_document(measured["ours"], measured.get("debezium"), "rows")
    document |= {
        "variants": {name: one for name, one in measured.items() if name not in ("ours", "debezium")},
        "server": options.server,
        "rows": options.rows,
        "batch_max_ms": BATCH_MS,
        "load": machine.load(),
        "cores_kept_busy": int(options.load),
    }
    print(f"\n{table(measured, document.get('ratio', {}))}")
    print(
        f'\nThe table is changed {CHANGES_PER_S:,} times a second, or as often as this machine has room for. "before" is the CPU that '
        f"streaming alone takes. Ours is\ndurable by batches, here of batch.max.ms={BATCH_MS}; Debezium's events only come out. The ratio is "
        "that of the defaults."
    )
    kept = "One core was kept busy (--load). " if options.load else ""
    print(
        f"\n{kept}Load average at the end: {document['load']}. Figures count only from a machine that does nothing else; on another, "
        "only the ratio does."
    )
    return document


def table(measured: dict[str, dict[str, Any]], ratio: dict[str, float]) -> str:
    """For people: a line for each side, a column for each figure."""
    lines = [f"{'':<24}" + "".join(f"{title:>12}" for title, *_ in _COLUMNS)]
    for side, one in measured.items():
        lines.append(f"{side:<24}" + "".join(f"{form.format(one[name]):>12}" for _, name, form in _COLUMNS))
    if ratio:
        cells = (f"{ratio[name]:.1f}" if name in ratio else "" for _, name, _ in _COLUMNS)
        lines.append(f"{'ratio':<24}" + "".join(f"{cell:>12}" for cell in cells).rstrip())
    lines += ["", f"{'lag in ms, p50/p95/max':<24}" + "".join(f"{title:>24}" for title, _ in _LAGS)]
    for side, one in measured.items():
        lines.append(f"{side:<24}" + "".join(f"{_format_lag(one[name]):>24}" for _, name in _LAGS))
    return "\n".join(lines)


def _format_lag(found: dict[str, float] | None) -> str:
    return "–" if found is None else " / ".join(f"{found[name]:,.0f}" for name in ("p50", "p95", "max"))


def _now_us() -> int:
    return time.time_ns() // 1000
