"""Keys that are different at the source, and that a collation may take as equal: each one is a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.dialects import load_dialect
from airflow_provider_cdc.targets.database.dialects.sqlserver import SqlServer
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, sink
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.parallel.test_staged_parallel_apply import staged_apply

KEYS = [
    "",
    " ",
    "  ",
    "a",
    "A",
    "a ",
    "A ",
    " a",
    "á",
    "A\u0301",
    "a\u0301",
    "ä",
    "ae",
    "æ",
    "ss",
    "ß",
    "ı",
    "i",
    "I",
    "İ",
    "a\0",
    "a\u00ad",
]
KEYS += ["a\n", "a\t", "ａ", "ﬁ", "fi", "😀", "😁", "\ufffd", "1", "１", "①", "'", "\\", "a\\ "]
"""Texts that some collation takes as equal to others of them."""
KINDS = ("postgresql", "mariadb", "mysql")
FOLDING = ("mariadb", "mysql")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty target database, of each kind that keeps all these keys apart."""
    server = request.getfixturevalue(_FIXTURES[request.param])
    with server.database("keys") as database:
        yield (
            server.url(database) if request.param == "postgresql" else server.url(f"{database.name}?charset=utf8mb4")
        )


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def texts(engine: sa.Engine) -> list[str]:
    """Keys without a character that PostgreSQL has not."""
    return [key for key in KEYS if engine.dialect.name != "postgresql" or "\0" not in key]


def assert_equal_table(engine: sa.Engine, source: MemoryDatabase, table: str) -> None:
    found = rows(engine, "p_" + table.replace(".", "_"))
    assert sorted(found, key=repr) == sorted(source.copy_rows(table), key=repr)


@pytest.mark.parametrize("way", ["sink", "staged"])
@pytest.mark.parametrize("seed", range(2))
def test_each_key_is_a_row(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, seed: int, way: str
) -> None:
    """New ones, changed ones, deleted ones, and ones that become each other, with one and with two columns in the key."""
    r, keys, apply = Random(seed), texts(engine), {"sink": sink, "staged": staged_apply}[way]
    source.create_table("s.one", {"k": "string!", "n": "int32"}, key=("k",))
    source.create_table("s.two", {"i": "int32!", "k": "string!", "n": "int32"}, key=("i", "k"))
    for _ in range(5):
        for _ in range(25):
            with source.transaction() as t:
                for table, more in (("s.one", {}), ("s.two", {"i": r.randrange(2)})):
                    old, new = ({**more, "k": key} for key in r.sample(keys, 2))
                    there = [{name: row[name] for name in old} for row in source.copy_rows(table)]
                    match r.randrange(4):
                        case 0 if old in there:
                            t.delete(table, old)
                        case 1 if old in there and new not in there:
                            t.update(table, old, {**new, "n": r.randrange(99)})
                        case _ if t.update(table, old, {"n": r.randrange(99)}) == 0:
                            t.insert(table, {**old, "n": r.randrange(99)})
        connector.capture()
        apply(engine, connector).apply()
        for table in ("s.one", "s.two"):
            assert_equal_table(engine, source, table)
    with source.transaction() as t:
        for key in keys[::2]:
            t.delete("s.one", {"k": key})
    connector.capture()
    apply(engine, connector).apply()
    assert_equal_table(engine, source, "s.one")


def test_keys_stay_apart_where_another_column_is_unique(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    """Rows of such a table come by way of a table of the session."""
    source.create_table("s.t", {"k": "string!", "n": "int32"}, key=("k",))
    keys = texts(engine)
    with source.transaction() as t:
        for number, key in enumerate(keys[::2]):
            t.insert("s.t", {"k": key, "n": number})
    connector.capture()
    sink(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_t (n)"))
    with source.transaction() as t:
        for number, key in enumerate(keys):
            if t.update("s.t", {"k": key}, {"n": 1000 + number}) == 0:
                t.insert("s.t", {"k": key, "n": 2000 + number})
    connector.capture()
    sink(engine, connector).apply()
    assert_equal_table(engine, source, "s.t")


@pytest.mark.parametrize("way", ["sink", "staged"])
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_520_ci"])
def test_a_table_that_would_merge_rows_is_refused_with_what_mends_it(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, collation: str, way: str
) -> None:
    """Another program has made it."""
    if engine.dialect.name not in FOLDING:
        pytest.skip("no collation of it takes keys as equal, unless somebody has made one")
    apply: Any = {"sink": sink, "staged": staged_apply}[way]
    source.create_table("s.t", {"i": "int32!", "k": "string!", "n": "int32"}, key=("i", "k"))
    source.create_table("s.other", {"k": "string!"}, key=("k",))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TABLE p_s_t (i int NOT NULL, k varchar(30) NOT NULL, n int, PRIMARY KEY (i, k)) COLLATE {collation}"
        )
    with source.transaction() as t:
        for key in KEYS:
            t.insert("s.t", {"i": 1, "k": key, "n": 1})
            t.insert("s.other", {"k": key})
    connector.capture()
    with pytest.raises(TargetError, match=rf"(?s)p\.s\.t: .*p_s_t may treat two keys.*k \({collation}\)") as caught:
        apply(engine, connector).apply()
    assert rows(engine, "p_s_t") == []
    assert_equal_table(engine, source, "s.other")
    mending = re.search(r"run (ALTER TABLE .*?); then", str(caught.value))
    assert mending is not None
    with engine.begin() as connection:
        connection.exec_driver_sql(mending[1])
    apply(engine, connector).apply()
    assert_equal_table(engine, source, "s.t")


def test_keys_that_are_no_texts_of_people_and_other_columns_may_have_any_collation(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    if engine.dialect.name not in FOLDING:
        pytest.skip("collations are no matter there")
    source.create_table("s.t", {"id": "int32!", "k": "string"}, key=("id",))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE p_s_t (id int PRIMARY KEY, k varchar(30) COLLATE utf8mb4_general_ci)")
    with source.transaction() as t:
        for number, key in enumerate(KEYS):
            t.insert("s.t", {"id": number, "k": key})
    connector.capture()
    sink(engine, connector).apply()
    assert_equal_table(engine, source, "s.t")


def test_keys_of_sql_server_are_compared_by_their_characters() -> None:
    named = load_dialect("mssql")()
    assert isinstance(named, SqlServer)
    key = DatabaseColumn("k", Column(name="k", type="string", nullable=False, declared={"length": 20}), key=True)
    note = DatabaseColumn("note", Column(name="note", type="string", declared={"length": 20}))
    table = DatabaseTargetTable("p.s.t", TargetTableName("t"), (key, note))
    assert named.build_create_table(table) == (
        "CREATE TABLE [t] ([k] nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL, [note] nvarchar(max), PRIMARY KEY ([k]))"
    )
    assert named.build_merge_source(table.fields) == (
        "(VALUES (CAST(? AS nvarchar(20)) COLLATE Latin1_General_100_BIN2, CAST(? AS nvarchar(max)))) AS s ([k], [note])"
    )


def test_a_table_whose_primary_key_is_another_one_keeps_rows_apart(engine: sa.Engine, tmp_path: Path) -> None:
    """Someone has made it, with a key of their own; the source's key is unique beside it."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "number": "int32!"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with engine.begin() as connection:
        connection.execute(
            sa.text("CREATE TABLE p_s_t (id BIGINT NOT NULL UNIQUE, number INTEGER NOT NULL PRIMARY KEY)")
        )
    with source.transaction() as t:
        for number in range(3):
            t.insert("s.t", {"id": number, "number": number})
    connector.capture()
    sink(engine, connector).apply()
    with source.transaction() as t:
        t.update("s.t", {"id": 0}, {"number": 7})
        t.update("s.t", {"id": 1}, {"number": 0})
    connector.capture()
    sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
