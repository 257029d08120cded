"""Forms of events other than the usual one, as a source may offer them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRecord, DebeziumRenderer
from airflow_provider_cdc.connector import event_form
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.source_block_formats import EventForm
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector


def _block(source: Mapping[str, Any], seq: int) -> dict[str, Any]:
    return {"name": source["name"], "place": f"{source['table']}-{seq}"}


FIELDS = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("place", pa.string())])
OTHER = EventForm("other", "org.example.Source", FIELDS, _block, transactions=False)


@pytest.fixture
def connector(tmp_path: Path, request: pytest.FixtureRequest) -> Connector:
    """After an insert, a DDL and a key change, with transaction metadata; its snapshot is batch 1."""
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.orders", {"id": "int64!", "note": "string"}, key=("id",))
    connector = memory_connector(db, tmp_path, provide_transaction_metadata=True)
    connector.capture()
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
    db.add_column("shop.orders", "more", "string")
    with db.transaction() as t:
        t.update("shop.orders", {"id": 1}, {"id": 2})
    connector.capture()
    return connector


def _records(connector: Connector, **options: Any) -> list[DebeziumRecord]:
    return list(
        DebeziumRenderer(connector.changelog, "test", **options).render_records(
            after=connector.changelog.list_batches("test")[0]
        )
    )


def test_a_form_has_a_source_block_of_its_own_in_rows_and_schema_changes(connector: Connector) -> None:
    blocks = [(r.topic, r.value["source"]) for r in _records(connector, form=OTHER) if r.value]
    topic, first = blocks[0]
    seq = int(first["place"].removeprefix("orders-"))
    assert blocks == [
        (topic, {"name": "test", "place": f"orders-{seq}"}),
        ("test", {"name": "test", "place": f"orders-{seq + 1}"}),
        (topic, {"name": "test", "place": f"orders-{seq + 2}"}),
        (topic, {"name": "test", "place": f"orders-{seq + 3}"}),
    ]
    assert topic == "test.shop.orders"


def test_keys_rows_tombstones_and_headers_are_those_of_the_usual_form(connector: Connector) -> None:
    def parts(**options: Any) -> list[Any]:
        rows = [r for r in _records(connector, **options) if r.topic == "test.shop.orders"]
        return [
            (r.key, r.headers, r.value and [r.value[name] for name in ("op", "before", "after", "ts_us")]) for r in rows
        ]

    assert parts(form=OTHER) == parts()
    assert [value and value[0] for _, _, value in parts()] == ["c", "d", None, "c"]


def test_a_form_without_transactions_has_no_boundaries(connector: Connector) -> None:
    usual, formed = _records(connector), _records(connector, form=OTHER)
    assert [r.value["status"] for r in usual if r.topic == "test.transaction" and r.value] == [
        "BEGIN", "END", "BEGIN", "END",
    ]  # fmt: skip
    assert [r.topic for r in formed if r.topic == "test.transaction"] == []
    assert [r.value["transaction"] for r in formed if r.value and "op" in r.value] == [None] * 3


def test_the_described_block_is_that_of_the_form(connector: Connector) -> None:
    record = _records(connector, form=OTHER, schemas=True)[0]
    assert record.value_schema is not None
    source = next(f for f in record.value_schema["fields"] if f["field"] == "source")
    assert source["name"] == "org.example.Source"
    assert [(f["field"], f["optional"]) for f in source["fields"]] == [("name", False), ("place", True)]
    assert [f["field"] for f in record.value_schema["fields"]] == list(record.value or ())


def test_a_form_that_a_source_lacks_is_refused_with_those_there_are() -> None:
    assert event_form("memory", "debezium") is None
    with pytest.raises(
        ConfigError, match=r"Events of memory do not have the form 'xstream'\. Valid values are: debezium"
    ):
        event_form("memory", "xstream")
    with pytest.raises(ConfigError, match=r"the form 'avro'\. Valid values are: debezium, xstream"):
        event_form("oracle", "avro")
    found = event_form("oracle", "xstream")
    assert found is not None
    assert found.name == "xstream"
