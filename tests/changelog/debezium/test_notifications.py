"""Notifications as records of the topic that the channel ``sink`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRecord, DebeziumRenderer
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.notifications import INCREMENTAL, INITIAL, Notification, NotificationType
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector

SINK = {"notification.enabled.channels": ["log", "sink"], "notification.sink.topic.name": "told"}


@pytest.fixture
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> Connector:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.orders", {"id": "int64!", "note": "string"}, key=("id",))
    connector = memory_connector(db, tmp_path)
    connector.capture()
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    db.add_column("shop.orders", "more", "int32", 5)
    connector.capture()
    return connector


def _manifest(connector: Connector, *types: str, config: dict[str, Any] | None = None) -> Manifest:
    """The last batch, as if these notifications belonged to it."""
    manifest = connector.changelog.find_manifest("test", connector.changelog.list_batches("test")[-1])
    assert manifest is not None
    notifications = [
        Notification(
            id=str(i), aggregate_type=INCREMENTAL, type=type_, ts_ms=1_700_000_000_000 + i,
            additional_data={"connector_name": "test", "data_collections": "shop.orders"},
        )
        for i, type_ in enumerate(types)
    ]  # fmt: skip
    more = SINK if config is None else config
    return manifest.model_copy(update={"notifications": notifications, "config": {**manifest.config, **more}})


def _records(connector: Connector, manifest: Manifest, **options: Any) -> list[DebeziumRecord]:
    return list(DebeziumRenderer(connector.changelog, "test", **options).render_batch(manifest))


def _order(records: list[DebeziumRecord]) -> list[str]:
    return [str((r.value or {}).get("type")) if r.topic == "told" else r.topic for r in records]


def test_a_notification_is_a_record_in_the_documented_form(connector: Connector) -> None:
    record = _records(connector, _manifest(connector, NotificationType.COMPLETED))[-1]
    assert (record.topic, record.key, record.headers) == ("told", {"id": "0"}, {})
    assert record.value == {
        "id": "0",
        "aggregate_type": "Incremental Snapshot",
        "type": "COMPLETED",
        "additional_data": {"connector_name": "test", "data_collections": "shop.orders"},
        "timestamp": 1_700_000_000_000,
    }
    assert record.to_document() == {"topic": "told", "key": record.key, "value": record.value}


def test_its_schemas_describe_it(connector: Connector) -> None:
    document = _records(connector, _manifest(connector, NotificationType.COMPLETED), schemas=True)[-1].to_document(
        schemas=True
    )
    key, value = document["key"]["schema"], document["value"]["schema"]
    assert key["name"] == "io.debezium.connector.common.NotificationKey"
    assert value["name"] == "io.debezium.connector.common.Notification"
    assert [f["field"] for f in key["fields"]] == list(document["key"]["payload"])
    assert sorted(f["field"] for f in value["fields"]) == sorted(document["value"]["payload"])
    kinds = {f["field"]: f["type"] for f in value["fields"]}
    assert kinds == dict.fromkeys(("id", "type", "aggregate_type"), "string") | {
        "additional_data": "map", "timestamp": "int64",
    }  # fmt: skip


def test_beginnings_stand_before_the_events_and_all_else_behind_them(connector: Connector) -> None:
    types = (
        NotificationType.STARTED,
        NotificationType.IN_PROGRESS,
        NotificationType.TABLE_SCAN_COMPLETED,
        NotificationType.COMPLETED,
    )
    found = _order(_records(connector, _manifest(connector, *types)))
    assert found == ["STARTED", "IN_PROGRESS", "test.shop.orders", "test", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_notifications_keep_their_order(connector: Connector) -> None:
    """A beginning that was reported after an end stays behind it."""
    found = _order(
        _records(
            connector,
            _manifest(connector, NotificationType.COMPLETED, NotificationType.STARTED, NotificationType.PAUSED),
        )
    )
    assert found == ["test.shop.orders", "test", "COMPLETED", "STARTED", "PAUSED"]


@pytest.mark.parametrize(
    "config", [{}, {"notification.enabled.channels": ["log"], "notification.sink.topic.name": "told"}]
)
def test_without_the_sink_they_are_no_records(connector: Connector, config: dict[str, Any]) -> None:
    assert "told" not in {
        r.topic for r in _records(connector, _manifest(connector, NotificationType.STARTED, config=config))
    }


def test_notifications_of_a_capture_reach_the_topic(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.orders", {"id": "int64!"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    connector = memory_connector(db, tmp_path)
    connector.capture({"notification.enabled.channels": "sink", "notification.sink.topic.name": "told"})
    records = [
        r
        for r in DebeziumRenderer(connector.changelog, "test").render_records()
        if r.topic in ("told", "test.shop.orders")
    ]
    reported = [(r.value or {})["type"] for r in records if r.topic == "told"]
    assert {(r.value or {})["aggregate_type"] for r in records if r.topic == "told"} == {INITIAL}
    assert (reported[0], reported[-1]) == ("STARTED", "COMPLETED")
    places = {(r.value or {}).get("type", "row"): i for i, r in enumerate(records)}
    assert places["STARTED"] < places["row"] < places["TABLE_SCAN_COMPLETED"] < places["COMPLETED"]
