"""A private Spark cluster on this machine: a standalone master, and workers that start executors."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.ports import free_port
from dev.servers.base import Server


class _Daemon(Server):
    """A process of the cluster, with a page that says how it is."""

    user = ""
    password = ""
    main: str

    def __init__(self, options: dict[str, Any] | None = None, **given: Any) -> None:
        super().__init__(options, **given)
        self._page_port = free_port(self.host)

    def page(self) -> dict[str, Any]:
        """Fetch the state of the process from its page.

        :raises OSError: the page does not answer
        """
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.host}:{self._page_port}/json/", timeout=5) as answer:
            return dict(json.load(answer))

    def _prepare(self) -> None:
        (self.folder / "work").mkdir(exist_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        import pyspark

        # the shell script spark-class would be a separate process, which a signal ends and not the JVM
        jars = Path(pyspark.__file__).with_name("jars")
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else Path("java")
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        command = [
            java, "-Xmx256m", *opened, "-cp", f"{jars}/*", self.main, "--host", self.host, "--port", self.port,
            "--webui-port", self._page_port, *self._arguments(),
        ]  # fmt: skip
        environment = {
            "SPARK_LOCAL_IP": self.host,
            "SPARK_HOME": str(jars.parent),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SCALA_VERSION": "2.13",  # otherwise a worker looks for the folders of a build
        }
        return list(map(str, command)), environment

    def _arguments(self) -> list[Any]:
        return []

    def _answers(self) -> bool:
        try:
            return bool(self.page())
        except (OSError, ValueError, urllib.error.URLError):
            return False


class SparkMaster(_Daemon):
    kind = "spark-master"
    main = "org.apache.spark.deploy.master.Master"

    @property
    def url(self) -> str:
        """The address for ``spark-submit --master``."""
        return f"spark://{self.host}:{self.port}"


class SparkWorker(_Daemon):
    """Starts executors, each a JVM below it.

    :param master: to which it belongs
    :param cores: that its executors have together
    """

    kind = "spark-worker"
    main = "org.apache.spark.deploy.worker.Worker"

    def __init__(self, master: SparkMaster, *, cores: int = 1, memory: str = "1g") -> None:
        super().__init__()
        self._master, self._cores, self._memory = master, cores, memory

    @property
    def executors(self) -> list[int]:
        """Pids of the executors that run now."""
        mine = f"spark://Worker@{self.host}:{self.port}"
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has just ended
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and mine in words:
                found.append(int(process.name))
        return found

    def _arguments(self) -> list[Any]:
        folder = self.folder / "work"
        return ["--cores", self._cores, "--memory", self._memory, "--work-dir", folder, self._master.url]


class SparkCluster:
    """A master and some workers, in a ``with`` block.

    >>> with SparkCluster() as cluster:
    ...     cluster.url
    'spark://127.0.0.1:40123'
    """

    def __init__(self, workers: int = 2, *, memory: str = "1g", cores: int = 1) -> None:
        self.master = SparkMaster()
        self.workers = [SparkWorker(self.master, memory=memory, cores=cores) for _ in range(workers)]

    @property
    def url(self) -> str:
        """The address for ``spark-submit --master``."""
        return self.master.url

    @property
    def executors(self) -> list[int]:
        """Pids of all executors that run now."""
        return [pid for worker in self.workers for pid in worker.executors]

    def kill_executor(self, number: int) -> bool:
        """Kill one of the executors with SIGKILL.

        :return: whether there was any
        """
        if not (found := self.executors):
            return False
        os.kill(found[number % len(found)], signal.SIGKILL)
        return True

    def __enter__(self) -> Self:
        try:
            for server in (self.master, *self.workers):
                server.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for server in (*self.workers, self.master):
            server.close()


_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch", "sun.security.action")
"""Packages of the JDK that Spark wants to look into."""
