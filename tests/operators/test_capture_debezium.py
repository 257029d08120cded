"""The capture task on Debezium events, with a connection of their type."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.state.state_store import StateStore
from tests.sources.debezium.written import Topic, write
from tests.support.airflow.airflow_connector import connect, context


def test_a_task_captures_the_files_there_are_and_the_next_one_what_has_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state_url = f"sqlite:///{tmp_path}/state.db"
    StateStore(state_url).create_tables()
    connect(
        monkeypatch, "shop_events", conn_type="cdc_debezium", extra={"events.path.options": '{"auto_mkdir": false}'}
    )
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state_url)
    definition = ConnectorDefinition(
        "shop", "debezium", f"{tmp_path}/changelog", {"events.path": f"{tmp_path}/in", "poll.interval.ms": 10}
    )
    topic, files = Topic(None), tmp_path / "in"
    for n in (1, 2):
        write(files / f"{n}.jsonl", [topic.event("c", None, {"id": n})])
        operator = CaptureOperator(task_id="capture", definition=definition, conn_id="shop_events")
        result = operator.execute(context())
        assert result["topics"] == {"shop.inventory.orders": 1}
    assert result["position"] == f"2.jsonl, line 1, byte {(files / '2.jsonl').stat().st_size}"


def test_a_connection_to_brokers_has_what_the_client_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(
        monkeypatch, "shop_events", conn_type="cdc_debezium", host="kafka:9092", login="cdc", password="secret",
        extra={"consumer.security.protocol": "SASL_SSL"},
    )  # fmt: skip
    assert CdcSourceHook("shop_events").resolve_properties() == {
        "bootstrap.servers": "kafka:9092",
        "consumer.sasl.username": "cdc",
        "consumer.sasl.password": "secret",
        "consumer.security.protocol": "SASL_SSL",
    }
