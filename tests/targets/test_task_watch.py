"""A job that ends when the process of its task is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from airflow_provider_cdc.targets.task_watch import TASK_PROCESS, identify_process

JOB = """
import threading
from airflow_provider_cdc.targets.task_watch import end_with_task
ended = threading.Event()
end_with_task(ended.set, poll_s=0.05)
print("works", flush=True)
print("ended" if ended.wait(float({wait!r})) else "still works", flush=True)
"""


@pytest.fixture
def task() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the task's."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def start_job(task_process: str | None, *, wait: float = 300) -> subprocess.Popen[str]:
    environment = {**os.environ, **({} if task_process is None else {TASK_PROCESS: task_process})}
    job = subprocess.Popen(
        [sys.executable, "-c", JOB.format(wait=wait)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "works\n"
    return job


def test_a_job_ends_when_its_task_is_killed_also_before_anyone_has_noticed(task: subprocess.Popen[bytes]) -> None:
    """AF34: nothing ended it: Spark worked on for up to run_for. The killed process stays a zombie here until it is waited for."""
    job = start_job(identify_process(task.pid))
    os.kill(task.pid, signal.SIGKILL)
    assert job.communicate()[0] == "ended\n"
    assert identify_process(task.pid) is None


@pytest.mark.parametrize("of_task", [None, "", "elsewhere 1 1", "nonsense"])
def test_a_job_that_cannot_see_its_task_ends_by_a_signal_alone(of_task: str | None) -> None:
    job = start_job(of_task, wait=0.3)
    assert job.communicate()[0] == "still works\n"
    job = start_job(of_task)
    job.send_signal(signal.SIGTERM)
    assert job.communicate()[0] == "ended\n"


def test_a_task_that_lives_keeps_its_job(task: subprocess.Popen[bytes]) -> None:
    assert start_job(identify_process(task.pid), wait=0.5).communicate()[0] == "still works\n"
