"""Heartbeats on Oracle: see "Low change frequency offset management" of the connector document."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import CdcError
from dev.servers import Oracle
from tests.sources.oracle_adapter import oracle_connector

INSERT = "INSERT INTO app.beats (text) VALUES ('beat')"


@pytest.fixture
def heartbeat_server(schema: Oracle) -> Oracle:
    schema.sql(
        "CREATE TABLE beats (id NUMBER(9) GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text VARCHAR2(20))",
        "ALTER TABLE beats ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    schema.admin(f"GRANT INSERT ON app.beats TO {schema.user}")
    return schema


def test_the_statement_runs_in_the_pluggable_database_and_its_row_is_captured(
    heartbeat_server: Oracle, tmp_path: Path
) -> None:
    properties = {
        "schema_include_list": "APP",
        "heartbeat_interval_ms": 600_000,
        "heartbeat_action_query": f"{INSERT};",
    }
    connector = oracle_connector(heartbeat_server, tmp_path, **properties)
    assert connector.capture().events == 1
    assert connector.capture().events == 1
    assert [row["TEXT"] for row in connector.rows("APP.BEATS")] == ["beat"] * 2
    assert heartbeat_server.sql("SELECT COUNT(*) FROM beats") == [(2,)]


def test_a_statement_that_fails_ends_the_run_and_says_which(heartbeat_server: Oracle, tmp_path: Path) -> None:
    properties = {"heartbeat_interval_ms": 600_000, "heartbeat_action_query": "INSERT INTO app.missing VALUES (1)"}
    connector = oracle_connector(heartbeat_server, tmp_path, schema_include_list="APP", **properties)
    with pytest.raises(CdcError, match=r"INSERT INTO app\.missing"):
        connector.capture()
