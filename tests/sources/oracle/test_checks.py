"""Prerequisites: each that is not met is named, with the statement that mends it, and that statement does mend it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import AccessDenied, SourceUnavailable
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle import checks
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from dev.servers.oracle import Oracle
from dev.servers.oracle.engine.privileges import CAPTURE_GRANTS
from tests.sources.oracle.mined import settings
from tests.sources.oracle_adapter import oracle_connector

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[Oracle]:
    """A server that is set up as the documents ask, with one captured table."""
    with Oracle() as started:
        prepare_server(started)
        yield started


def prepare_server(server: Oracle) -> None:
    server.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", "ALTER TABLE T1 ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")


@pytest.fixture(autouse=True)
def _no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's undo and logs are as small as a test's."""
    monkeypatch.setattr(checks, "SHORT_UNDO", 0)
    monkeypatch.setattr(checks, "SMALL_LOG", 0)


def list_findings(server: Oracle, **properties: Any) -> list[Finding]:
    return check_prerequisites(settings(server, **properties))


def test_database_that_is_set_up_as_documented_has_no_finding(server: Oracle) -> None:
    assert list_findings(server) == []
    assert list_findings(server, log__mining__strategy="hybrid") == []


def test_logging_of_all_columns_of_the_pluggable_database_is_enough() -> None:
    """The root's V$DATABASE does not show it."""
    with Oracle() as server:
        server.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))")
        server.admin(f"GRANT SELECT ON V_$THREAD TO {server.user}")
        (finding,) = list_findings(server)
        assert "has no supplemental logging of all columns" in finding.problem
        server.admin("ALTER PLUGGABLE DATABASE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS", dsn=server.owner_dsn)
        assert list_findings(server) == []


def test_database_without_containers_has_no_finding() -> None:
    with Oracle({"cdb": False}) as plain:
        prepare_server(plain)
        assert list_findings(plain) == []


def test_a_dictionary_file_is_refused_in_a_container_database(server: Oracle) -> None:
    (finding,) = list_findings(server, log__mining__path__dictionary="/tmp/d.ora")
    assert "accepts no dictionary file in a container database" in finding.problem
    assert finding.fatal


DOCUMENTED = (
    "SET CONTAINER", "SELECT ON V_$DATABASE", "FLASHBACK ANY TABLE", "SELECT ANY TABLE", "SELECT_CATALOG_ROLE", "EXECUTE_CATALOG_ROLE",
    "SELECT ANY TRANSACTION", "LOGMINING", "CREATE TABLE", "LOCK ANY TABLE", "CREATE SEQUENCE", "SELECT ON V_$LOG",
    "SELECT ON V_$LOG_HISTORY", "SELECT ON V_$LOGMNR_LOGS", "SELECT ON V_$LOGMNR_CONTENTS", "SELECT ON V_$LOGMNR_PARAMETERS",
    "SELECT ON V_$LOGFILE", "SELECT ON V_$ARCHIVED_LOG", "SELECT ON V_$ARCHIVE_DEST_STATUS", "SELECT ON V_$TRANSACTION",
    "SELECT ON V_$MYSTAT", "SELECT ON V_$STATNAME",
)  # fmt: skip
MERE_ADVICE = {
    "SELECT_CATALOG_ROLE",
    "EXECUTE_CATALOG_ROLE",
    "SELECT ANY TRANSACTION",
    "CREATE SEQUENCE",
    "SELECT ON V_$MYSTAT",
    "SELECT ON V_$STATNAME",
}


@pytest.fixture(scope="module")
def granted_server() -> Iterator[Oracle]:
    """A server whose grants each test gives back."""
    with Oracle() as started:
        prepare_server(started)
        started.admin(*(f"GRANT SELECT ON V_${view} TO {started.user}" for view in ("THREAD", "INSTANCE")))
        yield started


@pytest.mark.parametrize("grant", DOCUMENTED)
def test_each_documented_grant_that_is_missing_is_found_with_its_statement(granted_server: Oracle, grant: str) -> None:
    revoked = [grant]
    if grant.startswith("SELECT ON V_$"):
        revoked.append("SELECT_CATALOG_ROLE")  # which may read all of them
    granted_server.admin(*(f"REVOKE {one} FROM {granted_server.user}" for one in revoked))
    try:
        missing = {finding.fix: finding for finding in list_findings(granted_server)}
        statement = f"GRANT {grant} TO {granted_server.user} CONTAINER=ALL"
        assert statement in missing
        assert missing[statement].fatal is (grant not in MERE_ADVICE)
        assert set(missing) <= {f"GRANT {one} TO {granted_server.user} CONTAINER=ALL" for one in revoked}
        granted_server.admin(statement)
        assert statement not in {finding.fix for finding in list_findings(granted_server)}
    finally:
        granted_server.admin(*(f"GRANT {one} TO {granted_server.user}" for one in revoked))
    assert list_findings(granted_server) == []


def test_packages_are_needed_where_no_role_brings_them(granted_server: Oracle) -> None:
    revoked = ["LOGMINING", "EXECUTE_CATALOG_ROLE", "EXECUTE ON DBMS_LOGMNR", "EXECUTE ON DBMS_LOGMNR_D"]
    granted_server.admin(*(f"REVOKE {one} FROM {granted_server.user}" for one in revoked))
    try:
        assert {f.fix for f in list_findings(granted_server)} == {
            f"GRANT {one} TO {granted_server.user} CONTAINER=ALL" for one in revoked
        }
    finally:
        granted_server.admin(*(f"GRANT {one} TO {granted_server.user}" for one in revoked))


def test_writing_a_dictionary_needs_the_role_that_allows_it(granted_server: Oracle) -> None:
    granted_server.admin(f"REVOKE EXECUTE_CATALOG_ROLE FROM {granted_server.user}")
    try:
        (finding,) = list_findings(granted_server, log__mining__strategy="redo_log_catalog")
        assert finding.fatal
        for strategy in ("online_catalog", "hybrid"):
            (finding,) = list_findings(granted_server, log__mining__strategy=strategy)
            assert not finding.fatal
    finally:
        granted_server.admin(f"GRANT EXECUTE_CATALOG_ROLE TO {granted_server.user}")


@pytest.mark.parametrize(
    ("grant", "properties"),
    [
        ("LOCK ANY TABLE", {"snapshot__locking__mode": "none"}),
        ("LOCK ANY TABLE", {"snapshot__mode": "never"}),
        ("FLASHBACK ANY TABLE", {"snapshot__mode": "never"}),
        ("SELECT ANY TRANSACTION", {"snapshot__mode": "never"}),
    ],
)
def test_grant_that_the_configuration_does_not_use_is_not_asked_for(
    granted_server: Oracle, grant: str, properties: dict[str, str]
) -> None:
    granted_server.admin(f"REVOKE {grant} FROM {granted_server.user}")
    try:
        assert list_findings(granted_server, **properties) == []
    finally:
        granted_server.admin(f"GRANT {grant} TO {granted_server.user}")


def test_grants_on_each_table_do_as_well(granted_server: Oracle) -> None:
    system = ["SELECT ANY TABLE", "FLASHBACK ANY TABLE", "LOCK ANY TABLE"]
    objects = ["SELECT ON APP.T1", "FLASHBACK ON APP.T1"]
    granted_server.admin(*(f"REVOKE {one} FROM {granted_server.user}" for one in system))
    granted_server.sql(*(f"GRANT {one} TO {granted_server.user}" for one in objects))
    try:
        assert list_findings(granted_server) == []
    finally:
        granted_server.sql(*(f"REVOKE {one} FROM {granted_server.user}" for one in objects))
        granted_server.admin(*(f"GRANT {one} TO {granted_server.user}" for one in system))


def list_narrow_grants(user: str) -> tuple[list[str], list[str]]:
    """Read the required and the optional grants of the page, for the table of the test server."""
    page = (ROOT / "docs" / "sources" / "oracle.md").read_text()
    block = page.partition("### Narrower grants")[2].partition("```sql")[2].partition("```")[0]
    required, _, optional = (
        block.replace("inventory.customers", "APP.T1").replace("c##cdc", user).partition("-- optional")
    )
    found = [re.findall(r"^(GRANT .+);", part, re.MULTILINE) for part in (required, optional)]
    return found[0], found[1]


def revoke(statement: str) -> str:
    return statement.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM ").replace(" CONTAINER=ALL", "")


def test_the_narrow_grants_of_the_page_are_enough_to_capture(tmp_path: Path) -> None:
    """The server is the test server; no Oracle was asked."""
    with Oracle() as server:
        prepare_server(server)
        server.sql("INSERT INTO T1 VALUES (1)", "COMMIT")
        required, optional = list_narrow_grants(server.user)
        assert not [g for g in required if re.search("ANY (TABLE|DICTIONARY)|_ROLE", g)]
        server.admin(*(f"REVOKE {grant} FROM {server.user}" for grant in CAPTURE_GRANTS))
        run_grants(server, required)
        findings = list_findings(server, log__mining__strategy="hybrid")
        assert not [f for f in findings if f.fatal]
        connector = oracle_connector(server, tmp_path, table_include_list="APP.T1")
        connector.capture()
        server.sql("INSERT INTO T1 VALUES (2)", "COMMIT")
        connector.capture()
        assert [row["ID"] for row in connector.rows("APP.T1")] == [1, 2]
        for grant in (
            g for g in required if "V_$INSTANCE" in g or "APP.T1" in g
        ):  # of the others, another test makes sure
            run_grants(server, [revoke(grant)])
            assert [f for f in list_findings(server) if f.fatal], grant
            run_grants(server, [grant])
        run_grants(server, optional)
        advice = {f.fix.partition(" TO ")[0] for f in list_findings(server, log__mining__strategy="hybrid")}
        assert advice <= {"GRANT CREATE SEQUENCE"}  # Debezium's documentation requires it, nothing uses it


def run_grants(server: Oracle, statements: list[str]) -> None:
    """Run grants on tables as their owner, and all others as the administrator."""
    for statement in statements:
        (server.sql if " APP." in statement else server.admin)(statement)


def test_flush_table_that_is_there_needs_no_right_to_make_it(granted_server: Oracle) -> None:
    granted_server.sql(
        "CREATE TABLE LOG_MINING_FLUSH (LAST_SCN NUMBER(19))",
        user=granted_server.user,
        password=granted_server.password,
        dsn=granted_server.dsn,
    )
    granted_server.admin(f"REVOKE CREATE TABLE FROM {granted_server.user}")
    try:
        assert list_findings(granted_server) == []
        assert [f.fatal for f in list_findings(granted_server, log__mining__flush__table__name="OTHER")] == [True]
    finally:
        granted_server.admin(f"GRANT CREATE TABLE TO {granted_server.user}")
        granted_server.sql(
            "DROP TABLE LOG_MINING_FLUSH PURGE",
            user=granted_server.user,
            password=granted_server.password,
            dsn=granted_server.dsn,
        )


def test_database_that_does_not_archive_or_does_not_log_is_refused() -> None:
    with Oracle({"archiving": False, "supplemental": []}) as server:
        prepare_server(server)
        archive, logging = list_findings(server)
        assert archive.fatal
        assert "ALTER DATABASE ARCHIVELOG" in archive.fix
        assert logging.fatal
        assert "rdsadmin" in logging.fix
        server.admin(logging.fix.partition(".")[0], dsn=server.dsn)
        assert list_findings(server) == [archive]


def test_table_without_logging_of_all_columns_is_named_with_its_statement(server: Oracle) -> None:
    server.sql("CREATE TABLE NO_KEY (A NUMBER)", "CREATE TABLE BARE (ID NUMBER PRIMARY KEY)",
               "CREATE TABLE KEYED (ID NUMBER PRIMARY KEY)", "ALTER TABLE KEYED ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS")  # fmt: skip
    findings = {f.problem.split()[0]: f for f in list_findings(server)}
    assert {name: f.fatal for name, f in findings.items()} == {"APP.NO_KEY": True, "APP.BARE": True, "APP.KEYED": False}
    server.sql(*(f.fix for f in findings.values()))
    assert list_findings(server) == []
    server.sql("CREATE TABLE ANOTHER (A NUMBER)")
    assert list_findings(server, table__exclude__list="APP.ANOTHER") == []
    server.admin("ALTER DATABASE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    assert list_findings(server) == []


def test_names_that_are_too_long_for_logminer_are_found(server: Oracle) -> None:
    long = "X" * 31
    server.sql(f"CREATE TABLE {long} (A NUMBER)", f"ALTER TABLE {long} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
               f"CREATE TABLE T2 ({long[1:]} NUMBER, {long} NUMBER)", "ALTER TABLE T2 ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")  # fmt: skip
    assert {(f.fatal, f.fix.rpartition("=")[2]) for f in list_findings(server)} == {
        (True, "APP.T2"),
        (True, f"APP.{long}"),
    }
    assert list_findings(server, table__exclude__list=f"APP.T2,APP.{long}") == []


def test_no_captured_table_is_a_warning(server: Oracle) -> None:
    (finding,) = list_findings(server, table__include__list="APP.NONE")
    assert not finding.fatal
    assert "table.include.list" in finding.fix


@pytest.mark.parametrize(
    ("name", "text"),
    [(None, "no pluggable database is configured"), ("NOPE", "pluggable database NOPE does not exist")],
)
def test_pluggable_database_must_be_named_and_be_there(granted_server: Oracle, name: str | None, text: str) -> None:
    (finding,) = list_findings(granted_server, database__pdb__name=name)
    assert finding.fatal
    assert text in finding.problem
    assert finding.fix == "set database.pdb.name to one of ORCLPDB1"


def test_name_that_is_not_the_databases_is_reported() -> None:
    with Oracle({"cdb": False}) as plain:
        prepare_server(plain)
        (finding,) = list_findings(plain, database__pdb__name="ORCLPDB1")
        assert finding.fatal
        assert finding.fix == "remove database.pdb.name"
        url = f"{plain.host}:{plain.port}/{plain.database}"
        assert list_findings(plain, database__url=url, database__dbname="OTHER") == []


def test_archive_destination_must_be_valid_and_local(granted_server: Oracle) -> None:
    assert list_findings(granted_server, log__mining__archive__destination__name="LOG_ARCHIVE_DEST_1") == []
    (finding,) = list_findings(granted_server, log__mining__archive__destination__name="LOG_ARCHIVE_DEST_2")
    assert finding.fatal
    assert "INACTIVE" in finding.problem
    assert "LOG_ARCHIVE_DEST_1" in finding.fix
    (finding,) = list_findings(granted_server, log__mining__archive__destination__name="NOPE")
    assert "unknown" in finding.problem


def test_undo_and_logs_that_are_small_are_warnings(granted_server: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SHORT_UNDO", 3_600)
    monkeypatch.setattr(checks, "SMALL_LOG", 1 << 40)
    undo, logs = list_findings(granted_server)
    assert not undo.fatal
    assert not logs.fatal
    assert "900 s" in undo.problem
    assert undo.fix.startswith("ALTER SYSTEM SET UNDO_RETENTION = 86400")
    assert "LOGFILE GROUP" in logs.fix
    assert "dictionary" in list_findings(granted_server, log__mining__strategy="redo_log_catalog")[1].problem
    assert list_findings(granted_server, snapshot__mode="never") == [logs]


def test_standby_is_mined_only_through_its_property() -> None:
    with Oracle({"standby": True}) as server:
        prepare_server(server)
        server.switch_log()
        standby = server.standby_dsn.partition("/")[0]
        assert list_findings(server, log__mining__readonly__hostname=standby) == []
        (finding,) = list_findings(
            server, log__mining__readonly__hostname=standby, log__mining__strategy="redo_log_catalog"
        )
        assert finding.fatal
        assert finding.fix == "set log.mining.strategy=online_catalog"
        fixes = [f.fix for f in list_findings(server, database__port=int(standby.rpartition(":")[2])) if f.fatal]
        assert any("log.mining.readonly.hostname to this standby" in fix for fix in fixes)


def test_standby_of_another_database_is_found(
    granted_server: Oracle, server: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Callable[..., Any] = checks.database_of
    known = iter([1, 2])

    def next_database_id(connection: Any) -> Any:
        from dataclasses import replace

        return replace(ask(connection), dbid=next(known))

    monkeypatch.setattr(checks, "database_of", next_database_id)
    (finding,) = list_findings(granted_server, log__mining__readonly__hostname=f"{server.host}:{server.port}")
    assert finding.fatal
    assert finding.fix == "correct log.mining.readonly.hostname"


def test_wrong_password_and_no_server_are_errors_and_no_findings(granted_server: Oracle) -> None:
    with pytest.raises(AccessDenied):
        list_findings(granted_server, database__password="wrong")
    with pytest.raises(SourceUnavailable):
        list_findings(granted_server, database__port=1)
