"""Documents in the lake: a column for the key, one for the document; or columns of their fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dev.servers.mongodb import MongoDb
from tests.support.connectors import Connector
from tests.support.sources.document_store import DocumentDatabase, register_document_source
from tests.support.sources.mongodb import mongodb_columns
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork
from tests.targets.lake.lake import Lake


@pytest.mark.every_kind
def test_a_table_follows_documents(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    shelf = DocumentDatabase(str(tmp_path))
    with register_document_source():
        ours = Connector(tmp_path / "connector", "shelf", {"shelf": shelf.name, "poll.interval.ms": 10})
        lake = Lake(spark, tmp_path, ours, kind=kind)
        shelf.commit(("c", "box.letters", {"_id": 1, "to": {"name": "Ann"}}), ("c", "box.letters", {"_id": "1"}))
        lake.follow()
        shelf.commit(("u", "box.letters", 1, {"to": {"names": ["Ann", "Bob"]}}), ("d", "box.letters", "1"))
        shelf.commit(("c", "box.letters", {"_id": 2}))
        lake.follow()
        rows = {row["_id"]: json.loads(row["sheet"]) for row in lake.frame("box.letters").collect()}
        assert rows == {"1": {"_id": 1, "to": {"names": ["Ann", "Bob"]}}, "2": {"_id": 2}}
        shelf.commit(("drop", "box.letters"))
        shelf.commit(("c", "box.letters", {"_id": 3}))
        lake.follow()
        assert [row["_id"] for row in lake.frame("box.letters").collect()] == ["3"]


@pytest.mark.every_kind
def test_a_table_has_the_fields_of_documents_as_columns(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Fields and types come up as the work continues: the table gets a column for each, and every value of each document."""
    with MongoDb() as server, server.connect() as client:
        work = CollectionWork(client, "shop", 4)
        ours = mongodb_connector(
            server.url(), tmp_path / "connector", database_include_list="shop", document_columns_list=r"shop\..*",
            document_columns_depth=2, document_columns_max=40,
        )  # fmt: skip
        lake = Lake(spark, tmp_path, ours, kind=kind)
        widths = []
        for _ in range(3):
            work.write(25)
            lake.follow()
            versions = list(ours.changelog.read_manifests(ours.name))[-1].schemas["test.shop.letters"]
            schema = versions[max(versions, key=int)]
            widths.append(len(schema.columns))
            mongodb_columns.assert_same_documents(lake.rows("shop.letters"), schema, work.collection, 2)
        assert widths[0] < widths[-1]
