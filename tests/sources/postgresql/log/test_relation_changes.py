"""Changes of structure, which the log of PostgreSQL does not have: relation messages, the known schema and the catalog show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.model.table_schema import TableChange
from dev.servers import Postgres
from tests.sources.postgresql.log.streamed import Database, Event, open_database

T = "CREATE TABLE t (id int PRIMARY KEY, a text, b varchar(10))"


@pytest.fixture(scope="module", params=["14", "18"])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Postgres]) -> Iterator[Postgres]:
    options = {"wal_level": "logical", "max_replication_slots": "50"}
    with postgres_factory(request.param, **options) as server:
        yield server


def run(base: Database, *statements: str) -> tuple[list[Event], list[TableChange]]:
    base.sql(*statements)
    return base.capture(), base.take_changes()


def insert(number: int, more: str = "") -> str:
    return f"INSERT INTO t VALUES ({number}, 'a', 'b'{more})"


def test_a_column_is_added_with_the_value_that_rows_have(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    events, changes = run(
        base, insert(2), "ALTER TABLE t ADD n int, ADD d text DEFAULT 'x', ADD k bool NOT NULL DEFAULT true, ADD e text DEFAULT 'it''s {\"q\"}'", insert(3, ", 5")
    )  # fmt: skip
    assert [e.after for e in events] == [
        {"id": 2, "a": "a", "b": "b"},
        {"id": 3, "a": "a", "b": "b", "n": 5, "d": "x", "k": True, "e": 'it\'s {"q"}'},
    ]
    (change,) = changes
    assert change.added == {"n": None, "d": "x", "k": "true", "e": 'it\'s {"q"}'}
    assert change.exact
    assert not change.dropped
    assert not change.renamed
    assert change.table is not None
    assert not change.table.get_column("k").nullable
    assert change.table.key == ("id",)


def test_a_column_whose_values_the_catalog_does_not_show_is_read_again(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    _, (change,) = run(base, "ALTER TABLE t ADD r float8 DEFAULT random()", insert(2))
    assert not change.exact
    assert "r" not in change.added


def test_a_dropped_and_a_renamed_column_are_told_apart(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    events, (change,) = run(
        base, "ALTER TABLE t RENAME b TO c", "ALTER TABLE t DROP a", "INSERT INTO t VALUES (2, 'c')"
    )
    assert events[0].after == {"id": 2, "c": "c"}
    assert (change.renamed, change.dropped, change.added, change.exact) == ({"c": "b"}, ("a",), {}, True)


def test_columns_that_swap_their_names_are_renamed(server: Postgres) -> None:
    base = open_database(server, "CREATE TABLE t (id int PRIMARY KEY, a text, b text)")
    _, (change,) = run(
        base, "ALTER TABLE t RENAME a TO x", "ALTER TABLE t RENAME b TO a", "ALTER TABLE t RENAME x TO b", insert(1)
    )
    assert change.renamed == {"a": "b", "b": "a"}


def test_a_column_that_is_made_again_under_its_name_loses_its_values(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    _, (change,) = run(base, "ALTER TABLE t DROP b", "ALTER TABLE t ADD b varchar(10)", insert(2))
    assert not change.exact or (change.dropped == ("b",) and change.added == {"b": None})
    assert not run(base, insert(3))[1]


def test_a_wider_modifier_leaves_values_as_they_are(server: Postgres) -> None:
    base = open_database(server, "CREATE TABLE t (id int PRIMARY KEY, a varchar(5), n numeric(10, 2))")
    add = "INSERT INTO t VALUES (%d, 'a', 1.5)"
    base.sql("ALTER TABLE t ALTER a TYPE varchar(20)", "ALTER TABLE t ALTER n TYPE numeric(12, 2)", add % 1)
    base.capture()
    (change,) = base.take_changes()
    assert change.exact
    _, (change,) = run(base, "ALTER TABLE t ALTER a TYPE text", add % 2)
    assert change.exact
    _, (change,) = run(base, "ALTER TABLE t ALTER n TYPE numeric(12, 1)", add % 3)
    assert not change.exact
    _, (change,) = run(base, "ALTER TABLE t ALTER id TYPE bigint", add % 4)
    assert not change.exact


def test_a_table_under_another_name_is_the_same_table(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    events, (change,) = run(base, "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (2, 'a', 'b')")
    assert events[0].table == "u"
    assert change.previous_id is not None
    assert change.previous_id.name == "t"
    assert change.id.name == "u"


def test_a_table_that_is_made_again_is_another_table(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    events, changes = run(
        base, insert(2), "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, z text)", "INSERT INTO t VALUES (3, 'z')"
    )
    assert [e.after for e in events] == [{"id": 2, "a": "a", "b": "b"}, {"id": 3, "z": "z"}]
    assert [c.type for c in changes] == ["DROP", "CREATE"]
    assert not changes[1].exact


def test_a_table_that_was_dropped_since_is_read_as_the_log_has_it(server: Postgres) -> None:
    base = open_database(server, T, insert(1))
    events, changes = run(base, insert(2), "ALTER TABLE t DROP a", "INSERT INTO t VALUES (3, 'b')", "DROP TABLE t")
    assert [e.after for e in events] == [{"id": 2, "a": "a", "b": "b"}, {"id": 3, "b": "b"}]
    assert changes[-1].table is not None
    assert changes[-1].table.key == ("id",)


def test_new_tables_come_with_their_structure(server: Postgres) -> None:
    base = open_database(server, T)
    events, (change,) = run(
        base, "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE TABLE n (id bigint PRIMARY KEY, m mood)",
        "INSERT INTO n VALUES (1, 'ok')",
    )  # fmt: skip
    assert events[0].after == {"id": 1, "m": "ok"}
    assert change.type == "CREATE"
    assert change.table is not None
    assert change.table.key == ("id",)


def test_a_change_within_a_transaction_comes_between_its_rows(server: Postgres) -> None:
    base = open_database(server, T)
    base.run_together(
        insert(1),
        "ALTER TABLE t ADD x int DEFAULT 7",
        insert(2),
        "ALTER TABLE t DROP a",
        "INSERT INTO t VALUES (3, 'b', 8)",
    )
    events = base.capture()
    assert [list(e.after or {}) for e in events] == [["id", "a", "b"], ["id", "a", "b", "x"], ["id", "b", "x"]]
    assert [(c.added, c.dropped) for c in base.take_changes()] == [({"x": "7"}, ()), ({}, ("a",))]
    assert len({e.transaction for e in events}) == 1
    blocks = [item for item in base.items if isinstance(item, LogBlock)]
    assert [block.open for block in blocks] == [True, True, False]


def test_the_catalog_may_be_ahead_of_the_log(server: Postgres) -> None:
    base = open_database(server, T)
    base.sql(
        insert(1), "ALTER TABLE t RENAME a TO a2", insert(2), "ALTER TABLE t RENAME a2 TO a3", insert(3),
        "ALTER TABLE t ADD y text DEFAULT 'y'", insert(4), "ALTER TABLE t DROP b", "INSERT INTO t VALUES (5, 'a', 'y')",
    )  # fmt: skip
    events, changes = base.capture(), base.take_changes()
    assert [list(e.after or {}) for e in events] == [
        ["id", "a", "b"], ["id", "a2", "b"], ["id", "a3", "b"], ["id", "a3", "b", "y"], ["id", "a3", "y"],
    ]  # fmt: skip
    assert [(c.renamed, c.dropped, c.added) for c in changes] == [
        ({"a2": "a"}, (), {}), ({"a3": "a2"}, (), {}), ({}, (), {"y": "y"}), ({}, ("b",), {}),
    ]  # fmt: skip


def test_a_new_key_is_a_change(server: Postgres) -> None:
    base = open_database(server, T)
    _, (change,) = run(base, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)", insert(1))
    assert change.table is not None
    assert change.table.key == ("a",)


def test_columns_that_a_publication_leaves_out_are_unavailable(postgres_factory: Callable[..., Postgres]) -> None:
    with postgres_factory("16", wal_level="logical") as server:
        base = open_database(server, T, publication="FOR TABLE t (id, b) WHERE (id > 1)")
        events, changes = run(base, insert(1), insert(2))
        assert [(e.after, e.lacking) for e in events] == [({"id": 2, "a": None, "b": "b"}, ("a",))]
        assert not changes


def test_analyze_and_vacuum_change_nothing(server: Postgres) -> None:
    base = open_database(server, T)
    events, changes = run(base, insert(1), "ANALYZE t", insert(2), "VACUUM FULL t", insert(3))
    assert len(events) == 3
    assert not changes
