"""Targets of connectors whose events say only what has changed: changes that cannot be applied are reported, and nothing is applied twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.snapshot.chunk_reader import MongoChunkReader
from airflow_provider_cdc.targets.database.config import EQUAL
from tests.support.change_log.row_stories import stories
from tests.support.patience import LONGEST_S
from tests.support.signals import send, snapshot
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents
from tests.targets.database.apply.test_database_apply import rows, sink
from tests.targets.database.killed import start
from tests.targets.database.verify.test_verify_database import only, verified

NAMED = {"collection__name__format": "${source.table}"}


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/target.db")


def connector(uri: str, database: Any, folder: Path, **properties: Any) -> MongoConnector:
    given = {"database_include_list": database.name, "capture_mode": "change_streams", **properties}
    return mongodb_connector(uri, folder, **given)


def one_of_two(uri: str, database: Any, engine: sa.Engine, folder: Path) -> MongoConnector:
    """The connector of a collection with two documents, the second of which the target has lost."""
    database.letters.insert_many([{"_id": 1, "v": 1}, {"_id": 2, "v": 1}])
    ours = connector(uri, database, folder)
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM letters WHERE _id = '2'")
    return ours


def documents(engine: sa.Engine) -> list[Any]:
    return sorted((json.loads(row["document"]) for row in rows(engine, "letters")), key=lambda one: str(one["_id"]))


def test_an_update_of_a_document_that_no_one_has_is_reported_with_the_command_that_repairs_it(
    uri: str, database: Any, engine: sa.Engine, tmp_path: Path
) -> None:
    letters = database.letters
    letters.insert_many([{"_id": 1, "v": 1}, {"_id": "it's", "v": 1}])
    ours = connector(uri, database, tmp_path)
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM letters WHERE _id LIKE '%it%'")
    letters.update_one({"_id": "it's"}, {"$set": {"v": 2}})
    letters.update_one({"_id": "it's"}, {"$set": {"v": 3}})
    letters.update_one({"_id": 1}, {"$set": {"v": 3}})
    ours.capture()
    with pytest.raises(TargetError) as refused:
        sink(engine, ours, **NAMED).apply()
    error_text = str(refused.value)
    assert f"{database.name}.letters" in error_text
    assert '''key "it's"''' in error_text
    assert re.search(r"event \d+ of the key", error_text)
    assert "airflow cdc snapshot test" in error_text
    assert documents(engine) == [{"_id": 1, "v": 1}]
    # what the command reads is a later event of the key
    letters.update_one({"_id": "it's"}, {"$set": {"v": 4}})
    whole = f"{database.name}.letters"
    chosen = [{"data-collection": whole, "filter": """{"_id": "it's"}"""}]
    send(ours, "execute-snapshot", {"data-collections": [whole], "additional-conditions": chosen})
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    assert documents(engine) == [{"_id": 1, "v": 3}, {"_id": "it's", "v": 4}]


@pytest.mark.parametrize("written", [False, True], ids=["moments", "written watermarks"])
def test_rows_that_a_chunk_has_read_keep_what_updates_beside_it_changed(
    uri: str, database: Any, engine: sa.Engine, tmp_path: Path, written: bool
) -> None:
    """An update does not have the document, and the row of the chunk comes behind it, as it was before."""
    letters = database.letters
    letters.insert_many([{"_id": n, "v": 0, "old": n, "tags": ["a", "b", "c"]} for n in range(9)])
    database.create_collection("signals")
    signals = {"signal_data_collection": f"{database.name}.signals"} if written else {}
    ours = connector(
        uri, database, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=3,
        collection_include_list=f"{database.name}.letters", **signals,
    )  # fmt: skip
    ours.capture()
    read, calls = MongoChunkReader.read, [0]

    def update_and_read(self: MongoChunkReader, *given: Any) -> Any:
        calls[0] += 1
        letters.update_one({"_id": 3 * calls[0] - 3}, {"$set": {"v": "before the chunk"}})
        found = read(self, *given)
        letters.update_one({"_id": 3 * calls[0] - 2}, [{"$set": {"v": 1, "tags": {"$slice": ["$tags", 2]}}}])
        letters.update_one({"_id": 3 * calls[0] - 2}, {"$unset": {"old": 1}})
        letters.update_one({"_id": 3 * calls[0] - 2}, {"$push": {"tags": "d"}})
        return found

    with patch.object(MongoChunkReader, "read", update_and_read):
        snapshot(ours, f"{database.name}.letters")
        ours.capture()
        ours.capture()
    assert calls[0] > 1
    sink(engine, ours, **NAMED).apply()
    assert documents(engine) == list(letters.find())


@pytest.mark.parametrize("end", ["delete", "replace", "drop"])
def test_a_document_that_no_one_has_need_not_be_known_if_it_goes_or_comes_whole_later(
    uri: str, database: Any, engine: sa.Engine, tmp_path: Path, end: str
) -> None:
    letters = database.letters
    ours = one_of_two(uri, database, engine, tmp_path)
    letters.update_one({"_id": 2}, {"$set": {"v": 2}})
    ours.capture()
    left = [{"_id": 1, "v": 1}]
    if end == "delete":
        letters.delete_one({"_id": 2})
    elif end == "replace":
        letters.replace_one({"_id": 2}, {"w": 1})
        letters.update_one({"_id": 2}, {"$set": {"v": 9}})
        left.append({"_id": 2, "w": 1, "v": 9})
    else:
        letters.drop()
        left = []
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    assert documents(engine) == left


def test_where_only_rows_that_are_there_are_changed_an_update_of_another_is_a_no_op(
    uri: str, database: Any, engine: sa.Engine, tmp_path: Path
) -> None:
    letters = database.letters
    ours = one_of_two(uri, database, engine, tmp_path)
    for value in (2, 3):
        letters.update_many({}, {"$set": {"v": value}})
        ours.capture()
        sink(engine, ours, **NAMED, insert__mode="update").apply()
        assert documents(engine) == [{"_id": 1, "v": value}]


def test_fields_that_are_left_out_or_called_otherwise_are_so_in_updates(
    uri: str, database: Any, engine: sa.Engine, tmp_path: Path
) -> None:
    letters = database.letters
    letters.insert_one({"_id": 1, "card": {"number": 5, "owner": "a"}, "items": [{"price": 1}, {"price": 2}], "n": 1})
    where = f"{database.name}.letters"
    rules = {"field_exclude_list": f"{where}.card.number", "field_renames": f"{where}.items.price:cost,{where}.n:m"}
    ours = connector(uri, database, tmp_path, **rules)
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    letters.update_one(
        {"_id": 1}, {"$set": {"card.number": 6, "card.owner": "b", "items.1.price": 3}, "$inc": {"n": 1}}
    )
    letters.update_one({"_id": 1}, {"$unset": {"items.0.price": ""}})
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    assert documents(engine) == [{"_id": 1, "card": {"owner": "b"}, "items": [{}, {"cost": 3}], "m": 2}]


def test_a_table_is_compared_with_its_collection(
    uri: str, client: Any, database: Any, engine: sa.Engine, tmp_path: Path
) -> None:
    work = CollectionWork(client, database.name, 9)
    work.write(40)
    ours = connector(uri, database, tmp_path)
    ours.capture()
    work.write(40)
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    count = work.collection.count_documents({})
    compared = only(verified(engine, ours, **NAMED))
    assert (compared.source, compared.target, compared.different, compared.not_compared) == (count, count, 0, "")

    def write_meanwhile() -> None:
        database.other.insert_one({})
        ours.capture()  # the position is within this batch
        work.collection.update_many({}, {"$set": {"fresh": 1}})
        ours.capture()
        sink(engine, ours, **NAMED).apply()

    compared = only(verified(engine, ours, write_meanwhile, tables=[rf"{database.name}\.letters"], **NAMED))
    assert (compared.source, compared.target, compared.different, compared.not_compared) == (count, count, 0, "")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE letters SET document = '{}' WHERE _id = (SELECT min(_id) FROM letters)")
    compared = only(verified(engine, ours, tables=[rf"{database.name}\.letters"], **NAMED))
    assert compared.different == 1


def test_the_story_of_a_row_has_the_document_after_each_change(uri: str, database: Any, tmp_path: Path) -> None:
    letters = database.letters
    letters.insert_one({"_id": 1, "v": {"a": 1}})
    ours = connector(uri, database, tmp_path)
    ours.capture()
    letters.update_one({"_id": 1}, {"$set": {"v.b": 2}})
    letters.update_one({"_id": 1}, {"$unset": {"v.a": ""}})
    ours.capture()
    table = TableId(namespace=database.name, name="letters")
    story = stories(ours).read_history(table, RowKey({"_id": "1"}))
    shown = [json.loads((change.after or {})["document"])["v"] for change in reversed(story.changes)]
    assert shown == [{"a": 1}, {"a": 1, "b": 2}, {"b": 2}]
    assert (story.row.state, json.loads((story.row.row or {})["document"])) == ("row", {"_id": 1, "v": {"b": 2}})
    assert story.row.unavailable == []


def test_the_document_is_not_known_of_a_row_whose_story_begins_with_an_update(
    uri: str, database: Any, tmp_path: Path
) -> None:
    letters = database.letters
    letters.insert_one({"_id": 1, "v": 1})
    ours = connector(uri, database, tmp_path, snapshot_mode="no_data")
    ours.capture()
    letters.update_one({"_id": 1}, {"$set": {"v": 2}})
    ours.capture()
    story = stories(ours).read_history(TableId(namespace=database.name, name="letters"), RowKey({"_id": "1"}))
    assert (story.row.state, story.row.unavailable) == ("row", ["document"])


def test_a_run_that_is_killed_at_any_statement_applies_no_update_twice(
    uri: str, client: Any, database: Any, engine: sa.Engine, tmp_path: Path
) -> None:
    """Updates that would not fit the document that they have made: a field that goes, an array that is cut."""
    letters, work = database.letters, CollectionWork(client, database.name, 7)
    letters.insert_one({"_id": "cut", "list": [*range(100)], "there": {"a": 1}})
    ours = connector(uri, database, tmp_path)
    work.write(10)
    ours.capture()
    sink(engine, ours, **NAMED).apply()
    properties = {**EQUAL, "collection.name.format": "letters", "connection.url": str(engine.url)}
    ended, number = set[bool](), 1
    while len(ended) < 2 or number < 14:
        work.write(4)
        letters.update_one({"_id": "cut"}, [{"$set": {"list": {"$slice": ["$list", 99 - number]}}}])
        letters.update_one({"_id": "cut"}, {"$unset": {"there.a": ""}})
        letters.update_one({"_id": "cut"}, {"$set": {"there": number}})
        letters.update_one({"_id": "cut"}, {"$set": {"there": {"a": number}}})
        ours.capture()
        process = start(properties, ours.changelog.storage.url, ours.name, statement=number)
        process.join(LONGEST_S)
        assert process.exitcode in (0, -9)
        ended.add(process.exitcode == 0)
        number += 1
        assert number < 60
        if number % 4 == 0:
            sink(engine, ours, **NAMED).apply()
            assert_same_documents([row["document"] for row in rows(engine, "letters")], letters.find())
    sink(engine, ours, **NAMED).apply()
    assert_same_documents([row["document"] for row in rows(engine, "letters")], letters.find())
