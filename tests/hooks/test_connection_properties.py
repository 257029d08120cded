"""What may come from an Airflow connection's extra: what belongs to the connection, and nothing that has the worker do something."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.runtime import config_class
from airflow_provider_cdc.sources import SOURCES
from tests.support.face import connect

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
        with pytest.raises(ConfigError, match="extra of a connection cannot hold") as caught:
            CdcSourceHook("shop").properties()
        assert all(known in str(caught.value) for known in valid)
    print(f"{kind}: {len(others)} refused; {', '.join(valid)}")


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_every_secret_property_may_come_from_the_connection(kind: str) -> None:
    Config = config_class(kind)
    assert set(Config.secrets()) <= set(Config.connection_properties())
    assert "signal.consumer.sasl.password" in Config.connection_properties()
