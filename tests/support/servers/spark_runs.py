"""The runs of stand-ins of services that run Spark jobs: real processes of this machine, which are ``spark-submit`` if a test says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "CDC_TEST_RUN"
"""Environment variable by which a test finds all processes that it has started, those of their children too."""


@dataclass(frozen=True)
class Program:
    """A script as a service has got it.

    :param options: further words of the command line, before the script
    """

    script: str
    arguments: Sequence[str]
    py_files: Sequence[str] = ()
    jars: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


Command = Callable[[Program], list[str]]
"""Makes the command line of a run."""


def spark_submit(program: Program) -> list[str]:
    """Return the command line that runs the program on this machine."""
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]", "--driver-memory", "1g"]
    command += [word for name, value in program.conf.items() for word in ("--conf", f"{name}={value}")]
    for option, files in {"--py-files": program.py_files, "--jars": program.jars}.items():
        command += [option, ",".join(files)] if files else []
    return [*command, *program.options, program.script, *program.arguments]


@dataclass
class Run:
    """A run of a job.

    :param body: the request that started it
    """

    program: Program
    command: Command
    body: Any = None
    process: subprocess.Popen[bytes] | None = None
    cancelled: bool = False

    def inspect(self, *, hold: bool = False) -> str:
        """Start the run unless it has to wait, and return its stage."""
        if self.cancelled:
            return "cancelled"
        if self.process is None:
            if hold:
                return "pending"
            # the package comes from the files that the job names, and not from the working copy
            self.process = subprocess.Popen(self.command(self.program), env={**os.environ, "PYTHONPATH": ""})
        code = self.process.poll()
        return "running" if code is None else "failed" if code else "succeeded"

    def cancel(self) -> None:
        """End the process as a cluster does, by SIGTERM. A run that has ended is left alone."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
            self.cancelled = True
        self.cancelled = self.cancelled or self.process is None


def find_processes(mark: str) -> list[int]:
    """Return the pids of all processes, except this one, that have ``mark`` in the variable :data:`MARK`."""
    entry, found = f"{MARK}={mark}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            marked = entry in (process / "environ").read_bytes().split(b"\0")
            # one that only its parent has to notice is no process any more
            dead = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue  # it has just ended
        if marked and not dead and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def kill_processes(mark: str) -> int:
    """Kill all of them at once, as if their machine had failed, and return how many there were."""
    found = find_processes(mark)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(found)
