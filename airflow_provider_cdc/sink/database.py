"""The engine of a target database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetUnavailable
from airflow_provider_cdc.sink.config import SinkConfig


def open_engine(config: SinkConfig) -> sa.Engine:
    """An engine by the configuration's connection.

    :raises ConfigError: it has none, or one that cannot be used
    """
    if config.connection_url is None:
        raise ConfigError(
            "connection.url: required and not set", remedy="give a URL as postgresql://host:5432/database"
        )
    try:
        url = sa.make_url(config.connection_url.removeprefix("jdbc:"))
        if config.connection_username is not None:
            url = url.set(username=config.connection_username)
        if config.connection_password is not None:
            url = url.set(password=config.connection_password.get_secret_value())
        if url.drivername in DRIVERS:
            url = url.set(drivername=DRIVERS[url.drivername])
        engine = sa.create_engine(url, pool_size=1, max_overflow=1, pool_recycle=config.pool_timeout_s)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as e:
        raise ConfigError(
            f"connection.url cannot be used: {e}",
            remedy="give a URL of SQLAlchemy, as postgresql+psycopg://host:5432/database",
        ) from e
    if engine.dialect.name == "sqlite":
        _have_transactions(engine)
    return engine


def place_of(engine: sa.Engine, config: SinkConfig) -> str:
    """Where the tables of a sink are, without secrets: ``postgresql://db:5432/shop/cdc_applied``, and the sink's name if it has one."""
    url = engine.url
    host = f"{url.host or ''}{'' if url.port is None else f':{url.port}'}"
    place = f"{engine.dialect.name}://{host}/{url.database or ''}/{config.marker_table}"
    return f"{place}/{config.name}" if config.name else place


def unavailable(engine: sa.Engine, error: sa.exc.DBAPIError) -> TargetUnavailable:
    """The error for a database that cannot be reached."""
    return TargetUnavailable(
        f"The target database cannot be used now: {error.orig}",
        where=engine.url.render_as_string(hide_password=True),
        safe="Its tables have every batch up to the one that their marker names, and nothing of the next one.",
        remedy="see that the database runs and that the connection is right; the next try goes on",
    )


DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
"""Database → the driver that is used if the URL does not say."""


def _have_transactions(engine: sa.Engine) -> None:
    """The driver begins transactions by its own rules, and too late: other runs have to wait from the beginning."""

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
