"""Tables in a database beside Airflow's: made and upgraded by the provider's own migrations, and errors that name the right command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import StateError
from airflow_provider_cdc.state import state_database
from airflow_provider_cdc.state.models import REVISION, VERSION_TABLE, Base
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.table_migration import migrate_tables


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateDatabase]:
    """An empty database."""
    if request.param == "sqlite":
        yield StateDatabase(f"sqlite:///{tmp_path}/state.db", patience_s=0)
        return
    server: Any = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql97"}[request.param])
    with server.database("state") as name:
        database = StateDatabase(server.url(getattr(name, "name", name)), patience_s=0)
        yield database
        database.close()


def test_the_command_that_creates_missing_tables_is_named_and_creates_them(database: StateDatabase) -> None:
    with pytest.raises(StateError, match=r"missing: cdc_batch.*\n(?s:.*)airflow cdc state migrate"):
        database.check_tables()
    migrate_tables(database)
    database.check_tables()
    tables = set(sa.inspect(database.engine).get_table_names())
    assert tables == {VERSION_TABLE, *Base.metadata.tables}
    migrate_tables(database)


@pytest.mark.parametrize(
    ("revision", "words"), [("0000", "of an older release: revision 0000"), ("9999", "of a newer release")]
)
def test_tables_of_another_release_are_rejected(tmp_path: Path, revision: str, words: str) -> None:
    database = StateDatabase(f"sqlite:///{tmp_path}/state.db", patience_s=0)
    migrate_tables(database)
    with database.engine.begin() as c:
        c.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    with pytest.raises(StateError, match=words) as rejected:
        database.check_tables()
    command = {"0000": "airflow cdc state migrate", "9999": "install the release"}[revision]
    assert command in str(rejected.value)
    with pytest.raises(StateError):
        migrate_tables(database)


def test_an_older_release_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release is made here: its revision is one more than the tables'."""
    database = StateDatabase(f"sqlite:///{tmp_path}/state.db", patience_s=0)
    migrate_tables(database)
    monkeypatch.setattr(state_database, "REVISION", "0002")
    with pytest.raises(StateError, match=f"older release: revision {REVISION}"):
        database.check_tables()


def test_the_metadata_db_is_left_to_airflow(database: StateDatabase) -> None:
    with database.engine.begin() as c:
        c.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        c.exec_driver_sql("CREATE TABLE dag_run (id INT)")
    with pytest.raises(StateError, match=r"missing(?s:.*)Repair: airflow db migrate"):
        database.check_tables()
    with pytest.raises(StateError, match=r"metadata DB(?s:.*)airflow db migrate"):
        migrate_tables(database)
    assert set(sa.inspect(database.engine).get_table_names()) == {"alembic_version", "dag_run"}


def test_a_login_that_may_not_create_tables_is_an_error_with_the_servers_words(postgres: Any) -> None:
    with postgres.database("state") as name:
        postgres.sql(
            "CREATE ROLE reader LOGIN PASSWORD 'x'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=name
        )
        url = sa.make_url(postgres.url(name)).set(username="reader", password="x")
        database = StateDatabase(url.render_as_string(hide_password=False), patience_s=0)
        try:
            with pytest.raises(StateError, match="permission denied"):
                migrate_tables(database)
        finally:
            database.close()
            postgres.sql("DROP ROLE reader")


def test_errors_name_the_database_without_its_secrets() -> None:
    database = StateDatabase("postgresql+psycopg://me:s3same@127.0.0.1:1/d?sslpassword=p3pper")
    assert database.place == "postgresql+psycopg://me:***@127.0.0.1:1/d"
