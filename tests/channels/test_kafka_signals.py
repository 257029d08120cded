"""Signals from a topic of a real broker: every message once, whatever ends in the middle."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.channels import SignalChannel, open_channels
from airflow_provider_cdc.channels.kafka_signals import KafkaChannel
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError, TransientError
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal
from airflow_provider_cdc.core.signals.signal_request_parser import (
    ExecuteSnapshotRequest,
    SignalRejected,
    StopSnapshotRequest,
    parse_request,
)
from airflow_provider_cdc.state.state_store import StateStore
from dev.servers import Kafka
from tests.support.patience import LONGEST_S, wait_until

EXECUTE = '{"type":"execute-snapshot","data":{"data-collections":["db.t1","db.t2"],"type":"INCREMENTAL"}}'
STOP = '{"type":"stop-snapshot","data":{"data-collections":["db.t1"],"type":"INCREMENTAL"}}'
LOG = '{"id":"ad-hoc-1","type":"log","data":"{\\"message\\": \\"hello\\"}"}'

ChannelFactory = Callable[..., KafkaChannel]


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    with kafka.topic() as name:
        yield name


def _config(kafka: Kafka, topic: str | None, **properties: Any) -> TableConfig:
    named = {"signal.kafka.topic": topic} if topic else {}
    return TableConfig.parse(
        {
            "topic.prefix": "shop",
            "signal.enabled.channels": "kafka",
            "signal.kafka.bootstrap.servers": kafka.address,
            "signal.kafka.groupId": f"group-{topic}",
            **named,
            **properties,
        }
    )


@pytest.fixture
def channel_factory(kafka: Kafka, topic: str) -> Iterator[ChannelFactory]:
    """Opens channels on the topic, which are closed at the end."""
    channels: list[KafkaChannel] = []

    def open_(**properties: Any) -> KafkaChannel:
        channels.append(KafkaChannel(_config(kafka, topic, **properties), "shop"))
        return channels[-1]

    yield open_
    for channel in channels:
        channel.close()


def _receive_signals(channel: SignalChannel, count: int = 1, seconds: float = LONGEST_S) -> list[SentSignal]:
    """Signals as they come, acknowledged, until there are so many; with 0, whatever comes in that time."""
    found: list[SentSignal] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and (not count or len(found) < count):
        signals = list(channel.poll())
        channel.acknowledge(signals)
        found += signals
        time.sleep(0.02)
    return found


def _parse_signal(signal: SentSignal) -> Any:
    return parse_request(Signal(1, signal.id, signal.type, signal.data, signal.channel))


def test_messages_are_signals_and_are_read_once(kafka: Kafka, topic: str, channel_factory: ChannelFactory) -> None:
    kafka.send(topic, EXECUTE, STOP, LOG, key="shop")
    channel = channel_factory()
    first, second, third = _receive_signals(channel, 3)
    assert _parse_signal(first) == ExecuteSnapshotRequest(("db.t1", "db.t2"))
    assert _parse_signal(second) == StopSnapshotRequest(("db.t1",))
    assert (third.id, third.data, third.channel) == ("ad-hoc-1", '{"message": "hello"}', "kafka")
    assert first.id == f"{topic} partition 0 offset 0"
    assert (first.origin or "").startswith(f"kafka:{topic}:0:0@")
    assert _receive_signals(channel, 0, 0.5) == []
    kafka.send(topic, LOG, key="shop")
    assert len(_receive_signals(channel)) == 1


def test_a_short_run_reads_what_is_there_with_its_first_look(kafka: Kafka, topic: str) -> None:
    kafka.send(topic, EXECUTE, key="shop")
    config = _config(kafka, topic, **{"signal.kafka.poll.timeout.ms": 1000})
    (channel,) = open_channels(config, "shop")
    assert len(channel.poll()) == 1
    channel.close()


def test_other_keys_are_ignored(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.send(topic, EXECUTE, key="another")
    kafka.send(topic, EXECUTE)
    kafka.send(topic, LOG, key="shop")
    channel = channel_factory()
    with caplog.at_level(logging.INFO):
        assert [s.id for s in _receive_signals(channel)] == ["ad-hoc-1"]
    assert f"{topic} partition 0 offset 0: its key is 'another', not 'shop'" in caplog.text
    assert "offset 1: its key is None" in caplog.text


def test_ignored_messages_are_not_read_by_the_next_run(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.send(topic, EXECUTE, EXECUTE, key="another")
    channel = channel_factory()
    with caplog.at_level(logging.INFO):
        wait_until(
            lambda: _receive_signals(channel, 0, 0.2) or "offset 1" in caplog.text, "both messages are passed over"
        )
        channel.close()
        assert caplog.text.count("Ignoring the message") == 2
        caplog.clear()
        assert _receive_signals(channel_factory(), 0, 1) == []
    assert "Ignoring the message" not in caplog.text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("execute please", "its data is not JSON"),
        (b"\xff\x00", "its data is not JSON"),
        ("[1]", "its data is a JSON array, not an object"),
        ('{"data": {}}', "it has no type"),
        ('{"type": "execute-snapshot", "data": "{"}', "its data is not JSON"),
    ],
)
def test_a_message_that_is_no_signal_is_refused_with_its_place(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, value: str | bytes, message: str
) -> None:
    kafka.send(topic, value, LOG, key="shop")
    wrong, fine = _receive_signals(channel_factory(), 2)
    assert wrong.id == f"{topic} partition 0 offset 0"
    with pytest.raises(SignalRejected, match=message):
        _parse_signal(wrong)
    assert fine.id == "ad-hoc-1"


def test_what_is_recorded_is_not_read_by_the_next_run(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory
) -> None:
    kafka.send(topic, EXECUTE, STOP, key="shop")
    channel = channel_factory()
    assert len(_receive_signals(channel, 2)) == 2
    channel.close()
    kafka.send(topic, LOG, key="shop")
    again = channel_factory()
    assert [s.id for s in _receive_signals(again) + _receive_signals(again, 0, 0.5)] == ["ad-hoc-1"]
    other = channel_factory(**{"signal.kafka.groupId": f"another-{topic}"})
    assert len(_receive_signals(other, 3)) == 3, "what a consumer group has read is its own"
    assert TableConfig.parse({"topic.prefix": "shop"}).signal_kafka_group_id == "kafka-signal"


def test_what_is_recorded_last_is_committed_when_the_run_ends(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory
) -> None:
    kafka.send(topic, EXECUTE, key="shop")
    channel = channel_factory()
    while not (signals := channel.poll()):
        time.sleep(0.02)
    channel.acknowledge(signals)
    channel.close()
    channel.close()
    assert _receive_signals(channel_factory(), 0, 1) == []


def test_what_is_not_recorded_is_read_again_and_is_the_same(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, tmp_path: Path
) -> None:
    store = StateStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    kafka.send(topic, EXECUTE, STOP, key="shop")
    channel = channel_factory()
    signals = wait_until(channel.poll, "the signals come")
    assert channel.poll() == signals
    numbers = [store.send("shop", s) for s in signals]
    channel.close()  # and so it ends before it acknowledges
    again = _receive_signals(channel_factory(), 2)
    assert again[: len(signals)] == list(signals)
    assert [store.send("shop", s) for s in again][: len(signals)] == numbers
    assert len(store.list_signals("shop", 0)) == 2


def test_what_was_sent_before_the_first_run_is_read_unless_that_is_not_wanted(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory
) -> None:
    kafka.send(topic, LOG, key="shop")
    latest = channel_factory(
        **{"signal.consumer.auto.offset.reset": "latest", "signal.kafka.groupId": f"other-{topic}"}
    )
    assert _receive_signals(latest, 0, 3) == []
    kafka.send(topic, EXECUTE, key="shop")
    assert [s.type for s in _receive_signals(latest)] == ["execute-snapshot"]
    assert [s.type for s in _receive_signals(channel_factory(), 2)] == ["log", "execute-snapshot"]


def test_a_topic_that_does_not_exist_yet_is_waited_for_and_not_created(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.restart(**{"auto.create.topics.enable": "true"})
    try:
        prefix = f"late{time.time_ns()}"
        (channel,) = open_channels(_config(kafka, None, **{"topic.prefix": prefix}), "shop")
        wait_until(lambda: channel.poll() or "-signal does not exist yet" in caplog.text, "the topic is missed")
        assert f"The topic {prefix}-signal does not exist yet" in caplog.text
        assert "create it, with one partition" in caplog.text
        assert f"{prefix}-signal" not in kafka.connect().list_topics(timeout=10).topics
        kafka.create_topic(f"{prefix}-signal")
        kafka.send(f"{prefix}-signal", LOG, key=prefix)
        assert [s.id for s in _receive_signals(channel, seconds=60)] == ["ad-hoc-1"]
        channel.close()
    finally:
        kafka.restart(**{"auto.create.topics.enable": "false"})


def test_a_topic_that_is_made_again_has_new_signals(kafka: Kafka, topic: str, channel_factory: ChannelFactory) -> None:
    kafka.send(topic, LOG, key="shop")
    (first,) = _receive_signals(channel_factory())
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.send(topic, LOG, key="shop")
    (second,) = _receive_signals(channel_factory())
    assert (first.origin or "").split("@")[0] == (second.origin or "").split("@")[0]
    assert first.origin != second.origin


def test_a_topic_that_is_made_again_during_a_run_goes_on_being_read(kafka: Kafka, topic: str) -> None:
    (channel,) = open_channels(_config(kafka, topic), "shop")
    kafka.send(topic, LOG, LOG, key="shop")
    assert len(_receive_signals(channel, 2)) == 2
    kafka.delete_topic(topic)
    assert _receive_signals(channel, 0, 3) == []
    kafka.create_topic(topic)
    kafka.send(topic, EXECUTE, key="shop")
    assert [s.type for s in _receive_signals(channel, seconds=60)] == ["execute-snapshot"]
    channel.close()


def test_several_partitions_are_all_read_with_a_warning(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    with kafka.topic(partitions=3) as topic:
        for partition in range(3):
            kafka.send(topic, LOG, key="shop", partition=partition)
        channel = KafkaChannel(_config(kafka, topic), "shop")
        assert len({s.origin for s in _receive_signals(channel, 3)}) == 3
        channel.close()
    assert f"The topic {topic} has 3 partitions" in caplog.text


def test_signals_that_the_broker_deleted_before_they_were_read_are_reported(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import TopicPartition

    kafka.send(topic, LOG, key="shop")
    channel = channel_factory()
    assert len(_receive_signals(channel)) == 1
    channel.close()
    kafka.send(topic, LOG, LOG, EXECUTE, key="shop")
    client = kafka.connect()
    for deleted in client.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(30)
    assert [s.type for s in _receive_signals(channel_factory())] == ["execute-snapshot"]
    assert f"the broker has deleted the offsets from 1 to 2 of {topic}" in caplog.text


def test_a_broker_that_is_gone_does_no_harm_and_signals_go_on_when_it_is_back(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    (channel,) = open_channels(_config(kafka, topic), "shop")
    kafka.send(topic, LOG, key="shop")
    assert len(_receive_signals(channel)) == 1
    kafka.kill()
    try:
        wait_until(lambda: channel.poll() or "cannot be read" in caplog.text, "the broker is missed", every_s=0.05)
        assert f"The topic {topic} cannot be read" in caplog.text
        began = time.monotonic()
        open_channels(_config(kafka, topic), "shop")[0].close()
        assert time.monotonic() - began < 60, "a run that begins without a broker waits a moment, and goes on"
    finally:
        kafka.start()
    kafka.send(topic, EXECUTE, key="shop")
    assert [s.type for s in _receive_signals(channel)] == ["execute-snapshot"]
    channel.close()


def test_a_run_ends_though_the_broker_has_gone_before_the_last_commit(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory
) -> None:
    kafka.send(topic, EXECUTE, key="shop")
    channel = channel_factory()
    while not (signals := channel.poll()):
        time.sleep(0.02)
    kafka.stop()
    try:
        channel.acknowledge(signals)
        began = time.monotonic()
        channel.close()
        assert time.monotonic() - began < 60
    finally:
        kafka.start()


def test_a_look_takes_no_longer_than_configured(kafka: Kafka, topic: str, channel_factory: ChannelFactory) -> None:
    assert _config(kafka, topic).signal_kafka_poll_timeout_ms == 100
    channel = channel_factory(**{"signal.kafka.poll.timeout.ms": 700})
    began = time.monotonic()
    assert channel.poll() == []
    assert 0.6 < time.monotonic() - began < 60
    began = time.monotonic()
    for _ in range(20):
        assert channel.poll() == []
    assert time.monotonic() - began < 20 * 0.7 / 2, "the stream waits for nobody"


def test_connectors_share_a_topic_by_their_keys(kafka: Kafka, topic: str) -> None:
    kafka.send(topic, EXECUTE, key="shop")
    kafka.send(topic, LOG, key="store")
    found = {}
    for prefix in ("shop", "store"):
        config = _config(kafka, topic, **{"topic.prefix": prefix, "signal.kafka.groupId": f"{topic}-{prefix}"})
        channel = KafkaChannel(config, prefix)
        found[prefix] = [s.type for s in _receive_signals(channel) + _receive_signals(channel, 0, 0.5)]
        channel.close()
    assert found == {"shop": ["execute-snapshot"], "store": ["log"]}


# properties


def test_properties_of_the_consumer_reach_it(kafka: Kafka, topic: str) -> None:
    """The broker speaks plain text: a consumer that is configured to encrypt does not understand it."""
    with pytest.raises(TransientError, match="cannot be read"):
        KafkaChannel(_config(kafka, topic, **{"signal.consumer.security.protocol": "ssl"}), "shop").poll()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such.thing", "1", 'No such configuration property: "no.such.thing"'),
        ("security.protocol", "tls", "Invalid value"),
        ("group.id", "mine", "set signal.kafka.groupId"),
        ("bootstrap.servers", "b", "set signal.kafka.bootstrap.servers"),
        ("sasl.jaas.config", "x password=y;", r"set signal.consumer.sasl.username, and signal.consumer.sasl.password"),
        ("ssl.truststore.location", "/t.jks", "signal.consumer.ssl.ca.location"),
    ],
)
def test_a_property_that_the_consumer_does_not_have_is_refused(
    kafka: Kafka, name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_channels(_config(kafka, "t", **{f"signal.consumer.{name}": value}), "shop")
    assert "password=y" not in str(caught.value)


def test_messages_that_the_documents_show_are_understood(
    kafka: Kafka, topic: str, channel_factory: ChannelFactory
) -> None:
    condition = "color='blue' AND brand='MyBrand'"
    data = {"data-collections": ["schema1.products"], "type": "INCREMENTAL"}
    several = [{"data-collection": "db.t1", "filter": condition}]
    for type_ in ("stop-snapshot", "execute-snapshot"):  # these are for others
        kafka.send(topic, json.dumps({"type": type_, "data": data}), key="shop2")
    for more in ({"additional-condition": condition}, {"additional-conditions": several}):
        kafka.send(topic, json.dumps({"type": "execute-snapshot", "data": {**data, **more}}), key="shop")
    kafka.send(topic, json.dumps({"type": "stop-snapshot", "data": data}), key="shop")
    first, second, third = (_parse_signal(s) for s in _receive_signals(channel_factory(), 3))
    assert first == ExecuteSnapshotRequest(("schema1.products",), conditions={"": condition})
    assert second == ExecuteSnapshotRequest(("schema1.products",), conditions={"db.t1": condition})
    assert third == StopSnapshotRequest(("schema1.products",))
