"""Lake tables know whose batches they have, as tables of databases do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from tests.cases.log_life import AppliedTables, ConnectorSimulation, Rows
from tests.support.connectors import Connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.lake.conftest import spark  # noqa: F401


class InLake(AppliedTables):
    """Tables of one kind of lake, one of which has no key."""

    TABLES: tuple[str, ...] = ("s.busy", "s.small", "s.bag")

    def __init__(self, spark: SparkSession, folder: Path, kind: str, tables: TableRules = NO_RULES) -> None:  # noqa: F811
        self.spark, self.folder, self.kind, self.tables, self.away = spark, folder, kind, tables, 0
        self.location = f"{folder}/lake/{{database}}/{{table}}"

    def at(self, table: str) -> str:
        database, name = table.split(".")
        return self.location.format(database=database, table=name)

    def job(self, connector: Connector, **options: object) -> ApplyChanges:
        given = {"location": self.location, "target": self.kind, "threads": 2, "tables": self.tables, **options}
        return ApplyChanges(self.spark, connector.changelog, connector.name, **given)  # type: ignore[arg-type]

    def apply(self, connector: Connector) -> None:
        self.job(connector).run()

    def rows(self) -> Rows:
        found = Rows()
        for table in self.TABLES:
            target = load_format(self.kind).open_target(self.spark, self.at(table))
            if target.exists():
                found[table] = sorted(((r["id"], r["v"]) for r in target.read_rows().toArrow().to_pylist()), key=repr)
        return found

    def begin_again(self, error: str) -> None:
        """Move away the tables that the error refuses, and no other."""
        for table in self.TABLES:
            if f"{self.at(table)} " in error:
                self.away += 1
                if self.kind == "memory":
                    STORED.pop(self.at(table))
                else:
                    Path(self.at(table)).rename(self.folder / f"away{self.away}")


@pytest.fixture
def simulation_factory(spark: SparkSession, tmp_path: Path) -> Callable[..., ConnectorSimulation]:  # noqa: F811
    def begin(
        kind: str, seed: int = 0, name: str = "a", tables: tuple[str, ...] = InLake.TABLES
    ) -> ConnectorSimulation:
        lake_tables = InLake(spark, tmp_path / name, kind)
        lake_tables.TABLES = tables
        return ConnectorSimulation(tmp_path / name, Random(seed), lake_tables)

    return begin


def _rows(simulation: ConnectorSimulation, v: int, *tables: str) -> None:
    """Other rows in some tables, by default in all."""
    with simulation.db.transaction() as t:
        for table in tables or simulation.made.TABLES:
            for row in simulation.db.copy_rows(table):
                t.delete(table, row)
            for id_ in (v, v + 1):
                t.insert(table, {"id": id_, "v": v})


def _check_equal(simulation: ConnectorSimulation) -> None:
    assert simulation.capture()
    assert simulation.apply() == ""
    assert simulation.made.rows() == simulation.wanted()


@pytest.mark.parametrize(
    "kind", ["memory", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("delta", "iceberg"))]
)
def test_another_log_and_one_that_was_put_back_are_refused_and_the_ways_out_work(
    simulation_factory: Callable[..., ConnectorSimulation], kind: str
) -> None:
    """# A4 (1) (2) (3), and the table that is adopted in the place of being moved away."""
    one = simulation_factory(kind)
    _rows(one, 1)
    _check_equal(one)
    one.delete(with_changelog=True)
    for v in (2, 3):  # at the number of the tables, and after it
        _rows(one, v)
        assert one.capture()
        error = one.apply()
        assert error.count("was built from another change log of test") == 3, error
    assert one.made.rows() == {table: [(1, 1), (2, 1)] for table in one.made.TABLES}
    assert "--adopt 'p.s.small'" in error
    with pytest.raises(TargetError, match="2 of 3 tables"):
        one.made.job(one.connector, adopt=["p.s.small"]).run()  # type: ignore[attr-defined]
    assert one.made.rows()["s.small"] == [(3, 3), (4, 3)]
    _refuses_to_rebuild(one)
    one.mended()
    one.back_up()
    _rows(one, 5, "s.busy", "s.bag")
    _check_equal(one)
    one.restore(log=True, state=True)
    _rows(one, 7)
    assert one.capture()
    error = one.apply()
    assert error.count("the change log now has another batch with this number") == 2, error
    assert one.made.rows()["s.small"] == [(7, 7), (8, 7)]  # it had nothing of what was lost
    one.mended()
    _rows(one, 9)
    _check_equal(one)


def _refuses_to_rebuild(one: ConnectorSimulation) -> None:
    made = one.made
    assert isinstance(made, InLake)
    if made.kind == "memory":
        return
    rebuild = RebuildTables(made.spark, one.connector.changelog, "test", location=made.location, target=made.kind)
    with pytest.raises(TargetError, match="was built from another change log of test"):
        rebuild.run(["s.busy"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_log_comes_back_to_tables_that_were_adopted_for_another(
    simulation_factory: Callable[..., ConnectorSimulation], kind: str
) -> None:
    """# A4: which log a table's rows are of says the table, not the highest number."""
    one = simulation_factory(kind, tables=("s.busy",))
    _rows(one, 1)
    _check_equal(one)
    old = one.folder / "old"
    one._reopened(lambda: shutil.copytree(one.folder / "c", old))
    one.delete(with_changelog=True)
    _rows(one, 2)
    assert one.capture()
    one.made.job(one.connector, adopt=["p.s.busy"]).run()  # type: ignore[attr-defined]
    assert one.made.rows() == one.wanted()

    def restore_log() -> None:
        shutil.rmtree(one.folder / "c")
        shutil.copytree(old, one.folder / "c")

    one._reopened(restore_log)
    assert "p.s.busy: TargetError: The table was built from another change log" in one.apply()


@pytest.mark.parametrize("mode", ["history", "log"])
def test_modes_in_which_rows_have_numbers_of_events_refuse_another_log(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    mode: str,
) -> None:
    """# A4: ``_seq`` begins at 1 again, and would meet the numbers of the log before."""
    rules = TableRules.parse([{"tables": r"s\.(busy|small)", "mode": mode}])
    one = ConnectorSimulation(tmp_path, Random(0), InLake(spark, tmp_path, "memory", rules))
    _rows(one, 1)
    assert one.capture()
    assert one.apply() == ""
    before = one.made.rows()
    one.delete(with_changelog=True)
    for v in (2, 3):
        _rows(one, v)
        assert one.capture()
        assert one.apply().count("was built from another change log") == 3
    assert one.made.rows() == before


def test_no_apply_is_green_while_rows_differ_whatever_happens_to_logs_and_states(
    simulation_factory: Callable[..., ConnectorSimulation], sampled: CaseSample
) -> None:
    """# A4: random lives, with tables in memory."""
    seeds = range(20) if sampled.all else sampled.random("lives").sample(range(10**6), 1)
    for seed in seeds:
        STORED.clear()
        one = simulation_factory("memory", seed, str(seed))
        try:
            for _ in range(12):
                one.step()
            one.mended()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e
