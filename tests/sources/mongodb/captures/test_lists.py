"""Databases and collections that are captured, and those that a snapshot reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import RawCursor
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.signals import snapshot
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector

COLLECTIONS = ("products", "products_on_hand")
ALL = {f"{database}.{name}" for database in ("inventory", "inventory2", "sales") for name in COLLECTIONS}


@pytest.fixture(scope="module")
def database_prefix(client: Any) -> Iterator[str]:
    """Fill three databases with the same two collections each; yield the prefix of their names."""
    prefix = f"x{time.time_ns() // 1000 % 10**10}_"
    for name in sorted(ALL):
        database, _, collection = name.partition(".")
        client[prefix + database][collection].insert_one({"_id": 1})
    yield prefix
    for database in {name.partition(".")[0] for name in ALL}:
        client.drop_database(prefix + database)


@pytest.fixture
def shop_database(database: Any) -> Any:
    """Two collections of some documents."""
    for name in ("orders", "notes"):
        database[name].insert_many([{"_id": n} for n in range(5)])
    return database


def topics(found: list[dict[str, Any]], prefix: str) -> set[str]:
    """The collections that records are of."""
    return {str(record["topic"]).removeprefix(f"test.{prefix}") for record in found}


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"database_include_list": "{x}inventory"}, {"inventory.products", "inventory.products_on_hand"}),
        ({"database_include_list": "{x}INVENTORY.?, {x}s"}, {name for name in ALL if name.startswith("inv")}),
        ({"database_exclude_list": "(?!{x}).*,{x}inventory"}, {name for name in ALL if not name.startswith("inventory.")}),
        ({"collection_include_list": r"{x}inventory\.products,{x}sales\..*hand"}, {"inventory.products", "sales.products_on_hand"}),
        ({"collection_include_list": "{x}inventory[.].*"}, {"inventory.products", "inventory.products_on_hand"}),
        ({"collection_include_list": "{x}inventory[.]*"}, set()),
        ({"collection_include_list": "products"}, set()),
        ({"database_include_list": "{x}sales", "collection_exclude_list": r".*\.products"}, {"sales.products_on_hand"}),
    ],
)  # fmt: skip
def test_lists_of_databases_and_collections_are_anchored(
    uri: str, tmp_path: Path, database_prefix: str, client: Any, lists: dict[str, str], expected: set[str]
) -> None:
    """Check snapshot and stream; the guide's sample, inventory[.]*, is a pattern of the database's name and dots."""
    given = {name: text.replace("{x}", database_prefix) for name, text in lists.items()}
    connector = mongodb_connector(uri, tmp_path, **given)
    assert topics(capture_records(connector), database_prefix) == expected
    for name in ALL:
        database, _, collection = name.partition(".")
        client[database_prefix + database][collection].insert_one({})
    found = capture_records(connector)
    assert (topics(found, database_prefix), {r["value"]["op"] for r in found}) == (
        expected,
        {"c"} if expected else set(),
    )
    with open_source(connector.definition(), connector.secrets) as source:
        text = [finding.problem for finding in source.check_prerequisites() if "match none" in finding.problem]
    assert len(text) == (not expected), "a list that matches nothing is told"
    for name in given:
        other = name.replace("include", "exclude") if "include" in name else name.replace("exclude", "include")
        with pytest.raises(ConfigError, match=name.replace("_", ".").replace("exclude", "include")):
            mongodb_connector(uri, tmp_path / "both", **given, **{other: "x"}).capture()


def test_without_lists_all_is_captured_but_what_is_the_servers(
    uri: str, tmp_path: Path, database_prefix: str, client: Any
) -> None:
    connector = mongodb_connector(uri, tmp_path)
    client.admin.of_the_server.insert_one({})
    client.local.command({"insert": "of_the_server", "documents": [{}]})  # a driver writes again what it may
    try:
        found = {str(record["topic"]) for record in capture_records(connector)}
        client.admin.of_the_server.insert_one({})
        client[f"{database_prefix}sales"].products.insert_one({})
        later = capture_records(connector)
    finally:
        client.admin.of_the_server.drop()
        client.local.of_the_server.drop()
    assert {f"test.{database_prefix}{name}" for name in ALL} <= found
    assert not [topic for topic in found if topic.startswith(("test.admin.", "test.local.", "test.config."))]
    assert topics(later, database_prefix) == {"sales.products"}
    one = mongodb_connector(uri, tmp_path / "one", collection_include_list=f"{database_prefix}sales.products")
    assert topics(capture_records(one), database_prefix) == {"sales.products"}, "and with a list, what it names whole"


def test_a_snapshot_may_read_some_of_the_captured_collections(uri: str, tmp_path: Path, shop_database: Any) -> None:
    connector = _streaming(
        uri, tmp_path, shop_database, snapshot_include_collection_list=rf"{shop_database.name}\.orders"
    )
    connector.replay.partial = True
    assert topics(capture_records(connector), shop_database.name) == {".orders"}
    shop_database.notes.insert_one({"_id": 10})
    assert topics(capture_records(connector), shop_database.name) == {".notes"}, "all are streamed"
    snapshot(connector, f"{shop_database.name}.notes")
    found = of_table(capture_records(connector), "notes")
    assert [json.loads(r["key"]["id"]) for r in found] == [*range(5), 10], "it is not about incremental snapshots"


def test_with_no_snapshot_the_list_of_what_it_reads_has_no_effect(uri: str, tmp_path: Path, shop_database: Any) -> None:
    connector = _streaming(
        uri,
        tmp_path,
        shop_database,
        snapshot_include_collection_list=rf"{shop_database.name}\.orders",
        snapshot_mode="no_data",
    )
    assert capture_records(connector) == []
    shop_database.orders.insert_one({"_id": 10})
    shop_database.notes.insert_one({"_id": 10})
    assert topics(capture_records(connector), shop_database.name) == {".orders", ".notes"}


@pytest.mark.parametrize(("size", "first", "asked"), [(40, 40, {40}), (0, 101, {100_000}), (None, 300, {10_240})])
def test_the_fetch_size_is_that_of_the_questions(
    uri: str,
    tmp_path: Path,
    database: Any,
    monkeypatch: pytest.MonkeyPatch,
    size: int | None,
    first: int,
    asked: set[int],
) -> None:
    """With 0 the server decides: its first batch has 101 documents, the others end at 16 MB."""
    database.orders.insert_many([{"_id": n} for n in range(300)])
    seen: list[tuple[int | None, int]] = []
    ask = RawCursor._ask

    def record_command(self: RawCursor, command: Any) -> Any:
        answer = ask(self, command)
        if command.get("find") == "orders" or command.get("collection") == "orders":
            seen.append((command.get("batchSize"), len(answer.documents) if answer.documents is not None else 0))
        return answer

    monkeypatch.setattr(RawCursor, "_ask", record_command)
    options = {} if size is None else {"snapshot_fetch_size": size}
    connector = _streaming(uri, tmp_path, database, **options)
    assert len(capture_records(connector)) == 300
    assert (seen[0][1], {number for number, _ in seen if number}) == (first, asked)


def test_names_within_documents_are_never_adjusted(uri: str, tmp_path: Path, database: Any) -> None:
    """field.name.adjustment.mode is about fields of records, and a document is a text."""
    database.orders.insert_one({"_id": 1, "Preis € 1": {"a-b": 2}})
    connector = _streaming(uri, tmp_path, database, field_name_adjustment_mode="avro")
    (read,) = capture_records(connector, schemas=True)
    assert read["key"]["payload"] == {"id": "1"}
    assert json.loads(read["value"]["payload"]["after"]) == {"_id": 1, "Preis € 1": {"a-b": 2}}
    assert all(field["field"].isidentifier() for field in read["value"]["schema"]["fields"])


def _streaming(uri: str, folder: Path, database: Any, **properties: Any) -> MongoConnector:
    return mongodb_connector(uri, folder, database_include_list=database.name, **properties)
