"""Moving offsets and repairing gaps on a real server's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.connector import open_lifecycle
from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair
from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetEffect
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_server import purge_log
from tests.support.sources.mysql.workload import source_rows

pytestmark = pytest.mark.mysql


@pytest.fixture(scope="module")
def server(mariadb_factory: Callable[..., Any]) -> Iterator[Any]:
    """A separate server: its logs are purged."""
    with mariadb_factory() as server:
        yield server


@pytest.fixture
def database(server: Any) -> Iterator[Any]:
    with server.database() as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        yield database


@pytest.fixture
def connector(server: Any, database: Any, tmp_path: Path) -> Iterator[Connector]:
    connector = mysql_connector(server, tmp_path, table_include_list=f"{database.name}.t", poll_interval_ms=50)
    connector.capture()
    yield connector
    connector.store.close()


@pytest.fixture
def lifecycle(connector: Connector) -> Iterator[ConnectorLifecycle]:
    with open_lifecycle(connector.definition(), connector.state_url, secrets=connector.secrets) as lifecycle:
        yield lifecycle


def last_rows(connector: Connector) -> dict[int, int]:
    """The table as a target has it that keeps the last event of each key."""
    rows: dict[int, int] = {}
    for manifest in connector.changelog.read_manifests("test"):
        files = [pq.read_table(connector.changelog.open_file("test", f)).to_pylist() for f in manifest.files]
        for event in sorted((e for events in files for e in events), key=lambda e: e["seq"]):
            if event["op"] == "t":
                rows.clear()
            elif event["op"] == "d":
                rows.pop(event["key"]["id"], None)
            else:
                rows[event["key"]["id"]] = event["after"]["n"]
    return rows


def test_going_back_and_forward_in_a_binary_log(
    database: Any, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    assert lifecycle.source is not None
    places = []
    for n in (10, 20, 30):
        places.append(lifecycle.source.current_position())
        database.sql(f"UPDATE t SET n = {n} WHERE id = 1")
    connector.capture()
    back = lifecycle.plan_offset(places[1])
    assert (back.effect, back.target, back.problems) == (OffsetEffect.REPEAT, str(places[1]), ())
    lifecycle.apply_offset(back, "test", "ada")
    assert connector.capture().events == 2
    assert last_rows(connector) == {1: 30, 2: 2, 3: 3}

    database.sql("UPDATE t SET n = 40 WHERE id = 1", "UPDATE t SET n = 50 WHERE id = 2")
    end = lifecycle.source.current_position()
    database.sql("UPDATE t SET n = 60 WHERE id = 3")
    forward = lifecycle.plan_offset(end)
    assert (forward.effect, forward.problems) == (OffsetEffect.SKIP, ())
    lifecycle.apply_offset(forward, "test", "ada")
    assert connector.capture().events == 1
    assert last_rows(connector) == {1: 30, 2: 2, 3: 60}


def test_places_that_the_server_does_not_have_are_problems(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    assert lifecycle.source is not None
    now = lifecycle.source.current_position().to_json()
    for place in ({**now, "pos": now["pos"] + 10_000_000}, {**now, "file": "binlog.999999", "gtids": ""}):
        plan = lifecycle.plan_offset(lifecycle.source.parse_position(place))
        assert plan.problems != (), place


def test_going_back_over_a_ddl_statement_is_refused(
    database: Any, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    assert lifecycle.source is not None
    before = lifecycle.source.current_position()
    database.sql("UPDATE t SET n = 5", "ALTER TABLE t ADD m INT")
    connector.capture()
    (problem,) = lifecycle.plan_offset(before).problems
    assert f"The structure of {database.name}.t was changed in between" in problem
    assert "ALTER TABLE t ADD m INT" in problem


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        (GapRepair.SNAPSHOT, {1: 1, 3: 30, 4: 4, 5: 5}),
        (GapRepair.INCREMENTAL, {1: 1, 3: 30, 4: 4, 5: 5}),
        (GapRepair.SKIP, {1: 1, 2: 2, 3: 3, 5: 5}),
    ],
    ids=str,
)
def test_a_purged_log_is_reported_exactly_and_repaired(
    server: Any,
    database: Any,
    connector: Connector,
    lifecycle: ConnectorLifecycle,
    how: GapRepair,
    rows: dict[int, int],
) -> None:
    assert lifecycle.source is not None
    stood = lifecycle.source.current_position()
    connector.capture()
    database.sql("DELETE FROM t WHERE id = 2", "UPDATE t SET n = 30 WHERE id = 3", "INSERT INTO t VALUES (4, 4)")
    purge_log(server)
    newest = lifecycle.source.current_position().to_json()["file"]
    database.sql("INSERT INTO t VALUES (5, 5)")
    with pytest.raises(PositionLost):
        connector.capture()
    gap = lifecycle.find_gap()
    assert gap is not None
    assert (str(gap.position), gap.comparable) == (str(stood), True)
    assert str(gap.oldest).startswith(f"{newest}:4")
    lifecycle.repair_gap(how, "test", "ada")
    connector.capture(run_for_s=6 if how is GapRepair.INCREMENTAL else None)
    assert last_rows(connector) == rows
    if how is GapRepair.INCREMENTAL:
        assert connector.store.signals_of("test")[0].state == "done"
    assert lifecycle.find_gap() is None
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    assert offset.position["gtids"] == lifecycle.source.current_position().to_json()["gtids"]


@pytest.mark.parametrize("how", ["command", "by itself"])
@pytest.mark.parametrize(
    ("changed", "busy"), [("in the gap", False), ("in the gap", True), ("behind it", True), ("on both sides", True)]
)
def test_a_gap_is_repaired_beside_the_stream_though_a_table_was_changed(
    server: Any, database: Any, connector: Connector, lifecycle: ConnectorLifecycle, how: str, changed: str, busy: bool
) -> None:
    database.sql("DELETE FROM t WHERE id = 2", "UPDATE t SET n = 30 WHERE id = 3")
    if changed != "behind it":
        database.sql("ALTER TABLE t ADD early INT DEFAULT 7 FIRST")
    purge_log(server)
    if busy:
        database.sql("INSERT INTO t (id, n) VALUES (4, 4)")
    if changed != "in the gap":
        database.sql("ALTER TABLE t ADD late INT DEFAULT 8 FIRST")
    if busy:
        database.sql("INSERT INTO t (id, n) VALUES (5, 5)")
    if how == "command":
        lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    connector.capture({"position.lost.mode": "fail" if how == "command" else "incremental"})
    assert connector.rows(f"{database.name}.t") == source_rows(server, database.name, "t")
    assert {s.state for s in connector.store.signals_of("test")} == {"done"}
