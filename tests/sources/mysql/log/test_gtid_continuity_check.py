"""With GTIDs, capture continues at another server of the topology, where files and positions are different ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.incremental import chunk_reader_thread as chunking
from airflow_provider_cdc.core.lifecycle.log_gap import find_gap
from airflow_provider_cdc.sources.mysql.log import gtid_continuity_check
from airflow_provider_cdc.sources.mysql.source import MySqlSource
from tests.support.connectors import mysql_connector
from tests.support.signals import signal_ended, signal_state, snapshot
from tests.support.sources.mysql.mysql_server import apply_transaction, replicate, reset_log, wait_for_replica
from tests.support.sources.mysql.workload import source_rows


def _topology(request: pytest.FixtureRequest, kind: str) -> tuple[Any, Any]:
    """A primary and its replica."""
    factory = request.getfixturevalue(f"{kind}_factory")
    if kind == "mariadb":
        primary = factory(server_id="11")
        replica = factory(server_id="12", log_slave_updates="ON")
    else:
        primary = factory("9.7", server_id="11")
        replica = factory("9.7", server_id="12")
    replica.sql(f"RESET {'MASTER' if kind == 'mariadb' else 'BINARY LOGS AND GTIDS'}")
    replicate(primary, replica)
    return primary, replica


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_capture_goes_on_at_the_replica(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    primary, replica = _topology(request, kind)
    try:
        primary.sql("CREATE DATABASE f", "CREATE TABLE f.t (a INT PRIMARY KEY, b VARCHAR(20))")
        for i in range(50):
            primary.sql(f"INSERT INTO f.t VALUES ({i}, 'first')")
        connector = mysql_connector(primary, tmp_path, kind, database_include_list="f")
        connector.capture()
        primary.sql("UPDATE f.t SET b = 'second' WHERE a < 10", "DELETE FROM f.t WHERE a > 40")
        wait_for_replica(primary, replica)
        replica.sql("FLUSH BINARY LOGS")
        primary.kill()
        # the replica is the primary now
        replica.sql("STOP SLAVE" if kind == "mariadb" else "STOP REPLICA")
        replica.sql("ALTER TABLE f.t ADD c INT DEFAULT 3", "INSERT INTO f.t VALUES (100, 'third', 4)")
        connector.secrets |= {"database.hostname": replica.host, "database.port": replica.port}
        connector.capture()
        assert connector.rows("f.t") == source_rows(replica, "f", "t")
        assert connector.replay.operations == {"r": 50, "u": 10, "d": 9, "c": 1}
        replica.sql("INSERT INTO f.t VALUES (101, 'fourth', 5)")
        connector.capture()
        assert connector.rows("f.t") == source_rows(replica, "f", "t")
    finally:
        primary.close()
        replica.close()


_MADE = ("CREATE DATABASE f", "CREATE TABLE f.t (a INT PRIMARY KEY)")


def _point_to_server(connector: Any, server: Any) -> None:
    """The connector's host name leads to another server now."""
    connector.secrets |= {"database.hostname": server.host, "database.port": server.port}


def _uuid(server: Any) -> str:
    return str(server.sql("SELECT @@server_uuid")[0][0])


def test_a_mysql_that_lacks_captured_transactions_is_refused_by_their_names(
    mysql_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would send what comes next, and keep silent about what it never had; rows of those would stay for ever."""
    monkeypatch.setattr(gtid_continuity_check, "PATIENCE_S", 0.5)
    with mysql_factory("9.7", server_id="51") as primary, mysql_factory("9.7", server_id="52") as replica:
        reset_log(primary, replica)
        primary.sql(*_MADE, "INSERT INTO f.t VALUES (1)", "INSERT INTO f.t VALUES (2)", "INSERT INTO f.t VALUES (3)")
        connector = mysql_connector(primary, tmp_path, "mysql", database_include_list="f")
        connector.capture()
        uuid = _uuid(primary)
        apply_transaction(replica, f"{uuid}:1", *_MADE, "INSERT INTO f.t VALUES (1)")
        replica.sql("INSERT INTO f.t VALUES (9)")
        before = connector.store.load_offset("test")
        _point_to_server(connector, replica)
        with pytest.raises(
            PositionLost, match=f"lacks captured transactions: {uuid}:4-5; it is not the same server"
        ) as caught:
            connector.capture()
        assert f"WAIT_FOR_EXECUTED_GTID_SET('{uuid}:4-5'" in str(caught.value.remedy)
        assert "airflow cdc gap test" in str(caught.value.remedy)
        assert "including these transactions" in str(caught.value.safe)
        assert connector.store.load_offset("test") == before
        with open_source(connector.definition(), connector.secrets) as source:
            gap = find_gap("test", before.offset, None, source)  # type: ignore[arg-type]
        assert gap is not None
        assert not gap.comparable
        # once it has them, the connector continues by itself
        apply_transaction(replica, f"{uuid}:4", "INSERT INTO f.t VALUES (2)", "INSERT INTO f.t VALUES (3)")
        connector.capture()
        assert connector.rows("f.t") == source_rows(replica, "f", "t")
        assert connector.replay.operations == {"r": 3, "c": 1}
        # a server that is set back under the same name, as one restored from a backup
        own = _uuid(replica)
        connector.capture()
        replica.sql("RESET BINARY LOGS AND GTIDS", f"SET GLOBAL gtid_purged = '{uuid}:1-5'")
        with pytest.raises(PositionLost):
            connector.capture()
        assert own in str(connector.store.load_offset("test").offset)
        connector.capture({"snapshot.mode": "when_needed"})
        assert connector.rows("f.t") == source_rows(replica, "f", "t")


def test_a_mysql_that_has_purged_what_is_not_captured_is_refused_by_names(mysql_factory: Any, tmp_path: Path) -> None:
    """A replica made from a backup younger than the connector's position has purged them."""
    with mysql_factory("9.7", server_id="53") as primary, mysql_factory("9.7", server_id="54") as replica:
        reset_log(primary, replica)
        primary.sql(*_MADE, "INSERT INTO f.t VALUES (1)")
        connector = mysql_connector(primary, tmp_path, "mysql", database_include_list="f")
        connector.capture()
        uuid = _uuid(primary)
        primary.sql("INSERT INTO f.t VALUES (2)", "INSERT INTO f.t VALUES (3)")
        replica.sql(f"SET GLOBAL gtid_purged = '{uuid}:1-5'")
        _point_to_server(connector, replica)
        with pytest.raises(PositionLost, match=f"purged transactions that were not captured: {uuid}:4-5"):
            connector.capture()


def test_a_transaction_that_is_logged_and_not_executed_yet_is_waited_for(
    mysql_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that takes over may still have some to execute."""
    with mysql_factory("9.7", server_id="55") as primary, mysql_factory("9.7", server_id="56") as replica:
        reset_log(primary, replica)
        primary.sql(*_MADE, "INSERT INTO f.t VALUES (1)")
        connector = mysql_connector(primary, tmp_path, "mysql", database_include_list="f")
        connector.capture()
        uuid = _uuid(primary)
        apply_transaction(replica, f"{uuid}:1", *_MADE)
        _point_to_server(connector, replica)
        paused = gtid_continuity_check.time.sleep

        def apply_and_pause(seconds: float) -> None:
            monkeypatch.setattr(gtid_continuity_check.time, "sleep", paused)
            apply_transaction(replica, f"{uuid}:3", "INSERT INTO f.t VALUES (1)")
            replica.sql("INSERT INTO f.t VALUES (2)")

        monkeypatch.setattr(gtid_continuity_check.time, "sleep", apply_and_pause)
        connector.capture()
        assert connector.rows("f.t") == source_rows(replica, "f", "t")
        assert connector.replay.operations == {"r": 1, "c": 1}


@pytest.mark.parametrize("edition", [None, "11.8"])
def test_a_mariadb_that_lacks_a_captured_transaction_is_refused_by_its_name(
    mariadb_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edition: str | None
) -> None:
    """Domain by domain; the server itself accepts a domain that it has never heard of."""
    monkeypatch.setattr(gtid_continuity_check, "PATIENCE_S", 0.5)
    with mariadb_factory(edition, server_id="61") as primary, mariadb_factory(edition, server_id="62") as other:
        reset_log(primary, other)
        apply_transaction(primary, "0-11-1", *_MADE, *(f"INSERT INTO f.t VALUES ({n})" for n in range(5)))
        apply_transaction(primary, "3-11-1", "INSERT INTO f.t VALUES (31)", "INSERT INTO f.t VALUES (32)")
        connector = mysql_connector(primary, tmp_path, database_include_list="f")
        connector.capture()
        _point_to_server(connector, other)
        text = "has a log that lacks captured transactions: "
        apply_transaction(other, "0-11-1", *_MADE, *(f"INSERT INTO f.t VALUES ({n})" for n in range(3)))
        with pytest.raises(PositionLost, match=f"{text}0-11-7,3-11-2; it is not the same server as before"):
            connector.capture()
        apply_transaction(other, "0-11-6", *(f"INSERT INTO f.t VALUES ({n})" for n in (3, 4)))
        with pytest.raises(PositionLost, match=f"{text}3-11-2;"):
            connector.capture()
        apply_transaction(other, "3-11-1", "INSERT INTO f.t VALUES (31)")
        with pytest.raises(PositionLost, match=f"{text}3-11-2;"):
            connector.capture()
        apply_transaction(other, "3-11-2", "INSERT INTO f.t VALUES (32)", "INSERT INTO f.t VALUES (33)")
        connector.capture()
        assert connector.rows("f.t") == source_rows(other, "f", "t")
        assert connector.replay.operations == {"r": 7, "c": 1}


def test_a_mariadb_whose_log_begins_behind_the_position_is_refused(mariadb_factory: Any, tmp_path: Path) -> None:
    """A replica made from a backup has the missing transactions in its tables, but not in its log."""
    with mariadb_factory(server_id="63") as primary, mariadb_factory(server_id="64") as replica:
        reset_log(primary, replica)
        apply_transaction(primary, "0-11-1", *_MADE, "INSERT INTO f.t VALUES (1)")
        connector = mysql_connector(primary, tmp_path, database_include_list="f")
        connector.capture()
        replica.sql("SET GLOBAL gtid_slave_pos = '0-11-5'")
        replica.sql("SET GLOBAL gtid_strict_mode = 0")
        with replica.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            for statement in (*_MADE, *(f"INSERT INTO f.t VALUES ({n})" for n in (1, 2, 3))):
                cursor.execute(statement)
        apply_transaction(replica, "0-11-6", "INSERT INTO f.t VALUES (4)")
        _point_to_server(connector, replica)
        before = connector.store.load_offset("test")
        with pytest.raises(PositionLost, match="log begins with 0-11-6, but the last captured transaction is 0-11-3"):
            connector.capture()
        assert connector.store.load_offset("test") == before
        connector.capture({"snapshot.mode": "when_needed"})
        assert connector.rows("f.t") == source_rows(replica, "f", "t")


def test_server_that_lacks_the_transactions_is_refused(mariadb_factory: Any, tmp_path: Path) -> None:
    with mariadb_factory(server_id="21") as primary, mariadb_factory(server_id="22") as stranger:
        primary.sql("CREATE DATABASE f", "CREATE TABLE f.t (a INT PRIMARY KEY)", "INSERT INTO f.t VALUES (1)")
        stranger.sql("CREATE DATABASE f", "CREATE TABLE f.t (a INT PRIMARY KEY)")
        connector = mysql_connector(primary, tmp_path, database_include_list="f")
        connector.capture()
        connector.secrets |= {"database.hostname": stranger.host, "database.port": stranger.port}
        began = time.monotonic()
        with pytest.raises(PositionLost, match="when_needed"):
            connector.capture()
        assert time.monotonic() - began < 30


def test_chunks_of_a_server_that_lacks_what_is_captured_are_refused_by_the_names_of_what_it_lacks(
    mysql_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that took over, in the middle of a run, had not got its source's last two transactions."""
    monkeypatch.setattr(chunking, "_CATCH_UP_S", 1.0)
    monkeypatch.setattr(MySqlSource, "verify_position", lambda self, position: None)  # it was the other one then
    made = ["CREATE DATABASE f", "CREATE TABLE f.t (a INT PRIMARY KEY)", "INSERT INTO f.t VALUES (1), (2), (3)"]
    with mysql_factory("9.7", server_id="41") as primary, mysql_factory("9.7", server_id="42") as replica:
        replica.sql("RESET BINARY LOGS AND GTIDS")
        primary.sql("RESET BINARY LOGS AND GTIDS", *made)
        connector = mysql_connector(primary, tmp_path, "mysql", database_include_list="f", read_only=True)
        connector.capture()
        primary.sql("DELETE FROM f.t WHERE a = 1", "DELETE FROM f.t WHERE a = 2")
        connector.capture()
        for number, statement in enumerate(made, 1):
            uuid = primary.sql("SELECT @@server_uuid")[0][0]
            with replica.connect(autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(f"SET gtid_next = '{uuid}:{number}'")
                cursor.execute(statement)
        connector.secrets |= {"database.hostname": replica.host, "database.port": replica.port}
        number = snapshot(connector, "f.t")
        connector.capture(run_for_s=60, until=signal_ended(connector, number))
        state, message = signal_state(connector, number)
        assert state == "failed"
        assert (
            f"still lacks {uuid}:4-5, which the connector has already captured. It is a different server than before"
            in message
        )
        assert [row["a"] for row in connector.rows("f.t")] == [3], "no row of the replica has come back"


_SOURCES = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "7f22ab58-71ca-11e1-9e33-c80aa9429563")


def _from_primary(replica: Any, kind: str, primary: int, number: int, statement: str) -> None:
    """A transaction that a replica has from one of several primaries."""
    gtid = f"{primary + 1}-{primary + 101}-{number}" if kind == "mariadb" else f"{_SOURCES[primary]}:{number}"
    apply_transaction(replica, gtid, statement)


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_capture_goes_on_at_another_replica_of_several_primaries(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Both replicas have every transaction of both primaries, each in another order and in other files."""
    factory = request.getfixturevalue(f"{kind}_factory")
    first, second = factory(server_id="31"), factory(server_id="32")
    reset_log(first, second)
    made = ["CREATE DATABASE m", "CREATE TABLE m.a (id INT PRIMARY KEY)", "CREATE TABLE m.b (id INT PRIMARY KEY)"]
    early = [(0, n, s) for n, s in enumerate(made, 1)]
    early += [(p, n, f"INSERT INTO m.{'ab'[p]} VALUES ({n})") for n in range(11, 21) for p in (0, 1)]
    late = [(p, n, f"INSERT INTO m.{'ab'[p]} VALUES ({n})") for n in range(21, 31) for p in (0, 1)]
    try:
        for change in early:
            _from_primary(first, kind, *change)
        connector = mysql_connector(first, tmp_path, kind, database_include_list="m")
        connector.capture()
        for change in late[:8]:
            _from_primary(first, kind, *change)
        connector.capture()
        # the other one has heard of the second primary first
        for primary, number, statement in sorted(early + late, key=lambda change: -change[0] if change[1] > 3 else -9):
            _from_primary(second, kind, primary, number, statement)
            if number == 15:
                second.sql("FLUSH BINARY LOGS")
        first.kill()
        connector.secrets |= {"database.hostname": second.host, "database.port": second.port}
        connector.capture()
        for table in ("a", "b"):
            assert connector.rows(f"m.{table}") == source_rows(second, "m", table)
        assert connector.replay.operations == {"r": 20, "c": 20}, "each transaction once"
    finally:
        first.close()
        second.close()
