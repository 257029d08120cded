"""An Airflow and an inventory database for all tests of this folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.services.definition_writer import list_source_kinds
from dev.airflow import Airflow, Services, example
from dev.bootstrap import browser, ui, uv
from dev.bootstrap.report import Problem, Step
from dev.servers.mysql_family import CAPTURE_PRIVILEGES

PASSWORD = "the-password-of-inventory"
"""Of the capture user ``reader``; it must be found nowhere."""
PLAIN = {"database.ssl.mode": "disabled"}
"""The server has no certificate: with the default, every check would tell so."""

SHOWN, LOOKED = "shown", "looked"
"""Of these connectors rows may be shown; only tests of pages have them."""
OF = "of_"
"""Before the kind of a source: a connector to one, of which rows may be shown, too."""

LINEAGE = "lineage.jsonl"
"""File in which OpenLineage's own client writes its events, an event in each line."""
LONG = """
from airflow.sdk import DAG
from airflow_provider_cdc.dag import ConnectorDefinition
from airflow_provider_cdc.operators.capture import CaptureOperator

long = ConnectorDefinition(
    name="long", source="mariadb", changelog="{changelog}",
    properties={{"database.server.id": 4712, "table.include.list": "inventory.orders", "batch.max.rows": 2}},
)
with DAG("long_capture", schedule=None):
    CaptureOperator(task_id="capture", definition=long, conn_id="inventory_mariadb", run_for=3600)
"""


@pytest.fixture(scope="package")
def inventory(mariadb: Any) -> Iterator[Any]:
    """The server with an ``inventory`` database of three tables."""
    mariadb.sql(
        f"CREATE OR REPLACE USER reader@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO reader@'%'",
        "DROP DATABASE IF EXISTS inventory",
        "CREATE DATABASE inventory",
        "CREATE TABLE inventory.customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50), balance DECIMAL(10,2))",
        "CREATE TABLE inventory.products (id INT PRIMARY KEY, name VARCHAR(100), weight DOUBLE)",
        "CREATE TABLE inventory.orders (id INT PRIMARY KEY, customer INT, product INT, at TIMESTAMP(3) NULL)",
        "INSERT INTO inventory.customers VALUES (1, 'Ann', 10.50), (2, 'Böb', NULL)",
        "INSERT INTO inventory.products VALUES (1, 'hammer', 1.5)",
        "INSERT INTO inventory.orders VALUES (1, 1, 1, '2024-01-02 03:04:05.678')",
    )
    yield mariadb
    mariadb.sql("DROP DATABASE inventory", "DROP USER reader@'%'")


@pytest.fixture(scope="package")
def airflow(inventory: Any, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """Airflow as a user has it after ``pip install``, ``airflow db migrate`` and ``airflow cdc setup``."""
    airflow = Airflow(tmp_path_factory.mktemp("airflow"))
    airflow.connection(
        "inventory_mariadb", conn_type="cdc_mariadb", host=inventory.host, port=inventory.port, login="reader",
        password=PASSWORD, extra=PLAIN,
    )  # fmt: skip
    example("inventory_mariadb_to_delta", airflow.dags)
    example("inventory_mariadb_continuous", airflow.dags)
    example("inventory_maintain_tables", airflow.dags)
    airflow.environment["CDC_INVENTORY_RUN_FOR"] = "60"
    airflow.environment["AIRFLOW__CDC__SHOW_ROWS_OF"] = ",".join(
        [SHOWN, LOOKED, *(f"{OF}{kind}" for kind in list_source_kinds())]
    )
    lineage_transport = {"type": "file", "log_file_path": str(airflow.folder / LINEAGE), "append": True}
    airflow.environment["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(lineage_transport)
    (airflow.dags / "long_capture.py").write_text(LONG.format(changelog=airflow.home / "cdc" / "changelog"))
    airflow.run("db", "migrate")
    airflow.run("cdc", "setup")
    return airflow


@pytest.fixture(scope="package")
def services(airflow: Airflow) -> Iterator[Services]:
    """All of Airflow's services."""
    with Services(airflow) as services:
        yield services


@pytest.fixture(scope="package")
def screenshot_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("CDC_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# not of the package: its driver has an event loop that runs in this thread, and tests of other modules want one of their own
@pytest.fixture(scope="module")
def page(services: Services) -> Iterator[Any]:
    """A page of Chromium, logged in as ``admin``; ``asked`` has every address that it asked for, ``errors`` what its scripts have thrown."""
    from playwright.sync_api import sync_playwright

    try:
        binary = browser.ensure()
    except Problem as problem:
        if os.environ.get("CDC_REQUIRE_SERVERS"):
            raise
        pytest.skip(f"Chromium cannot be had here: {problem}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=binary, args=list(browser.ARGUMENTS))
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
        page = context.new_page()
        page.asked, page.errors = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.set_default_timeout(60_000)
        page.goto(f"{services.url}/", wait_until="domcontentloaded")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", services.password)
        page.click("button[type=submit]")
        page.wait_for_url(f"{services.url}/", wait_until="commit")
        yield page
        chromium.close()


@pytest.fixture(scope="package")
def axe_script() -> str:
    folder = ui.packages(uv.ensure(Step(quiet=True)))
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
