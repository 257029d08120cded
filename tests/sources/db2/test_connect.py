"""Connections to Db2 by the real driver: rows, transactions, errors, and the end of a reading."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import AccessDenied, ConfigError, SourceUnavailable
from airflow_provider_cdc.sources.db2 import connect
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import (
    Db2Connection,
    connect_database,
    database_of,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.db2.error_translation import LOCKED, UNDEFINED, Db2Error, ReadingCancelled
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import set_lock_timeout
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT
from tests.support.patience import LONGEST_S
from tests.support.sources.db2.db2_settings import BASE


def settings(server: Db2, **properties: Any) -> Db2Config:
    given = BASE | {
        "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
        "database.password": server.password, "database.authentication": "server",
    }  # fmt: skip
    return Db2Config.parse(given | {name.replace("_", "."): value for name, value in properties.items()})


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        db2_adapter = Db2Adapter(db2, stack)
        db2_adapter.create("t", {"id": INT, "note": TEXT}, ("id",))
        with db2_adapter.transaction() as t:
            t.insert("t", *({"id": i, "note": f"ä{i}"} for i in range(10)))
        yield db2_adapter


@pytest.fixture
def connection(db2: Db2) -> Iterator[Db2Connection]:
    with closing(connect_database(settings(db2))) as made:
        yield made


def test_rows_come_in_batches_of_the_size_that_was_asked_for(db: Db2Adapter, connection: Db2Connection) -> None:
    sql = f'SELECT t."id", t."note" FROM {db.name("t")} t WHERE t."id" >= ? ORDER BY t."id"'
    with connection.open_cursor(sql, 3, size=4) as cursor:
        assert [c.name for c in cursor.description] == ["id", "note"]
        batches = list(cursor.iterate_batches())
    assert [len(batch) for batch in batches] == [4, 3]
    assert batches[0][0] == (3, "ä3")
    assert connection.fetch_rows(sql, 9) == [(9, "ä9")]
    assert connection.fetch_scalar(sql, 100) is None


def test_statements_with_letters_beyond_sixteen_bits_arrive_whole(db: Db2Adapter, connection: Db2Connection) -> None:
    """The driver cuts as many letters off the ends of those that it prepares."""
    connection.execute(f"INSERT INTO {db.name('t')} VALUES (100, '😀😀😀')")
    assert connection.fetch_rows(
        f'SELECT t."note" FROM {db.name("t")} t WHERE t."note" = \'😀😀😀\' AND t."id" = 100'
    ) == [("😀😀😀",)]
    expected = f'SELECT t."id" FROM {db.name("t")} t WHERE t."note" <> \'😀😀\' AND t."id" > ? AND t."id" < 102'
    assert connection.fetch_rows(expected, 8) == [(9,), (100,)]
    connection.rollback()


def test_several_results_are_open_at_once(db: Db2Adapter, connection: Db2Connection) -> None:
    sql = f'SELECT t."id" FROM {db.name("t")} t ORDER BY t."id"'
    with connection.open_cursor(sql) as one, connection.open_cursor(sql) as other:
        assert one.fetch_rows(2) == other.fetch_rows(2) == [(0,), (1,)]
        assert one.fetch_rows(1) == [(2,)]
        assert other.fetch_rows(20)[0] == (2,)


def test_nothing_is_committed_by_itself(db: Db2Adapter, connection: Db2Connection) -> None:
    db.sql(f"GRANT UPDATE ON TABLE {db.name('t')} TO USER CDC")
    assert connection.execute(f'UPDATE {db.name("t")} SET "note" = ? WHERE "id" < 2', "new") == 2
    connection.rollback()
    assert db.rows("t")[0]["note"] == "ä0"
    connection.execute(f'UPDATE {db.name("t")} SET "note" = ? WHERE "id" < 2', None)
    connection.commit()
    assert db.rows("t")[0]["note"] is None


def test_errors_have_the_codes_of_the_database(connection: Db2Connection) -> None:
    with pytest.raises(Db2Error) as caught:
        connection.fetch_rows("SELECT * FROM NOWHERE.NOTHING")
    assert caught.value.code in UNDEFINED
    assert caught.value.state == "42704"
    connection.rollback()
    assert connection.is_healthy()


def test_a_lock_is_waited_for_as_long_as_was_said(db: Db2Adapter, connection: Db2Connection) -> None:
    with db.server.connect() as writer:
        writer.execute(f'UPDATE {db.name("t")} SET "note" = \'held\' WHERE "id" = 1')
        for timeout_ms in (0, 500):
            set_lock_timeout(connection, timeout_ms)
            with pytest.raises(Db2Error) as caught:
                connection.execute(f"LOCK TABLE {db.name('t')} IN SHARE MODE")
            assert caught.value.code in LOCKED
        writer.rollback()
    connection.execute(f"LOCK TABLE {db.name('t')} IN SHARE MODE")


def test_options_of_the_driver_are_keywords_of_the_connection(db2: Db2, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def record(text: str) -> Db2Connection:
        given.append(text)
        return Db2Connection(text)

    monkeypatch.setattr(connect, "Db2Connection", record)
    options = {"driver.ClientAcctStr": "finance", "driver.ConnectTimeout": 7}
    connect_database(settings(db2, **options)).close()
    keywords = dict(part.split("=", 1) for part in given[0].split(";") if part)
    assert (keywords["ClientAcctStr"], keywords["ConnectTimeout"]) == ("finance", "7")
    assert keywords["ClientApplName"] == "airflow_provider_cdc"
    for name, value in {
        "driver.HOSTNAME": "elsewhere",
        "driver.TraceFileName": "/tmp/x",
        "driver.ClientAcctStr": "a;PORT=1",
    }.items():
        with pytest.raises(ConfigError, match=name):
            settings(db2, **{name: value})


def test_who_is_asked(connection: Db2Connection) -> None:
    database = database_of(connection)
    assert database.name == "TESTDB"
    assert not database.is_zos
    assert database.version_numbers >= (10, 5)


def test_a_reading_ends_when_another_thread_closes_the_connection(db2: Db2, db: Db2Adapter) -> None:
    made = connect_database(settings(db2))
    cursor = made.open_cursor(f'SELECT t."id" FROM {db.name("t")} t', size=1)
    cursor.fetch_rows(1)
    thread = threading.Thread(target=made.close)
    thread.start()
    thread.join(LONGEST_S)
    assert not thread.is_alive()
    with pytest.raises(ReadingCancelled):
        cursor.fetch_rows(1)
    made.close()
    assert not made.is_healthy()


def test_passwords_with_signs_that_mean_something_elsewhere(db2: Db2) -> None:
    try:
        for password in ("a b", "x=y", "{a}", "${x}{{y}}#&+", "p@ss:w/o%r'd", '"q"', "}"):
            db2.configure(passwords={db2.user: password})
            connect_database(settings(db2, database_password=password)).close()
        for password in ("sesame;b", " sesame", "sesame ", "sesame;UID=DB2INST1"):
            with pytest.raises(ConfigError, match="change the password") as caught:
                connect_database(settings(db2, database_password=password))
            assert password not in str(caught.value)
    finally:
        db2.configure(passwords={db2.user: db2.password})


def test_a_wrong_password(db2: Db2) -> None:
    with pytest.raises(AccessDenied) as caught:
        connect_database(settings(db2, database_password="not-the-password"))
    assert "not-the-password" not in str(caught.value)
    assert "CDC" in str(caught.value)


def test_no_server(db2: Db2) -> None:
    with pytest.raises(SourceUnavailable):
        connect_database(settings(db2, database_port=1))


def test_no_database(db2: Db2) -> None:
    with pytest.raises((ConfigError, SourceUnavailable)):
        connect_database(settings(db2, database_dbname="NOPE"))


def test_a_lost_connection_is_an_error_that_a_retry_mends(db2_factory: Any) -> None:
    server = db2_factory(agent=False)
    config = settings(server)
    with closing(connect_database(config)) as made:
        server.kill()
        with pytest.raises(SourceUnavailable), translate_driver_errors(config):
            made.fetch_rows("VALUES 1")
    server.start()
    with closing(connect_database(config)) as made:
        assert made.is_healthy()
