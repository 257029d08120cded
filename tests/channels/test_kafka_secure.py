"""Signals over TLS and with a login, from a real broker that has listeners for both."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.channels.kafka_signals import KafkaChannel
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError, TransientError
from dev.servers import Kafka
from tests.conftest import _start_server
from tests.support.servers.certificates import Authority

PASSWORD = "the-password-of-signals"
LOG = '{"id": "ad-hoc-1", "type": "log", "data": {"message": "hello"}}'
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_cdc="{PASSWORD}";'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Kafka]:
    options = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.server(),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
    }
    with _start_server(Kafka(options, protocols=("SSL", "SASL_SSL"))) as server:
        yield server


@pytest.fixture
def topic(broker: Kafka) -> Iterator[str]:
    with broker.topic() as name:
        broker.send(name, LOG, key="shop")
        yield name


def _channel(broker: Kafka, topic: str, protocol: str, **consumer: Any) -> KafkaChannel:
    """:param consumer: properties of the consumer, with underscores for dots"""
    properties = {
        "topic.prefix": "shop",
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": topic,
        "signal.kafka.groupId": f"group-{topic}",
        "signal.kafka.bootstrap.servers": broker.secure(protocol) if protocol else broker.address,
    }
    named = {f"signal.consumer.{name.replace('_', '.')}": value for name, value in consumer.items()}
    return KafkaChannel(TableConfig.parse(properties | named), "shop")


def _signals(channel: KafkaChannel, seconds: float = 60) -> list[str]:
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            try:
                if found := channel.poll():
                    return [signal.id for signal in found]
            except TransientError:  # a broker on a busy machine may need a moment
                if time.monotonic() > until - 1:
                    raise
            time.sleep(0.05)
        return []
    finally:
        channel.close()


def _assert_unreachable(channel: KafkaChannel) -> None:
    try:
        with pytest.raises(TransientError, match="cannot be read"):
            channel.poll()
    finally:
        channel.close()


LOGIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "cdc", "sasl_password": PASSWORD}


def test_signals_are_read_over_tls(broker: Kafka, topic: str, authority: Authority) -> None:
    channel = _channel(broker, topic, "SSL", security_protocol="SSL", ssl_ca_location=str(authority.file))
    assert _signals(channel) == ["ad-hoc-1"]


def test_signals_are_read_with_a_login_over_tls(broker: Kafka, topic: str, authority: Authority) -> None:
    channel = _channel(broker, topic, "SASL_SSL", ssl_ca_location=str(authority.file), **LOGIN)
    assert _signals(channel) == ["ad-hoc-1"]


def test_a_wrong_password_reads_nothing_and_is_not_shown(
    broker: Kafka, topic: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        wrong = {**LOGIN, "sasl_password": "not-the-password"}
        _assert_unreachable(_channel(broker, topic, "SASL_SSL", ssl_ca_location=str(authority.file), **wrong))
    assert "not-the-password" not in caplog.text


def test_a_broker_whose_certificate_no_one_known_has_signed_is_not_talked_to(
    broker: Kafka, topic: str, tmp_path: Path
) -> None:
    other = Authority.made(tmp_path, "other")
    _assert_unreachable(_channel(broker, topic, "SSL", security_protocol="SSL", ssl_ca_location=str(other.file)))


def test_a_broker_of_another_name_is_not_talked_to(broker: Kafka, topic: str, authority: Authority) -> None:
    properties = {
        "topic.prefix": "shop", "signal.enabled.channels": "kafka", "signal.kafka.topic": topic,
        "signal.kafka.bootstrap.servers": broker.secure("SSL").replace("127.0.0.1", "localhost"),
        "signal.consumer.security.protocol": "SSL", "signal.consumer.ssl.ca.location": str(authority.file),
    }  # fmt: skip
    _assert_unreachable(KafkaChannel(TableConfig.parse(properties), "shop"))


@pytest.mark.parametrize(
    "consumer",
    [
        {"ssl_ca_location": "/ca.pem"},
        {"ssl_ca_location": "/ca.pem", "security_protocol": "plaintext"},
        {"ssl_certificate_location": "/me.pem", "security_protocol": "SASL_PLAINTEXT"},
        {"sasl_username": "cdc", "sasl_password": PASSWORD},
        {"sasl_mechanism": "PLAIN", "security_protocol": "SSL"},
        {"ssl_endpoint_identification_algorithm": "https"},
    ],
)
def test_what_was_asked_to_be_encrypted_is_never_sent_as_plain_text(
    broker: Kafka, topic: str, consumer: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"(?s)would use .*set signal\.consumer\.security\.protocol=") as caught:
        _channel(broker, topic, "", **consumer)
    assert PASSWORD not in str(caught.value)


def test_tls_that_verifies_nothing_is_reported(broker: Kafka, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    off = {"enable_ssl_certificate_verification": "false"}
    channel = _channel(broker, topic, "SSL", security_protocol="SSL", **off)
    assert _signals(channel) == ["ad-hoc-1"]
    assert "signal.consumer.enable.ssl.certificate.verification=false" in caplog.text
