"""Names of topics: as the documents say, each of one table, and the same for as long as a connector lives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.config.topic_names import TopicNames, sanitize_name
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from dev.servers import MariaDb
from tests.support.connectors import memory_connector, mysql_connector
from tests.support.workloads.small_tables import KEYED, insert


def _topics(**properties: object) -> TopicNames:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return TopicNames(TableConfig.parse({"topic.prefix": "p", **named}))


# names


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("orders", "p.shop.orders"),
        ("Order-Items.2", "p.shop.Order-Items.2"),
        ("order items", "p.shop.order_items"),
        ("a/b\\c$d#e", "p.shop.a_b_c_d_e"),
        ("größe", "p.shop.gr__e"),
        ("😀", "p.shop.__"),
        ("x" * 300, "p.shop." + "x" * 242),
    ],
)
def test_characters_that_a_topic_cannot_have_become_underscores(table: str, name: str) -> None:
    assert _topics().resolve_topic(TableId(namespace="shop", name=table)) == name


@given(st.text(min_size=1))
def test_every_name_is_one_that_kafka_takes_and_stays_as_it_is(name: str) -> None:
    topic = sanitize_name(name)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic)
    assert sanitize_name(topic) == topic


_part = st.text(st.sampled_from("ab._- /"), min_size=1, max_size=4)


@given(st.lists(st.tuples(_part, _part), min_size=2, max_size=6, unique=True), st.sampled_from("._-"))
def test_no_two_tables_get_one_topic(names: list[tuple[str, str]], delimiter: str) -> None:
    topics, given = _topics(topic_delimiter=delimiter, include_schema_changes=False), dict[str, TableId]()
    for namespace, name in names:
        table = TableId(namespace=namespace, name=name)
        expected = sanitize_name(delimiter.join(("p", namespace, name)))
        if expected in given:
            with pytest.raises(ConfigError) as caught:
                topics.claim_topic(table)
            assert all(str(part) in str(caught.value) for part in (table, given[expected], expected))
        else:
            assert topics.claim_topic(table) == expected
            given[expected] = table


@pytest.mark.parametrize(
    ("properties", "table", "whose"),
    [
        (
            {"provide_transaction_metadata": True, "topic_transaction": "shop.orders"},
            "shop.orders",
            "the transactions",
        ),
        (
            {"notification_enabled_channels": "sink", "notification_sink_topic_name": "p.shop.orders"},
            "shop.orders",
            "the notifications",
        ),
    ],
)
def test_a_table_does_not_share_the_topic_of_other_records(
    properties: dict[str, object], table: str, whose: str
) -> None:
    namespace, _, name = table.partition(".")
    topics = _topics(**properties)
    with pytest.raises(
        ConfigError, match=f"shop.orders would use the topic p.shop.orders, which already holds {whose}"
    ):
        topics.claim_topic(TableId(namespace=namespace, name=name))
    topics.claim_topic(TableId(namespace=namespace, name="other"))


def test_other_records_do_not_share_a_topic() -> None:
    with pytest.raises(ConfigError, match=r"share the topic p: the schema changes .* and the notifications"):
        _topics(notification_enabled_channels="sink", notification_sink_topic_name="p")
    _topics(notification_enabled_channels="sink", notification_sink_topic_name="p", include_schema_changes=False)


@pytest.mark.parametrize("name", ["topic.transaction", "notification.sink.topic.name"])
def test_topics_that_people_name_have_names_that_kafka_takes(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        TableConfig.parse({"topic.prefix": "p", name: "no such topic"})


# runs


def _two(db: MemoryDatabase, first: str, second: str) -> None:
    for table in (first, second):
        db.create_table(table, KEYED, key=("id",))
        insert(db, table, 1)


@pytest.fixture
def empty_database(request: pytest.FixtureRequest) -> MemoryDatabase:
    return MemoryDatabase(request.node.nodeid)


@pytest.mark.parametrize(
    ("first", "second", "delimiter", "topic"),
    [("a.b_c", "a_b.c", "_", "test_a_b_c"), ("shop.a b", "shop.a_b", ".", "test.shop.a_b")],
)
def test_a_connector_whose_topics_collide_does_not_start(
    empty_database: MemoryDatabase, tmp_path: Path, first: str, second: str, delimiter: str, topic: str
) -> None:
    _two(empty_database, first, second)
    connector = memory_connector(empty_database, tmp_path, topic_delimiter=delimiter)
    with pytest.raises(ConfigError, match=f"{first} and {second} would both have the topic {topic}"):
        connector.capture()
    assert connector.changelog.list_batches("test") == []
    result = connector.capture({"table.exclude.list": re.escape(second)})
    assert result.topics == {topic: 1}


def test_a_table_that_comes_to_the_topic_of_another_stops_the_run_before_its_first_row(
    empty_database: MemoryDatabase, tmp_path: Path
) -> None:
    """It is gone again when the run comes: only the log knows of it."""
    empty_database.create_table("a.b_c", KEYED, key=("id",))
    insert(empty_database, "a.b_c", 1)
    connector = memory_connector(empty_database, tmp_path, topic_delimiter="_")
    connector.capture()
    insert(empty_database, "a.b_c", 2)
    empty_database.create_table("a_b.c", KEYED, key=("id",))
    insert(empty_database, "a_b.c", 77)
    insert(empty_database, "a.b_c", 3)
    empty_database.drop_table("a_b.c")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"a\.b_c and a_b\.c would both have the topic test_a_b_c") as caught:
            connector.capture()
        assert "CREATE" in (caught.value.where or "")
        rows = connector.replay.advance().rows("test_a_b_c")
        assert [row["id"] for row in rows] == [1, 2]
    connector.capture({"table.exclude.list": r"a_b\.c"})
    assert [row["id"] for row in connector.replay.advance().rows("test_a_b_c")] == [1, 2, 3]


def test_a_table_that_is_renamed_to_the_topic_of_another_stops_the_run(
    empty_database: MemoryDatabase, tmp_path: Path
) -> None:
    _two(empty_database, "a.b_c", "a.other")
    connector = memory_connector(empty_database, tmp_path, topic_delimiter="_")
    connector.capture()
    empty_database.rename_tables(("a.other", "a_b.c"))
    with pytest.raises(ConfigError, match="would both have the topic"):
        connector.capture()


def test_the_topic_of_a_table_that_is_gone_stays_its_own(empty_database: MemoryDatabase, tmp_path: Path) -> None:
    _two(empty_database, "a.b_c", "a.d")
    connector = memory_connector(empty_database, tmp_path, topic_delimiter="_")
    connector.capture()
    empty_database.drop_table("a.b_c")
    connector.capture()
    empty_database.create_table("a_b.c", KEYED, key=("id",))
    with pytest.raises(ConfigError, match=r"a\.b_c and a_b\.c would both have the topic"):
        connector.capture()


def test_a_table_that_the_lists_let_in_is_refused_where_its_topic_is_taken(
    empty_database: MemoryDatabase, tmp_path: Path
) -> None:
    _two(empty_database, "a.b_c", "a_b.c")
    connector = memory_connector(empty_database, tmp_path, topic_delimiter="_")
    connector.capture({"table.include.list": r"a\.b_c"})
    with pytest.raises(ConfigError, match=r"a\.b_c and a_b\.c would both have the topic"):
        connector.capture({"table.include.list": r"a_b\.c"})


def test_a_signal_table_needs_no_topic(empty_database: MemoryDatabase, tmp_path: Path) -> None:
    _two(empty_database, "a.b_c", "a.d")
    empty_database.create_table("a_b.c", {"id": "string!", "type": "string!", "data": "string"}, key=("id",))
    connector = memory_connector(empty_database, tmp_path, topic_delimiter="_", signal_data_collection="a_b.c")
    assert connector.capture().topics == {"test_a_b_c": 1, "test_a_d": 1}


def test_tables_of_a_server_that_come_to_one_topic_stop_the_run(mariadb: MariaDb, tmp_path: Path) -> None:
    with mariadb.database() as one:
        other = f"{one.name}_x"
        one.sql("CREATE TABLE x_y (id INT PRIMARY KEY)", "INSERT INTO x_y VALUES (1)", f"CREATE DATABASE {other}")
        try:
            connector = mysql_connector(
                mariadb, tmp_path, topic_delimiter="_", database_include_list=f"{one.name},{other}"
            )
            connector.capture()
            one.sql(
                "INSERT INTO x_y VALUES (2)", f"CREATE TABLE {other}.y (id INT PRIMARY KEY)",
                f"INSERT INTO {other}.y VALUES (77)", f"DROP TABLE {other}.y", "INSERT INTO x_y VALUES (3)",
            )  # fmt: skip
            topic = f"test_{one.name}_x_y"
            with pytest.raises(ConfigError, match=f"{one.name}.x_y and {other}.y would both have the topic {topic}"):
                connector.capture()
            assert [row["id"] for row in connector.replay.advance().rows(topic)] == [1, 2]
            connector.capture({"table.exclude.list": re.escape(f"{other}.y")})
            assert [row["id"] for row in connector.replay.advance().rows(topic)] == [1, 2, 3]
        finally:
            one.sql(f"DROP DATABASE {other}")
