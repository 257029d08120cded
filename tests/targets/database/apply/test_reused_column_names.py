"""Rows that no event is about have what the source's have, whatever name a column has got there."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from tests.support.connectors import memory_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.database.apply.test_database_apply import UPPER, in_order, rows, sink
from tests.targets.database.source_table import ID, Table, column
from tests.targets.database.test_rebuild_database import rebuild

NAMES = ("a", "b", "c", "d")


def _equal(table: Table) -> None:
    """The columns that the source has are equal."""
    table.engine.dispose()  # the driver of Oracle keeps a statement with the columns that there were
    right = {row["id"]: dict(row) for row in table.source._own(table.source.resolve_table_id("s.t"))}
    found = {int(row["id"]): row for row in table.found()}
    assert found.keys() == right.keys()
    for key, row in right.items():
        assert {name: _number(found[key][name]) for name in row} == row, key


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


FORMS: dict[str, tuple[str, dict[str, str | None], dict[str, str]]] = {
    "made again": ("abc", {"a": None}, {}),
    "made again, with a value": ("abc", {"a": "5", "b": None}, {}),
    "to the name of a dropped one": ("bc", {}, {"b": "a"}),
    "to each other's name": ("abc", {}, {"a": "b", "b": "a"}),
    "in a ring": ("abc", {}, {"a": "b", "b": "c", "c": "a"}),
    "in a row": ("bcd", {}, {"b": "a", "c": "b", "d": "c"}),
    "and made again": ("abcd", {"a": None}, {"d": "a"}),
    "and made again with a value": ("abcd", {"a": "7"}, {"b": "a", "d": "b"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_has_another_ones_name_has_its_values(engine: sa.Engine, tmp_path: Path, form: str) -> None:
    table = Table(tmp_path, engine, *(column(name, "int32") for name in "abc"))
    table.insert(*({"id": i, "a": i, "b": 10 * i, "c": None if i % 2 else 100 * i} for i in range(1, 5)))
    table.apply()
    columns, added, renamed = FORMS[form]
    table.alter(ID, *(column(name, "int32") for name in columns), added=added, renamed=renamed)
    table.insert({"id": 9, columns[0]: 9})
    with table.source.transaction() as t:
        t.update("s.t", {"id": 2}, {columns[1]: 77})
    table.apply()
    _equal(table)
    with table.source.transaction() as t:
        t.update("s.t", {"id": 1}, {columns[1]: 78})
    table.apply()
    _equal(table)


@pytest.mark.parametrize("form", ["to the name of a dropped one", "to a new name"])
def test_a_column_that_was_left_out_and_is_renamed_stops_the_table(
    engine: sa.Engine, tmp_path: Path, form: str
) -> None:
    table = Table(tmp_path, engine, column("a", "int32"), column("b", "int32"))
    table.insert({"id": 1, "a": 1, "b": 2})
    left_out = {"field__exclude__list": r"p\.s\.t:a"}
    table.apply(**left_out)
    name = "b" if form == "to the name of a dropped one" else "c"
    table.alter(ID, column(name, "int32"), renamed={name: "a"})
    table.insert({"id": 2, name: 3})
    with pytest.raises(TargetError, match=rf"(?i){name} now has the values of a, which a field list leaves out"):
        table.apply(**left_out)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"DROP TABLE {dialect_of(engine).format_table_name(TargetTableName(dialect_of(engine).fold_name('p_s_t')))}"
        )
    rebuild(engine, table.connector, "p.s.t", **left_out)
    _equal(table)


def test_a_column_renamed_in_its_case_alone_keeps_its_values(engine: sa.Engine, tmp_path: Path) -> None:
    if engine.dialect.name not in ("sqlite", "mysql", "mariadb"):
        pytest.skip("names in other letters are other columns, or the same ones without a rename")
    table = Table(tmp_path, engine, column("name", "int32"), column("b", "int32"))
    table.insert({"id": 1, "name": 1, "b": 2})
    table.apply()
    table.alter(ID, column("Name", "int32"), column("b", "int32"), renamed={"Name": "name"})
    table.apply()
    ((row,)) = table.found()
    assert {name.lower(): value for name, value in row.items()} == {"id": 1, "name": 1, "b": 2}


def test_a_column_renamed_by_hand_as_at_the_source_keeps_its_values(engine: sa.Engine, tmp_path: Path) -> None:
    table = Table(tmp_path, engine, column("a", "int32"), column("b", "int32"))
    table.insert({"id": 1, "a": 1, "b": 2})
    table.apply()
    dialect, upper = dialect_of(engine), engine.dialect.name in UPPER
    name, old, new = ("P_S_T", "A", "N") if upper else ("p_s_t", "a", "n")
    with engine.begin() as connection:
        full, (old, new) = dialect.format_table_name(TargetTableName(name)), map(dialect.quote_name, (old, new))
        connection.exec_driver_sql(f"ALTER TABLE {full} RENAME COLUMN {old} TO {new}")
    table.alter(ID, column("n", "int32"), column("b", "int32"), renamed={"n": "a"})
    table.insert({"id": 2, "n": 3})
    table.apply()
    _equal(table)
    # with others that have changed their names, no one knows which of them a person has renamed
    table.alter(ID, column("m", "int32"), column("n", "int32"), renamed={"m": "n", "n": "b"})
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"ALTER TABLE {full} RENAME COLUMN {new} TO {dialect.quote_name('M' if upper else 'm')}"
        )
    with pytest.raises(TargetError, match="has no column n, so other"):
        table.apply()


def test_rows_of_another_topic_keep_their_values(engine: sa.Engine, tmp_path: Path) -> None:
    """Each of two shards gets a column that the other may have brought already."""
    if engine.dialect.name == "db2":
        pytest.skip("our Db2 server does not show a table that the run has just made for another topic")
    source = MemoryDatabase(str(tmp_path))
    for shard in ("s1", "s2"):
        source.create_table(f"{shard}.t", {"id": "int64!", "a": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    shared = {"collection__name__shared": "true", "collection__name__format": "${source.table}"}

    def apply() -> None:
        connector.capture()
        sink(engine, connector, **shared).apply()

    with source.transaction() as t:
        t.insert("s1.t", {"id": 1, "a": 1})
        t.insert("s2.t", {"id": 2, "a": 2})
    apply()
    for shard in ("s1", "s2"):
        source.add_column(f"{shard}.t", "b", "int32", 5, text="5")
    with source.transaction() as t:
        t.insert("s2.t", {"id": 4, "a": 4, "b": 9})
    apply()
    assert [(row["id"], row["b"]) for row in in_order(rows(engine, "t"))] == [(1, 5), (2, 5), (4, 9)]
    source.drop_column("s1.t", "a")
    source.add_column("s1.t", "a", "int32", 7, text="7")
    with pytest.raises(TargetError, match=r"it also contains rows of p\.s2\.t"):
        apply()


def test_a_run_that_is_overtaken_between_a_new_column_and_its_values_leaves_newer_ones(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another run do all of it meanwhile, where DDL ends transactions."""
    if dialect_of(engine).DDL_IN_TRANSACTION:
        pytest.skip("nobody sees the column before its values")
    table = Table(tmp_path, engine, column("a", "int32"))
    table.insert({"id": 1, "a": 1}, {"id": 2, "a": 2})
    table.apply()
    table.alter(ID, column("a", "int32"), column("d", "int32"), added={"d": "6"})
    with table.source.transaction() as t:
        t.update("s.t", {"id": 1}, {"d": 66})
    table.connector.capture()
    overtaken = sink(engine, table.connector)
    prepare = overtaken._prepare

    def overtake(*given: Any) -> Any:
        found = prepare(*given)
        monkeypatch.undo()
        sink(engine, table.connector).apply()
        return found

    monkeypatch.setattr(overtaken, "_prepare", overtake)
    overtaken.apply()
    _equal(table)


KINDS: dict[str, tuple[str, str]] = {
    "d": ("decimal128(9, 2)", "1.50"), "s": ("string", "it's"), "t": ("timestamp[us]", "2024-02-29 10:00:00"), "x": ("date32[day]", "2024-02-29"),
    "f": ("double", "1.5"), "o": ("bool", "true"), "p": ("bool", "0"), "q": ("bool", "1"),
}  # fmt: skip
"""Name → type of a column, and the value that rows get in it, as a text."""


def test_values_of_all_types_are_the_same_in_columns_that_are_new_and_made_again(
    engine: sa.Engine, tmp_path: Path
) -> None:
    if engine.dialect.name == "db2":
        pytest.skip(
            "Derby, which our server is made of, reads rows from before so many new columns with an error of its own (XSCH5)"
        )
    kinds = {**KINDS, **{f"{name}_new": kind for name, kind in KINDS.items()}}
    table = Table(tmp_path, engine, *(column(name, type_) for name, (type_, _) in KINDS.items()))
    table.insert({"id": 1})
    table.apply()
    table.alter(
        ID, *(column(name, type_) for name, (type_, _) in kinds.items()), added={n: value for n, (_, value) in kinds.items()}
    )  # fmt: skip
    table.apply()
    engine.dispose()
    ((row,)) = table.found()
    assert row["s"] == "it's"
    assert [bool(int(row[name])) for name in "opq"] == [True, False, True]
    assert all(row[name] is not None and row[name] == row[f"{name}_new"] for name in KINDS)


def test_columns_of_the_key_that_swap_their_names_stop_the_table(engine: sa.Engine, tmp_path: Path) -> None:
    table = Table(tmp_path, engine, column("a", "int64", nullable=False))
    table.insert({"id": 1, "a": 10})
    table.apply()
    table.alter(column("a", "int64", nullable=False), ID, renamed={"a": "id", "id": "a"}, key=("a",))
    with pytest.raises(TargetError):
        table.apply()
    assert [(int(row["id"]), int(row["a"])) for row in table.found()] == [(1, 10)]


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_are_made_dropped_and_renamed_at_random_are_equal(
    engine: sa.Engine, tmp_path: Path, sampled: CaseSample, seed: int
) -> None:
    random = sampled.random(f"{engine.dialect.name} {seed}")
    names = list(NAMES[:3])
    table = Table(tmp_path, engine, *(column(name, "int32") for name in names))
    number = 0
    for _ in range(8 if sampled.all else 4):
        for _ in range(random.randint(0, 3)):
            names, added, renamed = _alter_columns(random, names)
            table.alter(ID, *(column(name, "int32") for name in names), added=added, renamed=renamed)
            if random.random() < 0.5:
                number = _write(random, table, names, number)
        number = _write(random, table, names, number)
        table.apply()
        _equal(table)


def _alter_columns(random: Random, names: list[str]) -> tuple[list[str], dict[str, str | None], dict[str, str]]:
    """Columns of the next version, each from another one of before or made."""
    kept = random.sample(names, random.randint(0, len(names)))
    now = random.sample(NAMES, random.randint(max(len(kept), 1), len(NAMES)))
    renamed = {new: old for new, old in zip(now, kept, strict=False) if new != old}
    return now, {name: random.choice([None, "3", "-4"]) for name in now[len(kept) :]}, renamed


def _write(random: Random, table: Table, names: list[str], number: int) -> int:
    with table.source.transaction() as t:
        for key in range(number, number + 2):
            t.insert("s.t", {"id": key, **{name: random.choice([None, key, 100 + key]) for name in names}})
        if number:
            t.update("s.t", {"id": random.randrange(number)}, {random.choice(names): random.randrange(50)})
    return number + 2


def test_columns_of_two_types_that_change_their_names_get_room_for_both(engine: sa.Engine, tmp_path: Path) -> None:
    if engine.dialect.name in ("sqlite", "oracle", "db2"):
        pytest.skip("it does not change such a column")
    table = Table(tmp_path, engine, column("a", "int32"), column("b", "string", "VARCHAR", 20))
    table.insert({"id": 1, "a": 1, "b": "one"})
    table.apply()
    table.alter(ID, column("a", "string", "VARCHAR", 20), column("b", "int32"), renamed={"a": "b", "b": "a"})
    table.apply()
    assert [(row["id"], row["a"], row["b"]) for row in table.found()] == [(1, "one", "1")]


def test_values_that_a_column_cannot_take_stop_the_table(engine: sa.Engine, tmp_path: Path) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("its columns take anything")
    table = Table(tmp_path, engine, column("a", "int32"), column("b", "date32[day]"))
    table.insert({"id": 1, "a": 1, "b": dt.date(2024, 2, 29)})
    table.apply()
    before = table.found()
    table.alter(ID, column("a", "date32[day]"), column("b", "int32"), renamed={"a": "b", "b": "a"})
    with pytest.raises(TargetError, match="drop the table, and run `airflow cdc rebuild"):
        table.apply()
    assert table.found() == before
    name = TargetTableName("P_S_T" if engine.dialect.name in UPPER else "p_s_t")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {dialect_of(engine).format_table_name(name)}")
    assert rebuild(engine, table.connector, "p.s.t")["problem"] == ""
    engine.dispose()  # as above
    assert [(int(row["id"]), str(row["a"])[:10], int(row["b"])) for row in table.found()] == [(1, "2024-02-29", 1)]
