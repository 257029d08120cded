"""A continuous apply: batches are applied as they come, tables that fail do not stop the others, and the next one takes over."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports import apply_turns as turns_module
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.core.errors import CdcError, ChangeLogDamaged, StorageUnavailable, TargetError, TransientError
from airflow_provider_cdc.targets import retry_pause as retry_module
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport
from airflow_provider_cdc.targets.lake.jobs import continuous_apply as module
from airflow_provider_cdc.targets.lake.jobs.continuous_apply import ContinuousApply
from dev import paths
from dev.bootstrap.jars import ensure
from tests.support.patience import LONGEST_S
from tests.targets.lake.lake import Lake, spark_environment

pytestmark = [pytest.mark.spark]


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class RunningApply:
    """A warm apply in a thread.

    :param alone: it has its own turns, and so knows of no one else
    """

    def __init__(self, lake: Lake, owner: str = "me", *, seconds: float = LONGEST_S, alone: bool = False) -> None:
        changelog, name = lake.connector.changelog, lake.connector.name
        self.lake, self.result = lake, None
        self.turns = ApplyTurns(changelog.storage, name, lake.kind, owner if alone else lake.location)
        self.turn = self.turns.open_turn(owner)
        self.warm = ContinuousApply(lake.job(), changelog, name, self.turn)
        self.error: BaseException | None = None
        self._seconds, self._thread = seconds, threading.Thread(target=self._run)

    result: ApplyRunReport | None

    def _run(self) -> None:
        try:
            with self.turn:
                self.result = self.warm.run(self._seconds)
        except BaseException as e:
            self.error = e

    def __enter__(self) -> RunningApply:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.warm.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()

    def stop(self) -> ApplyRunReport:
        """Stop it; what it has done.

        :raises BaseException: its error
        """
        self.warm.stop()
        self.join()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def report(self) -> dict[str, Any]:
        reports = ApplyReports(self.lake.connector.changelog.storage, self.lake.connector.name)
        return reports.read(self.lake.kind, self.lake.location) or {"last_batch": -1, "tables": [], "failed": {}}

    def reached(self) -> None:
        """Wait until the newest batch is applied."""
        newest = max(self.lake.connector.changelog.list_batches(self.lake.connector.name), default=0)
        wait_until(lambda: self.report()["last_batch"] >= newest or self.error, "the newest batch is applied")
        assert self.error is None


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("POLL_S", 0.05), ("QUIET_S", 0.5)):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(retry_module, "SHORTEST_S", 0.1)
    monkeypatch.setattr(turns_module, "POLL_S", 0.05)


@pytest.fixture
def tables(lake: Lake) -> Lake:
    for name in ("a", "b"):
        lake.connector.database.create_table(f"s.{name}", {"id": "int64!", "n": "int32"}, key=("id",))
    _insert_rows(lake, 1)
    return lake


def _insert_rows(lake: Lake, n: int, *names: str) -> None:
    with lake.connector.database.transaction() as t:
        for name in names or ("a", "b"):
            t.insert(f"s.{name}", {"id": n, "n": n})
            if n > 2:
                t.update(f"s.{name}", {"id": 2}, {"n": n})
    lake.connector.capture()


def test_batches_are_applied_as_they_come(tables: Lake) -> None:
    with RunningApply(tables) as running:
        running.reached()
        for n in (2, 3, 4):
            _insert_rows(tables, n)
            running.reached()
            tables.check()
        tables.connector.database.add_column("s.a", "c", "string", "x")
        tables.connector.database.truncate_table("s.b")
        tables.connector.database.create_table("s.new", {"id": "int64!"}, key=("id",))
        with tables.connector.database.transaction() as t:
            t.insert("s.new", {"id": 1})
        tables.connector.capture()
        running.reached()
        whole = running.stop()
    tables.check()
    assert [one.topic for one in whole.tables] == ["p.s.a", "p.s.b", "p.s.new"]
    assert whole.tables[0].rows == {"r": 1, "c": 3, "u": 2}
    assert (running.turns.find_turn("me") or {})["report"]["tables"][0]["rows"] == whole.tables[0].rows
    assert tables.apply().tables == []


def test_a_look_that_finds_nothing_reads_one_file_however_many_tables_and_batches_there_are(
    tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 60.0)
    for n in range(2, 6):
        _insert_rows(tables, n)
    changelog = tables.connector.changelog
    used: list[str] = []
    for name in ("list", "read", "replace", "open_input"):
        method = getattr(changelog.storage, name)

        def record_use(path: str, *more: Any, _name: str = name, _method: Any = method) -> Any:
            if threading.current_thread().name != "cdc-turn":
                used.append(_name)
            return _method(path, *more)

        monkeypatch.setattr(changelog.storage, name, record_use)
    with RunningApply(tables) as running:
        running.reached()
        wait_until(lambda: running.warm._rounds == 1)
        time.sleep(0.5)
        used.clear()
        for _ in range(5):
            assert not running.warm._round()
        assert used == ["read"] * 5


def test_a_table_without_events_for_a_while_is_known_to_the_next_run_without_spark(tables: Lake) -> None:
    from airflow_provider_cdc.targets.lake.apply.up_to_date_check import nothing_new

    with RunningApply(tables) as running:
        running.reached()
        _insert_rows(tables, 2)
        running.reached()
        assert "" in {entry["stamp"] for entry in running.report()["table_states"].values()}
        wait_until(lambda: "" not in {entry["stamp"] for entry in running.report()["table_states"].values()})
        running.stop()
    assert nothing_new(tables.connector.changelog, "test", tables.kind, tables.location) is not None


def test_a_table_that_cannot_be_looked_at_in_a_quiet_moment_ends_no_run(
    tables: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningApply(tables) as running:
        running.reached()
        one_table = running.warm._job._one_table  # type: ignore[attr-defined]
        settled = one_table.refresh_report_entry

        def fail_sometimes(name: str, stood: Any) -> Any:
            if name == "p.s.a":
                raise OSError("the lake does not answer")
            return settled(name, stood)

        monkeypatch.setattr(one_table, "refresh_report_entry", fail_sometimes)
        _insert_rows(tables, 2)
        running.reached()
        wait_until(lambda: "the lake does not answer" in caplog.text or running.error)
        wait_until(lambda: running.report()["table_states"]["p.s.b"]["stamp"] or running.error)
        _insert_rows(tables, 3)
        running.reached()
        running.stop()
    tables.check()


def test_a_table_that_someone_has_removed_is_built_again_also_if_it_has_no_events(
    tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(module, "CLOSER_S", 0.3)
    with RunningApply(tables) as running:
        running.reached()
        shutil.rmtree(tables.path("s.a"))
        wait_until(lambda: tables.version("s.a") >= 0)
        wait_until(lambda: sum(one["rows"]["r"] for one in running.report()["tables"] if one["topic"] == "p.s.a") == 2)
        running.stop()
    tables.check()


class WriteTrouble:
    """Writes to one table fail as long as it is ``on``."""

    def __init__(self, location: str) -> None:
        self.location, self.on, self.tries = location, True, 0

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        if location == self.location and self.on:
            self.tries += 1
            raise OSError("no space left in s.a")
        return write()


def test_a_table_that_fails_does_not_stop_the_others_and_is_named_at_the_end(tables: Lake) -> None:
    tables.hook = trouble = WriteTrouble(tables.path("s.a"))
    with RunningApply(tables) as running:
        running.reached()
        for n in (2, 3):
            _insert_rows(tables, n)
            running.reached()
            tables.check("s.b")
        wait_until(lambda: trouble.tries >= 3)
        with pytest.raises(TargetError, match=r"1 of 2 tables[\s\S]*p\.s\.a: OSError: no space left"):
            running.stop()
    assert running.report()["lagging"] == {"p.s.a": 0}
    assert (running.turns.find_turn("me") or {})["report"]["failed"] == {"p.s.a": "OSError: no space left in s.a"}
    tables.hook = None
    tables.apply()
    tables.check()


def test_a_table_that_has_failed_for_a_while_catches_up_and_the_end_is_green(tables: Lake) -> None:
    trouble = WriteTrouble(tables.path("s.a"))
    trouble.on = False
    tables.hook = trouble
    with RunningApply(tables) as running:
        running.reached()
        trouble.on = True
        for n in (2, 3, 4):
            _insert_rows(tables, n)
            running.reached()
        trouble.on = False
        wait_until(lambda: not running.report()["failed"])
        _insert_rows(tables, 5)
        running.reached()
        tables.check()
        assert running.stop().failed == {}


def test_pauses_grow_and_have_an_end() -> None:
    retries = [retry_module.RetryPause(1.0)]
    for _ in range(10):
        retries.append(retries[-1].extend_pause())
    pauses = [retry.pause for retry in retries]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == module.LONGEST_S


def test_a_storage_that_does_not_answer_for_a_moment_is_asked_again(
    tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningApply(tables) as running:
        running.reached()
        read, failures = tables.connector.changelog.find_manifest, [3]

        def fail_sometimes(*given: Any) -> Any:
            if failures[0]:
                failures[0] -= 1
                raise StorageUnavailable("503 slow down")
            return read(*given)

        monkeypatch.setattr(tables.connector.changelog, "find_manifest", fail_sometimes)
        wait_until(lambda: not failures[0])
        _insert_rows(tables, 2)
        running.reached()
        running.stop()
    tables.check()


def test_a_change_log_that_stays_unreadable_is_an_error(tables: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    with RunningApply(tables) as running:
        running.reached()

        def raise_always(*_: Any) -> Any:
            raise StorageUnavailable("403 forbidden")

        monkeypatch.setattr(tables.connector.changelog, "find_manifest", raise_always)
        running.join()
        assert isinstance(running.error, StorageUnavailable)


def test_a_batch_that_is_missing_is_an_error_and_not_an_end(tables: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSER_S", 0.2)
    with RunningApply(tables) as running:
        running.reached()
        folder = Path(tables.connector.changelog.storage.join_path("test", "manifests"))
        last = max(folder.iterdir())
        (folder / f"{int(last.stem) + 2:012d}.json").write_bytes(last.read_bytes())
        running.join()
        assert isinstance(running.error, ChangeLogDamaged)


def test_an_ended_spark_is_an_error_at_once(tables: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of all tests cannot be ended for this one: it only says so."""
    tables.hook = WriteTrouble(tables.path("s.a"))
    running = RunningApply(tables)
    monkeypatch.setattr(running.warm._job.spark.sparkContext, "_jsc", None)  # type: ignore[attr-defined]
    with running:
        running.join()
    assert type(running.error) is CdcError
    assert "Spark session of the apply has ended" in str(running.error)


def test_the_next_one_takes_over_and_both_end_well(tables: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with RunningApply(tables, "first") as first:
        first.reached()
        with RunningApply(tables, "second") as second:
            first.join()
            assert first.error is None
            assert "second has taken over" in caplog.text
            for n in (2, 3):
                _insert_rows(tables, n)
                second.reached()
            assert second.stop().tables[0].rows == {"c": 2, "u": 1}
    tables.check()
    assert (first.turns.find_turn("first") or {})["ended"]


def test_a_run_whose_time_is_over_ends(tables: Lake) -> None:
    with RunningApply(tables, seconds=0.1) as running:
        running.join()
        assert running.error is None
    tables.check()


def test_one_that_has_waited_in_vain_for_all_its_time_is_no_success(tables: Lake) -> None:
    with RunningApply(tables, "hangs") as first:
        first.reached()
        first.warm._turn = _DeafTurn("hangs")  # type: ignore[assignment]
        with RunningApply(tables, "second", seconds=0.5) as second:
            second.join()
            assert isinstance(second.error, TransientError)
            assert "applied nothing: an earlier run did not end" in str(second.error)
        with RunningApply(tables, "third") as third:
            assert third.error is None
            third.warm.stop()
            third.join()
        assert third.error is None  # it was asked to end


@dataclasses.dataclass
class _DeafTurn:
    """The turn of one that does not see who comes next."""

    owner: str = ""
    successor: str = ""

    def done(self, report: Any) -> None:
        pass


def test_two_at_once_that_do_not_know_of_each_other_give_the_same_tables(tables: Lake) -> None:
    tables.connector.database.create_table("s.bag", {"n": "int32"})
    with RunningApply(tables, "one", alone=True) as one, RunningApply(tables, "two", alone=True) as two:
        for n in range(2, 9):
            with tables.connector.database.transaction() as t:
                t.insert("s.bag", {"n": n % 3})
                if n > 4:
                    t.delete("s.bag", {"n": 2})
            _insert_rows(tables, n)
        for running in (one, two):
            wait_until(lambda running=running: running.report()["last_batch"] >= 8 or running.error)  # type: ignore[misc]
        newest = max(tables.connector.changelog.list_batches("test"))
        for running in (one, two):
            wait_until(lambda r=running: r.warm._report.last_batch >= newest or r.error)  # type: ignore[misc]
            assert running.stop().failed == {}
    tables.check()


def resident_mb(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


# -- processes --------------------------------------------------------------------------------------------------------


EARLY, LATE = 100, 300
"""Rounds after which memory is compared."""


class Process:
    """``spark-submit apply_changes.py --run-for``."""

    def __init__(self, lake: Lake, owner: str, log: Path) -> None:
        self.log = log
        submit = Path(sys.executable).with_name("spark-submit")
        command = [
            submit, "--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
            "--jars", ",".join(map(str, ensure(lake.kind))), paths.ROOT / "spark_jobs" / "apply_changes.py",
            "--target", lake.kind, "--changelog", lake.connector.changelog.storage.root, "--connector", lake.connector.name,
            "--location", lake.location, "--run-for", 3600, "--owner", owner,
        ]  # fmt: skip
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, env=spark_environment(), start_new_session=True
            )  # fmt: skip

    def driver(self) -> int:
        """The driver's process, a child of the JVM."""
        children = Path(f"/proc/{self.process.pid}/task")
        found = [int(c) for task in children.iterdir() for c in (task / "children").read_text().split()]
        for pid in found:
            if "apply_changes.py" in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
        raise AssertionError(self.said())

    def heap_mb(self) -> int:
        """Return the megabytes that the JVM's heap holds after a collection."""
        subprocess.run(["jcmd", str(self.process.pid), "GC.run"], check=True, capture_output=True)
        info = subprocess.run(
            ["jcmd", str(self.process.pid), "GC.heap_info"], check=True, capture_output=True, text=True
        )
        # by generation where the collector has some
        return sum(map(int, re.findall(r"(?:heap|generation) .*used (\d+)K", info.stdout))) >> 10

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def wait(self) -> int:
        return self.process.wait(LONGEST_S)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LONGEST_S)


@pytest.fixture
def start_process(tables: Lake, tmp_path: Path) -> Iterator[Callable[[str], Process]]:
    started: list[Process] = []

    def begin(owner: str) -> Process:
        started.append(Process(tables, owner, tmp_path / f"{owner}.log"))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def _wait_until_applied(lake: Lake, process: Process) -> None:
    seen = replace(lake)
    newest = max(seen.connector.changelog.list_batches("test"))
    reports = ApplyReports(seen.connector.changelog.storage, "test")

    def is_applied() -> bool:
        assert process.process.poll() is None, process.said()
        return (reports.read(lake.kind, lake.location) or {"last_batch": 0})["last_batch"] >= newest

    wait_until(is_applied, "the newest batch is applied")


def _pauses(lake: Lake, began: float) -> tuple[float, list[float]]:
    """Seconds between two commits: while the second one took over, and otherwise since it began."""
    turns = ApplyTurns(lake.connector.changelog.storage, "test", lake.kind, lake.location)
    ended = (turns.find_turn("first") or {})["at"]
    commits = sorted(f.stat().st_mtime for f in lake.log("s.a").glob("*.json"))
    pairs = [(x, y) for x, y in pairwise(commits) if y > began]
    (handed,) = (y - x for x, y in pairs if x <= ended < y)
    return handed, [y - x for x, y in pairs if not x <= ended < y]


@pytest.mark.slow
@pytest.mark.long
def test_a_process_is_taken_over_by_the_next_one_and_sigterm_ends_that_cleanly(
    tables: Lake, start_process: Callable[[str], Process]
) -> None:
    first = start_process("first")
    _wait_until_applied(tables, first)
    began, second = time.time(), start_process("second")
    for n in range(2, 500):  # the first one continues until the second one can
        if first.process.poll() is not None:
            break
        _insert_rows(tables, n)
        time.sleep(0.5)
    assert first.wait() == 0, first.said()
    assert "second has taken over" in first.said()
    for n in range(500, 505):
        _insert_rows(tables, n)
        _wait_until_applied(tables, second)
    handed, others = _pauses(tables, began)
    print(f"seconds between commits: {handed:.1f} at the hand-over, {max(others):.1f} otherwise while two were there")
    # the second one was warm before: cold, its first round takes as long as some of them together
    assert handed < 2 * max(others) + 2
    _insert_rows(tables, 1000)
    _wait_until_applied(tables, second)
    os.kill(second.driver(), signal.SIGTERM)
    assert second.wait() == 0, second.said()
    assert "ended as requested" in second.said()
    tables.check()
    assert re.search(r"Round \d+: 2 tables, \d+ events up to batch \d+ in [\d.]+ s, freshness [\d.]+ s", first.said())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.only_kind("delta")
def test_memory_does_not_grow_with_the_rounds(tables: Lake, start_process: Callable[[str], Process]) -> None:
    """Delta keeps some of what came since its last checkpoint; at the same distance from one, as much is in use as many rounds before."""
    if shutil.which("jcmd") is None:
        pytest.skip("the JVM's memory is asked for with jcmd, which is part of a JDK")
    process = start_process("many")
    _wait_until_applied(tables, process)
    found: dict[int, tuple[int, int]] = {}
    for n in range(2, LATE + 1):
        _insert_rows(tables, n)
        _wait_until_applied(tables, process)
        if n in (EARLY, LATE):
            found[n] = process.heap_mb(), resident_mb(process.driver())
    print(f"heap of the JVM and memory of Python in MB after rounds: {found}")
    assert found[LATE][0] < found[EARLY][0] + 25
    assert found[LATE][1] < found[EARLY][1] + 10


@pytest.mark.slow
@pytest.mark.long
def test_after_kill_9_the_next_one_takes_over(
    tables: Lake, start_process: Callable[[str], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "DEAD_S", 3.0)
    killed = start_process("killed")
    _wait_until_applied(tables, killed)
    for n in range(2, 8):
        _insert_rows(tables, n)
        time.sleep(0.3)
    killed.kill()
    with RunningApply(tables, "next") as running:
        running.reached()
        running.stop()
    tables.check()
    document = json.loads(json.dumps(running.turns.find_turn("killed")))
    assert "no sign of life" in document["error"]
