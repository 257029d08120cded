"""Statements for the capture account, as they are shipped: pages show them, and checks ask for nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.grants import list_grant_files, read_grants
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.privileges import oplog_grant, stream_grant, write_grant
from airflow_provider_cdc.sources.oracle import privileges, signal_checks
from airflow_provider_cdc.sources.oracle.privileges import CLUSTER_VIEWS, LOG_VIEWS, VIEWS
from dev import paths
from dev.airflow import build_wheel
from dev.reference import list_pages_with_grants, write_grants
from tests.cli.conftest import run

DOCS = paths.ROOT / "docs"
SECTION = re.compile(r"^(?:--|//) === (.+) ===$", re.M)


@pytest.mark.parametrize("page", list_pages_with_grants(), ids=lambda page: page.stem)
def test_a_page_shows_the_statements_of_the_file(page: Path) -> None:
    assert page.read_text() == write_grants(page.read_text()), "run: .venv/bin/python -m dev.reference"


def test_every_database_has_its_statements_and_its_page_shows_them() -> None:
    files = list_grant_files()
    assert set(files) == {"mysql", "mariadb", "oracle", "db2", "mongodb"}
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
