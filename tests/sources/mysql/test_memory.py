"""Memory stays flat: one transaction of two million rows is captured under the bound that a million small ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import mysql_connector
from tests.support.large import capture_apart, create, fill

ROWS = 2_000_000
BOUND_MB = 500


@pytest.mark.slow
def test_transaction_of_two_million_rows(database: Any, tmp_path: Path) -> None:
    create(database, "big")
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    connector.capture()
    fill(database, "big", ROWS)
    database.sql("INSERT INTO big (id) VALUES (0)")
    result = capture_apart(connector)
    assert result["events"] == ROWS + 1
    assert result["peak_mb"] < BOUND_MB
    # a transaction is never cut: its events are in one batch
    batches = [m for m in connector.changelog.manifests(connector.name) if m.events]
    assert max(m.events for m in batches) >= ROWS


@pytest.mark.slow
def test_snapshot_of_two_million_rows(database: Any, tmp_path: Path) -> None:
    create(database, "big")
    fill(database, "big", ROWS)
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    result = capture_apart(connector)
    assert result["events"] == ROWS
    assert result["peak_mb"] < BOUND_MB
