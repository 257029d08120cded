"""Documents in the lake whose updates say only what has changed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError, TargetError
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite
from tests.support.signals import send
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents
from tests.targets.lake.lake import Lake, start_spark
from tests.targets.lake.verify.test_verify_beside import _verify as verify


@pytest.fixture(scope="module")
def spark() -> Any:
    return start_spark()


@pytest.mark.parametrize(
    ("kind", "mode"), [("delta", "change_streams"), ("iceberg", "change_streams_with_pre_image"), ("iceberg", "change_streams")]
)  # fmt: skip
def test_tables_are_equal_where_events_say_only_what_has_changed(
    spark: Any, uri: str, client: Any, database: Any, tmp_path: Path, kind: str, mode: str
) -> None:
    work = CollectionWork(client, database.name, 200, images=mode.endswith("pre_image"))
    work.write(30)
    ours = mongodb_connector(
        uri, tmp_path / "connector", database_include_list=database.name, batch_max_rows=40, capture_mode=mode
    )
    lake = Lake(spark, tmp_path, ours, kind=kind)
    for _ in range(4):
        lake.follow()
        found = lake.frame(f"{database.name}.letters").collect()
        assert_same_documents([row["document"] for row in found], work.collection.find())
        work.write(40)


@pytest.fixture
def letters_collection(database: Any) -> Any:
    return database.letters


def lake_of(spark: Any, uri: str, database: Any, folder: Path, kind: str, **more: Any) -> Lake:
    ours = mongodb_connector(
        uri, folder / "connector", database_include_list=database.name, capture_mode="change_streams"
    )
    return Lake(spark, folder, ours, kind=kind, **more)


def documents(lake: Lake, database: Any, *columns: str, where: str = "true") -> list[Any]:
    rows = lake.frame(f"{database.name}.letters").where(where).orderBy("_id", *columns[:1]).collect()
    return [(json.loads(row["document"]), *(row[name] for name in columns)) for row in rows]


@pytest.mark.parametrize("kind", ["delta"])
def test_versions_and_rows_that_stay_have_their_documents(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path, kind: str
) -> None:
    history = lake_of(
        spark, uri, database, tmp_path / "a", kind, tables=TableRules.parse([{"tables": ".*", "mode": "history"}])
    )
    stays = Lake(spark, tmp_path / "b", history.connector, kind=kind, tables=TableRules.parse([{"tables": ".*", "mode": "soft_delete"}]))  # fmt: skip
    letters_collection.insert_many([{"_id": 1, "v": {"a": 0}}, {"_id": 2, "v": {"a": 0}}])
    history.follow()
    stays.apply()
    letters_collection.update_one({"_id": 1}, {"$set": {"v.b": 1}})
    letters_collection.update_one({"_id": 2}, {"$set": {"v.b": 2}})
    letters_collection.update_one({"_id": 1}, {"$unset": {"v.a": ""}})
    letters_collection.delete_one({"_id": 2})
    history.follow()
    stays.apply()
    letters_collection.update_one({"_id": 1}, {"$set": {"v.c": 3}})
    history.follow()
    stays.apply()
    one = [{"a": 0}, {"a": 0, "b": 1}, {"b": 1}, {"b": 1, "c": 3}]
    versions = documents(history, database, "_seq", "_is_current")
    assert [document["v"] for document, *_ in versions] == [*one, {"a": 0}, {"a": 0, "b": 2}]
    assert [current for *_, current in versions] == [False, False, False, True, False, False]
    assert documents(stays, database, "_is_deleted") == [({"_id": 1, "v": one[-1]}, False), ({"_id": 2, "v": {"a": 0, "b": 2}}, True)]  # fmt: skip


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_update_of_a_document_that_no_one_has_is_reported_until_it_is_read_again(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path, kind: str
) -> None:
    lake = lake_of(spark, uri, database, tmp_path, kind)
    letters_collection.insert_many([{"_id": 1, "v": 0}, {"_id": "it's", "v": 0}])
    lake.follow()
    lake.sql("DELETE FROM {} WHERE _id LIKE '%it%'", f"{database.name}.letters")
    for number in range(3):
        letters_collection.update_many({}, {"$set": {"v": number}})
    lake.connector.capture()
    with pytest.raises(TargetError) as refused:
        lake.apply()
    error_text = str(refused.value)
    assert '''of the key "it's"''' in error_text
    assert f"airflow cdc snapshot test {database.name}.letters --filter '{database.name}.letters=" in error_text
    assert documents(lake, database) == [({"_id": 1, "v": 0},)]
    send(lake.connector, "execute-snapshot", {"data-collections": [f"{database.name}.letters"]})
    lake.follow()
    assert documents(lake, database) == [({"_id": "it's", "v": 2},), ({"_id": 1, "v": 2},)]


def test_a_table_goes_on_by_itself_where_a_later_group_of_batches_has_the_document(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    lake = lake_of(spark, uri, database, tmp_path, "delta")
    letters_collection.insert_many([{"_id": 1, "v": 0}, {"_id": 2, "v": 0}])
    lake.follow()
    lake.sql("DELETE FROM {} WHERE _id = '2'", f"{database.name}.letters")
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.backlog.reported_apply_state.GROUP_BYTES", 1)
    for number in range(3):
        letters_collection.update_many({}, {"$set": {f"v{number}": number}})
        lake.connector.capture()
    send(lake.connector, "execute-snapshot", {"data-collections": [f"{database.name}.letters"]})
    lake.connector.capture()
    letters_collection.update_many({}, {"$set": {"v": 3}})
    lake.follow()
    last = {"v": 3, "v0": 0, "v1": 1, "v2": 2}
    assert documents(lake, database) == [({"_id": 1, **last},), ({"_id": 2, **last},)]


def test_a_rule_that_leaves_documents_out_needs_none_and_one_that_makes_something_else_of_them_is_named(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path
) -> None:
    table = f"{database.name}.letters"
    keys = TableRules.parse([{"tables": ".*", "mode": "soft_delete", "columns": {"drop": ["document"]}}])
    cast = TableRules.parse([{"tables": ".*", "columns": {"cast": {"document": "variant"}}}])
    lake = lake_of(spark, uri, database, tmp_path / "a", "delta", tables=keys)
    other = Lake(spark, tmp_path / "b", lake.connector, tables=cast)
    letters_collection.insert_one({"_id": 1, "v": 0})
    lake.follow()
    other.apply()
    letters_collection.update_one({"_id": 1}, {"$set": {"w": 1}})
    lake.follow()
    assert [tuple(row) for row in lake.frame(table).select("_id", "_is_deleted").collect()] == [("1", False)]
    with pytest.raises(TargetError, match="keep document as text in the rule"):
        other.apply()


def test_a_table_is_compared_with_what_was_captured_since(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path
) -> None:
    lake = lake_of(spark, uri, database, tmp_path, "delta")
    letters_collection.insert_many([{"_id": n, "v": {"a": n}} for n in range(4)])
    lake.follow()

    def write_meanwhile() -> None:
        database.other.insert_one({})
        lake.connector.capture()  # the position is within this batch
        letters_collection.update_many({}, {"$set": {"v.b": 1}})
        lake.follow()

    only = rf"{database.name}\.letters"
    (compared,) = verify(lake, write_meanwhile, tables=(only,)).tables
    assert (compared.source, compared.target, compared.different, compared.not_compared) == (4, 4, 0, "")

    def at_once() -> None:
        letters_collection.update_one({"_id": 0}, {"$unset": {"v.a": ""}})
        lake.follow()

    database.other.insert_one({})  # the position is behind that of the connector, and within its next batch
    (compared,) = verify(lake, at_once, tables=(only,)).tables
    assert "partial document updates" in compared.not_compared


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("when", ["first", "before", "beside", "after"])
def test_no_update_is_applied_twice_beside_other_applies_and_killed_runs(
    spark: Any, uri: str, database: Any, letters_collection: Any, tmp_path: Path, monkeypatch: Any, kind: str, when: str
) -> None:
    """Updates that would not fit the document that they have made."""
    lake = lake_of(spark, uri, database, tmp_path, kind)
    letters_collection.insert_many([{"_id": n, "list": [*range(9)], "there": {"a": n}} for n in range(3)])
    lake.follow()
    letters_collection.update_many({}, [{"$set": {"list": {"$slice": ["$list", 4]}}}])
    letters_collection.update_many({}, {"$unset": {"there.a": ""}})
    letters_collection.update_many({}, {"$set": {"there": 5}})
    letters_collection.update_many({}, {"$push": {"list": "more"}})
    lake.connector.capture()
    seen = []

    def hook(_: str, name: str, write: Any) -> Any:
        seen.append(name)
        if len(seen) > 1:
            return write()
        if when == "first":
            return write()
        if when == "before":
            raise RuntimeError("ended")
        if when == "beside":
            Lake(spark, tmp_path, lake.connector, kind=kind).apply()
            return write()
        write()
        raise RuntimeError("ended")

    read = TableWrite.read_documents

    def others_first(write: TableWrite) -> Any:
        monkeypatch.setattr(TableWrite, "read_documents", read)
        Lake(spark, tmp_path, lake.connector, kind=kind).apply()
        seen.append("read")
        return read(write)

    if when == "first":
        monkeypatch.setattr(TableWrite, "read_documents", others_first)
    lake.hook = hook
    with contextlib.suppress(CdcError):
        lake.apply()
    assert seen
    lake.hook = None
    lake.apply()
    expected = [({"_id": n, "list": [0, 1, 2, 3, "more"], "there": 5},) for n in range(3)]
    assert documents(lake, database) == expected
