"""Connectors of a MariaDB that fail by real causes, for the pictures of pages that people on call see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final

from dev.airflow import Services
from dev.bootstrap.report import Step
from dev.demonstration.kit import Kit

PICTURES_DATA: Final = Path("/srv")
"""The folder of change logs and tables on pictures. ``dev/docs --screenshots`` mounts a disk there, which only its processes see."""
_QUIET_S: Final = 180
_SMALL_DISK: Final = "documents"
"""The disk that gets full, with room for 24 MB."""

_DAGS: Final = '''"""Connectors of four databases."""

from inventory import CHANGELOG, SPARK, TABLES

from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

for number, (name, changelog) in enumerate({connectors}):
    globals()[name] = cdc_dag(
        ConnectorDefinition(
            name, "mariadb", changelog or CHANGELOG, {{"database.server.id": 4790 + number, "database.include.list": name}}
        ),
        dag_id=name, conn_id="{conn_id}", location=TABLES, schedule=None, group={{"wait": False, "apply": SPARK}}, default_args={{"retries": 0}},
    )
'''

_TABLES: Final = (
    "CREATE DATABASE billing", "CREATE TABLE billing.invoices (id INT PRIMARY KEY, customer VARCHAR(40), amount DECIMAL(10,2))",
    "INSERT INTO billing.invoices SELECT seq, CONCAT('C-', 100 + seq % 40), seq * 7.35 FROM billing.seq_1_to_400",
    "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(10,2))",
    "INSERT INTO shop.orders SELECT seq, CONCAT('C-', 100 + seq % 40), seq * 3.1 FROM shop.seq_1_to_900",
    "CREATE DATABASE documents", "CREATE TABLE documents.contracts (id INT PRIMARY KEY, title VARCHAR(80), scan LONGBLOB)",
    "INSERT INTO documents.contracts SELECT seq, CONCAT('Contract ', seq), NULL FROM documents.seq_1_to_60",
    "CREATE DATABASE warehouse", "CREATE TABLE warehouse.stock (id INT PRIMARY KEY, product VARCHAR(80), pieces INT)",
    "INSERT INTO warehouse.stock SELECT seq, CONCAT('Product ', seq), seq % 37 FROM warehouse.seq_1_to_500",
)  # fmt: skip


class RealFailures:
    """Runs four connectors in Airflow, and breaks each in the way that its picture shows. The server is down afterwards.

    :cvar NAMES: name of a failure, as in the picture's file → connector
    """

    NAMES: ClassVar[dict[str, str]] = {
        "position-lost": "billing",
        "ddl-refused": "shop",
        "disk-full": "documents",
        "source-down": "warehouse",
    }

    def __init__(self, services: Services, kit: Kit, step: Step) -> None:
        self._services, self._kit, self._step = services, kit, step

    def provoke_all(self) -> None:
        """Let all connectors run once without a failure, and then fail."""
        server = self._kit.server
        server.sql(*_TABLES)
        disks = {name: f"{PICTURES_DATA}/{name}" if name == _SMALL_DISK else "" for name in self.NAMES.values()}
        text = _DAGS.format(connectors=sorted(disks.items()), conn_id=self._kit.conn_id)
        (self._services.airflow.dags / "four_databases.py").write_text(text)
        self._run("success", *self.NAMES.values())
        server.sql(  # a new column, and rows whose log names no columns
            "SET GLOBAL binlog_row_metadata = NO_LOG", "ALTER TABLE shop.orders ADD COLUMN voucher VARCHAR(20)",
            "INSERT INTO shop.orders VALUES (901, 'C-117', 49.90, 'SPRING')", "SET GLOBAL binlog_row_metadata = FULL",
        )  # fmt: skip
        with server.connect() as connection, connection.cursor() as cursor:
            for number in (61, 62, 63):
                cursor.execute(
                    "INSERT INTO documents.contracts VALUES (%s, 'Scan', %s)", (number, os.urandom(12_000_000))
                )
            connection.commit()
        self._run("failed", "shop", "documents")
        server.sql("INSERT INTO billing.invoices VALUES (401, 'C-120', 99.00)", "FLUSH BINARY LOGS")
        ((newest, *_),) = server.sql("SHOW MASTER STATUS")
        for (thread,) in server.sql("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'"):
            server.sql(
                f"KILL {thread}"
            )  # of a run that has ended: until the server notices, it keeps the files that the run read

        def is_purged() -> bool:
            server.sql(f"PURGE BINARY LOGS TO '{newest}'")
            return len(server.sql("SHOW BINARY LOGS")) == 1

        self._services.until(is_purged, _QUIET_S, "the log is purged")
        self._run("failed", "billing")
        server.stop()
        self._run("failed", "warehouse")

    def _run(self, state: str, *dags: str) -> None:
        """Run DAGs beside each other, each until it has the state."""
        runs: dict[str, str] = {}
        for dag in dags:
            path = f"/api/v2/dags/{dag}"
            self._services.until(
                lambda p=path: self._services.request("GET", p)[0] == 200, _QUIET_S, f"Airflow has read {dag}"
            )
            self._services.json("PATCH", path, {"is_paused": False})
            run = self._services.json("POST", f"{path}/dagRuns", {"logical_date": None})
            runs[dag] = f"{path}/dagRuns/{run['dag_run_id']}"

        def have_ended() -> bool:
            states = {dag: self._services.json("GET", path)["state"] for dag, path in runs.items()}
            self._step.progress(", ".join(f"{dag} {found}" for dag, found in states.items()))
            wrong = {dag: found for dag, found in states.items() if found in ("success", "failed") and found != state}
            assert not wrong, f"runs that had to end as {state}: {wrong}"
            return set(states.values()) == {state}

        self._services.until(have_ended, _QUIET_S, f"{', '.join(dags)}: {state}")
