"""Signals of the channels in a capture, from the line or the message to the state; and the examples of the documentation."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.channels.signal_parser import read_message
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.signal_request_parser import (
    ExecuteSnapshotRequest,
    OtherRequest,
    SchemaChangesRequest,
    parse_request,
)
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from dev import paths
from dev.servers import Kafka
from tests.support.connectors import Connector, memory_connector

LINES = (
    '{"id": "1", "type": "log", "data": {"message": "we stand at {}"}}',
    "execute, please",
    '{"id": "3", "type": "execute-snapshot", "data": {"data-collections": ["shop.orders"], "type": "BLOCKING"}}',
)


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.orders", {"id": "int64!"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    return db


@pytest.fixture
def connector(db: MemoryDatabase, tmp_path: Path) -> Connector:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    return connector


def _states(connector: Connector) -> dict[str, tuple[str, str, str]]:
    rows = connector.store.signals_of("test")
    return {row.id: (row.type, row.channel, row.state) for row in rows}


def _count_reads(connector: Connector) -> int:
    manifests = list(connector.changelog.read_manifests("test"))
    return sum(f.counts.get("r", 0) for m in manifests for f in m.files)


def test_lines_of_a_file_are_carried_out_once_and_answered(
    connector: Connector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "signals.txt"
    path.write_text("".join(line + "\n" for line in LINES))
    properties = {"signal.enabled.channels": "file", "signal.file": str(path)}
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            connector.capture(properties)
    assert _states(connector) == {
        "1": ("log", "file", "done"),
        "signals.txt line 2": ("", "file", "refused"),
        "3": ("execute-snapshot", "file", "done"),
    }
    assert _count_reads(connector) == 2, "the initial snapshot, and the one that was asked for"
    notifications = [n for n in connector.store.list_notifications("test") if n.notification.type == "REFUSED"]
    assert len(notifications) == 1
    assert "signals.txt line 2" in notifications[0].notification.additional_data["message"]
    assert not path.exists()


def test_messages_of_a_topic_are_carried_out_once_and_answered(connector: Connector, kafka: Kafka) -> None:
    with kafka.topic() as topic:
        kafka.send(topic, *LINES, key="test")
        kafka.send(topic, LINES[0].replace('"1"', '"4"'), key="another")
        properties = {
            "signal.enabled.channels": "kafka", "signal.kafka.bootstrap.servers": kafka.address, "signal.kafka.topic": topic,
            "signal.kafka.groupId": topic, "signal.kafka.poll.timeout.ms": 5000,
        }  # fmt: skip
        for _ in range(2):
            connector.capture(properties)
    assert _states(connector) == {
        "1": ("log", "kafka", "done"),
        f"{topic} partition 0 offset 1": ("", "kafka", "refused"),
        "3": ("execute-snapshot", "kafka", "done"),
    }
    assert _count_reads(connector) == 2


FLOOD = tuple(f'{{"id": "{i}", "type": "log", "data": {{"message": "{"x" * 3000}"}}}}' for i in range(9))
LIMITED = {str(i): ("log", "done" if i < 2 else "refused") for i in range(4)}
"""Recorded signals of the flood, with a limit of two an hour: id → type and state. As many are refused as carried out, and no others are recorded."""


def _check_flood(connector: Connector, db: MemoryDatabase, properties: dict[str, Any]) -> None:
    """Capture twice with a limit of two signals, then a row."""
    properties = properties | {"signal.limit.per.hour": 2}
    for _ in range(2):
        connector.capture(properties)
    found = connector.store.signals_of("test")
    assert {row.id: (row.type, row.state) for row in found} == LIMITED
    assert all(len(row.data or "") <= 2000 for row in found if row.state == "refused")
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 2})
    connector.capture(properties)
    assert [row["id"] for row in connector.rows("shop.orders")] == [1, 2]


def test_a_flood_of_lines_is_refused_and_capture_continues(
    connector: Connector, db: MemoryDatabase, tmp_path: Path
) -> None:
    path = tmp_path / "signals.txt"
    path.write_text("".join(line + "\n" for line in FLOOD))
    _check_flood(connector, db, {"signal.enabled.channels": "file", "signal.file": str(path)})
    assert not path.exists()


def test_a_flood_of_messages_is_refused_and_capture_continues(
    connector: Connector, db: MemoryDatabase, kafka: Kafka
) -> None:
    with kafka.topic() as topic:
        kafka.send(topic, *FLOOD, key="test")
        properties = {
            "signal.enabled.channels": "kafka", "signal.kafka.bootstrap.servers": kafka.address, "signal.kafka.topic": topic,
            "signal.kafka.groupId": topic, "signal.kafka.poll.timeout.ms": 5000,
        }  # fmt: skip
        _check_flood(connector, db, properties)


# the documentation


def _documented_examples() -> list[tuple[str, Any]]:
    """Type and data of every example."""
    text = (paths.ROOT / "docs" / "reference" / "signals.md").read_text()
    found = [(type_, data.strip("'")) for type_, data in re.findall(r"\('[^']+', '([^']+)', (NULL|'[^']*')\)", text)]
    messages = re.findall(r"echo '(?:shop\|)?(\{.*\})'", text) + re.findall(r"^value (\{.*\})$", text, re.MULTILINE)
    sent = [read_message(m, channel="file", where="", origin="") for m in messages]
    found += [(s.type, s.data) for s in sent]
    for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        if "aggregate_type" not in (data := json.loads(block)):
            found.append(("schema-changes" if "changes" in data else "execute-snapshot", block))
    found += re.findall(r"airflow cdc signal shop (\S+) --data '(.*)'", text)
    return [(type_, None if data == "NULL" else data) for type_, data in found]


def test_every_documented_example_is_understood() -> None:
    examples = _documented_examples()
    assert len(examples) == 15
    for type_, data in examples:
        assert not isinstance(parse_request(Signal(1, "", type_, data)), OtherRequest), (type_, data)
    kinds = [type(parse_request(Signal(1, "", *example))) for example in examples]
    assert kinds.count(ExecuteSnapshotRequest) == 6
    assert kinds.count(SchemaChangesRequest) == 1
