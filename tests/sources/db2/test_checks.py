"""Prerequisites of capture from Db2: each that is not met is a finding with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.db2 import checks
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress
from airflow_provider_cdc.sources.db2.connect import Db2DatabaseIdentity
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT
from tests.support.sources.db2.db2_settings import CONTROL_GRANTS, SIGNAL_GRANT


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        db2_adapter = Db2Adapter(db2, stack)
        db2_adapter.create("t", {"id": INT, "note": TEXT}, ("id",))
        yield db2_adapter


def list_findings(db: Db2Adapter, folder: Path, **properties: Any) -> list[Finding]:
    connector = db.connector(folder, **properties)
    with open_source(connector.definition(), connector.secrets) as source:
        return source.check_prerequisites()


def only_finding(findings: list[Finding], text: str) -> Finding:
    """The only finding that says this."""
    (one,) = [f for f in findings if text in f.problem]
    return one


def test_what_is_ready_has_no_findings(db: Db2Adapter, tmp_path: Path) -> None:
    assert list_findings(db, tmp_path) == []


@pytest.mark.parametrize(("state", "word"), [("I", "is inactive"), ("S", "was stopped")])
def test_a_registration_that_does_not_work(db: Db2Adapter, tmp_path: Path, state: str, word: str) -> None:
    db.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}' WHERE SOURCE_OWNER = '{db.namespace}'")
    one = only_finding(list_findings(db, tmp_path), word)
    assert one.fatal
    db.sql(one.fix.partition(";")[0])
    assert list_findings(db, tmp_path) == []


def test_a_table_that_is_not_in_capture_mode(db: Db2Adapter, tmp_path: Path) -> None:
    db.sql(f"CREATE TABLE {db.name('other')} (ID INTEGER)")
    one = only_finding(list_findings(db, tmp_path), "not in capture mode")
    assert not one.fatal
    assert f"CALL ASNCDC.ADDTABLE('{db.namespace}', 'other')" in one.fix
    db.sql(*one.fix.split("; "))
    db._tables["other"] = None
    assert not [f for f in list_findings(db, tmp_path) if "not in capture mode" in f.problem]


def test_no_table_at_all(db: Db2Adapter, tmp_path: Path) -> None:
    one = only_finding(
        list_findings(db, tmp_path, schema_include_list="NOTHING"), "No table in capture mode is captured"
    )
    assert not one.fatal
    assert "ADDTABLE" in one.fix


def test_a_column_that_the_change_table_lacks(db: Db2Adapter, tmp_path: Path) -> None:
    db.sql(f'ALTER TABLE {db.name("t")} ADD COLUMN "more" DECIMAL(9,2)')
    one = only_finding(list_findings(db, tmp_path), "lacks more")
    assert not one.fatal
    db.sql(one.fix.partition(";")[0])
    assert list_findings(db, tmp_path) == []


def test_updates_without_the_row_from_before(db2: Db2, tmp_path: Path) -> None:
    with ExitStack() as stack:
        db = Db2Adapter(db2, stack, upd_to_del_ins=False)
        db.create("keyed", {"id": INT}, ("id",))
        db.create("bag", {"n": INT})
        seen = [f for f in list_findings(db, tmp_path) if "CHG_UPD_TO_DEL_INS" in f.problem]
        assert {f.problem.split()[2].rpartition(".")[2]: f.fatal for f in seen} == {"keyed": False, "bag": True}
        db.sql(*(f.fix.partition(";")[0] for f in seen))
        assert list_findings(db, tmp_path) == []


def test_before_images_are_enough(db2: Db2, tmp_path: Path) -> None:
    with ExitStack() as stack:
        db = Db2Adapter(db2, stack, upd_to_del_ins=False, before_prefix="X")
        db.create("bag", {"n": INT})
        assert list_findings(db, tmp_path) == []


@pytest.fixture(scope="module")
def secured_server() -> Iterator[Db2]:
    """A server that refuses statements without a privilege."""
    with Db2({"authorize": True, "groups": {"CDC": ["STAFF"]}}) as server:
        server.sql(*CONTROL_GRANTS, SIGNAL_GRANT)
        yield server


@pytest.fixture
def strict_adapter(secured_server: Db2) -> Iterator[Db2Adapter]:
    """A table that the account may not read, nor its change table."""
    with ExitStack() as stack:
        db2_adapter = Db2Adapter(secured_server, stack)
        db2_adapter.create("t", {"id": INT, "note": TEXT}, ("id",))
        db2_adapter.sql(
            *(
                f"REVOKE SELECT ON TABLE {t} FROM USER CDC"
                for t in (db2_adapter.name("t"), db2_adapter.change_table("t"))
            )
        )
        yield db2_adapter


def test_missing_grants_are_named_with_their_statements(strict_adapter: Db2Adapter, tmp_path: Path) -> None:
    db = strict_adapter
    seen = list_findings(db, tmp_path)
    assert len(seen) == 2
    assert all(f.fatal and f.fix.startswith("GRANT SELECT ON TABLE") for f in seen)
    assert len(list_findings(db, tmp_path, snapshot_mode="never")) == 1
    db.sql(*(f.fix for f in seen))
    assert list_findings(db, tmp_path) == []


@pytest.mark.parametrize(
    "way",
    [
        ("GRANT SELECT ON TABLE {0} TO GROUP STAFF", "GRANT SELECT ON TABLE {1} TO GROUP STAFF"),
        ("GRANT SELECT ON TABLE {0} TO ROLE READER", "GRANT SELECT ON TABLE {1} TO ROLE READER", "GRANT ROLE READER TO USER CDC"),
        ("GRANT SELECTIN ON SCHEMA {2} TO USER CDC", "GRANT SELECTIN ON SCHEMA ASNCDC TO USER CDC"),
        ("GRANT DATAACCESS ON DATABASE TO ROLE ALL_DATA", "GRANT ROLE ALL_DATA TO GROUP STAFF"),
    ],
    ids=["group", "role", "schema", "authority of a role of a group"],
)  # fmt: skip
def test_privileges_count_whichever_way_they_were_granted(
    strict_adapter: Db2Adapter, tmp_path: Path, way: tuple[str, ...]
) -> None:
    given = [
        part.format(strict_adapter.name("t"), strict_adapter.change_table("t"), strict_adapter.namespace)
        for part in way
    ]
    strict_adapter.sql(*given)
    try:
        assert list_findings(strict_adapter, tmp_path) == []
    finally:
        strict_adapter.sql(*(part.replace("GRANT", "REVOKE").replace(" TO ", " FROM ") for part in given))
    assert len(list_findings(strict_adapter, tmp_path)) == 2


def test_a_role_of_other_users_gives_no_privilege(strict_adapter: Db2Adapter, tmp_path: Path) -> None:
    strict_adapter.sql(
        *(
            f"GRANT SELECT ON TABLE {t} TO ROLE OTHERS"
            for t in (strict_adapter.name("t"), strict_adapter.change_table("t"))
        )
    )
    assert len(list_findings(strict_adapter, tmp_path)) == 2


def test_the_check_names_the_grant_for_signals_of_snapshots(strict_adapter: Db2Adapter, tmp_path: Path) -> None:
    strict_adapter.sql(
        *(
            f"GRANT SELECT ON TABLE {t} TO USER CDC"
            for t in (strict_adapter.name("t"), strict_adapter.change_table("t"))
        )
    )
    strict_adapter.sql("REVOKE INSERT ON TABLE ASNCDC.IBMSNAP_SIGNAL FROM USER CDC")
    (one,) = list_findings(strict_adapter, tmp_path)
    assert one.fatal
    assert list_findings(strict_adapter, tmp_path, snapshot_isolation_mode="read_committed") == []
    assert list_findings(strict_adapter, tmp_path, snapshot_mode="never") == []
    strict_adapter.sql(one.fix.partition(";")[0])
    assert list_findings(strict_adapter, tmp_path) == []


def test_lobs_of_a_table_without_a_key(db: Db2Adapter, tmp_path: Path) -> None:
    db._create("docs", {"n": "INTEGER", "big": "CLOB(1M)"}, ())
    assert not only_finding(list_findings(db, tmp_path), "are unavailable").fatal
    assert list_findings(db, tmp_path, lob_handling_mode="unavailable") == []


def test_a_table_without_a_key_cannot_be_read_without_locks(db: Db2Adapter, tmp_path: Path) -> None:
    db.create("bag", {"n": INT})
    one = only_finding(list_findings(db, tmp_path, snapshot_isolation_mode="read_committed"), "has no key")
    assert one.fatal
    assert "repeatable_read" in one.fix


def test_control_tables_in_another_schema(db: Db2Adapter, tmp_path: Path) -> None:
    (one,) = list_findings(db, tmp_path, asn_capture_schema="ASNOTHER")
    assert one.fatal
    assert "control table ASNOTHER.IBMSNAP_REGISTER" in one.problem
    assert "asn.capture.schema" in one.fix


def test_parameters_of_the_agent_that_lose_changes(db: Db2Adapter, tmp_path: Path) -> None:
    db.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 60, AUTOSTOP = 'Y'")
    try:
        seen = list_findings(db, tmp_path)
    finally:
        db.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 10080, AUTOSTOP = 'N'")
    assert not only_finding(seen, "prunes changes after 60 minutes").fatal
    assert not only_finding(seen, "AUTOSTOP").fatal


def test_a_log_that_is_not_archived(db: Db2Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LOGARCHMETH1", checks._LOGARCHMETH1.replace("logarchmeth1", "logarchmeth2"))
    (one,) = list_findings(db, tmp_path)
    assert one.fatal
    assert "LOGARCHMETH1" in one.fix


@pytest.mark.parametrize(
    ("product", "version", "text"),
    [
        ("DB2", "12.01.0005", "z/OS"),
        ("AS", "07.05.0000", "Db2 for i"),
        ("DB2/LINUXX8664", "09.07.0004", "older than 10.5"),
    ],
)
def test_another_platform_or_an_old_version(product: str, version: str, text: str) -> None:
    (one,) = checks._platform(Db2DatabaseIdentity("TESTDB", product, version))
    assert one.fatal
    assert text in one.problem


def test_an_agent_that_is_late() -> None:
    now = AgentProgress(b"\1", 0, 0, 0, 1, 1, b"")
    late = AgentProgress(b"\1", 1, 400_000_000, 0, 1, 1, b"")
    assert [*checks._lateness(now, 35, "start it")] == []
    (one,) = checks._lateness(late, 35, "start it")
    assert not one.fatal
    assert "nothing for 400 s" in one.problem
    assert [*checks._lateness(late, 200, "start it")] == []
