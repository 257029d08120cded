"""Runs migrations on the connection it is given, on ``-x url=…``, or on Airflow's metadata DB."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context
from sqlalchemy.engine import Connection

from airflow_provider_cdc.state.models import VERSION_TABLE, Base

config = context.config
options: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "version_table": VERSION_TABLE,
    "render_as_batch": True,
    "compare_type": True,
}


def include_object(item: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Only the state tables: Airflow's own tables are in the same database and are left alone."""
    return not (kind == "table" and name not in Base.metadata.tables)


def find_schema() -> str | None:
    """Return the database schema that Airflow's tables are in, ``None`` where the default one is used."""
    if "schema" in config.attributes:
        return str(config.attributes["schema"] or "") or None
    if "url" in context.get_x_argument(as_dictionary=True):
        return None
    from airflow.configuration import conf

    return conf.get("database", "sql_alchemy_schema", fallback="") or None


def run_migrations(connection: Connection) -> None:
    """Run on an open connection."""
    if (name := find_schema()) is not None:
        connection = connection.execution_options(schema_translate_map={None: name})
    context.configure(
        connection=connection,
        transaction_per_migration=True,
        include_object=include_object,
        version_table_schema=name,
        **options,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    """Find the connection and run."""
    passed = config.attributes.get("connection")
    if passed is not None:
        run_migrations(passed)
        return
    url = context.get_x_argument(as_dictionary=True).get("url")
    with _engine(url).connect() as connection:
        run_migrations(connection)


def _engine(url: str | None) -> sa.Engine:
    if url is not None:
        return sa.create_engine(url)
    from airflow import settings

    assert settings.engine is not None
    return settings.engine


def run_offline() -> None:
    """Print the statements instead."""
    url = context.get_x_argument(as_dictionary=True).get("url") or config.get_main_option("sqlalchemy.url")
    context.configure(url=url, literal_binds=True, include_object=include_object, **options)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
