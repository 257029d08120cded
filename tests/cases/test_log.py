"""Sizes and ends of the binary log, on real servers. Logs that no server can be made to write are in ``sources/mysql/log/test_layouts.py``."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import LogBlock, Rollback
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from airflow_provider_cdc.sources.mysql.log.log_end import log_files
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.source import MySqlSource
from tests.support.connectors import Connector, mysql_connector
from tests.support.patience import wait_until
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.sources.mysql.mysql_chunks import FixedTables, source_of
from tests.support.sources.mysql.workload import source_rows

BORDER = 0xFFFFFF


@pytest.fixture(scope="module")
def without_gtids(mysql_factory: Callable[..., Any]) -> Any:
    """Start a server without GTIDs, the default before MySQL 9.7, that waits for the disk in each transaction."""
    server = mysql_factory("9.7", gtid_mode=False, enforce_gtid_consistency=False, sync_binlog=1)
    assert server.sql("SELECT @@gtid_mode") == [("OFF",)], "its own default is ON"
    return server


@pytest.fixture(scope="module")
def mariadb118(mariadb_factory: Callable[..., Any]) -> Any:
    return mariadb_factory("11.8", binlog_large_commit_threshold="10M")


def _database(request: pytest.FixtureRequest, kind: str) -> Any:
    return request.getfixturevalue(kind).database("log")


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    connector = mysql_connector(db.server, folder, db.server.kind, database_include_list=db.name, **properties)
    connector.capture()
    return connector


def _equal(connector: Connector, db: Any, table: str = "t") -> None:
    found, right = connector.rows(f"{db.name}.{table}"), source_rows(db.server, db.name, table)
    assert [_shorten_row(row) for row in found] == [_shorten_row(row) for row in right]


def _shorten_row(row: dict[str, Any]) -> dict[str, Any]:
    return {c: (len(v), hash(v)) if isinstance(v, bytes) and len(v) > 100 else v for c, v in row.items()}


def _small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binlog_connection, "BUFFER", 1 << 14)


# -- sizes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mysql97", "mariadb", pytest.param("mariadb118", marks=pytest.mark.long)])
def test_rows_and_statements_over_packet_borders(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """H1a, H1a MariaDB, R25, H1 c) d): rows, updates and statements of more than a packet, first, in the middle and last."""
    with _database(request, kind) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB, n INT)")
        connector = _connector(db, tmp_path, include_query="true")
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            if kind == "mysql97":
                cursor.execute("SET binlog_rows_query_log_events = ON")
            cursor.execute("INSERT INTO t VALUES (1, REPEAT('x', 17000000), 0)")
            connection.commit()
            cursor.execute("INSERT INTO t VALUES (2, 'small', 0)")
            cursor.execute("INSERT INTO t VALUES (3, REPEAT('y', 9000000), 0)")
            cursor.execute("UPDATE t SET n = 1 WHERE id = 3")  # both images: 18 MB
            cursor.execute("INSERT INTO t VALUES (4, 'small', 0)")
            connection.commit()
            cursor.execute(f"INSERT INTO t VALUES (6, LEFT('{'s' * (BORDER + 20)}', 3), 0)")  # the statement itself
            connection.commit()
        connector.capture()
        _equal(connector, db)
        with source_of(db.server) as source:
            _lookup_and_raw_events_read_them_too(source, db)


def _lookup_and_raw_events_read_them_too(source: MySqlSource, db: Any) -> None:
    end = source.current_position()
    named = source.position_of({"binlog_filename": end.file, "binlog_position": end.pos})
    assert isinstance(named, MySqlPosition)
    assert named.has_reached(end)
    with source._log_from(MySqlPosition(end.file, 4)) as log:
        sizes = [len(event) for event in log.raw_events()]
    with source._log_from(MySqlPosition(end.file, 4)) as log:
        assert sizes == [int(size) for events in log.read_events() if events for size in events.table[:, k.EV_SIZE]]
    assert max(sizes) > BORDER


def test_a_compressed_transaction_over_a_packet_border(mysql97: Any, tmp_path: Path) -> None:
    """H1b: it comes once, under its GTID, and so does what comes after it."""
    with mysql97.database("log") as db:
        db.sql("CREATE TABLE z (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
        connector = _connector(db, tmp_path)
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("SET binlog_transaction_compression = ON")
            for _ in range(7):
                cursor.execute("INSERT INTO z (v) VALUES (%s)", (os.urandom(2_500_000),))
            connection.commit()
        db.sql("INSERT INTO z (v) VALUES ('after')")
        assert [connector.capture().events for _ in range(2)] == [8, 0]
        _equal(connector, db, "z")
        executed = db.sql("SELECT @@gtid_executed")[0][0].replace("\n", "")
        offset = connector.store.load_offset(connector.name).offset
        assert offset is not None
        assert offset.position is not None
        assert offset.position["gtids"] == executed


@pytest.mark.parametrize("kind", ["without_gtids", "mysql97", "mariadb", "mariadb118"])
@pytest.mark.parametrize("between", [False, True])
def test_a_large_prepared_transaction_at_the_head_of_a_file(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1, M1 MariaDB: its rows are read where it begins, and that is in the new file."""
    _small_buffer(monkeypatch)
    with _database(request, kind) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)", "INSERT INTO t VALUES (999, REPEAT('o', 30000))")
        connector = _connector(db, tmp_path)
        db.sql("FLUSH BINARY LOGS")
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("XA START 'x'")
            for n in range(8):
                cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 5000))", (n,))
            cursor.execute("XA END 'x'")
            cursor.execute("XA PREPARE 'x'")
            try:
                if between:
                    connector.capture()
            finally:  # one that stays prepared keeps its tables locked for ever
                cursor.execute("XA COMMIT 'x'")
        connector.capture()
        _equal(connector, db)
        assert connector.replay.operations == {"c": 8, "r": 1}


def test_rows_of_another_transaction_are_not_taken_for_prepared_ones(
    without_gtids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1: a position that names the end of the prepared transaction, where another one begins, is noticed."""
    with without_gtids.database("log") as db, source_of(db.server) as source:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        tables = FixedTables({t: s for t, s in source.discover_tables().items() if t.namespace == db.name})
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for statement in ("XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(statement)
            start = source.current_position()
            db.sql("INSERT INTO t VALUES (2, 2)")
            cursor.execute("XA COMMIT 'x'")
        wrong = {"file": start.file, "pos": start.pos, "server": source.server_info.identity}
        start = replace(start, prepared={"X'78',X'',1": wrong})
        with pytest.raises(SourceLogDamaged, match="another transaction is at this position"):
            list(source.stream_log(start, tables, until=source.current_position()))


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_structure_from_the_log_within_a_large_prepared_transaction(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1, L2: what a table map says of a table is known from then on, whether its transaction is rolled back or not."""
    _small_buffer(monkeypatch)
    with _database(request, kind) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)", "INSERT INTO t VALUES (99, 'x')")
        connector = _connector(db, tmp_path)
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET explicit_defaults_for_timestamp = OFF")
            cursor.execute("CREATE TABLE u (id INT PRIMARY KEY, ts TIMESTAMP)")
            cursor.execute("XA START 'x'")
            for n in range(6):
                cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 5000))", (n,))
            cursor.execute("INSERT INTO u (id) VALUES (1)")
            for n in range(6, 12):
                cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 5000))", (n,))
            cursor.execute("XA END 'x'")
            cursor.execute("XA PREPARE 'x'")
            try:
                connector.capture()
            finally:
                cursor.execute(f"XA {end} 'x'")
            cursor.execute("INSERT INTO u (id) VALUES (2)")
        connector.capture()
        _equal(connector, db)
        assert [row["id"] for row in connector.rows(f"{db.name}.u")] == ([1, 2] if end == "COMMIT" else [2])


@pytest.mark.parametrize("kind", ["mariadb118", "mariadb", "mysql97"])
@pytest.mark.parametrize("buffer", [1 << 14, 4 << 20])
def test_the_place_of_a_row_is_where_its_event_begins(
    request: pytest.FixtureRequest, kind: str, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X1, L4: MariaDB 11.4 and newer do not say where the events within a transaction end."""
    monkeypatch.setattr(binlog_connection, "BUFFER", buffer)
    with _database(request, kind) as db, source_of(db.server) as source:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
        tables = FixedTables({t: s for t, s in source.discover_tables().items() if t.namespace == db.name})
        start = source.current_position()
        db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for n in range(10, 20):
                cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 3000))", (n,))
                cursor.execute("DELETE FROM t WHERE id = %s", (n - 1,))
            connection.commit()
            if kind == "mariadb118" and buffer > 1 << 14:  # a separate file: binlog_large_commit_threshold
                for n in range(30, 34):
                    cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 3000000))", (n,))
                connection.commit()
        db.sql("UPDATE t SET v = 'last' WHERE id = 1")
        found = []
        for item in source.stream_log(start, tables, until=source.current_position()):
            if isinstance(item, LogBlock):
                found += [
                    place
                    for b in item.rows
                    for place in zip(*(b.source[c].to_pylist() for c in ("file", "pos")), strict=True)
                ]
        # only from the start on: earlier tests have written statements that are no text
        files = {
            file: start.pos if file == start.file else 4
            for file, *_ in db.sql("SHOW BINARY LOGS")
            if file >= start.file
        }
        right = [
            (file, int(row[1]))
            for file, first in files.items()
            for row in db.sql(f"SHOW BINLOG EVENTS IN '{file}' FROM {first}")
            if "rows" in str(row[2]).lower() and "nnotate" not in str(row[2])
        ]
        assert sorted(set(found)) == sorted(right)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["without_gtids", "mysql97", "mariadb", "mariadb118"])
def test_a_transaction_of_more_than_four_gigabytes(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """Headers of events have the low 32 bits of offsets. The run that reads it ends behind it, and the next one continues in the next file."""
    with _database(request, kind) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB, n INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
        connector = _connector(db, tmp_path)
        with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (1, REPEAT('x', 16000000), 0)")
            for _ in range(140):  # both images: 32 MB each
                cursor.execute("UPDATE t SET n = n + 1")
            cursor.execute("INSERT INTO u VALUES (1)")
            connection.commit()
        with source_of(db.server) as source:
            *_, size, _ = log_files(source._connected()).values()
        assert size > 1 << 32
        db.sql("INSERT INTO u VALUES (2)")
        connector.capture()
        db.sql("INSERT INTO u VALUES (3)", "UPDATE t SET n = -1")
        connector.capture()
        for table in "tu":
            _equal(connector, db, table)
        with source_of(db.server) as source:
            _lookup_and_raw_events_read_them_too(source, db)


def test_a_position_that_cannot_be_requested_goes_on_in_the_next_file(
    without_gtids: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without GTIDs, a request names 32 bits of an offset; a run may have ended behind a transaction of more than 4 GiB, before its file did."""
    monkeypatch.setattr(binlog_connection, "_FARTHEST", 200)
    with without_gtids.database("log") as db:
        db.sql("FLUSH BINARY LOGS", "CREATE TABLE t (id INT PRIMARY KEY)")
        connector = _connector(db, tmp_path)
        with source_of(db.server) as source, pytest.raises(SourceUnavailable, match="beyond 4 GiB in the newest file"):
            source.verify_position(source.current_position())
        db.sql("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1)")
        connector.capture()
        _equal(connector, db)
        db.sql("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS")
        with pytest.raises(UnknownLogEvent, match="and more events follow"):
            connector.capture()


# -- the end -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _group_commit(server: Any, delay_us: int) -> Iterator[None]:
    """A disk that takes long to write."""
    server.sql("SET GLOBAL sync_binlog = 1", f"SET GLOBAL binlog_group_commit_sync_delay = {delay_us}")
    try:
        yield
    finally:
        server.sql("SET GLOBAL binlog_group_commit_sync_delay = 0")


@pytest.mark.parametrize("kind", ["without_gtids", "mysql97"])
def test_a_transaction_that_waits_for_the_disk_is_not_lost(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """H2(1), H2(1) GTID: the end of the log counts it, and the dump does not have it yet."""
    with _database(request, kind) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = _connector(db, tmp_path)
        with _group_commit(db.server, 400_000):
            for n in range(3):
                writer = threading.Thread(target=db.sql, args=(f"INSERT INTO t VALUES ({n})",))
                writer.start()
                time.sleep(0.05 + 0.1 * n)
                connector.capture()
                writer.join()
        connector.capture()
        _equal(connector, db)


@pytest.mark.parametrize("delay_us", [0, 1000, 2000])
def test_bounded_reads_beside_a_writer_lose_nothing(without_gtids: Any, sampled: CaseSample, delay_us: int) -> None:
    """H2(1) short delays: each read begins where the one before has ended."""
    with without_gtids.database("log") as db, source_of(db.server) as source, _group_commit(db.server, delay_us):
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        tables = FixedTables({t: s for t, s in source.discover_tables().items() if t.namespace == db.name})
        found, done = _StreamedIds(source.current_position()), threading.Event()

        def write() -> None:
            with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
                for n in range(1500 if sampled.all else 100):
                    cursor.execute("INSERT INTO t VALUES (%s)", (n,))
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        last = False
        while not last:
            last = done.is_set()
            for item in source.stream_log(found.position, tables, until=source.current_position()):
                found.take(item)
        writer.join()
        assert Counter(found.ids) == Counter(row[0] for row in db.sql("SELECT id FROM t"))


@pytest.mark.parametrize("kind", ["without_gtids", "mysql97", "mariadb", "mysql80"])
@pytest.mark.parametrize("killed", ["KILL QUERY", "KILL"])
def test_a_dump_that_is_killed_loses_nothing(request: pytest.FixtureRequest, kind: str, killed: str) -> None:
    """H2(2) MySQL, H2(2) MariaDB: the server ends a dump without an error on KILL QUERY. The stream asks again; after KILL, the next run does."""
    rows = 16
    with _database(request, kind) as db, source_of(db.server) as source:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
        tables = FixedTables({t: s for t, s in source.discover_tables().items() if t.namespace == db.name})
        start = source.current_position()
        for n in range(rows):
            db.sql(f"INSERT INTO t VALUES ({n}, REPEAT('x', 2000000))")
        end, found = source.current_position(), _StreamedIds(start)
        db.sql("INSERT INTO t VALUES (1000, 'after')")
        error = None
        try:
            for number, item in enumerate(source.stream_log(start, tables, until=end)):
                found.take(item)
                if not number:
                    _kill(db, killed)
        except SourceUnavailable as e:
            error = e
        assert (error is None) == (killed == "KILL QUERY")
        if error is not None:
            assert len(found.ids) < rows
            found.begin_again()
            for item in source.stream_log(found.position, tables, until=end):
                found.take(item)
        assert found.ids == [*range(rows)]


class _StreamedIds:
    """The ids that a stream has given, of whole transactions, and the position after them."""

    def __init__(self, start: Any) -> None:
        self.ids: list[int] = []
        self.position = start
        self._open: list[int] = []

    def begin_again(self) -> None:
        """Forget a transaction that the last stream has begun and not ended, as the next run does."""
        self._open = []

    def take(self, item: Any) -> None:
        if isinstance(item, Rollback):
            self._open = []
        elif isinstance(item, LogBlock):
            self._open += [row["id"] for b in item.rows if b.after for row in b.after.to_pylist()]
        if not isinstance(item, Rollback) and not getattr(item, "open", False):
            self.ids, self._open, self.position = self.ids + self._open, [], item.position


def _kill(db: Any, how: str) -> None:
    """End the dump, and wait until the server has."""

    def dumps() -> list[Any]:
        query = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        return [id_ for (id_,) in db.sql(query)]

    alive = dumps()
    assert alive, "the server still has some of the log to send"
    for id_ in alive:
        db.sql(f"{how} {id_}")
    if how == "KILL":
        wait_until(lambda: not set(dumps()) & set(alive), "the server ends the dump")


def test_a_continuous_run_goes_on_after_kill_query(without_gtids: Any, tmp_path: Path) -> None:
    """H2(2): an end of a log that is followed is none."""
    with without_gtids.database("log") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = _connector(db, tmp_path)
        steps = iter([lambda: _kill(db, "KILL QUERY"), lambda: db.sql("INSERT INTO t VALUES (1)")])
        query = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"

        def go_on() -> bool:
            if db.sql(query)[0][0] and (step := next(steps, None)) is not None:
                step()
            return bool(connector.rows(f"{db.name}.t"))

        connector.capture({"batch.max.rows": 1}, run_for_s=60, until=go_on)
        _equal(connector, db)
