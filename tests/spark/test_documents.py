"""Documents of a MongoDB as VARIANT in tables of Delta and Iceberg: every value comes back, with its type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pyspark.sql import SparkSession

from dev.servers.mongodb import MongoDb
from tests.spark.lake import Lake
from tests.support import mongodb
from tests.support.mongodb import mongodb_connector
from tests.support.mongodb_work import Work, text
from tests.support.variants import read, same, wanted

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    if (given := mongodb.given()) is not None:
        yield given
        return
    with MongoDb() as server:
        yield server.url()


@pytest.fixture(scope="module")
def client(uri: str) -> Iterator[Any]:
    with pymongo.MongoClient(uri) as connected:
        yield connected


class Documents:
    """A collection, and the table of its documents."""

    def __init__(self, spark: SparkSession, folder: Path, uri: str, client: Any, kind: str, **properties: Any) -> None:
        self.database = f"lake_{kind}_{folder.name}"[:38]
        given = {"database_include_list": self.database, "document_variant_list": ".*", **properties}
        self.source = client[self.database]
        self.lake = Lake(spark, folder, mongodb_connector(uri, folder, **given), "lake", kind)

    def found(self, table: str = "letters") -> dict[str, Any]:
        """Key → the document that pyspark's own reader makes of the variant."""
        rows = self.lake.frame(f"{self.database}.{table}").collect()
        assert len({row["_id"] for row in rows}) == len(rows)
        return {row["_id"]: read(row["document"]) for row in rows}

    def check(self, table: str = "letters") -> None:
        found = {repr(document["_id"]): document for document in self.found(table).values()}
        for document in self.source[table].find():
            expected = wanted(text(document), "")
            assert same(found.pop(repr(expected["_id"])), expected), document
        assert not found


@pytest.mark.every_kind
def test_random_work_ends_in_a_table_of_variants(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind, batch_max_rows=40)
    work = Work(client, documents.database, 4)
    work.write(30)
    for _ in range(2):
        documents.lake.follow()
        assert documents.lake.target(f"{documents.database}.letters").columns() == {
            "_id": "string",
            "document": "variant",
        }
        documents.check()
        work.write(30)
