"""Collections of a MongoDB, our stand-in, in the lake: what becomes of tables, comparing and repairing them, and an apply that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.reference_capture import open_verification
from airflow_provider_cdc.verify.verification_report import VerificationReport
from dev.servers.mongodb import MongoDb
from tests.support.signals import signal_state
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents
from tests.targets.lake.lake import Child, Lake

pytestmark = pytest.mark.spark
DATABASE = "shop"
LETTERS = f"{DATABASE}.letters"


class RunEnded(BaseException):
    """No one catches it, as no one catches a kill."""


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDb]:
    with MongoDb({"noop_seconds": 1}) as started:
        yield started


@pytest.fixture
def database(server: MongoDb) -> Iterator[Any]:
    with server.connect() as client:
        client.drop_database(DATABASE)
        yield client[DATABASE]


@pytest.fixture
def mongodb_lake(spark: SparkSession, server: MongoDb, database: Any, tmp_path: Path, kind: str) -> Lake:
    """Tables of the collections of one database."""
    connector = mongodb_connector(
        server.url(), tmp_path, topic_prefix="p", database_include_list=DATABASE, batch_max_rows=40,
        signal_data_collection=f"{DATABASE}.signals", incremental_snapshot_chunk_size=10,
    )  # fmt: skip
    database.create_collection("signals")
    return Lake(spark, tmp_path, connector, kind=kind)


def _documents(lake: Lake, name: str) -> list[str]:
    return [row["document"] for row in lake.rows(f"{DATABASE}.{name}", "document")]


def _equal(lake: Lake, database: Any, *names: str) -> None:
    """Tables have the documents of their collections, each by one key."""
    for name in names:
        rows = lake.rows(f"{DATABASE}.{name}", "_id", "document")
        assert_same_documents([row["document"] for row in rows], database[name].find())
        assert len({row["_id"] for row in rows}) == len(rows) == database[name].count_documents({})


def _verify(lake: Lake, *, repair: bool = False) -> tuple[VerificationReport, list[int]]:
    """:return: what was found, and the signals that were sent"""
    with open_verification(
        lake.connector.definition(), lake.connector.state_url, secrets=lake.connector.secrets
    ) as verification:
        wait = verification._wait

        def waited(position: Any, wait_s: float) -> None:
            lake.connector.capture()
            wait(position, wait_s)

        verification._wait = waited  # type: ignore[method-assign]
        plan = verification.prepare_plan(wait_s=60)
        verified = VerifyTables(
            lake.spark, verification.scratch, lake.connector.name, location=lake.location, target=lake.kind, threads=2, plan=plan,
            source=lake.connector.changelog, keys=verification.scratch.storage.build_uri("keys") if repair else "", values=True,
        ).run()  # fmt: skip
        repairs = verification.build_repairs(verified.to_document()) if repair else []
        return verified, list(verification.send(repairs, "me").values())


@pytest.mark.every_kind
def test_tables_follow_what_becomes_of_collections(mongodb_lake: Lake, database: Any) -> None:
    database.letters.insert_many([{"_id": i, "to": {"name": f"n{i}", "x.y": [i]}} for i in range(30)])
    database.letters.insert_many([{"_id": str(i)} for i in range(3)] + [{"_id": ObjectId(), "n": Decimal128("1.50")}])
    database.parcels.insert_many([{"_id": {"shop": "n", "n": i}, "weight": i / 7} for i in range(3)])
    mongodb_lake.follow()
    _equal(mongodb_lake, database, "letters", "parcels")

    database.letters.update_many(
        {"_id": {"$lt": 5}}, {"$push": {"to.seen": {"$each": [1, 2]}}, "$unset": {"to.name": ""}}
    )
    database.letters.delete_one({"_id": 7})
    database.parcels.rename("sent")
    database.stamps.insert_one({"_id": 1})
    database.stamps.drop()
    database.stamps.insert_one({"_id": 2})
    mongodb_lake.follow()
    _equal(mongodb_lake, database, "letters", "sent", "stamps")
    assert _documents(mongodb_lake, "parcels") == []

    database.letters.drop()
    database.create_collection("letters")
    mongodb_lake.follow()
    assert _documents(mongodb_lake, "letters") == []
    database.letters.insert_many([{"_id": i, "again": True} for i in (1, "1", 2.5)])
    database.sent.rename("stamps", dropTarget=True)
    mongodb_lake.follow()
    _equal(mongodb_lake, database, "letters", "stamps")
    assert _documents(mongodb_lake, "sent") == []


@pytest.mark.every_kind
def test_tables_are_compared_repaired_read_again_and_built_again(mongodb_lake: Lake, database: Any) -> None:
    ids = [*range(25), *map(str, range(5)), ObjectId(), {"a": 1, "b": "é'"}, 2.5]
    database.letters.insert_many(
        [{"_id": id_, "n": Decimal128("1.50"), "deep": {"list": [i]}} for i, id_ in enumerate(ids)]
    )
    database.parcels.insert_one({"_id": 1})
    mongodb_lake.follow()
    verified, _ = _verify(mongodb_lake)
    assert verified.is_equal, verified.format_text()

    mongodb_lake.sql("DELETE FROM {} WHERE _id IN ('3', '\"3\"')", LETTERS)
    mongodb_lake.sql(
        "UPDATE {} SET document = '{}' WHERE _id LIKE '%$oid%' OR _id LIKE '%é%' OR _id = '2.5'".replace(
            "'{}'", "'{{}}'"
        ),
        LETTERS,
    )
    mongodb_lake.sql("UPDATE {} SET _id = '1000' WHERE _id = '4'", LETTERS)
    mongodb_lake.sql("INSERT INTO {} VALUES ('\"x\"', 'none')", LETTERS)
    verified, sent = _verify(mongodb_lake, repair=True)
    (letters,) = [t for t in verified.tables if t.rows_differ]
    assert (letters.missing, letters.surplus, letters.different) == (3, 2, 3), verified.format_text()
    mongodb_lake.follow()
    assert [signal_state(mongodb_lake.connector, number) for number in sent] == [("done", "")]
    _equal(mongodb_lake, database, "letters")

    mongodb_lake.sql("DELETE FROM {} WHERE _id > '1'", LETTERS)
    database.signals.insert_one({"_id": "again", "type": "execute-snapshot", "data": {"data-collections": [LETTERS]}})
    database.letters.delete_one({"_id": 5})
    mongodb_lake.connector.capture()
    mongodb_lake.follow()
    (signal,) = [
        s for s in mongodb_lake.connector.store.signals_of(mongodb_lake.connector.name, limit=9) if s.id == "again"
    ]
    assert (signal.channel, signal.state) == ("source", "done")
    _equal(mongodb_lake, database, "letters")

    mongodb_lake.sql("DELETE FROM {} WHERE _id > '1'", LETTERS)
    RebuildTables(
        mongodb_lake.spark,
        mongodb_lake.connector.changelog,
        mongodb_lake.connector.name,
        location=mongodb_lake.location,
        target=mongodb_lake.kind,
    ).run([f"p.{LETTERS}"])
    _equal(mongodb_lake, database, "letters")
    database.letters.update_one({"_id": 1}, {"$set": {"later": True}})
    mongodb_lake.follow()
    verified, _ = _verify(mongodb_lake)
    assert verified.is_equal, verified.format_text()


@pytest.mark.every_kind
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_random_work_ends_equal_over_applies_that_end_anywhere(mongodb_lake: Lake, database: Any, seed: int) -> None:
    work = CollectionWork(database.client, DATABASE, seed)

    def before(location: str, name: str, write: Any) -> Any:
        raise RunEnded

    def after(location: str, name: str, write: Any) -> Any:
        write()
        raise RunEnded

    for hook in (before, after, before):
        work.write(40)
        mongodb_lake.connector.capture()
        mongodb_lake.hook = hook
        with pytest.raises(RunEnded):
            mongodb_lake.apply(threads=1)
        mongodb_lake.hook = None
        work.write(30)
        mongodb_lake.follow()
        _equal(mongodb_lake, database, "letters")


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_apply_is_finished_by_the_next_one(mongodb_lake: Lake, database: Any, child: Any) -> None:
    work = CollectionWork(database.client, DATABASE, 7)
    work.write(40)
    mongodb_lake.follow()
    work.write(40)
    mongodb_lake.connector.capture()
    one: Child = child()
    one.begin(mongodb_lake, "after", 1)
    assert one.answer() == ""
    assert one.wait() == -9, one.said()
    work.write(20)
    mongodb_lake.follow()
    _equal(mongodb_lake, database, "letters")
