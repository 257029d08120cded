"""Runs that are killed, and runs beside others: each event is in the tables once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.targets.database.apply.test_database_apply import expected_rows, in_order, rows, sink, write_transactions
from tests.targets.database.killed import start

KEYLESS = {"insert.mode": "insert", "primary.key.mode": "none", "schema.evolution": "basic", "topics": "p.s.bag"}
KEYED = {**EQUAL, "topics": "p.s.t", "name": "keyed"}


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    """A table with a key, and one without that only gets rows."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "a": "string", "b": "int32"}, key=("id",))
    source.create_table("s.bag", {"a": "int32"}, key=())
    return source


def _batches(source: MemoryDatabase, connector: Connector, r: Random, count: int) -> None:
    for _ in range(count):
        write_transactions(source, "s.t", r, 2)
        with source.transaction() as t:
            t.insert("s.bag", {"a": r.randrange(5)})
        connector.capture()


def _equal(engine: sa.Engine, source: MemoryDatabase) -> None:
    assert in_order(rows(engine, "p_s_t")) == in_order(expected_rows(source, "s.t", engine.dialect.name))
    assert sorted(row["a"] for row in rows(engine, "p_s_bag")) == sorted(row["a"] for row in source.copy_rows("s.bag"))


def test_a_run_that_is_killed_at_any_statement_is_finished_by_the_next_one(
    engine: sa.Engine, url: str, source: MemoryDatabase, tmp_path: Path
) -> None:
    connector, r = memory_connector(source, tmp_path, topic_prefix="p"), Random(3)
    log = connector.changelog.storage.url
    ended, number = set[bool](), 1
    while len(ended) < 2 or number < 30:
        _batches(source, connector, r, 1 if number % 3 else 3)
        for properties in (KEYED, KEYLESS):
            process = start({**properties, "connection.url": url}, log, connector.name, statement=number)
            process.join(LONGEST_S)
            ended.add(process.exitcode == 0)
            assert process.exitcode in (0, -9)
        if number % 5 == 0:
            _apply_both(engine, connector)
            _equal(engine, source)
        number += 1
        assert number < 200
    _apply_both(engine, connector)
    _equal(engine, source)


def test_several_runs_at_once_apply_each_batch_once(
    engine: sa.Engine, url: str, source: MemoryDatabase, tmp_path: Path
) -> None:
    connector, r = memory_connector(source, tmp_path, topic_prefix="p"), Random(4)
    log = connector.changelog.storage.url
    for _ in range(4):
        _batches(source, connector, r, 5)
        running = [
            start({**properties, "connection.url": url}, log, connector.name) for properties in (KEYED, KEYLESS) * 3
        ]
        for process in running:
            process.join(LONGEST_S)
            assert process.exitcode == 0
        _equal(engine, source)


def test_tables_of_our_own_that_another_run_makes_meanwhile_are_used(
    engine: sa.Engine, source: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()
    _apply_both(engine, connector)
    made: Counter[str] = Counter()
    create, has_table = sa.Table.create, sa.Inspector.has_table

    def create_too_late(table: sa.Table, bind: Any, checkfirst: bool) -> None:
        made[table.name] += 1
        create(table, bind, checkfirst=checkfirst and made[table.name] > 1)

    def ask_too_early(self: sa.Inspector, table_name: str, schema: str | None = None, **options: Any) -> bool:
        return has_table(self, table_name, schema, **options) and bool(made[table_name] or table_name != "cdc_tables")

    monkeypatch.setattr(sa.Table, "create", create_too_late)
    monkeypatch.setattr(sa.Inspector, "has_table", ask_too_early)
    _apply_both(engine, connector)
    monkeypatch.undo()
    assert len(made) == 2, "the tables of markers and of claims"
    _equal(engine, source)


def _apply_both(engine: sa.Engine, connector: Connector) -> None:
    for properties in (KEYED, KEYLESS):
        named: dict[str, Any] = {name.replace(".", "__"): value for name, value in properties.items()}
        base = dict.fromkeys(("delete__enabled", "truncate__enabled"), properties.get("delete.enabled", False))
        sink(engine, connector, **{**base, **named}).apply()
