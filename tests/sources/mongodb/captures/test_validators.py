"""Columns that the validator of a collection declares, with validators that the deployment itself holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128
from pymongo.errors import WriteError

from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector

SCHEMA: dict[str, Any] = {
    "bsonType": "object",
    "required": ["total"],
    "properties": {
        "total": {"bsonType": "decimal"}, "who": {"bsonType": "object", "properties": {"name": {"bsonType": "string"}, "born": {"bsonType": "date"}}},
        "paid": {"bsonType": "bool"},
    },
}  # fmt: skip


def connector(uri: str, folder: Path, database: Any) -> MongoConnector:
    ours = mongodb_connector(
        uri, folder, database_include_list=database.name, document_columns_list=r".*\.orders", document_columns_depth=2
    )
    ours.properties[f"document.columns.schema.{database.name}.orders"] = "validator"
    return ours


def names(ours: MongoConnector, database: Any) -> list[str]:
    """The columns of the newest schema behind the key and the rest."""
    manifest = list(ours.changelog.read_manifests(ours.name))[-1]
    versions = manifest.schemas[f"test.{database.name}.orders"]
    return list(versions[max(versions, key=int)].column_names[2:])


def rows(ours: MongoConnector, database: Any) -> list[dict[str, Any]]:
    """Return the values of each row that are not null, ordered by the rows' keys."""
    found = ours.replay.advance().rows(f"test.{database.name}.orders")
    return [{name: value for name, value in row.items() if value is not None} for row in sorted(found, key=lambda row: row["_id"])]  # fmt: skip


def test_columns_are_those_of_the_collections_validator(uri: str, database: Any, tmp_path: Path) -> None:
    """They are there before a document has the field; what the validator refuses is no event, and what goes past it is kept whole."""
    orders = database.create_collection("orders", validator={"$jsonSchema": SCHEMA})
    orders.insert_one({"_id": 1, "total": Decimal128("1.50")})
    with pytest.raises(WriteError) as failed:
        orders.insert_one({"_id": 2, "total": "much"})
    assert failed.value.code == 121
    ours = connector(uri, tmp_path, database)
    ours.capture()
    assert names(ours, database) == ["total", "who_name", "who_born", "paid"]
    database.get_collection("orders").insert_one(
        {"_id": 3, "total": "much", "more": 7}, bypass_document_validation=True
    )
    orders.insert_one({"_id": 4, "total": Decimal128("2"), "who": {"name": "Ann", "born": "long ago"}}, bypass_document_validation=True)  # fmt: skip
    ours.capture()
    assert names(ours, database) == [
        "total",
        "who_name",
        "who_born",
        "paid",
        "total__string",
        "more",
        "who_born__string",
    ]
    found = [{name: value for name, value in row.items() if name != "total"} for row in rows(ours, database)]
    assert found == [
        {"_id": "1"}, {"_id": "3", "total__string": "much", "more": 7}, {"_id": "4", "who_name": "Ann", "who_born__string": "long ago"},
    ]  # fmt: skip


def test_a_field_that_the_validator_gets_later_is_a_column_from_the_next_run_on(
    uri: str, database: Any, tmp_path: Path
) -> None:
    orders = database.create_collection("orders", validator={"$jsonSchema": SCHEMA})
    ours = connector(uri, tmp_path, database)
    orders.insert_one({"_id": 1, "total": Decimal128("1")})
    ours.capture()
    wider = {**SCHEMA, "properties": {**SCHEMA["properties"], "tax": {"bsonType": "double"}}}
    database.command("collMod", "orders", validator={"$jsonSchema": wider})
    orders.insert_one({"_id": 2, "total": Decimal128("1"), "new": 1, "tax": 0.5})
    ours.capture()
    assert names(ours, database) == ["total", "who_name", "who_born", "paid", "tax", "new"]
    (second,) = (row for row in rows(ours, database) if row["_id"] == "2")
    assert (second["new"], second["tax"]) == (1, 0.5)


@pytest.mark.parametrize("validator", [{"total": {"$gt": 0}}, {}])
def test_a_validator_without_a_schema_declares_nothing(
    uri: str, database: Any, tmp_path: Path, validator: dict[str, Any]
) -> None:
    orders = database.create_collection("orders", validator=validator)
    orders.insert_one({"_id": 1, "total": 1})
    ours = connector(uri, tmp_path, database)
    ours.capture()
    assert names(ours, database) == ["total"]
