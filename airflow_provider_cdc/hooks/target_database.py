"""The hook for a target database of the relational sink, by any connection that Airflow's providers have a form for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.hooks.driver_parameters import select_parameters
from airflow_provider_cdc.hooks.login_extras import find_bastion, resolve_token, wants_token
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig

if TYPE_CHECKING:
    import sqlalchemy as sa

TARGET = "database"
"""Kind of target in reports, beside those of lakehouse tables."""

DRIVERS = {
    "postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql",
    "cdc_mysql": "mysql+pymysql", "cdc_mariadb": "mariadb+pymysql", "sqlite": "sqlite",
    "oracle": "oracle+oracledb", "db2": "db2+ibm_db", "cdc_db2": "db2+ibm_db", "mssql": "mssql",
}  # fmt: skip
"""Type of a connection → SQLAlchemy dialect and driver; of SQL Server, the driver that is installed."""


class CdcDatabaseHook(BaseHook):
    """Makes the ``connection.*`` properties of a sink from an Airflow connection: ``postgres``, ``mysql``, ``oracle``, ``db2``, ``mssql``, ``sqlite`` and so on.

        >>> CdcDatabaseHook("warehouse").resolve_properties()["connection.url"]
        'postgresql+psycopg://db:5432/shop'

    The connection's extra contains parameters of the driver, such as ``{"sslmode": "verify-full"}``; see
    :mod:`airflow_provider_cdc.hooks.driver_parameters`. The service of an Oracle database is ``service_name`` in the extra, or the schema field.
    """

    def __init__(self, conn_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id

    def resolve_properties(self) -> dict[str, Any]:
        """Properties of a sink, secrets among them.

        :raises ConfigError: the connection does not exist, is of a type that no dialect belongs to, or has a parameter that is not allowed
        """
        import sqlalchemy as sa

        connection = find_connection(
            self.conn_id, "with which the connector writes to its target database", "the connection name of the target"
        )
        driver = DRIVERS.get(str(connection.conn_type).lower())
        if driver is None:
            raise ConfigError(
                f"The connection {self.conn_id} has the type {connection.conn_type!r}, which the sink cannot write to.",
                remedy=f"use a connection of the type {', '.join(sorted(DRIVERS))}",
            )
        database = sa.make_url(f"{driver}://").get_backend_name()
        query = select_parameters(self.conn_id, str(connection.conn_type), database, connection.extra_dejson or {})
        url = sa.URL.create(
            driver, host=connection.host or None, port=connection.port, database=connection.schema or None, query=query
        )
        if driver == "oracle+oracledb":
            url = _of_oracle(url)
        if driver == "sqlite":
            url = sa.URL.create(driver, database=connection.host or connection.schema)
        properties: dict[str, Any] = {"connection.username": connection.login}
        if wants_token(connection):
            properties |= {f"connection.{name}": value for name, value in resolve_token(connection, database).items()}
            url = require_tls(self.conn_id, url)
        else:
            properties["connection.password"] = connection.password
        if bastion := find_bastion(connection):
            if driver == "sqlite":
                raise ConfigError(
                    f"The connection {self.conn_id} has ssh_conn_id in its extra, but SQLite is a file.",
                    remedy="remove ssh_conn_id from the extra",
                )
            properties["connection.ssh.conn_id"] = bastion
        properties["connection.url"] = url.render_as_string()
        return {name: value for name, value in properties.items() if value}


@contextlib.contextmanager
def open_database(conn_id: str, sink: Mapping[str, Any]) -> Iterator[tuple[sa.Engine, DatabaseTargetConfig]]:
    """Open the database of a connection, and return it with the properties of a sink there.

    :param sink: properties that say otherwise than that tables equal the source
    :raises ConfigError: a property or the connection cannot be used
    """
    from airflow_provider_cdc.targets.database.target_engine import open_engine

    config = DatabaseTargetConfig.parse({**EQUAL, **sink, **CdcDatabaseHook(conn_id).resolve_properties()})
    engine = open_engine(config)
    try:
        yield engine, config
    finally:
        engine.dispose()


def require_tls(conn_id: str, url: sa.URL) -> sa.URL:
    """Return the URL with TLS: a token is a password that everyone on the way could use.

    :raises ConfigError: the connection allows plain text
    """
    if url.get_backend_name() == "postgresql":
        mode = url.query.get("sslmode", "require")
        if mode in ("require", "verify-ca", "verify-full"):
            return url.update_query_dict({"sslmode": mode})
        problem, remedy = f"sslmode={mode}", "set sslmode to verify-full, with sslrootcert"
    else:
        if "ssl_ca" in url.query and url.query.get("ssl_disabled", "false") != "true":
            return url
        problem, remedy = "no ssl_ca", "set ssl_ca to the file with the certificates of the cloud"
    raise ConfigError(
        f"The connection {conn_id} has iam in its extra, and {problem}: the login token could be read on its way.",
        safe="No token was made.",
        remedy=remedy,
    )


def describe_database(conn_id: str, sink: Mapping[str, Any]) -> dict[str, Any]:
    """Return the database's part of an apply report, so that commands reach it later. No secrets."""
    sink_properties = {name: value for name, value in sink.items() if not name.startswith("connection.")}
    return {"database": {"conn_id": conn_id, "sink": sink_properties}}


def _of_oracle(url: Any) -> Any:
    """Return the URL with the database as a service name.

    SQLAlchemy reads the path of a URL as a SID there; by now, few databases are known by their SID.
    """
    query = dict(url.query)
    sid = query.pop("sid", None)
    if sid is None and url.database:
        query.setdefault("service_name", url.database)
    return url.set(database=sid, query=query) if sid else url._replace(database=None, query=query)
