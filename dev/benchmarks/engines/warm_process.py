"""The apply as a separate process, as Airflow starts it: ``spark-submit``, a JVM with the driver's Python below it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev import paths
from dev.benchmarks.measure import machine
from dev.bootstrap.report import Problem

_ROUND = re.compile(r"Round \d+: \d+ tables, ([\d,]+) events up to batch (\d+) in ([\d.]+) s")


class ApplyProcess:
    """``apply_changes.py`` of one connector, in a ``with`` block.

    :param jars: of the target
    :param arguments: further ones of the job
    """

    def __init__(
        self, changelog: Path, location: str, target: str, jars: list[Path], log: Path, *arguments: Any
    ) -> None:
        submit = Path(sys.executable).with_name("spark-submit")
        self._command = [
            submit, "--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false",
            "--jars", ",".join(map(str, jars)), paths.ROOT / "spark_jobs" / "apply_changes.py", "--changelog", changelog,
            "--connector", "bench", "--location", location, "--target", target, *arguments,
        ]  # fmt: skip
        self._log = log

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, self._command)), cwd=paths.ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip
        self.began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, longest_s: float = 600) -> float:
        """Wait for its end; the seconds that it took.

        :raises Problem: it has failed
        """
        if self._process.wait(longest_s):
            raise self.problem(f"ended with {self._process.returncode}")
        return time.monotonic() - self.began

    def end(self) -> None:
        """Ask it to end, and wait for that.

        :raises Problem: it has failed
        """
        os.kill(self.pids()["python"], signal.SIGTERM)
        self.wait()

    def pids(self) -> dict[str, int]:
        """``jvm`` and ``python`` → process.

        :raises Problem: they are not there
        """
        for child in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for pid in map(int, child.read_text().split()):
                if b"apply_changes.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return {"jvm": self._process.pid, "python": pid}
        raise self.problem("is not there")

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each process up to now."""
        return {name: machine.cpu_s(pid, children=False) for name, pid in self.pids().items()}

    def rss_mb(self) -> dict[str, float]:
        """Memory of each process now."""
        return {name: machine.rss_mb(pid) for name, pid in self.pids().items()}

    def rounds(self) -> list[tuple[int, int, float]]:
        """Events, last batch and seconds of each round of a continuous apply."""
        found = _ROUND.findall(self._log.read_text(errors="replace"))
        return [(int(events.replace(",", "")), int(batch), float(seconds)) for events, batch, seconds in found]

    def problem(self, message: str) -> Problem:
        tail = "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-15:])
        return Problem(f"The apply {message}:\n{tail}")
