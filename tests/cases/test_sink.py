"""Relational targets: what sources and databases do to them that no table of another one may notice, and no row be lost by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.schema import Column
from airflow_provider_cdc.sink.config import EQUAL, SinkConfig
from airflow_provider_cdc.sink.database import open_engine
from airflow_provider_cdc.sink.rebuild import RebuildDatabase
from tests.sink.conftest import _FIXTURES
from tests.sink.source_table import ID, Table, column
from tests.sink.test_apply import rows

KINDS = ("sqlite", "postgresql", "mariadb", "mysql")


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database of each kind."""
    yield from _engine(request, tmp_path, request.param)


def _engine(request: pytest.FixtureRequest, folder: Path, kind: str) -> Iterator[sa.Engine]:
    if kind == "sqlite":
        yield from _opened(f"sqlite:///{folder}/target.db")
        return
    server = request.getfixturevalue(_FIXTURES[kind])
    with server.database("cases") as database:
        name = database if kind == "postgresql" else f"{database.name}?charset=utf8mb4"
        yield from _opened(server.url(name))


def _opened(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(SinkConfig.parse({"connection.url": url}))
    yield engine
    engine.dispose()


# -- A2: keys that change at the source ---------------------------------------------------------------------------------

CODE = column("code", "string", "VARCHAR", 10, nullable=False)
V = Column(name="v", type="int32")
KEYS = [("id",), ("code",), ("id", "code")]


def same(table: Table) -> None:
    names = table.source._schemas[table.source.id("s.t")].names
    there = [tuple(row[name] for name in names) for row in rows(table.engine, "p_s_t")]
    assert sorted(there) == sorted(tuple(row[name] for name in names) for row in table.source.rows("s.t"))


def key_of(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_pk_constraint("p_s_t")["constrained_columns"])


@pytest.mark.parametrize("new", KEYS[1:], ids=["replaced", "widened"])
@pytest.mark.parametrize("applies", ["one", "each", "rebuild"])
def test_a_key_that_changes_leaves_no_row_of_the_one_before(
    engine: sa.Engine, tmp_path: Path, new: tuple[str, ...], applies: str
) -> None:
    """A2: deletes and updates from before the change are of the key before."""
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2}, {"id": 4, "code": "E", "v": 4})
    table.connector.capture()
    if applies == "each":
        table.apply()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.update("s.t", {"id": 2}, {"code": "C", "v": 20})
    table.alter(ID, CODE, V, key=new)
    table.insert({"id": 3, "code": "D", "v": 3}, {"id": 5 if new == ("code",) else 4, "code": "F", "v": 5})
    table.apply()
    same(table)
    assert key_of(engine) == set(new)
    with table.source.transaction() as t:
        t.update("s.t", {"code": "D"}, {"id": 30, "v": 31})
        t.delete("s.t", {"code": "C"})
    table.apply()
    same(table)
    if applies == "rebuild":
        config = SinkConfig.parse(EQUAL)
        report = RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert not report["problem"]
        same(table)


class KeyWork:
    """Random work on a table whose key changes now and then."""

    def __init__(self, table: Table, random: Random) -> None:
        self.table, self.random, self.key, self.rows = table, random, KEYS[0], list[dict[str, Any]]()

    def step(self) -> None:
        match self.random.random():
            case x if x < 0.15:
                self._change_key()
            case x if x < 0.55:
                self._write()
            case x if x < 0.8:
                self._update()
            case _:
                self._delete()

    def _fits(self, rows: list[dict[str, Any]], key: tuple[str, ...]) -> bool:
        return len({tuple(row[name] for name in key) for row in rows}) == len(rows)

    def _row(self) -> dict[str, Any]:
        return {"id": self.random.randrange(6), "code": self.random.choice("ABCDEF"), "v": self.random.randrange(1000)}

    def _change_key(self) -> None:
        fitting = [key for key in KEYS if key != self.key and self._fits(self.rows, key)]
        if fitting:
            self.key = self.random.choice(fitting)
            self.table.alter(ID, CODE, V, key=self.key)

    def _write(self) -> None:
        row = self._row()
        if self._fits([*self.rows, row], self.key):
            self.rows.append(row)
            self.table.insert(row)

    def _update(self) -> None:
        if self.rows:
            at, row = self.random.randrange(len(self.rows)), self._row()
            if self._fits([*self.rows[:at], row, *self.rows[at + 1 :]], self.key):
                with self.table.source.transaction() as t:
                    t.update("s.t", {name: self.rows[at][name] for name in self.key}, row)
                self.rows[at] = row

    def _delete(self) -> None:
        if self.rows:
            row = self.rows.pop(self.random.randrange(len(self.rows)))
            with self.table.source.transaction() as t:
                t.delete("s.t", {name: row[name] for name in self.key})


@pytest.mark.parametrize("seed", range(3))
def test_random_work_with_keys_that_change(
    engine: sa.Engine, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    """A2: in any order, captured and applied at any time."""
    several = 40 if request.config.getoption("--long") else 1
    for number in range(several):
        random = Random(seed + 1000 * number)
        (folder := tmp_path / str(number)).mkdir()
        table = Table(folder, engine, CODE, V)
        work = KeyWork(table, random)
        for _ in range(random.randrange(5, 60)):
            work.step()
            if (what := random.random()) < 0.08:
                table.apply()
                same(table)
            elif what < 0.2:
                table.connector.capture()
        table.apply()
        same(table)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE p_s_t")
            connection.exec_driver_sql("DROP TABLE cdc_applied")
