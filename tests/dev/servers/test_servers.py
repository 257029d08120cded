"""The servers that all other tests lean on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from dev.bootstrap.databases import POSTGRES_MAJORS
from dev.servers import S3, Database, Kafka, MariaDb, MySql, Postgres, ServerError
from dev.servers.mysql_family import option_arguments
from dev.servers.process import command_line
from tests.support.patience import wait_until
from tests.support.processes.listening import ListeningWatch

ROOT = Path(__file__).resolve().parents[3]


def _alive(pid: int | None) -> bool:
    return pid is not None and bool(command_line(pid))


# options


def test_option_arguments_know_booleans_and_leave_out_none() -> None:
    options = {"gtid_strict_mode": True, "sync_binlog": 0, "skip-name-resolve": False, "binlog_format": None}
    assert option_arguments(options) == ["--gtid-strict-mode=ON", "--sync-binlog=0", "--skip-name-resolve=OFF"]


def test_a_disabled_binary_log_is_not_a_log_called_off() -> None:
    assert option_arguments({"log_bin": False}) == ["--skip-log-bin"]


# the shared MariaDB


def test_mariadb_writes_the_log_that_capture_needs(mariadb: MariaDb) -> None:
    names = ("log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "gtid_strict_mode", "time_zone")
    rows = mariadb.sql("SELECT " + ", ".join(f"@@global.{name}" for name in names))
    assert rows == [(1, "ROW", "FULL", "FULL", 1, "+00:00")]


def test_the_capture_user_has_the_documented_privileges_and_no_more(mariadb: MariaDb) -> None:
    with (
        mariadb.connect(host=mariadb.host, user=mariadb.user, password=mariadb.password) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW GRANTS")
        ((grant,),) = cursor.fetchall()
        privileges = {name.strip() for name in grant.removeprefix("GRANT ").partition(" ON ")[0].split(",")}
        cursor.execute("SHOW MASTER STATUS")
        assert cursor.fetchall()
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute("CREATE DATABASE not_allowed")
    assert privileges == {"SELECT", "RELOAD", "SHOW DATABASES", "LOCK TABLES", "REPLICATION SLAVE", "BINLOG MONITOR"}


def test_sql_runs_statements_in_one_session(database: Database) -> None:
    rows = database.sql(
        "CREATE TABLE t (a INT PRIMARY KEY)", "SET @a = 7", "INSERT INTO t VALUES (@a)", "SELECT * FROM t"
    )
    assert rows == [(7,)]
    assert database.sql("SELECT a FROM t WHERE a = %s", args=(7,)) == [(7,)]


def test_a_database_is_dropped_at_the_end(mariadb: MariaDb) -> None:
    with mariadb.database() as database:
        assert (database.name,) in mariadb.sql("SHOW DATABASES")
    assert (database.name,) not in mariadb.sql("SHOW DATABASES")


# servers of one's own


def test_options_replace_the_defaults(mariadb_factory: Callable[..., MariaDb]) -> None:
    with mariadb_factory(binlog_row_image="MINIMAL", log_bin=False) as server:
        assert server.sql("SELECT @@binlog_row_image, @@log_bin") == [("MINIMAL", 0)]


def test_options_of_creation_make_another_data_folder(mariadb_factory: Callable[..., MariaDb]) -> None:
    with mariadb_factory(lower_case_table_names=1) as server:
        server.sql("CREATE DATABASE d", "CREATE TABLE d.MiXeD (a INT)")
        assert server.sql("SHOW TABLES IN d") == [("mixed",)]


def test_kill_loses_nothing_that_was_committed_and_restart_keeps_the_port() -> None:
    with MariaDb() as server:
        port, pid = server.port, server.pid
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        server.kill()
        assert not server.running
        assert not _alive(pid)
        server.start()
        assert server.port == port
        assert server.pid != pid
        server.restart(server_id=77)
        assert server.sql("SELECT a, @@server_id FROM d.t") == [(1, 77)]
        server.stop()
        assert not server.running
        assert server.data.exists()
        folder = server.folder
    assert not folder.exists()


def test_a_folder_of_the_caller_keeps_its_data(tmp_path: Path) -> None:
    with MariaDb(folder=tmp_path / "server") as server:
        server.sql("CREATE DATABASE kept")
    with MariaDb(folder=tmp_path / "server") as server:
        assert ("kept",) in server.sql("SHOW DATABASES")


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = MariaDb({"no_such_option": 1})
    folder = server.folder
    with pytest.raises(ServerError, match="no-such-option"), server:
        pass
    assert not folder.exists()


@pytest.mark.parametrize("how", ["kill -9", "exit", "exit while a fork lives on"])
def test_a_server_ends_with_its_owner(how: str) -> None:
    last = {
        "kill -9": "time.sleep(60)",
        "exit": "pass",
        "exit while a fork lives on": "os.fork() or (os.close(1), time.sleep(20), os._exit(0))",
    }
    start = (
        "import os, time; from dev.servers import MariaDb; s = MariaDb().start(); print(s.pid, s.folder, flush=True)"
    )
    code = f"{start}; {last[how]}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout
        pid, folder = owner.stdout.readline().split()
        if how == "kill -9":
            assert _alive(int(pid))
            owner.kill()
        owner.wait()
    wait_until(lambda: not _alive(int(pid)), "the server ends with its owner")
    wait_until(lambda: not Path(folder).exists(), "the folder of the server is removed")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do this")
def test_a_server_ends_with_its_guard() -> None:
    with MariaDb() as server:
        pid = server.pid
        assert pid
        assert server._process
        os.kill(server._process.guard_pid, signal.SIGKILL)
        wait_until(lambda: not _alive(pid), "the server ends")


# the other servers


@pytest.mark.mysql
@pytest.mark.parametrize(("name", "status"), [("mysql97", "SHOW BINARY LOG STATUS"), ("mysql80", "SHOW MASTER STATUS")])
def test_mysql_writes_the_log_that_capture_needs(name: str, status: str, request: pytest.FixtureRequest) -> None:
    server: MySql = request.getfixturevalue(name)
    with server.database() as database:
        database.sql("CREATE TABLE t (a INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        with (
            server.connect(host=server.host, user=server.user, password=server.password) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(status)
            file, position, *_, executed = cursor.fetchall()[0]
            cursor.execute("SELECT @@gtid_mode, @@binlog_row_metadata, @@global.time_zone, @@server_uuid")
            *settings, uuid = cursor.fetchall()[0]
    assert file.startswith("binlog.")
    assert position > 0
    assert executed.startswith(uuid)
    assert settings == ["ON", "FULL", "+00:00"]


def test_two_mysql_servers_have_different_identities(mysql97: MySql, mysql_factory: Callable[..., MySql]) -> None:
    with mysql_factory("9.7") as other:
        assert other.sql("SELECT @@server_uuid") != mysql97.sql("SELECT @@server_uuid")
        other.kill()
        other.restart(binlog_row_value_options="PARTIAL_JSON")
        assert other.sql("SELECT @@binlog_row_value_options") == [("PARTIAL_JSON",)]


def test_postgres_stores_and_survives_a_kill() -> None:
    with Postgres() as server:
        server.sql("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
        server.stop()
        server.start()
        server.kill()
        server.restart(wal_level="replica")
        assert server.sql("SELECT a, current_setting('wal_level') FROM t") == [(1, "replica")]


@pytest.mark.parametrize("edition", POSTGRES_MAJORS)
def test_each_postgres_decodes_its_log(postgres_factory: Callable[..., Postgres], edition: str) -> None:
    with postgres_factory(edition) as server:
        assert server.version.split(".")[0] == edition
        server.sql(
            "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES", "INSERT INTO t VALUES (1)",
            "SELECT pg_create_logical_replication_slot('s', 'pgoutput')", "INSERT INTO t VALUES (2)",
        )  # fmt: skip
        messages = server.sql(
            "SELECT get_byte(data, 0) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        )
        assert "".join(chr(kind) for (kind,) in messages) == "BRIC"


def test_the_shared_postgres_gives_databases(postgres: Postgres) -> None:
    with postgres.database() as name:
        assert postgres.sql("SELECT current_database()", database=name) == [(name,)]


def test_kafka_keeps_messages_over_a_kill_and_a_restart() -> None:
    with Kafka() as server, server.topic() as topic:
        server.send(topic, "one", key="k")
        server.kill()
        server.start()
        server.send(topic, "two", key="k")
        server.restart(**{"log.retention.ms": 3_600_000})
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g", "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            assert _to_the_end(consumer) == [(b"k", b"one"), (b"k", b"two")]
        finally:
            consumer.close()


def _to_the_end(consumer: Consumer, seconds: float = 60) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each message of a partition.

    A broker that has just come back may answer first that it does not lead the partition yet: the client hands out
    such answers among the messages, and asks again by itself.
    """
    found: list[tuple[bytes | None, bytes | None]] = []
    reports: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append((message.key(), message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            return found
        else:
            reports.append(str(error))
    raise AssertionError(f"the end was not reached; read so far: {found}; the client said: {reports}")


def test_s3_keeps_objects(s3: S3) -> None:
    s3.bucket("kept-here")
    client = s3.connect()
    client.put_object(Bucket="kept-here", Key="a/b", Body=b"content")
    assert client.get_object(Bucket="kept-here", Key="a/b")["Body"].read() == b"content"


# who can reach them


@pytest.mark.parametrize("name", ["mariadb", "mysql97", "postgres", "s3", "kafka"])
def test_servers_listen_for_this_machine_alone(name: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(name)
    with ListeningWatch([os.getpgid(server.pid)]) as listening:
        pass
    assert listening.seen
    assert listening.beyond() == []
