"""Kills at random: of tasks, Spark drivers, services, the metadata DB and sources, as a seed says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from dev.servers import Postgres, Server
from tests.support.chaos.lasting_services import LastingServices
from tests.support.chaos.machine_processes import list_processes

PAUSE_S = (4.0, 16.0)
"""Seconds from one kill to the next one."""


@dataclass(frozen=True)
class Kill:
    """A kill: its time, and its victim."""

    at: float
    victim: str


class Chaos:
    """A sequence of kills, one thing after the other.

    Each round has every kind of victim once, in another order, so that a run of some minutes has met them all.

    :param seed: of the order, the pauses, and the choice among like processes
    """

    def __init__(self, seed: int, services: LastingServices, metadata: Postgres, sources: list[Server]) -> None:
        self.kills: list[Kill] = []
        self._random = Random(seed)
        self._services, self._metadata, self._sources = services, metadata, sources

    def run(self, seconds: float, keep: Callable[[], object]) -> None:
        """Kill for some time, and at least one of each kind.

        :param keep: is called all the time between kills
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind in self._random.sample(sorted(self._kinds), len(self._kinds)):
                pause_ends = time.monotonic() + self._random.uniform(*PAUSE_S)
                while time.monotonic() < pause_ends:
                    keep()
                    time.sleep(0.5)
                if (victim := self._kinds[kind]()) is not None:
                    self.kills.append(Kill(time.time(), victim))
                    print(f"{time.strftime('%H:%M:%S')} killed: {victim}", flush=True)

    @property
    def _kinds(self) -> dict[str, Callable[[], str | None]]:
        return {
            "task": lambda: self._kill_process("task"),
            "supervisor": lambda: self._kill_process("supervisor"),
            "driver": lambda: self._kill_process("driver"),
            **{name: partial(self._kill_service, name) for name in ("scheduler", "triggerer", "api-server")},
            "metadata": lambda: self._restart(self._metadata),
            "source": lambda: self._restart(self._random.choice(self._sources)),
        }

    def _kill_process(self, kind: str) -> str | None:
        found = [process for process in list_processes(self._services.airflow.folder) if process.kind == kind]
        if not found:
            return None
        process = self._random.choice(sorted(found, key=lambda process: process.pid))
        return f"{kind} {process.pid} {process.command[:90]}" if process.kill() else None

    def _kill_service(self, name: str) -> str:
        self._services.kill_group(name)
        return name

    def _restart(self, server: Server) -> str:
        # a killed PostgreSQL leaves processes behind, which keep the next one from starting
        (server.stop if server is self._metadata else server.kill)()
        time.sleep(self._random.uniform(0, 5))
        server.start()
        return f"{server.kind} on port {server.port}"
