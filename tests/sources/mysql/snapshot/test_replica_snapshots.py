"""Snapshots of real replicas: rows of the replica, then the primary's log from there on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy
from airflow_provider_cdc.sources.mysql.snapshot import replica_snapshots
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import send, signal_state
from tests.support.sources.mysql.mysql_server import replicate, reset_log
from tests.support.sources.mysql.workload import source_rows


@pytest.fixture(params=["mariadb", "mysql97"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, Any]]:
    """A primary, its replica, and a database of both."""
    if request.param == "mariadb":
        make, options = request.getfixturevalue("mariadb_factory"), {"log_slave_updates": True}
    else:
        make, options = (lambda **o: request.getfixturevalue("mysql_factory")("9.7", **o)), {}
    with make() as primary, make(server_id=2000, **options) as replica:
        reset_log(primary, replica)
        replicate(primary, replica)
        if request.param == "mariadb":
            primary.sql(f"GRANT REPLICA MONITOR ON *.* TO {primary.user}@'%'")  # which the replica replicates
        with primary.database("offload") as db:
            db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
            yield primary, replica, db


def _connector(pair: tuple[Any, Any, Any], folder: Path, **properties: Any) -> Connector:
    primary, replica, db = pair
    kind = "mariadb" if type(primary).__name__ == "MariaDb" else "mysql"
    return mysql_connector(
        primary, folder, kind, database_include_list=db.name, snapshot_hostname=replica.host, snapshot_port=replica.port,
        **properties,
    )  # fmt: skip


def _queries(server: Any) -> str:
    return " ".join(str(row) for row in server.sql("SELECT argument FROM mysql.general_log"))


def _pause_replica(replica: Any, *, start: bool = False) -> None:
    role = "SLAVE" if type(replica).__name__ == "MariaDb" else "REPLICA"
    replica.sql(f"{'START' if start else 'STOP'} {role} SQL_THREAD")


def test_rows_are_read_from_the_replica_while_the_primary_is_written_and_nothing_is_missing_or_twice(
    pair: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    primary, _, db = pair
    primary.sql("SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = 1")
    stop = threading.Event()

    def write() -> None:
        n = 2
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                n += 1
                cursor.execute(f"INSERT INTO {db.name}.t VALUES ({n}, {n})")
                cursor.execute(f"UPDATE {db.name}.t SET v = v + 1 WHERE id = {n // 2}")

    writer = threading.Thread(target=write)
    writer.start()
    connector = _connector(pair, tmp_path)
    try:
        connector.capture()
        primary.sql("SET GLOBAL general_log = 0")
        number = send(connector, "execute-snapshot", {"data-collections": [f"{db.name}.t"], "type": "blocking"})
        connector.capture()
    finally:
        stop.set()
        writer.join()
    connector.capture()
    assert signal_state(connector, number)[0] == "done"
    assert connector.rows(f"{db.name}.t") == source_rows(primary, db.name, "t")
    statements = _queries(primary)
    assert "INSERT INTO" in statements
    assert "FLUSH TABLES" not in statements, "the primary is neither locked nor read"


def test_a_replica_that_is_behind_is_waited_for_and_not_for_ever(
    pair: tuple[Any, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking snapshot of older rows would undo changes that the stream has delivered."""
    primary, replica, db = pair
    connector = _connector(pair, tmp_path)
    connector.capture()
    _pause_replica(replica)
    db.sql("UPDATE t SET v = 10 WHERE id = 1")
    connector.capture()
    number = send(connector, "execute-snapshot", {"data-collections": [f"{db.name}.t"], "type": "blocking"})
    monkeypatch.setattr(replica_snapshots, "CATCH_UP_S", 1.0)
    with pytest.raises(SourceBusy, match="has not executed all transactions"):
        connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(primary, db.name, "t")
    monkeypatch.setattr(replica_snapshots, "CATCH_UP_S", 60.0)
    resumed = threading.Timer(1.0, lambda: _pause_replica(replica, start=True))
    resumed.start()
    began = time.monotonic()
    connector.capture()
    resumed.join()
    assert time.monotonic() - began >= 1.0
    assert signal_state(connector, number)[0] == "done"
    assert connector.rows(f"{db.name}.t") == source_rows(primary, db.name, "t")


def test_a_replica_with_rows_of_itself_or_with_filters_is_refused(pair: tuple[Any, Any, Any], tmp_path: Path) -> None:
    primary, replica, db = pair
    connector = _connector(pair, tmp_path)
    mariadb = type(primary).__name__ == "MariaDb"
    _pause_replica(replica)
    if mariadb:
        replica.sql("STOP SLAVE", f"SET GLOBAL replicate_ignore_table = '{db.name}.u'", "START SLAVE")
    else:
        replica.sql(f"CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({db.name}.u)", "START REPLICA SQL_THREAD")
    with pytest.raises(PrerequisiteError, match=f"replicates only some tables .*replicate_ignore_table={db.name}.u"):
        connector.capture()
    _pause_replica(replica)
    if mariadb:
        replica.sql("STOP SLAVE", "SET GLOBAL replicate_ignore_table = ''", "START SLAVE")
    else:
        replica.sql("CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ()", "START REPLICA SQL_THREAD")
    replica.sql(f"INSERT INTO {db.name}.t VALUES (99, 99)")
    with pytest.raises(PrerequisiteError, match="has transactions that the primary lacks"):
        connector.capture()
    assert connector.store.load_offset("test").offset is None or connector.rows(f"{db.name}.t") == []
    connector.properties.pop("snapshot.hostname")
    connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(primary, db.name, "t")


def test_a_server_that_is_no_replica_is_refused_by_check_and_capture(
    mariadb: Any, mariadb_factory: Any, tmp_path: Path
) -> None:
    with mariadb_factory(server_id=3000, log_slave_updates=True) as other, mariadb.database("lone") as db:
        other.sql(f"GRANT REPLICA MONITOR ON *.* TO {other.user}@'%'")
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = _connector((mariadb, other, db), tmp_path)
        with pytest.raises(PrerequisiteError, match="is not a replica") as caught:
            connector.capture()
        assert caught.value.where == f"snapshot.hostname={other.host}"
        connector.properties.pop("snapshot.hostname")
        connector.capture()
        db.sql("INSERT INTO t VALUES (1)")
        connector.properties |= {"snapshot.hostname": "127.0.0.1", "snapshot.port": 1}
        with open_source(connector.definition(), connector.secrets) as source:
            (finding,) = [one for one in source.check_prerequisites() if "snapshot.hostname" in one.problem]
        assert not finding.fatal
        connector.capture()  # streams: the replica is not needed
        assert connector.rows(f"{db.name}.t") == [{"id": 1}]
