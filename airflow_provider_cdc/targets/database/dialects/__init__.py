"""The databases that the sink writes to, each by a separate dialect."""

from __future__ import annotations

import importlib

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect

DIALECTS = {
    "postgresql": "airflow_provider_cdc.targets.database.dialects.postgresql:PostgreSql",
    "mysql": "airflow_provider_cdc.targets.database.dialects.mysql:MySql",
    "mariadb": "airflow_provider_cdc.targets.database.dialects.mysql:MariaDb",
    "oracle": "airflow_provider_cdc.targets.database.dialects.oracle:Oracle",
    "db2": "airflow_provider_cdc.targets.database.dialects.db2:Db2",
    "mssql": "airflow_provider_cdc.targets.database.dialects.sqlserver:SqlServer",
    "sqlite": "airflow_provider_cdc.targets.database.dialects.sqlite:Sqlite",
}
"""Name of a SQLAlchemy dialect → class."""


def dialect_of(engine: sa.Engine, zone: str = "UTC") -> TargetDialect:
    """Return the dialect of a database that the engine has connected to.

    :param zone: as of :class:`~airflow_provider_cdc.targets.database.dialects.target_dialect.TargetDialect`
    :raises ConfigError: there is none for it
    """
    name = engine.dialect.name
    if name == "mysql" and getattr(engine.dialect, "is_mariadb", False):
        name = "mariadb"
    if name not in DIALECTS:
        raise ConfigError(
            f"The sink cannot write to {name} databases.",
            remedy=f"use the URL of one of {', '.join(sorted(DIALECTS))}",
        )
    return load_dialect(name)(zone)


def load_dialect(name: str) -> type[TargetDialect]:
    """Return the class of a dialect by its name in :data:`DIALECTS`."""
    module, _, attribute = DIALECTS[name].partition(":")
    dialect_class: type[TargetDialect] = getattr(importlib.import_module(module), attribute)
    return dialect_class
