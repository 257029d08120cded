"""Properties that every relational source has."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

import pytest
from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.relational.config import RelationalConfig

GIVEN = {"topic.prefix": "shop", "database.hostname": "db", "database.user": "cdc"}


class _MinimalConfig(RelationalConfig):
    """The configuration of another relational source, as short as it can be."""

    database_port: int = Field(50_000, alias="database.port", description="Port of the server.", ge=1, le=65535)
    BUILT_IN_CONVERTERS: ClassVar[Mapping[str, Mapping[str, str]]] = {"x.Y": {"selector": "patterns"}}


def test_a_source_has_the_server_the_account_and_the_converters_by_inheriting_them() -> None:
    config = _MinimalConfig.parse(
        GIVEN | {"database.password": "s3cret", "converters": "b", "b.type": "x.Y", "b.selector": "a.*"}
    )
    assert (config.database_hostname, config.database_port, config.database_user) == ("db", 50_000, "cdc")
    assert config.database_password.get_secret_value() == "s3cret"
    assert config.converters == ({"name": "b", "type": "x.Y", "selector": "a.*"},)
    assert config.database_query_timeout_ms == 600_000
    assert _MinimalConfig.list_capture_properties()["converters"] is PropertyEffect.FORM


def test_who_and_where_belong_to_the_airflow_connection() -> None:
    assert set(_MinimalConfig.connection_properties()) >= {
        "database.hostname", "database.port", "database.user", "database.password", "database.query.timeout.ms",
    }  # fmt: skip


@pytest.mark.parametrize("config", [_MinimalConfig, MySqlConfig, OracleConfig])
def test_properties_of_debezium_s_relational_connectors_are_known(
    config: type[RelationalConfig], caplog: pytest.LogCaptureFixture
) -> None:
    own = (
        {"database.server.id": 7}
        if config is MySqlConfig
        else {"database.dbname": "X"}
        if config is OracleConfig
        else {}
    )
    with caplog.at_level(logging.WARNING):
        config.parse(GIVEN | own | {"schema.history.internal.kafka.topic": "history"})
    assert "the schema history is stored in the state tables" in caplog.text
    with pytest.raises(ConfigError, match=r"driver\.x is not passed to the driver"):
        config.parse(GIVEN | own | {"driver.x": "1"})
