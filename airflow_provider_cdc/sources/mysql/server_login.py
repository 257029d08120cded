"""Log-in to a server by PyMySQL: the account with its password or token, and TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig, SslMode


def log_in(config: MySqlConfig, settings: Mapping[str, Any]) -> Connection:
    """Open a connection with the account of the configuration, with or without TLS as ``database.ssl.mode`` says.

    ``preferred`` falls back to plain text. A login token is made for each call, as tokens are valid for minutes.

    :param settings: arguments of ``pymysql.connect``, without account and TLS
    :raises ConfigError: the library for login tokens is not installed
    :raises SourceUnavailable: the cloud gives no login token, or the SSH tunnel cannot be opened
    """
    arguments: dict[str, Any] = {
        **settings,
        "user": config.database_user,
        "password": config.make_password().encode(),  # pymysql makes ISO 8859-1 of a text
    }
    if config.database_ssl_mode not in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY):
        arguments["auth_plugin_map"] = {"mysql_clear_password": _PlainPassword}
    if config.database_ssl_mode is SslMode.DISABLED:
        return _connect(config, **arguments, ssl_disabled=True)
    try:
        return _connect(config, **arguments, ssl=_tls(config))
    except pymysql.err.OperationalError as e:
        if config.database_ssl_mode is not SslMode.PREFERRED or e.args[0] != 2026:
            raise
        return _connect(config, **arguments, ssl_disabled=True)


def _connect(config: MySqlConfig, **arguments: Any) -> Connection:
    """Connect, through the SSH tunnel if there is one. The host is the server's own also then, as its certificate has it."""
    if config.database_ssh_conn_id is None:
        return pymysql.connect(**arguments)
    connection = Connection(**arguments, defer_connect=True)
    local_end = socket.create_connection(config.find_address(), arguments["connect_timeout"])
    local_end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect(local_end)
    return connection


class _PlainPassword:
    """Refuses a server that asks for the password itself: it may be any server, as its certificate is not verified.

    PyMySQL would send the password, also without encryption.
    """

    def __init__(self, connection: Connection) -> None:
        pass

    def authenticate(self, packet: Any) -> Any:
        raise PrerequisiteError(
            "The server asks for the password in plain text, and the connection does not verify which server it is.",
            safe="The password was not sent.",
            remedy="if the account logs in by LDAP or PAM, set database.ssl.mode=verify_identity with database.ssl.ca; otherwise check database.hostname",
        )


def _tls(config: MySqlConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.database_ssl_mode is SslMode.VERIFY_IDENTITY
    if config.database_ssl_mode in (SslMode.PREFERRED, SslMode.REQUIRED):
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs() if config.database_ssl_ca is None else context.load_verify_locations(
            config.database_ssl_ca
        )
    if config.database_ssl_cert:
        context.load_cert_chain(config.database_ssl_cert, config.database_ssl_key)
    return context
