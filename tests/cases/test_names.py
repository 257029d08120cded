"""Names that are nearly the same: of topics, tables, columns and connectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.config.topic_names import sanitize_name
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of, load_dialect
from airflow_provider_cdc.targets.database.rebuild_database import RebuildDatabase
from airflow_provider_cdc.targets.database.schema.target_table import table_of
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev.servers.db2 import Db2
from tests.support.connectors import Connector, memory_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.servers.derby import adapt_engine
from tests.targets.database import conftest as databases
from tests.targets.database.apply.test_database_apply import UPPER, in_order, rows, sink
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.source_table import ID, Table

oracle, url, every_database = databases.oracle, databases.url, databases.engine
"""Fixtures."""
COLUMNS = {"id": "int64!", "k": "string"}


@pytest.fixture(params=["mariadb", "mysql"])
def folding_engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A target database whose own collation takes texts as equal that differ in their case."""
    with request.getfixturevalue(_FIXTURES[request.param]).database("names") as database:
        engine = open_engine(
            DatabaseTargetConfig.parse({"connection.url": database.server.url(f"{database.name}?charset=utf8mb4")})
        )
        yield engine
        engine.dispose()


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def insert_rows(source: MemoryDatabase, table: str, *found: dict[str, Any]) -> None:
    with source.transaction() as t:
        for row in found:
            t.insert(table, row)


def execute(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _stop_tables(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    """``s.Orders`` and ``s.orders`` whose targets cannot take row 2, and of which both want it."""
    for name in ("s.Orders", "s.orders"):
        source.create_table(name, COLUMNS, key=("id",))
        insert_rows(source, name, {"id": 1, "k": name})
    connector.capture()
    sink(engine, connector).apply()
    execute(engine, *(f"ALTER TABLE {name} MODIFY k VARCHAR(8)" for name in ("p_s_Orders", "p_s_orders")))
    for name in ("s.Orders", "s.orders"):
        insert_rows(source, name, {"id": 2, "k": "is too long"})
    connector.capture()
    with pytest.raises(TargetError, match="2 tables of"):
        sink(engine, connector).apply()
    for name in ("s.Orders", "s.orders"):
        insert_rows(source, name, {"id": 3, "k": "fits"})
    connector.capture()


def _repair_tables(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    execute(engine, *(f"ALTER TABLE {name} MODIFY k LONGTEXT" for name in ("p_s_Orders", "p_s_orders")))
    sink(engine, connector).apply()
    for name in ("s.Orders", "s.orders"):
        assert in_order(rows(engine, f"p_{name.replace('.', '_')}")) == source.copy_rows(name)


def test_topics_that_differ_in_case_have_markers_of_their_own(
    folding_engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R37"""
    _stop_tables(folding_engine, source, connector)
    with pytest.raises(TargetError):
        sink(folding_engine, connector).apply()
    assert {row["topic"] for row in rows(folding_engine, "cdc_applied")} == {"*", "p.s.Orders", "p.s.orders"}
    _repair_tables(folding_engine, source, connector)


def test_connectors_that_differ_in_case_have_markers_of_their_own(folding_engine: sa.Engine, tmp_path: Path) -> None:
    """A6c"""
    for name, folder in (("Shop", "x"), ("shop", "y")):
        own = MemoryDatabase(str(tmp_path / folder))
        own.create_table("s.t", COLUMNS, key=("id",))
        insert_rows(own, "s.t", {"id": 1, "k": name})
        one = memory_connector(own, tmp_path / folder, topic_prefix=folder)
        one.name = name
        one.capture()
        sink(folding_engine, one).apply()
        assert rows(folding_engine, f"{folder}_s_t") == [{"id": 1, "k": name}]
    assert {row["connector"] for row in rows(folding_engine, "cdc_applied")} == {"Shop", "shop"}


# -- two topics and one table -------------------------------------------------------------------------------------------------


def tables(source: MemoryDatabase, **found: list[dict[str, Any]]) -> None:
    """Tables with two columns, by their names with ``__`` for a dot, and their rows."""
    for name, some in found.items():
        source.create_table(name.replace("__", "."), COLUMNS, key=("id",))
        insert_rows(source, name.replace("__", "."), *some)


def row(id_: int, k: str) -> dict[str, Any]:
    return {"id": id_, "k": k}


def apply_changes(engine: sa.Engine, connector: Connector, **properties: Any) -> dict[str, str]:
    """Apply what there is, and what it says of the topics that stay behind."""
    connector.capture()
    one = sink(engine, connector, **properties)
    try:
        one.apply()
    except TargetError:
        return one.done.failed
    return {}


@pytest.fixture
def postgresql(postgres: Any) -> Iterator[sa.Engine]:
    with postgres.database("names") as name:
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": postgres.url(name)}))
        yield engine
        engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    yield engine
    engine.dispose()


PAIRS = {
    "A5": ("s.Orders", "s.orders", "${topic}"),
    "A5 sibling": ("a_b.c", "a.b_c", "${topic}"),
    "R09": ("shop_a.b", "shop.a_b", "${topic}"),
    "R09 sibling": ("e1.t", "e2.t", "${source.table}"),
    "R10": ("shop.ORDERS", "shop.orders", "x_${source.table}"),
}


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
@pytest.mark.parametrize("case", PAIRS)
def test_a_second_topic_for_a_table_is_refused_and_nothing_of_the_first_is_lost(
    request: pytest.FixtureRequest, source: MemoryDatabase, connector: Connector, case: str, kind: str
) -> None:
    """A5, R09, R10"""
    engine: sa.Engine = request.getfixturevalue(kind)
    one, other, form = PAIRS[case]
    tables(
        source,
        **{one: [row(1, "one"), row(2, "one")], other: [row(1, "other"), row(3, "other")], "s.third": [row(1, "x")]},
    )
    properties = {"collection__name__format": form}
    results = apply_changes(engine, connector, **properties)
    (topic,) = results
    assert topic in (f"p.{one}", f"p.{other}")
    assert f"p.{one}" in results[topic]
    assert f"p.{other}" in results[topic]
    assert "collection.name.format" in results[topic]
    first = one if topic == f"p.{other}" else other
    second = other if first == one else one
    source.truncate_table(second)
    insert_rows(source, first, row(7, "later"))
    insert_rows(source, second, row(8, "later"))
    insert_rows(source, "s.third", row(2, "x"))
    assert set(apply_changes(engine, connector, **properties)) == {f"p.{second}"}
    name = (
        form.replace("${topic}", f"p_{first}".replace(".", "_"))
        .replace("${source.table}", first.partition(".")[2])
        .lower()
    )
    assert in_order(rows(engine, name)) == source.copy_rows(first)
    assert in_order(
        rows(engine, form.replace("${topic}", "p_s_third").replace("${source.table}", "third"))
    ) == source.copy_rows("s.third")


def test_the_remedies_of_a_refused_topic_work(
    postgresql: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """A5, R10: names that keep their case; a topic that is left out; a topic that is given up."""
    tables(source, s__Orders=[row(1, "large")], s__orders=[row(1, "small"), row(2, "small")])
    assert set(apply_changes(postgresql, connector)) == {"p.s.orders"}
    assert not apply_changes(postgresql, connector, topics__regex=r"p\.s\.Orders")
    statement = apply_changes(postgresql, connector, name="again")["p.s.orders"].partition(
        "if p.s.Orders is no longer applied, run "
    )[2]
    with postgresql.begin() as connection:
        connection.exec_driver_sql(statement.splitlines()[0].rstrip("."))
        connection.exec_driver_sql("DROP TABLE p_s_orders")
    assert not apply_changes(postgresql, connector, name="third", topics__regex=r"p\.s\.orders")
    assert in_order(rows(postgresql, "p_s_orders")) == source.copy_rows("s.orders")


def test_names_that_keep_their_case_are_two_tables(
    postgresql: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R10"""
    tables(source, s__Orders=[row(1, "large")], s__orders=[row(1, "small"), row(2, "small")])
    assert not apply_changes(postgresql, connector, quote__identifiers=True)
    for name in ("Orders", "orders"):
        assert in_order(rows(postgresql, f"p_s_{name}")) == source.copy_rows(f"s.{name}")


def test_another_connector_does_not_get_the_table_either(
    sqlite: sa.Engine, source: MemoryDatabase, connector: Connector, tmp_path: Path
) -> None:
    """A5, by two connectors into one database."""
    tables(source, s__t=[row(1, "one")])
    assert not apply_changes(sqlite, connector, collection__name__format="${source.table}")
    own = MemoryDatabase(str(tmp_path / "other"))
    tables(own, s2__T=[row(1, "other")])
    other = memory_connector(own, tmp_path / "other", topic_prefix="q")
    other.name = "other"
    results = apply_changes(sqlite, other, collection__name__format="${source.table}")
    assert "p.s.t of the connector test and q.s2.T" in results["q.s2.T"]
    assert rows(sqlite, "t") == [row(1, "one")]


def test_shards_may_share_a_table_which_is_not_emptied_for_one_of_them(
    sqlite: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R09: what people of Debezium do with ``collection.name.format=${source.table}``."""
    shared = {"collection__name__format": "${source.table}", "collection__name__shared": True}
    tables(source, e1__t=[row(1, "one")], e2__t=[row(2, "two")])
    assert not apply_changes(sqlite, connector, **shared)
    insert_rows(source, "e1.t", row(3, "one"))
    assert not apply_changes(sqlite, connector, **shared)
    assert [one["id"] for one in in_order(rows(sqlite, "t"))] == [1, 2, 3]
    source.truncate_table("e2.t")
    assert "also contains rows of p.e1.t" in apply_changes(sqlite, connector, **shared)["p.e2.t"]
    assert [one["id"] for one in in_order(rows(sqlite, "t"))] == [1, 2, 3]
    properties = {**EQUAL, "collection.name.format": "${source.table}", "collection.name.shared": True}
    rebuild = RebuildDatabase(sqlite, DatabaseTargetConfig.parse(properties), connector.changelog, connector.name)
    with pytest.raises(TargetError, match="also contains rows of p"):
        rebuild.run(["p.e1.t"])
    assert [one["id"] for one in in_order(rows(sqlite, "t"))] == [1, 2, 3]
    assert not apply_changes(sqlite, connector, **shared, truncate__enabled=False)


def test_a_table_that_is_renamed_at_the_source_keeps_its_target(
    sqlite: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R09: under a format that gives both names the same table."""
    form = {"collection__name__format": "${source.table}"}
    tables(source, a__t=[row(1, "x")])
    assert not apply_changes(sqlite, connector, **form)
    source.rename_tables(("a.t", "b.t"))
    insert_rows(source, "b.t", row(2, "x"))
    assert not apply_changes(sqlite, connector, **form)
    assert in_order(rows(sqlite, "t")) == source.copy_rows("b.t")


@pytest.mark.parametrize(
    "name", ["cdc_applied", "CDC_Tables", "cdc_errors", "cdc_stage", "cdc_stage_1_2", "cdc_verify"]
)
def test_a_table_of_our_own_is_no_target(
    sqlite: sa.Engine, source: MemoryDatabase, connector: Connector, name: str
) -> None:
    tables(source, **{f"s.{name}": [row(1, "x")], "s.t": [row(1, "x")]})
    results = apply_changes(sqlite, connector, collection__name__format="${source.table}")
    assert "the sink reserves for its own tables" in results[f"p.s.{name}"]
    assert rows(sqlite, "t") == [row(1, "x")]


# -- names that a database has not --------------------------------------------------------------------------------------------

LONG = "customer_order_line_items_archive_of_the_year_2023_quarter_one"


@pytest.mark.parametrize(("kind", "most"), [("postgresql", "63 bytes"), ("mariadb", "64 characters")])
def test_names_that_are_too_long_are_refused_before_the_first_row(
    request: pytest.FixtureRequest, source: MemoryDatabase, connector: Connector, kind: str, most: str
) -> None:
    """B4, R11"""
    if kind == "postgresql":
        engine = request.getfixturevalue("postgresql")
    else:
        database = request.getfixturevalue("database")
        url = database.server.url(f"{database.name}?charset=utf8mb4")
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    tables(source, **{f"shop.{LONG}": [row(1, "x")], f"shop.{LONG[:-1]}_": [row(2, "x")], "shop.t": [row(1, "x")]})
    source.create_table("shop.wide", {"id": "int64!", "c" * 65: "string", "v": "string"}, key=("id",))
    insert_rows(source, "shop.wide", {"id": 1, "c" * 65: "x", "v": "x"})
    for _ in range(2):
        results = apply_changes(engine, connector)
        assert set(results) == {f"p.shop.{LONG}", f"p.shop.{LONG[:-1]}_", "p.shop.wide"}
        assert all(most in why for why in results.values())
        assert "collection.name.format" in results[f"p.shop.{LONG}"]
        insert_rows(source, "shop.t", row(len(source.copy_rows("shop.t")) + 1, "x"))
    assert not sa.inspect(engine).has_table("p_shop_wide")
    excluded = results["p.shop.wide"].partition("field.exclude.list=")[2].partition(",")[0]
    with engine.begin() as connection:  # with another name format, a table that exists is looked for under its new name
        connection.execute(sa.text("ALTER TABLE p_shop_t RENAME TO t"))
    results = apply_changes(
        engine, connector, collection__name__format="${source.table}", field__exclude__list=excluded
    )
    assert not results
    assert rows(engine, LONG) == [row(1, "x")]
    assert rows(engine, f"{LONG[:-1]}_") == [row(2, "x")]
    assert rows(engine, "wide") == [{"id": 1, "v": "x"}]
    engine.dispose()


@pytest.mark.parametrize("kind", ["mariadb", "mysql", "sqlite", "postgresql"])
def test_a_column_that_is_renamed_in_its_case_stays_one_column(
    request: pytest.FixtureRequest, source: MemoryDatabase, tmp_path: Path, kind: str
) -> None:
    """R13"""
    with contextlib.ExitStack() as stack:
        if kind in ("sqlite", "postgresql"):
            engine = request.getfixturevalue(kind)
        else:
            server = request.getfixturevalue(_FIXTURES[kind])
            database = stack.enter_context(server.database("names"))
            engine = open_engine(
                DatabaseTargetConfig.parse({"connection.url": server.url(f"{database.name}?charset=utf8mb4")})
            )
        table = Table(tmp_path / "own", engine, Column(name="Name", type="string", nullable=True))
        table.insert({"id": 1, "Name": "a"})
        table.apply()
        table.alter(ID, Column(name="name", type="string", nullable=True), renamed={"name": "Name"})
        table.insert({"id": 2, "name": "b"})
        table.apply()
        key = ID.model_copy(update={"name": "ID"})
        table.alter(key, Column(name="name", type="string"), renamed={"ID": "id"}, key=("ID",))
        table.insert({"ID": 3, "name": "c"})
        table.apply()
        found = [{name.lower(): value for name, value in one.items()} for one in rows(engine, "p_s_t")]
        assert in_order(found) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
        engine.dispose()


def test_columns_that_the_database_has_itself_are_named_all_at_once(
    postgresql: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """R31"""
    box = {"id": "int64!", "xmin": "double", "ymin": "double", "xmax": "double", "ymax": "double"}
    source.create_table("s.tiles", box, key=("id",))
    insert_rows(source, "s.tiles", {"id": 1, "xmin": 1.0, "ymin": 2.0, "xmax": 3.0, "ymax": 4.0})
    source.create_table("s.keyed", {"ctid": "int64!", "v": "string"}, key=("ctid",))
    tables(source, s__t=[row(1, "x")])
    results = apply_changes(postgresql, connector)
    assert "cannot have the columns xmin, xmax" in results["p.s.tiles"]
    assert "part of the key" in results["p.s.keyed"]
    excluded = results["p.s.tiles"].partition("leave them out with ")[2].partition(", or rename")[0].partition("=")[2]
    results = apply_changes(postgresql, connector, field__exclude__list=excluded)
    assert set(results) == {"p.s.keyed"}
    assert rows(postgresql, "p_s_tiles") == [{"id": 1, "ymin": 2.0, "ymax": 4.0}]


@pytest.mark.parametrize(
    ("dialect", "name", "fits"),
    [
        ("postgresql", "ä" * 31, True), ("postgresql", "ä" * 32, False), ("mysql", "ä" * 64, True), ("mysql", "ä" * 65, False),
        ("oracle", "Ä" * 64, True), ("oracle", "Ä" * 65, False), ("db2", "Ä" * 64, True), ("db2", "Ä" * 65, False),
        ("mssql", "😀" * 64, True), ("mssql", "😀" * 65, False),
    ],
)  # fmt: skip
def test_a_name_is_counted_as_the_database_counts_it(dialect: str, name: str, fits: bool) -> None:
    """R11: bytes, characters, or units of UTF-16."""
    schema = TableSchema(id=TableId(namespace="s", name=name), columns=(ID,), key=("id",))
    config = DatabaseTargetConfig.parse({**EQUAL, "collection.name.format": "${source.table}"})
    names = load_dialect(dialect)()
    with contextlib.nullcontext() if fits else pytest.raises(ConfigError, match="at most"):
        table_of("p.s.t", schema, config, names)


def test_an_old_oracle_has_names_of_30_bytes() -> None:
    """R11: as the driver of SQLAlchemy says by the parameter COMPATIBLE."""

    class Connection:
        class dialect:
            max_identifier_length = 30

    names = load_dialect("oracle")()
    names.detect_features(Connection())  # type: ignore[arg-type]
    schema = TableSchema(id=TableId(namespace="s", name="T" * 31), columns=(ID,), key=("id",))
    config = DatabaseTargetConfig.parse({**EQUAL, "collection.name.format": "${source.table}"})
    with pytest.raises(ConfigError, match="at most 30 bytes"):
        table_of("p.s.t", schema, config, names)


def test_a_table_of_db2_has_columns_whose_names_are_beyond_sixteen_bits(
    db2: Db2, source: MemoryDatabase, connector: Connector
) -> None:
    """IBM's driver cuts statements with such letters at their ends."""
    engine = adapt_engine(open_engine(DatabaseTargetConfig.parse({"connection.url": databases._of_db2(db2)})))
    try:
        with engine.begin() as connection:
            assert connection.exec_driver_sql("VALUES ('😀😀', 12)").one() == ("😀😀", 12)
        source.create_table("s.t", {"id": "int64!", "😀": "string", "ж": "string"}, key=("id",))
        for number in range(2):
            insert_rows(source, "s.t", {"id": number, "😀": "😀", "ж": "ж"})
            assert not apply_changes(engine, connector, quote__identifiers=True)
        with engine.connect() as connection:
            found = connection.exec_driver_sql('SELECT "id", "😀", "ж" FROM "p_s_t" ORDER BY "id"').all()
        assert found == [(0, "😀", "ж"), (1, "😀", "ж")]
    finally:
        engine.dispose()


# -- random names -------------------------------------------------------------------------------------------------------------

PARTS = [
    "a", "A", "b", "_", ".", " ", "é", "e", "É", "ß", "ss", "İ", "i", "I", "ı", "Σ", "σ", "ς", "😀", "😁", "日本", "select", "table", "order", "level", "rowid",
    "ROWID", "xmin", "ctid", "oid", "db_row_id", "DB_TRX_ID", "key", "\"", "`", "]", "'", "%", "%s", ":x", "?", "\\", "$", "#", "cdc_applied", "x" * 29, "y" * 31, "Z" * 32, "ж" * 16,
]  # fmt: skip


READ_BY_OURS = "\"`]'%:?\\$#"
"""Characters in names that our servers for Oracle and Db2, which are none, do not read as those do."""


def _name(random: Random, without: str = "") -> str:
    parts = [part for part in PARTS if not set(part) & set(without)]
    return "".join(random.choices(parts, k=random.choice([1, 1, 2, 2, 3]))).strip() or "n"


def test_tables_of_random_names_equal_the_source_or_are_refused(
    every_database: sa.Engine, source: MemoryDatabase, connector: Connector, sampled: CaseSample
) -> None:
    """A5, R09 to R13, R31: names of tables and columns of all kinds, in every database; none has rows of another one, and each one's trouble is its own."""
    engine, random = every_database, Random(sampled._seed)
    without = READ_BY_OURS if engine.dialect.name in UPPER else ""
    quoted = random.random() < 0.5
    properties = {
        "collection__name__format": random.choice(["${topic}", "${source.table}"]),
        "quote__identifiers": quoted,
    }
    names = {_name(random, without) for _ in range(40 if sampled.all else 14)}
    names |= {random.choice([n.upper(), n.lower(), n.swapcase(), n.replace(".", "_")]) for n in sorted(names)[::3]}
    columns = dict[str, list[str]]()
    for number, name in enumerate(sorted(names)):
        if sanitize_name(f"p.s.{name}") in {sanitize_name(f"p.s.{known}") for known in columns}:
            continue  # refused where it is captured
        own = list(dict.fromkeys(c for c in (_name(random, without) for _ in range(3)) if c != "id"))
        with contextlib.suppress(Exception):
            source.create_table(f"s.{name}", {"id": "int64!", **dict.fromkeys(own, "string")}, key=("id",))
            columns[name] = own
            insert_rows(source, f"s.{name}", {"id": 1, **{c: f"{number} {at}" for at, c in enumerate(own)}})
    tables(source, s__plain=[row(1, "x")])
    for again in range(2):
        results = apply_changes(engine, connector, **properties)
        for name in columns:
            insert_rows(source, f"s.{name}", {"id": 2 + again, **dict.fromkeys(columns[name], f"{name} {again}")})
        insert_rows(source, "s.plain", row(2 + again, "x"))
    results = apply_changes(engine, connector, **properties)
    topics = {
        topic: schema
        for manifest in connector.changelog.read_manifests("test")
        for topic, schema in manifest.schemas.items()
    }
    config = DatabaseTargetConfig.parse({**EQUAL, **{k.replace("__", "."): v for k, v in properties.items()}})
    with engine.connect() as connection:
        dialect = dialect_of(engine)
        dialect.detect_features(connection)
        equal = 0
        for topic, versions in topics.items():
            if topic in results:
                continue
            schema = versions[max(versions, key=int)]
            table = table_of(topic, schema, config, dialect)
            listed = dialect.format_column_list(field.name for field in table.fields)
            statement = f"SELECT {listed} FROM {dialect.format_table_name(table.name)}"
            found = connection.exec_driver_sql(statement, execution_options={"no_parameters": True}).all()
            expected = [tuple(r[f.column.name] for f in table.fields) for r in source.copy_rows(str(schema.id))]
            assert sorted(map(tuple, found), key=repr) == sorted(expected, key=repr), (topic, results)
            equal += 1
    assert "p.s.plain" not in results
    assert equal >= 3, results
    assert not [why for why in results.values() if "Traceback" in why or len(why) < 40]
