"""Records of topics of a real broker: each partition in its order, from the connector's own position on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError, PositionLost, SourceUnavailable
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig
from airflow_provider_cdc.sources.debezium.topic_feed import TopicFeed
from dev.servers import Kafka
from tests.sources.debezium.written import Row, Topic, node
from tests.support.connectors import Connector

FIELDS = [node("id", "int32", optional=False), node("name", "string")]


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[Topic]:
    name = f"shop.inventory.t{uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    yield Topic(FIELDS, name=name)
    if kafka.running:
        kafka.delete_topic(name)


def _send(kafka: Kafka, topic: Topic, *records: Row, partition: int | None = None) -> None:
    for record in records:
        key, value = record["key"], record["value"]
        id_ = (key or {}).get("payload", key or {}).get("id", 0)
        text = b"" if value is None else json.dumps(value)
        where = id_ % 2 if partition is None else partition
        kafka.send(topic.name, text, key=None if key is None else json.dumps(key), partition=where)


def _rows(*ids: int) -> list[Row]:
    return [{"id": n, "name": "a"} for n in ids]


def _connector(kafka: Kafka, topic: Topic, folder: Path, properties: Row | None = None) -> Connector:
    base = {"topic.prefix": "shop", "topics": topic.name, "bootstrap.servers": kafka.address, "poll.interval.ms": 10}
    return Connector(folder, "debezium", {**base, **(properties or {})})


def _captured_rows(connector: Connector, topic: Topic) -> list[Row]:
    return connector.rows(topic.name.removeprefix("shop."))


def test_records_are_read_once_and_on_from_where_they_were(kafka: Kafka, topic: Topic, tmp_path: Path) -> None:
    connector = _connector(kafka, topic, tmp_path, {"batch.max.rows": 3})
    _send(kafka, topic, *(topic.event("c", None, row) for row in _rows(*range(10))))
    assert connector.capture().events == 10
    assert connector.capture().events == 0
    one = {"id": 1, "name": "a"}
    _send(
        kafka,
        topic,
        topic.event("u", one, {**one, "name": "b"}),
        topic.event("d", _rows(2)[0], None),
        topic.end({"id": 2}),
    )
    assert connector.capture().events == 2
    expected = [{"id": n, "name": "b" if n == 1 else "a"} for n in range(10) if n != 2]
    assert _captured_rows(connector, topic) == expected


def test_the_position_has_each_partition_and_no_group_has_a_part_in_it(
    kafka: Kafka, topic: Topic, tmp_path: Path
) -> None:
    connector = _connector(kafka, topic, tmp_path / "a")
    _send(kafka, topic, *(topic.event("c", None, row) for row in _rows(0, 1, 2)))
    connector.capture()
    position = connector.store.load_offset("test").offset.position  # type: ignore[union-attr]
    assert position == {"topics": {topic.name: {"0": 2, "1": 1}}}
    other = _connector(kafka, topic, tmp_path / "b")
    assert other.capture().events == 3


def test_records_of_partitions_with_other_schemas_take_no_column_away(
    kafka: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """Between partitions there is no order: an older schema may come after a newer one."""
    wider = Topic([*FIELDS, node("size", "int32")], name=topic.name)
    connector = _connector(kafka, topic, tmp_path)
    for n in range(3):
        _send(kafka, topic, wider.event("c", None, {"id": 2 * n, "name": "a", "size": n}), partition=0)
        _send(kafka, topic, topic.event("c", None, {"id": 2 * n + 1, "name": "a"}), partition=1)
        connector.capture()
    assert [row.get("size") for row in _captured_rows(connector, topic)] == [0, None, 1, None, 2, None]
    changes = [
        c for m in connector.changelog.read_manifests("test", after=0) for r in m.schema_changes for c in r.changes
    ]
    assert [c.dropped for c in changes] == [()] * len(changes)
    assert len(changes) <= 2


def test_a_topic_is_chosen_by_a_regular_expression_and_may_come_later(kafka: Kafka, tmp_path: Path) -> None:
    mark = uuid4().hex[:8]
    topic = Topic(FIELDS, name=f"shop.inventory.x{mark}")
    connector = _connector(kafka, topic, tmp_path, {"topics": "", "topics.regex": rf"shop\.inventory\..*{mark}"})
    assert connector.capture().events == 0
    with open_source(connector.definition()) as source:
        assert "No topic matches" in source.check_prerequisites()[0].problem
    kafka.create_topic(topic.name)
    _send(kafka, topic, topic.event("c", None, _rows(0)[0]))
    assert connector.capture().events == 1
    assert topic.name.removeprefix("shop.") in map(str, _discover_tables(connector))
    kafka.delete_topic(topic.name)


def test_an_expression_that_may_be_matched_for_ever_is_rejected_before_a_broker_is_reached() -> None:
    config = DebeziumConfig.parse(
        {"topic.prefix": "p", "bootstrap.servers": "127.0.0.1:1", "topics.regex": r"([a-z-]+.?)+\d"}
    )
    with pytest.raises(ConfigError, match="may take for ever"):
        TopicFeed(config)


@pytest.mark.parametrize(
    "properties", [{"consumer.ssl.ca.location": "/ca.pem"}, {"consumer.sasl.username": "cdc", "consumer.sasl.password": "x"}]
)  # fmt: skip
def test_a_login_or_encryption_that_would_not_be_used_is_an_error(properties: dict[str, str]) -> None:
    given = {"topic.prefix": "p", "bootstrap.servers": "127.0.0.1:1", "topics": "a.b"}
    with pytest.raises(ConfigError, match=r"would use plaintext, although consumer\.s"):
        TopicFeed(DebeziumConfig.parse(given | properties)).find_begin_position()


def _discover_tables(connector: Connector) -> list[Any]:
    with open_source(connector.definition()) as source:
        return list(source.discover_tables())


def test_offsets_that_the_broker_has_deleted_are_an_error(kafka: Kafka, topic: Topic, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    connector = _connector(kafka, topic, tmp_path)
    _send(kafka, topic, *(topic.event("c", None, row) for row in _rows(0, 2, 4)))
    connector.capture()
    _send(kafka, topic, *(topic.event("c", None, row) for row in _rows(6, 8, 10)))
    client = kafka.connect()  # what waits for its answer ends with it
    for deleted in client.delete_records([TopicPartition(topic.name, 0, 5)]).values():
        deleted.result(30)
    with pytest.raises(PositionLost, match=r"have deleted the offsets 3 to 4") as caught:
        connector.capture()
    assert "airflow cdc gap" in str(caught.value)


def test_a_topic_that_was_made_again_is_an_error(kafka: Kafka, topic: Topic, tmp_path: Path) -> None:
    connector = _connector(kafka, topic, tmp_path)
    _send(kafka, topic, *(topic.event("c", None, row) for row in _rows(0, 2, 4)))
    connector.capture()
    kafka.delete_topic(topic.name)
    kafka.create_topic(topic.name, partitions=2)
    with pytest.raises(PositionLost, match="was recreated"):
        connector.capture()


def test_new_records_are_followed(kafka: Kafka, topic: Topic, tmp_path: Path) -> None:
    connector = _connector(kafka, topic, tmp_path, {"batch.max.ms": 100})
    n = 20

    def send_records() -> None:
        for one in range(n):
            _send(kafka, topic, topic.event("c", None, _rows(one)[0]))
            time.sleep(0.02)

    def count_committed() -> int:
        return sum(f.rows for m in connector.changelog.read_manifests("test", after=0) for f in m.files)

    writer = threading.Thread(target=send_records)
    writer.start()
    connector.capture(run_for_s=60, until=lambda: not writer.is_alive() and count_committed() == n)
    writer.join()
    assert connector.capture().events == 0
    assert [row["id"] for row in sorted(_captured_rows(connector, topic), key=lambda r: r["id"])] == list(range(n))


def test_brokers_that_are_gone_are_reported(
    tmp_path: Path, kafka: Kafka, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_cdc.sources.debezium import topic_feed

    monkeypatch.setattr(topic_feed, "_ANSWER_S", 0.5)
    connector = _connector(kafka, topic, tmp_path, {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(SourceUnavailable, match="brokers do not respond"):
        connector.capture()
