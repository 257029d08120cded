"""Documents of a MongoDB as VARIANT in tables of Delta and Iceberg: every value comes back, with its type."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Int64
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.services.row_history.lake_row_reader import TargetNotInspected, rows_of
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from airflow_provider_cdc.targets.lake.rules import projection_builder
from airflow_provider_cdc.targets.lake.spark_releases import python_features
from airflow_provider_cdc.verify.verification_report import TableVerification
from tests.support.sources.mongodb import mongodb_connectors
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, text
from tests.support.sources.mongodb.variants import are_identical, expected_value, read
from tests.targets.lake.lake import Lake
from tests.targets.lake.verify.test_verify_rules import verify

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(python_features.VARIANT_TYPE is None, reason="this Spark has no VARIANT"),
]


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with mongodb_connectors.deployment() as started:
        yield started


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
            expected = expected_value(text(document), "")
            assert are_identical(found.pop(repr(expected["_id"])), expected), document
        assert not found


@pytest.mark.every_kind
def test_random_work_ends_in_a_table_of_variants(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind, batch_max_rows=40)
    work = CollectionWork(client, documents.database, 4)
    work.write(30)
    for _ in range(2):
        documents.lake.follow()
        assert documents.lake.target(f"{documents.database}.letters").read_column_types() == {
            "_id": "string",
            "document": "variant",
        }
        documents.check()
        work.write(30)


def _verify_documents(documents: Documents, **more: Any) -> TableVerification:
    (table,) = verify(documents.lake, documents.lake.connector.capture, **more).tables
    return table


@pytest.mark.every_kind
def test_a_table_is_compared_repaired_maintained_and_built_again(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind)
    lake, name = documents.lake, f"{documents.database}.letters"
    letters = documents.source.letters
    letters.insert_many([{"_id": i, "n": Int64(i), "list": [i / 4, None]} for i in range(12)])
    lake.follow()
    letters.update_one({"_id": 3}, {"$set": {"n": 3}})
    letters.delete_one({"_id": 4})
    lake.follow()
    assert _verify_documents(documents).is_equal
    # 3 as a long, and as it would be by parse_json: texts of both are the same
    lake.sql(
        'UPDATE {} SET document = parse_json(\'{{"_id": 3, "n": 3, "list": [0.75, null]}}\') WHERE _id = \'3\'', name
    )
    lake.sql("DELETE FROM {} WHERE _id = '5'", name)
    found = _verify_documents(documents, repair=True)
    assert (found.missing, found.surplus, found.different, found.differing) == (1, 0, 1, {"document": 1}), found
    lake.follow()
    assert _verify_documents(documents).is_equal
    documents.check()

    done = MaintainTables(
        spark, lake.connector.changelog, lake.connector.name, location=lake.location, target=kind, keep=timedelta(0)
    ).run()
    assert not done.has_failed, done
    documents.check()
    lake.sql("DELETE FROM {} WHERE _id = '6'", name)
    RebuildTables(spark, lake.connector.changelog, lake.connector.name, location=lake.location, target=kind).run(
        [f"test.{name}"]
    )
    documents.check()


@pytest.mark.every_kind
def test_another_form_is_refused_until_everything_is_read_again(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind, document_variant_list="nothing")
    lake, name = documents.lake, f"{documents.database}.letters"
    documents.source.letters.insert_many([{"_id": i, "n": Int64(i)} for i in range(3)])
    lake.follow()
    assert lake.target(name).read_column_types() == {"_id": "string", "document": "string"}
    lake.connector.properties["document.variant.list"] = rf"{documents.database}\.LETTERS"
    with pytest.raises(ConfigError, match=r"(?s)document\.variant\.list was changed after .*snapshot\.mode=always"):
        lake.connector.capture()
    documents.source.letters.insert_one({"_id": 3})
    lake.connector.capture({"snapshot.mode": "always"})
    documents.source.letters.delete_one({"_id": 1})
    lake.follow()
    assert lake.target(name).read_column_types() == {"_id": "string", "document": "variant"}
    documents.check()

    with pytest.raises(TargetNotInspected) as looked:
        rows_of(kind, lake.target(name).resolve_data_path(), {}, lake.connector.changelog.storage, {"_id": "2"})
    library = {"delta": "deltalake", "iceberg": "pyiceberg"}[kind]
    assert (
        str(looked.value)
        == f"it has a column of type VARIANT, which {library} does not read as values: query the table in Spark"
    )


@pytest.mark.every_kind
def test_tables_of_all_modes_and_with_deletion_vectors_have_variants(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind)
    lake, source = documents.lake, documents.source
    lake.tables = TableRules.parse(
        [
            {"tables": r".*\.past", "mode": "history"},
            {"tables": r".*\.log", "mode": "log", "columns": {"rename": {"document": "doc"}}},
            {
                "tables": r".*\.soft",
                "mode": "soft_delete",
                "columns": {"computed": {"size": "length(document)"}, "cast": {"document": "string"}},
            },
        ]
    )
    tables = ("past", "log", "soft", "plain")
    for table in tables:
        source[table].insert_many([{"_id": i, "n": Int64(i)} for i in range(4)])
    lake.connector.capture()
    lake.apply(profile="fast")
    for table in tables:
        source[table].update_one({"_id": 1}, {"$set": {"n": 1.5}})
        source[table].delete_one({"_id": 2})
    lake.connector.capture()
    lake.apply(profile="fast")
    documents.check("plain")
    rows = {table: lake.frame(f"{documents.database}.{table}").collect() for table in tables}
    logged = {(row["_op"], row["_id"]): row["doc"] for row in rows["log"]}
    assert {of: None if doc is None else doc.toPython()["n"] for of, doc in logged.items()} == {
        **{("r", str(i)): i for i in range(4)}, ("u", "1"): 1.5, ("d", "2"): None,
    }  # fmt: skip
    past = {(row["_id"], row["_is_current"]): row["document"].toPython() for row in rows["past"]}
    assert past["1", False] == {"_id": 1, "n": 1}
    assert past["1", True] == {"_id": 1, "n": 1.5}
    assert past["2", False] == {"_id": 2, "n": 2}
    soft = {row["_id"]: (row["document"], row["_is_deleted"], row["size"]) for row in rows["soft"]}
    changed = '{"_id": 1,"n": 1.5}'
    assert soft["1"] == (changed, False, len(changed))
    assert soft["2"][1]


@pytest.mark.every_kind
def test_documents_that_an_older_spark_has_stored_as_text_do_not_get_variants_beside_them(
    spark: SparkSession, tmp_path: Path, uri: str, client: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = Documents(spark, tmp_path, uri, client, kind)
    lake, name = documents.lake, f"{documents.database}.letters"
    documents.source.letters.insert_many([{"_id": i, "n": Int64(i)} for i in range(3)])
    with monkeypatch.context() as older:
        older.setattr(projection_builder, "VARIANT_TYPE", None)
        lake.follow()
        assert lake.target(name).read_column_types() == {"_id": "string", "document": "string"}
        lake.check(name)
    documents.source.letters.insert_one({"_id": 3})
    with pytest.raises(
        TargetError, match=r"(?s)documents as text \(STRING\).*move the table away and run the apply again"
    ):
        lake.follow()
    shutil.move(lake.path(name), tmp_path / "away")
    lake.apply()
    documents.check()
