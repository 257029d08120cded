"""Stand-ins of services that run Spark jobs: the REST interfaces of Livy, Databricks and the Spark operator of Kubernetes, as far as submissions use them.

They are no Livy, no Databricks and no Kubernetes: nothing here schedules, checks a login or keeps a log. A run is a process on this machine, which the
test chooses; so a job may really run. They answer as the real ones do if things go wrong: requests that are too many, faults of the server, answers that
are lost after the request has done its work, runs that wait before they start, and runs that another user cancels.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

import pytest

from tests.support.airflow.airflow_connector import connect
from tests.support.servers.spark_runs import Command, Program, Run

LOSE_ANSWER = "lose the answer"
"""A fault: the request does its work, and the connection ends without an answer."""


@dataclass
class SparkService:
    """A stand-in of a service.

    :param command: of its runs
    """

    command: Command
    faults: list[int | str] = field(default_factory=list)
    """What the next requests get instead of an answer: a status of HTTP, or :data:`LOSE_ANSWER`."""
    hold: bool = False
    """Whether runs wait."""
    runs: dict[int, Run] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    PROVIDER: ClassVar[str]
    """The package of Airflow's provider."""
    PARAMETERS: ClassVar[dict[str, Any]] = {}
    """Parameters of the platform that a submission needs here."""

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

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

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the default connection of the platform."""
        raise NotImplementedError

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        raise NotImplementedError

    def program_of(self, body: dict[str, Any]) -> Program:
        """Return the program of a body."""
        raise NotImplementedError

    def add(self, body: dict[str, Any]) -> int:
        """Add a run, and return its number."""
        number = next(self._numbers)
        self.runs[number] = Run(self.program_of(body), self.command, body)
        return number

    def inspect(self, number: int) -> str:
        """Return the stage of a run, which starts if it may."""
        return self.runs[number].inspect(hold=self.hold)


class LivyService(SparkService):
    """A stand-in of Livy 0.8: ``/batches``."""

    PROVIDER = "airflow.providers.apache.livy"
    _STATES: ClassVar[dict[str, str]] = {
        "pending": "starting", "running": "running", "failed": "dead", "succeeded": "success", "cancelled": "killed",
    }  # fmt: skip

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connect(monkeypatch, "livy_default", conn_type="livy", host="127.0.0.1", port=self.port, schema="http")

    def program_of(self, body: dict[str, Any]) -> Program:
        return Program(body["file"], body["args"], body.get("pyFiles", ()), conf=body.get("conf", {}))

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/batches" and method == "POST":
            if any(run.body.get("name") == body.get("name") for run in self.runs.values()):
                return 400, {"msg": f"Duplicate session name: Some({body['name']})"}
            return 201, self._document(self.add(body))
        if listed := re.fullmatch(r"/batches\?from=(\d+)&size=(\d+)", path):
            first, size = map(int, listed.groups())
            numbers = list(self.runs)
            return 200, {
                "from": first,
                "total": len(numbers),
                "sessions": [self._document(number) for number in numbers[first:][:size]],
            }
        found = re.fullmatch(r"/batches/(\d+)", path)
        number = int(found[1]) if found else 0
        if number not in self.runs:
            return 404, {"msg": "Session not found."}
        if method == "DELETE":
            self.runs.pop(number).cancel()
            return 200, {"msg": "deleted"}
        return 200, self._document(number)

    def _document(self, number: int) -> dict[str, Any]:
        stage = self.inspect(number)
        log = ["stderr: ", "py4j: an error of the driver"] if stage == "failed" else []
        return {
            "id": number, "name": self.runs[number].body.get("name"), "state": self._STATES[stage], "log": log,
            "appId": None, "appInfo": {"driverLogUrl": None, "sparkUiUrl": None},
        }  # fmt: skip


class DatabricksService(SparkService):
    """A stand-in of Databricks: ``jobs/runs/submit``, ``get`` and ``cancel`` of the Jobs API 2.2."""

    PROVIDER = "airflow.providers.databricks"
    PARAMETERS = {"new_cluster": {"spark_version": "17.3.x-scala2.13"}}
    _STATES: ClassVar[dict[str, dict[str, str]]] = {
        "pending": {"life_cycle_state": "PENDING", "state_message": "Waiting for cluster"},
        "running": {"life_cycle_state": "RUNNING", "state_message": "In run"},
        "failed": {"life_cycle_state": "INTERNAL_ERROR", "result_state": "FAILED", "state_message": "Task cdc failed"},
        "succeeded": {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS", "state_message": ""},
        "cancelled": {"life_cycle_state": "TERMINATED", "result_state": "CANCELED", "state_message": "Run cancelled."},
    }

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        address = {"host": "127.0.0.1", "port": self.port, "schema": "http"}
        connect(monkeypatch, "databricks_default", conn_type="databricks", password="token", **address)

    def program_of(self, body: dict[str, Any]) -> Program:
        (task,) = body["tasks"]
        libraries = {
            kind: [library[kind] for library in task["libraries"] if kind in library] for kind in ("whl", "jar")
        }
        program = task["spark_python_task"]
        conf = task.get("new_cluster", {}).get("spark_conf", {})
        return Program(program["python_file"], program["parameters"], libraries["whl"], libraries["jar"], conf)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        action, _, query = path.removeprefix("/api/2.2/jobs/runs/").partition("?")
        if action == "submit":
            token = body.get("idempotency_token")
            known = [number for number, run in self.runs.items() if token and run.body["idempotency_token"] == token]
            return 200, {"run_id": known[0] if known else self.add(body)}
        found = re.search(r"run_id=(\d+)", query)
        number = int(found[1] if found else body.get("run_id", 0))
        if number not in self.runs:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Run does not exist."}
        if action == "cancel":
            self.runs[number].cancel()
            return 200, {}
        return 200, {
            "run_id": number, "state": self._STATES[self.inspect(number)],
            "run_page_url": f"https://dbc.example/jobs/runs/{number}",
        }  # fmt: skip


class KubernetesService(SparkService):
    """A stand-in of the API server of Kubernetes with the Spark operator: ``SparkApplication`` objects of a namespace."""

    PROVIDER = "airflow.providers.cncf.kubernetes"
    PARAMETERS = {"namespace": "spark", "image": "registry/spark:4.1"}
    _STATES: ClassVar[dict[str, str]] = {
        "pending": "", "running": "RUNNING", "failed": "FAILED", "succeeded": "COMPLETED", "cancelled": "FAILED",
    }  # fmt: skip
    _PATH = re.compile(r"/apis/sparkoperator\.k8s\.io/v1beta2/namespaces/[\w-]+/sparkapplications(?:/([\w.-]+))?")

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "test", "user": {"token": "token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        connect(monkeypatch, "kubernetes_default", conn_type="kubernetes", extra={"kube_config": json.dumps(config)})

    def program_of(self, body: dict[str, Any]) -> Program:
        spec = body["spec"]
        files = spec["deps"]
        return Program(
            spec["mainApplicationFile"],
            spec["arguments"],
            files.get("pyFiles", ()),
            files.get("jars", ()),
            spec["sparkConf"],
        )

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if not (found := self._PATH.fullmatch(path)):
            return 404, self._error(404, "NotFound")
        name = found[1] or body["metadata"]["name"]
        number = next((number for number, run in self.runs.items() if run.body["metadata"]["name"] == name), None)
        if method == "POST":
            if number is not None:
                return 409, self._error(409, "AlreadyExists")
            self.add(body)
            return 201, body
        if number is None:
            return 404, self._error(404, "NotFound")
        if method == "DELETE":
            self.runs.pop(number).cancel()
            return 200, {"kind": "Status", "status": "Success"}
        stage = self.inspect(number)
        message = "driver container failed with ExitCode: 1" if stage == "failed" else ""
        state = {"state": self._STATES[stage], "errorMessage": message}
        return 200, {**self.runs[number].body, "status": {"applicationState": state}}

    def _error(self, code: int, reason: str) -> dict[str, Any]:
        return {"kind": "Status", "status": "Failure", "code": code, "reason": reason}


SERVICES: dict[str, type[SparkService]] = {
    "livy": LivyService, "databricks": DatabricksService, "spark-kubernetes": KubernetesService,
}  # fmt: skip
"""The stand-ins, by the names of their platforms."""
