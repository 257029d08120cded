"""Snapshots of Oracle and MongoDB that other processes read: the position names the view, so readers may come at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymongo
import pytest

from airflow_provider_cdc.changelog.snapshot_exchange import reader_coordinator
from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderCoordinator
from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.spi.remote_readers import ReadGroup
from airflow_provider_cdc.sources.mongodb.snapshot import collection_snapshot
from airflow_provider_cdc.sources.oracle.snapshot import snapshot as oracle_snapshot
from dev.servers.oracle import Oracle
from tests.snapshot_readers.snapshot_events import capture_with, read_events, without_place
from tests.sources.mongodb_adapter import MongoAdapter
from tests.sources.oracle_adapter import OracleAdapter
from tests.sources.suite import INT, TEXT, Adapter
from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector
from tests.support.processes.fork import Forks
from tests.support.processes.snapshot_reader import ForkedReaders
from tests.support.sources.mongodb import mongodb_connectors

ROWS = 6_000


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.processes.snapshot_reader") as forks:
        yield forks


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as server:
        yield server


@pytest.fixture(scope="module")
def mongodb() -> Iterator[str]:
    with mongodb_connectors.deployment() as uri:
        yield uri


@pytest.fixture(params=["oracle", "mongodb"])
def db(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    server = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        if request.param == "oracle":
            yield OracleAdapter(server, stack)
        else:
            yield MongoAdapter(stack.enter_context(pymongo.MongoClient(server)), server)


@pytest.fixture
def oracle_db(oracle: Oracle) -> Iterator[OracleAdapter]:
    with ExitStack() as stack:
        yield OracleAdapter(oracle, stack)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_snapshot, "CHUNK_BLOCKS", 4)
    monkeypatch.setattr(collection_snapshot, "PART_DOCUMENTS", 500)


@pytest.fixture
def connector_factory(tmp_path: Path) -> Callable[..., Connector]:
    def build(db: Adapter, folder: str = "spark", **properties: Any) -> Connector:
        given = {"snapshot_engine": "spark", "snapshot_max_threads": 3, **properties}
        return db.connector(tmp_path / folder, **given)

    return build


def _fill(db: Adapter, table: str, rows: int) -> None:
    db.create(table, {"id": INT, "v": TEXT}, ("id",))
    if not rows:
        return
    with db.transaction() as changes:
        changes.insert(table, *({"id": n, "v": f"value {n}"} for n in range(rows)))


def _is_equal(db: Adapter, connector: Connector, *tables: str) -> bool:
    return all(connector.rows(db.collection(table).replace('"', "")) == db.rows(table) for table in tables)


def test_tables_are_equal_and_the_stream_continues_where_the_view_was(
    db: Adapter, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    _fill(db, "large", ROWS)
    _fill(db, "small", 10)
    _fill(db, "hollow", 0)
    connector, stop = connector_factory(db), threading.Event()

    def write() -> None:
        n = 0
        while not stop.wait(0.01):
            n += 1
            with db.transaction() as changes:
                changes.update("large", {"id": n * 37 % ROWS}, {"v": f"changed {n}"})
                changes.insert("small", {"id": 100 + n, "v": "new"})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        capture_with(connector, ForkedReaders(forks, connector))
    finally:
        stop.set()
        writer.join()
    capture_with(connector, ForkedReaders(forks, connector))
    assert _is_equal(db, connector, "large", "small", "hollow")
    consistent(connector)


def test_events_are_those_of_an_embedded_snapshot(
    db: Adapter, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    _fill(db, "large", ROWS)
    _fill(db, "small", 3)
    spark, embedded = connector_factory(db), connector_factory(db, "embedded", snapshot_engine="embedded")
    capture_with(spark, ForkedReaders(forks, spark))
    embedded.capture()
    ours, theirs = read_events(spark), read_events(embedded)
    assert (ours[0]["source"]["snapshot"], ours[-1]["source"]["snapshot"]) == ("first", "last")
    assert len(ours) == ROWS + 3
    assert sorted(map(without_place, ours), key=repr) == sorted(map(without_place, theirs), key=repr)
    writers = {f.path.rpartition("-")[0][-4:] for m in spark.changelog.read_manifests("test") for f in m.files}
    assert len(writers) > 1, "several readers have read"


class _ReplacedReaders(ForkedReaders):
    """Readers of which all are killed, and one comes in their place, as Spark starts one."""

    def find_error(self) -> None:
        return None


def test_a_reader_that_comes_later_reads_the_chunks_of_those_that_are_killed(
    db: Adapter, connector_factory: Callable[..., Connector], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the rows of the view, although they have changed since."""
    monkeypatch.setattr(reader_coordinator, "_LOST_S", 4.0)
    _fill(db, "large", ROWS)
    connector = connector_factory(db, snapshot_max_rows_per_second=1_500)
    readers = _ReplacedReaders(forks, connector)

    def replace_readers() -> None:
        while not list(connector.folder.glob("changelog/test/snapshots/*/results-1/*.json")):
            time.sleep(0.05)
        with db.transaction() as changes:
            changes.update("large", {"id": 7}, {"v": "after the view"})
            changes.update("large", {"id": ROWS - 7}, {"v": "after the view"})
        for number in range(3):
            readers.kill(number)
        readers.start_reader(3)

    killer = threading.Thread(target=replace_readers)
    killer.start()
    capture_with(connector, readers)
    killer.join()
    assert _is_equal(db, connector, "large")
    events = read_events(connector)
    assert sum(e["op"] == "r" for e in events) == ROWS
    assert not any("after the view" in str(e["after"]) for e in events if e["op"] == "r")
    writers = {f.path.rpartition("-")[0][-4:] for m in connector.changelog.read_manifests("test") for f in m.files}
    assert len(writers) > 1, "the reader that came later has read"
    consistent(connector)


def test_a_snapshot_begins_with_the_first_reader(
    db: Adapter, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    """A cluster may have fewer free cores than readers were asked for."""
    _fill(db, "small", 10)
    connector = connector_factory(db)
    began = time.monotonic()
    capture_with(connector, ForkedReaders(forks, connector, absent=2))
    assert time.monotonic() - began < reader_coordinator._LATE_S
    assert _is_equal(db, connector, "small")


def test_captures_killed_at_many_steps_leave_a_snapshot_that_a_later_one_completes(
    db: Adapter, connector_factory: Callable[..., Connector], forks: Forks, tmp_path: Path
) -> None:
    for table in ("one", "two", "three"):
        _fill(db, table, 60)
    connector = connector_factory(db, ".", snapshot_max_threads=2, batch_max_rows=70)
    at, died = 1, 0
    while True:
        ended = forks.start(
            "tests.support.processes.snapshot_reader:capture", folder=str(tmp_path), kind=db.kind,
            properties=connector.properties, secrets=connector.secrets, at=at,
        ).wait()  # fmt: skip
        assert ended.error == "", ended.text
        if not ended.signal:
            break
        died, at = died + 1, at + 6
        with db.transaction() as changes:
            changes.update("one", {"id": died}, {"v": f"after kill {died}"})
            changes.delete("two", {"id": died})
    assert died > 3
    assert _is_equal(db, connector, "one", "two", "three")
    consistent(connector)


def _before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when the view is there, and before a reader reads, once."""
    begin, done = ReaderCoordinator.begin_group, list[object]()

    def act_and_begin(self: ReaderCoordinator, group: ReadGroup) -> None:
        if not done:
            done.append(act() or True)
        begin(self, group)

    monkeypatch.setattr(ReaderCoordinator, "begin_group", act_and_begin)


def test_a_table_whose_structure_changes_before_it_is_read_is_read_later(
    oracle_db: OracleAdapter, connector_factory: Callable[..., Connector], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("altered", "dropped", "other"):
        _fill(oracle_db, table, 20)
    connector = connector_factory(oracle_db)

    def change() -> None:
        oracle_db.add_column("altered", "w", INT)
        oracle_db.drop_table("dropped")

    _before_reading(monkeypatch, change)
    capture_with(connector, ForkedReaders(forks, connector))
    assert _is_equal(oracle_db, connector, "altered", "other")
    assert {e["source"]["table"] for e in read_events(connector) if e["op"] == "r"} == {"altered", "other"}


def test_undo_that_is_too_short_fails_the_snapshot_and_says_what_to_raise(
    oracle: Oracle, oracle_db: OracleAdapter, connector_factory: Callable[..., Connector], forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No other reader has more undo: none is asked."""
    _fill(oracle_db, "large", 20)
    connector = connector_factory(oracle_db, snapshot_database_errors_max_retries=0)

    def lose_undo() -> None:
        with oracle_db.transaction() as changes:
            changes.update("large", {"id": 1}, {"v": "changed"})
        oracle.expire_undo()

    with monkeypatch.context() as patch:
        _before_reading(patch, lose_undo)
        with pytest.raises(SourceUnavailable, match="ORA-01555") as caught:
            capture_with(connector, ForkedReaders(forks, connector))
    assert "UNDO_RETENTION" in str(caught.value.remedy)
    assert connector.store.list_batches("test") == []
    capture_with(connector, ForkedReaders(forks, connector))
    assert _is_equal(oracle_db, connector, "large")


def test_collections_with_documents_in_columns_are_read_by_the_capture(
    mongodb: str, tmp_path: Path, forks: Forks
) -> None:
    """The rows before decide which columns there are."""
    with pymongo.MongoClient[Any](mongodb) as client:
        database = client[f"columns_{time.time_ns() // 1000 % 10**9}"]
        database.wide.insert_many([{"_id": n, f"c{n % 5}": n} for n in range(50)])
        database.texts.insert_many([{"_id": n} for n in range(50)])
        connector = mongodb_connectors.mongodb_connector(
            mongodb, tmp_path, database_include_list=database.name, document_columns_list=f"{database.name}.wide",
            snapshot_engine="spark", snapshot_max_threads=2,
        )  # fmt: skip
        capture_with(connector, ForkedReaders(forks, connector))
        events = read_events(connector)
    wide = [e["after"] for e in events if "document" not in e["after"]]
    assert len(events) - len(wide) == 50
    assert sum(row[f"c{n}"] is not None for row in wide for n in range(5)) == 50
