"""Login tokens: the clouds' own libraries sign them, and errors name the missing part."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, SourceUnavailable
from airflow_provider_cdc.core.login_tokens import TOKEN_MAKERS, LoginAddress, make_login_token

RDS = LoginAddress("shop.abc.eu-central-1.rds.amazonaws.com", 5432, "cdc")
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "hunter2hunter2", "region_name": "eu-central-1"}


def _make(provider: str, credentials: Any = None) -> str:
    given = json.dumps(credentials) if credentials else ""
    return make_login_token(provider, RDS, given, unavailable=SourceUnavailable, safe="Nothing was read.")


def test_boto_signs_a_token_without_asking_the_cloud() -> None:
    pytest.importorskip("boto3")
    token = _make("aws_rds", KEYS)
    host, _, query = token.partition("/?")
    fields = urllib.parse.parse_qs(query)
    assert host == "shop.abc.eu-central-1.rds.amazonaws.com:5432"
    assert (fields["Action"], fields["DBUser"], fields["X-Amz-Expires"]) == (["connect"], ["cdc"], ["900"])
    assert fields["X-Amz-Credential"][0].startswith("AKIAEXAMPLE/")
    assert "/eu-central-1/rds-db/" in fields["X-Amz-Credential"][0]
    assert "hunter2" not in token


def test_each_token_assumes_the_role_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service that gives credentials of a role is a stand-in of moto; credentials of a role end after an hour."""
    pytest.importorskip("boto3")
    moto = pytest.importorskip("moto")
    with moto.mock_aws():
        role = {"role_arn": "arn:aws:iam::123456789012:role/etl", **KEYS}
        tokens = {urllib.parse.parse_qs(_make("aws_rds", role))["X-Amz-Security-Token"][0] for _ in range(2)}
    assert len(tokens) == 2


def _no_region(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    return {name: value for name, value in KEYS.items() if name != "region_name"}


def test_a_cloud_that_gives_no_token_is_an_error_with_the_librarys_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    with pytest.raises(SourceUnavailable, match=r"aws_rds.*NoRegionError") as caught:
        _make("aws_rds", _no_region(monkeypatch))
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
        _make(provider)


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
    assert TOKEN_MAKERS[provider](RDS, credentials) in ("ya29.x", "ey.x")
    ((_, scopes),) = seen
    assert scope in str(scopes)
