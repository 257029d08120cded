"""Comparisons and repairs of the tables that a route makes of one source table, while capture and apply continue."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.connectors import memory_connector
from tests.support.signals import signal_state
from tests.targets.lake.lake import Lake, new_lake
from tests.targets.lake.placement.test_routes import ODD, PLAIN, RouteWork
from tests.targets.lake.placement.test_routes import _rules as route_rules
from tests.targets.lake.rules.test_outbox_columns import OUTBOX
from tests.targets.lake.verify.test_verify_rules import verify

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "region": "string", "n": "int32"}


@pytest.fixture
def memory(spark: SparkSession, tmp_path: Path) -> Lake:
    STORED.clear()
    return new_lake(spark, tmp_path, "memory")


def _places(verified: VerificationReport) -> dict[str, TableVerification]:
    """The last part of the location → its table."""
    return {table.location.rpartition("/")[2]: table for table in verified.tables}


def _count_differences(verified: VerificationReport) -> dict[str, tuple[int, int, int]]:
    """Return the numbers of rows missing, surplus and different, of the tables that differ."""
    return {at: (t.missing, t.surplus, t.different) for at, t in _places(verified).items() if t.rows_differ}


@pytest.mark.every_kind
def test_each_place_is_compared_with_the_rows_that_go_there_and_all_are_repaired_by_one_signal(lake: Lake) -> None:
    place, db = f"{lake.folder}/{lake.name}/s", lake.connector.database  # type: ignore[attr-defined]
    steps = [{"when": "n >= 90", "location": f"{place}/large"}, {"by": "region", "location": f"{place}/of_{{value}}"}]
    lake.tables = TableRules.parse(
        [{"tables": r"s\.t", "route": steps, "filter": "n <> 13", "columns": {"rename": {"n": "N°"}}}]
    )
    db.create_table("s.t", COLUMNS, key=("id",))
    regions = ("eu", "us", None)
    with db.transaction() as t:
        for i in range(24):
            t.insert("s.t", {"id": i, "region": regions[i % 3], "n": i})
        for i in range(24, 28):
            t.insert("s.t", {"id": i, "region": "eu", "n": 66 + i})
    lake.follow()

    def change_meanwhile() -> None:
        with db.transaction() as t:
            t.update("s.t", {"id": 0}, {"region": "us"})
            t.update("s.t", {"id": 1}, {"n": 99})
            t.update("s.t", {"id": 2}, {"n": 13})
            t.delete("s.t", {"id": 3})
            t.insert("s.t", {"id": 50, "region": ODD[0], "n": 1})
        lake.follow()

    verified = verify(lake, change_meanwhile)
    assert verified.is_equal, verified.format_text()
    sources = {at: table.source for at, table in _places(verified).items()}
    assert sources == {"large": 5, "of_eu": 6, "of_us": 7, f"of_{ODD[0]}": 1, "t": 7}
    assert {t.display_name for t in verified.tables} == {f"p.s.t → {place}/{at}" for at in sources}

    lake.sql(
        "INSERT INTO {} SELECT * FROM " + _table_reference(lake, "s.of_eu") + " WHERE id = 6", "s.of_us"
    )  # in the wrong one
    lake.sql("DELETE FROM {} WHERE id = 6", "s.of_eu")
    lake.sql("UPDATE {} SET `N°` = 77 WHERE id = 4", "s.of_us")
    lake.sql("UPDATE {} SET id = 900 WHERE id = 24", "s.large")  # of no row at all
    lake.sql("DELETE FROM {} WHERE id = 27", "s.large")
    verified = verify(lake, repair=True)
    assert _count_differences(verified) == {"of_eu": (1, 0, 0), "of_us": (0, 1, 1), "large": (2, 1, 0)}, (
        verified.format_text()
    )
    advice = lake.connector.repairs  # type: ignore[attr-defined]
    assert {topic: "a snapshot reads 5 keys again" in text for topic, text in advice.items()} == {"p.s.t": True}
    lake.follow()
    (number,) = lake.connector.sent  # type: ignore[attr-defined]
    assert signal_state(lake.connector, number)[0] == "done"
    verified = verify(lake)
    assert verified.is_equal, verified.format_text()


def _table_reference(lake: Lake, table: str) -> str:
    return f"delta.`{lake.path(table)}`" if lake.kind == "delta" else f"{lake.catalog()}.{table}"


def test_what_is_gone_or_was_never_made_is_a_difference_that_the_next_apply_or_a_reading_repairs(memory: Lake) -> None:
    memory.tables = route_rules(memory, otherwise="drop")
    RouteWork(memory, 1, regions=("eu", "us", None))
    memory.follow()
    verified = verify(memory)
    assert {at: t.source for at, t in _places(verified).items()} == {"of eu": 1, "of us": 1}
    assert verified.is_equal
    us = f"{memory.folder}/lake/of us"
    del STORED[us]
    verified = verify(memory, repair=True)
    assert (_places(verified)["of us"].problem, verified.exit_status) == ("the table does not exist", 1)
    (advice,) = memory.connector.repairs.items()  # type: ignore[attr-defined]
    assert advice[0] == f"p.s.t → {us}"
    assert "run the apply; if the problem remains" in advice[1]
    assert "airflow cdc snapshot test s.t --replace" in advice[1]
    memory.apply()
    assert verify(memory).is_equal
    # an apply that had forgotten a place would leave it so for good
    del STORED[us]
    reports = ApplyReports(memory.connector.changelog.storage, "test")
    report = reports.read(memory.kind, memory.location)
    assert report is not None
    reports.write(
        {**report, "table_states": {name: e for name, e in report["table_states"].items() if e["location"] != us}}
    )
    verified = verify(memory)
    assert (_places(verified)["of us"].problem, verified.exit_status) == ("the table does not exist", 1)


def test_rows_without_a_key_and_keys_that_are_twice_are_reported_with_the_table_to_build_again(lake: Lake) -> None:
    db, place = lake.connector.database, f"{lake.folder}/{lake.name}/s"  # type: ignore[attr-defined]
    routes = {"bag": "a", "keyed": "a", "by_key": "b % 2"}
    rules = [
        {"tables": rf"s\.{name}", "route": {"by": by, "location": f"{place}/{name}_{{value}}"}}
        for name, by in routes.items()
    ]
    lake.tables = TableRules.parse(rules)
    db.create_table("s.bag", {"a": "string", "b": "int32"})
    for name in ("keyed", "by_key"):
        db.create_table(f"s.{name}", {"a": "string", "b": "int32!"}, key=("b",))
    with db.transaction() as t:
        for i in range(4):
            for name in routes:
                t.insert(f"s.{name}", {"a": "xy"[i % 2], "b": i})
    lake.follow()
    lake.sql("INSERT INTO {} VALUES ('x', 0)", "s.bag_x")
    lake.sql("INSERT INTO {} VALUES ('x', 0)", "s.keyed_x")
    lake.sql("DELETE FROM {} WHERE b = 1", "s.keyed_y")
    lake.sql("INSERT INTO {} VALUES ('x', 901)", "s.by_key_0")  # where no such key goes
    verified = verify(lake, repair=True)
    one_more = dict.fromkeys(("bag_x", "keyed_x", "by_key_0"), (0, 1, 0))
    assert _count_differences(verified) == {**one_more, "keyed_y": (1, 0, 0)}, verified.format_text()
    advice = lake.connector.repairs  # type: ignore[attr-defined]
    assert advice.keys() == {f"p.s.bag → {place}/bag_x", f"p.s.keyed → {place}/keyed_x", "p.s.keyed", "p.s.by_key"}
    for name, why in (("bag", "its rows have no key"), ("keyed", "it has 1 duplicate keys")):
        text = advice[f"p.s.{name} → {place}/{name}_x"]
        assert why in text
        assert f"airflow cdc rebuild test {shlex.quote(f'{place}/{name}_x')}" in text
        RebuildTables(lake.spark, lake.connector.changelog, "test", location=lake.location, target=lake.kind).run(
            [f"{place}/{name}_x"]
        )
    lake.follow()
    assert verify(lake).is_equal


def test_a_comparison_at_rest_knows_the_tables_of_a_route_by_the_last_apply_or_says_that_it_does_not(
    memory: Lake,
) -> None:
    memory.tables = TableRules.parse(
        [
            *[rule.model_dump(exclude_defaults=True, by_alias=True) for rule in route_rules(memory).rules],
            {"tables": r"s\.elsewhere", "location": f"{memory.folder}/lake/else where", "columns": {"drop": ["n"]}},
        ]
    )
    work = RouteWork(memory, 3, regions=("eu", "us", None))
    work.db.create_table("s.elsewhere", COLUMNS, key=("id",))
    memory.follow()
    with work.db.transaction() as t:  # a table from which all rows have gone
        t.update("s.t", {"id": 0}, {"region": "us"})
    memory.follow()
    reference = memory_connector(work.db, memory.folder / "reference", topic_prefix="p", snapshot_mode="initial_only")
    reference.capture()

    def at_rest(**options: Any) -> VerificationReport:
        return VerifyTables(
            memory.spark, reference.changelog, reference.name, location=memory.location, target="memory", **options
        ).run()

    applied = {"source": memory.connector.changelog, "tables_of": "test"}
    found = at_rest(**applied)
    assert found.is_equal, found.format_text()
    sources = {at: table.source for at, table in _places(found).items()}
    assert sources == {"of eu": 0, "of us": 2, "t": 1, "else where": 0}
    eu = f"{memory.folder}/lake/of eu"
    _, rows = STORED[eu], STORED[f"{memory.folder}/lake/of us"].rows  # type: ignore[union-attr]
    STORED[eu] = replace(STORED[eu], rows=rows)  # type: ignore[type-var]
    assert _count_differences(at_rest(**applied)) == {"of eu": (0, 2, 0)}
    unknown = at_rest()
    assert unknown.exit_status == 1
    assert [table.is_equal for table in unknown.tables] == [False, False]
    assert "set --applied to the change log with the report of the last apply" in unknown.format_text()
    given = at_rest(rules=memory.tables)
    assert (given.exit_status, [table.is_equal for table in given.tables]) == (2, [True, False])
    assert "only the report of the last apply lists them: set --applied" in given.format_text()


def test_tables_of_events_do_not_count_unless_they_are_named_and_nothing_else_is_an_error(memory: Lake) -> None:
    db, odd = memory.connector.database, "s.it's `odd` ${x}"  # type: ignore[attr-defined]
    memory.tables = TableRules.parse(
        [
            {"tables": ["s.it's `odd` .{4}"], "mode": "log", "route": {"by": "region", "location": "/log/{value}"}},
            {"tables": r"s\.log", "mode": "log"},
            {"tables": r"s\.outbox", "outbox": {}},
            *[rule.model_dump(exclude_defaults=True, by_alias=True) for rule in route_rules(memory).rules],
        ]
    )
    for name in ("s.log", odd):
        db.create_table(name, COLUMNS, key=("id",))
        with db.transaction() as t:
            t.insert(name, {"id": 1, "region": "eu", "n": 1})
    db.create_table("s.outbox", OUTBOX, key=("id",))
    with db.transaction() as t:
        t.insert("s.outbox", {"id": "e", "aggregatetype": "order", "aggregateid": "1", "type": "x", "payload": "{}"})
    RouteWork(memory, 1, regions=("eu",))
    memory.follow()
    verified = verify(memory)
    assert (verified.exit_status, verified.is_equal) == (0, True)
    assert {t.topic for t in verified.tables if t.never} == {"p.s.log", "p.s.outbox", "p.s.it_s__odd____x_"}
    text = verified.format_text()
    assert "p.s.log: not verified, because its rule has mode log: its rows are events" in text
    assert "p.s.outbox: not verified, because its rule is an outbox" in text
    assert verify(memory, tables=r"s\.t").exit_status == 0
    named = verify(memory, tables=r"s\.(t|log)")
    assert (named.exit_status, named.is_equal) == (2, False)
    with pytest.raises(ConfigError, match="None of the 2 selected tables of connector test can be verified") as error:
        verify(memory, tables=r"s\.(outbox|log)")
    assert "s.outbox: its rule is an outbox" in str(error.value)
    STORED[f"{memory.folder}/lake/of eu"] = "a folder of somebody"
    assert verify(memory).exit_status == 1


def test_what_is_not_sure_of_a_route_is_not_called_different(memory: Lake) -> None:
    memory.tables = route_rules(memory)
    RouteWork(memory, 1, regions=("eu",))
    memory.follow()
    with memory.connector.database.transaction() as t:  # type: ignore[attr-defined]
        t.insert("s.t", {"id": 100, "region": "new", "n": 1})
    verified = verify(memory, memory.connector.capture, wait_s=0)
    (table,) = verified.tables
    assert "it did not reach batch 2 within 0 s" in table.not_compared
    assert "its rows are in several tables" in table.not_compared
    assert verified.exit_status == 2
    memory.apply()
    assert verify(memory).is_equal
    other = TableRules.parse([{"tables": ".*", "filter": "n > 0"}])
    assert "the given rules have no route" in verify(memory, rules=other).format_text()
    other = TableRules.parse([{"tables": ".*", "route": {"by": "lower(region)", "location": "/x/{value}"}}])
    text = [table.not_compared or table.problem for table in verify(memory, rules=other).tables]
    assert all("another rule" in text or text == "the table does not exist" for text in text), text
    wrong = TableRules.parse([{"tables": ".*", "route": {"by": "regoin", "location": "/x/{value}"}}])
    assert "did you mean 'region'?" in verify(memory, rules=wrong).format_text()


def test_a_source_table_without_rows_has_no_tables_and_is_equal(memory: Lake) -> None:
    memory.tables = route_rules(memory)
    memory.connector.database.create_table("s.t", COLUMNS, key=("id",))  # type: ignore[attr-defined]
    memory.follow()
    verified = verify(memory)
    assert [(t.topic, t.source, t.target) for t in verified.tables] == [("p.s.t", 0, 0)]
    assert verified.is_equal


@pytest.mark.parametrize(
    ("seed", "more"),
    [
        (1, {}),
        pytest.param(2, {"mode": "soft_delete"}, marks=pytest.mark.long),
        pytest.param(3, {"mode": "history", "otherwise": "drop"}, marks=pytest.mark.long),
        pytest.param(4, {"otherwise": "drop", "filter": "coalesce(n, 0) <> 5"}, marks=pytest.mark.long),
    ],
)
def test_whatever_moves_meanwhile_no_place_is_called_different(memory: Lake, seed: int, more: dict[str, Any]) -> None:
    memory.tables, choose = route_rules(memory, **more), random.Random(seed)
    work = RouteWork(memory, seed, regions=(*PLAIN, *choose.sample(ODD, 3), None))
    memory.follow()

    def change_meanwhile() -> None:
        for _ in range(choose.randint(0, 2)):
            work.go(choose.randint(1, 5), ddl=0)
            memory.follow()

    for _ in range(3 if seed == 1 else 8):
        work.go(choose.randint(0, 4), ddl=0.02)  # some before the position, in the batch that it is within
        verified = verify(memory, _chain_changes(change_meanwhile, memory.follow))
        assert verified.is_equal, verified.format_text()
        assert len(verified.tables) > 3


def _chain_changes(*what: Callable[[], object]) -> Callable[[], None]:
    def run_both() -> None:
        for one in what:
            one()

    return run_both
