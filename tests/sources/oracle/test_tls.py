"""TCPS, with the real driver: what is encrypted, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import connect
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.servers import tls

DN = "CN=db server"


@dataclass
class TlsServer:
    """A server that listens with TLS too, under a certificate for ``localhost``.

    :param ca: PEM file of the authority that has signed it
    """

    server: Oracle
    ca: str
    folder: Path


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("tls")
    ca = tls.authority(folder)
    certificate = tls.sign_certificate(folder, ca, "db server", "localhost")
    with Oracle({"tls": [str(certificate.file), str(certificate.key_file)]}) as server:
        yield TlsServer(server, str(ca.file), folder)


def _ask_server(secure: TlsServer, **properties: Any) -> Any:
    """The answer to a question by a connection with TLS."""
    server = secure.server
    named = {k.replace("_", "."): v for k, v in properties.items()}
    config = OracleConfig.parse(
        {
            "topic.prefix": "p",
            "database.hostname": "localhost",
            "database.port": server.tls_port,
            "database.user": server.user,
            "database.password": server.password,
            "database.dbname": server.database,
            "database.protocol": "tcps",
            **named,
        }
    )
    with connect(config) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 42 FROM DUAL")
        return cursor.fetchone()[0]


def test_a_connector_captures_by_tcps(tls_server: TlsServer, tmp_path: Path) -> None:
    server = tls_server.server
    server.sql("CREATE TABLE t (id NUMBER(9) PRIMARY KEY)", "ALTER TABLE t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    server.sql("INSERT INTO t VALUES (1)")
    connector = oracle_connector(server, tmp_path, database_protocol="tcps", database_ssl_ca=tls_server.ca)
    connector.secrets |= {"database.hostname": "localhost", "database.port": server.tls_port}
    with open_source(connector.definition(), connector.secrets) as source:
        assert [f for f in source.check_prerequisites() if f.fatal] == []
    connector.capture()
    server.sql("INSERT INTO t VALUES (2)")
    connector.capture()
    assert connector.rows(f"{server.owner}.T") == [{"ID": 1}, {"ID": 2}]


@pytest.mark.parametrize(
    "trusting",
    [
        {"database_ssl_ca": "{ca}"},
        {"database_ssl_wallet": "{wallet}"},
        {"database_ssl_ca": "{ca}", "database_ssl_server_cert_dn": DN},
        {"database_ssl_ca": "{ca}", "database_hostname": "127.0.0.1", "database_ssl_server_cert_dn": DN},
        {"database_ssl_ca": "{ca}", "database_hostname": "127.0.0.1", "database_ssl_server_dn_match": False},
        {"database_ssl_ca": "{ca}", "database_url": "tcps://localhost:{port}/{database}"},
        {"database_ssl_ca": "{ca}", "database_url": "jdbc:oracle:thin:@tcps://localhost:{port}/{database}", "database_protocol": "tcp"},
    ],
)  # fmt: skip
def test_a_server_that_is_whom_it_should_be_is_let_in(tls_server: TlsServer, trusting: dict[str, Any]) -> None:
    assert _ask_server(tls_server, **_fill_placeholders(tls_server, trusting)) == 42


@pytest.mark.parametrize(
    ("trusting", "why"),
    [
        ({}, "certificate verify failed"),  # the system's authorities
        ({"database_ssl_ca": "{other}"}, "certificate verify failed"),
        ({"database_ssl_wallet": "{wallet of the other}"}, "certificate verify failed"),
        ({"database_ssl_wallet": "{nothing}"}, "ewallet.pem was not found"),
        ({"database_ssl_ca": "{ca}", "database_hostname": "127.0.0.1"}, "does not match"),
        ({"database_ssl_ca": "{ca}", "database_ssl_server_cert_dn": "CN=another"}, "does not match"),
        ({"database_ssl_ca": "{other}", "database_ssl_server_dn_match": False}, "certificate verify failed"),
    ],
)
def test_a_server_that_is_someone_else_is_refused(tls_server: TlsServer, trusting: dict[str, Any], why: str) -> None:
    with pytest.raises(PrerequisiteError, match=why) as caught:
        _ask_server(tls_server, **_fill_placeholders(tls_server, trusting))
    assert "database.ssl.ca" in str(caught.value.remedy)
    assert tls_server.server.password not in str(caught.value)


def test_tcps_is_no_wish_that_a_url_may_pass_over(tls_server: TlsServer) -> None:
    url = f"localhost:{tls_server.server.port}/{tls_server.server.database}"
    with pytest.raises(ConfigError, match=r"is tcps, but database\.url uses tcp"):
        _ask_server(tls_server, database_url=url, database_ssl_ca=tls_server.ca)
    both = "(DESCRIPTION=(ADDRESS=(PROTOCOL=TCPS)(HOST=a)(PORT=1))(ADDRESS=(PROTOCOL=TCP)(HOST=b)(PORT=2))(CONNECT_DATA=(SERVICE_NAME=x)))"
    with pytest.raises(ConfigError, match="uses tcp, tcps"):
        _ask_server(tls_server, database_url=both)


def test_a_node_of_a_cluster_is_spoken_to_as_the_url_says(tls_server: TlsServer) -> None:
    """A host in place of the address is of the same protocol: nothing continues in plain text."""
    server = tls_server.server
    url = f"tcps://localhost:{server.tls_port}/{server.database}"
    config = OracleConfig.parse(
        {
            "topic.prefix": "p",
            "database.url": url,
            "database.user": server.user,
            "database.password": server.password,
            "database.dbname": server.database,
            "database.ssl.ca": tls_server.ca,
        }
    )
    connect(config, host=f"localhost:{server.tls_port}").close()


def test_plain_text_to_a_listener_with_tls_is_an_error(tls_server: TlsServer) -> None:
    with pytest.raises(SourceUnavailable):
        _ask_server(tls_server, database_protocol="tcp")


def test_a_client_shows_the_certificate_of_its_wallet(tmp_path: Path) -> None:
    ca = tls.authority(tmp_path)
    certificate, client = (
        tls.sign_certificate(tmp_path, ca, name, "localhost") for name in ("db server", "a connector")
    )
    with Oracle({"tls": [str(certificate.file), str(certificate.key_file), str(ca.file)]}) as server:
        secure = TlsServer(server, str(ca.file), tmp_path)
        (tmp_path / "ewallet.pem").write_bytes(
            b"".join(f.read_bytes() for f in (client.file, client.key_file, ca.file))
        )
        assert _ask_server(secure, database_ssl_wallet=str(tmp_path)) == 42
        with pytest.raises(SourceUnavailable):
            _ask_server(secure, database_ssl_ca=str(ca.file))


def _fill_placeholders(secure: TlsServer, properties: dict[str, Any]) -> dict[str, Any]:
    other = tls.authority(secure.folder / "other", "other authority")
    for name, file in (("wallet", Path(secure.ca)), ("wallet of the other", other.file)):
        (folder := secure.folder / name).mkdir(exist_ok=True)
        (folder / "ewallet.pem").write_bytes(file.read_bytes())
    known = {
        "{ca}": secure.ca, "{other}": str(other.file), "{wallet}": str(secure.folder / "wallet"),
        "{wallet of the other}": str(secure.folder / "wallet of the other"), "{nothing}": str(secure.folder / "nothing"),
        "{port}": str(secure.server.tls_port), "{database}": secure.server.database,
    }  # fmt: skip
    filled = {}
    for name, value in properties.items():
        for mark, text in known.items():
            value = value.replace(mark, text) if isinstance(value, str) else value
        filled[name] = value
    return filled
