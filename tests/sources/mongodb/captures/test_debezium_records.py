"""The JSON form is Debezium's own: its engine's records of the same work on the same kind of server were kept, and ours are the same (``tests/support/sources/mongodb/mongodb_records.py``).

What differs, and why:

- ``updatedFields`` has the types of numbers and dates here, as ``after`` has: a reader can apply it. Debezium writes them as JSON for people, in which a long is like an int.
- ``source.ord`` of what a snapshot reads says at which moment it was read; Debezium has -1.
- Names of schemas have an underscore for a dash, as for tables: readers of Avro take no dash.
- Which rows a snapshot calls ``first`` and ``last``, depends on the order in which they are read.
- The signalling collection is no table here: records of it, watermarks among them, are Debezium's only.
- An incremental snapshot here has the documents of a collection whatever their keys are. Debezium's, of keys of several types, has those of the type of the largest key
  (seen with numbers and a text, of which it read the text), so that none of these scenarios has such keys.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.json_util import JSONMode, JSONOptions

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_records import FILE, comparable
from tests.support.sources.mongodb.mongodb_scenarios import DATABASE, SCENARIOS, SIGNALS, TOPIC

Record = dict[str, Any]
RELAXED = JSONOptions(json_mode=JSONMode.RELAXED, datetime_conversion=DatetimeConversion.DATETIME_MS)


def number_transactions(records: list[Record]) -> list[Record]:
    """With transactions by their numbers in the work: a client counts all of a session's."""
    text = json.dumps(records)
    for number, name in enumerate(dict.fromkeys(re.findall(r"session \d+:\d+", text))):
        text = text.replace(f'{name}"', f'transaction {number}"')
    found: list[Record] = json.loads(text)
    for record in found:
        if record["value"] is not None and "source" in record["value"]:
            source = record["value"]["source"]
            source["txnNumber"] = source["txnNumber"] is not None
    return [record for record in found if record["topic"] != f"{TOPIC}.{DATABASE}.{SIGNALS}"]


@cache
def load_debezium_records() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text())
    for scenario in document.values():
        scenario["records"] = number_transactions([comparable_record(record) for record in scenario["records"]])
    return document


def comparable_record(record: Record) -> Record:
    """A record without what may differ."""
    if (value := record["value"]) is None:
        return record
    if (update := value.get("updateDescription")) is not None:
        fields = json_util.loads(update["updatedFields"], json_options=RELAXED)
        update["updatedFields"] = json_util.dumps(fields, json_options=RELAXED)
    if is_read(record):
        source = value["source"]
        source |= {"ord": None} | ({"snapshot": "true"} if source["snapshot"] != "incremental" else {})
    return record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def captured_records(uri: str, client: Any, folder: Path) -> Any:
    """The records of one scenario, with schemas."""

    @cache
    def capture_scenario(name: str) -> list[Record]:
        scenario = SCENARIOS[name]
        client.drop_database(DATABASE)
        scenario.before(client[DATABASE])
        connector = mongodb_connector(uri, folder / name)
        connector.properties |= {"topic.prefix": TOPIC, "database.include.list": DATABASE, **scenario.properties}
        connector.capture()
        scenario.work(client[DATABASE])
        connector.capture()
        if "signal.data.collection" in scenario.properties:
            connector.capture()  # what the signal has asked for
        client.drop_database(DATABASE)
        records = DebeziumRenderer(connector.changelog, connector.name, schemas=True).render_records()
        return [json.loads(json.dumps(record.to_document(schemas=True))) for record in records]

    return capture_scenario


def payloads(records: list[Record]) -> list[Record]:
    """Without schemas, as far as two runs of the same work have them alike."""
    sessions: dict[str, str] = {}
    parts = [
        {"topic": r["topic"], **{side: r[side] and r[side]["payload"] for side in ("key", "value")}} for r in records
    ]
    return number_transactions([comparable_record(comparable(part, sessions)) for part in parts])


def is_read(record: Record) -> bool:
    return record["value"] is not None and record["value"].get("op") == "r"


def snapshot(records: list[Record]) -> dict[str, Any]:
    """Return the records that were read, by topic and key: their order is undefined."""
    return {(r["topic"], json.dumps(r["key"]), r["value"]["source"]["snapshot"]): r for r in records if is_read(r)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_was_read_is_debeziums(captured_records: Any, name: str) -> None:
    expected, found = snapshot(load_debezium_records()[name]["records"]), snapshot(payloads(captured_records(name)))
    assert found.keys() == expected.keys()
    for key, record in expected.items():
        assert found[key] == record


@pytest.mark.parametrize("name", SCENARIOS)
def test_changes_are_debeziums(captured_records: Any, name: str) -> None:
    expected = [record for record in load_debezium_records()[name]["records"] if not is_read(record)]
    found = [record for record in payloads(captured_records(name)) if not is_read(record)]
    assert [(r["topic"], r["key"]) for r in found] == [(r["topic"], r["key"]) for r in expected]
    for mine, other in zip(found, expected, strict=True):
        assert mine == other
        if other["value"] is not None:
            assert [*mine["value"]] == [*other["value"]]


@pytest.mark.parametrize("name", SCENARIOS)
def test_schemas_are_debeziums(captured_records: Any, name: str) -> None:
    described: dict[str, Any] = {}
    for record in captured_records(name):
        for side in ("key", "value"):
            if record[side] is not None:
                described.setdefault(record["topic"], {})[side] = record[side]["schema"]
    expected = json.loads(json.dumps(load_debezium_records()[name]["schemas"]).replace("dash-ed_1.", "dash_ed_1."))
    expected.pop(f"{TOPIC}.{DATABASE}.{SIGNALS}", None)
    assert described == expected
