"""Change batches in relational tables: equal to the source after random work, whatever is killed, refused or done twice."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import Connector, memory_connector

VALUES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int8": [-128, 0, 127],
    "int16": [-(2**15), 7],
    "int32": [-(2**31), 0, 2**31 - 1],
    "int64": [-(2**63), 0, 2**53 + 1, 2**63 - 1],
    "double": [0.0, -1.5, 0.1, 1e300],
    "string": [
        "",
        " ",
        "a",
        "A ",
        "ä€😀",
        "${user.home}",
        'it\'s `odd` "x"',
        "\\",
        "\\N",
        "NULL",
        "a,b\nc\td",
        "%s :x",
    ],
    "binary": [b"", b"\0", b"\xff\0\\'", b"abc"],
    "date32[day]": [dt.date(1066, 10, 14), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp[us]": [dt.datetime(1500, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1)],
    "timestamp[us, tz=UTC]": [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 1, 1, 2, 3, 4, tzinfo=dt.UTC),
    ],
    "decimal128(12, 2)": [Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99")],
    "decimal128(38, 10)": [Decimal("1.0000000001"), Decimal("-9999999999999999999999999999.9999999999")],
}
"""Type → values of all columns of the table that is worked on."""
TABLE = "s.${x} it's"
FITTING = {
    "db2": {**VALUES, "decimal128(38, 10)": [Decimal("1.0000000001"), Decimal("-999999999999999999999.9999999999")]}
}
"""Where not all values fit: Db2 has decimals of 31 digits."""


def sink(engine: sa.Engine, connector: Connector, **properties: Any) -> DatabaseApply:
    config = DatabaseTargetConfig.parse({**EQUAL, **{k.replace("__", "."): v for k, v in properties.items()}})
    return DatabaseApply(engine, config, connector.changelog, connector.name)


UPPER = ("oracle", "db2")
"""Databases that make large letters of names without quotes."""
FOLDING = ("postgresql", *UPPER)


def rows(
    engine: sa.Engine, table: str, decimals: Collection[str] = (), *, quoted: bool = False
) -> list[dict[str, Any]]:
    """Rows of a table, by names of columns in small letters where the database has large ones.

    :param decimals: columns that a database without decimals has as texts
    :param quoted: whether its names are as they are, in small and in large letters
    """
    upper = engine.dialect.name in UPPER and not quoted
    with engine.connect() as connection:
        statement = (
            f"SELECT * FROM {dialect_of(engine).format_table_name(TargetTableName(table.upper() if upper else table))}"
        )
        rows_ = connection.exec_driver_sql(
            statement, execution_options={"no_parameters": True, "driver_column_names": True}
        )
        found = [{name.lower() if upper else name: v for name, v in row._mapping.items()} for row in rows_]
    for row in found:
        row |= {name: Decimal(row[name]) for name in decimals if isinstance(row[name], str)}
    return [{name: plain_value(value) for name, value in row.items()} for row in found]


def errors(engine: sa.Engine) -> list[dict[str, Any]]:
    """Rows of the table of errors, whose name is in small letters everywhere."""
    return [{name.lower(): value for name, value in row.items()} for row in rows(engine, "cdc_errors", quoted=True)]


def plain_value(value: Any) -> Any:
    """A value as any of the databases may give it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(" ", "microseconds")
    if isinstance(value, dt.date):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:.10f}"
    return bytes(value) if isinstance(value, (bytes, memoryview)) else value


def expected_rows(source: MemoryDatabase, table: str, dialect: str) -> list[dict[str, Any]]:
    found = [{k: plain_value(as_kept(v, dialect)) for k, v in row.items()} for row in source.copy_rows(table)]
    return [{name.lower() if dialect in FOLDING else name: value for name, value in row.items()} for row in found]


def as_kept(value: Any, dialect: str) -> Any:
    """A value as a database has it: Oracle has no empty texts, and no dates without a time."""
    if dialect != "oracle":
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return None if value in ("", b"") else value


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: str(row["id"]))


def write_transactions(
    source: MemoryDatabase, table: str, r: Random, steps: int, values: dict[str, list[Any]] = VALUES
) -> None:
    """Transactions with all kinds of changes."""
    types = {
        column.name: column.type for column in source.read_consistent_view()[1][source.resolve_table_id(table)].columns
    }

    def draw_row() -> dict[str, Any]:
        return {name: r.choice([None, *values[type_]]) for name, type_ in types.items() if name != "id"}

    for _ in range(steps):
        with source.transaction() as t:
            for _ in range(r.randrange(1, 6)):
                id_ = {"id": r.randrange(12)}
                there = any(row["id"] == id_["id"] for row in source.copy_rows(table))
                match r.randrange(4):
                    case 0 if there:
                        t.delete(table, id_)
                    case 1 if there:  # another key
                        free = {"id": r.randrange(100, 10**6)}
                        t.update(table, id_, {**free, **draw_row()})
                    case _:
                        if t.update(table, id_, draw_row()) == 0:
                            t.insert(table, {**id_, **draw_row()})


@pytest.mark.parametrize("seed", range(3))
def test_random_work_ends_in_equal_tables(engine: sa.Engine, tmp_path: Path, seed: int) -> None:
    r, named = Random(seed), {"collection__name__format": "${source.table}"}
    source = MemoryDatabase(str(tmp_path))
    columns = {f"c{n} :x%s": type_ for n, type_ in enumerate(VALUES)}
    source.create_table(TABLE, {"id": "int64!", **columns}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=r.choice([3, 1000]))
    for number in range(6):
        write_transactions(source, TABLE, r, 6, FITTING.get(engine.dialect.name, VALUES))
        match number:
            case 2:
                source.add_column(TABLE, "added", "int32", 7, text="7")
            case 3 if r.random() < 0.5:
                source.truncate_table(TABLE)
        connector.capture()
        if r.random() < 0.7:
            sink(engine, connector, **named).apply()
    sink(engine, connector, **named).apply()
    table = TABLE.partition(".")[2]
    decimals = [name for name, type_ in columns.items() if type_.startswith("decimal")]
    assert in_order(rows(engine, table, decimals)) == in_order(expected_rows(source, TABLE, engine.dialect.name))
    assert sink(engine, connector, **named).apply().event_count == 0


def test_a_value_that_is_unique_may_go_from_one_row_to_another(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "mail": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        for number in range(5):
            t.insert("s.t", {"id": number, "mail": number})
    connector.capture()
    sink(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_t (mail)"))
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"mail": None})
        t.update("s.t", {"id": 2}, {"mail": 1})
        t.update("s.t", {"id": 1}, {"mail": 2})
    connector.capture()
    sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_a_row_that_is_refused_stops_its_table_and_no_other(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    for name in ("s.bad", "s.good"):
        source.create_table(name, {"id": "int64!", "mail": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.bad", {"id": 1, "mail": 1})
        t.insert("s.good", {"id": 1, "mail": 1})
    connector.capture()
    sink(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_bad (mail)"))
    with source.transaction() as t:
        t.insert("s.bad", {"id": 2, "mail": 1})
        t.insert("s.good", {"id": 2, "mail": 1})
    connector.capture()
    with pytest.raises(TargetError, match=r"(?si)p\.s\.bad.*p_s_bad rejects a row.*id=2"):
        sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_good")) == in_order(source.copy_rows("s.good"))
    assert rows(engine, "p_s_bad") == [{"id": 1, "mail": 1}]
    with source.transaction() as t:
        t.insert("s.good", {"id": 3, "mail": 1})
    connector.capture()
    with pytest.raises(TargetError, match=r"(?i)p_s_bad rejects a row"):
        sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_good")) == in_order(source.copy_rows("s.good"))
    with engine.begin() as connection:
        table = " ON p_s_bad" if engine.dialect.name in ("mysql", "mariadb", "mssql") else ""
        connection.execute(sa.text(f"DROP INDEX one{table}"))
    sink(engine, connector).apply()
    assert in_order(rows(engine, "p_s_bad")) == in_order(source.copy_rows("s.bad"))


def test_without_evolution_a_missing_table_is_named_with_its_ddl(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "a": "string"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": 1, "a": "x"})
    connector.capture()
    with pytest.raises(TargetError, match=r"(?si)The table p_s_t does not exist.*CREATE TABLE") as caught:
        sink(engine, connector, schema__evolution="none").apply()
    ddl = str(caught.value).partition("or run ")[2].partition("; then run the apply again")[0]
    with engine.begin() as connection:
        connection.exec_driver_sql(ddl)
    sink(engine, connector, schema__evolution="none").apply()
    assert rows(engine, "p_s_t") == [{"id": 1, "a": "x"}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"delete.enabled": True},
        {"insert.mode": "upsert"},
        {"topics": "a", "topics.regex": "b"},
        {"insert.mode": "upsrt"},
        {"primary.key.mode": "record_keys"},
        {"hibernate.dialect": "x"},
        {"use.time.zone": "Mars/Olympus"},
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DatabaseTargetConfig.parse(wrong)


def test_rows_that_are_refused_are_kept_with_the_reason_if_errors_are_tolerated(
    engine: sa.Engine, tmp_path: Path
) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "mail": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": 1, "mail": 1})
    connector.capture()
    sink(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_t (mail)"))
    with source.transaction() as t:
        for number in range(2, 5):
            t.insert("s.t", {"id": number, "mail": 1 if number == 3 else number})
    connector.capture()
    sink(engine, connector, errors__tolerance="all").apply()
    assert [row["id"] for row in in_order(rows(engine, "p_s_t"))] == [1, 2, 4]
    (kept,) = errors(engine)
    assert (kept["topic"], kept["target"], kept["action"]) == (
        "p.s.t",
        "P_S_T" if engine.dialect.name in UPPER else "p_s_t",
        "write",
    )
    assert {name.lower(): value for name, value in json.loads(kept["row_json"]).items()} == {"id": 3, "mail": 1}
    assert kept["error"]
    sink(engine, connector, errors__tolerance="all").apply()
    assert len(errors(engine)) == 1


@pytest.mark.parametrize("deferred", [True, False])
def test_rows_that_refer_to_each_other_come_and_go_together(engine: sa.Engine, tmp_path: Path, deferred: bool) -> None:
    """In whatever order tables are named; also where foreign keys are looked at after each statement: what others refer to is written first and goes last."""
    if deferred == (engine.dialect.name in ("db2", "mssql")) or (engine.dialect.name == "oracle" and not deferred):
        pytest.skip(
            "foreign keys are looked at after each statement, or have to be deferrable (docs/targets/databases.md)"
        )
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.parents", {"id": "int64!", "note": "int64"}, key=("id",))
    source.create_table("s.children", {"id": "int64!", "parent": "int64"}, key=("id",))
    source.create_table("s.grandchildren", {"id": "int64!", "parent": "int64"}, key=("id",))
    names = ("parents", "children", "grandchildren")
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()
    with source.transaction() as t:
        for number in range(3):
            t.insert("s.parents", {"id": number})
            t.insert("s.children", {"id": number, "parent": number})
            t.insert("s.grandchildren", {"id": number, "parent": number})
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        kept = engine.dialect.name in ("sqlite", "postgresql", "oracle") and (
            deferred or engine.dialect.name == "sqlite"
        )
        refers = "parent INTEGER, CONSTRAINT {} FOREIGN KEY (parent) REFERENCES {} (id)" + " DEFERRABLE" * kept
        for name, more in zip(
            names,
            ("note INTEGER", refers.format("one", "p_s_parents"), refers.format("two", "p_s_children")),
            strict=True,
        ):
            connection.exec_driver_sql(f"CREATE TABLE p_s_{name} (id INTEGER NOT NULL PRIMARY KEY, {more})")
    for turn in range(3):
        connector.capture()
        sink(engine, connector, schema__evolution="none").apply()
        for table in names:
            assert in_order(rows(engine, f"p_s_{table}")) == in_order(source.copy_rows(f"s.{table}"))
        with source.transaction() as t:
            t.delete("s.grandchildren", {"id": 1 - turn})
            t.delete("s.children", {"id": 1 - turn})
            t.delete("s.parents", {"id": 1 - turn})
            t.insert("s.parents", {"id": 7 + turn})
            t.update("s.children", {"id": 2}, {"parent": 7 + turn})
            t.delete("s.parents", {"id": 7 + turn - 1 if turn else 2})  # no one refers to it any more
            t.insert("s.parents", {"id": 20 + turn})
            t.delete("s.parents", {"id": 20 + turn})
            t.insert("s.parents", {"id": 20 + turn, "note": turn})
            t.insert("s.children", {"id": 20 + turn, "parent": 20 + turn})


def test_tables_that_refer_to_each_other_in_a_circle_stay_behind_alone(
    postgres: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No order of statements is right for their rows: foreign keys have to be deferrable for that, which is not so here."""
    source = MemoryDatabase(str(tmp_path))
    for name in ("s.one", "s.other"):
        source.create_table(name, {"id": "int64!", "refers": "int64"}, key=("id",))
    source.create_table("s.third", {"id": "int64!"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with postgres.database("circle") as name:
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": postgres.url(name)}))
        with source.transaction() as t:
            t.insert("s.one", {"id": 1})
            t.insert("s.other", {"id": 1, "refers": 1})
            t.update("s.one", {"id": 1}, {"refers": 1})
        connector.capture()
        sink(engine, connector).apply()
        with engine.begin() as connection:
            for one, other in (("one", "other"), ("other", "one")):
                connection.exec_driver_sql(
                    f"ALTER TABLE p_s_{one} ADD FOREIGN KEY (refers) REFERENCES p_s_{other} (id)"
                )
        with source.transaction() as t:
            t.update("s.one", {"id": 1}, {"refers": None})
            t.delete("s.other", {"id": 1})
            t.delete("s.one", {"id": 1})
            t.insert("s.third", {"id": 1})
        connector.capture()
        with (
            caplog.at_level(logging.INFO),
            pytest.raises(TargetError, match=r"(?s)could not be applied.*p\.s\.one.*foreign key"),
        ):
            sink(engine, connector).apply()
        assert "cannot be deleted last; each table is written separately" in caplog.text
        assert rows(engine, "p_s_third") == [{"id": 1}]
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE p_s_one ALTER CONSTRAINT p_s_one_refers_fkey DEFERRABLE")
            connection.exec_driver_sql("ALTER TABLE p_s_other DROP CONSTRAINT p_s_other_refers_fkey")
        sink(engine, connector).apply()
        for table in ("one", "other", "third"):
            assert in_order(rows(engine, f"p_s_{table}")) == in_order(source.copy_rows(f"s.{table}"))
        engine.dispose()
