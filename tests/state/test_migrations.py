"""The migrations build exactly the tables that the models describe, and take them away again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import airflow_provider_cdc.state
from airflow_provider_cdc.state.models import VERSION_TABLE, Base
from airflow_provider_cdc.state.state_store import StateStore

FOLDER = Path(airflow_provider_cdc.state.__file__).parent


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database on each server that Airflow's metadata DB can be on."""
    if request.param == "sqlite":
        yield sa.create_engine(f"sqlite:///{tmp_path}/state.db")
        return
    server: Any = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql97"}[request.param])
    with server.database("state") as database:
        engine = sa.create_engine(server.url(getattr(database, "name", database)))
        try:
            yield engine
        finally:
            engine.dispose()


def migrate(engine: sa.Engine, revision: str, *, schema: str | None = None) -> None:
    config = Config(str(FOLDER / "alembic.ini"))
    config.set_main_option("script_location", str(FOLDER / "migrations"))
    with engine.connect() as connection:
        config.attributes.update(connection=connection, schema=schema)
        if revision == "base":
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
        connection.commit()


def tables(engine: sa.Engine, schema: str | None = None) -> set[str]:
    return set(sa.inspect(engine).get_table_names(schema=schema))


def differences(engine: sa.Engine) -> list[Any]:
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)


def shape(engine: sa.Engine) -> dict[str, Any]:
    """Columns, keys and indexes as the database itself describes them."""
    inspector = sa.inspect(engine)
    return {
        name: (
            [(c["name"], repr(c["type"]), c["nullable"]) for c in inspector.get_columns(name)],
            inspector.get_pk_constraint(name),
            sorted(inspector.get_indexes(name), key=lambda i: str(i["name"])),
        )
        for name in Base.metadata.tables
    }


def test_migrations_build_what_the_models_describe(engine: sa.Engine) -> None:
    migrate(engine, "head")
    assert differences(engine) == []
    migrated = shape(engine)
    migrate(engine, "base")
    Base.metadata.create_all(engine)
    assert shape(engine) == migrated


def test_a_column_that_no_migration_adds_is_noticed(engine: sa.Engine) -> None:
    migrate(engine, "head")
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE cdc_lease DROP COLUMN owner")
    assert [d[0] for d in differences(engine)] == ["add_column"]


def test_going_back_to_the_beginning_leaves_nothing_of_ours_and_everything_else(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE dag (dag_id INT PRIMARY KEY)")
    migrate(engine, "head")
    migrate(engine, "base")
    assert tables(engine) == {"dag", VERSION_TABLE}
    migrate(engine, "head")
    assert tables(engine) == {"dag", VERSION_TABLE, *Base.metadata.tables}


def test_the_store_works_on_migrated_tables(engine: sa.Engine) -> None:
    migrate(engine, "head")
    store = StateStore(engine.url.render_as_string(hide_password=False), patience_s=0)
    store.check_tables()
    with store.acquire_lease("shop", "a test", wait_s=0) as lease:
        assert lease.epoch == 1
    store.close()


def test_tables_are_put_into_the_schema_that_airflow_uses(postgres: Any) -> None:
    with postgres.database("state") as name:
        engine = sa.create_engine(postgres.url(name))
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA af")
        migrate(engine, "head", schema="af")
        assert tables(engine, "af") == {VERSION_TABLE, *Base.metadata.tables}
        assert tables(engine) == set()
        StateStore(postgres.url(name), schema="af", patience_s=0).check_tables()
        migrate(engine, "base", schema="af")
        assert tables(engine, "af") == {VERSION_TABLE}
        engine.dispose()


def test_there_is_one_line_of_revisions_and_the_db_manager_names_its_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER / "migrations"))
    script = ScriptDirectory.from_config(config)
    from airflow_provider_cdc.state.db_manager import CdcDBManager

    assert script.get_heads() == [list(CdcDBManager.revision_heads_map.values())[-1]]
    assert CdcDBManager.version_table_name == VERSION_TABLE
