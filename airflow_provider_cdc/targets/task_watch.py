"""Ends a Spark job with the task that has submitted it, and a capture with the process that supervises its task.

Airflow ends a job with its task. If the task's process is killed, the job would continue, and no task would read its result: so a job that continues
for a while looks for the process. A task whose supervisor is killed would keep the lease of its connector in the same way, and its retry would wait for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

TASK_PROCESS = "CDC_TASK_PROCESS"
"""Environment variable in which the job finds the process of its task."""
POLL_S = 5.0
"""Seconds between two checks of it."""


def identify_process(pid: int) -> str | None:
    """Return a text that no other process has, also if its number is used again; ``None`` if the process is gone.

    >>> identify_process(4711)
    'worker-1 4711 1853021'
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, start_time = after_name[0], after_name[19]
    return None if state in "ZX" else f"{socket.gethostname()} {pid} {start_time}"


def end_with_task(stop: Callable[[], object], *, poll_s: float = POLL_S) -> None:
    """Call ``stop`` when the job is to end: by a signal, or because the process of its task is gone.

    A job that is submitted without a task, or that cannot see the task's process, ends by a signal alone.

    :param stop: ends the job after its present commit
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
    task = os.environ.get(TASK_PROCESS, "")
    if task and _is_alive(task):
        threading.Thread(target=_watch, args=(task, stop, poll_s), name="cdc-task-watch", daemon=True).start()


@contextmanager
def end_with_supervisor(stop: Callable[[], object], *, poll_s: float = POLL_S) -> Iterator[None]:
    """Call ``stop`` when the process that has started this one is gone, as long as the block runs.

    >>> with end_with_supervisor(capture.stop):
    ...     capture.run()

    :param stop: ends the work at its next boundary
    """
    supervisor, over = identify_process(os.getppid()), threading.Event()

    def watch(process: str) -> None:
        while not over.wait(poll_s):
            if not _is_alive(process):
                log.warning("The supervisor of this task is gone (process %s): the task ends.", process)
                stop()
                return

    if supervisor is not None:
        threading.Thread(target=watch, args=(supervisor,), name="cdc-supervisor-watch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(task: str, stop: Callable[[], object], poll_s: float) -> None:
    while _is_alive(task):
        time.sleep(poll_s)
    stop()
    log.warning(
        "The task that has submitted this job is gone (process %s): the job ends after its present commit.", task
    )


def _is_alive(task: str) -> bool:
    pid = task.split()[1:2]
    return bool(pid) and pid[0].isdigit() and identify_process(int(pid[0])) == task
