"""The engine of a target database."""

from __future__ import annotations

import importlib.util
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetUnavailable
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.jdbc_url_converter import sqlalchemy_url
from airflow_provider_cdc.targets.database.login_tokens import use_login_tokens
from airflow_provider_cdc.targets.database.ssh_tunnel import use_ssh_tunnel


def open_engine(config: DatabaseTargetConfig) -> sa.Engine:
    """Open an engine by the configuration's connection.

    :raises ConfigError: it has none, or one that cannot be used, or the driver is not installed
    """
    if config.connection_url is None:
        raise ConfigError(
            "connection.url: required and not set", remedy="set a URL such as postgresql://host:5432/database"
        )
    sa.dialects.registry.register(
        "db2.ibm_db", "airflow_provider_cdc.targets.database.dialects.db2_sqlalchemy_dialect", "Db2Engine"
    )
    try:
        url = sa.make_url(sqlalchemy_url(config.connection_url))
        if config.connection_username is not None:
            url = url.set(username=config.connection_username)
        if config.connection_password is not None:
            url = url.set(password=config.connection_password.get_secret_value())
        url = url.set(drivername=_driver_of(url.drivername))
        more = {"fast_executemany": True} if url.drivername == "mssql+pyodbc" else {}
        engine = sa.create_engine(url, pool_size=1, max_overflow=1, pool_recycle=config.pool_timeout_s, **more)
    except ImportError as e:
        raise ConfigError(
            f"The driver for {url.drivername} is not installed: {e}", remedy=_install(url.get_backend_name())
        ) from e
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as e:
        raise ConfigError(
            f"connection.url cannot be used: {e}",
            remedy="use a URL of SQLAlchemy such as postgresql+psycopg://host:5432/database",
        ) from e
    if engine.dialect.name == "sqlite":
        _have_transactions(engine)
    if engine.dialect.name == "oracle":
        _have_plain_texts(engine)
    if config.connection_token_provider is not None:
        secret = config.connection_token_credentials
        use_login_tokens(engine, config.connection_token_provider, secret.get_secret_value() if secret else "")
    if engine.driver == "pymysql":
        _have_any_password(engine)
    if config.connection_ssh_conn_id is not None:  # after the passwords: it may open the connection itself
        use_ssh_tunnel(engine, config.connection_ssh_conn_id)
    return engine


def _driver_of(name: str) -> str:
    """Return the driver's name for a database, if none is given."""
    if name == "mssql":
        there = [driver for driver in ("pyodbc", "pymssql") if importlib.util.find_spec(driver) is not None]
        return f"mssql+{(*there, 'pyodbc')[0]}"
    return DRIVERS.get(name, name)


def _install(database: str) -> str:
    return f"in the environment of Airflow's workers: {INSTALL.get(database, 'install the driver that the URL names')}"


def place_of(engine: sa.Engine, config: DatabaseTargetConfig) -> str:
    """Format the location of a sink's tables, without secrets.

    It is ``postgresql://db:5432/shop/cdc_applied``, and the sink's name if it has one.

    Where users have schemas of their own, the user is part of it: ``oracle://db:1521/ORCLPDB1/APP/cdc_applied``.
    """
    url = engine.url
    host = f"{url.host or ''}{'' if url.port is None else f':{url.port}'}"
    database = url.database or url.query.get("service_name") or ""
    if engine.dialect.name in ("oracle", "db2"):
        database = f"{database}/{(url.username or '').upper()}"
    place = f"{engine.dialect.name}://{host}/{database}/{config.marker_table}"
    return f"{place}/{config.name}" if config.name else place


def _have_any_password(engine: sa.Engine) -> None:
    """pymysql makes ISO 8859-1 of a password that is a text, and MySQL knows it in UTF-8."""

    @sa.event.listens_for(engine, "do_connect")
    def encode(dialect: Any, record: Any, arguments: Any, settings: dict[str, Any]) -> None:
        if isinstance(settings.get("password"), str):
            settings["password"] = settings["password"].encode()


def build_unavailable_error(engine: sa.Engine, error: sa.exc.DBAPIError) -> TargetUnavailable:
    """Build the error for a database that cannot be reached."""
    return TargetUnavailable(
        f"The target database is not available: {error.orig}",
        where=engine.url.set(query={}).render_as_string(hide_password=True),
        safe="Its tables are complete up to the batch of their marker, and contain no row of the next batch.",
        remedy="check that the database is running and that the connection is correct; the next attempt resumes the apply",
    )


DRIVERS = {
    "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "oracle": "oracle+oracledb",
    "db2": "db2+ibm_db", "ibm_db_sa": "db2+ibm_db", "db2+ibm_db_sa": "db2+ibm_db",
}  # fmt: skip
"""Database → the driver that is used if the URL does not say. Of SQL Server it is the one that is installed."""
INSTALL = {
    "postgresql": "pip install 'psycopg[binary]'",
    "mysql": "pip install 'airflow-provider-cdc[mysql]'",
    "mariadb": "pip install 'airflow-provider-cdc[mysql]'",
    "oracle": "pip install 'airflow-provider-cdc[oracle]'",
    "db2": "pip install 'airflow-provider-cdc[db2]'",
    "mssql": "pip install pyodbc, with Microsoft's ODBC Driver for SQL Server; or pip install pymssql, which is slower",
}
"""Database → how its driver is installed."""


def _have_transactions(engine: sa.Engine) -> None:
    """Begin transactions explicitly.

    The driver begins transactions by its own rules, and too late: other runs have to wait from the beginning.
    """

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _have_plain_texts(engine: sa.Engine) -> None:
    """Texts in SQL mean the same values whatever the database is set to."""
    from airflow_provider_cdc.targets.database.dialects.oracle import SESSION

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(SESSION)
