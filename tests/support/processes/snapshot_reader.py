"""Readers of a snapshot in forked processes, in the place of Spark's executors."""

from __future__ import annotations

import os
import signal
from typing import Any

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable
from airflow_provider_cdc.snapshot_readers.table_reader import ReaderSettings, run_reader
from tests.support.connectors import Connector
from tests.support.processes import crash
from tests.support.processes.fork import Forks, Run


def read(changelog: str, connector: str, source: str, snapshot: str, secrets: dict[str, Any], number: int) -> int:
    """Run a reader."""
    return run_reader(ReaderSettings(changelog, connector, source, snapshot, secrets), number)


class ForkedReaders:
    """Implements :class:`airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator.ReaderJob`.

    :param absent: so many of the readers never come up
    """

    def __init__(self, forks: Forks, connector: Connector, *, absent: int = 0) -> None:
        self._forks, self._connector, self._absent = forks, connector, absent
        self.runs: list[Run] = []
        self._snapshot = ""

    def start(self, snapshot: str, readers: int) -> None:
        self._snapshot = snapshot
        for number in range(readers - self._absent):
            self.start_reader(number)

    def start_reader(self, number: int) -> None:
        """Start one reader."""
        self.runs.append(
            self._forks.start(
                "tests.support.processes.snapshot_reader:read",
                changelog=self._connector.changelog.storage.url,
                connector=self._connector.name,
                source=self._connector.source,
                snapshot=self._snapshot,
                secrets=self._connector.secrets,
                number=number,
            )
        )

    def find_error(self) -> CdcError | None:
        if self.runs and not any(_is_alive(run.pid) for run in self.runs):
            return SourceUnavailable("All readers have ended.")
        return None

    def cancel(self, patience_s: float) -> None:
        """Leave it to the readers: they end by themselves."""

    def kill(self, number: int) -> None:
        os.kill(self.runs[number].pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class WaitingReaders:
    """Readers that were forked before the capture has threads or counts steps, and wait for the id of a snapshot."""

    def __init__(self, settings: dict[str, Any], count: int) -> None:
        self._pipes = [os.pipe() for _ in range(count)]
        for number, (entry, exit_) in enumerate(self._pipes):
            if os.fork() == 0:
                self._run(settings, number, entry, exit_)

    def _run(self, settings: dict[str, Any], number: int, entry: int, exit_: int) -> None:
        try:
            for _, other in self._pipes:
                os.close(other)  # the capture alone keeps them: its death ends a reader that waits
            snapshot = os.read(entry, 100).decode()
            if snapshot:
                run_reader(ReaderSettings(snapshot=snapshot, **settings), number)
        finally:
            os._exit(0)

    def start(self, snapshot: str, readers: int) -> None:
        for _, exit_ in self._pipes:
            os.write(exit_, snapshot.encode())

    def find_error(self) -> CdcError | None:
        return None

    def cancel(self, patience_s: float) -> None:
        """Leave it to the readers: they end by themselves."""


def capture(folder: str, kind: str, *, properties: dict[str, Any], secrets: dict[str, Any], at: int) -> int:
    """Capture once, and die at a step towards something durable; return how many steps there were."""
    definition = ConnectorDefinition("test", kind, f"{folder}/changelog", properties)
    settings = {"changelog": definition.changelog, "connector": "test", "source": kind, "secrets": secrets}
    readers = WaitingReaders(settings, int(properties["snapshot.max.threads"]))
    steps = crash.StepCounter(at)
    steps.watch()
    steps._around(Storage, "replace", "replace")
    opened = open_capture(
        definition,
        f"sqlite:///{folder}/state.db",
        secrets=secrets,
        lease_ttl_s=crash.LEASE_S,
        lease_wait_s=30,
        reader_job=readers,
    )
    with opened as run:
        run.run()
    return steps.count
