"""Lets ``airflow db migrate`` create and upgrade the state tables in Airflow's metadata DB.

Airflow finds the class through ``db-managers`` of the provider's metadata.
"""

from __future__ import annotations

from pathlib import Path

from airflow.configuration import conf
from airflow.utils.db_manager import BaseDBManager
from sqlalchemy import MetaData

from airflow_provider_cdc.state.models import REVISION, VERSION_TABLE, Base

_FOLDER = Path(__file__).resolve().parent


def _metadata() -> MetaData:
    """Return the tables, in the schema that Airflow's own tables are in."""
    schema = conf.get("database", "sql_alchemy_schema", fallback="") or None
    if schema is None:
        return Base.metadata
    placed = MetaData(schema=schema, naming_convention=Base.metadata.naming_convention)
    for table in Base.metadata.sorted_tables:
        table.to_metadata(placed, schema=schema)
    return placed


class CdcDBManager(BaseDBManager):
    """The state tables, with a version table of their own."""

    metadata = _metadata()
    version_table_name = VERSION_TABLE
    migration_dir = (_FOLDER / "migrations").as_posix()
    alembic_file = (_FOLDER / "alembic.ini").as_posix()
    supports_table_dropping = True
    revision_heads_map = {"0.1.0": REVISION}

    def downgrade(self, to_revision: str, from_revision: str | None = None, show_sql_only: bool = False) -> None:
        """Go back to an older revision; ``base`` drops the tables."""
        from alembic import command

        target = f"{from_revision}:{to_revision}" if from_revision and show_sql_only else to_revision
        command.downgrade(self.get_alembic_config(), target, sql=show_sql_only)  # type: ignore[no-untyped-call]
