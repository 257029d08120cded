"""Several connectors in one Spark session: each is applied as if it were alone, and the trouble of one is no one else's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports import apply_turns as turns_module
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.core.errors import CdcError, ChangeLogDamaged, ConfigError, StorageUnavailable, TargetError
from airflow_provider_cdc.targets import retry_pause as retry_module
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.jobs import apply_connectors, continuous_apply
from airflow_provider_cdc.targets.lake.jobs import concurrent_connectors as module
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from airflow_provider_cdc.targets.lake.jobs.concurrent_connectors import ConnectorOutcome, ConnectorRunner
from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec
from airflow_provider_cdc.targets.lake.session.job_logging import LogPrefixFilter, speaks_of
from airflow_provider_cdc.targets.lake.session.spark_session import STORAGE_OPTIONS, options_by_connector
from dev import paths
from dev.bootstrap.jars import ensure
from tests.support.connectors import Connector
from tests.support.patience import LONGEST_S
from tests.targets.lake.jobs.test_continuous_apply import RunningApply, WriteTrouble, wait_until
from tests.targets.lake.lake import Database, Lake, spark_environment
from tests.targets.lake.points import hook_format

pytestmark = [pytest.mark.spark]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("POLL_S", 0.05), ("QUIET_S", 0.5), ("CLOSER_S", 0.3)):
        monkeypatch.setattr(continuous_apply, name, seconds)
    monkeypatch.setattr(retry_module, "SHORTEST_S", 0.1)
    for name, seconds in (("POLL_S", 0.05), ("SHORTEST_S", 0.1), ("LONGEST_S", 0.5), ("WATCH_S", 0.1)):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(module, "get_warm", lambda *_: None)  # what it does is tried in test_rehearsal
    monkeypatch.setattr(turns_module, "POLL_S", 0.05)


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path, kind: str) -> list[Lake]:
    """Two connectors with a table each, which are called alike."""
    return [_lake(spark, tmp_path / name, kind, name) for name in ("shop", "bil-l.ing_2")]


def _lake(spark: SparkSession, folder: Path, kind: str, name: str) -> Lake:
    database = Database(str(folder))
    properties = {"memory.database": database.name, "poll.interval.ms": 10, "topic.prefix": name.replace(".", "")}
    connector = Connector(folder, "memory", properties, name=name)
    connector.database = database  # type: ignore[attr-defined]
    lake = Lake(spark, folder, connector, name="it's a $lake ö", kind=kind)
    database.create_table("s.a", {"id": "int64!", "n": "int32"}, key=("id",))
    insert_rows(lake, 1)
    return lake


def insert_rows(lake: Lake, n: int) -> None:
    with lake.connector.database.transaction() as t:
        t.insert("s.a", {"id": n, "n": n})
        if n > 2:
            t.update("s.a", {"id": 2}, {"n": n})
    lake.connector.capture()


def spec(lake: Lake, **more: Any) -> ConnectorSpec:
    return ConnectorSpec(
        connector=lake.connector.name, changelog=lake.connector.changelog.storage.url, location=lake.location, **more
    )


class Session(ConnectorRunner):
    """Applies the connectors of some lakes; writes go through the lakes' hooks."""

    def __init__(self, lakes: list[Lake], **options: Any) -> None:
        super().__init__(lakes[0].spark, [spec(lake, **options) for lake in lakes], lakes[0].kind, {})
        self.lakes = {lake.connector.name: lake for lake in lakes}

    def create_apply_job(self, spec: ConnectorSpec, changelog: ChangeLog) -> ApplyChanges:
        job = super().create_apply_job(spec, changelog)
        if hook := self.lakes[spec.connector].hook:
            job._format = hook_format(load_format(self.target), hook)
        return job


class Run:
    """A run that continues, in a thread."""

    def __init__(self, lakes: list[Lake], owner: str = "me", seconds: float = LONGEST_S) -> None:
        self.session, self.owner, self.lakes = Session(lakes), owner, lakes
        self.outcomes: dict[str, ConnectorOutcome] = {}
        self.error: Exception | None = None
        self._seconds, self._thread = seconds, threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.outcomes = {one.connector: one for one in self.session.apply_continuously(self._seconds, self.owner)}
        except Exception as e:
            self.error = e

    def __enter__(self) -> Run:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.session.stop()
        self.join()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def said(self) -> str:
        return f"{self.error or self.outcomes}"

    def join(self) -> list[ConnectorOutcome]:
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()
        return [self.outcomes[lake.connector.name] for lake in self.lakes] if self.outcomes else []

    def stop(self) -> list[ConnectorOutcome]:
        self.session.stop()
        outcomes = self.join()
        assert self.error is None
        return outcomes

    def turn(self, lake: Lake) -> dict[str, Any]:
        found = turns(lake).find_turn(self.owner)
        assert found is not None
        return found


def turns(lake: Lake) -> ApplyTurns:
    return ApplyTurns(lake.connector.changelog.storage, lake.connector.name, lake.kind, lake.location)


def wait_until_applied(lake: Lake, run: Run | Process) -> None:
    """Wait until the newest batch is applied."""
    name, changelog = lake.connector.name, lake.connector.changelog
    newest, reports = max(changelog.list_batches(name)), ApplyReports(changelog.storage, name)

    def is_applied() -> bool:
        found = (reports.read(lake.kind, lake.location) or {"last_batch": 0})["last_batch"] >= newest
        assert found or run.alive(), f"{name} is not applied, and nobody does it: {run.said()}"
        return found

    wait_until(is_applied, name)


def manifest_of(lake: Lake, batch: int) -> Path:
    return Path(lake.connector.changelog.path_of(lake.connector.name, batch))


@pytest.fixture
def lakes_with_missing_batch(lakes: list[Lake]) -> tuple[Lake, Lake, Callable[[], object]]:
    """A connector with a batch missing, one without, and what repairs the first."""
    damaged, whole = lakes
    for n in (2, 3):
        insert_rows(damaged, n)
    path = manifest_of(damaged, 2)
    kept = path.read_bytes()
    path.unlink()
    return damaged, whole, lambda: path.write_bytes(kept)


def test_batches_of_all_are_applied_as_they_come_each_with_its_own_report_and_turn(lakes: list[Lake]) -> None:
    with Run(lakes) as run:
        for n in (2, 3, 4):
            for lake in lakes:
                wait_until_applied(lake, run)
                lake.check()
                insert_rows(lake, n)
        for lake in lakes:
            wait_until_applied(lake, run)
        outcomes = run.stop()
    for lake, outcome in zip(lakes, outcomes, strict=True):
        lake.check()
        assert outcome.error is None
        assert outcome.report is not None
        assert [one.rows for one in outcome.report.tables] == [{"r": 1, "c": 3, "u": 2}]
        assert run.turn(lake)["report"]["tables"][0]["rows"] == {"r": 1, "c": 3, "u": 2}
        assert lake.apply().tables == []  # an apply of one alone knows what was done


def test_one_with_a_damaged_change_log_is_named_at_the_end_and_the_other_goes_on(lakes_with_missing_batch: Any) -> None:
    damaged, whole, _ = lakes_with_missing_batch
    with Run([damaged, whole]) as run:
        for n in (2, 3):
            wait_until_applied(whole, run)
            insert_rows(whole, n)
        wait_until_applied(whole, run)
        broken, fine = run.stop()
    whole.check()
    assert isinstance(broken.error, ChangeLogDamaged)
    assert (fine.error, fine.connector) == (None, whole.connector.name)
    assert "manifest of batch 2" in run.turn(damaged)["error"]
    with pytest.raises(CdcError, match=r"1 of 2 connectors[\s\S]*\n  shop: [\s\S]*manifest of batch 2"):
        apply_connectors._tell([broken, fine])


@pytest.mark.long
def test_one_that_is_repaired_meanwhile_catches_up_and_the_end_is_green(lakes_with_missing_batch: Any) -> None:
    damaged, whole, repair = lakes_with_missing_batch
    with Run([damaged, whole]) as run:
        wait_until_applied(whole, run)
        repair()
        wait_until_applied(damaged, run)
        insert_rows(damaged, 4)
        wait_until_applied(damaged, run)
        assert [one.error for one in run.stop()] == [None, None]
    damaged.check()
    assert run.turn(damaged)["report"]["tables"][0]["rows"] == {"r": 1, "c": 3, "u": 2}


def test_one_that_fails_in_the_middle_begins_again_and_keeps_what_it_has_done(
    lakes: list[Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_apply, "PATIENCE_S", 0.1)
    gone, read = [False], ChangeLog.find_manifest

    def fail_sometimes(log: ChangeLog, connector: str, batch: int) -> Any:
        if gone[0] and connector == "shop":
            raise StorageUnavailable("the store of shop is gone")
        return read(log, connector, batch)

    monkeypatch.setattr(ChangeLog, "find_manifest", fail_sometimes)
    with Run(lakes) as run:
        wait_until_applied(lakes[0], run)
        gone[0] = True
        wait_until(lambda: run.session._following[0].is_failing)
        for n in (2, 3):
            insert_rows(lakes[1], n)
            wait_until_applied(lakes[1], run)
        gone[0] = False
        insert_rows(lakes[0], 2)
        wait_until_applied(lakes[0], run)
        one, _ = run.stop()
    assert one.report is not None
    assert one.report.tables[0].rows == {"r": 1, "c": 1}
    for lake in lakes:
        lake.check()


def test_tables_that_fail_are_those_of_their_connector(lakes: list[Lake]) -> None:
    lakes[0].hook = WriteTrouble(lakes[0].path("s.a"))
    with Run(lakes) as run:
        wait_until_applied(lakes[1], run)
        wait_until_applied(lakes[0], run)
        broken, fine = run.stop()
    assert isinstance(broken.error, TargetError)
    assert run.turn(lakes[0])["report"]["failed"] == {"shop.s.a": "OSError: no space left in s.a"}
    assert fine.error is None
    lakes[1].check()


def test_if_none_works_any_more_the_run_ends_at_once(lakes_with_missing_batch: Any) -> None:
    damaged, whole, _ = lakes_with_missing_batch
    manifest_of(whole, 1).write_text("no manifest")
    with Run([damaged, whole]) as run:
        outcomes = run.join()
    assert [type(one.error) for one in outcomes] == [ChangeLogDamaged] * 2


def test_an_ended_spark_ends_all_with_that_error(lakes: list[Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of all tests cannot be ended for this one: it only says so."""
    with Run(lakes) as run:
        for lake in lakes:
            wait_until_applied(lake, run)
        monkeypatch.setattr(run.session.spark.sparkContext, "_jsc", None)
        run.join()
        monkeypatch.undo()
    assert "Spark session of the apply has ended" in str(run.error)


def test_the_next_run_takes_over_all_and_a_task_of_one_connector_only_that(lakes: list[Lake]) -> None:
    with Run(lakes, "first") as first:
        for lake in lakes:
            wait_until_applied(lake, first)
        with Run(lakes, "second") as second:
            assert [one.error for one in first.join()] == [None, None]
            for lake in lakes:
                insert_rows(lake, 2)
                wait_until_applied(lake, second)
            with RunningApply(lakes[0], "alone") as alone:
                wait_until(lambda: second.turn(lakes[0])["ended"])
                for lake in lakes:
                    insert_rows(lake, 3)
                    wait_until_applied(lake, second)
                assert alone.stop().tables[0].rows == {"c": 1, "u": 1}
            outcomes = second.stop()
    assert [one.report.tables[0].rows for one in outcomes if one.report] == [{"c": 1}, {"c": 2, "u": 1}]
    for lake in lakes:
        lake.check()
        assert second.turn(lake)["report"]["failed"] == {}


def test_who_ends_one_of_its_turns_ends_the_run(lakes: list[Lake]) -> None:
    """Its task does so when it is killed, and may not reach all change logs then."""
    with Run(lakes, "mine") as run:
        for lake in lakes:
            wait_until_applied(lake, run)
        assert turns(lakes[1]).stop_turn("mine")
        assert [one.error for one in run.join()] == [None, None]
        assert run.turn(lakes[0])["ended"]


def test_a_run_that_ends_when_all_is_applied_applies_what_it_can(lakes_with_missing_batch: Any) -> None:
    damaged, whole, repair = lakes_with_missing_batch
    broken, fine = Session([damaged, whole]).apply_once()
    assert isinstance(broken.error, ChangeLogDamaged)
    assert fine.report is not None
    whole.check()
    repair()
    assert [one.error for one in Session([damaged, whole]).apply_once()] == [None, None]
    damaged.check()


def test_each_connector_has_its_share_of_the_cores(lakes: list[Lake]) -> None:
    session = Session(lakes)
    for lake in lakes:
        job = session.create_apply_job(spec(lake), lake.connector.changelog)
        future = job._pool.submit(lambda job=job: (job._session(), job.spark.sparkContext))  # type: ignore[misc]
        _, context = future.result()
        found = job._pool.submit(context.getLocalProperty, "spark.scheduler.pool").result()
        assert found == lake.connector.name
        job.close()
    speaks_of("")


# -- as a process -----------------------------------------------------------------------------------------------------


class Process:
    """``spark-submit apply_connectors.py``."""

    def __init__(self, lakes: list[Lake], log: Path, *more: Any, environment: dict[str, str] | None = None) -> None:
        self.log, kind = log, lakes[0].kind
        submit = Path(sys.executable).with_name("spark-submit")
        reported = [
            argument for lake in lakes for argument in ("--apply", spec(lake).model_dump_json(exclude_defaults=True))
        ]
        command = [
            submit, "--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
            "--jars", ",".join(map(str, ensure(kind))), paths.ROOT / "spark_jobs" / "apply_connectors.py",
            "--target", kind, *reported, *more,
        ]  # fmt: skip
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env=spark_environment() | (environment or {}),
            )  # fmt: skip

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        return self._process.wait(LONGEST_S)

    def alive(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def ask_to_end(self) -> None:
        """SIGTERM to the driver, a child of the JVM."""
        for child in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for pid in map(int, child.read_text().split()):
                if b"apply_connectors.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.long
def test_the_job_applies_what_it_can_and_names_what_it_cannot(lakes_with_missing_batch: Any, tmp_path: Path) -> None:
    damaged, whole, _ = lakes_with_missing_batch
    options = {STORAGE_OPTIONS: json.dumps({whole.connector.name: {"auto_mkdir": True}})}
    with Process([damaged, whole], tmp_path / "log", environment=options) as process:
        assert process.wait() == 1, process.said()[-3000:]
    output = process.said()
    whole.check()
    assert "bil-l.ing_2: bil-ling_2.s.a: 1 events, batches 1 to 1" in output
    assert re.search(r"1 of 2 connectors could not be applied completely:\n  shop: .*manifest of batch 2", output)


@pytest.mark.slow
@pytest.mark.long
def test_after_kill_9_the_next_run_goes_on_with_all_and_sigterm_ends_it_cleanly(
    lakes: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Process(lakes, tmp_path / "killed", "--run-for", 3600, "--owner", "killed") as killed:
        for lake in lakes:
            wait_until_applied(lake, killed)
        for n in range(2, 8):
            for lake in lakes:
                insert_rows(lake, n)
            time.sleep(0.2)
    with Process(lakes, tmp_path / "next", "--run-for", 3600, "--owner", "next") as process:
        for lake in lakes:
            wait_until_applied(lake, process)
            lake.check()
            insert_rows(lake, 8)
            wait_until_applied(lake, process)
        process.ask_to_end()
        assert process.wait() == 0, process.said()[-3000:]
    output = process.said()
    for lake in lakes:
        lake.check()
        # the first round, if the killed one had time to apply all that it was given
        assert re.search(rf"\[{re.escape(lake.connector.name)}\] Round [12]: 1 tables", output)
        assert turns(lake).find_turn("next")["ended"]  # type: ignore[index]
        assert "no sign of life" in turns(lake).find_turn("killed")["error"]  # type: ignore[index]
    assert "The session warm-up took" in output
    assert killed.wait() != 0


# -- without Spark ----------------------------------------------------------------------------------------------------


def test_where_nothing_is_new_spark_is_not_started(
    lakes: list[Lake], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def raise_always(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark is started")

    for lake in lakes:
        lake.apply()
    monkeypatch.setattr(apply_connectors, "open_spark_session", raise_always)
    file = tmp_path / "connectors.json"
    file.write_text(
        json.dumps([spec(lake).model_dump(include={"connector", "changelog", "location"}) for lake in lakes])
    )
    assert apply_connectors.main(["--apply", str(file), "--target", lakes[0].kind]) == 0
    output = capsys.readouterr().out
    assert all(f"every table of {lake.connector.name} is at batch 1" in output for lake in lakes)
    insert_rows(lakes[0], 2)
    with pytest.raises(AssertionError, match="Spark is started"):
        apply_connectors.main(["--apply", str(file), "--target", lakes[0].kind])


GIVEN = {"connector": "shop", "changelog": "/log", "location": "/lake/{table}"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{**GIVEN, "profil": "fast"}], r"connector shop: 'profil' is not known; did you mean 'profile'\?"),
        ([{"connector": "shop", "location": "/x"}], "connector shop: changelog is missing"),
        ([{**GIVEN, "profile": "quick"}], "connector shop: 'quick' is not a table profile"),
        ([{**GIVEN, "tables": [{"tables": "a", "mode": "histroy"}]}], "did you mean 'history'"),
        ([{**GIVEN, "threads": 0}], "connector shop: threads: "),
        ([GIVEN, GIVEN], "connector shop is given twice"),
        (["shop"], "connector: it: Input should be"),
        ("{", "--apply is not JSON"),
        ("/nowhere/at all.json", "/nowhere/at all.json cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    assert apply_connectors.main(["--apply", text]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_storage_options_are_given_by_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS, '{"shop": {"key": "sesame"}}')
    assert options_by_connector(["shop", "billing"]) == {"shop": {"key": "sesame"}}
    for wrong in ('{"key": "sesame"}', '{"shop": "sesame"}', '["sesame"]'):
        monkeypatch.setenv(STORAGE_OPTIONS, wrong)
        with pytest.raises(ConfigError) as caught:
            options_by_connector(["shop"])
        assert "sesame" not in str(caught.value)


def test_lines_of_the_log_begin_with_the_connector_that_they_are_about() -> None:
    def line(connector: str) -> str:
        if connector:
            speaks_of(connector)
        record = logging.LogRecord("x", logging.INFO, "f", 1, "Round 1", (), None)
        assert LogPrefixFilter(named=True).filter(record)
        return f"{record.about}{record.getMessage()}"  # type: ignore[attr-defined]

    found: list[str] = []
    for connector in ("shop", "billing", ""):
        thread = threading.Thread(target=lambda name=connector: found.append(line(name)))  # type: ignore[misc]
        thread.start()
        thread.join()
    assert found == ["[shop] Round 1", "[billing] Round 1", "Round 1"]
