"""The processes of one Airflow on this machine, by their folder."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

EXECUTOR = "airflow worker -- LocalExecutor"
"""Beginning of the command line of a worker of the executor, which supervises one task at a time."""
TASK = "airflow worker -- "
"""Beginning of the command line of the process that runs a task."""
DRIVER = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class MachineProcess:
    """A process: its number, its parent's, and its command line."""

    pid: int
    parent: int
    command: str

    @property
    def kind(self) -> str:
        """Return ``task``, ``supervisor``, ``driver`` or nothing."""
        if self.command.startswith(EXECUTOR):
            return "" if "<idle>" in self.command else "supervisor"
        if self.command.startswith(TASK):
            return "task"
        return "driver" if DRIVER in self.command and "java" in self.command.split()[0] else ""

    def kill(self) -> bool:
        """Kill it as the kernel does that is out of memory; ``False`` if it has ended already."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def list_processes(folder: Path) -> list[MachineProcess]:
    """List the living processes that were started in a folder, or know it from their environment."""
    return [process for pid in _pids() if (process := _read(pid, str(folder))) is not None]


def find_orphans(folder: Path, services: Collection[int]) -> list[MachineProcess]:
    """Find processes of an Airflow that no service, and no child of one, has started or waits for."""
    processes = {process.pid: process for process in list_processes(folder)}

    def belongs(process: MachineProcess) -> bool:
        return process.pid in services or (
            process.parent in services or (process.parent in processes and belongs(processes[process.parent]))
        )

    return [process for process in processes.values() if not belongs(process)]


def _pids() -> Iterator[int]:
    return (
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()
    )


def _read(pid: int, folder: str) -> MachineProcess | None:
    entry = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        if state in "ZX":
            return None
        place, environment = os.readlink(entry / "cwd"), (entry / "environ").read_bytes()
        if place.startswith(folder) or f"={folder}/".encode() in environment:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            return MachineProcess(pid, int(parent), command)
    return None
