"""Logins by token: each connection asks for a new one, the clouds' own libraries sign, and errors name what is missing."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetUnavailable
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.login_tokens import TOKEN_MAKERS
from airflow_provider_cdc.targets.database.target_engine import open_engine

RDS = "postgresql://cdc@shop.abc.eu-central-1.rds.amazonaws.com/shop"
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "hunter2hunter2", "region_name": "eu-central-1"}


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

    def make_token(url: sa.URL, credentials: Any) -> str:
        assert (url.username, credentials) == ("token_user", {"a": 1})
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


def test_boto_signs_a_token_without_asking_the_cloud() -> None:
    pytest.importorskip("boto3")
    token = TOKEN_MAKERS["aws_rds"](sa.make_url(RDS), KEYS)
    host, _, query = token.partition("/?")
    fields = urllib.parse.parse_qs(query)
    assert host == "shop.abc.eu-central-1.rds.amazonaws.com:5432"
    assert (fields["Action"], fields["DBUser"], fields["X-Amz-Expires"]) == (["connect"], ["cdc"], ["900"])
    assert fields["X-Amz-Credential"][0].startswith("AKIAEXAMPLE/")
    assert "/eu-central-1/rds-db/" in fields["X-Amz-Credential"][0]
    assert "hunter2" not in token


def _no_region(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    return {name: value for name, value in KEYS.items() if name != "region_name"}


def test_a_cloud_that_gives_no_token_is_an_error_with_the_librarys_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    engine = _engine(RDS, "aws_rds", _no_region(monkeypatch))
    with pytest.raises(TargetUnavailable, match=r"aws_rds.*NoRegionError") as caught:
        engine.connect()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "module", "package"),
    [("google_cloud_sql", "google.auth", "google-auth"), ("azure_entra", "azure.identity", "azure-identity")],
)
def test_a_library_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, provider: str, module: str, package: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        _engine(RDS, provider).connect()


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(ConfigError, match="aws_rds, azure_entra, google_cloud_sql"):
        _engine(RDS, "vault")


def _stand_in_for_google(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    import sys
    from types import ModuleType, SimpleNamespace

    def load(key: Any, *, scopes: list[str]) -> Any:
        seen.append((key, scopes))
        credentials = SimpleNamespace(token=None)
        credentials.refresh = lambda request: setattr(credentials, "token", "ya29.x")
        return credentials, "project"

    modules = {
        name: ModuleType(name)
        for name in ("google", "google.auth", "google.auth.transport", "google.auth.transport.requests")
    }
    modules["google"].auth = modules["google.auth"]  # type: ignore[attr-defined]
    modules["google.auth"].load_credentials_from_dict = load  # type: ignore[attr-defined]
    modules["google.auth.transport.requests"].Request = object  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def _stand_in_for_azure(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    import sys
    from types import ModuleType, SimpleNamespace

    def secret(**fields: str) -> Any:
        return SimpleNamespace(get_token=lambda scope: seen.append((fields, scope)) or SimpleNamespace(token="ey.x"))

    identity = ModuleType("azure.identity")
    identity.ClientSecretCredential = secret  # type: ignore[attr-defined]
    identity.DefaultAzureCredential = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure", ModuleType("azure"))
    monkeypatch.setitem(sys.modules, "azure.identity", identity)


@pytest.mark.parametrize(
    ("provider", "stand_in", "credentials", "scope"),
    [
        ("google_cloud_sql", _stand_in_for_google, {"keyfile_dict": {"type": "service_account"}}, "sqlservice.login"),
        (
            "azure_entra",
            _stand_in_for_azure,
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
            "ossrdbms-aad",
        ),
    ],
)
def test_google_and_azure_are_asked_for_a_token_of_their_databases(
    monkeypatch: pytest.MonkeyPatch, provider: str, stand_in: Callable[..., None], credentials: Any, scope: str
) -> None:
    """The libraries are stand-ins, by their documented interfaces: none of them is installed here, and no cloud was asked."""
    seen: list[Any] = []
    stand_in(monkeypatch, seen)
    assert TOKEN_MAKERS[provider](sa.make_url(RDS), credentials) in ("ya29.x", "ey.x")
    ((_, scopes),) = seen
    assert scope in str(scopes)
