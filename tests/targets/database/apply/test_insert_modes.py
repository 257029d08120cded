"""Insert modes, key modes and lists of fields: what the properties of the Debezium JDBC sink connector say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.events import event_reader
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows

Row = dict[str, Any]


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "a": "string", "b": "int32"}, key=("id",))
    return source


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()  # what comes now are events, and not read by the snapshot
    return connector


def insert(source: MemoryDatabase, *found: Row) -> None:
    with source.transaction() as t:
        for row in found:
            t.insert("s.t", row)


def apply(engine: sa.Engine, connector: Connector, properties: Row) -> None:
    connector.capture()
    config = DatabaseTargetConfig.parse({"schema.evolution": "basic", **properties})
    DatabaseApply(engine, config, connector.changelog, connector.name).apply()


def key_of(connection: sa.Connection) -> list[str]:
    """The columns of the table's key."""
    dialect = dialect_of(connection.engine)
    there = dialect.find_table(connection, TargetTableName(dialect.fold_name("p_s_t")))
    assert there is not None
    return [name.lower() for name in there.key]


def test_by_default_each_event_is_a_row_and_deletes_are_ignored(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y", "b": 2})
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"b": 9})
        t.delete("s.t", {"id": 2})
    apply(engine, connector, {})
    found = [(row["id"], row["b"]) for row in rows(engine, "p_s_t")]
    assert sorted(found) == [(1, 1), (1, 9), (2, 2)]
    with engine.connect() as connection:
        assert key_of(connection) == []


def test_an_insert_of_a_key_that_is_there_is_an_error_that_names_it(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1})
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"b": 9})
    with pytest.raises(TargetError, match=r"(?i)id=1"):
        apply(engine, connector, {"primary.key.mode": "record_key"})


def test_inserts_and_deletes_of_one_key_keep_their_order(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1})
    with source.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.insert("s.t", {"id": 1, "a": "again", "b": 2})
        t.insert("s.t", {"id": 2, "a": "gone", "b": 2})
        t.delete("s.t", {"id": 2})
    apply(engine, connector, {"primary.key.mode": "record_key", "delete.enabled": True})
    assert rows(engine, "p_s_t") == [{"id": 1, "a": "again", "b": 2}]


def test_updates_change_rows_that_are_there_and_make_none(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y", "b": 2})
    mode = {"insert.mode": "update", "primary.key.mode": "record_key"}
    apply(engine, connector, mode)
    assert rows(engine, "p_s_t") == []
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO p_s_t (id, a, b) VALUES (1, 'theirs', 0)")
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"a": "z"})
        t.update("s.t", {"id": 2}, {"a": "z"})
    apply(engine, connector, mode)
    assert rows(engine, "p_s_t") == [{"id": 1, "a": "z", "b": 1}]


def test_kafka_keys_are_topic_and_place_of_the_event(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1})
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"b": 9})
    apply(engine, connector, {"primary.key.mode": "kafka"})
    found = sorted(rows(engine, "p_s_t"), key=lambda row: row["__connect_offset"])
    assert [(row["__connect_topic"], row["__connect_partition"], row["b"]) for row in found] == [
        ("p.s.t", 0, 1),
        ("p.s.t", 0, 9),
    ]
    with engine.connect() as connection:
        key = key_of(connection)
    assert key == ["__connect_topic", "__connect_partition", "__connect_offset"]


@pytest.mark.parametrize("fields", ["", "a"])
def test_keys_of_values_have_the_named_fields_or_all(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, fields: str
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "x", "b": 1})
    apply(
        engine, connector, {"primary.key.mode": "record_value", "primary.key.fields": fields, "insert.mode": "upsert"}
    )
    found = in_order(rows(engine, "p_s_t"))
    assert [row["id"] for row in found] == ([2] if fields else [1, 2])


def test_a_field_that_is_no_key_is_named(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1})
    with pytest.raises(TargetError, match=r"primary\.key\.fields names c.*id, a, b"):
        apply(engine, connector, {"primary.key.mode": "record_value", "primary.key.fields": "c"})


@pytest.mark.parametrize(
    ("lists", "columns"),
    [
        ({"field.include.list": "p.s.t:a"}, ["id", "a"]),
        ({"field.exclude.list": "p.s.t:a,p.s.other:b"}, ["id", "b"]),
    ],
)
def test_only_listed_fields_are_written(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, lists: Row, columns: list[str]
) -> None:
    insert(source, {"id": 1, "a": "x", "b": 1})
    apply(engine, connector, {"primary.key.mode": "record_key", "insert.mode": "upsert", **lists})
    assert [list(row) for row in rows(engine, "p_s_t")] == [columns]


def test_truncates_empty_the_table_only_if_they_are_enabled(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    keyed = {"primary.key.mode": "record_key", "insert.mode": "upsert"}
    insert(source, {"id": 1, "a": "x", "b": 1})
    source.truncate_table("s.t")
    insert(source, {"id": 2, "a": "y", "b": 2})
    apply(engine, connector, keyed)
    assert [row["id"] for row in in_order(rows(engine, "p_s_t"))] == [1, 2]
    source.truncate_table("s.t")
    insert(source, {"id": 3, "a": "z", "b": 3})
    apply(engine, connector, {**keyed, "truncate.enabled": True})
    assert [row["id"] for row in rows(engine, "p_s_t")] == [3]


@pytest.mark.parametrize("applied", ["before", "between", "after"])
def test_a_table_that_is_made_again_has_none_of_the_rows_of_the_one_that_was_dropped(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, applied: str
) -> None:
    insert(source, *({"id": n, "a": "old", "b": n} for n in range(4)))
    if applied == "before":
        apply(engine, connector, EQUAL)
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"b": 10})
    source.drop_table("s.t")
    if applied == "between":
        apply(engine, connector, EQUAL)
    source.create_table("s.t", {"id": "int64!", "z": "string"}, key=("id",))
    insert(source, {"id": 2, "z": "new"})
    apply(engine, connector, EQUAL)
    assert [(row["id"], row["z"]) for row in rows(engine, "p_s_t")] == [(2, "new")]


def test_values_that_an_event_leaves_out_stay(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> None:
    keyed = {"primary.key.mode": "record_key", "insert.mode": "upsert", "delete.enabled": True}
    source.make_sparse("s.t", "a")
    insert(source, *({"id": n, "a": f"old {n}", "b": n} for n in range(4)))
    apply(engine, connector, keyed)
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"b": 10})
        t.update("s.t", {"id": 1}, {"b": 11})
        t.update("s.t", {"id": 2}, {"a": "new", "b": 20})
        t.update("s.t", {"id": 2}, {"b": 21})
        t.delete("s.t", {"id": 3})
        t.insert("s.t", {"id": 3, "a": "again", "b": 30})
        t.update("s.t", {"id": 3}, {"b": 31})
    apply(engine, connector, keyed)
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


@pytest.mark.parametrize("chunk", [1, 2, 3, 100_000])
def test_a_row_that_gets_another_key_keeps_the_values_that_its_event_leaves_out(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(event_reader, "WHOLE_GROUP", chunk)
    source.make_sparse("s.t", "a")
    insert(source, *({"id": n, "a": f"old {n}", "b": n} for n in range(6)))
    apply(engine, connector, EQUAL)
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 10})
        t.update("s.t", {"id": 10}, {"id": 11, "b": 111})
        t.update("s.t", {"id": 2}, {"b": 20})
        t.update("s.t", {"id": 2}, {"id": 1})
        t.update("s.t", {"id": 3}, {"id": 30, "a": "new"})
        t.delete("s.t", {"id": 4})
        t.update("s.t", {"id": 5}, {"id": 4})
        t.delete("s.t", {"id": 4})
        t.insert("s.t", {"id": 12, "a": "born", "b": 12})
        t.update("s.t", {"id": 12}, {"id": 5})
    apply(engine, connector, EQUAL)
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_moved_rows_that_lack_values_need_a_mode_that_can_move_them(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    source.make_sparse("s.t", "a")
    insert(source, {"id": 1, "a": "x", "b": 1})
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 2})
    keyed = {"primary.key.mode": "record_key", "insert.mode": "upsert"}
    with pytest.raises(
        TargetError,
        match=r"(?i)key of a row of .* changed, and the log does not contain its values of a\.(.|\n)*delete\.enabled=true",
    ):
        apply(engine, connector, keyed)


def test_names_are_folded_unless_they_are_quoted(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    source.create_table("s.Mixed", {"Id": "int64!", "Note": "string"}, key=("Id",))
    with source.transaction() as t:
        t.insert("s.Mixed", {"Id": 1, "Note": "x"})
    keyed = {"primary.key.mode": "record_key", "insert.mode": "upsert", "topics": "p.s.Mixed"}
    apply(engine, connector, keyed)
    apply(engine, connector, {**keyed, "quote.identifiers": True, "name": "quoted", "table.name.format": "q_${topic}"})
    fold = {"postgresql": str.lower, "oracle": str.upper, "db2": str.upper}.get(engine.dialect.name, str)
    assert rows(engine, fold("p_s_Mixed"), quoted=True) == [{fold("Id"): 1, fold("Note"): "x"}]
    assert rows(engine, "q_p_s_Mixed", quoted=True) == [{"Id": 1, "Note": "x"}]


def test_tables_of_nothing_but_a_key_get_their_rows_once(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    source.create_table("s.keys", {"a": "int64!", "b": "int32!"}, key=("a", "b"))
    for _ in range(2):
        with source.transaction() as t:
            t.insert("s.keys", {"a": 1, "b": 1})
            t.insert("s.keys", {"a": 1, "b": 2})
        with source.transaction() as t:
            t.delete("s.keys", {"a": 1, "b": 2})
        apply(engine, connector, {**EQUAL, "topics": "p.s.keys", "delete.enabled": False})
        with source.transaction() as t:
            t.delete("s.keys", {"a": 1, "b": 1})
    assert sorted((row["a"], row["b"]) for row in rows(engine, "p_s_keys")) == [(1, 1), (1, 2)]
