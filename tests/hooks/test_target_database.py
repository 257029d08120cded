"""What connections of Airflow mean for the relational sink."""

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
