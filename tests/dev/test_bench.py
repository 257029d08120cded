"""``dev/bench`` with few rows: it runs through, counts what it captured, and writes its figures in the form that others read."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dev import paths
from dev.benchmarks.capture import incremental
from dev.benchmarks.engines.streaming import Streaming
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar, build_document, summed_up, verdicts
from dev.benchmarks.measure.stages import Stages
from dev.bootstrap.report import Problem
from tests.support.patience import wait_until

ROWS = 3000


def _bench(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "figures.json"
    command = [paths.ROOT / "dev" / "bench", *arguments, "--rows", str(ROWS), "--repeat", "1", "--json", str(file)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Figures count only from a machine that does nothing else" in done.stdout
    return dict(json.loads(file.read_text()))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.mysql  # starts a separate MariaDB
@pytest.mark.parametrize(
    ("what", "unit"), [("capture", "events"), pytest.param("snapshot", "rows", marks=pytest.mark.long)]
)
def test_ours_is_measured_with_the_shares_of_its_stages(tmp_path: Path, what: str, unit: str) -> None:
    document = _bench(tmp_path, what, "--skip-debezium")
    ours = document["ours"]
    assert set(document) == {"ours", "server", "rows", "load"}
    assert ours["events"] == ROWS
    assert all(ours[name] > 0 for name in (f"{unit}_per_s", f"{unit}_per_cpu_s", "cpu_s", "peak_rss_mb", "seconds"))
    assert {"socket", "decode", "envelope", "parquet", "state", "other"} <= set(ours["stages"])
    assert sum(stage["share"] for stage in ours["stages"].values()) == pytest.approx(1, abs=0.02)


def test_a_core_is_kept_busy_meanwhile_and_not_longer() -> None:
    before = _children()
    with machine.load_cores(1):
        (other,) = _children() - before
        assert wait_until(lambda: _cpu_ticks(other) > 10, "it does something")
    assert other not in _children()


def _children() -> set[int]:
    found = set[int]()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


def _cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.long
@pytest.mark.mysql  # starts a separate MariaDB
def test_an_incremental_snapshot_is_measured_beside_a_stream_and_its_lag(tmp_path: Path) -> None:
    document = _bench(tmp_path, "incremental", "--skip-debezium", "--load", "--variant", "ours, read-only")
    assert set(document) == {"ours", "variants", "server", "rows", "batch_max_ms", "load", "cores_kept_busy"}
    assert document["cores_kept_busy"] == 1
    assert set(document["variants"]) == {"ours, read-only"}
    for one in (document["ours"], *document["variants"].values()):
        assert ROWS * 0.5 < one["reads"] <= ROWS
        assert all(
            one[name] > 0 for name in ("rows_per_s", "rows_per_cpu_s", "seconds", "peak_rss_mb", "changes_per_s")
        )
        assert 0 < one["lag_before_ms"]["p50"] <= one["lag_before_ms"]["p95"] <= one["lag_before_ms"]["max"]
        assert one["durable_before_ms"]["p50"] > one["lag_before_ms"]["p50"]


@pytest.mark.slow
@pytest.mark.long
def test_capture_of_logminer_rows_is_measured_beside_the_driver_and_the_parser_alone(tmp_path: Path) -> None:
    document = _bench(tmp_path, "oracle")
    ours = document["ours"]
    assert ours["events"] == ROWS
    assert all(ours[name] > 0 for name in ("rows_per_s", "rows_per_cpu_s", "parser_rows_per_s", "fetch_rows_per_s"))
    assert {"fetch", "redo", "decode", "envelope", "parquet", "state", "other"} <= set(ours["stages"])


def test_the_document_has_both_sides_and_their_ratio() -> None:
    run = {"events": 1000, "seconds": 1.0, "cpu_s": 2.0, "cpu_s_total": 3.0, "peak_rss_mb": 100.0}
    ours = summed_up([run, {**run, "seconds": 0.5, "peak_rss_mb": 200.0}, {**run, "seconds": 4.0}], "events")
    document = build_document(ours, summed_up([{**run, "seconds": 10.0, "cpu_s": 20.0}], "events"), "events")
    assert (ours["events_per_s"], ours["peak_rss_mb"]) == (1000, 200.0)
    assert document["ratio"] == {"events_per_s": 10.0, "events_per_cpu_s": 10.0}


def test_the_table_of_an_incremental_snapshot_has_a_line_for_each_side_and_one_for_the_ratio() -> None:
    lag = {"p50": 1.0, "p95": 20.0, "max": 1300.4}
    one = {
        "rows_per_s": 50_000, "rows_per_cpu_s": 60_000, "seconds": 20.0, "cpu_s": 16.7, "peak_rss_mb": 310.0,
        "changes_per_s": 998, "cpu_share_before": 0.27, "load": 2.0, "lag_before_ms": lag, "lag_ms": lag,
        "durable_before_ms": lag, "durable_ms": None,
    }  # fmt: skip
    lines = incremental.table({"ours": one, "debezium": {**one, "rows_per_s": 5000}}, {"rows_per_s": 10.0}).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "",
        "ours",
        "debezium",
        "ratio",
        "",
        "lag in ms, p50/p95/max",
        "ours",
        "debezium",
    ]
    assert lines[1].split()[1] == "50,000"
    assert lines[3].split() == ["ratio", "10.0"]
    assert lines[6].endswith("1 / 20 / 1,300                       –")


def test_the_lag_is_summed_up_by_when_rows_were_written() -> None:
    before, during = [[at, at + 2000, at + 9000] for at in (100, 200)], [[300, 5300, None], [400, 11_400, 12_400]]
    lags = incremental._measure_lags([*before, *during, [900, 999_900, None]], began=100, asked=300, ended=900)
    assert lags["lag_before_ms"] == {"p50": 2.0, "p95": 2.0, "max": 2.0}
    assert lags["durable_before_ms"]["p50"] == 9.0
    assert (lags["lag_ms"]["p50"], lags["lag_ms"]["max"]) == (8.0, 11.0)
    assert lags["durable_ms"] == {"p50": 12.0, "p95": 12.0, "max": 12.0}


@pytest.mark.parametrize(("reads", "fine"), [(1_000_000, True), (990_000, True), (900_000, False), (1_000_001, False)])
def test_rows_that_are_missing_make_the_figures_void(reads: int, fine: bool) -> None:
    one = {"reads": reads, "changes_per_s": 1000, "seconds": 20.0}
    with contextlib.nullcontext() if fine else pytest.raises(Problem, match="the figures mean nothing"):
        incremental._verify("ours", one, 1_000_000)


def test_a_streaming_process_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; print('streaming', flush=True); print('the cause', file=sys.stderr); sys.exit(3)"
    with Streaming("It", [sys.executable, "-c", program], tmp_path, tmp_path / "log", {}) as process:
        process.wait("streaming", 30)
        with pytest.raises(Problem, match="It ended:\nthe cause"):
            process.wait("completed", 30)


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


@pytest.mark.long
@pytest.mark.mysql  # starts a separate MariaDB
def test_freshness_is_measured_warm_and_in_batches(tmp_path: Path) -> None:
    document = _bench(tmp_path, "freshness", "--seconds", "10")
    assert set(document) == {"ours", "batch", "target", "profile", "server", "rows", "batch_max_ms", "load"}
    for form in ("ours", "batch"):
        lag = document[form]["lag_s"]
        assert 0 < lag["p50"] <= lag["p95"] <= lag["max"]
    assert set(document["ours"]["cpu_s"]) == {"jvm", "python", "capture"} == set(document["ours"]["rss_mb_end"])
    assert document["ours"]["rounds"] >= 1
    assert document["batch"]["runs"] >= 2


@pytest.mark.long
@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_the_apply_is_measured_beside_a_plain_merge(tmp_path: Path, target: str) -> None:
    document = _bench(
        tmp_path, "apply", "--target", target, "--profile", "fast", "--cases", "acde", "--tables", "2", "--batches", "3"
    )
    found = document[f"{target}-fast"]
    rules = [f"e {rule}" for rule in ("metadata", "renamed", "soft_delete", "filter")]
    assert set(found) == {"a", "c", "d", *rules}
    for name in ("a", "c", *rules):
        assert found[name]["ratio"] == pytest.approx(found[name]["plain_s"] / found[name]["ours_s"], rel=0.2)
    assert found["d"]["batches"] == 3
    assert found["d"]["scan"]["end_s"] > 0


@pytest.mark.long
@pytest.mark.mysql  # starts a separate MariaDB
def test_years_are_measured_beside_ten_batches_and_what_is_left_of_them(tmp_path: Path) -> None:
    document = _bench(tmp_path, "years", "--tables", "3", "--batches", "40")
    assert (document["topics"], document["batches"], document["schema_changes"]) == (3, 40, 10)
    assert set(document["ratio"]) == {
        "empty run", "small run", "small apply", "new table, run", "new table, apply", "status", "page",
    }  # fmt: skip
    assert all(seconds > 0 for form in ("few", "years") for seconds in document[form].values())
    before, after = document["retention"]["rows of cdc_batch"]
    assert before > 40
    assert after < before


@pytest.mark.long
@pytest.mark.mysql  # starts a separate MariaDB
def test_many_tables_are_captured_and_applied_with_few_open_files(tmp_path: Path) -> None:
    document = _bench(tmp_path, "tables", "--tables", "3")
    assert (document["rows"], document["changes"]) == (3000, 300)
    for captured in ("snapshot", "stream"):
        assert 3 < document[captured]["open_files"] < 256
        assert document[captured]["peak_rss_mb"] > 50
    assert document["apply"]["seconds_per_table"] == pytest.approx(document["apply"]["seconds"] / 3, rel=0.1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.mysql  # starts a MariaDB and a PostgreSQL
def test_the_relational_sink_is_measured_on_both_databases(tmp_path: Path) -> None:
    document = _bench(tmp_path, "jdbc", "--skip-debezium")
    for name in ("postgres", "mariadb"):
        ours = document[name]["ours"]
        assert ours["events"] == ROWS
        assert all(ours[figure] > 0 for figure in ("events_per_s", "events_per_cpu_s", "peak_rss_mb"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.mysql  # starts a MariaDB and a PostgreSQL
def test_a_transaction_of_two_million_rows_is_applied_with_little_memory(tmp_path: Path) -> None:
    document = _bench(tmp_path, "jdbc", "--transaction-rows", "2000000")
    for name in ("postgres", "mariadb"):
        ours = document[name]["ours"]
        assert ours["events"] == 2_000_000
        assert ours["peak_rss_mb"] < 500
