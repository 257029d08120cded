"""Decides which values in the extra of a target's connection reach the database driver.

A driver reads files, runs statements and loads libraries if a parameter says so, and a parameter can name another host than the form shows.
Who may edit a connection in Airflow must not get that: parameters are passed only if they are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError

ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "postgresql": frozenset(
        ["sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version", "sslcompression", "channel_binding", "require_auth", "gssencmode", "krbsrvname", "connect_timeout", "application_name", "fallback_application_name", "client_encoding", "options", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "target_session_attrs", "load_balance_hosts"]
    ),
    "mysql": frozenset(
        ["charset", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity", "connect_timeout", "read_timeout", "write_timeout", "program_name"]
    ),
    "oracle": frozenset(
        ["service_name", "sid", "protocol", "ssl_server_dn_match", "ssl_server_cert_dn", "wallet_location", "tcp_connect_timeout", "retry_count", "retry_delay", "expire_time", "sdu", "arraysize"]
    ),
    "db2": frozenset(
        ["authentication", "security", "sslservercertificate", "sslclienthostnamevalidation", "sslclientkeystoredb", "sslclientkeystash", "sslclientlabel", "tlsversion", "connecttimeout", "querytimeout", "currentschema", "clientapplname", "clientwrkstnname"]
    ),
    "mssql": frozenset(
        ["driver", "encrypt", "trustservercertificate", "hostnameincertificate", "servercertificate", "applicationintent", "multisubnetfailover", "app", "appname", "logintimeout", "login_timeout", "timeout", "tds_version", "charset", "authentication"]
    ),
    "sqlite": frozenset(),
}  # fmt: skip
"""Database → names of parameters, in lower case."""
IGNORED: Final = frozenset(
    [
        "cursor",
        "iam",
        "aws_conn_id",
        "gcp_conn_id",
        "azure_conn_id",
        "region_name",
        "ssh_conn_id",
        "redshift",
        "redshift-serverless",
        "cluster-identifier",
        "workgroup-name",
        "client",
        "local_infile",
        "enable_log_db_messages",
        "dsn",
        "mode",
        "threaded",
        "events",
        "purity",
        "module",
        "encoding",
        "nencoding",
        "thick_mode",
        "thick_mode_lib_dir",
        "thick_mode_config_dir",
        "fetch_decimals",
        "fetch_lobs",
        "sqlalchemy_scheme",
        "isolation_level",
        "connect_kwargs",
        "placeholder",
    ]
)
"""Parameters that only hooks read: those of Airflow's own providers, and those of :mod:`.login_extras`."""
_MYSQL_PROPERTIES: Final = {"database.ssl.ca": "ssl_ca", "database.ssl.cert": "ssl_cert", "database.ssl.key": "ssl_key"}
_MYSQL_MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "disabled": {"ssl_disabled": "true"}, "preferred": {}, "required": {"ssl_check_hostname": "false"},
    "verify_ca": {"ssl_check_hostname": "false"}, "verify_identity": {"ssl_check_hostname": "true"},
}  # fmt: skip
_DB2_PROPERTIES: Final = {
    "database.authentication": "Authentication", "database.ssl.mode": "Security", "database.ssl.ca": "SSLServerCertificate",
    "database.ssl.hostname.validation": "SSLClientHostnameValidation",
}  # fmt: skip
_DB2_VALUES: Final = {"required": "SSL", "disabled": "", "true": "Basic", "false": "Off"}


def select_parameters(conn_id: str, conn_type: str, database: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters for the driver.

    >>> select_parameters("warehouse", "postgres", "postgresql", {"sslmode": "verify-full", "cursor": "dictcursor"})
    {'sslmode': 'verify-full'}

    :param conn_type: of the connection; the extra of ``cdc_mysql``, ``cdc_mariadb`` and ``cdc_db2`` contains properties of a source, which are translated
    :param database: a key of :data:`ALLOWED`, or ``mariadb``
    :raises ConfigError: a parameter is not allowed
    """
    texts = {name: str(value) for name, value in extra.items() if isinstance(value, str | int)}
    if conn_type == "cdc_db2":
        texts = _translate_db2(texts)
    elif conn_type in ("cdc_mysql", "cdc_mariadb"):
        texts = _translate_mysql(texts)
    allowed = ALLOWED[{"mariadb": "mysql"}.get(database, database)]
    parameters = {name: value for name, value in texts.items() if name.lower() not in IGNORED}
    rejected = [name for name in parameters if name.lower() not in allowed]
    if "driver" in parameters and not _is_driver_name(parameters["driver"]):
        rejected.append("driver")
    if rejected:
        raise ConfigError(
            f"The extra of the connection {conn_id} has parameters that are not passed to the database driver: {', '.join(rejected)}.",
            safe="Nothing was read or written.",
            remedy="remove them from the extra. Allowed are "
            + (", ".join(sorted(allowed)) or "none")
            + "; a file of definitions or a DAG may set others with connection.url",
        )
    return parameters


def _is_driver_name(value: str) -> bool:
    """Check that an ODBC driver is named as it is registered, and not by the path of a library."""
    return not set(value) & set("/\\;{}")


def _translate_mysql(extra: Mapping[str, str]) -> dict[str, str]:
    parameters = {_MYSQL_PROPERTIES.get(name, name): value for name, value in extra.items()}
    mode = parameters.pop("database.ssl.mode", "preferred").lower()
    parameters = {name: value for name, value in parameters.items() if "." not in name}
    return {**_MYSQL_MODES.get(mode, {"database.ssl.mode": mode}), **parameters}


def _translate_db2(extra: Mapping[str, str]) -> dict[str, str]:
    parameters = {
        _DB2_PROPERTIES.get(name, name): _DB2_VALUES.get(value.lower(), value) if name in _DB2_PROPERTIES else value
        for name, value in extra.items()
    }
    return {name: value for name, value in parameters.items() if value and "." not in name}
