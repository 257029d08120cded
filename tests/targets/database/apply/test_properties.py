"""Properties of the connection, of topics, names and time zones, and keys that are all of a row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingTable
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from airflow_provider_cdc.targets.database.target_engine import build_unavailable_error, open_engine, place_of
from tests.support.connectors import memory_connector
from tests.support.servers.derby import adapt_engine
from tests.targets.database.apply.test_database_apply import in_order, rows, sink
from tests.targets.database.source_table import Table, column


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://db:5432/shop", "postgresql+psycopg://me:it%27s%40@db:5432/shop"),
        ("jdbc:mysql://db/shop", "mysql+pymysql://me:it%27s%40@db/shop"),
        ("mariadb://other:x@db/shop", "mariadb+pymysql://me:it%27s%40@db/shop"),
    ],
)
def test_the_connection_is_that_of_the_url_with_user_and_password(url: str, expected: str) -> None:
    config = DatabaseTargetConfig.parse(
        {
            "connection.url": url,
            "connection.username": "me",
            "connection.password": "it's@",
            "connection.pool.timeout": 60,
        }
    )
    engine = open_engine(config)
    assert engine.url.render_as_string(hide_password=False) == expected
    assert engine.pool._recycle == 60
    assert "it's" not in place_of(engine, config)


def test_the_error_about_a_database_that_is_not_reached_has_no_secret_of_its_url() -> None:
    engine = open_engine(
        DatabaseTargetConfig.parse(
            {"connection.url": "postgresql+psycopg://me:s3same@127.0.0.1:1/d?sslpassword=p3pper"}
        )
    )
    with pytest.raises(sa.exc.DBAPIError) as caught:
        engine.connect()
    text = str(build_unavailable_error(engine, caught.value))
    assert "postgresql+psycopg://me:***@127.0.0.1:1/d" in text
    assert "s3same" not in text
    assert "p3pper" not in text


def test_a_connection_without_a_url_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"connection\.url: required"):
        open_engine(DatabaseTargetConfig.parse({}))


def find_table(engine: sa.Engine, table: str) -> ExistingTable | None:
    named = dialect_of(engine)
    with engine.connect() as connection:
        return named.find_table(connection, TargetTableName(named.fold_name(table)))


def test_the_typical_configuration_of_the_reference_works_as_it_is(url: str, engine: sa.Engine, tmp_path: Path) -> None:
    """With the login in its own properties, and everything as text."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "at": "timestamp[us]"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    whole = sa.make_url(url)
    login = {"connection.username": whole.username, "connection.password": whole.password}
    config = DatabaseTargetConfig.parse(
        {
            "insert.mode": "upsert", "delete.enabled": "true", "primary.key.mode": "record_key", "schema.evolution": "basic",
            "database.time_zone": "UTC", "tasks.max": "1", "topics": "p.s.t",
            "connection.url": whole._replace(username=None, password=None).render_as_string(),
            **{name: value for name, value in login.items() if value is not None},
        }
    )  # fmt: skip
    own = adapt_engine(open_engine(config))
    for day in (1, 2):
        with source.transaction() as t:
            t.insert("s.t", {"id": day, "at": dt.datetime(2024, 7, day, 12)})
            t.update("s.t", {"id": 1}, {"at": dt.datetime(2024, 8, day)})
        connector.capture()
        DatabaseApply(own, config, connector.changelog, connector.name).apply()
    with source.transaction() as t:
        t.delete("s.t", {"id": 2})
    connector.capture()
    DatabaseApply(own, config, connector.changelog, connector.name).apply()
    own.dispose()
    assert rows(engine, "p_s_t") == [{"id": 1, "at": "2024-08-02 00:00:00.000000"}]


@pytest.mark.parametrize("listed", [{"topics": "p.s.one, p.s.two"}, {"topics__regex": r"p\.s\.(one|two)"}])
def test_only_topics_that_are_listed_have_tables(engine: sa.Engine, tmp_path: Path, listed: dict[str, Any]) -> None:
    source = MemoryDatabase(str(tmp_path))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    for name in ("one", "two", "two_more"):
        source.create_table(f"s.{name}", {"id": "int64!"}, key=("id",))
        with source.transaction() as t:
            t.insert(f"s.{name}", {"id": 1})
    connector.capture()
    sink(engine, connector, **listed).apply()
    assert [find_table(engine, f"p_s_{name}") is not None for name in ("one", "two", "two_more")] == [True, True, False]


def test_a_dot_of_the_name_format_names_a_schema_and_those_of_topics_become_underscores(
    engine: sa.Engine, tmp_path: Path
) -> None:
    if engine.dialect.name in ("sqlite", "oracle"):
        return  # one has no schemas, and those of the other are users
    table = Table(tmp_path, engine)
    table.insert({"id": 1})
    with engine.begin() as connection:
        schema = f"{engine.url.username or ''}{engine.url.database}_target".lower()
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    try:
        table.apply(table__name__format=schema + ".jdbc_${topic}")
        with engine.connect() as connection:
            assert connection.exec_driver_sql(f"SELECT id FROM {schema}.jdbc_p_s_t").all() == [(1,)]
    finally:
        with engine.begin() as connection:
            if engine.dialect.name == "db2":
                connection.exec_driver_sql(f"DROP TABLE {schema}.jdbc_p_s_t")
            tail = {"postgresql": " CASCADE", "db2": " RESTRICT"}.get(engine.dialect.name, "")
            connection.exec_driver_sql(f"DROP SCHEMA {schema}{tail}")


@pytest.mark.parametrize("name", ["use__time__zone", "database__time_zone"])
def test_moments_are_reported_in_the_zone_of_the_database_where_it_has_no_type_for_them(
    engine: sa.Engine, tmp_path: Path, name: str
) -> None:
    table = Table(tmp_path, engine, column("at", "timestamp[us, tz=UTC]"), column("wall", "timestamp[us]"))
    table.insert({"id": 1, "at": dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC), "wall": dt.datetime(2024, 7, 1, 12)})
    table.apply(**{name: "Europe/Berlin"})
    (row,) = table.found()
    has_moments = engine.dialect.name in ("postgresql", "oracle")
    local = "2024-07-01 12:00:00.000000" if has_moments else "2024-07-01 14:00:00.000000"
    assert (row["at"], row["wall"]) == (local, "2024-07-01 12:00:00.000000")  # of PostgreSQL, given in UTC


@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_a_table_that_is_all_key_takes_changes(engine: sa.Engine, tmp_path: Path, mode: str) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"a": "int64!", "id": "string!"}, key=("a", "id"))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()
    for _ in range(2):  # the second time as a change of rows that are there
        with source.transaction() as t:
            for number in range(3):
                t.delete("s.t", {"a": number})
                t.insert("s.t", {"a": number, "id": "x"})
        connector.capture()
        sink(engine, connector, insert__mode=mode, delete__enabled=False).apply()
    expected = in_order(source.copy_rows("s.t")) if mode == "upsert" else []
    assert sorted(rows(engine, "p_s_t"), key=str) == sorted(expected, key=str)


def test_the_key_is_that_of_the_events_or_the_part_of_it_that_is_named(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"n": "int32", "b": "int64!", "id": "int64!"}, key=("id", "b"))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": 1, "b": 1, "n": 1})
        t.insert("s.t", {"id": 1, "b": 2, "n": 2})
    connector.capture()
    sink(engine, connector).apply()
    sink(engine, connector, name="part", collection__name__format="part", primary__key__fields="id").apply()
    keys = [
        [name.lower() for name in found.key]
        for found in (find_table(engine, "p_s_t"), find_table(engine, "part"))
        if found
    ]
    assert keys == [["id", "b"], ["id"]]
    assert len(rows(engine, "p_s_t")) == 2
    assert rows(engine, "part") == [{"id": 1, "b": 2, "n": 2}]


def test_events_without_a_key_say_how_they_may_get_one(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64"})
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": 1})
    connector.capture()
    with pytest.raises(
        (ConfigError, TargetError), match=r"(?s)The events of p\.s\.t have no key.*message\.key\.columns"
    ):
        sink(engine, connector).apply()


def test_a_text_that_is_too_long_for_a_key_is_refused_and_named(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "string!"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": "x" * 300})
    connector.capture()
    if engine.dialect.name in ("mysql", "mariadb"):  # keys without a length have 255 characters there
        with pytest.raises(TargetError, match=r"(?s)p_s_t rejects a row: .*too long.*id=xxx"):
            sink(engine, connector).apply()
        return
    sink(engine, connector).apply()
    assert rows(engine, "p_s_t") == source.copy_rows("s.t")


def test_values_that_a_column_cannot_have_are_refused_whatever_the_server_lets_pass(
    mariadb: Any, tmp_path: Path
) -> None:
    """A server without strict modes would cut texts off, make other numbers of those that are too large, and a new number of a 0."""
    with mariadb.database("loose") as database:
        engine = sa.create_engine(mariadb.url(f"{database.name}?charset=utf8mb4&sql_mode=NO_BACKSLASH_ESCAPES"))
        database.sql("CREATE TABLE p_s_t (id BIGINT PRIMARY KEY AUTO_INCREMENT, c VARCHAR(3))")
        table = Table(tmp_path, engine, column("c", "string"))
        table.insert({"id": 0, "c": "\\"})
        table.apply()
        assert table.found() == [{"id": 0, "c": "\\"}]
        table.insert({"id": 1, "c": "abcd"})
        with pytest.raises(TargetError, match=r"(?s)p_s_t rejects a row: .*too long.*id=1"):
            table.apply()
        engine.dispose()
