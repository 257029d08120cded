"""The JSON form is Debezium's own: its engine's records of the same statements were kept, and ours are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from tests.support.connectors import mysql_connector

RECORDED = Path(__file__).parent / "recorded"
VOLATILE = ("ts_ms", "ts_us", "ts_ns")
"""Times, and in ``source`` also where the statement stood in that server's log."""
PLACES = (*VOLATILE, "version", "server_id", "gtid", "file", "pos", "thread")


def _statements() -> tuple[list[str], list[str]]:
    parts = [s.strip() for s in (RECORDED / "statements.sql").read_text().split(";\n") if s.strip()]
    cut = parts.index("-- stream")
    return parts[:cut], parts[cut + 1 :]


@pytest.fixture(scope="module")
def captured_records(mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The same statements, captured and rendered with schemas."""
    mariadb.sql("DROP DATABASE IF EXISTS inv")
    mariadb.sql("CREATE DATABASE inv")
    connector = mysql_connector(
        mariadb, tmp_path_factory.mktemp("recorded"), database_include_list="inv", topic_prefix="p",
        provide_transaction_metadata="true", snapshot_max_threads=1,
    )  # fmt: skip
    before, after = _statements()
    for statements in (before, after):
        with mariadb.connect(database="inv", autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connector.capture()
    mariadb.sql("DROP DATABASE inv")
    records = DebeziumRenderer(connector.changelog, connector.name, schemas=True).render_records()
    documents = [json.loads(json.dumps(r.to_document(schemas=True))) for r in records]
    return [d for d in documents if d["topic"].startswith("p.inv.")]


@pytest.fixture(scope="module")
def debezium_records() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RECORDED / "debezium.json").read_text())
    # the first table is empty: the engine marks no row as the first one then, here the first that exists is marked
    document["records"][0]["value"]["source"]["snapshot"] = "first"
    return document


def _topics(theirs: dict[str, Any]) -> list[str]:
    return sorted(theirs["schemas"])


def _comparable(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    value = {k: v for k, v in value.items() if k not in VOLATILE}
    source = {k: v for k, v in value["source"].items() if k not in PLACES}
    if value["transaction"] is not None:
        value["transaction"] = {k: v for k, v in value["transaction"].items() if k != "id"}
    return {**value, "source": source}


def _payload(side: dict[str, Any] | None) -> Any:
    return None if side is None else side["payload"]


@pytest.mark.parametrize("topic", ["p.inv.t", "p.inv.k", "p.inv.nk"])
def test_records_are_debeziums(
    captured_records: list[dict[str, Any]], debezium_records: dict[str, Any], topic: str
) -> None:
    expected = [r for r in debezium_records["records"] if r["topic"] == topic]
    found = [r for r in captured_records if r["topic"] == topic]
    assert [_payload(r["key"]) for r in found] == [r["key"] for r in expected]
    for mine, other in zip(found, expected, strict=True):
        assert _comparable(_payload(mine["value"])) == _comparable(other["value"])
        assert mine.get("headers", {}) == other["headers"]


def test_fields_of_the_source_block_come_in_the_documented_order(
    captured_records: list[dict[str, Any]], debezium_records: dict[str, Any]
) -> None:
    expected = next(r for r in debezium_records["records"] if r["value"] is not None)["value"]
    found = next(r for r in captured_records if r["value"] is not None)["value"]["payload"]
    assert list(found["source"]) == list(expected["source"])
    assert list(found) == list(expected)


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("topic", ["p.inv.t", "p.inv.k", "p.inv.nk"])
def test_schemas_are_debeziums(
    captured_records: list[dict[str, Any]], debezium_records: dict[str, Any], topic: str, side: str
) -> None:
    described = [r[side]["schema"] for r in captured_records if r["topic"] == topic and r[side] is not None]
    if side in debezium_records["schemas"][topic]:
        assert described[-1] == debezium_records["schemas"][topic][side]
    else:
        assert not described
