"""Forms of events: enveloped and flat, with schemas and without, keys of all kinds, ends of keys, truncates, and what is no event."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, UnknownLogEvent, UnreadableValue
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig
from tests.sources.debezium.written import TOPIC, Row, Topic, connector, node, write
from tests.support.connectors import Connector
from tests.support.signals import signal_state, snapshot

FIELDS = [node("id", "int32", optional=False), node("name", "string"), node("weight", "double")]


@pytest.fixture(params=[True, False], ids=["schemas", "bare"])
def topic(request: pytest.FixtureRequest) -> Topic:
    return Topic(FIELDS if request.param else None)


def _row(id_: int, name: str | None = "a", weight: float | None = 0.5) -> Row:
    return {"id": id_, "name": name, "weight": weight}


def _start_connector(folder: Path, *records: Any, **properties: Any) -> Connector:
    write(folder / "in" / "a.jsonl", records)
    made = connector(folder, **properties)
    made.capture()
    return made


def _operations(some: Connector) -> list[str]:
    counts: dict[str, int] = {}
    for manifest in some.changelog.read_manifests(some.name, after=0):
        for file in manifest.files:
            for op, n in file.counts.items():
                counts[op] = counts.get(op, 0) + n
    return sorted(op for op, n in counts.items() for _ in range(n))


def test_events_with_an_envelope_are_applied_as_they_say(tmp_path: Path, topic: Topic) -> None:
    found = _start_connector(
        tmp_path,
        topic.event("r", None, _row(1)),
        topic.event("c", None, _row(2, "b")),
        topic.event("c", None, _row(3, "c", None)),
        topic.event("u", _row(2, "b"), _row(2, "bb")),
        topic.event("u", None, _row(3, None, 1.25)),
        topic.event("d", _row(1), None),
        topic.end({"id": 1}),
    )
    assert found.rows("inventory.orders") == [_row(2, "bb"), _row(3, None, 1.25)]
    assert _operations(found) == ["c", "c", "d", "r", "u", "u"]  # the end of a key after its delete is no second one


def test_of_a_delete_only_the_key_decides(tmp_path: Path, topic: Topic) -> None:
    gone = topic.event("d", _row(1), None)
    other = topic.event("d", _row(2), None)
    payload = other["value"]["payload"] if "payload" in other["value"] else other["value"]
    payload["before"] = None
    wrong = topic.event("d", _row(3), None)
    (wrong["value"]["payload"] if "payload" in wrong["value"] else wrong["value"])["before"] = _row(4, "x")
    rows = [topic.event("c", None, _row(n)) for n in (1, 2, 3, 4)]
    found = _start_connector(tmp_path, *rows, gone, other)
    assert found.rows("inventory.orders") == [_row(3), _row(4)]
    write(tmp_path / "in" / "b.jsonl", [wrong])
    found.capture()
    lines = [e for e in _events(found) if e["op"] == "d"]
    assert [e["key"] for e in lines] == [{"id": 1}, {"id": 2}, {"id": 3}]


def _events(some: Connector) -> list[Row]:
    import pyarrow.parquet as pq

    found: list[Row] = []
    for manifest in some.changelog.read_manifests(some.name, after=0):
        for file in manifest.files:
            with some.changelog.open_file(some.name, file) as opened:
                found += pq.ParquetFile(opened).read().to_pylist()
    return sorted(found, key=lambda e: e["seq"])


def test_flat_rows_are_applied_and_their_keys_end_with_a_null(tmp_path: Path, topic: Topic) -> None:
    found = _start_connector(
        tmp_path,
        topic.flat({"id": 1}, _row(1)),
        topic.flat({"id": 2}, _row(2)),
        topic.end({"id": 1}),
        topic.end({"id": 9}),
    )
    assert [(e["op"], e["key"]["id"]) for e in _events(found)] == [("c", 1), ("c", 2), ("d", 1), ("d", 9)]


def test_flat_rows_say_their_operation_and_whether_they_are_deleted(tmp_path: Path) -> None:
    fields = [*FIELDS, node("__deleted", "string"), node("__op", "string"), node("__source_ts_ms", "int64")]
    topic = Topic(fields)

    def row(id_: int, op: str, deleted: str) -> Row:
        return topic.flat(
            {"id": id_}, _row(id_) | {"__deleted": deleted, "__op": op, "__source_ts_ms": 1_700_000_000_000}
        )

    found = _start_connector(
        tmp_path,
        row(1, "c", "false"),
        row(2, "r", "false"),
        row(1, "u", "false"),
        row(2, "d", "true"),
        topic.end({"id": 2}),
    )
    assert [(e["op"], e["key"]["id"]) for e in _events(found)] == [("c", 1), ("r", 2), ("u", 1), ("d", 2)]
    assert {e["source"]["ts_ms"] for e in _events(found)} == {1_700_000_000_000}
    assert {n for e in _events(found) for n in e["after"] or ()} == {"id", "name", "weight", "__source_ts_ms"}


def test_a_truncate_empties_the_table(tmp_path: Path, topic: Topic) -> None:
    truncate = topic.event("t", None, None)
    found = _start_connector(tmp_path, topic.event("c", None, _row(1)), truncate, topic.event("c", None, _row(2)))
    assert found.rows("inventory.orders") == [_row(2)]
    assert _operations(found) == ["c", "c", "t"]


def test_the_end_of_a_key_alone_deletes_it(tmp_path: Path, topic: Topic) -> None:
    """Compaction may leave only that; a second delete of a key is harmless."""
    other = Topic(FIELDS, name="shop.inventory.others")
    found = _start_connector(tmp_path, other.end({"id": 5}), topic.event("c", None, _row(1)), topic.end({"id": 1}))
    assert found.rows("inventory.orders") == []
    write(tmp_path / "in" / "b.jsonl", [topic.end({"id": 1})])
    found.capture()
    assert [e["op"] for e in _events(found)] == ["c", "d", "d"]


def test_rows_without_a_key_are_a_bag(tmp_path: Path) -> None:
    topic = Topic(FIELDS, key=())
    found = _start_connector(
        tmp_path,
        *(topic.event("c", None, _row(n)) for n in (1, 1, 2)),
        topic.event("d", _row(1), None),
        topic.event("u", _row(2), _row(3)),
    )
    assert found.rows("inventory.orders") == [_row(1), _row(3)]


@pytest.mark.parametrize("schema", [True, False])
def test_a_key_that_is_a_bare_value_gets_a_name(tmp_path: Path, schema: bool) -> None:
    topic = Topic(FIELDS[1:] if schema else None, key=())
    records = [
        topic.flat(None, {"name": "a", "weight": None})
        | {"key": {"schema": {"type": "int64", "optional": False}, "payload": 7} if schema else 7}
    ]
    records.append({**records[0], "value": None})
    write(tmp_path / "in" / "a.jsonl", records[:1])
    with pytest.raises(UnknownLogEvent, match="name of its column is unknown"):
        connector(tmp_path).capture()
    found = connector(tmp_path, events_key_field="number")
    found.capture()
    assert found.rows("inventory.orders") == [
        {"name": "a", "weight": None, "number": 7} if schema else {"name": "a", "number": 7}
    ]
    write(tmp_path / "in" / "b.jsonl", records[1:])
    found.capture()
    assert found.rows("inventory.orders") == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"topic": TOPIC, "key": [1], "value": {"id": 1}}, "neither a single value nor a struct"),
        ({"topic": TOPIC, "key": None, "value": None}, "neither a key nor a value"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": {"id": 1, "address": {"street": "x"}}}, "neither a change event nor a flat row"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": [1, 2]}, "neither a change event nor a flat row"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": "text"}, "neither a change event nor a flat row"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": {"op": "c", "before": None, "after": '{"_id": 1}'}}, "neither a change event nor a flat row"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": {"op": "x", "before": None, "after": {"id": 1}}}, "operation 'x' is unknown"),
        ({"topic": TOPIC, "key": {"id": 1}, "value": {"op": "c", "before": None, "after": None}}, "has no row"),
        ({"topic": TOPIC, "key": None, "value": {"op": "d", "before": None, "after": None}}, "neither a key nor a `before` row"),
        ({"topic": TOPIC, "key": None, "value": Topic([*FIELDS, node("at", "struct", fields=[])], ()).flat(None, _row(1))["value"]}, "neither a change event nor a flat row"),
        ({"value": {"id": 1}}, "has no topic"),
        (["no object"], "not a JSON object"),
    ],
)  # fmt: skip
def test_records_of_other_forms_are_refused_with_their_place(tmp_path: Path, record: Any, message: str) -> None:
    """Records before the refused one are captured, and the run that follows is stopped at it again."""
    topic = Topic(None)
    write(tmp_path / "in" / "a.jsonl", [topic.event("c", None, _row(1))])
    found = connector(tmp_path)
    found.capture()
    write(tmp_path / "in" / "a.jsonl", [record])
    for _ in range(2):
        with pytest.raises(UnknownLogEvent, match=message) as caught:
            found.capture()
        assert "a.jsonl, line 2" in str(caught.value)
    assert found.rows("inventory.orders") == [_row(1)]


def test_values_that_do_not_fit_their_schema_are_refused_with_their_place(tmp_path: Path) -> None:
    topic = Topic(FIELDS)
    write(
        tmp_path / "in" / "a.jsonl",
        [topic.event("c", None, _row(1)), topic.event("c", None, _row(2) | {"weight": "heavy"})],
    )
    with pytest.raises(UnreadableValue, match=r"after.weight: 'heavy' is not a double") as caught:
        connector(tmp_path).capture()
    assert "a.jsonl, line 2" in str(caught.value)
    write(tmp_path / "in" / "a.jsonl", [topic.event("c", None, _row(1) | {"more": 1})], mode="w")
    with pytest.raises(UnreadableValue, match="has a field more, which its schema does not contain"):
        connector(tmp_path / "other", {"events.path": str(tmp_path / "in")}).capture()


def test_numbers_may_be_written_as_texts(tmp_path: Path) -> None:
    topic = Topic(FIELDS)
    assert (
        _start_connector(tmp_path, topic.event("c", None, {"id": "7", "name": "a", "weight": "NaN"})).rows(
            "inventory.orders"
        )[0]["id"]
        == 7
    )


@pytest.mark.parametrize("snapshot", [True, False, "true", "false", "last", "incremental", None])
def test_events_of_any_release_are_read_whatever_their_source_block_has(tmp_path: Path, snapshot: Any) -> None:
    """Fields come and go with releases, and ``snapshot`` is a boolean or a text."""
    bare = Topic(None)
    shortest = bare.event("c", None, _row(1))
    shortest["value"] = {
        "after": _row(1),
        "op": "c",
        "source": {"name": "shop", "schema": "inventory", "table": "orders"},
    }
    longest = bare.event("c", None, _row(2))
    longest["value"] |= {"ts_us": 1, "ts_ns": 1, "transaction": None, "of_a_later_release": {"a": [1]}}
    longest["value"]["source"] |= {"snapshot": snapshot, "lcr_position": None, "of_a_later_release": {"a": [1]}}
    described = Topic(FIELDS).event("c", None, _row(3))
    more = node("of_a_later_release", "struct", fields=[node("a", "int32")])
    source = next(f for f in described["value"]["schema"]["fields"] if f["field"] == "source")
    source["fields"].append(more)
    described["value"]["schema"]["fields"].append(more)
    described["value"]["payload"]["source"] |= {"snapshot": snapshot, "of_a_later_release": {"a": 1}}
    described["value"]["payload"]["of_a_later_release"] = {"a": 1}
    found = _start_connector(tmp_path, shortest, longest, described)
    assert found.rows("inventory.orders") == [_row(1), _row(2), _row(3)]
    assert _operations(found) == ["c", "c", "c"]


OTHERS: dict[str, Row] = {
    "heartbeat": {"topic": "__debezium-heartbeat.shop", "key": {"serverName": "shop"}, "value": {"ts_ms": 1}},
    "boundary": {"topic": "shop.transaction", "key": {"id": "1"}, "value": {"status": "BEGIN", "id": "1", "ts_ms": 1, "event_count": None, "data_collections": None}},
    "schema change": {"topic": "shop", "key": {"databaseName": "inventory"}, "value": {"source": {}, "ts_ms": 1, "databaseName": "inventory", "schemaName": None, "ddl": "DROP TABLE t", "tableChanges": []}},
    "notification": {"topic": "told", "key": {"id": "1"}, "value": {"id": "1", "type": "STARTED", "aggregate_type": "Initial Snapshot", "additional_data": {}, "timestamp": 1}},
    "message": {"topic": "shop.message", "key": {"prefix": "x"}, "value": {"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "x", "content": ""}}},
}  # fmt: skip
SCHEMAS = {
    "heartbeat": "io.debezium.connector.common.Heartbeat",
    "boundary": "io.debezium.connector.common.TransactionMetadataValue",
    "schema change": "io.debezium.connector.mysql.SchemaChangeValue",
    "notification": "io.debezium.connector.common.Notification",
    "message": "io.debezium.connector.postgresql.MessageValue",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("schema", [True, False])
def test_records_that_are_no_events_are_left_out_and_reported(
    tmp_path: Path, name: str, schema: bool, caplog: pytest.LogCaptureFixture
) -> None:
    record = OTHERS[name]
    if schema:
        fields = [node(f, "string") for f in record["value"]]
        record = {
            **record,
            "value": {
                "schema": {"type": "struct", "name": SCHEMAS[name], "fields": fields},
                "payload": record["value"],
            },
        }
    with caplog.at_level(logging.INFO):
        found = _start_connector(tmp_path, Topic(None).event("c", None, _row(1)), record, record)
    assert [e["source"]["topic"] for e in _events(found)] == [TOPIC]
    messages = [r.message for r in caplog.records if "are skipped" in r.message]
    assert len(messages) == 1
    assert record["topic"] in messages[0]
    assert name.split()[-1] in messages[0]


def test_lines_that_are_bare_values_say_their_topic(tmp_path: Path) -> None:
    topic = Topic(FIELDS)
    values = [topic.event("c", None, _row(1))["value"], topic.event("u", _row(1), _row(1, "b"))["value"]]
    properties = {"events.line.format": "value", "message.key.columns": "inventory.orders:id"}
    write(tmp_path / "in" / "a.jsonl", [*(v["payload"] for v in values)])
    found = connector(tmp_path, properties)
    found.capture()
    assert found.rows("inventory.orders") == [_row(1, "b")]
    write(tmp_path / "flat" / "in" / "a.jsonl", [_row(1)])
    flat = connector(tmp_path / "flat", {**properties, "events.topic": "shop.inventory.orders"})
    flat.capture()
    assert flat.rows("inventory.orders") == [_row(1)]


def test_a_value_that_the_event_does_not_have_stays_as_it_is(tmp_path: Path) -> None:
    fields = [*FIELDS, node("photo", "bytes"), node("tags", "array", items={"type": "string"})]
    topic, placeholder = Topic(fields), "__debezium_unavailable_value"
    photo = base64.b64encode(b"light").decode()
    whole = _row(1) | {"photo": photo, "tags": ["x", "y"]}
    lacking = {
        "id": 1,
        "name": placeholder,
        "weight": 2.0,
        "photo": base64.b64encode(placeholder.encode()).decode(),
        "tags": [placeholder],
    }
    found = _start_connector(tmp_path, topic.event("c", None, whole), topic.event("u", None, lacking))
    assert found.rows("inventory.orders") == [
        {"id": 1, "name": "a", "weight": 2.0, "photo": b"light", "tags": '["x","y"]'}
    ]


def test_only_selected_topics_are_read(tmp_path: Path) -> None:
    """A record that is left out need not even be an event."""
    other = {"topic": "shop.inventory.logs", "key": None, "value": "no event"}
    found = _start_connector(
        tmp_path, other, Topic(FIELDS).event("c", None, _row(1)), table_include_list=r"inventory\.orders"
    )
    assert found.rows("inventory.orders") == [_row(1)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"topics": "shop.a.b", "bootstrap.servers": "k:9092"}, "exclude each other"),
        ({"snapshot.mode": "initial"}, "only never"),
        ({"position.lost.mode": "snapshot"}, "only fail"),
        ({"event.processing.failure.handling.mode": "warn"}, "only fail"),
        ({"decimal.handling.mode": "string"}, "has no effect here"),
        ({"events.path.options": "[]"}, "must be a JSON object"),
        ({"events.path": ""}, "events.path"),
    ],
)
def test_properties_that_contradict_each_other_are_refused(properties: Row, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DebeziumConfig.parse({"topic.prefix": "shop", "events.path": "/in", **properties})


def test_two_topics_are_never_one_table(tmp_path: Path) -> None:
    records = [Topic(None).event("c", None, _row(1)) | {"topic": name} for name in (TOPIC, "inventory.orders")]
    write(tmp_path / "in" / "a.jsonl", records)
    with pytest.raises(ConfigError, match=r"both map to the table inventory\.orders"):
        connector(tmp_path).capture()


@pytest.mark.parametrize("kind", ["blocking", "incremental"])
def test_a_snapshot_that_someone_asks_for_fails_and_capture_goes_on(tmp_path: Path, kind: str) -> None:
    found = _start_connector(tmp_path, Topic(None).event("c", None, _row(1)))
    number = snapshot(found, "inventory.orders", type=kind)
    write(tmp_path / "in" / "a.jsonl", [Topic(None).event("c", None, _row(2))])
    assert found.capture().events == 1
    state, text = signal_state(found, number)
    assert state == "failed"
    assert "without tables that a snapshot could read" in text
