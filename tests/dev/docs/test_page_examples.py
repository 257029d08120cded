"""Examples on pages: Python files are read by Airflow, JSON, YAML and TOML by their parsers, and SQL is run by the servers that it is for."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev import paths
from tests.support.airflow.airflow_versions import dag_bag_class
from tests.support.docs.page_commands import Block, list_blocks, list_pages
from tests.support.docs.shop_situations import Shop

BLOCKS = [block for page in list_pages() for block in list_blocks(page)]
LANGUAGES = {"", "bash", "console", "ini", "js", "json", "python", "sql", "toml", "yaml", "{toctree}"}
NO_DAGS = {
    "docs/contributing/a-source.md": "tests/dev/docs/test_a_source.py::test_the_source_of_the_page_captures_what_the_page_says",
    "docs/reference/change-log.md": "tests/dev/docs/test_page_examples.py::test_a_file_of_the_change_log_is_read_as_its_page_says",
    "docs/start/tutorial.md": "tests/system/test_tutorial.py::test_who_types_what_the_page_says_gets_what_it_says",
}
"""Pages whose Python another test runs."""
PRELUDE = """
from datetime import timedelta

from airflow.sdk import DAG, task

from airflow_provider_cdc.dag import *
{imports}

shop, billing, hr = (ConnectorDefinition(name, "mariadb", "s3://lake/changelog", {{"database.server.id": 4711}}) for name in ("shop", "billing", "hr"))


def page_somebody(context): ...

"""
"""The names that pages take for granted: connectors, and classes that their tables and links name."""
SQL = {
    "docs/sources/oracle.md": "tests/sources/oracle/test_page.py::test_the_statements_of_the_page_make_a_database_ready",
    "docs/sources/db2.md": "tests/sources/db2/test_page.py::test_the_statements_of_the_pages_are_taken",
    "docs/start/tutorial.md": "tests/system/test_tutorial.py::test_who_types_what_the_page_says_gets_what_it_says",
}
"""Pages whose statements another test runs, or makes the same demands."""
NO_SERVER = {
    (
        "docs/sources/mongodb.md",
        "variant_get",
    ): "Spark reads variants: tests/targets/lake/types/test_document_variants.py",
    (
        "docs/targets/rules.md",
        "_valid_from",
    ): "Spark reads tables of the lake: tests/targets/lake/write has their modes",
    ("docs/reference/signals.md", "VARCHAR2"): "Oracle: tests/sources/oracle/test_signal_checks.py",
    ("docs/reference/signals.md", "ASNCDC"): "Db2: tests/sources/db2/test_page.py",
}
"""Page and a word of a block → the reason why no MariaDB and no MySQL runs it."""


BARE = {
    ("docs/sources/oracle.md", "STARTUP MOUNT"): "SQL*Plus, as the owner of the instance",
    ("docs/sources/oracle.md", "rdsadmin"): "procedures of Amazon RDS",
}
"""Page and a word of a block with statements that is not marked as SQL → the reason."""
STATEMENT = re.compile(r"^(?:ALTER|CALL|CREATE|DELETE|DROP|EXEC|GRANT|INSERT|SELECT|UPDATE|VALUES) ", re.M)


def _imports() -> str:
    """Import every operator, sensor and notifier."""
    lines = []
    for kind in ("operators", "sensors"):
        for page in sorted((paths.ROOT / "docs" / "operators").glob("*.md")):
            found = re.search(rf"<!-- class (airflow_provider_cdc\.{kind}\.\S+)\.(\w+) begins -->", page.read_text())
            lines += [f"from {found[1]} import {found[2]}"] if found else []
    return "\n".join(lines)


def test_each_block_has_a_language_that_a_test_reads() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("page", sorted({b.page for b in BLOCKS if b.language in ("json", "yaml", "toml")}))
def test_documents_of_a_page_can_be_parsed(page: str) -> None:
    for block in (b for b in BLOCKS if b.page == page):
        text = block.text.replace("{…}", "{}")
        if block.language == "json":
            json.loads(text)
        elif block.language == "yaml":
            assert yaml.safe_load(text)
        elif block.language == "toml":
            assert tomllib.loads(text)


def test_airflow_reads_the_python_of_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prelude, files = PRELUDE.format(imports=_imports()), 0
    (tmp_path / "fleet").mkdir()
    for block in BLOCKS:
        name = re.match(r"# fleet/(\S+\.yaml)", block.text)
        if name:
            (tmp_path / "fleet" / name[1]).write_text(block.text)
        if block.language == "python" and block.page not in NO_DAGS:
            files += 1
            name_ = re.sub(r"\W", "_", f"{block.page}_{block.line}")
            tasks = re.search(r"^(\w+ = )?\w+(Operator|Sensor)\(", block.text, re.M)  # of a DAG of the reader
            text = 'with DAG("readers"):\n' + textwrap.indent(block.text, "    ") if tasks else block.text
            (tmp_path / f"{name_}.py").write_text(f"{prelude}\n{text}")
    assert files > 10
    bags = [dag_bag_class()(str(file)) for file in sorted(tmp_path.glob("*.py"))]  # pages have DAGs of one name
    errors = [error for bag in bags for error in bag.import_errors.items()]
    assert {Path(file).name: error.strip().splitlines()[-1] for file, error in errors} == {}
    found = {dag_id for bag in bags for dag_id in bag.dag_ids}
    assert {"cdc_shop", "cdc_alerts", "cdc_apply", "cdc_group", "cdc_maintenance", "on_orders"} <= found


def test_a_file_of_the_change_log_is_read_as_its_page_says(shop: Shop) -> None:
    (block,) = (b for b in BLOCKS if b.page == "docs/reference/change-log.md" and b.language == "python")
    file = next((shop.folder / "changelog" / "shop" / "data" / "000000000001").glob("*-shop.shop.lines-*.parquet"))
    program = re.sub(r'"changelog/\S+\.parquet"', repr(str(file)), block.text)
    *imports, expression = program.strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(imports), names)
    assert len(eval(expression, names)) == 1


def statements(block: Block) -> list[str]:
    """Split a block into its statements, without comments."""
    text = re.sub(r"--( .*)?$", "", block.text, flags=re.M)
    return [one.strip() for one in re.split(r";\s*(?:\n|$)", text) if one.strip()]


def of_mysql(block: Block) -> bool:
    """Check whether a block has statements for MariaDB and MySQL."""
    known = block.page in SQL or any(block.page == page and word in block.text for page, word in NO_SERVER)
    return block.language == "sql" and not known


def test_statements_stand_in_blocks_of_sql() -> None:
    bare = [block for block in BLOCKS if block.language == "" and STATEMENT.search(block.text)]
    known = [block for block in bare if any(block.page == page and word in block.text for page, word in BARE)]
    assert [block for block in bare if block not in known] == []
    assert len(known) == len(BARE)


def test_each_exception_is_of_a_block_on_a_page() -> None:
    for page, word in NO_SERVER:
        assert any(block.page == page and word in block.text for block in BLOCKS if block.language == "sql"), page
    for test in (*SQL.values(), *NO_DAGS.values()):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (paths.ROOT / file).read_text(), test


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server with the database of the pages, and without their account."""
    found = request.getfixturevalue(request.param)
    undo = ["DROP DATABASE IF EXISTS shop", "DROP USER IF EXISTS 'page_cdc'@'%'"]
    found.sql(*undo, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    yield found
    found.sql(*undo)


def test_a_server_takes_the_statements_of_the_pages_in_their_order(server: Any) -> None:
    blocks = [block for block in BLOCKS if of_mysql(block)]
    assert {block.page for block in blocks} == {"docs/reference/signals.md", "docs/sources/mysql.md"}
    for block in sorted(blocks, key=lambda block: block.page != "docs/sources/mysql.md"):
        for statement in statements(block):
            if "CREATE TABLE" in statement:
                server.sql("DROP TABLE IF EXISTS shop.cdc_signal")
            server.sql(statement.replace("'cdc'@", "'page_cdc'@").replace("'…'", "'Secret-4711'"))
    (granted,) = {account for (account,) in server.sql("SELECT user FROM mysql.user WHERE user = 'page_cdc'")}
    assert granted == "page_cdc"
    assert len(server.sql("SELECT id FROM shop.cdc_signal")) >= 5
