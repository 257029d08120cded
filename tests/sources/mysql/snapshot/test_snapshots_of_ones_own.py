"""Policies, queries and locks of people's own, on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, SourceBusy
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot
from tests.support.change_log.rendered import Record, capture_records
from tests.support.connectors import Connector, mysql_connector
from tests.support.own_snapshots import own_snapshots
from tests.support.sources.mysql.workload import source_rows


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("own") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
        database.sql("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1)")
        yield database


@pytest.fixture
def snapshotter_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return own_snapshots(tmp_path, monkeypatch)


@pytest.fixture
def connector_factory(db: Any, snapshotter_module: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: mysql_connector(
        db.server, tmp_path, db.server.kind, **{"database_include_list": db.name, **properties}
    )


def _rows(found: list[Record]) -> list[tuple[str, str, int]]:
    """Table, operation and id of the rows' records; truncates have no id."""
    values = [(r["topic"].rpartition(".")[2], r["value"]) for r in found if r["topic"] != "test" and r["value"]]
    return sorted((t, v["op"], (v["after"] or v["before"] or {"id": 0})["id"]) for t, v in values)


def test_five_switches_say_what_a_run_does(db: Any, connector_factory: Callable[..., Connector]) -> None:
    """Each run reads, and streams; then it streams only."""
    connector, based = connector_factory(snapshot_mode="configuration_based"), "snapshot.mode.configuration.based"
    connector.properties |= {f"{based}.snapshot.data": "true", f"{based}.start.stream": "true"}
    assert _rows(capture_records(connector)) == [("t", "r", 1), ("t", "r", 2), ("u", "r", 1)]
    db.sql("INSERT INTO u VALUES (2)")
    found = [row for row in _rows(capture_records(connector)) if row[1] != "t"]
    assert found == [("t", "r", 1), ("t", "r", 2), ("u", "r", 1), ("u", "r", 2)]
    del connector.properties[f"{based}.snapshot.data"]  # by default it is false
    db.sql("INSERT INTO u VALUES (3)")
    assert _rows(capture_records(connector)) == [("u", "c", 3)]


def test_a_policy_of_ones_own_decides_in_each_run(
    db: Any, snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(snapshot_mode="custom", snapshot_mode_custom_name="monthly")
    assert _rows(capture_records(connector)) == [("t", "r", 1), ("t", "r", 2), ("u", "r", 1)]
    db.sql("INSERT INTO u VALUES (2)")
    assert _rows(capture_records(connector)) == [("u", "c", 2)]
    snapshotter_module.OncePerMonth.due = True
    assert [row[1] for row in _rows(capture_records(connector)) if row[1] != "t"] == ["r"] * 4


def test_a_query_of_ones_own_says_what_is_read_and_the_log_is_whole(
    db: Any, snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_query_mode="custom", snapshot_query_mode_custom_name="some", column_exclude_list=rf"{db.name}\.t\.v"
    )
    snapshotter_module.SELECTS |= {"t": f"SELECT v, id FROM {db.name}.t WHERE v > 1 ORDER BY id;", "u": None}
    found = capture_records(connector)
    assert _rows(found) == [("t", "r", 2)]
    assert [r["value"]["after"] for r in found if r["topic"].endswith(".t")] == [{"id": 2}]
    assert sorted(snapshotter_module.CALLS) == [(f"{db.name}.t", ["id", "v"]), (f"{db.name}.u", ["id"])]
    db.sql("INSERT INTO t VALUES (3, 0)", "INSERT INTO u VALUES (2)")
    assert _rows(capture_records(connector)) == [("t", "c", 3), ("u", "c", 2)]


def test_a_query_that_the_server_refuses_is_reported_with_its_table(
    db: Any, snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(snapshot_query_mode="custom", snapshot_query_mode_custom_name="some")
    for select in (f"SELECT id, vv FROM {db.name}.t", f"SELECT id, '1' v FROM {db.name}.t"):
        snapshotter_module.SELECTS |= {"t": select, "u": None}
        with pytest.raises(PrerequisiteError, match=rf"custom\.name for {db.name}\.t cannot be used") as caught:
            connector.capture()
        assert select in (caught.value.where or "")
    offset = connector.store.load_offset("test").offset
    assert offset is None or f"{db.name}.t" in offset.snapshot.pending
    snapshotter_module.SELECTS |= {"t": f"SELECT id, v FROM {db.name}.t", "u": f"SELECT id FROM {db.name}.u"}
    connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


def _changeable(db: Any, statement: str) -> bool:
    """Check whether someone else could run a statement now."""
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
        try:
            cursor.execute(statement)
        except pymysql.err.OperationalError as e:
            if e.args[0] != 1205:
                raise
            return False
        finally:
            connection.rollback()
    return True


def test_a_lock_of_ones_own_is_held_until_the_structures_are_read(
    db: Any, snapshotter_module: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory(
        snapshot_locking_mode="custom", snapshot_locking_mode_custom_name="mild", snapshot_lock_timeout_ms=2500
    )
    both = f"LOCK TABLES {db.name}.t READ, {db.name}.u READ"
    snapshotter_module.LOCKS |= {"t": both, "u": both}
    during, view = [], MySqlSnapshot._view
    inserts = ["INSERT INTO t (id) VALUES (99)", "INSERT INTO u VALUES (99)"]
    with monkeypatch.context() as patch:
        patch.setattr(
            MySqlSnapshot,
            "_view",
            lambda *a, **k: (during.extend(_changeable(db, s) for s in inserts), view(*a, **k))[1],
        )
        tables = [TableId(namespace=db.name, name=n) for n in "tu"]
        with (
            open_source(connector.definition(), connector.secrets) as source,
            source.open_snapshot(tables, readers=2) as session,
        ):
            assert during == [False, False]
            assert all(_changeable(db, s) for s in inserts)
            assert sum(len(block) for c in session.split_table(tables[0]) for block in session.read(c)) == 2
    assert [(2.5, f"{db.name}.t"), (2.5, f"{db.name}.u")] == snapshotter_module.CALLS
    connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


def test_where_no_lock_is_wanted_nothing_is_locked(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory(snapshot_locking_mode="custom", snapshot_locking_mode_custom_name="mild")
    during, view = [], MySqlSnapshot._view
    monkeypatch.setattr(
        MySqlSnapshot,
        "_view",
        lambda *a, **k: (during.append(_changeable(db, "INSERT INTO u VALUES (99)")), view(*a, **k))[1],
    )
    connector.capture()
    assert set(during) == {True}
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


def test_a_lock_that_is_not_granted_or_that_the_server_refuses_ends_the_run(
    db: Any, snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_locking_mode="custom", snapshot_locking_mode_custom_name="mild", snapshot_lock_timeout_ms=1000
    )
    snapshotter_module.LOCKS["t"] = statement = f"LOCK TABLES {db.name}.t READ"
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises(SourceBusy, match="not granted within 1 s") as caught:
            connector.capture()
        assert caught.value.where == statement
    snapshotter_module.LOCKS["t"] = "LOCK TABLE nowhere"
    with pytest.raises(PrerequisiteError, match=r"rejects the statement of snapshot\.locking\.mode\.custom\.name") as e:
        connector.capture()
    assert e.value.where == "LOCK TABLE nowhere"
    assert connector.store.load_offset("test").offset is None


def test_a_lock_needs_its_name(snapshotter_module: Any) -> None:
    base = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 1}
    for more, why in (
        ({}, r"required by snapshot\.locking\.mode=custom, and not set\. Valid values are: mild"),
        ({"snapshot.locking.mode.custom.name": "wild"}, "'wild' is not installed; did you mean 'mild'"),
    ):
        with pytest.raises(ConfigError, match=why):
            MySqlConfig.parse({**base, "snapshot.locking.mode": "custom", **more})
