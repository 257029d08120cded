"""A capture process that streams until it is ended, ours or Debezium's: both speak the same few lines.

``streaming`` as soon as the first timestamp row has come through, ``completed MICROSECONDS`` when an incremental snapshot is (or
``failed WHY``), and after its standard input is closed one JSON object: ``{"reads": …, "events": …, "probes": [[written, seen, durable or null], …]}``, times in
microseconds since 1970. CPU and memory are read from outside, in the same way for both.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.benchmarks.measure import machine
from dev.bootstrap.report import Problem


class Streaming:
    """The process, in a ``with`` block.

    :param name: for messages
    :param log: where its standard error goes
    """

    def __init__(self, name: str, command: list[str], folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._name, self._log = name, log
        self._command, self._folder, self._environment = command, folder, environment
        self._lines: queue.Queue[str] = queue.Queue()
        self._figures: dict[str, Any] = {}

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def wait(self, word: str, seconds: float) -> str:
        """Wait until the process prints a line that begins with a word, and return the rest of the line.

        :raises Problem: the line did not come in time, or the process has ended
        """
        try:
            while (line := self._lines.get(timeout=seconds)).split(" ")[0] != word:
                if not line:
                    raise self._problem("ended")
                if line.startswith("failed"):
                    raise self._problem(line)
        except queue.Empty:
            raise self._problem(f"was not {word} within {seconds:.0f} s") from None
        return line.removeprefix(word).strip()

    def end(self) -> dict[str, Any]:
        """End it; what it has measured.

        :raises Problem: it has failed
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            raise self._problem("did not end") from None
        self._reader.join()
        if self._process.returncode or not self._figures:
            raise self._problem(f"ended with {self._process.returncode}")
        return self._figures

    def cpu_s(self) -> float:
        """CPU seconds up to now, with those of the processes that it waited for."""
        return machine.cpu_s(self._process.pid, children=True)

    def rss_mb(self) -> float:
        """The memory that it has now."""
        return machine.rss_mb(self._process.pid)

    def peak_rss_mb(self) -> float:
        """The most memory that it has had."""
        return machine.rss_mb(self._process.pid, peak=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._figures = json.loads(line)
            else:
                self._lines.put(line.strip() or " ")
        self._lines.put("")

    def _problem(self, what: str) -> Problem:
        tail = "".join(self._log.read_text().splitlines(keepends=True)[-15:])
        return Problem(f"{self._name} {what}:\n{tail}")
