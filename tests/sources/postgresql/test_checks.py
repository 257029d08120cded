"""Prerequisites: each that is not met is found, with a statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.source import PostgresSource
from tests.sources.postgresql.conftest import Database

_ALWAYS = "max_slot_wal_keep_size is -1"


def check(config: PostgresConfig) -> list[Finding]:
    with PostgresSource(config) as source:
        return [f for f in source.check_prerequisites() if not f.problem.startswith(_ALWAYS)]


def mend(database: Database, finding: Finding) -> None:
    """Run the first statement of a finding's remedy."""
    database.sql(finding.fix.partition(";")[0].partition(", or ")[0])


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """An account that may do nothing."""
    name = f"role_{database.name}"
    database.sql(f"CREATE ROLE {name} LOGIN", "CREATE SCHEMA app", "CREATE TABLE app.a (id int PRIMARY KEY, note text)")
    yield name
    database.sql(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_database_that_is_ready_has_no_finding(database: Database) -> None:
    database.sql("CREATE TABLE a (id int PRIMARY KEY)")
    assert check(database.config) == []


def test_each_missing_right_is_found_and_mended_by_its_statement(database: Database, role: str) -> None:
    config = database.configure(database_user=role)
    expected = [
        "lacks the attribute REPLICATION",
        "lacks USAGE on the schema app",
        "lacks SELECT on app.a",
        "lacks CREATE",
        "does not own app.a",
    ]
    found = check(config)
    assert len(found) == len(expected)
    for finding, problem in zip(found, expected, strict=True):
        assert finding.fatal
        assert problem in finding.problem
    for finding in found[:4]:
        mend(database, finding)
    assert [f.problem for f in check(config)] == [found[4].problem]
    database.sql(f"ALTER TABLE app.a OWNER TO {role}")
    assert check(config) == []


def test_a_right_to_each_column_is_enough(database: Database, role: str) -> None:
    database.sql(
        f"ALTER ROLE {role} REPLICATION",
        f"GRANT USAGE ON SCHEMA app TO {role}",
        f"GRANT SELECT (id) ON app.a TO {role}",
    )
    config = database.configure(database_user=role, publication_autocreate_mode="all_tables")
    assert any("lacks SELECT" in f.problem for f in check(config))
    database.sql(f"GRANT SELECT (note) ON app.a TO {role}")
    assert not any("lacks SELECT" in f.problem for f in check(config))


def test_policies_that_hide_rows_are_found(database: Database, role: str) -> None:
    database.sql(
        f"ALTER ROLE {role} REPLICATION", f"GRANT USAGE ON SCHEMA app TO {role}", f"GRANT SELECT ON app.a TO {role}",
        "ALTER TABLE app.a ENABLE ROW LEVEL SECURITY",
    )  # fmt: skip
    config = database.configure(database_user=role, publication_autocreate_mode="all_tables")
    (found,) = [f for f in check(config) if "row level security" in f.problem]
    assert found.fatal
    mend(database, found)
    assert not any("row level security" in f.problem for f in check(config))


def test_tables_that_lack_something_in_the_log_are_found(database: Database) -> None:
    database.sql(
        "CREATE UNLOGGED TABLE cache (id int PRIMARY KEY)",
        "CREATE TABLE computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE indexed (id int PRIMARY KEY, code int NOT NULL UNIQUE)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code_key",
        "CREATE TABLE bag (n int)",
    )  # fmt: skip
    found = check(database.config)
    assert [(f.problem.partition(" ")[0], f.fatal) for f in sorted(found, key=lambda f: f.problem)] == [
        ("Other", False), ("The", False), ("public.bag", True), ("public.cache", False), ("public.computed", False),
    ]  # fmt: skip
    (bag,) = [f for f in found if f.fatal]
    mend(database, bag)
    assert not any(f.fatal for f in check(database.config))


def test_a_publication_that_sends_too_little_is_found(database: Database) -> None:
    config = database.configure(publication_autocreate_mode="disabled")
    database.sql("CREATE TABLE a (id int PRIMARY KEY, n int)", "CREATE TABLE b (id int PRIMARY KEY)")
    (found,) = check(config)
    assert "does not exist" in found.problem
    mend(database, found)
    assert check(config) == []
    database.sql(
        f"ALTER PUBLICATION {config.publication_name} SET (publish = 'insert')", "CREATE TABLE c (id int PRIMARY KEY)"
    )
    added, operations = check(config)
    assert "does not contain public.c" in added.problem
    assert "update, delete, truncate" in operations.problem
    mend(database, added)
    mend(database, operations)
    assert check(config) == []
    if database.server.edition != "14":
        database.sql(f"ALTER PUBLICATION {config.publication_name} SET TABLE a (id, n) WHERE (id > 1), b (id), c")
        assert [f.fatal for f in check(config)] == [True, False, False]


def test_a_slot_of_another_reader_and_one_without_a_publication_are_found(database: Database) -> None:
    database.sql("CREATE TABLE a (id int PRIMARY KEY)")
    with database.server.database("other") as name:
        database.server.sql(
            f"SELECT pg_create_logical_replication_slot('{database.config.slot_name}', 'pgoutput')", database=name
        )
        (found,) = check(database.config)
        assert found.fatal
        assert name in found.problem
        database.server.sql(f"SELECT pg_drop_replication_slot('{database.config.slot_name}')", database=name)


def test_the_signal_table_is_checked(database: Database, role: str) -> None:
    config = database.configure(
        signal_data_collection="app.signals", database_user=role, publication_autocreate_mode="all_tables",
        table_exclude_list=".*signals",
    )  # fmt: skip

    def of_signals() -> list[Finding]:
        return [f for f in check(config) if "signal" in f.problem]

    (missing,) = of_signals()
    assert not missing.fatal
    database.sql(missing.fix)
    (rights,) = of_signals()
    assert "USAGE on the schema, INSERT" in rights.problem
    for statement in rights.fix.split("; ")[:2]:
        database.sql(statement)
    assert of_signals() == []
    database.sql("ALTER TABLE app.signals ALTER COLUMN type TYPE varchar(8)")
    (short,) = of_signals()
    mend(database, short)
    assert of_signals() == []


def test_a_server_without_logical_decoding_or_places_is_found(postgres_factory: Any) -> None:
    with postgres_factory("17", wal_level="replica", max_replication_slots=0, wal_sender_timeout=0) as server:
        found = check(Database(server, "postgres").config)
    problems = " ".join(f.problem for f in found if f.fatal)
    assert "wal_level is replica" in problems
    assert "max_replication_slots is 0" in problems
    assert any("wal_sender_timeout" in f.problem for f in found)
