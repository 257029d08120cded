"""Translates Airflow's connections to cloud providers: into options of fsspec, and into credentials for login tokens.

The fields are those that Airflow's providers read. The providers themselves are not needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable
from airflow_provider_cdc.core.login_tokens import assume_aws_role
from airflow_provider_cdc.hooks.connection_extra import extra_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

_REMEDY = "correct the extra of the connection in Airflow under Admin, Connections"
_GOOGLE = "extra__google_cloud_platform__"
"""The prefix that older releases of Airflow gave to the fields of a connection to Google."""


def translate_storage(connection: Connection) -> dict[str, Any] | None:
    """Return the options of fsspec that a connection to a cloud provider stands for. They contain secrets.

    The result is ``None`` for a connection of another type: its extra has the options themselves.

        >>> translate_storage(Connection(conn_id="lake", conn_type="aws", login="AKIA…", password="…"))
        {'key': 'AKIA…', 'secret': '…'}

    :raises ConfigError: the extra cannot be used
    :raises StorageUnavailable: AWS gives no credentials for the role
    """
    translate = _STORAGE.get(str(connection.conn_type))
    return None if translate is None else translate(connection)


def aws_credentials(connection: Connection) -> dict[str, str]:
    """Return the arguments of ``boto3.Session`` that a connection stands for: ``aws_access_key_id``, ``region_name`` and so on.

    A role (``role_arn``) is assumed now. Its credentials are temporary.

    :raises StorageUnavailable: AWS gives no credentials for the role
    """
    session = _aws_session(connection)
    role = aws_role(connection)
    return _assume_role(connection, session, role) if role else session


def aws_login_credentials(connection: Connection) -> dict[str, Any]:
    """Return the credentials for login tokens that a connection stands for: those of the session, and the role.

    Each token assumes the role again, as credentials of a role end after an hour.
    """
    return {**_aws_session(connection), **aws_role(connection)}


def aws_role(connection: Connection) -> dict[str, Any]:
    """Return ``role_arn`` of a connection, ``assume_role_kwargs`` and ``sts_endpoint_url``; nothing if it has no role."""
    extra = extra_of(connection, _REMEDY)
    fields = {name: extra.get(name) for name in ("role_arn", "assume_role_kwargs", "sts_endpoint_url")}
    return {name: value for name, value in fields.items() if value} if fields["role_arn"] else {}


def _aws_session(connection: Connection) -> dict[str, str]:
    extra = extra_of(connection, _REMEDY)
    fields = {
        "aws_access_key_id": connection.login or extra.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "aws_session_token": extra.get("aws_session_token"),
        "region_name": extra.get("region_name"),
        "profile_name": extra.get("profile_name"),
    }
    return {name: str(value) for name, value in fields.items() if value}


def _assume_role(connection: Connection, session: dict[str, str], role: Mapping[str, Any]) -> dict[str, str]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as e:
        raise ConfigError(
            f"The role of the connection {connection.conn_id} cannot be assumed: {e}",
            remedy="pip install boto3",
        ) from e
    try:
        return assume_aws_role(
            session,
            str(role["role_arn"]),
            endpoint_url=role.get("sts_endpoint_url"),
            more=role.get("assume_role_kwargs"),
        )
    except (BotoCoreError, ClientError) as e:
        raise StorageUnavailable(
            f"The role {role['role_arn']} of the connection {connection.conn_id} cannot be assumed: {type(e).__name__}: {e}",
            safe="Nothing was read or written.",
            remedy="check the credentials of the connection, and the trust policy of the role",
        ) from e


def google_credentials(connection: Connection) -> dict[str, Any]:
    """Return the key of a connection to Google: ``keyfile_dict`` as an object, ``key_path``, or nothing for the default credentials.

    :raises ConfigError: the key is not a JSON object
    """
    extra = {name.removeprefix(_GOOGLE): value for name, value in extra_of(connection, _REMEDY).items()}
    key = extra.get("keyfile_dict")
    try:
        key = json.loads(key) if isinstance(key, str) and key else key
        if key is not None and not isinstance(key, dict | str):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"keyfile_dict of the connection {connection.conn_id} is not a JSON object.", remedy=_REMEDY
        ) from None
    fields = {"keyfile_dict": key, "key_path": extra.get("key_path"), "project": extra.get("project")}
    return {name: value for name, value in fields.items() if value}


def azure_credentials(connection: Connection) -> dict[str, str]:
    """Return ``tenant_id``, ``client_id`` and ``client_secret`` of a connection to Azure, as far as it has them."""
    extra = extra_of(connection, _REMEDY)
    tenant = extra.get("tenantId") or extra.get("tenant_id")
    fields = {"tenant_id": tenant, "client_id": connection.login, "client_secret": connection.password}
    fields["managed_identity_client_id"] = extra.get("managed_identity_client_id")
    return {name: str(value) for name, value in fields.items() if value}


def _s3(connection: Connection) -> dict[str, Any]:
    extra, session = extra_of(connection, _REMEDY), aws_credentials(connection)
    names = {
        "key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token", "profile": "profile_name",
    }  # fmt: skip
    options: dict[str, Any] = {name: session[field] for name, field in names.items() if field in session}
    services = (extra.get("service_config") or {}).get("s3") or {}
    endpoint = services.get("endpoint_url") or extra.get("endpoint_url") or extra.get("host")
    client = {"region_name": session.get("region_name"), "endpoint_url": endpoint, "verify": extra.get("verify")}
    if client := {name: value for name, value in client.items() if value is not None}:
        options["client_kwargs"] = client
    return options


def _gcs(connection: Connection) -> dict[str, Any]:
    fields = google_credentials(connection)
    options: dict[str, Any] = {
        "token": fields.get("keyfile_dict") or fields.get("key_path"),
        "project": fields.get("project"),
    }
    return {name: value for name, value in options.items() if value}


def _azure(connection: Connection) -> dict[str, Any]:
    extra = extra_of(connection, _REMEDY)
    if extra.get("connection_string"):
        return {"connection_string": extra["connection_string"]}
    host = (connection.host or "").removeprefix("https://").partition("/")[0]
    options: dict[str, Any] = {"sas_token": extra.get("sas_token")}
    if extra.get("tenant_id"):
        options |= azure_credentials(connection)
        options["account_name"] = host.partition(".")[0]
    else:
        options["account_name"] = host.partition(".")[0] or connection.login
        options["account_key"] = extra.get("shared_access_key") or connection.password
    return {name: value for name, value in options.items() if value}


_STORAGE: Mapping[str, Callable[[Connection], dict[str, Any]]] = {
    "aws": _s3,
    "google_cloud_platform": _gcs,
    "wasb": _azure,
    "adls": _azure,
}
"""Type of a connection → its translation."""
