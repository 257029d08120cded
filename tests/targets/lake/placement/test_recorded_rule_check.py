"""Rules at work: columns, filters, shared tables, layouts, and what is refused before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs import apply_changes
from tests.targets.lake.lake import Lake, Row

pytestmark = pytest.mark.spark
PEOPLE = {"id": "int32!", "name": "string", "age": "int32", "country": "string"}
ODD = "it's `odd` ${env:HOME}"


@pytest.fixture
def memory(memory: Lake) -> Lake:
    memory.connector.database.clock = lambda: 1_700_000_000_000_000
    return memory


def _write_people(lake: Lake, table: str = "s.people", **more: str) -> None:
    db = lake.connector.database
    db.create_table(table, {**PEOPLE, **more}, key=("id",))
    with db.transaction() as t:
        for i, (name, age, country) in enumerate(
            [("Ann", 30, "FR"), ("Bob", 17, "DE"), ("Cid", 50, "FR"), ("Dan", None, "DE")]
        ):
            t.insert(table, {"id": i, "name": name, "age": age, "country": country, **dict.fromkeys(more, "x")})


def _rules(*rules: dict[str, Any]) -> TableRules:
    return TableRules.parse([{"tables": ".*", **rule} for rule in rules])


def _changes(lake: Lake) -> None:
    with lake.connector.database.transaction() as t:
        t.update("s.people", {"id": 1}, {"age": 18})
        t.update("s.people", {"id": 0}, {"age": 3})
        t.delete("s.people", {"id": 3})
        t.insert("s.people", {"id": 7, "name": "Eve", "age": 40, "country": "IT"})
        t.update("s.people", {"id": 2}, {"id": 8})


def _tuples_of(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.every_kind
def test_columns_are_dropped_renamed_cast_and_made(lake: Lake) -> None:
    _write_people(lake, **{ODD: "string"})
    columns = {
        "drop": [ODD], "rename": {"Name": ODD, "id": "key"}, "cast": {"id": "bigint", "age": "decimal(5,1)"},
        "computed": {"adult": "age >= 18", "whole": "concat(name, ' ', country)"}, "constant": {"origin": "{connector}/{table}"},
        "metadata": ["seq", "op", "table"],
    }  # fmt: skip
    rules = _rules({"columns": columns})
    lake.connector.capture()
    lake.apply(tables=rules)
    _changes(lake)
    lake.connector.database.add_column("s.people", "extra", "int32", 5)
    lake.connector.capture()
    lake.apply(tables=rules)
    types = lake.target("s.people").read_column_types()
    assert types == {
        "key": "bigint", ODD: "string", "age": "decimal(5,1)", "country": "string", "adult": "boolean", "whole": "string", "origin": "string",
        "_seq": "bigint", "_op": "string", "_table": "string", "extra": "int",
    }  # fmt: skip
    rows = {row["key"]: row for row in lake.rows("s.people")}
    assert sorted(rows) == [0, 1, 7, 8]
    assert _tuples_of(list(rows.values()), "origin", "_table") == [("test/people", "people")] * 4
    assert (rows[7]["adult"], rows[0]["adult"], rows[7]["whole"]) == (True, False, "Eve IT")
    assert (rows[7]["_op"], rows[1]["_op"], rows[8]["_op"], rows[8][ODD]) == ("c", "u", "c", "Cid")
    assert {row["extra"] for row in rows.values()} == {5}
    lake.connector.database.rename_columns("s.people", extra="more")
    with lake.connector.database.transaction() as t:
        t.update("s.people", {"id": 0}, {"more": 6})
    lake.connector.capture()
    lake.apply(tables=rules)
    assert {row["key"]: row["more"] for row in lake.rows("s.people")} == {0: 6, 1: 5, 7: 5, 8: 5}


@pytest.mark.sampled(3)
@pytest.mark.every_kind
@pytest.mark.parametrize("mode", ["log", "soft_delete", "history"])
def test_each_mode_keeps_what_it_promises_through_changes_and_a_truncate(lake: Lake, mode: str) -> None:
    rules = _rules({"mode": mode, "partition_by": ["_is_current" if mode == "history" else "country"]})
    lake.connector.database.clock = lambda: 1_700_000_000_000_000
    _write_people(lake)
    lake.connector.capture()
    lake.apply(tables=rules)
    _changes(lake)
    lake.connector.capture()
    lake.apply(tables=rules)
    rows = lake.rows("s.people")
    if mode == "log":
        assert sorted(r["_op"] for r in rows) == sorted("rrrr" + "uudc" + "dc")
    elif mode == "soft_delete":
        assert {r["id"]: r["_is_deleted"] for r in rows} == {0: False, 1: False, 2: True, 3: True, 7: False, 8: False}
    else:
        assert sorted(r["id"] for r in rows if r["_is_current"]) == [0, 1, 7, 8]
        assert sorted((r["id"], r["age"]) for r in rows if not r["_is_current"]) == [
            (0, 30),
            (1, 17),
            (2, 50),
            (3, None),
        ]
    lake.connector.database.truncate_table("s.people")
    lake.connector.capture()
    lake.apply(tables=rules)
    after = lake.rows("s.people")
    if mode == "log":
        assert next(r for r in after if r["_op"] == "t")["id"] is None
        assert len(after) == len(rows) + 1
    else:
        assert len(after) == len(rows)
        assert not [r for r in after if (r["_is_current"] if mode == "history" else not r["_is_deleted"])]
        ends = {r["_valid_to"] if mode == "history" else r["_deleted_at"] for r in after}
        assert ends == {datetime.fromtimestamp(1_700_000_000, UTC)}


@pytest.mark.parametrize("mode", ["current", "log", "soft_delete", "history"])
def test_rows_that_do_not_pass_the_filter_are_not_in_the_table(memory: Lake, mode: str) -> None:
    rules = _rules({"mode": mode, "filter": "age >= 18"})
    _write_people(memory)
    memory.connector.capture()
    memory.apply(tables=rules)
    assert _tuples_of(memory.rows("s.people"), "id") == [(0,), (2,)]
    _changes(memory)
    memory.connector.capture()
    memory.apply(tables=rules)
    rows = memory.rows("s.people")
    assert all(row["age"] >= 18 for row in rows)
    if mode == "current":
        assert _tuples_of(rows, "id", "age") == [(1, 18), (7, 40), (8, 50)]
    if mode == "soft_delete":
        assert _tuples_of(rows, "id", "age", "_is_deleted") == [
            (0, 30, True),
            (1, 18, False),
            (2, 50, True),
            (7, 40, False),
            (8, 50, False),
        ]
    if mode == "history":
        assert _tuples_of(rows, "id", "_is_current") == [(0, False), (1, True), (2, False), (7, True), (8, True)]


def test_a_table_without_a_key_is_filtered_and_shaped_too(memory: Lake) -> None:
    db = memory.connector.database
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    rules = _rules({"filter": "a > 1", "columns": {"rename": {"a": "x"}, "computed": {"y": "a + 1"}}})
    with db.transaction() as t:
        for a in (1, 2, 2, 3):
            t.insert("s.bag", {"a": a, "b": "b"})
    memory.connector.capture()
    memory.apply(tables=rules)
    with db.transaction() as t:
        t.update("s.bag", {"a": 1}, {"a": 5})
        t.update("s.bag", {"a": 3}, {"a": 0})
        t.delete("s.bag", {"a": 0})
    memory.connector.capture()
    memory.apply(tables=rules)
    assert _tuples_of(memory.rows("s.bag"), "x", "y", "b") == [(2, 3, "b"), (2, 3, "b"), (5, 6, "b")]


WRONG = [
    ({"filter": "agee > 1"}, "filter names column 'agee', which the table does not have; did you mean 'age'?"),
    ({"filter": "age"}, "filter has the type int, but must be a condition"),
    ({"filter": "age >"}, "filter: 'age >' cannot be used"),
    ({"filter": "rand() > 0.5"}, "has a different result each time"),
    ({"filter": "current_timestamp() > '2024-01-01'"}, "has a different result each time"),
    ({"filter": "sum(age) > 1"}, "filter: 'sum(age) > 1'"),
    ({"filter": "id IN (SELECT 1)"}, "filter: 'id IN (SELECT 1)' has a subquery"),
    ({"filter": "EXISTS (SELECT 1)"}, "has a subquery"),
    ({"columns": {"computed": {"x": "to_json(struct(*))"}}}, "columns.computed.x: 'to_json(struct(*))' has *"),
    ({"columns": {"computed": {"x": "concat_ws(',', * EXCEPT (age))"}}}, "has *"),
    ({"filter": "to_date(name) > DATE 'yesterday'"}, "has a different result each time"),
    ({"filter": "to_date(name) > 'Today'"}, "has a different result each time"),
    ({"filter": "cast(' now ' AS timestamp) > to_timestamp(name)"}, "has a different result each time"),
    ({"columns": {"computed": {"x": "1 + (SELECT max(id) FROM range(9))"}}}, "columns.computed.x: '1 + (SELECT max(id) FROM range(9))' has a subquery"),
    ({"columns": {"computed": {"x": "user()"}}}, "has a different result each time"),
    ({"columns": {"computed": {"x": "concat(name, session_user())"}}}, "has a different result each time"),
    ({"columns": {"computed": {"x": "explode(array(1, 2))"}}}, "columns.computed.x"),
    ({"columns": {"computed": {"x": "nme"}}}, "did you mean 'name'?"),
    ({"columns": {"computed": {"x": "NULL"}}}, "columns.computed.x has the type void, which tables do not support: cast it"),
    ({"columns": {"computed": {"x": "array(interval '1' day)"}}}, "has the type interval day (array<interval day>), which tables do not support"),
    ({"columns": {"computed": {"x": "name COLLATE UTF8_LCASE"}}}, "has the type string collate UTF8_LCASE, which tables do not support"),
    ({"columns": {"computed": {"x": "named_struct('a b', 1)"}}}, "with unusual field names"),
    ({"columns": {"drop": ["contry"]}}, "columns.drop names column 'contry', which the table does not have; did you mean 'country'?"),
    ({"columns": {"drop": ["id"]}}, "column id is part of the key, so it cannot be left out in mode current"),
    ({"columns": {"cast": {"id": "tinyint"}}}, "different keys could become equal"),
    ({"columns": {"cast": {"age": "strnig"}}}, "columns.cast.age"),
    ({"columns": {"rename": {"name": "age"}}}, "two columns called age"),
    ({"columns": {"constant": {"NAME": "x"}}}, "two columns called"),
    ({"partition_by": "contry"}, "partition_by names column 'contry', which the table will not have; did you mean 'country'?"),
    ({"tables": r"s\.bag", "mode": "history"}, "mode history needs a key"),
    ({"tables": r"s\.bag", "shard": {"t": "{table}"}}, "a shared table needs a key"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_a_rule_that_does_not_fit_is_refused_before_anything_is_written(
    memory: Lake, rule: dict[str, Any], text: str
) -> None:
    _write_people(memory)
    memory.connector.database.create_table("s.bag", {"a": "int32"})
    memory.connector.capture()
    with pytest.raises(ConfigError) as error:
        memory.apply(tables=TableRules.parse([{"tables": r"s\.people", **rule}]))
    assert text in str(error.value)
    assert not STORED


def test_a_rule_that_is_changed_later_is_refused_and_what_does_not_matter_is_not(memory: Lake) -> None:
    _write_people(memory)
    memory.connector.capture()
    memory.apply(tables=_rules({"mode": "history", "columns": {"drop": ["name", "country"]}}))
    before = memory.rows("s.people")
    with memory.connector.database.transaction() as t:
        t.update("s.people", {"id": 0}, {"age": 31})
    memory.connector.capture()
    for other in ({}, {"mode": "history"}, {"mode": "soft_delete", "columns": {"drop": ["name", "country"]}}):
        with pytest.raises(TargetError, match="built by another rule"):
            memory.apply(tables=_rules(other))
    with pytest.raises(TargetError, match='mode: "history" → nothing'):
        memory.apply()
    assert memory.rows("s.people") == before
    memory.connector.database.drop_column("s.people", "name")
    memory.connector.capture()
    memory.apply(tables=_rules({"mode": "history", "columns": {"drop": ["name", "country"]}}))
    assert len(memory.rows("s.people")) == 5
    memory.apply(tables=_rules({"mode": "history", "columns": {"drop": ["country"]}}))


def test_a_column_that_the_source_has_dropped_before_its_table_is_made_may_be_named(memory: Lake) -> None:
    _write_people(memory, password="string")
    memory.connector.capture()
    memory.connector.database.drop_column("s.people", "password")
    memory.connector.capture()
    rules = _rules({"columns": {"drop": ["password"], "cast": {"age": "bigint"}}})
    for _ in range(2):
        memory.apply(tables=rules)
        assert list(memory.rows("s.people")[0]) == ["id", "name", "age", "country"]
        assert len(memory.rows("s.people")) == 4
        STORED.clear()  # moved away, as errors say
    with pytest.raises(ConfigError, match="names column 'pasword', which the table does not have"):
        memory.apply(tables=_rules({"columns": {"drop": ["pasword"]}}))


def test_a_rule_may_put_tables_elsewhere(memory: Lake) -> None:
    _write_people(memory)
    _write_people(memory, "s_eu.people")
    memory.connector.capture()
    place = f"{memory.folder}/elsewhere/{{region}}-{{table}}"
    memory.apply()
    rules = TableRules.parse([{"tables": r"s_(?P<region>\w+)\..*", "location": place}])
    memory.apply(tables=rules)
    assert sorted(STORED) == sorted(
        [memory.path("s.people"), memory.path("s_eu.people"), f"{memory.folder}/elsewhere/eu-people"]
    )
    assert memory.apply(tables=rules).tables == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["current", "soft_delete", "history"])
def test_shards_share_a_table_with_the_shard_in_the_key(lake: Lake, mode: str) -> None:
    db, place = lake.connector.database, f"{lake.folder}/{lake.name}/all/people"
    rules = TableRules.parse(
        [{"tables": r"s_(?P<r>\w+)\.people", "location": place, "mode": mode, "shard": {"region": "{r}"}}]
    )
    for shard in ("eu", "us"):
        _write_people(lake, f"s_{shard}.people")
    lake.connector.capture()
    lake.apply(tables=rules)
    _write_people(lake, "s_asia.people", more="string")
    with db.transaction() as t:
        t.update("s_eu.people", {"id": 0}, {"age": 99})
        t.delete("s_us.people", {"id": 0})
    db.add_column("s_us.people", "more", "string", "us")
    lake.connector.capture()
    lake.apply(tables=rules)
    _same_shards(lake, ("eu", "us", "asia"), mode)
    db.truncate_table("s_eu.people")
    db.rename_columns("s_us.people", more="other")
    with db.transaction() as t:
        t.insert("s_eu.people", {"id": 1, "name": "new"})
        t.update("s_us.people", {"id": 2}, {"other": "changed"})
        t.update("s_asia.people", {"id": 2}, {"more": "still"})
    lake.connector.capture()
    lake.apply(tables=rules)
    _same_shards(lake, ("eu", "us", "asia"), mode)
    at = lake.version("all.people")
    assert lake.apply(tables=rules).tables == []
    assert lake.version("all.people") == at


def _same_shards(lake: Lake, shards: tuple[str, ...], mode: str) -> None:
    rows = [r for r in lake.rows("all.people") if r.get("_is_current", True) and not r.get("_is_deleted", False)]
    for shard in shards:
        expected = lake.connector.database.copy_rows(f"s_{shard}.people")
        names = list(expected[0])
        found = [{name: row[name] for name in names} for row in rows if row["region"] == shard]
        assert sorted(found, key=repr) == sorted(expected, key=repr), (shard, mode)
    assert {row["region"] for row in rows} == set(shards)


def test_two_tables_at_one_place_without_a_shard_are_refused(memory: Lake) -> None:
    _write_people(memory)
    _write_people(memory, "s_eu.people")
    memory.connector.capture()
    with pytest.raises(ConfigError, match="would both be at"):
        memory.apply(tables=_rules({"location": f"{memory.folder}/one/people"}))
    assert not STORED


def test_tables_that_are_indistinguishable_in_a_shared_one_are_refused(memory: Lake) -> None:
    for table in ("s_eu.people", "s_eu.staff"):
        _write_people(memory, table)
    memory.connector.capture()
    rule = {"location": f"{memory.folder}/one/people", "tables": r"s_(?P<r>\w+)\..*"}
    for shard in ("{r}", "all"):
        with pytest.raises(ConfigError, match=r"The rows of p\.s_eu\.people and p\.s_eu\.staff would both have"):
            memory.apply(tables=_rules({**rule, "shard": {"region": shard}}))
    assert not STORED
    rules = _rules({**rule, "shard": {"region": "{r}.{table}"}})
    memory.apply(tables=rules)
    db = memory.connector.database
    db.create_table("s_us.people", PEOPLE, key=("id",))
    with db.transaction() as t:
        t.insert("s_us.people", {"id": 1})
    memory.connector.capture()
    late = _rules(
        {**rule, "tables": r"s_us\..*", "shard": {"region": "eu.staff"}}, {**rule, "shard": {"region": "{r}.{table}"}}
    )
    with pytest.raises(
        ConfigError,
        match=r"The rows of p\.s_eu\.staff and p\.s_us\.people would both have 'eu\.staff' in column region",
    ):
        memory.apply(tables=late)
    memory.apply(tables=rules)
    assert len(next(iter(STORED.values())).rows) == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("shared", [True, False])
def test_a_pattern_that_gives_rows_other_texts_than_they_have_is_refused(memory: Lake, shared: bool) -> None:
    _write_people(memory, "s_eu.people")
    memory.connector.capture()
    texts = {"shard": {"region": "{r}"}} if shared else {"columns": {"constant": {"region": "{r}"}}}
    made, other = (TableRules.parse([{"tables": rf"s{p}\.people", **texts}]) for p in (r"_(?P<r>\w+)", r"(?P<r>_\w+)"))
    memory.apply(tables=made)
    before = memory.rows("s_eu.people")
    for _ in range(2):  # the second run has the report of the first one
        with memory.connector.database.transaction() as t:
            t.insert("s_eu.people", {"id": 20 + _})
        memory.connector.capture()
        with pytest.raises(TargetError, match=r'"eu".* → .*"_eu"'):
            memory.apply(tables=other)
        assert memory.rows("s_eu.people") == before
    memory.apply(tables=made)
    assert {row["region"] for row in memory.rows("s_eu.people")} == {"eu"}
    assert len(memory.rows("s_eu.people")) == len(before) + 2


def test_a_rule_of_a_table_without_new_events_is_not_called_useless(
    memory: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    _write_people(memory)
    _write_people(memory, "s.other")
    memory.connector.capture()
    rules = TableRules.parse([{"tables": r"s\.people", "mode": "history"}, {"tables": r"s\.none", "mode": "log"}])
    memory.apply(tables=rules)
    assert "uses the rule for s\\.none" in caplog.text
    assert "uses the rule for s\\.people" not in caplog.text
    caplog.clear()
    with memory.connector.database.transaction() as t:
        t.insert("s.other", {"id": 20})
    memory.connector.capture()
    memory.apply(tables=rules)
    assert "uses the rule for" not in caplog.text


@pytest.mark.every_kind
def test_a_table_is_laid_out_when_it_is_made(lake: Lake) -> None:
    _write_people(lake)
    _write_people(lake, "s.other")
    rules = TableRules.parse(
        [{"tables": r"s\.people", "partition_by": "country"}, {"tables": ".*", "cluster_by": "age"}]
    )
    lake.connector.capture()
    lake.apply(tables=rules)
    assert {p.name for p in Path(lake.path("s.people")).rglob("country=*")} == {"country=FR", "country=DE"}
    _changes(lake)
    lake.connector.capture()
    lake.apply(tables=rules)
    lake.check()
    assert (Path(lake.path("s.people")) / "country=IT").exists() or list(
        Path(lake.path("s.people")).rglob("country=IT")
    )


def test_values_that_events_leave_out_and_a_filter_needs_are_an_error(memory: Lake) -> None:
    db = memory.connector.database
    db.create_table("s.docs", {"id": "int32!", "n": "int32", "doc": "string"}, key=("id",), sparse=("doc",))
    with db.transaction() as t:
        t.insert("s.docs", {"id": 1, "n": 1, "doc": "long"})
    memory.connector.capture()
    rules = _rules({"filter": "length(doc) > 2"})
    memory.apply(tables=rules)
    with db.transaction() as t:
        t.update("s.docs", {"id": 1}, {"n": 2})
    memory.connector.capture()
    with pytest.raises(TargetError, match="filter needs column doc, but events do not contain it"):
        memory.apply(tables=rules)


@pytest.mark.only_kind("delta", "iceberg")
def test_a_layout_that_the_kind_of_table_does_not_have_is_refused_before_anything_is_written(lake: Lake) -> None:
    _write_people(lake)
    _write_people(lake, "s.other")
    lake.connector.capture()
    wrong = "days(age)" if lake.kind == "delta" else "weeks(age)"
    with pytest.raises(ConfigError, match="partition_by: "):
        lake.apply(tables=TableRules.parse([{"tables": r"s\.people", "partition_by": [wrong]}]))
    assert not (lake.folder / lake.name).exists()


@pytest.mark.only_kind("iceberg")
def test_a_type_that_the_kind_of_table_does_not_have_is_refused_before_anything_is_written(lake: Lake) -> None:
    _write_people(lake)
    _write_people(lake, "s.other")
    lake.connector.capture()
    rule = {"tables": r"s\.people", "columns": {"computed": {"x": "map('age', age)"}}}
    with pytest.raises(ConfigError, match=r"Column x would have the type map<string,int>(.|\n)*to_json"):
        lake.apply(tables=TableRules.parse([rule]))
    assert not (lake.folder / lake.name).exists()


def test_rules_that_cannot_be_used_end_the_job_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--changelog", f"{tmp_path}/log", "--connector", "c", "--location", f"{tmp_path}/lake/{{table}}"]
    assert apply_changes.main([*given, "--tables", '[{"tables": "a", "mode": "histroy"}]']) == 2
    assert "did you mean 'history'?" in capsys.readouterr().err
    assert apply_changes.main([*given, "--tables", f"{tmp_path}/none.json"]) == 2
    assert "cannot be read" in capsys.readouterr().err


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "filter": ({"filter": "age > 1"}, {"filter": "age > 20"}),
    "no filter": ({"filter": "age > 1"}, {}),
    "mode": ({}, {"mode": "history"}),
    "drop": ({}, {"columns": {"drop": ["country"]}}),
    "keep": ({"columns": {"keep": ["id", "age"]}}, {"columns": {"keep": ["id", "name"]}}),
    "rename": ({"columns": {"rename": {"age": "years"}}}, {"columns": {"rename": {"age": "Years old"}}}),
    "cast": ({}, {"columns": {"cast": {"age": "bigint"}}}),
    "constant": ({"columns": {"constant": {"c": "a"}}}, {"columns": {"constant": {"c": "b"}}}),
    "computed": ({"columns": {"computed": {"c": "age"}}}, {"columns": {"computed": {"c": "age + 1"}}}),
    "metadata": ({}, {"columns": {"metadata": ["op"]}}),
    "partition_by": ({}, {"partition_by": "country"}),
    "cluster_by": ({"cluster_by": "age"}, {"cluster_by": "country"}),
    "shard": ({}, {"shard": {"s": "{table}"}}),
    "route": ({}, {"route": {"when": "age > 1", "location": "HERE"}, "otherwise": "drop"}),
    "type_changes": ({"type_changes": "stop"}, {"type_changes": "new_column"}),
    "dropped_columns": ({"dropped_columns": "drop"}, {"dropped_columns": "keep"}),
}
"""What is changed in place → the rule by which the table is made, and the one after it."""


@pytest.mark.parametrize("what", CHANGED)
def test_a_rule_that_is_changed_is_noticed_without_new_events(memory: Lake, what: str) -> None:
    made, now = CHANGED[what]
    if "route" in now:
        now = {**now, "route": {**now["route"], "location": memory.path("s.people")}}
    _write_people(memory)
    _write_people(memory, "s.other")
    only = {"tables": r"s\.people"}
    memory.tables = TableRules.parse([{**only, **made}])
    memory.follow()
    with memory.connector.database.transaction() as t:
        t.insert("s.other", {"id": 9})
    memory.follow()
    before, later = memory.rows("s.people"), TableRules.parse([{**only, **now}])
    for turn in range(3):  # the second run has the report of the first one
        if what in ("type_changes", "dropped_columns"):
            memory.apply(tables=later)
            continue
        with pytest.raises(
            TargetError, match=r"built by another rule|that has all of its rows|only to its own tables"
        ) as error:
            memory.apply(tables=later)
        assert "move the table away" in str(error.value)
        if turn == 1:
            with memory.connector.database.transaction() as t:
                t.insert("s.other", {"id": 10})
            memory.connector.capture()
    assert memory.rows("s.people") == before
    assert (
        memory.target("s.other").read_marker(memory.owner("p.s.other").application_name)
        == memory.connector.changelog.list_batches("test")[-1]
    )
    memory.apply()
    assert memory.apply().tables == []
