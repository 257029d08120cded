"""Runs functions in processes of their own that a test can stop and kill, without the price of a new interpreter.

A helper process imports what is needed once, has no threads, and forks for each run.

    >>> with Forks("tests.support.processes.crash") as forks:
    ...     run = forks.start("tests.support.processes.crash:capture", folder="/tmp/x")
    ...     run.wait()
    Ended(signal=0, result={'events': 4}, error='', text='')
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.patience import LONGEST_S

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class RunEnd:
    """The end of a run.

    :param signal: the signal that killed it, or 0
    :param error: class name of the error that the function raised, or ""
    :param text: the error as text
    """

    signal: int
    result: Any
    error: str
    text: str


class Run:
    """The run of a function in a separate process."""

    def __init__(self, forks: Forks, pid: int, answer: Path) -> None:
        self._forks, self.pid, self._answer = forks, pid, answer

    def wait(self) -> RunEnd:
        """Until it has ended."""
        status = self._forks._ask({"wait": self.pid})
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        answer = json.loads(self._answer.read_text()) if self._answer.exists() else {}
        self._answer.unlink(missing_ok=True)
        if not killed and not answer:
            raise AssertionError(f"process {self.pid} ended with status {status} and said nothing")
        return RunEnd(killed, answer.get("result"), answer.get("error", ""), answer.get("text", ""))

    def wait_until_stopped(self, seconds: float = LONGEST_S) -> bool:
        """Until the process has stopped itself; ``False`` when it has ended instead."""
        deadline = time.monotonic() + seconds
        while True:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "TZX":
                return state == "T"
            assert time.monotonic() < deadline, f"process {self.pid} neither stopped nor ended"
            time.sleep(0.005)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Forks:
    """The helper process.

    :param modules: imported before forking
    """

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.fork", *modules],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LONGEST_S)
        self._folder.cleanup()

    def start(self, function: str, **arguments: Any) -> Run:
        """Run ``module:function`` with arguments that JSON knows."""
        self._count += 1
        answer = Path(self._folder.name, str(self._count))
        pid = self._ask({"start": function, "arguments": arguments, "answer": str(answer)})
        return Run(self, pid, answer)

    def run(self, function: str, **arguments: Any) -> RunEnd:
        return self.start(function, **arguments).wait()

    def _ask(self, question: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _serve() -> None:
    """The helper process: fork for each question, and say how the forks ended."""
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            _, status = os.waitpid(question["wait"], 0)
            print(status, flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _answer_question(question)
        print(pid, flush=True)


def _answer_question(question: dict[str, Any]) -> None:
    """In the fork."""
    module, _, name = question["start"].partition(":")
    try:
        answer = {"result": getattr(importlib.import_module(module), name)(**question["arguments"])}
    except BaseException as e:
        answer = {"error": type(e).__name__, "text": "".join(traceback.format_exception(e))}
    written = Path(f"{question['answer']}.part")
    written.write_text(json.dumps(answer))
    written.replace(question["answer"])  # a kill from outside leaves a whole answer, or none
    os._exit(0)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    _serve()
