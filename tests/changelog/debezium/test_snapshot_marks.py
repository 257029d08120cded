"""``source.snapshot`` of rows that were read: as Debezium's engine has it, and with a ``last`` whatever comes last."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import _MemorySnapshot
from dev.servers import MariaDb
from tests.support.connectors import Connector, memory_connector, mysql_connector
from tests.support.workloads.small_tables import KEYED, insert

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / "snapshot.json").read_text())


def _records(connector: Connector, after: int = 0) -> list[list[Any]]:
    """Topic, key, operation and mark of each event."""
    found = DebeziumRenderer(connector.changelog, connector.name).render_records(after=after)
    return [
        [r.topic, r.key, r.value["op"], r.value["source"]["snapshot"]] for r in found if r.value and "op" in r.value
    ]


def _marks(connector: Connector, after: int = 0) -> list[tuple[str, int, str]]:
    """Table, id and mark of each event."""
    return [(t.rpartition(".")[2], key["id"], mark) for t, key, _, mark in _records(connector, after)]


@pytest.mark.parametrize("case", RECORDED["cases"])
def test_marks_are_debeziums(mariadb: MariaDb, tmp_path: Path, case: str) -> None:
    """Its reader is one; so is ours here, and the order of the tables the same."""
    recorded = RECORDED["cases"][case]
    mariadb.sql("DROP DATABASE IF EXISTS inv", "CREATE DATABASE inv CHARSET utf8mb4", "USE inv")
    with mariadb.connect(database="inv", autocommit=True) as connection, connection.cursor() as cursor:
        for statement in RECORDED["statements"]:
            cursor.execute(statement)
    connector = mysql_connector(
        mariadb, tmp_path, topic_prefix="p", database_include_list="inv", snapshot_max_threads=1
    )
    connector.capture(recorded["properties"])
    assert _records(connector) == recorded["records"]


# on the memory source


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    return MemoryDatabase(request.node.nodeid)


def _tables(db: MemoryDatabase, rows: dict[str, int]) -> None:
    for table, n in rows.items():
        db.create_table(f"shop.{table}", KEYED, key=("id",))
        if n:
            insert(db, f"shop.{table}", *range(1, n + 1))


def _check_marks(marks: list[tuple[str, int, str]], *, first: bool = True) -> None:
    """Check that ``first`` begins and ``last`` ends all rows, and that each table has its own marks at both ends."""
    assert [mark for _, _, mark in marks].index("last") == len(marks) - 1
    assert (marks[0][2] in ("first", "last")) is first
    by_table: dict[str, list[str]] = {}
    for table, _, mark in marks:
        by_table.setdefault(table, []).append(mark)
    for table, found in by_table.items():
        assert found[-1] in ("last", "last_in_data_collection", "first"), table
        if len(found) > 1:
            assert found[0] in ("first", "first_in_data_collection"), table
            assert found[-1] != "first", table
        assert set(found[1:-1]) <= {"true"}, table
    counts = Counter(mark for _, _, mark in marks)
    assert counts["first"] <= 1
    assert counts["last"] == 1


@pytest.mark.parametrize("readers", [1, 4])
@pytest.mark.parametrize("group_rows", [1, 1_000_000])
@pytest.mark.parametrize(
    "rows",
    [
        {"a": 3, "b": 0, "c": 1, "d": 2, "e": 0, "f": 0},
        {"a": 0, "b": 0, "c": 1},
        {"a": 500, "b": 500, "c": 500, "d": 0},
        {"a": 1, "b": 1, "c": 1},
    ],
    ids=str,
)
def test_the_last_row_of_all_is_marked_however_tables_are_read(
    db: MemoryDatabase, tmp_path: Path, rows: dict[str, int], group_rows: int, readers: int
) -> None:
    """With small groups each table is committed by itself, before the next one is."""
    _tables(db, rows)
    connector = memory_connector(db, tmp_path, snapshot_max_threads=readers, batch_max_rows=group_rows)
    result = connector.capture()
    assert result.events == sum(rows.values())
    if group_rows == 1:
        assert len(result.batches) >= sum(1 for n in rows.values() if n)
    _check_marks(_marks(connector))


def test_no_row_has_no_mark(db: MemoryDatabase, tmp_path: Path) -> None:
    _tables(db, {"a": 0, "b": 0})
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 1)
    connector.capture()
    assert _marks(connector) == [("a", 1, "false")]


def test_a_snapshot_that_goes_on_after_a_kill_has_its_last_row_marked(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tables(db, {"a": 2, "b": 2, "c": 2, "d": 0})
    connector = memory_connector(db, tmp_path, batch_max_rows=1, snapshot_max_threads=1)
    read = _MemorySnapshot.read

    def die_at_table(self: Any, chunk: Any) -> Any:
        if chunk.table.name == "b":
            raise KeyboardInterrupt
        yield from read(self, chunk)

    monkeypatch.setattr(_MemorySnapshot, "read", die_at_table)
    with pytest.raises(KeyboardInterrupt):
        connector.capture()
    monkeypatch.undo()
    connector.capture()
    marks = _marks(connector)
    assert sorted((table, i) for table, i, _ in marks) == [(t, i) for t in "abc" for i in (1, 2)]
    assert marks[-1][2] == "last"
    assert Counter(mark for _, _, mark in marks)["last"] == 1


def test_a_table_that_cannot_be_read_does_not_undo_the_one_before(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To mark a row it is looked whether another follows; the tables before are committed all the same."""
    _tables(db, {"a": 2, "b": 2})
    connector = memory_connector(db, tmp_path, batch_max_rows=1, snapshot_max_threads=1)
    read = _MemorySnapshot.read

    def fail_at_table(self: Any, chunk: Any) -> Any:
        if chunk.table.name == "b":
            raise RuntimeError("no")
        yield from read(self, chunk)

    monkeypatch.setattr(_MemorySnapshot, "read", fail_at_table)
    with pytest.raises(RuntimeError, match="no"):
        connector.capture()
    monkeypatch.undo()
    assert _marks(connector) == [("a", 1, "first"), ("a", 2, "last_in_data_collection")]
    connector.capture()
    _check_marks(_marks(connector, after=1))


def test_tables_that_are_read_later_have_marks_of_their_own(db: MemoryDatabase, tmp_path: Path) -> None:
    _tables(db, {"a": 2, "b": 2})
    connector = memory_connector(db, tmp_path)
    done = connector.capture({"table.include.list": "shop.a"})
    connector.capture()
    assert _marks(connector, after=done.batches[-1]) == [("b", 1, "first"), ("b", 2, "last")]
