"""Snapshots that other processes read, on a real MariaDB and MySQL: one view, every row once, the form of an embedded snapshot."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.snapshot_exchange import reader_coordinator
from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderCoordinator
from airflow_provider_cdc.changelog.snapshot_exchange.signed_documents import Assignment, SignedDocuments
from airflow_provider_cdc.core.errors import ChangeLogDamaged, ConfigError, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.core.spi.remote_readers import ChunkTask, ReadGroup
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.mysql.snapshot import snapshot_session
from tests.snapshot_readers.snapshot_events import capture_with, read_events, without_place
from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector, memory_connector, mysql_connector
from tests.support.processes.fork import Forks
from tests.support.processes.snapshot_reader import ForkedReaders
from tests.support.signals import send, signal_state
from tests.support.sources.mysql.workload import source_rows
from tests.support.workloads.fill import fill_table


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.processes.snapshot_reader") as forks:
        yield forks


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_session, "CHUNK_ROWS", 3_000)


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    server = request.getfixturevalue(request.param)
    with server.database("shared") as database:
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda folder="spark", **properties: mysql_connector(
        db.server, tmp_path / folder, "mariadb" if type(db.server).__name__ == "MariaDb" else "mysql",
        **{"database_include_list": db.name, "snapshot_engine": "spark", "snapshot_max_threads": 3, **properties},
    )  # fmt: skip


def test_tables_are_equal_and_the_stream_continues_where_the_view_was(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    fill_table(db, "large", 30_000)
    fill_table(db, "small", 10)
    db.sql(
        "CREATE TABLE hollow (id INT PRIMARY KEY)",
        "CREATE TABLE bag (a INT, b TEXT)",
        "INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
    )
    connector = connector_factory()
    stop = threading.Event()

    def write() -> None:
        n = 0
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                n += 1
                cursor.execute(f"UPDATE {db.name}.large SET v = 'changed {n}' WHERE id = {n * 37 % 30_000 + 1}")
                cursor.execute(f"INSERT INTO {db.name}.small VALUES ({100 + n}, 'new')")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        capture_with(connector, ForkedReaders(forks, connector))
    finally:
        stop.set()
        writer.join()
    capture_with(connector, ForkedReaders(forks, connector))
    for table in ("large", "small", "hollow", "bag"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table), table
    consistent(connector)


def test_events_have_the_form_of_an_embedded_snapshot(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    fill_table(db, "large", 30_000)
    fill_table(db, "small", 3)
    db.sql(
        "CREATE TABLE hollow (id INT PRIMARY KEY)",
        "CREATE TABLE solo (id INT PRIMARY KEY)",
        "INSERT INTO solo VALUES (1)",
    )
    spark, embedded = connector_factory(), connector_factory("embedded", snapshot_engine="embedded")
    capture_with(spark, ForkedReaders(forks, spark))
    embedded.capture()
    for connector in (spark, embedded):
        events = read_events(connector)
        assert Counter(e["source"]["snapshot"] for e in events if e["source"]["snapshot"] != "true").keys() >= {
            "first",
            "last",
        }
        assert events[0]["source"]["snapshot"] == "first"
        assert events[-1]["source"]["snapshot"] == "last"
        assert len(events) == 30_004
    ours, theirs = (sorted(map(without_place, read_events(c)), key=repr) for c in (spark, embedded))
    assert ours == theirs


def test_chunks_of_a_reader_that_is_killed_are_read_by_others_in_the_same_view(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_coordinator, "_LOST_S", 5.0)
    fill_table(db, "large", 30_000)
    connector = connector_factory(snapshot_max_rows_per_second=6_000)
    readers = ForkedReaders(forks, connector)

    def kill_when_reading() -> None:
        while not list(connector.folder.glob("changelog/test/snapshots/*/group-1.json")):
            time.sleep(0.05)
        db.sql("UPDATE large SET v = 'after the view' WHERE id % 100 = 0")
        time.sleep(1)
        readers.kill(0)

    killer = threading.Thread(target=kill_when_reading)
    killer.start()
    capture_with(connector, readers)
    killer.join()
    assert connector.rows(f"{db.name}.large") == source_rows(db.server, db.name, "large")
    assert sum(batch.events for batch in connector.store.list_batches("test")) == 30_300
    consistent(connector)


def test_a_snapshot_without_readers_names_the_job(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    connector = connector_factory()
    readers = ForkedReaders(forks, connector, absent=3)
    readers.find_error = lambda: SourceUnavailable("The Spark job has failed: no executor.")  # type: ignore[method-assign]
    with pytest.raises(SourceUnavailable, match="no executor"):
        capture_with(connector, readers)
    with pytest.raises(ConfigError, match="snapshot_job"):
        connector.capture()


def test_one_blocking_snapshot_is_read_by_others_and_is_refused_where_the_capture_has_no_job(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks
) -> None:
    fill_table(db, "large", 9_000)
    connector = connector_factory(snapshot_engine="embedded")
    connector.capture()
    request = {"data-collections": [f"{db.name}.large"], "type": "blocking", "engine": "spark"}
    number = send(connector, "execute-snapshot", request)
    connector.capture()
    assert signal_state(connector, number) == (
        "refused",
        'the capture has no settings for a Spark job: set snapshot_job={"conn_id": "spark_default"} of CaptureOperator or of the group of cdc_dag',
    )
    number = send(connector, "execute-snapshot", request)
    readers = ForkedReaders(forks, connector)
    capture_with(connector, readers)
    assert signal_state(connector, number)[0] == "done"
    assert len(readers.runs) == 3
    db.sql("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (1)")
    capture_with(connector, readers)
    assert len(readers.runs) == 3, "other snapshots are embedded"
    for table in ("large", "later"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table), table


def test_a_table_that_is_altered_before_it_is_read_is_read_later(
    db: Any, connector_factory: Callable[..., Connector], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_table(db, "large", 1000)
    fill_table(db, "other", 10)
    connector = connector_factory()
    begin, altered = ReaderCoordinator.begin_group, []

    def alter_and_begin(self: ReaderCoordinator, group: ReadGroup) -> None:
        if not altered:
            altered.append(db.sql("ALTER TABLE large ADD COLUMN w INT DEFAULT 7"))
        begin(self, group)

    monkeypatch.setattr(ReaderCoordinator, "begin_group", alter_and_begin)
    capture_with(connector, ForkedReaders(forks, connector))
    for table in ("large", "other"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table), table


def test_a_message_that_the_capture_has_not_signed_is_refused(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    documents = SignedDocuments(storage, ("shop", "snapshots", "1"), "key")
    task = ChunkTask(number=0, table="shop.orders", first_seq=1, last_seq=9, condition="id < 7")
    documents.write("assignments/0.json", Assignment(group=1, tasks=[task]))
    assert documents.read("assignments/0.json", Assignment) == Assignment(group=1, tasks=[task])
    file = tmp_path / "shop/snapshots/1/assignments/0.json"
    file.write_text(file.read_text().replace("id < 7", "id < 7 OR SLEEP(100)"))
    with pytest.raises(ChangeLogDamaged, match="signature"):
        documents.read("assignments/0.json", Assignment)
    (tmp_path / "shop/snapshots/1/group-1.json").write_bytes(file.read_bytes())
    with pytest.raises(ChangeLogDamaged, match="signature"):
        SignedDocuments(storage, ("shop", "snapshots", "1"), "another").read("group-1.json", Assignment)


def test_a_source_whose_views_cannot_be_shared_says_so_before_anything_is_read(tmp_path: Path) -> None:
    database = MemoryDatabase("no shared views")
    database.create_table("s.t", {"id": "int64"}, key=("id",))
    connector = memory_connector(database, tmp_path, snapshot_engine="spark")
    with pytest.raises(PrerequisiteError, match="cannot be read by Spark") as caught:
        connector.capture()
    assert caught.value.where == "snapshot.engine"
    assert connector.store.list_batches("test") == []


def test_tables_without_transactions_are_read_by_the_capture_while_they_are_locked(
    mariadb: Any, tmp_path: Path, forks: Forks
) -> None:
    with mariadb.database("shared") as db:
        db.sql("CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO old VALUES (1), (2)")
        fill_table(db, "t", 10)
        properties = {"database_include_list": db.name, "snapshot_engine": "spark", "snapshot_max_threads": 2}
        connector = mysql_connector(mariadb, tmp_path, **properties)
        capture_with(connector, ForkedReaders(forks, connector))
        events = read_events(connector)
        assert [(e["source"]["table"], e["source"]["snapshot"]) for e in events if e["source"]["snapshot"] != "true"] == [
            ("old", "first"), ("old", "last_in_data_collection"), ("t", "first_in_data_collection"), ("t", "last"),
        ]  # fmt: skip
        for table in ("old", "t"):
            assert connector.rows(f"{db.name}.{table}") == source_rows(mariadb, db.name, table)


def test_captures_killed_at_many_steps_leave_a_snapshot_that_a_later_one_completes(
    mariadb: Any, tmp_path: Path, forks: Forks
) -> None:
    """Rows change in between; readers of the dead captures end by themselves, and nothing of their files counts."""
    with mariadb.database("shared") as db:
        for table in ("one", "two", "three"):
            fill_table(db, table, 100)
        connector = mysql_connector(
            mariadb,
            tmp_path,
            database_include_list=db.name,
            snapshot_engine="spark",
            snapshot_max_threads=2,
            batch_max_rows=120,
        )
        at, died = 1, 0
        while True:
            ended = forks.start(
                "tests.support.processes.snapshot_reader:capture", folder=str(tmp_path), kind="mariadb",
                properties=connector.properties, secrets=connector.secrets, at=at,
            ).wait()  # fmt: skip
            assert ended.error == "", ended.text
            if not ended.signal:
                break
            died, at = died + 1, at + 5
            db.sql(
                f"UPDATE one SET v = 'after kill {died}' WHERE id % 7 = {died % 7}",
                f"DELETE FROM two WHERE id = {died}",
            )
        assert died > 5
        for table in ("one", "two", "three"):
            assert connector.rows(f"{db.name}.{table}") == source_rows(mariadb, db.name, table), table
        consistent(connector)
