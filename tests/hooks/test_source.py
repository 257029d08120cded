"""Connections to sources: what their fields mean, and the results of their test in the form."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.get_provider_info import get_provider_info
from airflow_provider_cdc.hooks import source as hooks
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources import SOURCES
from tests.support.airflow.airflow_connector import connect


def open_hook(
    server: Any, monkeypatch: pytest.MonkeyPatch, conn_type: str = "cdc_mariadb", **fields: Any
) -> CdcSourceHook:
    usual = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
    connect(monkeypatch, "shop", conn_type=conn_type, **{**usual, **fields})
    return CdcSourceHook("shop")


def test_fields_of_a_connection_become_documented_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"database.ssl.mode": "required", "database.ssl.ca": ""}
    connect(
        monkeypatch, "shop", conn_type="cdc_mysql", host="db", port=3307, login="cdc", password="secret", extra=extra
    )
    assert CdcSourceHook("shop").resolve_properties() == {
        "database.hostname": "db",
        "database.port": 3307,
        "database.user": "cdc",
        "database.password": "secret",
        "database.ssl.mode": "required",
    }


def test_a_connection_of_another_type_serves_when_the_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "shop", conn_type="mysql", host="db", login="cdc", schema="inventory")
    properties = CdcSourceHook("shop", source="mysql").resolve_properties()
    assert properties == {"database.hostname": "db", "database.user": "cdc"}
    connect(monkeypatch, "other", conn_type="postgres", host="db")
    ok, text = CdcSourceHook("other").test_connection()
    assert not ok
    assert "'postgres'" in text
    assert "cdc_mariadb" in text


def test_an_extra_that_is_no_json_object_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "cdc_mysql", "host": "db", "extra": "[1]"}')
    # Airflow 3.1 passes over such a connection itself
    with pytest.raises(ConfigError, match=r"not a JSON object|does not exist") as caught:
        CdcSourceHook("shop").resolve_properties()
    assert "[1]" not in str(caught.value)


def test_a_database_that_is_ready_passes_the_test(mariadb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"database.ssl.mode": "disabled"}  # the server has no certificate, which would be a finding
    assert open_hook(mariadb, monkeypatch, extra=plain).test_connection() == (True, "Ready for capture.")
    test_result = open_hook(mariadb, monkeypatch).test_connection()
    assert test_result[0]
    assert "The connection is not encrypted" in test_result[1]


def test_a_wrong_password_is_reported_without_being_shown(mariadb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ok, text = open_hook(mariadb, monkeypatch, password="hunter2hunter2").test_connection()
    assert not ok
    assert "Access denied" in text
    assert "hunter2" not in text


def test_a_missing_privilege_is_reported_with_the_statement_that_grants_it(
    mariadb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.sql("CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'fewfew'", "GRANT SELECT ON *.* TO few@'%'")
    ok, text = open_hook(mariadb, monkeypatch, login="few", password="fewfew").test_connection()
    assert not ok
    assert "Repair: GRANT REPLICATION SLAVE ON *.* TO 'few'@'%'" in text


def test_every_source_has_a_connection_type_with_a_hook_of_its_own() -> None:
    types = {c["connection-type"]: c for c in get_provider_info()["connection-types"]}
    assert set(types) == {*(f"cdc_{kind}" for kind in SOURCES), "cdc_state"}
    for kind in SOURCES:
        hook = getattr(hooks, types[f"cdc_{kind}"]["hook-class-name"].rpartition(".")[2])
        assert hook.conn_type == f"cdc_{kind}"
        assert issubclass(hook, CdcSourceHook)


def test_a_new_source_needs_nothing_but_its_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "newdb", SOURCES["mysql"])
    types = {c["connection-type"]: c for c in get_provider_info()["connection-types"]}
    assert "database.ssl.mode" in types["cdc_newdb"]["conn-fields"]
    assert hooks.newdb.conn_type == "cdc_newdb"
    connect(monkeypatch, "shop", conn_type="cdc_newdb", host="db", login="cdc")
    assert CdcSourceHook("shop").resolve_properties()["database.hostname"] == "db"


def test_the_providers_metadata_has_the_form_that_airflow_wants() -> None:
    import json
    from pathlib import Path

    import airflow
    import jsonschema

    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_a_definition_with_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "shop", conn_type="cdc_mysql", host="db")
    definition = ConnectorDefinition("shop", "mysql", "/lake", {"database.password": "hunter2"})
    with pytest.raises(ConfigError, match=r"database\.password") as caught:
        ConnectorAccess(definition, "shop").resolve_properties()
    assert "hunter2" not in str(caught.value)
