"""Differences between versions of Airflow, as far as the installed Airflow shows them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from asgiref.sync import async_to_sync

import airflow_provider_cdc
from airflow_provider_cdc.hooks import airflow_compat
from airflow_provider_cdc.hooks.page_links import build_page_url
from airflow_provider_cdc.hooks.state import build_connection_error
from airflow_provider_cdc.triggers.blocking_call_threads import CallThreads


@pytest.mark.parametrize("version", ["3.0.6", "2.11.0"])
def test_an_airflow_before_3_1_is_refused_with_the_reason(version: str) -> None:
    with pytest.raises(
        ImportError, match=rf"needs Airflow 3\.1 or newer, and this is Airflow {version}.*SQLAlchemy 1\.4"
    ):
        airflow_compat.check_airflow_version(version)


@pytest.mark.parametrize("version", ["3.1.0", "3.1.8rc2", "3.4.0b1", "4.0.0.dev0"])
def test_later_versions_are_not_refused(version: str) -> None:
    airflow_compat.check_airflow_version(version)


def test_threads_of_an_old_triggerer_ask_on_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.1 asks its supervisor like this: the reader of its answers belongs to the loop of the triggerer."""
    monkeypatch.setattr(airflow_compat, "_NUMBERS", (3, 1))

    async def run_story() -> None:
        triggerer = asyncio.get_running_loop()

        async def ask() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        assert await CallThreads(1).run("state", async_to_sync(ask)) is triggerer

    asyncio.run(run_story())


def test_the_setting_that_an_old_airflow_needs_to_make_the_state_tables_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("airflow.providers_manager.ProvidersManager", SimpleNamespace())
    setting = airflow_compat.find_migration_obstacle()
    assert setting == f"AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS={airflow_compat.DB_MANAGER}"
    monkeypatch.setenv("AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS", f"other.Manager,{airflow_compat.DB_MANAGER}")
    assert airflow_compat.find_migration_obstacle() is None
    monkeypatch.setattr("airflow.providers_manager.ProvidersManager", SimpleNamespace(db_managers=[]))
    monkeypatch.delenv("AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS")
    assert airflow_compat.find_migration_obstacle() is None


@pytest.mark.parametrize(
    ("version", "base_url", "found"),
    [
        ((3, 3), "https://host/airflow", "cdc/static/pages.js"),  # Airflow puts its base path before it
        ((3, 2), "https://host/airflow", "/airflow/cdc/static/pages.js"),
        ((3, 2), "", "/cdc/static/pages.js"),
        ((3, 1), "", None),
    ],
)
def test_pages_are_loaded_from_where_the_version_looks_for_them(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], base_url: str, found: str | None
) -> None:
    monkeypatch.setattr(airflow_compat, "_NUMBERS", version)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert airflow_compat.find_bundle_url("cdc/static/pages.js") == found


def test_a_link_to_pages_that_are_not_there_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_compat, "_NUMBERS", (3, 3))
    assert build_page_url("connectors", "shop").endswith("/plugin/cdc/connectors/shop")
    monkeypatch.setattr(airflow_compat, "_NUMBERS", (3, 1))
    assert build_page_url("connectors", "shop") == ""


def test_errors_name_commands_that_this_airflow_takes() -> None:
    """The script ``airflow-cdc`` has the commands where Airflow takes none from providers."""
    from airflow.providers_manager import ProvidersManager

    takes_commands = hasattr(ProvidersManager, "initialize_providers_cli_command")
    text = str(build_connection_error("cdc_state_default"))
    assert ("airflow cdc setup" in text, "airflow-cdc setup" in text) == (takes_commands, not takes_commands)


def test_no_other_module_imports_exceptions_or_settings_of_tasks() -> None:
    """Airflow 3.1 has some of them in other modules."""
    package = Path(airflow_provider_cdc.__file__).parent
    imports = re.compile(r"from airflow\.(exceptions|sdk\.exceptions|sdk\.configuration) import")
    found = [file.name for file in sorted(package.rglob("*.py")) if imports.search(file.read_text())]
    assert found == ["airflow_compat.py"]
