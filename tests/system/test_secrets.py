"""A marker in every place that holds a secret, one run of capture and Spark, and then a search through everything that is written or shown."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.plugin_app import app
from dev.airflow import Airflow, Services
from tests.support.airflow.airflow_connector import connect
from tests.support.airflow.airflow_versions import set_auth_manager, simple_user
from tests.system.conftest import PASSWORD

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

MARKERS = {
    "signal.consumer.sasl.password": "marker-of-the-sasl-password",
    "signal.consumer.ssl.key.password": "marker-of-the-key-password",
    "signal.consumer.ssl.key.pem": "marker-of-the-key",
    "signal.consumer.sasl.oauthbearer.client.secret": "marker-of-the-client-secret",
}
"""Of the connection to the source, besides its password."""
STORAGE = {
    "secret": "marker-of-the-storage-secret",
    "token": "marker-of-the-storage-token",
    "client_kwargs": {"aws_secret_access_key": "marker-of-the-nested-key"},
}
"""Of the connection to the change log's storage."""
SECRETS = [
    PASSWORD,
    *MARKERS.values(),
    "marker-of-the-storage-secret",
    "marker-of-the-storage-token",
    "marker-of-the-nested-key",
]
DAG = """
from airflow.sdk import Variable
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

secretive = ConnectorDefinition(
    name="secretive", source="mariadb", changelog="{changelog}",
    properties={{"database.server.id": 4715, "table.include.list": "inventory.products"}},
)
dag = cdc_dag(
    secretive, conn_id="secretive", location="{lake}/{{database}}/{{table}}", dag_id="secretive", schedule=None,
    group={{"wait": False, "storage_conn_id": "lake", "apply": {{"jars": Variable.get("cdc_jars"), "conf": {{"spark.ui.enabled": "false"}}}}}},
)
"""


class CommandLines:
    """The command lines that every process of this machine shows, watched for as long as it is entered."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(file.read_bytes())
                except OSError:
                    continue


@pytest.fixture(scope="module")
def finished_run(airflow: Airflow, services: Services, inventory: Any) -> tuple[Airflow, str, CommandLines]:
    """After one run; with what it has printed and what processes there were."""
    airflow.connection(
        "secretive", conn_type="cdc_mariadb", host=inventory.host, port=inventory.port, login="reader",
        password=PASSWORD, extra=MARKERS,
    )  # fmt: skip
    airflow.connection("lake", conn_type="generic", extra={"auto_mkdir": True, **STORAGE})
    home = airflow.home / "secretive"
    (airflow.dags / "secretive.py").write_text(DAG.format(changelog=home / "changelog", lake=home / "lake"))
    # the command and the DAG processor would both store a new DAG, and one of them fails
    services.until(lambda: services.request("GET", "/api/v2/dags/secretive")[0] == 200, 180, "the DAG is parsed")
    with CommandLines() as lines:
        result = airflow.run("dags", "test", "secretive")
    output = result.stdout + result.stderr
    assert "state:success" in output or "successful" in output, output[-5000:]
    return airflow, output, lines


def test_the_run_was_what_is_searched(finished_run: tuple[Airflow, str, CommandLines]) -> None:
    airflow, output, lines = finished_run
    written = {file.suffix for file in (airflow.home / "secretive").rglob("*") if file.is_file()}
    assert {".parquet", ".json"} <= written
    assert any(b"apply_changes.py" in line for line in lines.seen)
    assert "Captured" in output


def test_no_secret_is_in_any_file_of_the_run(finished_run: tuple[Airflow, str, CommandLines]) -> None:
    """Metadata DB with state, XCom and rendered templates, logs of tasks, change log with manifests, lakehouse tables."""
    airflow, _, _ = finished_run
    files = [file for file in airflow.home.rglob("*") if file.is_file()]
    assert any(file.name == "airflow.db" for file in files)
    for file in files:
        content = file.read_bytes()
        assert not [secret for secret in SECRETS if secret.encode() in content], file
    print(f"{len(files)} files, {len(SECRETS)} secrets")


def test_no_secret_is_printed(finished_run: tuple[Airflow, str, CommandLines]) -> None:
    _, output, _ = finished_run
    assert not [secret for secret in SECRETS if secret in output]


def test_no_secret_is_on_a_command_line(finished_run: tuple[Airflow, str, CommandLines]) -> None:
    _, _, lines = finished_run
    assert not [secret for secret in SECRETS for line in lines.seen if secret.encode() in line]


def test_no_secret_is_on_a_page(
    finished_run: tuple[Airflow, str, CommandLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow, _, _ = finished_run
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{airflow.home}/airflow.db")
    connect(monkeypatch, "lake", conn_type="generic", extra={"auto_mkdir": True, **STORAGE})
    set_auth_manager(monkeypatch, SimpleAuthManager())
    monkeypatch.setattr(authorization, "known_dags", lambda ids: {})
    monkeypatch.setattr(authorization, "teams_of", lambda conn_ids: {})
    app.dependency_overrides[get_user] = lambda: simple_user("ada", "ADMIN")
    try:
        client = TestClient(app)
        parts = (
            "tables",
            "signals",
            "events",
            "batches",
            "batches/1",
            "offsets",
            "schema-changes",
            "configuration",
            "metrics",
        )
        api = "/api/v1/connectors"
        for page in (api, "/metrics", f"{api}/secretive", *(f"{api}/secretive/{part}" for part in parts)):
            answer = client.get(page)
            assert answer.status_code == 200
            assert page.endswith(("signals", "schema-changes", "offsets")) or "secretive" in answer.text
            assert page.endswith("signals") or len(answer.text) > len("[]")
            assert not [secret for secret in SECRETS if secret in answer.text]
    finally:
        app.dependency_overrides.clear()
