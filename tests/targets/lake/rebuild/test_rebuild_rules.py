"""Building tables by rules again, and those of routes: they are what an apply of the same change log makes of them where nothing is."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED, MemoryTableState
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker, Owner
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables, RebuiltTable
from airflow_provider_cdc.targets.lake.rebuild.tables_to_rebuild import _text
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from tests.targets.lake.lake import Child, Lake, new_lake
from tests.targets.lake.points import hook_format
from tests.targets.lake.rules.test_outbox_columns import OUTBOX
from tests.targets.lake.write.test_modes_crash import RunEnded

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "region": "string", "n": "int32"}
REGIONS = ("eu", "it's `odd` ${x}/.", "", None)
MODES = ("current", "log", "soft_delete", "history")
Content = tuple[dict[str, str], list[str]]


def _rules(lake: Lake, root: str, **more: Any) -> TableRules:
    """Rules for all kinds of tables, below a folder of the lake."""
    at = f"{lake.folder}/{root}"

    def steps(name: str) -> list[dict[str, str]]:
        place = f"{at}/{name} {{value}}"
        return [{"when": "n >= 90", "location": f"{at}/{name} large"}, {"by": "region", "location": place}]

    columns = {
        "rename": {"n": "N° ${x}"}, "cast": {"region": "string"}, "constant": {"origin": "{database}"},
        "computed": {"twice": "n * 2", "`": "concat(region, '`')"}, "metadata": ["op", "seq", "commit_ts"],
    }  # fmt: skip
    return TableRules.parse(
        [
            *[{"tables": f"s.only_{mode}", "mode": mode} for mode in MODES[1:]],
            {"tables": r"s\.filtered", "mode": "soft_delete", "filter": "coalesce(n, 0) % 3 <> 1"},
            {"tables": r"s\.columns", "columns": columns, "filter": "region IS NULL OR region <> 'eu'"},
            {"tables": r"s\.dropped", "columns": {"drop": ["region"]}},
            {"tables": r"s\.outbox", "outbox": {}, "location": f"{at}/events {{aggregatetype}}"},
            *[{"tables": f"s.to_{mode}", "mode": mode, "route": steps(mode), **more} for mode in MODES],
            {"tables": r"s\.to_bag", "route": steps("bag"), "otherwise": "drop", "filter": "coalesce(n, 0) <> 5"},
        ]
    )


def _job(lake: Lake, **options: Any) -> RebuildTables:
    given = {"location": lake.location, "target": lake.kind, **options}
    return RebuildTables(lake.spark, lake.connector.changelog, lake.connector.name, **given)


def _rebuild(lake: Lake, *names: str, **options: Any) -> list[RebuiltTable]:
    return _job(lake, **options).run(names)


def _content(lake: Lake, location: str) -> Content:
    """Columns and rows of a table; as texts, in which NaN equals itself and -0.0 is not 0.0."""
    target = load_format(lake.kind).open_target(lake.spark, location)
    assert target.exists(), location
    types = dict(sorted(target.read_column_types().items()))
    return types, sorted(repr(row) for row in target.read_rows().select(*map(quote_name, types)).toArrow().to_pylist())


def _apply_fresh(lake: Lake, root: str, **more: Any) -> dict[tuple[str, str], str]:
    """Apply the whole change log where nothing is.

    :return: topic, and a number per table → location
    """
    location = f"{lake.folder}/{root}/{{database}}/{{table}}"
    lake.apply(location=location, tables=_rules(lake, root, **more))
    return _tables(lake, location)


def _tables(lake: Lake, location: str) -> dict[tuple[str, str], str]:
    report = ApplyReports(lake.connector.changelog.storage, "test").read(lake.kind, location)
    assert report is not None
    found = {}
    for name, entry in report["table_states"].items():
        place = RouteBranch.from_document(entry["place"]) if "place" in entry else None
        found[entry.get("topic", name), _text(place)] = entry["location"]
    return found


class RuleWork:
    """Random changes of some tables."""

    def __init__(self, lake: Lake, seed: int, tables: tuple[str, ...]) -> None:
        self.db, self.random, self.tables, self.added = lake.connector.database, random.Random(seed), tables, 0  # type: ignore[attr-defined]
        self.numbers = iter(range(10_000))
        for table in tables:
            if table == "s.outbox":
                self.db.create_table(table, OUTBOX, key=("id",))
            else:
                self.db.create_table(table, COLUMNS, key=() if "bag" in table else ("id",))
        self.go(6, ddl=0)

    def go(self, transactions: int, *, ddl: float = 0.15) -> None:
        for _ in range(transactions):
            for table in self.tables:
                what = self.random.random()
                if table == "s.outbox":
                    self._event(table)
                elif what < ddl / 2:
                    self.db.truncate_table(table)
                elif what < ddl:
                    self.added += 1
                    self.db.add_column(table, f"c{self.added}", "int32", self.added)
                else:
                    self._rows(table)

    def _event(self, table: str) -> None:
        with self.db.transaction() as t:
            kind, number = self.random.choice(("order", "it's")), str(next(self.numbers))
            t.insert(table, {"id": number, "aggregatetype": kind, "aggregateid": "1", "type": "x", "payload": "{}"})
            if self.random.random() < 0.3:
                t.delete(table, {"id": number})

    def _rows(self, table: str) -> None:
        with self.db.transaction() as t:
            for _ in range(self.random.randint(1, 4)):
                there = [row["id"] for row in self.db.copy_rows(table)]
                what, new = self.random.random(), self.random.randrange(12)
                n = self.random.choice((None, self.random.randrange(110)))
                values = {"region": self.random.choice(REGIONS), "n": n}
                if new not in there:
                    if what < 0.7 or not there:
                        t.insert(table, {"id": new, **values})
                    else:
                        t.update(table, {"id": self.random.choice(there)}, {"id": new, **values})
                elif what < 0.3:
                    t.delete(table, {"id": new})
                else:
                    t.update(table, {"id": new}, values)


def _damage_tables(lake: Lake, below: str) -> None:
    """Take rows away from all tables in memory, and put others into them twice."""
    for location, found in STORED.items():
        if location.startswith(below) and isinstance(found, MemoryTableState):
            half = found.rows.num_rows // 2
            rows = pa.concat_tables([found.rows.slice(half)] * 2)
            STORED[location] = replace(found, rows=rows)


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        (1, ("to_history", "only_soft_delete", "bag")),
        pytest.param(2, ("to_current", "only_log"), marks=pytest.mark.long),
        pytest.param(3, ("to_soft_delete", "only_history"), marks=pytest.mark.long),
        pytest.param(4, ("to_log", "filtered"), marks=pytest.mark.long),
        pytest.param(5, ("to_bag", "columns", "dropped"), marks=pytest.mark.long),
        pytest.param(6, ("outbox", "columns"), marks=pytest.mark.long),
    ],
)
def test_tables_by_rules_are_built_as_an_apply_makes_them_where_nothing_is(
    memory: Lake, seed: int, kinds: tuple[str, ...]
) -> None:
    memory.tables, choose = _rules(memory, "lake"), random.Random(seed)
    names = tuple(f"s.{kind}" for kind in kinds)
    work, request_count = RuleWork(memory, seed, names), choose.randint(1, 2)
    for batch in (1, 2, 3):
        memory.follow()
        if batch == request_count:
            then = _apply_fresh(memory, "then")
        work.go(choose.randint(1, 4))
    memory.connector.capture()
    work.go(choose.randint(1, 4))
    memory.follow()
    now = _apply_fresh(memory, "now")
    there = _tables(memory, memory.location)
    assert there.keys() == now.keys()
    markers = {at: found.markers for at, found in STORED.items() if isinstance(found, MemoryTableState)}
    _damage_tables(memory, f"{memory.folder}/lake/")
    done = _rebuild(memory, *names)
    assert {d.location for d in done} == set(there.values())
    for key, location in there.items():
        assert _content(memory, location) == _content(memory, now[key]), key
        assert STORED[location].markers == markers[location]  # type: ignore[union-attr]
    assert memory.apply().tables == []

    beside = f"{memory.folder}/beside/{{table}}/{{place}}"
    built = {d.location: d.batch for d in _rebuild(memory, *names, to=beside, batch=request_count)}
    assert set(built.values()) == {request_count}
    expected = {
        beside.format(table=topic.rpartition(".")[2], place=text.replace("/", "%2F")): location
        for (topic, text), location in then.items()
    }
    assert set(built) == set(expected)
    for location, other in expected.items():
        assert _content(memory, location) == _content(memory, other), location
    work.go(3)
    memory.follow()
    later = _apply_fresh(memory, "later")
    assert {key: _content(memory, at) for key, at in _tables(memory, memory.location).items()} == {
        key: _content(memory, at) for key, at in later.items()
    }


@pytest.mark.every_kind
@pytest.mark.sampled(2)
def test_damaged_tables_of_a_route_are_right_again_by_one_commit_each(lake: Lake) -> None:
    lake.tables = _rules(lake, "lake")
    RuleWork(lake, 7, ("s.to_current", "s.to_soft_delete"))
    lake.follow()
    there, now = _tables(lake, lake.location), _apply_fresh(lake, "now")
    for location in there.values():
        if lake.kind == "delta":
            lake.spark.sql(f"DELETE FROM delta.`{location.replace('`', '``')}` WHERE id % 2 = 0")
        else:
            target = load_format(lake.kind).open_target(lake.spark, location)
            assert target.exists()
            (app, batch), *_ = target.read_markers().items()
            target.rebuild_rows(target.read_rows().where("id % 2 = 1"), _marker(app, batch))
    assert any(_content(lake, there[key]) != _content(lake, at) for key, at in now.items())
    commits = {at: _commits(lake, at) for at in there.values()}
    done = _rebuild(lake, "s.to_current", "p.s.to_soft_delete")
    assert {d.location for d in done} == set(there.values())
    for key, at in now.items():
        assert _content(lake, there[key]) == _content(lake, at), key
        assert _commits(lake, there[key]) == commits[there[key]] + 1
    assert lake.apply().tables == []


def _marker(app: str, batch: int) -> Marker:
    _, connector, topic = app.split(":")
    topic, _, changelog = topic.partition("@")
    return Marker(Owner(connector, topic, changelog=changelog), batch)


def _commits(lake: Lake, location: str) -> int:
    pattern = {"delta": "_delta_log/*.json", "iceberg": "metadata/v*.metadata.json"}[lake.kind]
    return len(list(Path(location).glob(pattern)))


def test_one_table_of_a_route_is_built_by_its_location_and_one_that_is_gone_is_made_again(memory: Lake) -> None:
    memory.tables = _rules(memory, "lake")
    RuleWork(memory, 8, ("s.to_current",))
    memory.follow()
    now = _apply_fresh(memory, "now")
    there = _tables(memory, memory.location)
    _damage_tables(memory, f"{memory.folder}/lake/")
    damaged = dict(STORED)
    eu = there["p.s.to_current", "2_eu"]
    (done,) = _rebuild(memory, eu)
    assert (done.location, done.name) == (eu, f"p.s.to_current → {eu}")
    assert {at for at, found in STORED.items() if found is not damaged[at]} == {eu}
    del STORED[eu]
    ApplyReports(memory.connector.changelog.storage, "test").write(
        _report_without(memory, eu)
    )  # an apply that has forgotten it
    assert {d.location for d in _rebuild(memory, f"p.s.to_current → {there['p.s.to_current', 'otherwise']}")} == {
        there["p.s.to_current", "otherwise"]
    }
    assert {d.location for d in _rebuild(memory, "s.to_current")} == set(there.values())
    for key, location in there.items():
        assert _content(memory, location) == _content(memory, now[key]), key
    with pytest.raises(ConfigError, match="no table of a route has this name"):
        _rebuild(memory, f"{memory.folder}/lake/current nowhere")
    with pytest.raises(ConfigError, match=r"use \{place\} in --to"):
        _rebuild(memory, "s.to_current", to=f"{memory.folder}/beside/{{table}}")


def _report_without(lake: Lake, location: str) -> dict[str, Any]:
    report = ApplyReports(lake.connector.changelog.storage, "test").read(lake.kind, lake.location)
    assert report is not None
    return {
        **report,
        "table_states": {name: e for name, e in report["table_states"].items() if e["location"] != location},
    }


def test_if_one_of_several_tables_cannot_be_built_none_is(memory: Lake) -> None:
    memory.tables = _rules(memory, "lake")
    RuleWork(memory, 9, ("s.to_current",))
    memory.follow()
    there = _tables(memory, memory.location)
    eu, last = there["p.s.to_current", "2_eu"], max(there.values())
    _damage_tables(memory, f"{memory.folder}/lake/")
    sound = dict(STORED)

    def assert_refused(stored: Any, match: str) -> None:
        STORED[last] = stored
        before = dict(STORED)
        with pytest.raises(TargetError, match=match):
            _rebuild(memory, "s.to_current")
        assert before == STORED
        STORED.update(sound)

    found = sound[last]
    assert isinstance(found, MemoryTableState)
    assert_refused(replace(found, owner=Owner("other", "p.s.to_current")), "belongs to connector other")
    assert_refused("a folder of somebody", "but the location contains a folder of somebody")
    assert_refused(replace(found, layout=replace(found.layout, rule="")), "built by another rule")
    assert_refused(replace(found, layout=sound[eu].layout), "built by another rule")  # type: ignore[union-attr]


def test_what_a_rule_has_given_up_is_left_alone_and_what_no_one_knows_is_refused(memory: Lake) -> None:
    memory.tables = _rules(memory, "lake")
    RuleWork(memory, 10, ("s.to_current", "s.only_history"))
    memory.follow()
    before = _tables(memory, memory.location)
    otherwise = before["p.s.to_current", "otherwise"]
    memory.tables = _rules(memory, "lake", otherwise="drop")
    memory.apply()
    _damage_tables(memory, f"{memory.folder}/lake/")
    damaged = STORED[otherwise]
    done = _rebuild(memory, "s.to_current")
    assert {d.location for d in done} == {at for (topic, _), at in before.items() if "to_" in topic} - {otherwise}
    assert STORED[otherwise] is damaged
    now = _apply_fresh(memory, "now", otherwise="drop")
    for key, location in _tables(memory, memory.location).items():
        if "to_" in key[0]:
            assert _content(memory, location) == _content(memory, now[key])

    other = [
        {"tables": r"s\.to_current", "columns": {"drop": ["region"]}},
        {"tables": r"s\.only_history", "filter": "n > 0"},
    ]
    to = f"{memory.folder}/beside/{{table}}/{{place}}"
    (built,) = _rebuild(memory, "s.to_current", to=to, rules=TableRules.parse(other))
    assert built.location.endswith("/to_current/all")
    assert set(_content(memory, built.location)[0]) == set(COLUMNS) - {"region"} | {
        name for name in _content(memory, built.location)[0] if name.startswith("c")
    }
    with pytest.raises(TargetError, match="built by another rule than the present one"):
        _rebuild(memory, "s.only_history", rules=TableRules.parse(other))


@pytest.mark.parametrize("to", ["", "beside"])
def test_a_run_that_ends_between_two_tables_leaves_whole_ones_and_the_next_one_finishes(memory: Lake, to: str) -> None:
    memory.tables = _rules(memory, "lake")
    RuleWork(memory, 11, ("s.to_current", "s.to_history"))
    memory.follow()
    names, there, now = ("s.to_current", "s.to_history"), _tables(memory, memory.location), _apply_fresh(memory, "now")
    _damage_tables(memory, f"{memory.folder}/lake/")
    damaged = {at: _content(memory, at) for at in there.values()}
    options = {"to": f"{memory.folder}/{to}/{{table}}/{{place}}"} if to else {}
    ends = _EndedWrites(4)
    job = _job(memory, **options)
    job._format = hook_format(load_format("memory"), ends)
    with pytest.raises(RunEnded):
        job.run(names)
    assert len(job.done) == len(ends.done) == 3
    for key, location in there.items():
        if not to:
            expected = _content(memory, now[key]) if location in ends.done else damaged[location]
            assert _content(memory, location) == expected
    done = _rebuild(memory, *names, **options)
    assert len(done) == len(there)
    places = {(d.topic, d.name.rpartition(" → ")[2] if not to else d.location) for d in done}
    assert len(places) == len(there)
    for (topic, text), location in now.items():
        at = there[topic, text]
        if to:
            at = options["to"].format(table=topic.rpartition(".")[2], place=text.replace("/", "%2F"))
        assert _content(memory, at) == _content(memory, location)


class _EndedWrites:
    """Ends the work before one of the writes."""

    def __init__(self, number: int) -> None:
        self._number, self.done = number, list[str]()

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        if len(self.done) + 1 == self._number:
            raise RunEnded
        assert name in ("rebuild_rows", "create")
        result = write()
        self.done.append(location)
        return result


@pytest.fixture
def make_memory(spark: SparkSession, tmp_path: Path) -> Callable[..., Lake]:
    """Makes a lake in memory with properties of the connector."""
    STORED.clear()
    return lambda **properties: new_lake(spark, tmp_path, "memory", **properties)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.every_kind
def test_after_kill_9_at_any_commit_of_a_rebuild_the_next_one_finishes(lake: Lake, child: Callable[[], Child]) -> None:
    lake.tables = _rules(lake, "lake")
    RuleWork(lake, 12, ("s.to_current",))
    lake.follow()
    there, now = _tables(lake, lake.location), _apply_fresh(lake, "now")
    to = f"{lake.folder}/beside/{{table}}/{{place}}"
    running, died = child(), 0
    for number in range(1, 20):
        point, beside = ("before", "during", "after")[number % 3], number % 2 == 0
        shutil.rmtree(lake.folder / "beside", ignore_errors=True)
        running = running if running.alive else child()
        running.begin_rebuild(lake, "s.to_current", to if beside else "", point, (number + 1) // 2)
        answer = running.answer()
        assert answer in ("", "done"), answer
        if not answer:
            assert running.wait() == -signal.SIGKILL, running.said()
            died += 1
        done = _rebuild(lake, "s.to_current", to=to if beside else "")
        assert len(done) == len(there)
        for (topic, text), location in now.items():
            at = to.format(table="to_current", place=text.replace("/", "%2F")) if beside else there[topic, text]
            assert _content(lake, at) == _content(lake, location), (number, at)
        if answer and beside:
            break
    assert died >= 2 * len(there)


@pytest.mark.parametrize("change", ["dropped", "variants", "shared"])
def test_what_the_change_log_does_not_have_is_not_thrown_away_and_built_beside(
    make_memory: Callable[..., Lake], change: str
) -> None:
    lake = make_memory(schema_change_rewrite_mode="ignore")
    rules: dict[str, dict[str, Any]] = {
        "dropped": {"dropped_columns": "keep", "mode": "soft_delete"},
        "variants": {"type_changes": "new_column"},
        "shared": {"shard": {"shard": "{table}"}},
    }
    lake.tables = TableRules.parse([{"tables": r"s\.t", **rules[change]}])
    RuleWork(lake, 13, ("s.t",))
    lake.follow()
    if change == "dropped":
        lake.connector.database.drop_column("s.t", "n")  # type: ignore[attr-defined]
    elif change == "variants":
        lake.connector.database.change_column("s.t", "n", "string", str)  # type: ignore[attr-defined]
    with lake.connector.database.transaction() as t:  # type: ignore[attr-defined]
        t.insert("s.t", {"id": 100, "region": "eu"})
    lake.follow()
    before = dict(STORED)
    match = {
        "dropped": "no longer has a column n",
        "variants": "continue in new columns",
        "shared": "shared by several",
    }
    with pytest.raises(TargetError, match=match[change]):
        _rebuild(lake, "s.t")
    assert before == STORED
    (done,) = _rebuild(lake, "s.t", to=f"{lake.folder}/beside/{{table}}")
    fresh = f"{lake.folder}/fresh/{{database}}/{{table}}"
    lake.apply(location=fresh)
    assert _content(lake, done.location) == _content(lake, fresh.format(database="s", table="t"))
