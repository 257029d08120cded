"""Modes of tables: random events in random batches, and what each mode promises of them."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.signals import signal_ended, snapshot
from tests.targets.lake.lake import Lake, Row

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string", "doc": "string"}
SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND


class TimedTable:
    """A table with random changes, a second apart, and the source's rows after each of them.

    :param kinds: kinds of changes that there are besides those of rows
    """

    def __init__(self, lake: Lake, seed: int, *kinds: str) -> None:
        self.lake, self.db, self.random, self.kinds = lake, lake.connector.database, random.Random(seed), kinds
        self.now = BEGIN
        self.db.clock = lambda: self.now
        self.states: list[tuple[int, list[Row]]] = []
        self.added = 0
        sparse = ("doc",) if "sparse" in kinds else ()
        self.db.create_table("s.t", COLUMNS, key=("id",), sparse=sparse)
        with self.db.transaction() as t:
            for i in range(4):
                t.insert("s.t", {"id": i, "n": i, "note": "begin", "doc": f"doc{i}"})
        lake.connector.capture()  # what was before the snapshot, no one knows
        self._note()

    def _note(self) -> None:
        self.states.append((self.now, self.db.copy_rows("s.t")))

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.choice((1, SECOND, SECOND, 3 * SECOND))
            kind = self.random.random()
            if "truncate" in self.kinds and kind < 0.06:
                self.db.truncate_table("s.t")
            elif "schema" in self.kinds and kind < 0.12:
                self._schema()
            else:
                self._rows()
            self._note()

    def _schema(self) -> None:
        self.added += 1
        if self.added % 3 == 0:
            self.db.rename_columns("s.t", **{f"c{self.added - 1}": f"r{self.added}"})
        else:
            self.db.add_column("s.t", f"c{self.added}", "int32", self.added)

    def _rows(self) -> None:
        with self.db.transaction() as t:
            for _ in range(self.random.randint(1, 4)):
                there = [row["id"] for row in self.db.copy_rows("s.t")]
                what = self.random.random()
                new = self.random.randrange(12)
                if what < 0.4 and new not in there:
                    t.insert("s.t", {"id": new, "n": self.random.randrange(100), "doc": f"d{self.random.random()}"})
                elif not there:
                    continue
                elif what < 0.6:
                    t.delete("s.t", {"id": self.random.choice(there)})
                elif what < 0.75 and new not in there:
                    t.update("s.t", {"id": self.random.choice(there)}, {"id": new})
                else:
                    values = {"n": self.random.choice((None, self.random.randrange(100)))}
                    if self.random.random() < 0.3:
                        values["doc"] = f"d{self.random.random()}"
                    t.update("s.t", {"id": self.random.choice(there)}, values)

    def events(self) -> list[dict[str, Any]]:
        """All events of the change log, in order."""
        import pyarrow.parquet as pq

        found = []
        for manifest in self.lake.connector.changelog.read_manifests("test"):
            for file in manifest.files:
                with self.lake.connector.changelog.open_file("test", file) as opened:
                    rows = pq.read_table(opened, columns=["seq", "op", "key", "source"]).to_pylist()
                found += [{**row, "passing": file.passing} for row in rows]
        return sorted(found, key=lambda e: e["seq"])

    def deletions(self) -> dict[int, datetime | None]:
        """Each key that there ever was after a transaction → when its row was deleted."""
        found: dict[int, datetime | None] = {}
        for event in self.events():
            at = _time(event["source"]["ts_us"])
            if event["op"] == "t":
                found = {key: before or at for key, before in found.items()}
            elif not event["passing"]:
                found[event["key"]["id"]] = at if event["op"] == "d" else None
        return found


def _equal_unordered(found: list[Row], expected: list[Row]) -> bool:
    return sorted(found, key=repr) == sorted(expected, key=repr)


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(us / SECOND, UTC)


def _rules(mode: str, **more: Any) -> TableRules:
    return TableRules.parse([{"tables": ".*", "mode": mode, **more}])


KINDS = [("truncate",), ("truncate", "schema"), ("sparse",), ("sparse", "truncate")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_a_history_reports_what_the_source_was_at_any_time(memory: Lake, kinds: tuple[str, ...]) -> None:
    world, rules = TimedTable(memory, zlib.crc32(repr(kinds).encode()), *kinds), _rules("history")
    for _ in range(4):
        world.go(world.random.randint(1, 12))
        if world.random.random() < 0.3:
            memory.connector.capture()
            continue
        memory.connector.capture()
        memory.apply(tables=rules)
    memory.apply(tables=rules)
    rows = memory.rows("s.t")
    assert len({row["_seq"] for row in rows}) == len(rows)
    names = list(world.states[-1][1][0]) if world.states[-1][1] else list(COLUMNS)
    for at, state in world.random.sample(world.states, min(20, len(world.states))) + world.states[-1:]:
        when = _time(at)
        then = [r for r in rows if r["_valid_from"] <= when and (r["_is_current"] or r["_valid_to"] > when)]
        shown = [name for name in names if all(name in row for row in state)]
        assert _equal_unordered([{c: r[c] for c in shown} for r in then], [{c: r[c] for c in shown} for r in state]), (
            when
        )
    current = [{c: r[c] for c in names} for r in rows if r["_is_current"]]
    assert _equal_unordered(current, world.states[-1][1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_live_rows_are_those_of_the_source_and_deleted_ones_stay(memory: Lake, kinds: tuple[str, ...]) -> None:
    world, rules = TimedTable(memory, zlib.crc32(repr(kinds).encode()), *kinds), _rules("soft_delete")
    for _ in range(4):
        world.go(world.random.randint(1, 12))
        memory.connector.capture()
        memory.apply(tables=rules)
        rows, state = memory.rows("s.t"), world.states[-1][1]
        flags = ("_is_deleted", "_deleted_at")
        live = [{k: v for k, v in row.items() if k not in flags} for row in rows if not row["_is_deleted"]]
        assert _equal_unordered(live, state)
        assert {row["id"]: row["_deleted_at"] for row in rows} == world.deletions()


@pytest.mark.parametrize("kinds", [("truncate", "schema"), ("sparse", "truncate")], ids="-".join)
def test_a_log_has_every_event_once(memory: Lake, kinds: tuple[str, ...]) -> None:
    world, rules = TimedTable(memory, 5, *kinds), _rules("log")
    for _ in range(4):
        world.go(world.random.randint(1, 10))
        memory.connector.capture()
        if world.random.random() < 0.7:
            memory.apply(tables=rules)
    memory.apply(tables=rules)
    rows = sorted(memory.rows("s.t"), key=lambda row: row["_seq"])
    events = world.events()
    assert [(r["_seq"], r["_op"], r["_commit_ts"]) for r in rows] == [
        (e["seq"], e["op"], _time(e["source"]["ts_us"])) for e in events
    ]
    assert Counter(r["_op"] for r in rows)["d"] > 0
    if "sparse" in kinds:
        assert any(row["_unavailable"] == ["doc"] and row["doc"] is None for row in rows)


def _create_table(lake: Lake, *batches: Any, key: tuple[str, ...] = ("id",), **rule: Any) -> list[Row]:
    """The table after some batches, each of them a function of a transaction."""
    lake.connector.database.create_table("s.t", {"id": "int64!", "n": "int32"}, key=key)
    lake.connector.capture()
    for batch in batches:
        with lake.connector.database.transaction() as t:
            batch(t)
        lake.connector.capture()
        lake.apply(tables=_rules(**rule))
    return sorted(lake.rows("s.t"), key=lambda row: row["_seq"])


def test_time_in_a_history_never_goes_back_though_the_clock_of_the_source_does(memory: Lake) -> None:
    times = iter([BEGIN, BEGIN, BEGIN + 9 * SECOND, BEGIN + 2 * SECOND, BEGIN + 5 * SECOND])
    memory.connector.database.clock = lambda: next(times, BEGIN + 20 * SECOND)
    rows = _create_table(
        memory,
        lambda t: t.insert("s.t", {"id": 1, "n": 0}),
        lambda t: t.update("s.t", {"id": 1}, {"n": 1}),
        lambda t: t.update("s.t", {"id": 1}, {"n": 2}),
        mode="history",
    )
    assert [row["n"] for row in rows] == [0, 1, 2]
    assert [row["_valid_to"] for row in rows] == [*(row["_valid_from"] for row in rows[1:]), None]
    assert all(row["_valid_to"] is None or row["_valid_from"] <= row["_valid_to"] for row in rows)
    assert [row["_seq_to"] for row in rows] == [*(row["_seq"] for row in rows[1:]), None]


@pytest.mark.parametrize("ends", ["delete", "truncate"])
@pytest.mark.parametrize("applied", ["together", "one by one"])
def test_a_row_that_comes_back_by_a_clock_that_has_gone_back_begins_when_it_had_ended(
    memory: Lake, ends: str, applied: str
) -> None:
    db, now = memory.connector.database, [BEGIN]
    db.clock = lambda: now[0]
    db.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    memory.tables = _rules("history")
    memory.follow()

    def write_at(at: int, *rows: tuple[str, int, int]) -> None:
        now[0] = BEGIN + at * SECOND
        with db.transaction() as t:
            for what, key, n in rows:
                if what == "insert":
                    t.insert("s.t", {"id": key, "n": n})
                elif what == "update":
                    t.update("s.t", {"id": key}, {"n": n})
                else:
                    t.delete("s.t", {"id": key})
        if applied == "one by one":
            memory.follow()

    write_at(1, ("insert", 1, 0), ("insert", 2, 0))
    if ends == "delete":
        write_at(9, ("delete", 1, 0), ("delete", 2, 0))
    else:
        now[0] = BEGIN + 9 * SECOND
        db.truncate_table("s.t")
    write_at(2, ("insert", 1, 1), ("insert", 3, 0))
    write_at(3, ("update", 1, 2), ("update", 3, 1))
    memory.follow()
    found: dict[int, list[Any]] = {}
    for row in sorted(memory.rows("s.t"), key=lambda row: row["_seq"]):
        times = [
            None if at is None else int(at.timestamp()) - BEGIN // SECOND
            for at in (row["_valid_from"], row["_valid_to"])
        ]
        found.setdefault(row["id"], []).append((row["n"], *times))
    assert found == {1: [(0, 1, 9), (1, 9, 9), (2, 9, None)], 2: [(0, 1, 9)], 3: [(0, 2, 3), (1, 3, None)]}


def test_several_changes_of_a_key_in_one_transaction_are_versions_of_their_own(memory: Lake) -> None:
    def write_changes(t: Any) -> None:
        t.insert("s.t", {"id": 1, "n": 0})
        t.update("s.t", {"id": 1}, {"n": 1})
        t.delete("s.t", {"id": 1})
        t.insert("s.t", {"id": 1, "n": 2})

    rows = _create_table(memory, write_changes, mode="history")
    assert [(row["id"], row["n"], row["_is_current"]) for row in rows] == [(1, 0, False), (1, 1, False), (1, 2, True)]


def test_a_key_that_a_row_has_within_a_transaction_alone_begins_no_version(memory: Lake) -> None:
    """Rows get other keys: a version with a passing key could hide another row, which has that key all the time."""

    def write_changes(t: Any) -> None:
        t.insert("s.t", {"id": 1, "n": 0})
        t.update("s.t", {"id": 1}, {"n": 1})
        t.update("s.t", {"id": 1}, {"id": 2})
        t.update("s.t", {"id": 2}, {"n": 2})

    rows = _create_table(memory, write_changes, mode="history")
    assert [(row["id"], row["n"], row["_is_current"]) for row in rows] == [(2, 1, False), (2, 2, True)]


def test_a_read_that_finds_a_row_as_it_is_known_begins_no_version(memory: Lake) -> None:
    def write_changes(t: Any) -> None:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": i})

    before = _create_table(memory, write_changes, mode="history")
    number = snapshot(memory.connector, "s.t")
    memory.connector.capture(
        {"read.only": True, "signal.poll.interval.ms": 50}, run_for_s=10, until=signal_ended(memory.connector, number)
    )
    with memory.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 9})
    memory.connector.capture()
    report = memory.apply(tables=_rules("history"))
    assert report.tables[0].rows == {"r": 3, "u": 1}
    assert len(memory.rows("s.t")) == len(before) + 1


@pytest.mark.parametrize("mode", ["history", "soft_delete"])
def test_a_table_whose_key_changes_at_the_source_is_an_error_that_says_how_to_go_on(memory: Lake, mode: str) -> None:
    db = memory.connector.database
    db.create_table("s.t", {"id": "int64!", "n": "int32!"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 5})
    memory.connector.capture()
    memory.apply(tables=_rules(mode))
    before = memory.rows("s.t")
    with db.transaction() as t:
        t.insert("s.t", {"id": 2, "n": 6})
    db.change_key("s.t", "n")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 3})
    memory.connector.capture()
    with pytest.raises(TargetError, match=r"The key of s\.t changed at the source"):
        memory.apply(tables=_rules(mode))
    assert memory.rows("s.t") == before
    STORED.clear()
    db.truncate_table("s.t")
    with db.transaction() as t:
        t.insert("s.t", {"id": 7, "n": 1})
    memory.connector.capture()
    memory.apply(tables=_rules(mode))
    assert [(row["id"], row["n"]) for row in memory.rows("s.t")] == [(7, 1)]


@pytest.mark.parametrize("mode", ["history", "soft_delete"])
def test_a_key_that_changes_between_batches_is_followed_where_it_identifies_rows(memory: Lake, mode: str) -> None:
    db = memory.connector.database
    db.create_table("s.t", {"id": "int64!", "n": "int32!"}, key=("id",))
    memory.connector.capture()
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 5})
        t.insert("s.t", {"id": 4, "n": 5})
        t.delete("s.t", {"id": 4})
    memory.connector.capture()
    memory.apply(tables=_rules(mode))
    db.change_key("s.t", "n")
    with db.transaction() as t:
        t.update("s.t", {"n": 5}, {"id": 3})
    memory.connector.capture()
    if mode == "soft_delete":  # the deleted row has the same new key as the live one
        with pytest.raises(TargetError, match=r"The key of s\.t changed at the source"):
            memory.apply(tables=_rules(mode))
        return
    memory.apply(tables=_rules(mode))
    rows = sorted(memory.rows("s.t"), key=lambda row: row["_seq"])
    assert [(row["id"], row["n"], row["_is_current"]) for row in rows] == [(1, 5, False), (4, 5, False), (3, 5, True)]


@pytest.mark.parametrize("mode", ["history", "soft_delete"])
def test_keys_of_several_columns_with_odd_names_and_nulls(memory: Lake, mode: str) -> None:
    db, odd = memory.connector.database, "it's `a.b` ${env:HOME}"
    db.create_table("s.t", {odd: "string", "B": "decimal128(9, 2)", "v w": "int32"}, key=(odd, "B"))
    memory.connector.capture()
    for n in range(3):
        with db.transaction() as t:
            for a in (None, "", "ä"):
                if n == 0:
                    t.insert("s.t", {odd: a, "B": Decimal("1.50"), "v w": 0})
                t.update("s.t", {odd: a}, {"v w": n})
            if n == 2:
                t.delete("s.t", {odd: None})
        memory.connector.capture()
        memory.apply(tables=_rules(mode))
    live = [r for r in memory.rows("s.t") if (r["_is_current"] if mode == "history" else not r["_is_deleted"])]
    assert sorted((r[odd], r["v w"]) for r in live) == [("", 2), ("ä", 2)]
