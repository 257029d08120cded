"""``type_changes: new_column``: a column whose type does not hold its old values continues in a new column of the table; the old one stays as it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.targets.lake.types.spark_types import find_common_type, spark_type
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Database, Lake, Row, new_lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string"}
ODD = "it's `a.b` ${env:CDC_TEST_SECRET} é"
MAKE: dict[str, Callable[[int], Any]] = {
    "int32": lambda i: i,
    "int64": lambda i: i * 2**33,
    "string": lambda i: f"t{i}",
    "double": lambda i: i / 4,
    "decimal128(9, 2)": lambda i: Decimal(i).scaleb(-2),
}


def _rules(mode: str = "current", **more: Any) -> TableRules:
    return TableRules.parse([{"tables": ".*", "mode": mode, "type_changes": "new_column", **more}])


# -- random work, and what the table has to be after it ---------------------------------------------------------------


class Model:
    """A model of the table that the document asks for, statement by statement, whatever batches they come in.

    :param mode: of the table
    """

    def __init__(self, mode: str, columns: dict[str, str]) -> None:
        self.mode, self.types = mode, {name: spark_type(t.rstrip("!")) for name, t in columns.items()}
        self.placed = {name: name for name in columns}
        self.rows: list[Row] = []
        self.vague: set[str] = set()
        """Columns of which no one promises anything, as the source has dropped them."""
        self.behind: set[str] = set()

    def event(self, op: str, row: Row) -> None:
        """A row is inserted, updated or deleted; ``row`` is the image after it, of a delete that before it."""
        values = {self.placed[name]: value for name, value in row.items()}
        mine = [r for r in self.rows if r["id"] == row["id"] and not r.get("ended")]
        if self.mode == "log" or op == "c" or (self.mode == "history" and op == "u"):
            self.rows.append(dict.fromkeys(self.types) | values)
        elif self.mode in ("current", "soft_delete"):
            mine[0].update(values)
        if (self.mode == "history" and op in "ud") or (op == "d" and self.mode == "soft_delete"):
            mine[0]["ended"] = True
        elif op == "d" and self.mode == "current":
            self.rows.remove(mine[0])

    def truncate(self) -> None:
        if self.mode == "log":
            self.rows.append(dict.fromkeys(self.types))
        elif self.mode == "current":
            self.rows.clear()
        else:
            for row in self.rows:
                row["ended"] = True

    def free(self, name: str, type_: str) -> str:
        first = found = f"{name}__v_{type_.split('(')[0]}"
        number = 1
        while found in {*self.types, *self.placed.values(), *self.placed}:
            number += 1
            found = f"{first}_{number}"
        return found

    def change(self, name: str, type_: str) -> None:
        old, expected = self.placed[name], spark_type(type_)
        if wider := find_common_type(self.types[old], expected):
            self.types[old] = wider
            return
        self.behind.add(self.placed[name])
        self.placed[name] = new = self.free(name, expected)
        self._new(new, expected, None)

    def add(self, name: str, type_: str, value: Any) -> None:
        expected, there = spark_type(type_), self.types.get(name)
        live = name in self.placed.values()
        if there is None or (not live and name not in self.behind and find_common_type(there, expected)):
            self.placed[name] = name
            if there is not None and self.mode == "log":
                self.vague.add(name)
            else:
                self.vague.discard(name)
            self._new(name, find_common_type(there, expected) or expected if there else expected, value)
        else:
            self.placed[name] = name  # so that the name itself counts as taken
            self.placed[name] = new = self.free(name, expected)
            self._new(new, expected, value)

    def rename(self, old: str, new: str) -> None:
        was = self.placed.pop(old)
        self.placed[new] = now = new if new not in self.types else self._also_free(new, was)
        self.types = {now if name == was else name: type_ for name, type_ in self.types.items()}
        for row in self.rows:
            if was in row:
                row[now] = row.pop(was)
        self.vague = {now if name == was else name for name in self.vague}

    def drop(self, name: str) -> None:
        self.vague.add(self.placed.pop(name))

    def _also_free(self, new: str, was: str) -> str:
        self.placed[new] = was
        return self.free(new, self.types[was])

    def _new(self, name: str, type_: str, value: Any) -> None:
        self.types[name] = type_
        for row in self.rows:
            row[name] = value


class ModelledTable:
    """A source table, random work on it, and models that see all of it."""

    def __init__(self, database: Database, seed: int, *models: Model, names: tuple[str, ...] = ("a", "b")) -> None:
        self.db, self.random, self.models, self.names = database, random.Random(seed), models, names
        self.types = {"n": "int32", "note": "string"}
        self.next = 0
        self.db.create_table("s.t", COLUMNS, key=("id",))
        self.insert(4)

    def insert(self, number: int) -> None:
        with self.db.transaction() as t:
            for _ in range(number):
                self.next += 1  # keys never come back: what a new row has of an old one is another test's
                row = {"id": self.next, **{c: self._value(type_) for c, type_ in self.types.items()}}
                t.insert("s.t", row)
                self._event("c", row)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            there = self.db.copy_rows("s.t")
            what = self.random.random()
            if what < 0.45:
                self._ddl()
            elif what < 0.48:
                self.db.truncate_table("s.t")
                for model in self.models:
                    model.truncate()
            elif what < 0.6 or not there:
                self.insert(1)
            elif what < 0.7:
                row = self.random.choice(there)
                with self.db.transaction() as t:
                    t.delete("s.t", {"id": row["id"]})
                self._event("d", row)
            else:
                self._update(self.random.choice(there))

    def _update(self, row: Row) -> None:
        name = self.random.choice([*self.types, "id"])
        if name == "id":
            return
        values = {name: self._value(self.types[name])}
        with self.db.transaction() as t:
            t.update("s.t", {"id": row["id"]}, values)
        self._event("u", {**row, **values})

    def _ddl(self) -> None:
        name, what = self.random.choice(list(self.types)), self.random.random()
        unused = [n for n in (*self.names, "n", "note", "n__v_string") if n not in self.types]
        if what < 0.6:
            # with less room, the source changes values, as someone else has to show
            has = spark_type(self.types[name])
            to = self.random.choice(
                [t for t in MAKE if t != self.types[name] and find_common_type(has, spark_type(t)) != has]
            )
            self.types[name] = to
            self.db.change_column("s.t", name, to, lambda v: MAKE[to](len(str(v))))
            self._tell("change", name, to)
        elif what < 0.75 and unused:
            new = self.random.choice(unused)
            self.types = {new if c == name else c: t for c, t in self.types.items()}
            self.db.rename_column("s.t", name, new)
            self._tell("rename", name, new)
        elif what < 0.85 and len(self.types) > 1:
            del self.types[name]
            self.db.drop_column("s.t", name)
            self._tell("drop", name)
        elif unused:
            new, type_ = self.random.choice(unused), self.random.choice(["int32", "string"])
            self.types[new] = type_
            self.db.add_column("s.t", new, type_)
            self._tell("add", new, type_, None)

    def _value(self, type_: str) -> Any:
        return None if self.random.random() < 0.1 else MAKE[type_](self.random.randrange(1000))

    def _event(self, op: str, row: Row) -> None:
        for model in self.models:
            model.event(op, row)

    def _tell(self, what: str, *given: Any) -> None:
        for model in self.models:
            getattr(model, what)(*given)


def _shown_columns(rows: list[Row], columns: list[str]) -> list[Row]:
    return sorted(({c: row[c] for c in columns} for row in rows), key=repr)


def _as_the_model(lake: Lake, model: Model) -> None:
    assert set(lake.target("s.t").read_column_types()) >= set(model.types) - model.vague, lake.target(
        "s.t"
    ).read_variants()
    columns = sorted(set(model.types) - model.vague)
    live = [r for r in model.rows if not (model.mode == "current" and r.get("ended"))]
    assert _shown_columns(lake.rows("s.t"), columns) == _shown_columns(live, columns), (
        lake.target("s.t").read_variants(),
        columns,
    )
    types = lake.target("s.t").read_column_types()
    assert {c: types[c] for c in columns} == {c: model.types[c] for c in columns}


@pytest.fixture
def memory(spark: SparkSession, tmp_path: Path) -> Callable[..., Lake]:
    STORED.clear()
    return lambda **properties: new_lake(spark, tmp_path, "memory", **properties)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["current", "log", "history", "soft_delete"])
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 26))])
def test_old_columns_keep_their_values_and_new_ones_have_what_has_changed_since(
    memory: Callable[..., Lake], mode: str, seed: int
) -> None:
    lake, model = memory(schema_change_rewrite_mode="ignore"), Model(mode, COLUMNS)
    lake.tables = _rules(mode)
    world = ModelledTable(lake.connector.database, seed, model)
    # what was before the snapshot, no one knows: it reads rows with the present columns
    lake.follow()

    for _ in range(5):
        world.go(world.random.randint(1, 8))
        lake.connector.capture()
        if world.random.random() < 0.3:
            continue
        lake.apply()
        _as_the_model(lake, model)
    lake.apply()
    _as_the_model(lake, model)


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("mode", ["current", pytest.param("history", marks=pytest.mark.long)])
def test_tables_of_every_kind_become_what_those_in_memory_are(
    spark: SparkSession, tmp_path: Path, kind: str, mode: str
) -> None:
    STORED.clear()
    lake = new_lake(spark, tmp_path, kind)  # tables are read again here
    real, reference = (
        Lake(spark, tmp_path, lake.connector, f"{mode}_{k}", k, tables=_rules(mode)) for k in (kind, "memory")
    )
    model = Model("current", COLUMNS)
    world = ModelledTable(lake.connector.database, 8, model, names=("a", ODD))
    for _ in range(3):
        lake.connector.capture()
        real.apply()
        reference.apply()
        assert real.target("s.t").read_column_types() == reference.target("s.t").read_column_types()
        names = list(real.target("s.t").read_column_types())
        assert real.rows("s.t", *names) == reference.rows("s.t", *names)
        world.go(10)
    if mode != "current":
        return
    lake.connector.capture()
    real.apply()
    assert set(real.target("s.t").read_column_types()) >= set(model.types) - model.vague
    placed = model.placed
    live = [{c: row[there] for c, there in placed.items()} for row in real.rows("s.t")]
    assert _shown_columns(live, list(placed)) == _shown_columns(lake.connector.database.copy_rows("s.t"), list(placed))


# -- case by case -----------------------------------------------------------------------------------------------------


def _lake(lake: Lake, key: tuple[str, ...] = ("id",), **rule: Any) -> Lake:
    """A table of three rows."""
    lake.tables = _rules(**rule)
    lake.connector.database.create_table("s.t", COLUMNS, key=key)
    with lake.connector.database.transaction() as t:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": 10 * i, "note": f"n{i}"})
    lake.follow()
    return lake


def _change(lake: Lake, i: int, **values: Any) -> None:
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": i}, values)


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_table_that_is_read_again_has_both_columns_and_verify_compares_the_new_one(lake: Lake) -> None:
    lake = _lake(lake)
    db = lake.connector.database
    _change(lake, 1, n=11)
    db.change_column("s.t", "n", "string", lambda v: f"{v}!")
    with db.transaction() as t:
        t.delete("s.t", {"id": 2})
        t.insert("s.t", {"id": 3, "n": "new", "note": "x"})
    lake.follow()
    assert [(r["id"], r["n"], r["n__v_string"]) for r in lake.rows("s.t", "id", "n", "n__v_string")] == [
        (0, 0, "0!"),
        (1, 11, "11!"),
        (3, None, "new"),
    ]
    reference = memory_connector(db, lake.folder / "reference", topic_prefix="p", snapshot_mode="initial_only")
    reference.capture()

    def verify_tables() -> Any:
        return VerifyTables(
            lake.spark, reference.changelog, reference.name, location=lake.location, target=lake.kind
        ).run()

    found = verify_tables()
    assert found.is_equal, found.text()
    assert "only in the table: n" in found.format_text()
    _change(lake, 1, n="other")
    lake.follow()
    (one,) = verify_tables().tables
    assert (one.different, one.differing) == (1, {"n__v_string": 1})


def test_the_column_goes_on_by_its_own_name_when_it_is_renamed(memory: Callable[..., Lake]) -> None:
    lake = _lake(memory(schema_change_rewrite_mode="ignore"))
    db = lake.connector.database
    db.change_column("s.t", "n", "string", str)
    _change(lake, 1, n="eleven")
    lake.follow()
    db.rename_column("s.t", "n", "total")
    db.add_column("s.t", "n", "int32", 5)
    lake.follow()
    rows = lake.rows("s.t", "id", "n", "total", "n__v_int")
    assert rows == [
        {"id": 0, "n": 0, "total": None, "n__v_int": 5},
        {"id": 1, "n": 10, "total": "eleven", "n__v_int": 5},
        {"id": 2, "n": 20, "total": None, "n__v_int": 5},
    ]


def test_names_that_the_rule_gives_are_kept_and_those_it_makes_are_not_taken(memory: Callable[..., Lake]) -> None:
    columns = {
        "rename": {"n": "amount"},
        "constant": {"Amount__v_string": "x"},
        "computed": {"twice": "length(note) * 2"},
    }
    lake = _lake(memory(schema_change_rewrite_mode="ignore"), columns=columns, filter="id < 2")
    lake.connector.database.change_column("s.t", "n", "string", str)
    _change(lake, 1, n="eleven")
    lake.follow()
    assert lake.rows("s.t") == [
        {"id": 0, "amount": 0, "note": "n0", "Amount__v_string": "x", "twice": 4, "amount__v_string_2": None},
        {"id": 1, "amount": 10, "note": "n1", "Amount__v_string": "x", "twice": 4, "amount__v_string_2": "eleven"},
    ]


def test_a_column_that_has_gone_on_stays_where_it_is_whatever_the_rule_says_later(memory: Callable[..., Lake]) -> None:
    lake = _lake(memory(schema_change_rewrite_mode="ignore"))
    lake.connector.database.change_column("s.t", "n", "string", str)
    lake.follow()
    lake.tables = TableRules.parse([{"tables": ".*"}])
    _change(lake, 1, n="eleven")
    lake.follow()
    assert [(r["n"], r["n__v_string"]) for r in lake.rows("s.t")] == [(0, None), (10, "eleven"), (20, None)]
    lake.connector.database.change_column("s.t", "n", "binary", str.encode)
    lake.follow()
    assert dict(lake.target("s.t").read_column_types())["n__v_string"] == "binary"


def test_a_kill_between_any_two_commits_changes_nothing_in_the_end(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    class Killed(Exception):
        pass

    lake = _lake(new_lake(spark, tmp_path, kind, schema_change_rewrite_mode="ignore"))
    db, left = lake.connector.database, [0]
    db.rename_column("s.t", "note", "memo")
    db.change_column("s.t", "n", "string", str)
    _change(lake, 1, n="eleven")
    db.rename_column("s.t", "memo", ODD)
    lake.connector.capture()

    def hook(location: str, name: str, write: Callable[[], Any]) -> Any:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return write()

    lake.hook, kills = hook, 0
    for allowed in (0, 1, 2, 3, 1, 99):
        left[0] = allowed
        if allowed == 3:  # and more has come meanwhile
            db.change_column("s.t", "n", "int64", len)
            _change(lake, 2, n=7)
            lake.connector.capture()
        try:
            lake.apply()
        except (Killed, TargetError):
            kills += 1
    assert kills >= 2
    assert lake.rows("s.t", "id", "n", "n__v_string", "n__v_bigint", ODD) == [
        {"id": 0, "n": 0, "n__v_string": None, "n__v_bigint": None, ODD: "n0"},
        {"id": 1, "n": 10, "n__v_string": "eleven", "n__v_bigint": None, ODD: "n1"},
        {"id": 2, "n": 20, "n__v_string": None, "n__v_bigint": 7, ODD: "n2"},
    ]


@pytest.mark.parametrize(
    ("key", "why"), [(("n",), "column n is part of the key"), ((), "the table has no key")], ids=["key", "no key"]
)
def test_a_key_column_cannot_continue_in_a_new_column(
    memory: Callable[..., Lake], key: tuple[str, ...], why: str
) -> None:
    lake = _lake(memory(), key)
    before = lake.rows("s.t")
    lake.connector.database.change_column("s.t", "n", "string", str)
    with pytest.raises(
        TargetError, match=rf"(?s)n of s\.t has the type int in the table.*{why}.*type_changes: rewrite"
    ):
        lake.follow()
    assert lake.rows("s.t") == before
    lake.apply(tables=TableRules.parse([{"tables": ".*"}]))
    lake.check()


def test_a_column_that_the_rule_computes_stops_the_apply_if_its_type_changes(memory: Callable[..., Lake]) -> None:
    lake = _lake(memory(schema_change_rewrite_mode="ignore"), columns={"computed": {"m": "n + 1"}})
    lake.connector.database.change_column("s.t", "n", "decimal128(9, 2)", Decimal)
    _change(lake, 1, n=Decimal(3))
    with pytest.raises(TargetError, match="m has the type int in the table and needs the type decimal"):
        lake.follow()
    assert lake.rows("s.t", "n") == [{"n": 0}, {"n": 10}, {"n": 20}]
