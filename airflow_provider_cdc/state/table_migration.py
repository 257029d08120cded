"""Creates and upgrades the state tables in a database that is not Airflow's metadata DB.

``airflow db migrate`` does the same in the metadata DB, with the same migrations; see :mod:`.db_manager`.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.exc import DBAPIError

from airflow_provider_cdc.core.errors import StateError
from airflow_provider_cdc.state.state_database import StateDatabase

_FOLDER = Path(__file__).resolve().parent


def migrate_tables(database: StateDatabase) -> None:
    """Create or upgrade the tables, to the revision of this release.

        >>> migrate_tables(StateDatabase("postgresql+psycopg://cdc:***@db/cdc_state"))

    :raises StateError: the database is Airflow's metadata DB, has tables of a newer release, or rejects a statement
    :raises StateUnavailable: the database cannot be reached
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    for attempt in database.iterate_attempts("migrate the tables"):
        with attempt:
            airflows = database.is_airflows()
    if airflows:
        raise StateError(
            "The database is Airflow's metadata DB.",
            where=database.place,
            safe="Nothing was changed.",
            remedy="airflow db migrate",
        )
    config = Config(str(_FOLDER / "alembic.ini"))
    config.set_main_option("script_location", str(_FOLDER / "migrations").replace("%", "%%"))
    try:
        with database.engine.connect() as connection:
            config.attributes.update(connection=connection, schema=database.schema)
            command.upgrade(config, "head")
            connection.commit()
    except CommandError:
        database.check_tables()  # describes tables of a newer release
        raise
    except DBAPIError as e:
        raise StateError(
            f"The state tables cannot be created or upgraded: {e.orig}",
            where=database.place,
            safe="The tables stay at the last complete migration; on MySQL, which has no transactions for them, a part may exist.",
            remedy="use a login that may create and change tables there, then run the command again",
        ) from e
