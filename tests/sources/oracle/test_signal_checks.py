"""The signal table's prerequisites: each is named, with the statement that mends it, and none keeps capture from its work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle import checks
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings

NAMED = {"signal__data__collection": "ORCLPDB1.APP.SIGNALS"}
ALL = "ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture(autouse=True)
def _no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SHORT_UNDO", 0)
    monkeypatch.setattr(checks, "SMALL_LOG", 0)


@pytest.fixture
def server() -> Iterator[Oracle]:
    with Oracle() as started:
        started.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", f"ALTER TABLE T1 {ALL}")
        yield started


def list_findings(server: Oracle, **properties: Any) -> list[Finding]:
    return check_prerequisites(settings(server, **{**NAMED, "table__include__list": "APP.T1", **properties}))


def make(
    server: Oracle, columns: str = "ID VARCHAR2(42) PRIMARY KEY, TYPE VARCHAR2(32) NOT NULL, DATA VARCHAR2(2048)"
) -> None:
    server.sql(f"CREATE TABLE SIGNALS ({columns})", f"ALTER TABLE SIGNALS {ALL}")
    server.sql(f"GRANT INSERT ON SIGNALS TO {server.user}")


def test_a_signal_table_as_documented_has_no_finding(server: Oracle) -> None:
    make(server)
    assert list_findings(server) == []
    assert list_findings(server, signal__data__collection="APP.SIGNALS") == []


def test_a_signal_table_that_nothing_uses_is_not_looked_at(server: Oracle) -> None:
    assert list_findings(server, read__only="true", signal__enabled__channels="airflow") == []


def test_a_missing_signal_table_is_named_and_its_statements_mend_it(server: Oracle) -> None:
    (finding,) = list_findings(server)
    assert not finding.fatal
    assert "ORCLPDB1.APP.SIGNALS does not exist" in finding.problem
    for statement in finding.fix.replace(" CONTAINER=ALL", "").split("; "):
        server.sql(statement)
    (finding,) = list_findings(server)
    assert "APP.SIGNALS has no supplemental logging" in finding.problem
    server.sql(finding.fix)
    assert list_findings(server) == []


def test_a_name_of_another_database_is_reported(server: Oracle) -> None:
    (finding,) = list_findings(server, signal__data__collection="OTHER.APP.SIGNALS")
    assert "database OTHER" in finding.problem
    assert not finding.fatal


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("ID VARCHAR2(42), TYPE VARCHAR2(32)", "has 2 columns"),
        ("ID VARCHAR2(42), TYPE VARCHAR2(32), DATA VARCHAR2(2048), MORE DATE", "has 4 columns"),
        ("ID VARCHAR2(36), TYPE VARCHAR2(32), DATA VARCHAR2(2048)", "SIGNALS.ID is VARCHAR2(36)"),
        ("ID NUMBER, TYPE VARCHAR2(32), DATA VARCHAR2(2048)", "SIGNALS.ID is NUMBER"),
        ("ID VARCHAR2(42), TYPE VARCHAR2(10), DATA VARCHAR2(2048)", "SIGNALS.TYPE is VARCHAR2(10)"),
        ("ID VARCHAR2(42), TYPE VARCHAR2(32), DATA VARCHAR2(100)", "SIGNALS.DATA is VARCHAR2(100)"),
        ("ID VARCHAR2(42), TYPE VARCHAR2(32), DATA CLOB", "lob.enabled"),
    ],
)
def test_columns_that_do_not_hold_signals_are_named(server: Oracle, columns: str, what: str) -> None:
    make(server, columns)
    (finding,) = list_findings(server)
    assert what in f"{finding.problem} {finding.fix}"
    assert not finding.fatal
    if "CLOB" in columns:
        assert list_findings(server, lob__enabled="true") == []


def test_missing_privileges_are_granted_by_the_statement_that_is_given(server: Oracle) -> None:
    make(server)
    server.sql(f"REVOKE INSERT ON SIGNALS FROM {server.user}")
    by_deletion = {"incremental__snapshot__watermarking__strategy": "insert_delete"}
    (finding,) = list_findings(server)
    assert "lacks INSERT on APP.SIGNALS" in finding.problem
    assert list_findings(server, read__only="true") == []
    server.sql(finding.fix.partition(" CONTAINER")[0].partition(",")[0])
    assert list_findings(server) == []
    (finding,) = list_findings(server, **by_deletion)
    assert "DELETE" in finding.problem
    server.sql(f"GRANT DELETE, SELECT ON SIGNALS TO {server.user}")
    assert list_findings(server, **by_deletion) == []


def test_properties_that_hide_the_signal_table_are_named(server: Oracle) -> None:
    make(server)
    (finding,) = list_findings(server, log__mining__username__exclude__list=server.user)
    assert "log.mining.username.exclude.list" in finding.problem
    assert not finding.fatal
    assert list_findings(server, log__mining__query__filter__mode="in") == []  # the filter lets it through


def test_heartbeats_without_a_statement_are_advised_against_where_there_are_containers(server: Oracle) -> None:
    make(server)
    (finding,) = list_findings(server, heartbeat__interval__ms=1000)
    assert "heartbeat.action.query" in finding.fix
    assert not finding.fatal
    assert (
        list_findings(server, heartbeat__interval__ms=1000, heartbeat__action__query="UPDATE APP.T1 SET ID = ID") == []
    )
    with Oracle({"cdb": False}) as plain:
        plain.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", f"ALTER TABLE T1 {ALL}")
        assert check_prerequisites(settings(plain, heartbeat__interval__ms=1000)) == []
