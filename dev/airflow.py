"""A real Airflow in a separate folder, with this project installed from its wheel."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from airflow_provider_cdc.hooks.airflow_compat import find_migration_obstacle, has_provider_commands
from dev import paths
from dev.bootstrap import jars, uv
from dev.bootstrap.report import Step
from dev.patience import NoProgress, sizes, wait_while_moving
from dev.ports import free_port
from dev.servers.process import tail

DAGS = paths.ROOT / "dags"
START_SECONDS = 180
LOOPBACK = "127.0.0.1"
LEFT_OUT = ("AIRFLOW_", "CDC_", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYSPARK_")
"""Beginnings of environment variables that Airflow's processes do not get."""
DISTRIBUTION = "airflow_provider_cdc"


def build_wheel(folder: Path) -> Path:
    """The project's wheel, freshly built."""
    binary = uv.ensure(Step(quiet=True))
    command = [str(binary), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(paths.ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(wheel: Path, folder: Path) -> Path:
    """A virtual environment with everything that the working copy's has, and with the wheel instead of the working copy.

    As a user has it after ``pip install``: Airflow finds one distribution of ours. Were the working copy's beside it, Airflow would
    register the plugin twice, and tell that as an error on its home page.

    :return: its Python
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    scripts, packages = folder / "bin", Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for there in Path(sysconfig.get_path("purelib")).iterdir():
        if DISTRIBUTION not in there.name and not (packages / there.name).exists():
            (packages / there.name).symlink_to(there)
    for there in Path(sys.executable).parent.iterdir():
        head = there.read_bytes()[:500] if there.is_file() else b""
        foreign = head[:2] == b"#!" and str(sys.executable).encode() not in head
        if (
            foreign or there.suffix == ".py"
        ):  # spark-submit and the like; what begins with the working copy's Python stays there
            (scripts / there.name).symlink_to(there)
    python = scripts / "python"
    (scripts / "airflow").write_text(
        f"#!{python}\nimport sys\n\nfrom airflow.__main__ import main\n\nsys.exit(main())\n"
    )
    (scripts / "airflow").chmod(0o755)
    binary = uv.ensure(Step(quiet=True))
    command = [str(binary), "pip", "install", "--quiet", "--python", str(python), "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return python


class Airflow:
    """Runs commands, and for as long as it is entered all of Airflow's services.

    :param folder: becomes ``AIRFLOW_HOME`` and holds everything else
    :param python: of an :func:`environment` that exists already
    """

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        self.folder, self.home = folder, folder / "home"
        self.dags = folder / "dags"
        for made in (self.home, self.dags):
            made.mkdir(parents=True)
        self.python = python or environment(build_wheel(folder / "wheel"), folder / "environment")
        self.environment = {
            # without a cache prefix, all environments share what the packages beside the working copy were compiled to
            **{k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)},
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_VAR_CDC_JARS": ",".join(map(str, jars.ensure("delta"))),
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "NO_COLOR": "1",
        }
        if (setting := find_migration_obstacle()) is not None:  # as docs/start/versions.md says
            name, _, value = setting.partition("=")
            self.environment[name] = value

    def connection(self, conn_id: str, **fields: Any) -> None:
        """A connection by environment variable, for processes started from now on."""
        self.environment[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(fields)

    def run(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """``airflow <arguments>``; fails when it ends with another status."""
        command = ["airflow", *arguments]
        if arguments[0] == "cdc" and not has_provider_commands():
            command = ["airflow-cdc", *arguments[1:]]
        result = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True)
        text = f"airflow {' '.join(arguments)} ended with {result.returncode}\n{result.stdout[-6000:]}\n{result.stderr[-6000:]}"
        assert result.returncode == status, text
        return result

    def sql(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Ask the metadata DB."""
        with sqlite3.connect(f"file:{self.home}/airflow.db?mode=ro", uri=True, timeout=30) as connection:
            return connection.execute(query, arguments).fetchall()

    def tables(self) -> set[str]:
        return {name for (name,) in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")}


class Services:
    """The scheduler, DAG processor, triggerer and API server, in separate process groups, for this machine only.

    Not ``airflow standalone``: its scheduler and triggerer serve their logs on every address, and no option changes that. Here
    all components read the log files directly.
    """

    COMPONENTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "scheduler": ("--skip-serve-logs",),
        "dag-processor": (),
        "triggerer": ("--skip-serve-logs",),
        "api-server": (),
    }

    def __init__(self, airflow: Airflow) -> None:
        self.airflow = airflow
        self.port, health = free_port(LOOPBACK), free_port(LOOPBACK)
        self.log = airflow.folder / "services.log"
        self._environment = {
            **airflow.environment,
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{self.port}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_HOST": LOOPBACK,
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(health),
            # how long the triggers of a dead triggerer wait for another one
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
            "AIRFLOW__API_AUTH__JWT_SECRET": os.urandom(64).hex(),
        }
        self._token: str | None = None
        self._up = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.log.touch()
        try:
            for component in self.COMPONENTS:
                self.start(component)
            self.until(self._healthy, START_SECONDS, "Airflow is up")
            self._up = True
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    @property
    def groups(self) -> set[int]:
        """Process groups of what is running."""
        return {process.pid for process in self._running.values()}

    @property
    def pids(self) -> dict[str, int]:
        """Name of a service → its process."""
        return {name: process.pid for name, process in self._running.items()}

    def request(
        self, method: str, path: str, body: Any = None, *, login: bool = True, accept: str = "application/json"
    ) -> tuple[int, str]:
        """Status and text of an answer of the API server. Redirections are not followed."""
        headers = {"content-type": "application/json", "accept": accept}
        if login:
            headers["authorization"] = f"Bearer {self._login()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.port}{path}", method=method, headers=headers, data=data
        )
        try:
            with urllib.request.build_opener(_RedirectRejecter).open(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers.get("location") or e.read().decode()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """An answer that must be good."""
        status, text = self.request(method, path, body)
        assert status < 300, f"{method} {path}: {status} {text}"
        return json.loads(text)

    def kill(self, component: str) -> None:
        """Kill one of the services, with its own processes, as a machine that dies does."""
        process = self._running.pop(component)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def start(self, component: str) -> None:
        """Start one of the services; it ends with the others."""
        with self.log.open("ab") as log:
            self._running[component] = subprocess.Popen(
                ["airflow", component, *self.COMPONENTS[component]], env=self._environment, cwd=self.airflow.folder,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def until(
        self, condition: Any, quiet_s: float, awaited: str, *, report: Callable[[str], None] = lambda text: None
    ) -> Any:
        """Wait for a condition as long as there is progress; returns what it returned.

        :param quiet_s: how long nothing may move: no task writes a line, nothing is captured or applied
        :param report: is called with the step that is slow
        """

        def alive() -> Any:
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            assert not ended, f"{', '.join(ended)} has ended\n{tail(self.log, 60)}"
            return condition()

        try:
            return wait_while_moving(alive, awaited, signs=self._signs, quiet_s=quiet_s, report=report)
        except NoProgress as e:
            raise NoProgress(f"{e}\n{tail(self.log, 60)}") from None

    def _signs(self) -> object:
        """Logs of tasks, and what they write; of the services only while they start, as they talk in their sleep."""
        home = self.airflow.home
        started = None if self._up else self.log.stat().st_size
        return started, sizes([*(home / "logs").glob("dag_id=*"), home / "cdc"])

    def _healthy(self) -> bool:
        try:
            status, text = self.request("GET", "/api/v2/monitor/health", login=False)
        except OSError:
            return False
        parts = json.loads(text) if status == 200 else {}
        needed = ("scheduler", "triggerer", "dag_processor", "metadatabase")
        return all(parts.get(part, {}).get("status") == "healthy" for part in needed)

    @property
    def url(self) -> str:
        """The address of the UI."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user ``admin``."""
        passwords = json.loads((self.airflow.home / "simple_auth_manager_passwords.json.generated").read_text())
        return str(passwords["admin"])

    def _login(self) -> str:
        if self._token is None:
            body = {"username": "admin", "password": self.password}
            status, text = self.request("POST", "/auth/token", body, login=False)
            assert status == 201, text
            self._token = str(json.loads(text)["access_token"])
        return self._token

    def _stop(self) -> None:
        _stop_groups([*self._running.values()])


class _RedirectRejecter(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _stop_groups(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Whole groups, by and by more firmly: a lone signal leaves processes behind."""
    for number, seconds in ((signal.SIGINT, 5), (signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(_group_lives(process.pid) for process in processes):
            for process in processes:
                process.poll()
            time.sleep(0.1)
    for process in processes:
        process.wait(60)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def example(name: str, folder: Path) -> None:
    """Put one of the example DAGs into a DAG folder, and the connectors that it takes from beside it."""
    for file in (name, "inventory"):
        shutil.copy(DAGS / f"{file}.py", folder)
