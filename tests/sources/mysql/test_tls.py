"""Encryption where it was asked for: on every connection, all the way to the server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, inspect_encryption, server_of
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.connectors import mysql_connector
from tests.support.servers import tls

MUST = ("required", "verify_ca", "verify_identity")


def _config(server: Any, **properties: Any) -> MySqlConfig:
    named = {k.replace("_", "."): v for k, v in properties.items()}
    login = {"database.hostname": server.host, "database.port": server.port, "database.user": server.user}
    secret = {"database.password": server.password, "database.server.id": 4811, "topic.prefix": "p"}
    return MySqlConfig.parse(login | secret | named)


@pytest.mark.parametrize("kind", ["mysql97", "mysql80", "mariadb 11.8"])
def test_an_encrypted_connection_is_known_as_one(request: pytest.FixtureRequest, kind: str) -> None:
    name, _, edition = kind.partition(" ")
    server = request.getfixturevalue(f"{name}_factory")(edition) if edition else request.getfixturevalue(name)
    for mode in ("preferred", "required"):
        connection = connect(_config(server, database_ssl_mode=mode))
        assert inspect_encryption(connection).startswith("TLSv1."), mode
        connection.close()
    connection = connect(_config(server, database_ssl_mode="disabled"))
    assert inspect_encryption(connection) == ""
    connection.close()


@pytest.mark.parametrize("mode", MUST)
@pytest.mark.parametrize("kind", ["mysql97", "mysql80"])
def test_anyone_who_takes_the_offer_of_tls_out_of_the_greeting_is_refused(
    request: pytest.FixtureRequest, kind: str, mode: str
) -> None:
    server = request.getfixturevalue(kind)
    with tls.strip_tls(server) as port:
        config = _config(server, database_port=port, database_ssl_mode=mode)
        with pytest.raises(PrerequisiteError, match=f"would not be encrypted, although database.ssl.mode={mode}"):
            connect(config)
        plain = connect(_config(server, database_port=port, database_ssl_mode="disabled"))
        known = server_of(plain)
        plain.close()
        with pytest.raises(PrerequisiteError, match="would not be encrypted"):
            BinlogConnection(config, known, MySqlPosition("binlog.000001", 4), unregistered=True)


@pytest.mark.parametrize("mode", MUST)
def test_anyone_who_ends_tls_on_the_way_is_refused(mysql97: Any, tmp_path: Path, mode: str) -> None:
    """Even with a certificate that is trusted: the traffic to the server is plain text, and the server says so."""
    ca = tls.authority(tmp_path)
    certificate = tls.sign_certificate(tmp_path, ca, "somebody", mysql97.host)
    connect(_config(mysql97)).close()  # from now on the server knows the password, and needs no more than its hash
    with tls.end_tls(mysql97, certificate) as port:
        config = _config(mysql97, database_port=port, database_ssl_mode=mode, database_ssl_ca=str(ca.file))
        with pytest.raises(PrerequisiteError, match="would not be encrypted"):
            connect(config)
        preferred = connect(_config(mysql97, database_port=port))
        assert isinstance(preferred._sock, ssl.SSLSocket)
        assert inspect_encryption(preferred) == ""
        preferred.close()


def test_the_connection_of_the_log_is_encrypted_as_the_others(mysql97: Any) -> None:
    config = _config(mysql97, database_ssl_mode="required")
    connection = connect(config)
    place = MySqlPosition(mysql97.sql("SHOW BINARY LOGS")[0][0], 4)
    with BinlogConnection(config, server_of(connection), place, unregistered=True) as log:
        assert isinstance(log._connection._sock, ssl.SSLSocket)
        assert sum(len(events) for events in log.read_events() if events is not None) > 0
    connection.close()


def test_the_check_reports_that_preferred_went_on_in_plain_text(mysql97: Any, mariadb: Any, tmp_path: Path) -> None:
    def list_tls_findings(server: Any, kind: str, **more: Any) -> list[tuple[str, bool]]:
        connector = mysql_connector(server, tmp_path / kind, kind, **more)
        with open_source(connector.definition(), connector.secrets) as source:
            return [(f.fix, f.fatal) for f in source.check_prerequisites() if "not encrypted" in f.problem]

    assert list_tls_findings(mysql97, "mysql") == []
    ((fix, fatal),) = list_tls_findings(mariadb, "mariadb")  # which has no certificate
    assert "database.ssl.mode=required" in fix
    assert not fatal
    assert list_tls_findings(mariadb, "mariadb", **{"database.ssl.mode": "disabled"}) == []
    with tls.strip_tls(mysql97) as port:
        ((fix, _),) = list_tls_findings(mysql97, "mysql", **{"database.port": port})
        assert "database.ssl.mode=required" in fix
