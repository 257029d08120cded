"""Commands that only look, beside a run that is alive on a real database: the run continues, and captures everything."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.cli.cli_config import ActionCommand, GroupCommand

from airflow_provider_cdc.cli.command_parser import build_commands
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.state.state_store import StateStore
from tests.cli.conftest import run
from tests.support.airflow.airflow_connector import connect
from tests.support.change_log.replay import Replay
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.workload import source_rows

CHANGE = {
    "setup",
    "pause",
    "resume",
    "stop",
    "restart",
    "signal",
    "snapshot",
    "delete",
    "maintain",
    "rebuild",
    "state migrate",
}
"""Commands that change something whatever they are given. A command that only prints its plan unless it is confirmed is among those that look."""
ELSEWHERE = {
    "verify",
    "row",
    "forget-target",
    "db2 add-table",
    "db2 remove-table",
    "db2 switch-capture-instance",
    "examples",
    "grants",
    "import",
    "spark-files",
    "state copy",
}
"""``verify`` looks at tables, with Spark: tests/targets/lake/verify/test_verify_beside.py has it beside a capture and an apply. ``forget-target`` is about
applies, and prints its plan unless it is confirmed: tests/cli/test_maintain.py. Those of Db2 print their plan, unless they
are confirmed: tests/cli/test_procedures.py. ``row`` has to be allowed first: tests/cli/test_row.py. ``examples``, ``grants``,
``import`` and ``spark-files`` know no connector. ``state copy`` is refused beside a run: tests/state/test_state_copy.py."""
LOOK: dict[str, list[str]] = {
    "check": ["shop"],
    "connectors": [],
    "offsets": ["shop"],
    "batches": ["shop"],
    "events": ["shop"],
    "status": ["shop"],
    "targets": ["shop"],
    "metrics": ["shop"],
    "offset show": ["shop"],
    "offset history": ["shop"],
    "offset set": ["--to", "{place}", "shop"],
    "offset reset": ["shop"],
    "offset restore": ["1", "shop"],
    "gap": ["shop"],
    "signals": ["shop"],
    "notifications": ["shop"],
}


def _names(found: Any, before: str = "") -> Iterator[str]:
    for command in found:
        if isinstance(command, GroupCommand):
            yield from _names(command.subcommands, f"{before}{command.name} ")
        else:
            assert isinstance(command, ActionCommand)
            yield before + command.name


def test_every_command_is_known_as_one_that_looks_or_one_that_changes() -> None:
    (group,) = build_commands()
    assert set(_names(group.subcommands)) == CHANGE | ELSEWHERE | set(LOOK)


_RUN = """
import json, sys
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
definition, state, secrets = json.loads(sys.argv[1])
connections = {"source": "shop", "state": "cdc_state_default"}
with open_capture(ConnectorDefinition(**definition), state, secrets=secrets, connections=connections) as capture:
    capture.run(run_for_s=600)
"""


class _CaptureProcess:
    """A run in a separate process, as a task is: it continues for ten minutes, or until it is killed."""

    def __init__(self, definition: ConnectorDefinition, state: str, secrets: dict[str, Any], told: Path) -> None:
        self._told = told
        with told.open("w") as out:
            text = json.dumps([definition.to_document(), state, secrets])
            self._process = subprocess.Popen([sys.executable, "-c", _RUN, text], stdout=out, stderr=out)

    def wait(self, replay: Replay, table: str, rows: int) -> None:
        """Until the change log has so many rows of a table."""
        while len(replay.advance().rows(table)) < rows:
            self.alive()
            time.sleep(0.05)

    def alive(self) -> None:
        assert self._process.poll() is None, f"the run has ended: {self._told.read_text()}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_a_run_goes_on_whatever_is_looked_at_beside_it(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    server = request.getfixturevalue(kind)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    source = kind.rstrip("0123456789")
    with server.database("beside") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (0)")
        login = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
        connect(monkeypatch, "shop", conn_type=f"cdc_{source}", **login)
        state = f"sqlite:///{tmp_path}/state.db"
        store = StateStore(state, lease_ttl_s=30)
        store.create_tables()
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state)
        properties = {
            "database.server.id": 4321,
            "database.include.list": db.name,
            "poll.interval.ms": 50,
            "batch.max.ms": 100,
        }
        definition = ConnectorDefinition("shop", source, f"{tmp_path}/changelog", properties)
        access = ConnectorAccess(definition, "shop", "cdc_state_default")
        with access.prepare_capture(owner="first", lease_ttl_s=30, lease_wait_s=30) as capture:
            capture.run()
        replay, table = Replay(access.open_change_log(), "shop"), f"shop.{db.name}.t"
        secrets = mysql_connector(server, tmp_path / "none", source).secrets
        live = _CaptureProcess(definition, state, secrets, tmp_path / "run.log")
        try:
            db.sql("INSERT INTO t VALUES (1)")
            live.wait(replay, table, 2)
            for n, (command, arguments) in enumerate(_lines(store, server), 2):
                assert _run_command([*command.split(), *arguments]) == 0, f"{command}: {capfd.readouterr()}"
                db.sql(f"INSERT INTO t VALUES ({n})")
                live.wait(replay, table, n + 1)
            live.alive()
        finally:
            live.end()
        assert replay.advance().rows(table) == source_rows(server, db.name, "t")
        assert replay.operations == {"r": 1, "c": n}
        store.close()


def _lines(store: StateStore, server: Any) -> Iterator[tuple[str, list[str]]]:
    """Every command that looks; with each form of a place, where one is named."""
    offset = store.load_offset("shop").offset
    assert offset is not None
    assert offset.position is not None
    forms: list[dict[str, Any]] = [
        offset.position,
        {"binlog_filename": offset.position["file"], "binlog_position": offset.position["pos"]},
        {"gtid_set": offset.position["gtids"]},
    ]
    for command, arguments in LOOK.items():
        for form in forms if "{place}" in arguments else forms[:1]:
            yield command, [json.dumps(form) if a == "{place}" else a for a in arguments]


def _run_command(line: list[str]) -> object:
    try:
        run(*line)
    except SystemExit as e:
        return e.code
    return 0
