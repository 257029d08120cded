"""Snapshots without a lock: what is committed while the views are opened is in the rows or in the stream, and not in both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy
from airflow_provider_cdc.sources.mysql.snapshot import consistent_views
from tests.support.connectors import Connector, mysql_connector
from tests.support.patience import wait_until
from tests.support.sources.mysql.workload import source_rows


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("views") as database:
        database.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT)", "INSERT INTO t (v) VALUES (1), (2)"
        )
        database.sql("CREATE TABLE bare (v INT)", "INSERT INTO bare VALUES (1), (2)")
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    def make(folder: str = "0", **properties: Any) -> Connector:
        kind = "mariadb" if db.server.kind == "mariadb" else "mysql"
        own = {"database_include_list": db.name, "snapshot_locking_mode": "none", "snapshot_max_threads": 3}
        return mysql_connector(db.server, tmp_path / folder, kind, **own | properties)

    return make


class Writer:
    """Commits single rows, as fast as the server takes them or with pauses."""

    def __init__(self, db: Any, pause_s: float = 0.0) -> None:
        self._db, self._pause_s, self._stop = db, pause_s, threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        with self._db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not self._stop.is_set():
                cursor.execute("INSERT INTO t (v) VALUES (3)")
                cursor.execute("INSERT INTO bare VALUES (3)")
                time.sleep(self._pause_s)


def assert_rows_once(connector: Connector, db: Any) -> None:
    """Each row arrived once."""
    for table in ("t", "bare"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table)
    operations = connector.replay.operations
    assert operations["r"] + operations["c"] == sum(len(source_rows(db.server, db.name, t)) for t in ("t", "bare"))


@pytest.mark.sampled(3)
def test_a_snapshot_beside_writers_loses_nothing_and_repeats_nothing(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    # MySQL needs a moment of rest
    for n in range(6):
        connector = connector_factory(str(n))
        with Writer(db, 0.0 if db.server.kind == "mariadb" else 0.06):
            connector.capture()
        connector.capture()
        assert_rows_once(connector, db)


def test_what_is_committed_while_views_are_opened_is_not_lost(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, left = consistent_views.open_view, [5]

    def open_and_write(connection: Any) -> None:
        opened(connection)
        left[0] -= 1
        if left[0] >= 0:
            db.sql("INSERT INTO t (v) VALUES (4)", "INSERT INTO bare VALUES (4)")

    monkeypatch.setattr(consistent_views, "open_view", open_and_write)
    connector = connector_factory()
    connector.capture()
    connector.capture()
    assert_rows_once(connector, db)
    assert left[0] < 0, "views were opened again"


def test_no_right_to_lock_is_needed(db: Any, connector_factory: Callable[..., Connector]) -> None:
    db.server.sql("DROP USER IF EXISTS 'mild'@'%'", "CREATE USER 'mild'@'%' IDENTIFIED BY 'mild'")
    client = "REPLICATION CLIENT, REPLICATION SLAVE"
    if db.server.kind == "mariadb":
        client = "BINLOG MONITOR, REPLICATION SLAVE"
    db.server.sql(f"GRANT SELECT, {client} ON *.* TO 'mild'@'%'")
    connector = connector_factory()
    connector.secrets |= {"database.user": "mild", "database.password": "mild"}
    connector.capture()
    db.sql("INSERT INTO t (v) VALUES (4)", "INSERT INTO bare VALUES (4)")
    connector.capture()
    assert_rows_once(connector, db)
    assert connector.replay.operations == {"r": 4, "c": 2}


def test_where_mysql_has_no_moment_of_rest_the_snapshot_says_what_to_do(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory(snapshot_lock_timeout_ms=500)
    if db.server.kind == "mariadb":
        pytest.skip("a view of MariaDB gives its position")
    opened = consistent_views.open_view

    def open_and_write(connection: Any) -> None:
        opened(connection)
        db.sql("INSERT INTO t (v) VALUES (3)")

    monkeypatch.setattr(consistent_views, "open_view", open_and_write)
    with pytest.raises(SourceBusy, match="a moment without writes is needed, and none occurred within") as raised:
        connector.capture()
    monkeypatch.undo()
    assert "snapshot.locking.mode=minimal" in str(raised.value)
    assert connector.store.load_offset("test").offset is None
    connector.capture()
    assert_rows_once(connector, db)


class SlowServer:
    """A MySQL whose commits wait, once they are in the log, for a replica that never acknowledges them."""

    def __init__(self, server: Any) -> None:
        self.server = server
        server.sql(
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
            "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
            "SET GLOBAL rpl_semi_sync_source_wait_no_replica = 1",
            "CREATE DATABASE slow",
            "CREATE TABLE slow.t (id INT PRIMARY KEY)",
            "INSERT INTO slow.t VALUES (1)",
            "SET GLOBAL rpl_semi_sync_source_enabled = 1",
        )

    def insert(self) -> threading.Thread:
        """Begin to commit a row; it is in the log, and not to be seen, when this returns."""
        before = self._end()
        thread = threading.Thread(target=self.server.sql, args=("INSERT INTO slow.t VALUES (2)",))
        thread.start()
        wait_until(lambda: self._end() != before, "it is in the log", every_s=0.01)
        assert source_rows(self.server, "slow", "t") == [{"id": 1}]
        return thread

    def acknowledge(self) -> None:
        """Let all commits end."""
        self.server.sql("SET GLOBAL rpl_semi_sync_source_enabled = 0")

    def _end(self) -> Any:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOG STATUS")
            return cursor.fetchone()[1]


@pytest.mark.parametrize("gtids", [True, False])
def test_what_is_in_the_log_and_not_to_be_seen_yet_is_not_lost(
    mysql_factory: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gtids: bool
) -> None:
    slow = SlowServer(mysql_factory(gtid_mode=gtids, enforce_gtid_consistency=gtids))
    look, looked = consistent_views._at_work, []

    def look_and_wait(connection: Any) -> bool:
        looked.append(look(connection))
        if len(looked) == 3:
            slow.acknowledge()
        return looked[-1]

    monkeypatch.setattr(consistent_views, "_at_work", look_and_wait)
    options = {"database_include_list": "slow", "snapshot_locking_mode": "none", "snapshot_lock_timeout_ms": 60_000}
    connector = mysql_connector(slow.server, tmp_path, "mysql", **options)
    commit = slow.insert()
    try:
        connector.capture()
    finally:
        slow.acknowledge()
        commit.join()
    assert (looked[:3], looked[-1]) == ([True] * 3, False)
    connector.capture()
    assert connector.rows("slow.t") == [{"id": 1}, {"id": 2}]
    assert sum(connector.replay.operations.values()) == 2


@pytest.mark.parametrize(
    ("edition", "mode", "wait_point"),
    [("10.11", "none", "AFTER_SYNC"), ("11.8", "minimal", "AFTER_SYNC"), ("11.8", "none", "AFTER_COMMIT")],
)
def test_a_view_of_mariadb_beside_a_commit_that_waits_for_a_replica_loses_nothing(
    mariadb_factory: Callable[..., Any], tmp_path: Path, mode: str, edition: str, wait_point: str
) -> None:
    server = mariadb_factory(*(["11.8"] if edition == "11.8" else []))
    server.sql(
        "CREATE DATABASE slow", "CREATE TABLE slow.t (id INT PRIMARY KEY)", "INSERT INTO slow.t VALUES (1)",
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000", "SET GLOBAL rpl_semi_sync_master_wait_no_slave = 1",
        f"SET GLOBAL rpl_semi_sync_master_wait_point = {wait_point}", "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    )  # fmt: skip

    def end() -> Any:
        return server.sql("SHOW MASTER STATUS")[0][1]

    before = end()
    commit = threading.Thread(target=server.sql, args=("INSERT INTO slow.t VALUES (2)",))
    commit.start()
    wait_until(lambda: end() != before, "it is in the log", every_s=0.01)
    acknowledged = threading.Timer(1, server.sql, ("SET GLOBAL rpl_semi_sync_master_enabled = 0",))
    acknowledged.start()
    connector = mysql_connector(server, tmp_path, database_include_list="slow", snapshot_locking_mode=mode)
    connector.capture()
    acknowledged.join()
    commit.join()
    connector.capture()
    assert connector.rows("slow.t") == [{"id": 1}, {"id": 2}]
    assert sum(connector.replay.operations.values()) == 2


def test_a_transaction_that_no_one_works_at_holds_nothing_up(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t (v) VALUES (5)")
        connector = connector_factory()
        connector.capture()
        connection.commit()
    connector.capture()
    assert_rows_once(connector, db)


def test_an_account_that_may_not_see_commits_gets_the_remedy(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    if db.server.kind == "mariadb":
        pytest.skip("a view of MariaDB gives its position")
    db.server.sql("DROP USER IF EXISTS 'blind'@'%'", "CREATE USER 'blind'@'%' IDENTIFIED BY 'blind'")
    db.server.sql(
        "GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'blind'@'%'",
        f"GRANT SELECT ON {db.name}.* TO 'blind'@'%'",
    )
    connector = connector_factory()
    connector.secrets |= {"database.user": "blind", "database.password": "blind"}
    with pytest.raises(PrerequisiteError, match="are not visible") as raised:
        connector.capture()
    assert "snapshot.locking.mode=minimal" in str(raised.value)
    db.server.sql("GRANT SELECT ON performance_schema.* TO 'blind'@'%'")
    connector.capture()
    assert_rows_once(connector, db)


def test_where_views_of_mariadb_never_have_one_place_a_single_one_has_to_do(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    if db.server.kind != "mariadb":
        pytest.skip("views of MySQL give no position")
    monkeypatch.setattr(consistent_views, "_TRIES", 0)
    connector = connector_factory()
    with Writer(db):
        connector.capture()
    connector.capture()
    assert_rows_once(connector, db)
