"""The registry of channels: the names that it knows, and errors for wrong ones."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.channels import NOTIFICATION_GROUP, SIGNAL_GROUP, open_channels, open_notifications
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.notifications import INCREMENTAL, Notification, NotificationType
from tests.support.packages import install_package

_OWN = """
from airflow_provider_cdc.core.model.connector_signal import SentSignal

class Queue:
    def __init__(self, config, connector):
        self.name = f"{config.topic_prefix} of {connector}"
    def poll(self):
        return [SentSignal("1", "log", '{"message": "from a queue"}', "whatever", self.name)]
    def acknowledge(self, signals):
        pass
    def close(self):
        pass

class Pager:
    sent = []
    def send(self, connector, notification):
        self.sent.append((connector, notification.type))

def broken(*arguments):
    raise OSError("no way out")
"""


def _config(**properties: Any) -> TableConfig:
    return TableConfig.parse({"topic.prefix": "shop", **{k.replace("_", "."): v for k, v in properties.items()}})


def test_the_source_and_airflow_need_no_channel() -> None:
    assert open_channels(_config(), "c") == []
    assert open_channels(_config(signal_enabled_channels="source,airflow"), "c") == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("jmx", "JMX beans need Java"),
        ("fiel", "no channel has this name. Valid values are: airflow, file, kafka, source"),
        ("log", "no channel has this name"),
    ],
)
def test_a_signal_channel_that_is_not_there_is_refused_with_those_that_are(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' cannot be used: {why}"):
        open_channels(_config(signal_enabled_channels=f"source,{name}"), "c")


@pytest.mark.parametrize(
    ("name", "why"),
    [("jmx", "JMX beans need Java"), ("mail", "no channel has this name. Valid values are: log, sink.")],
)
def test_a_notification_channel_that_is_not_there_is_refused_with_those_that_are(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' cannot be used: {why}"):
        open_notifications(_config(notification_enabled_channels=name))


def test_a_signal_channel_of_ones_own_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path, monkeypatch, {SIGNAL_GROUP: {"Queue": "{module}:Queue"}}, _OWN)
    (channel,) = open_channels(_config(signal_enabled_channels="queue"), "c")
    (signal,) = channel.poll()
    assert signal == SentSignal("1", "log", '{"message": "from a queue"}', "queue", "shop of c")
    channel.acknowledge([signal])
    channel.close()
    with pytest.raises(ConfigError, match="Valid values are: airflow, file, kafka, queue, source"):
        open_channels(_config(signal_enabled_channels="q"), "c")


def test_a_notification_channel_of_ones_own_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, {NOTIFICATION_GROUP: {"pager": "{module}:Pager"}}, _OWN)
    (channel,) = open_notifications(_config(notification_enabled_channels="pager"))
    channel.send("c", Notification(aggregate_type=INCREMENTAL, type=NotificationType.STARTED))
    assert channel.sent == [("c", "STARTED")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere:Channel", "cannot be loaded from nowhere:Channel: ModuleNotFoundError"),
        ("{module}:broken", "cannot be created: OSError: no way out"),
    ],
)
def test_a_channel_of_ones_own_that_does_not_work_is_named(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {SIGNAL_GROUP: {"mine": place}, NOTIFICATION_GROUP: {"mine": place}}
    install_package(tmp_path, monkeypatch, points, _OWN)
    with pytest.raises(ConfigError, match=f"the channel 'mine' {message}"):
        open_channels(_config(signal_enabled_channels="mine"), "c")
    with pytest.raises(ConfigError, match=f"the channel 'mine' {message}"):
        open_notifications(_config(notification_enabled_channels="mine"))


def test_the_sink_needs_the_name_of_its_topic_and_no_channel() -> None:
    with pytest.raises(ConfigError, match=r"notification\.sink\.topic\.name: required"):
        _config(notification_enabled_channels="sink")
    config = _config(notification_enabled_channels="sink", notification_sink_topic_name="told")
    assert open_notifications(config) == []


def test_the_channel_kafka_needs_brokers() -> None:
    with pytest.raises(ConfigError, match=r"signal\.kafka\.bootstrap\.servers: required"):
        _config(signal_enabled_channels="kafka")


def test_the_channel_kafka_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    config = _config(signal_enabled_channels="kafka", signal_kafka_bootstrap_servers="b:9092")
    with pytest.raises(ConfigError, match=r"pip install 'airflow-provider-cdc\[kafka\]'"):
        open_channels(config, "c")


def test_the_log_has_one_line_for_each_notification(caplog: pytest.LogCaptureFixture) -> None:
    (channel,) = open_notifications(_config(notification_enabled_channels="log"))
    data = {"connector_name": "c", "data_collections": "shop.orders", "message": "two\nlines"}
    with caplog.at_level(logging.INFO):
        channel.send("c", Notification(aggregate_type=INCREMENTAL, type=NotificationType.ABORTED, additional_data=data))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "INFO",
            "Notification of connector c: Incremental Snapshot: ABORTED (data_collections=shop.orders, message=two lines)",
        )
    ]
