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
from tests.support.sources.mongodb.mongodb_work import Work, same
from tests.targets.lake.lake import Child, Lake

pytestmark = pytest.mark.spark
DATABASE = "shop"
LETTERS = f"{DATABASE}.letters"


class Ended(BaseException):
    """Nobody catches it, as nobody catches a kill."""


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
def ours(spark: SparkSession, server: MongoDb, database: Any, tmp_path: Path, kind: str) -> Lake:
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
        same([row["document"] for row in rows], database[name].find())
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
def test_tables_follow_what_becomes_of_collections(ours: Lake, database: Any) -> None:
    database.letters.insert_many([{"_id": i, "to": {"name": f"n{i}", "x.y": [i]}} for i in range(30)])
    database.letters.insert_many([{"_id": str(i)} for i in range(3)] + [{"_id": ObjectId(), "n": Decimal128("1.50")}])
    database.parcels.insert_many([{"_id": {"shop": "n", "n": i}, "weight": i / 7} for i in range(3)])
    ours.follow()
    _equal(ours, database, "letters", "parcels")

    database.letters.update_many(
        {"_id": {"$lt": 5}}, {"$push": {"to.seen": {"$each": [1, 2]}}, "$unset": {"to.name": ""}}
    )
    database.letters.delete_one({"_id": 7})
    database.parcels.rename("sent")
    database.stamps.insert_one({"_id": 1})
    database.stamps.drop()
    database.stamps.insert_one({"_id": 2})
    ours.follow()
    _equal(ours, database, "letters", "sent", "stamps")
    assert _documents(ours, "parcels") == []

    database.letters.drop()
    database.create_collection("letters")
    ours.follow()
    assert _documents(ours, "letters") == []
    database.letters.insert_many([{"_id": i, "again": True} for i in (1, "1", 2.5)])
    database.sent.rename("stamps", dropTarget=True)
    ours.follow()
    _equal(ours, database, "letters", "stamps")
    assert _documents(ours, "sent") == []


@pytest.mark.every_kind
def test_tables_are_compared_repaired_read_again_and_built_again(ours: Lake, database: Any) -> None:
    ids = [*range(25), *map(str, range(5)), ObjectId(), {"a": 1, "b": "é'"}, 2.5]
    database.letters.insert_many(
        [{"_id": id_, "n": Decimal128("1.50"), "deep": {"list": [i]}} for i, id_ in enumerate(ids)]
    )
    database.parcels.insert_one({"_id": 1})
    ours.follow()
    verified, _ = _verify(ours)
    assert verified.is_equal, verified.format_text()

    ours.sql("DELETE FROM {} WHERE _id IN ('3', '\"3\"')", LETTERS)
    ours.sql(
        "UPDATE {} SET document = '{}' WHERE _id LIKE '%$oid%' OR _id LIKE '%é%' OR _id = '2.5'".replace(
            "'{}'", "'{{}}'"
        ),
        LETTERS,
    )
    ours.sql("UPDATE {} SET _id = '1000' WHERE _id = '4'", LETTERS)
    ours.sql("INSERT INTO {} VALUES ('\"x\"', 'none')", LETTERS)
    verified, sent = _verify(ours, repair=True)
    (letters,) = [t for t in verified.tables if t.rows_differ]
    assert (letters.missing, letters.surplus, letters.different) == (3, 2, 3), verified.format_text()
    ours.follow()
    assert [signal_state(ours.connector, number) for number in sent] == [("done", "")]
    _equal(ours, database, "letters")

    ours.sql("DELETE FROM {} WHERE _id > '1'", LETTERS)
    database.signals.insert_one({"_id": "again", "type": "execute-snapshot", "data": {"data-collections": [LETTERS]}})
    database.letters.delete_one({"_id": 5})
    ours.connector.capture()
    ours.follow()
    (signal,) = [s for s in ours.connector.store.signals_of(ours.connector.name, limit=9) if s.id == "again"]
    assert (signal.channel, signal.state) == ("source", "done")
    _equal(ours, database, "letters")

    ours.sql("DELETE FROM {} WHERE _id > '1'", LETTERS)
    RebuildTables(
        ours.spark, ours.connector.changelog, ours.connector.name, location=ours.location, target=ours.kind
    ).run([f"p.{LETTERS}"])
    _equal(ours, database, "letters")
    database.letters.update_one({"_id": 1}, {"$set": {"later": True}})
    ours.follow()
    verified, _ = _verify(ours)
    assert verified.is_equal, verified.format_text()


@pytest.mark.every_kind
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_random_work_ends_equal_over_applies_that_end_anywhere(ours: Lake, database: Any, seed: int) -> None:
    work = Work(database.client, DATABASE, seed)

    def before(location: str, name: str, write: Any) -> Any:
        raise Ended

    def after(location: str, name: str, write: Any) -> Any:
        write()
        raise Ended

    for hook in (before, after, before):
        work.write(40)
        ours.connector.capture()
        ours.hook = hook
        with pytest.raises(Ended):
            ours.apply(threads=1)
        ours.hook = None
        work.write(30)
        ours.follow()
        _equal(ours, database, "letters")


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_apply_is_finished_by_the_next_one(ours: Lake, database: Any, child: Any) -> None:
    work = Work(database.client, DATABASE, 7)
    work.write(40)
    ours.follow()
    work.write(40)
    ours.connector.capture()
    one: Child = child()
    one.begin(ours, "after", 1)
    assert one.answer() == ""
    assert one.wait() == -9, one.said()
    work.write(20)
    ours.follow()
    _equal(ours, database, "letters")
