"""The role that ``airflow cdc setup --role`` prints: made by an administrator of real servers, enough for everything, and for nothing else."""

from __future__ import annotations

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
from airflow_provider_cdc.state.models import Base
from airflow_provider_cdc.state.state_store import StateStore
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
        Base.metadata.create_all(engine)
        with engine.connect() as c:
            c.exec_driver_sql("CREATE TABLE connection (conn_id VARCHAR(250) PRIMARY KEY, password VARCHAR(500))")
            c.exec_driver_sql("INSERT INTO connection VALUES ('shop', 'hunter2')")
        more = {"database": admin.database} if kind == "postgresql" else {}
        try:
            server.sql(*role_sql(admin, name, PASSWORD), **more)
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
    ConnectorLifecycle("test", connector.store).delete("test")
    assert connector.store.find_connector("test") is None
    connector.store.close()


def test_signals_count_on_behind_those_of_a_change_log_that_was_there(role: sa.URL, tmp_path: Path) -> None:
    """The number that the database gives next is set, which is a separate right on PostgreSQL."""
    database, connector = _connector(tmp_path, role)
    _insert(database, 1)
    for _ in range(3):
        last = send(connector, "log", {"message": "x"})
    connector.capture()
    ConnectorLifecycle("test", connector.store).delete("test")
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
