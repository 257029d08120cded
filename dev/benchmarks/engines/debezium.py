"""Debezium's engine on a server of ours: fetched and built once with Maven, run as a process that measures itself."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.engines.streaming import Streaming
from dev.bootstrap.report import Problem, Step
from dev.servers.mysql_family import MySqlFamily

PEER = Path(__file__).parent / "peer"
BUILT = paths.HOME / "bench" / "debezium"
IDLE_SECONDS = 60
_CLASSES = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mongodb": "io.debezium.connector.mongodb.MongoDbConnector",
}


def ensure(step: Step) -> None:
    """Build the runner if it is not there or older than its sources."""
    sources = sorted(p for p in PEER.rglob("*") if p.is_file())
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()
    stamp = BUILT / "built-from"
    with paths.hold_lock("bench-debezium"):
        if stamp.exists() and stamp.read_text() == digest:
            step.done("Debezium 3.5.0.Final, ready")
            return
        if not shutil.which("mvn"):
            raise Problem(
                "Debezium is fetched and its runner built with Maven, which is not on PATH (Debian, Ubuntu: apt-get install maven).\n"
                "Without the comparison: --skip-debezium."
            )
        shutil.rmtree(BUILT, ignore_errors=True)
        BUILT.mkdir(parents=True)
        command = ["mvn", "-B", "-f", PEER / "pom.xml", f"-DbuildDirectory={BUILT}", "package"]
        step.run(command, title="fetching and building with mvn")
        stamp.write_text(digest)
    step.done("Debezium 3.5.0.Final, built")


class Debezium:
    """A connector of Debezium's, with its offsets and schema history in ``folder``.

    :param properties: properties of the connector, besides the tables and the server's address
    """

    def __init__(self, server: MySqlFamily, kind: str, table: str, folder: Path, **properties: Any) -> None:
        self._begin(kind, folder)
        self._properties |= {
            "database.hostname": server.host,
            "database.port": server.port,
            "database.user": server.user,
            "database.password": server.password,
            "database.server.id": 5401,
            "database.include.list": table.split(".")[0],
            "table.include.list": table,
            "snapshot.mode": "initial",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": "history.dat",
        }
        if kind == "mysql":
            self._properties |= {"database.ssl.mode": "disabled", "driver.allowPublicKeyRetrieval": "true"}
        self._properties |= properties

    @classmethod
    def mongodb(cls, url: str, collection: str, folder: Path, **properties: Any) -> Debezium:
        """Make a connector to MongoDB that takes no snapshot and begins at the next change."""
        other = cls.__new__(cls)
        other._begin("mongodb", folder)
        other._properties |= {
            "mongodb.connection.string": url,
            "collection.include.list": collection,
            "snapshot.mode": "no_data",
        }
        other._properties |= properties
        return other

    def _begin(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._properties: dict[str, Any] = {
            "name": "bench",
            "connector.class": _CLASSES[kind],
            "topic.prefix": "bench",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": "offsets.dat",
        }
        for name in ("converter", "key.converter", "value.converter"):
            self._properties[f"{name}.schemas.enable"] = "false"

    def run(self, events: int, progress: Callable[[str], None], *, idle_s: float = IDLE_SECONDS) -> dict[str, Any]:
        """Run until it has delivered so many row events, or with 0 until nothing comes any more.

        :raises Problem: it failed
        """
        command = self._command("bench.DebeziumRun", str(events), str(idle_s))
        figures: dict[str, Any] = {}
        with (
            (self._folder / "debezium.log").open("w") as log,
            subprocess.Popen(
                command, cwd=self._folder, env=dict(os.environ), text=True, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            for line in process.stdout or ():
                if line.startswith("{"):
                    figures = json.loads(line)
                elif line.startswith("progress"):
                    progress(f"{int(line.split()[1]):,} events")
        if process.returncode or figures.get("events", 0) < events:
            tail = "".join((self._folder / "debezium.log").read_text().splitlines(keepends=True)[-15:])
            raise Problem(f"Debezium ended with {process.returncode}, {figures.get('events', 0)} events:\n{tail}")
        return figures

    def records(self, *, idle_s: float = 5) -> list[str]:
        """Read records until none has come for ``idle_s`` seconds; return each one's topic, key and value as texts.

        :raises Problem: it failed
        """
        file = self._folder / "records.txt"
        with (self._folder / "debezium.log").open("w") as log:
            command = self._command("bench.DebeziumRecords", str(file.absolute()), str(idle_s))
            done = subprocess.run(command, cwd=self._folder, text=True, stdout=log, stderr=log, check=False)
        if done.returncode:
            tail = "".join((self._folder / "debezium.log").read_text().splitlines(keepends=True)[-15:])
            raise Problem(f"Debezium ended with {done.returncode}:\n{tail}")
        return file.read_text().split("\n")[:-1]

    def stream(self, table: str, probe: str) -> Streaming:
        """Capture until it is ended, measuring as it goes.

        :param table: topic of the table that is read in chunks
        :param probe: topic of the table of timestamps
        """
        command = self._command("bench.DebeziumStream", table, probe)
        return Streaming("Debezium", command, self._folder, self._folder / "debezium.log", dict(os.environ))

    def _command(self, program: str, *arguments: str) -> list[str]:
        config = self._folder / "connector.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in self._properties.items()))
        return command(program, config, *arguments)


def command(program: str, properties: Path, *arguments: str) -> list[str]:
    """A program of the runner, which reads its connector from a file."""
    return [
        "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BUILT}/classes:{BUILT}/lib/*",
        program, str(properties), *arguments,
    ]  # fmt: skip
