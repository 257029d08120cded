"""Login tokens of clouds, which are valid for minutes: RDS and Aurora, Cloud SQL, Azure Database.

Sources and targets make a token for each connection that they open, so that a long run survives the end of a token. Each cloud's library is
imported when its first token is made. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.errors import CdcError, ConfigError, TransientError

_ROLE: Final = ("role_arn", "assume_role_kwargs", "sts_endpoint_url")
"""Credentials of ``aws_rds`` that are not arguments of ``boto3.Session``."""


@dataclass(frozen=True, slots=True)
class LoginAddress:
    """The account and the server that a token is for.

    :param host: as the cloud knows the server, whatever way leads there
    """

    host: str
    port: int
    user: str


TokenMaker = Callable[[LoginAddress, Mapping[str, Any]], str]
"""Makes a token for an account, with credentials."""


def check_token_provider(provider: str, name: str) -> None:
    """Make sure that a provider of tokens exists.

    :param name: of the property that has it, for the error
    :raises ConfigError: there is no such provider
    """
    if provider not in TOKEN_MAKERS:
        raise ConfigError(f"{name}={provider}: unknown", remedy=f"use one of {', '.join(sorted(TOKEN_MAKERS))}")


def make_login_token(
    provider: str, address: LoginAddress, credentials: str, *, unavailable: type[TransientError], safe: str
) -> str:
    """Make a token for one connection.

        >>> make_login_token("aws_rds", LoginAddress("shop.abc.eu-central-1.rds.amazonaws.com", 3306, "cdc"), "", unavailable=SourceUnavailable, safe="…")
        'shop.abc.eu-central-1.rds.amazonaws.com:3306/?Action=connect&DBUser=cdc&…'

    :param provider: a key of :data:`TOKEN_MAKERS`
    :param credentials: a JSON object for it; an empty text means those of the process's environment
    :param unavailable: error if the cloud gives no token
    :param safe: text of that error
    :raises ConfigError: the library is not installed
    :raises TransientError: the cloud gives no token
    """
    try:
        return TOKEN_MAKERS[provider](address, json.loads(credentials or "{}"))
    except CdcError:
        raise
    except ImportError as e:
        raise ConfigError(
            f"The library for login tokens of {provider} is not installed: {e}",
            remedy=f"in the environment of Airflow's workers: pip install {_PACKAGES[provider]}",
        ) from e
    except Exception as e:  # each library has errors of its own; their texts name the missing credential or right
        raise unavailable(
            f"No login token of {provider} could be made: {type(e).__name__}: {e}",
            where=f"{address.user} at {address.host}:{address.port}",
            safe=safe,
            remedy="check the credentials of the worker, or of the cloud connection that the database's connection names",
        ) from e


def assume_aws_role(
    session: Mapping[str, str], role_arn: str, *, endpoint_url: str | None = None, more: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Assume a role of AWS now, and return the arguments of ``boto3.Session`` with its credentials, which end after an hour.

    :param session: arguments of ``boto3.Session`` that may assume it
    :param more: further arguments of ``AssumeRole``
    :raises ImportError: boto3 is not installed
    """
    import boto3

    client = boto3.Session(**session).client("sts", endpoint_url=endpoint_url)
    arguments = {"RoleArn": role_arn, "RoleSessionName": "airflow_provider_cdc", **(more or {})}
    answer = client.assume_role(**arguments)["Credentials"]
    region = {"region_name": session["region_name"]} if "region_name" in session else {}
    return {
        "aws_access_key_id": answer["AccessKeyId"],
        "aws_secret_access_key": answer["SecretAccessKey"],
        "aws_session_token": answer["SessionToken"],
        **region,
    }


def _aws_rds(address: LoginAddress, credentials: Mapping[str, Any]) -> str:
    import boto3

    session = {name: value for name, value in credentials.items() if name not in _ROLE}
    if role := credentials.get("role_arn"):
        more = credentials.get("assume_role_kwargs")
        session = assume_aws_role(session, role, endpoint_url=credentials.get("sts_endpoint_url"), more=more)
    client = boto3.Session(**session).client("rds")
    return str(client.generate_db_auth_token(DBHostname=address.host, Port=address.port, DBUsername=address.user))


def _google_cloud_sql(address: LoginAddress, credentials: Mapping[str, Any]) -> str:
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


def _azure_entra(address: LoginAddress, credentials: Mapping[str, Any]) -> str:
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    if {"tenant_id", "client_id", "client_secret"} <= credentials.keys():
        names = ("tenant_id", "client_id", "client_secret")
        login: Any = ClientSecretCredential(**{name: credentials[name] for name in names})
    else:
        managed = credentials.get("managed_identity_client_id")
        login = DefaultAzureCredential(managed_identity_client_id=managed)
    return str(login.get_token("https://ossrdbms-aad.database.windows.net/.default").token)


_PACKAGES: Final = {"aws_rds": "boto3", "google_cloud_sql": "google-auth requests", "azure_entra": "azure-identity"}
TOKEN_MAKERS: Final[dict[str, TokenMaker]] = {
    "aws_rds": _aws_rds,
    "google_cloud_sql": _google_cloud_sql,
    "azure_entra": _azure_entra,
}
"""``connection.token.provider`` or ``database.token.provider`` → the function that makes a token."""
