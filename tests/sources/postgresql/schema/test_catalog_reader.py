"""Structures of tables of real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg import Connection

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, TableId
from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog
from dev.servers.postgres import Postgres
from tests.support.sources.postgresql.postgresql_column_reader import configuration


@pytest.fixture(scope="module", params=["14", "18"])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Any]) -> Iterator[Postgres]:
    with postgres_factory(request.param) as server:
        yield server


@pytest.fixture
def connection(server: Postgres) -> Iterator[Connection[Any]]:
    """Connect as a source does: names are written with their schemas."""
    with server.connect() as connection:
        connection.execute("SET client_min_messages = warning; DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        connection.execute("SELECT set_config('search_path', '', false), set_config('TimeZone', 'UTC', false)")
        yield connection


def shop(name: str) -> TableId:
    return TableId(namespace="shop", name=name, catalog="postgres")


def test_a_table_has_its_numbers_types_and_key(connection: Connection[Any]) -> None:
    connection.execute(
        "CREATE TABLE shop.orders (gone int, a numeric(12,2) NOT NULL, id bigint, note varchar(20), PRIMARY KEY (id, a));"
        "ALTER TABLE shop.orders DROP COLUMN gone"
    )
    catalog = PostgresCatalog(connection, configuration())
    structure = catalog.read_structure(shop("orders"))
    assert structure is not None
    schema = structure.schema
    assert schema.object_number is not None
    assert [(c.name, c.type, c.nullable, c.declared.number) for c in schema.columns] == [
        ("a", "decimal128(12, 2)", False, 2), ("id", "int64", False, 3), ("note", "string", True, 4),
    ]  # fmt: skip
    assert schema.key == ("id", "a")
    assert structure.type_oids == (1700, 20, 1043)
    assert structure.modifiers == ((12 << 16 | 2) + 4, -1, 24)
    assert (structure.identity, structure.identity_columns) == ("d", ("id", "a"))
    assert catalog.read_structure_by_number(schema.object_number) == structure
    assert catalog.read_structure_by_number(1) is None
    assert catalog.read_structure(shop("missing")) is None


@pytest.mark.parametrize(
    ("statements", "key", "identity"),
    [
        ("CREATE UNIQUE INDEX b ON shop.t (y); CREATE UNIQUE INDEX a ON shop.t (x)", ("x",), ()),
        ("CREATE UNIQUE INDEX b ON shop.t (y); CREATE UNIQUE INDEX a ON shop.t (x); ALTER TABLE shop.t REPLICA IDENTITY USING INDEX b", ("y",), ("y",)),
        ("CREATE UNIQUE INDEX a ON shop.t (z)", (), ()),
        ("CREATE UNIQUE INDEX a ON shop.t (x) WHERE x > 0", (), ()),
        ("CREATE UNIQUE INDEX a ON shop.t (abs(x))", (), ()),
        ("ALTER TABLE shop.t ADD UNIQUE (x) DEFERRABLE", (), ()),
        ("CREATE UNIQUE INDEX a ON shop.t (x) INCLUDE (y)", ("x",), ()),
        ("CREATE INDEX a ON shop.t (x)", (), ()),
        ("ALTER TABLE shop.t REPLICA IDENTITY FULL", (), ("x", "y", "z")),
        ("ALTER TABLE shop.t ADD PRIMARY KEY (y); ALTER TABLE shop.t REPLICA IDENTITY NOTHING", ("y",), ()),
    ],
)  # fmt: skip
def test_the_key_is_one_that_every_row_has_once(
    connection: Connection[Any], statements: str, key: tuple[str, ...], identity: tuple[str, ...]
) -> None:
    connection.execute(f"CREATE TABLE shop.t (x int NOT NULL, y int NOT NULL, z int); {statements}")
    structure = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    assert structure is not None
    assert (structure.schema.key, structure.identity_columns) == (key, identity)


@pytest.mark.parametrize(
    ("declaration", "default", "is_expression"),
    [
        ("varchar(9) DEFAULT 'it''s'", "it's", False), ("int DEFAULT 5", "5", False), ("int DEFAULT -5", "-5", False),
        ("numeric(5,2) DEFAULT 1.50", "1.50", False), ("bool DEFAULT true", "1", False), ("text DEFAULT NULL", None, False),
        ("timestamptz DEFAULT '2020-01-01 00:00:00+00'", "2020-01-01 00:00:00+00:00", False), ("bit(3) DEFAULT B'101'", "101", False),
        ("timestamptz DEFAULT now()", "now()", True), ("text DEFAULT E'a\\\\b'", "a\\b", False), ("int DEFAULT 2 + 3", "(2 + 3)", True),
        ("text DEFAULT 'a' || 'b'", "('a'::text || 'b'::text)", True), ("int[] DEFAULT '{1}'", "'{1}'::integer[]", True),
        ("double precision DEFAULT 1.5", "1.5", False),
    ],
)  # fmt: skip
def test_a_default_is_a_value_or_an_expression(
    connection: Connection[Any], declaration: str, default: str | None, is_expression: bool
) -> None:
    connection.execute(f"CREATE TABLE shop.t (id int PRIMARY KEY, v {declaration})")
    structure = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    assert structure is not None
    declared = structure.schema.get_column("v").declared
    assert (declared.default, declared.default_is_expression) == (default, is_expression)
    connection.execute("DROP TABLE shop.t")
    connection.execute(PostgresCatalog(connection, configuration()).create_statement(structure.schema))
    again = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    assert again is not None
    assert again.schema.get_column("v") == structure.schema.get_column("v")


def test_identity_and_serial_count_up(connection: Connection[Any]) -> None:
    connection.execute(
        "CREATE TABLE shop.t (a serial, b int GENERATED ALWAYS AS IDENTITY, c int GENERATED BY DEFAULT AS IDENTITY, d int)"
    )
    structure = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    assert structure is not None
    assert [c.declared.auto_incremented for c in structure.schema.columns] == [True, True, True, False]


def test_generated_columns_are_captured_if_the_publication_publishes_them(connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE shop.t (a int PRIMARY KEY, g int GENERATED ALWAYS AS (a * 2) STORED)")
    catalog = PostgresCatalog(connection, configuration(publication_name="generating"))
    structure = catalog.read_structure(shop("t"))
    assert structure is not None
    assert structure.schema.get_column("g").type == NOT_CAPTURED
    if connection.info.server_version < 180000:
        return
    connection.execute("CREATE PUBLICATION generating FOR TABLE shop.t WITH (publish_generated_columns = stored)")
    structure = catalog.read_structure(shop("t"))
    connection.execute("DROP PUBLICATION generating")
    assert structure is not None
    assert structure.schema.get_column("g").type == "int32"


def test_partitions_or_their_root_are_tables(connection: Connection[Any]) -> None:
    connection.execute(
        "CREATE TABLE shop.p (id int) PARTITION BY RANGE (id); CREATE TABLE shop.p1 PARTITION OF shop.p FOR VALUES FROM (0) TO (9) "
        "PARTITION BY LIST (id); CREATE TABLE shop.p11 PARTITION OF shop.p1 DEFAULT; CREATE TABLE shop.plain (id int); "
        "CREATE UNLOGGED TABLE shop.unlogged (id int); CREATE VIEW shop.v AS SELECT 1 AS x"
    )

    def names(**properties: Any) -> set[str]:
        return {t.name for t in PostgresCatalog(connection, configuration(**properties)).read_structures()}

    assert names() == {"p11", "plain"}
    assert names(publish_via_partition_root="true") == {"p", "plain"}
    connection.execute("CREATE PUBLICATION rooted FOR TABLE shop.p WITH (publish_via_partition_root)")
    found = names(publication_name="rooted")
    connection.execute("DROP PUBLICATION rooted")
    assert found == {"p", "plain"}


def test_tables_that_the_account_may_not_read_are_left_out(connection: Connection[Any], server: Postgres) -> None:
    connection.execute(
        "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'r'; GRANT USAGE ON SCHEMA shop TO reader"
    )
    connection.execute(
        "CREATE TABLE shop.open (id int); CREATE TABLE shop.closed (id int); GRANT SELECT ON shop.open TO reader"
    )
    with server.connect(user="reader", password="r") as own:
        assert list(PostgresCatalog(own, configuration()).read_structures()) == [shop("open")]
    connection.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_type_that_is_made_later_is_known(connection: Connection[Any]) -> None:
    catalog = PostgresCatalog(connection, configuration())
    connection.execute("CREATE TABLE shop.a (id int)")
    assert catalog.read_structure(shop("a")) is not None
    connection.execute("CREATE TYPE shop.mood AS ENUM ('sad', 'ok'); CREATE TABLE shop.b (m shop.mood)")
    structure = catalog.read_structure(shop("b"))
    assert structure is not None
    assert structure.schema.columns[0].parameters == {"allowed": "sad,ok"}


def test_types_that_are_not_known_are_not_captured_unless_asked_for(connection: Connection[Any]) -> None:
    connection.execute("CREATE TABLE shop.t (v int2vector)")
    column = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    assert column is not None
    assert column.schema.columns[0].type == NOT_CAPTURED
    column = PostgresCatalog(connection, configuration(include_unknown_datatypes="true")).read_structure(shop("t"))
    assert column is not None
    assert column.schema.columns[0].type == "binary"


def test_comments_are_read_if_asked_for(connection: Connection[Any]) -> None:
    connection.execute(
        "CREATE TABLE shop.t (v int); COMMENT ON TABLE shop.t IS 'things'; COMMENT ON COLUMN shop.t.v IS 'value'"
    )
    plain = PostgresCatalog(connection, configuration()).read_structure(shop("t"))
    told = PostgresCatalog(connection, configuration(include_schema_comments="true")).read_structure(shop("t"))
    assert plain is not None
    assert told is not None
    assert (plain.schema.comment, plain.schema.columns[0].declared.comment) == (None, None)
    assert (told.schema.comment, told.schema.columns[0].declared.comment) == ("things", "value")


def test_any_number_of_tables_takes_few_queries(connection: Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    connection.execute(
        "DO $$ BEGIN FOR i IN 1..300 LOOP EXECUTE format('CREATE TABLE shop.t%s (id int PRIMARY KEY)', i); END LOOP; END $$"
    )
    statements: list[str] = []
    execute = connection.execute
    monkeypatch.setattr(
        connection, "execute", lambda sql, *rest, **more: statements.append(sql) or execute(sql, *rest, **more)
    )  # type: ignore[func-returns-value]
    catalog = PostgresCatalog(connection, configuration())
    assert len(catalog.read_structures()) == 300
    assert len(statements) <= 8


def test_row_counts_are_estimates(connection: Connection[Any]) -> None:
    connection.execute(
        "CREATE TABLE shop.t AS SELECT generate_series(1, 500) AS id; CREATE TABLE shop.new (id int); ANALYZE shop.t"
    )
    assert PostgresCatalog(connection, configuration()).read_row_counts([shop("t"), shop("new")]) == {
        shop("t"): 500,
        shop("new"): 0,
    }
