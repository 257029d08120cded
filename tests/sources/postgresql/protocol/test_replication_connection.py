"""The stream of a replication slot, of real servers of every version."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.position import format_lsn, parse_lsn
from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import (
    BUFFER,
    ReplicationConnection,
    ReplicationLogin,
)
from airflow_provider_cdc.sources.postgresql.protocol.server_messages import ReplicationError
from dev.bootstrap.databases import POSTGRES_MAJORS
from dev.servers import Postgres
from tests.support.patience import wait_until
from tests.support.servers import tls

OPTIONS = {"proto_version": "1", "publication_names": "cdc"}


@pytest.fixture(params=["", *POSTGRES_MAJORS])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Postgres]) -> Iterator[Postgres]:
    with postgres_factory(request.param) as server:
        prepare(server)
        yield server


def prepare(server: Postgres) -> None:
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, note text)", "CREATE PUBLICATION cdc FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')",
    )  # fmt: skip


def login(server: Postgres, **more: Any) -> ReplicationLogin:
    return ReplicationLogin(
        **{
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "database": "postgres",
            **more,
        }
    )


@contextmanager
def stream(server: Postgres, start: int = 0, slot: str = "cdc", **more: Any) -> Iterator[ReplicationConnection]:
    with ReplicationConnection(login(server, **more), slot, start, OPTIONS) as connection:
        yield connection


def read(connection: ReplicationConnection, commits: int) -> list[tuple[int, bytes]]:
    """Read whole transactions: the LSN of each message, and its bytes."""
    found: list[tuple[int, bytes]] = []
    until = time.monotonic() + 60
    while sum(message[:1] == b"C" for _, message in found) < commits:
        assert time.monotonic() < until, found[-3:]
        block = connection.read_block(5.0)
        for kind, begin, end, lsn in block.messages[
            :, [layout.MSG_KIND, layout.MSG_START, layout.MSG_END, layout.MSG_LSN]
        ].tolist():
            found.append((lsn, bytes([kind]) + block.data[begin:end].tobytes()))
    return found


def end_of_last_commit(messages: list[tuple[int, bytes]]) -> int:
    commit = [message for _, message in messages if message[:1] == b"C"][-1]
    return int.from_bytes(commit[10:18], "big")


def confirmed_lsn(server: Postgres) -> int:
    ((lsn,),) = server.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'cdc'")
    return parse_lsn(lsn)


def test_transactions_come_whole_and_again_until_they_are_confirmed(server: Postgres) -> None:
    server.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET note = 'c' WHERE id = 2")
    with stream(server) as connection:
        first = read(connection, 2)
    assert "".join(chr(message[0]) for _, message in first) == "BRIICBUC"
    assert [lsn for lsn, message in first if message[:1] in b"BIU"] == sorted(
        lsn for lsn, message in first if message[:1] in b"BIU"
    )
    with stream(server) as connection:
        assert read(connection, 2) == first
        connection.confirm(end_of_last_commit(first))
        wait_until(lambda: confirmed_lsn(server) == end_of_last_commit(first), "the slot has moved")
        server.sql("DELETE FROM t WHERE id = 1")
        assert "".join(chr(message[0]) for _, message in read(connection, 1)) == "BDC"
    with stream(server) as connection:
        assert "".join(chr(message[0]) for _, message in read(connection, 1)) == "BRDC"


def test_a_stream_begins_behind_the_position_of_a_reader_that_has_not_confirmed_it(server: Postgres) -> None:
    """The slot is confirmed after the offset is durable, so that a run that is killed in between has the newer position."""
    server.sql("INSERT INTO t VALUES (1, 'a')")
    with stream(server) as connection:
        position = end_of_last_commit(read(connection, 1))
    server.sql("INSERT INTO t VALUES (2, 'b')")
    with stream(server, position) as connection:
        found = read(connection, 1)
    assert [message[-1:] for _, message in found if message[:1] == b"I"] == [b"b"]


@pytest.mark.parametrize("rows", [1, 3_000])
def test_messages_of_any_size_come_whole(postgres: Postgres, postgres_factory: Any, rows: int) -> None:
    """A message is larger than the buffer, or the bytes of many are."""
    with postgres_factory() as server:
        prepare(server)
        size = 3 * BUFFER if rows == 1 else 4_001
        server.sql(
            f"INSERT INTO t SELECT g, repeat('ü', {size}) FROM generate_series(1, {rows}) g",
            "INSERT INTO t VALUES (0, 'x')",
        )
        with stream(server) as connection:
            found = read(connection, 2)
        inserted = [message for _, message in found if message[:1] == b"I"]
        assert [len(message) > 2 * size for message in inserted] == [*[True] * rows, False]
        assert inserted[0].endswith("ü".encode() * size)
        assert inserted[-1].endswith(b"x")


def test_a_quiet_stream_waits_no_longer_than_asked_and_learns_the_end_of_the_log(server: Postgres) -> None:
    with stream(server) as connection:
        began = time.monotonic()
        assert len(connection.read_block(0.3)) == 0
        assert 0.2 < time.monotonic() - began < 5
        ((end,),) = server.sql("SELECT pg_switch_wal()")  # nothing for a table
        wait_until(lambda: connection.read_block(0.1) is None or connection.server_end >= parse_lsn(end), "a keepalive")


def test_a_server_that_ends_streams_without_a_report_keeps_this_one(postgres_factory: Any) -> None:
    with postgres_factory(wal_sender_timeout="2s") as server:
        prepare(server)
        with stream(server) as connection:
            until = time.monotonic() + 5
            while time.monotonic() < until:
                connection.read_block(0.5)
            server.sql("INSERT INTO t VALUES (1, 'a')")
            assert read(connection, 1)


def test_the_server_says_why_there_is_no_stream(server: Postgres) -> None:
    with (
        pytest.raises(ReplicationError, match='replication slot "other" does not exist') as caught,
        stream(server, slot="other"),
    ):
        pass
    assert caught.value.state == "42704"
    with stream(server), pytest.raises(ReplicationError, match="is active for PID") as caught, stream(server):
        pass
    assert caught.value.state == "55006"
    with pytest.raises(ReplicationError, match="does not exist") as caught, stream(server, database="other"):
        pass
    assert caught.value.state == "3D000"


def test_a_stream_whose_server_process_ends_is_an_error(server: Postgres) -> None:
    with stream(server) as connection:
        server.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        with pytest.raises((ReplicationError, OSError)) as caught:
            connection.read_block(10)
    assert getattr(caught.value, "state", "57P01") == "57P01"
    server.kill()
    with pytest.raises(OSError, match="refused"), stream(server):
        pass


@pytest.mark.parametrize("method", ["scram-sha-256", "md5", "password"])
def test_passwords_are_checked_by_each_method_over_tls_and_without(
    postgres_factory: Any, tmp_path: Path, method: str
) -> None:
    with postgres_factory(password_encryption="md5" if method == "md5" else "scram-sha-256") as server:
        prepare(server)
        server.sql("CREATE ROLE reader LOGIN REPLICATION PASSWORD 'sécret'")
        authority = tls.authority(tmp_path)
        certificate = tls.sign_certificate(tmp_path, authority, "db", "127.0.0.1")
        for name, file in (("server.crt", certificate.file), ("server.key", certificate.key_file)):
            shutil.copyfile(file, server.data / name)
            subprocess.run(["chown", "--reference", server.data, server.data / name], check=True)
            (server.data / name).chmod(0o600)
        hba = server.data / "pg_hba.conf"
        hba.write_text(f"host all cdc all trust\nhost all reader all {method}\n")
        server.restart(ssl="on")
        server.sql("INSERT INTO t VALUES (1, 'a')")
        context = ssl.create_default_context(cafile=str(authority.file))
        for encrypted in (context, None):
            account = {"user": "reader", "password": "sécret", "tls": encrypted}
            with stream(server, **account) as connection:
                assert read(connection, 1)
                ((used,),) = server.sql("SELECT ssl FROM pg_stat_ssl JOIN pg_replication_slots ON active_pid = pid")
                assert used is (encrypted is not None)
            with (
                pytest.raises(ReplicationError, match="password authentication failed") as caught,
                stream(server, **{**account, "password": "wrong"}),
            ):
                pass
            assert caught.value.state == "28P01"
        other = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError), stream(server, user="reader", password="sécret", tls=other):
            pass


def test_a_server_without_tls_is_refused_where_it_is_required(postgres: Postgres) -> None:
    context = ssl.create_default_context()
    with pytest.raises(ReplicationError, match="does not offer TLS"), stream(postgres, tls=context):
        pass


def test_an_lsn_is_sent_as_the_server_reads_it(server: Postgres) -> None:
    lsn = 0x1_0000_00FF
    assert server.sql(f"SELECT '{format_lsn(lsn)}'::pg_lsn - '0/0'::pg_lsn") == [(lsn,)]
