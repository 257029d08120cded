"""Airflow on PostgreSQL, with services that start again when they have ended, as in production."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dev.airflow import Airflow, Services
from dev.patience import overload
from dev.servers import Postgres

T = TypeVar("T")

SETTINGS = {
    "AIRFLOW__CORE__PARALLELISM": "12",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "45",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
}
"""Airflow notices tasks and services that are dead sooner than by default, as the test waits for it."""


def install_airflow(folder: Path, python: Path, postgres: Postgres, database: str) -> Airflow:
    """Install Airflow with a metadata DB on PostgreSQL, and the state tables in it."""
    airflow = Airflow(folder, python)
    airflow.environment |= {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url(database),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": postgres.url(database, "postgresql+psycopg_async"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    }
    airflow.run("db", "migrate")
    airflow.run("cdc", "setup", "--with-airflows-login")
    return airflow


class LastingServices(Services):
    """Services under a supervisor, which starts each again that has ended.

    A killed scheduler leaves its tasks behind: they have process groups of their own, and nothing else ends them.
    """

    GRACE_S: ClassVar[float] = 600.0
    """Longest wait for something while services come and go."""

    def __init__(self, airflow: Airflow) -> None:
        super().__init__(airflow)
        self._environment |= SETTINGS
        self.ends: list[tuple[float, str]] = []
        """Times and names of services that had ended."""

    def kill_group(self, component: str) -> None:
        """Kill a service and all processes of its group; :meth:`revive` starts it again."""
        process = self._running[component]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def revive(self) -> None:
        """Start the services again that have ended."""
        for name, process in [*self._running.items()]:
            if process.poll() is not None:
                self.ends.append((time.time(), name))
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has left behind in its group
                self.start(name)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the API server, or ``None`` while it cannot answer."""
        try:
            status, text = self.request(method, path, body)
        except (OSError, AssertionError):
            return None
        return json.loads(text) if status < 300 else None

    def eventually(self, condition: Callable[[], T], awaited: str) -> T:
        """Ask until the answer is true, and return it; services that end meanwhile start again.

        :raises AssertionError: it has not come true for too long
        """
        end = time.monotonic() + self.GRACE_S * min(overload(), 3)
        while not (answer := condition()):
            assert time.monotonic() < end, f"not within {self.GRACE_S:.0f} s: {awaited}"
            self.revive()
            time.sleep(1)
        return answer
