"""Logins by token: every connection of a source makes a new one, sends it over verified TLS only, and shows it nowhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.core.errors import AccessDenied, ConfigError, SourceUnavailable
from airflow_provider_cdc.core.login_tokens import TOKEN_MAKERS, LoginAddress
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect
from tests.support.airflow.airflow_connector import connect as add_connection
from tests.support.connectors import Connector
from tests.support.servers import tls

USER = "token_user"
RIGHTS = "SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"


class TokenServer:
    """A real server, and a stand-in of the cloud that makes tokens of its account.

    A token is the account's only password until it expires. Then the next one is, and the server refuses the old one, as a cloud does.
    """

    def __init__(self, server: Any, authority: Path) -> None:
        self.server, self.authority = server, authority
        self.tokens, self.made, self.fails = ["token-0-ä"], 0, False
        server.sql(f"CREATE USER {USER}@'%' IDENTIFIED BY '{self.tokens[-1]}'", f"GRANT {RIGHTS} ON *.* TO {USER}@'%'")

    def make_token(self, address: LoginAddress, credentials: Any) -> str:
        assert (address, credentials) == (LoginAddress(self.server.host, self.server.port, USER), {"a": 1})
        if self.fails:
            raise ValueError("no credentials")
        self.made += 1
        return self.tokens[-1]

    def expire(self) -> None:
        self.tokens.append(f"token-{len(self.tokens)}-ä")
        self.server.sql(f"ALTER USER {USER}@'%' IDENTIFIED BY '{self.tokens[-1]}'")

    def end_connections(self) -> int:
        found = self.server.sql(f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'")
        for (number,) in found:
            with contextlib.suppress(pymysql.err.OperationalError):  # 1094: it has ended meanwhile
                self.server.sql(f"KILL {number}")
        return len(found)

    def properties(self, mode: str = "verify_ca") -> dict[str, Any]:
        return {
            "database.hostname": self.server.host,
            "database.port": self.server.port,
            "database.user": USER,
            "database.ssl.mode": mode,
            "database.ssl.ca": str(self.authority),
            "database.token.provider": "aws_rds",
            "database.token.credentials": '{"a": 1}',
        }


@pytest.fixture(params=["mysql97", "mariadb"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TokenServer]:
    if request.param == "mysql97":
        server = request.getfixturevalue("mysql97")
        made = TokenServer(server, server.data / "ca.pem")
    else:  # the shared server has no certificate
        folder = tmp_path_factory.mktemp("tls")
        authority = tls.authority(folder)
        certificate = tls.sign_certificate(folder, authority, "db", "127.0.0.1")
        files = {"ssl_cert": certificate.file, "ssl_key": certificate.key_file}
        made = TokenServer(request.getfixturevalue("mariadb_factory")(**files), authority.file)
    monkeypatch.setitem(TOKEN_MAKERS, "aws_rds", made.make_token)
    yield made
    made.server.sql(f"DROP USER {USER}@'%'")


def _connector(cloud: TokenServer, folder: Path, database: str) -> Connector:
    own = {"database.server.id": 4711, "table.include.list": f"{database}.t", "batch.max.ms": 300}
    return Connector(folder, "mysql" if cloud.server.kind == "mysql" else "mariadb", own, cloud.properties())


def test_snapshot_stream_and_each_reconnect_log_in_with_the_token_of_the_moment(
    cloud: TokenServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cloud.server.database("tokens") as database, caplog.at_level(logging.DEBUG):
        database.sql("CREATE TABLE t (a INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        connector = _connector(cloud, tmp_path, database.name)
        connector.capture()
        at_first = cloud.made
        assert at_first > 1
        cloud.expire()
        database.sql("INSERT INTO t VALUES (2)")
        changed = iter([False])

        def change_token_and_end_connections() -> bool:
            if next(changed, True):
                return len(connector.rows(f"{database.name}.t")) == 3
            cloud.expire()
            database.sql("INSERT INTO t VALUES (3)")
            return not cloud.end_connections()

        try:
            connector.capture(run_for_s=60, until=change_token_and_end_connections)
        except (
            SourceUnavailable,
            AccessDenied,
        ):  # Airflow runs the task again; a cloud takes an old token a while longer
            connector.capture()
        assert cloud.made > at_first
        assert sorted(row["a"] for row in connector.rows(f"{database.name}.t")) == [1, 2, 3]
    shown = caplog.text + "".join(p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file())
    assert not [token for token in cloud.tokens if token in shown or token.encode().decode("latin-1") in shown]


def test_the_check_of_a_connection_logs_in_by_token(cloud: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    add_connection(monkeypatch, "keys", conn_type="aws", extra={"region_name": "eu-central-1"})
    monkeypatch.setitem(TOKEN_MAKERS, "aws_rds", lambda address, credentials: cloud.make_token(address, {"a": 1}))
    fields = {"host": cloud.server.host, "port": cloud.server.port, "login": USER, "password": "unused"}
    extra = {
        "iam": True,
        "aws_conn_id": "keys",
        "database.ssl.mode": "verify_ca",
        "database.ssl.ca": str(cloud.authority),
    }
    add_connection(monkeypatch, "shop", conn_type=f"cdc_{cloud.server.kind}", **fields, extra=extra)
    for _ in range(2):
        assert CdcSourceHook("shop").test_connection() == (True, "Ready for capture.")
        cloud.expire()


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required"])
def test_a_token_is_not_sent_to_a_server_that_is_not_verified(mode: str) -> None:
    properties = {
        "topic.prefix": "p", "database.hostname": "db", "database.user": "u", "database.server.id": 7,
        "database.token.provider": "aws_rds", "database.ssl.mode": mode,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=f"database.ssl.mode={mode}: a login token could be read on its way"):
        MySqlConfig.parse(properties)


def test_errors_name_the_provider_and_the_repair(cloud: TokenServer) -> None:
    config = MySqlConfig.parse({"topic.prefix": "p", "database.server.id": 7, **cloud.properties()})
    cloud.tokens.append("not-the-password")
    with pytest.raises(AccessDenied, match="let the account log in by aws_rds") as refused:
        connect(config)
    cloud.fails = True
    with pytest.raises(SourceUnavailable, match="No login token of aws_rds could be made: ValueError: no credentials"):
        connect(config)
    assert "not-the-password" not in str(refused.value) + repr(refused.value.__cause__)
    with pytest.raises(ConfigError, match="use one of aws_rds, azure_entra, google_cloud_sql"):
        MySqlConfig.parse({**cloud.properties(), "database.token.provider": "vault"})
