"""Airflow connections as URLs and properties of the relational sink."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.target_database import DRIVERS, CdcDatabaseHook
from airflow_provider_cdc.targets.database.dialects import DIALECTS
from airflow_provider_cdc.targets.database.target_engine import DRIVERS as OF_SINK
from tests.support.airflow.airflow_connector import connect


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"conn_type": "postgres", "schema": "shop", "port": 5432}, "postgresql+psycopg://db:5432/shop"),
        (
            {"conn_type": "oracle", "extra": {"service_name": "ORCLPDB1"}},
            "oracle+oracledb://db?service_name=ORCLPDB1",
        ),
        ({"conn_type": "oracle", "schema": "ORCL", "port": 1521}, "oracle+oracledb://db:1521?service_name=ORCL"),
        ({"conn_type": "oracle", "schema": "APP", "extra": {"sid": "XE"}}, "oracle+oracledb://db/XE"),
        ({"conn_type": "db2", "schema": "SAMPLE", "port": 50000}, "db2+ibm_db://db:50000/SAMPLE"),
        (
            {"conn_type": "db2", "schema": "SAMPLE", "extra": {"Security": "SSL"}},
            "db2+ibm_db://db/SAMPLE?Security=SSL",
        ),
        (
            {
                "conn_type": "cdc_db2",
                "schema": "SAMPLE",
                "extra": {"database.authentication": "server", "database.ssl.mode": "required"},
            },
            "db2+ibm_db://db/SAMPLE?Authentication=server&Security=SSL",
        ),
        ({"conn_type": "cdc_db2", "schema": "SAMPLE", "extra": {"database.ssl.mode": "disabled"}}, "db2+ibm_db://db/SAMPLE"),
        (
            {"conn_type": "mssql", "schema": "shop", "extra": {"driver": "ODBC Driver 18 for SQL Server"}},
            "mssql://db/shop?driver=ODBC+Driver+18+for+SQL+Server",
        ),
    ],
)  # fmt: skip
def test_connections_become_urls(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], url: str) -> None:
    connect(monkeypatch, "warehouse", host="db", login="cdc", password="p;w", **fields)
    assert CdcDatabaseHook("warehouse").resolve_properties() == {
        "connection.url": url,
        "connection.username": "cdc",
        "connection.password": "p;w",
    }


def test_every_type_of_connection_belongs_to_a_dialect() -> None:
    assert {sa.make_url(f"{driver}://").get_backend_name() for driver in DRIVERS.values()} == DIALECTS.keys()
    assert {sa.make_url(f"{driver}://").get_backend_name() for driver in OF_SINK.values()} <= DIALECTS.keys()


def test_a_connection_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "warehouse", conn_type="ssh", host="db")
    with pytest.raises(ConfigError, match="cannot write to"):
        CdcDatabaseHook("warehouse").resolve_properties()


@pytest.mark.parametrize("conn_type", sorted(DRIVERS))
@pytest.mark.parametrize(
    "extra",
    [
        {"host": "evil"}, {"port": 1}, {"user": "x"}, {"init_command": "DROP TABLE t"}, {"read_default_file": "/etc/passwd"},
        {"unix_socket": "/tmp/x"}, {"passfile": "/etc/passwd"}, {"service": "x"}, {"hostaddr": "10.0.0.1"}, {"dbname": "x"},
        {"driver": "/tmp/x.so"}, {"config_dir": "/tmp"}, {"Protocol": "TCPIP", "Hostname": "evil"}, {"odbc_connect": "x"}, {"plugin_dir": "/tmp"},
    ],
    ids=lambda extra: next(iter(extra)),
)  # fmt: skip
def test_a_parameter_that_could_do_harm_never_reaches_a_driver(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, extra: dict[str, Any]
) -> None:
    connect(monkeypatch, "warehouse", conn_type=conn_type, host="db", extra=extra)
    with pytest.raises(ConfigError, match=next(reversed(extra))):
        CdcDatabaseHook("warehouse").resolve_properties()


@pytest.mark.parametrize(
    ("conn_type", "extra"),
    [
        ("postgres", {"cursor": "dictcursor", "iam": False, "aws_conn_id": "aws"}),
        ("mysql", {"cursor": "sscursor", "local_infile": True}),
        ("oracle", {"thick_mode": True, "fetch_lobs": False}),
    ],
)
def test_parameters_of_hooks_of_airflow_itself_are_ignored(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, extra: dict[str, Any]
) -> None:
    """AF02, AF13"""
    connect(monkeypatch, "warehouse", conn_type=conn_type, host="db", extra=extra)
    assert "?" not in CdcDatabaseHook("warehouse").resolve_properties()["connection.url"]


@pytest.mark.parametrize(
    ("mode", "encrypted", "checks_name"),
    [("disabled", False, None), ("required", True, False), ("verify_ca", True, False), ("verify_identity", True, True)],
)
def test_the_encryption_of_a_source_of_mysql_counts_for_a_target_too(
    monkeypatch: pytest.MonkeyPatch, mode: str, encrypted: bool, checks_name: bool | None
) -> None:
    extra = {"database.ssl.mode": mode, "database.ssl.ca": "/ca.pem", "snapshot.mode": "never"}
    connect(monkeypatch, "warehouse", conn_type="cdc_mysql", host="db", extra=extra)
    url = sa.make_url(CdcDatabaseHook("warehouse").resolve_properties()["connection.url"])
    _, arguments = sa.create_engine(url).dialect.create_connect_args(url)
    assert (bool(arguments.get("ssl")) and not arguments.get("ssl_disabled")) == encrypted
    if encrypted:
        assert arguments["ssl"] == {"ca": "/ca.pem", "check_hostname": checks_name}


def test_a_mode_of_encryption_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "warehouse", conn_type="cdc_mysql", host="db", extra={"database.ssl.mode": "encrypt"})
    with pytest.raises(ConfigError, match=r"database\.ssl\.mode"):
        CdcDatabaseHook("warehouse").resolve_properties()
