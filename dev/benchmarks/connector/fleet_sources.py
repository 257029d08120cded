"""The sources of :mod:`.fleet`: two servers, a table for each connector, changes that say when they were made, and when they were captured."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pymysql

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from dev.airflow import Airflow
from dev.servers import MariaDb
from dev.servers.mysql_family import CAPTURE_PRIVILEGES

EACH_MINUTE = 0.1
"""Part of the connectors that has a change in a minute."""
OF_SECOND = 4
"""One connector in so many is of the second server."""
_EACH = """from pathlib import Path

from airflow_provider_cdc.dag import cdc_dags

fleet = cdc_dags(Path(__file__).parent / "fleet")
"""
_GROUPS = """import json
from pathlib import Path

from airflow_provider_cdc.dag import GroupedConnector, ConnectorDefinition, cdc_group_dag

for number, group in enumerate(json.loads((Path(__file__).parent / "groups.json").read_text())):
    globals()[f"group_{number}"] = cdc_group_dag(
        [GroupedConnector(definition=ConnectorDefinition(**one["definition"]), conn_id=one["conn_id"]) for one in group],
        dag_id=f"group_{number}", poll_interval=5, is_paused_upon_creation=False,
    )
"""


class Connectors:
    """All of them: ``c0``, ``c1`` and so on.

    :param servers: the one that stays up, and the one that is stopped
    :param group: how many of them are captured by one task; 1: each has a separate DAG
    """

    def __init__(self, servers: list[MariaDb], count: int, folder: Path, group: int) -> None:
        self._servers, self._count, self._group = servers, count, group
        self._changelog = folder / "changelog"
        self._chance = random.Random(14)
        self._writers: list[pymysql.Connection[pymysql.cursors.Cursor] | None] = [None, None]
        self._written: dict[str, dict[float, bool]] = {f"c{number}": {} for number in range(count)}
        """Connector → when a row was written, as its column says → whether the second server was down then."""
        self._due = 0.0
        self.stopped, self.written = False, 0
        for server in servers:
            server.sql("CREATE DATABASE fleet", "CREATE USER reader@'%' IDENTIFIED BY 'reader'")
            server.sql(f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO reader@'%'")
        for number in range(count):
            self._server(number).sql(
                f"CREATE TABLE fleet.c{number} (id INT AUTO_INCREMENT PRIMARY KEY, at DOUBLE NOT NULL)",
                f"INSERT INTO fleet.c{number} (at) VALUES (0)",
            )

    @property
    def second_count(self) -> int:
        """The number of connectors of the second server."""
        return len(range(OF_SECOND - 1, self._count, OF_SECOND))

    @property
    def dags(self) -> int:
        """The number of DAGs."""
        return -(-self._count // self._group)

    def define(self, airflow: Airflow) -> None:
        """Write the DAGs."""
        for number, server in enumerate(self._servers):
            airflow.connection(
                f"fleet_{number}", conn_type="cdc_mariadb", host=server.host, port=server.port, login="reader", password="reader",
                extra={"database.ssl.mode": "disabled"},
            )  # fmt: skip
        found = [self._definition(number) for number in range(self._count)]
        if self._group > 1:
            # those of one server are together, as no one has others beside them
            found.sort(key=lambda one: one["conn_id"])
            groups = [
                [{"conn_id": one.pop("conn_id"), "definition": one} for one in found[at : at + self._group]]
                for at in range(0, self._count, self._group)
            ]
            (airflow.dags / "groups.json").write_text(json.dumps(groups))
            (airflow.dags / "fleet.py").write_text(_GROUPS)
            return
        folder = airflow.dags / "fleet"
        folder.mkdir()
        (airflow.dags / "fleet.py").write_text(_EACH)
        defaults = {"is_paused_upon_creation": False, "group": {"poll_interval": 5}}
        (folder / "_defaults.yaml").write_text(json.dumps(defaults))
        for one in found:
            (folder / f"{one['name']}.yaml").write_text(json.dumps(one))

    def _definition(self, number: int) -> dict[str, Any]:
        return {
            "name": f"c{number}", "source": "mariadb", "changelog": str(self._changelog),
            "conn_id": f"fleet_{self._servers.index(self._server(number))}",
            "properties": {"database.server.id": 5000 + number, "table.include.list": rf"fleet\.c{number}"},
        }  # fmt: skip

    def _server(self, number: int) -> MariaDb:
        return self._servers[number % OF_SECOND == OF_SECOND - 1]

    def stop_second(self, *, during: bool) -> None:
        """Stop the second server, or start it again, if it is not so already."""
        if during != self.stopped:
            if during:
                self._servers[1].stop()
                self._writers[1] = None
            else:
                self._servers[1].start()
            self.stopped = during

    def write(self, second: float) -> None:
        """Write the rows that are due at a second of the measurement. A table whose server is down gets none."""
        while self._due <= second:
            self._due += 60 / max(1.0, self._count * EACH_MINUTE)
            number = self._chance.randrange(self._count)
            which = self._servers.index(self._server(number))
            if which and self.stopped:
                continue
            writer = self._writers[which] = self._writers[which] or self._servers[which].connect(autocommit=True)
            at = time.time()
            with writer.cursor() as cursor:
                cursor.execute(f"INSERT INTO fleet.c{number} (at) VALUES (%s)", (at,))
            self._written[f"c{number}"][at] = self.stopped
            self.written += 1

    def held(self) -> int:
        """Connections that connectors have to both servers."""
        query = "SELECT count(*) FROM information_schema.processlist WHERE user = 'reader'"
        return sum(int(server.sql(query)[0][0]) for server in self._servers[: 1 if self.stopped else 2])

    def lacking(self) -> int:
        """Count the written rows that are not in the change log."""
        return sum(len(rows.keys() - self._captured(name).keys()) for name, rows in self._written.items() if rows)

    def lags(self) -> dict[str, float]:
        """Seconds from a row's commit to that of the batch that has it: of all, and of those that were written while the second server was down."""
        every, down = list[float](), list[float]()
        for name, rows in self._written.items():
            captured = self._captured(name) if rows else {}
            every += [captured[at] - at for at in rows if at in captured]
            down += [captured[at] - at for at, beside in rows.items() if at in captured and beside]
        found = {"p50": _share(every, 0.5), "p95": _share(every, 0.95), "most": max(every, default=0.0)}
        found |= {"down_p50": _share(down, 0.5), "down_p95": _share(down, 0.95)}
        return {name: round(value, 2) for name, value in found.items()}

    def _captured(self, name: str) -> dict[float, float]:
        """Map the time of writing that each row holds to the time at which its batch was committed."""
        log, found = ChangeLog(str(self._changelog)), dict[float, float]()
        for manifest in log.read_manifests(name):
            committed = Path(log.format_manifest_path(manifest)).stat().st_mtime
            for file in manifest.files:
                with log.open_file(name, file) as opened:
                    rows = pq.read_table(opened, columns=["after"], use_threads=False).to_pylist()
                for row in rows:
                    if row["after"]:
                        found.setdefault(row["after"]["at"], committed)
        return found


def _share(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0
