"""Our own capture on a server, each run in a separate process from the same saved state."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.engines.streaming import Streaming
from dev.bootstrap.report import Problem
from dev.servers import Server
from dev.servers.mysql_family import MySqlFamily


class OwnConnector:
    """A connector of ours, with its state and change log in ``folder``.

    :param properties: properties of the source, besides the table and the server's address
    """

    def __init__(self, server: Server, kind: str, table: str, folder: Path, **properties: Any) -> None:
        self.folder = folder
        self._kind = kind
        self._properties = {"topic.prefix": "bench", "table.include.list": table} | properties
        self._secrets = {
            "database.hostname": server.host,
            "database.port": server.port,
            "database.user": server.user,
            "database.password": server.password,
        }

    @classmethod
    def mysql(cls, server: MySqlFamily, kind: str, table: str, folder: Path, **more: Any) -> OwnConnector:
        """A connector of MySQL or MariaDB."""
        properties = {"database.include.list": table.split(".")[0], "database.server.id": 5402} | more
        return cls(server, kind, table, folder, **properties)

    @classmethod
    def without_server(
        cls, kind: str, folder: Path, properties: dict[str, Any], secrets: dict[str, Any]
    ) -> OwnConnector:
        """A connector of a source that is no server."""
        ours = cls.__new__(cls)
        ours.folder, ours._kind, ours._secrets = folder, kind, secrets
        ours._properties = {"topic.prefix": "bench"} | properties
        return ours

    @property
    def changelog(self) -> Path:
        return self.folder / "changelog"

    def copy_to(self, folder: Path) -> OwnConnector:
        """The same connector, as far as it has come, continued in another folder."""
        shutil.rmtree(folder, ignore_errors=True)
        if self.folder.exists():
            shutil.copytree(self.folder, folder)
        other = OwnConnector.__new__(OwnConnector)
        other.__dict__ |= self.__dict__ | {"folder": folder}
        return other

    def run(self, progress: Callable[[str], None], *, stages: bool = False, files: int | None = None) -> dict[str, Any]:
        """Capture up to the end of the log.

        :param stages: with stopwatches, which cost a little
        :param files: how many the process may have open
        :raises Problem: it failed
        """
        command = self.command("dev.benchmarks.programs.run_capture", stages=stages, files=files)
        figures: dict[str, Any] = {}
        with (
            (self.folder / "run.log").open("w") as log,
            subprocess.Popen(
                command, cwd=paths.ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            for line in process.stdout or ():
                if line.startswith("{"):
                    figures = json.loads(line)
                elif line.startswith("progress"):
                    progress(line.removeprefix("progress").strip())
        if process.returncode or not figures:
            tail = "".join((self.folder / "run.log").read_text().splitlines(keepends=True)[-15:])
            raise Problem(f"The capture ended with {process.returncode}:\n{tail}")
        return figures

    def stream(self, table: str, probe: str) -> Streaming:
        """Capture until it is ended, measuring as it goes.

        :param table: topic of the table that is read in chunks
        :param probe: topic of the table of timestamps
        """
        command = self.command("dev.benchmarks.programs.run_stream", table=table, probe=probe)
        return Streaming("The capture", command, paths.ROOT, self.folder / "run.log", environment())

    def command(self, module: str, **more: Any) -> list[str]:
        """A program of ours that reads this connector from a file."""
        self.changelog.mkdir(parents=True, exist_ok=True)
        given = {
            "source": self._kind,
            "changelog": str(self.changelog),
            "state": f"sqlite:///{self.folder}/state.db",
            "properties": self._properties,
            "secrets": self._secrets,
        }
        file = self.folder / "run.json"
        file.write_text(json.dumps(given | more))
        return [sys.executable, "-m", module, str(file)]


def environment() -> dict[str, str]:
    """Return an environment in which Python keeps bytecode, as for installed packages, whatever the shell says."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(paths.HOME / "bench" / "pycache")}
