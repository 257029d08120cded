"""The outbox as a rule: a table for each aggregate type, to which events are only added, each once."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.targets.lake.lake import Lake, Row
from tests.targets.lake.write.test_modes_crash import RunEnded

pytestmark = pytest.mark.spark
OUTBOX = {"id": "string!", "aggregatetype": "string", "aggregateid": "string", "type": "string", "payload": "string"}
ODD = "it's `odd` ${env:HOME}"


def _outbox(lake: Lake, columns: dict[str, str] = OUTBOX) -> None:
    lake.connector.database.clock = lambda: 1_700_000_000_000_000
    lake.connector.database.create_table("s.outbox", columns, key=("id",))


def _rules(outbox: dict[str, Any] | None = None, **more: Any) -> TableRules:
    return TableRules.parse([{"tables": r"s\.outbox", "outbox": outbox or {}, **more}])


def _events(lake: Lake, first: int, *types: str | None) -> None:
    with lake.connector.database.transaction() as t:
        for i, kind in enumerate(types, start=first):
            event = {"aggregatetype": kind, "aggregateid": f"a{i % 2}", "type": "Made", "payload": json.dumps({"n": i})}
            t.insert("s.outbox", {"id": f"e{i}", **event})


def _rows(lake: Lake, name: str) -> list[Row]:
    rows: list[Row] = (
        load_format(lake.kind).open_target(lake.spark, f"{lake.folder}/lake/s/{name}").read_rows().toArrow().to_pylist()
    )
    return sorted(rows, key=lambda row: row["_seq"])


@pytest.mark.every_kind
def test_each_aggregate_type_has_a_table_of_its_events_whatever_becomes_of_the_outbox(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.tables = _rules()
    _outbox(lake)
    db = lake.connector.database
    _events(lake, 0, "order", ODD)
    lake.follow()
    _events(lake, 2, "order", "a/b", "order")
    with db.transaction() as t:
        t.delete("s.outbox", {"id": "e2"})
        t.update("s.outbox", {"id": "e3"}, {"payload": "changed"})
    lake.connector.capture()
    db.truncate_table("s.outbox")
    _events(lake, 5, "customer")
    lake.connector.capture()
    done: list[str] = []

    def end_after_one(location: str, name: str, write: Any) -> Any:
        if done:
            raise RunEnded
        done.append(location)
        return write()

    lake.hook = end_after_one
    with pytest.raises(RunEnded):
        lake.apply(threads=1)
    lake.hook = None
    with caplog.at_level(logging.WARNING, "airflow_provider_cdc.targets.lake.placement.affected_route_tables"):
        lake.apply()
    assert "1 rows of the outbox s.outbox were updated" in caplog.text
    found = {name: _rows(lake, f"outbox.event.{name}") for name in ("order", ODD, "a%2Fb", "customer")}
    ids = {name: [row["id"] for row in rows] for name, rows in found.items()}
    assert ids == {"order": ["e0", "e2", "e4"], ODD: ["e1"], "a%2Fb": ["e3"], "customer": ["e5"]}
    first = found["order"][0]
    assert (first["key"], first["type"], first["payload"], first["_op"]) == ("a0", "Made", '{"n": 0}', "r")
    assert first["timestamp"] == first["_commit_ts"]
    assert set(first) == {"id", "key", "type", "payload", "timestamp", "_op", "_seq", "_commit_ts", "_unavailable"}
    assert lake.apply().tables == []


def test_the_documented_properties_say_where_the_fields_of_an_event_are(lake: Lake) -> None:
    columns = {"nr": "int64!", ODD: "string", "k": "int32", "doc": "string", "at": "timestamp[us]", "tenant": "string"}
    lake.connector.database.create_table("s.outbox", columns, key=("nr",))
    lake.tables = _rules(
        {
            "table.field.event.id": "nr",
            "table.field.event.key": "K",
            "table.field.event.payload": "doc",
            "table.field.event.timestamp": "at",
            "table.fields.additional.placement": f"tenant:header, k:envelope:again, {ODD}:header:kind",
            "table.expand.json.payload": True,
            "route.by.field": ODD,
            "route.topic.replacement": "of ${routedByValue}",
        },
        location=f"{lake.folder}/lake/{{database}}/{{table}} ({{{'aggregatetype'}}})",
    )
    texts = [
        '{"a": 1, "b": {"c": [1, "x"]}, "d": null, "e": "text"}',
        "no json",
        None,
        "[1, 2]",
        "{}",
        '{"a": 1.50, "ä b": true}',
    ]
    with lake.connector.database.transaction() as t:
        for i, text in enumerate(texts):
            t.insert("s.outbox", {"nr": i, ODD: "x", "k": i, "doc": text, "at": None, "tenant": "t"})
    lake.follow()
    rows = _rows(lake, "of x (x)")
    assert [row["payload"] for row in rows] == texts
    assert [(row["id"], row["key"], row["again"], row["tenant"], row["kind"]) for row in rows] == [
        (i, i, i, "t", "x") for i in range(6)
    ]
    fields = [None if row["payload_fields"] is None else dict(row["payload_fields"]) for row in rows]
    assert fields[0] == {"a": "1", "b": '{"c":[1,"x"]}', "d": None, "e": "text"}
    assert fields[1:5] == [None, None, None, {}]
    assert fields[5] == {"a": "1.5", "ä b": "true"}


@pytest.mark.parametrize(("behavior", "level"), [("warn", "WARNING"), ("error", "ERROR"), ("fatal", "")])
def test_an_update_of_the_outbox_is_reported_or_stops_its_tables(
    memory: Lake, behavior: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory.tables = _rules({"table.op.invalid.behavior": behavior})
    _outbox(memory)
    _events(memory, 0, "order")
    memory.follow()
    before = dict(STORED)
    with memory.connector.database.transaction() as t:
        t.update("s.outbox", {"id": "e0"}, {"payload": "changed"})
    _events(memory, 1, "order")
    memory.connector.capture()
    if behavior == "fatal":
        with pytest.raises(
            TargetError, match=r"1 rows of the outbox s\.outbox were updated, and table\.op\.invalid\.behavior is fatal"
        ):
            memory.apply()
        assert before == STORED
        memory.tables = _rules()
    caplog.clear()
    memory.apply()
    messages = [record.levelname for record in caplog.records if "the apply ignores the updates" in record.message]
    assert messages == [level or "WARNING"]
    assert [row["payload"] for row in _rows(memory, "outbox.event.order")] == ['{"n": 0}', '{"n": 1}']


def test_an_event_without_an_aggregate_type_is_an_error_unless_it_is_to_be_dropped(memory: Lake) -> None:
    _outbox(memory)
    _events(memory, 0, "order", None)
    memory.connector.capture()
    with pytest.raises(TargetError, match=r"1 rows of s\.outbox have no aggregatetype"):
        memory.apply(tables=_rules())
    assert not STORED
    memory.apply(tables=_rules(otherwise="drop"))
    assert len(STORED) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"table.field.event.key": "aggregatid"}, "outbox: table.field.event.key names column 'aggregatid', which the table does not have; did you mean 'aggregateid'?"),
    ({"table.field.event.type": "kind"}, "outbox: table.field.event.type names column 'kind'"),
    ({"route.by.field": "aggregatetyp"}, "route.by.field names column 'aggregatetyp', which the table does not have; did you mean 'aggregatetype'?"),
    ({"table.field.event.payload": "n", "table.expand.json.payload": True}, "table.expand.json.payload needs a text"),
]  # fmt: skip


@pytest.mark.parametrize(("outbox", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_an_outbox_that_does_not_fit_its_table_is_refused_before_anything_is_written(
    memory: Lake, outbox: dict[str, Any], text: str
) -> None:
    _outbox(memory, {**OUTBOX, "n": "int32"})
    memory.connector.database.create_table("s.other", {"id": "int64!"}, key=("id",))
    memory.connector.capture()
    with pytest.raises(ConfigError) as error:
        memory.apply(tables=_rules(outbox))
    assert text in str(error.value)
    assert not STORED


def test_a_location_that_would_bring_all_aggregate_types_to_one_table_is_refused(memory: Lake) -> None:
    _outbox(memory)
    memory.connector.capture()
    with pytest.raises(ConfigError, match="would have the same table"):
        memory.apply(tables=_rules(), location=f"{memory.folder}/lake/{{database}}")
