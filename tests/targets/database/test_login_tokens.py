"""Logins by token: each connection of an engine asks for a new one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetUnavailable
from airflow_provider_cdc.core.login_tokens import TOKEN_MAKERS, LoginAddress
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine

RDS = "postgresql://cdc@shop.abc.eu-central-1.rds.amazonaws.com/shop"


def _engine(url: str, provider: str, credentials: Any = None, **properties: Any) -> sa.Engine:
    properties |= {"connection.url": url, "connection.token.provider": provider}
    if credentials is not None:
        properties["connection.token.credentials"] = json.dumps(credentials)
    return open_engine(DatabaseTargetConfig.parse(properties))


@pytest.mark.parametrize("kind", ["postgres", "mysql97"])
def test_each_connection_logs_in_with_a_new_token(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server is real. The cloud is a stand-in: each token that it makes becomes the account's only password, as if the one before had expired."""
    server = request.getfixturevalue(kind)
    made: list[str] = []
    account = "token_user" if kind == "postgres" else "token_user@'%'"
    words = "PASSWORD" if kind == "postgres" else "IDENTIFIED BY"

    def make_token(address: LoginAddress, credentials: Any) -> str:
        assert (address, credentials) == (LoginAddress(server.host, server.port, "token_user"), {"a": 1})
        made.append(f"token-{len(made)}-ä")
        server.sql(f"ALTER USER {account} {words} '{made[-1]}'")
        return made[-1]

    monkeypatch.setitem(TOKEN_MAKERS, "aws_rds", make_token)
    with server.database("tokens") as name:
        database = str(getattr(name, "name", name))
        login = "LOGIN PASSWORD 'x'" if kind == "postgres" else "IDENTIFIED BY 'x'"
        server.sql(f"CREATE USER {account} {login}")
        if kind == "mysql97":
            server.sql(f"GRANT SELECT ON {database}.* TO {account}")
        url = sa.make_url(server.url(database)).set(username="token_user", password="expired")
        engine = _engine(url.render_as_string(hide_password=False), "aws_rds", {"a": 1})
        try:
            for number in (1, 2, 3):
                with engine.connect() as c:
                    assert c.scalar(sa.text("SELECT 1")) == 1
                    c.invalidate()  # the connection is lost
                assert len(made) == number
        finally:
            engine.dispose()
            server.sql(f"DROP USER {account}")


def test_a_cloud_that_gives_no_token_is_an_unavailable_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud is a stand-in."""

    def refuse(address: LoginAddress, credentials: Any) -> str:
        assert address.port == 5432  # the URL has none
        raise TimeoutError("no answer")

    monkeypatch.setitem(TOKEN_MAKERS, "aws_rds", refuse)
    with pytest.raises(TargetUnavailable, match=r"aws_rds.*TimeoutError: no answer"):
        _engine(RDS, "aws_rds").connect()


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(ConfigError, match="aws_rds, azure_entra, google_cloud_sql"):
        _engine(RDS, "vault")
