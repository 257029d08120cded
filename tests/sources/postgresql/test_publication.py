"""Publications: what is created, added, and rejected."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from airflow_provider_cdc.core.errors import AccessDenied, ConfigError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect
from airflow_provider_cdc.sources.postgresql.publication import (
    Publication,
    ensure_published,
    parse_autoset_values,
    read_publication,
    read_replica_identities,
)
from tests.sources.postgresql.conftest import Database


@pytest.fixture
def tables(database: Database) -> Database:
    database.sql(
        "CREATE TABLE a (id int PRIMARY KEY, note text)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE bag (n int)",
        "CREATE UNLOGGED TABLE cache (id int PRIMARY KEY)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    )
    return database


def table(config: PostgresConfig, name: str) -> TableId:
    return TableId(catalog=config.database_dbname, namespace="public", name=name)


def publish(config: PostgresConfig, *names: str) -> Publication | None:
    with connect(config) as connection:
        ensure_published(connection, config, [table(config, name) for name in names])
        return read_publication(connection, config)


def names(published: Publication | None) -> set[str]:
    assert published is not None
    return {t.name for t in published.tables}


def test_the_captured_tables_are_published_and_later_ones_are_added(tables: Database) -> None:
    config = tables.config
    assert names(publish(config, "a")) == {"a"}
    assert names(publish(config, "a", "b", "nothing")) == {"a", "b"}


def test_an_unlogged_table_does_not_end_the_snapshot(tables: Database) -> None:
    assert names(publish(tables.config, "cache")) == set()
    assert names(publish(tables.config, "a", "cache")) == {"a"}


def test_all_tables_are_published_where_the_mode_says_so(tables: Database) -> None:
    tables.sql("ALTER TABLE bag REPLICA IDENTITY FULL")
    published = publish(tables.configure(publication_autocreate_mode="all_tables"), "a")
    assert published is not None
    assert published.all_tables
    assert names(published) >= {"a", "b", "bag", "parts_1"}


@pytest.mark.parametrize("mode", ["disabled", "no_tables"])
def test_a_table_that_may_not_be_added_is_an_error_that_names_the_statement(tables: Database, mode: str) -> None:
    config = tables.configure(publication_autocreate_mode=mode)
    with pytest.raises(PrerequisiteError) as caught:
        publish(config, "a")
    statement = str(caught.value.remedy).removeprefix("run ").partition(";")[0]
    assert f'"{config.publication_name}"' in statement
    tables.sql(statement)
    assert names(publish(config, "a")) == {"a"}


def test_a_table_whose_updates_would_fail_is_not_added(tables: Database) -> None:
    publish(tables.config, "a")
    with pytest.raises(PrerequisiteError, match="no replica identity") as caught:
        publish(tables.config, "a", "bag")
    tables.sql("INSERT INTO bag VALUES (1)", "UPDATE bag SET n = 2")  # the application is unharmed
    tables.sql(str(caught.value.remedy).partition(",")[0])
    assert names(publish(tables.config, "a", "bag")) == {"a", "bag"}


def test_replica_identities_are_set_as_the_property_says(tables: Database) -> None:
    tables.sql("CREATE UNIQUE INDEX a_id ON a (id)")
    rules = r"public\.bag:FULL, public\.a:INDEX a_id, public\.b:NOTHING"
    config = tables.configure(replica_identity_autoset_values=rules, skipped_operations="u,d")
    assert names(publish(config, "bag", "a")) == {"a", "bag"}
    with connect(config) as connection:
        found = read_replica_identities(connection, config, [table(config, n) for n in ("a", "bag", "b")])
    assert {t.name: (i.identity, i.index) for t, i in found.items()} == {
        "a": ("i", "public.a_id"), "bag": ("f", None), "b": ("d", None),
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a.b", "a.b:SOME", "a.b:INDEX", "a.b:FULL x", "(:FULL"])
def test_a_wrong_rule_for_replica_identities_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"replica\.identity\.autoset\.values"):
        parse_autoset_values(text)


def test_partitions_are_published_as_their_root_where_the_property_says_so(tables: Database) -> None:
    assert names(publish(tables.configure(publish_via_partition_root=True), "parts")) == {"parts"}
    assert names(publish(tables.configure(), "parts")) == {"parts_1"}


def test_an_account_that_does_not_own_a_table_cannot_add_it(tables: Database) -> None:
    role = f"role_{tables.name}"
    tables.sql(f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT CREATE ON DATABASE {tables.name} TO {role}")
    try:
        with pytest.raises(AccessDenied, match="must be owner of table a"):
            publish(tables.configure(database_user=role), "a")
    finally:
        tables.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_filters_and_operations_of_a_publication_are_read(tables: Database) -> None:
    config = tables.config
    newer = tables.server.edition != "14"
    what = "a (id) WHERE (id > 5), b" if newer else "a, b"
    tables.sql(f"CREATE PUBLICATION {config.publication_name} FOR TABLE {what} WITH (publish = 'insert, delete')")
    with connect(config) as connection:
        published = read_publication(connection, config)
    assert published is not None
    assert published.operations == {"insert", "delete"}
    assert published.row_filters == ({table(config, "a"): "(id > 5)"} if newer else {})
    assert published.column_lists == ({table(config, "a"): ("id",)} if newer else {})


def test_a_busy_table_is_not_waited_for_long(tables: Database) -> None:
    config: Any = tables.configure(snapshot_lock_timeout_ms=50)
    publish(config, "a")
    with psycopg.connect(tables.server.url(tables.name, "postgresql")) as other:
        other.execute("LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Exception, match="lock timeout"):
            publish(config, "a", "b")
