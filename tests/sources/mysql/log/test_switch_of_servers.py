"""A host name that leads to another server: with GTIDs capture continues there, without them it stays with its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import signal_state, snapshot
from tests.support.sources.mysql.mysql_server import purge_log
from tests.support.sources.mysql.workload import source_rows


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("setup") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        yield database


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(db.server, folder, "mysql", database_include_list=db.name, **properties)


def test_without_gtids_a_connector_stays_with_its_server(mysql_factory: Any, mysql97: Any, tmp_path: Path) -> None:
    with (
        mysql_factory("9.7", gtid_mode=False, enforce_gtid_consistency=False) as server,
        server.database("own") as db,
    ):
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        connector = _connector(db, tmp_path)
        capture_records(connector)
        db.sql("INSERT INTO t VALUES (2, 2)", "UPDATE t SET v = 3")
        found = capture_records(connector)
        assert [r["value"]["op"] for r in found] == ["c", "u", "u"]
        assert {r["value"]["source"]["gtid"] for r in found} == {None}
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")
        before = connector.store.load_offset("test")
        other = {"database.hostname": mysql97.host, "database.port": mysql97.port}
        mine, connector.secrets = connector.secrets, {**connector.secrets, **other}
        with pytest.raises(PositionLost):
            connector.capture()
        assert connector.store.load_offset("test") == before
        connector.secrets = mine
        db.sql("INSERT INTO t VALUES (4, 4)")
        assert [r["value"]["op"] for r in capture_records(connector)] == ["c"]
        # chunks need watermarks, and there are none: that is said before a row of the target is harmed
        replaced = snapshot(connector, f"{db.name}.t", replace=True)
        assert capture_records(connector) == []
        state, why = signal_state(connector, replaced)
        assert (state, "gtid_mode" in why) == ("failed", True)
        db.sql("INSERT INTO t VALUES (5, 5)")
        purge_log(server)
        with pytest.raises(PrerequisiteError, match="gtid_mode"):
            connector.capture({"position.lost.mode": "incremental"})
        connector.capture({"position.lost.mode": "snapshot"})
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")


def test_with_gtids_capture_goes_on_at_another_server_of_the_topology(mysql_factory: Any, tmp_path: Path) -> None:
    """The replica has other files and positions; what it has and the primary had not yet shown is captured there."""
    with mysql_factory("9.7") as primary, mysql_factory("9.7", server_id=2000) as replica:
        host, port, user, password = primary.host, primary.port, primary.admin_user, primary.admin_password
        for server in (primary, replica):
            server.sql("RESET BINARY LOGS AND GTIDS")
        replica.sql(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{host}', SOURCE_PORT={port}, SOURCE_USER='{user}', "
            f"SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )
        with primary.database("topology") as db:
            db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
            connector = _connector(db, tmp_path)
            capture_records(connector)
            db.sql("INSERT INTO t VALUES (2, 2)")
            capture_records(connector)
            db.sql("UPDATE t SET v = 9 WHERE id = 1", "INSERT INTO t VALUES (3, 3)")
            (gtids,) = primary.sql("SELECT @@global.gtid_executed")[0]
            replica.sql("FLUSH BINARY LOGS", f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 30)")
            connector.secrets |= {"database.hostname": replica.host, "database.port": replica.port}
            found = capture_records(connector)
            assert [(r["value"]["op"], r["value"]["after"]["id"]) for r in found] == [("u", 1), ("c", 3)]
            assert connector.rows(f"{db.name}.t") == source_rows(replica, db.name, "t")
            with open_source(connector.definition(), connector.secrets) as source:
                assert source.current_position().to_json()["server"] != ""
