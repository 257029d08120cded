"""Costs stay flat with the size of a database: one transaction of two million rows, ten thousand open transactions, a large catalog.

The rows come from the test server through the driver, the capture is a separate process whose peak memory is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracledb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector
from tests.support.workloads.large import capture_apart

pytestmark = pytest.mark.slow

BOUND_MB = 600
"""A run that captures one row takes half of it."""
SPILL_BYTES = 32 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Oracle]:
    with Oracle() as server:
        yield server


@pytest.fixture
def connector(server: Oracle, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Connector]:
    """At an empty table, and small in memory."""
    table = "LARGE" if "million" in request.function.__name__ else "MANY"
    server.serve_rows(1, table)  # makes the table
    server.serve_rows(0)
    connector = oracle_connector(
        server, tmp_path, log_mining_strategy="online_catalog", table_include_list=f"APP.{table}",
        log_mining_buffer_memory_max_bytes=SPILL_BYTES, log_mining_buffer_spill_folder=str(tmp_path),
    )  # fmt: skip
    connector.capture()
    yield connector
    server.serve_rows(0)


@pytest.mark.long
def test_one_transaction_of_two_million_rows(server: Oracle, connector: Connector) -> None:
    rows = 2_000_000
    server.serve_rows(rows, connector.properties["table.include.list"][4:], transaction_rows=rows)
    result = capture_apart(connector)
    assert result["events"] == rows
    print(result)
    assert result["peak_mb"] < BOUND_MB
    # a transaction is never cut: its events are in one batch
    assert [m.event_count for m in connector.changelog.read_manifests(connector.name) if m.event_count] == [rows]
    assert _keys(connector) == (rows, 1, rows, rows)


@pytest.mark.parametrize("number", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_transactions_that_are_open_at_once(server: Oracle, connector: Connector, number: int) -> None:
    rows = 40 * number
    server.serve_rows(rows, connector.properties["table.include.list"][4:], transaction_rows=40, at_once=number)
    result = capture_apart(connector)
    assert result["events"] == rows
    print(result)
    assert result["peak_mb"] < BOUND_MB
    assert _keys(connector) == (rows, 1, rows, rows)


def test_of_tables_that_are_not_captured_and_of_old_logs_a_run_reads_names_at_most(
    server: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog and the control file may have a hundred thousand rows."""
    fetched = list[tuple[int, str]]()
    fetchall = oracledb.Cursor.fetchall

    def count_fetched(cursor: oracledb.Cursor) -> list[Any]:
        found = fetchall(cursor)
        fetched.append((len(found), cursor.statement or ""))
        return found

    monkeypatch.setattr(oracledb.Cursor, "fetchall", count_fetched)
    server.sql(
        "CREATE TABLE MINE (ID NUMBER(9) PRIMARY KEY)", "ALTER TABLE MINE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
    )
    connector = oracle_connector(server, tmp_path, table_include_list="APP.MINE")
    connector.capture()

    def rows_of_a_run(number: int) -> int:
        connector.capture()  # up to here
        server.sql(f"INSERT INTO MINE VALUES ({number})")
        fetched.clear()
        assert connector.capture().events == 1
        return sum(count for count, _ in fetched)

    few = rows_of_a_run(1)
    server.sql(*(f"CREATE TABLE OTHER_{number} (ID NUMBER(9) PRIMARY KEY)" for number in range(60)))
    for _ in range(60):
        server.switch_log()
    many = rows_of_a_run(2)
    # the names of all tables are read twice: by the check and by the plan
    assert many - few < 2 * 60 + 20, sorted(fetched, reverse=True)[:10]


def _keys(connector: Connector) -> tuple[int, int, int, int]:
    """Return the number of keys, the lowest, the highest, and the number of different ones."""
    found = []
    for manifest in connector.changelog.read_manifests(connector.name):
        for file in manifest.files:
            with connector.changelog.open_file(connector.name, file) as f:
                found += pq.ParquetFile(f).read(columns=["after.ID"]).column("after").chunks
    keys = pa.chunked_array([after.field("ID") for after in found])
    ends = pc.min_max(keys)
    return len(keys), ends["min"].as_py(), ends["max"].as_py(), pc.count_distinct(keys).as_py()
