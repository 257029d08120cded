"""Promises of a chunk's watermarks, held against the log while writers are at work, on every server and in every form."""

from __future__ import annotations

import random
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRejected
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.sources.mysql.gtid_sets import MySqlGtids, missing_gtids
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number
from tests.support.sources.mysql.mysql_chunks import (
    LoggedRow,
    read_log_rows,
    read_whole_table,
    reader_of,
    rows_of,
    source_of,
)

SERVERS = ["mariadb", "mysql97", "mysql80"]
ROWS = 40
CHUNKS = 120


@pytest.fixture(params=[*SERVERS[:2], pytest.param(SERVERS[2], marks=pytest.mark.long)])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("marks") as database:
        database.sql(
            "CREATE TABLE c (id INT PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE `sig nal` (`the id` VARCHAR(64) PRIMARY KEY, kind VARCHAR(32), d TEXT)",
        )
        database.sql("INSERT INTO c VALUES " + ", ".join(f"({i}, 0)" for i in range(ROWS)))
        yield database


class Writers:
    """Sessions that count rows up, several in a transaction."""

    def __init__(self, db: Any, sessions: int = 5) -> None:
        self._db, self._ended = db, threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(sessions)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        time.sleep(0.2)
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self, seed: int) -> None:
        randomly = random.Random(seed)
        with self._db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self._ended.is_set():
                for i in sorted(randomly.sample(range(ROWS), randomly.randint(1, 4))):  # in order: no deadlocks
                    cursor.execute("UPDATE c SET v = v + 1 WHERE id = %s", (i,))
                connection.rollback() if randomly.random() < 0.05 else connection.commit()


def _counts(events: list[LoggedRow]) -> dict[int, list[int]]:
    """Row → places, in the log's order, at which it was counted up."""
    counts: dict[int, list[int]] = {i: [] for i in range(ROWS)}
    for n, event in enumerate(events):
        if event.table == "c":
            counts[event.row["id"]].append(n)
            assert event.row["v"] == len(counts[event.row["id"]])
    return counts


def _count_events_before(events: list[LoggedRow], place: Any) -> int:
    """Number of events before a place of the log."""
    return bisect_left([(file_number(e.file), e.pos) for e in events], (file_number(place.file), place.pos))


def _tables(source: Any, db: Any) -> dict[TableId, Any]:
    return {t: s for t, s in source.discover_tables().items() if t.namespace == db.name}


@pytest.mark.sampled(3)
def test_read_watermarks_hold_under_load(db: Any) -> None:
    mariadb = db.server.kind == "mariadb"
    chunks = []
    with source_of(db.server) as source:
        start = source.current_position()
        with reader_of(db.server) as reader, Writers(db):
            while len(chunks) < CHUNKS:
                chunks.append(read_whole_table(reader, TableId(namespace=db.name, name="c")))
                if len(chunks) % 40 == 0:
                    db.sql("FLUSH BINARY LOGS")
        events = read_log_rows(source, start, _tables(source, db))
    counts = _counts(events)
    assert len(events) > 500
    for chunk in chunks:
        low, high = chunk.low, chunk.high
        assert isinstance(low, MySqlPosition)
        assert isinstance(high, MySqlPosition)
        upper = _count_events_before(events, high)
        if mariadb:
            lower = upper
            assert (low.file, low.pos) == (high.file, high.pos)
        else:
            seen = MySqlGtids.parse(low.gtids)
            executed = [seen.contains_gtids(MySqlGtids.parse(str(e.gtid))) for e in events]
            lower = executed.index(False) if False in executed else len(events)
            assert not any(executed[lower:]), "transactions are executed in the log's order"
        for row in rows_of(chunk):
            mine = counts[row["id"]]
            assert bisect_left(mine, lower) <= row["v"] <= bisect_left(mine, upper)


@pytest.mark.sampled(3)
def test_written_watermarks_hold_under_load(db: Any) -> None:
    signals, table = TableId(namespace=db.name, name="sig nal"), TableId(namespace=db.name, name="c")
    chunks, ends = {}, {}
    with source_of(db.server, database_user="admin", database_password="admin") as source:
        start = source.current_position()
        with source.open_chunk_reader(signals=signals) as reader, Writers(db):
            while len(chunks) < CHUNKS:
                id_ = str(uuid.uuid4())
                reader.insert_signal_row(f"{id_}-open", "snapshot-window-open")
                chunks[id_] = read_whole_table(reader, table)
                if len(chunks) % 2:
                    reader.delete_signal_row(f"{id_}-open")
                else:
                    reader.insert_signal_row(f"{id_}-close", "snapshot-window-close", "{}")
                ends[id_] = reader.end_of_log()
        events = read_log_rows(source, start, _tables(source, db))
    counts = _counts(events)
    marks = {(e.row["the id"], e.op): n for n, e in enumerate(events) if e.table == "sig nal"}
    assert len(events) > 500
    for id_, chunk in chunks.items():
        assert chunk.low is chunk.high is None
        lower = marks[f"{id_}-open", 1]
        upper = marks.get((f"{id_}-close", 1), marks.get((f"{id_}-open", 3)))
        assert upper is not None
        assert _count_events_before(events, ends[id_]) > upper, (
            "the end of the log is behind the row that closes the window"
        )
        for row in rows_of(chunk):
            mine = counts[row["id"]]
            assert bisect_left(mine, lower) <= row["v"] <= bisect_left(mine, upper)


def test_positions_of_chunks_and_of_the_stream_can_be_compared(db: Any) -> None:
    """A stream that has come to the end has reached what was read before, and is in what is read after."""
    with source_of(db.server, poll_interval_ms=100) as source, reader_of(db.server) as reader:
        start = source.current_position()
        db.sql("UPDATE c SET v = v + 1")
        chunk = read_whole_table(reader, TableId(namespace=db.name, name="c"))
        assert chunk.high is not None
        assert not start.has_reached(chunk.high)
        seen = []
        for _ in range(3):
            for item in source.stream_log(start, _NoTables(), until=None, patience=lambda: 0.005):
                seen.append(item.position)  # type: ignore[union-attr]
                if item.position.has_reached(chunk.high):  # type: ignore[union-attr]
                    break
            # the head of a new file is no transaction, and the end of the log is behind it all the same
            db.sql("FLUSH BINARY LOGS")
            chunk = read_whole_table(reader, TableId(namespace=db.name, name="c"))
            assert chunk.low is not None
            assert chunk.high is not None
            assert chunk.low.has_reached(seen[-1])
            start = source.parse_position(seen[-1].to_json())
        source.verify_position(seen[-1])


def test_the_end_of_the_log_is_reached_by_a_stream_that_has_come_there_on_any_server(db: Any) -> None:
    login = {"database_user": "admin", "database_password": "admin"}
    with (
        source_of(db.server, poll_interval_ms=100) as source,
        reader_of(db.server, TableId(namespace=db.name, name="sig nal"), **login) as reader,
    ):
        before = source.current_position()
        db.sql("UPDATE c SET v = v + 1")
        end = reader.end_of_log()
        after = source.current_position()
        assert isinstance(after, MySqlPosition)
        elsewhere = replace(after, file="other.000001", pos=4, server="another one")
        assert after.has_reached(end)
        assert elsewhere.has_reached(end), "by its GTIDs"
        assert not before.has_reached(end)
        assert not replace(elsewhere, gtids=before.to_json()["gtids"]).has_reached(end)


_A, _B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "7f22ab58-71ca-11e1-9e33-c80aa9429563"


@pytest.mark.parametrize(
    ("there", "expected", "missing"),
    [
        (f"{_A}:1-8", f"{_A}:1-10", f"{_A}:9-10"),
        (f"{_A}:1-2:5-6:9", f"{_A}:1-10,{_B}:7", f"{_A}:3-4:7-8:10,{_B}:7"),
        ("", f"{_A}:1-10", f"{_A}:1-10"),
        (f"{_A}:1-10", f"{_A}:2-3", ""),
        (f"{_A}:1-4,{_A}:tag:1", f"{_A}:1-4,{_A}:tag:1-2", f"{_A}:tag:2"),
        ("0-1-8,1-2-5", "0-1-10,1-2-5,2-2-1", "0-1-10,2-2-1"),
        ("", "", ""),
    ],
)
def test_transactions_that_a_server_lacks_have_names(there: str, expected: str, missing: str) -> None:
    assert missing_gtids(there, expected) == missing


class _NoTables:
    """No table is captured."""

    def find_schema(self, table: TableId) -> None:
        return None

    def is_captured(self, table: TableId) -> bool:
        return False

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return []


def test_a_table_without_transactions_is_read_up_to_the_end_of_the_log(db: Any) -> None:
    db.sql("CREATE TABLE y (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "INSERT INTO y VALUES (1, 1), (2, 2)")
    with source_of(db.server) as source, reader_of(db.server) as reader:
        schema = reader.read_table_schema(TableId(namespace=db.name, name="y"))
        assert schema is not None
        slow = "SLEEP(0.3) = 0"
        writer = threading.Timer(0.1, lambda: db.sql("UPDATE c SET v = 7"))
        writer.start()
        chunk = reader.read(KeyRange(schema, schema.key, condition=slow), 10)
        writer.join()
        assert len(chunk) == 2
        assert chunk.high is not None
        assert chunk.high.has_reached(source.current_position())


# what is not possible


def test_commits_out_of_order_refuse_written_watermarks(mysql97: Any) -> None:
    with mysql97.database("marks") as db:
        db.sql("CREATE TABLE s (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data TEXT)")
        signals = TableId(namespace=db.name, name="s")
        login = {"database_user": "admin", "database_password": "admin"}
        with reader_of(mysql97, signals, **login) as reader:
            reader.insert_signal_row("1", "a")
            mysql97.sql("SET GLOBAL binlog_order_commits = OFF")
            try:
                with pytest.raises(PrerequisiteError, match="SET GLOBAL binlog_order_commits = ON"):
                    reader.insert_signal_row("2", "a")
                with (
                    pytest.raises(PrerequisiteError, match="binlog_order_commits is OFF"),
                    reader_of(mysql97, signals, **login),
                ):
                    pass
                with reader_of(mysql97):
                    pass
            finally:
                mysql97.sql("SET GLOBAL binlog_order_commits = ON")
            reader.insert_signal_row("3", "a")


def test_read_watermarks_need_gtids_on_mysql(mysql_factory: Any) -> None:
    with mysql_factory("8.0", gtid_mode=None, enforce_gtid_consistency=None) as server:
        with pytest.raises(PrerequisiteError, match="gtid_mode is OFF") as caught, reader_of(server):
            pass
        assert "signal.data.collection" in str(caught.value)
        server.sql(
            "CREATE DATABASE d", "CREATE TABLE d.s (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data TEXT)",
            f"GRANT INSERT ON d.s TO '{server.user}'@'%'",
        )  # fmt: skip
        with reader_of(server, TableId(namespace="d", name="s")) as reader:
            reader.insert_signal_row("1", "a")


@pytest.mark.parametrize(("edition", "word", "source"), [("9.7", "replica", "SOURCE"), ("8.0", "slave", "MASTER")])
def test_a_replica_that_commits_in_another_order_is_refused(
    mysql_factory: Any, edition: str, word: str, source: str
) -> None:
    options = {f"{word}_parallel_workers": 4, f"{word}_preserve_commit_order": "OFF"}
    with mysql_factory(edition, **options) as server:
        with reader_of(server):  # it is no replica
            pass
        what = "REPLICATION SOURCE" if source == "SOURCE" else "MASTER"
        server.sql(f"CHANGE {what} TO {source}_HOST = '127.0.0.1'")
        with pytest.raises(PrerequisiteError, match=f"{word}_preserve_commit_order=OFF") as caught, reader_of(server):
            pass
        assert f"SET GLOBAL {word}_preserve_commit_order = ON" in str(caught.value)
        server.sql(f"SET GLOBAL {word}_parallel_workers = 0")
        with reader_of(server):
            pass


# the signal table


@pytest.mark.parametrize("name", ["missing", "narrow"])
def test_a_signal_table_that_does_not_fit_is_refused(db: Any, name: str) -> None:
    db.sql("CREATE TABLE narrow (id INT, type INT)")
    with (
        pytest.raises(QueryRejected, match="does not exist, or has fewer than three columns") as caught,
        reader_of(db.server, TableId(namespace=db.name, name=name)),
    ):
        pass
    assert "CREATE TABLE" in str(caught.value)


def test_what_cannot_be_written_is_refused_with_what_to_grant(db: Any) -> None:
    with reader_of(db.server, TableId(namespace=db.name, name="sig nal")) as reader:
        with pytest.raises(QueryRejected, match="GRANT SELECT, INSERT, DELETE ON") as caught:
            reader.insert_signal_row("1", "a")
        assert "read.only=true" in str(caught.value)
        with pytest.raises(QueryRejected, match="DELETE command denied"):
            reader.delete_signal_row("1")
        assert len(read_whole_table(reader, TableId(namespace=db.name, name="c"))) == ROWS
    login = {"database_user": "admin", "database_password": "admin"}
    with reader_of(db.server, TableId(namespace=db.name, name="sig nal"), **login) as reader:
        with pytest.raises(QueryRejected, match="too long"):
            reader.insert_signal_row("x" * 65, "a")  # in part, it would never come back as what it was
        reader.insert_signal_row("1", "a", '{"x": 1}')
    assert db.sql("SELECT * FROM `sig nal`") == [("1", "a", '{"x": 1}')]
