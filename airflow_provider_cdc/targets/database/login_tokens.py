"""Logins by a token that is valid for minutes: RDS and Aurora, Cloud SQL, Azure Database.

A token is made for each connection that the engine opens, so that a long run survives the end of a token. Each cloud's library is
imported when its first token is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetUnavailable

TokenMaker = Callable[[sa.URL, Mapping[str, Any]], str]
"""Makes a token for the login of a URL, with credentials."""


def use_login_tokens(engine: sa.Engine, provider: str, credentials: str) -> None:
    """Let each connection of an engine log in with a new token as its password.

        >>> use_login_tokens(engine, "aws_rds", '{"region_name": "eu-central-1"}')

    :param provider: a key of :data:`TOKEN_MAKERS`
    :param credentials: a JSON object for it; an empty text means those of the environment
    :raises ConfigError: there is no such provider
    """
    if provider not in TOKEN_MAKERS:
        raise ConfigError(
            f"connection.token.provider={provider}: unknown", remedy=f"use one of {', '.join(sorted(TOKEN_MAKERS))}"
        )
    given: dict[str, Any] = json.loads(credentials or "{}")

    @sa.event.listens_for(engine, "do_connect")
    def set_password(dialect: Any, record: Any, arguments: Any, settings: dict[str, Any]) -> None:
        settings["password"] = _make_token(engine.url, provider, given)


def _make_token(url: sa.URL, provider: str, credentials: Mapping[str, Any]) -> str:
    """Make a token.

    :raises ConfigError: the library is not installed
    :raises TargetUnavailable: the cloud gives no token
    """
    try:
        return TOKEN_MAKERS[provider](url, credentials)
    except CdcError:
        raise
    except ImportError as e:
        raise ConfigError(
            f"The library for login tokens of {provider} is not installed: {e}",
            remedy=f"in the environment of Airflow's workers: pip install {_PACKAGES[provider]}",
        ) from e
    except Exception as e:  # each library has errors of its own; their texts name the missing credential or right
        raise TargetUnavailable(
            f"No login token of {provider} could be made: {type(e).__name__}: {e}",
            where=url.set(query={}).render_as_string(hide_password=True),
            safe="Its tables are complete up to the batch of their marker.",
            remedy="check the credentials of the worker, or of the cloud connection that the target's connection names",
        ) from e


def _aws_rds(url: sa.URL, credentials: Mapping[str, Any]) -> str:
    import boto3

    client = boto3.Session(**credentials).client("rds")
    port = url.port or _PORTS[url.get_backend_name()]
    return str(client.generate_db_auth_token(DBHostname=url.host, Port=port, DBUsername=url.username))


def _google_cloud_sql(url: sa.URL, credentials: Mapping[str, Any]) -> str:
    import google.auth
    from google.auth.transport.requests import Request

    scopes = ["https://www.googleapis.com/auth/sqlservice.login"]
    if "keyfile_dict" in credentials:
        login, _ = google.auth.load_credentials_from_dict(credentials["keyfile_dict"], scopes=scopes)
    elif "key_path" in credentials:
        login, _ = google.auth.load_credentials_from_file(credentials["key_path"], scopes=scopes)
    else:
        login, _ = google.auth.default(scopes=scopes)
    login.refresh(Request())
    return str(login.token)


def _azure_entra(url: sa.URL, credentials: Mapping[str, Any]) -> str:
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    if {"tenant_id", "client_id", "client_secret"} <= credentials.keys():
        names = ("tenant_id", "client_id", "client_secret")
        login: Any = ClientSecretCredential(**{name: credentials[name] for name in names})
    else:
        managed = credentials.get("managed_identity_client_id")
        login = DefaultAzureCredential(managed_identity_client_id=managed)
    return str(login.get_token("https://ossrdbms-aad.database.windows.net/.default").token)


_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_PACKAGES: Final = {"aws_rds": "boto3", "google_cloud_sql": "google-auth requests", "azure_entra": "azure-identity"}
TOKEN_MAKERS: Final[dict[str, TokenMaker]] = {
    "aws_rds": _aws_rds,
    "google_cloud_sql": _google_cloud_sql,
    "azure_entra": _azure_entra,
}
"""``connection.token.provider`` → the function that makes a token."""
