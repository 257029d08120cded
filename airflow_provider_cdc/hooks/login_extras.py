"""Logins that the extra of a connection to a database asks for, the same for sources and targets: tokens of a cloud, SSH tunnels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.log import mask_secret

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.ssh_tunnels import register_tunnel_opener
from airflow_provider_cdc.hooks.cloud_credentials import (
    aws_login_credentials,
    azure_credentials,
    google_credentials,
)
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.hooks.ssh_tunnel import open_tunnel_address
from airflow_provider_cdc.sources import config_class

if TYPE_CHECKING:
    from airflow.sdk import Connection

register_tunnel_opener(open_tunnel_address)


def wants_token(connection: Connection) -> bool:
    """Return whether a connection logs in by token: ``iam`` in its extra."""
    return str((connection.extra_dejson or {}).get("iam")).lower() in ("true", "1")


def resolve_token(connection: Connection, database: str) -> dict[str, Any]:
    """Return the properties of logins by token, ``token.provider`` and ``token.credentials``, which is a secret.

    ``aws_conn_id``, ``gcp_conn_id`` or ``azure_conn_id`` in the extra names the connection with the credentials. Without one it is AWS, with the
    credentials of the worker.

        >>> resolve_token(connection, "mysql")["token.provider"]
        'aws_rds'

    :param database: kind of source, or SQLAlchemy's name of the database
    :raises ConfigError: the database has no such logins, or two clouds are named, or the connection of the cloud does not exist
    """
    if database not in ("postgresql", "mysql", "mariadb"):
        raise ConfigError(
            f"The connection {connection.conn_id} has iam in its extra, which {database} does not support.",
            remedy="remove iam from the extra, and give a password; PostgreSQL, MySQL and MariaDB support it",
        )
    extra = connection.extra_dejson or {}
    named = [cloud for cloud in _CLOUDS if extra.get(cloud)]
    if len(named) > 1:
        raise ConfigError(
            f"The extra of the connection {connection.conn_id} names several clouds: {', '.join(named)}.",
            remedy="keep the one whose database it is",
        )
    cloud = named[0] if named else "aws_conn_id"
    provider, translate = _CLOUDS[cloud]
    credentials: dict[str, Any] = {}
    if named:
        use = f"which {cloud} in the extra of the connection {connection.conn_id} names"
        credentials = {**translate(find_connection(str(extra[cloud]), use, cloud))}
    if provider == "aws_rds" and extra.get("region_name"):
        credentials["region_name"] = str(extra["region_name"])
    for secret in _texts(credentials):
        mask_secret(secret)
    return {"token.provider": provider, "token.credentials": json.dumps(credentials)}


def resolve_logins(connection: Connection, source: str) -> dict[str, Any]:
    """Return the properties of a source for the logins in the extra of its connection. They contain secrets.

    :param source: kind of source
    :raises ConfigError: the source has no such login, or two clouds are named
    """
    properties: dict[str, Any] = {}
    if wants_token(connection):
        properties = {f"database.{name}": value for name, value in resolve_token(connection, source).items()}
    if "ssh_conn_id" in config_class(source).list_login_extras() and (bastion := find_bastion(connection)):
        properties["database.ssh.conn_id"] = bastion
    return properties


def find_bastion(connection: Connection) -> str | None:
    """Find the SSH connection through which a database is reached: ``ssh_conn_id`` in the extra of its connection."""
    return str((connection.extra_dejson or {}).get("ssh_conn_id") or "") or None


def _texts(credentials: Mapping[str, Any]) -> Iterator[Any]:
    """Find the values to mask: all but those of a role, which errors name."""
    yield from (value for name, value in credentials.items() if name not in ("role_arn", "sts_endpoint_url"))


_CLOUDS = {
    "aws_conn_id": ("aws_rds", aws_login_credentials),
    "gcp_conn_id": ("google_cloud_sql", google_credentials),
    "azure_conn_id": ("azure_entra", azure_credentials),
}
"""Name in the extra → provider of tokens, and the translation of the connection that it names."""
