"""A run that finds nothing, in a separate process: it imports nothing that only decoding needs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_server import new_log_file

HEAVY = {"numba", "pandas", "pyarrow"}
_RUN = """
import json, sys
given = json.load(sys.stdin)
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
with open_capture(ConnectorDefinition(**given["definition"]), given["state"], secrets=given["secrets"]) as capture:
    result = capture.run()
print(json.dumps({"events": result.events, "position": result.position, "imported": sorted(sys.modules)}))
"""


def _run_apart(connector: Connector) -> dict[str, Any]:
    given = {
        "definition": connector.definition().to_document(),
        "state": connector.state_url,
        "secrets": connector.secrets,
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _assert_empty_run(connector: Connector) -> None:
    found = _run_apart(connector)
    assert found["events"] == 0
    assert not HEAVY & set(found["imported"])


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql97", marks=pytest.mark.mysql)])
def test_only_a_run_that_has_something_to_decode_imports_what_decodes(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with request.getfixturevalue(server).database("quiet") as db:
        db.sql(
            "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)"
        )
        connector = mysql_connector(
            db.server, tmp_path, db.server.kind, database_include_list=db.name, table_include_list=f"{db.name}.a"
        )
        assert _run_apart(connector)["events"] == 1
        _assert_empty_run(connector)

        db.sql("INSERT INTO a VALUES (2)")
        found = _run_apart(connector)
        assert found["events"] == 1
        assert set(found["imported"]) >= {"numba", "pyarrow"}
        _assert_empty_run(connector)

        # the log moves on with what is not captured: the offset does, too, and then there is nothing again
        before = found["position"]
        db.sql("INSERT INTO other VALUES (1)")
        found = _run_apart(connector)
        assert found["events"] == 0
        assert found["position"] != before
        assert "pandas" not in found["imported"]
        _assert_empty_run(connector)

        new_log_file(db.server)
        assert _run_apart(connector)["events"] == 0
        _assert_empty_run(connector)
        assert connector.rows(f"{db.name}.a") == [{"id": 1}, {"id": 2}]
        connector.store.close()


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql97", marks=pytest.mark.mysql)])
def test_a_run_that_ends_at_the_head_of_a_new_file_knows_when_that_file_was_made(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With the time of the file before, the next run took the log for one that was reset."""
    with request.getfixturevalue(server).database("quiet") as db:
        db.sql("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
        connector = mysql_connector(db.server, tmp_path, db.server.kind, database_include_list=db.name)
        connector.capture()
        for _ in range(2):
            time.sleep(1.1)  # files differ by the second in which they were made
            new_log_file(db.server)
            assert connector.capture().events == 0
            assert connector.capture().events == 0
        db.sql("INSERT INTO a VALUES (2)")
        assert connector.capture().events == 1
        connector.store.close()
