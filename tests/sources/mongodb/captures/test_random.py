"""Random work on a collection ends in a change log, and in a table of a relational target, that have the same documents: as texts, and as columns."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev.servers.mongodb import MongoDb
from tests.support.signals import snapshot
from tests.support.sources.mongodb import mongodb_columns
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents, draw_deployment_options
from tests.targets.database.apply.test_database_apply import rows, sink
from tests.targets.database.verify.test_verify_database import compare, only, opened, verified


@pytest.mark.parametrize("seed", range(3))
def test_random_work_ends_equal_in_change_log_and_target(
    uri: str, client: Any, database: Any, tmp_path: Path, seed: int
) -> None:
    work = CollectionWork(client, database.name, seed)
    work.write(30)
    ours = mongodb_connector(
        uri, tmp_path, database_include_list=database.name, batch_max_rows=40, snapshot_max_threads=2
    )
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    for _ in range(5):
        ours.capture()
        sink(engine, ours, collection__name__format="letters").apply()
        assert_same_documents([row["document"] for row in rows(engine, "letters")], work.collection.find())
        assert_same_documents(
            [row["document"] for row in super(type(ours), ours).rows(f"{database.name}.letters")],
            work.collection.find(),
        )
        work.write(40)


@pytest.mark.parametrize("mode", ["change_streams", "change_streams_with_pre_image"])
@pytest.mark.parametrize("seed", range(2))
def test_a_target_is_equal_where_events_say_only_what_has_changed(
    uri: str, client: Any, database: Any, tmp_path: Path, seed: int, mode: str
) -> None:
    work = CollectionWork(client, database.name, 100 + seed, images=mode.endswith("pre_image"))
    work.write(30)
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name, batch_max_rows=40, capture_mode=mode)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    for step in range(6):
        ours.capture()
        if step != 2:  # batches wait, and are applied together
            sink(engine, ours, collection__name__format="letters").apply()
            assert_same_documents([row["document"] for row in rows(engine, "letters")], work.collection.find())
        work.write(40)


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", range(1, 21))
def test_random_work_ends_equal_on_deployments_of_all_manners(tmp_path: Path, seed: int) -> None:
    """Run on all versions, with lagging majorities, gathered replies and whole updates.

    Incremental snapshots run beside it, of a capped collection, too.
    """
    random = Random(seed)
    options = draw_deployment_options(random)
    old = options["version"] < "6"
    mode = random.choice(("change_streams", "change_streams_with_pre_image", "change_streams_update_full"))
    mode = "change_streams_update_full" if old else mode
    with MongoDb(options) as server, server.connect() as client:
        images = mode.endswith("pre_image")
        work = CollectionWork(client, "shop", seed, images=images)
        client.shop.create_collection("log", capped=True, size=10**6)
        given = {"collection_exclude_list": r"shop\.log"} if images else {}
        signals = {"signal_data_collection": "cdc.signals"} if random.random() < 0.5 else {}
        ours = mongodb_connector(
            server.url(), tmp_path, database_include_list="shop", batch_max_rows=40, capture_mode=mode,
            incremental_snapshot_chunk_size=7, **signals, **given,
        )  # fmt: skip
        ours.replay.partial = True
        engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
        for turn in range(5):
            work.write(40)
            client.shop.log.insert_many([{"n": n} for n in range(10)])
            work.collection.insert_one({"_id": f"turn {turn}"})  # the work may end with a drop
            if turn in (2, 3):
                ours.store.send("test", chunks_of(r"shop\..*"))
            ours.capture()
            if turn == 3:
                ours.capture()
            sink(engine, ours).apply()
            assert_same_documents(
                [row["document"] for row in rows(engine, "test_shop_letters")], work.collection.find()
            )
            if not given:
                assert_same_documents(
                    [row["document"] for row in rows(engine, "test_shop_log")], client.shop.log.find()
                )


class FiniteWork(CollectionWork):
    """Without numbers that JSON does not have."""

    def _value(self, depth: int = 0) -> Any:
        while "nan" in (shown := repr(value := super()._value(depth)).lower()) or "inf" in shown:
            pass
        return value


def test_a_table_of_postgresql_is_equal_where_events_say_only_what_has_changed(
    uri: str, client: Any, database: Any, tmp_path: Path, postgres: Any
) -> None:
    work = FiniteWork(client, database.name, 11)
    work.write(20)
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name, capture_mode="change_streams")
    with postgres.database("sink") as name:
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": postgres.url(name)}))
        for _ in range(3):
            ours.capture()
            sink(engine, ours, collection__name__format="it's: %s").apply()
            with engine.connect() as connection:
                found = connection.exec_driver_sql("""SELECT document::text FROM "it's: %%s\"""").scalars().all()
            assert_same_documents(found, work.collection.find())
            work.write(30)
        engine.dispose()


def test_a_table_of_a_relational_target_is_compared_with_its_collection_and_repaired(
    uri: str, client: Any, database: Any, tmp_path: Path
) -> None:
    work = CollectionWork(client, database.name, 9)
    work.write(60)
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    named = {"collection__name__format": "letters"}
    ours.capture()
    sink(engine, ours, **named).apply()
    count = work.collection.count_documents({})
    compared = only(verified(engine, ours, **named))
    assert (compared.source, compared.target, compared.different) == (count, count, 0)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE letters SET document = '{}' WHERE _id = (SELECT min(_id) FROM letters)")
        connection.exec_driver_sql("DELETE FROM letters WHERE _id = (SELECT max(_id) FROM letters)")
    with opened(ours) as verification:
        found = compare(engine, ours, verification, keys=True, **named)
        compared = only(found)
        assert (compared.missing, compared.surplus, compared.different) == (1, 0, 1)
        verification.send(verification.build_repairs(found.to_document()), "test")
    ours.capture()
    sink(engine, ours, **named).apply()
    assert_same_documents([row["document"] for row in rows(engine, "letters")], work.collection.find())


COLUMNS = {"document_columns_list": r".*\.letters", "document_columns_depth": 2, "document_columns_max": 40}
"""Fewer columns than the work has fields and types."""
MODES: list[dict[str, Any]] = [
    {"capture_mode": "change_streams_update_full"},
    {"capture_mode": "change_streams_update_full_with_pre_image", "capture_mode_full_update_type": "post_image"},
]


def columns_are_equal(connector: MongoConnector, found: list[dict[str, Any]], collection: Any) -> None:
    """Assert that rows are the documents of a collection, by the newest schema of the change log."""
    (schema,) = (one for one in _schemas(connector).values() if one.id.name == "letters")
    mongodb_columns.assert_same_documents(found, schema, collection, 2)


def _schemas(connector: MongoConnector) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for manifest in connector.changelog.read_manifests(connector.name):
        found |= {topic: versions[max(versions, key=int)] for topic, versions in manifest.schemas.items()}
    return found


@pytest.mark.parametrize("mode", MODES, ids=["lookup", "images"])
def test_random_work_ends_equal_in_tables_of_columns(
    uri: str, client: Any, database: Any, tmp_path: Path, mode: dict[str, Any]
) -> None:
    database.create_collection("letters", changeStreamPreAndPostImages={"enabled": True})
    work = CollectionWork(client, database.name, len(mode), drops=mode is MODES[0])
    work.write(60)
    given = {**COLUMNS, **mode, "batch_max_rows": 40, "snapshot_max_threads": 2}
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name, **given)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    for turn in range(4):
        ours.capture()
        if turn == 2:  # chunks beside the stream find columns, too
            ours.store.send("test", chunks_of(f"{database.name}.letters"))
            work.write(30)
            ours.capture()
        sink(engine, ours, collection__name__format="letters").apply()
        columns_are_equal(ours, rows(engine, "letters"), work.collection)
        columns_are_equal(ours, super(type(ours), ours).rows(f"{database.name}.letters"), work.collection)
        work.write(40)


def chunks_of(table: str) -> SentSignal:
    data = json.dumps({"type": "incremental", "data-collections": [table]})
    return SentSignal("chunks", "execute-snapshot", data, "airflow", None, "test")


def test_a_table_of_columns_is_compared_with_its_collection_and_repaired(
    uri: str, client: Any, database: Any, tmp_path: Path
) -> None:
    """The comparison gives the same columns to the same fields, though it meets the documents in another order."""
    work = CollectionWork(client, database.name, 9)
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name, **COLUMNS)
    work.write(1)
    ours.capture()
    work.write(60)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    named = {"collection__name__format": "letters"}
    ours.capture()
    sink(engine, ours, **named).apply()
    count = work.collection.count_documents({})
    compared = only(verified(engine, ours, **named))
    assert (compared.source, compared.target, compared.different) == (count, count, 0)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE letters SET list = '[]' WHERE _id = (SELECT min(_id) FROM letters)")
        connection.exec_driver_sql("DELETE FROM letters WHERE _id = (SELECT max(_id) FROM letters)")
    with opened(ours) as verification:
        found = compare(engine, ours, verification, keys=True, **named)
        compared = only(found)
        assert (compared.missing, compared.surplus, compared.different) == (1, 0, 1)
        verification.send(verification.build_repairs(found.to_document()), "test")
    ours.capture()
    sink(engine, ours, **named).apply()
    columns_are_equal(ours, rows(engine, "letters"), work.collection)


def test_a_table_keeps_its_form_until_it_is_read_again_as_the_warning_says(
    uri: str, client: Any, database: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Equal at any time: events, chunks and comparisons have the form of the table, whatever the property says meanwhile."""
    work, quiet = CollectionWork(client, database.name, 12), database.quiet
    work.write(40)
    quiet.insert_many([{"_id": n, "v": n} for n in range(3)])
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")

    def target(table: str = "letters") -> list[dict[str, Any]]:
        ours.capture()
        sink(engine, ours).apply()
        return rows(engine, f"test_{database.name}_{table}")

    def equal(*, columns: bool) -> None:
        found = target()
        if columns:
            columns_are_equal(ours, found, work.collection)
        else:
            assert_same_documents([row["document"] for row in found], work.collection.find())

    def compare_tables() -> dict[str, tuple[str, int, int]]:
        found = verified(engine, ours).tables
        return {t.topic.rpartition(".")[2]: (t.problem, t.source, t.missing + t.surplus + t.different) for t in found}

    equal(columns=False)
    for expected in (True, False):
        ours.properties = {name: v for name, v in ours.properties.items() if name != "document.columns.list"}
        if expected:
            ours.properties |= {"document.columns.list": r".*\.(letters|quiet)", "document.columns.depth": 2}
        caplog.clear()
        ours.capture()
        messages = {
            m.split()[2]: m
            for m in caplog.messages
            if m.startswith("Rows of") and "document.columns.list has changed" in m
        }
        assert set(messages) == {f"{database.name}.letters", f"{database.name}.quiet"}
        work.write(20)
        equal(columns=not expected)
        ours.store.send("test", chunks_of(f"{database.name}.letters"))
        work.write(10)
        equal(columns=not expected)
        assert compare_tables() == {"letters": ("", work.collection.count_documents({}), 0), "quiet": ("", 3, 0)}
        caplog.clear()
        ours.capture()
        assert not [m for m in caplog.messages if m.startswith("Rows of")], "it is told once"
        for message in messages.values():
            command = shlex.split(message.rpartition("new form: ")[2])
            assert (command[:4], command[5:]) == (["airflow", "cdc", "snapshot", "test"], ["--type", "blocking"])
            snapshot(ours, command[4], type="blocking")
        ours.capture()
        work.write(10)
        equal(columns=expected)
        assert all(row["document"] is None for row in target()) is expected
        assert [(row["v"], row["document"]) for row in target("quiet")] == (
            [(n, None) for n in range(3)] if expected else [(None, f'{{"_id": {n},"v": {n}}}') for n in range(3)]
        )
        assert compare_tables() == {"letters": ("", work.collection.count_documents({}), 0), "quiet": ("", 3, 0)}
