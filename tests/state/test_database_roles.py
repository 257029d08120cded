"""The role that ``airflow cdc setup --role`` prints: made by an administrator of real servers, enough for everything, and for nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.connector import open_lifecycle
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.database_roles import role_sql
from airflow_provider_cdc.state.models import REVISION, Base
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.state.table_migration import migrate_tables
from tests.support.connectors import Connector, memory_connector
from tests.support.signals import send, signal_state, snapshot

ROLES = ("capture", "capture \"o'neil")
PASSWORD = 'it\'s a \\ "secret" `%s`'
SERVERS = {"postgresql": "postgres", "mysql 9.7": "mysql97", "mysql 8.0": "mysql80", "mariadb": "mariadb"}


@pytest.fixture(params=[(server, role) for server in SERVERS for role in ROLES], ids=lambda p: f"{p[0]}, {p[1]}")
def role(request: pytest.FixtureRequest) -> Iterator[sa.URL]:
    """Login of a role on a database with our tables and with one of Airflow's own, which holds a secret."""
    kind, name = request.param
    server: Any = request.getfixturevalue(SERVERS[kind])
    with server.database("state") as database:
        admin = sa.make_url(server.url(getattr(database, "name", database)))
        engine = sa.create_engine(admin, isolation_level="AUTOCOMMIT")
        with contextlib.closing(StateDatabase(_text(admin))) as state:
            migrate_tables(state)
        with engine.connect() as c:
            c.exec_driver_sql("CREATE TABLE connection (conn_id VARCHAR(250) PRIMARY KEY, password VARCHAR(500))")
            c.exec_driver_sql("INSERT INTO connection VALUES ('shop', 'hunter2')")
        more = {"database": admin.database} if kind == "postgresql" else {}
        try:
            server.sql(*role_sql(admin, name, PASSWORD, plain=kind == "mariadb"), **more)
            yield admin.set(username=name, password=PASSWORD)
        finally:
            server.sql(*_drop(engine, name), **more)
            engine.dispose()


def _drop(engine: sa.Engine, name: str) -> list[str]:
    if engine.dialect.name != "postgresql":
        account = name.replace("'", "''")
        return [f"DROP USER IF EXISTS '{account}'@'%'"]
    quoted = '"' + name.replace('"', '""') + '"'
    return [f"DROP OWNED BY {quoted}", f"DROP ROLE {quoted}"]


def _text(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _connector(folder: Path, url: sa.URL) -> tuple[MemoryDatabase, Connector]:
    database = MemoryDatabase(folder.name)
    database.create_table("shop.a", {"id": "int64!", "n": "int64"}, key=("id",))
    connector = memory_connector(database, folder, incremental_snapshot_chunk_size=2, signal_poll_interval_ms=50)
    connector.store.close()
    connector.state_url = _text(url)
    connector.store = StateStore(connector.state_url, lease_ttl_s=5)
    return database, connector


def _insert(database: MemoryDatabase, *ids: int) -> None:
    with database.transaction() as t:
        for i in ids:
            t.insert("shop.a", {"id": i, "n": i})


def test_with_the_role_everything_works(role: sa.URL, tmp_path: Path) -> None:
    database, connector = _connector(tmp_path, role)
    _insert(database, 1, 2, 3)
    assert connector.capture().events == 3
    database.add_column("shop.a", "more", "string")
    _insert(database, 4)
    number = snapshot(connector, "shop.a")
    wrong = send(connector, "no-such-type", {})
    connector.capture()
    connector.capture()
    assert (signal_state(connector, number)[0], signal_state(connector, wrong)[0]) == ("done", "refused")
    assert connector.store.list_notifications("test", limit=10)
    definition = connector.definition()
    with open_lifecycle(definition, connector.state_url) as lifecycle:
        lifecycle.pause("ann", "a look")
        lifecycle.resume("ann")
        lifecycle.restart("ann")
        assert lifecycle.inspect_status().state.value in ("unassigned", "running")
        lifecycle.reset_offset("test", "ann")
    assert connector.capture().events == 5, "a truncate, and four rows"
    versions = connector.store.offset_history("test")
    assert len(versions) > 3
    ConnectorLifecycle("test", connector.store).delete("test", "ann")
    assert connector.store.find_connector("test") is None
    connector.store.close()


def test_signals_count_on_behind_those_of_a_change_log_that_was_there(role: sa.URL, tmp_path: Path) -> None:
    """The number that the database gives next is set, which is a separate right on PostgreSQL."""
    database, connector = _connector(tmp_path, role)
    _insert(database, 1)
    for _ in range(3):
        last = send(connector, "log", {"message": "x"})
    connector.capture()
    ConnectorLifecycle("test", connector.store).delete("test", "ann")
    connector.capture()  # finds the batches that are there, with the number of the last signal
    assert send(connector, "log", {"message": "y"}) > last
    connector.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT password FROM connection",
        "UPDATE connection SET password = 'mine'",
        "DELETE FROM connection",
        "DROP TABLE cdc_lease",
        "CREATE TABLE mine (id INT PRIMARY KEY)",
        "UPDATE alembic_version_cdc SET version_num = '0000'",
    ],
)
def test_with_the_role_nothing_else_can_be_done(role: sa.URL, statement: str) -> None:
    engine = sa.create_engine(role)
    with engine.connect() as c, pytest.raises(sa.exc.DBAPIError, match=r"(?i)denied|must be owner"):
        c.exec_driver_sql(statement)
    engine.dispose()


def test_a_file_has_no_roles() -> None:
    with pytest.raises(ConfigError, match="has no roles"):
        role_sql(sa.make_url("sqlite:////tmp/x.db"), "cdc", "x")


def test_the_role_sees_the_revision_of_the_tables(role: sa.URL) -> None:
    with contextlib.closing(StateDatabase(_text(role), patience_s=0)) as state:
        state.check_tables()
        assert state._read_revision() == REVISION


def test_airflows_own_login_still_creates_tables_and_no_one_else_does(postgres: Any) -> None:
    """Until PostgreSQL 14 everyone may create in the schema public. The grant of these releases is made here."""
    with postgres.database("state") as name:
        admin = sa.make_url(postgres.url(name))
        postgres.sql("GRANT CREATE ON SCHEMA public TO PUBLIC", "CREATE ROLE owner14 LOGIN PASSWORD 'x'", database=name)
        owner = admin.set(username="owner14", password="x")
        try:
            with contextlib.closing(StateDatabase(_text(owner))) as state:
                migrate_tables(state)
            postgres.sql(*role_sql(owner, "narrow14", PASSWORD), database=name)
            for login, allowed in ((owner, True), (admin.set(username="narrow14", password=PASSWORD), False)):
                engine = sa.create_engine(login)
                with engine.begin() as c, contextlib.nullcontext() if allowed else _denied():
                    c.exec_driver_sql("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
                engine.dispose()
        finally:
            postgres.sql(
                "DROP OWNED BY owner14, narrow14 CASCADE",
                "DROP ROLE owner14",
                "DROP ROLE IF EXISTS narrow14",
                database=name,
            )


def _denied() -> Any:
    return pytest.raises(sa.exc.DBAPIError, match="permission denied for schema public")


def test_the_statements_hold_no_password() -> None:
    for url in ("postgresql+psycopg://a@h/airflow", "mysql+pymysql://a@h/airflow"):
        assert "hunter2" not in "\n".join(role_sql(sa.make_url(url), "cdc", "hunter2"))
        assert "hunter2" in "\n".join(role_sql(sa.make_url(url), "cdc", "hunter2", plain=True))


def test_tls_is_required_where_a_role_can_require_it() -> None:
    (create, *_) = role_sql(sa.make_url("mysql+pymysql://a@h/airflow"), "cdc", "x", require_tls=True)
    assert create.endswith(" REQUIRE SSL")
    with pytest.raises(ConfigError, match=r"pg_hba\.conf"):
        role_sql(sa.make_url("postgresql+psycopg://a@h/airflow"), "cdc", "x", require_tls=True)


def test_every_state_table_is_granted() -> None:
    for url in ("postgresql+psycopg://a@h/airflow", "mysql+pymysql://a@h/airflow"):
        text = "\n".join(role_sql(sa.make_url(url), "cdc", "x"))
        assert all(name in text for name in Base.metadata.tables)


# sessions that a pooler may give to someone else


def test_no_setting_stays_in_a_session_of_postgresql(postgres: Any) -> None:
    """A transaction pooler, such as PgBouncer, gives every transaction any of its sessions."""
    with postgres.database("state") as name:
        store = StateStore(postgres.url(name), lease_ttl_s=7)
        store.create_tables()
        ask = sa.text("SHOW idle_in_transaction_session_timeout")
        with store.database.open_transaction() as c:
            assert c.scalar(ask) == "7s"
            pid = c.scalar(sa.text("SELECT pg_backend_pid()"))
        for _ in range(12):  # psycopg prepares what it has run five times
            with store.database.engine.connect() as c:
                assert c.scalar(sa.text("SELECT pg_backend_pid()")) == pid
                assert c.scalar(ask) == "0"
                assert c.scalar(sa.text("SELECT count(*) FROM pg_prepared_statements")) == 0
        store.close()
