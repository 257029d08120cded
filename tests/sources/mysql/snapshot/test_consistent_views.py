"""Snapshots without a lock: what is committed while the views are opened is in the rows or in the stream, and not in both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.sources.mysql.snapshot import consistent_views
from tests.support.connectors import Connector, mysql_connector
from tests.support.workload import source_rows


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("views") as database:
        database.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT)", "INSERT INTO t (v) VALUES (1), (2)"
        )
        database.sql("CREATE TABLE bare (v INT)", "INSERT INTO bare VALUES (1), (2)")
        yield database


@pytest.fixture
def made(db: Any, tmp_path: Path) -> Callable[..., Connector]:
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


def holds(connector: Connector, db: Any) -> None:
    """Each row arrived once."""
    for table in ("t", "bare"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table)
    operations = connector.replay.operations
    assert operations["r"] + operations["c"] == sum(len(source_rows(db.server, db.name, t)) for t in ("t", "bare"))


@pytest.mark.sampled(3)
def test_a_snapshot_beside_writers_loses_nothing_and_repeats_nothing(db: Any, made: Callable[..., Connector]) -> None:
    # MySQL needs a moment of rest
    for n in range(6):
        connector = made(str(n))
        with Writer(db, 0.0 if db.server.kind == "mariadb" else 0.06):
            connector.capture()
        connector.capture()
        holds(connector, db)


def test_what_is_committed_while_views_are_opened_is_not_lost(
    db: Any, made: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, left = consistent_views.open_view, [5]

    def disturbed(connection: Any) -> None:
        opened(connection)
        left[0] -= 1
        if left[0] >= 0:
            db.sql("INSERT INTO t (v) VALUES (4)", "INSERT INTO bare VALUES (4)")

    monkeypatch.setattr(consistent_views, "open_view", disturbed)
    connector = made()
    connector.capture()
    connector.capture()
    holds(connector, db)
    assert left[0] < 0, "views were opened again"


def test_no_right_to_lock_is_needed(db: Any, made: Callable[..., Connector]) -> None:
    db.server.sql("DROP USER IF EXISTS 'mild'@'%'", "CREATE USER 'mild'@'%' IDENTIFIED BY 'mild'")
    client = "REPLICATION CLIENT, REPLICATION SLAVE"
    if db.server.kind == "mariadb":
        client = "BINLOG MONITOR, REPLICATION SLAVE"
    db.server.sql(f"GRANT SELECT, {client} ON *.* TO 'mild'@'%'")
    connector = made()
    connector.secrets |= {"database.user": "mild", "database.password": "mild"}
    connector.capture()
    db.sql("INSERT INTO t (v) VALUES (4)", "INSERT INTO bare VALUES (4)")
    connector.capture()
    holds(connector, db)
    assert connector.replay.operations == {"r": 4, "c": 2}


def test_where_mysql_has_no_moment_of_rest_the_snapshot_says_what_to_do(
    db: Any, made: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = made(snapshot_lock_timeout_ms=500)
    if db.server.kind == "mariadb":
        pytest.skip("a view of MariaDB gives its position")
    opened = consistent_views.open_view

    def disturbed(connection: Any) -> None:
        opened(connection)
        db.sql("INSERT INTO t (v) VALUES (3)")

    monkeypatch.setattr(consistent_views, "open_view", disturbed)
    with pytest.raises(SourceUnavailable, match="no moment without writes within") as raised:
        connector.capture()
    monkeypatch.undo()
    assert "snapshot.locking.mode=minimal" in str(raised.value)
    assert connector.store.load("test").offset is None
    connector.capture()
    holds(connector, db)


def test_where_views_of_mariadb_never_have_one_place_a_single_one_has_to_do(
    db: Any, made: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    if db.server.kind != "mariadb":
        pytest.skip("views of MySQL give no position")
    monkeypatch.setattr(consistent_views, "_TRIES", 0)
    connector = made()
    with Writer(db):
        connector.capture()
    connector.capture()
    holds(connector, db)
