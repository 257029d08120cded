"""The connection to the state tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import StateError
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.airflow.airflow_connector import connect
from tests.support.airflow.airflow_versions import cdc_command


def test_the_password_is_the_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    StateStore(url).create_tables()
    connect(monkeypatch, "state", conn_type="cdc_state", password=url)
    assert CdcStateHook("state").test_connection() == (True, "The state tables exist.")
    store = CdcStateHook("state").get_conn()
    assert store.load_offset("shop").offset is None
    store.close()


def test_tables_are_looked_for_in_the_schema_that_extra_names(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres.database("state") as name:
        postgres.sql("CREATE SCHEMA af", database=name)
        connect(monkeypatch, "state", conn_type="cdc_state", password=postgres.url(name), extra={"schema": "af"})
        ok, text = CdcStateHook("state").test_connection()
        assert not ok
        assert cdc_command("state migrate") in text
        StateStore(postgres.url(name), schema="af").create_tables()
        assert CdcStateHook("state").test_connection()[0]
        connect(monkeypatch, "state", conn_type="cdc_state", password=postgres.url(name))
        assert not CdcStateHook("state").test_connection()[0]


def test_a_missing_connection_is_reported_with_the_command_that_makes_it() -> None:
    with pytest.raises(StateError, match=cdc_command("setup")):
        CdcStateHook("nowhere").resolve_address()


@pytest.mark.parametrize("password", ["", "no url at all", "nodb://user:hunter2hunter2@host/db"])
def test_a_value_that_is_no_url_is_reported_without_being_shown(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    connect(monkeypatch, "state", conn_type="cdc_state", password=password)
    ok, text = CdcStateHook("state").test_connection()
    assert not ok
    assert "URL" in text
    assert "hunter2" not in text


def test_an_unreachable_database_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql+psycopg://user:hunter2hunter2@127.0.0.1:1/db"
    connect(monkeypatch, "state", conn_type="cdc_state", password=url)
    ok, text = CdcStateHook("state").test_connection()
    assert not ok
    assert "cannot be reached" in text
    assert "hunter2" not in text
