"""The output of a set-up run: a numbered line for each step, with progress while a long step runs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class Problem(Exception):
    """Something only the developer can repair; the message says what is wrong and what to do."""


def megabytes(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


class Step:
    """A line of the report: ``progress`` shows the current work, ``done`` sets the text that stays."""

    def __init__(self, label: str = "", *, quiet: bool = False) -> None:
        self.label = label
        self.quiet = quiet
        self.result = "ready"
        self._started = time.monotonic()
        self._shown = 0.0
        self._terminal = sys.stdout.isatty()

    def done(self, text: str) -> None:
        """Set the text that stays on the line once the step has ended."""
        self.result = text

    def progress(self, text: str) -> None:
        """Show what the step is doing: at once on a terminal, every ten seconds in a log file."""
        now = time.monotonic()
        if self.quiet or (self._shown and now - self._shown < (0.1 if self._terminal else 10)):
            return
        self._shown = now
        elapsed = f" ({now - self._started:.0f} s)" if now - self._started >= 1 else ""
        self._print(f"{self.label} … {text}{elapsed}", stays=False)

    def end(self) -> None:
        """Print the line that stays."""
        if not self.quiet:
            self._print(f"{self.label} … {self.result}, {time.monotonic() - self._started:.1f} s", stays=True)

    def _print(self, line: str, *, stays: bool) -> None:
        if self._terminal:
            width = len(line) if stays else os.get_terminal_size().columns or 80
            print(f"\r\x1b[K{line[:width]}", end="\n" if stays else "", flush=True)
        else:
            print(line, flush=True)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        title: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Run a command, show its newest line as progress, and return its output; a failure shows the end of it."""
        arguments = [str(part) for part in command]
        output: list[str] = []
        self.progress(title)
        try:
            process = subprocess.Popen(
                arguments, env=env, cwd=cwd, text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise Problem(f"{title} failed: {error}") from error
        with process:
            for line in process.stdout or ():
                output.append(line)
                if line.strip():
                    self.progress(f"{title}: {line.strip()}")
        if process.returncode:
            raise Problem(
                f"{title} failed with exit code {process.returncode}:\n  {' '.join(arguments)}\n{_tail(output)}"
            )
        return "".join(output)


def _tail(output: list[str], lines: int = 15) -> str:
    return "".join(f"    {line.rstrip()}\n" for line in output[-lines:]).rstrip("\n")


class Report:
    """Numbers the steps of one run."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Begin a numbered step, and end its line after it."""
        self.number += 1
        step = Step(f"[{self.number}/{self.total}] {name}")
        try:
            yield step
        except BaseException:
            step.done("FAILED")
            raise
        finally:
            step.end()
