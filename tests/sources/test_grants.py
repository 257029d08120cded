"""Statements for the capture account, as they are shipped: pages show them, and checks ask for nothing else."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pymysql
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.grant_names import GrantNames
from airflow_provider_cdc.sources.grants import list_grant_files, read_grants
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.privileges import oplog_grant, stream_grant, write_grant
from airflow_provider_cdc.sources.oracle import privileges, signal_checks
from airflow_provider_cdc.sources.oracle.privileges import CLUSTER_VIEWS, LOG_VIEWS, VIEWS
from dev import paths
from dev.airflow import build_wheel
from dev.reference import list_pages_with_grants, write_grants
from dev.servers import MariaDb
from tests.cli.conftest import run
from tests.support.airflow.airflow_connector import connect

DOCS = paths.ROOT / "docs"


@pytest.fixture(autouse=True, scope="module")
def _process_context() -> Iterator[None]:
    """Put the context of the process back, which commands set: with it, later tests would look connections up in the metadata database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
        yield


SECTION = re.compile(r"^(?:--|//) === (.+) ===$", re.M)


@pytest.mark.parametrize("page", list_pages_with_grants(), ids=lambda page: page.stem)
def test_a_page_shows_the_statements_of_the_file(page: Path) -> None:
    assert page.read_text() == write_grants(page.read_text()), "run: .venv/bin/python -m dev.reference"


def test_every_database_has_its_statements_and_its_page_shows_them() -> None:
    files = list_grant_files()
    assert set(files) == {"mysql", "mariadb", "oracle", "db2", "mongodb", "postgresql"}
    shown = {page.stem for page in list_pages_with_grants() if page.parent.name == "sources"}
    assert shown == {file.parent.name for file in files.values()}
    for file in set(files.values()):
        assert "remove" in SECTION.findall(file.read_text())


def test_the_wheel_ships_the_files(tmp_path: Path) -> None:
    with ZipFile(build_wheel(tmp_path)) as wheel:
        shipped = wheel.namelist()
    files = {str(file.relative_to(paths.ROOT)) for file in list_grant_files().values()}
    assert files - {*shipped} == set()


def test_the_check_of_oracle_asks_for_no_grant_that_the_file_lacks() -> None:
    text = read_grants("oracle") + (DOCS / "sources" / "oracle.md").read_text()
    views = [f"SELECT ON {name.replace('V$', 'V_$')}" for name in (*VIEWS, *LOG_VIEWS, *CLUSTER_VIEWS)]
    asked = [one for one in list_asked_grants(privileges, "grant", "missing") if "{" not in one]
    assert {"LOGMINING", "SELECT_CATALOG_ROLE", "CREATE TABLE"} <= {*asked}
    assert [one for one in (*views, *asked) if one not in text and one.removeprefix("SELECT ON ") not in text] == []


def list_asked_grants(module: object, *functions: str) -> list[str]:
    """Read the constant first arguments of calls that build a GRANT."""
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    firsts = [c.args[0] for c in calls if c.func.id in functions and c.args]  # type: ignore[attr-defined]
    return [first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)]


def test_every_wide_grant_of_oracle_has_its_reason_on_the_page() -> None:
    page = (DOCS / "sources" / "oracle.md").read_text()
    table = page[page.index("| grant | reason |") : page.index("**Tablespace.**")]
    named = {name for row in table.splitlines() if row for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    granted = re.findall(r"^GRANT (.*) TO c##cdc", read_grants("oracle", "wide grants"), re.M)
    single = {part.strip().rpartition(" ON ")[2] for one in granted for part in one.split(",")}
    missing = [n for n in single if n not in named and not (n.startswith("V_$LOGMNR") and "V_$LOGMNR_…" in named)]
    assert missing == []


def test_signal_tables_are_those_of_the_checks() -> None:
    from airflow_provider_cdc.sources.db2 import signal_checks as db2

    assert signal_checks.DDL.format("app.cdc_signal") + ";" in read_grants("oracle", "signal table")
    assert db2.DDL.format("app.cdc_signal") + ";" in read_grants("db2", "signal table")


def test_the_commands_of_mongodb_are_those_of_the_check() -> None:
    config = MongoDbConfig.parse(
        {"topic.prefix": "t", "mongodb.connection.string": "mongodb://h/?replicaSet=r", "mongodb.user": "cdc"}
    )
    role = re.compile(r"\[\{role: .*\}\]")
    for grant, section in (
        (stream_grant(config), "account"),
        (oplog_grant(config), "oplog"),
        (write_grant(config, "shop"), "signal collection"),
    ):
        asked = role.search(grant)
        assert asked is not None
        assert asked[0] in read_grants("mongodb", section)


def test_the_command_prints_the_file_or_one_section(capsys: pytest.CaptureFixture[str]) -> None:
    run("grants", "mariadb")
    assert capsys.readouterr().out == read_grants("mysql").rstrip() + "\n"
    run("grants", "oracle", "--section", "remove")
    assert "DROP USER c##cdc CASCADE;" in capsys.readouterr().out


def test_a_source_or_a_section_without_statements_is_an_error_that_names_the_others() -> None:
    with pytest.raises(ConfigError, match="choose one of db2, mariadb"):
        read_grants("debezium")
    with pytest.raises(ConfigError, match="choose one of account"):
        read_grants("mysql", "all")


# names of users


def grants(capsys: pytest.CaptureFixture[str], command: str) -> str:
    capsys.readouterr()
    run("grants", *shlex.split(command))
    return capsys.readouterr().out


def list_statements(text: str) -> list[str]:
    return [line.rstrip(";").replace("'…'", "'secret'") for line in text.splitlines() if line and line[:2] != "--"]


def test_what_is_printed_with_names_runs_as_it_is_and_is_enough_for_these_databases_alone(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    names, others = ["grants_a", "grants`b%"], ["grantsxa", "grants`bx"]
    for database in (*names, *others):
        quoted = database.replace("`", "``")
        mariadb.sql(f"CREATE DATABASE `{quoted}`", f"CREATE TABLE `{quoted}`.t (id INT PRIMARY KEY)")
    options = '--account "o\'reader" ' + " ".join(f"--database '{name}'" for name in names)
    mariadb.sql(*list_statements(grants(capsys, f"mariadb --section account {options}")))
    try:
        mariadb.sql(*list_statements(grants(capsys, f"mariadb --section 'signal table' {options}")))
        place = {"host": mariadb.host, "port": mariadb.port, "login": "o'reader", "password": "secret"}
        extra = json.dumps({"database.ssl.mode": "disabled"})
        connect(monkeypatch, "granted", conn_type="cdc_mariadb", extra=extra, **place)
        run("check", "--conn-id", "granted")
        reader = pymysql.connect(host=mariadb.host, port=mariadb.port, user="o'reader", password="secret")
        with reader, reader.cursor() as cursor:
            for database, may in [*((name, True) for name in names), *((name, False) for name in others)]:
                try:
                    cursor.execute(f"SELECT * FROM `{database.replace('`', '``')}`.t")
                    assert may, database
                except pymysql.err.OperationalError:
                    assert not may, database
    finally:
        mariadb.sql(*list_statements(grants(capsys, f"mariadb --section remove {options}")))
        mariadb.sql(*(f"DROP DATABASE `{database.replace('`', '``')}`" for database in (*names, *others)))
    assert mariadb.sql("SELECT COUNT(*) FROM mysql.user WHERE user = %s", args=("o'reader",)) == [(0,)]


NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
PARTS = NAMES.filter(lambda name: "@" not in name)


@settings(max_examples=40)
@given(PARTS, PARTS)
@example("a\\'b", "100%")
def test_any_name_of_an_account_is_the_one_on_the_server(mariadb: MariaDb, account: str, host: str) -> None:
    names = GrantNames(f"{account}@{host}")
    create, *_ = list_statements(names.replace_names("mysql", read_grants("mysql", "account")))
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT " + create.removeprefix("CREATE USER ").partition(" IDENTIFIED")[0].replace("'@'", "', '")
        )
        assert cursor.fetchone() == (account, host)


@given(NAMES, NAMES)
def test_any_name_is_a_string_of_mongodb(account: str, database: str) -> None:
    text = GrantNames(account, [database]).replace_names("mongodb", read_grants("mongodb", "account of one database"))
    decode = json.JSONDecoder().raw_decode
    user, end = decode(text, text.index("user: ") + 6)
    role, _ = decode(text, text.index("db: ", end) + 4)
    assert (user, role) == (account, database)


def test_names_of_oracle_and_db2_are_as_a_statement_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = grants(capsys, """oracle --account c##reader --table inventory.customers --table 'APP."t.2"' """)
    assert "GRANT SELECT ON inventory.customers TO c##reader;" in text
    assert 'GRANT FLASHBACK ON APP."t.2" TO c##reader;' in text
    assert "GRANT SET CONTAINER TO c##reader CONTAINER=ALL;" in text
    assert "GRANT_ADMIN_PRIVILEGE('READER');" in text
    assert "GRANT EXECUTE ON DBMS_LOGMNR TO reader;" in text
    statements = [line for line in text.splitlines() if not line.startswith("--")]
    assert [line for line in statements if re.search(r"\bcdc\b", line.partition(" -- ")[0])] == []
    text = grants(capsys, "oracle --account reader-1")
    assert 'CREATE USER "reader-1" IDENTIFIED BY secret QUOTA UNLIMITED ON users;' in text
    assert not re.search(r"^[^-].*CONTAINER", text.partition("inside a pluggable")[0], re.MULTILINE)
    text = grants(capsys, """db2 --account READER --table SHOP.ORDERS --table 'SHOP."orders"' --section account""")
    assert "GRANT SELECT ON TABLE ASNCDC.CDC_SHOP_ORDERS TO USER READER;" in text
    assert 'GRANT SELECT ON TABLE ASNCDC."CDC_SHOP_orders" TO USER READER;' in text
    assert 'GRANT SELECT ON TABLE SHOP."orders" TO USER READER;' in text
    assert "CUSTOMERS" not in text


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("oracle --database shop", "use --table"), ("mysql --table shop.orders", "use --database"), ("db2 --table orders", "is not SCHEMA.TABLE"),
        ("mysql --account ''", "is not a name"), ("mysql --database 'a\nb'", "is not a name"),
    ],
)  # fmt: skip
def test_a_name_that_no_statement_can_have_is_refused(
    capsys: pytest.CaptureFixture[str], command: str, remedy: str
) -> None:
    with pytest.raises(SystemExit, match=remedy):
        grants(capsys, command)
