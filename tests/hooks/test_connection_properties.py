"""Properties from an Airflow connection's extra: those of the connection, and none that has the worker do something."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, build_registration
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.sources import SOURCES, config_class
from tests.support.airflow.airflow_connector import connect

DANGEROUS = (
    "signal.file", "database.initial.statements", "heartbeat.action.query", "snapshot.mode.custom.name",
    "signal.enabled.channels", "signal.data.collection", "signal.kafka.bootstrap.servers", "notification.enabled.channels",
    "signal.consumer.plugin.library.paths", "signal.consumer.ssl.engine.location", "signal.consumer.sasl.kerberos.kinit.cmd",
    "snapshot.select.statement.overrides", "log.mining.buffer.spill.folder", "log.mining.path.dictionary", "topic.prefix",
)  # fmt: skip


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_only_properties_of_the_connection_may_come_from_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Config = config_class(kind)
    valid = Config.connection_properties()
    aliases = {str(field.alias) for field in Config.model_fields.values()}
    others = sorted({*aliases, *DANGEROUS} - set(valid))
    assert not set(valid) & set(DANGEROUS)
    for name in others:
        connect(monkeypatch, "shop", conn_type=f"cdc_{kind}", host="db", extra={name: "x"})
        with pytest.raises(ConfigError, match="extra field of a connection cannot contain") as caught:
            CdcSourceHook("shop").resolve_properties()
        assert all(known in str(caught.value) for known in valid)
    print(f"{kind}: {len(others)} refused; {', '.join(valid)}")


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_every_secret_property_may_come_from_the_connection(kind: str) -> None:
    Config = config_class(kind)
    assert set(Config.list_secret_names()) <= set(Config.connection_properties())
    assert "signal.consumer.sasl.password" in Config.connection_properties()


BASES: dict[str, dict[str, Any]] = {
    "memory": {"memory.database": "x"},
    "mysql": {"database.hostname": "db", "database.user": "cdc", "database.server.id": 1},
    "mariadb": {"database.hostname": "db", "database.user": "cdc", "database.server.id": 1},
    "oracle": {"database.hostname": "db", "database.user": "cdc", "database.dbname": "ORCL"},
    "db2": {"database.hostname": "db", "database.user": "cdc", "database.dbname": "SAMPLE"},
    "postgresql": {"database.hostname": "db", "database.user": "cdc", "database.dbname": "shop"},
    "mongodb": {"mongodb.connection.string": "mongodb://db/?replicaSet=rs0", "mongodb.user": "cdc"},
    "debezium": {"topics": "shop.inventory.orders", "bootstrap.servers": "kafka:9092"},
}
MARKER = "the-marker-of-a-secret"
URLS = ("scheme://cdc:{}@db:1/x", "jdbc:mysql://db/shop?password={}")
CONNECT_STRINGS = (
    "cdc/{}@//db:1521/ORCL",
    "jdbc:oracle:thin:cdc/{}@ORCL",
    "(DESCRIPTION=(PASSWORD={})(ADDRESS=(HOST=db)))",
)


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_no_secret_of_a_connection_reaches_recorded_or_shown_data(kind: str) -> None:
    """Every property of a connection, with every form of a secret in it: what state, manifests and pages are made of has none of it."""
    Config, cases, refused = config_class(kind), 0, 0
    for name in Config.connection_properties():
        forms = (
            ["{}"]
            if Config.is_secret(name)
            else [*URLS, *(CONNECT_STRINGS if name.endswith(("url", "hostname")) else ())]
        )
        for form in forms:
            cases += 1
            try:
                config = Config.parse({"topic.prefix": "shop", **BASES[kind], name: form.format(MARKER)})
            except ConfigError as e:
                refused += 1
                shown = str(e)
            else:
                shown = json.dumps(
                    [
                        build_registration(ConnectorDefinition("shop", kind, "/log"), config).to_document(),
                        config.to_public_properties(),
                    ]
                )
            assert MARKER not in shown, name
    assert cases > len(Config.connection_properties()) - 1
    print(f"{kind}: {cases} cases, {refused} refused")
