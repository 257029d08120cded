"""The JSON form of documents is Debezium's own: the records that its MongoDB connector (3.5.0) made of some work were kept with their schemas, and events
with the same contents become the same records.

The work, on ``dev/server mongodb`` with ``capture.mode=change_streams_update_full_with_pre_image``: a document that a snapshot reads, two inserts, updates that
set, unset and cut an array, a replacement, a delete, and a transaction of an insert and an update.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.debezium.connect_schemas import envelope_schema, key_schema
from airflow_provider_cdc.changelog.debezium.debezium_records import record_values
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.log_items import (
    CREATE,
    DELETE,
    READ,
    UPDATE,
    BlockTransactions,
    LogBlock,
    RowBlock,
)
from airflow_provider_cdc.core.model.table_schema import TableId, arrow_type, row_struct
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.mongodb.collection_tables import (
    DOCUMENTS,
    SOURCE_FIELDS,
    UPDATE_DESCRIPTION,
    collection_schema,
)

Row = dict[str, Any]
RECORDED = json.loads((Path(__file__).parent / "recorded" / "mongodb.json").read_text())
OURS = {"version": None, "ts_us": None, "ts_ns": None}
"""Of the ``source`` block: our version; and here times have milliseconds, as in the log."""
ITEMS = collection_schema(TableId(namespace="inv", name="items"))
SOURCE = list(SOURCE_FIELDS)
EVENTS = [record for record in RECORDED["records"] if record["value"] is not None]


def _image(record: Row, name: str) -> Row | None:
    """An update has both images; where Debezium has none, the document is unavailable."""
    if {"before": "rc", "after": "d"}[name].count(record["value"]["op"]):
        return None
    return {"_id": record["key"]["id"], "document": record["value"][name]}


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    """The same contents as rows, through the envelope."""
    values = [record["value"] for record in EVENTS]
    ids = [value["transaction"] and value["transaction"]["id"] for value in values]
    known = list(dict.fromkeys(ids))
    images = {name: [_image(record, name) for record in EVENTS] for name in ("before", "after")}
    lacking = {
        name: np.array([[False] * len(EVENTS), [i is not None and i["document"] is None for i in images[name]]])
        for name in images
    }
    rows = RowBlock(
        table=ITEMS,
        op=np.array([{"r": READ, "c": CREATE, "u": UPDATE, "d": DELETE}[v["op"]] for v in values], np.int8),
        before=pa.array(images["before"], row_struct(ITEMS)),
        after=pa.array(images["after"], row_struct(ITEMS)),
        order=np.arange(len(EVENTS)),
        transaction=np.array([known.index(id_) for id_ in ids], np.int32),
        ts_us=np.array([v["source"]["ts_ms"] * 1000 for v in values]),
        source={f.name: pa.array([v["source"][f.name] for v in values], f.type) for f in SOURCE},
        unavailable_before=lacking["before"],
        unavailable_after=lacking["after"],
        beside={
            "updateDescription": pa.array([v["updateDescription"] for v in values], arrow_type(UPDATE_DESCRIPTION.type))
        },
    )
    config = ConnectorConfig.parse({"topic.prefix": "p", "provide.transaction.metadata": True})
    envelope = Envelope(config, Filters(config), "mongodb", SOURCE)
    block = LogBlock([rows], BlockTransactions(pa.array(known, pa.string()), np.zeros(len(known), np.int64)), None)  # type: ignore[arg-type]
    marks = pa.array([v["source"]["snapshot"] for v in values]).dictionary_encode()
    (batch,), _ = envelope.encode_block(block, 0, snapshot=marks)
    return batch.events


def test_keys_and_values_are_debeziums(events: pa.RecordBatch) -> None:
    values = record_values(ITEMS, events.schema.field("source").type, {})
    for event, record in zip(events.to_pylist(), EVENTS, strict=True):
        assert values.build_key(event["key"]) == record["key"]
        ours, theirs = values.build_value(event), record["value"]
        assert [*ours] == [*theirs]
        assert [*ours["source"]] == [*theirs["source"]]
        assert ours["source"] | OURS == theirs["source"] | OURS
        assert ours | {"source": None, "ts_ms": 0} == theirs | {"source": None, "ts_ms": 0}


def test_schemas_are_debeziums(events: pa.RecordBatch) -> None:
    source = events.schema.field("source").type
    ours = envelope_schema("p.inv.items", ITEMS, "io.debezium.connector.mongo.Source", source)
    assert ours == RECORDED["value_schema"]
    assert [*map(json.dumps, ours["fields"][2]["fields"])] == [
        *map(json.dumps, RECORDED["value_schema"]["fields"][2]["fields"])
    ]
    assert key_schema("p.inv.items", ITEMS) == RECORDED["key_schema"]


def test_the_recording_has_what_this_is_about() -> None:
    values = [record["value"] for record in EVENTS]
    assert {v["op"] for v in values} == {"r", "c", "u", "d"}
    assert {v["updateDescription"] is None for v in values if v["op"] == "u"} == {True, False}
    assert {v["transaction"] is None for v in values} == {True, False}
    assert any(v["op"] == "u" and v["after"] is None for v in values)


def test_records_of_the_source_have_the_fields_of_debeziums_in_their_order() -> None:
    """No record has the columns that only targets need."""
    assert ITEMS.documents is not None
    assert DOCUMENTS.fields == ITEMS.documents.fields
    assert [column.name for column in DOCUMENTS.columns] == [UPDATE_DESCRIPTION.name, "disambiguatedPaths"]
