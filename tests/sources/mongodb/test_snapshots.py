"""Reading collections whose keys mix types, in parts, in chunks and as they were at one moment."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import bson
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, OperationFailure
from pymongo.write_concern import WriteConcern

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mongodb.collection_tables import collection_schema
from airflow_provider_cdc.sources.mongodb.snapshot import chunk_reader, collection_rows, collection_snapshot
from dev.servers.mongodb import MongoDb, ShardedCluster
from tests.support.change_log.rendered import capture_records
from tests.support.signals import snapshot as ask_for
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector

KEYS: list[Any] = [
    MinKey(), None, -5, Int64(2**40), 2.5, Decimal128("7.10"), "", "a", 'q"${x}', {}, {"a": 1}, {"a": {"b": [1]}}, Binary(b"\x00\x01"), Binary(b"x", 5),
    ObjectId("596e275826f08b2730779e1f"), False, True, DatetimeMS(-(10**17)), dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 1), DatetimeMS(10**17), Timestamp(1, 2), MaxKey(),
]  # fmt: skip
"""One or more keys of each type, in the order of the index."""


@pytest.fixture
def mixed_collection(database: Any) -> tuple[TableId, list[Any]]:
    """A collection with a key of each type, and numbers and texts besides; its keys in their order."""
    keys = [*KEYS[:5], *range(10, 60), *KEYS[5:9], *(f"text {i:03}" for i in range(40)), *KEYS[9:]]
    documents = [{"_id": key, "n": n} for n, key in enumerate(keys)]
    random.Random(1).shuffle(documents)
    database.mixed.insert_many(documents)
    there = database.mixed.with_options(CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS))
    return TableId(namespace=database.name, name="mixed"), [d["_id"] for d in there.find(hint={"_id": 1})]


def test_chunks_go_through_keys_of_every_type_once_and_in_order(
    uri: str, tmp_path: Path, mixed_collection: tuple[TableId, list[Any]]
) -> None:
    table, keys = mixed_collection
    connector = mongodb_connector(uri, tmp_path)
    with (
        open_source(connector.definition(), connector.secrets) as source,
        source.open_chunk_reader(signals=None) as reader,
    ):
        rows = KeyRange(collection_schema(table), ("_id",))
        upto, after, found = reader.read_last_key(rows), None, []
        for _ in range(len(keys)):
            chunk = reader.read(KeyRange(rows.table, ("_id",), after=after, upto=upto), 7)
            read = [row["_id"] for block in chunk.rows for row in (block.after or []).to_pylist()]
            assert len(read) <= 7
            found += read
            after = chunk.last or after
            if chunk.complete or chunk.last == upto:
                break
        assert len(found) == len({*found}) == len(keys)
        until = reader.read(
            KeyRange(rows.table, ("_id",), upto=reader.to_source_keys(rows.table, ["_id"], [[found[8]]])[0]), 100
        )
        assert [row["_id"] for block in until.rows for row in (block.after or []).to_pylist()] == found[:9]
        given: list[Key] = reader.to_source_keys(rows.table, ["_id"], [[text] for text in found[::9]])
        looked_up = reader.read(KeyRange(rows.table, ("_id",), keys=tuple(given)), 100)
        assert [row["_id"] for block in looked_up.rows for row in (block.after or []).to_pylist()] == found[::9]
        first, last = reader.to_source_keys(rows.table, ["_id"], [[found[10]], [found[30]]])
        part = reader.read(KeyRange(rows.table, ("_id",), first=first, end=last), 100)
        assert [row["_id"] for block in part.rows for row in (block.after or []).to_pylist()] == found[10:31]
        assert reader.read_last_key(KeyRange(rows.table, ("_id",), first=first, end=last)) == part.last
        for one in (first, last):  # bounds of a query may not be equal
            alone = KeyRange(rows.table, ("_id",), first=one, end=one)
            assert reader.as_events([reader.read_last_key(alone) or []]) == [one]
            assert len(reader.read(alone, 100)) == 1
        nothing = reader.read(KeyRange(rows.table, ("_id",), after=last, upto=last), 100)
        assert (
            nothing.complete,
            [row["_id"] for block in nothing.rows for row in (block.after or []).to_pylist()],
        ) == (True, [found[30]])


def test_the_offset_of_a_snapshot_that_ended_early_has_its_position_and_the_collections_that_are_left(
    uri: str, database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        database[name].insert_many([{"_id": n} for n in range(3)])
    connector = mongodb_connector(
        uri, tmp_path, database_include_list=database.name, batch_max_rows=1, snapshot_max_threads=1
    )
    read, positions = collection_snapshot.MongoSnapshot.read, []

    def read_or_fail(session: collection_snapshot.MongoSnapshot, chunk: SnapshotChunk) -> Any:
        positions.append(session.position.to_json())
        if chunk.table.name == "b":
            raise AutoReconnect("gone")
        yield from read(session, chunk)

    with monkeypatch.context() as patched:
        patched.setattr(collection_snapshot.MongoSnapshot, "read", read_or_fail)
        with pytest.raises(AutoReconnect):
            connector.capture()
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position == positions[0]
    assert [*offset.snapshot.pending] == [f"{database.name}.b"]
    database.a.insert_one({"_id": 3})
    database.b.insert_one({"_id": 3})
    connector.capture()
    ended = connector.store.load_offset("test").offset
    assert ended is not None
    assert not ended.snapshot.pending
    for name in ("a", "b"):
        assert [row["_id"] for row in connector.documents(f"{database.name}.{name}")] == [0, 1, 2, 3]
    assert connector.replay.operations["r"] == 3 + 4, "the rows of a are not read again"


def test_parts_hold_each_document_once_whatever_the_type_of_its_key(
    uri: str, tmp_path: Path, mixed_collection: tuple[TableId, list[Any]]
) -> None:
    table, keys = mixed_collection
    connector = mongodb_connector(uri, tmp_path)
    with (
        patch.object(collection_snapshot, "PART_DOCUMENTS", 2),
        patch.object(collection_snapshot, "SAMPLES", 1),  # so that nearly every key is the end of a part
        open_source(connector.definition(), connector.secrets) as source,
        source.open_snapshot([table], readers=2) as session,
    ):
        parts = session.split_table(table)
        assert len(parts) > 20
        read = [row["_id"] for part in parts for block in session.read(part) for row in (block.after or []).to_pylist()]
    assert len(read) == len({*read}) == len(keys)


@pytest.mark.parametrize(("low", "high"), [(MaxKey(), None), (None, MinKey()), (None, MaxKey()), (MinKey(), None)])
def test_a_part_that_begins_at_the_largest_key_or_ends_at_the_smallest_is_read(
    uri: str, tmp_path: Path, database: Any, low: Any, high: Any
) -> None:
    """A server has no empty ranges, and refuses such bounds (code 51175)."""
    database.ends.insert_many([{"_id": MinKey()}, {"_id": 1}, {"_id": MaxKey()}])
    table = TableId(namespace=database.name, name="ends")
    ends = [None if key is None else RawBSONDocument(bson.encode({"_id": key})) for key in (low, high)]
    connector = mongodb_connector(uri, tmp_path)
    with (
        open_source(connector.definition(), connector.secrets) as source,
        source.open_snapshot([table], readers=1) as session,
    ):
        part = SnapshotChunk(table, collection_snapshot._condition(ends[0], ends[1]))
        found = [row["_id"] for block in session.read(part) for row in (block.after or []).to_pylist()]
    keys = ['{"$minKey": 1}', "1", '{"$maxKey": 1}']
    assert (
        found
        == {(True, True): keys[2:], (False, False): [], (False, True): keys[:2], (True, False): keys}[
            low is not None, isinstance(low or high, MaxKey)
        ]
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_readers_as_configured_read_at_the_same_time(
    uri: str, tmp_path: Path, database: Any, threads: int
) -> None:
    """They meet at a barrier, which opens for so many only."""
    for name in "abc":
        database[name].insert_many([{"_id": n} for n in range(4)])
    barrier, lock = threading.Barrier(threads, timeout=60), threading.Lock()
    reading, seen = 0, []
    read = collection_snapshot.MongoSnapshot.read

    def count_and_read(self: Any, chunk: Any) -> Any:
        nonlocal reading
        with lock:
            reading += 1
            seen.append(reading)
        barrier.wait()
        yield from read(self, chunk)
        with lock:
            reading -= 1

    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, snapshot_max_threads=threads)
    with patch.object(collection_snapshot.MongoSnapshot, "read", count_and_read):
        connector.capture()
    assert (max(seen), len(seen)) == (threads, 3)
    for name in "abc":
        assert len(connector.documents(f"{database.name}.{name}")) == 4


def test_what_is_written_while_a_snapshot_reads_is_streamed_from_its_moment_on(
    uri: str, tmp_path: Path, database: Any
) -> None:
    orders = database.orders
    orders.insert_many([{"_id": i, "n": 0} for i in range(30)])
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, snapshot_fetch_size=4)
    more, written = collection_rows.RawCursor.fetch_reply, []

    def write_and_read(self: Any, **options: Any) -> Any:
        if not written:
            written.append(orders.insert_one({"_id": 100}))
            orders.update_one({"_id": 29}, {"$set": {"n": 1}})
            orders.delete_one({"_id": 28})
        return more(self, **options)

    with patch.object(collection_rows.RawCursor, "fetch_reply", write_and_read):
        found = capture_records(connector)
    found += capture_records(connector)
    values = [(json.loads(r["key"]["id"]), r["value"]) for r in found if r["value"] is not None]
    assert [(key, json.loads(v["after"])["n"]) for key, v in values if v["op"] == "r"] == [(i, 0) for i in range(30)]
    assert [(key, v["op"]) for key, v in values if v["op"] != "r"] == [(100, "c"), (29, "u"), (28, "d")]


def test_a_reader_that_is_interrupted_goes_on_behind_any_key(
    uri: str, tmp_path: Path, mixed_collection: tuple[TableId, list[Any]]
) -> None:
    table, keys = mixed_collection
    connector = mongodb_connector(uri, tmp_path, snapshot_fetch_size=2, connect_backoff_initial_delay_ms=1)
    with (
        patch.object(collection_rows.RawCursor, "fetch_reply", side_effect=AutoReconnect("gone")),
        open_source(connector.definition(), connector.secrets) as source,
        source.open_snapshot([table], readers=1) as session,
    ):
        (part,) = session.split_table(table)
        read = [row["_id"] for block in session.read(part) for row in (block.after or []).to_pylist()]
    assert len(read) == len({*read}) == len(keys)


def test_a_reader_that_comes_too_late_for_the_moment_reads_on_as_it_is_now(
    uri: str, tmp_path: Path, database: Any, caplog: pytest.LogCaptureFixture
) -> None:
    database.orders.insert_many([{"_id": i, "n": 0} for i in range(30)])
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, snapshot_fetch_size=4)
    more, calls = collection_rows.RawCursor.fetch_reply, [0]

    def too_old(self: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            database.orders.update_many({}, {"$set": {"n": 1}})
            raise OperationFailure("Read timestamp is older than the oldest available timestamp.", 239)
        return more(self, **options)

    with patch.object(collection_rows.RawCursor, "fetch_reply", too_old):
        connector.capture()
    assert "no longer has" in caplog.text
    connector.replay.partial = True
    connector.capture()
    result = connector.changelog.read_manifests("test")
    assert sum(f.counts.get("r", 0) for m in result for f in m.files) == 30


def test_filters_of_snapshots(uri: str, tmp_path: Path, database: Any) -> None:
    database.orders.insert_many([{"_id": i, "at": dt.datetime(2026, 1, 1 + i)} for i in range(10)])
    name = f"{database.name}.orders"
    overrides = "snapshot.collection.filter.overrides"
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    connector.properties |= {
        overrides: name,
        f"{overrides}.{name}": '{"at": {"$gte": {"$date": "2026-01-06T00:00:00Z"}}}',
    }
    connector.capture()
    assert sorted(d["_id"] for d in connector.documents(name)) == [5, 6, 7, 8, 9]
    database.orders.insert_one({"_id": 100})
    assert connector.capture().events == 1


@pytest.mark.parametrize("signals", [False, True], ids=["moments", "watermarks"])
def test_capped_collections_are_read_as_they_are_before_8_0(
    tmp_path: Path, signals: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The server does not show them as they were at one moment; what changes meanwhile comes by the stream."""
    with MongoDb({"version": "7.0.14"}) as server, server.connect() as client:
        client.shop.create_collection("log", capped=True, size=100_000)
        client.shop.log.insert_many([{"_id": n, "v": 0} for n in range(25)])
        given: dict[str, Any] = {"signal_data_collection": "cdc.signals"} if signals else {}
        connector = mongodb_connector(
            server.url(), tmp_path, database_include_list="shop", incremental_snapshot_chunk_size=10, **given
        )
        assert connector.capture().events == 25
        assert "capped" in caplog.text
        caplog.clear()
        requested, written = chunk_reader.MongoChunkReader._find_documents, []

        by_majority = client.shop.get_collection("log", write_concern=WriteConcern("majority"))

        def write_and_read(self: Any, rows: KeyRange, at: Any, also: Any, options: Any, limit: int, *more: Any) -> Any:
            """Change documents of the chunk that is about to be read: the reader sees them as they are then."""
            if limit > 1 and len(written) < 3:
                first = int(json.loads(str(rows.after[0]))["$numberInt"]) + 1 if rows.after else 0
                by_majority.update_one({"_id": first}, {"$inc": {"v": 1}})
                written.append(by_majority.insert_one({"_id": first + (1 + len(written)) / 8, "v": 0}))
            return requested(self, rows, at, also, options, limit, *more)

        ask_for(connector, "shop.log")
        with patch.object(chunk_reader.MongoChunkReader, "_find_documents", write_and_read):
            found = capture_records(connector)
        found += capture_records(connector)
        assert "capped" in caplog.text
        new = [r["value"]["op"] for r in found if json.loads(r["key"]["id"]) % 1]
        assert new == ["c"] * 3, "a chunk gives no document that the stream gives meanwhile"
        there = sorted(client.shop.log.find(), key=lambda d: d["_id"])
        assert sorted(connector.documents("shop.log"), key=lambda d: d["_id"]) == there
        assert sum(d["v"] for d in there) == 3


def test_rows_of_a_capped_collection_are_asked_for_once_more_where_updates_come_without_documents(
    tmp_path: Path,
) -> None:
    """They would be waited for without end, as the server never shows what they were."""
    with MongoDb({"version": "7.0.14"}) as server, server.connect() as client:
        client.shop.create_collection("log", capped=True, size=100_000)
        client.shop.log.insert_one({"_id": 1, "v": 0})
        connector = mongodb_connector(server.url(), tmp_path)
        with (
            open_source(connector.definition(), connector.secrets) as source,
            source.open_chunk_reader(signals=None) as reader,
        ):
            table = collection_schema(TableId(namespace="shop", name="log"))
            rows = KeyRange(table, ("_id",), keys=(["1"],))
            (block,) = reader.read_at_position(rows, source.current_position()) or []
            assert [row["_id"] for row in block.after.to_pylist()] == ["1"]


@pytest.mark.slow
def test_documents_of_one_key_on_several_shards_are_read_once_each_over_an_interruption(tmp_path: Path) -> None:
    with ShardedCluster({"noop_seconds": 1}) as cluster, cluster.connect() as client:
        client.admin.command({"shardCollection": "shop.orders", "key": {"k": 1}})
        client.admin.command({"split": "shop.orders", "middle": {"k": 5}})
        client.admin.command({"moveChunk": "shop.orders", "find": {"k": 7}, "to": "s2"})
        client.shop.orders.insert_many([{"_id": n, "k": k} for n in range(3) for k in (1, 7)])
        connector = mongodb_connector(
            cluster.router.url(), tmp_path, snapshot_fetch_size=3, connect_backoff_initial_delay_ms=1
        )
        table = TableId(namespace="shop", name="orders")
        more, calls = collection_rows.RawCursor.fetch_reply, []

        def fail_first_read(self: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:  # between the two documents of a key
                raise AutoReconnect("gone")
            return more(self, **options)

        with (
            patch.object(collection_rows.RawCursor, "fetch_reply", fail_first_read),
            open_source(connector.definition(), connector.secrets) as source,
            source.open_snapshot([table], readers=1) as session,
        ):
            (part,) = session.split_table(table)
            read = [row["document"] for block in session.read(part) for row in (block.after or []).to_pylist()]
        assert calls
        found = sorted((json.loads(text)["_id"], json.loads(text)["k"]) for text in read)
        assert found == [(n, k) for n in range(3) for k in (1, 7)]
