"""Transactions that do not fit: larger than the buffer, rolled back in part, prepared and committed later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import Writer, source_rows

SERVERS = ["mariadb", "mysql97", "mysql80"]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def db(server: Any) -> Iterator[Any]:
    with server.database() as database:
        _tables(database)
        yield database
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")  # what a failed test left prepared would keep its tables locked for ever
            for format_id, length, _, data in cursor.fetchall():
                name = data.encode() if isinstance(data, str) else data
                cursor.execute(f"XA ROLLBACK 0x{name[:length].hex()},0x{name[length:].hex() or '00'},{format_id}")


def _tables(db: Any) -> None:
    db.sql("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(100))")
    db.sql("CREATE TABLE u (a INT PRIMARY KEY, b VARCHAR(100))")


@pytest.fixture
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of a few hundred rows is a large one."""
    monkeypatch.setattr(binlog_connection, "BUFFER", 1 << 14)


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    kind = "mariadb" if "MariaDb" in type(db.server).__name__ else "mysql"
    connector = mysql_connector(db.server, folder, kind, database_include_list=db.name, **properties)
    connector.capture()
    return connector


def _equal(connector: Connector, db: Any, *tables: str) -> None:
    for table in tables:
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table), table


def _insert(cursor: Any, table: str, first: int, count: int) -> None:
    for at in range(first, first + count, 50):
        rows = [(a, "x" * 60) for a in range(at, min(at + 50, first + count))]
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)


# -- larger than the buffer ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_buffer")
def test_large_transaction_over_two_tables(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path, provide_transaction_metadata="true")
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for at in range(0, 2000, 200):
            _insert(cursor, "t", at, 200)
            _insert(cursor, "u", at, 200)
        connection.commit()
        cursor.execute("INSERT INTO t VALUES (-1, 'after')")
        connection.commit()
    connector.capture()
    _equal(connector, db, "t", "u")
    assert connector.replay.operations["c"] == 4001
    # one transaction, its events counted through
    large, small = connector.replay.transactions.values()
    assert large == list(range(1, 4001))
    assert small == [1]


@pytest.mark.usefixtures("small_buffer")
def test_large_transaction_that_is_rolled_back_leaves_nothing(db: Any, tmp_path: Path) -> None:
    # rows of a table without transactions are in the log even so: the log holds the rollback as well
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        _insert(cursor, "t", 0, 1500)
        connection.rollback()
        cursor.execute("INSERT INTO t VALUES (-1, 'after')")
        connection.commit()
    connector.capture()
    _equal(connector, db, "t")
    assert connector.replay.operations["c"] == 1


@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize("since", [100, 900])
def test_savepoint_far_back_in_a_large_transaction(database: Any, tmp_path: Path, since: int) -> None:
    """A table without transactions keeps the log from leaving out what was rolled back to the savepoint."""
    db = database
    _tables(db)
    db.sql("CREATE TABLE plain (a INT PRIMARY KEY) ENGINE=MyISAM")
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        _insert(cursor, "t", 0, since)
        cursor.execute("SAVEPOINT here")
        _insert(cursor, "t", since, 1000 - since)
        cursor.execute("INSERT INTO plain VALUES (1)")
        cursor.execute("ROLLBACK TO here")
        _insert(cursor, "u", 0, 1000)
        connection.commit()
    connector.capture()
    _equal(connector, db, "t", "u", "plain")
    connector.capture()
    _equal(connector, db, "t", "u", "plain")


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize("seed", [11, 12])
def test_random_work_through_a_small_buffer(server: Any, tmp_path: Path, seed: int) -> None:
    kind = "mariadb" if "MariaDb" in type(server).__name__ else "mysql"
    database = f"small_{seed}"
    with server.connect(autocommit=True) as connection:
        writer = Writer(connection, database, seed, ddl=0.03)
        writer.prepare()
        connector = mysql_connector(server, tmp_path, kind, database_include_list=database)
        for _ in range(3):
            writer.write(150)
            connector.capture()
            for table in ("one", "two", "bag"):
                assert connector.rows(f"{database}.{table}") == source_rows(server, database, table), table
        writer.run(f"DROP DATABASE {database}")


# -- tables without transactions -----------------------------------------------------------------------------------------


def test_table_without_transactions(database: Any, tmp_path: Path) -> None:
    db = database
    _tables(db)
    db.sql("CREATE TABLE plain (a INT PRIMARY KEY, b INT) ENGINE=MyISAM")
    connector = _connector(db, tmp_path)
    db.sql("INSERT INTO plain VALUES (1, 1), (2, 2)")
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 'gone')")
        cursor.execute("UPDATE plain SET b = 3 WHERE a = 1")
        connection.rollback()
    connector.capture()
    _equal(connector, db, "t", "plain")


# -- prepared ------------------------------------------------------------------------------------------------------------


def _prepare(cursor: Any, xid: str, *statements: str) -> None:
    cursor.execute(f"XA START {xid}")
    for statement in statements:
        cursor.execute(statement)
    cursor.execute(f"XA END {xid}")
    cursor.execute(f"XA PREPARE {xid}")


def test_prepared_transaction_counts_when_it_is_committed(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=True) as first, db.connect(autocommit=True) as second:
        _prepare(
            first.cursor(), "'xa','one',7", "INSERT INTO t VALUES (1, 'prepared')", "INSERT INTO u VALUES (1, 'p')"
        )
        second.cursor().execute("INSERT INTO t VALUES (2, 'meanwhile')")
        connector.capture()
        assert [r["a"] for r in connector.rows(f"{db.name}.t")] == [2]
        first.cursor().execute("XA COMMIT 'xa','one',7")
        second.cursor().execute("UPDATE t SET b = 'later' WHERE a = 1")
        connector.capture()
    _equal(connector, db, "t", "u")
    assert connector.replay.operations == {"c": 3, "u": 1}


def test_prepared_transaction_that_is_rolled_back(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=True) as first:
        _prepare(first.cursor(), "'gone'", "INSERT INTO t VALUES (1, 'prepared')")
        connector.capture()
        first.cursor().execute("XA ROLLBACK 'gone'")
        first.cursor().execute("INSERT INTO t VALUES (2, 'after')")
    connector.capture()
    _equal(connector, db, "t")
    assert connector.replay.operations == {"c": 1}


def test_prepared_and_committed_within_one_run(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=True) as first:
        _prepare(first.cursor(), "'a'", "INSERT INTO t VALUES (1, 'prepared')")
        first.cursor().execute("XA COMMIT 'a'")
        first.cursor().execute("XA START 'b'")
        first.cursor().execute("INSERT INTO t VALUES (2, 'one phase')")
        first.cursor().execute("XA END 'b'")
        first.cursor().execute("XA COMMIT 'b' ONE PHASE")
        first.cursor().execute("INSERT INTO t VALUES (3, 'after')")
    connector.capture()
    _equal(connector, db, "t")


@pytest.mark.usefixtures("small_buffer")
def test_large_prepared_transaction(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=True) as first, db.connect(autocommit=True) as second:
        cursor = first.cursor()
        cursor.execute("XA START 'large'")
        _insert(cursor, "t", 0, 1500)
        cursor.execute("XA END 'large'")
        cursor.execute("XA PREPARE 'large'")
        second.cursor().execute("INSERT INTO t VALUES (-1, 'meanwhile')")
        connector.capture()
        cursor.execute("XA COMMIT 'large'")
        connector.capture()
    _equal(connector, db, "t")
    assert connector.replay.operations == {"c": 1501}


def test_transaction_that_was_prepared_before_the_snapshot(db: Any, tmp_path: Path) -> None:
    """Its rows are neither in the snapshot nor after its place in the log: that is said, with the repair."""
    with db.connect(autocommit=True) as first:
        _prepare(first.cursor(), "'early'", "INSERT INTO t VALUES (1, 'prepared')")
        connector = _connector(db, tmp_path)
        first.cursor().execute("XA COMMIT 'early'")
    with pytest.raises(UnknownLogEvent, match="prepared before"):
        connector.capture()
    connector.capture({"snapshot.mode": "always"})
    _equal(connector, db, "t")


# -- restart -------------------------------------------------------------------------------------------------------------


def test_batches_of_a_few_rows_hold_whole_transactions(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path, batch_max_rows=10)
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for i in range(40):
            _insert(cursor, "t", 7 * i, 7)
            connection.commit()
    connector.capture()
    _equal(connector, db, "t")
    for manifest in connector.changelog.read_manifests(connector.name, after=1):
        assert manifest.event_count % 7 == 0


def test_two_captures_with_one_server_id_are_distinguished_from_a_lost_connection(db: Any, tmp_path: Path) -> None:
    """The server ends the older of two connections that say they are the same replica: that is an error, never an early end."""
    connector = _connector(db, tmp_path)
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for i in range(20):
            _insert(cursor, "t", 1000 * i, 1000)
            connection.commit()
    other = _connector(db, tmp_path / "other")
    assert other.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")
    connector.capture()
    _equal(connector, db, "t")
