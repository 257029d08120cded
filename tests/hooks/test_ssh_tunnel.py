"""Tunnels through a real SSH server: sources and targets behind it, breaks, host keys, and errors that name the cause."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    PrerequisiteError,
    SourceUnavailable,
    TargetUnavailable,
)
from airflow_provider_cdc.core.ssh_tunnels import find_address
from airflow_provider_cdc.hooks import ssh_tunnel
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.target_database import CdcDatabaseHook, open_database
from airflow_provider_cdc.operators.apply_to_database_on_spark import ApplyToDatabaseOnSparkOperator
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect as connect_source
from dev.ports import free_port
from dev.servers import Db2, Oracle, Sshd
from tests.support.airflow.airflow_connector import connect
from tests.support.connectors import Connector
from tests.support.patience import wait_until
from tests.support.servers import tls

pytest.importorskip("airflow.providers.ssh.hooks.ssh")


@pytest.fixture(autouse=True)
def no_known_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the keys and hosts that this machine knows out of the tests, and tunnels of one test out of the next."""
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    for tunnel in ssh_tunnel._tunnels.values():
        tunnel._disconnect()
    ssh_tunnel._tunnels.clear()


@pytest.fixture
def bastion(sshd_factory: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch) -> Sshd:
    server = sshd_factory()
    add_bastion(monkeypatch, server)
    return server


def add_bastion(monkeypatch: pytest.MonkeyPatch, server: Sshd, name: str = "bastion", **extra: Any) -> None:
    """Make Airflow's connection to an SSH server; extras of ``None`` are left out."""
    fields = {"private_key": server.user_key, "host_key": server.host_key, **extra}
    connect(
        monkeypatch, name, conn_type="ssh", host=server.host, port=server.port, login=server.user,
        extra={key: value for key, value in fields.items() if value is not None},
    )  # fmt: skip


def add_source(monkeypatch: pytest.MonkeyPatch, server: Any, **extra: Any) -> None:
    connect(
        monkeypatch, "shop", conn_type=f"cdc_{server.kind}", host=extra.pop("host", server.host), port=server.port,
        login=server.user, password=server.password, extra={"ssh_conn_id": "bastion", **extra},
    )  # fmt: skip


def make_config(**more: Any) -> MySqlConfig:
    return MySqlConfig.parse(
        {"topic.prefix": "p", "database.server.id": 7, **CdcSourceHook("shop").resolve_properties(), **more}
    )


def test_a_capture_goes_through_the_tunnel_and_goes_on_after_a_break(
    bastion: Sshd, database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_source(monkeypatch, database.server)
    database.sql("CREATE TABLE t (a INT PRIMARY KEY, v VARCHAR(200))")
    database.sql("INSERT INTO t SELECT seq, REPEAT('x', 200) FROM seq_1_to_20000")
    own = {"database.server.id": 4712, "table.include.list": f"{database.name}.t", "batch.max.ms": 300}
    connector = Connector(tmp_path / "c", "mariadb", own, CdcSourceHook("shop").resolve_properties())
    connector.capture()
    assert bastion.sessions()
    database.sql("INSERT INTO t VALUES (20001, '')")
    breaks = iter([True])

    def break_tunnel_once() -> bool:
        rows = {row["a"] for row in connector.rows(f"{database.name}.t")}
        if 20001 in rows and next(breaks, False):
            assert bastion.end_sessions()
            database.sql("INSERT INTO t VALUES (20002, '')")
        return 20002 in rows

    try:
        connector.capture(run_for_s=60, until=break_tunnel_once)
    except SourceUnavailable:  # Airflow runs the task again
        connector.capture()
    assert sorted(row["a"] for row in connector.rows(f"{database.name}.t")) == [*range(1, 20003)]
    bastion.stop()
    with pytest.raises(SourceUnavailable, match="The SSH server of bastion cannot be reached"):
        connector.capture()


def test_the_connection_check_uses_the_tunnel(bastion: Sshd, mariadb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add_source(monkeypatch, mariadb, **{"database.ssl.mode": "disabled"})
    assert CdcSourceHook("shop").test_connection() == (True, "Ready for capture.")
    assert bastion.sessions()


def test_a_certificate_is_compared_with_the_host_behind_the_tunnel(
    bastion: Sshd, mariadb_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tls.authority(tmp_path)
    certificate = tls.sign_certificate(tmp_path, authority, "db", "localhost")
    server = mariadb_factory(ssl_cert=certificate.file, ssl_key=certificate.key_file)
    verified = {"database.ssl.mode": "verify_identity", "database.ssl.ca": str(authority.file)}
    add_source(monkeypatch, server, host="localhost", **verified)
    connect_source(make_config()).close()
    add_source(monkeypatch, server, **verified)
    with pytest.raises(PrerequisiteError, match="certificate does not satisfy"):
        connect_source(make_config())


@pytest.mark.parametrize(("database", "more"), [(Oracle, {}), (Db2, {"database.authentication": "server"})])
def test_the_other_relational_sources_use_the_tunnel(
    bastion: Sshd, monkeypatch: pytest.MonkeyPatch, database: type[Oracle | Db2], more: dict[str, str]
) -> None:
    """The databases are the test servers, which are stand-ins; their drivers are real."""
    with database() as server:
        connect(
            monkeypatch, "shop", conn_type=f"cdc_{server.kind}", host=server.host, port=server.port, login=server.user,
            password=server.password, schema=server.database, extra={"ssh_conn_id": "bastion", **more},
        )  # fmt: skip
        CdcSourceHook("shop").check_prerequisites()
        assert bastion.sessions()


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_target_is_reached_through_the_tunnel_also_after_a_break(
    request: pytest.FixtureRequest, bastion: Sshd, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = request.getfixturevalue(kind)
    fields = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
    schema = "postgres" if kind == "postgres" else None
    connect(monkeypatch, "warehouse", conn_type=kind, schema=schema, **fields, extra={"ssh_conn_id": "bastion"})
    with open_database("warehouse", {}) as (engine, _):
        assert engine.url.port == server.port
        for _ in range(2):
            with engine.connect() as c:
                assert c.scalar(sa.text("SELECT 1")) == 1
                assert bastion.end_sessions()
                with pytest.raises(sa.exc.DBAPIError):
                    c.scalar(sa.text("SELECT 1"))
        bastion.stop()
        with pytest.raises(TargetUnavailable, match="The SSH server of bastion cannot be reached"):
            engine.connect()


def test_another_host_key_is_an_error_before_the_login(
    bastion: Sshd, mariadb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_source(monkeypatch, mariadb)
    bastion.renew_host_key()
    bastion.restart()
    with pytest.raises(
        PrerequisiteError, match=r"another host key.*SHA256:\S+ instead of ssh-ed25519 SHA256:"
    ) as caught:
        connect_source(make_config())
    assert "ssh-keyscan" in str(caught.value)
    assert "Accepted publickey" not in bastion.log.read_text()


def test_an_unknown_host_key_is_accepted_only_if_the_connection_says_so(
    bastion: Sshd, mariadb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_source(monkeypatch, mariadb)
    add_bastion(monkeypatch, bastion, host_key=None)
    with pytest.raises(PrerequisiteError, match="host key of the SSH server is not known"):
        connect_source(make_config())
    add_bastion(monkeypatch, bastion, host_key=None, no_host_key_check=True)
    connect_source(make_config()).close()


def test_the_default_of_older_providers_does_not_accept_any_host_key(
    bastion: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is the real one, with the default that it had in older releases."""
    from airflow.providers.ssh.hooks.ssh import SSHHook

    add_bastion(monkeypatch, bastion, host_key=None)
    made = SSHHook.__init__

    def with_older_default(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.no_host_key_check = True

    monkeypatch.setattr(SSHHook, "__init__", with_older_default)
    with pytest.raises(PrerequisiteError, match="has no host key: any server could pass for the bastion"):
        find_address("bastion", "db", 3306, unavailable=SourceUnavailable)


def test_errors_name_the_cause_and_the_repair(
    bastion: Sshd, sshd_factory: Callable[..., Sshd], mariadb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error_of(port: int = mariadb.port) -> CdcError:
        with pytest.raises(CdcError) as caught:
            find_address("bastion", mariadb.host, port, unavailable=SourceUnavailable)
        return caught.value

    behind = error_of(free_port())
    assert isinstance(behind, SourceUnavailable)
    assert "cannot be reached from the SSH server of bastion: Connect failed" in str(behind)
    assert "those that the bastion sees" in str(behind)

    stranger = sshd_factory()
    add_bastion(monkeypatch, bastion, private_key=stranger.user_key)
    rejected = error_of()
    assert isinstance(rejected, AccessDenied)
    assert "authorized_keys" in str(rejected)
    assert stranger.user_key.splitlines()[1] not in str(rejected)

    closed = sshd_factory(AllowTcpForwarding=False)
    add_bastion(monkeypatch, closed)
    prohibited = error_of()
    assert isinstance(prohibited, AccessDenied)
    assert "AllowTcpForwarding" in str(prohibited)

    add_bastion(monkeypatch, bastion, private_key=None, key_file="/nowhere/key")
    assert "/nowhere/key" in str(error_of())
    add_bastion(monkeypatch, bastion, private_key="no key")
    assert isinstance(error_of(), ConfigError)
    monkeypatch.delenv("AIRFLOW_CONN_BASTION")
    assert "Connection bastion, which ssh_conn_id names, does not exist" in str(error_of())
    monkeypatch.setitem(sys.modules, "airflow.providers.ssh.hooks.ssh", None)
    add_bastion(monkeypatch, bastion)
    assert "pip install 'airflow-provider-cdc[ssh]'" in str(error_of())


def test_a_tunnel_without_users_closes_and_opens_again(
    bastion: Sshd, mariadb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_tunnel, "IDLE_S", 0.2)
    add_source(monkeypatch, mariadb)
    for _ in range(2):
        connection = connect_source(make_config())
        assert bastion.sessions()
        time.sleep(1.5)
        assert bastion.sessions()
        connection.close()
        wait_until(lambda: not bastion.sessions(), "the tunnel is closed")


def test_connections_that_cannot_use_a_tunnel_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ssh = {"ssh_conn_id": "bastion"}
    connect(monkeypatch, "mongo", conn_type="cdc_mongodb", host="db", extra=ssh)
    with pytest.raises(ConfigError, match="cannot contain ssh_conn_id"):
        CdcSourceHook("mongo").resolve_properties()
    connect(monkeypatch, "file", conn_type="sqlite", host=str(tmp_path / "db"), extra=ssh)
    with pytest.raises(ConfigError, match="SQLite is a file"):
        CdcDatabaseHook("file").resolve_properties()
    connect(monkeypatch, "warehouse", conn_type="postgres", host="db", extra=ssh)
    operator = ApplyToDatabaseOnSparkOperator(
        task_id="apply",
        definition=ConnectorDefinition("shop", "memory", "/lake"),
        conn_id="spark",
        database_conn_id="warehouse",
    )
    with pytest.raises(ConfigError, match="executors of Spark cannot use the tunnel"):
        operator._properties()
    for kind, more, words in (
        ("oracle", {"database.url": "db:1521/X"}, "instead of database.url"),
        ("oracle", {"database.protocol": "tcps"}, "database.ssl.server.cert.dn"),
        ("db2", {"database.ssl.mode": "required"}, "database.ssl.hostname.validation=false"),
    ):
        connect(monkeypatch, "shop", conn_type=f"cdc_{kind}", host="db", login="cdc", schema="X", extra={**ssh, **more})
        with pytest.raises(ConfigError, match=words):
            CdcSourceHook("shop").check_prerequisites()
