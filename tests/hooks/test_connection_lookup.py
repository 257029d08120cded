"""Connections that do not exist: an error of the project names each, whatever it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.target_database import CdcDatabaseHook
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from tests.support.airflow.airflow_connector import connect


@pytest.mark.parametrize(
    ("missing", "look_up"),
    [
        ("shop", lambda: CdcSourceHook("shop").resolve_properties()),
        ("warehouse", lambda: CdcDatabaseHook("warehouse").resolve_properties()),
        ("clouds", lambda: CdcDatabaseHook("with_token").resolve_properties()),
        ("lake", lambda: storage_options("lake")),
    ],
    ids=["source", "target", "cloud", "storage"],
)
def test_a_connection_that_does_not_exist_is_named_by_an_error_of_the_project(
    monkeypatch: pytest.MonkeyPatch, missing: str, look_up: Callable[[], Any]
) -> None:
    """AF13"""
    connect(monkeypatch, "with_token", conn_type="postgres", host="db", extra={"iam": True, "aws_conn_id": "clouds"})
    with pytest.raises(ConfigError, match=f"Connection {missing}, .*, does not exist") as caught:
        look_up()
    assert "airflow connections add" in str(caught.value)
