"""The apply task whose job continues: how it ends, however it ends, and which events it emits.

A stand-in for ``spark-submit`` takes its turn as the job does, and ends when someone else begins one; the job itself is at work in
``tests/targets/lake/jobs/test_continuous_apply.py``.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.operators.base import apply_metrics
from airflow_provider_cdc.operators.base import continuous_job_control as module
from airflow_provider_cdc.targets.task_watch import identify_process
from tests.operators.test_apply_changes import LOCATION, Spark, apply, events, report, table
from tests.support.airflow.airflow_connector import TaskState, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, AirflowTaskTimeout
from tests.support.patience import LONGEST_S

GOES_ON = """#!{python}
import json, os, pathlib, sys, time
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
folder = pathlib.Path({folder!r})
(folder / "call.json").write_text(json.dumps({{"arguments": sys.argv[1:], "environment": {{"CDC_TASK_PROCESS": os.environ["CDC_TASK_PROCESS"]}}}}))
if (folder / "sleeps").exists():
    time.sleep(1000)
given = dict(zip(sys.argv, sys.argv[1:]))
end = time.monotonic() + float(given["--run-for"])
with ApplyTurns(Storage(given["--changelog"]), given["--connector"], given["--target"], given["--location"]).open_turn(given["--owner"]) as turn:
    if turn.wait_for_earlier_turns(lambda: bool(turn.successor)):
        (folder / "works").touch()
        while not turn.successor and time.monotonic() < end and not (folder / "dies").exists():
            time.sleep(0.02)
        if (folder / "dies").exists():
            os._exit(137)
        turn.set_report(json.loads((folder / "report.json").read_text()))
sys.exit(int((folder / "status").read_text()) if (folder / "status").exists() else 0)
"""


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark(tmp_path, monkeypatch)
    program = tmp_path / "bin" / "spark-submit"
    program.write_text(GOES_ON.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return spark


def set_outcome(folder: Path, found: dict[str, Any], *, status: int = 0) -> None:
    (folder / "report.json").write_text(json.dumps(found))
    (folder / "status").write_text(str(status))


def turns(folder: Path) -> ApplyTurns:
    return ApplyTurns(Storage(f"{folder}/changelog"), "shop", "delta", LOCATION)


def take_turn(folder: Path, owner: str) -> None:
    """Someone takes the next turn, and has ended it at once."""
    with turns(folder).open_turn(owner):
        pass


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class ActionThread(threading.Thread):
    """Does something as soon as the job works, or as soon as it was called."""

    def __init__(self, folder: Path, action: Callable[[], object], *, sign: str = "works") -> None:
        super().__init__()
        self._sign, self._action = folder / sign, action

    def run(self) -> None:
        wait_until(self._sign.exists)
        self._action()


def test_the_job_gets_its_duration_and_its_owner(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report())
    apply(tmp_path, run_for=timedelta(seconds=0.1)).execute(context())
    at = spark.arguments.index("--run-for")
    assert spark.arguments[at : at + 3] == ["--run-for", "0.1", "--owner"]
    assert spark.arguments[at + 3].startswith("d.t r try 1 on ")


def test_the_job_gets_the_process_of_its_task_so_that_it_can_end_with_it(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report())
    apply(tmp_path, run_for=0.1).execute(context())
    assert spark.environment == {"CDC_TASK_PROCESS": identify_process(os.getpid())}
    assert "CDC_TASK_PROCESS" not in os.environ


def test_its_end_emits_an_event_for_each_table_that_it_has_changed(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2), table("shop.b", u=1)))
    given = context(task_state_store=TaskState())
    result = apply(tmp_path, run_for=0.1).execute(given)
    assert (result["events"], result["last_batch"]) == (3, 4)
    assert {uri: e["rows"] for uri, e in events(given).items()} == {
        "cdc://shop/shop.a": {"c": 2},
        "cdc://shop/shop.b": {"u": 1},
    }


def test_a_task_that_is_killed_ends_the_job_in_good_order_and_keeps_its_events_for_the_next_try(
    tmp_path: Path, spark: Spark
) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))
    remembered = TaskState()
    operator = apply(tmp_path, run_for=3600)
    killer = ActionThread(tmp_path, operator.on_kill)
    killer.start()
    # a success would leave the tables to no one until the next run
    with pytest.raises(AirflowException, match=r"stopped before run_for ended.*the next try continues") as caught:
        operator.execute(context(task_state_store=remembered))
    assert not isinstance(caught.value, AirflowFailException)
    killer.join()
    (found,) = [turns(tmp_path).read_turn(1)]
    assert found is not None
    assert found["ended"]
    assert found["report"]["tables"][0]["rows"] == {"c": 2}
    set_outcome(tmp_path, report(table("shop.a", u=1)))
    given = context(task_state_store=remembered)
    apply(tmp_path, run_for=0.1).execute(given)
    assert events(given)["cdc://shop/shop.a"]["rows"] == {"c": 2, "u": 1}


def test_a_task_that_is_killed_when_another_one_has_taken_over_ends_well(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))
    operator, given = apply(tmp_path, run_for=3600), context(task_state_store=TaskState())

    def end() -> None:
        # of the turn that the job has, which does not see it before it has ended
        turns(tmp_path).create_turn(
            2, {"owner": "the next one", "at": time.time(), "ended": True, "report": None, "error": ""}
        )
        operator.on_kill()

    killer = ActionThread(tmp_path, end)
    killer.start()
    assert operator.execute(given)["events"] == 2
    killer.join()


def test_a_task_that_is_killed_while_a_table_fails_is_tried_again(tmp_path: Path, spark: Spark) -> None:
    """The kill of a task does not mean that another one continues its work."""
    set_outcome(tmp_path, report(table("shop.a", c=2), **{"shop.b": "no space left"}), status=1)
    operator, remembered = apply(tmp_path, run_for=3600), TaskState()
    killer = ActionThread(tmp_path, operator.on_kill)
    killer.start()
    with pytest.raises(AirflowException, match=r"shop\.b: no space left") as caught:
        operator.execute(context(task_state_store=remembered))
    killer.join()
    assert not isinstance(caught.value, AirflowFailException)
    assert '"c": 2' in str(remembered)


@pytest.mark.parametrize(("failed", "status"), [({}, 0), ({}, 1), ({"shop.b": "no space left"}, 1)])
def test_a_run_that_airflow_ends_counts_as_failed_only_if_its_job_reports_an_error(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch, failed: dict[str, str], status: int
) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2), **failed), status=status)
    measured: list[bool] = []
    monkeypatch.setattr(apply_metrics, "report_apply_metrics", lambda *_, failed, seconds: measured.append(failed))
    operator = apply(tmp_path, run_for=3600)
    killer = ActionThread(tmp_path, operator.on_kill)
    killer.start()
    with pytest.raises(AirflowException):
        operator.execute(context(task_state_store=TaskState()))
    killer.join()
    assert measured == [bool(failed)]


def test_what_was_done_by_a_task_that_was_killed_at_once_is_announced_by_the_next_one_and_only_once(
    tmp_path: Path, spark: Spark
) -> None:
    with turns(tmp_path).open_turn("the killed one") as turn:
        turn.set_report({})
    earlier = [{"owner": "the killed one", "tables": [table("shop.a", c=2)]}]
    for rows in ({"c": 2, "u": 1}, {"u": 1}):
        set_outcome(tmp_path, {**report(table("shop.a", u=1)), "earlier": earlier})
        given = context(task_state_store=TaskState())
        apply(tmp_path, run_for=0.1).execute(given)
        assert events(given)["cdc://shop/shop.a"]["rows"] == rows
    assert turns(tmp_path).is_announced(turns(tmp_path).newest_owner())


@pytest.mark.parametrize("state", ["alive", "announced"])
def test_what_another_task_reports_is_not_reported_twice(tmp_path: Path, spark: Spark, state: str) -> None:
    other = turns(tmp_path)
    other.create_turn(
        1, {"owner": "another", "at": time.time(), "ended": state == "announced", "report": None, "error": ""}
    )
    if state == "announced":
        other.record_announcement("another")
    ApplyReports(Storage(f"{tmp_path}/changelog"), "shop").write(report())
    earlier = [{"owner": "another", "tables": [table("shop.a", c=2)]}]
    (tmp_path / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 0\n")
    given = context()
    operator = apply(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "airflow_provider_cdc.targets.lake.apply.up_to_date_check.nothing_new",
            lambda *_: {**report(), "earlier": earlier},
        )
        operator.execute(given)
    assert events(given) == {}


def test_results_stored_for_the_next_try_count_as_reported(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2), **{"shop.b": "no space left"}), status=1)
    with pytest.raises(AirflowException):
        apply(tmp_path, run_for=0.1).execute(context(task_state_store=TaskState()))
    owner = turns(tmp_path).newest_owner()
    assert turns(tmp_path).is_announced(owner)


def test_a_task_whose_time_is_over_ends_the_job_and_keeps_its_events(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))
    remembered = TaskState()
    operator = apply(tmp_path, run_for=3600)
    # as soon as the job works, however long it has taken to begin
    over = ActionThread(tmp_path, lambda: os.kill(os.getpid(), signal.SIGALRM))
    over.start()
    with pytest.raises(AirflowTaskTimeout), timeout(LONGEST_S):
        operator.execute(context(task_state_store=remembered))
    over.join()
    operator.on_kill()
    assert operator._hook is not None
    assert operator._hook._submit_sp.poll() == 0
    assert "shop.a" in str(remembered)


def test_a_job_that_has_not_begun_is_killed(tmp_path: Path, spark: Spark) -> None:
    (tmp_path / "sleeps").touch()
    operator = apply(tmp_path, run_for=3600)
    killer = ActionThread(tmp_path, operator.on_kill, sign="call.json")
    killer.start()
    with pytest.raises(AirflowException, match="-9"):
        operator.execute(context())
    killer.join()


def test_a_job_that_does_not_end_is_killed(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_S", 0.2)
    set_outcome(tmp_path, report())
    monkeypatch.setattr(ApplyTurns, "stop_turn", lambda *_: True)  # the job does not hear of it
    operator = apply(tmp_path, run_for=3600)
    killer = ActionThread(tmp_path, operator.on_kill)
    killer.start()
    with pytest.raises(AirflowException, match="-9"):
        operator.execute(context())
    killer.join()


def test_one_that_is_taken_over_ends_well(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))

    def take_over() -> None:
        with turns(tmp_path).open_turn("the next one") as turn:
            assert turn.wait_for_earlier_turns(lambda: False)

    successor = ActionThread(tmp_path, take_over)
    successor.start()
    assert apply(tmp_path, run_for=3600).execute(context())["events"] == 2
    successor.join()


@pytest.mark.parametrize("taken_over", [False, True])
def test_tables_that_failed_are_named_and_tried_again_unless_another_one_goes_on_with_them(
    tmp_path: Path, spark: Spark, taken_over: bool
) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2), **{"shop.b": "no space left"}), status=1)
    successor = ActionThread(tmp_path, lambda: take_turn(tmp_path, "the next one"))
    if taken_over:
        successor.start()
    remembered = TaskState()
    with pytest.raises(AirflowException, match=r"shop\.b: no space left") as caught:
        apply(tmp_path, run_for=3600 if taken_over else 0.1).execute(context(task_state_store=remembered))
    assert isinstance(caught.value, AirflowFailException) == taken_over
    assert ("shop.a" in str(remembered)) != taken_over  # where there is no next try, the next run reports it


def test_what_a_task_has_applied_that_does_not_come_back_is_announced_by_its_next_run_and_only_once(
    tmp_path: Path, spark: Spark
) -> None:
    successor = ActionThread(tmp_path, lambda: take_turn(tmp_path, "the next one"))
    set_outcome(tmp_path, report(table("shop.a", c=2), **{"shop.b": "no space left"}), status=1)
    successor.start()
    with pytest.raises(AirflowFailException):
        apply(tmp_path, run_for=3600).execute(context(task_state_store=TaskState()))
    successor.join()
    set_outcome(tmp_path, report(table("shop.a", u=1)))
    for rows in ({"c": 2, "u": 1}, {"u": 1}):
        given = context(task_state_store=TaskState())
        apply(tmp_path, run_for=0.1).execute(given)
        assert events(given)["cdc://shop/shop.a"]["rows"] == rows


def test_a_job_that_died_is_an_error_and_what_it_had_written_is_remembered(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report())
    operator = apply(tmp_path, run_for=3600)
    remembered = TaskState()

    def die_after_report() -> None:
        """After it has written a report, as the job does after each round."""
        owner = spark.arguments[spark.arguments.index("--owner") + 1]
        found = {**report(table("shop.a", c=5)), "owner": owner}
        ApplyReports(Storage(f"{tmp_path}/changelog"), "shop").write(found)
        (tmp_path / "dies").touch()

    ActionThread(tmp_path, die_after_report).start()
    with pytest.raises(AirflowException, match="137"):
        operator.execute(context(task_state_store=remembered))
    assert '"c": 5' in str(remembered)


def test_a_job_that_left_no_trace_is_no_success(tmp_path: Path, spark: Spark) -> None:
    (tmp_path / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(AirflowException, match="wrote nothing to"):
        apply(tmp_path, run_for=3600).execute(context())


def test_one_that_is_taken_over_before_its_turn_has_applied_nothing(tmp_path: Path, spark: Spark) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))
    given = context()
    ApplyReports(Storage(f"{tmp_path}/changelog"), "shop").write({**report(), "unreported": [table("shop.b", c=1)]})
    with turns(tmp_path).open_turn("busy") as busy:
        thread = threading.Thread(target=lambda: (wait_until(lambda: busy.successor), take_turn(tmp_path, "x")))
        thread.start()
        assert apply(tmp_path, run_for=3600).execute(given)["events"] == 0
        thread.join()
    assert events(given) == {}


def test_one_that_is_taken_over_before_there_is_a_report_has_metrics(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_outcome(tmp_path, report(table("shop.a", c=2)))
    ended: list[str] = []
    monkeypatch.setattr(apply_metrics, "run_ended", lambda _, job, **more: ended.append(job))
    with turns(tmp_path).open_turn("busy") as busy:
        thread = threading.Thread(target=lambda: (wait_until(lambda: busy.successor), take_turn(tmp_path, "x")))
        thread.start()
        assert apply(tmp_path, run_for=3600).execute(context())["last_batch"] == 0
        thread.join()
    assert ended == ["apply"]


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), timedelta(0)])
def test_a_time_that_makes_no_sense_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="run_for must be more than 0"):
        apply(tmp_path, run_for=wrong)
