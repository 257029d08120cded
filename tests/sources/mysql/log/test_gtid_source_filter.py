"""``gtid.source.includes`` and ``gtid.source.excludes``, on replicas of two primaries."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.errors import ConfigError, PositionLost
from airflow_provider_cdc.sources.mysql.log import binlog_connection, gtid_continuity_check
from airflow_provider_cdc.sources.mysql.log.gtid_source_filter import GtidSourceFilter
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import signal_ended, signal_state, snapshot
from tests.support.sources.mysql.mysql_server import apply_transaction, purge_log, reset_log
from tests.support.sources.mysql.workload import source_rows

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "7f22ab58-71ca-11e1-9e33-c80aa9429563"
SOURCES = {"mysql": (A, B), "mariadb": ("1", "2")}
MADE = ("CREATE DATABASE m", "CREATE TABLE m.a (id INT PRIMARY KEY)", "CREATE TABLE m.b (id INT PRIMARY KEY)")


class Replica:
    """A replica of two primaries, whose transactions keep their GTIDs."""

    def __init__(self, request: pytest.FixtureRequest, kind: str, number: int) -> None:
        self.kind = kind
        factory = request.getfixturevalue(f"{kind}_factory")
        self.server = factory(server_id=str(number)) if kind == "mariadb" else factory("9.7", server_id=str(number))
        reset_log(self.server)
        self.apply("a", 1, *MADE)

    def apply(self, primary: str, number: int, *statements: str) -> None:
        source = SOURCES[self.kind]["ab".index(primary)]
        first = f"{source}-{101 + 'ab'.index(primary)}-{number}" if self.kind == "mariadb" else f"{source}:{number}"
        apply_transaction(self.server, first, *statements)

    def insert(self, primary: str, first: int, last: int) -> None:
        """The primary's transactions of these numbers, a row each."""
        self.apply(primary, first, *(f"INSERT INTO m.{primary} VALUES ({n})" for n in range(first, last + 1)))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return source_rows(self.server, "m", table)


def _connector(replica: Replica, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(replica.server, folder, replica.kind, database_include_list="m", **properties)


def _without_b(kind: str, how: str) -> dict[str, str]:
    return {f"gtid_source_{how}": SOURCES[kind][0] if how == "includes" else SOURCES[kind][1]}


@pytest.mark.parametrize("how", ["includes", "excludes"])
@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_rows_of_a_source_that_does_not_count_are_left_out_and_its_ddl_is_not(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, how: str
) -> None:
    replica = Replica(request, kind, 71)
    with replica.server, patch.object(binlog_connection, "BUFFER", 1 << 14):
        replica.insert("b", 4, 6)
        connector = _connector(replica, tmp_path, **_without_b(kind, how))
        connector.capture()
        replica.insert("a", 7, 9)
        replica.insert("b", 7, 9)
        replica.apply("b", 10, "ALTER TABLE m.a ADD n INT DEFAULT 5", "UPDATE m.a SET n = 6")
        replica.apply("b", 12, "INSERT INTO m.b SELECT seq.n FROM (SELECT id * 1000 + 10000 n FROM m.b) seq")
        large = ", ".join(f"({n})" for n in range(20_000, 24_000))  # more than a buffer holds
        replica.apply("b", 13, f"INSERT INTO m.b VALUES {large}")
        replica.apply("a", 10, "INSERT INTO m.a VALUES (10, 10)")
        connector.capture()
        assert connector.rows("m.b") == [{"id": n} for n in (4, 5, 6)], "a snapshot has the rows of all"
        assert connector.rows("m.a")[-1] == {"id": 9, "n": 5}, "the column is there, the update is not"
        assert {"id": 10, "n": 10} in connector.rows("m.a")
        assert connector.replay.operations == {"r": 3, "c": 4}
        connector.capture({"gtid.source.filter.dml.events": False})
        assert connector.replay.advance().operations == {"r": 3, "c": 4}, "what was passed over stays so"
        replica.insert("b", 14, 15)
        connector.capture({"gtid.source.filter.dml.events": False})
        assert connector.replay.advance().operations == {"r": 3, "c": 6}


@pytest.mark.parametrize("how", ["includes", "excludes"])
@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_when_a_source_counts_that_did_not_the_tables_it_may_have_changed_are_reported(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(request, kind, 77)
    with replica.server:
        connector = _connector(replica, tmp_path, **_without_b(kind, how))
        connector.capture()
        replica.insert("b", 4, 6)
        connector.capture()
        assert not _missing_event_warnings(caplog)
        del connector.properties[f"gtid.source.{how}"]
        connector.capture()
        assert connector.rows("m.b") == []
        (message,) = _missing_event_warnings(caplog)
        assert f"changes that the earlier gtid.source.{how} left out are in no batch" in message
        *tables, option = shlex.split(message.rpartition("To snapshot them again: ")[2])[4:]
        assert (tables, option) == (["m.a", "m.b"], "--replace")
        number = snapshot(connector, *tables, replace=True)
        connector.capture()
        assert signal_state(connector, number)[0] == "done"
        assert connector.rows("m.b") == replica.rows("b")
        assert len(_missing_event_warnings(caplog)) == 1, "it is told once"


def _missing_event_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "may be missing or outdated" in m]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_after_a_switch_only_sources_that_count_have_to_be_there(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that takes over lacks some of the other primary's transactions, and has purged others that came meanwhile."""
    monkeypatch.setattr(gtid_continuity_check, "PATIENCE_S", 0.5)
    first, second = Replica(request, kind, 72), Replica(request, kind, 73)
    with first.server, second.server:
        first.insert("a", 11, 15)
        first.insert("b", 11, 15)
        connector = _connector(first, tmp_path, gtid_source_filter_dml_events=filtered)
        connector.capture()
        second.insert("a", 11, 15)
        second.insert("b", 11, 13)
        connector.secrets |= {"database.hostname": second.server.host, "database.port": second.server.port}
        missing_gtids = f"{B}:14-15" if kind == "mysql" else "2-102-15"
        with pytest.raises(PositionLost, match=f"captured transactions: {missing_gtids};"):
            connector.capture()
        connector.properties |= {"gtid.source.excludes": SOURCES[kind][1]}
        second.insert("a", 16, 17)
        connector.capture()
        assert connector.rows("m.a") == second.rows("a")
        # MySQL knows that 14 and 15 are captured already; MariaDB does not, for it knows the last one of a domain only
        second.insert("b", 14 if kind == "mysql" else 16, 16)
        second.insert("a", 18, 18)
        connector.capture()
        assert connector.rows("m.a") == second.rows("a")
        assert connector.replay.operations == {"r": 10, "c": 3 if filtered else 4}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_what_does_not_count_may_be_purged(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    first, second = Replica(request, kind, 74), Replica(request, kind, 75)
    with first.server, second.server:
        first.insert("a", 11, 15)
        connector = _connector(first, tmp_path)
        connector.capture()
        second.insert("a", 11, 15)
        second.insert("b", 11, 13)
        purge_log(second.server)
        second.insert("a", 16, 16)
        second.insert("b", 14, 14)
        connector.secrets |= {"database.hostname": second.server.host, "database.port": second.server.port}
        with pytest.raises(PositionLost):
            connector.capture()
        connector.capture({"gtid.source.includes": SOURCES[kind][0]})
        assert connector.rows("m.a") == second.rows("a")
        assert connector.replay.operations == {"r": 5, "c": 1}
        second.insert("a", 17, 17)
        connector.capture({"gtid.source.includes": SOURCES[kind][0]})
        assert connector.rows("m.a") == second.rows("a")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize("written", [True, False])
def test_signals_and_watermarks_count_whatever_their_source(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, written: bool
) -> None:
    """A connector writes watermarks at its own server, whose transactions need not count."""
    replica = Replica(request, kind, 76)
    with replica.server as server:
        server.sql("CREATE TABLE m.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
        server.sql(f"GRANT SELECT, INSERT, DELETE ON m.signals TO '{server.user}'@'%'")
        more = {"signal_data_collection": "m.signals"} if written else {"read_only": True}
        connector = _connector(replica, tmp_path, gtid_source_includes=SOURCES[kind][0], **more)
        connector.capture()
        replica.insert("a", 20, 29)
        connector.capture()
        number = snapshot(connector, "m.a")
        connector.capture(run_for_s=60, until=signal_ended(connector, number))
        assert signal_state(connector, number)[0] == "done"
        assert connector.rows("m.a") == replica.rows("a")


def test_includes_and_excludes_exclude_each_other(tmp_path: Path) -> None:
    from airflow_provider_cdc.sources.mysql.config import MySqlConfig

    properties = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}
    with pytest.raises(ConfigError, match=r"gtid\.source\.(in|ex)cludes"):
        MySqlConfig.parse({**properties, "gtid.source.includes": A, "gtid.source.excludes": B})
    assert MySqlConfig.parse(properties).gtid_source_filter_dml_events


@pytest.mark.parametrize(
    ("includes", "excludes", "id_", "counts"),
    [
        ((A,), (), f"{A}:5", True),
        ((A,), (), f"{B}:5", False),
        ((A,), (), f"{A}:tag:5", True),
        ((A[:8],), (), f"{A}:5", False),  # anchored
        ((f"{A[:8]}.*",), (), f"{A}:5", True),
        ((A.upper(),), (), f"{A}:5", True),
        ((), (A, B), f"{B}:5", False),
        ((), ("2",), "2-7-5", False),
        ((), ("2",), "22-2-2", True),
        ((A,), (), "file=binlog.000001,pos=4", True),  # no GTID: no source that could be left out
        ((A,), (), "X'61',X'',1", True),
    ],
)
def test_a_pattern_matches_the_whole_source(
    includes: tuple[str, ...], excludes: tuple[str, ...], id_: str, counts: bool
) -> None:
    assert GtidSourceFilter(includes, excludes).includes_transaction(id_) is counts
