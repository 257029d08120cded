"""Stand-ins of services that run Spark jobs: the REST interfaces of Livy and Databricks, as far as submissions use them.

They are no Livy and no Databricks: nothing here schedules, checks a login or keeps a log. A run is a process on this machine, which the test chooses; so a
job may really run. They answer as the real ones do if things go wrong: requests that are too many, faults of the server, answers that are lost after the
request has done its work, runs that wait before they start, and runs that another user cancels.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

LOSE_ANSWER = "lose the answer"
"""A fault: the request does its work, and the connection ends without an answer."""


@dataclass
class Run:
    """A run of a job."""

    number: int
    body: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
            self.cancelled = True
        self.cancelled = self.cancelled or self.process is None


@dataclass
class SparkService:
    """A stand-in of a service.

    :param command: of a run, by the URI of its script and its arguments
    """

    command: Callable[[str, Sequence[str]], list[str]]
    faults: list[int | str] = field(default_factory=list)
    """What the next requests get instead of an answer: a status of HTTP, or :data:`LOSE_ANSWER`."""
    hold: bool = False
    """Whether runs wait."""
    runs: dict[int, Run] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    SCRIPT: ClassVar[str]

    def __enter__(self) -> Self:
        service = self
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                service.requests.append(f"{self.command} {self.path}")
                fault = service.faults.pop(0) if service.faults else None
                if isinstance(fault, int):
                    self._reply(fault, {"error_code": "FAULT", "message": "a fault of the test"})
                    return
                with service._lock:
                    status, document = service.answer(self.command, self.path, body)
                if fault == LOSE_ANSWER:
                    self.close_connection = True
                    self.connection.close()
                    return
                self._reply(status, document)

            def _reply(self, status: int, document: Any) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
        for run in self.runs.values():
            run.cancel()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        raise NotImplementedError

    def program_of(self, body: dict[str, Any]) -> tuple[str, Sequence[str]]:
        """The script and the arguments of a body."""
        raise NotImplementedError

    def add(self, body: dict[str, Any]) -> Run:
        run = Run(len(self.runs) + 1, body)
        self.runs[run.number] = run
        return run

    def look(self, run: Run) -> str:
        """Start the run if it may, and return its stage."""
        if run.cancelled:
            return "cancelled"
        if run.process is None:
            if self.hold:
                return "pending"
            run.process = subprocess.Popen(self.command(*self.program_of(run.body)))
        code = run.process.poll()
        return "running" if code is None else "failed" if code else "succeeded"


class LivyService(SparkService):
    """A stand-in of Livy 0.8: ``/batches``."""

    _STATES: ClassVar[dict[str, str]] = {
        "pending": "starting", "running": "running", "failed": "dead", "succeeded": "success", "cancelled": "killed",
    }  # fmt: skip

    def program_of(self, body: dict[str, Any]) -> tuple[str, Sequence[str]]:
        return body["file"], body["args"]

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/batches" and method == "POST":
            if any(run.body.get("name") == body.get("name") for run in self.runs.values()):
                return 400, {"msg": f"Duplicate session name: Some({body['name']})"}
            return 201, self._document(self.add(body))
        if listed := re.fullmatch(r"/batches\?from=(\d+)&size=(\d+)", path):
            first, size = map(int, listed.groups())
            runs = list(self.runs.values())
            return 200, {
                "from": first,
                "total": len(runs),
                "sessions": [self._document(run) for run in runs[first:][:size]],
            }
        found = re.fullmatch(r"/batches/(\d+)", path)
        run = self.runs.get(int(found[1])) if found else None
        if run is None:
            return 404, {"msg": "Session not found."}
        if method == "DELETE":
            run.cancel()
            del self.runs[run.number]
            return 200, {"msg": "deleted"}
        return 200, self._document(run)

    def _document(self, run: Run) -> dict[str, Any]:
        stage = self.look(run)
        log = ["stderr: ", "py4j: an error of the driver"] if stage == "failed" else []
        return {
            "id": run.number, "name": run.body.get("name"), "state": self._STATES[stage], "log": log,
            "appId": None, "appInfo": {"driverLogUrl": None, "sparkUiUrl": None},
        }  # fmt: skip


class DatabricksService(SparkService):
    """A stand-in of Databricks: ``jobs/runs/submit``, ``get`` and ``cancel`` of the Jobs API 2.2."""

    _STATES: ClassVar[dict[str, dict[str, str]]] = {
        "pending": {"life_cycle_state": "PENDING", "state_message": "Waiting for cluster"},
        "running": {"life_cycle_state": "RUNNING", "state_message": "In run"},
        "failed": {"life_cycle_state": "INTERNAL_ERROR", "result_state": "FAILED", "state_message": "Task cdc failed"},
        "succeeded": {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS", "state_message": ""},
        "cancelled": {"life_cycle_state": "TERMINATED", "result_state": "CANCELED", "state_message": "Run cancelled."},
    }

    def program_of(self, body: dict[str, Any]) -> tuple[str, Sequence[str]]:
        task = body["tasks"][0]["spark_python_task"]
        return task["python_file"], task["parameters"]

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        action, _, query = path.removeprefix("/api/2.2/jobs/runs/").partition("?")
        if action == "submit":
            token = body.get("idempotency_token")
            known = [run for run in self.runs.values() if token and run.body["idempotency_token"] == token]
            return 200, {"run_id": (known[0] if known else self.add(body)).number}
        number = re.search(r"run_id=(\d+)", query)
        run = self.runs.get(int(number[1] if number else body.get("run_id", 0)))
        if run is None:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Run does not exist."}
        if action == "cancel":
            run.cancel()
            return 200, {}
        return 200, {
            "run_id": run.number, "state": self._STATES[self.look(run)],
            "run_page_url": f"https://dbc.example/jobs/runs/{run.number}",
        }  # fmt: skip
