"""Captures through a connection to a pluggable database: the same events as through the root, on premises and autonomous."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle import checks
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from dev.servers.oracle import CAPTURE_GRANTS, Oracle
from tests.sources.oracle.mined import session_of, settings
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, of_table
from tests.support.connectors import Connector
from tests.support.signals import signal_ended
from tests.support.sources.oracle.oracle_neighbour import NeighbourWriter
from tests.support.sources.oracle.oracle_workload import OracleWriter

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture(params=[False, True], ids=["on premises", "autonomous"])
def server(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """A server with a capture user in the pluggable database, and a common one."""
    with Oracle({"local": True, "autonomous": request.param, "pdbs": ["ORCLPDB1", "ORCLPDB2"]}) as oracle:
        oracle.admin(
            "CREATE USER c##root IDENTIFIED BY dbz", *(f"GRANT {one} TO c##root" for one in (*CAPTURE_GRANTS, "SELECT ON V_$THREAD"))
        )  # fmt: skip
        yield oracle


@pytest.fixture(autouse=True)
def _no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's undo and logs are as small as a test's."""
    monkeypatch.setattr(checks, "SHORT_UNDO", 0)
    monkeypatch.setattr(checks, "SMALL_LOG", 0)


def inside_connector(server: Oracle, folder: Path, **properties: Any) -> Connector:
    return oracle_connector(
        server, folder, **{"schema_include_list": "APP", "lob_enabled": True, **_HYBRID, **properties}
    )


def through_the_root(connector: Connector) -> Connector:
    connector.properties |= {"database.dbname": "ORCLCDB", "database.pdb.name": "ORCLPDB1"}
    connector.secrets |= {"database.user": "c##root"}
    return connector


TIMES = ("ts_ms", "ts_us", "ts_ns")
_HYBRID = {"log_mining_strategy": "hybrid"}


def drop_capture_times(found: list[Record]) -> list[Record]:
    """Records without the moments at which they were captured, which are in the source of rows that were read, too."""
    kept = []
    for record in found:
        value = {k: v for k, v in (record["value"] or {}).items() if k not in TIMES}
        if value.get("source", {}).get("snapshot") not in (None, "false"):
            value["source"] = {k: v for k, v in value["source"].items() if k not in (*TIMES, "scn")}
        kept.append({**record, "value": value})
    return kept


@pytest.mark.parametrize("seed", [11, 12])
def test_events_are_those_that_are_mined_in_the_root(server: Oracle, tmp_path: Path, seed: int) -> None:
    """Transactions, rollbacks, LOBs, DDL and log switches, beside another pluggable database with the same transaction ids."""
    writer = OracleWriter(server, seed, plain=True)
    writer.prepare()
    two = inside_connector(server, tmp_path / "inside"), through_the_root(inside_connector(server, tmp_path / "root"))
    for connector in two:
        capture_records(connector)
    with NeighbourWriter(server, seed):
        for steps in (150, 250):
            writer.write(steps)
            writer.release_archiving()
            found, expected = (drop_capture_times(capture_records(connector)) for connector in two)
            assert len(found) > steps // 4
            assert found == expected
    writer.finish()
    writer.close()
    assert drop_capture_times(capture_records(two[0])) == drop_capture_times(capture_records(two[1]))
    here, there = (connector.store.load_offset(connector.name).offset for connector in two)
    assert here is not None
    assert there is not None
    assert [(here.position or {})[name] for name in ("dbid", "resetlogs")] == [
        (there.position or {})[name] for name in ("dbid", "resetlogs")
    ]


def test_a_whole_capture_without_the_name_of_the_pluggable_database(server: Oracle, tmp_path: Path) -> None:
    """Snapshot, stream, a change of the table, and an incremental snapshot."""
    server.sql(
        "CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format("T1"), "INSERT INTO T1 VALUES (1, 1)"
    )
    connector = inside_connector(server, tmp_path)
    del connector.properties["database.pdb.name"]
    (read,) = of_table(capture_records(connector), "T1")
    assert (read["value"]["op"], read["value"]["source"]["db"]) == ("r", "ORCLPDB1")
    server.sql("INSERT INTO T1 VALUES (2, 2)", "ALTER TABLE T1 ADD (W NUMBER(9))", "UPDATE T1 SET W = 3 WHERE ID = 1")
    server.switch_log()
    server.sql("DELETE FROM T1 WHERE ID = 2")
    assert [r["value"] and r["value"]["op"] for r in of_table(capture_records(connector), "T1")] == [
        "c",
        "u",
        "d",
        None,
    ]
    number = connector.store.send(
        connector.name, SentSignal("s", "execute-snapshot", json.dumps({"data-collections": ["APP.T1"]}))
    )
    connector.capture(until=lambda: signal_ended(connector, number))
    assert connector.rows("APP.T1") == [{"ID": 1, "V": 1, "W": 3}]
    flush = server.sql("SELECT COUNT(*) FROM LOG_MINING_FLUSH", user=server.user, password=server.password)
    assert flush == [(1,)]


def test_a_connector_that_moves_from_the_root_goes_on_at_its_position(server: Oracle, tmp_path: Path) -> None:
    """With a transaction that is open meanwhile, and back."""
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
    connector = inside_connector(server, tmp_path)
    local = dict(connector.properties), dict(connector.secrets)
    capture_records(through_the_root(connector))
    with server.connect() as long:
        long.cursor().execute("INSERT INTO T1 VALUES (1)")
        server.sql("INSERT INTO T1 VALUES (2)")
        assert [r["value"]["after"]["ID"] for r in capture_records(connector)] == [2]
        connector.properties, connector.secrets = local
        server.sql("INSERT INTO T1 VALUES (3)")
        assert [r["value"]["after"]["ID"] for r in capture_records(connector)] == [3]
        long.cursor().execute("INSERT INTO T1 VALUES (4)")
        long.commit()
    server.sql("INSERT INTO T1 VALUES (5)")
    assert [r["value"]["after"]["ID"] for r in capture_records(connector)] == [1, 4, 5]
    server.sql("INSERT INTO T1 VALUES (6)")
    assert [r["value"]["after"]["ID"] for r in capture_records(through_the_root(connector))] == [6]


def test_a_transaction_that_stays_open_is_captured_when_it_ends(server: Oracle, tmp_path: Path) -> None:
    """Its redo is in a private strand, and later in a log that is overwritten."""
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
    connector = inside_connector(server, tmp_path)
    capture_records(connector)
    with server.connect() as long:
        long.cursor().execute("INSERT INTO T1 VALUES (1)")
        for id_ in range(2, 6):
            server.sql(f"INSERT INTO T1 VALUES ({id_})")
            assert [r["value"]["after"]["ID"] for r in capture_records(connector)] == [id_]
            server.switch_log()
        long.commit()
    assert [r["value"]["after"]["ID"] for r in capture_records(connector)] == [1]


def test_a_lost_position_is_an_error_and_its_repair_helps(server: Oracle, tmp_path: Path) -> None:
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
    connector = inside_connector(server, tmp_path)
    capture_records(connector)
    server.sql("INSERT INTO T1 VALUES (1)")
    for _ in range(4):
        server.switch_log()
    server.purge()
    with pytest.raises(PositionLost, match="can no longer be read") as caught:
        connector.capture()
    assert "snapshot.mode=when_needed" in str(caught.value.remedy)
    connector.capture({"snapshot.mode": "when_needed"})
    assert connector.rows("APP.T1") == [{"ID": 1}]


def test_a_run_beside_another_session_of_logminer(server: Oracle, tmp_path: Path) -> None:
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
    connector = inside_connector(server, tmp_path)
    capture_records(connector)
    server.sql("INSERT INTO T1 VALUES (1)")
    with session_of(server) as other:
        other.open_window(server.scn() - 1, server.scn())
        if server.options["autonomous"]:
            with pytest.raises(SourceUnavailable, match="Another LogMiner session"):
                connector.capture()
    assert len(capture_records(connector)) == 1


# checks


@pytest.fixture
def server_with_tables(server: Oracle) -> Oracle:
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
    return server


def list_findings(server: Oracle, **properties: Any) -> list[Finding]:
    """The findings, but for that of views which an autonomous database never shows."""
    every = check_prerequisites(settings(server, **properties))
    hidden = [f for f in every if "only LogMiner knows" in f.problem]
    assert len(hidden) == bool(server.options["autonomous"])
    assert not any(f.fatal for f in hidden)
    return [f for f in every if f not in hidden]


def test_an_account_of_the_pluggable_database_has_no_finding(server_with_tables: Oracle) -> None:
    assert list_findings(server_with_tables) == []
    assert list_findings(server_with_tables, database__pdb__name=None) == []
    assert list_findings(server_with_tables, database__pdb__name="orclpdb1") == []
    assert list_findings(server_with_tables, database__pdb__name=None, database__dbname="orclpdb1") == []


def test_the_name_has_to_be_that_of_the_pluggable_database(server_with_tables: Oracle) -> None:
    (finding,) = list_findings(server_with_tables, database__pdb__name="ORCLPDB2")
    assert finding.fatal
    assert "database.pdb.name=ORCLPDB1" in finding.fix
    service: dict[str, Any] = {
        "database__pdb__name": None, "database__dbname": "sales_high", "database__url": f"{server_with_tables.host}:{server_with_tables.port}/ORCLPDB1",
    }  # fmt: skip
    (finding,) = list_findings(server_with_tables, **service)
    assert not finding.fatal
    assert "Events contain the database name sales_high" in finding.problem
    server_with_tables.sql("CREATE TABLE T2 (ID NUMBER(9) PRIMARY KEY)")
    assert [f.problem.split()[0] for f in list_findings(server_with_tables, **service) if f.fatal] == ["APP.T2"], (
        "tables are checked all the same"
    )


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"log__mining__strategy": "redo_log_catalog"}, "set log.mining.strategy=hybrid"),
        ({"log__mining__path__dictionary": "/tmp/d.ora"}, "remove log.mining.path.dictionary"),
    ],
)
def test_dictionaries_of_other_kinds_are_refused(
    server_with_tables: Oracle, properties: dict[str, Any], text: str
) -> None:
    (finding,) = list_findings(server_with_tables, **properties)
    assert finding.fatal
    assert text in finding.fix


def test_what_is_of_the_root_alone_is_refused_or_named(server_with_tables: Oracle) -> None:
    (finding,) = list_findings(server_with_tables, log__mining__archive__destination__name="LOG_ARCHIVE_DEST_9")
    assert not finding.fatal
    standby = [
        f.problem
        for f in list_findings(
            server_with_tables, log__mining__readonly__hostname=f"{server_with_tables.host}:{server_with_tables.port}"
        )
        if f.fatal
    ]
    assert any("a standby can only be mined in the root" in text for text in standby)


def test_a_release_before_19_is_mined_in_the_root(server_with_tables: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    ask: Callable[..., Any] = checks.database_of
    monkeypatch.setattr(checks, "database_of", lambda connection: replace(ask(connection), version="18.3.0.0.0"))
    findings = list_findings(server_with_tables, database__pdb__name=None)
    assert findings[0].fatal
    assert findings[0].fix == "set database.dbname to the name of the root container, and database.pdb.name=ORCLPDB1"


@pytest.mark.parametrize(
    "grant",
    ["SELECT ANY TABLE", "FLASHBACK ANY TABLE", "LOCK ANY TABLE", "CREATE TABLE", "LOGMINING", "SELECT ON V_$TRANSACTION",
     "SELECT ON V_$THREAD", "SELECT ON V_$LOGMNR_LOGS", "SELECT ON V_$DATABASE"],
)  # fmt: skip
def test_each_missing_grant_is_found_with_its_statement(server_with_tables: Oracle, grant: str) -> None:
    server_with_tables.admin(*(f"GRANT SELECT ON V_${v} TO {server_with_tables.user}" for v in ("THREAD", "INSTANCE")))
    revoked = [grant, "SELECT_CATALOG_ROLE"] if grant.startswith("SELECT ON") else [grant]
    server_with_tables.admin(*(f"REVOKE {one} FROM {server_with_tables.user}" for one in revoked))
    fatal = {f.fix for f in check_prerequisites(settings(server_with_tables)) if f.fatal}
    assert f"GRANT {grant} TO {server_with_tables.user}" in fatal
    server_with_tables.admin(*(f"GRANT {one} TO {server_with_tables.user}" for one in revoked))
    assert list_findings(server_with_tables) == []


def test_grants_of_the_root_are_not_asked_for(server_with_tables: Oracle) -> None:
    server_with_tables.admin(
        *(
            f"REVOKE {one} FROM {server_with_tables.user}"
            for one in ("SET CONTAINER", "EXECUTE_CATALOG_ROLE", "EXECUTE ON DBMS_LOGMNR_D")
        )
    )
    assert list_findings(server_with_tables) == []


def test_archived_logs_alone_need_their_view(server_with_tables: Oracle) -> None:
    if server_with_tables.options["autonomous"]:
        (finding,) = check_prerequisites(settings(server_with_tables, log__mining__archive__log__only__mode=True))
        assert finding.fatal
        assert finding.fix.startswith("GRANT SELECT ON V_$ARCHIVED_LOG")
    else:
        assert list_findings(server_with_tables, log__mining__archive__log__only__mode=True) == []


def test_views_of_logs_that_are_hidden_elsewhere_are_named_with_their_grant() -> None:
    with Oracle({"local": True}) as server:
        server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T1"))
        revoke = f"REVOKE {{}} FROM {server.user}"
        server.admin(*(f"GRANT SELECT ON V_${v} TO {server.user}" for v in ("THREAD", "INSTANCE")), revoke.format("SELECT_CATALOG_ROLE"),
                     revoke.format("SELECT ON V_$LOG"))  # fmt: skip
        hidden, role = [f for f in check_prerequisites(settings(server)) if "SELECT_CATALOG_ROLE" in f.fix]
        assert hidden.problem.startswith("The account may not read V$LOG: ")
        assert not hidden.fatal
        server.admin(role.fix)
        assert check_prerequisites(settings(server)) == []


@pytest.mark.parametrize("autonomous", [False, True])
def test_logging_of_the_pluggable_database_is_enough_and_its_statement_is_the_one_that_helps(autonomous: bool) -> None:
    with Oracle({"local": True, "supplemental": [], "autonomous": autonomous}) as server:
        server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)")
        minimal, columns = (f for f in check_prerequisites(settings(server)) if f.fatal)
        inside, _, first = minimal.fix.partition(".")[0].partition(
            "; if that fails with ORA-31541, first run this in the root: "
        )
        if not autonomous:
            with pytest.raises(oracledb.DatabaseError, match="ORA-31541"):
                server.admin(inside)
            server.admin(first, dsn=server.root_dsn)
        server.admin(inside)
        server.sql(columns.fix)
        assert not [f for f in check_prerequisites(settings(server)) if f.fatal]
        server.sql("CREATE TABLE T2 (ID NUMBER(9) PRIMARY KEY)")
        assert [f.problem.split()[0] for f in check_prerequisites(settings(server)) if f.fatal] == ["APP.T2"]
        server.admin("ALTER PLUGGABLE DATABASE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
        assert not [f for f in check_prerequisites(settings(server)) if f.fatal]
