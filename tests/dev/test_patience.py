"""The demonstration and the tests of Airflow wait as long as there is progress, not for a time that suits one machine."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from dev import patience
from dev.patience import NoProgress, sizes, wait_while_moving


@pytest.fixture
def calm_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "overload", lambda: 1.0)


@pytest.mark.usefixtures("calm_machine")
def test_progress_is_waited_for_longer_than_silence() -> None:
    ticks, end = itertools.count(), time.monotonic() + 1.5
    wait_while_moving(lambda: time.monotonic() > end, "it ends", signs=lambda: next(ticks), quiet_s=0.3, every_s=0.01)
    assert next(ticks) > 10


@pytest.mark.usefixtures("calm_machine")
def test_silence_is_given_up_with_what_was_waited_for() -> None:
    with pytest.raises(NoProgress, match=r"Waited \d+ s until run 1 ends; nothing has moved"):
        wait_while_moving(lambda: False, "run 1 ends", signs=lambda: 0, quiet_s=0.2, every_s=0.01)


def test_a_machine_with_more_work_than_cores_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "overload", lambda: 8.0)
    end = time.monotonic() + 0.8
    wait_while_moving(lambda: time.monotonic() > end, "it ends", signs=lambda: 0, quiet_s=0.2, every_s=0.01)


def test_slow_steps_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "overload", lambda: 3.0)
    monkeypatch.setattr(patience, "SLOW_S", 0.05)
    reports: list[str] = []
    wait_while_moving(
        lambda: len(reports) > 2, "run 1 ends", signs=lambda: 0, quiet_s=60, report=reports.append, every_s=0.01
    )
    assert reports[0].startswith(
        "waiting until run 1 ends, nothing has moved for 0 s; this machine has 3.0 times the work"
    )


def test_a_file_that_grows_is_progress(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = sizes([tmp_path, tmp_path / "not there"])
    (tmp_path / "a" / "b" / "task.log").write_text("one line\n")
    one = sizes([tmp_path])
    with (tmp_path / "a" / "b" / "task.log").open("a") as log:
        log.write("another\n")
    assert before == (0, 0)
    assert one == (1, 9)
    assert sizes([tmp_path]) == (1, 17)
