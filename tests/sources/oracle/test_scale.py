"""Memory stays flat: one transaction of two million rows, and ten thousand that are open at once.

The rows come from the test server through the driver, the capture is a process of its own whose peak memory is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector
from tests.support.large import capture_apart

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
    assert [m.events for m in connector.changelog.manifests(connector.name) if m.events] == [rows]
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


def _keys(connector: Connector) -> tuple[int, int, int, int]:
    """How many keys, the lowest, the highest, how many different ones."""
    found = []
    for manifest in connector.changelog.manifests(connector.name):
        for file in manifest.files:
            with connector.changelog.open(connector.name, file) as f:
                found += pq.ParquetFile(f).read(columns=["after.ID"]).column("after").chunks
    keys = pa.chunked_array([after.field("ID") for after in found])
    ends = pc.min_max(keys)
    return len(keys), ends["min"].as_py(), ends["max"].as_py(), pc.count_distinct(keys).as_py()
