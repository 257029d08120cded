"""Tables of a MariaDB that Delta tables follow, by a connector that commands find in Airflow's connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from tests.support.airflow.airflow_connector import connect


class FollowedMariaDb:
    """The connector ``shop``, its state, and its tables in a lake; all of it in a folder.

    :param server: of the database
    :param location: of tables, within the folder
    :param properties: of the connector, besides those that all have
    """

    def __init__(
        self,
        server: Any,
        database: Any,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
        *,
        location: str,
        tables: TableRules = NO_RULES,
        properties: dict[str, Any],
    ) -> None:
        monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
        state = f"sqlite:///{folder}/state.db"
        self.store = StateStore(state)
        self.store.create_tables()
        login = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
        connect(monkeypatch, "shop", conn_type="cdc_mariadb", **login)
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state)
        connect(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
        given = {"database.include.list": database.name, "poll.interval.ms": 50, **properties}
        definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", given)
        self._access = ConnectorAccess(definition, "shop")
        self._spark, self._location, self._tables = spark, f"{folder}/{location}", tables

    def follow(self) -> None:
        """Capture what has changed, and apply it."""
        with self._access.prepare_capture(owner="test", lease_ttl_s=30, lease_wait_s=30) as capture:
            capture.run()
        ApplyChanges(
            self._spark, self._access.open_change_log(), "shop", location=self._location, threads=2, tables=self._tables
        ).run()
